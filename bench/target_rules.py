"""Rules that choose the requested reward, on all built-in tasks: which keep limits, what they earn.

    python bench/target_rules.py [--seeds 5] [--episodes 100]

Rules of the data ask for one number at the first step and then for what is left of it:
    k best logged    k times the best reward of any episode with cost <= L
    quantile 0.9     0.9-quantile of reward among episodes with cost in [L - 10% of the range, L]
Rules of the networks ask the budget goal G (`algos/asking.py`); all of them act with one training.
"""

import argparse
import dataclasses

import _experiments
import _results
import numpy as np

from safestitch.envs import TASKS, Task
from safestitch.episodes import Episodes, best_within, frontier
from safestitch.evaluation import PAPER_LIMITS, parse_limit
from safestitch.evaluation.rollout import Rollout, rollout
from safestitch.evaluation.score import rows as rows_of
from safestitch.policy import Policies, load_policies

NETWORK_RULES = ("first", "again", "rising", "frontier")


def data_rules(episodes: Episodes, limits: list[float], cost_range: float):
    """Name -> requested reward per limit."""
    best = [best_within(*frontier(episodes.returns, episodes.cost_returns), x) for x in limits]
    quantile = []
    for limit in limits:
        low = limit - 0.1 * cost_range
        near = (episodes.cost_returns >= low) & (episodes.cost_returns <= limit)
        quantile.append(float(np.quantile(episodes.returns[near], 0.9)))
    return {
        "best logged": best,
        "0.95 best logged": [0.95 * b for b in best],
        "0.9 best logged": [0.9 * b for b in best],
        "quantile 0.9": quantile,
    }


def ask(policies: Policies, task: Task, limits: list[float], targets, episodes: int):
    """Rows of one rule; `targets` is None or one requested reward per limit."""
    if targets is None:
        result, _ = rollout(policies, task, limits, episodes)
    else:
        pairs = zip(limits, targets, strict=True)
        parts = [rollout(policies, task, [x], episodes, target_reward=r)[0] for x, r in pairs]
        result = Rollout(*(np.concatenate(p, axis=1) for p in zip(*parts, strict=True)))
    return rows_of(policies.run, limits, result)


def main() -> None:
    parser = argparse.ArgumentParser(description="rules for the requested reward")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--episodes", type=int, default=100)
    options = parser.parse_args()
    table = []
    for name, task in TASKS.items():
        out, _ = _experiments.trained(name, options.seeds)
        policies = load_policies(out)
        limits = [parse_limit(limit, task.spec.cost_range) for limit in PAPER_LIMITS]
        fixed = data_rules(task.make_data(0), limits, task.spec.cost_range)
        for rule in (*fixed, *NETWORK_RULES):
            asked = policies
            if rule in NETWORK_RULES:
                config = dataclasses.replace(policies.config, target=rule)
                asked = dataclasses.replace(policies, config=config)
            rows = ask(asked, task, limits, fixed.get(rule), options.episodes)
            table.append({"task": name, "rule": rule, **_experiments.summarise(rows, name)})
    title = f"{options.seeds} seeds, {options.episodes} episodes a limit; limits 10 20 30 70 80 90%"
    _results.show(title, table)
    _results.finish(rules=table)


if __name__ == "__main__":
    main()
