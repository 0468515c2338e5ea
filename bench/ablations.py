"""Which parts of GAS earn their place on the built-in tasks.

python bench/ablations.py [--seeds 5] [--episodes 100]
"""

import argparse

import _experiments
import _results

from safestitch.envs import TASKS

VARIANTS = {
    "GAS": {},
    "alpha 0.5 (no stitching)": {"alpha": 0.5},
    "no TSRA": {"whole": 1.0},
    "no relabelling": {"relabel": False},
    "no reshaping": {"reshape": False},
}


def main() -> None:
    parser = argparse.ArgumentParser(description="ablations of GAS")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--episodes", type=int, default=100)
    options = parser.parse_args()
    rows = []
    for name in TASKS:
        for variant, settings in VARIANTS.items():
            out, _ = _experiments.trained(name, options.seeds, **settings)
            figures = _experiments.answers(out, options.episodes)
            rows.append({"task": name, "variant": variant, **figures})
    title = f"{options.seeds} seeds, {options.episodes} episodes a limit; limits 10 20 30 70 80 90%"
    _results.show(title, rows)
    _results.finish(ablations=rows)


if __name__ == "__main__":
    main()
