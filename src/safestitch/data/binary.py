"""Arrays: NPZ, HDF5, and frames or dictionaries of arrays that are in memory already."""

import contextlib
import math
import tokenize
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np

from safestitch.data import hdf5
from safestitch.data.blocks import WIDEST, Block, Place, Table, as_numbers, rows_per_block
from safestitch.data.bombs import refuse_bomb
from safestitch.records import DataError

LARGEST_WHOLE = 1_000_000_000  # bytes of an array that can only be read at once
DEFLATE_RATIO = 1032  # no deflate stream is larger than this many times its bytes
DSRL_COLUMNS = ("observations", "actions", "rewards", "costs", "terminals", "timeouts")


# --- NPZ ---------------------------------------------------------------------------------------


class Member(NamedTuple):
    """One array of an NPZ file, not yet read."""

    file: str
    shape: tuple[int, ...]
    dtype: np.dtype
    is_fortran: bool
    start: int
    """Bytes of its header."""


def open_npz(path: Path) -> Table:
    """An NPZ file of arrays with one row a step; read in blocks, so no bomb can go off.

    Raises:
        DataError: if it is damaged, holds pickled objects, or declares sizes it does not have.
    """
    with _told(path), zipfile.ZipFile(path) as archive:
        members = [_member(path, archive, info) for info in archive.infolist()]
    named = {m.file.removesuffix(".npy"): m for m in members if m is not None and m.shape}
    rows = max((m.shape[0] for m in named.values()), default=0)
    named = {name: m for name, m in named.items() if m.shape[0] == rows}  # the rest are notes
    for name, m in named.items():
        if len(m.shape) > 2:
            raise DataError(
                f"{path.name}: {name} has shape {m.shape}: give one row a step, (steps, dimensions)"
                ", and an array `episode` with the number of each step's episode"
            )
    columns = {name: m.shape[1] if len(m.shape) == 2 else 1 for name, m in named.items()}
    refuse_bomb(path, rows * sum(columns.values()))

    def read(wanted: Sequence[str], texts: frozenset[str], place: Place) -> Iterator[Block]:
        size = rows_per_block(columns, wanted)
        with _told(path), contextlib.ExitStack() as stack:
            archive = stack.enter_context(zipfile.ZipFile(path))
            streams = {n: stack.enter_context(_Rows(archive, named[n], place.row)) for n in wanted}
            for first in range(place.row, rows, size):
                count = min(size, rows - first)
                part = {n: _npz_column(path, n, streams[n].next(count), texts) for n in wanted}
                yield Block(part, first, None, Place(first + count, first + count))

    return Table(path.name, columns, rows, read)


