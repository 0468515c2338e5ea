"""CAPS when acting: of several heads, the most rewarding whose cost fits what is left to spend."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from safestitch.algos.base import Request


class Carry(NamedTuple):
    """What is left of an episode."""

    budget: Float[Array, ""]
    """Limit minus cost so far, in the task's units; negative once the limit is broken."""
    left: Float[Array, ""]
    """Steps still to come, this one included."""


def limit_to_go(
    budget: Float[Array, ""], left: Float[Array, ""], discount: float
) -> Float[Array, ""]:
    """Eq. (7): l_t = max(b_t, 0) (1 - γ^n) / ((1 - γ) n), n steps left.

    The discounted cost of a budget that is spent evenly. Past the horizon one step is left.
    """
    n = jnp.maximum(left, 1.0)
    if discount == 1.0:
        return jnp.maximum(budget, 0.0)
    return jnp.maximum(budget, 0.0) * (1.0 - discount**n) / ((1.0 - discount) * n)


def choose_head(
    rewards: Float[Array, " h"], costs: Float[Array, " h"], limit: Float[Array, ""]
) -> Int[Array, ""]:
    """Eq. (8): the largest Q_r among heads with C^ < l_t, strictly; if there is none, the least C^.

    Args:
        rewards: what each head's action is expected to earn.
        costs: what it is expected to cost.
        limit: what may be spent, in the units of `costs`.
    """
    fits = costs < limit
    best = jnp.argmax(jnp.where(fits, rewards, -jnp.inf))
    return jnp.where(fits.any(), best, jnp.argmin(costs))


def start(cfg, policy, scaling, request: Request) -> Carry:  # noqa: ARG001
    """The beginning of an episode; a target reward has no meaning here."""
    return Carry(request.cost_limit, jnp.asarray(scaling.horizon))


def take_step(carry: Carry) -> Carry:
    """One step fewer."""
    return carry._replace(left=carry.left - 1.0)


def observe(cfg, scaling, carry: Carry, reward, cost) -> Carry:  # noqa: ARG001
    """The budget loses what the step cost."""
    return carry._replace(budget=carry.budget - cost)


def redial(cfg, scaling, carry: Carry, old, new) -> Carry:  # noqa: ARG001
    """A new limit in mid-episode: the budget moves."""
    return carry._replace(budget=carry.budget + (new - old))
