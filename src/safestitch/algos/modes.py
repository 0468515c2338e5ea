"""A policy of several modes: logs of many hands are imitated one hand at a time.

Where one logged policy cruises on and another begins to sprint, from the same state and for nearly
the same request, the mean of their actions is neither, and a robot that takes it stays between the
two for good. So the policy proposes a few actions with their weights and takes one of them by
chance, as often as the logs did. With one mode all this is a squared error and its minimiser.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, UInt


class Proposals(NamedTuple):
    """Actions to choose from, and the logarithms of their weights."""

    actions: Float[Array, "b k a"]
    """In [-1, 1]."""
    logits: Float[Array, "b k"]


def outputs(modes: int, act_dim: int) -> int:
    """Numbers that a network of so many modes gives: one mode needs no weight."""
    return act_dim if modes == 1 else modes * (act_dim + 1)


def proposals(out: Float[Array, "b _"], modes: int) -> Proposals:
    """What a network's outputs say: first all actions, through a tanh, then the logits."""
    if modes == 1:
        return Proposals(jnp.tanh(out)[:, None], jnp.zeros_like(out[:, :1]))
    actions, logits = out[:, :-modes], out[:, -modes:]
    return Proposals(jnp.tanh(actions).reshape(len(out), modes, -1), logits)


def error(proposed: Proposals, a: Float[Array, "b a"], spread: float) -> Float[Array, " b"]:
    """The squared distance from a to the modes: a soft minimum over them, by their weights.

    It is -w log of the density at a of Gaussians around the modes, w twice their variance summed
    over the dimensions of an action; for one mode (π - a)^2, whatever the spread.
    """
    width = 2.0 * spread**2 * a.shape[-1]
    distance = jnp.sum((proposed.actions - a[:, None]) ** 2, -1)
    if proposed.logits.shape[1] == 1:
        return distance[:, 0]
    weights = jax.nn.log_softmax(proposed.logits)
    return -width * jax.nn.logsumexp(weights - distance / width, -1)


def luck(obs: Float[Array, " o"]) -> UInt[Array, ""]:
    """Chance without a generator: a number from the bits of an episode's first observation."""
    bits = jax.lax.bitcast_convert_type(obs, jnp.uint32)
    odd = 2 * jnp.arange(len(bits), dtype=jnp.uint32) + 1
    return jnp.sum(bits * odd, dtype=jnp.uint32)


def dice(luck: UInt[Array, ""], step: Float[Array, ""]) -> Key[Array, ""]:
    """How chance falls at a step of an episode, whatever the last bits of what was seen since."""
    episode = jax.random.fold_in(jax.random.key(0), luck)
    return jax.random.fold_in(episode, step.astype(jnp.uint32))


def choose(proposed: Proposals, rare: float, key: Key[Array, ""]) -> Float[Array, " a"]:
    """One of the actions of a single state, by weight; those below a share of the best never.

    What is hardly ever done is mostly noise, and over an episode of a thousand steps it would be
    done several times.
    """
    (actions,), (logits,) = proposed
    heavy = logits >= logits.max() + jnp.log(rare)
    return actions[jax.random.categorical(key, jnp.where(heavy, logits, -jnp.inf))]
