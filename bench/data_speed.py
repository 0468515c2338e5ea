"""Reading, opening and training on large data: time and peak memory against the plain way.

    python bench/data_speed.py [--rounds 5] [--directory DIR]

read     a DSRL file (gzip, 40-dimensional observations): ours, h5py reading the same six arrays
         raw, and the reader of the `dsrl` package, which reads all seven. Alternating rounds.
open     a memory-mapped set of 1e8 transitions, written by the streaming writer.
train    GAS at the paper's sizes on a memory-mapped set four times as large as the memory that
         the process may take (RLIMIT_DATA: the kernel refuses more), against the same training
         without a limit and with all data on the device. Alternating rounds.

Every measurement runs in a process of its own; its peak memory is that of `getrusage`. The files
take about 10 GB and are deleted at the end.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import _results

DIMENSIONS = 40
STEPS = 1000
"""Of an episode."""


# --- what runs in processes of their own -------------------------------------------------------


def episodes(transitions: int, dimensions: int, seed: int):
    """Random full-length episodes."""
    import numpy as np  # noqa: PLC0415 (the parent stays small: a child's peak begins with its own)

    from safestitch.episodes import Episodes  # noqa: PLC0415

    rng = np.random.default_rng(seed)
    ends = np.arange(transitions) % STEPS == STEPS - 1
    return Episodes.of(
        rng.standard_normal((transitions, dimensions), np.float32),
        rng.uniform(-1, 1, (transitions, 2)).astype(np.float32),
        rng.uniform(0, 3, transitions).astype(np.float32),
        (rng.uniform(size=transitions) < 0.2).astype(np.float32),
        np.zeros(transitions, bool),
        ends,
    )


def make_file(path: Path, transitions: int) -> dict[str, float]:
    from safestitch.data import dsrl  # noqa: PLC0415

    dsrl.write(path, episodes(transitions, DIMENSIONS, 0))
    return {"megabytes": path.stat().st_size / 1e6}


def make_store(path: Path, transitions: int, dimensions: int) -> dict[str, float]:
    from safestitch.data import store  # noqa: PLC0415

    part = 1_000_000
    made = [episodes(part, dimensions, seed) for seed in range(2)]
    begin = time.perf_counter()
    with store.Writer(path) as writer:
        for i in range(transitions // part):
            writer.append(made[i % 2])
    seconds = time.perf_counter() - begin
    size = sum(file.stat().st_size for file in path.iterdir())
    return {"megabytes": size / 1e6, "seconds": seconds}


def timed(work: Callable[[], Any]) -> dict[str, float]:
    begin = time.perf_counter()
    kept = work()
    seconds = time.perf_counter() - begin
    del kept
    return {"seconds": seconds}


def read_raw(path: Path) -> dict[str, float]:
    import h5py  # noqa: PLC0415

    keys = ("observations", "actions", "rewards", "costs", "terminals", "timeouts")

    def work() -> Any:
        with h5py.File(path) as file:
            return [file[key][:] for key in keys]  # pyright: ignore

    return timed(work)


def read_ours(path: Path) -> dict[str, float]:
    from safestitch.data import dsrl  # noqa: PLC0415

    return timed(lambda: dsrl.read(path))


def read_dsrl(path: Path) -> dict[str, float]:
    """Its reader's own file: the package around it imports every simulator."""
    import importlib.util  # noqa: PLC0415
    import os  # noqa: PLC0415

    import gymnasium  # noqa: PLC0415

    os.environ["DSRL_DATASET_DIR"] = str(path.parent)
    package = importlib.util.find_spec("dsrl")
    assert package and package.origin
    source = Path(package.origin).with_name("offline_env.py")
    spec = importlib.util.spec_from_file_location("dsrl_offline_env", source)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    env = module.OfflineEnv()
    env.observation_space = gymnasium.spaces.Box(-10, 10, (DIMENSIONS,))
    env.action_space = gymnasium.spaces.Box(-1, 1, (2,))
    return timed(lambda: env.get_dataset(str(path)))


