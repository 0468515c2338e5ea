"""CSV and JSON lines, some megabytes of whole lines at a time."""

import collections
import csv
import io
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from safestitch.data import arrow
from safestitch.data.blocks import BLOCK_BYTES, WIDEST, Block, Place, Table, as_numbers
from safestitch.records import DataError

LONGEST_LINE = 64_000_000  # bytes; beyond it a file is not made of lines
MISSING = ("", "NA", "N/A", "n/a", "na", "NULL", "null", "None", "NaN", "nan")
TRUTH = {"true": 1.0, "false": 0.0}
DELIMITERS = (",", ";", "\t", "|")
NEWLINE, QUOTE = b"\n", b'"'
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


# --- whole lines -------------------------------------------------------------------------------


def chunks(path: Path, begin: Place, *, quotes: bool) -> Iterator[tuple[bytes, Place, int]]:
    """Whole lines from `begin` on: the bytes, where they begin, and the offset after them.

    Args:
        path: File to read.
        begin: Where; only `offset` and `line` are used and counted on.
        quotes: Whether a line break between double quotes belongs to its cell.
    """
    offset, line, rest = begin.offset, begin.line, b""
    with open(path, "rb") as handle:
        handle.seek(offset)
        while True:
            fresh = handle.read(BLOCK_BYTES)
            buffer = rest + fresh
            if not buffer:
                return
            cut = _last_line_end(buffer, quotes=quotes) if fresh else len(buffer)
            if not cut and len(buffer) > LONGEST_LINE:
                raise DataError(
                    f"{path.name}, line {line}: over {LONGEST_LINE // 1_000_000} MB without an end"
                    f"{' (a double quote that is never closed?)' if quotes else ''}"
                )
            whole, rest = buffer[:cut], buffer[cut:]
            if whole:
                yield whole, Place(offset, 0, line), offset + cut
                offset, line = offset + cut, line + whole.count(NEWLINE)


def _last_line_end(buffer: bytes, *, quotes: bool) -> int:
    """One past the last line break that ends a row; 0 if there is none."""
    end = buffer.rfind(NEWLINE) + 1
    if not quotes or QUOTE not in buffer:
        return end
    inside = buffer.count(QUOTE, 0, end) % 2
    while end and inside:
        earlier = buffer.rfind(NEWLINE, 0, end - 1) + 1
        inside ^= buffer.count(QUOTE, earlier, end) % 2
        end = earlier
    return end


def _decoded(path: Path, content: bytes, line: int) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        line += content.count(NEWLINE, 0, error.start)
        raise DataError(
            f"{path.name}, line {line}: not UTF-8 text: save the file as UTF-8"
        ) from None


# --- CSV ---------------------------------------------------------------------------------------


def open_csv(path: Path) -> Table:
    """A CSV file with a header line; comma, semicolon, tab or bar between the cells."""
    header, begin = _csv_header(path)
    delimiter = max(DELIMITERS, key=header.count)
    try:
        names = [name.strip() for name in next(csv.reader([header], delimiter=delimiter))]
    except csv.Error:
        raise DataError(
            f"{path.name}, line 1: a carriage return within the line: save the file with line feeds"
        ) from None
    _check_header(path, names)

    def read(wanted: Sequence[str], texts: frozenset[str], place: Place) -> Iterator[Block]:
        row = place.row
        start = place if place.offset else begin
        for content, at, offset in chunks(path, start, quotes=True):
            is_open = content.count(QUOTE) % 2  # the exact reader says where
            parsed = (
                None
                if is_open
                else arrow.parse_csv(content, names, wanted, texts, delimiter, MISSING)
            )
            lines: Sequence[int]
            if parsed is None or _length(parsed) != _lines_of(content):
                parsed, lines = _parse_csv(path, content, at.line, names, wanted, texts, delimiter)
            else:
                lines = range(at.line, at.line + _length(parsed))
            count, line = len(lines), at.line + content.count(NEWLINE)
            if count:
                yield Block(parsed, row, lines, Place(offset, row + count, line))
            row += count

    return Table(path.name, dict.fromkeys(names, 1), path.stat().st_size, read)


def _csv_header(path: Path) -> tuple[str, Place]:
    with open(path, "rb") as handle:
        first = handle.readline(1_000_001)
    if first.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise DataError(f"{path.name} is UTF-16: save the file as UTF-8")
    if len(first) > 1_000_000:
        raise DataError(f"{path.name}: the first line is over 1 MB: expected the column names")
    if not first.strip():
        raise DataError(f"{path.name}: the first line is empty: expected the column names")
    return _decoded(path, first.removeprefix(BYTE_ORDER_MARK), 1), Place(len(first), 0, 2)


def _check_header(path: Path, names: list[str]) -> None:
    if len(names) > WIDEST:
        raise DataError(f"{path.name}: {len(names)} columns, at most {WIDEST}")
    twice = [name for name, count in collections.Counter(names).items() if count > 1]
    if twice:
        raise DataError(f"{path.name}: two columns are named '{twice[0]}': rename one")
    if all(_is_number(name) for name in names):
        raise DataError(f"{path.name}: the first line holds numbers: put the column names there")


def _lines_of(content: bytes) -> int:
    return content.count(NEWLINE) + (not content.endswith(NEWLINE))


def _length(columns: dict[str, np.ndarray]) -> int:
    return len(next(iter(columns.values())))


