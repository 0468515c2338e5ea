"""Which episodes are rolled, and what is aimed at."""

from collections import Counter

import jax
import numpy as np
import pytest

from safestitch.behaviours.actor import init_actor
from safestitch.behaviours.aiming import _combined, _crossed, _residuals, aim, chase
from safestitch.behaviours.plan import (
    LADDER,
    NOISES,
    PARTS,
    SPELL,
    Noise,
    Setting,
    draw,
    ladder_of,
    noise_of,
    survey,
)
from safestitch.behaviours.snapshots import Behaviours, Moment, behaviours_of
from safestitch.behaviours.thinning import Region
from safestitch.data.coverage import tenth
from safestitch.records import Spec

SPEC = Spec("own", 3, 2, 40, 10.0)


def three(costs: tuple[float, ...] = (20.0, 12.0, 0.0)) -> Behaviours:
    actor = init_actor(SPEC, 4, jax.random.key(0))
    moment = Moment(0, 0, (0.0, 1.0, 100.0), (3.0, 2.0, 1.0), costs)
    return behaviours_of(SPEC, [actor] * 3, [moment] * 3)


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_the_survey_is_even():
    settings = survey(three(), 91 * 3, None, generator())
    assert Counter(s.snapshot for s in settings) == {0: 91, 1: 91, 2: 91}
    kinds = Counter((s.snapshot, s.rung, s.noise) for s in settings)
    assert len(kinds) == 3 * 7 * len(NOISES)
    assert all(kinds[key] == NOISES[key[2]].weight for key in kinds)
    changing = [s for s in settings if s.then >= 0]
    assert 0 < len(changing) < 0.2 * len(settings)
    assert all(1 <= s.part < PARTS for s in changing)


def test_the_hopeless_have_fewer_turns():
    able = three().moments[0]
    hopeless = Moment(0, 0, able.lambdas, (0.1, 0.1, 0.1), able.costs)
    behaviours = behaviours_of(SPEC, [three()[0]] * 3, [hopeless, able, able])
    settings = survey(behaviours, 70, None, generator())
    assert Counter(s.snapshot for s in settings) == {0: 10, 1: 30, 2: 30}


def test_a_rung_that_costs_far_too_much_is_left_out():
    """Costs 20, 12 and 0 are those of rungs 0, 3 and 6; what lies between may cost anything."""

    def rungs(region: Region, costs: tuple[float, ...] = (20.0, 12.0, 0.0)) -> set[int]:
        return {s.rung for s in survey(three(costs), 300, region, generator())}

    assert rungs(Region(10.0)) == {1, 2, 3, 4, 5, 6}  # 12 is within 1.3 x 10
    assert rungs(Region(9.0)) == {4, 5, 6}
    assert rungs(Region(10.0, 1.5)) == {1, 2, 3, 4, 5}  # and the last earned 1
    assert rungs(Region(10.0), (90.0, 80.0, 70.0)) == {0, 3, 6}  # none is of use: those measured


def test_a_snapshot_stays_within_what_it_has_learned():
    """Of the ends 0, 1, 10, 100, one was measured at the first three, one at the last three."""
    moments = [
        Moment(0, 0, (0.0, 1.0, 10.0), (1.0, 1.0, 1.0), (0.0, 0.0, 0.0)),
        Moment(1, 0, (1.0, 10.0, 100.0), (1.0, 1.0, 1.0), (0.0, 0.0, 0.0)),
    ]
    behaviours = behaviours_of(SPEC, [three()[0]] * 2, moments)
    for region in (None, Region(10.0)):
        settings = survey(behaviours, 800, region, generator())
        for snapshot, rungs in ((0, range(0, 7)), (1, range(3, 10))):
            mine = [s for s in settings if s.snapshot == snapshot]
            assert {s.rung for s in mine} == set(rungs)
            assert {s.then for s in mine if s.then >= 0} <= set(rungs)


def test_the_ladder():
    # Thirds of the way from log(1 + 0 / 0.01) to log(1 + 1 / 0.01), and on.
    thirds = [101 ** (i / 3) for i in range(3)] + [101 * (10001 / 101) ** (i / 3) for i in range(4)]
    assert ladder_of(three()) == pytest.approx([0.01 * (x - 1) for x in thirds])
    unmeasured = behaviours_of(SPEC, [three()[0]], [Moment(0, 0, (), (), ())])
    assert ladder_of(unmeasured)[::3] == pytest.approx(LADDER)
    assert survey(unmeasured, 5, Region(10.0), generator())


