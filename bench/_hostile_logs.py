"""NPZ, CSV, JSON lines and Parquet that are well-formed and hostile."""

import functools
import io
import json
import struct
import zipfile
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from _wholes import CANARY, ROWS, csv, jsonl, log_columns, npz


def npz_members(draw: Random, directory: Path, outside: Path) -> Path:
    """Arrays whose headers lie, objects, names that lead elsewhere, members twice."""
    path = directory / "file.npz"
    with zipfile.ZipFile(
        path, "w", draw.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))
    ) as zipped:
        for name, values in log_columns().items():
            zipped.writestr(f"{name}.npy", npy(values))
        what = draw.choice(("reward", "obs.0", "extra"))
        zipped.writestr(f"{what}.npy", hostile_npy(draw, outside))
        if draw.random() < 0.3:
            zipped.writestr(f"../../outside/{CANARY}.npy", npy(np.zeros(ROWS)))
    return path


def npy(values: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, values, allow_pickle=True)
    return buffer.getvalue()


def npy_header(text: str, version: int = 1) -> bytes:
    size = struct.pack("<H" if version == 1 else "<I", len(text))
    return b"\x93NUMPY" + bytes([version, 0]) + size + text.encode("latin1")


def hostile_npy(draw: Random, outside: Path) -> bytes:
    kind = draw.randrange(7)
    if kind == 0:  # would write beside the canary when unpickled
        return npy(np.array([_Payload(outside / "unpickled")] * ROWS, object))
    if kind == 1:
        shape = draw.choice(
            ("(10**18,)", "(2000000000000,)", "(60, 100000000000)", "(-1,)", "(60.5,)")
        )
        return npy_header(
            f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}}}\n"
        ) + bytes(480)
    if kind == 2:
        return npy_header("(" * draw.choice((100, 9000)) + "\n") + bytes(8)
    if kind == 3:
        return npy_header(
            "{'descr': [('a', '<f8'), ('b', '|O')], 'fortran_order': 0, 'shape': (60,)}\n"
        )
    if kind == 4:
        return npy_header(" " * 10_000_000 + "\n", version=2)
    if kind == 5:
        return npy_header("{'descr': '<U99999999', 'fortran_order': False, 'shape': (60,)}\n")
    return npy(np.asfortranarray(np.zeros((ROWS, 3))))


class _Payload:
    """Runs when unpickled."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


@functools.cache
def npz_bomb() -> bytes:
    """Zeros squeezed a thousandfold."""
    buffer, rows = io.BytesIO(), 3 * 10**7
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as zipped:
        for name in log_columns():
            header = f"{{'descr': '|b1', 'fortran_order': False, 'shape': ({rows},)}}\n"
            with zipped.open(f"{name}.npy", "w", force_zip64=True) as member:
                member.write(npy_header(header))
                for _i in range(rows // 10**6):
                    member.write(bytes(10**6))
    return buffer.getvalue()


def npz_lying_sizes(draw: Random, directory: Path, _: Path) -> Path:
    """Sizes in the archive's directory are other than those of its members."""
    path = directory / "file.npz"
    content = bytearray(npz(np.savez_compressed))
    place = content.find(b"PK\x01\x02")
    field = draw.choice((20, 24, 42))  # compressed, uncompressed, where the member is
    value = draw.choice((0, 2**31, 2**32 - 1, 2**32 - 2, 12345))
    content[place + field : place + field + 4] = struct.pack("<I", value)
    path.write_bytes(content)
    return path


CELLS = (
    "", "nan", "inf", "-1", "1e999", "1e-999", "0x10", "1_0", "٣", "true", "NULL", '"', '""', "'",
    "a,b", "\x00", "\ufeff", "9" * 400, "-" * 50, " ", "1;2", "1,5", "=cmd()", "\r", "é" * 9,
    "1" * 9999,
)  # fmt: skip


def csv_cells(draw: Random, directory: Path, _: Path) -> Path:
    path = directory / f"file{draw.choice(('.csv', '.tsv'))}"
    delimiter = "," if path.suffix == ".csv" else "\t"
    lines = [line.split(delimiter) for line in csv(delimiter).decode().splitlines()]
    for _i in range(draw.choice((1, 1, 5))):
        line = draw.choice(lines)
        line[draw.randrange(len(line))] = draw.choice(CELLS)
    text = draw.choice(("\n", "\n", "\r\n", "\r")).join(delimiter.join(line) for line in lines)
    path.write_bytes(text.encode(draw.choice(("utf-8", "utf-8", "utf-16")), "surrogatepass"))
    return path


