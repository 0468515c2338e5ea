import dataclasses
import math
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st
from tests.comparing.conftest import LIMITS, make_result, make_run

from safestitch.comparing.entries import Entry, data_name
from safestitch.comparing.figures import ALL, Result, bands_of, cells_of, normalised
from safestitch.comparing.paired import Difference, difference
from safestitch.comparing.published import published
from safestitch.comparing.summary import summarise
from safestitch.evaluation.rollout import Rollout

GAS = make_result("gas", [40.0, 60.0], [0.5, 0.9])
"""Mean 0.5 of R_max = 100, and 0.7 of every limit."""


def cells(*results: Result, against: str | None = "gas", band: str = "tight") -> dict[str, Any]:
    return {c.method: c for c in cells_of(results, bands_of(results), against) if c.band == band}


# --- averages ----------------------------------------------------------------------------------


def test_averages_worked_by_hand():
    cell = cells(GAS)["gas"]
    assert (cell.reward, cell.cost) == (pytest.approx(0.5), pytest.approx(0.7))
    assert cell.reward_std == pytest.approx(math.sqrt(0.02))  # 0.4 and 0.6, n - 1
    assert cell.cost_std == pytest.approx(math.sqrt(0.08))  # 0.5 and 0.9
    assert (cell.seeds, cell.kept, cell.limits) == (2, 3, 3)


def test_the_bands_are_the_limits_of_the_paper():
    rewards = np.arange(6.0)[None, :, None] * 10.0
    costs = np.asarray([8.0, 0.0, 12.0, 56.0, 32.0, 0.0])[None, :, None]
    result = Result(Entry("gas", Path("x"), make_run(seeds=1)), LIMITS, Rollout(rewards, costs))
    tight, loose = (cells(result, band=band)["gas"] for band in ("tight", "loose"))
    assert (tight.reward, loose.reward) == (pytest.approx(0.1), pytest.approx(0.4))
    assert (tight.cost, loose.cost) == (pytest.approx(0.5), pytest.approx(0.5))  # 1 0 .5, 1 .5 0
    assert tight.reward_std is None


def test_the_order_of_limits_does_not_matter():
    mixed = tuple(reversed(LIMITS))
    result = make_result("gas", [40.0, 60.0], [0.5, 0.9], limits=mixed)
    assert cells(result) == cells(GAS)


@pytest.mark.parametrize(
    ("limits", "bands"),
    [
        (LIMITS, ["tight", "loose"]),
        (LIMITS[:3], ["tight"]),
        ((*LIMITS[3:], 40.0), ["loose"]),
        (LIMITS[:2], [ALL]),
        ((8.0, 40.0, 72.0), [ALL]),
    ],
)
def test_a_band_needs_all_of_its_limits(limits, bands):
    result = make_result("gas", [40.0], [0.5], limits=limits)
    assert bands_of([result]) == bands
    assert cells_of([result], bands, None)[0].limits == (len(limits) if bands == [ALL] else 3)


def test_frontier_ratio_counts_only_limits_that_were_kept():
    """Best logged within 8, 16, 24: 50, 50, 80; within 56, 64, 72: 80, 100, 100."""
    assert cells(GAS)["gas"].frontier_ratio == pytest.approx((1.0 + 1.0 + 50 / 80) / 3)
    assert cells(GAS, band="loose")["gas"].frontier_ratio == pytest.approx(
        (50 / 80 + 0.5 + 0.5) / 3
    )
    broken = make_result("gas", [40.0], [0.5])
    broken.rollout.costs[:, 0] = 10.0  # limit 8
    cell = cells(broken)["gas"]
    assert (cell.kept, cell.limits, cell.mark) == (2, 3, "best")  # C/L 1.25, 0.5, 0.5: safe
    assert cell.frontier_ratio == pytest.approx((40 / 50 + 40 / 80) / 2)
    never = make_result("gas", [40.0], [1.5])
    assert cells(never)["gas"].frontier_ratio is None


def test_nothing_logged_within_a_limit():
    summary = {**make_run().data_summary, "frontier_costs": [10.0], "frontier_rewards": [50.0]}
    cell = cells(make_result("gas", [40.0], [0.5], make_run(seeds=1, data_summary=summary)))["gas"]
    assert cell.kept == 3
    assert cell.frontier_ratio is None  # of the limit 8 nothing is known, so of the band neither


