"""A worker killed in mid-evaluation, again and again: the result equals the undisturbed one.

python bench/kill_worker.py [--task BallCircle] [--kills 20]
"""

import argparse
import os
import signal
import time

import numpy as np
import psutil
from _results import finish, show
from _simulated import policies_for

from safestitch.catalog import get_entry
from safestitch.evaluation import simulated
from safestitch.sims.pool import Pool, Source


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--task", default="BallCircle")
    parser.add_argument("--kills", type=int, default=20)
    options = parser.parse_args()
    entry, policies = get_entry(options.task), policies_for(options.task)
    limits = [share * entry.cost_range for share in (0.1, 0.5, 0.9)]
    random, seen, rows = np.random.default_rng(0), set(), []

    class Watched(Pool):
        def begin(self, seeds: np.ndarray) -> None:
            super().begin(seeds)
            running.append(self)

    running: list[Watched] = []
    simulated.Pool = Watched

    def evaluate(kill_at: int | None) -> tuple[bytes, int]:
        killed = 0

        def progress(steps: int, finished: float, total: int) -> None:  # noqa: ARG001
            nonlocal killed
            seen.update(running[-1].processes)
            if kill_at is not None and steps >= kill_at and not killed:
                os.kill(int(random.choice(running[-1].processes)), signal.SIGKILL)
                killed = steps

        result, _ = simulated.simulate(
            policies, Source(entry.spec), limits, 12, workers=2, progress=progress
        )
        return result.rewards.tobytes() + result.costs.tobytes(), killed

    expected, _ = evaluate(None)
    total = 36 * entry.horizon
    for i in range(options.kills):
        kill_at = int(random.integers(0, int(0.95 * total)))
        found, killed = evaluate(kill_at)
        rows.append({"kill": i + 1, "after steps": killed, "equal": str(found == expected)})
        print(rows[-1], flush=True)
    time.sleep(0.5)
    left = [pid for pid in seen if psutil.pid_exists(pid)]
    show(f"{entry.task}: one of two workers killed in each evaluation", rows)
    equal = sum(row["equal"] == "True" for row in rows)
    finish(task=entry.task, kills=options.kills, equal=equal, left_behind=len(left))


if __name__ == "__main__":
    main()
