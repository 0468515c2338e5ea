"""How much stitching could add: pieces of logged episodes joined where they pass close by.

An estimate, not a promise. Episodes are cut into equal pieces. A piece may be followed by the next
one of its own episode, or by any piece whose first observation is closer to where it ended than the
data move in `REACH` steps (median, each dimension in units of its spread). Among all chains of
pieces from logged starts that fill the horizon, the best reward within each cost budget is found
exactly, by dynamic programming over budgets. It is too high where closeness hides a gap that cannot
be crossed or where luck is mistaken for skill, too low where a policy can do better than any piece.
"""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from safestitch.data.survey import Sampled

PIECES = 20
"""Pieces of a full episode."""
REACH = 2
"""Steps; how far apart two observations may be at a seam."""
EPISODES = 400
"""Most episodes that are cut up: half the best of their cost, half at random."""
NEIGHBOURS = 6
BUDGETS = 100
"""Levels of cost budget; the cost of a piece is rounded up to one."""


class Pieces(NamedTuple):
    """Pieces of episodes, in order."""

    reward: Float[np.ndarray, " m"]
    cost: Float[np.ndarray, " m"]
    start: Float[np.ndarray, "m o"]
    after: Float[np.ndarray, "m o"]
    """The observation after the piece; of the last one of an episode, its own last."""
    follower: Int[np.ndarray, " m"]
    """The next piece of the same episode; -1 if there is none."""
    is_first: Bool[np.ndarray, " m"]
    is_fall: Bool[np.ndarray, " m"]
    """Ends with the episode terminated: nothing may follow."""


@dataclasses.dataclass(frozen=True, eq=False)
class Stitched:
    """The best chain of pieces for each budget."""

    budgets: Float[np.ndarray, " b"]
    rewards: Float[np.ndarray, " b"]
    """NaN where no chain fits."""
    episodes: int
    """How many were cut up."""
    seams: float
    """Pieces of other episodes that may follow a piece, on average."""


