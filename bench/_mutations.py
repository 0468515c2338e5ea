"""Files that nobody should have to read: whole ones, and what goes wrong with them.

Every mutation is a function of a generator and a directory that writes one file and returns it.
`CANARY` names a file outside, full of `SECRET`, that some of them point to: nothing may open it.
"""

import functools
import io
import json
import math
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

CANARY = "canary"
SECRET = 424242.5
Mutation = Callable[[Random, Path, Path], Path]
"""generator, directory to write into, directory of the canary -> the file."""
ROWS, EPISODE = 60, 10
KEYS = ("observations", "next_observations", "actions", "rewards", "costs", "terminals", "timeouts")


# --- whole files -------------------------------------------------------------------------------


def arrays() -> dict[str, np.ndarray]:
    """Six episodes of ten steps, as DSRL names them."""
    draw = np.random.default_rng(0)
    ends = np.arange(ROWS) % EPISODE == EPISODE - 1
    return {
        "observations": draw.normal(size=(ROWS, 3)).astype(np.float32),
        "next_observations": draw.normal(size=(ROWS, 3)).astype(np.float32),
        "actions": draw.uniform(-1, 1, (ROWS, 2)).astype(np.float32),
        "rewards": draw.normal(size=ROWS).astype(np.float32),
        "costs": (draw.random(ROWS) < 0.3).astype(np.float32),
        "terminals": np.zeros(ROWS, bool),
        "timeouts": ends,
    }


def log_columns() -> dict[str, np.ndarray]:
    """The same as a table of numbers."""
    a = arrays()
    wide = {f"obs.{i}": a["observations"][:, i] for i in range(3)}
    wide |= {f"action.{i}": a["actions"][:, i] for i in range(2)}
    return wide | {
        "reward": a["rewards"],
        "cost": a["costs"],
        "episode": np.arange(ROWS) // EPISODE,
        "terminated": a["terminals"],
        "truncated": a["timeouts"],
    }


def hdf5(version: str = "earliest", **options) -> bytes:
    buffer = io.BytesIO()
    with h5py.File(buffer, "w", libver=version) as file:
        for name, values in arrays().items():
            file.create_dataset(name, data=values, **options)
    return buffer.getvalue()


def npz(save=np.savez) -> bytes:
    buffer = io.BytesIO()
    save(buffer, **log_columns())
    return buffer.getvalue()


def csv(delimiter: str = ",") -> bytes:
    columns = log_columns()
    lines = [delimiter.join(columns)]
    lines += [
        delimiter.join(f"{float(v):g}" for v in row) for row in zip(*columns.values(), strict=True)
    ]
    return ("\n".join(lines) + "\n").encode()


def jsonl() -> bytes:
    a, columns = arrays(), log_columns()
    lines = []
    for i in range(ROWS):
        row = {"obs": a["observations"][i].tolist(), "action": a["actions"][i].tolist()}
        row |= {n: columns[n][i].item() for n in ("reward", "cost", "episode", "terminated")}
        lines.append(json.dumps(row))
    return ("\n".join(lines) + "\n").encode()


def parquet(**options) -> bytes:
    buffer = io.BytesIO()
    columns = {name: pa.array(values) for name, values in log_columns().items()}
    columns["obs"] = pa.array(arrays()["observations"].tolist())
    pq.write_table(pa.table(columns), buffer, **options)
    return buffer.getvalue()


@functools.cache
def whole_files() -> dict[str, list[bytes]]:
    """Suffix -> whole files of that kind."""
    return {
        ".hdf5": [
            hdf5(),
            hdf5("latest"),
            hdf5(compression="gzip", chunks=True),
            hdf5("latest", compression="lzf", chunks=True, fletcher32=True),
        ],
        ".npz": [npz(), npz(np.savez_compressed)],
        ".csv": [csv(), csv(";")],
        ".tsv": [csv("\t")],
        ".jsonl": [jsonl()],
        ".parquet": [parquet(), parquet(compression="gzip", row_group_size=20)],
    }


# --- damage to bytes ---------------------------------------------------------------------------


