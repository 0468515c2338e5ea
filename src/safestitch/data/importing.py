"""Own logs into episodes: streamed into a file of the DSRL layout, or read into memory."""

import dataclasses
import hashlib
import importlib.metadata
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from safestitch.data.binary import DSRL_COLUMNS
from safestitch.data.blocks import Place, Table
from safestitch.data.mapping import Mapping, read_mapping, resolve
from safestitch.data.rows import Cuts, Rows, Splitter, dimensions, rows_of, unnamed
from safestitch.data.staging import Staging, provenance_of
from safestitch.data.tables import open_table
from safestitch.episodes import Episodes
from safestitch.memory import available_memory
from safestitch.records import DataError, SafestitchError

START = Place()
Progress = Callable[[int, int], None]
"""Told (how far, how far in all): bytes of a text file, rows elsewhere."""


@dataclasses.dataclass(frozen=True)
class Imported:
    """What an import made."""

    path: Path
    episodes: int
    steps: int
    notes: tuple[str, ...]
    """What was guessed and derived, in plain words."""


@dataclasses.dataclass(frozen=True, eq=False)
class Log:
    """A table whose columns have found their places."""

    table: Table
    mapping: Mapping
    guesses: tuple[str, ...]

    @classmethod
    def open(cls, source: Any, mapping: Any = None) -> "Log":
        """Open a source; the mapping is a `Mapping`, a dictionary, a TOML file, or nothing."""
        table = open_table(source)
        resolved, guesses = resolve(as_mapping(mapping), list(table.columns))
        is_standard = tuple(table.columns) == DSRL_COLUMNS  # its names are no guess
        return cls(table, resolved, () if is_standard else guesses)

    def rows(self, begin: Place = START) -> Iterator[tuple[Rows, Place]]:
        """Rows in order, some at a time, and the place after them."""
        texts = frozenset({self.mapping.episode} - {""})
        for block in self.table.read(self.mapping.columns, texts, begin):
            yield rows_of(block, self.mapping), block.after

    @property
    def widths(self) -> tuple[int, int]:
        """Numbers in an observation and in an action."""
        obs, action = (dimensions(self.table, n) for n in (self.mapping.obs, self.mapping.action))
        return len(obs), len(action)


def as_mapping(mapping: Any) -> Mapping:
    """A `Mapping` from what a caller may give."""
    if mapping is None:
        return Mapping()
    if isinstance(mapping, str | Path):
        return read_mapping(Path(mapping))
    return Mapping.of(mapping) if isinstance(mapping, dict) else mapping


def import_logs(
    source: Any,
    out: str | Path,
    mapping: Any = None,
    *,
    overwrite: bool = False,
    progress: Progress | None = None,
    journal_seconds: float = 2.0,
) -> Imported:
    """Stream a log of any size into an HDF5 file; the same call goes on after a kill.

    A file that holds this very import already is left as it is.

    Args:
        source: CSV, JSON lines, Parquet, NPZ or HDF5 file, a frame, or a dictionary of arrays.
        out: File to write; it appears when it is complete, and not before.
        mapping: Which column means what: a `Mapping`, a dictionary, or a TOML file.
        overwrite: Replace `out` if it exists.
        progress: Told how far it is.
        journal_seconds: Make what is read certain this often; a kill loses no more.

    Raises:
        DataError: if the data are malformed; names file, line or row, and column.
    """
    out, log = Path(out), Log.open(source, mapping)
    staging = Staging(out)
    key = _key(source, log)
    facts = _provenance(log, key)
    if out.exists() and not overwrite:
        before = provenance_of(out)
        if before.get("key") != facts["key"]:
            raise SafestitchError(f"{out} exists: choose another name, or give --overwrite")
        staging.clear()  # the same import was killed when it had only to tidy up
        return _imported(out, log, before)
    with staging.held():
        try:
            _stage(log, staging, key, progress or _quiet, journal_seconds)
        except DataError:
            staging.clear()  # nothing of it can be used
            raise
        made = staging.assemble(facts)
        staging.clear()
    return _imported(out, log, made)


