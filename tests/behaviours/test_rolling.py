"""Rolling episodes into a stock: what is written down is what happened, whoever rolled it."""

import dataclasses
import json
import os
import signal
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from safestitch.behaviours.actor import act
from safestitch.behaviours.plan import NOISES, Planned, Setting, noise_of
from safestitch.behaviours.rolling import (
    SLOT,
    arrange,
    episode_seed,
    most_laps,
    roll,
    slots_for,
)
from safestitch.behaviours.snapshots import Behaviours
from safestitch.behaviours.stock import Stock
from safestitch.episodes import Episodes
from safestitch.records import SafestitchError
from safestitch.sims.own import Own
from safestitch.sims.pool import Pool, Source

ENV = "own_environments:corridor"
SLOTS, LAPS = 6, 8
pytestmark = pytest.mark.usefixtures("as_installed", "own_environments")


def plan_of(count: int, snapshots: int = 3, horizon: int = 12) -> list[Planned]:
    random = np.random.default_rng(1)
    return [
        Planned(
            Setting(i % snapshots, 0, int(random.integers(len(NOISES)))),
            float(random.uniform(0, 5)),
            float(random.uniform(0, 5)),
            int(random.integers(1, horizon + 1)),
        )
        for i in range(count)
    ]


def rolled(
    behaviours: Behaviours, plan: list[Planned], out: Path, workers: int = 2, progress=None
) -> Episodes:
    stock = Stock(out, behaviours.spec)
    source = Source(behaviours.spec, ENV)
    pool = Pool(source, lanes=SLOTS * SLOT, laps=LAPS, workers=workers)
    with stock.held({"of": "a test"}), pool:
        told = (lambda *counts: progress(pool, *counts)) if progress else None
        roll(pool, behaviours, plan, stock, first=0, seed=7, progress=told)
        return Episodes.join(list(stock.blocks(np.arange(len(plan)))))


@pytest.fixture(scope="module")
def expected(fresh, tmp_path_factory) -> Episodes:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).parents[1] / "sims"))
        return rolled(fresh(), plan_of(100), tmp_path_factory.mktemp("stock") / "a.hdf5", 1)


def test_an_episode_is_what_a_simulator_does_alone(fresh, expected):
    check_alone(fresh(), plan_of(100), expected, (0, 1, 17, 99))


def test_an_episode_that_is_handed_over(fresh, tmp_path):
    """Three snapshots that each hand over to the next, beside others that do not."""
    plan = [
        dataclasses.replace(
            p, setting=dataclasses.replace(p.setting, after=(i + 1) % 3 if i % 2 else -1)
        )
        for i, p in enumerate(plan_of(60))
    ]
    found = rolled(fresh(), plan, tmp_path / "a.hdf5", 1)
    check_alone(fresh(), plan, found, (0, 1, 3, 17, 58, 59))


def check_alone(
    behaviours: Behaviours, plan: list[Planned], expected: Episodes, numbers: tuple[int, ...]
) -> None:
    """One at a time, by the plain functions, with the stored actions to the last bits."""
    simulator = Own(ENV, 12)
    for number in numbers:
        planned, seed = plan[number], episode_seed(7, number)
        noise, drawn = noise_of(NOISES[planned.setting.noise], 12, 1, seed)
        observation = np.asarray(simulator.reset(seed), np.float32)
        rows = range(*expected.offsets[number : number + 2])
        assert len(rows) == 12
        for t, row in enumerate(rows):
            assert (expected.observations[row] == observation).all()
            lam = np.float32(planned.lam if t < planned.switch else planned.lam_after)
            setting = planned.setting
            actor = behaviours[setting.snapshot if t < planned.switch else setting.last]
            action = np.asarray(act(actor, observation, lam, noise[t]))
            action = action if np.isnan(drawn[t]).all() else drawn[t]
            np.testing.assert_allclose(expected.actions[row], action, atol=1e-6)
            step = simulator.step(expected.actions[row])
            observation = np.asarray(step.observation, np.float32)
            assert expected.rewards[row] == np.float32(step.reward)
            assert expected.costs[row] == np.float32(step.cost)
        assert expected.final_observations is not None
        assert (expected.final_observations[number] == observation).all()
        assert expected.truncated[rows[-1]] and not expected.terminated[rows[-1]]


@pytest.mark.parametrize("workers", [2, 3])
def test_workers_change_nothing(fresh, expected, tmp_path, workers):
    found = rolled(fresh(), plan_of(100), tmp_path / "a.hdf5", workers)
    assert found.fingerprint == expected.fingerprint


def test_a_worker_killed_on_the_way_changes_nothing(fresh, expected, tmp_path):
    kills = iter((10, 40, 70))
    state = {"next": next(kills)}

    def kill(pool: Pool, finished: int, _: int) -> None:
        if finished >= state["next"]:
            os.kill(pool.processes[0], signal.SIGKILL)
            state["next"] = next(kills, 10**9)

    found = rolled(fresh(), plan_of(100), tmp_path / "a.hdf5", 2, kill)
    assert state["next"] == 10**9
    assert found.fingerprint == expected.fingerprint


