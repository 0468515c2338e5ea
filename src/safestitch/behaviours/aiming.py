"""Aiming: which settings to roll next, so that the plane of reward and cost fills evenly.

An episode of a setting is expected to land where those before it have landed. A change of mind that
was not tried is expected between the two ways it combines, off by what those tried were off by.
Some settings are chosen for the best reward within each cost; the others, one by one, for what they
are expected to add where the plane is still thin. Each choice counts as if it had come true.
"""

import dataclasses
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
FRONTIER = 0.35
"""Share of the choices that go to the best reward within each cost."""
DEPTH = 10
"""So many of the best are tried within each cost, at least: the very best was luck, or a guess."""
REPEATS = 5
"""Times a setting can be chosen before others that promise as much are the better choice."""
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
    combined = _combined(landed, rewards, costs, region)
    kinds = [*landed, *(setting for setting, _ in combined)]
    places = [np.stack([rewards[of], costs[of]], 1) for of in landed.values()]
    places += [np.array([place]) for _, place in combined]
    where = [cells(*place.T) for place in places]
    weights = [1.0] * len(landed) + [RELUCTANCE] * len(combined)
    chosen = _best(places, region, round(FRONTIER * count))
    have = np.bincount(cells(rewards, costs), minlength=CELLS + 1).astype(float)
    for i in chosen:
        np.add.at(have, where[i], 1.0 / len(where[i]))
    chosen += _greedy(where, weights, have, count - len(chosen), wanted)
    return [kinds[i] for i in chosen]


def _bounds(rewards: Float[np.ndarray, " e"]) -> tuple[float, float]:
    return float(rewards.min()), float(rewards.max())


Place = tuple[float, float]
"""Reward and cost."""


def _combined(
    landed: dict[Setting, list[int]],
    rewards: Float[np.ndarray, " e"],
    costs: Float[np.ndarray, " e"],
    region: Region,
) -> list[tuple[Setting, Place]]:
    """Changes of mind that were not tried, and where they are expected to land."""
    means = {s: (rewards[of].mean(), costs[of].mean()) for s, of in landed.items()}
    off = _residuals(means)
    alike: dict[tuple[int, int], list[Setting]] = defaultdict(list)
    for setting in landed:
        if setting.then < 0 and not NOISES[setting.noise].random:
            alike[setting.snapshot, setting.noise].append(setting)
    found = []
    for one, other in (pair for some in alike.values() for pair in itertools.permutations(some, 2)):
        if abs(means[one][1] - means[other][1]) <= APART * region.cost_high:
            continue
        for quarter in range(1, QUARTERS):
            setting = dataclasses.replace(one, then=other.rung, quarter=quarter)
            if setting not in landed:
                reward, cost = _between(means[one], means[other], quarter / QUARTERS)
                more_reward, more_cost = off[means[one][1] < means[other][1]]
                found.append((setting, (reward + more_reward, max(0.0, cost + more_cost))))
    return found


def _residuals(means: dict[Setting, Place]) -> dict[bool, Place]:
    """How far changes of mind landed from between their parts: those to costlier ways, and back."""
    seen: dict[bool, list[Place]] = {True: [(0.0, 0.0)], False: [(0.0, 0.0)]}
    for setting, place in means.items():
        one = means.get(dataclasses.replace(setting, then=-1, quarter=0))
        other = means.get(Setting(setting.snapshot, setting.then, setting.noise))
        if setting.then >= 0 and one and other:
            expected = _between(one, other, setting.quarter / QUARTERS)
            off = (place[0] - expected[0], place[1] - expected[1])
            seen[one[1] < other[1]].append(off)
    return {up: tuple(np.mean(offs, axis=0).tolist()) for up, offs in seen.items()}


def _between(one: Place, other: Place, share: float) -> Place:
    reward, cost = (share * a + (1 - share) * b for a, b in zip(one, other, strict=True))
    return reward, cost


def _best(places: list[Float[np.ndarray, "_ 2"]], region: Region, count: int) -> list[int]:
    """Numbers of the candidates that were best, or are expected to be, within each cost."""
    of = np.repeat(np.arange(len(places)), [len(place) for place in places])
    rewards, costs = np.concatenate(places).T
    inside = region.holds(rewards, costs)
    level = np.ceil(costs * TENTHS / (region.cost_high or 1.0))
    depth = max(DEPTH, count // (3 * TENTHS))
    ranked = []
    for one in range(TENTHS + 1):
        mine = np.flatnonzero(inside & (level == one))
        best = list(dict.fromkeys(of[mine[np.argsort(-rewards[mine], kind="stable")]].tolist()))
        if best:
            ranked.append(itertools.cycle(best[:depth]))
    turns = itertools.cycle(ranked)
    return [next(next(turns)) for _ in range(count)] if ranked else []


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
    scale, times = np.asarray(weights) / sizes, np.zeros(len(cells))
    reachable = np.union1d(flat, np.flatnonzero(have))
    fair = wanted / max(1, np.count_nonzero(reachable < CELLS))  # what a cell would hold
    have, chosen = have.copy(), []
    for _ in range(count):
        columns = have[:CELLS].reshape(TENTHS, ROWS).sum(1)
        in_cell = 1.0 / (1.0 + have[:CELLS] / fair)
        in_column = 1.0 / (1.0 + columns / (wanted / TENTHS)) ** 2
        gain = np.append(in_cell * np.repeat(in_column, ROWS), 0.0)
        fresh = 1.0 / np.sqrt(1.0 + times / REPEATS)
        best = int(np.argmax(np.add.reduceat(gain[flat], starts) * scale * fresh))
        chosen.append(best)
        times[best] += 1
        np.add.at(have, cells[best], 1.0 / sizes[best])
    return chosen
