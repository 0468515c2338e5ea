"""Read thousands of damaged and hostile files; each must load, or give a clear error.

    python bench/fuzz_data.py [--files 10000] [--seed 0] [--only hdf5] [--control]

Readers run in child processes that may take 1 GB beyond what they need to start, under a watch
that ends them after some seconds. A file outside, to which some of the files point, is watched by
the system: whether anybody has opened it is known, not guessed. `--control` reads the HDF5 files
with h5py alone, to see that what must not happen is noticed when it does.
"""

import argparse
import collections
import contextlib
import ctypes
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from random import Random
from typing import Any

import _results
import h5py
import numpy as np
from _mutations import mutations
from _wholes import CANARY, SECRET, arrays

ALLOWED_SECONDS = 2.0
ALLOWED_BYTES = 1 << 30
GOOD = ("loaded", "clear error")
BAD = ("crash", "other error", "hang", "memory", "outside")


class Child:
    """A reading process; started anew after each death."""

    def __init__(self, *words: str):
        self.words = words
        self.process: subprocess.Popen | None = None

    def ask(self, path: Path) -> dict[str, tuple[str, float, str]]:
        """Reader -> outcome, seconds, message."""
        if self.process is None:
            quiet = {**os.environ, "ARROW_DEFAULT_MEMORY_POOL": "system", "OMP_NUM_THREADS": "1"}
            quiet |= {"OPENBLAS_NUM_THREADS": "1"}
            command = [
                sys.executable,
                str(Path(__file__).with_name("_reading.py")),
                str(ALLOWED_BYTES),
                str(SECRET),
                *self.words,
            ]
            self.process = subprocess.Popen(
                command, stdin=-1, stdout=-1, stderr=subprocess.DEVNULL, env=quiet, text=True
            )
            self._tell(str(path.parent / "warm-up"))  # imports do not count
            if self._answer(60) is None:
                sys.exit("the reading process does not start")
        self._tell(str(path))
        answer = self._answer(20)  # seconds of the clock; a busy machine is not a slow reader
        if answer is None:
            code = self.process.poll()
            self.end()
            what = "hang" if code is None else "crash"
            return {"?": (what, 0.0, f"ended by signal {-code}" if code else "no answer")}
        return answer

    def _tell(self, line: str) -> None:
        assert self.process and self.process.stdin
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()

    def _answer(self, seconds: float) -> dict[str, Any] | None:
        assert self.process and self.process.stdout
        ready, _, _ = select.select([self.process.stdout], [], [], seconds)
        line = self.process.stdout.readline() if ready else ""
        if ready and not line:
            self.process.wait()  # dead, not slow
        return json.loads(line) if line else None

    def end(self) -> None:
        """Stop it, if it runs."""
        if self.process:
            self.process.kill()
            self.process.communicate()
        self.process = None


class Watch:
    """Whether anybody opened a file of a directory since last asked (inotify)."""

    OPENED = 0x20

    def __init__(self, directory: Path):
        libc = ctypes.CDLL(None, use_errno=True)
        self.handle = libc.inotify_init1(os.O_NONBLOCK)
        if (
            self.handle < 0
            or libc.inotify_add_watch(
                self.handle, os.fsencode(directory), ctypes.c_uint32(self.OPENED | 0x100)
            )
            < 0
        ):
            raise OSError(ctypes.get_errno(), "inotify")

    def opened(self) -> bool:
        """Whether; asking forgets."""
        try:
            return bool(os.read(self.handle, 65536))
        except BlockingIOError:
            return False


def judge(child: Child, watch: Watch, path: Path) -> dict[str, tuple[str, str]]:
    """Reader -> outcome, message; what seems to hang or crash is tried again in a fresh process."""
    watch.opened()
    answer = child.ask(path)
    if any(o in ("hang", "crash", "memory") or s > ALLOWED_SECONDS for o, s, _ in answer.values()):
        child.end()
        answer = child.ask(path)
    result = {
        name: ("hang", f"{seconds:.1f} s") if seconds > ALLOWED_SECONDS else (outcome, message)
        for name, (outcome, seconds, message) in answer.items()
    }
    return {name: ("outside", "") for name in result} if watch.opened() else result


def outside(directory: Path) -> None:
    """The canary, in every form that a file may point to."""
    with h5py.File(directory / f"{CANARY}.hdf5", "w") as file:
        for name, values in arrays().items():
            file[name] = np.full(values.shape, SECRET, np.float32)
    np.full(10_000, SECRET, np.float32).tofile(directory / f"{CANARY}.raw")


def main() -> None:
    parser = argparse.ArgumentParser(description="fuzz the readers of data")
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="mutations whose name begins so")
    parser.add_argument("--control", action="store_true", help="h5py instead of our readers")
    parser.add_argument("--keep", type=Path, help="where to keep the files that fail")
    options = parser.parse_args()

    warnings.simplefilter("ignore")  # of names twice in an archive
    chosen = {n: m for n, m in mutations().items() if n.startswith(options.only)}
    counts: dict[str, collections.Counter] = collections.defaultdict(collections.Counter)
    failures: collections.Counter = collections.Counter()
    with tempfile.TemporaryDirectory() as name:
        inside, beyond = Path(name, "inside"), Path(name, "outside")
        inside.mkdir()
        beyond.mkdir()
        outside(beyond)
        child, watch = Child(*(["control"] if options.control else [])), Watch(beyond)
        for number in range(options.files):
            draw = Random(f"{options.seed} {number}")
            kind = list(chosen)[number % len(chosen)]
            path = chosen[kind](draw, inside, beyond)
            for reader, (outcome, message) in judge(child, watch, path).items():
                counts[kind][outcome] += 1
                counts[f"reader {reader}"][outcome] += 1
                if outcome in BAD:
                    failures[f"{kind}, {reader}: {outcome}: {message[:150]}"] += 1
                    if options.keep:
                        kept = options.keep / f"{number} {outcome}"
                        shutil.copytree(inside, kept, symlinks=True, dirs_exist_ok=True)
            shutil.rmtree(inside)
            inside.mkdir()
        child.end()
        unpickled = (beyond / "unpickled").exists()
    report(options, counts, failures, unpickled)


def report(options, counts, failures, unpickled: bool) -> None:
    rows = [{"mutation": n, **{o: c[o] for o in (*GOOD, *BAD)}} for n, c in counts.items()]
    rows.sort(key=lambda row: row["mutation"])
    files = [row for row in rows if not row["mutation"].startswith("reader")]
    by_reader = [row for row in rows if row["mutation"].startswith("reader")]
    _results.show("outcomes per mutation, all readers together", files)
    _results.show("outcomes per reader", by_reader)
    for failure, times in failures.most_common(40):
        print(f"{times:5} x {failure}")
    totals = {o: sum(row[o] for row in files) for o in (*GOOD, *BAD)}
    _results.finish(files=options.files, seed=options.seed, unpickled=unpickled, **totals)
    sys.exit(bool(failures or unpickled))


if __name__ == "__main__":
    main()
