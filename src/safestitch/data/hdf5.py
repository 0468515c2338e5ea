"""Opening HDF5 files that nobody vouches for.

Only plain arrays of numbers that lie in the file itself are read: no links to elsewhere, no
external or virtual storage, no strings, records or references. What a header declares is held
against the size of the file before anything is allocated.
"""

import contextlib
import json
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from safestitch.memory import available_memory
from safestitch.records import DataError

BROKEN = (OSError, RuntimeError, ValueError, TypeError, KeyError, OverflowError, SystemError)
"""What h5py raises for a damaged file."""
DEFLATE_RATIO = 1032
"""No deflate stream expands more than this; the other filters we accept expand less."""
ROOM = 1 << 20
"""Bytes any file may claim: small arrays of zeros compress beyond every ratio."""
COMPRESSORS = {h5py.h5z.FILTER_DEFLATE, h5py.h5z.FILTER_LZF}
FILTERS = {*COMPRESSORS, h5py.h5z.FILTER_SHUFFLE, h5py.h5z.FILTER_FLETCHER32}


@contextlib.contextmanager
def open_file(path: str | Path) -> Iterator[h5py.File]:
    """Open for reading.

    Raises:
        DataError: if there is no such file, or it is not HDF5.
    """
    path = Path(path)
    if not path.is_file():
        raise DataError(f"no file {path}")
    try:
        file = h5py.File(path, "r", locking="best-effort", rdcc_nbytes=2**20)
    except BROKEN as error:
        raise DataError(f"{path} is not a whole HDF5 file: {_reason(error)}") from None
    with file:
        yield file


def find_array(group: h5py.Group, name: str) -> h5py.Dataset:
    """A plain array of numbers of that name, checked but not yet read.

    Raises:
        DataError: if it is missing, elsewhere, not an array of numbers, or larger than the file
            can hold.
    """
    found = _own_object(group, name)
    if not isinstance(found, h5py.Dataset):
        raise _error(group, name, "is a group, expected an array of numbers")
    try:
        _check_kind(group, name, found)
        _check_storage(group, name, found)
    except DataError:
        raise
    except BROKEN as error:
        raise _error(group, name, f"cannot be read: {_reason(error)}") from None
    return found


def find_group(group: h5py.Group, name: str) -> h5py.Group:
    """A group of that name in the same file.

    Raises:
        DataError: if there is none.
    """
    found = _own_object(group, name)
    if not isinstance(found, h5py.Group):
        raise _error(group, name, "is not a group")
    return found


def holds(group: h5py.Group, name: str) -> bool:
    """Whether there is anything of that name."""
    try:
        return bool(group.id.links.exists(name.encode()))
    except BROKEN:
        return False


def names(group: h5py.Group) -> list[str]:
    """What a group holds, sorted; nothing if it is damaged."""
    try:
        return sorted(group)
    except BROKEN:
        return []


def check_memory(path: str | Path, arrays: Iterable[h5py.Dataset]) -> None:
    """Raise unless the arrays fit into memory as single precision, all at once."""
    needed = sum(4 * math.prod(array.shape) for array in arrays)
    there = available_memory()
    if needed > there:
        raise DataError(
            f"{path} holds {needed / 1e9:.1f} GB, {there / 1e9:.1f} GB of memory are free: "
            f"convert it to a memory-mapped set with `safestitch data convert {path} OUT.store`"
        )


def read_floats(array: h5py.Dataset, first: int = 0, last: int | None = None) -> np.ndarray:
    """Rows first .. last - 1 in single precision, straight into their final place."""
    return _read(array, np.dtype(np.float32), first, last)


def read_flags(array: h5py.Dataset, first: int = 0, last: int | None = None) -> np.ndarray:
    """Rows first .. last - 1 as stored: true/false, or numbers that should be 0 or 1."""
    return _read(array, array.dtype, first, last)