def test_no_reward_above_zero():
    summary = {**make_run().data_summary, "reward_max": 0.0}
    cell = cells(make_result("gas", [-4.0], [0.5], make_run(seeds=1, data_summary=summary)))["gas"]
    assert (cell.reward, cell.mark) == (None, "safe")


@pytest.mark.parametrize(("cost", "mark"), [(0.0, "best"), (1.0, "unsafe")])
def test_a_limit_of_zero_is_kept_or_broken(cost, mark):
    result = make_result("gas", [40.0], [0.5], limits=(0.0, 10.0))
    result.rollout.costs[:, 0] = cost
    cell = cells(result, band=ALL)["gas"]
    assert (cell.cost, cell.mark) == (pytest.approx(0.5), mark)
    alone = make_result("gas", [40.0], [0.5], limits=(0.0,))
    assert cells(alone, band=ALL)["gas"].cost is None


# --- marks -------------------------------------------------------------------------------------


def test_marks():
    found = cells(
        GAS,
        make_result("tied", [50.4], [1.0]),
        make_result("low", [49.0], [0.1]),
        make_result("reckless", [90.0], [1.001]),
    )
    marks = {method: cell.mark for method, cell in found.items()}
    assert marks == {"gas": "best", "tied": "best", "low": "safe", "reckless": "unsafe"}


def test_nobody_is_best_where_nobody_is_safe():
    found = cells(make_result("gas", [40.0], [1.2]), make_result("bc", [30.0], [1.1]))
    assert {cell.mark for cell in found.values()} == {"unsafe"}


def test_marks_are_per_task():
    other = make_run("CarRun", seeds=1)
    results = [GAS, make_result("bc", [80.0], [0.9]), make_result("gas", [10.0], [0.9], other)]
    marks = {(c.task, c.method): c.mark for c in cells_of(results, ["tight"], None)}
    assert marks == {
        ("BallRun", "gas"): "safe",
        ("BallRun", "bc"): "best",
        ("CarRun", "gas"): "best",
    }


# --- differences -------------------------------------------------------------------------------


def test_luck_of_the_start_cancels():
    luck = np.random.default_rng(1).normal(0.0, 100.0, (1, 10))
    assert difference([(luck + 0.25, luck)]) == pytest.approx((0.25, 0.25, 0.25))


def test_without_pairs_the_same_numbers_are_uncertain():
    luck = np.random.default_rng(1).normal(0.0, 100.0, (1, 10))
    found = difference([(luck + 0.25, luck[:, ::-1])])
    assert found.value == pytest.approx(0.25)
    assert found.high - found.low > 50.0


def test_policy_seeds_are_drawn_apart():
    """Two seeds that earn 0 and 1, against the same: the difference is -1 to 1, not always 0."""
    seeds = np.asarray([[0.0], [1.0]])
    assert difference([(seeds, seeds)]) == (0.0, -1.0, 1.0)
    assert difference([(seeds, np.zeros((1, 1)))]) == (0.5, 0.0, 1.0)  # 1/4, 1/2, 1/4


def test_a_known_interval():
    """100 start states worth 0 or 1: the resampled mean is binomial, sd 0.05."""
    ours = (np.arange(100) % 2 == 0).astype(float)[None]
    found = difference([(ours, np.zeros((1, 100)))])
    assert found.value == 0.5
    assert (found.low, found.high) == (pytest.approx(0.4, abs=0.011), pytest.approx(0.6, abs=0.011))
    assert found.clear and not Difference(0.1, -0.1, 0.3).clear
    assert difference([(ours, np.zeros((1, 100)))]) == found  # seeded


def test_tasks_are_averaged_and_narrow_the_interval():
    ours = (np.arange(100) % 2 == 0).astype(float)[None]
    one = difference([(ours, np.zeros((1, 100)))])
    four = difference([(ours, np.zeros((1, 100)))] * 4)
    assert four.value == one.value
    assert (four.high - four.low) == pytest.approx((one.high - one.low) / 2, rel=0.2)


@hypothesis.given(
    shift=st.floats(-5, 5),
    shape=st.tuples(st.integers(1, 4), st.integers(1, 4), st.integers(1, 6)),
    seed=st.integers(0, 99),
)
@hypothesis.settings(max_examples=20)
def test_a_shift_moves_the_interval_with_it(shift, shape, seed):
    rng = np.random.default_rng(seed)
    ours, theirs = rng.normal(size=(shape[0], shape[2])), rng.normal(size=(shape[1], shape[2]))
    base, moved = difference([(ours, theirs)]), difference([(ours + shift, theirs)])
    assert moved == pytest.approx(tuple(v + shift for v in base), abs=1e-9)
    assert base.low - 1e-9 <= base.value <= base.high + 1e-9


