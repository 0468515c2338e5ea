"""The stock: rolled episodes on disk, as they come; a kill loses the last seconds and no more.

Beside `made.hdf5` stands the directory `made.hdf5.making` until the file is complete:
    order.json     what is being made; a stock of another order is thrown away
    rows.bin       rows of finished episodes, one episode after the other
    finished.bin   one record per finished episode: its number, where its rows are, what it brought
"""

import contextlib
import json
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from jaxtyping import Float, Int

from safestitch.data.staging import TERMINATED, TRUNCATED, row_layout
from safestitch.episodes import Episodes
from safestitch.files import held, write_atomic
from safestitch.records import SafestitchError, Spec

CERTAIN_SECONDS = 2.0
"""What is finished is made certain this often."""
BLOCK_ROWS = 2**17
"""Steps of the blocks in which episodes are read back."""


class Stock:
    """Finished episodes of an order, by number.

    Args:
        out: The file to be.
        spec: Widths of rows, and the length of an episode.
    """

    def __init__(self, out: Path, spec: Spec):
        self.out, self.spec = out, spec
        self.directory = directory_of(out)
        self.rows_file = self.directory / "rows.bin"
        self.finished_file = self.directory / "finished.bin"
        self.order_file = self.directory / "order.json"
        self.layout = row_layout(spec.obs_dim, spec.act_dim)
        self.record = np.dtype(
            [
                ("number", "<i8"),
                ("first", "<i8"),
                ("length", "<i8"),
                ("reward", "<f8"),
                ("cost", "<f8"),
                ("final", "<f4", (spec.obs_dim,)),
            ]
        )
        self.records: dict[int, Any] = {}
        self._waiting: list[Any] = []
        self._rows = 0
        self._said = time.monotonic()

    @contextlib.contextmanager
    def held(self, order: dict[str, Any]) -> Iterator[None]:
        """Hold the directory, with what an earlier, equal order has left in it.

        Raises:
            SafestitchError: if another process makes the same file, or the disk refuses.
        """
        try:
            taken = f"{self.out} is being made by another process"
            with held(self.directory, f"{taken}: wait for it, or choose another --out"):
                self._recall(order)
                with (
                    open(self.rows_file, "ab") as self._rows_handle,
                    open(self.finished_file, "ab") as self._finished_handle,
                ):
                    try:
                        yield
                    finally:
                        self.ensure()
        except OSError as error:
            raise SafestitchError(
                f"cannot write {self.out}: {error.strerror or error}. What is rolled so far is "
                "kept: mend it and give the same command again"
            ) from None

    def _recall(self, order: dict[str, Any]) -> None:
        text = json.dumps(order, sort_keys=True).encode()
        if not self.order_file.exists() or self.order_file.read_bytes() != text:
            self.rows_file.unlink(missing_ok=True)
            self.finished_file.unlink(missing_ok=True)
            write_atomic(self.order_file, text)
        for path in (self.rows_file, self.finished_file):
            path.touch()
        rows = self.rows_file.stat().st_size // self.layout.itemsize
        count = self.finished_file.stat().st_size // self.record.itemsize
        certain = 0
        for record in np.fromfile(self.finished_file, self.record, count):
            whole = 0 < record["length"] <= self.spec.horizon and record["first"] == self._rows
            if not whole or record["first"] + record["length"] > rows:
                break  # what follows was not certain when the machine went down
            self.records[int(record["number"])] = record
            self._rows += int(record["length"])
            certain += 1
        os.truncate(self.rows_file, self._rows * self.layout.itemsize)
        os.truncate(self.finished_file, certain * self.record.itemsize)

    def add(self, number: int, rows: np.ndarray, final: Float[np.ndarray, " o"]) -> None:
        """Take in a finished episode."""
        record: Any = np.zeros((), self.record)
        record["number"], record["first"], record["length"] = number, self._rows, len(rows)
        record["reward"] = rows["rewards"].astype(np.float64).sum()
        record["cost"] = rows["costs"].astype(np.float64).sum()
        record["final"] = final
        rows.tofile(self._rows_handle)
        self._rows += len(rows)
        self.records[number] = record
        self._waiting.append(record)
        if time.monotonic() - self._said > CERTAIN_SECONDS:
            self.ensure()

    def ensure(self) -> None:
        """Make what is finished certain: first the rows, then the records that speak of them."""
        _settle(self._rows_handle)
        np.array(self._waiting, self.record).tofile(self._finished_handle)
        _settle(self._finished_handle)
        self._waiting = []
        self._said = time.monotonic()

    def returns(self, count: int) -> tuple[Float[np.ndarray, " e"], Float[np.ndarray, " e"]]:
        """Rewards and costs of the first episodes, which must all be finished."""
        found = [self.records[number] for number in range(count)]
        return np.array([r["reward"] for r in found]), np.array([r["cost"] for r in found])

    @property
    def steps(self) -> int:
        """Steps of all finished episodes."""
        return self._rows

    def blocks(self, numbers: Int[np.ndarray, " e"]) -> Iterator[Episodes]:
        """Finished episodes in the order given, some at a time."""
        self.ensure()
        rows = np.memmap(self.rows_file, self.layout, "r", shape=(self._rows,))
        chosen, size = [], 0
        for place, number in enumerate(numbers.tolist()):
            chosen.append(self.records[number])
            size += int(chosen[-1]["length"])
            if size >= BLOCK_ROWS or place == len(numbers) - 1:
                yield _episodes(rows, chosen)
                chosen, size = [], 0


def directory_of(out: Path) -> Path:
    """Where the stock of a file lies."""
    return out.with_name(f"{out.name}.making")


def clear(out: Path) -> None:
    """Take the stock of a file away."""
    shutil.rmtree(directory_of(out), ignore_errors=True)


def _settle(handle: BinaryIO) -> None:
    handle.flush()
    os.fsync(handle.fileno())


def _episodes(rows: np.ndarray, records: list[Any]) -> Episodes:
    parts = [rows[r["first"] : r["first"] + r["length"]] for r in records]
    joined: Any = np.concatenate(parts)
    return Episodes(
        observations=np.ascontiguousarray(joined["observations"]),
        actions=np.ascontiguousarray(joined["actions"]),
        rewards=np.ascontiguousarray(joined["rewards"]),
        costs=np.ascontiguousarray(joined["costs"]),
        terminated=joined["marks"] & TERMINATED > 0,
        truncated=joined["marks"] & TRUNCATED > 0,
        offsets=np.concatenate([[0], np.cumsum([len(part) for part in parts])]),
        final_observations=np.stack([record["final"] for record in records]),
    )
