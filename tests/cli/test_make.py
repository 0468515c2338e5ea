"""`safestitch data make` by the user's door, and training on what it made."""

import dataclasses
from pathlib import Path

import jax
import pytest

from safestitch import runs
from safestitch.behaviours.actor import init_actor
from safestitch.behaviours.snapshots import Moment, behaviours_of, save
from safestitch.catalog import get_entry
from safestitch.cli import _run
from safestitch.cli.train import material
from safestitch.data import dsrl
from safestitch.data.places import find, held, made_path
from safestitch.records import Spec
from safestitch.sims import suites

pytestmark = pytest.mark.usefixtures("as_installed")
ENV = "own_environments:corridor"
TINY = ["--iterations=4", "--batch=8", "--hidden=4", "--embedding=4", "--layers=2"]
TINY += ["--budget-batch=8"]


@pytest.fixture(autouse=True)
def data_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DSRL_DATASET_DIR", str(tmp_path))
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "sims"))


def fresh(spec: Spec, path: str) -> None:
    actors = [init_actor(spec, 8, jax.random.key(i)) for i in range(2)]
    save(Path(path), behaviours_of(spec, actors, [Moment(0, 0, (), (), ())] * 2))


def test_of_an_environment_of_ones_own(capsys):
    fresh(Spec(ENV, 3, 1, 12, 0.0), "b.safetensors")
    command = ["data", "make", "--env", ENV, "--behaviours", "b.safetensors", "--out", "own.hdf5"]
    assert _run([*command, "--episodes", "40"]) == 0
    said = capsys.readouterr().out
    assert "40 episodes, 480 steps" in said and "public" not in said
    assert _run([*command, "--episodes", "40"]) == 0
    assert "it was there" in capsys.readouterr().out
    assert _run([*command, "--episodes", "41"]) == 2
    assert "--overwrite" in capsys.readouterr().err
    assert _run([*command, "--episodes", "41", "--overwrite", "--layout", "dsrl"]) == 0
    assert _run(["train", "gas", "own.hdf5", "--out", "run", *TINY]) == 0
    run = runs.require_trained(Path("run"))
    assert run.data_source == f"made by safestitch, file {Path('own.hdf5').resolve()}"
    assert run.spec.task == "own data"
    Path("run", runs.POLICY).unlink()
    assert _run(["train", "--resume", "run"]) == 0


def test_of_a_task(capsys, monkeypatch):
    entry = get_entry("BallRun")
    fresh(entry.spec, "b.safetensors")
    # What has learned nothing hardly costs a thing: all costs are of use, and no tenth is filled.
    monkeypatch.setattr("safestitch.behaviours.making.MORE_ROUNDS", ())
    monkeypatch.setattr("safestitch.behaviours.making._least_reward", lambda *_: -1e9)
    command = ["data", "make", "BallRun", "--behaviours", "b.safetensors", "--cost-range", "100"]
    assert _run([*command, "--episodes", "20", "--workers", "1"]) == 0
    said = capsys.readouterr().out
    assert "of the public data" in said and "steps/s" in said
    assert find("BallRun") == made_path(entry)
    assert [(one.entry, one.made, one.flaw) for one in held()] == [(entry, True, None)]
    assert _run(["data", "ls"]) == 0
    assert "of our own making" in capsys.readouterr().out
    assert material("BallRun", None, 0).source.startswith("made by safestitch, file ")
    # The label stays, whatever is done to them.
    assert _run(["data", "convert", "BallRun", "b.store"]) == 0
    assert _run(["data", "edit", "b.store", "half.hdf5", "--subsample", "0.5"]) == 0
    half = material("half.hdf5", None, 0)
    assert half.source.startswith("made by safestitch, file ")
    assert half.spec == entry.spec
    # The public data come first, where they are.
    public = made_path(entry).with_name(entry.dsrl_file)
    dsrl.write(public, dsrl.read(made_path(entry)))
    assert find("BallRun") == public
    assert material("BallRun", None, 0).source == f"file {public.resolve()}"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "which data?"),
        (["BallRun", "--env", ENV], "which data?"),
        (["BalRun"], "did you mean BallRun"),
        (["BallRun", "--behaviours", "nowhere.safetensors"], "cannot read nowhere.safetensors"),
        (["BallRun", "--behaviours", "car.safetensors"], "behaviours of CarRun, not of BallRun"),
        (["BallRun", "--workers", "0"], "--workers 0"),
        (["BallRun", "--episodes", "3"], "--episodes 3"),
        (["BallRun", "--seed", "-1"], "--seed -1"),
        (["BallRun", "--cost-range", "0"], "--cost-range 0"),
        (["BallRun", "--horizon", "5"], "--horizon"),
        (["all", "--out", "a.hdf5"], "each to its own file"),
        (["--env", ENV], "--env needs --behaviours"),
    ],
)
def test_what_cannot_be_made(arguments, message, capsys):
    fresh(get_entry("CarRun").spec, "car.safetensors")
    assert _run(["data", "make", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_the_horizon_of_ones_own_environment(capsys):
    """Behaviours know how long an episode is; the user may know better."""
    fresh(dataclasses.replace(Spec(ENV, 3, 1, 9, 0.0)), "b.safetensors")
    command = ["data", "make", "--env", ENV, "--behaviours", "b.safetensors", "--out", "own.hdf5"]
    assert _run([*command, "--episodes", "20"]) == 2
    assert "goes on after 9 steps" in capsys.readouterr().err
    assert _run([*command, "--episodes", "20", "--horizon", "12"]) == 0


def test_without_the_simulator(monkeypatch, capsys):
    monkeypatch.setattr(suites, "_installed", lambda name: name not in ("pybullet",))
    assert _run(["data", "make", "BallRun"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: BallRun cannot run here: ")
    assert "pybullet" in said
