import csv
import dataclasses
import functools
import json
import math
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest
import safetensors

import safestitch
from safestitch import runs
from safestitch.algos import get_algorithm
from safestitch.cli import _run
from safestitch.envs import get_task
from safestitch.episodes import Episodes
from safestitch.policy import load, recall
from safestitch.records import RunError, SafestitchError, Spec
from safestitch.training import loop

GAS = get_algorithm("gas")
TASK = get_task("StitchChain")
SEEDS = [0, 1]
SMALL = {"batch": 16, "hidden": 8, "embedding": 4, "layers": 2, "budget_batch": 8}
CONSTANT: dict[str, Any] = {**SMALL, "schedule": "constant"}  # one program for all iterations
FLAGS = [f"--{name.replace('_', '-')}={value}" for name, value in CONSTANT.items()]
COLUMNS = [
    "step",
    "seed",
    "loss/budget_goal",
    "loss/cost_floor",
    "loss/cost_goal",
    "loss/policy",
    "loss/reward_goal",
    "share/good",
    "share/within_budget",
]
NEVER, ALWAYS = 1e9, -1.0
"""Seconds between checkpoints: none before the end, and one after every chunk."""
LONG = 10_000
"""Iterations of a run that takes seconds: long enough to be hit by a signal."""


@functools.cache
def data(seed: int = 0) -> Episodes:
    return TASK.make_data(seed)


def config(iterations: int) -> Any:
    return dataclasses.replace(GAS.presets["fast"], iterations=iterations, **CONSTANT)


def train(out: Path, iterations: int = 300, seeds: list[int] = SEEDS, **rest: Any) -> Path:
    rest = {"checkpoint_seconds": ALWAYS, **rest}
    loop.train(GAS, config(iterations), TASK.spec, data(), seeds, out, **rest)
    return out


def resume(out: Path, episodes: Episodes | None = None, **rest: Any) -> None:
    run = runs.read(out)
    algorithm, stored = recall(run)
    rest = {"checkpoint_seconds": ALWAYS, **rest}
    loop.resume(algorithm, stored, run, episodes or data(), out, **rest)


def content(path: Path) -> dict[str, Any]:
    """Every array of a file, bit by bit, and what stands beside them."""
    with safetensors.safe_open(path, framework="numpy") as file:
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        bits = {name: (a.dtype, a.shape, a.tobytes()) for name, a in arrays.items()}
        return {**bits, "metadata": file.metadata()}


def step_of(out: Path) -> int:
    """The iteration of the last checkpoint."""
    [number] = re.findall(
        r"\d+", json.loads(content(out / runs.CHECKPOINT)["metadata"]["safestitch"])["facts"]
    )
    return int(number)


def table(out: Path) -> list[list[str]]:
    with open(out / runs.METRICS, newline="") as file:
        return list(csv.reader(file))


def state_of(directory: Path) -> dict[str, tuple[int, bytes]]:
    return {p.name: (p.stat().st_mtime_ns, p.read_bytes()) for p in sorted(directory.iterdir())}


def assert_same_result(out: Path, expected: Path) -> None:
    assert content(out / runs.POLICY) == content(expected / runs.POLICY)
    assert (out / runs.METRICS).read_bytes() == (expected / runs.METRICS).read_bytes()
    assert content(out / runs.CHECKPOINT) == content(expected / runs.CHECKPOINT)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 300 iterations that was never stopped."""
    return train(tmp_path_factory.mktemp("whole") / "run")


@pytest.fixture(scope="module")
def uneven(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose iterations are not a multiple of the chunk."""
    return train(tmp_path_factory.mktemp("uneven") / "run", iterations=250)


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tmp_path_factory.mktemp("long") / "run", iterations=LONG)


class Stopped(Exception):
    """Stands for anything that ends a training."""


def stop_at(step: int) -> Any:
    def progress(done: int, metrics: dict[str, float]) -> None:
        del metrics
        if done == step:
            raise Stopped

    return progress


