"""Which snapshots of a task are worth their bytes: the best at every cost, and differing ones."""

import numpy as np
from jaxtyping import Float

from safestitch.behaviours.snapshots import Behaviours, chosen
from safestitch.records import SafestitchError

LEVELS = 11
"""Costs, from 0 to the range of the task, at which the best snapshot is kept."""
HEADER = 20_000
"""Bytes that are set aside for what is not weights."""


def packed(behaviours: Behaviours, size: int) -> Behaviours:
    """As many snapshots as fit into `size` bytes, in the order of training.

    First those that earn most within some cost, at any lambda; then, one after the other, the one
    that does most differently from all chosen so far: that is what fills in the levels of skill.

    Raises:
        SafestitchError: if not even one fits.
    """
    room = (size - HEADER) // bytes_each(behaviours)
    if room < 1:
        raise SafestitchError(
            f"a snapshot of {behaviours.spec.task} takes {bytes_each(behaviours):,} bytes, and "
            f"{HEADER:,} are needed besides: {size:,} hold none. Give more --megabytes"
        )
    found = best_at_levels(behaviours)[:room]
    table = _doings(behaviours)
    while len(found) < min(room, len(behaviours)):
        apart = np.abs(table[:, None] - table[found]).mean(2).min(1)
        apart[found] = -1.0
        found.append(int(apart.argmax()))
    moments = behaviours.moments
    return chosen(behaviours, sorted(found, key=lambda i: (moments[i].seed, moments[i].step)))


def bytes_each(behaviours: Behaviours) -> int:
    """Bytes of a snapshot in a file."""
    actor = behaviours[0]
    weights = sum(x.size for x in (*actor.weights, *actor.biases))
    return 2 * weights + 4 * 2 * actor.obs_mean.size


def best_at_levels(behaviours: Behaviours) -> list[int]:
    """The snapshots with the best reward within each cost, those that win most often first."""
    rewards, costs = (
        np.array([getattr(m, name) for m in behaviours.moments]) for name in ("rewards", "costs")
    )
    top = behaviours.spec.cost_range or float(costs.max()) or 1.0
    wins = np.zeros(len(behaviours), int)
    for level in np.linspace(0.0, top, LEVELS):
        within = np.where(costs <= level, rewards, -np.inf).max(1)
        if np.isfinite(within).any():
            wins[within.argmax()] += 1
    return [int(i) for i in np.argsort(-wins, kind="stable") if wins[i]]


def _doings(behaviours: Behaviours) -> Float[np.ndarray, "n _"]:
    """What each snapshot does: rewards and costs at all lambdas, each in units of its range."""
    columns = []
    for name in ("rewards", "costs"):
        values = np.array([getattr(m, name) for m in behaviours.moments])
        columns.append(values / (np.ptp(values) or 1.0))
    return np.concatenate(columns, 1)
