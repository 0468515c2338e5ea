"""Data in and out: one door for every format.

DSRL's .hdf5 (dsrl.py), memory-mapped NAME.store (store.py), Minari's NAME-v0 (minari.py), and own
logs such as .csv, .jsonl, .parquet and .npz, whose columns are mapped (importing.py).
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from safestitch.episodes import Episodes
from safestitch.records import DataError

__all__ = ["find", "format_of", "load", "load_blocks", "maker", "writer"]

Format = Literal["dsrl", "store", "minari", "log"]
DSRL_SUFFIXES = (".hdf5", ".h5")


def load(source: str | Path, *, mapping: Any = None) -> Episodes:
    """Episodes of a file or directory of any format, or of a public task found on disk.

    Args:
        source: a path, or a name such as CarCircle.
        mapping: which column means what, for own logs; see `safestitch.data.importing`.

    Raises:
        DataError: if there is no such source, or it is malformed.
    """
    path = find(source)
    match format_of(path):
        case "store":
            from safestitch.data import store

            return store.read(path)
        case "minari":
            from safestitch.data import minari

            return minari.read(path)
        case "log":
            from safestitch.data.importing import read_logs

            return read_logs(path, mapping)
        case _:
            from safestitch.data import dsrl

            return dsrl.read(path)


def load_blocks(source: str | Path, *, mapping: Any = None) -> Iterator[Episodes]:
    """The same in pieces, in bounded memory, with all that is stored."""
    path = find(source)
    match format_of(path):
        case "minari":
            from safestitch.data import minari

            return minari.read_blocks(path)
        case "dsrl":
            from safestitch.data import dsrl

            return dsrl.read_blocks(path)
        case _:
            return load(path, mapping=mapping).blocks()


def find(source: str | Path) -> Path:
    """The path of a source: itself, or where the public data of that name lie."""
    path = Path(source)
    if path.exists():
        return path
    if path.suffix or len(path.parts) > 1:
        raise DataError(f"no file {path}")
    from safestitch.data import places

    return places.find(str(source))


def format_of(path: Path) -> Format:
    """What kind of data a path is, or will be, by its name and what is there."""
    from safestitch.data import minari, store
    from safestitch.data.tables import READERS

    suffix = path.suffix.lower()
    if suffix == store.SUFFIX or (path.is_dir() and store.is_store(path)):
        return "store"
    if suffix in DSRL_SUFFIXES:
        return "dsrl"
    if minari.is_minari(path) or re.search(r"-v\d+$", path.name):
        return "minari"
    if suffix in READERS:
        return "log"
    raise DataError(
        f"{path}: unknown format: expected {', '.join(DSRL_SUFFIXES)} (DSRL), {store.SUFFIX} "
        f"(memory-mapped), a directory NAME-v0 (Minari), or a log: {', '.join(READERS)}"
    )


def maker(source: str | Path) -> dict[str, str]:
    """`made_by` and `task` of data of our own making, which edits and conversions hand on."""
    from safestitch.data import dsrl, store

    path = find(source)
    readers = {"dsrl": dsrl.provenance, "store": store.provenance}
    kind = format_of(path)
    known = readers[kind](path) if kind in readers else {}
    if known.get("made_by") != dsrl.OURS:
        return {}
    ours = isinstance(known.get("task"), str) and known.get("env") is None
    return {"made_by": dsrl.OURS} | ({"task": known["task"]} if ours else {})


def writer(path: str | Path, *, exact: bool = True, provenance: dict[str, Any] | None = None):
    """A context manager that writes the format of a path, with a method to append episodes.

    Args:
        path: its name says the format.
        exact: DSRL files hold next_observations, as DSRL itself demands.
        provenance: what to say of the data's origin, as JSON.

    Raises:
        DataError: if nothing is written in that format.
    """
    path = Path(path)
    kind = format_of(path)
    if kind == "dsrl":
        from safestitch.data import dsrl

        return dsrl.Writer(path, exact=exact, provenance=provenance)
    if kind == "log":
        raise DataError(f"{path}: logs are only read: write .hdf5, NAME.store or NAME-v0")
    from safestitch.data import minari, store

    return (store if kind == "store" else minari).Writer(path, provenance=provenance)
