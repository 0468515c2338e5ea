"""Aiming: which settings to roll next, so that the plane of reward and cost fills evenly.

An episode of a setting is expected to land where those before it have landed, a change of mind
between the two ways it combines. Settings are chosen one by one for what they are expected to add
where the plane is still thin; each choice counts as if it had come true.
"""

import itertools
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int

from safestitch.behaviours.plan import NOISES, QUARTERS, Setting
from safestitch.behaviours.thinning import ROWS, Region, rows_of
from safestitch.data.coverage import TENTHS, tenth

CELLS = TENTHS * ROWS
RELUCTANCE = 0.5
"""What a change of mind counts beside a setting that was seen to land there."""
FRONTIER = 3.0
"""What the best cells of a tenth count beside the others."""
APART = 0.1
"""Of the cost range: two ways that cost about the same are not worth combining."""


def aim(
    settings: Sequence[Setting],
    rewards: Float[np.ndarray, " e"],
    costs: Float[np.ndarray, " e"],
    region: Region,
    count: int,
    wanted: int,
) -> list[Setting]:
    """Settings of the next episodes.

    Args:
        settings: Those of the episodes so far.
        rewards: What these brought.
        costs: What these cost.
        region: Where episodes are wanted.
        count: How many to choose.
        wanted: Episodes that are kept in the end, over all of the plane.
    """
    inside = region.holds(rewards, costs)
    bounds = _bounds(rewards[inside] if inside.any() else rewards)

    def cells(rewards: np.ndarray, costs: np.ndarray) -> np.ndarray:
        found = tenth(costs, region.cost_high) * ROWS + rows_of(rewards, bounds)
        return np.where(region.holds(rewards, costs), found, CELLS)  # the last one is outside

    landed: dict[Setting, list[int]] = defaultdict(list)
    for i, setting in enumerate(settings):
        landed[setting].append(i)
    kinds, where = list(landed), [cells(rewards[w], costs[w]) for w in landed.values()]
    weights = [1.0] * len(kinds)
    for setting, (reward, cost) in _combined(landed, rewards, costs, region):
        kinds.append(setting)
        where.append(cells(np.array([reward]), np.array([cost])))
        weights.append(RELUCTANCE)
    have = np.bincount(cells(rewards, costs), minlength=CELLS + 1).astype(float)
    return [kinds[i] for i in _greedy(where, weights, have, count, wanted)]


def _bounds(rewards: Float[np.ndarray, " e"]) -> tuple[float, float]:
    return float(rewards.min()), float(rewards.max())


def _combined(
    landed: dict[Setting, list[int]],
    rewards: Float[np.ndarray, " e"],
    costs: Float[np.ndarray, " e"],
    region: Region,
) -> list[tuple[Setting, tuple[float, float]]]:
    """Changes of mind that were not tried, and where they are expected to land."""
    plain: dict[int, list[Setting]] = defaultdict(list)
    for setting in landed:
        if setting.then < 0 and not NOISES[setting.noise].random:
            plain[setting.snapshot].append(setting)
    found = []
    for same in plain.values():
        means = {s: (rewards[landed[s]].mean(), costs[landed[s]].mean()) for s in same}
        for one, other in itertools.permutations(same, 2):
            apart = abs(means[one][1] - means[other][1]) > APART * region.cost_high
            if one.noise != other.noise or one.rung == other.rung or not apart:
                continue
            for quarter in range(1, QUARTERS):
                setting = Setting(one.snapshot, one.rung, one.noise, other.rung, quarter)
                if setting not in landed:
                    share = quarter / QUARTERS
                    both = zip(means[one], means[other], strict=True)
                    found.append((setting, tuple(share * a + (1 - share) * b for a, b in both)))
    return found


def _greedy(
    cells: list[Int[np.ndarray, " _"]],
    weights: list[float],
    have: Float[np.ndarray, " c"],
    count: int,
    wanted: int,
) -> list[int]:
    """Numbers of the candidates, chosen one after the other.

    Args:
        cells: Where each candidate's episodes landed; CELLS is outside.
        weights: What each candidate counts.
        have: Episodes in each cell, and outside.
        count: How many to choose.
        wanted: Episodes that are kept in the end.
    """
    sizes = np.array([len(c) for c in cells])
    starts, flat = np.concatenate([[0], np.cumsum(sizes)[:-1]]), np.concatenate(cells)
    scale = np.asarray(weights) / sizes
    reachable = np.union1d(flat, np.flatnonzero(have))
    fair = wanted / max(1, np.count_nonzero(reachable < CELLS))  # what a cell would hold
    worth = _worth(reachable)
    have, chosen = have.copy(), []
    for _ in range(count):
        columns = have[:CELLS].reshape(TENTHS, ROWS).sum(1)
        in_cell = worth / (1.0 + have[:CELLS] / fair)
        in_column = 1.0 / (1.0 + columns / (wanted / TENTHS)) ** 2
        gain = np.append(in_cell * np.repeat(in_column, ROWS), 0.0)
        best = int(np.argmax(np.add.reduceat(gain[flat], starts) * scale))
        chosen.append(best)
        np.add.at(have, cells[best], 1.0 / sizes[best])
    return chosen


def _worth(reachable: Int[np.ndarray, " c"]) -> Float[np.ndarray, " cells"]:
    """What an episode in each cell counts: more in the best two that a tenth has reached."""
    worth = np.ones(CELLS)
    for column in range(TENTHS):
        reached = [c for c in reachable if column * ROWS <= c < (column + 1) * ROWS]
        worth[sorted(reached)[-2:]] = FRONTIER
    return worth
