"""A data set on disk that opens at once, however large: raw columns, memory-mapped.

    NAME.store/header.json        sizes, types, fingerprint; its own digest
    NAME.store/observations.bin   one file per column, little-endian, row after row
    NAME.store/offsets.bin ...    and per episode: offsets, returns, cost_returns

Values are checked when they are written. Opening checks the header, the size of every file and
what is stored per episode; columns are not read before they are used.
"""

import contextlib
import hashlib
import json
import math
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from safestitch.episodes import COLUMNS, Episodes, fingerprint_of
from safestitch.files import refuse_links, write_error
from safestitch.records import DataError

SUFFIX, HEADER, FORMAT = ".store", "header.json", 1
FINAL = "final_observations"
PER_EPISODE = ("offsets", "returns", "cost_returns")
TYPES = {
    "observations": "<f4",
    "actions": "<f4",
    "rewards": "<f4",
    "costs": "<f4",
    "terminated": "|b1",
    "truncated": "|b1",
    "offsets": "<i8",
    "returns": "<f8",
    "cost_returns": "<f8",
    FINAL: "<f4",
}
LARGEST_HEADER = 2**20


def is_store(path: str | Path) -> bool:
    """Whether a path looks like a set of this kind, whole or not."""
    return (Path(path) / HEADER).is_file() or Path(path).suffix == SUFFIX


def read(path: str | Path) -> Episodes:
    """Open a set; its columns are memory maps, read when used.

    Raises:
        DataError: if it is missing, incomplete or damaged.
    """
    path = Path(path)
    header = _read_header(path)
    shapes = _shapes(header)
    arrays = {name: _map(path, name, shape) for name, shape in shapes.items()}
    if _digest(arrays) != header["per_episode_sha256"]:
        raise DataError(f"{path} is damaged: its facts per episode do not match their digest")
    facts = {name: np.array(arrays.pop(name)) for name in ("returns", "cost_returns")}
    facts["lengths"] = np.diff(arrays["offsets"])
    if arrays["offsets"][0] != 0 or arrays["offsets"][-1] != header["steps"]:
        raise DataError(f"{path} is damaged: its episodes do not cover its rows")
    if (facts["lengths"] <= 0).any():
        raise DataError(f"{path} is damaged: it has an empty episode")
    return Episodes.trusted(
        {FINAL: None, **arrays}, {**facts, "fingerprint": header["fingerprint"]}
    )


def provenance(path: str | Path) -> dict[str, Any]:
    """What the set says of its origin; empty if it says nothing."""
    return _read_header(Path(path))["provenance"]


def verify(path: str | Path) -> None:
    """Read every byte and raise unless the set is what was written."""
    stored = read(path).fingerprint
    if _fingerprint(Path(path), _shapes(_read_header(Path(path)))) != stored:
        raise DataError(f"{path} is damaged: its values are not those that were written")


def _read_header(path: Path) -> dict[str, Any]:
    file = path / HEADER
    if not file.is_file():
        what = "was never finished" if path.is_dir() else "does not exist"
        raise DataError(f"{path} is not a data set: {HEADER} is missing, so the set {what}")
    refuse_links(file)
    try:
        if file.stat().st_size > LARGEST_HEADER:
            raise ValueError("too large")
        header = json.loads(file.read_bytes())
        digest = header.pop("sha256")
        whole = digest == _header_digest(header)
    except (OSError, ValueError, RecursionError, AttributeError, KeyError, TypeError) as error:
        raise DataError(f"{file} is damaged: {error}") from None
    if not whole:
        raise DataError(f"{file} is damaged: its digest does not match its contents")
    if header.get("format") != FORMAT:
        raise DataError(
            f"{path} is of format {header.get('format')!r}, this version reads {FORMAT}: write it "
            "again with `safestitch data convert`"
        )
    kinds = {"steps": int, "episodes": int, "obs_dim": int, "act_dim": int, "final": bool}
    kinds |= {"fingerprint": str, "per_episode_sha256": str, "provenance": dict}
    for name, kind in kinds.items():
        if type(header.get(name)) is not kind or (kind is int and header[name] < 1):
            raise DataError(f"{file} is damaged: {name} is {header.get(name)!r}")
    return header


