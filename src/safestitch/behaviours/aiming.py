"""Aiming: which settings to roll next, so that the plane of reward and cost fills evenly.

An episode of a setting is expected to land where those before it have landed. A change of mind that
was not tried is expected between the two ways it combines, off by what those tried were off by.
Some settings are chosen for the best reward within each cost; the others, one by one, for what they
are expected to add where the plane is still thin. Each choice counts as if it had come true.
"""

import itertools
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType

import numpy as np
from jaxtyping import Float, Int

from safestitch.behaviours.plan import NOISES, PARTS, Setting
from safestitch.behaviours.thinning import ROWS, Region, rows_of
from safestitch.data.coverage import TENTHS, tenth

Place = tuple[float, float]
"""Reward and cost."""
CELLS = TENTHS * ROWS
RELUCTANCE = 0.5
"""What a change of mind counts beside a setting that was seen to land there."""
FRONTIER = 0.35
"""Share of the choices that go to the best reward within each cost."""
DEPTH = 10
"""So many of the best are tried within each cost, at least: the very best was luck, or a guess."""
REPEATS = 5
"""Times a setting can be chosen before others that promise as much are the better choice."""
MOST_COMBINED = 20_000
"""Changes of mind that are weighed; of more, so many evenly."""
ABLEST = 3
"""Ways of each tenth of the cost range that are worth handing over from and to."""
APART = 0.1
"""Of the cost range: two ways that cost about the same are not worth combining."""


def aim(
    settings: Sequence[Setting],
    rewards: Float[np.ndarray, " e"],
    costs: Float[np.ndarray, " e"],
    region: Region,
    count: int,
    wanted: int,
    known: Mapping[Setting, Place] = MappingProxyType({}),
) -> list[Setting]:
    """Settings of the next episodes.

    Args:
        settings: Those of the episodes so far.
        rewards: What these brought.
        costs: What these cost.
        region: Where episodes are wanted.
        count: How many to choose.
        wanted: Episodes that are kept in the end, over all of the plane.
        known: Where settings land that were measured and not tried: of use to be combined.
    """
    kinds, places, tried = _candidates(settings, rewards, costs, region, known)
    inside = region.holds(rewards, costs)
    bounds = _bounds(rewards[inside] if inside.any() else rewards)

    def cells(rewards: np.ndarray, costs: np.ndarray) -> np.ndarray:
        found = tenth(costs, region.cost_high) * ROWS + rows_of(rewards, bounds)
        return np.where(region.holds(rewards, costs), found, CELLS)  # the last one is outside

    where = [cells(*place.T) for place in places]
    weights = [1.0] * tried + [RELUCTANCE] * (len(kinds) - tried)
    chosen = _best(places, region, round(FRONTIER * count), range(TENTHS + 1))
    have = np.bincount(cells(rewards, costs), minlength=CELLS + 1).astype(float)
    for i in chosen:
        np.add.at(have, where[i], 1.0 / len(where[i]))
    chosen += _greedy(where, weights, have, count - len(chosen), wanted)
    return [kinds[i] for i in chosen]


def chase(
    settings: Sequence[Setting],
    rewards: Float[np.ndarray, " e"],
    costs: Float[np.ndarray, " e"],
    region: Region,
    count: int,
    levels: Collection[int],
    known: Mapping[Setting, Place] = MappingProxyType({}),
    *,
    pairs: int = 0,
) -> list[Setting]:
    """Settings of the next episodes as `aim` chooses them, but all for the best reward within some
    costs: `levels`, in tenths of the cost range. Where `pairs` is given, one snapshot may also hand
    over to another, in at most so many pairs of snapshots.
    """  # noqa: D205
    kinds, places, tried = _candidates(settings, rewards, costs, region, known)
    best = [kinds[i] for i in _best(places, region, count, levels)]
    if not pairs:
        return best
    ways = {k: tuple(place.mean(0)) for k, place in zip(kinds[:tried], places, strict=False)}
    crossed, expected = _crossed({**known, **ways}, ways.keys(), region)
    new = [crossed[i] for i in _best(list(expected[:, None]), region, count, levels)]
    # By turns: what was lucky once promises more than anything that is only expected.
    turns = itertools.chain.from_iterable(itertools.zip_longest(new, best))
    return _of_few_pairs([s for s in turns if s][:count], pairs)


def _of_few_pairs(chosen: list[Setting], pairs: int) -> list[Setting]:
    """The same number of settings, all of the first so many pairs of snapshots."""
    few = list(dict.fromkeys((s.snapshot, s.last) for s in chosen))[:pairs]
    kept = itertools.cycle([s for s in chosen if (s.snapshot, s.last) in few])
    return [s if (s.snapshot, s.last) in few else next(kept) for s in chosen]


def _candidates(
    settings: Sequence[Setting],
    rewards: Float[np.ndarray, " e"],
    costs: Float[np.ndarray, " e"],
    region: Region,
    known: Mapping[Setting, Place],
) -> tuple[list[Setting], list[Float[np.ndarray, "_ 2"]], int]:
    """Settings, where episodes of each landed or are expected to, and how many were tried: first
    these, then changes of mind that were not.
    """  # noqa: D205
    landed: dict[Setting, list[int]] = defaultdict(list)
    for i, setting in enumerate(settings):
        landed[setting].append(i)
    ways = {s: (rewards[of].mean(), costs[of].mean()) for s, of in landed.items()}
    combined, expected = _combined({**known, **ways}, landed.keys(), region)
    places = [np.stack([rewards[of], costs[of]], 1) for of in landed.values()]
    return [*landed, *combined], places + list(expected[:, None]), len(landed)