class Stopped(Exception):
    pass


def test_what_is_certain_is_not_rolled_again(fresh, expected, tmp_path):
    """Stopped three times, with rows torn off and rubbish at the ends of the files."""
    out = tmp_path / "a.hdf5"
    counts = []
    for stop in (20, 50, 80):

        def stop_at(_: Pool, finished: int, __: int, stop: int = stop) -> None:
            counts.append(finished)
            if finished >= stop:
                raise Stopped

        with pytest.raises(Stopped):
            rolled(fresh(), plan_of(100), out, 2, stop_at)
        directory = out.with_name("a.hdf5.making")
        os.truncate(directory / "finished.bin", (directory / "finished.bin").stat().st_size - 3)
        with open(directory / "rows.bin", "ab") as handle:
            handle.write(b"torn")
    found = rolled(fresh(), plan_of(100), out, 2, lambda _, finished, __: counts.append(finished))
    assert found.fingerprint == expected.fingerprint
    assert counts[-1] == 100 and counts[0] == 0 and sorted(counts) != counts  # two were torn


def test_another_order_begins_anew(fresh, tmp_path):
    spec = fresh().spec
    stock = Stock(tmp_path / "a.hdf5", spec)
    row = np.zeros(2, stock.layout)
    with stock.held({"key": 1}):
        stock.add(0, row, np.zeros(3))
    again = Stock(tmp_path / "a.hdf5", spec)
    with again.held({"key": 1}):
        assert list(again.records) == [0] and again.steps == 2
    other = Stock(tmp_path / "a.hdf5", spec)
    with other.held({"key": 2}):
        assert not other.records and other.steps == 0


def test_two_at_once_are_refused(fresh, tmp_path):
    one, other = (Stock(tmp_path / "a.hdf5", fresh().spec) for _ in range(2))
    with one.held({}), pytest.raises(SafestitchError, match="another process"), other.held({}):
        pass


def test_records_without_their_rows_are_not_believed(fresh, tmp_path):
    spec = fresh().spec
    stock = Stock(tmp_path / "a.hdf5", spec)
    with stock.held({}):
        for number in range(3):
            stock.add(number, np.zeros(5, stock.layout), np.zeros(3))
    os.truncate(stock.rows_file, 12 * stock.layout.itemsize)
    again = Stock(tmp_path / "a.hdf5", spec)
    with again.held({}):
        assert list(again.records) == [0, 1] and again.steps == 10
    assert json.loads(stock.order_file.read_bytes()) == {}


def test_actions_are_in_the_range_of_the_task(fresh, tmp_path):
    behaviours = fresh()
    wide = dataclasses.replace(behaviours.spec, action_low=0.0, action_high=4.0)
    found = rolled(dataclasses.replace(behaviours, spec=wide), plan_of(30), tmp_path / "a.hdf5")
    assert found.actions.min() >= 0 and found.actions.max() > 2


def test_a_simulator_that_fails_says_so(fresh, tmp_path):
    stock, spec = Stock(tmp_path / "a.hdf5", fresh().spec), fresh().spec
    pool = Pool(Source(spec, "own_environments:raises"), lanes=SLOTS * SLOT, laps=LAPS, workers=1)
    with (
        stock.held({}),
        pool,
        pytest.raises(SafestitchError, match=r"step 3: .*the motor is on fire"),
    ):
        roll(pool, fresh(), plan_of(10), stock, first=0, seed=0)


# --- who plays what ----------------------------------------------------------------------------


@given(st.lists(st.integers(0, 7), min_size=1, max_size=400))
def test_every_episode_is_played_once_by_its_snapshot(snapshots):
    slots = slots_for(8, len(snapshots))
    chosen = arrange(snapshots, slots)
    assert len(chosen.kind) == slots
    assert len(chosen.episode) == slots * SLOT
    assert chosen.episode.shape[1] <= most_laps(8, len(snapshots), slots)
    played = chosen.episode[chosen.episode >= 0]
    assert sorted(played.tolist()) == list(range(len(snapshots)))
    for lane, episodes in enumerate(chosen.episode):
        for episode in episodes[episodes >= 0]:
            assert snapshots[episode] == chosen.kind[lane // SLOT]


def test_lanes_have_about_the_same_to_do():
    """48 episodes of one snapshot, 16 of another, in 8 slots of 8: one lap."""
    chosen = arrange([0] * 48 + [1] * 16, 8)
    assert np.bincount(chosen.kind).tolist() == [6, 2]
    assert (chosen.episode >= 0).all() and chosen.episode.shape == (64, 1)


def test_episode_seeds():
    assert len({episode_seed(seed, i) for seed in range(3) for i in range(100)}) == 300
    assert 0 <= episode_seed(2**32 - 1, 10**6) < 2**32
