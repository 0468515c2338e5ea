"""Kill a training at random moments, resume it, and compare with one that was never stopped.

    python bench/kill_resume.py [--kills 20]

Every kill is a SIGKILL of a real `safestitch train` process; what is compared is the policy file,
the final checkpoint and the metrics, byte by byte.
"""

import argparse
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import _results

SETTINGS = ["--iterations", "2000", "--batch", "64", "--hidden", "32", "--layers", "3"]
FILES = ("policy.safetensors", "checkpoint.safetensors", "metrics.csv")


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "safestitch", "train", *words]


def start(out: Path) -> subprocess.Popen:
    words = ["gas", "StitchChain", "--seeds", "2", "--out", str(out), *SETTINGS]
    if (out / "run.json").exists():
        words = ["--resume", str(out)]
    words += ["--checkpoint-seconds", "0.5"]
    return subprocess.Popen(command(*words), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def finish(out: Path) -> float:
    begin = time.monotonic()
    process = start(out)
    _, errors = process.communicate()
    if process.returncode:
        sys.exit(f"training failed: {errors.decode()}")
    return time.monotonic() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description="kill and resume")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    moments = random.Random(options.seed)
    rows = []
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        whole = finish(root / "reference")
        for kill in range(options.kills):
            out = root / f"killed{kill}"
            process = start(out)
            after = moments.uniform(0.0, whole)
            try:
                process.wait(after)
                state = "had finished"
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
                process.wait()
                state = "checkpoint" if (out / FILES[1]).exists() else "no checkpoint yet"
                state = state if (out / "run.json").exists() else "no run yet"
            finish(out)
            same = [(out / f).read_bytes() == (root / "reference" / f).read_bytes() for f in FILES]
            rows.append({"kill": kill, "after s": after, "found": state, "identical": all(same)})
            shutil.rmtree(out)
    _results.show(f"SIGKILL at {options.kills} random moments of a {whole:.0f} s training", rows)
    identical = sum(row["identical"] for row in rows)
    _results.finish(kills=options.kills, identical=identical, rows=rows)
    sys.exit(identical != options.kills)


if __name__ == "__main__":
    main()