def _read(array: h5py.Dataset, dtype: np.dtype, first: int, last: int | None) -> np.ndarray:
    last = len(array) if last is None else last
    try:
        values = np.empty((last - first, *array.shape[1:]), dtype)
        if values.size:
            array.read_direct(values, np.s_[first:last])
    except (*BROKEN, MemoryError) as error:
        raise DataError(
            f"{array.file.filename}: {str(array.name)[1:]} cannot be read: {_reason(error)}"
        ) from None
    return values


def read_json(group: h5py.Group, name: str) -> Any:
    """The JSON text in an attribute; None if there is none or it is not JSON."""
    try:
        text = group.attrs[name]
        return json.loads(text) if isinstance(text, str) else None
    except (*BROKEN, RecursionError):
        return None


# --- checks ------------------------------------------------------------------------------------


def _own_object(group: h5py.Group, name: str) -> Any:
    """What a hard link of that name leads to; a soft or external link may lead anywhere."""
    if not holds(group, name):
        raise _error(group, name, "is missing")
    try:
        if not isinstance(group.get(name, getlink=True), h5py.HardLink):
            raise _error(group, name, "is a link to elsewhere; store the array itself")
        return group[name]
    except DataError:
        raise
    except BROKEN as error:
        raise _error(group, name, f"cannot be read: {_reason(error)}") from None


def _check_kind(group: h5py.Group, name: str, array: h5py.Dataset) -> None:
    dtype = array.dtype
    plain = dtype.names is None and dtype.subdtype is None and dtype.kind in "fiub"
    enum = h5py.check_enum_dtype(dtype) is not None
    if not plain or enum or dtype.itemsize > 8:
        raise _error(group, name, f"holds values of type {dtype}, expected numbers")
    if array.shape is None or array.ndim == 0:
        raise _error(group, name, "is a single value, expected one row a step")


def _check_storage(group: h5py.Group, name: str, array: h5py.Dataset) -> None:
    settings = array.id.get_create_plist()
    layout = settings.get_layout()
    if layout not in (h5py.h5d.COMPACT, h5py.h5d.CONTIGUOUS, h5py.h5d.CHUNKED):
        raise _error(group, name, "is a virtual array, put together from other files")
    if settings.get_external_count():
        raise _error(group, name, "keeps its values in another file")
    filters = [settings.get_filter(i)[0] for i in range(settings.get_nfilters())]
    unknown = [number for number in filters if number not in FILTERS]
    if unknown:
        raise _error(
            group, name, f"is stored with filter {unknown[0]}: rewrite it with gzip, or plain"
        )
    squeezed = [number for number in filters if number in COMPRESSORS]
    if len(squeezed) > 1:
        raise _error(group, name, "is compressed twice")
    stored = min(array.id.get_storage_size(), Path(array.file.filename).stat().st_size)
    declared = math.prod(array.shape) * array.dtype.itemsize
    possible = stored * DEFLATE_RATIO + ROOM if squeezed else stored
    if declared > possible:
        raise _error(
            group,
            name,
            f"declares {declared} bytes (shape {array.shape}), but {stored} are stored: the file "
            "is cut short or its header is wrong",
        )
    _check_chunks(group, name, array)


def _check_chunks(group: h5py.Group, name: str, array: h5py.Dataset) -> None:
    """A chunk larger than its array only wastes memory; one that is missing is lost data."""
    if array.chunks is None:
        return
    if math.prod(array.chunks) * array.dtype.itemsize > 2**28:
        raise _error(group, name, f"has chunks of shape {array.chunks}: too large to read safely")
    sides = zip(array.shape, array.chunks, strict=True)
    expected = math.prod(-(-length // chunk) for length, chunk in sides)
    found = array.id.get_num_chunks()
    if found != expected:
        raise _error(group, name, f"has {found} of {expected} chunks: parts were never written")


def _error(group: h5py.Group, name: str, what: str) -> DataError:
    place = f"{group.name}/{name}".lstrip("/")
    return DataError(f"{group.file.filename}: {place} {what}")


def _reason(error: BaseException) -> str:
    lines = str(error).splitlines()
    return lines[0] if lines else type(error).__name__
