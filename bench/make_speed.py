"""Steps per second of making data, against the simulator's own rate.

    python bench/make_speed.py [--tasks BallRun ..] [--seconds 8]

Raw is the original package in one process, made by its own `make` with all its wrappers, replaying
actions of made episodes from the same seeds. Its rate counts steps alone, no resets. Making counts
everything between the first and the last step: acting, resets, writing episodes down. Both rates
are taken in turns, and the median of the paired ratios is shown. "ceiling" is what as many raw
processes as there are cores reach at the same time, by one alone: what these cores allow.
"""

import argparse
import tempfile
import time
from pathlib import Path

import jax
import numpy as np
from _results import finish, show
from eval_speed import ceiling, raw_rate

from safestitch.behaviours.actor import init_actor
from safestitch.behaviours.plan import draw, ladder_of, survey
from safestitch.behaviours.rolling import SLOT, episode_seed, most_laps, roll, slots_for
from safestitch.behaviours.snapshots import Behaviours, Moment, behaviours_of, load, shipped
from safestitch.behaviours.stock import Stock
from safestitch.behaviours.thinning import Region
from safestitch.catalog import Entry, catalog, get_entry
from safestitch.records import SafestitchError
from safestitch.sims.pool import Pool, Source

ROUNDS = 2
SNAPSHOTS = 12  # of behaviours that have learned nothing, where none are shipped


def behaviours_for(entry: Entry) -> Behaviours:
    try:
        return load(shipped(entry.task))
    except SafestitchError:
        width = 256 if entry.task.startswith("Ant") else 128
        keys = jax.random.split(jax.random.key(0), SNAPSHOTS)
        actors = [init_actor(entry.spec, width, key) for key in keys]
        return behaviours_of(entry.spec, actors, [Moment(0, 0, (), (), ())] * SNAPSHOTS)


class Making:
    """Rounds of a making, rolled one after the other by the same workers."""

    def __init__(self, entry: Entry, episodes: int):
        self.entry, self.behaviours, self.episodes = entry, behaviours_for(entry), episodes
        slots = slots_for(len(self.behaviours), episodes)
        laps = most_laps(len(self.behaviours), episodes, slots)
        self.pool = Pool(Source(entry.spec), lanes=slots * SLOT, laps=laps)

    def rate(self, seed: int) -> tuple[float, dict[int, np.ndarray]]:
        """Steps per second after the first tenth, and actions of some episodes by their seeds."""
        random = np.random.default_rng(seed)
        settings = survey(self.behaviours, self.episodes, Region(self.entry.cost_range), random)
        plan = draw(settings, ladder_of(self.behaviours), self.entry.horizon, random)
        marks: list[tuple[int, float]] = []
        with tempfile.TemporaryDirectory() as name:
            stock = Stock(Path(name) / "made.hdf5", self.entry.spec)
            with stock.held({"seed": seed}):
                total = roll(
                    self.pool,
                    self.behaviours,
                    plan,
                    stock,
                    first=0,
                    seed=seed,
                    progress=lambda _, steps: marks.append((steps, time.perf_counter())),
                )
                some = np.arange(0, len(plan), max(1, len(plan) // 4))[:4]
                [block] = stock.blocks(some)
        begun = next(m for m in marks if m[0] > total / 10)
        actions = np.split(block.actions, block.offsets[1:-1])
        taken = {episode_seed(seed, int(i)): a for i, a in zip(some, actions, strict=True)}
        return (total - begun[0]) / (marks[-1][1] - begun[1]), taken


def measured(entry: Entry, seconds: float) -> dict:
    trial = Making(entry, 64)
    with trial.pool:
        _, actions = trial.rate(99)
    guess = raw_rate(entry, actions, 0.3)[0]
    per_episode = np.mean([len(a) for a in actions.values()])
    making = Making(entry, max(256, round(seconds * 1.7 * guess / per_episode)))
    pairs = []
    with making.pool:
        for seed in range(ROUNDS):
            raw, with_resets = raw_rate(entry, actions, seconds / 2)
            rate, actions = making.rate(seed)
            pairs.append((rate, raw, with_resets))
    ratios = [rate / raw for rate, raw, _ in pairs]
    middle = pairs[int(np.argsort(ratios)[len(ratios) // 2])]
    return {
        "task": entry.task,
        "raw steps/s": middle[1],
        "raw with resets": middle[2],
        "making steps/s": middle[0],
        "ratio": float(np.median(ratios)),
        "ceiling": ceiling(entry, actions, seconds / 2) / float(np.median([p[1] for p in pairs])),
        "lowest": min(ratios),
        "highest": max(ratios),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", nargs="+", default=list(catalog()))
    parser.add_argument("--seconds", type=float, default=8.0)
    options = parser.parse_args()
    rows = []
    for task in options.tasks:
        rows.append(measured(get_entry(task), options.seconds))
        print(rows[-1], flush=True)
    show("making data against the raw simulator; two cores make 2.0 the ideal", rows)
    finish(tasks=rows)


if __name__ == "__main__":
    main()