def read_logs(source: Any, mapping: Any = None) -> Episodes:
    """Read a log that fits into memory.

    Raises:
        DataError: if the data are malformed; names file, line or row, and column.
    """
    log = Log.open(source, mapping)
    splitter, parts, starts = Splitter.of(log.mapping), [], []
    left, held = available_memory(), 0
    for rows, _ in log.rows():
        cuts = splitter.split(rows)
        refuse(log, rows, cuts)
        held += rows.observations.nbytes + rows.actions.nbytes + 64 * len(rows)
        if 2.5 * held > left:  # the parts, the whole, and what it takes to check it
            raise DataError(
                f"{log.table.name} does not fit into memory ({left / 1e9:.1f} GB are free): stream "
                "it into a file with `safestitch data import`"
            )
        parts.append(rows)
        starts.append(cuts.starts)
    _require_rows(log, len(parts))

    def joined(name: str) -> np.ndarray:
        return np.concatenate([getattr(rows, name) for rows in parts])

    ends = np.append(np.concatenate(starts)[1:], True)
    terminated, truncated = joined("terminated") == 1, joined("truncated") == 1
    return Episodes.of(
        joined("observations"),
        joined("actions"),
        joined("rewards"),
        joined("costs"),
        terminated,
        truncated | (ends & ~terminated),
    )


def _stage(
    log: Log, staging: Staging, key: dict[str, Any], progress: Progress, journal_seconds: float
) -> None:
    """Bring every row into the staging directory."""
    journal = staging.journal()
    if journal.get("key") != key or not staging.has(journal, log.widths):
        journal = {}
    splitter, place = Splitter.of(log.mapping), Place(*journal.get("place", Place()))
    splitter.seen |= set(staging.begin(log.widths, journal))
    for name, value in journal.get("splitter", {}).items():
        setattr(splitter, name, value)
    said = time.monotonic()
    for rows, after in log.rows(place) if place.offset < log.table.size else ():
        cuts = splitter.split(rows)
        refuse(log, rows, cuts)
        staging.append(rows, cuts.starts, splitter.fresh)
        splitter.fresh.clear()
        place = after
        progress(place.offset, log.table.size)
        if time.monotonic() - said > journal_seconds:
            staging.note(_facts(key, place, splitter))
            said = time.monotonic()
    _require_rows(log, staging.rows)
    staging.note(_facts(key, place, splitter))


def _facts(key: dict[str, Any], place: Place, splitter: Splitter) -> dict[str, Any]:
    remembered = ("episodes", "last_episode", "last_step", "last_flagged")
    return {
        "key": key,
        "place": list(place),
        "splitter": {name: getattr(splitter, name) for name in remembered},
    }


def refuse(log: Log, rows: Rows, cuts: Cuts) -> None:
    """Raise for the first thing that is wrong, naming the file, the line and the column."""

    def fail(row: int, column: str, what: str) -> None:
        name = rows.episode[row] if rows.episode is not None else cuts.episode[row]
        raise DataError(
            f"{log.table.name}, {rows.where(row)}: column {column}, episode {name}: {what}"
        )

    m = log.mapping
    for name, columns in (("observations", m.obs), ("actions", m.action)):
        for row, index in np.argwhere(~np.isfinite(getattr(rows, name)))[:1].tolist():
            value = float(getattr(rows, name)[row, index])
            fail(row, dimensions(log.table, columns)[index], _unusable(value))
    for row in np.flatnonzero(~np.isfinite(rows.rewards))[:1].tolist():
        fail(row, m.reward, _unusable(float(rows.rewards[row])))
    costs = "+".join(part.column for part in m.cost)
    for row in np.flatnonzero(~np.isfinite(rows.costs))[:1].tolist():
        flag = " (a flag is 0 or 1)" if any(p.kind == "flag" for p in m.cost) else ""
        fail(row, costs, _unusable(float(rows.costs[row])) + flag)
    for row in np.flatnonzero(rows.costs < 0)[:1].tolist():
        advice = "Costs are >= 0, lower is better: give weight -1, or kind margin if it is one"
        fail(row, costs, f"{rows.costs[row]:g} is negative. {advice}")
    _refuse_marks(m, rows, fail)
    _refuse_order(m, cuts, fail)


