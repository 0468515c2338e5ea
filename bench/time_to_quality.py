"""What GAS reaches in how much time: the fast preset beside the paper's settings, on real data.

    python bench/time_to_quality.py CarCircle --data CarCircle.hdf5 [--out curves.svg]

A point of a curve is a training of its own, to the end of its schedule, and its evaluation at the
six limits of the paper: a decaying learning rate has nothing to show before its end. Time is that
of training, compilation included; trainings are kept under runs/bench and not computed twice. The
last line says how much sooner the fast preset is as good as the longest training of the paper's
settings: as many limits kept, and as high a frontier ratio.
"""

import argparse
from pathlib import Path
from typing import Any

import _curves
import _experiments
import _results

from safestitch.files import write_atomic

POINTS = {"fast": (1_500, 3_000, 6_000, 15_000, 30_000), "paper": (2_000, 6_000, 20_000)}
"""Iterations of the trainings."""


def sooner(rows: list[dict[str, Any]]) -> float | None:
    """The paper's seconds over those of the first fast point that is as good; None if none is."""
    paper = [row for row in rows if row["preset"] == "paper"]
    if not paper:
        return None
    last = max(paper, key=lambda row: row["iterations"])
    good = [
        row["seconds"]
        for row in rows
        if row["preset"] == "fast" and all(row[k] >= last[k] for k in ("kept", "ratio"))
    ]
    return last["seconds"] / min(good) if good else None


def main() -> None:
    parser = argparse.ArgumentParser(description="time to quality of GAS's presets")
    parser.add_argument("task")
    parser.add_argument("--data", type=Path, default=None)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--episodes", type=int, default=10)
    parser.add_argument("--presets", nargs="+", default=list(POINTS))
    parser.add_argument("--most", type=int, default=30_000, help="iterations of the last point")
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args()
    rows = []
    for preset in options.presets:
        for iterations in (n for n in POINTS[preset] if n <= options.most):
            settings = {"preset": preset, "data": options.data, "iterations": iterations}
            out, seconds = _experiments.trained(options.task, options.seeds, **settings)
            figures = _experiments.answers(out, options.episodes)
            rows.append({"preset": preset, "iterations": iterations, "seconds": seconds, **figures})
            _results.show(f"{options.task}, seeds: {options.seeds}", rows)
    if options.out:
        lines = {
            preset: [(r["seconds"] / 60, r["ratio"]) for r in rows if r["preset"] == preset]
            for preset in options.presets
        }
        title = f"{options.task}: frontier ratio against minutes of training"
        write_atomic(options.out, _curves.curves(title, lines).encode())
    reached = {p: max(r["ratio"] for r in rows if r["preset"] == p) for p in options.presets}
    _results.finish(points=rows, reached=reached, sooner=sooner(rows))


if __name__ == "__main__":
    main()