def stopped_run(out: Path, step: int, iterations: int = 300, seconds: float = ALWAYS) -> Path:
    with pytest.raises(Stopped):
        train(out, iterations, progress=stop_at(step), checkpoint_seconds=seconds)
    assert not runs.is_trained(out)
    return out


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run stopped at 300 of 300 iterations, with its last checkpoint at 200."""
    return stopped_run(tmp_path_factory.mktemp("stopped") / "run", 300)


# --- a finished run ----------------------------------------------------------------------------


def test_a_finished_run_holds_its_files(whole):
    names = {path.name for path in whole.iterdir()}
    assert names == {runs.RUN, runs.METRICS, runs.CHECKPOINT, runs.POLICY, runs.LOCK}
    run = runs.require_trained(whole)
    assert (run.algorithm, run.spec, run.seeds) == ("gas", TASK.spec, SEEDS)
    assert run.config == dataclasses.asdict(config(300))
    assert run.data_fingerprint == data().fingerprint
    assert run.versions == runs.versions()
    assert run.data_summary["episodes"] == 1500
    assert run.data_summary["cost_max"] == data().cost_returns.max()
    assert run.data_summary["reward_max"] == data().returns.max()


def test_metrics_have_one_row_per_seed_and_chunk(whole):
    header, *lines = table(whole)
    assert header == COLUMNS
    assert [line[:2] for line in lines] == [
        [str(step), str(seed)] for step in (100, 200, 300) for seed in SEEDS
    ]
    values = np.asarray(lines, float)[:, 2:]
    assert np.isfinite(values).all()
    assert len(np.unique(values[:, 2])) == 6  # no seed or chunk is a copy of another


def test_progress_is_told_of_every_chunk(whole, tmp_path):
    told = []
    train(tmp_path / "run", progress=lambda step, metrics: told.append((step, metrics)))
    assert [step for step, _ in told] == [100, 200, 300]
    first = np.asarray(table(whole)[1:3], float)[:, 2:].mean(0)
    assert list(told[0][1]) == COLUMNS[2:]
    np.testing.assert_allclose(list(told[0][1].values()), first, rtol=1e-6)


def test_the_same_training_twice(whole, tmp_path):
    assert_same_result(train(tmp_path / "run"), whole)


def test_a_policy_is_written_the_same_byte_for_byte(tmp_path):
    path = tmp_path / runs.POLICY
    files = set()
    for _ in range(10):
        runs.save_tree(path, {"a": np.zeros(3, np.float32), "b": np.ones(2, np.float32)}, step=1)
        files.add(path.read_bytes())
    assert len(files) == 1


def test_a_seed_alone_is_the_seed_among_others(whole, tmp_path):
    alone = load(train(tmp_path / "run", seeds=[1]))
    among = load(whole, seed=1)
    other = load(whole, seed=0)
    assert alone.seed == 1
    pairs = list(zip(*(jax.tree.leaves(p.network) for p in (alone, among, other)), strict=True))
    for a, b, _ in pairs:
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-4, atol=1e-5)
    assert max(float(abs(a - c).max()) for a, _, c in pairs) > 0.1
    rows = [line for line in table(whole)[1:] if line[1] == "1"]
    np.testing.assert_allclose(
        np.asarray(table(tmp_path / "run")[1:], float), np.asarray(rows, float), rtol=1e-4
    )


def test_iterations_that_are_no_multiple_of_the_chunk(uneven, whole):
    _, *lines = table(uneven)
    assert [line[0] for line in lines] == ["100", "100", "200", "200", "250", "250"]
    assert lines[:4] == table(whole)[1:5]  # the same training up to there
    assert step_of(uneven) == 250


def test_fewer_iterations_than_a_chunk(tmp_path):
    _, *lines = table(train(tmp_path / "run", iterations=50))
    assert [line[0] for line in lines] == ["50", "50"]


def test_tensorboard_on_request(whole, tmp_path):
    pytest.importorskip("tensorboardX")
    train(tmp_path / "run", tensorboard=True)
    for seed in SEEDS:
        [events] = (tmp_path / "run" / "tensorboard" / f"seed{seed}").iterdir()
        written = events.read_bytes()
        assert all(name.encode() in written for name in COLUMNS[2:])
    assert_same_result(tmp_path / "run", whole)
    assert not (whole / "tensorboard").exists()


def test_tensorboard_without_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    with pytest.raises(SafestitchError, match=re.escape("pip install 'safestitch[tensorboard]'")):
        train(tmp_path / "run", tensorboard=True)


# --- stopped and resumed -----------------------------------------------------------------------


@pytest.mark.parametrize("step", [200, 300])
def test_a_stopped_run_goes_on_as_if_nothing_had_happened(whole, tmp_path, step):
    out = stopped_run(tmp_path / "run", step)
    assert step_of(out) == step - 100
    assert table(out)[-1][0] == str(step)  # logged, but past the checkpoint
    steps = []
    resume(out, progress=lambda done, _: steps.append(done))
    assert steps == [*range(step, 301, 100)]
    assert_same_result(out, whole)


def test_stopped_again_and_again(whole, tmp_path):
    out = stopped_run(tmp_path / "run", 100)
    for step in (100, 200, 300):
        with pytest.raises(Stopped):
            resume(out, progress=stop_at(step))
    resume(out)
    assert_same_result(out, whole)


def test_stopped_in_the_last_partial_chunk(uneven, tmp_path):
    out = stopped_run(tmp_path / "run", 250, iterations=250)
    resume(out)
    assert_same_result(out, uneven)


def test_stopped_before_the_first_checkpoint(whole, tmp_path):
    out = stopped_run(tmp_path / "run", 200, seconds=NEVER)
    assert not (out / runs.CHECKPOINT).exists()
    assert len(table(out)) == 5
    resume(out)
    assert_same_result(out, whole)


def test_stopped_before_the_first_metrics(whole, tmp_path):
    out = stopped_run(tmp_path / "run", 100)
    (out / runs.METRICS).unlink()
    resume(out)
    assert_same_result(out, whole)


def test_stopped_between_the_last_checkpoint_and_the_policy(whole, tmp_path):
    out = shutil.copytree(whole, tmp_path / "run")
    (out / runs.POLICY).unlink()
    resume(out)
    assert_same_result(out, whole)


def test_checkpoints_are_written_now_and_then(tmp_path, monkeypatch):
    now = iter(range(0, 1000, 2))  # two seconds pass between two looks at the clock
    monkeypatch.setattr(loop, "time", SimpleNamespace(monotonic=lambda: float(next(now))))
    seen = []
    saved = loop._save
    monkeypatch.setattr(loop, "_save", lambda out, c: (seen.append(int(c.step)), saved(out, c)))
    train(tmp_path / "run", iterations=600, checkpoint_seconds=3.0)
    assert seen == [200, 400, 600, 600]


@pytest.mark.parametrize(
    "tail",
    [b"", b"300", b"300,0,0.5", b"300,0,0.1,0.1,0.1,0.1,0.1,0.1\r\n300,1,0.2,0.", b"2"],
    ids=["clean", "step", "half", "one row and a half", "digit"],
)
def test_rows_past_the_checkpoint_and_a_cut_line_are_dropped(whole, stopped, tmp_path, tail):
    out = shutil.copytree(stopped, tmp_path / "run")
    kept = (out / runs.METRICS).read_bytes().splitlines(keepends=True)[:5]
    (out / runs.METRICS).write_bytes(b"".join(kept) + tail)
    resume(out)
    assert_same_result(out, whole)


def test_a_row_cut_before_the_end_of_the_line_is_not_kept(stopped, tmp_path):
    out = shutil.copytree(stopped, tmp_path / "run")
    (out / runs.METRICS).write_bytes(b"step,seed\r\n100,0\r\n200,0\r\n300,0\r\n20")
    with pytest.raises(Stopped):
        resume(out, progress=stop_at(300))
    assert table(out)[:3] == [["step", "seed"], ["100", "0"], ["200", "0"]]
    assert [line[0] for line in table(out)[3:]] == ["300", "300"]


def test_metrics_that_are_not_ours(stopped, tmp_path):
    out = shutil.copytree(stopped, tmp_path / "run")
    (out / runs.METRICS).write_bytes(b"step,seed\n\nnot a number\n")
    with pytest.raises(RunError, match=re.escape(str(out / runs.METRICS))):
        resume(out)


def test_ctrl_c_saves_where_it_is(whole, tmp_path):
    before = signal.getsignal(signal.SIGINT)

    def press(step: int, metrics: dict[str, float]) -> None:
        del metrics
        if step == 200:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(loop.Interrupted, match="saved at iteration 200 of 300"):
        train(tmp_path / "run", progress=press, checkpoint_seconds=NEVER)
    assert signal.getsignal(signal.SIGINT) is before
    assert step_of(tmp_path / "run") == 200
    assert not runs.is_trained(tmp_path / "run")
    assert not runs.is_locked(tmp_path / "run")
    resume(tmp_path / "run")
    assert_same_result(tmp_path / "run", whole)


def test_a_second_ctrl_c_stops_at_once(tmp_path):
    def press(step: int, metrics: dict[str, float]) -> None:
        del step, metrics
        # To this thread: two signals to the process that meet on the way become one.
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        time.sleep(5)
        pytest.fail("the second Ctrl-C did not stop the training")

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "run", progress=press)
    assert signal.getsignal(signal.SIGINT) is before


def test_a_finished_run_is_left_untouched(whole, tmp_path):
    out = shutil.copytree(whole, tmp_path / "run")
    before = state_of(out)
    resume(out, progress=lambda *_: pytest.fail("trained again"))
    assert state_of(out) == before


def test_resuming_with_other_data(stopped, tmp_path):
    out = shutil.copytree(stopped, tmp_path / "run")
    before = state_of(out)
    with pytest.raises(RunError, match=r"the data differ from those .* was started with"):
        resume(out, data(1))
    assert state_of(out) == before


@pytest.mark.parametrize("name", ["safestitch", "jax", "jaxlib", "numpy", "python"])
def test_resuming_with_other_versions(stopped, tmp_path, monkeypatch, name):
    out = shutil.copytree(stopped, tmp_path / "run")
    before = state_of(out)
    now = {**runs.versions(), name: "99.0"}
    monkeypatch.setattr(runs, "versions", lambda: now)
    with pytest.raises(RunError, match=rf"was started with {name} \S+, this is 99\.0"):
        resume(out)
    assert state_of(out) == before


def test_resuming_from_a_damaged_checkpoint(stopped, tmp_path):
    out = shutil.copytree(stopped, tmp_path / "run")
    damaged = bytearray((out / runs.CHECKPOINT).read_bytes())
    damaged[-5] ^= 1
    (out / runs.CHECKPOINT).write_bytes(damaged)
    with pytest.raises(RunError, match=r"checkpoint\.safetensors is damaged"):
        resume(out)
    assert not runs.is_trained(out)


# --- a full disk -------------------------------------------------------------------------------


class FullDisk:
    """From a step on no file can grow beyond a size: the kernel says so, not a mock."""

    def __init__(self, size: int):
        self.size = size

    def __call__(self, step: int, metrics: dict[str, float]) -> None:
        del metrics
        if step == 200:
            resource.setrlimit(resource.RLIMIT_FSIZE, (self.size, self.before[1]))

    def __enter__(self) -> "FullDisk":
        self.before = resource.getrlimit(resource.RLIMIT_FSIZE)
        self.signal = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        return self

    def __exit__(self, *_: Any) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, self.before)
        signal.signal(signal.SIGXFSZ, self.signal)


@pytest.mark.parametrize(
    ("size", "seconds", "file", "step"),
    [(4096, ALWAYS, runs.CHECKPOINT, 100), (600, NEVER, runs.METRICS, None)],
    ids=["checkpoint", "metrics"],
)
def test_a_full_disk(whole, tmp_path, size, seconds, file, step):
    out = tmp_path / "run"
    with pytest.raises(SafestitchError) as caught, FullDisk(size) as disk:
        train(out, progress=disk, checkpoint_seconds=seconds)
    assert f"cannot write {out / file}: File too large" in str(caught.value)
    assert (step_of(out) if (out / runs.CHECKPOINT).exists() else None) == step
    assert not runs.is_trained(out)
    assert not [path for path in out.iterdir() if path.suffix == ".tmp"]
    resume(out)
    assert_same_result(out, whole)


def test_a_full_disk_on_the_command_line(tmp_path, monkeypatch, capsys):
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    out = tmp_path / "run"
    monkeypatch.setattr(os, "fsync", full)
    assert _run(["train", "gas", "StitchChain", "--iterations=300", *FLAGS, f"--out={out}"]) == 2
    assert f"cannot write {out / runs.RUN}: No space left" in capsys.readouterr().err


# --- the directory -----------------------------------------------------------------------------


def test_two_trainings_into_one_directory(whole, tmp_path):
    out = tmp_path / "run"
    refused = []

    def second(step: int, metrics: dict[str, float]) -> None:
        del step, metrics
        for attempt in (train, resume):
            with pytest.raises(RunError, match="being written by another training") as caught:
                attempt(out)
            refused.append(str(caught.value))

    train(out, progress=second)
    assert len(refused) == 6
    assert all(str(out) in message for message in refused)
    assert_same_result(out, whole)


def test_a_file_instead_of_a_directory(tmp_path):
    (tmp_path / "file").write_text("kept")
    with pytest.raises(RunError, match=r"cannot write to .*file"):
        train(tmp_path / "file")
    assert (tmp_path / "file").read_text() == "kept"


def test_a_directory_of_something_else(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(RunError, match="is not empty and holds no run: choose another --out"):
        train(tmp_path)
    assert (tmp_path / "thesis.tex").read_text() == "years of work"


def test_nothing_is_left_in_a_directory_of_something_else(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(RunError):
        train(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_directory_with_a_finished_run(whole, tmp_path):
    out = shutil.copytree(whole, tmp_path / "run")
    before = state_of(out)
    with pytest.raises(RunError, match="already holds a finished run: choose another --out"):
        train(out)
    assert state_of(out) == before


def test_a_directory_with_an_unfinished_run(stopped, tmp_path):
    out = shutil.copytree(stopped, tmp_path / "run")
    before = state_of(out)
    with pytest.raises(RunError, match=re.escape(f"`safestitch train --resume {out}`")):
        train(out)
    assert state_of(out) == before


def test_a_directory_left_by_a_training_that_never_began(whole, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / runs.LOCK).touch()
    (tmp_path / "run" / ".run.json.123.tmp").write_text("{")
    assert_same_result(train(tmp_path / "run"), whole)


# --- data --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"obs_dim": 4}, "the data have 3 observation and 2 action dimensions, StitchChain has 4"),
        ({"act_dim": 1}, "the data have 3 observation and 2 action .* has 3 and 1"),
        ({"horizon": 19}, "episode 0 has 20 steps, the horizon of StitchChain is 19"),
    ],
    ids=["observations", "actions", "horizon"],
)
def test_data_that_do_not_fit_the_task(tmp_path, changes, message):
    spec = dataclasses.replace(TASK.spec, **changes)
    with pytest.raises(RunError, match=message):
        loop.train(GAS, config(300), spec, data(), SEEDS, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def odd_episodes(kind: str) -> Episodes:
    rng = np.random.default_rng(0)
    episodes, steps = (60, 1) if kind == "one-step episodes" else (12, 5)
    n = episodes * steps
    observations, actions = rng.normal(size=(n, 3)), rng.uniform(-1, 1, (n, 2))
    rewards, costs = rng.uniform(0, 1, n), (rng.uniform(size=n) < 0.5).astype(float)
    match kind:
        case "no cost":
            costs[:] = 0
        case "constant columns":
            observations[:, 0] = 1e6
            observations[:, 1] = 0
            actions[:] = 0.25
            rewards[:] = 1
            costs[:] = 1
        case "negative rewards":
            rewards -= 3
        case "no reward":
            rewards[:] = 0
        case "wide actions":
            actions *= 7
    ends = np.tile(np.arange(steps) == steps - 1, episodes)
    return Episodes.of(observations, actions, rewards, costs, np.zeros(n, bool), ends)


@pytest.mark.parametrize(
    "kind",
    [
        "no cost",
        "constant columns",
        "one-step episodes",
        "negative rewards",
        "no reward",
        "wide actions",
    ],
)
def test_odd_data_train_and_act(tmp_path, kind):
    episodes = odd_episodes(kind)
    settings = {**CONSTANT, "q": 1.0}  # all kinds have one size and so share one program
    policy = safestitch.train(episodes, tmp_path / "run", iterations=20, **settings)
    assert np.isfinite(np.asarray(table(tmp_path / "run")[1:], float)).all()
    for leaf in jax.tree.leaves((policy.network, policy.scaling)):
        assert np.isfinite(np.asarray(leaf)).all()
    largest = np.abs(episodes.actions).max()
    for limit in (0.0, 1.0, 1000.0):
        session = policy.start(limit=limit)
        for row in range(5):
            action = session.act(episodes.observations[row])
            assert np.isfinite(action).all()
            assert (np.abs(action) <= max(1.0, largest) * (1 + 1e-6)).all()
            session.observe(float(episodes.rewards[row]), float(episodes.costs[row]))


def test_the_policy_of_train_is_the_first_seed(tmp_path):
    policy = safestitch.train(data(), tmp_path / "run", seeds=2, iterations=100, **CONSTANT)
    assert policy.seed == 0
    assert policy.run.seeds == [0, 1]
    assert policy.run.spec == Spec("own data", 3, 2, 20, 20.0, -1.0, 1.0)
    assert policy.config == config(100)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"algorithm": "gass"}, "unknown algorithm 'gass': did you mean gas"),
        ({"preset": "papper"}, "unknown preset 'papper': did you mean paper"),
        ({"alfa": 0.9}, "unknown setting 'alfa': did you mean alpha"),
        ({"iteration": 10}, "unknown setting 'iteration': did you mean iterations"),
        ({"alpha": 2.0}, "alpha is 2.0: expected 1e-06 to 1"),
        ({"alpha": math.nan}, "alpha is nan: expected"),
        ({"batch": 0}, "batch is 0: expected 1"),
        ({"seeds": 0}, "seeds"),
    ],
    ids=lambda x: "" if isinstance(x, str) else str(x),
)
def test_settings_that_cannot_be(tmp_path, settings, message):
    with pytest.raises(SafestitchError, match=message):
        safestitch.train(data(), tmp_path / "run", **settings)
    assert not (tmp_path / "run").exists()


# --- other processes ---------------------------------------------------------------------------


def start(out: Path, *options: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "safestitch", "train", "gas", "StitchChain", "--seeds=2"]
    command += [f"--iterations={LONG}", *FLAGS, f"--out={out}", *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for(path: Path, process: subprocess.Popen[str], size: int = 1) -> None:
    deadline = time.monotonic() + 60
    while not (path.exists() and path.stat().st_size >= size):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, f"{path} did not appear"
        time.sleep(0.005)


def test_kill_9_at_any_moment(long, tmp_path):
    out = tmp_path / "run"
    with start(out, "--checkpoint-seconds=0.05") as process:
        wait_for(out / runs.CHECKPOINT, process)
        moment = random.uniform(0.0, 0.7) * LONG  # by progress: how long it takes is the machine's
        while step_of(out) < moment:
            assert process.poll() is None, process.communicate()
        process.kill()
        process.wait(timeout=10)
    assert process.returncode == -signal.SIGKILL
    assert not runs.is_trained(out)
    assert not runs.is_locked(out)
    assert 0 < step_of(out) < LONG
    command = [sys.executable, "-m", "safestitch", "train", "--resume", str(out)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert f"safestitch eval {out}" in result.stdout
    assert_same_result(out, long)


def test_ctrl_c_on_the_command_line(long, tmp_path, capsys):
    out = tmp_path / "run"
    with start(out) as process:
        wait_for(out / runs.METRICS, process, size=1500)
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=30)
    assert process.returncode == 130, stderr
    assert "Traceback" not in stderr
    stopped = rf"stopped: saved at iteration (\d+) of {LONG}\. Go on with: safestitch (.*)"
    match = re.search(stopped, stdout)
    assert match, stdout
    assert 0 < int(match[1]) == step_of(out) < LONG
    assert _run(match[2].split()) == 0
    capsys.readouterr()
    assert_same_result(out, long)