def truncate(draw: Random, content: bytes) -> bytes:
    return content[: draw.randrange(len(content))]


def flip_bits(draw: Random, content: bytes) -> bytes:
    damaged = bytearray(content)
    for _i in range(draw.choice((1, 1, 1, 4, 64))):
        damaged[draw.randrange(len(damaged))] ^= 1 << draw.randrange(8)
    return bytes(damaged)


def flip_head_bits(draw: Random, content: bytes) -> bytes:
    """Most formats keep what they declare at an end."""
    damaged = bytearray(content)
    near = draw.choice((64, 512, 2048))
    for _i in range(draw.choice((1, 2, 8))):
        place = draw.randrange(min(near, len(damaged)))
        damaged[place if draw.random() < 0.5 else -1 - place] ^= 1 << draw.randrange(8)
    return bytes(damaged)


def extreme_numbers(draw: Random, content: bytes) -> bytes:
    """Sizes and addresses become huge, negative or zero."""
    damaged = bytearray(content)
    for _i in range(draw.choice((1, 1, 3))):
        value = draw.choice((0, 1, 2**31 - 1, 2**32 - 1, 2**40, 2**62, 2**63 - 1, 2**64 - 1))
        width = draw.choice((2, 4, 8))
        place = draw.randrange(max(1, len(damaged) - width))
        damaged[place : place + width] = (value % 256**width).to_bytes(width, "little")
    return bytes(damaged)


def zero_block(draw: Random, content: bytes) -> bytes:
    size, place = draw.choice((16, 256, 4096)), draw.randrange(len(content))
    return content[:place] + bytes(len(content[place : place + size])) + content[place + size :]


def move_block(draw: Random, content: bytes) -> bytes:
    """A block is repeated, or lost."""
    a, b = sorted(draw.randrange(len(content)) for _i in range(2))
    b = min(b, a + 4096)
    return (
        content[:b] + content[a:b] + content[b:]
        if draw.random() < 0.5
        else content[:a] + content[b:]
    )


def noise_after(draw: Random, content: bytes) -> bytes:
    return content + draw.randbytes(draw.choice((1, 100, 10_000)))


def noise(draw: Random, content: bytes) -> bytes:
    return content[: draw.choice((0, 4, 8))] + draw.randbytes(draw.choice((0, 1, 64, 5000)))


DAMAGE = (
    truncate, flip_bits, flip_head_bits, extreme_numbers, zero_block, move_block, noise_after,
    noise,
)  # fmt: skip


def damage(how: Callable, suffix: str, wholes: list[bytes]) -> Mutation:
    def mutate(draw: Random, directory: Path, _: Path) -> Path:
        path = directory / f"file{suffix}"
        path.write_bytes(how(draw, draw.choice(wholes)))
        return path

    return mutate


def wrong_suffix(draw: Random, directory: Path, _: Path) -> Path:
    wholes = whole_files()
    suffix, other = draw.sample(sorted(wholes), 2)
    path = directory / f"file{suffix}"
    path.write_bytes(draw.choice(wholes[other]))
    return path


# --- HDF5 that is well-formed and hostile --------------------------------------------------------


def with_hdf5(change: Callable[[Random, h5py.File, str, Path], None]) -> Mutation:
    """A whole file in which one array, taken out, is replaced by something else."""

    def mutate(draw: Random, directory: Path, outside: Path) -> Path:
        path = directory / "file.hdf5"
        path.write_bytes(draw.choice(whole_files()[".hdf5"]))
        name = draw.choice(KEYS)
        with h5py.File(path, "r+") as file:
            del file[name]
            change(draw, file, name, outside)
        return path

    return mutate


def missing(_: Random, file: h5py.File, name: str, __: Path) -> None:
    assert name not in file