def _shapes(header: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    steps, episodes = header["steps"], header["episodes"]
    shapes: dict[str, tuple[int, ...]] = {name: (steps,) for name in COLUMNS}
    shapes |= {"observations": (steps, header["obs_dim"]), "actions": (steps, header["act_dim"])}
    shapes |= {"offsets": (episodes + 1,), "returns": (episodes,), "cost_returns": (episodes,)}
    return shapes | ({FINAL: (episodes, header["obs_dim"])} if header["final"] else {})


def _map(path: Path, name: str, shape: tuple[int, ...]) -> np.ndarray:
    file = _column(path, name)
    expected = math.prod(shape) * np.dtype(TYPES[name]).itemsize
    refuse_links(file)
    if not file.is_file():
        raise DataError(f"{path} is incomplete: {file.name} is missing")
    if file.stat().st_size != expected:
        raise DataError(
            f"{path} is damaged: {file.name} has {file.stat().st_size} bytes, expected {expected}"
        )
    return np.asarray(np.memmap(file, TYPES[name], "r", shape=shape))


def _column(path: Path, name: str) -> Path:
    return path / f"{name}.bin"


def _digest(arrays: dict[str, np.ndarray]) -> str:
    digest = hashlib.sha256()
    for name in PER_EPISODE:
        digest.update(arrays[name].data)
    return digest.hexdigest()


def _fingerprint(path: Path, shapes: dict[str, tuple[int, ...]]) -> str:
    """That of the episodes, from plain reads: a map of it all would look like memory taken."""
    names = [name for name in (*COLUMNS, "offsets", FINAL) if name in shapes]
    return fingerprint_of(
        (name, np.dtype(TYPES[name]), shapes[name], _pieces(_column(path, name))) for name in names
    )


def _pieces(file: Path) -> Iterator[bytes]:
    with open(file, "rb") as handle:
        while piece := handle.read(2**20):
            yield piece


def _header_digest(header: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(header, sort_keys=True).encode()).hexdigest()


# --- writing -----------------------------------------------------------------------------------


def write(path: str | Path, episodes: Episodes, **options: Any) -> None:
    """Write a whole set; options as of `Writer`."""
    with Writer(path, **options) as writer:
        for block in episodes.blocks():
            writer.append(block)


class Writer:
    """Appends episodes to a set that appears, whole, when the `with` block ends well.

    Until then it lies in a hidden directory without a header, which nothing takes for a set.

    Args:
        path: the directory; must not exist.
        provenance: what to say of the data's origin, as JSON.
    """

    def __init__(self, path: str | Path, *, provenance: dict[str, Any] | None = None):
        self.path = Path(path)
        self.provenance = provenance or {}
        self.temporary = self.path.with_name(f".{self.path.name}.{os.getpid()}.tmp")
        self.widths: tuple[int, int] | None = None
        self.steps, self.episodes, self.final = 0, 0, True

    def __enter__(self) -> "Writer":
        if self.path.exists():
            raise DataError(f"{self.path} exists already: delete it, or choose another name")
        self.opened = contextlib.ExitStack()
        try:
            self.temporary.mkdir()
            columns = {name: _column(self.temporary, name) for name in TYPES}
            self.files = {n: self.opened.enter_context(p.open("wb")) for n, p in columns.items()}
        except OSError as error:
            raise write_error(self.path, error) from None
        self._put("offsets", np.zeros(1))
        return self

    def append(self, episodes: Episodes) -> None:
        """Add whole episodes.

        Raises:
            SafestitchError: if the disk is full, or the dimensions differ from those before.
        """
        widths = episodes.observations.shape[1], episodes.actions.shape[1]
        if self.widths not in (None, widths):
            raise DataError(
                f"{self.path}: observations and actions have {widths} dimensions, those before "
                f"{self.widths}"
            )
        self.widths = widths
        self.final &= episodes.final_observations is not None
        try:
            for name in (*COLUMNS, "returns", "cost_returns"):
                self._put(name, getattr(episodes, name))
            self._put("offsets", episodes.offsets[1:] + self.steps)
            if self.final:
                self._put(FINAL, episodes.final_observations)
        except OSError as error:
            raise write_error(self.path, error) from None
        self.steps += episodes.steps
        self.episodes += len(episodes)

    def _put(self, name: str, values: Any) -> None:
        self.files[name].write(np.ascontiguousarray(values, TYPES[name]).data)

    def __exit__(self, kind: Any, *_: Any) -> None:
        try:
            if kind is None:
                self._finish()
        except OSError as error:
            raise write_error(self.path, error) from None
        finally:
            with contextlib.suppress(OSError):
                self.opened.close()
            shutil.rmtree(self.temporary, ignore_errors=True)

    def _finish(self) -> None:
        if self.widths is None:
            raise DataError(f"nothing to write to {self.path}: no episodes were given")
        for file in self.files.values():
            file.flush()
            os.fsync(file.fileno())
        self.opened.close()
        if not self.final:
            _column(self.temporary, FINAL).unlink()
        header = {
            "format": FORMAT,
            "steps": self.steps,
            "episodes": self.episodes,
            "obs_dim": self.widths[0],
            "act_dim": self.widths[1],
            "final": self.final,
            "provenance": self.provenance,
        }
        arrays = {n: _map(self.temporary, n, shape) for n, shape in _shapes(header).items()}
        header["per_episode_sha256"] = _digest(arrays)
        header["fingerprint"] = _fingerprint(self.temporary, _shapes(header))
        header["sha256"] = _header_digest(header)
        with open(self.temporary / HEADER, "wb") as file:
            file.write(json.dumps(header, indent=1).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        os.rename(self.temporary, self.path)