def stitch(sample: Sequence[Sampled], horizon: int) -> Stitched | None:
    """The best reward of stitched episodes within each cost budget; None without data."""
    chosen = _choose(sample)
    top = max((float(each.costs.sum()) for each in chosen), default=0.0)
    if not chosen or min(float(each.costs.min()) for each in chosen) < 0:
        return None
    chosen = _in_spreads(chosen)
    pieces = cut(chosen, max(1, -(-horizon // PIECES)))
    moves = [_moves(each.observations) for each in chosen if len(each.rewards) > REACH]
    reach = float(np.median(np.concatenate(moves))) if moves else 0.0
    following = _following(pieces, reach)
    unit = _budget_unit(pieces.cost, top)
    rewards = best_chains(pieces, following, unit, levels=round(top / unit) + 1)
    budgets = unit * np.arange(len(rewards))
    seams = float((following[:, 1:] >= 0).sum() / len(following))
    return Stitched(budgets, rewards, len(chosen), seams)


def cut(episodes: Sequence[Sampled], length: int) -> Pieces:
    """Pieces of `length` steps; the last one of an episode may be shorter."""
    found: list[tuple] = []
    for each in episodes:
        steps, base = len(each.rewards), len(found)
        for k, first in enumerate(range(0, steps, length)):
            last = min(first + length, steps)
            is_last = last == steps
            found.append(
                (
                    each.rewards[first:last].sum(dtype=np.float64),
                    each.costs[first:last].sum(dtype=np.float64),
                    each.observations[first],
                    each.observations[min(last, steps - 1)],
                    -1 if is_last else base + k + 1,
                    first == 0,
                    is_last and each.terminated,
                )
            )
    return Pieces(*(np.array(column) for column in zip(*found, strict=True)))


def best_chains(
    pieces: Pieces, following: Int[np.ndarray, "m n"], unit: float, levels: int
) -> Float[np.ndarray, " b"]:
    """Best reward of `PIECES` pieces, from a first one, for each number of `unit`s of cost."""
    price = np.ceil(pieces.cost / unit - 1e-6).astype(np.int64)[:, None]
    left = np.arange(levels)[None, :] - price
    reward = pieces.reward[:, None]
    is_end = np.all(following < 0, axis=1, keepdims=True)
    best = np.zeros((len(reward), levels))
    for _ in range(PIECES):
        after = np.full_like(best, -np.inf)
        for column in following.T:
            there = column >= 0
            after[there] = np.maximum(after[there], best[column[there]])
        after = np.where(is_end, 0.0, after)
        spent = np.take_along_axis(after, np.maximum(left, 0), axis=1)
        best = np.where(left >= 0, reward + spent, -np.inf)
    found = best[pieces.is_first].max(axis=0)
    return np.where(np.isfinite(found), np.maximum.accumulate(found), np.nan)


def top_of_cost(
    returns: Float[np.ndarray, " e"], costs: Float[np.ndarray, " e"], q: float, bins: int = 20
) -> Bool[np.ndarray, " e"]:
    """D^q of GAS for whole episodes: the top q of reward among those of like cost.

    Zero cost is a bin of its own; every bin keeps at least its best.

    Example:
        >>> top_of_cost(np.array([1.0, 2.0, 5.0]), np.array([0.0, 0.0, 9.0]), 0.5)
        array([False,  True,  True])
    """
    share = costs / max(float(costs.max(initial=0.0)), 1e-12)
    group = np.where(costs <= 0, 0, 1 + np.minimum(share * bins, bins - 1).astype(int))
    kept = np.zeros(len(returns), bool)
    for number in np.unique(group):
        members = np.flatnonzero(group == number)
        count = max(1, round(q * len(members)))
        kept[members[np.argsort(-returns[members], kind="stable")[:count]]] = True
    return kept


def _choose(sample: Sequence[Sampled]) -> list[Sampled]:
    if len(sample) <= EPISODES:
        return list(sample)
    returns, costs = (
        np.array([getattr(each, name).sum(dtype=np.float64) for each in sample])
        for name in ("rewards", "costs")
    )
    share = EPISODES / 2 / len(sample)
    good = np.flatnonzero(top_of_cost(returns, costs, share))[: EPISODES // 2]
    others = np.setdiff1d(np.arange(len(sample)), good)
    rest = np.random.default_rng(0).choice(others, EPISODES - len(good), replace=False)
    return [sample[i] for i in np.sort(np.concatenate([good, rest]))]


def _in_spreads(episodes: list[Sampled]) -> list[Sampled]:
    """Observations centred and in units of their spread; what stands still counts for nothing."""
    values = np.concatenate([each.observations for each in episodes]).astype(np.float64)
    mean, spread = values.mean(axis=0), values.std(axis=0)
    weight = np.where(spread > 1e-6 * np.abs(mean), 1 / np.maximum(spread, 1e-30), 0.0)
    return [
        dataclasses.replace(
            each, observations=((each.observations - mean) * weight).astype(np.float32)
        )
        for each in episodes
    ]


def _moves(scaled: np.ndarray) -> np.ndarray:
    return np.linalg.norm(scaled[REACH:] - scaled[:-REACH], axis=1)


def _following(pieces: Pieces, reach: float) -> Int[np.ndarray, "m n"]:
    """Own follower first, then the nearest starts within reach; -1 where there are fewer."""
    start, after = pieces.start, pieces.after
    squares = (start**2).sum(axis=1)
    count = min(NEIGHBOURS, len(start))
    found = np.full((len(start), 1 + count), -1, np.int64)
    found[:, 0] = pieces.follower
    for first in range(0, len(start), 500):
        part = after[first : first + 500]
        distance = squares[None] - 2 * part @ start.T + (part**2).sum(axis=1)[:, None]
        near = np.argpartition(distance, count - 1, axis=1)[:, :count]
        close = np.take_along_axis(distance, near, axis=1) <= reach**2 + 1e-6
        own = near == pieces.follower[first : first + 500, None]
        found[first : first + 500, 1:] = np.where(close & ~own, near, -1)
    found[pieces.is_fall] = -1
    return found


def _budget_unit(costs: np.ndarray, top: float) -> float:
    """Cost of a level: 1 where costs are few whole numbers, which rounds nothing."""
    is_whole = top <= 4 * BUDGETS and not np.mod(costs, 1).any()
    return 1.0 if is_whole else max(top, 1e-9) / BUDGETS
