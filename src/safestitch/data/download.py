"""Download public data: mirrors in turn, resumed where it stopped, never half a file.

NAME.hdf5              only ever a whole, checked file: it is renamed into place
NAME.hdf5.json         its SHA-256 as first seen; another one later is an error
NAME.hdf5.part         what has arrived of it
NAME.hdf5.part.json    whose bytes those are: address, version, size
"""

import contextlib
import dataclasses
import errno
import fcntl
import hashlib
import json
import os
import shutil
import time
import urllib.parse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from safestitch.catalog import Entry
from safestitch.data.places import PART, data_dir, flaw
from safestitch.data.transfer import (
    Answer,
    Busy,
    Dropped,
    NoMore,
    Progress,
    Refused,
    Unreachable,
    ask,
    pour,
)
from safestitch.files import write_atomic
from safestitch.records import SafestitchError

MIRRORS = (
    "https://huggingface.co/datasets/YYY-45/DSRL/resolve/main/",
    "http://data.offline-saferl.org/download/",
)


class DownloadError(SafestitchError):
    """A file could not be had; the message says what each mirror did."""


@dataclasses.dataclass(frozen=True)
class Patience:
    """When to try again, and when to give a mirror up."""

    attempts: int = 5
    """Tries in a row that bring nothing new."""
    knocks: int = 2
    """Such tries that do not even bring an answer."""
    stall: float = 30.0
    """Seconds without data after which a connection is given up."""
    backoff: float = 1.0
    """Seconds before the second try, doubled before each further one, at most 30."""


def get(
    entry: Entry,
    directory: Path | None = None,
    mirrors: Sequence[str] = (),
    patience: Patience | None = None,
    progress: Progress | None = None,
) -> Path:
    """The file of a public data set: found on disk, or downloaded.

    Args:
        entry: The data set.
        directory: Where it is looked for and put; `places.data_dir()` unless given.
        mirrors: Addresses tried before `MIRRORS`; `{file}` in one stands for the file name, which
            is otherwise appended.
        patience: How long to try.
        progress: Called with bytes on disk and bytes in all.

    Raises:
        DownloadError: if no mirror has it, or it is not the file first downloaded.
    """
    path = (directory or data_dir()) / entry.dsrl_file
    if path.exists() and flaw(path) is None:
        _remember(path, path, "found on disk")
        return path
    urls = [_address(mirror, entry.dsrl_file) for mirror in (*mirrors, *MIRRORS)]
    return download(urls, path, patience=patience, progress=progress)


def download(
    urls: Sequence[str],
    path: Path,
    *,
    patience: Patience | None = None,
    progress: Progress | None = None,
) -> Path:
    """Bring one HDF5 file to `path`, from the first address that has it whole."""
    patience = patience or Patience()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _held(Path(f"{path}{PART}")) as part:
            failures = []
            for url in urls:
                failure = _from_mirror(url, path, part, patience, progress)
                if failure is None:
                    return path
                failures.append(f"\n  {url}: {failure}")
    except OSError as error:
        raise _disk_error(path, error) from None
    raise DownloadError(
        f"could not download {path.name}:{''.join(failures)}\nTry again later (what has arrived is "
        f"kept, and continued), name another server with --mirror, or put the file into "
        f"{path.parent} yourself"
    )


def _from_mirror(
    url: str, path: Path, part: BinaryIO, patience: Patience, progress: Progress | None
) -> str | None:
    """Try one mirror until it has brought the file, or is given up: then the reason."""
    furthest, failed, knocked = 0, 0, 0
    while True:
        try:
            source = _fetch(url, path, part, patience, progress)
            _finish(path, part, source)
            return None
        except Refused as reason:
            return str(reason)
        except Dropped as reason:
            arrived = os.fstat(part.fileno()).st_size
            failed = 1 if arrived > furthest else failed + 1
            knocked = knocked + 1 if isinstance(reason, Unreachable) else 0
            furthest = max(furthest, arrived)
            if failed >= patience.attempts or knocked >= patience.knocks:
                return str(reason)
            asked = reason.wait if isinstance(reason, Busy) else None
            time.sleep(min(patience.backoff * 2 ** (failed - 1), 30) if asked is None else asked)


