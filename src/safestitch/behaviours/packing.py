"""Which snapshots of a task are worth their bytes: the best at every cost, and all levels of skill.

Snapshots may have been measured at different lambdas: they are compared band by band, or where
each is read off between its own lambdas.
"""

import dataclasses
import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float

from safestitch.behaviours.settings import BANDS, band_of
from safestitch.behaviours.snapshots import Behaviours, Moment, chosen, joined, load
from safestitch.behaviours.training import taken
from safestitch.records import SafestitchError

LEVELS = 11
"""Costs, from 0 to the range of the task, at which the best snapshots are kept."""
BEST, EARLY = 2 / 3, 1 / 4
"""Most of the room that the best take; share of its training in which a snapshot is early."""
HEADER = 4_000
"""Bytes that are set aside for what a file holds besides snapshots."""


def gathered(places: Sequence[Path]) -> Behaviours:
    """All snapshots of run directories, also of unfinished runs, and of files of behaviours.

    Raises:
        SafestitchError: if there are none, or they do not go together.
    """
    files = [file for place in places for file in (taken(place) if place.is_dir() else [place])]
    if not files:
        raise SafestitchError(
            f"no snapshots in {', '.join(map(str, places)) or 'no run'}: give directories that "
            "`safestitch behaviours train` wrote, or files of behaviours"
        )
    return joined([load(file) for file in files])


def packed(behaviours: Behaviours, size: int) -> Behaviours:
    """As many snapshots as fit into `size` bytes, in the order of training.

    First those that earn most within some cost. Then, in half of the room that is left, early
    ones, and in the other half any: one after the other that which differs most from all so far.

    Raises:
        SafestitchError: if not even one fits, or one was never measured.
    """
    each = bytes_each(behaviours)
    room = min((size - HEADER) // each, len(behaviours))
    if room < 1:
        raise SafestitchError(
            f"a snapshot of {behaviours.spec.task} takes {each:,} bytes, and {HEADER:,} are needed "
            f"besides: {size:,} hold none. Give more --megabytes"
        )
    _check_measured(behaviours.moments)
    table, best = _doings(behaviours), best_at_levels(behaviours)
    found = best[: math.ceil(BEST * room)]
    _spread(table, found, early(behaviours.moments), (len(found) + room + 1) // 2)
    _spread(table, found, range(len(behaviours)), room)
    moments = behaviours.moments
    return chosen(behaviours, sorted(found, key=lambda i: (moments[i].seed, moments[i].step)))


def bytes_each(behaviours: Behaviours) -> int:
    """Most bytes of a snapshot in a file."""
    actor = behaviours[0]
    weights = sum(x.size for x in (*actor.weights, *actor.biases))
    facts = max(len(json.dumps(dataclasses.asdict(m))) for m in behaviours.moments)
    quotes = 6 * len(dataclasses.fields(Moment))  # escaped twice, two a field
    return 2 * weights + 4 * 2 * actor.obs_mean.size + facts + quotes + 2


def best_at_levels(behaviours: Behaviours) -> list[int]:
    """The snapshots with the best reward within each cost, the lowest cost first.

    Those that are best at any lambda come before those that are only among a band of lambdas.
    """
    moments = behaviours.moments
    measured = [
        (i, band_of(lam), reward, cost)
        for i, m in enumerate(moments)
        for lam, reward, cost in zip(m.lambdas, m.rewards, m.costs, strict=True)
    ]
    top = behaviours.spec.cost_range or max(cost for *_, cost in measured) or 1.0
    levels, bands = np.linspace(0.0, top, LEVELS), range(len(BANDS) + 1)
    found = [
        max(within, key=lambda row: row[2])[0]
        for among in (bands, *((band,) for band in bands))
        for level in levels
        if (within := [row for row in measured if row[1] in among and row[3] <= level])
    ]
    return list(dict.fromkeys(found))


def early(moments: Sequence[Moment]) -> list[int]:
    """The snapshots that had not learned much: of the first part of their seed's training."""
    ends = {m.seed: max(o.step for o in moments if o.seed == m.seed) for m in moments}
    return [i for i, m in enumerate(moments) if m.step <= EARLY * ends[m.seed]]


def _spread(
    table: Float[np.ndarray, "n _"], found: list[int], among: Iterable[int], room: int
) -> None:
    """Add to those found, until they are `room`, the farthest from all of them."""
    left = [i for i in among if i not in found]
    while left and len(found) < room:
        near = [np.abs(table[found] - table[i]).mean(1).min() if found else 0.0 for i in left]
        found.append(left.pop(int(np.argmax(near))))


def _doings(behaviours: Behaviours) -> Float[np.ndarray, "n _"]:
    """What each snapshot does: rewards and costs by lambda, each in units of its range."""
    moments = behaviours.moments
    lambdas = np.array(sorted({lam for m in moments for lam in m.lambdas}))
    columns = []
    for name in ("rewards", "costs"):
        values = np.array([_at(lambdas, m.lambdas, getattr(m, name)) for m in moments])
        columns.append(values / (np.ptp(values) or 1.0))
    return np.concatenate(columns, 1)


def _at(
    lambdas: Float[np.ndarray, " l"], known: Sequence[float], values: Sequence[float]
) -> Float[np.ndarray, " l"]:
    """Values at other lambdas than those measured: straight between them, level beyond."""
    order = np.argsort(known)
    return np.interp(np.log1p(lambdas), np.log1p(known)[order], np.asarray(values)[order])


def _check_measured(moments: Sequence[Moment]) -> None:
    for m in moments:
        if not m.lambdas:
            raise SafestitchError(
                f"the snapshot of seed {m.seed}, step {m.step:,} was measured at no lambda: "
                "leave its file out, or train again"
            )
