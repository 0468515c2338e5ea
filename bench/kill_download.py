"""Kill a download at random points, start it again, and compare the file byte by byte.

    python bench/kill_download.py [--kills 50]

Every kill is a SIGKILL of a real `safestitch data get`, at a random byte of the transfer or, one
in five, at a random moment after the last byte: while it is checked, recorded and renamed.
"""

import argparse
import http.server
import io
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import _results
import h5py
import numpy as np

from safestitch.catalog import get_public
from safestitch.data.places import find
from safestitch.records import SafestitchError

ENTRY = get_public("CarCircle")
BLOCK = 1 << 17
SECONDS = 0.3
"""How long the server takes over a whole file."""


def content(megabytes: int) -> bytes:
    buffer = io.BytesIO()
    with h5py.File(buffer, "w") as file:
        file["observations"] = np.random.default_rng(0).random((megabytes << 20) // 8)
    return buffer.getvalue()


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves one file, whole or from some byte on, and counts what it sends."""

    def do_GET(self) -> None:
        """Answer a request."""
        whole = Server.content
        asked = self.headers.get("Range") if self.headers.get("If-Range") == '"v1"' else None
        first = int(asked.removeprefix("bytes=").rstrip("-")) if asked else 0
        self.send_response(206 if first else 200)
        self.send_header("ETag", '"v1"')
        self.send_header("Content-Length", str(len(whole) - first))
        if first:
            self.send_header("Content-Range", f"bytes {first}-{len(whole) - 1}/{len(whole)}")
        self.end_headers()
        try:
            for start in range(first, len(whole), BLOCK):
                self.wfile.write(whole[start : start + BLOCK])
                Server.sent += len(whole[start : start + BLOCK])
                time.sleep(SECONDS * BLOCK / len(whole))
        except OSError:
            self.close_connection = True  # killed

    def log_message(self, *_, **__) -> None:
        """Quiet."""


class Server(http.server.ThreadingHTTPServer):
    """On this machine only."""

    daemon_threads = True
    content = b""
    sent = 0


def start(url: str, directory: Path) -> subprocess.Popen:
    command = [sys.executable, "-m", "safestitch", "data", "get", ENTRY.task, "--mirror", url]
    return subprocess.Popen(
        [*command, "--dir", str(directory)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )


def kill(process: subprocess.Popen, path: Path, at: int, delay: float) -> str:
    """SIGKILL once so many bytes are there and so many seconds have passed; what was found."""
    part = path.with_name(f"{path.name}.part")
    while process.poll() is None and not path.exists():
        if part.exists() and part.stat().st_size >= at:
            time.sleep(delay)
            break
        time.sleep(0.0005)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    if path.exists():
        return "whole" if path.read_bytes() == Server.content else "PARTIAL AT ITS NAME"
    try:
        find(ENTRY.task, path.parent)
        return "PARTIAL TAKEN FOR WHOLE"
    except SafestitchError:
        return "a part"


def main() -> None:
    parser = argparse.ArgumentParser(description="kill and resume a download")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--after", type=float, default=0.1, help="seconds after the last byte")
    parser.add_argument("--megabytes", type=int, default=16)
    options = parser.parse_args()
    draw = random.Random(options.seed)
    Server.content = content(options.megabytes)
    size, rows = len(Server.content), []
    with Server(("127.0.0.1", 0), Handler) as server, tempfile.TemporaryDirectory() as name:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_address[1]}"
        for number in range(options.kills):
            path = Path(name, str(number), ENTRY.dsrl_file)
            after = number % 5 == 4
            at, delay = (
                (size, draw.uniform(0, options.after)) if after else (draw.randrange(size), 0.0)
            )
            found = kill(start(url, path.parent), path, at, delay)
            arrived = sum(p.stat().st_size for p in path.parent.glob("*.part"))
            Server.sent = 0
            _, errors = (process := start(url, path.parent)).communicate()
            same = process.returncode == 0 and path.read_bytes() == Server.content
            left = sorted(p.name for p in path.parent.iterdir())
            rows.append(
                {
                    "kill": number,
                    "in": "finish" if after else "transfer",
                    "found": found,
                    "of it, %": 100 * arrived / size if found != "whole" else 100.0,
                    "sent again, %": 100 * max(0, Server.sent + arrived - size) / size,
                    "identical": same and left == [path.name, f"{path.name}.json"],
                    "said": errors.decode()[:60],
                }
            )
        server.shutdown()
    _results.show(f"SIGKILL at {options.kills} points of a download of {size:,} bytes", rows)
    bad = [row for row in rows if not row["identical"] or "PARTIAL" in row["found"]]
    _results.finish(
        kills=options.kills,
        identical=sum(row["identical"] for row in rows),
        partial_taken_for_whole=sum("PARTIAL" in row["found"] for row in rows),
        found_whole=sum(row["found"] == "whole" for row in rows),
        most_sent_again_percent=max(row["sent again, %"] for row in rows),
    )
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
