import csv
import dataclasses
import json
from pathlib import Path

import pytest
from tests.comparing.conftest import LIMITS, make_result, make_run

from safestitch import runs
from safestitch.cli import _run
from safestitch.comparing import compare_runs
from safestitch.evaluation.stored import Question, answer
from safestitch.records import RunError, SafestitchError, Spec

GAS = make_result("gas", [40.0, 60.0], [0.5, 0.9])
BC = make_result("bc", [30.0], [0.5], make_run(algorithm="bc", seeds=1))


@pytest.fixture
def pair(on_disk) -> list[str]:
    return [str(on_disk("a", GAS)), str(on_disk("b", BC))]


def test_what_was_evaluated_is_not_played_again(pair):
    """The policies are rubbish: playing them would fail."""
    found = compare_runs(pair, episodes=2)
    assert found.methods == ["gas", "bc"]
    assert found.against == "gas"
    assert [c.reward for c in found.cells[:2]] == pytest.approx([0.5, 0.3])


@pytest.mark.parametrize(
    "changed", [{"episodes": 3}, {"episodes": 2, "seed": 1}, {"episodes": 2, "limits": ["10%"]}]
)
def test_another_question_is_asked_anew(pair, changed):
    with pytest.raises(RunError, match=r"policy\.safetensors is damaged"):
        compare_runs(pair, **changed)


def test_records_stand_for_runs(pair, tmp_path):
    """They answer what was asked before, name no folder of the machine, and nothing more."""
    out = tmp_path / "table"
    words = ["compare", *pair, "--episodes", "2", "--out", str(out)]
    assert _run(words) == 0
    records = [str(out / "runs" / "BallRun" / method) for method in ("gas", "bc")]
    held = [path for path in (out / "runs").rglob("*") if path.is_file()]
    assert {path.name for path in held} == {runs.RUN, runs.EPISODES}
    assert not any("somewhere" in path.read_text() for path in held)
    again = tmp_path / "again"
    assert _run(["compare", *records, "--episodes", "2", "--out", str(again)]) == 0
    for name in ("comparison.md", "comparison.csv", "limits.csv"):
        assert (again / name).read_text() == (out / name).read_text()
    with pytest.raises(RunError, match="record of a run, without its policy"):
        compare_runs(records, episodes=3)


def test_the_same_limits_in_other_words(pair):
    found = compare_runs(pair, ["8", "16", "24", "70%", "80%", "90%"], episodes=2)
    assert found.bands == ("tight", "loose")


def test_names(pair):
    found = compare_runs([f"mine={pair[0]}", f"2nd-best={pair[1]}"], episodes=2)
    assert found.methods == ["mine", "2nd-best"]
    assert found.against is None
    assert all(cell.gap is None for cell in found.cells)
    assert compare_runs([f"mine={pair[0]}", pair[1]], episodes=2, against="bc").against == "bc"


@pytest.mark.parametrize(
    ("damage", "value"),
    [
        ("question", None),
        ("rewards", [[[1.0]]]),
        ("costs", "x"),
        ("rewards", [[[None] * 2] * 6] * 2),
        ("costs", [[[-1.0] * 2] * 6] * 2),
        ("question", {"limits": [8.0], "episodes": 2, "elsewhere": 1}),
    ],
)
def test_a_damaged_evaluation_is_no_answer(on_disk, damage, value):
    directory = on_disk("a", GAS)
    assert answer(directory, Question(LIMITS, 2)) is not None
    path = directory / runs.EPISODES
    path.write_text(json.dumps(json.loads(path.read_text()) | {damage: value}))
    assert answer(directory, Question(LIMITS, 2)) is None
    path.write_text("{")
    assert answer(directory, Question(LIMITS, 2)) is None
    path.unlink()
    assert answer(directory, Question(LIMITS, 2)) is None


# --- what cannot be compared -------------------------------------------------------------------


def refused(entries: list[str], words: str, **options) -> None:
    with pytest.raises(SafestitchError, match=words):
        compare_runs(entries, episodes=2, **options)


def test_no_runs():
    refused([], "which runs")


def test_a_missing_run(pair):
    refused([*pair, "nowhere"], "no run directory nowhere")


def test_an_unfinished_run(pair):
    for name in (runs.POLICY, runs.EPISODES):
        (Path(pair[0]) / name).unlink()
    refused(pair, "holds an unfinished run: finish it with")


def test_two_runs_of_one_name(on_disk, pair):
    again = on_disk("again", GAS)
    refused([*pair, str(again)], "are both gas on BallRun: tell them apart with NAME=RUN")
    assert compare_runs([*pair, f"again={again}"], episodes=2).methods == ["gas", "bc", "again"]


def test_other_data(on_disk, pair):
    run = dataclasses.replace(BC.entry.run, data_fingerprint="f" * 64, data_source="file /x/y.h5")
    refused(
        [pair[0], str(on_disk("c", BC, run))],
        r"gas|from made by safestitch .*0123456789ab.*the file y.h5 \(ffffffffffff\).*same data",
    )


def test_another_task_of_the_same_name(on_disk, pair):
    run = dataclasses.replace(BC.entry.run, spec=Spec("BallRun", 7, 2, 100, 90.0))
    refused([pair[0], str(on_disk("c", BC, run))], "different tasks of that name")


def test_an_unknown_reference(pair):
    refused(pair, "unknown method to compare with 'gaz': did you mean gas", against="gaz")


@pytest.mark.parametrize("limits", [[], ["10%", "8"], ["10%", "10%"]])
def test_bad_limits(pair, limits):
    refused(pair, "expected at least one limit, and none twice", limits=limits)


def test_an_algorithm_of_a_name_that_is_none(on_disk):
    run = dataclasses.replace(BC.entry.run, algorithm="a|b")
    refused([str(on_disk("c", BC, run))], "algorithm of no known name: 'a|b'")


def test_a_task_without_a_simulator(on_disk):
    lone = make_result("gas", [40.0], [0.5], make_run("own data", seeds=1))
    refused([str(on_disk("c", lone))], "has no simulator")


# --- the verb ----------------------------------------------------------------------------------


@pytest.mark.usefixtures("as_installed")
def test_the_verb_writes_every_table(pair, tmp_path, capsys):
    out = tmp_path / "deep" / "out"
    assert _run(["compare", *pair, "--episodes", "2", "--out", str(out)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "0.50 ± 0.14 / 0.70 ± 0.28 safe, best" in said
    assert "paper, public data: 0.33 / 0.62 safe, best" in said
    assert "1 of 1 tasks" in said
    names = ["comparison.csv", "comparison.html", "comparison.md", "comparison.tex", "limits.csv"]
    names.append("runs")
    assert sorted(path.name for path in out.iterdir()) == names
    with open(out / "comparison.csv", newline="") as file:
        assert len(list(csv.DictReader(file))) == 4


@pytest.mark.usefixtures("as_installed")
@pytest.mark.parametrize("flags", [["--episodes", "0"], ["--workers", "0"]])
def test_the_verb_refuses(pair, flags, capsys):
    assert _run(["compare", *pair, *flags]) == 2
    assert f"{flags[0]} 0: expected 1 to" in capsys.readouterr().err
