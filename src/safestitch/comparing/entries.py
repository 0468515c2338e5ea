"""The runs of a comparison: which method each stands for, and whether they can be compared."""

import dataclasses
import re
from collections.abc import Sequence
from pathlib import Path, PurePath

from safestitch import runs
from safestitch.catalog import public_files
from safestitch.comparing.published import PAPER_DATA
from safestitch.records import SafestitchError

NAME = re.compile(r"[A-Za-z0-9][\w.+-]*")
"""What a method may be called, so that it can be a file name, a flag and a word of a table."""


@dataclasses.dataclass(frozen=True)
class Entry:
    """One method on one task."""

    method: str
    directory: Path
    run: runs.Run

    @property
    def task(self) -> str:
        """Name of the task."""
        return self.run.spec.task


def read_entries(texts: Sequence[str]) -> list[Entry]:
    """Finished runs, each given as `RUN` or `NAME=RUN`; without a name, its algorithm's.

    Raises:
        SafestitchError: if a run is not finished, or two of them cannot stand in one table.
    """
    if not texts:
        raise SafestitchError("which runs? Give run directories, as RUN or as NAME=RUN")
    entries = [_entry(text) for text in texts]
    _check_distinct(entries)
    _check_alike(entries)
    return entries


def _entry(text: str) -> Entry:
    name, given, place = text.partition("=")
    if not given or not NAME.fullmatch(name) or Path(text).is_dir():
        name, place = "", text
    read = runs.read if runs.is_evaluated(Path(place)) else runs.require_trained
    run = read(Path(place))
    if not NAME.fullmatch(run.algorithm):
        raise SafestitchError(f"{place} is of an algorithm of no known name: {run.algorithm!r}")
    return Entry(name or run.algorithm, Path(place), run)


def _check_distinct(entries: list[Entry]) -> None:
    seen: dict[tuple[str, str], Entry] = {}
    for entry in entries:
        other = seen.setdefault((entry.task, entry.method), entry)
        if other is not entry:
            raise SafestitchError(
                f"{other.directory} and {entry.directory} are both {entry.method} on "
                f"{entry.task}: tell them apart with NAME=RUN, as in better={entry.directory}"
            )


def _check_alike(entries: list[Entry]) -> None:
    """On one task, all methods must have learned from the same data."""
    first: dict[str, Entry] = {}
    for entry in entries:
        other = first.setdefault(entry.task, entry)
        if entry.run.spec != other.run.spec:
            raise SafestitchError(
                f"{other.directory} and {entry.directory} are both of {entry.task}, but of "
                f"different tasks of that name ({other.run.spec} and {entry.run.spec}): compare "
                "them apart"
            )
        if entry.run.data_fingerprint != other.run.data_fingerprint:
            raise SafestitchError(
                f"{other.directory} learned {entry.task} from {data_name(other.run)} "
                f"(fingerprint {other.run.data_fingerprint[:12]}), {entry.directory} from "
                f"{data_name(entry.run)} ({entry.run.data_fingerprint[:12]}): methods are "
                "compared on the same data, so train one of them again"
            )


def data_name(run: runs.Run) -> str:
    """What a run learned from, without the folders of the machine it ran on.

    Data that safestitch made are always said to be so: they are not the public ones.
    """
    origin, is_file, path = run.data_source.partition("file ")
    if not is_file:
        built_in = run.data_source.startswith("built-in")
        return f"{run.data_source}, made by safestitch" if built_in else run.data_source
    name = PurePath(path).name
    if origin.startswith("made by"):
        return f"{origin.rstrip(', ')} ({name})"
    entry = public_files().get(run.spec.task)
    return f"{PAPER_DATA} ({name})" if entry and name == entry.dsrl_file else f"the file {name}"
