"""Episodes relabelled with requests beyond the data's frontier, for CDT; and its hand-set numbers.

A request that no episode fulfils is given to an episode within its cost and near its reward: asked
for too much, the policy then keeps to the cost.
"""

import csv
import functools
import importlib.resources
from typing import Literal, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from safestitch.episodes import frontier
from safestitch.records import SafestitchError

COST_BINS, REWARD_BINS = 10, 50
LARGEST_BIN, SMALLEST_BIN = 10, 3

Pairing = Literal["released", "kept"]


class HandSet(NamedTuple):
    """The numbers that CDT's authors set for a task by hand."""

    degree: int
    """Of the polynomial through the frontier."""
    max_reward: float
    """Largest reward asked for in relabelling."""
    max_drop: float
    """How much less than asked a stand-in may earn."""
    costs: tuple[float, ...]
    rewards: tuple[float, ...]
    """Rewards asked for at these cost limits when acting."""


@functools.cache
def hand_set() -> dict[str, HandSet]:
    """Task -> its hand-set numbers."""
    text = importlib.resources.files("safestitch.algos").joinpath("cdt_targets.csv").read_text()
    found = {}
    for row in csv.DictReader(text.splitlines()):
        pairs = [tuple(float(x) for x in row[name].split()) for name in ("costs", "rewards")]
        numbers = float(row["max_reward"]), float(row["max_drop"])
        found[row["task"]] = HandSet(int(row["degree"]), *numbers, *pairs)
    return found


def measured(R: Float[np.ndarray, " e"]) -> HandSet:
    """Where nobody set any: a parabola, a tenth above the best, a fifth of the range."""
    spread = float(np.ptp(R)) or 1.0
    return HandSet(2, float(R.max()) + 0.1 * spread, 0.2 * spread, (), ())


def targets_of(task: str) -> Float[np.ndarray, "2 p"]:
    """The hand-set (costs, rewards) to ask for, drawn out to cost 0 and to the largest reward.

    Raises:
        SafestitchError: if there are none for this task.
    """
    known = hand_set()
    if task not in known:
        raise SafestitchError(
            f"target is table, but {task} has no hand-set targets; those that have: "
            f"{', '.join(known)}. Choose another rule, such as frontier"
        )
    costs, rewards, top = known[task].costs, known[task].rewards, known[task].max_reward
    slopes = np.diff(rewards) / np.diff(costs)
    costs, rewards = [0.0, *costs], [rewards[0] - slopes[0] * costs[0], *rewards]
    if slopes[-1] > 0:
        costs, rewards = [*costs, costs[-1] + (top - rewards[-1]) / slopes[-1]], [*rewards, top]
    return np.asarray([costs, rewards], np.float32)


def read_table(table: Float[Array, "2 p"], limit: Float[Array, ""]) -> Float[Array, ""]:
    """The hand-set reward at a limit: straight lines between the pairs, level after the last."""
    return jnp.interp(limit, *table)


class Relabelled(NamedTuple):
    """Copies of episodes, and what they are said to bring."""

    episode: Int[np.ndarray, " m"]
    R: Float[np.ndarray, " m"]
    C: Float[np.ndarray, " m"]


def thin(R, C, rng: np.random.Generator) -> Int[np.ndarray, " k"]:
    """Episodes left when crowded cells of the (C, R) plane are thinned and lonely ones dropped."""

    def cell(x, bins):
        return np.minimum((x - x.min()) / (np.ptp(x) or 1.0) * bins, bins - 1).astype(int)

    cells = cell(C, COST_BINS) * REWARD_BINS + cell(R, REWARD_BINS)
    order = rng.permutation(len(R))
    order = order[np.argsort(cells[order], kind="stable")]
    starts = np.flatnonzero(np.diff(cells[order], prepend=-1))
    sizes = np.diff(starts, append=len(order))
    rank = np.arange(len(order)) - np.repeat(starts, sizes)
    kept = order[(rank < LARGEST_BIN) & (np.repeat(sizes, sizes) >= SMALLEST_BIN)]
    return kept if len(kept) else np.arange(len(R))  # too few episodes to tell the lonely ones


def requests(R, C, numbers: HandSet, count: int, rng: np.random.Generator):
    """Eq. (1): costs evenly spaced, rewards uniform from the frontier's polynomial to the top."""
    costs, rewards = frontier(R, C)
    unit = max(float(costs[-1]), 1e-12)  # costs as shares: their powers may be huge
    fitted = np.polyfit(costs / unit, rewards, min(numbers.degree, len(costs) - 1))
    c = np.linspace(C.min(), C.max(), count)
    least = np.polyval(fitted, c / unit) + min(1.0, 0.01 * float(np.ptp(R)))
    top = max(numbers.max_reward, float(R.max()))
    return least + (np.maximum(top, least) - least) * rng.uniform(size=count), c


def stand_in(R, C, r: float, c: float) -> int:
    """Eq. (2): the episode nearest to (c, r) among those that cost at most c."""
    distance = np.where(c >= C, (R - r) ** 2 + (C - c) ** 2, np.inf)
    return int(distance.argmin())


def another(R, C, chosen: int, max_drop: float, rng: np.random.Generator) -> int:
    """Eq. (3): for one chosen before, a neighbour as cheap and not much poorer, by 1 / (d + 1)."""
    fits = (C[chosen] >= C) & (R[chosen] - max_drop <= R)
    distance = np.hypot(R - R[chosen], C - C[chosen])
    weight = np.where(fits, 1.0 / (distance + 1.0), 0.0)
    return int(rng.choice(len(R), p=weight / weight.sum()))


def relabel_episodes(
    R: Float[np.ndarray, " e"],
    C: Float[np.ndarray, " e"],
    numbers: HandSet,
    share: float,
    pairing: Pairing,
) -> Relabelled:
    """Requests beyond the frontier, and the episodes that stand in for them.

    Pairing "released" is the published program's: episodes chosen more than once are listed
    together, requests are not, and so part of the requests go to another's episode.
    """
    rng = np.random.default_rng(0)
    kept = thin(R, C, rng)
    r, c = requests(R[kept], C[kept], numbers, int(share * len(kept)), rng)
    chosen = [stand_in(R[kept], C[kept], *pair) for pair in zip(r, c, strict=True)]
    by_first: dict[int, list[int]] = {}
    for place, episode in enumerate(chosen):
        by_first.setdefault(episode, []).append(place)
    episodes, places = [], []
    for episode, asked in by_first.items():
        more = [another(R[kept], C[kept], episode, numbers.max_drop, rng) for _ in asked[1:]]
        episodes += [episode, *more]
        places += asked
    order = np.arange(len(r)) if pairing == "released" else np.asarray(places, int)
    return Relabelled(kept[np.asarray(episodes, int)], r[order], c[order])