def _refuse_marks(m: Mapping, rows: Rows, fail: Callable[[int, str, str], None]) -> None:
    for name in ("terminated", "truncated"):
        for row in np.flatnonzero(~np.isin(getattr(rows, name), (0, 1)))[:1].tolist():
            fail(row, getattr(m, name), f"{getattr(rows, name)[row]:g} is neither true nor false")
    for row in np.flatnonzero(np.isnan(rows.step))[:1].tolist() if rows.step is not None else ():
        fail(row, m.step, _unusable(np.nan))
    for row in unnamed(rows)[:1].tolist():
        fail(row, m.episode, "the episode has no name")


def _refuse_order(m: Mapping, cuts: Cuts, fail: Callable[[int, str, str], None]) -> None:
    by = ", ".join(f"'{name}'" for name in (m.episode, m.step) if name)
    for row in cuts.returned[:1].tolist():
        advice = f"Sort the rows first, for instance frame.sort_values([{by}])"
        fail(row, m.episode, f"this episode was over and goes on here: several at once. {advice}")
    for row in cuts.backwards[:1].tolist():
        fail(row, m.step, "the step does not rise within the episode. Sort the rows by it")
    for row in cuts.early[:1].tolist():
        flags = " and ".join(name for name in (m.terminated, m.truncated) if name)
        fail(row, m.episode or flags, f"{flags} ended the episode a row before, but it goes on")


def _unusable(value: float) -> str:
    what = "missing or not a number" if np.isnan(value) else f"{value:g} is not finite"
    return f"{what}. Remove or repair it; `safestitch data check` lists everything"


def _require_rows(log: Log, count: int) -> None:
    if not count:
        raise DataError(f"{log.table.name} holds no rows: a data set needs at least one step")


def _key(source: Any, log: Log) -> dict[str, Any]:
    """What must be unchanged for an import to go on; a frame is always read again."""
    facts: dict[str, Any] = {"mapping": log.mapping.plain()}
    if isinstance(source, str | Path):
        path = Path(source)
        stat = path.stat()
        facts |= {"path": str(path.resolve()), "size": stat.st_size, "changed": stat.st_mtime_ns}
        with open(path, "rb") as handle:
            facts["head"] = hashlib.sha256(handle.read(1 << 20)).hexdigest()
    else:
        facts["frame"] = time.time_ns()
    return _as_json(facts)


def _as_json(value: Any) -> Any:
    """As it comes back from a JSON file: tuples are lists."""
    if isinstance(value, dict):
        return {key: _as_json(item) for key, item in value.items()}
    return [_as_json(item) for item in value] if isinstance(value, list | tuple) else value


def _provenance(log: Log, key: dict[str, Any]) -> dict[str, Any]:
    return {
        "source": log.table.name,
        "key": hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest(),
        "mapping": log.mapping.plain(),
        "observations": dimensions(log.table, log.mapping.obs),
        "actions": dimensions(log.table, log.mapping.action),
        "version": importlib.metadata.version("safestitch"),
    }


def _imported(out: Path, log: Log, made: dict[str, Any]) -> Imported:
    notes = [f"guessed {guess}" for guess in log.guesses]
    if made["derived_ends"]:
        notes.append(
            f"{made['derived_ends']} of {made['episodes']} episodes end without a flag: their last "
            "rows are marked truncated"
        )
    return Imported(out, made["episodes"], made["steps"], tuple(notes))


def _quiet(_: int, __: int) -> None:
    pass