def open_store(path: Path) -> dict[str, float]:
    from safestitch.data import load  # noqa: PLC0415

    def work() -> Any:
        opened = load(path)
        facts = opened.returns.max(), opened.cost_returns.max(), opened.lengths.max()
        return opened, facts, opened.fingerprint, opened.observations[opened.steps // 2].sum()

    return timed(work)


def train(path: Path, limit: float, iterations: int) -> dict[str, float]:
    """Seconds per iteration after the first chunk, which is compiled in it."""
    from safestitch.algos import get_algorithm  # noqa: PLC0415
    from safestitch.data import load  # noqa: PLC0415
    from safestitch.records import Spec  # noqa: PLC0415
    from safestitch.training.loop import train as train_on  # noqa: PLC0415

    if limit:
        resource.setrlimit(resource.RLIMIT_DATA, (int(limit), int(limit)))
    algorithm = get_algorithm("gas")
    config = algorithm.Config(iterations=iterations)
    spec = Spec("speed", DIMENSIONS, 2, STEPS, 300.0)
    seen: list[tuple[int, float]] = []
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory() as out:
        train_on(
            algorithm,
            config,
            spec,
            load(path),
            [0],
            Path(out) / "run",
            memory=None if limit else 1e12,
            checkpoint_seconds=1e9,
            progress=lambda step, metrics: seen.append((step, time.perf_counter())),  # noqa: ARG005
        )
        run = json.loads((Path(out) / "run" / "run.json").read_text())
    (first, start), (last, end) = seen[0], seen[-1]
    return {
        "ms": 1e3 * (end - start) / (last - first),
        "setup": start - begin,
        "block_rows": run["block_rows"] or 0,
    }


CHILDREN = {f.__name__: f for f in (make_file, make_store, read_raw, read_ours, read_dsrl)}
CHILDREN |= {f.__name__: f for f in (open_store, train)}


def child(name: str, path: Path, *arguments: float) -> dict[str, float]:
    """Run one of the above in a process of its own."""
    command = [sys.executable, __file__, "--child", name, str(path), *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        raise SystemExit(f"{name} failed:\n{result.stderr[-2000:]}")
    return json.loads(result.stdout.splitlines()[-1])


def be_child(name: str, path: str, *arguments: str) -> None:
    numbers = [int(float(argument)) for argument in arguments]
    figures = CHILDREN[name](Path(path), *numbers)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({**figures, "peak_mb": peak / 1e6}))


# --- the figures -------------------------------------------------------------------------------


def median(rounds: list[dict[str, float]], name: str) -> float:
    return statistics.median(one[name] for one in rounds)


def reading(directory: Path, transitions: int, rounds: int) -> dict[str, float]:
    path = directory / "speed.hdf5"
    made = child("make_file", path, transitions)
    kinds = ("read_raw", "read_ours", "read_dsrl")
    taken = {kind: [] for kind in kinds}
    for _ in range(rounds):
        for kind in kinds:
            taken[kind].append(child(kind, path))
    path.unlink()
    _results.show(
        f"reading {transitions:,} transitions, {made['megabytes']:.0f} MB, {rounds} rounds",
        [
            {"reader": kind[5:], **{n: median(taken[kind], n) for n in ("seconds", "peak_mb")}}
            for kind in kinds
        ],
    )

    def ratio(name: str, other: str) -> float:
        pairs = zip(taken["read_ours"], taken[other], strict=True)
        return statistics.median(a[name] / b[name] for a, b in pairs)

    return {
        "read_time_to_raw": ratio("seconds", "read_raw"),
        "read_memory_to_raw": ratio("peak_mb", "read_raw"),
        "read_time_to_dsrl": ratio("seconds", "read_dsrl"),
        "read_memory_to_dsrl": ratio("peak_mb", "read_dsrl"),
    }


def opening(directory: Path, transitions: int) -> dict[str, float]:
    path = directory / "speed.store"
    made = child("make_store", path, transitions, 8)
    opened = child("open_store", path)
    subprocess.run(["rm", "-r", str(path)], check=True)
    return {
        "open_gigabytes": made["megabytes"] / 1e3,
        "write_seconds": made["seconds"],
        "write_peak_mb": made["peak_mb"],
        "open_seconds": opened["seconds"],
        "open_peak_mb": opened["peak_mb"],
    }


def training(directory: Path, transitions: int, iterations: int, rounds: int) -> dict[str, float]:
    path = directory / "train.store"
    size = 1e6 * child("make_store", path, transitions, DIMENSIONS)["megabytes"]
    limit = size / 4
    limited, free = [], []
    for _ in range(rounds):
        limited.append(child("train", path, limit, iterations))
        free.append(child("train", path, 0, iterations))
    subprocess.run(["rm", "-r", str(path)], check=True)
    pairs = zip(limited, free, strict=True)
    return {
        "train_gigabytes": size / 1e9,
        "train_limit_gigabytes": limit / 1e9,
        "train_block_rows": limited[0]["block_rows"],
        "train_ms_limited": median(limited, "ms"),
        "train_ms_in_memory": median(free, "ms"),
        "train_setup_limited": median(limited, "setup"),
        "train_setup_in_memory": median(free, "setup"),
        "train_peak_mb_in_memory": median(free, "peak_mb"),
        "train_ratio": statistics.median(a["ms"] / b["ms"] for a, b in pairs),
    }


GOALS = {
    "read_time_to_raw": "<= 1.3",
    "read_memory_to_raw": "<= 1.2",
    "read_time_to_dsrl": "< 1",
    "open_seconds": "<= 1",
    "open_peak_mb": "<= 200",
    "train_ratio": "<= 1.5",
}


def main() -> None:
    parser = argparse.ArgumentParser(description="speed of data")
    parser.add_argument("--child", nargs="+", help=argparse.SUPPRESS)
    parser.add_argument("--directory", type=Path, help="where the files go; a temporary one")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--read", type=float, default=1e6, help="transitions to read")
    parser.add_argument("--open", type=float, default=1e8, help="transitions to open")
    parser.add_argument("--train", type=float, default=24e6, help="transitions to train on")
    parser.add_argument("--iterations", type=int, default=1000, help="of each training")
    options = parser.parse_args()
    if options.child:
        return be_child(*options.child)
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory(dir=options.directory) as name:
        directory = Path(name)
        if options.read:
            figures |= reading(directory, int(options.read), options.rounds)
        if options.open:
            figures |= opening(directory, int(options.open))
        if options.train:
            rounds = max(1, options.rounds // 2)
            figures |= training(directory, int(options.train), options.iterations, rounds)
    rows = [{"figure": n, "value": v, "goal": GOALS.get(n, "")} for n, v in figures.items()]
    _results.show("data at scale", rows)
    _results.finish(**figures)
    return None


if __name__ == "__main__":
    main()
