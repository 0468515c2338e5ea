"""`safestitch train` on data files: of the user, of a task of the field, moved, of another task."""

from pathlib import Path

import numpy as np
import pytest

from safestitch import runs
from safestitch.cli import _run
from safestitch.data import dsrl
from safestitch.episodes import Episodes

pytestmark = pytest.mark.usefixtures("as_installed")

SETTINGS = {"iterations": 4, "batch": 8, "hidden": 4, "embedding": 4, "layers": 2}
SMALL = [f"--{name}={value}" for name, value in {**SETTINGS, "budget-batch": 8}.items()]


def episodes(obs_dim: int = 3, act_dim: int = 2) -> Episodes:
    random, n = np.random.default_rng(0), 40
    ends = np.arange(1, n + 1) % 10 == 0
    return Episodes.of(
        random.normal(size=(n, obs_dim)),
        random.uniform(-1, 1, (n, act_dim)),
        random.normal(size=n),
        random.integers(0, 2, n),
        np.zeros(n, bool),
        ends,
    )


@pytest.fixture
def file(tmp_path: Path) -> Path:
    dsrl.write(tmp_path / "mine.h5", episodes())
    return tmp_path / "mine.h5"


def test_a_file_of_ones_own(file):
    assert _run(["train", "gas", str(file), "--out", "run", *SMALL]) == 0
    run = runs.require_trained(Path("run"))
    assert (run.spec.task, run.spec.obs_dim, run.spec.horizon) == ("own data", 3, 10)
    assert run.data_source == f"file {file}"
    assert run.data_fingerprint == episodes().fingerprint


def test_the_run_is_named_after_the_file(file):
    assert _run(["train", "gas", str(file), *SMALL]) == 0
    assert runs.is_trained(Path("runs/gas-mine"))


def test_the_data_of_a_task_of_the_field_are_found_on_disk(tmp_path, monkeypatch):
    monkeypatch.setenv("DSRL_DATASET_DIR", str(tmp_path))
    dsrl.write(tmp_path / "SafetyBallRun-v0-80-940.hdf5", episodes(7, 2))
    assert _run(["train", "gas", "BallRun", "--out", "run", *SMALL]) == 0
    spec = runs.require_trained(Path("run")).spec
    assert (spec.task, spec.horizon, spec.cost_range) == ("BallRun", 100, 80.0)


def test_a_task_of_the_field_with_a_file(tmp_path):
    dsrl.write(tmp_path / "ours.h5", episodes(7, 2))
    assert _run(["train", "gas", "BallRun", "--data", "ours.h5", "--out", "run", *SMALL]) == 0
    assert runs.require_trained(Path("run")).spec.task == "BallRun"


def test_an_unfinished_run_is_resumed_from_its_file_or_where_it_has_moved(file, tmp_path):
    for moved in (False, True):
        out = tmp_path / f"run-{moved}"
        assert _run(["train", "gas", str(file), "--out", str(out), *SMALL]) == 0
        (out / runs.POLICY).unlink()
        extra = []
        if moved:
            file = file.rename(tmp_path / "elsewhere.h5")
            extra = ["--data", str(file)]
        assert _run(["train", "--resume", str(out), *extra]) == 0
        assert runs.is_trained(out)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["BallRun", "--data", "mine.h5"], "has 3 observations and 2 actions, but BallRun has 7"),
        (["BalRun"], "did you mean BallRun"),
        (["nowhere.h5"], "nor is there a file nowhere.h5"),
        (["BallRun"], "safestitch data get BallRun"),
    ],
)
def test_what_cannot_be_trained_on(file, tmp_path, monkeypatch, capsys, arguments, message):
    monkeypatch.setenv("DSRL_DATASET_DIR", str(tmp_path / "empty"))
    assert file.name == "mine.h5"
    assert _run(["train", "gas", *arguments, *SMALL]) == 2
    assert message in capsys.readouterr().err
