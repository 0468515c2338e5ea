"""Kill an import at random moments, give the same command again, compare with one never stopped.

    python bench/kill_import.py [--kills 50] [--rows 300000]

Every kill is a SIGKILL of a real process. After each, nothing may stand under the name of the file
but the whole file; the command given again must finish it, byte for byte the same.
"""

import argparse
import json
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import _results
import numpy as np

PROGRAM = """
import sys
from safestitch.data.importing import import_logs
import_logs(sys.argv[1], sys.argv[2], journal_seconds=0.2)
"""


def write_log(path: Path, rows: int) -> None:
    """A CSV of 20 observations and 4 actions, episodes of 500 steps named by text."""
    rng = np.random.default_rng(0)
    names = [f"obs.{i}" for i in range(20)] + [f"action.{i}" for i in range(4)]
    with open(path, "w") as handle:
        handle.write(",".join([*names, "reward", "cost", "step", "episode"]) + "\n")
        for first in range(0, rows, 10_000):
            count = min(10_000, rows - first)
            numbers = rng.standard_normal((count, 25), dtype=np.float32)
            costs = rng.random(count) < 0.1
            for i in range(count):
                row = first + i
                cells = ",".join(map(str, numbers[i]))
                handle.write(f"{cells},{int(costs[i])},{row % 500},run {row // 500}\n")


def start(log: Path, out: Path) -> subprocess.Popen:
    command = [sys.executable, "-c", PROGRAM, str(log), str(out)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def finish(log: Path, out: Path) -> float:
    """Import to the end; seconds it took."""
    begin = time.monotonic()
    process = start(log, out)
    _, errors = process.communicate()
    if process.returncode:
        sys.exit(f"the import failed: {errors.decode()}")
    return time.monotonic() - begin


def kill(log: Path, out: Path, after: float) -> str:
    """SIGKILL an import so many seconds after its start; what it left."""
    process = start(log, out)
    try:
        process.wait(after)
        return "had finished"
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        process.wait()
    staging = out.with_name(f"{out.name}.importing")
    if out.exists():
        return "whole file, not tidied"
    if (staging / "whole.h5").exists():
        return "in assembly"
    if (staging / "journal.json").exists():
        return "a journal"
    return "rows, no journal" if (staging / "rows.bin").exists() else "nothing yet"


def main() -> None:
    parser = argparse.ArgumentParser(description="kill and resume an import")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    moments = random.Random(options.seed)
    left: dict[str, int] = {}
    partial = different = went_on = leftovers = 0
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        log, out = root / "log.csv", root / "my.h5"
        write_log(log, options.rows)
        whole = finish(log, root / "reference.h5")
        expected = (root / "reference.h5").read_bytes()
        while sum(n for state, n in left.items() if state != "had finished") < options.kills:
            state = kill(log, out, moments.uniform(0, 1.05 * whole))
            left[state] = left.get(state, 0) + 1
            partial += out.exists() and out.read_bytes() != expected
            journal = out.with_name("my.h5.importing") / "journal.json"
            went_on += journal.exists() and json.loads(journal.read_bytes())["rows"] > 0
            if state != "had finished":
                finish(log, out)
            different += out.read_bytes() != expected
            leftovers += out.with_name("my.h5.importing").exists()
            out.unlink()
            shutil.rmtree(out.with_name("my.h5.importing"), ignore_errors=True)
        size = log.stat().st_size
    _results.show("what a kill left", [{"state": s, "kills": n} for s, n in sorted(left.items())])
    _results.finish(
        kills=options.kills,
        partial_taken_for_whole=int(partial),
        differ_after_resume=different,
        went_on_from_journal=int(went_on),
        leftovers=leftovers,
        states=left,
        csv_megabytes=round(size / 1e6),
        seconds_uninterrupted=round(whole, 2),
    )
    sys.exit(1 if partial or different or leftovers else 0)


if __name__ == "__main__":
    main()