def test_multipliers_lie_about_their_rung():
    ladder = (0.0, 1.0, 100.0)
    planned = draw([Setting(0, 1, 0)] * 300, ladder, 40, generator())
    lams = np.array([p.lam for p in planned])
    # Half way from log(1 + 0 / 0.01) to log(1 + 1 / 0.01), and on to log(1 + 100 / 0.01).
    assert lams.min() > 0.01 * (101**0.5 - 1) and lams.max() < 0.01 * ((101 * 10001) ** 0.5 - 1)
    assert (lams < 1).any() and (lams > 1).any()
    assert all(p.switch == 40 and p.lam_after == p.lam for p in planned)
    last = draw([Setting(0, 2, 0)] * 50, ladder, 40, generator())
    assert max(p.lam for p in last) == pytest.approx(100.0)


def test_changes_of_mind():
    planned = draw([Setting(0, 0, 0, then=2, part=8)] * 200, (0.0, 1.0, 100.0), 80, generator())
    assert {p.switch for p in planned} == set(range(38, 43))  # half of it, a 32nd about
    assert all(p.lam < p.lam_after for p in planned)


def test_equal_seeds_draw_equal_plans():
    plans = [
        draw(survey(three(), 50, None, g), (0.0, 1.0, 9.0), 40, g)
        for g in (generator(3), generator(3), generator(4))
    ]
    assert plans[0] == plans[1] != plans[2]


def test_noise():
    gaussian, drawn = noise_of(Noise(0.0, 0.0, 1), 20, 2, seed=5)
    assert not gaussian.any() and np.isnan(drawn).all()
    gaussian, drawn = noise_of(Noise(1.0, 1.0, 1), 1000, 2, seed=5)
    assert gaussian.std() == pytest.approx(1.0, abs=0.05)
    assert gaussian.dtype == drawn.dtype == np.float32
    assert not np.isnan(drawn).any() and np.abs(drawn).max() <= 1
    spells = drawn.reshape(-1, SPELL, 2)
    assert (spells == spells[:, :1]).all() and len(np.unique(drawn[:, 0])) == 1000 // SPELL
    again = noise_of(Noise(1.0, 1.0, 1), 1000, 2, seed=5)
    assert (again[0] == gaussian).all() and (again[1] == drawn).all()
    half = noise_of(Noise(1.0, 0.25, 1), 8000, 1, seed=6)[1]
    assert np.isfinite(half).mean() == pytest.approx(0.25, abs=0.05)


def test_it_aims_where_episodes_are_missing():
    """100 episodes at cost 1, one each at 9 and 20: those at 9 are wanted, 20 is too costly.

    Of 50, 18 are for the best within a cost, which both are; the other 32 fill the gap.
    """
    common, rare, costly = Setting(0, 0, 3), Setting(1, 0, 3), Setting(2, 0, 3)
    settings = [common] * 100 + [rare, costly]
    costs = np.array([1.0] * 100 + [9.0, 20.0])
    chosen = Counter(aim(settings, np.ones(102), costs, Region(10.0), 50, 200))
    assert chosen == {rare: 9 + 32, common: 9}
    chosen = Counter(aim(settings, np.ones(102), costs, Region(10.0), 150, 200))
    assert chosen[costly] == 0 and chosen[rare] > 80 and chosen[common] > 30


def test_it_changes_its_mind_where_nothing_else_lands():
    """Costs 0 and 10 only: what lies between is reached by half an episode of each."""
    settings = [Setting(0, 0, 0), Setting(0, 1, 0)] * 20
    costs = np.array([10.0, 0.0] * 20)
    chosen = aim(settings, costs + 1, costs, Region(10.0), 60, 100)
    changing = [s for s in chosen if s.then >= 0]
    assert len(changing) > 30
    assert {(s.rung, s.then) for s in changing} <= {(0, 1), (1, 0)}
    assert len({s.part for s in changing}) > 8


def test_it_tries_the_best_within_each_cost():
    """Of 40 settings at the same cost, each with a reward of its own, the best ten are repeated."""
    settings = [Setting(0, rung, 3) for rung in range(40)]
    rewards, costs = np.arange(40.0), np.full(40, 5.0)
    first = aim(settings, rewards, costs, Region(10.0), 60, 100)[:21]  # 35%
    assert Counter(s.rung for s in first) == {39: 3, **dict.fromkeys(range(30, 39), 2)}


def test_it_chases_the_best_within_some_costs_alone():
    """Twelve settings each at costs 5 and 9: where more is wanted, the best ten are repeated."""
    settings = [Setting(0, rung, 3) for rung in range(24)]
    rewards, costs = np.arange(24.0), np.repeat([5.0, 9.0], 12)
    chosen = chase(settings, rewards, costs, Region(10.0), 40, [5])
    assert Counter(s.rung for s in chosen) == dict.fromkeys(range(2, 12), 4)
    chosen = chase(settings, rewards, costs, Region(10.0), 40, [3, 5, 9])  # at cost 3 is none
    assert Counter(s.rung for s in chosen) == dict.fromkeys([*range(2, 12), *range(14, 24)], 2)


