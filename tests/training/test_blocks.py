"""Training on data larger than memory: the same contract as on data in memory."""

import dataclasses
import functools
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import safestitch
from safestitch import runs
from safestitch.algos import gas, get_algorithm, reshaping
from safestitch.data import store
from safestitch.envs import get_task
from safestitch.episodes import COLUMNS, Episodes
from safestitch.policy import recall
from safestitch.records import SafestitchError
from safestitch.scaling import fit_scaling
from safestitch.training import blocks, loop

GAS = get_algorithm("gas")
TASK = get_task("StitchChain")
SMALL: dict[str, Any] = {
    "batch": 16,
    "hidden": 8,
    "embedding": 4,
    "layers": 2,
    "budget_batch": 8,
    "schedule": "constant",
}
ALWAYS = -1.0
"""Seconds between checkpoints: one after every chunk."""
QUARTER = 3.3e6
"""Bytes that a block of about a quarter of the data needs."""


@functools.cache
def data() -> Episodes:
    return TASK.make_data(0)


def config(iterations: int = 1200) -> Any:
    return dataclasses.replace(GAS.presets["fast"], iterations=iterations, **SMALL)


def train(out: Path, episodes: Episodes | None = None, **rest: Any) -> Path:
    rest = {"checkpoint_seconds": ALWAYS, "memory": QUARTER, **rest}
    loop.train(GAS, config(), TASK.spec, episodes or data(), [0, 1], out, **rest)
    return out


def resume(out: Path, episodes: Episodes | None = None, **rest: Any) -> None:
    run = runs.read(out)
    rest = {"checkpoint_seconds": ALWAYS, **rest}
    loop.resume(*recall(run), run, episodes or data(), out, **rest)


