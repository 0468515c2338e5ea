"""GAS on the built-in tasks: six limits, rewards against frontier and optimum, training time.

python bench/built_in_tasks.py [--seeds 5] [--episodes 100] [--data-seed 0]

The rule that chooses the requested reward was settled on the data of seed 0; other data seeds make
other logs of the same tasks, on which nothing was tuned.
"""

import argparse

import _experiments
import _results

from safestitch.envs import TASKS


def main() -> None:
    parser = argparse.ArgumentParser(description="GAS on the built-in tasks")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--episodes", type=int, default=100)
    parser.add_argument("--data-seed", type=int, default=0)
    options = parser.parse_args()
    rows = []
    for name in TASKS:
        out, seconds = _experiments.trained(name, options.seeds, options.data_seed)
        figures = _experiments.answers(out, options.episodes)
        against = "optimum" if TASKS[name].optimum else "frontier"
        rows.append({"task": name, "against": against, **figures, "training s": seconds})
    title = (
        f"data seed {options.data_seed}, {options.seeds} seeds, {options.episodes} episodes a "
        "limit; limits 10 20 30 70 80 90%"
    )
    _results.show(title, rows)
    _results.finish(data_seed=options.data_seed, tasks=rows)


if __name__ == "__main__":
    main()
