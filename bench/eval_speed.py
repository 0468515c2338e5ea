"""Steps per second of an evaluation with a GAS policy, against the simulator's own rate.

    python bench/eval_speed.py [--tasks BallRun ..] [--seconds 4]

Raw is the original package in one process, made by its own `make` with all its wrappers, replaying
the very actions of the evaluation from the same seeds: the same physics. Its rate counts steps
alone, no resets. Rates of both are taken in turns, and the median of the paired ratios is shown.
"ceiling" is what two such processes reach at the same time, by one alone: what these cores allow.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from typing import Any

import numpy as np
from _results import finish, show
from _simulated import policies_for

from safestitch.catalog import Entry, catalog, get_entry
from safestitch.evaluation import simulated
from safestitch.policy import Policies
from safestitch.sims import mends
from safestitch.sims.pool import Pool, Source, default_workers

ROUNDS = 2
EPISODES = 20  # per limit at least: what `safestitch eval` does unless told otherwise


def recorded(policies: Policies, entry: Entry, episodes: int) -> dict[int, np.ndarray]:
    """Episode seed -> the actions that the evaluation takes in it."""
    taken: dict[int, list] = {lane: [] for lane in range(episodes)}

    class Recording(Pool):
        def send(self, group: int, actions: np.ndarray) -> None:
            for lane, action in zip(self.groups[group], actions, strict=True):
                if not self._idle[lane]:
                    taken[int(lane)].append(action)
            super().send(group, actions)

    simulated.Pool = Recording
    try:
        simulated.simulate(policies, Source(entry.spec), [0.5 * entry.cost_range], episodes)
    finally:
        simulated.Pool = Pool
    seeds = simulated.episode_seeds(0, episodes)
    return {int(seed): np.stack(taken[lane]) for lane, seed in enumerate(seeds)}


def original(entry: Entry) -> Any:
    """The package's own environment, with all its wrappers."""
    if entry.suite == "bullet":
        return mends.bullet()[0].make(entry.env_id)
    return mends.safety_gymnasium().make(entry.env_id)


def raw_rate(entry: Entry, episodes: dict[int, np.ndarray], seconds: float) -> tuple[float, float]:
    """Steps per second without and with resets."""
    with mends.quiet():
        env = original(entry)
        env.reset(seed=0)
        steps, stepping, whole = 0, 0.0, time.perf_counter()
        while stepping < seconds:
            for seed, actions in episodes.items():
                np.random.seed(seed)  # noqa: NPY002 (what bullet draws from)
                env.reset(seed=seed)
                started = time.perf_counter()
                for action in actions:
                    env.step(action)
                stepping += time.perf_counter() - started
                steps += len(actions)
                if stepping > seconds:
                    break
        whole = time.perf_counter() - whole
        env.close()
    return steps / stepping, steps / whole


def ceiling(entry: Entry, episodes: dict[int, np.ndarray], seconds: float) -> float:
    """Raw steps per second of as many processes as there are cores, started together."""
    with tempfile.NamedTemporaryFile(suffix=".npz") as file:
        stored: dict[str, Any] = {str(seed): actions for seed, actions in episodes.items()}
        np.savez(file, **stored)
        file.flush()
        begin = str(time.time() + 4.0)  # when all have started
        command = [sys.executable, __file__, "--raw", entry.task, file.name, begin, str(seconds)]
        children = [
            subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            for _ in range(default_workers())
        ]
        return sum(float(child.communicate()[0]) for child in children)


def raw_child(task: str, file: str, begin: str, seconds: str) -> None:
    with np.load(file, allow_pickle=False) as stored:
        episodes = {int(seed): stored[seed] for seed in stored.files}
    raw_rate(get_entry(task), episodes, 0.1)  # imports and first picture of the world
    time.sleep(max(0.0, float(begin) - time.time()))
    print(raw_rate(get_entry(task), episodes, float(seconds))[0])


def evaluation_rate(policies: Policies, entry: Entry, episodes: int) -> float:
    """Steps per second between the first tenth and the end: starting the workers is left out."""
    marks: list[tuple[int, float]] = []

    def mark(steps: int, finished: float, total: int) -> None:  # noqa: ARG001
        marks.append((steps, time.perf_counter()))

    limits = [share * entry.cost_range for share in (0.1, 0.2, 0.3, 0.7, 0.8, 0.9)]
    source = Source(entry.spec)
    simulated.simulate(policies, source, limits, episodes, progress=mark)
    first = next(m for m in marks if m[0] > marks[-1][0] / 10)
    return (marks[-1][0] - first[0]) / (marks[-1][1] - first[1])


def measured(entry: Entry, seconds: float) -> dict:
    policies = policies_for(entry.task)
    actions = recorded(policies, entry, 4)
    rate = raw_rate(entry, actions, 0.3)[0]
    per_episode = np.mean([len(a) for a in actions.values()])
    episodes = max(EPISODES, round(seconds * 1.7 * rate / per_episode / 6))
    pairs = []
    for _ in range(ROUNDS):
        raw, with_resets = raw_rate(entry, actions, seconds / 2)
        pairs.append((evaluation_rate(policies, entry, episodes), raw, with_resets))
    ratios = [evaluation / raw for evaluation, raw, _ in pairs]
    best = pairs[int(np.argsort(ratios)[len(ratios) // 2])]
    return {
        "task": entry.task,
        "raw steps/s": best[1],
        "raw with resets": best[2],
        "evaluation steps/s": best[0],
        "ratio": float(np.median(ratios)),
        "ceiling": ceiling(entry, actions, seconds)
        / float(np.median([raw for _, raw, _ in pairs])),
        "lowest": min(ratios),
        "highest": max(ratios),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", nargs="+", default=list(catalog()))
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--raw", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.raw:
        raw_child(*options.raw)
        return
    rows = []
    for task in options.tasks:
        rows.append(measured(get_entry(task), options.seconds))
        print(rows[-1], flush=True)
    show("evaluation against the raw simulator; two cores make 2.0 the ideal", rows)
    finish(tasks=rows)


if __name__ == "__main__":
    main()
