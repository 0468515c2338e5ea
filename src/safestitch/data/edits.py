"""Edits of data sets: pure functions, seeded, from episodes to episodes.

The five filters of DSRL, in the order in which it applies them, and what else data are cut by.
Where DSRL's are deterministic the results are equal; where they draw, so are they for an equal
seed (its own is 1234; `density` draws as after `random.seed(seed)`).
"""

import csv
import dataclasses
import functools
import random
from collections import defaultdict
from collections.abc import Sequence
from importlib import resources

import numpy as np
from jaxtyping import Float, Int

from safestitch.catalog import Entry
from safestitch.episodes import Episodes
from safestitch.names import unknown
from safestitch.records import DataError, SafestitchError

Box = tuple[float, float, float, float]
"""Cost from, cost to, reward from, reward to, as shares of a range."""


@dataclasses.dataclass(frozen=True)
class Ranges:
    """Smallest and largest return that the shares of a filter are taken of."""

    cost_min: float
    cost_max: float
    reward_min: float
    reward_max: float

    @classmethod
    def of(cls, source: Entry | Episodes) -> "Ranges":
        """Those of a public data set, or those found in the data themselves."""
        if isinstance(source, Entry):
            return cls(source.cost_min, source.cost_max, source.reward_min, source.reward_max)
        rewards, costs = _returns(source)
        return cls(*(float(v) for v in (costs.min(), costs.max(), rewards.min(), rewards.max())))


@dataclasses.dataclass(frozen=True)
class Grid:
    """Cells over cost and reward returns, and how many episodes a cell may hold."""

    reward_bins: int
    most: int
    """A fuller cell is thinned to as many."""
    least: int = 2
    """A cell with no more than these is emptied."""
    cost_bins: int = 10


@functools.cache
def grids() -> dict[tuple[str, float], Grid]:
    """(task, share of the data kept, roughly) -> DSRL's grid."""
    text = resources.files("safestitch.data").joinpath("density.csv").read_text()
    return {
        (row["task"], float(row["density"])): Grid(
            int(row["reward_bins"]), int(row["most_per_bin"])
        )
        for row in csv.DictReader(text.splitlines())
    }


def get_grid(task: str, share: float) -> Grid:
    """DSRL's grid for a task.

    Raises:
        SafestitchError: if it has none, naming those it has.
    """
    if (task, share) in grids():
        return grids()[task, share]
    densities = [density for name, density in grids() if name == task]
    if densities:
        known = " and ".join(f"{density:g}" for density in densities)
        raise SafestitchError(f"density {share:g}: DSRL defines {known} for {task}")
    raise SafestitchError(
        unknown("task with a density", task, dict.fromkeys(n for n, _ in grids()))
    )


# --- the filters of DSRL -----------------------------------------------------------------------


def density(episodes: Episodes, ranges: Ranges, grid: Grid, seed: int) -> Episodes:
    """Thin out the cells of the cost-reward plane; episodes come out cell by cell."""
    rewards, costs = _returns(episodes)
    cost_low, cost_high = max(costs.min(), ranges.cost_min), min(costs.max(), ranges.cost_max)
    low, high = max(rewards.min(), ranges.reward_min), min(rewards.max(), ranges.reward_max)
    inside = (costs >= cost_low) & (costs <= cost_high) & (rewards >= low) & (rewards <= high)
    columns = _cells(costs, cost_low, (cost_high - cost_low) / grid.cost_bins)
    rows = _cells(rewards, low, (high - low) / grid.reward_bins)
    cells: dict[tuple[float, float], list[int]] = defaultdict(list)
    for i in np.flatnonzero(inside).tolist():
        cells[columns[i], rows[i]].append(i)
    draw = random.Random(seed)
    chosen: list[int] = []
    for cell in cells.values():
        if len(cell) > grid.most:
            chosen += draw.sample(cell, grid.most)
        elif len(cell) > grid.least:
            chosen += cell
    return _keep(episodes, np.array(chosen, np.int64), "density: every cell is too sparse")


