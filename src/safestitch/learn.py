"""The only gradient machinery: a network with its optimiser state, and one step of descent."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import PyTree


class Trained(NamedTuple):
    """A network and the state of the optimiser that trains it."""

    net: PyTree
    opt_state: PyTree


def start_training(net: PyTree, optimiser: optax.GradientTransformation) -> Trained:
    """A network with a fresh optimiser state."""
    return Trained(net, optimiser.init(ravel_pytree(net)[0]))


def descend(
    trained: Trained,
    optimiser: optax.GradientTransformation,
    loss: Callable[..., Any],
    *rest: Any,
) -> tuple[Trained, Any]:
    """One optimiser step on `loss(net, *rest)`, and the loss.

    The loss is differentiated in its first argument only: everything in `rest`, other networks'
    values included, is a constant by construction. The optimiser sees all parameters as one vector:
    the same numbers from a few loops instead of hundreds, which compile in less time and memory.
    """
    value, gradient = jax.value_and_grad(loss)(trained.net, *rest)
    return _step(trained, optimiser, gradient), value


def descend_in_parts(
    trained: Trained,
    optimiser: optax.GradientTransformation,
    loss: Callable[..., Any],
    *rest: Any,
    parts: PyTree,
) -> tuple[Trained, Any]:
    """As `descend`, on the mean of `loss(net, *rest, *part)` over the parts of a batch.

    The loss gives a pair, itself and what else is to be known, and so does this. The leading axis
    of `parts` counts them. What a network remembers of a whole batch for its gradient may be
    hundreds of megabytes, of a part it fits into the cache.
    """

    def one(part):
        return jax.value_and_grad(loss, has_aux=True)(trained.net, *rest, *part)

    shapes = jax.eval_shape(one, jax.tree.map(lambda x: x[0], parts))
    nothing = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
    total, _ = jax.lax.scan(
        lambda total, part: (jax.tree.map(jnp.add, total, one(part)), None), nothing, parts
    )
    count = len(jax.tree.leaves(parts)[0])
    value, gradient = jax.tree.map(lambda x: x / count, total)
    return _step(trained, optimiser, gradient), value


def split(batch: PyTree, size: int) -> PyTree:
    """A batch as parts of so many samples; as one part where that does not come out even."""
    whole = len(jax.tree.leaves(batch)[0])
    count = whole // size if whole % size == 0 else 1
    return jax.tree.map(lambda x: x.reshape(count, -1, *x.shape[1:]), batch)


def _step(trained: Trained, optimiser: optax.GradientTransformation, gradient: PyTree) -> Trained:
    parameters, unravel = ravel_pytree(trained.net)
    with jax.numpy_dtype_promotion("standard"):  # optax mixes int32 counts with float32
        step, opt_state = optimiser.update(ravel_pytree(gradient)[0], trained.opt_state, parameters)
    return Trained(unravel(parameters + jnp.asarray(step)), opt_state)


def clipped_adamw(
    learning_rate: float | optax.Schedule, weight_decay: float, clip: float, decay: int | None
) -> optax.GradientTransformation:
    """AdamW, betas (0.9, 0.999), behind a clip of the gradient norm.

    The learning rate is constant, or follows a cosine down to zero over `decay` iterations, or is a
    schedule itself.
    """
    rate = learning_rate
    if decay and not callable(learning_rate):
        rate = optax.cosine_decay_schedule(learning_rate, decay)
    adam = optax.adamw(rate, b1=0.9, b2=0.999, weight_decay=weight_decay)
    return optax.chain(optax.clip_by_global_norm(clip), adam)


def plain_adam(learning_rate: float, decay: int | None) -> optax.GradientTransformation:
    """Adam, betas (0.9, 0.999); constant, or a cosine down to zero over `decay` iterations."""
    rate = optax.cosine_decay_schedule(learning_rate, decay) if decay else learning_rate
    return optax.adam(rate, b1=0.9, b2=0.999)


def follow(target: PyTree, net: PyTree, share: float) -> PyTree:
    """A target copy moved towards its network by a share of the way."""
    return jax.tree.map(lambda old, new: old + share * (new - old), target, net)