def wrong_type(draw: Random, file: h5py.File, name: str, _: Path) -> None:
    values = draw.choice(
        (
            np.array([b"text"] * ROWS),
            np.zeros(ROWS, [("a", "f4"), ("b", "i8")]),
            np.zeros(ROWS, np.complex64),
            np.zeros((ROWS, 3), np.longdouble),
            np.zeros(ROWS, ">f2"),
            np.full(ROWS, 2**63, np.uint64),
            np.zeros(ROWS, "V7"),
            np.float32(3),
            np.zeros((ROWS, 2, 2), np.float32),
            np.zeros((0, 3), np.float32),
            np.zeros((ROWS, 0), np.float32),
            np.zeros(ROWS - 1, np.float32),
            np.full((ROWS, 3), np.nan),
            np.full(ROWS, -1.0),
            np.full(ROWS, 1e300),
        )
    )
    file[name] = values


def wrong_special_type(draw: Random, file: h5py.File, name: str, _: Path) -> None:
    kind = draw.randrange(5)
    if kind == 0:
        file.create_dataset(name, (ROWS,), h5py.string_dtype())
    elif kind == 1:
        file.create_dataset(name, (ROWS,), h5py.vlen_dtype(np.float32))
    elif kind == 2:
        file.create_dataset(name, (ROWS,), h5py.ref_dtype)
    elif kind == 3:
        file.create_dataset(name, (ROWS,), h5py.enum_dtype({"NO": 0, "YES": 1, "MAYBE": 7}))
    else:
        file[name] = h5py.Empty("f4")


def huge_shape(draw: Random, file: h5py.File, name: str, _: Path) -> None:
    shape = draw.choice(((2**40,), (2**34, 3), (2**30, 2**10), (10**9,), (2**62,)))
    chunks = draw.choice((None, (1024, *shape[1:])[: len(shape)], (2**24, *(1 for _ in shape[1:]))))
    squeezed = {"compression": "gzip"} if chunks and draw.random() < 0.5 else {}
    file.create_dataset(name, shape, "u1" if shape == (2**62,) else "f4", chunks=chunks, **squeezed)


def huge_everything(draw: Random, directory: Path, _: Path) -> Path:
    """All arrays agree on a length that is nowhere stored."""
    path = directory / "file.hdf5"
    rows = draw.choice((10**8, 10**10, 2**40))
    options = draw.choice(({}, {"chunks": True}, {"chunks": True, "compression": "gzip"}))
    with h5py.File(path, "w", libver=draw.choice(("earliest", "latest"))) as file:
        for name, values in arrays().items():
            file.create_dataset(name, (rows, *values.shape[1:]), values.dtype, **options)
            if draw.random() < 0.5:
                part: Any = file[name]
                part[:EPISODE] = values[:EPISODE]
    return path


@functools.cache
def hdf5_bomb() -> bytes:
    """Zeros that are really there, squeezed a thousandfold: 400 MB and more an array."""
    buffer, rows = io.BytesIO(), 10**8
    with h5py.File(buffer, "w") as file:
        for name, values in arrays().items():
            chunk = (10**6, *values.shape[1:])
            array = file.create_dataset(
                name, (rows, *values.shape[1:]), values.dtype, chunks=chunk, compression="gzip"
            )
            piece = zlib.compress(bytes(math.prod(chunk) * values.itemsize), 9)
            for first in range(0, rows, 10**6):
                array.id.write_direct_chunk((first, *(0 for _ in chunk[1:])), piece)
        last: Any = file["timeouts"]
        last[-1] = True
    return buffer.getvalue()


def huge_chunk(draw: Random, file: h5py.File, name: str, _: Path) -> None:
    chunk = draw.choice((2**28, 2**30 - 1, 2**29))
    array = file.create_dataset(name, (ROWS,), "f4", maxshape=(None,), chunks=(chunk,))
    if draw.random() < 0.5:
        array.id.write_direct_chunk((0,), b"too short")


def lost_chunks(draw: Random, file: h5py.File, name: str, _: Path) -> None:
    array = file.create_dataset(name, (ROWS,), "f4", chunks=(8,), fillvalue=draw.choice((0, 1)))
    array[: draw.randrange(ROWS)] = 0


