"""Import CSV files of growing size: seconds, megabytes a second, and peak memory of the process.

    python bench/import_memory.py [--megabytes 100 400 1600]

Peak memory must not grow with the file. Where pyarrow is missing the exact reader is measured.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import _results
import numpy as np

PROGRAM = """
import resource, sys
from safestitch.data.importing import import_logs
import_logs(sys.argv[1], sys.argv[2])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""
COLUMNS = [f"obs.{i}" for i in range(20)] + [f"action.{i}" for i in range(4)] + ["reward"]


def write_log(path: Path, megabytes: int) -> int:
    """Repeat a block of steps under new episode names until the file is large enough."""
    rng = np.random.default_rng(0)
    numbers = [",".join(map(str, row)) for row in rng.standard_normal((5000, 25)).astype("f4")]
    episode = 0
    with open(path, "w") as handle:
        handle.write(",".join([*COLUMNS, "cost", "step", "episode"]) + "\n")
        while handle.tell() < megabytes * 1_000_000:
            for first in range(0, 5000, 500):
                part = numbers[first : first + 500]
                handle.writelines(f"{n},{i % 7 == 0:d},{i},{episode}\n" for i, n in enumerate(part))
                episode += 1
    return 500 * episode


def measure(log: Path, out: Path) -> tuple[float, float]:
    """Seconds, and megabytes of peak memory."""
    begin = time.monotonic()
    command = [sys.executable, "-c", PROGRAM, str(log), str(out)]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    unit = 1 if sys.platform == "darwin" else 1024  # ru_maxrss: bytes there, kilobytes elsewhere
    return time.monotonic() - begin, int(result.stdout) * unit / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description="speed and memory of an import")
    parser.add_argument("--megabytes", type=int, nargs="+", default=[100, 400, 1600])
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as name:
        for megabytes in options.megabytes:
            log, out = Path(name) / "log.csv", Path(name) / "my.h5"
            steps = write_log(log, megabytes)
            seconds, peak = measure(log, out)
            size = log.stat().st_size / 1e6
            rows.append(
                {
                    "csv MB": round(size),
                    "steps": steps,
                    "seconds": seconds,
                    "MB/s": size / seconds,
                    "peak MB": peak,
                    "hdf5 MB": out.stat().st_size / 1e6,
                }
            )
            out.unlink()
    _results.show("import of CSV", rows)
    _results.finish(
        rows=rows,
        peak_ratio=rows[-1]["peak MB"] / rows[0]["peak MB"],
        size_ratio=rows[-1]["csv MB"] / rows[0]["csv MB"],
    )


if __name__ == "__main__":
    main()
