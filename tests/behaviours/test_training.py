"""Training on an environment with a known optimum; killed, resumed, lengthened."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from safestitch.behaviours import snapshots, training
from safestitch.cli import main
from safestitch.records import SafestitchError
from safestitch.training.loop import Stop

pytestmark = pytest.mark.usefixtures("as_installed")
HERE = Path(__file__).parent
SMALL = "--width 32 --actor-width 16 --batch 64 --lanes 16 --warmup 500 --gamma 0.9"


def words(steps: int, *more: str) -> list[str]:
    named = ["hall", "--env", "hallways:hallway", "--horizon", "12", "--workers", "1"]
    return ["behaviours", "train", *named, "--steps", str(steps), *SMALL.split(), *more]


@pytest.fixture
def hallways(monkeypatch):
    monkeypatch.syspath_prepend(str(HERE))


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    return int(ended.value.code or 0)


@pytest.mark.usefixtures("hallways")
def test_every_trade_off_is_learned(capsys):
    assert run(*words(6000, "--updates", "0.5", "--actor-rate", "2e-3")) == 0
    printed = capsys.readouterr().out
    assert "lambda" in printed and "13 snapshots in runs/behaviours/hall-0" in printed
    out = Path("runs/behaviours/hall-0")
    found = snapshots.load(out / training.RESULT)
    last = found.moments[-1]
    by_lambda = dict(zip(last.lambdas, zip(last.rewards, last.costs, strict=True), strict=True))
    assert by_lambda[0.0][0] > 20.0  # of 24
    assert by_lambda[0.0][1] > 10.0
    careful = max(r for r, c in by_lambda.values() if c < 1.0)
    assert careful > 7.0  # of 12
    assert by_lambda[10.0][1] < 1.0
    assert [m.step for m in found.moments] == sorted(m.step for m in found.moments)
    rows = (out / "metrics.csv").read_text().splitlines()
    assert rows[0].startswith("step,seed,") and len(rows) >= 2


def test_a_killed_training_goes_on_and_keeps_its_snapshots(tmp_path):
    out = tmp_path / "run"
    command = [sys.executable, "-m", "safestitch", *words(8000, "--out", str(out))]
    command += ["--checkpoint-seconds", "0.3"]
    environment = {**os.environ, "PYTHONPATH": str(HERE)}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    while len(training.taken(out)) < 5 and process.poll() is None:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    before = {path.name: path.read_bytes() for path in training.taken(out)}
    assert len(before) >= 5
    again = subprocess.run([*command, "--resume"], env=environment, capture_output=True, text=True)
    assert again.returncode == 0, again.stderr
    after = {path.name: path.read_bytes() for path in training.taken(out)}
    assert {name: after[name] for name in before} == before
    assert len(after) == len(training.MOMENTS)
    steps = [int(row.split(",")[0]) for row in (out / "metrics.csv").read_text().splitlines()[1:]]
    assert steps == sorted(steps)


@pytest.mark.usefixtures("hallways")
def test_stopped_and_lengthened(monkeypatch, capsys):
    with monkeypatch.context() as patch:
        patch.setattr(Stop, "__enter__", asked)
        assert run(*words(3000)) == 130
    assert "--resume" in capsys.readouterr().out
    assert run(*words(600, "--resume")) == 0  # fewer steps than the run has: it is finished
    out = Path("runs/behaviours/hall-0")
    assert training.read(out).schedule.steps == 3000
    first = {path.name for path in training.taken(out)}
    assert run(*words(3600, "--resume")) == 0
    assert first < {path.name for path in training.taken(out)}
    assert snapshots.load(out / training.RESULT).moments[-1].step == 3600
    assert run("behaviours", "pack", str(out), "--out", "packed", "--megabytes", "0.03") == 0
    assert 1 <= len(snapshots.load(Path("packed"))) < 13


def asked(self: Stop) -> Stop:
    self.asked, self.main = True, False
    return self


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("BalRun",), "did you mean BallRun"),
        (("BallRun", "--seed", "-1"), "--seed"),
        (("BallRun", "--resume"), "run.json is missing"),
        (("hall", "--env", "no_such:thing"), "no_such"),
    ],
)
def test_mistakes_are_told(arguments, said, capsys):
    assert run("behaviours", "train", *arguments) == 2
    assert said in capsys.readouterr().err


def test_a_directory_with_a_run_is_not_overwritten(tmp_path, capsys):
    training.runs.write_json(tmp_path / "run.json", {"kind": "gas"})
    assert run("behaviours", "train", "BallRun", "--out", str(tmp_path)) == 2
    assert "--resume" in capsys.readouterr().err
    with pytest.raises(SafestitchError, match="no training of behaviours"):
        training.read(tmp_path)


def test_observations_are_measured_as_if_all_at_once():
    values = np.random.default_rng(0).normal(3.0, [1.0, 5.0, 0.0], (500, 3)).astype(np.float32)
    observed = training.Observed(3)
    for part in np.array_split(values, [1, 1, 40, 333]):
        observed.add(part)
    mean, scale = observed.units()
    np.testing.assert_allclose(mean, values.mean(0), rtol=1e-5)
    np.testing.assert_allclose(scale[:2], values[:, :2].std(0), rtol=1e-5)
    assert scale[2] == 1.0  # it does not vary
    again = training.Observed(3, **observed.facts())
    np.testing.assert_array_equal(again.units(), observed.units())