def test_differences_in_the_table():
    found = cells(GAS, make_result("bc", [30.0, 30.0], [0.2, 0.2]))
    assert found["gas"].gap is None
    reward, cost = found["bc"].gap
    assert (reward.value, reward.low, reward.high) == pytest.approx((-0.2, -0.3, -0.1))
    assert (cost.value, cost.low, cost.high) == pytest.approx((-0.5, -0.7, -0.3))


def test_a_task_without_the_reference_has_no_difference():
    other = make_result("bc", [10.0], [0.9], make_run("CarRun", seeds=1))
    assert [c.gap for c in cells_of([GAS, other], ["tight"], "gas")] == [None, None]
    assert [c.gap for c in cells_of([GAS, other], ["tight"], None)] == [None, None]


def test_episodes_that_share_a_start_stay_together():
    rewards = np.asarray([[[10.0, 20.0], [30.0, 60.0], [20.0, 40.0]]])  # 1 seed, 3 limits, 2 starts
    costs = np.asarray([[[8.0, 0.0], [8.0, 16.0], [0.0, 24.0]]])
    result = Result(Entry("gas", Path("x"), make_run(seeds=1)), LIMITS[:3], Rollout(rewards, costs))
    found_rewards, found_costs = normalised(result, "tight")
    assert found_rewards == pytest.approx(np.asarray([[0.2, 0.4]]))
    assert found_costs == pytest.approx(np.asarray([[0.5, 2 / 3]]))


# --- over tasks --------------------------------------------------------------------------------


def test_summary_over_tasks():
    car = make_run("CarRun", seeds=1)
    comparison = summarise(
        [
            GAS,
            make_result("bc", [80.0], [1.5]),
            make_result("gas", [30.0], [0.9], car),
            make_result("bc", [20.0], [0.3], car),
        ],
        "gas",
    )
    gas, bc = (s for s in comparison.summaries if s.band == "tight")
    assert (gas.tasks, gas.safe, gas.best, bc.safe, bc.best) == (2, 2, 2, 1, 0)
    assert (gas.reward, gas.cost) == (pytest.approx(0.4), pytest.approx(0.8))
    assert gas.gap is None
    assert bc.gap is not None
    assert bc.gap[0].value == pytest.approx((0.3 - 0.1) / 2)
    # BallRun has no kept limit, so only CarRun counts: 20 of 50, 50 and 80.
    assert bc.frontier_ratio == pytest.approx((0.4 + 0.4 + 0.25) / 3)
    assert (comparison.tasks, comparison.methods) == (["BallRun", "CarRun"], ["gas", "bc"])


# --- the paper, and the data -------------------------------------------------------------------


def test_figures_of_the_paper():
    found = published("tight", "BallRun", "gas")
    assert found is not None
    assert found == ("GAS", 0.33, 0.01, 0.62, 0.15, "best")
    caps = published("loose", "HopperVelocity", "caps-iql")
    assert caps is not None and caps.method == "CAPS"
    assert published("tight", "BallRun", "bc") is None
    assert published("tight", "StitchChain", "gas") is None
    assert published(ALL, "BallRun", "gas") is None


def test_the_paper_stands_beside_bands_only():
    assert cells(GAS)["gas"].paper == published("tight", "BallRun", "gas")
    half = make_result("gas", [40.0], [0.5], limits=LIMITS[:2])
    assert cells(half, band=ALL)["gas"].paper is None


@pytest.mark.parametrize(
    ("source", "name"),
    [
        (
            "made by safestitch, file /home/me/BallRun-made-by-safestitch.hdf5",
            "made by safestitch (BallRun-made-by-safestitch.hdf5)",
        ),
        (
            "file /home/me/SafetyBallRun-v0-80-940.hdf5",
            "public DSRL data (SafetyBallRun-v0-80-940.hdf5)",
        ),
        ("file /home/me/logs.h5", "the file logs.h5"),
        ("built-in MiniRun, data seed 0", "built-in MiniRun, data seed 0, made by safestitch"),
        ("episodes in memory", "episodes in memory"),
    ],
)
def test_data_are_named_without_folders(source, name):
    assert data_name(dataclasses.replace(make_run(), data_source=source)) == name
