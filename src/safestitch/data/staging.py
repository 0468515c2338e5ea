"""Rows on their way into a file: nothing is lost on a kill, nothing half is taken for a whole.

Beside `my.h5` stands the directory `my.h5.importing` until the import is finished:
    rows.bin      the rows so far, raw
    episodes.bin  a hash of each episode's name so far
    journal.json  how much of both is certain, and where the source goes on
    whole.h5      the file itself, renamed to `my.h5` when it is complete
"""

import contextlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from safestitch.data.rows import Rows
from safestitch.files import held, write_atomic
from safestitch.records import SafestitchError

FORMAT = 1
PROVENANCE = "safestitch"
"""Attribute of a file that says, in JSON, where it comes from."""
CHUNK_BYTES = 1 << 20
TERMINATED, TRUNCATED, START = 1, 2, 4


class Staging:
    """The directory beside the file to be."""

    def __init__(self, out: Path):
        self.out = out
        self.directory = out.with_name(f"{out.name}.importing")
        self.rows_file = self.directory / "rows.bin"
        self.names_file = self.directory / "episodes.bin"
        self.journal_file = self.directory / "journal.json"
        self.whole_file = self.directory / "whole.h5"
        self.rows = 0
        self.episodes = 0
        self.layout = np.dtype("u1")

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Hold the directory.

        Raises:
            SafestitchError: if another import writes the same file, or the disk refuses.
        """
        try:
            taken = f"{self.out} is being written by another import"
            with held(self.directory, f"{taken}: wait for it, or choose another --out"):
                yield
        except OSError as error:
            raise SafestitchError(
                f"cannot write {self.out}: {error.strerror or error}. What is imported so far is "
                "kept: mend it and give the same command again"
            ) from None

    def journal(self) -> dict[str, Any]:
        """What an earlier import left behind; empty if nothing that can be used."""
        try:
            found = json.loads(self.journal_file.read_bytes())
        except (OSError, ValueError):
            return {}
        is_ours = isinstance(found, dict) and found.get("format") == FORMAT
        return found if is_ours else {}

    def begin(self, widths: tuple[int, int], journal: dict[str, Any]) -> list[int]:
        """Go on from a journal, or from nothing if it is empty; the names of episodes so far."""
        self.layout = row_layout(*widths)
        self.rows, self.episodes = journal.get("rows", 0), journal.get("episodes", 0)
        self.whole_file.unlink(missing_ok=True)
        for path, size in (
            (self.rows_file, self.rows * self.layout.itemsize),
            (self.names_file, self.episodes * 8),
        ):
            with open(path, "ab") as handle:
                handle.truncate(size)
        return np.fromfile(self.names_file, "<u8").tolist()

    def has(self, journal: dict[str, Any], widths: tuple[int, int]) -> bool:
        """Whether the rows that a journal speaks of are there."""
        try:
            rows = self.rows_file.stat().st_size >= journal["rows"] * row_layout(*widths).itemsize
            return rows and self.names_file.stat().st_size >= journal["episodes"] * 8
        except (OSError, KeyError, TypeError):
            return False

    def append(self, rows: Rows, starts: np.ndarray, names: list[int]) -> None:
        """Write rows and the names of the episodes that begin in them."""
        records: Any = np.empty(len(rows), self.layout)
        records["observations"], records["actions"] = rows.observations, rows.actions
        records["rewards"], records["costs"] = rows.rewards, rows.costs
        marks = TERMINATED * (rows.terminated == 1) + TRUNCATED * (rows.truncated == 1)
        records["marks"] = marks + START * starts
        for path, content in ((self.rows_file, records), (self.names_file, np.array(names, "<u8"))):
            with open(path, "ab") as handle:
                content.tofile(handle)
        self.rows += len(rows)
        self.episodes += len(names)

    def note(self, facts: dict[str, Any]) -> None:
        """Make everything written so far certain, and remember how to go on."""
        for path in (self.rows_file, self.names_file):
            with open(path, "rb") as handle:
                os.fsync(handle.fileno())
        known = {"format": FORMAT, "rows": self.rows, "episodes": self.episodes, **facts}
        write_atomic(self.journal_file, json.dumps(known).encode())

    def assemble(self, provenance: dict[str, Any]) -> dict[str, Any]:
        """Write the file and put it in its place; its provenance with what was counted."""
        episodes = derived = 0
        with h5py.File(self.whole_file, "w") as file:
            arrays = _create(file, self.layout, self.rows)
            size = 8 * arrays["observations"].chunks[0]
            for first in range(0, self.rows, size):
                last = min(first + size, self.rows)
                read: Any = np.fromfile(  # and one row more, to see whether the last one ends
                    self.rows_file,
                    self.layout,
                    last - first + 1,
                    offset=first * self.layout.itemsize,
                )
                part, marks = read[: last - first], read["marks"]
                ends = np.append(marks[1:] & START > 0, np.ones(int(last == self.rows), bool))
                unflagged = ends & (marks[: last - first] & (TERMINATED | TRUNCATED) == 0)
                for name in ("observations", "actions", "rewards", "costs"):
                    arrays[name][first:last] = part[name]
                arrays["terminals"][first:last] = part["marks"] & TERMINATED > 0
                arrays["timeouts"][first:last] = (part["marks"] & TRUNCATED > 0) | unflagged
                episodes, derived = episodes + int(ends.sum()), derived + int(unflagged.sum())
            counts = {"episodes": episodes, "steps": self.rows, "derived_ends": derived}
            file.attrs[PROVENANCE] = json.dumps({**provenance, **counts})
        with open(self.whole_file, "rb") as handle:
            os.fsync(handle.fileno())
        os.replace(self.whole_file, self.out)
        _sync_directory(self.out.parent)
        return {**provenance, **counts}

    def clear(self) -> None:
        """Take the directory away."""
        shutil.rmtree(self.directory, ignore_errors=True)


def provenance_of(path: Path) -> dict[str, Any]:
    """What an earlier import wrote about a file; empty if it is none of ours."""
    try:
        with h5py.File(path, "r") as file:
            found = json.loads(str(file.attrs[PROVENANCE]))
    except (OSError, KeyError, ValueError, RuntimeError, TypeError):
        return {}
    return found if isinstance(found, dict) else {}


def row_layout(obs_width: int, act_width: int) -> np.dtype:
    """One row of `rows.bin`."""
    return np.dtype(
        [
            ("observations", "<f4", (obs_width,)),
            ("actions", "<f4", (act_width,)),
            ("rewards", "<f4"),
            ("costs", "<f4"),
            ("marks", "u1"),
        ]
    )


def _create(file: h5py.File, layout: np.dtype, rows: int) -> dict[str, Any]:
    """The arrays of the DSRL layout, compressed in chunks of about a megabyte."""
    per_chunk = max(1, min(rows, CHUNK_BYTES // layout.itemsize))
    found: dict[str, Any] = {}
    for name in ("observations", "actions", "rewards", "costs", "terminals", "timeouts"):
        kind = layout[name] if name in (layout.names or ()) else np.dtype(bool)
        found[name] = file.create_dataset(
            name,
            shape=(rows, *kind.shape),
            dtype=kind.base,
            chunks=(per_chunk, *kind.shape),
            maxshape=(None, *kind.shape),
            compression="gzip",
            compression_opts=1,
            shuffle=True,
        )
    return found


def _sync_directory(directory: Path) -> None:
    """A rename is certain once its directory is."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
