import dataclasses
import re
from pathlib import Path

import pytest

from safestitch import runs
from safestitch.algos.gas import ALGORITHM
from safestitch.cli import _run
from safestitch.records import SafestitchError
from safestitch.reproducing.jobs import _while_needed, evaluated, jobs_of
from safestitch.reproducing.plan import Plan, check_names, read_plan

FILES = sorted((Path(__file__).parents[2] / "reproductions").glob("*.toml"))
SMALL = """
tasks = ["StitchChain", "BallRun"]
seeds = 3
minutes = 15
episodes = 10
episode_seed = 4
against = "gas"
[data]
command = ["data", "make", "{task}"]
more = { BallRun = ["--episodes", "50"] }
seed = 7
[methods.gas]
presets = { BallRun = "careful" }
[methods.other]
algorithm = "gas"
preset = "paper"
settings = { alpha = 0.9, relabel = false, budget_batch = 8 }
seeds = 1
minutes = 2.5
tasks = ["BallRun"]
"""


def plan_of(tmp_path: Path, text: str) -> Plan:
    path = tmp_path / "small.toml"
    path.write_text(text)
    return read_plan(path)


def test_a_plan(tmp_path):
    plan = plan_of(tmp_path, SMALL)
    gas, other = plan.methods
    assert (plan.name, plan.tasks, plan.episodes) == ("small", ("StitchChain", "BallRun"), 10)
    assert (gas.algorithm, gas.preset, gas.seeds, gas.minutes) == ("gas", "fast", 3, 15)
    assert gas.tasks == plan.tasks
    assert (other.algorithm, other.seeds, other.minutes, other.tasks) == (
        ("gas", 1, 2.5, ("BallRun",))
    )
    assert plan.limits == ("10%", "20%", "30%", "70%", "80%", "90%")
    check_names(plan)
    careful, fast = (ALGORITHM.presets[name] for name in ("careful", "fast"))
    assert (gas.config("BallRun"), gas.config("StitchChain")) == (careful, fast)


def test_jobs(tmp_path):
    jobs = {job.name: job for job in jobs_of(plan_of(tmp_path, SMALL), Path("out"), workers=2)}
    assert list(jobs) == [
        "StitchChain.gas.train",
        "StitchChain.gas.eval",
        "BallRun.data",
        "BallRun.gas.train",
        "BallRun.gas.eval",
        "BallRun.other.train",
        "BallRun.other.eval",
    ]
    assert " ".join(jobs["BallRun.data"].words) == "data make BallRun --episodes 50"
    assert " ".join(jobs["BallRun.other.train"].words) == (
        "train gas BallRun --seeds 1 --preset paper --alpha 0.9 --no-relabel --budget-batch 8 "
        "--minutes 2.5 --data-seed 7 --out out/BallRun/other"
    )
    assert " ".join(jobs["StitchChain.gas.eval"].words) == (
        "eval out/StitchChain/gas --limits 10% 20% 30% 70% 80% 90% --episodes 10 "
        "--episode-seed 4 --workers 2"
    )
    assert "--preset careful" in " ".join(jobs["BallRun.gas.train"].words)
    assert "--preset fast" in " ".join(jobs["StitchChain.gas.train"].words)
    assert jobs["BallRun.other.train"].after == ("BallRun.data",)
    assert jobs["BallRun.other.eval"].after == ("BallRun.other.train",)
    assert jobs["StitchChain.gas.train"].after == ()
    assert jobs["StitchChain.gas.train"].seconds == 900.0


def test_data_are_made_only_where_there_are_none(tmp_path, monkeypatch):
    monkeypatch.setenv("DSRL_DATASET_DIR", str(tmp_path))
    (job,) = [j for j in jobs_of(plan_of(tmp_path, SMALL), tmp_path) if j.kind == "data"]
    assert not job.is_finished()
    finished = dataclasses.replace(job, is_finished=lambda: True)
    assert _while_needed(job, [finished]).is_finished()
    assert not _while_needed(job, [finished, job]).is_finished()
    own = (
        'tasks = ["BallRun"]\n[data]\ncommand = ["x"]\nfiles = { BallRun = "b.h5" }\n[methods.gas]'
    )
    train, _ = jobs_of(plan_of(tmp_path, own), tmp_path)
    assert train.words[train.words.index("--data") + 1] == str(tmp_path / "b.h5")


@pytest.mark.parametrize(
    ("only", "count"),
    [((), 7), (("StitchChain",), 2), (("other",), 3), (("BallRun", "gas"), 3), (("gas",), 5)],
)
def test_only_some(tmp_path, only, count):
    assert len(jobs_of(plan_of(tmp_path, SMALL), tmp_path, only=only)) == count


def test_only_what_is_not_there(tmp_path):
    with pytest.raises(SafestitchError, match="unknown task or method 'BalRun': did you mean Ball"):
        jobs_of(plan_of(tmp_path, SMALL), tmp_path, only=["BalRun"])


