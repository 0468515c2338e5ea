"""Whole files of every format, small, all of the same data; and what files may point to."""

import functools
import io
import json
from collections.abc import Callable
from pathlib import Path
from random import Random

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

CANARY = "canary"
"""A file outside, full of `SECRET`: nothing may open it."""
SECRET = 424242.5
Mutation = Callable[[Random, Path, Path], Path]
"""generator, directory to write into, directory of the canary -> the file."""
ROWS, EPISODE = 60, 10
KEYS = ("observations", "next_observations", "actions", "rewards", "costs", "terminals", "timeouts")


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
