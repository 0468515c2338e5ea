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

SETTINGS = ["--iterations", "8000", "--batch", "64", "--hidden", "64", "--layers", "3"]
FILES = ("policy.safetensors", "checkpoint.safetensors", "metrics.csv")


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "safestitch", "train", *words]


def start(out: Path) -> subprocess.Popen:
    words = ["gas", "StitchChain", "--seeds", "2", "--out", str(out), *SETTINGS]
    if (out / "run.json").exists():
        words = ["--resume", str(out)]
    words += ["--checkpoint-seconds", "0.5"]
    return subprocess.Popen(command(*words), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def finish(out: Path) -> tuple[float, float]:
    """Train to the end; seconds until the first metrics, and seconds in all."""
    begin = time.monotonic()
    process = start(out)
    wait_for_metrics(process, out)
    started = time.monotonic() - begin
    _, errors = process.communicate()
    if process.returncode:
        sys.exit(f"training failed: {errors.decode()}")
    return started, time.monotonic() - begin


def wait_for_metrics(process: subprocess.Popen, out: Path) -> None:
    while process.poll() is None and not (out / "metrics.csv").exists():
        time.sleep(0.01)


def kill(out: Path, after: float, *, in_training: bool) -> str:
    """SIGKILL a training so many seconds after its start, or after its first metrics."""
    process = start(out)
    if in_training:
        wait_for_metrics(process, out)
    try:
        process.wait(after)
        return "had finished"
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        process.wait()
    if not (out / "run.json").exists():
        return "no run yet"
    return "a checkpoint" if (out / "checkpoint.safetensors").exists() else "no checkpoint yet"


def main() -> None:
    parser = argparse.ArgumentParser(description="kill and resume")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    moments = random.Random(options.seed)
    rows = []
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        started, whole = finish(root / "reference")
        for number in range(options.kills):
            out = root / f"killed{number}"
            in_training = number % 4 > 0  # every fourth falls into the start-up
            span = 0.8 * (whole - started) if in_training else started
            after = moments.uniform(0.0, span)
            found = kill(out, after, in_training=in_training)
            finish(out)
            same = [(out / f).read_bytes() == (root / "reference" / f).read_bytes() for f in FILES]
            phase = "training" if in_training else "start-up"
            rows.append({"kill": number, "in": phase, "after s": after, "found": found})
            rows[-1]["identical"] = all(same)
            shutil.rmtree(out)
    _results.show(f"SIGKILL at {options.kills} random moments of a {whole:.0f} s training", rows)
    identical = sum(row["identical"] for row in rows)
    _results.finish(kills=options.kills, identical=identical, rows=rows)
    sys.exit(identical != options.kills)


if __name__ == "__main__":
    main()
