"""One request to one server: what it answers, and its body poured into an open file.

A server is taken at its word about nothing: status, kind, range, length and speed are checked.
"""

import contextlib
import dataclasses
import http.client
import importlib.metadata
import os
import re
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any, BinaryIO

from safestitch.data.places import SIGNATURE

BLOCK = 1 << 20
LARGEST = 16 << 30
"""Bytes; no public file is nearly as large, and an endless answer must end."""
SLOWEST = 64
"""Bytes a second; a server slower than this over the stall time has stalled."""

Progress = Callable[[int, int | None], None]
"""Called with the bytes on disk and the bytes of the whole file, if that is known."""


class Refused(Exception):
    """An answer that trying again will not better."""


class Dropped(Exception):
    """An answer that broke off; trying again may finish it."""


class Unreachable(Dropped):
    """No answer at all."""


class NoMore(Dropped):
    """The file ends where the rest of it was asked for."""


class Busy(Dropped):
    """The server asks to come again later."""

    def __init__(self, message: str, wait: float | None):
        super().__init__(message)
        self.wait = wait


@dataclasses.dataclass(frozen=True)
class Answer:
    """What a server says about a file, before its bytes."""

    body: http.client.HTTPResponse
    offset: int
    """Where in the file the body begins."""
    size: int | None
    """Bytes of the whole file."""
    validator: str | None
    """Names this version of the file: only with it can a broken-off transfer be continued."""
    sha256: str | None
    """Of the whole file, where the publisher states it."""


def ask(url: str, offset: int, validator: str | None, timeout: float) -> Answer:
    """Ask for a file from `offset` on; the answer may begin at 0 if the server so decides.

    Raises:
        Refused, Dropped: if there is nothing to pour.
    """
    headers = {
        "User-Agent": f"safestitch/{importlib.metadata.version('safestitch')}",
        "Accept-Encoding": "identity",
    }
    if offset and validator:
        headers |= {"Range": f"bytes={offset}-", "If-Range": validator}
    redirects = _Redirects()
    opener = urllib.request.build_opener(redirects)
    try:
        body = opener.open(urllib.request.Request(url, headers=headers), timeout=timeout)
    except urllib.error.HTTPError as error:
        with error:
            raise _of_status(error) from None
    except urllib.error.URLError as error:
        if isinstance(error.reason, ssl.SSLCertVerificationError):
            raise Refused(f"its certificate is not trusted ({error.reason.reason})") from None
        raise Unreachable(f"no answer ({_words(error.reason)})") from None
    except http.client.InvalidURL:
        raise Refused("not an address") from None
    except (http.client.HTTPException, OSError) as error:
        raise Unreachable(f"no answer ({_words(error)})") from None
    try:
        return _read_headers(body, offset if "Range" in headers else 0, redirects.linked)
    except BaseException:
        body.close()
        raise


def pour(answer: Answer, file: BinaryIO, stall: float, progress: Progress | None) -> None:
    """Write the body into the file, which is cut to where the body begins.

    Raises:
        Refused, Dropped: if the body is not what was announced; what came so far stays.
    """
    file.seek(answer.offset)
    file.truncate()
    position, checked = answer.offset, answer.offset > 0
    window, window_position = time.monotonic(), position
    while True:
        block = _next_block(answer, stall)
        if not block:
            break
        position += len(block)
        if position > (LARGEST if answer.size is None else answer.size):
            raise Refused(f"it sends more than the {answer.size or LARGEST:,} bytes it may")
        file.write(block)
        file.flush()
        if not checked and position >= len(SIGNATURE):
            checked = True
            _check_signature(os.pread(file.fileno(), 64, 0))
        if progress:
            progress(position, answer.size)
        now = time.monotonic()
        if now - window > stall:
            if position - window_position < SLOWEST * stall:
                raise Dropped(f"it stalled: under {SLOWEST} bytes a second for {stall:g} s")
            window, window_position = now, position
    if answer.size is not None and position < answer.size:
        raise Dropped(f"it ended after {position:,} of {answer.size:,} bytes")


