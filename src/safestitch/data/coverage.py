"""How data cover the plane of reward and cost, and how that compares with the public data.

The public frontier was read off the published data: the best reward near each tenth of the cost
range. It is not monotone, so it is compared as "the best reward within a cost": its running
maximum beside that of ours.
"""

import csv
import dataclasses
import functools
from importlib import resources

import numpy as np
from jaxtyping import Float, Int

from safestitch.catalog import Entry
from safestitch.episodes import best_within, frontier

TENTHS = 10
LEVELS = tuple(i / TENTHS for i in range(TENTHS + 1))
"""Shares of the cost range at which frontiers are compared."""
LEAST_SHARE = 0.03
"""Of the episodes, in every tenth of the cost range."""
LEAST_RATIO, LEAST_RATIO_ANT = 0.95, 0.85
"""Of the public frontier; Ant is the hard robot."""
REWARD_MARGIN = 0.1
"""Of the largest public reward: how far the smallest rewards may lie apart."""


@dataclasses.dataclass(frozen=True)
class Coverage:
    """What the episodes of a data set reach."""

    episodes: int
    steps: int
    reward_min: float
    reward_max: float
    cost_min: float
    cost_max: float
    cost_range: float
    tenths: tuple[float, ...]
    """Share of the episodes in each tenth of the cost range; costs above it are in none."""
    frontier: tuple[float, ...]
    """Best reward of an episode within each of LEVELS; NaN where there is none."""


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Data beside the public data of their task."""

    coverage: Coverage
    public_frontier: tuple[float, ...]
    """Best reward within each of LEVELS."""
    least_ratio: float
    """What every ratio should reach."""
    reward_gap: float
    """Smallest reward minus the smallest public one, in units of the largest public one."""

    @property
    def ratios(self) -> tuple[float, ...]:
        """Our frontier over the public one."""
        pairs = zip(self.coverage.frontier, self.public_frontier, strict=True)
        return tuple(ours / public for ours, public in pairs)

    @property
    def reaches(self) -> bool:
        """Every point of the frontier is reached."""
        return all(ratio >= self.least_ratio for ratio in self.ratios)

    @property
    def covers(self) -> bool:
        """Every tenth of the cost range holds its share of the episodes."""
        return min(self.coverage.tenths) >= LEAST_SHARE

    @property
    def spans(self) -> bool:
        """The smallest reward is about the smallest public one."""
        return abs(self.reward_gap) <= REWARD_MARGIN


def cover(
    rewards: Float[np.ndarray, " e"],
    costs: Float[np.ndarray, " e"],
    cost_range: float,
    steps: int = 0,
) -> Coverage:
    """What episodes with these returns reach."""
    best = frontier(rewards, costs)
    counts = np.bincount(tenth(costs, cost_range), minlength=TENTHS + 1)[:TENTHS]
    return Coverage(
        episodes=len(rewards),
        steps=steps,
        reward_min=float(rewards.min()),
        reward_max=float(rewards.max()),
        cost_min=float(costs.min()),
        cost_max=float(costs.max()),
        cost_range=float(cost_range),
        tenths=tuple((counts / len(rewards)).tolist()),
        frontier=tuple(best_within(*best, level * cost_range * (1 + 1e-9)) for level in LEVELS),
    )


def compare(coverage: Coverage, entry: Entry) -> Comparison:
    """Data of a task of the field beside its public data."""
    gap = (coverage.reward_min - entry.reward_min) / entry.reward_max
    least = LEAST_RATIO_ANT if entry.task.startswith("Ant") else LEAST_RATIO
    return Comparison(coverage, public_frontier(entry.task), least, gap)


def tenth(costs: Float[np.ndarray, " e"], cost_range: float) -> Int[np.ndarray, " e"]:
    """Number of the tenth of the cost range that a cost lies in; TENTHS if it lies above it.

    Example:
        >>> tenth(np.array([0.0, 7.0, 8.0, 79.0, 80.0, 81.0]), 80.0).tolist()
        [0, 0, 1, 9, 9, 10]
    """
    width = cost_range / TENTHS if cost_range > 0 else 1.0
    inside = np.clip(costs // width, 0, TENTHS - 1).astype(np.int64)
    return np.where(costs <= cost_range, inside, TENTHS)


@functools.cache
def _public() -> dict[str, tuple[float, ...]]:
    text = resources.files("safestitch.data").joinpath("public_frontier.csv").read_text()
    rows = [list(row.values()) for row in csv.DictReader(text.splitlines())]
    return {task: tuple(float(value) for value in values) for task, *values in rows}


def public_frontier(task: str) -> tuple[float, ...]:
    """Best reward of the public data within each of LEVELS, for a first-class task."""
    return tuple(np.maximum.accumulate(_public()[task]).tolist())