def test_what_was_off_before_is_expected_to_be_off_again():
    """Half and half of (10, 0) and (30, 10) landed at (14, 7) and not at (20, 5)."""
    cheap, dear = Setting(0, 0, 0), Setting(0, 1, 0)
    tried = Setting(0, 0, 0, then=1, part=8)
    means = {cheap: (10.0, 0.0), dear: (30.0, 10.0), tried: (14.0, 7.0)}
    # To cheaper ways none was tried; to costlier ones half of what it was off by.
    assert _residuals(means).tolist() == [[0.0, 0.0], [-3.0, 1.0]]
    found, expected = _combined(means, [tried], Region(10.0))
    assert len(found) == 2 * 15 - 1
    at = dict(zip(found, expected.tolist(), strict=True))
    # A quarter of the way the weight of being off is 3/4.
    assert at[Setting(0, 0, 0, 1, 4)] == [0.25 * 10 + 0.75 * 30 - 2.25, 7.5 + 0.75]
    assert at[Setting(0, 1, 0, 0, 8)] == [20.0, 5.0]


def test_one_snapshot_hands_over_to_another():
    """The cheap way is the one's, the dear one the other's: between them no one alone has both."""
    cheap, dear = Setting(0, 0, 0), Setting(1, 2, 0)
    alone = chase(
        [cheap, dear], np.array([10.0, 30.0]), np.array([0.0, 10.0]), Region(10.0), 4, [5]
    )
    assert alone == []
    known = {Setting(1, 3, 1): (99.0, 9.0)}  # with noise: not a way to hand over to
    ways = [cheap, dear], np.array([10.0, 30.0]), np.array([0.0, 10.0])
    chosen = chase(*ways, Region(10.0), 4, [5], known, pairs=2)
    # Costs above 4 and up to 5: the parts 8 and 9 of the way up, 7 and 8 down; the best are at 5.
    assert Counter(chosen) == {
        Setting(0, 0, 0, 2, 8, 1): 1,
        Setting(1, 2, 0, 0, 8, 0): 1,
        Setting(0, 0, 0, 2, 9, 1): 1,
        Setting(1, 2, 0, 0, 7, 0): 1,
    }
    # Where something landed there before, every other one is that.
    landed = [*ways[0], Setting(2, 0, 3)], np.append(ways[1], 25.0), np.append(ways[2], 5.0)
    again = chase(*landed, Region(10.0), 4, [5], known, pairs=3)
    assert again == [chosen[0], Setting(2, 0, 3), chosen[1], Setting(2, 0, 3)]
    one_pair = chase(*ways, Region(10.0), 4, [5], known, pairs=1)
    assert len(one_pair) == 4 and len({(s.snapshot, s.last) for s in one_pair}) == 1


def test_a_handing_over_that_was_tried_says_what_others_are_off_by():
    cheap, dear = Setting(0, 0, 0), Setting(1, 2, 0)
    handed = Setting(0, 0, 0, then=2, part=8, after=1)
    means = {cheap: (10.0, 0.0), dear: (30.0, 10.0), handed: (14.0, 7.0)}
    assert _residuals(means).tolist() == [[0.0, 0.0], [-3.0, 1.0]]
    found, expected = _crossed(means, means.keys(), Region(10.0))
    assert handed not in found
    at = dict(zip(found, expected.tolist(), strict=True))
    assert at[Setting(0, 0, 0, 2, 4, 1)] == [0.25 * 10 + 0.75 * 30 - 2.25, 7.5 + 0.75]
    assert at[Setting(1, 2, 0, 0, 8, 0)] == [20.0, 5.0]


def test_what_was_measured_can_be_combined():
    """All that was tried costs nothing; what was measured to cost far too much helps in part."""
    settings = [Setting(0, 1, 0)] * 20
    known = {Setting(0, 0, 0): (90.0, 100.0)}
    chosen = aim(settings, np.full(20, 5.0), np.zeros(20), Region(10.0), 30, 60, known)
    assert not any(s == Setting(0, 0, 0) for s in chosen)
    assert {(s.rung, s.then, s.part) for s in chosen if s.then >= 0} == {(0, 1, 1), (1, 0, 15)}


def test_aiming_evens_out_the_tenths():
    """Settings whose costs spread about their own mean: after aiming no tenth is thin."""
    random = generator(1)
    settings = [Setting(0, rung, 3) for rung in range(12) for _ in range(4)]
    means = np.array([0, 0, 0, 0, 0, 1, 2, 4, 6, 8, 9, 14.0])

    def costs_of(settings: list[Setting]) -> np.ndarray:
        return np.clip(
            means[[s.rung for s in settings]] + random.normal(0, 0.5, len(settings)), 0, 99
        )

    costs = costs_of(settings)
    for _ in range(2):
        more = aim(settings, np.ones(len(costs)), costs, Region(10.0), 100, 150)
        settings, costs = settings + more, np.concatenate([costs, costs_of(more)])
    counts = np.bincount(tenth(costs, 10.0), minlength=11)
    assert (counts[:10] >= 5).all()
    assert counts[10] < 0.1 * len(costs)