def _next_block(answer: Answer, stall: float) -> bytes:
    try:
        return answer.body.read1(BLOCK)
    except TimeoutError:
        raise Dropped(f"it stalled: nothing for {stall:g} s") from None
    except (http.client.HTTPException, OSError) as error:
        raise Dropped(f"the connection broke off ({_words(error)})") from None


def _check_signature(head: bytes) -> None:
    if not head.startswith(SIGNATURE):
        shown = " ".join(head.decode("ascii", "replace").replace("�", "?").split())[:40]
        raise Refused(f"it serves something that is not HDF5, beginning with {shown!r}")


def _read_headers(
    body: http.client.HTTPResponse, asked: int, linked: tuple[int | None, str | None]
) -> Answer:
    headers = body.headers
    kind = headers.get_content_type()
    if kind in ("text/html", "application/xhtml+xml"):
        raise Refused("it serves a web page, not the file")
    if headers.get("Content-Encoding", "identity") != "identity":
        raise Refused(f"it serves the file encoded as {headers['Content-Encoding']}, unasked")
    length = _number(headers.get("Content-Length"))
    offset, size = 0, length
    if body.status == 206:
        offset, size = _content_range(headers.get("Content-Range", ""))
        if offset != asked:
            raise Refused(f"asked for bytes from {asked:,} on, it serves from {offset:,} on")
        if size is not None and length is not None and offset + length != size:
            raise Refused(f"it contradicts itself: {offset:,} + {length:,} is not {size:,} bytes")
    elif body.status != 200:
        raise Refused(f"status {body.status}")
    linked_size, sha256 = linked
    if linked_size is not None and size is not None and size != linked_size:
        raise Refused(f"it announces {linked_size:,} bytes, then {size:,}")
    size = size if size is not None else linked_size
    if size is not None and size > LARGEST:
        raise Refused(f"it announces {size:,} bytes, more than any of these files has")
    etag = headers.get("ETag", "")
    strong = etag if etag.startswith('"') else None  # a weak one may name other bytes
    return Answer(body, offset, size, strong or headers.get("Last-Modified"), sha256)


def _of_status(error: urllib.error.HTTPError) -> Exception:
    """What to do about a status that is not success."""
    if error.code == 416:
        return NoMore("it does not have the rest of the file")
    if error.code in (408, 425, 429) or error.code >= 500:
        wait = _number(error.headers.get("Retry-After"))
        return Busy(f"status {error.code}", None if wait is None else float(min(wait, 60)))
    if 300 <= error.code < 400:
        return Refused("it redirects without end, or to where a download must not go")
    reasons = {401: "asks for a login", 403: "forbids it", 404: "does not have it"}
    return Refused(f"it {reasons.get(error.code, 'refuses')} (status {error.code})")


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects, never from https to http; keeps what the first server says of the file.

    Hugging Face redirects to a storage server and states size and SHA-256 on the way there.
    """

    def __init__(self):
        self.linked: tuple[int | None, str | None] = (None, None)

    def redirect_request(self, req, fp, code, msg, headers, newurl):
        if req.type == "https" and not newurl.startswith("https://"):
            return None  # the redirect itself is then the error
        etag = headers.get("X-Linked-ETag", "").strip('"').lower()
        sha256 = etag if re.fullmatch("[0-9a-f]{64}", etag) else self.linked[1]
        self.linked = (_number(headers.get("X-Linked-Size")) or self.linked[0], sha256)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _content_range(text: str) -> tuple[int, int | None]:
    found = re.fullmatch(r"bytes (\d{1,18})-\d{1,18}/(\d{1,18}|\*)", text.strip())
    if not found:
        raise Refused(f"it serves a part of the file without saying which ({text!r:.60})")
    return int(found[1]), None if found[2] == "*" else int(found[2])


def _number(text: str | None) -> int | None:
    if text is None:
        return None
    with contextlib.suppress(ValueError):
        return int(text) if 0 <= int(text) < 1 << 62 else None
    return None


def _words(error: Any) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
