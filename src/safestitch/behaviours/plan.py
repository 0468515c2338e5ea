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
from safestitch.behaviours.thinning import Region

LADDER = (0.0, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
"""Multipliers from which to which the rungs go, where the snapshots were not measured at some."""
RUNGS = 3
"""From one of them to the next: a little more weight on the cost may turn a run into a stroll."""
TOO_COSTLY = 1.3
"""Of the cost range: a rung whose noiseless episodes cost more is left out."""
HOPELESS, TURNS = 0.05, 3
"""A snapshot that earned no more than this share of the best has one turn where others have so
many."""
SWITCHING = 0.05
"""Share of the survey that changes its multiplier in mid-episode."""
PARTS = 16
"""A change of mind comes between two parts of an episode, about."""
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
    part: int = 0
    """When it does, about."""
    after: int = -1
    """The snapshot that acts from then on; -1 for the same."""

    @property
    def last(self) -> int:
        """The snapshot that acts at the end."""
        return self.snapshot if self.after < 0 else self.after


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
    ends = _ends(behaviours)
    places = np.arange(RUNGS * (len(ends) - 1) + 1) / RUNGS
    return tuple(_between(ends, place) for place in places.tolist())


def _ends(behaviours: Behaviours) -> tuple[float, ...]:
    known = sorted({lam for moment in behaviours.moments for lam in moment.lambdas})
    return tuple(known) if len(known) > 2 else LADDER


def survey(
    behaviours: Behaviours, count: int, region: Region | None, random: np.random.Generator
) -> list[Setting]:
    """Settings that visit snapshots, rungs and noises as evenly as the count allows.

    Args:
        behaviours: The snapshots.
        count: Settings to draw.
        region: Where episodes are of use; rungs measured to land far from it are left out.
        random: What draws.
    """
    noises = [n for n, noise in enumerate(NOISES) for _ in range(noise.weight)]
    useful = [_useful_rungs(behaviours, snapshot, region) for snapshot in range(len(behaviours))]
    orders = []
    for snapshot, rungs in enumerate(useful):
        kinds = [Setting(snapshot, *kind) for kind in itertools.product(rungs, noises)]
        orders.append(itertools.cycle([kinds[i] for i in random.permutation(len(kinds))]))
    turns = itertools.cycle(_turns(behaviours))
    settings = [next(orders[next(turns)]) for _ in range(count)]
    switching, then = random.random(count) < SWITCHING, random.random(count)
    part = random.integers(1, PARTS, count)
    for i in np.flatnonzero(switching).tolist():
        rungs = useful[settings[i].snapshot]
        other = rungs[int(then[i] * len(rungs))]
        settings[i] = dataclasses.replace(settings[i], then=other, part=int(part[i]))
    return settings


def _turns(behaviours: Behaviours) -> list[int]:
    """Snapshots in the order of their turns: the hopeless, who all do the same, have fewer."""
    best = np.array([max(moment.rewards, default=0.0) for moment in behaviours.moments])
    able = np.flatnonzero(best >= HOPELESS * best.max()).tolist()
    return [*range(len(behaviours)), *able * (TURNS - 1)]


def _useful_rungs(behaviours: Behaviours, snapshot: int, region: Region | None) -> list[int]:
    """Rungs beside a multiplier at which a snapshot was measured to be of use; all if at none.

    Beyond the multipliers that it was measured at it has not learned what to do.
    """
    ends, rungs = np.array(_ends(behaviours)), len(ladder_of(behaviours))
    moment = behaviours.moments[snapshot]
    if not moment.lambdas:
        return list(range(rungs))
    order = np.argsort(moment.lambdas)
    lams, rewards, costs = (
        np.array(x)[order] for x in (moment.lambdas, moment.rewards, moment.costs)
    )
    learned = (ends >= lams[0]) & (ends <= lams[-1])
    rewards, costs = (np.interp(_log(ends), _log(lams), values) for values in (rewards, costs))
    useful = learned & (region.holds(rewards, costs / TOO_COSTLY) if region else True)
    place = np.arange(rungs) / RUNGS
    low, high = np.floor(place).astype(int), np.ceil(place).astype(int)
    beside = (useful[low] | useful[high]) & learned[low] & learned[high]
    some = np.flatnonzero(beside), RUNGS * np.flatnonzero(learned), np.arange(rungs)
    return next(found.tolist() for found in some if len(found))


def measured(behaviours: Behaviours) -> dict[Setting, tuple[float, float]]:
    """Reward and cost of the settings that were measured when the snapshots were taken."""
    ends = _ends(behaviours)
    return {
        Setting(snapshot, RUNGS * ends.index(lam), 0): (reward, cost)
        for snapshot, moment in enumerate(behaviours.moments)
        for lam, reward, cost in zip(moment.lambdas, moment.rewards, moment.costs, strict=True)
        if lam in ends
    }


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
            switch = round((setting.part + when) / PARTS * horizon)
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
