"""Kill a making at random moments, give the same command again, compare with one never stopped.

    python bench/kill_make.py [--task BallRun] [--kills 12] [--episodes 60]

Every kill is a SIGKILL of a real process and its workers' master. After each, nothing may stand
under the name of the file but the whole file; the command given again must finish it, byte for byte
the same, with another number of workers than before.
"""

import argparse
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import _results
from make_speed import behaviours_for

from safestitch.behaviours.snapshots import save
from safestitch.behaviours.stock import Stock
from safestitch.catalog import get_entry
from safestitch.data import dsrl


def command(task: str, root: Path, out: Path, episodes: int, workers: int) -> list[str]:
    """As a user gives it; every cost is of use, whatever the behaviours have learned."""
    made = ["data", "make", task, "--behaviours", str(root / "b.safetensors"), "--out", str(out)]
    made += ["--episodes", str(episodes), "--workers", str(workers), "--cost-range", "1e6"]
    program = (
        "import sys\nfrom safestitch.behaviours import making, stock\n"
        "from safestitch.cli import main\n"
        "making._least_reward = lambda *_: -1e9\nmaking.MORE_ROUNDS = ()\n"
        "stock.CERTAIN_SECONDS = 0.1\nmain(sys.argv[1:])"
    )
    return [sys.executable, "-c", program, *made]


def finish(words: list[str]) -> float:
    """Make to the end; seconds it took."""
    begin = time.monotonic()
    found = subprocess.run(words, capture_output=True, text=True, check=False)
    if found.returncode:
        sys.exit(f"the making failed: {found.stderr}")
    return time.monotonic() - begin


def kill(words: list[str], stock: Stock, episodes: int) -> str:
    """SIGKILL a making when so many episodes are certain; what it left."""
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None and certain(stock) < episodes:
        time.sleep(0.002)
    if process.poll() is not None:
        return "had finished"
    process.send_signal(signal.SIGKILL)
    process.wait()
    if stock.out.exists():
        return "whole file, not tidied"
    return "episodes" if certain(stock) else "nothing yet"


def certain(stock: Stock) -> int:
    """Episodes that a resumed making will not roll again."""
    file = stock.finished_file
    return file.stat().st_size // stock.record.itemsize if file.exists() else 0


def main() -> None:
    parser = argparse.ArgumentParser(description="kill and resume a making")
    parser.add_argument("--task", default="BallRun")
    parser.add_argument("--kills", type=int, default=12)
    parser.add_argument("--episodes", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    moments = random.Random(options.seed)
    left: dict[str, int] = {}
    partial = different = leftovers = 0
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        out = root / "made.hdf5"
        save(root / "b.safetensors", behaviours_for(get_entry(options.task)))
        reference = root / "reference.hdf5"
        whole = finish(command(options.task, root, reference, options.episodes, 2))
        expected, rolled = reference.read_bytes(), dsrl.provenance(reference)["rolled"]
        stock = Stock(out, get_entry(options.task).spec)
        while sum(n for state, n in left.items() if state != "had finished") < options.kills:
            words = [command(options.task, root, out, options.episodes, w) for w in (1, 2)]
            moments.shuffle(words)
            state = kill(words[0], stock, moments.randint(0, rolled))
            left[state] = left.get(state, 0) + 1
            partial += out.exists() and out.read_bytes() != expected
            if state != "had finished":
                finish(words[1])
            different += out.read_bytes() != expected
            leftovers += out.with_name("made.hdf5.making").exists()
            out.unlink()
    _results.show("what a kill left", [{"state": s, "kills": n} for s, n in sorted(left.items())])
    _results.finish(
        task=options.task,
        kills=options.kills,
        partial_taken_for_whole=int(partial),
        differ_after_resume=different,
        leftovers=leftovers,
        states=left,
        seconds_uninterrupted=round(whole, 2),
    )
    sys.exit(1 if partial or different or leftovers else 0)


if __name__ == "__main__":
    main()