def filters(draw: Random, file: h5py.File, name: str, _: Path) -> None:
    settings = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    settings.set_chunk((ROWS,))
    kind = draw.randrange(3)
    if kind == 0:  # a plug-in nobody has
        settings.set_filter(32000 + draw.randrange(100), h5py.h5z.FLAG_OPTIONAL, (1, 2))
    else:  # squeezed several times over
        for _i in range(draw.choice((2, 5))):
            settings.set_deflate(9)
    space = h5py.h5s.create_simple((ROWS,))
    array = h5py.h5d.create(file.id, name.encode(), h5py.h5t.IEEE_F32LE, space, settings)
    array.write_direct_chunk((0,), draw.randbytes(50))


def nested(draw: Random, file: h5py.File, name: str, _: Path) -> None:
    depth = draw.choice((1, 50, 500))
    group = file.create_group(name)
    for _i in range(depth):
        group = group.create_group(draw.choice(("x", name)))
    group["values"] = np.zeros(3)
    if draw.random() < 0.5:
        group["up"] = file["/"]  # a hard link in a circle


def soft_link(draw: Random, file: h5py.File, name: str, _: Path) -> None:
    file[name] = h5py.SoftLink(draw.choice((f"/{name}", "/nowhere", "/costs", ".", "/")))


def external_link(draw: Random, file: h5py.File, name: str, outside: Path) -> None:
    target = draw.choice((str(outside / f"{CANARY}.hdf5"), f"../outside/{CANARY}.hdf5"))
    if draw.random() < 0.3:
        file["hidden"] = h5py.ExternalLink(target, "/")
        file[name] = h5py.SoftLink(f"/hidden/{name}")
    else:
        file[name] = h5py.ExternalLink(target, name)


def external_storage(draw: Random, file: h5py.File, name: str, outside: Path) -> None:
    width = arrays()[name].shape[1:]
    target = draw.choice((str(outside / f"{CANARY}.raw"), f"../outside/{CANARY}.raw"))
    size = h5py.h5f.UNLIMITED
    file.create_dataset(name, (ROWS, *width), "f4", external=[(target, 0, size)])


def virtual(draw: Random, file: h5py.File, name: str, outside: Path) -> None:
    shape = arrays()[name].shape
    layout = h5py.VirtualLayout(shape, "f4")
    target = draw.choice((str(outside / f"{CANARY}.hdf5"), "."))
    layout[...] = h5py.VirtualSource(target, name, shape)
    file.create_virtual_dataset(name, layout)


def named_type(_: Random, file: h5py.File, name: str, __: Path) -> None:
    file[name] = np.dtype("f4")


# --- NPZ, text, Parquet that are well-formed and hostile ----------------------------------------


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


def bomb(make: Callable[[], bytes], suffix: str) -> Mutation:
    """A bomb as it is, or with a flipped bit."""

    def mutate(draw: Random, directory: Path, _: Path) -> Path:
        path = directory / f"file{suffix}"
        path.write_bytes(flip_head_bits(draw, make()) if draw.random() < 0.5 else make())
        return path

    return mutate


# --- all of them ---------------------------------------------------------------------------------

REPLACED = (
    missing, wrong_type, wrong_special_type, huge_shape, huge_chunk, lost_chunks, filters, nested,
    soft_link, external_link, external_storage, virtual, named_type,
)  # fmt: skip
OTHERS = (
    wrong_suffix, huge_everything, npz_members, npz_lying_sizes, csv_cells, csv_shapes,
    jsonl_values, parquet_types,
)  # fmt: skip
BOMBS = {".hdf5": hdf5_bomb, ".npz": npz_bomb, ".parquet": parquet_bomb}


def mutations() -> dict[str, Mutation]:
    """Name -> mutation."""
    made = {
        f"{suffix[1:]}: {how.__name__}": damage(how, suffix, wholes)
        for suffix, wholes in whole_files().items()
        for how in DAMAGE
    }
    made |= {f"hdf5: {change.__name__}": with_hdf5(change) for change in REPLACED}
    made |= {f"{suffix[1:]}: bomb": bomb(make, suffix) for suffix, make in BOMBS.items()}
    return made | {how.__name__.replace("_", ": ", 1): how for how in OTHERS}
