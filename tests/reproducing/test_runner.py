"""Running jobs, with commands that take no time; real ones are in test_smoke."""

import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from safestitch.records import SafestitchError
from safestitch.reproducing.jobs import Job
from safestitch.reproducing.ledger import LEDGER
from safestitch.reproducing.runner import State, run_jobs

PROGRAM = """
import sys, time, pathlib
kind, path = sys.argv[1:3]
print("doing", kind, path)
if kind == "slow":
    time.sleep(1.5)
if kind in ("make", "slow"):
    with open(path, "a") as file: file.write("made ")
elif kind == "fail":
    sys.exit("this went wrong")
elif kind == "hang":
    pathlib.Path(path + ".begun").touch()
    sys.stdin.read()  # until let go
    pathlib.Path(path + ".saved").touch()
"""
LEASH = (sys.executable, "-S", "-c", PROGRAM)


def job(name: str, kind: str, place: Path, after: tuple[str, ...] = ()) -> Job:
    path = place / name
    return Job(name, "eval", (kind, str(path)), path.exists, after=after)


class Said:
    """Everything that was told."""

    def __init__(self):
        self.lines: list[str] = []
        self.states: list[State] = []


def run(jobs: list[Job], out: Path, at_once: int = 1):
    said = Said()
    failures = run_jobs(
        jobs, out, at_once=at_once, say=said.lines.append, tick=said.states.append, leash=LEASH
    )
    return failures, said


def test_all_are_run_once_and_in_order(tmp_path):
    jobs = [job("b", "make", tmp_path, ("a",)), job("a", "make", tmp_path)]
    failures, said = run(jobs, tmp_path / "out")
    assert failures == []
    assert [line.split(" in ")[0] for line in said.lines] == [
        "started a",
        "finished a",
        "started b",
        "finished b",
    ]
    failures, said = run(jobs, tmp_path / "out")
    assert (failures, said.lines) == ([], ["2 of 2 jobs are finished already"])
    assert (tmp_path / "a").read_text() == "made "
    ledger = json.loads((tmp_path / "out" / LEDGER).read_text())
    assert ledger["a"]["attempts"] == 1 and ledger["a"]["words"] == ["make", str(tmp_path / "a")]
    assert "doing make" in (tmp_path / "out" / "logs" / "a.log").read_text()


def test_a_failure_stops_only_what_needs_it(tmp_path):
    jobs = [
        job("bad", "fail", tmp_path),
        job("needs", "make", tmp_path, ("bad",)),
        job("needs-that", "make", tmp_path, ("needs",)),
        job("empty", "nothing", tmp_path),
        job("good", "make", tmp_path),
    ]
    failures, said = run(jobs, tmp_path / "out")
    bad, empty = failures
    assert (bad.job.name, bad.why) == ("bad", "ended with code 1")
    assert bad.tail.splitlines()[-1] == "this went wrong"
    assert (empty.job.name, empty.why) == ("empty", "ended without its result")
    assert "needs-that is left out: it needs bad" in said.lines
    assert (tmp_path / "good").exists()
    assert not (tmp_path / "needs").exists()
    assert said.states[-1].failed == 2


def test_only_the_last_attempt_is_shown_of_a_log(tmp_path):
    jobs = [job("bad", "fail", tmp_path)]
    run(jobs, tmp_path / "out")
    failures, _ = run(jobs, tmp_path / "out")
    assert failures[0].tail.count("this went wrong") == 1
    assert failures[0].log.read_text().count("this went wrong") == 2


def test_no_more_at_once_than_asked(tmp_path):
    jobs = [job(str(i), "make", tmp_path) for i in range(5)]
    _, said = run(jobs, tmp_path / "out", at_once=2)
    assert max(len(state.running) for state in said.states) == 2
    assert all(len(state.running) <= 2 for state in said.states)
    assert said.states[-1].finished == 5
    assert said.states[0].left is None  # nothing is known yet
    assert said.states[-1].left == 0.0


def test_a_job_that_takes_longer_than_its_like_has_no_time_left_to_tell(tmp_path):
    jobs = [job("a.eval", "make", tmp_path), job("b.eval", "slow", tmp_path)]
    _, said = run(jobs, tmp_path / "out")
    left = [state.left for state in said.states if state.running == ("b.eval",)]
    assert left[0] and left[0] > 0.0
    assert left[-1] is None


def test_ctrl_c_lets_jobs_save(tmp_path):
    jobs = [job("slow", "hang", tmp_path), job("later", "make", tmp_path, ("slow",))]

    def interrupt_when_begun() -> None:
        while not (tmp_path / "slow.begun").exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt_when_begun, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        run(jobs, tmp_path / "out")
    assert (tmp_path / "slow.saved").exists()
    assert not (tmp_path / "later").exists()


def test_a_training_begun_otherwise_is_not_taken_for_this_one(tmp_path):
    begun = tmp_path / "begun"

    def training(alpha: str) -> Job:
        words = ("make", str(begun), "--alpha", alpha, "--out", str(begun))
        return Job("t", "train", words, begun.exists, lambda: words if begun.exists() else None)

    run([training("0.8")], tmp_path / "out")
    run([training("0.8")], tmp_path / "out")
    with pytest.raises(SafestitchError, match=r"begun as .*--alpha 0\.8.*--alpha 0\.9.*delete"):
        run([training("0.9")], tmp_path / "out")
    begun.unlink()
    run([training("0.9")], tmp_path / "out")


def test_two_at_work_in_one_place(tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    with open(out / ".lock", "a+") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        other.write(str(os.getpid()))
        other.flush()
        with pytest.raises(SafestitchError, match=f"is being run by process {os.getpid()}"):
            run([], out)


def test_jobs_of_a_killed_one_are_waited_for(tmp_path):
    """The lock is shared with the jobs: it is free when the last of them has ended."""
    out = tmp_path / "out"
    out.mkdir()
    with open(out / ".lock", "a+") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        orphan = subprocess.Popen(
            [sys.executable, "-S", "-c", "import sys; sys.stdin.read()"],
            stdin=subprocess.PIPE,
            pass_fds=(handle.fileno(),),
        )
    said: list[str] = []

    def say(line: str) -> None:
        said.append(line)
        assert orphan.stdin
        orphan.stdin.close()

    assert run_jobs([], out, say=say) == []
    orphan.wait()
    assert said == ["waiting for jobs of a stopped reproduction to end"]


@pytest.mark.parametrize("text", ["[]", '{"a": 3}'])
def test_a_damaged_ledger(tmp_path, text):
    (tmp_path / LEDGER).write_text(text)
    with pytest.raises(SafestitchError, match=r"jobs\.json is damaged: delete it"):
        run([], tmp_path)