def pick_outliers(
    episodes: Episodes, ranges: Ranges, share: float, seed: int
) -> Int[np.ndarray, " k"]:
    """The episodes that `outliers` rewrites: of those costly and rewarding, at least one."""
    return _outlier_draw(episodes, ranges, share, _generator(seed))


def outliers(episodes: Episodes, ranges: Ranges, share: float, limit: float, seed: int) -> Episodes:
    """Make some costly episodes look safe (cost below the limit) and earn 1.5 times as much."""
    if not limit >= 1:
        raise SafestitchError(f"outliers: the cost limit is {limit:g}, expected 1 or more")
    draw = _generator(seed)
    picked = _outlier_draw(episodes, ranges, share, draw)
    totals = draw.choice(np.arange(int(limit)), size=len(picked))
    rewards, costs = episodes.rewards.copy(), episodes.costs.copy()
    for episode, total in zip(picked, totals, strict=True):
        first, last = episodes.offsets[episode : episode + 2]
        if total > last - first:
            raise DataError(
                f"outliers: episode {episode} has {last - first} steps, too few to cost {total}: "
                "choose a smaller limit"
            )
        costly = draw.choice(np.arange(last - first), total, replace=False)
        costs[first:last] = 0
        costs[first + costly] = 1
        rewards[first:last] *= np.float32(1.5)
    return dataclasses.replace(episodes, rewards=rewards, costs=costs)


def inpaint(
    episodes: Episodes, ranges: Ranges, boxes: Sequence[Box], spared: Sequence[int] = ()
) -> Episodes:
    """Remove boxes of the cost-reward plane.

    Args:
        episodes: The data.
        ranges: What the cost shares of a box are taken of.
        boxes: One after the other. The reward shares are taken of the range of rewards among the
            episodes that are left in the box's band of costs.
        spared: Episodes that are not lost (DSRL spares its outliers); they move to the end.
    """
    rewards, costs = _returns(episodes)
    left = np.arange(len(episodes))
    span = ranges.cost_max - ranges.cost_min
    for box in boxes:
        low, high, reward_low, reward_high = _checked(box)
        cost, reward = costs[left], rewards[left]
        band = (span * low + ranges.cost_min <= cost) & (cost <= span * high + ranges.cost_min)
        if not band.any():
            continue
        least, most = reward[band].min(), reward[band].max()
        band &= (most - least) * reward_low + least <= reward
        band &= reward <= (most - least) * reward_high + least
        left = left[~band]
    lost = [i for i in spared if i not in set(left.tolist())]
    return _keep(episodes, np.append(left, lost).astype(np.int64), "inpaint: nothing is left")


def epsilon(episodes: Episodes, limit: float, margin: float) -> Episodes:
    """Remove the episodes whose reward comes within a margin of the best.

    A positive margin is about safe episodes (cost <= limit), which makes the data harder to learn
    from; a negative one about the others, which makes them less tempting.
    """
    rewards, costs = _returns(episodes)
    concerned = costs <= limit if margin > 0 else costs > limit
    if margin == 0 or not concerned.any():
        return episodes
    best = rewards[concerned].max()
    near = concerned & (rewards >= best - abs(margin))
    return _keep(episodes, np.flatnonzero(~near), "epsilon: every episode is near the best")


def noise(episodes: Episodes, scale: float, seed: int) -> Episodes:
    """Add Gaussian noise to the observations: `scale` of their one standard deviation.

    DSRL draws again for the next observations, so that a step no longer ends where the next one
    begins; here an observation is perturbed once, wherever it stands.
    """
    if not (np.isfinite(scale) and scale >= 0):
        raise SafestitchError(f"noise: the scale is {scale:g}, expected 0 or more")
    draw = _generator(seed)
    spread = np.std(episodes.observations)
    final = episodes.final_observations
    perturbed = [
        None if values is None else values + scale * draw.normal(0, spread, values.shape)
        for values in (episodes.observations, final)
    ]
    observations, final = (None if p is None else p.astype(np.float32) for p in perturbed)
    return dataclasses.replace(episodes, observations=observations, final_observations=final)