def _parse_csv(
    path: Path,
    content: bytes,
    line: int,
    names: list[str],
    wanted: Sequence[str],
    texts: frozenset[str],
    delimiter: str,
) -> tuple[dict[str, np.ndarray], list[int]]:
    """The exact reader: slower, forgiving about truth values, and it knows every line."""
    rows, lines = [], []
    reader = csv.reader(
        io.StringIO(_decoded(path, content, line), newline=""), delimiter=delimiter, strict=True
    )
    try:
        for row in reader:
            here = line + reader.line_num - 1
            if row and len(row) != len(names):
                raise DataError(
                    f"{path.name}, line {here}: {len(row)} cells, but the header has {len(names)}"
                )
            if row:
                rows.append(row)
                lines.append(here)
    except csv.Error as error:
        raise DataError(f"{path.name}, line {line + reader.line_num - 1}: {error}") from None
    columns = {}
    for name in wanted:
        index = names.index(name)
        cells = [row[index] for row in rows]
        if name in texts:
            columns[name] = np.array(cells, object)
        else:
            columns[name] = _numbers(f"{path.name}, line", lines, name, cells)
    return columns, lines


def _numbers(what: str, lines: list[int], name: str, cells: list[str]) -> np.ndarray:
    values = np.empty(len(cells))
    for i, cell in enumerate(cells):
        try:
            values[i] = _number(cell.strip())
        except ValueError:
            comma = " (write decimals with a point)" if "," in cell else ""
            raise DataError(
                f"{what} {lines[i]}: column {name}: expected a number, got {cell[:40]!r}{comma}"
            ) from None
    return values


def _number(cell: str) -> float:
    if cell in MISSING:
        return np.nan
    if cell.lower() in TRUTH:
        return TRUTH[cell.lower()]
    if "_" in cell:  # Python reads 1_000, nobody writes it into a log
        raise ValueError
    return float(cell)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


# --- JSON lines --------------------------------------------------------------------------------


def open_jsonl(path: Path) -> Table:
    """One JSON object a line; nested objects become `outer.inner`, lists of numbers wide columns.

    The columns are those of the first lines of the file, about a thousand.
    """
    samples: dict[tuple[str, ...], Any] = {}
    for content, at, _ in chunks(path, Place(), quotes=False):
        for number, line in enumerate(content.split(NEWLINE)[:1000]):
            if line.strip():
                samples = _leaves(_record(path, line, at.line + number)) | samples
        break
    ways = {".".join(way): way for way in samples}
    widths = {
        name: len(samples[way]) if isinstance(samples[way], list) else 1
        for name, way in ways.items()
    }

    def read(wanted: Sequence[str], texts: frozenset[str], place: Place) -> Iterator[Block]:
        row = place.row
        for content, at, offset in chunks(path, place, quotes=False):
            records, lines = [], []
            for number, line in enumerate(content.split(NEWLINE)):
                if line.strip():
                    records.append(_record(path, line, at.line + number))
                    lines.append(at.line + number)
            if records:
                columns = {
                    name: _json_column(
                        path, lines, name, [_leaf(r, ways[name]) for r in records],
                        width=widths[name], is_text=name in texts,
                    )
                    for name in wanted
                }  # fmt: skip
                line = at.line + content.count(NEWLINE)
                yield Block(columns, row, lines, Place(offset, row + len(lines), line))
            row += len(records)

    return Table(path.name, widths, path.stat().st_size, read)


def _record(path: Path, line: bytes, number: int) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path.name}, line {number}: not JSON: {error}") from None
    if not isinstance(record, dict):
        raise DataError(f"{path.name}, line {number}: expected a JSON object, one a line")
    return record


def _leaves(record: dict[str, Any], way: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    found: dict[tuple[str, ...], Any] = {}
    for key, value in record.items():
        found |= _leaves(value, (*way, key)) if isinstance(value, dict) else {(*way, key): value}
    return found


def _leaf(record: dict[str, Any], way: tuple[str, ...]) -> Any:
    value: Any = record.get(way[0])
    for key in way[1:]:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _json_column(
    path: Path, lines: list[int], name: str, values: list[Any], *, width: int, is_text: bool
) -> np.ndarray:
    if is_text:
        return np.array([None if v is None else str(v) for v in values], object)
    try:
        array = np.array(values)
        if array.dtype.kind in "biuf" and array[0].size == width:
            return as_numbers(name, path.name, array)
    except ValueError:  # lists of different lengths: found below
        pass
    return np.array(
        [_json_numbers(path, *at, name, width) for at in zip(lines, values, strict=True)]
    )


def _json_numbers(path: Path, line: int, value: Any, name: str, width: int) -> Any:
    """One cell, exactly: null is NaN."""
    try:
        if isinstance(value, str | dict):
            raise TypeError
        numbers = np.array(value, np.float64)
        if value is None and width > 1:
            return np.full(width, np.nan)
        if numbers.shape not in ((), (width,)) or numbers.size != width:
            raise TypeError
        return numbers.reshape(width) if width > 1 else numbers.reshape(())  # [1] is 1
    except (TypeError, ValueError, OverflowError):
        wanted = f"a list of {width} numbers" if width > 1 else "a number"
        raise DataError(
            f"{path.name}, line {line}: column {name}: expected {wanted}, got {repr(value)[:40]}"
        ) from None