def _bounds(rewards: Float[np.ndarray, " e"]) -> tuple[float, float]:
    return float(rewards.min()), float(rewards.max())


SHARES = np.arange(1, PARTS) / PARTS
"""Of the episode that is over when it changes its mind."""


def _combined(
    ways: Mapping[Setting, Place], tried: Collection[Setting], region: Region
) -> tuple[list[Setting], Float[np.ndarray, "k 2"]]:
    """Changes of mind that were not tried, and where they are expected to land."""
    alike: dict[tuple[int, int], list[tuple[int, Place]]] = defaultdict(list)
    for setting, place in ways.items():
        if setting.then < 0 and not NOISES[setting.noise].random:
            alike[setting.snapshot, setting.noise].append((setting.rung, place))
    off = _residuals(ways)
    found, expected = [], []
    for (snapshot, noise), some in alike.items():
        rungs, places = np.array([rung for rung, _ in some]), np.array([p for _, p in some])
        apart = np.abs(places[:, 1] - places[:, None, 1]) > APART * region.cost_high
        one, other = np.nonzero(apart)
        lands = _between(places[one], places[other], off)
        inside = region.holds(lands[..., 0], lands[..., 1])
        for pair, part in np.argwhere(inside).tolist():
            first, then = int(rungs[one[pair]]), int(rungs[other[pair]])
            setting = Setting(snapshot, first, noise, then, part + 1)
            if setting not in tried:
                found.append(setting)
                expected.append(lands[pair, part])
    few = np.unique(np.linspace(0, len(found) - 1, min(len(found), MOST_COMBINED)).astype(int))
    return [found[i] for i in few], np.array(expected).reshape(-1, 2)[few]


def _crossed(
    ways: Mapping[Setting, Place], tried: Collection[Setting], region: Region
) -> tuple[list[Setting], Float[np.ndarray, "k 2"]]:
    """Untried changes from one of the best noiseless ways to that of another snapshot, and where
    they are expected to land.
    """  # noqa: D205
    plain = {s: place for s, place in ways.items() if s.then < 0 and not any(NOISES[s.noise][:2])}
    settings, places = list(plain), np.array(list(plain.values())).reshape(-1, 2)
    level = np.ceil(places[:, 1] * TENTHS / (region.cost_high or 1.0))
    order = np.argsort(-places[:, 0], kind="stable")
    best = [i for one in np.unique(level) for i in order[level[order] == one][:ABLEST].tolist()]
    off = _residuals({s: p for s, p in ways.items() if s.then < 0 or s.after >= 0})
    pairs = [(i, j) for i in best for j in best if settings[i].snapshot != settings[j].snapshot]
    one, other = np.array(pairs, int).reshape(-1, 2).T
    lands = _between(places[one], places[other], off)
    found, expected = [], []
    for pair, part in np.argwhere(region.holds(lands[..., 0], lands[..., 1])).tolist():
        first, then = settings[one[pair]], settings[other[pair]]
        setting = Setting(first.snapshot, first.rung, 0, then.rung, part + 1, then.snapshot)
        if setting not in tried:
            found.append(setting)
            expected.append(lands[pair, part])
    return found, np.array(expected).reshape(-1, 2)


def _between(
    one: Float[np.ndarray, "p 2"],
    other: Float[np.ndarray, "p 2"],
    off: Float[np.ndarray, "2 2"],
) -> Float[np.ndarray, "p parts 2"]:
    """Where changes from one way to another land, for each part of the episode they come after."""
    share = SHARES[None, :, None]
    rising = (one[:, 1] < other[:, 1]).astype(int)
    lands = share * one[:, None] + (1 - share) * other[:, None]
    lands += 4 * share * (1 - share) * off[rising][:, None]
    return np.maximum(lands, [-np.inf, 0.0])  # nothing costs less than 0


def _residuals(ways: Mapping[Setting, Place]) -> Float[np.ndarray, "2 2"]:
    """How far changes of mind landed from between their ways, in mid-episode, to cheaper and to
    costlier ones; at either end of an episode there is nothing to be off by.
    """  # noqa: D205
    total, weight = np.zeros((2, 2)), np.ones(2)  # as if one had landed where it should
    for setting, place in ways.items():
        one = ways.get(Setting(setting.snapshot, setting.rung, setting.noise))
        other = ways.get(Setting(setting.last, setting.then, setting.noise))
        if setting.then >= 0 and one is not None and other is not None:
            expected = _between(np.array([one]), np.array([other]), np.zeros((2, 2)))
            rising = int(one[1] < other[1])
            total[rising] += np.array(place) - expected[0, setting.part - 1]
            weight[rising] += 4 * SHARES[setting.part - 1] * (1 - SHARES[setting.part - 1])
    return total / weight[:, None]


def _best(
    places: list[Float[np.ndarray, "_ 2"]], region: Region, count: int, levels: Collection[int]
) -> list[int]:
    """Numbers of the candidates that were best, or are expected to be, within each of some costs,
    in tenths of the cost range.
    """  # noqa: D205
    of = np.repeat(np.arange(len(places)), [len(place) for place in places])
    rewards, costs = np.concatenate([np.zeros((0, 2)), *places]).T
    inside = region.holds(rewards, costs)
    level = np.ceil(costs * TENTHS / (region.cost_high or 1.0))
    depth = max(DEPTH, count // (3 * TENTHS))
    ranked = []
    for one in levels:
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