# --- cutting -----------------------------------------------------------------------------------


def clip_cost(episodes: Episodes, most: float) -> Episodes:
    """Drop the episodes that cost more, as DSRL clips its data to the cost range of a task."""
    keep = np.flatnonzero(episodes.cost_returns <= most)
    return _keep(episodes, keep, f"clip cost: every episode costs more than {most:g}")


def subsample(episodes: Episodes, share: float, seed: int) -> Episodes:
    """A random share of the episodes, at least one, in the order they had."""
    if not 0 < share <= 1:
        raise SafestitchError(f"subsample: {share:g}, expected a share of 0 to 1")
    count = max(1, round(share * len(episodes)))
    return episodes.select(np.sort(_generator(seed).permutation(len(episodes))[:count]))


def split(episodes: Episodes, share: float, seed: int) -> tuple[Episodes, Episodes]:
    """Two disjoint sets of whole episodes; the second, for validation, has about the share."""
    if len(episodes) < 2:
        raise DataError("split: there is one episode only: a split needs two or more")
    if not 0 < share < 1:
        raise SafestitchError(f"split: {share:g}, expected a share between 0 and 1")
    count = min(max(1, round(share * len(episodes))), len(episodes) - 1)
    order = _generator(seed).permutation(len(episodes))
    return episodes.select(np.sort(order[count:])), episodes.select(np.sort(order[:count]))


# --- parts -------------------------------------------------------------------------------------


def _returns(episodes: Episodes) -> tuple[Float[np.ndarray, " e"], Float[np.ndarray, " e"]]:
    """Rewards and costs summed as DSRL does, to the last bit: its extremes are such sums."""
    bounds = list(zip(episodes.offsets[:-1], episodes.offsets[1:], strict=True))
    rewards, costs = (
        np.array([np.sum(column[a:b]) for a, b in bounds], np.float32)
        for column in (episodes.rewards, episodes.costs)
    )
    return rewards, costs


def _cells(values: np.ndarray, low, step) -> list[float]:
    """Number of the cell of each value; all values are equal if cells have no width."""
    return ((values - low) // step if step > 0 else np.zeros(len(values))).tolist()


def _outlier_draw(
    episodes: Episodes, ranges: Ranges, share: float, draw: np.random.Generator
) -> Int[np.ndarray, " k"]:
    if not 0 <= share <= 1:
        raise SafestitchError(f"outliers: {share:g}, expected a share of 0 to 1")
    rewards, costs = _returns(episodes)
    fit = np.flatnonzero((costs >= ranges.cost_max / 2) & (rewards >= ranges.reward_max / 2))
    count = max(int(len(episodes) * share), 1)
    if count > len(fit):
        raise DataError(
            f"outliers: {count} are wanted, but only {len(fit)} episodes have half of the largest "
            f"cost ({ranges.cost_max:g}) and reward ({ranges.reward_max:g}): choose a smaller share"
        )
    return draw.choice(fit, size=count, replace=False)


def _checked(box: Box) -> Box:
    low, high, reward_low, reward_high = box
    if not (0 <= low <= high <= 1 and 0 <= reward_low <= reward_high <= 1):
        raise SafestitchError(
            f"inpaint: {box}: expected shares from 0 to 1: cost from, to, reward from, to"
        )
    return box


def _keep(episodes: Episodes, chosen: np.ndarray, otherwise: str) -> Episodes:
    if not len(chosen):
        raise DataError(f"{otherwise}: no episode of {len(episodes)} would remain")
    return episodes.select(chosen)


def _generator(seed: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(seed))
