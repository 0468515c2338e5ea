import contextlib
import dataclasses
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import pytest

from safestitch import runs
from safestitch.algos import get_algorithm
from safestitch.cli import VERBS, _run, main
from safestitch.envs import get_task
from safestitch.training import loop

pytestmark = pytest.mark.usefixtures("as_installed")

TASK = get_task("StitchChain")
TINY: dict[str, Any] = {
    "iterations": 300,
    "batch": 16,
    "hidden": 8,
    "embedding": 4,
    "layers": 2,
    "budget_batch": 8,
    "schedule": "constant",
}
FLAGS = [f"--{name.replace('_', '-')}={value}" for name, value in TINY.items()]
TRAIN = ["train", "gas", "StitchChain", *FLAGS]


@dataclasses.dataclass
class Said:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def words(self) -> str:
        """Everything printed, as one line: boxes and line breaks of the terminal left out."""
        return " ".join(re.sub(r"[│╭╮╰╯─]", " ", self.out + self.err).split())


Command = Callable[..., Said]


@pytest.fixture
def safestitch(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """The command in this process, on a wide terminal."""
    monkeypatch.setenv("COLUMNS", "200")

    def call(*arguments: Any) -> Said:
        capsys.readouterr()
        try:
            code = _run([str(argument) for argument in arguments])
        except SystemExit as stop:  # tyro's way to end
            code = 0 if stop.code is None else stop.code
            assert isinstance(code, int)
        said = capsys.readouterr()
        return Said(code, said.out, said.err)

    return call


def assert_refused(said: Said, *words: str) -> None:
    assert said.code == 2, said
    assert "Traceback" not in said.words
    for word in words:
        assert word in said.words, said.words


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run; nobody writes to it."""
    out = tmp_path_factory.mktemp("trained") / "run"
    gas = get_algorithm("gas")
    config = dataclasses.replace(gas.presets["fast"], **TINY)
    loop.train(gas, config, TASK.spec, TASK.make_data(0), [0, 1], out)
    return out


@pytest.fixture
def finished(trained: Path, tmp_path: Path) -> Path:
    """A finished run to write to and to break."""
    return shutil.copytree(trained, tmp_path / "finished")


@pytest.fixture
def unfinished(finished: Path) -> Path:
    (finished / runs.POLICY).unlink()
    return finished


# --- help --------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [[], ["-h"], ["--help"], ["help"]], ids=str)
def test_help(safestitch, arguments):
    said = safestitch(*arguments)
    assert (said.code, said.err) == (0, "")
    assert "usage: safestitch COMMAND" in said.out
    for verb, what in VERBS.items():
        assert re.search(rf"^  {verb} +{re.escape(what)}$", said.out, re.MULTILINE)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["train", "--help"], ["safestitch train ALGORITHM TASK", "--resume DIR"]),
        (["train", "gas", "--help"], ["--seeds", "--out", "--preset", "--alpha", "--iterations"]),
        (["train", "bc", "--help"], ["--data", "--clone {all,safe,frontier}", "--limit-unit"]),
        (["train", "caps-iql", "--help"], ["--heads", "--units {task,data}", "--learn-std"]),
        (["train", "cdt", "--help"], ["--context", "--target", "--pairing {released,kept}"]),
        (["train", "--resume", "x", "--help"], ["--resume", "--tensorboard"]),
        (["eval", "--help"], ["--limits", "--episodes", "--target-reward", "share of the task"]),
        (["report", "--help"], ["--episodes", "Run directory of a finished training"]),
        (["demo", "--help"], ["--task", "--out", "a finished one is shown again"]),
        (["doctor", "--help"], ["Look at this installation"]),
    ],
    ids=lambda x: " ".join(x[:2]),
)
def test_help_of_a_command(safestitch, arguments, words):
    said = safestitch(*arguments)
    assert (said.code, said.err) == (0, "")
    for word in words:
        assert word in said.words


def test_presets_are_the_defaults_shown(safestitch):
    fast, paper = (safestitch("train", "gas", f"--preset={p}", "--help") for p in ("fast", "paper"))
    assert "(default: 15000)" in fast.words and "(default: 400000)" not in fast.words
    assert "(default: 400000)" in paper.words


def test_help_needs_no_jax():
    code = "import sys; from safestitch.cli import _run; _run([]); sys.exit('jax' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert result.returncode == 0, result.stderr


# --- names -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "given", "meant"),
    [
        (["trian"], "unknown command 'trian'", "did you mean train"),
        (["evaluate"], "unknown command 'evaluate'", "did you mean eval"),
        (["train", "gaz", "MiniRun"], "unknown algorithm 'gaz'", "did you mean gas"),
        (["train", "gas", "minirunn"], "unknown task 'minirunn'", "did you mean MiniRun"),
        (["train", "gas", "MiniRun", "--preset", "papr"], "preset 'papr'", "did you mean paper"),
        (["train", "gas", "MiniRun", "--preset=fst"], "preset 'fst'", "did you mean fast"),
        (["demo", "--task", "StichChain"], "task 'StichChain'", "did you mean StitchChain"),
        (["train", "gas", "MiniRun", "--alhpa", "0.5"], "--alhpa", "--alpha"),
        (["train", "gas", "MiniRun", "--iteration", "5"], "--iteration", "--iterations"),
        (["eval", "somewhere", "--limit", "5"], "--limit", "--limits"),
        (["report", "somewhere", "--episode", "5"], "--episode", "--episodes"),
        (["demo", "--sedes", "5"], "--sedes", "--seeds"),
    ],
    ids=lambda x: " ".join(x) if isinstance(x, list) else "",
)
def test_mistyped_names(safestitch, arguments, given, meant):
    assert_refused(safestitch(*arguments), given, meant)
    assert not Path("runs").exists()


def test_no_algorithm(safestitch):
    assert_refused(safestitch("train"), "which algorithm?", "safestitch train ALGORITHM TASK")
    assert_refused(safestitch("train", "--seeds", "3"), "which algorithm?")


def test_no_task_and_no_run(safestitch):
    assert_refused(safestitch("train", "gas"), "Name of the task, or a data file")
    assert_refused(safestitch("eval"), "Run directory of a finished training. (required)")
    assert_refused(safestitch("report"), "Run directory of a finished training. (required)")
    assert_refused(safestitch("train", "--resume"), "--resume")


# --- values ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "words"),
    [
        (["--seeds", "0"], ["--seeds 0", "expected a number from 1 to 1000"]),
        (["--seeds", "-2"], ["--seeds -2", "expected a number from 1 to 1000"]),
        (["--seeds", "1001"], ["--seeds 1001", "expected a number from 1 to 1000"]),
        (["--seeds", "two"], ["--seeds", "two"]),
        (["--alpha", "2"], ["alpha is 2", "expected 1e-06 to 1"]),
        (["--alpha", "nan"], ["alpha is nan", "expected 1e-06 to 1"]),
        (["--batch", "x"], ["--batch", "x"]),
        (["--batch", "0"], ["batch is 0", "expected 1 to"]),
        (["--layers", "1"], ["layers is 1", "expected 2 to 64"]),
        (["--iterations", "-1"], ["iterations is -1", "expected 1 to"]),
        (["--schedule", "linear"], ["--schedule", "linear", "cosine"]),
        (["--target", "best"], ["--target", "best", "frontier"]),
        (["--learning-rate", "inf"], ["learning_rate is inf", "expected"]),
        (["--data-seed", "-1"], ["data", "-1"]),
        (["--preset"], ["--preset"]),
    ],
    ids=lambda x: " ".join(x) if x[0].startswith("--") else "",
)
def test_bad_values_of_train(safestitch, tmp_path, option, words):
    assert_refused(
        safestitch("train", "gas", "StitchChain", "--out", tmp_path / "x", *option), *words
    )
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("option", "words"),
    [
        (["--limits", "abc"], ["the limit 'abc' is not a number", "such as 20", "such as 10%"]),
        (["--limits", "10%", "nan"], ["the limit 'nan' is not a number"]),
        (["--limits=-5"], ["the limit '-5' is below 0"]),
        (["--limits", "-5"], ["-5"]),
        (["--limits", "150%"], ["the limit '150%' is above 100% of the cost range (20)"]),
        (["--limits", ""], ["the limit '' is not a number"]),
        (["--limits"], ["--limits"]),
        (["--episodes", "0"], ["--episodes 0", "expected 1 to 10000"]),
        (["--episodes", "-1"], ["--episodes -1", "expected 1 to 10000"]),
        (["--episodes", "1.5"], ["--episodes", "1.5"]),
        (["--episodes", "10001"], ["--episodes 10001", "expected 1 to 10000"]),
        (["--target-reward", "nan"], ["--target-reward nan is not a finite number"]),
        (["--target-reward", "inf"], ["--target-reward inf is not a finite number"]),
        (["--target-reward", "much"], ["--target-reward", "much"]),
    ],
    ids=lambda x: " ".join(x) if x[0].startswith("--") else "",
)
def test_bad_values_of_eval(safestitch, finished, option, words):
    assert_refused(safestitch("eval", finished, *option), *words)
    assert not (finished / runs.EVAL).exists()


@pytest.mark.parametrize("episodes", ["0", "-3", "few"])
def test_bad_values_of_report(safestitch, finished, episodes):
    assert_refused(safestitch("report", finished, "--episodes", episodes), "--episodes", episodes)
    assert not (finished / runs.REPORT).exists()


def test_bad_values_of_demo(safestitch, tmp_path):
    said = safestitch("demo", "--seeds", "0", "--out", tmp_path / "x")
    assert_refused(said, "--seeds 0", "expected a number from 1 to 1000")
    assert not (tmp_path / "x").exists()


# --- directories -------------------------------------------------------------------------------


def no_directory(run: Path) -> None:
    shutil.rmtree(run)


def empty_directory(run: Path) -> None:
    shutil.rmtree(run)
    run.mkdir()


def a_file(run: Path) -> None:
    shutil.rmtree(run)
    run.write_text("not a run")


def unlink(name: str) -> Callable[[Path], None]:
    return lambda run: (run / name).unlink()


def rewrite(**changes: Any) -> Callable[[Path], None]:
    def change(run: Path) -> None:
        facts = json.loads((run / runs.RUN).read_text())
        (run / runs.RUN).write_text(json.dumps({**facts, **changes}))

    return change


def cut(name: str) -> Callable[[Path], None]:
    def halve(run: Path) -> None:
        whole = (run / name).read_bytes()
        (run / name).write_bytes(whole[: len(whole) // 2])

    return halve


BROKEN = {
    "missing": (no_directory, "no run directory"),
    "empty": (empty_directory, "run.json is missing"),
    "file": (a_file, "no run directory"),
    "without run.json": (unlink(runs.RUN), "run.json is missing"),
    "without a policy": (unlink(runs.POLICY), "unfinished run: finish it with"),
    "other format": (rewrite(format=99), "run format 99"),
    "cut run.json": (cut(runs.RUN), "run.json is damaged"),
    "cut policy": (cut(runs.POLICY), "policy.safetensors is damaged"),
    "unknown algorithm": (rewrite(algorithm="gass"), "did you mean gas"),
    "unknown setting": (rewrite(config={"alfa": 1}), "does not fit this version of gas"),
    "other networks": (rewrite(config={**TINY, "hidden": 9}), "does not fit this run"),
    "other seeds": (rewrite(seeds=[0, 1, 2]), "does not fit this run"),
    "no summary": (rewrite(data_summary={}), "run.json is damaged"),
}


@pytest.mark.parametrize("verb", ["eval", "report"])
@pytest.mark.parametrize("kind", BROKEN)
def test_run_directories_that_cannot_be_used(safestitch, finished, verb, kind):
    damage, message = BROKEN[kind]
    damage(finished)
    assert_refused(safestitch(verb, finished), str(finished) if "un" not in kind else "", message)
    assert not (finished / runs.EVAL).exists()
    assert not (finished / runs.REPORT).exists()


@pytest.mark.parametrize(
    "damage", [unlink(runs.METRICS), cut(runs.METRICS)], ids=["missing", "cut short"]
)
def test_a_report_without_its_metrics(safestitch, finished, damage):
    damage(finished)
    assert_refused(safestitch("report", finished, "--episodes=1"), "metrics.csv")


@pytest.mark.parametrize("verb", ["eval", "report"])
def test_a_run_in_training(safestitch, unfinished, verb):
    with runs.locked(unfinished):
        assert_refused(safestitch(verb, unfinished), "is still being trained: try again")


def test_resuming_a_run_in_training(safestitch, unfinished):
    with runs.locked(unfinished):
        assert_refused(
            safestitch("train", "--resume", unfinished), "is being written by another training"
        )


def test_resuming_what_is_not_there(safestitch, tmp_path):
    assert_refused(safestitch("train", "--resume", tmp_path / "x"), "no run directory")
    assert not (tmp_path / "x").exists()


def test_resuming_a_run_on_ones_own_data(safestitch, unfinished):
    rewrite(spec={**dataclasses.asdict(TASK.spec), "task": "own data"})(unfinished)
    assert_refused(safestitch("train", "--resume", unfinished), "own data")


@pytest.mark.parametrize("spelling", [["--resume", "{}"], ["--resume={}"]], ids=str)
def test_resuming_a_finished_run(safestitch, finished, spelling):
    before = (finished / runs.POLICY).stat().st_mtime_ns
    said = safestitch("train", *(word.format(finished) for word in spelling))
    assert said.code == 0, said
    assert (finished / runs.POLICY).stat().st_mtime_ns == before


def test_outs_that_cannot_be_used(safestitch, finished, tmp_path):
    (tmp_path / "file").write_text("kept")
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "thesis.tex").touch()
    assert_refused(safestitch(*TRAIN, "--out", tmp_path / "file"), f"{tmp_path / 'file'}")
    assert_refused(safestitch(*TRAIN, "--out", tmp_path / "thesis"), "not empty", "--out")
    assert_refused(safestitch(*TRAIN, "--out", finished), "a finished run", "--out")
    (finished / runs.POLICY).unlink()
    said = safestitch(*TRAIN, "--out", finished)
    assert_refused(said, f"`safestitch train --resume {finished}`")


# --- the verbs ---------------------------------------------------------------------------------


def test_train_eval_and_report(safestitch, trained):
    said = safestitch(*TRAIN, "--seeds", "2")
    out = Path("runs/gas-StitchChain")
    assert said.code == 0, said
    assert "training gas on StitchChain" in said.out
    assert f"safestitch eval {out}" in said.out
    run, expected = runs.read(out), runs.read(trained)
    assert dataclasses.replace(run, data_source="") == dataclasses.replace(expected, data_source="")
    assert run.data_source == "built-in StitchChain, data seed 0"
    assert (out / runs.METRICS).read_bytes() == (trained / runs.METRICS).read_bytes()

    said = safestitch("eval", out, "--limits", "10%", "0", "30", "--episodes", "5")
    assert said.code == 0, said
    assert "note: the limit 30 is above the largest cost of the data (20)" in said.out
    assert "2 (10%)" in said.out and "0 (0%)" in said.out and "30 (150%)" in said.out
    assert f"written to {out / 'eval.json'}" in said.out
    assert [r["limit"] for r in json.loads((out / "eval.json").read_text())] == [2, 0, 30] * 2

    said = safestitch("report", out, "--episodes", "5")
    assert said.code == 0, said
    page = (out / runs.REPORT).resolve()
    assert said.out == f"open {page}\n"
    assert '"task":"StitchChain"' in page.read_text()


def test_demo_does_nothing_twice(safestitch, finished):
    files = (runs.POLICY, runs.METRICS, runs.CHECKPOINT, runs.EVAL, runs.ROWS, runs.REPORT)
    trained_at = (finished / runs.POLICY).stat().st_mtime_ns
    first = safestitch("demo", "--out", finished)
    assert first.code == 0, first
    assert (finished / runs.POLICY).stat().st_mtime_ns == trained_at
    times = [(finished / name).stat().st_mtime_ns for name in files]
    second = safestitch("demo", "--out", finished)
    assert second.code == 0, second
    assert [(finished / name).stat().st_mtime_ns for name in files] == times
    for said in (first, second):
        assert "2 (10%)" in said.out and "18 (90%)" in said.out
        assert str((finished / runs.REPORT).resolve()) in said.out
        assert "training" not in said.out.replace("One training", "")


def test_doctor(safestitch):
    said = safestitch("doctor")
    assert said.code == 0, said
    for name in ("python", "jax", "equinox", "tyro", "device", "extra tensorboard", "free disk"):
        assert re.search(rf"^ *ok +{name} ", said.out, re.MULTILINE), said.out


@pytest.mark.parametrize("verb", ["train", "eval"])
def test_ctrl_c_before_anything_is_saved(safestitch, finished, tmp_path, monkeypatch, verb):
    def press(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(jax, "eval_shape", press)
    monkeypatch.setattr(loop, "fresh_checkpoint", press)
    command = [*TRAIN, "--out", tmp_path / "x"] if verb == "train" else ["eval", finished]
    try:
        code = safestitch(*command).code
    except KeyboardInterrupt:
        pytest.fail("Ctrl-C ended in a traceback")
    assert code == 130


def test_the_entry_point_exits_with_the_code(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["nonsense"])
    assert stop.value.code == 2
    assert "unknown command 'nonsense'" in capsys.readouterr().err


def test_the_real_command(trained, tmp_path):
    safestitch = Path(sys.executable).with_name("safestitch")
    with contextlib.chdir(tmp_path):
        good = subprocess.run(
            [safestitch, "eval", trained, "--limits=-1"],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "COLUMNS": "200"},
        )
    assert good.returncode == 2
    assert good.stdout == ""
    assert good.stderr == "error: the limit '-1' is below 0: costs are never negative\n"


@pytest.mark.parametrize("words", [["--help"], ["train", "gas", "--help"]])
def test_nobody_reads(words):
    """As in `safestitch ... | head`: no traceback."""
    reader, writer = os.pipe()
    os.close(reader)
    words = [sys.executable, "-m", "safestitch", *words]
    with open(writer, "wb") as pipe:
        result = subprocess.run(words, stdout=pipe, stderr=subprocess.PIPE, check=False)
    assert (result.returncode, result.stderr) == (1, b"")
