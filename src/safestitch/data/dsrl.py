"""DSRL's HDF5 files, read and written.

Seven flat arrays, trajectories one after the other: observations, next_observations, actions,
rewards, costs, terminals, timeouts. An episode ends where terminals or timeouts is set. What DSRL
reads we read, and the other way round; next_observations may be missing here.
"""

import contextlib
import json
import math
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import h5py
import numpy as np

from safestitch.data import hdf5
from safestitch.data.bombs import refuse_bomb
from safestitch.episodes import COLUMNS, Episodes
from safestitch.files import write_error
from safestitch.records import DataError, DataNote

KEYS = {
    "observations": "observations",
    "actions": "actions",
    "rewards": "rewards",
    "costs": "costs",
    "terminated": "terminals",
    "truncated": "timeouts",
}
"""Our column -> DSRL's key."""
NEXT = "next_observations"
PROVENANCE = "safestitch"
"""Attribute of the file that says, as JSON, where the data come from."""
CHUNK = 2**18
"""Bytes of one compressed piece of an array."""
Unfinished = Literal["drop", "keep"]


def read(
    path: str | Path, *, unfinished: Unfinished = "drop", final_observations: bool = False
) -> Episodes:
    """Read a whole file.

    Args:
        path: the file.
        unfinished: rows after the last end: "drop" them as DSRL does, with a note, or "keep" them
            as an episode that was truncated.
        final_observations: read what was seen after each episode's last step, if it is stored;
            this reads next_observations, half of most files.

    Raises:
        DataError: names the file and the key that cannot be used.
    """
    with hdf5.open_file(path) as file:
        arrays = _arrays(file)
        hdf5.check_memory(path, arrays.values())
        terminated, truncated, rows = _ends(path, arrays, unfinished)
        columns = _columns(arrays, 0, rows)
        final = None
        if final_observations and hdf5.holds(file, NEXT):
            ends = np.flatnonzero(terminated | truncated)
            final = _final(file, arrays["observations"], ends)
    return _episodes(path, columns, terminated, truncated, final)


def read_blocks(
    path: str | Path, *, rows: int = 2**18, unfinished: Unfinished = "drop"
) -> Iterator[Episodes]:
    """Read a file of any size as sets of whole episodes, about `rows` steps each.

    Raises:
        DataError: as `read`.
    """
    with hdf5.open_file(path) as file:
        arrays = _arrays(file)
        terminated, truncated, _ = _ends(path, arrays, unfinished)
        stops = np.flatnonzero(terminated | truncated) + 1
        first = 0
        while first < stops[-1]:
            index = max(np.searchsorted(stops, first + rows, "right") - 1, 0)
            last = int(max(stops[index], stops[np.searchsorted(stops, first, "right")]))
            flags = terminated[first:last], truncated[first:last]
            final = None
            if hdf5.holds(file, NEXT):
                ends = np.flatnonzero(flags[0] | flags[1])
                final = _final(file, arrays["observations"], ends, first)
            yield _episodes(path, _columns(arrays, first, last), *flags, final)
            first = last


def provenance(path: str | Path) -> dict[str, Any]:
    """What the file says of its origin; empty if it says nothing."""
    with hdf5.open_file(path) as file:
        found = hdf5.read_json(file, PROVENANCE)
    return found if isinstance(found, dict) else {}


def _arrays(file: h5py.File) -> dict[str, h5py.Dataset]:
    """Our column -> its array; every one of the same number of rows, at most two-dimensional."""
    arrays = {column: hdf5.find_array(file, key) for column, key in KEYS.items()}
    refuse_bomb(file.filename, sum(math.prod(array.shape) for array in arrays.values()))
    rows = len(arrays["observations"])
    for column, array in arrays.items():
        wide = column in ("observations", "actions")
        expected = array.ndim == 2 if wide else array.shape in ((rows,), (rows, 1))
        if not expected or len(array) != rows:
            shape = f"({rows}, dimensions)" if wide else f"({rows},)"
            raise DataError(
                f"{file.filename}: {KEYS[column]} has shape {array.shape}, expected {shape}: one "
                "row a step"
            )
    return arrays


def _ends(path, arrays, unfinished: Unfinished) -> tuple[np.ndarray, np.ndarray, int]:
    """Flags of the rows to read, and their number."""
    terminated, truncated = (_flag(path, arrays, name) for name in ("terminated", "truncated"))
    ends = np.flatnonzero(terminated | truncated)
    total = len(truncated)
    rows = int(ends[-1]) + 1 if len(ends) else 0
    if unfinished == "keep" and rows < total:
        truncated[-1] = True
        rows = total
    if rows == total:
        return terminated, truncated, rows
    if not rows:
        raise DataError(
            f"{path}: no episode of the {total} rows ends: terminals and timeouts are never set. "
            "Read it with unfinished='keep' if it is one episode"
        )
    warnings.warn(
        f"{path}: dropped the last {total - rows} rows, an episode without an end",
        DataNote,
        stacklevel=3,
    )
    return terminated[:rows], truncated[:rows], rows