def _fetch(
    url: str, path: Path, part: BinaryIO, patience: Patience, progress: Progress | None
) -> dict[str, Any]:
    """Have all bytes in the part file, and return what is known of them: the journal."""
    journal_path = Path(f"{path}{PART}.json")
    journal, arrived = _read(journal_path), os.fstat(part.fileno()).st_size
    ours = journal.get("url") == url and journal.get("validator") is not None
    if ours and arrived == journal.get("size"):
        return journal
    if not ours or arrived > (journal.get("size") or arrived):
        arrived = 0
    try:
        answer = ask(url, arrived, journal.get("validator"), patience.stall)
    except NoMore:
        if flaw(Path(f"{path}{PART}")) is None:
            return journal  # it had announced more than it has
        part.truncate(0)
        raise
    with answer.body:
        if answer.offset and answer.size != journal.get("size"):
            part.truncate(0)
            raise Dropped("the file has changed on the server since the download began")
        _check_space(path, answer)
        if not answer.offset:
            # In this order, so that a kill between the two leaves no bytes with another's journal.
            part.truncate(0)
            journal = {"url": url, "validator": answer.validator}
            journal |= {"size": answer.size, "sha256": answer.sha256}
            write_atomic(journal_path, json.dumps(journal).encode())
        try:
            pour(answer, part, patience.stall, progress)
        except Refused:
            part.truncate(0)
            raise
    return journal


def _finish(path: Path, part: BinaryIO, source: dict[str, Any]) -> None:
    """Check the whole file and rename it into place; a wrong one is thrown away."""
    part_path = Path(f"{path}{PART}")
    try:
        wrong = flaw(part_path)
        if wrong:
            raise Dropped(f"what it sent {wrong}")
        os.fsync(part.fileno())
        _remember(part_path, path, source["url"], source.get("sha256"))
    except (Dropped, Refused):
        part.truncate(0)
        raise
    os.replace(part_path, path)
    with contextlib.suppress(OSError):
        Path(f"{part_path}.json").unlink()


def _remember(file: Path, path: Path, source: str, published: str | None = None) -> None:
    """Compare with the checksum first seen for `path`, or record it if this is the first time."""
    with open(file, "rb") as handle:
        found = hashlib.file_digest(handle, "sha256").hexdigest()
    if published is not None and found != published:
        raise Dropped(f"damaged on the way: its SHA-256 is {found}, published is {published}")
    record = Path(f"{path}.json")
    known = _read(record).get("sha256")
    if known is None and os.access(path.parent, os.W_OK):  # a shared directory may be read-only
        facts = {"sha256": found, "size": file.stat().st_size, "source": source}
        write_atomic(record, (json.dumps(facts, indent=1) + "\n").encode())
    elif known not in (None, found):
        message = (
            f"it is not the file first seen: its SHA-256 is {found}, recorded is {known}. Either "
            "was replaced or tampered with. To keep the one at hand, delete the record "
        )
        if file == path:
            raise DownloadError(
                f"{path}: {message}{record}; to download it anew, delete {path.name}"
            )
        raise Refused(f"{message}{record} and download again")


@contextlib.contextmanager
def _held(part: Path) -> Iterator[BinaryIO]:
    """The part file, open and ours alone; the system frees it when the process ends."""
    descriptor = os.open(part, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    with open(descriptor, "r+b") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Whoever held it before may have renamed it into place in between.
            ours = os.path.samestat(os.fstat(descriptor), os.stat(part))
        except (BlockingIOError, FileNotFoundError):
            ours = False
        if not ours:
            raise DownloadError(f"{part} is being downloaded by another process: wait for it")
        try:
            yield handle
        finally:
            if os.fstat(descriptor).st_size == 0:
                part.unlink(missing_ok=True)


def _check_space(path: Path, answer: Answer) -> None:
    free = shutil.disk_usage(path.parent).free
    needed = (answer.size or 0) - answer.offset
    if needed > free:
        raise DownloadError(
            f"{path.name} needs {needed:,} more bytes, but {path.parent} has room for {free:,}: "
            "free some space, or point DSRL_DATASET_DIR elsewhere"
        )


def _disk_error(path: Path, error: OSError) -> DownloadError:
    full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    advice = (
        "free some space and try again: what has arrived is kept, and continued"
        if full
        else "mend the permissions, or point DSRL_DATASET_DIR elsewhere"
    )
    return DownloadError(f"cannot write {path}: {error.strerror}. {advice.capitalize()}")


def _address(mirror: str, file: str) -> str:
    parts = urllib.parse.urlsplit(mirror)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise SafestitchError(f"--mirror {mirror}: expected an address such as https://host/folder")
    return mirror.replace("{file}", file) if "{file}" in mirror else f"{mirror.rstrip('/')}/{file}"


def _read(path: Path) -> dict[str, Any]:
    """A small JSON object, or {} if there is none."""
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
