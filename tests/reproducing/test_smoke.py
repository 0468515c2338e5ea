"""A real reproduction: killed, gone on with, compared, and not done again."""

import contextlib
import csv
import fcntl
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from safestitch import runs
from safestitch.cli import _run

pytestmark = pytest.mark.usefixtures("as_installed")
SMOKE = Path(__file__).parents[2] / "reproductions" / "smoke.toml"


def is_free(out: Path) -> bool:
    with open(out / ".lock") as handle, contextlib.suppress(BlockingIOError):
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return True
    return False


def test_killed_and_gone_on_with(tmp_path, capsys):
    out = tmp_path / "out"
    words = ["reproduce", str(SMOKE), "--out", str(out)]
    first = out / "StitchChain" / "gas"
    process = subprocess.Popen(
        [sys.executable, "-m", "safestitch", *words], stdout=subprocess.DEVNULL
    )
    while process.poll() is None and not (first / runs.METRICS).exists():
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    while not is_free(out):  # its jobs notice, save and end
        time.sleep(0.05)
    was_trained = runs.is_trained(first)
    assert (first / runs.CHECKPOINT).exists()

    assert _run([*words, "--jobs", "2"]) == 0
    said = capsys.readouterr().out
    assert was_trained or "going on with StitchChain.gas.train" in said
    assert "finished StitchChain.no-relabelling.eval" in said
    ledger = json.loads((out / "jobs.json").read_text())
    assert ledger["StitchChain.gas.train"]["attempts"] == (1 if was_trained else 2)
    page = (out / "comparison" / "comparison.html").read_text()
    assert "safestitch train gas StitchChain --seeds 2" in page
    with open(out / "comparison" / "comparison.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(r["method"], r["band"], r["seeds"], r["against"]) for r in rows] == [
        ("gas", "tight", "2", "gas"),
        ("no-relabelling", "tight", "2", "gas"),
        ("gas", "loose", "2", "gas"),
        ("no-relabelling", "loose", "2", "gas"),
    ]
    assert rows[1]["reward_difference"] and not rows[0]["reward_difference"]

    kept = {path: path.stat().st_mtime_ns for path in out.glob("*/*/*") if path.is_file()}
    assert len(kept) > 10
    assert _run(words) == 0
    assert "4 of 4 jobs are finished already" in capsys.readouterr().out
    assert kept == {path: path.stat().st_mtime_ns for path in kept}

    records = out / "comparison" / "runs"
    elsewhere = tmp_path / "elsewhere"
    assert _run(["reproduce", str(SMOKE), "--out", str(elsewhere), "--known", str(records)]) == 0
    said = capsys.readouterr().out
    assert "2 runs are known" in said and "4 of 4 jobs are finished already" in said
    table = (out / "comparison" / "comparison.csv").read_text()
    assert (elsewhere / "comparison" / "comparison.csv").read_text() == table

    # A record of a version that knew fewer settings: what it does not name is at its default.
    older = records / "StitchChain" / "gas" / runs.RUN
    facts = json.loads(older.read_text())
    del facts["config"]["haste"]
    older.write_text(json.dumps(facts))

    changed = tmp_path / "changed.toml"
    changed.write_text(SMOKE.read_text().replace("relabel = false", "relabel = false, alpha = 0.6"))
    words = ["reproduce", str(changed), "--out", str(tmp_path / "other"), "--known", str(records)]
    assert _run([*words, "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "1 runs are known" in said
    assert "StitchChain.gas.eval: finished" in said
    assert "StitchChain.no-relabelling.train: safestitch train gas StitchChain" in said
    assert _run([*words[:-1], str(tmp_path / "nowhere")]) != 0
    assert "no such directory" in capsys.readouterr().err
