"""From episodes to the figures of the paper's tables, with bootstrap intervals."""

import dataclasses
import math
from typing import Any

import numpy as np
from jaxtyping import Float

from safestitch.episodes import best_within
from safestitch.evaluation.rollout import Rollout
from safestitch.runs import Run

BOOTSTRAPS = 2000


@dataclasses.dataclass(frozen=True)
class Record:
    """One seed at one limit; a mean over `episodes`, with 95% bootstrap intervals over them."""

    task: str
    algorithm: str
    seed: int
    limit: float
    """Cost per episode."""
    limit_fraction: float
    """Share of the task's cost range."""
    episodes: int
    reward: float
    reward_low: float
    reward_high: float
    cost: float
    cost_low: float
    cost_high: float
    reward_norm: float | None
    """reward / the largest reward return of the data; none where that is 0."""
    cost_norm: float | None
    """cost / limit; none at limit 0."""
    violation_rate: float
    """Share of episodes whose cost exceeds the limit."""
    frontier_ratio: float | None
    """reward / the best reward of any episode of the data within the limit."""


@dataclasses.dataclass(frozen=True)
class Row:
    """One limit over all seeds: value, low and high of each figure."""

    limit: float
    limit_fraction: float
    reward: tuple[float, float, float]
    cost: tuple[float, float, float]
    reward_norm: tuple[float, float, float]
    cost_norm: tuple[float, float, float]
    violation_rate: tuple[float, float, float]
    frontier_ratio: tuple[float, float, float]

    @property
    def safe(self) -> bool:
        """Whether the mean cost keeps the limit."""
        return self.cost[0] <= self.limit


def records(run: Run, limits: list[float], result: Rollout) -> list[Record]:
    """One record per seed and limit."""
    found = []
    for s, seed in enumerate(run.seeds):
        for i, limit in enumerate(limits):
            rewards, costs = result.rewards[s, i], result.costs[s, i]
            r_low, r_high = _interval(_resampled_means(rewards[None]))
            c_low, c_high = _interval(_resampled_means(costs[None]))
            best = best_logged(run, limit)
            found.append(
                Record(
                    task=run.spec.task,
                    algorithm=run.algorithm,
                    seed=seed,
                    limit=limit,
                    limit_fraction=_fraction(run, limit),
                    episodes=len(rewards),
                    reward=float(rewards.mean()),
                    reward_low=r_low,
                    reward_high=r_high,
                    cost=float(costs.mean()),
                    cost_low=c_low,
                    cost_high=c_high,
                    reward_norm=_ratio(float(rewards.mean()), run.data_summary["reward_max"]),
                    cost_norm=_ratio(float(costs.mean()), limit),
                    violation_rate=float((costs > limit).mean()),
                    frontier_ratio=_ratio(float(rewards.mean()), best),
                )
            )
    return found


def rows(run: Run, limits: list[float], result: Rollout) -> list[Row]:
    """One row per limit; intervals resample seeds, then episodes within each."""
    found = []
    for i, limit in enumerate(limits):
        rewards, costs = result.rewards[:, i], result.costs[:, i]
        reward = _with_interval(rewards)
        cost = _with_interval(costs)
        best = best_logged(run, limit)
        found.append(
            Row(
                limit=limit,
                limit_fraction=_fraction(run, limit),
                reward=reward,
                cost=cost,
                reward_norm=_divide(reward, run.data_summary["reward_max"]),
                cost_norm=_divide(cost, limit),
                violation_rate=_with_interval((costs > limit).astype(float)),
                frontier_ratio=_divide(reward, best),
            )
        )
    return found


def plain(row: Row) -> dict[str, Any]:
    """A row as JSON has it: null for what is not a number."""

    def clean(value):
        if isinstance(value, tuple):
            return [clean(v) for v in value]
        return value if math.isfinite(value) else None

    return {name: clean(value) for name, value in dataclasses.asdict(row).items()}


def best_logged(run: Run, limit: float) -> float:
    """The best reward of any episode of the data within a limit; NaN where there is none."""
    summary = run.data_summary
    return best_within(
        np.asarray(summary["frontier_costs"]), np.asarray(summary["frontier_rewards"]), limit
    )


def _fraction(run: Run, limit: float) -> float:
    return limit / run.spec.cost_range if run.spec.cost_range > 0 else 0.0


def _ratio(value: float, by: float) -> float | None:
    return value / by if by and math.isfinite(by) else None


def _divide(values: tuple[float, float, float], by: float) -> tuple[float, float, float]:
    return tuple(v / by if by and math.isfinite(by) else math.nan for v in values)  # type: ignore[return-value]  # a triple stays a triple


def _with_interval(values: Float[np.ndarray, "s e"]) -> tuple[float, float, float]:
    return float(values.mean()), *_interval(_resampled_means(values))


def _interval(means: Float[np.ndarray, " k"]) -> tuple[float, float]:
    low, high = np.quantile(means, (0.025, 0.975))
    return float(low), float(high)


def _resampled_means(values: Float[np.ndarray, "s e"]) -> Float[np.ndarray, " k"]:
    """Means of bootstrap resamples: seeds with replacement, then episodes of each.

    The generator is seeded here, so that a table is the same each time it is printed.
    """
    rng = np.random.default_rng(0)
    seeds, episodes = values.shape
    block = max(1, 1_000_000 // values.size)  # bounds the memory of the draws
    means = []
    for first in range(0, BOOTSTRAPS, block):
        size = min(block, BOOTSTRAPS - first)
        chosen = rng.integers(0, seeds, (size, seeds, 1))
        within = rng.integers(0, episodes, (size, seeds, episodes))
        means.append(values[chosen, within].mean((1, 2)))
    return np.concatenate(means)
