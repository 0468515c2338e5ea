"""Where the data of the field's tasks lie on disk, and whether what lies there is whole.

The directory is the one of the `dsrl` package, so that each finds what the other has downloaded.
Data of our own making lie beside the public ones, under a name that says so.
"""

import dataclasses
import os
from pathlib import Path

from safestitch.catalog import Entry, get_public, public_files
from safestitch.records import DataError

SIGNATURE = b"\x89HDF\r\n\x1a\n"
SUFFIXES = (".hdf5", ".h5")
PART = ".part"
"""Suffix of an unfinished download."""
MADE = "-made-by-safestitch.hdf5"
"""What follows the task in the name of a file of our own making."""


@dataclasses.dataclass(frozen=True)
class Held:
    """A data file on disk."""

    path: Path
    size: int
    """Bytes."""
    entry: Entry | None
    """The task whose file name it has."""
    flaw: str | None
    """What shows that it is not whole."""
    made: bool = False
    """By `safestitch data make`, as its name says; not the public data."""


def data_dir() -> Path:
    """`$DSRL_DATASET_DIR`, or `~/.dsrl/datasets`."""
    chosen = os.environ.get("DSRL_DATASET_DIR")
    return Path(chosen).expanduser() if chosen else Path.home() / ".dsrl" / "datasets"


def made_path(entry: Entry, directory: Path | None = None) -> Path:
    """Where `safestitch data make` puts the data of a task unless told otherwise."""
    return (directory or data_dir()) / f"{entry.task}{MADE}"


def held(directory: Path | None = None) -> list[Held]:
    """The HDF5 files of a directory, unfinished downloads included, by name."""
    directory = directory or data_dir()
    public = {entry.dsrl_file: entry for entry in public_files().values()}
    made = {made_path(entry).name: entry for entry in public.values()}
    try:
        paths = sorted(path for path in directory.iterdir() if path.is_file())
    except FileNotFoundError:
        return []
    except OSError as error:
        raise DataError(f"cannot look into {directory}: {error.strerror}") from None
    found = []
    for path in paths:
        name = path.name.removesuffix(PART)
        if not name.startswith(".") and name.endswith(SUFFIXES):
            unfinished = "an unfinished download" if path.name.endswith(PART) else None
            entry = public.get(name) or made.get(name)
            wrong = unfinished or flaw(path)
            found.append(Held(path, path.stat().st_size, entry, wrong, name in made))
    return found


def find(name: str, directory: Path | None = None) -> Path:
    """The file of a task's data, by its name, DSRL id or file name: the public one, or ours.

    Raises:
        SafestitchError: if the name is unknown, or the file is not there or not whole.
    """
    entry = get_public(name)
    path = (directory or data_dir()) / entry.dsrl_file
    mend = f"download it again with `safestitch data get {entry.task}`"
    if not path.exists():
        absent = path
        path = made_path(entry, directory)
        mend = f"make it again with `safestitch data make {entry.task}`"
        if not path.exists():
            make = f", make its like with `safestitch data make {entry.task}`"
            raise DataError(
                f"{entry.task} is not on disk: {absent} does not exist. Download it with "
                f"`safestitch data get {entry.task}`{make if entry.first_class else ''}, or point "
                "DSRL_DATASET_DIR to where it is"
            )
    wrong = flaw(path)
    if wrong:
        raise DataError(f"{path} {wrong}: {mend}")
    return path


def flaw(path: Path) -> str | None:
    """What shows, from its first bytes and its length, that a file is not a whole HDF5 file.

    Example:
        >>> import pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as name:
        ...     page = pathlib.Path(name, "data.hdf5")
        ...     _ = page.write_text("<html>Not found</html>")
        ...     flaw(page)
        "is not HDF5: it begins with '<html>Not found<'"
    """
    try:
        with open(path, "rb") as handle:
            head, size = handle.read(64), os.fstat(handle.fileno()).st_size
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    if not head.startswith(SIGNATURE):
        shown = head[:16].decode("ascii", "replace").replace("�", "?")
        return f"is not HDF5: it begins with {shown!r}" if head else "is empty"
    declared = declared_size(head)
    if declared is None:
        return "is damaged: its first bytes are not those of an HDF5 file"
    if size < declared:
        return f"is cut short: {size:,} of {declared:,} bytes"
    return None


def declared_size(head: bytes) -> int | None:
    """The length that the first 64 bytes of an HDF5 file declare; None if they declare none.

    Every version of the superblock holds the address of the end of the file.
    """
    if len(head) < 64 or not head.startswith(SIGNATURE):
        return None
    version = head[8]
    if version > 3:
        return None
    width = head[13] if version < 2 else head[9]  # bytes of an address
    if width not in (4, 8):
        return None
    first = {0: 24, 1: 28, 2: 12, 3: 12}[version]  # then: base, something else, end of the file
    return int.from_bytes(head[first + 2 * width : first + 3 * width], "little")
