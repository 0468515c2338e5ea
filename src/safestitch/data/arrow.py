"""What pyarrow does for us where it is installed: Parquet, and CSV fast. Imported here alone."""

import io
import types
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from safestitch.data.blocks import WIDEST, Block, Place, Table, as_numbers, rows_per_block
from safestitch.data.bombs import refuse_bomb
from safestitch.records import DataError

LARGEST_GROUP = 4_000_000_000  # bytes of one row group, once unpacked


def _pyarrow() -> types.ModuleType | None:
    try:
        import pyarrow as pa  # noqa: PLC0415 (an extra)
        import pyarrow.csv  # noqa: PLC0415
        import pyarrow.parquet  # noqa: PLC0415
    except ImportError:
        return None
    return pa


def parse_csv(
    content: bytes,
    names: list[str],
    wanted: Sequence[str],
    texts: frozenset[str],
    delimiter: str,
    missing: Sequence[str],
) -> dict[str, np.ndarray] | None:
    """Lines of CSV without their header; None where only the exact reader can say what is wrong."""
    pa: Any = _pyarrow()
    if pa is None:
        return None
    try:
        table = pa.csv.read_csv(
            io.BytesIO(content),
            read_options=pa.csv.ReadOptions(
                column_names=names, use_threads=False, block_size=len(content) + 1
            ),
            parse_options=pa.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
            convert_options=pa.csv.ConvertOptions(
                include_columns=list(wanted),
                column_types={name: pa.string() for name in texts if name in wanted},
                null_values=list(missing),
                true_values=["true", "True", "TRUE"],
                false_values=["false", "False", "FALSE"],
            ),
        )
        return {
            name: table[name].to_numpy(zero_copy_only=False)
            if name in texts
            else table[name].cast(pa.float64()).to_numpy(zero_copy_only=False)
            for name in wanted
        }
    except pa.ArrowException:
        return None


def open_parquet(path: Path) -> Table:
    """A Parquet file; columns of lists of one length are wide columns.

    Raises:
        DataError: if pyarrow is missing or the file is damaged.
    """
    pa: Any = _pyarrow()
    if pa is None:
        raise DataError("Parquet needs pyarrow: pip install 'safestitch[logs]'")
    with _told(pa, path):
        file = pa.parquet.ParquetFile(path, buffer_size=1 << 20, pre_buffer=False)
        rows = file.metadata.num_rows
        _check_groups(path, file.metadata)
        columns = {field.name: _width(path, file, field) for field in file.schema_arrow}
        refuse_bomb(path, rows * sum(columns.values()))

    def read(wanted: Sequence[str], texts: frozenset[str], place: Place) -> Iterator[Block]:
        skip, row = place.row, 0
        size = rows_per_block(columns, wanted)
        with _told(pa, path):
            opened = pa.parquet.ParquetFile(path, buffer_size=1 << 20, pre_buffer=False)
            for batch in opened.iter_batches(size, columns=list(wanted), use_threads=False):
                first = max(row, skip)
                row += batch.num_rows
                if row <= skip:
                    continue
                part = batch.slice(first - (row - batch.num_rows))
                yield Block(
                    {n: _column(pa, path, n, part, columns[n], is_text=n in texts) for n in wanted},
                    first,
                    None,
                    Place(row, row),
                )

    return Table(path.name, columns, rows, read)


class _told:
    """Turn pyarrow's errors into ours."""

    def __init__(self, pa: Any, path: Path):
        self.pa, self.path = pa, path

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is not None and issubclass(kind, self.pa.ArrowException | OSError | UnicodeError):
            raise DataError(f"{self.path.name} is damaged or not Parquet: {error}") from None


def _check_groups(path: Path, metadata: Any) -> None:
    """Sizes in the footer, before anything is allocated for them.

    Those of single columns would say more, but asking a damaged footer for them ends the process.
    """
    if metadata.num_columns > WIDEST:
        raise DataError(f"{path.name}: {metadata.num_columns} columns, at most {WIDEST}")
    for group in range(metadata.num_row_groups):
        size = metadata.row_group(group).total_byte_size
        if size > LARGEST_GROUP:
            raise DataError(
                f"{path.name}: row group {group} takes {size / 1e9:.1f} GB: write the file again "
                "with smaller row groups"
            )


def _width(path: Path, file: Any, field: Any) -> int:
    """Numbers in each row of a column; of a list, as many as its first row holds."""
    size = getattr(field.type, "list_size", None)
    if size is None and hasattr(field.type, "value_field"):
        first = next(file.iter_batches(1, columns=[field.name], use_threads=False), None)
        value = first.column(0)[0].as_py() if first is not None and first.num_rows else None
        size = len(value) if isinstance(value, list) else 1
    if size is not None and size > WIDEST:
        raise DataError(f"{path.name}: column {field.name}: lists of {size}, at most {WIDEST}")
    return size or 1


def _column(pa: Any, path: Path, name: str, batch: Any, width: int, *, is_text: bool) -> np.ndarray:
    column = batch.column(batch.schema.get_field_index(name))
    if is_text:
        return column.cast(pa.string()).to_numpy(zero_copy_only=False)
    where = path.name
    if hasattr(column.type, "value_field"):
        flat = column.flatten().cast(pa.float64()).to_numpy(zero_copy_only=False)
        lengths = column.value_lengths().to_numpy(zero_copy_only=False)
        if (lengths != width).any() or len(flat) != width * len(column):
            raise DataError(f"{where}: column {name}: expected lists of {width} numbers everywhere")
        return flat.reshape(len(column), width)
    kinds = ("integer", "floating", "boolean", "decimal", "null")
    if not any(getattr(pa.types, f"is_{kind}")(column.type) for kind in kinds):
        raise DataError(f"{where}: column {name}: expected numbers, got {column.type}")
    return as_numbers(name, where, column.cast(pa.float64()).to_numpy(zero_copy_only=False))
