"""Files: never half written, whatever kills the writer; never links to somewhere else."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from safestitch.records import DataError, SafestitchError


def write_atomic(path: Path, content: bytes) -> None:
    """Replace a file so that no reader, kill or full disk ever leaves half of it.

    Raises:
        SafestitchError: if it cannot be written; what was there before is untouched.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as handle:
            handle.write(content)
            handle.flush()
            os.fsync(handle.fileno())
        os.replace(temporary, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise write_error(path, error) from None


@contextlib.contextmanager
def held(directory: Path, taken: str) -> Iterator[None]:
    """Hold a directory for writing; the system frees it when the process ends, however it ends.

    Raises:
        SafestitchError: `taken`, if another process holds it.
        OSError: if the disk refuses.
    """
    directory.mkdir(parents=True, exist_ok=True)
    with open(directory / ".lock", "a+") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SafestitchError(taken) from None
        yield


def write_error(path: Path, error: Exception) -> SafestitchError:
    """What to tell the user when a file cannot be written."""
    reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
    return SafestitchError(
        f"cannot write {path}: {reason}. What was there before is untouched; free some space or "
        "mend the permissions and try again"
    )


def refuse_links(*paths: Path) -> None:
    """Raise if one of the files of a data set is a link, which may lead anywhere.

    Raises:
        DataError: names it.
    """
    for path in paths:
        if path.is_symlink():
            raise DataError(f"{path} is a link: put the file itself there")
