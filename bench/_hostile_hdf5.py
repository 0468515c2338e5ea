"""HDF5 that is well-formed and hostile: one array of a whole file is replaced by something else."""

import functools
import io
import math
import zlib
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import h5py
import numpy as np
from _wholes import CANARY, EPISODE, KEYS, ROWS, Mutation, arrays, whole_files


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
            if options and draw.random() < 0.5:
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


REPLACED = (
    missing, wrong_type, wrong_special_type, huge_shape, huge_chunk, lost_chunks, filters, nested,
    soft_link, external_link, external_storage, virtual, named_type,
)  # fmt: skip