def csv_shapes(draw: Random, directory: Path, _: Path) -> Path:
    path = directory / "file.csv"
    header, *lines = csv().decode().splitlines()
    kind = draw.randrange(6)
    if kind == 0:
        header = ",".join(f"c{i}" for i in range(200_000))
    elif kind == 1:
        lines[draw.randrange(ROWS)] = "1," * draw.choice((3, 100, 500_000))
    elif kind == 2:
        lines[draw.randrange(ROWS)] = '"' + "x" * draw.choice((10, 3_000_000))
    elif kind == 3:
        lines = []
    elif kind == 4:
        header = header.replace("reward", draw.choice(("cost", "", "Reward ", "obs.0")))
    else:
        lines = [draw.choice(("", "#", ",")) for _i in range(draw.choice((1, 10_000)))] + lines
    path.write_text("\n".join([header, *lines]))
    return path


VALUES = (
    None, True, -1, 10**400, 1e308, [], [1], [[1, 2], [3]], {}, {"a": {"b": 1}}, "1", "x" * 9999,
    [None, None, None], ["1", "2", "3"], float("nan"), float("inf"), [1e999, 0, 0], [True, 1, 2.5],
)  # fmt: skip


def jsonl_values(draw: Random, directory: Path, _: Path) -> Path:
    path = directory / f"file{draw.choice(('.jsonl', '.ndjson'))}"
    rows = [json.loads(line) for line in jsonl().splitlines()]
    for _i in range(draw.choice((1, 1, 5))):
        row = draw.choice(rows)
        row[draw.choice([*row, "extra"])] = draw.choice(VALUES)
    lines = [json.dumps(row) for row in rows]
    kind = draw.randrange(8)
    where = draw.randrange(len(lines))
    if kind == 0:
        lines[where] = "[" * draw.choice((10, 100_000))
    elif kind == 1:
        lines[where] = '{"a":' * draw.choice((10, 50_000)) + "1" + "}" * 50_000
    elif kind == 2:
        lines[where] = draw.choice(
            ("", "null", "[]", "3", '"x"', "{", "\x00", '{"obs": 1, "obs": 2}')
        )
    elif kind == 3:
        lines[where] = json.dumps({"obs": [0.0] * 200_000})
    elif kind == 4:
        lines[where] = '{"reward": ' + "1" * draw.choice((5000, 100_000)) + "}"
    path.write_text("\n".join(lines), "utf-8", "surrogatepass")
    return path


def parquet_types(draw: Random, directory: Path, _: Path) -> Path:
    path = directory / "file.parquet"
    columns = {name: pa.array(values) for name, values in log_columns().items()}
    name = draw.choice(list(columns))
    columns[name] = draw.choice(
        (
            pa.array(["text"] * ROWS),
            pa.nulls(ROWS),
            pa.array([b"bytes"] * ROWS),
            pa.array([{"a": 1}] * ROWS),
            pa.array([[1.0] * (i % 3) for i in range(ROWS)]),
            pa.array([[]] * ROWS),
            pa.array([None, *range(ROWS - 1)]),
            pa.array([10**10] * ROWS, pa.timestamp("us")),
            pa.array([[("k", 1)]] * ROWS, pa.map_(pa.string(), pa.int64())),
            pa.array(["a", "b"] * (ROWS // 2)).dictionary_encode(),
            pa.array([float("nan"), float("inf")] * (ROWS // 2)),
        )
    )
    codec = draw.choice(("none", "snappy", "gzip", "zstd"))
    pq.write_table(pa.table(columns), path, compression=codec, row_group_size=draw.choice((7, 100)))
    return path


@functools.cache
def parquet_bomb() -> bytes:
    """Hundreds of millions of zeros, as one repeated value."""
    buffer, rows = io.BytesIO(), 3 * 10**7
    table = pa.table(dict.fromkeys(log_columns(), pa.array(np.zeros(rows, bool))))
    pq.write_table(table, buffer, row_group_size=rows)
    return buffer.getvalue()