def _flag(path, arrays, name: str) -> np.ndarray:
    values = hdf5.read_flags(arrays[name]).reshape(-1)
    wrong = np.flatnonzero((values != 0) & (values != 1))
    if len(wrong):
        row = int(wrong[0])
        raise DataError(
            f"{path}: {KEYS[name]}: row {row}: expected true/false or 0/1, got {values[row]:g}"
        )
    return values.astype(bool, copy=False)


def _columns(arrays, first: int, last: int) -> list[np.ndarray]:
    columns = [hdf5.read_floats(arrays[name], first, last) for name in COLUMNS[:4]]
    return [*columns[:2], *(column.reshape(-1) for column in columns[2:])]


def _final(file, observations: h5py.Dataset, ends: np.ndarray, first: int = 0) -> np.ndarray:
    """next_observations at the ends, read in pieces; rows are counted from `first`."""
    array = hdf5.find_array(file, NEXT)
    if array.shape != observations.shape:
        raise DataError(
            f"{file.filename}: {NEXT} has shape {array.shape}, observations {observations.shape}"
        )
    pieces = np.array_split(ends, max(1, len(ends) // 256))
    parts = []
    for piece in pieces:
        low, high = first + int(piece[0]), first + int(piece[-1]) + 1
        parts.append(hdf5.read_floats(array, low, high)[piece - piece[0]])
    return np.concatenate(parts)


def _episodes(path, columns, terminated, truncated, final) -> Episodes:
    ends = np.flatnonzero(terminated | truncated) + 1
    offsets = np.concatenate([[0], ends]).astype(np.int64)
    try:
        return Episodes(
            **dict(zip(COLUMNS, [*columns, terminated, truncated], strict=True)),
            offsets=offsets,
            final_observations=final,
        )
    except DataError as error:
        raise DataError(f"{path}: {error}") from None


# --- writing -----------------------------------------------------------------------------------


def write(path: str | Path, episodes: Episodes, **options: Any) -> None:
    """Write a whole file; options as of `Writer`."""
    with Writer(path, **options) as writer:
        for block in episodes.blocks():
            writer.append(block)


class Writer:
    """Appends episodes to a file that appears, whole, when the `with` block ends well.

    Args:
        path: the file; replaced if it exists.
        exact: write next_observations too, as DSRL's reader demands; half the size without.
        provenance: what to say of the data's origin, as JSON.
    """

    def __init__(
        self, path: str | Path, *, exact: bool = True, provenance: dict[str, Any] | None = None
    ):
        self.path = Path(path)
        self.exact = exact
        self.provenance = provenance
        self.temporary = self.path.with_name(f".{self.path.name}.{os.getpid()}.tmp")
        self.rows = 0

    def __enter__(self) -> "Writer":
        try:
            self.file = h5py.File(self.temporary, "w", rdcc_nbytes=2**25)
        except OSError as error:
            raise write_error(self.path, error) from None
        if self.provenance is not None:
            self.file.attrs[PROVENANCE] = json.dumps(self.provenance, allow_nan=False)
        return self

    def append(self, episodes: Episodes) -> None:
        """Add whole episodes.

        Raises:
            SafestitchError: if the disk is full.
        """
        values = {key: getattr(episodes, column) for column, key in KEYS.items()}
        if self.exact:
            values[NEXT] = episodes.next_observations()
        try:
            for key, column in values.items():
                self._add(key, column)
            self.file.flush()
        except (OSError, RuntimeError) as error:
            raise write_error(self.path, error) from None
        self.rows += episodes.steps

    def _add(self, key: str, column: np.ndarray) -> None:
        if key not in self.file:
            shape = column.shape[1:]
            rows = max(1, CHUNK // max(1, column[:1].nbytes))
            self.file.create_dataset(
                key, (0, *shape), column.dtype, maxshape=(None, *shape), chunks=(rows, *shape),
                compression="gzip", shuffle=False,
            )  # fmt: skip
        array: Any = self.file[key]
        if array.shape[1:] != column.shape[1:]:
            raise DataError(
                f"{self.path}: {key} has {column.shape[1:]} dimensions, those before "
                f"{array.shape[1:]}"
            )
        array.resize(self.rows + len(column), axis=0)
        array[self.rows :] = column

    def __exit__(self, kind: Any, *_: Any) -> None:
        try:
            self.file.close()
            if kind is None:
                if not self.rows:
                    raise DataError(f"nothing to write to {self.path}: no episodes were given")
                with open(self.temporary, "rb") as handle:
                    os.fsync(handle.fileno())
                os.replace(self.temporary, self.path)
        except (OSError, RuntimeError) as error:
            if kind is None:
                raise write_error(self.path, error) from None
        finally:
            with contextlib.suppress(OSError):
                self.temporary.unlink(missing_ok=True)
