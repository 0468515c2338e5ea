"""A table as its readers give it: named columns, some rows at a time."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from safestitch.records import DataError

BLOCK_BYTES = 8_000_000
"""Text read at a time; what a block costs in memory is a small multiple of it."""
BLOCK_VALUES = 1_000_000
"""Numbers read at a time from formats that know their rows."""
WIDEST = 100_000
"""Most numbers in a row: more is a damaged or hostile file, not a log."""


class Place(NamedTuple):
    """Where in a table: enough to go on reading from there."""

    offset: int = 0
    """Bytes into a text file; elsewhere rows."""
    row: int = 0
    line: int = 1
    """Line of a text file, from 1."""


@dataclasses.dataclass(frozen=True, eq=False)
class Block:
    """Some rows of the columns asked for."""

    columns: dict[str, np.ndarray]
    """Numbers as float64, NaN where a cell is empty, (rows,) or (rows, width); text as objects."""
    first: int
    """Number of the first row, from 0."""
    lines: Sequence[int] | None
    """The line of each row in a text file; None where a file has no lines."""
    after: Place
    """Where the next block begins."""

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def where(self, row: int) -> str:
        """What a person looks for to find a row of this block: `line 17` or `row 15`."""
        return f"line {self.lines[row]}" if self.lines is not None else f"row {self.first + row}"


@dataclasses.dataclass(frozen=True, eq=False)
class Table:
    """A log, not yet read."""

    name: str
    """Of the file, for messages."""
    columns: dict[str, int]
    """Name -> how many numbers it holds in each row."""
    size: int
    """Bytes or rows: what `Place.offset` counts."""
    read: Callable[[Sequence[str], frozenset[str], Place], Iterator[Block]]
    """Columns, those of them that may be text, where to begin -> blocks."""


def rows_per_block(columns: dict[str, int], names: Sequence[str]) -> int:
    """Rows that hold about `BLOCK_VALUES` numbers."""
    return max(1, BLOCK_VALUES // max(1, sum(columns[name] for name in names)))


def as_numbers(name: str, where: str, values: Any) -> np.ndarray:
    """Any array of numbers or truth values as float64 of one or two dimensions.

    Raises:
        DataError: if it holds something else.
    """
    array = np.asarray(values)
    if array.dtype == object:
        array = _from_objects(name, where, array)
    if array.dtype.kind not in "biuf" or array.ndim not in (1, 2):
        raise DataError(
            f"{where}: column {name}: expected numbers, one row a step, got values of type "
            f"{array.dtype} and shape {array.shape}"
        )
    return array.astype(np.float64, copy=False)


def _from_objects(name: str, where: str, array: np.ndarray) -> np.ndarray:
    """Objects are numbers with holes, or lists of one length."""
    try:
        if array.size and isinstance(array.flat[0], list | tuple | np.ndarray):
            return np.array([np.asarray(each, np.float64) for each in array])
        return array.astype(np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise DataError(f"{where}: column {name}: expected numbers: {error}") from None