def assert_same_result(out: Path, expected: Path) -> None:
    for name in (runs.POLICY, runs.METRICS, runs.CHECKPOINT):
        assert (out / name).read_bytes() == (expected / name).read_bytes(), name


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was never stopped, on blocks of a quarter of the data."""
    return train(tmp_path_factory.mktemp("whole") / "run")


# --- blocks ------------------------------------------------------------------------------------


def ragged(lengths: list[int]) -> Episodes:
    n = sum(lengths)
    ends = np.zeros(n, bool)
    ends[np.cumsum(lengths) - 1] = True
    rows = np.arange(n, dtype=np.float32)
    return Episodes.of(rows[:, None], rows[:, None] / n, rows, rows % 2, np.zeros(n), ends)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=12), st.floats(0, 1), st.integers(0, 1000))
def test_a_block_is_whole_episodes_and_the_end_of_one(lengths, share, number):
    episodes = ragged(lengths)
    longest = max(lengths)
    rows = longest + int(share * (sum(lengths) - longest))
    block = blocks.draw_block(episodes, rows, number)
    checked = Episodes(**{name: getattr(block, name) for name in (*COLUMNS, "offsets")})
    assert checked.steps == rows
    ends = set(episodes.offsets[1:] - 1)
    cut = 0
    seen = set()
    for episode in checked:
        steps = episode["rewards"].astype(int)  # every row holds its own number
        assert (np.diff(steps) == 1).all()
        assert steps[-1] in ends
        seen.add(int(steps[-1]))
        cut += steps[0] not in episodes.offsets
    assert cut <= 1
    assert len(seen) == len(checked)  # no episode twice


def test_a_block_depends_on_its_number_alone():
    one, same, other = (blocks.draw_block(data(), 5000, number) for number in (3, 3, 4))
    assert one.fingerprint == same.fingerprint != other.fingerprint


def test_every_step_is_drawn_equally_often():
    episodes = ragged([3, 1, 7, 5, 2, 7, 4] * 20)
    drawn = np.zeros(episodes.steps)
    for number in range(400):
        drawn[blocks.draw_block(episodes, 145, number).rewards.astype(int)] += 1
    expected = 400 * 145 / episodes.steps
    assert abs(drawn.mean() - expected) < 1e-9
    assert np.abs(drawn - expected).max() < 6 * np.sqrt(expected)


def test_data_that_fit_are_taken_whole():
    assert blocks.rows_within(data(), 1e9) is None
    assert blocks.rows_within(data()) is None
    rows = blocks.rows_within(data(), QUARTER)
    assert rows and 0.15 < rows / data().steps < 0.35


def test_too_little_memory_for_one_episode(tmp_path):
    with pytest.raises(SafestitchError, match="an episode of 20 steps needs 0 MB: allow more"):
        train(tmp_path / "run", memory=100.0)
    assert not (tmp_path / "run" / runs.RUN).exists()


@pytest.mark.parametrize(
    ("rows", "steps", "batch", "iterations", "expected"),
    [
        (100_000, 400_000, 100, 100_000, 1000),  # each row once: 100,000 / 100
        (100_000, 400_000, 100, 4000, 500),  # all data twice: 4000 / 8 visits
        (1000, 10**6, 100, 100_000, 100),  # never less than a chunk
        (149_000, 10**6, 1000, 10**6, 100),  # 149 iterations, rounded
    ],
)
def test_how_long_a_block_is_visited(rows, steps, batch, iterations, expected):
    assert blocks.visit_length(rows, steps, batch, iterations, 100) == expected


def test_the_next_block_is_made_while_this_one_is_used():
    made = []
    second = threading.Event()

    def make(number: int) -> np.ndarray:
        made.append((number, threading.current_thread().name))
        if number == 1:
            second.set()
        return np.array([number])

    with blocks.Blocks(make, 200, 500) as data_at:
        assert data_at(0).tolist() == [0]
        assert second.wait(10)  # not asked for yet, and made
        assert data_at(100).tolist() == [0]
        assert data_at(200).tolist() == [1]
        assert data_at(300).tolist() == [1]
        assert data_at(400).tolist() == [2]
    assert [number for number, _ in made] == [0, 1, 2]  # none past the last iteration
    assert [name for _, name in made[1:]] == ["blocks_0"] * 2


def test_an_error_in_the_background_is_raised():
    def make(number: int) -> np.ndarray:
        if number:
            raise OSError("the disk is gone")
        return np.zeros(1)

    with blocks.Blocks(make, 100, 300) as data_at, pytest.raises(OSError, match="the disk is gone"):
        data_at(0)
        data_at(100)


# --- what GAS knows of all data ----------------------------------------------------------------


def test_bars_worked_by_hand():
    R = np.array([1.0, 2, 3, 4, 5, 9], np.float32)
    group = np.array([0, 0, 0, 0, 0, 7])
    bars = reshaping.bars_of(R, group, 0.4)
    assert bars[[0, 7]].tolist() == [4.0, 9.0]  # the top 2 of 5, the only one
    assert np.isinf(np.delete(bars, [0, 7])).all()
    block = np.array([3.0, 4.0, 6.0, 8.9], np.float32), np.array([0, 0, 0, 7])
    assert set(reshaping.above(*block, 0.5, bars)) == {1, 2}
    assert len(reshaping.above(*block, 0.5, bars)) == 2
    assert len(reshaping.above(*block, 1.0, bars)) == 4  # repeated
    none = np.array([1.0, 2.0], np.float32), np.array([0, 0])
    assert reshaping.above(*none, 0.5, bars).tolist() == [1]  # better than nothing


def test_bars_of_blocks_are_those_of_all_data(monkeypatch):
    scaling = fit_scaling(data(), TASK.spec)
    cfg = config()
    whole_data = gas.measure(data(), TASK.spec, scaling)
    segments = reshaping.draw(cfg.whole, whole_data, 400_000)
    expected = reshaping.bars_of(*segments[2:], cfg.q)
    walk = Episodes.blocks
    monkeypatch.setattr(Episodes, "blocks", lambda self, _: walk(self, 1000))
    facts = gas.survey(cfg, data(), TASK.spec, scaling)
    assert facts is not None and facts.par is None
    found = facts.bars
    counts = np.bincount(segments[3], minlength=reshaping.GROUPS)
    common = counts > 2000
    assert common.sum() > 10
    np.testing.assert_allclose(found[common], expected[common], atol=0.03)


def test_a_block_holds_the_top_of_all_data_and_not_of_itself():
    """The worst tenth of the episodes has next to nothing to offer to D^q."""
    scaling = fit_scaling(data(), TASK.spec)
    cfg = config()
    facts = gas.survey(cfg, data(), TASK.spec, scaling)
    assert facts is not None
    block = blocks.draw_block(data(), 9000, 0)
    prepared = gas.prepare(cfg, block, TASK.spec, scaling, facts)
    R, C, _ = gas.segments(prepared, prepared.top_rows, prepared.top_ends)
    group = reshaping.group_of(C, prepared.top_ends - prepared.top_rows, TASK.spec.horizon)
    assert (facts.bars[group] <= R).all()
    other = gas.prepare(cfg, blocks.draw_block(data(), 9000, 1), TASK.spec, scaling, facts)
    assert jax.tree.map(np.shape, other) == jax.tree.map(np.shape, prepared)  # one program


# --- the contract of training ------------------------------------------------------------------


def test_several_blocks_are_visited(whole):
    rows = runs.read(whole).block_rows
    assert rows
    visit = blocks.visit_length(rows, data().steps, 16, 1200, 100)
    assert 1200 // visit >= 4


def test_the_same_training_twice_and_from_disk(whole, tmp_path):
    assert_same_result(train(tmp_path / "run"), whole)
    store.write(tmp_path / "a.store", data())
    assert_same_result(train(tmp_path / "mapped", store.read(tmp_path / "a.store")), whole)


def test_the_scaling_is_that_of_all_data(whole):
    stored, expected = safestitch.load(whole).scaling, fit_scaling(data(), TASK.spec)
    for one, other in zip(jax.tree.leaves(stored), jax.tree.leaves(expected), strict=True):
        assert np.array_equal(one, other)


class Stopped(Exception):
    """Stands for anything that ends a training."""


@pytest.mark.parametrize("step", [200, 300, 400, 1200])
def test_a_stopped_run_goes_on_as_if_nothing_had_happened(whole, tmp_path, step, monkeypatch):
    def stop(finished: int, metrics: dict[str, float]) -> None:
        del metrics
        if finished == step:
            raise Stopped

    with pytest.raises(Stopped):
        train(tmp_path / "run", progress=stop)
    assert not [t for t in threading.enumerate() if t.name.startswith("blocks")]
    monkeypatch.setattr(blocks, "available_memory", lambda: 10**12)  # another machine
    resume(tmp_path / "run")
    assert_same_result(tmp_path / "run", whole)


KILLED = """
import sys
from pathlib import Path
from tests_training_blocks import train
train(Path(sys.argv[1]))
"""


def test_kill_9_at_any_moment(whole, tmp_path):
    out = tmp_path / "run"
    (tmp_path / "tests_training_blocks.py").write_text(Path(__file__).read_text())
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-c", KILLED, str(out)]
    with subprocess.Popen(command, env=environment) as process:
        deadline = time.monotonic() + 60
        while not (out / runs.CHECKPOINT).exists():
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.005)
        time.sleep(random.uniform(0, 0.1))
        process.kill()
    assert process.returncode in (-signal.SIGKILL, 0)
    resume(out)
    assert_same_result(out, whole)
