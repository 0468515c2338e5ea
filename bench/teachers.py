"""What those who made our data earn themselves, beside the best episode they left in the data.

    python bench/teachers.py AntCircle [--episodes 20] [--seed 1]

For each limit, the snapshot and multiplier that were measured to earn most within it play new
episodes without noise. The frontier that policies are measured by is the best of thousands of
episodes, noisy and handed-over ones included: where luck decides (a robot that falls in one episode
of ten), the makers' own mean stays below it, and so does whoever does as they do.
"""

import argparse

import _results
import jax
import numpy as np
from jaxtyping import Float

from safestitch.behaviours import snapshots
from safestitch.behaviours.actor import act, task_action
from safestitch.behaviours.snapshots import Behaviours
from safestitch.data import load
from safestitch.episodes import best_within, frontier
from safestitch.evaluation.simulated import episode_seeds
from safestitch.sims import make_simulator

LIMITS = (0.1, 0.2, 0.3, 0.7, 0.8, 0.9)
"""Of the cost range, as in the paper's tables."""


def ablest(behaviours: Behaviours, limit: float) -> tuple[int, float]:
    """Snapshot and multiplier that were measured to earn most at a cost within the limit."""
    measured = [
        (reward, snapshot, lam)
        for snapshot, moment in enumerate(behaviours.moments)
        for lam, reward, cost in zip(moment.lambdas, moment.rewards, moment.costs, strict=True)
        if cost <= limit
    ]
    return max(measured)[1:]


def play(
    behaviours: Behaviours, snapshot: int, lam: float, seeds: list[int]
) -> Float[np.ndarray, "e 2"]:
    """Reward and cost of one episode per seed, without noise."""
    spec = behaviours.spec
    simulator, still = make_simulator(spec.task), np.zeros(spec.act_dim, np.float32)
    actor = behaviours[snapshot]
    middle = jax.jit(lambda seen: task_action(spec, act(actor, seen, np.float32(lam), still)))
    returns = np.zeros((len(seeds), 2))
    for episode, seed in enumerate(seeds):
        observation = simulator.reset(seed)
        for _ in range(spec.horizon):
            step = simulator.step(np.asarray(middle(np.asarray(observation, np.float32))))
            returns[episode] += step.reward, step.cost
            observation = step.observation
            if step.terminated:
                break
    simulator.close()
    return returns


def main() -> None:
    parser = argparse.ArgumentParser(description="the makers of the data beside their best episode")
    parser.add_argument("task")
    parser.add_argument("--episodes", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1, help="of the start states")
    options = parser.parse_args()
    behaviours = snapshots.load(snapshots.shipped(options.task))
    episodes = load(options.task)
    costs, rewards = frontier(episodes.returns, episodes.cost_returns)
    seeds = episode_seeds(options.seed, options.episodes).tolist()
    played, rows = {}, []
    for share in LIMITS:
        limit = share * behaviours.spec.cost_range
        who = ablest(behaviours, limit)
        if who not in played:
            played[who] = play(behaviours, *who, seeds)
        reward, cost = played[who].mean(0)
        best = best_within(costs, rewards, limit)
        rows.append(
            {
                "limit": limit,
                "snapshot": who[0],
                "multiplier": who[1],
                "reward": reward,
                "least": played[who][:, 0].min(),
                "cost": cost,
                "best logged": best,
                "ratio": reward / best,
            }
        )
        _results.show(f"{options.task}: {options.episodes} episodes without noise", rows)
    _results.finish(task=options.task, rows=rows)


if __name__ == "__main__":
    main()
