"""Which episodes are rolled: snapshot x multiplier x noise, now and then with a change of mind.

Everything is drawn from the seed before an episode is begun. The survey visits all settings evenly;
what comes after it is aimed (aiming.py) by what the episodes before it brought.
"""

import dataclasses
import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from safestitch.behaviours.actor import LAMBDA_MIN
from safestitch.behaviours.snapshots import Behaviours

LADDER = (0.0, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
"""Multipliers from which to which the rungs go, where the snapshots were not measured at some."""
RUNGS = 3
"""From one of them to the next: a little more weight on the cost may turn a run into a stroll."""
TOO_COSTLY = 1.3
"""Of the cost range: a rung whose noiseless episodes cost more is left out."""
SWITCHING = 0.05
"""Share of the survey that changes its multiplier in mid-episode."""
QUARTERS = 4
"""A change of mind comes about at one of the quarters of an episode."""
SPELL = 8
"""Steps for which an action drawn at random is held."""


class Noise(NamedTuple):
    """How an episode strays from what the actor would do."""

    spread: float
    """Of the actor's own Gaussian noise: 0 acts at its middle, 1 draws from the policy."""
    random: float
    """Share of the spells that are spent on one action drawn at random."""
    weight: int
    """How often the survey draws this kind."""


NOISES = (
    Noise(0.0, 0.0, 4),
    Noise(0.5, 0.0, 2),
    Noise(1.0, 0.0, 3),
    Noise(1.0, 0.1, 1),
    Noise(1.0, 0.25, 1),
    Noise(1.0, 0.5, 1),
    Noise(1.0, 1.0, 1),
)
"""From the actor's best to no actor at all."""


@dataclasses.dataclass(frozen=True)
class Setting:
    """A kind of episode, of which more can be drawn."""

    snapshot: int
    rung: int
    """Which multiplier of the ladder, about."""
    noise: int
    """Which of NOISES."""
    then: int = -1
    """The rung it changes to in mid-episode; -1 for none."""
    quarter: int = 0
    """When it does, about."""


@dataclasses.dataclass(frozen=True)
class Planned:
    """One episode to roll."""

    setting: Setting
    lam: float
    """Multiplier of the cost."""
    lam_after: float
    switch: int
    """Step from which `lam_after` counts; beyond the horizon if never."""


def ladder_of(behaviours: Behaviours) -> tuple[float, ...]:
    """Rungs: from one multiplier at which the snapshots were measured to the next, rising."""
    measured = sorted({lam for moment in behaviours.moments for lam in moment.lambdas})
    ends = measured if len(measured) > 2 else LADDER
    places = np.arange(RUNGS * (len(ends) - 1) + 1) / RUNGS
    return tuple(_between(ends, place) for place in places.tolist())


def survey(
    behaviours: Behaviours, count: int, cost_high: float | None, random: np.random.Generator
) -> list[Setting]:
    """Settings that visit snapshots, rungs and noises as evenly as the count allows.

    Args:
        behaviours: The snapshots.
        count: Settings to draw.
        cost_high: The largest cost of use; rungs measured to cost far more are left out.
        random: What draws.
    """
    rungs = len(ladder_of(behaviours))
    noises = [n for n, noise in enumerate(NOISES) for _ in range(noise.weight)]
    orders = []
    for snapshot in range(len(behaviours)):
        useful = _useful_rungs(behaviours, snapshot, cost_high)
        kinds = [Setting(snapshot, *kind) for kind in itertools.product(useful, noises)]
        orders.append(itertools.cycle([kinds[i] for i in random.permutation(len(kinds))]))
    settings = [next(orders[i % len(orders)]) for i in range(count)]
    switching = random.random(count) < SWITCHING
    then, quarter = random.integers(0, rungs, count), random.integers(1, QUARTERS, count)
    return [
        dataclasses.replace(s, then=int(then[i]), quarter=int(quarter[i])) if switching[i] else s
        for i, s in enumerate(settings)
    ]


def _useful_rungs(behaviours: Behaviours, snapshot: int, cost_high: float | None) -> list[int]:
    ladder, moment = ladder_of(behaviours), behaviours.moments[snapshot]
    if cost_high is None or not moment.lambdas:
        return list(range(len(ladder)))
    order = np.argsort(moment.lambdas)
    known, costs = np.asarray(moment.lambdas)[order], np.asarray(moment.costs)[order]
    costs_at = np.interp(_log(ladder), _log(known), costs)
    useful = np.flatnonzero(costs_at <= TOO_COSTLY * cost_high)
    return useful.tolist() or [int(np.argmin(costs_at))]


def draw(
    settings: Sequence[Setting],
    ladder: Sequence[float],
    horizon: int,
    random: np.random.Generator,
) -> list[Planned]:
    """Episodes of these settings: multipliers half a rung about theirs, changes about theirs."""
    shifts = random.uniform(-0.5, 0.5, (len(settings), 3))
    planned = []
    for setting, (first, second, when) in zip(settings, shifts.tolist(), strict=True):
        lam = _between(ladder, setting.rung + first)
        if setting.then < 0:
            planned.append(Planned(setting, lam, lam, horizon))
        else:
            switch = round((setting.quarter + when) / QUARTERS * horizon)
            planned.append(Planned(setting, lam, _between(ladder, setting.then + second), switch))
    return planned


def _between(ladder: Sequence[float], position: float) -> float:
    """The multiplier at a place between rungs."""
    logs = _log(ladder)
    return float(LAMBDA_MIN * np.expm1(np.interp(position, np.arange(len(logs)), logs)))


def _log(lams: Sequence[float] | np.ndarray) -> Float[np.ndarray, " n"]:
    return np.log1p(np.asarray(lams) / LAMBDA_MIN)


# --- noise -------------------------------------------------------------------------------------


def noise_of(
    noise: Noise, horizon: int, act_dim: int, seed: int
) -> tuple[Float[np.ndarray, "t a"], Float[np.ndarray, "t a"]]:
    """Gaussian noise of each step, and the actions drawn at random, NaN where the actor acts.

    A counter-based generator of the episode's own: it does not matter who rolls it, or when.
    """
    random = np.random.Generator(np.random.Philox(key=seed))
    gaussian = np.float32(noise.spread) * random.standard_normal((horizon, act_dim), np.float32)
    spells = -(-horizon // SPELL)
    held = random.uniform(-1, 1, (spells, act_dim)).astype(np.float32)
    held[random.random(spells) >= noise.random] = np.nan
    return gaussian, np.repeat(held, SPELL, axis=0)[:horizon]
