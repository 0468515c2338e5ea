"""What was lived through: a ring of transitions on the device, and updates drawn from it.

One row a transition: observation, action, reward, cost, discount, lambda, next observation. Rows
come in and updates happen in one compiled program, in place.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from safestitch.behaviours import sac
from safestitch.behaviours.actor import AnyArray
from safestitch.records import Spec


class Replay(NamedTuple):
    """The ring."""

    rows: Float[Array, "capacity _"]
    count: Int[Array, ""]  # pyright: ignore[reportIncompatibleMethodOverride]
    """Rows ever stored; the next goes to count % capacity."""


def row_size(spec: Spec) -> int:
    """Numbers of a transition."""
    return 2 * spec.obs_dim + spec.act_dim + 4


def pack(
    obs: Float[np.ndarray, "n o"],
    action: Float[np.ndarray, "n a"],
    scalars: Float[np.ndarray, "n 4"],
    next_obs: Float[np.ndarray, "n o"],
) -> Float[np.ndarray, "n _"]:
    """Rows of transitions; the scalars are reward, cost, discount, lambda."""
    return np.concatenate([obs, action, scalars, next_obs], 1, dtype=np.float32)


def unpack(spec: Spec, rows: Float[AnyArray, "b _"]) -> sac.Batch:
    """Transitions of rows."""
    o, a = spec.obs_dim, spec.act_dim
    reward, cost, discount, lam = (rows[:, o + a + i] for i in range(4))
    next_obs = rows[:, o + a + 4 :]
    return sac.Batch(rows[:, :o], rows[:, o : o + a], reward, cost, discount, lam, next_obs)


def empty(spec: Spec, capacity: int) -> Replay:
    """A ring of that many rows."""
    return Replay(jnp.zeros((capacity, row_size(spec))), jnp.zeros((), jnp.int32))


def store(replay: Replay, rows: Float[Array, "n _"]) -> Replay:
    """Put rows in place of the oldest; their number divides the capacity."""
    start = replay.count % len(replay.rows)
    stored = jax.lax.dynamic_update_slice(replay.rows, rows, (start, jnp.zeros((), jnp.int32)))
    return Replay(stored, replay.count + len(rows))


@functools.cache
def storing() -> Callable:
    """(replay, rows) -> replay, compiled."""
    return jax.jit(store, donate_argnums=0)


@functools.cache
def learning(config: sac.Config, spec: Spec, updates: int) -> Callable:
    """(learner, replay, rows, units) -> learner, replay, actor, losses: store, then update."""
    delay = config.delay

    def round_of(learner: sac.Learner, replay: Replay, units: sac.Units):
        """Some updates of the critics and one of the policy, each on a batch of its own."""
        key, draw, fresh, noise = jax.random.split(learner.key, 4)
        held = jnp.minimum(replay.count, len(replay.rows))
        indices = jax.random.randint(draw, (delay, config.batch), 0, held)
        noises = jax.random.normal(noise, (delay + 1, config.batch, spec.act_dim))
        batches = [
            sac.refreshed(config, unpack(spec, replay.rows[indices[i]]), key_i)
            for i, key_i in enumerate(jax.random.split(fresh, delay))
        ]
        learner, loss = learner._replace(key=key), jnp.zeros(())
        for i, batch in enumerate(batches):
            learner, loss = sac.update_critics(config, learner, units, batch, noises[i])
        learner, policy_loss = sac.update_policy(config, learner, units, batches[-1], noises[delay])
        return learner, jnp.stack([loss, policy_loss])

    @functools.partial(jax.jit, donate_argnums=(0, 1))
    def program(learner, replay, rows, units):
        replay = store(replay, rows)
        learner, losses = jax.lax.scan(
            lambda state, _: round_of(state, replay, units), learner, None, updates // delay
        )
        actor = jax.tree.map(jnp.copy, sac.actor_of(learner, units))  # outlives the donation
        return learner, replay, actor, losses.mean(0)

    return program
