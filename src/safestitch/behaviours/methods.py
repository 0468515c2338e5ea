"""The two learners behind one door, for the training that drives either.

`sac` learns most from each step, `ppo` spends least on each: where a simulator steps fast, or the
way to a good gait is long, the latter is ahead after the same time.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from safestitch.behaviours import ppo, replay, sac
from safestitch.behaviours.actor import Actor
from safestitch.behaviours.preferences import Preferences
from safestitch.behaviours.settings import Schedule
from safestitch.records import Spec

State = tuple
"""The learner first, and what else it needs to go on."""


class Method(NamedTuple):
    """What the training asks of a learner."""

    config: type
    chunk: Callable[[Any, Schedule], int]
    """Transitions that are learned from at once."""
    begin: Callable[[Any, Spec, Schedule, jax.Array], State]
    remember: Callable[[State, np.ndarray], State] | None
    """What random steps leave behind, before learning begins; none: it needs no random steps."""
    learning: Callable[[Any, Spec, Schedule], Callable[..., tuple[State, Actor, jax.Array]]]
    """(state, rows, actor that acted, units) -> state, actor, losses of critic and policy."""
    actor_of: Callable[[State, sac.Units], Actor]
    facts: Callable[[State], dict[str, float]]
    """For the log."""
    lag: int
    """Chunks that the acting actor may be behind, so that acting need not wait for learning."""


# --- soft actor-critic ------------------------------------------------------------------------


def _sac_begin(config: sac.Config, spec: Spec, schedule: Schedule, key: jax.Array) -> State:
    capacity = -(-schedule.capacity // schedule.lanes) * schedule.lanes
    return sac.init(config, spec, key), replay.empty(spec, capacity)


def _sac_learning(config: sac.Config, spec: Spec, schedule: Schedule) -> Callable:
    rounds = max(1, round(schedule.lanes * schedule.updates / config.delay))
    program = replay.learning(config, spec, rounds * config.delay)

    def learn(state: State, rows: np.ndarray, _: Actor, units: sac.Units):
        learner, held, actor, losses = program(*state, rows, units)
        return (learner, held), actor, losses

    return learn


def _sac_facts(state: State) -> dict[str, float]:
    lambdas = (0.0, 1.0, 100.0)
    alphas = jnp.exp(sac.log_temperature(state[0].policy.net[2], jnp.array(lambdas)))
    return {f"temperature/{lam:g}": a for lam, a in zip(lambdas, alphas.tolist(), strict=True)}


SAC = Method(
    config=sac.Config,
    chunk=lambda _, schedule: schedule.lanes,
    begin=_sac_begin,
    remember=lambda state, rows: (state[0], replay.storing()(state[1], rows)),
    learning=_sac_learning,
    actor_of=lambda state, units: sac.actor_of(state[0], units),
    facts=_sac_facts,
    lag=1,
)


# --- proximal policy optimisation -------------------------------------------------------------


def _ppo_learning(config: ppo.Config, spec: Spec, schedule: Schedule) -> Callable:
    program = ppo.learning(config, schedule.lanes * config.rollout)

    def learn(state: State, rows: np.ndarray, actor: Actor, units: sac.Units):
        batch = replay.unpack(spec, jnp.asarray(rows))
        learner, actor, losses = program(state[0], batch, actor, units)
        return (learner,), actor, losses

    return learn


PPO = Method(
    config=ppo.Config,
    chunk=lambda config, schedule: schedule.lanes * config.rollout,
    begin=lambda config, spec, _, key: (ppo.init(config, spec, key),),
    remember=None,
    learning=_ppo_learning,
    actor_of=lambda state, units: ppo.actor_of(state[0], units),
    facts=lambda state: {"rate": ppo.policy_rate(state[0])},
    lag=0,
)

METHODS = {"sac": SAC, "ppo": PPO}


def name_of(config: Preferences) -> str:
    """The learner that settings are of."""
    return next(name for name, method in METHODS.items() if isinstance(config, method.config))
