"""Training on an environment with a known optimum; killed, resumed, lengthened."""

import dataclasses
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from safestitch.behaviours import snapshots, training
from safestitch.behaviours.sac import Config
from safestitch.behaviours.settings import learned_lambdas
from safestitch.cli import main
from safestitch.records import SafestitchError
from safestitch.sims import make_own
from safestitch.training.loop import Stop

pytestmark = pytest.mark.usefixtures("as_installed")
HERE = Path(__file__).parent
SMALL = "--width 32 --actor-width 16 --batch 64 --lanes 16 --warmup 500 --capacity 2048 --gamma 0.9"
FAST = "--updates 1 --rate 3e-3 --actor-rate 2e-3 --polyak 0.02 --entropy -2"


ON_POLICY = "--learner ppo --width 16 --actor-width 16 --lanes 16 --rollout 12 --batch 64 --gamma 0"


def words(steps: int, *more: str, settings: str = f"{SMALL} {FAST}") -> list[str]:
    named = ["hall", "--env", "hallways:hallway", "--horizon", "12", "--workers", "1"]
    return ["behaviours", "train", *named, "--steps", str(steps), *settings.split(), *more]


@pytest.fixture
def hallways(monkeypatch):
    monkeypatch.syspath_prepend(str(HERE))


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    return int(ended.value.code or 0)


@pytest.mark.usefixtures("hallways")
def test_every_trade_off_is_learned(capsys):
    assert run(*words(12_000)) == 0
    printed = capsys.readouterr().out
    assert "lambda" in printed and "13 snapshots in runs/behaviours/hall-0" in printed
    out = Path("runs/behaviours/hall-0")
    found = snapshots.load(out / training.RESULT)
    last = found.moments[-1]
    by_lambda = dict(zip(last.lambdas, zip(last.rewards, last.costs, strict=True), strict=True))
    assert by_lambda[0.0][0] > 22.0  # of 24
    assert by_lambda[0.0][1] > 11.0  # of 12
    assert by_lambda[3.0][0] > 8.0  # of 12; the noise of a policy that learns keeps a distance
    assert by_lambda[3.0][1] == by_lambda[10.0][1] == by_lambda[30.0][1] == 0.0
    assert by_lambda[10.0][0] > 6.0
    assert set(by_lambda) == {0.0, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0}  # those that were learned
    assert [m.step for m in found.moments] == sorted(m.step for m in found.moments)
    rows = (out / "metrics.csv").read_text().splitlines()
    assert rows[0].startswith("step,seed,") and len(rows) >= 2


@pytest.mark.usefixtures("hallways")
def test_the_other_learner_finds_them_too():
    assert run(*words(20_000, settings=ON_POLICY)) == 0
    out = Path("runs/behaviours/hall-0")
    assert training.read(out).learner == "ppo"
    last = snapshots.load(out / training.RESULT).moments[-1]
    by_lambda = dict(zip(last.lambdas, zip(last.rewards, last.costs, strict=True), strict=True))
    assert by_lambda[0.0][0] > 20.0  # of 24
    assert by_lambda[10.0][0] > 4.0  # of 12
    assert by_lambda[10.0][1] == by_lambda[30.0][1] == 0.0


@pytest.mark.usefixtures("hallways")
def test_a_teacher_plays_the_first_steps(fresh, capsys):
    hall = make_own("hallways:hallway", 12).spec
    still = fresh(dataclasses.replace(hall, task="hall"), count=1)
    biases = still.actors.biases
    fast = np.concatenate([np.full((1, 1), 3.0), np.full((1, 1), -9.0)], 1, dtype=np.float32)
    runner = still.actors._replace(biases=(*biases[:-1], fast))
    snapshots.save(Path("fast.safetensors"), dataclasses.replace(still, actors=runner))
    given = ["--teacher", "fast.safetensors", "--warmup", "5000"]
    assert run(*words(1000, *given)) == 0
    rows = Path("runs/behaviours/hall-0/metrics.csv").read_text().splitlines()
    first = dict(zip(rows[0].split(","), rows[1].split(","), strict=True))
    assert float(first["reward/to 0"]) > 22.0  # of 24; by chance it is 0
    assert training.read(Path("runs/behaviours/hall-0")).teacher == str(
        Path("fast.safetensors").resolve()
    )
    assert run(*words(1000, *given, "--out", "other", settings=ON_POLICY)) == 2
    assert "--learner sac" in capsys.readouterr().err
    assert run("behaviours", "train", "BallRun", "--teacher", "fast.safetensors") == 2
    assert "behaviours of hall" in capsys.readouterr().err


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
        assert run(*words(3000, settings=ON_POLICY)) == 130
    assert "--resume" in capsys.readouterr().out
    assert (
        run(*words(600, "--resume", settings=ON_POLICY)) == 0
    )  # fewer steps than the run has: it is finished
    out = Path("runs/behaviours/hall-0")
    assert training.read(out).schedule.steps == 3000
    first = {path.name for path in training.taken(out)}
    assert run(*words(3600, "--resume", settings=ON_POLICY)) == 0
    assert first < {path.name for path in training.taken(out)}
    found = snapshots.load(out / training.RESULT)
    assert [m.step for m in found.moments[-3:]] == [3000, 3060, 3600]  # none for what is past
    assert len(found) == 13 + 2
    assert run("behaviours", "pack", str(out), "--out", "packed", "--megabytes", "0.015") == 0
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


def test_the_note_names_the_bands_that_have_episodes():
    shown = training.how_it_goes(812.4, {0: (93.6, 55.0), 2: (70.2, 3.0), 4: (12.0, 0.0)})
    assert shown == "812 steps/s; reward/cost by lambda 0: 94/55, 0.1-1: 70/3, >10: 12/0"
    assert training.how_it_goes(812.4, {}) == "812 steps/s"


def test_lambdas_are_measured_where_they_were_learned():
    assert learned_lambdas(Config()) == (0.0, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
    assert learned_lambdas(Config(lambda_low=2.0, lambda_high=9.0)) == (0.0, 3.0)


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