def test_nothing_is_finished_at_first(tmp_path):
    plan = plan_of(tmp_path, SMALL)
    for job in jobs_of(plan, tmp_path):
        assert job.kind == "data" or not job.is_finished()
        assert job.resume() is None
    assert evaluated(plan, tmp_path) == []
    (tmp_path / "BallRun" / "gas").mkdir(parents=True)
    (tmp_path / "BallRun" / "gas" / runs.RUN).write_text("{}")
    train = next(j for j in jobs_of(plan, tmp_path) if j.name == "BallRun.gas.train")
    assert train.resume() == ("train", "--resume", str(tmp_path / "BallRun" / "gas"))


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("seeds = 3", "sedes = 3", "sedes: unknown key 'sedes': did you mean seeds"),
        ("seeds = 3", "seeds = 0", "seeds is 0: expected a whole number, 1 to 1000"),
        ("seeds = 3", "seeds = true", "seeds is True: expected a whole number"),
        ("seeds = 3", "seeds = 2.5", "seeds is 2.5: expected a whole number"),
        ("minutes = 15", 'minutes = "long"', "minutes is 'long': expected a number"),
        ("minutes = 2.5", "minutes = -1", "methods.other.minutes is -1: expected a number"),
        ("episodes = 10", "episodes = 0", "episodes is 0: expected"),
        ('against = "gas"', 'against = "gaz"', "unknown method 'gaz': did you mean gas"),
        ('tasks = ["StitchChain", "BallRun"]', "tasks = []", "tasks is []: expected at least one"),
        ('tasks = ["StitchChain", "BallRun"]', "tasks = 3", "tasks is 3: expected a list of texts"),
        ('tasks = ["StitchChain", "BallRun"]', 'tasks = ["../x"]', "expected at least one name"),
        ('tasks = ["BallRun"]', 'tasks = ["CarRun"]', "unknown task of the file 'CarRun'"),
        ("[methods.other]", '[methods."a b"]', "a method is called by letters"),
        ("[methods.gas]", "[methods.gas]\nsteps = 3", "methods.gas.steps: unknown key 'steps'"),
        ("presets = { BallRun", "presets = { CarRun", "presets.CarRun: unknown key 'CarRun'"),
        ("presets = { BallRun =", "presets = { BallRun = 3 } #", "BallRun is 3: expected text"),
        ("seed = 7", "seed = -7", "data.seed is -7"),
        ("episode_seed = 4", "episode_seed = -4", "episode_seed is -4: expected a whole number"),
        ("more = { BallRun", "more = { CarRun", "data.more.CarRun: unknown key 'CarRun'"),
        (
            'command = ["data", "make", "{task}"]',
            "command = 'x'",
            "command is 'x': expected a list",
        ),
        ("episodes = 10", 'limits = ["10%", "x"]', "the limit 'x' is not a number"),
        ("seeds = 3", "seeds = ", "is not TOML"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, old, new, words):
    assert old in SMALL
    with pytest.raises(SafestitchError, match=re.escape(words)):
        plan_of(tmp_path, SMALL.replace(old, new, 1))


def test_no_methods(tmp_path):
    with pytest.raises(SafestitchError, match="has no methods"):
        plan_of(tmp_path, 'tasks = ["MiniRun"]')
    with pytest.raises(SafestitchError, match="methods is 3: expected a table"):
        plan_of(tmp_path, 'tasks = ["MiniRun"]\nmethods = 3')


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('"StitchChain", ', '"StitchChian", ', "unknown task 'StitchChian': did you mean Stitch"),
        ('algorithm = "gas"', 'algorithm = "gsa"', "unknown algorithm 'gsa': did you mean gas"),
        ('preset = "paper"', 'preset = "papr"', "unknown preset 'papr': did you mean paper"),
        ('"careful"', '"carefree"', "unknown preset 'carefree': did you mean careful"),
        ("alpha = 0.9", "alfa = 0.9", "other: unknown setting 'alfa': did you mean alpha"),
        ("alpha = 0.9", "alpha = 7.0", "alpha is 7.0: expected"),
    ],
)
def test_names_are_checked_before_anything_runs(tmp_path, old, new, words):
    with pytest.raises(SafestitchError, match=re.escape(words)):
        check_names(plan_of(tmp_path, SMALL.replace(old, new, 1)))


def test_no_file(tmp_path):
    with pytest.raises(SafestitchError, match="cannot read"):
        read_plan(tmp_path / "none.toml")


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_the_files_that_come_along(path):
    plan = read_plan(path)
    assert jobs_of(plan, Path("out"))
    check_names(plan)


def test_there_are_files():
    assert {"rivals", "smoke"} <= {path.stem for path in FILES}


@pytest.mark.usefixtures("as_installed")
def test_a_dry_run_runs_nothing(tmp_path, capsys):
    smoke = next(path for path in FILES if path.stem == "smoke")
    assert _run(["reproduce", str(smoke), "--out", str(tmp_path / "out"), "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "StitchChain.gas.train: safestitch train gas StitchChain --seeds 2" in said
    assert not (tmp_path / "out").exists()
    assert _run(["reproduce", str(smoke), "--jobs", "0"]) == 2
