"""Downloads from a server on this machine that does everything wrong that servers do."""

import dataclasses
import hashlib
import http.server
import io
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import h5py
import numpy as np
import pytest

from safestitch.catalog import get_public
from safestitch.data import download as module
from safestitch.data.download import DownloadError, Patience, download, get
from safestitch.data.places import flaw
from safestitch.records import SafestitchError

ENTRY = get_public("CarCircle")
QUICK = Patience(attempts=3, knocks=2, stall=0.3, backoff=0.01)


def hdf5(rows: int, seed: int = 0) -> bytes:
    buffer = io.BytesIO()
    with h5py.File(buffer, "w") as file:
        file["rewards"] = np.random.default_rng(seed).random(rows)
    return buffer.getvalue()


WHOLE = hdf5(30_000)
OTHER = hdf5(30_000, seed=1)


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers as the next act of the script says, and as it should when the script is over."""

    server: "Server"  # pyright: ignore[reportIncompatibleVariableOverride]

    def do_GET(self) -> None:
        self.server.asked.append((self.path, self.headers.get("Range")))
        script = self.server.script
        act = script.pop(0) if script else serve
        act(self)
        self.close_connection = True

    def log_message(self, *_, **__) -> None:
        pass

    def head(self, status: int, **headers) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()

    def hang_up(self) -> None:
        """Close as a crash does, without a farewell."""
        self.wfile.flush()
        self.connection.shutdown(socket.SHUT_RDWR)


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.content = WHOLE
        self.etag = '"first"'
        self.script: list[Callable[[Handler], None]] = []
        self.asked: list[tuple[str, str | None]] = []
        self.over = threading.Event()

    def handle_error(self, *_, **__) -> None:
        pass  # the other side may hang up at any time

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as one:
        thread = threading.Thread(target=one.serve_forever, args=(0.01,))
        thread.start()
        yield one
        one.over.set()
        one.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def only_our_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MIRRORS", ())


# --- what servers do ---------------------------------------------------------------------------


def serve(self: Handler, cut: int | None = None, then=None, **changed) -> None:
    """The file or the rest of it, as it should be; cut short, if asked."""
    content, start = self.server.content, 0
    headers: dict[str, object] = {"ETag": self.server.etag or None}
    asked = self.headers.get("Range")
    if asked and self.headers.get("If-Range") == self.server.etag:
        start = int(asked.removeprefix("bytes=").removesuffix("-"))
        if start >= len(content):
            return self.head(416, Content_Range=f"bytes */{len(content)}")
        headers["Content_Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
    headers["Content_Length"] = len(content) - start
    headers.update(changed)
    self.head(206 if start else 200, **{n: v for n, v in headers.items() if v is not None})
    self.wfile.write(content[start : None if cut is None else start + cut])
    if then:
        then(self)


def drop_after(count: int):
    return lambda self: serve(self, count, Handler.hang_up)


def stall_after(count: int):
    return lambda self: serve(self, count, lambda handler: handler.server.over.wait(20))


def trickle(self: Handler) -> None:
    def drip(handler: Handler) -> None:
        for i in range(1000):
            handler.wfile.write(WHOLE[100 + i : 101 + i])
            if handler.server.over.wait(0.05):
                return

    serve(self, 100, drip)


def status(code: int, **headers):
    return lambda self: self.head(code, Content_Length=0, **headers)


def page(self: Handler) -> None:
    text = b"<!DOCTYPE html><title>Moved</title>" + b" " * 4000
    self.head(200, Content_Type="text/html", Content_Length=len(text))
    self.wfile.write(text)


def page_in_disguise(self: Handler) -> None:
    text = b"<!DOCTYPE html><title>Moved</title>" + b" " * 4000
    self.head(200, Content_Type="application/octet-stream", Content_Length=len(text))
    self.wfile.write(text)


def declare(length):
    """Declare this length whatever is sent."""
    return lambda self: serve(self, Content_Length=length)


def garbage(self: Handler) -> None:
    self.wfile.write(b"\x00\x01 nonsense\r\n\r\n")


def redirect(to: str, **headers):
    return lambda self: self.head(302, Location=to, Content_Length=0, **headers)


def no_validator(self: Handler, cut: int | None = None) -> None:
    serve(self, cut, Handler.hang_up if cut else None, ETag=None)


def wrong_range(self: Handler) -> None:
    serve(self, Content_Range=f"bytes 7-{len(WHOLE) - 1}/{len(WHOLE)}")


# --- downloads that succeed --------------------------------------------------------------------


def fetch(server: Server, directory: Path = Path("data")) -> Path:
    return get(ENTRY, directory, [server.url], QUICK)


def ranges(server: Server) -> list[str | None]:
    return [asked for _, asked in server.asked]


def assert_whole(path: Path, content: bytes = WHOLE) -> None:
    assert path.name == ENTRY.dsrl_file
    assert path.read_bytes() == content
    record = json.loads(Path(f"{path}.json").read_text())
    assert record["sha256"] == hashlib.sha256(content).hexdigest()
    assert sorted(p.name for p in path.parent.iterdir()) == [path.name, f"{path.name}.json"]


def test_a_download(server: Server):
    seen = []
    path = get(ENTRY, Path("data"), [server.url], QUICK, lambda *now: seen.append(now))
    assert_whole(path)
    assert seen[-1] == (len(WHOLE), len(WHOLE))
    assert server.asked == [(f"/{ENTRY.dsrl_file}", None)]


def test_the_directory_of_dsrl(server: Server, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DSRL_DATASET_DIR", "elsewhere")
    assert get(ENTRY, None, [server.url + "/{file}?download=true"], QUICK).parent == Path(
        "elsewhere"
    )
    assert server.asked[0][0] == f"/{ENTRY.dsrl_file}?download=true"


def test_what_is_there_is_not_downloaded(server: Server):
    fetch(server)
    assert_whole(fetch(server))
    assert len(server.asked) == 1


def test_a_file_of_another_tool_is_found_and_remembered(server: Server):
    Path("data").mkdir()
    Path("data", ENTRY.dsrl_file).write_bytes(WHOLE)
    assert_whole(fetch(server))
    assert not server.asked


def test_half_a_file_of_another_tool_is_replaced(server: Server):
    Path("data").mkdir()
    Path("data", ENTRY.dsrl_file).write_bytes(WHOLE[:1000])
    assert_whole(fetch(server))


@pytest.mark.parametrize("act", [drop_after(9000), stall_after(9000), declare(len(WHOLE) + 99)])
def test_goes_on_where_it_stopped(server: Server, act):
    server.script = [act]
    assert_whole(fetch(server))
    assert len(server.asked) == 2
    assert ranges(server)[1] in ("bytes=9000-", f"bytes={len(WHOLE)}-")


def test_goes_on_in_another_process(server: Server):
    server.script = [drop_after(9000), drop_after(0), drop_after(0)]
    with pytest.raises(DownloadError, match="9,000 of"):
        fetch(server)
    assert not Path("data", ENTRY.dsrl_file).exists()
    assert_whole(fetch(server))
    assert ranges(server)[-1] == "bytes=9000-"


def test_many_drops_are_borne_while_something_new_comes(server: Server):
    server.script = [drop_after(20_000)] * 10
    assert_whole(fetch(server))


@pytest.mark.parametrize(
    "act",
    [trickle, status(503), status(429, Retry_After="0"), garbage, lambda self: self.hang_up()],
    ids=["trickle", "busy", "too many", "garbage", "silence"],
)
def test_tries_again(server: Server, act):
    server.script = [act]
    assert_whole(fetch(server))
    assert len(server.asked) == 2


def test_a_version_that_changed_in_between_starts_anew(server: Server):
    server.script = [drop_after(9000), drop_after(0), drop_after(0)]
    with pytest.raises(DownloadError):
        fetch(server)
    server.content, server.etag = OTHER, '"second"'
    assert_whole(fetch(server), OTHER)


def test_without_a_validator_it_starts_anew(server: Server):
    server.script = [lambda self: no_validator(self, 9000), no_validator]
    assert_whole(fetch(server))
    assert ranges(server) == [None, None]


def test_without_a_length(server: Server):
    server.script = [lambda self: serve(self, Content_Length=None)]
    assert_whole(fetch(server))


def test_cut_short_without_a_length_is_noticed(server: Server):
    server.script = [lambda self: serve(self, 9000, Content_Length=None)]
    assert_whole(fetch(server))
    assert len(server.asked) == 2


def test_too_short_a_length_is_noticed(server: Server):
    server.script = [declare(9000)]
    assert_whole(fetch(server))


def test_the_next_mirror(server: Server):
    closed = socket.create_server(("127.0.0.1", 0))
    gone = f"http://127.0.0.1:{closed.getsockname()[1]}"
    closed.close()
    server.script = [status(404), page]
    mirrors = [gone, f"{server.url}/a", f"{server.url}/b", f"{server.url}/c"]
    assert_whole(get(ENTRY, Path("data"), mirrors, QUICK))
    assert [path.split("/")[1] for path, _ in server.asked] == ["a", "b", "c"]


def test_a_mirror_without_the_file_does_not_lose_what_came_from_another(server: Server):
    server.script = [drop_after(9000), drop_after(0), drop_after(0)]
    with pytest.raises(DownloadError):
        fetch(server)
    server.script = [status(404)]
    get(ENTRY, Path("data"), [f"{server.url}/other", server.url], QUICK)
    assert ranges(server)[-1] == "bytes=9000-"


def test_the_published_checksum(server: Server):
    linked = {
        "X_Linked_ETag": f'"{hashlib.sha256(WHOLE).hexdigest()}"',
        "X_Linked_Size": len(WHOLE),
    }
    damaged = bytearray(WHOLE)
    damaged[5000] ^= 1
    server.content = bytes(damaged)

    def repaired(self: Handler) -> None:
        server.content = WHOLE
        redirect("/storage", **linked)(self)

    server.script = [redirect("/storage", **linked), serve, repaired]
    assert_whole(fetch(server))
    assert len(server.asked) == 4


# --- downloads that fail -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("act", "words"),
    [
        (status(404), "does not have it"),
        (status(403), "forbids it"),
        (page, "web page"),
        (page_in_disguise, "<!DOCTYPE html>"),
        (redirect("/again"), "redirects without end"),
        (redirect("file:///etc/passwd"), "redirects"),
        (declare(1 << 40), "more than any of these files"),
        (lambda self: serve(self, Content_Encoding="gzip"), "encoded"),
        (lambda self: serve(self, 10, Content_Length=10), "damaged"),
    ],
)
def test_a_mirror_is_given_up(server: Server, act, words: str):
    server.script = [act] * 20
    with pytest.raises(DownloadError, match=words) as error:
        fetch(server)
    assert "--mirror" in str(error.value)
    assert not [p for p in Path("data").iterdir() if p.suffix == ".hdf5"]


@pytest.mark.parametrize(
    "act", [stall_after(0), drop_after(0), drop_after(9000), status(503), garbage, declare(9000)]
)
def test_what_never_gets_better_is_given_up(server: Server, act):
    server.script = [act] * 1000
    server.etag = ""  # nothing can be continued
    with pytest.raises(DownloadError):
        fetch(server)
    assert len(server.asked) <= 3
    assert not Path("data", ENTRY.dsrl_file).exists()


def test_a_wrong_range_is_refused(server: Server):
    server.script = [drop_after(9000), wrong_range]
    with pytest.raises(DownloadError, match="from 9,000 on, it serves from 7 on"):
        fetch(server)


def test_another_checksum_later_is_an_error(server: Server):
    path = fetch(server)
    path.unlink()
    server.content = OTHER
    with pytest.raises(DownloadError, match=r"not the file first seen.*delete the record"):
        fetch(server)
    assert not path.exists()
    Path(f"{path}.json").unlink()
    assert_whole(fetch(server), OTHER)


def test_a_file_changed_on_disk_is_an_error(server: Server):
    path = fetch(server)
    path.write_bytes(OTHER)
    with pytest.raises(DownloadError, match="not the file first seen"):
        fetch(server)
    assert path.read_bytes() == OTHER


def test_more_than_the_disk_holds(server: Server, monkeypatch: pytest.MonkeyPatch):
    free = module.shutil.disk_usage(".")._replace(free=1000)
    monkeypatch.setattr(module.shutil, "disk_usage", lambda _: free)
    with pytest.raises(DownloadError, match="room for 1,000"):
        fetch(server)


def test_two_at_once(server: Server):
    server.script = [stall_after(9000)]
    patient = dataclasses.replace(QUICK, stall=20.0)
    first = threading.Thread(target=get, args=(ENTRY, Path("data"), [server.url], patient))
    first.start()
    part = Path("data", f"{ENTRY.dsrl_file}.part")
    while not (part.exists() and part.stat().st_size == 9000):
        time.sleep(0.01)
    with pytest.raises(DownloadError, match="another process"):
        fetch(server)
    server.over.set()
    first.join()
    assert_whole(Path("data", ENTRY.dsrl_file))


@pytest.mark.parametrize("mirror", ["ftp://host/x", "file:///tmp", "host/folder", "", "https://"])
def test_what_is_not_a_mirror(mirror: str):
    with pytest.raises(SafestitchError, match="expected an address"):
        get(ENTRY, Path("data"), [mirror], QUICK)


# --- kills -------------------------------------------------------------------------------------

PROGRAM = """
import resource, sys
from pathlib import Path
from safestitch.data.download import Patience, download
limit = int(sys.argv[3])
if limit:
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
try:
    download([sys.argv[1]], Path(sys.argv[2]), patience=Patience(stall=20))
except ValueError as error:
    sys.exit(str(error))
"""


def start(url: str, path: Path, limit: int = 0) -> subprocess.Popen:
    command = [sys.executable, "-c", PROGRAM, url, str(path), str(limit)]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


def test_kill_and_resume(server: Server):
    path = Path("whole.hdf5")
    server.script = [stall_after(50_000)]
    process = start(server.url, path)
    part = Path("whole.hdf5.part")
    while not (part.exists() and part.stat().st_size == 50_000):
        assert process.poll() is None
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert not path.exists()
    assert flaw(part)
    download([server.url], path, patience=QUICK)
    assert path.read_bytes() == WHOLE
    assert ranges(server)[-1] == "bytes=50000-"


def test_a_disk_that_fills_up(server: Server):
    """A limit on the size of files stands for the disk: the system's answer is of the same kind."""
    path = Path("whole.hdf5")
    process = start(server.url, path, limit=65536)
    _, said = process.communicate()
    assert process.returncode == 1
    assert "Free some space" in said and "Traceback" not in said
    assert not path.exists()
    download([server.url], path, patience=QUICK)
    assert path.read_bytes() == WHOLE
    assert ranges(server)[-1] == "bytes=65536-"
