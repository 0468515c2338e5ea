"""The child of `fuzz_data.py`: reads what it is told, in little memory, and says how it went."""

import dataclasses
import json
import resource
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import pyarrow.parquet  # noqa: F401 (part of what a reader needs to start)

from safestitch.data import load, store
from safestitch.data.check import check
from safestitch.data.importing import read_logs
from safestitch.episodes import Episodes
from safestitch.records import SafestitchError

SECRET = float(sys.argv[2])


def load_all(path: str) -> Episodes:
    """What `load` gives; a memory-mapped set opens unread, so what it holds is verified too."""
    found = load(path)
    if store.is_store(path):
        store.verify(path)
    return found


READERS: dict[str, Callable[[str], Any]] = {"load": load_all, "check": check, "import": read_logs}
"""Everything that opens a file of unknown origin."""


def read_plainly(path: str) -> list[Any]:
    """The control: how a script reads HDF5."""
    with h5py.File(path) as file:
        arrays: list[Any] = [file[name] for name in file]
        return [array[()] for array in arrays]


if len(sys.argv) > 3:
    READERS = {"h5py": read_plainly}


def attempt(reader: Callable[[str], Any], path: str) -> tuple[str, str]:
    """Outcome and message."""
    try:
        found = reader(path)
        if isinstance(found, Episodes):
            fields = {f.name: getattr(found, f.name) for f in dataclasses.fields(Episodes)}
            Episodes(**fields)  # checks everything
            if any((fields[n] == SECRET).any() for n in ("observations", "rewards", "costs")):
                return "outside", "values of the canary"
        return "loaded", str(found)[:100]
    except SafestitchError as error:
        return ("clear error", str(error)) if str(error).strip() else ("other error", "no words")
    except MemoryError as error:
        return "memory", repr(error)
    except BaseException as error:
        return "other error", f"{type(error).__name__}: {error}"


def main() -> None:
    warnings.simplefilter("ignore")
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + int(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    for line in sys.stdin:
        answer = {}
        for name, reader in READERS.items():
            began = time.process_time()
            outcome, message = attempt(reader, line.strip())
            answer[name] = (outcome, time.process_time() - began, message)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
