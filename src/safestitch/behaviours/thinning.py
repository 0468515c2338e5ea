"""Thinning: from many episodes to as many as wanted, even over the plane of reward and cost.

As DSRL does, the plane is cut into cells and the fullest are thinned first. Three kinds of episodes
are never the ones to go while others can: the best of every tenth of the cost range, the worst of
all, and those of a tenth that holds less than its share.
"""

import dataclasses
import math

import numpy as np
from jaxtyping import Bool, Float, Int

from safestitch.data.coverage import LEAST_SHARE, TENTHS, tenth
from safestitch.episodes import frontier
from safestitch.records import SafestitchError

ROWS = 25
"""Cells along the reward."""
BEST, WORST = 0.005, 0.01
"""Shares of the wanted episodes: kept of the best in every tenth, of the worst overall."""
QUOTA = 1.1 * LEAST_SHARE
"""Share of every tenth, where there are so many; a little more than is asked for."""


@dataclasses.dataclass(frozen=True)
class Region:
    """The part of the plane that data are wanted in."""

    cost_high: float
    reward_low: float = -math.inf

    def holds(
        self, rewards: Float[np.ndarray, "*e"], costs: Float[np.ndarray, "*e"]
    ) -> Bool[np.ndarray, "*e"]:
        """Which episodes lie in it."""
        return (costs <= self.cost_high) & (rewards >= self.reward_low)


def thin(
    rewards: Float[np.ndarray, " e"],
    costs: Float[np.ndarray, " e"],
    region: Region,
    wanted: int,
    seed: int,
) -> Int[np.ndarray, " w"]:
    """Numbers of the episodes to keep, in a random order: a part of them is like the whole.

    Raises:
        SafestitchError: if fewer than wanted lie in the region.
    """
    inside = np.flatnonzero(region.holds(rewards, costs))
    if len(inside) < wanted:
        raise SafestitchError(
            f"{len(inside)} of {len(rewards)} episodes cost at most {region.cost_high:g} and earn "
            f"at least {region.reward_low:g}, {wanted} are wanted"
        )
    rewards, costs = rewards[inside], costs[inside]
    random = np.random.Generator(np.random.PCG64(seed))
    shuffle = random.permutation(len(inside))
    columns = tenth(costs, region.cost_high)
    kept = outstanding(rewards, costs, columns, wanted)
    rank = _ranks(columns * ROWS + rows_of(rewards), ~kept, shuffle)
    order = np.lexsort((shuffle, rank, ~kept))
    chosen = _with_quotas(order, columns, math.ceil(QUOTA * wanted), wanted)
    return inside[random.permutation(chosen)]


def rows_of(
    rewards: Float[np.ndarray, " e"], bounds: tuple[float, float] | None = None
) -> Int[np.ndarray, " e"]:
    """Row of the cell of each reward, of ROWS between the bounds, or the smallest and largest."""
    low, high = bounds or (float(rewards.min()), float(rewards.max()))
    height = (high - low) / ROWS
    if not height > 0:
        return np.zeros(len(rewards), np.int64)
    return np.clip((rewards - low) // height, 0, ROWS - 1).astype(np.int64)


def outstanding(
    rewards: Float[np.ndarray, " e"],
    costs: Float[np.ndarray, " e"],
    columns: Int[np.ndarray, " e"],
    wanted: int,
) -> Bool[np.ndarray, " e"]:
    """The frontier, the best of every tenth, and the worst of all."""
    best = frontier(rewards, costs)
    on_it = set(zip(*(values.tolist() for values in best), strict=True))
    pairs = zip(costs.tolist(), rewards.tolist(), strict=True)
    kept = np.fromiter((pair in on_it for pair in pairs), bool, len(rewards))
    order = np.argsort(-rewards, kind="stable")
    for column in range(TENTHS):
        kept[order[columns[order] == column][: max(1, round(BEST * wanted))]] = True
    kept[order[-max(1, round(WORST * wanted)) :]] = True
    if kept.sum() <= wanted:
        return kept
    return np.zeros(len(rewards), bool)  # a handful is wanted: no more than a fair draw


def _ranks(
    cells: Int[np.ndarray, " e"], later: Bool[np.ndarray, " e"], shuffle: Int[np.ndarray, " e"]
) -> Int[np.ndarray, " e"]:
    """Place of each episode within its cell, at random, but for some that come later."""
    order = np.lexsort((shuffle, later, cells))
    begins = np.flatnonzero(np.diff(cells[order], prepend=-1))
    sizes = np.diff(np.append(begins, len(cells)))
    ranks = np.empty(len(cells), np.int64)
    ranks[order] = np.arange(len(cells)) - np.repeat(begins, sizes)
    return ranks


def _with_quotas(
    order: Int[np.ndarray, " e"], columns: Int[np.ndarray, " e"], quota: int, wanted: int
) -> Int[np.ndarray, " w"]:
    """The first of an order, but first of all those that give every tenth its quota."""
    first = np.zeros(len(order), bool)
    for column in range(TENTHS):
        first[np.flatnonzero(columns[order] == column)[:quota]] = True
    return np.concatenate([order[first], order[~first]])[:wanted]
