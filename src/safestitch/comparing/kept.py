"""Records of compared runs: what tables are made of, without networks and without paths.

A record is a run directory of some kilobytes: what was asked, how training went, the return of
every episode. `safestitch compare` and `safestitch reproduce --known` take it for the run.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path, PurePath

from safestitch import runs
from safestitch.comparing.entries import Entry
from safestitch.files import write_atomic


def keep(entries: Sequence[Entry], directory: Path) -> None:
    """Write the record of each run to `directory`/TASK/METHOD."""
    for entry in entries:
        record = directory / entry.task / entry.method
        record.mkdir(parents=True, exist_ok=True)
        copy(entry.directory, record)
        run = dataclasses.replace(entry.run, data_source=without_folders(entry.run.data_source))
        runs.write_json(record / runs.RUN, dataclasses.asdict(run))


def copy(source: Path, record: Path) -> None:
    """Copy the files of a record that are there."""
    for name in runs.RECORD:
        if (source / name).exists():
            write_atomic(record / name, (source / name).read_bytes())


def without_folders(data_source: str) -> str:
    """A data source without the folders of the machine.

    Example:
        >>> without_folders("made by safestitch 0.1.0, file /home/me/BallRun.hdf5")
        'made by safestitch 0.1.0, file BallRun.hdf5'
    """
    origin, is_file, path = data_source.partition("file ")
    return f"{origin}{is_file}{PurePath(path).name}" if is_file else data_source