def _member(path: Path, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Member | None:
    """The header of an array, its declared size checked against its bytes in the file."""
    name = info.filename
    if not name.endswith(".npy"):
        return None
    if info.file_size > DEFLATE_RATIO * info.compress_size + 1000:
        raise DataError(
            f"{path.name}: {name} declares more bytes than its compressed ones can hold"
        )
    with archive.open(info) as handle:
        version = np.lib.format.read_magic(handle)
        if version == (1, 0):
            shape, is_fortran, dtype = np.lib.format.read_array_header_1_0(handle)
        elif version == (2, 0):
            shape, is_fortran, dtype = np.lib.format.read_array_header_2_0(handle)
        else:
            raise DataError(f"{path.name}: {name}: unknown version {version} of the array format")
        start = handle.tell()
    if dtype.kind not in "biufUS":
        what = "pickled objects, which are never loaded" if dtype.hasobject else f"type {dtype}"
        raise DataError(f"{path.name}: {name} holds {what}: save it as plain numbers")
    width = shape[1] if len(shape) > 1 else 1
    if not 1 <= width <= WIDEST or dtype.itemsize > WIDEST:
        raise DataError(f"{path.name}: {name}: {width} numbers in a row, expected 1 to {WIDEST}")
    values = 1
    for side in shape:
        values *= side
    if start + values * dtype.itemsize != info.file_size or values < 0:
        raise DataError(f"{path.name}: {name} declares shape {shape}, which is not what it holds")
    if is_fortran and len(shape) > 1 and info.file_size > LARGEST_WHOLE:
        raise DataError(
            f"{path.name}: {name} is stored by columns (Fortran order) and too large to turn: save "
            "np.ascontiguousarray of it"
        )
    return Member(name, shape, dtype, is_fortran and len(shape) > 1, start)


class _Rows:
    """Rows of one array, in order."""

    def __init__(self, archive: zipfile.ZipFile, member: Member, row: int):
        self.member, self.row = member, row
        self.shape = member.shape[1:]
        self.row_bytes = member.dtype.itemsize * (self.shape[0] if self.shape else 1)
        self.handle = archive.open(member.file)
        self.whole: np.ndarray | None = None

    def __enter__(self) -> "_Rows":
        if self.member.is_fortran:
            self.handle.read(self.member.start)
            count = self.member.shape[0] * self.shape[0]
            flat = np.frombuffer(self.handle.read(), self.member.dtype, count)
            self.whole = flat.reshape(self.member.shape, order="F")
        else:
            self.handle.seek(self.member.start + self.row * self.row_bytes)
        return self

    def __exit__(self, *_: Any) -> None:
        self.handle.close()

    def next(self, count: int) -> np.ndarray:
        self.row += count
        if self.whole is not None:
            return self.whole[self.row - count : self.row]
        content = self.handle.read(count * self.row_bytes)
        if len(content) != count * self.row_bytes:
            raise EOFError("the array ends early")
        return np.frombuffer(content, self.member.dtype).reshape(count, *self.shape)


def _npz_column(path: Path, name: str, values: np.ndarray, texts: frozenset[str]) -> np.ndarray:
    if name in texts:
        return _as_text(values)
    return as_numbers(name, path.name, values)


@contextlib.contextmanager
def _told(path: Path) -> Iterator[None]:
    """Turn the errors of a damaged archive into ours."""
    try:
        yield
    except DataError:
        raise
    except (
        zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, NotImplementedError,
        RuntimeError, SyntaxError, KeyError, tokenize.TokenError,
    ) as error:  # fmt: skip
        raise DataError(f"{path.name} is damaged or not an NPZ file: {error}") from None


# --- HDF5 of the DSRL layout -------------------------------------------------------------------


@contextlib.contextmanager
def _hdf5(path: Path) -> Iterator[dict[str, h5py.Dataset]]:
    """The arrays of a file, those of one row a step."""
    with hdf5.open_file(path) as file:
        arrays = {name: hdf5.find_array(file, name) for name in DSRL_COLUMNS}
        for name, array in arrays.items():
            if array.ndim > 2 or not 1 <= math.prod(array.shape[1:]) <= WIDEST:
                raise DataError(
                    f"{path}: {name} has shape {array.shape}, expected one row a step, of at most "
                    f"{WIDEST} numbers"
                )
        refuse_bomb(path, sum(math.prod(array.shape) for array in arrays.values()))
        yield arrays


def open_hdf5(path: Path) -> Table:
    """A file of the DSRL layout: `observations`, `actions`, `rewards`, `costs`, ends."""
    with _hdf5(path) as arrays:
        rows = {name: arrays[name].shape[0] for name in DSRL_COLUMNS}
        if len(set(rows.values())) > 1:
            raise DataError(f"{path.name}: arrays of different lengths: {rows}")
        columns = {n: arrays[n].shape[1] if arrays[n].ndim == 2 else 1 for n in DSRL_COLUMNS}

    def read(wanted: Sequence[str], _: frozenset[str], place: Place) -> Iterator[Block]:
        size = rows_per_block(columns, wanted)
        with _hdf5(path) as arrays:
            for first in range(place.row, rows["rewards"], size):
                last = min(first + size, rows["rewards"])
                part = {
                    n: as_numbers(n, path.name, hdf5.read_flags(arrays[n], first, last))
                    for n in wanted
                }
                yield Block(part, first, None, Place(last, last))

    return Table(path.name, columns, rows["rewards"], read)


# --- in memory ---------------------------------------------------------------------------------


def open_frame(frame: Any) -> Table:
    """A pandas or polars frame, or a dictionary of arrays."""
    names = [str(name) for name in (frame if isinstance(frame, dict) else frame.columns)]
    arrays = {
        str(n): _array(frame[n]) for n in (frame if isinstance(frame, dict) else frame.columns)
    }
    lengths = {name: len(arrays[name]) if arrays[name].ndim else 0 for name in names}
    if len(set(lengths.values())) > 1:
        raise DataError(f"columns of different lengths: {lengths}")
    columns = {name: _frame_width(arrays[name]) for name in names}
    rows = max(lengths.values(), default=0)

    def read(wanted: Sequence[str], texts: frozenset[str], place: Place) -> Iterator[Block]:
        size = rows_per_block(columns, wanted)
        for first in range(place.row, rows, size):
            last = min(first + size, rows)
            part = {
                n: _as_text(arrays[n][first:last])
                if n in texts
                else as_numbers(n, f"rows {first} to {last - 1}", arrays[n][first:last])
                for n in wanted
            }
            yield Block(part, first, None, Place(last, last))

    return Table("the frame", columns, rows, read)


def _array(column: Any) -> np.ndarray:
    return np.asarray(column.to_numpy() if hasattr(column, "to_numpy") else column)


def _frame_width(array: np.ndarray) -> int:
    if array.ndim == 2:
        return array.shape[1]
    is_list = (
        array.dtype == object and len(array) and isinstance(array[0], list | tuple | np.ndarray)
    )
    return len(array[0]) if is_list else 1


def _as_text(values: np.ndarray) -> np.ndarray:
    return np.array([None if v is None or v != v else str(v) for v in values.tolist()], object)
