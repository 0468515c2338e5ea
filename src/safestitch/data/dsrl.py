"""DSRL's HDF5 files, read and written.

Seven flat arrays, trajectories one after the other: observations, next_observations, actions,
rewards, costs, terminals, timeouts. An episode ends where terminals or timeouts is set. What DSRL
reads we read, and the other way round; next_observations may be missing here. Of them only those
at the ends of episodes are kept: within an episode, what is seen next is the next row.
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
from safestitch.episodes import COLUMNS, Episodes, all_finite
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
FINAL = "final_observations"
"""Instead of next_observations in a compact file: what was seen after each episode."""
PROVENANCE = "safestitch"
"""Attribute of the file that says, as JSON, where the data come from."""
OURS = "safestitch"
"""What the provenance of data of our own making names as `made_by`."""
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
            in DSRL's own files this means reading next_observations, half of the file.

    Raises:
        DataError: names the file and the key that cannot be used.
    """
    [whole] = _walk(path, None, unfinished, final_observations)
    return whole


def read_blocks(
    path: str | Path, *, rows: int = 2**18, unfinished: Unfinished = "drop"
) -> Iterator[Episodes]:
    """Read a file of any size as sets of whole episodes, about `rows` steps each.

    Raises:
        DataError: as `read`.
    """
    return _walk(path, rows, unfinished, True)


def _walk(path, rows: int | None, unfinished: Unfinished, final: bool) -> Iterator[Episodes]:
    with hdf5.open_file(path) as file:
        arrays = _arrays(file)
        if rows is None:
            hdf5.check_memory(path, arrays.values())
        terminated, truncated, total = _ends(path, arrays, unfinished)
        offsets = np.concatenate([[0], np.flatnonzero(terminated | truncated) + 1])
        first = 0
        while first < len(offsets) - 1:
            reach = np.searchsorted(offsets, offsets[first] + (rows or total), "right") - 1
            last = max(int(reach), first + 1)
            begin, end = (int(offsets[i]) for i in (first, last))
            columns = _columns(arrays, begin, end)
            columns |= {"terminated": terminated[begin:end], "truncated": truncated[begin:end]}
            columns["offsets"] = offsets[first : last + 1] - begin
            if final:
                columns[FINAL] = _final(file, arrays["observations"], offsets, first, last)
            try:
                yield Episodes(**columns)
            except DataError as error:
                raise DataError(f"{path}: {error}") from None
            first = last


def returns(path: str | Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Reward, cost and steps of each episode; nothing else of the file is read.

    Raises:
        DataError: as `read`.
    """
    with hdf5.open_file(path) as file:
        arrays = _arrays(file)
        terminated, truncated, rows = _ends(path, arrays, "drop")
        offsets = np.concatenate([[0], np.flatnonzero(terminated | truncated) + 1])
        sums = []
        for name in ("rewards", "costs"):
            values = hdf5.read_floats(arrays[name], 0, rows).reshape(-1)
            if not all_finite(values):
                raise DataError(f"{path}: {name} holds a number that is not finite")
            sums.append(np.add.reduceat(values.astype(np.float64), offsets[:-1]))
    return *sums, np.diff(offsets)


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
    if values.dtype == bool:
        return values
    wrong = np.flatnonzero((values != 0) & (values != 1))
    if len(wrong):
        row = int(wrong[0])
        raise DataError(
            f"{path}: {KEYS[name]}: row {row}: expected true/false or 0/1, got {values[row]:g}"
        )
    return values.astype(bool)


def _columns(arrays, first: int, last: int) -> dict[str, Any]:
    columns = {name: hdf5.read_floats(arrays[name], first, last) for name in COLUMNS[:4]}
    return columns | {name: columns[name].reshape(-1) for name in ("rewards", "costs")}


def _final(file, observations: h5py.Dataset, offsets, first: int, last: int) -> np.ndarray | None:
    """What was seen after episodes first .. last - 1, where it is stored."""
    rows = offsets[first + 1 : last + 1] - 1
    exact = hdf5.holds(file, NEXT)
    if not exact and not hdf5.holds(file, FINAL):
        return None
    array = hdf5.find_array(file, NEXT if exact else FINAL)
    expected = observations.shape if exact else (len(offsets) - 1, observations.shape[1])
    if array.shape != expected:
        raise DataError(
            f"{file.filename}: {str(array.name)[1:]} has shape {array.shape}, expected {expected}"
        )
    if not exact:
        return hdf5.read_floats(array, first, last)
    parts = []
    for piece in np.array_split(rows, max(1, len(rows) // 256)):
        seen = hdf5.read_floats(array, int(piece[0]), int(piece[-1]) + 1)
        parts.append(seen[piece - piece[0]])
    return np.concatenate(parts)


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
        exact: write next_observations, as DSRL's reader demands. A compact file is half the size
            and as complete: it holds what was seen after each episode, and the rest follows.
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
        self.final = True

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
        self.final &= episodes.final_observations is not None
        if self.exact:
            values[NEXT] = episodes.next_observations()
        elif self.final:
            values[FINAL] = episodes.final_observations
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
        before = len(array)
        array.resize(before + len(column), axis=0)
        array[before:] = column

    def __exit__(self, kind: Any, *_: Any) -> None:
        try:
            if not self.final and FINAL in self.file:  # not of every episode
                del self.file[FINAL]
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
