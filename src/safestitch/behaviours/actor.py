"""The actor: a small network that acts as risky as the multiplier lambda of the cost says.

    pi(a | s, lambda)    a = tanh(mean + std * noise),  noise ~ N(0, I)

Lambda is given in units of the learner's reward scale: 1 weighs one unit of cost like one typical
step of reward, 0 ignores the cost, LAMBDA_MAX all but ignores the reward.
"""

import itertools
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from safestitch.records import Spec

if TYPE_CHECKING:
    AnyArray = Any
else:
    AnyArray = Array | np.ndarray  # loaded ones are NumPy's

LAMBDA_MIN, LAMBDA_MAX = 0.01, 1000.0
"""Below the smallest the cost is as good as ignored; 0 itself is allowed."""
PREFERENCES = 2
"""Features that the networks see of lambda."""
LOG_STD_MIN, LOG_STD_MAX = -5.0, 2.0
CLIP = 10.0
"""Standard deviations at which an observation is cut off: a fall must not blow up a network."""


class Actor(NamedTuple):
    """Layers of the network, ReLU between them, and the units of what it sees.

    A stack of snapshots is an Actor whose arrays have one axis more in front, for `jax.vmap`.
    """

    weights: tuple[Float[AnyArray, "..."], ...]
    """Each (inputs, outputs); the last gives mean and log std."""
    biases: tuple[Float[AnyArray, "..."], ...]
    obs_mean: Float[AnyArray, "..."]
    obs_scale: Float[AnyArray, "..."]
    """What an observation's distance from the mean is divided by; > 0."""


def init_actor(spec: Spec, width: int, key: Key[Array, ""]) -> Actor:
    """A fresh actor: actions near 0 with a standard deviation that covers the range."""
    sizes = (spec.obs_dim + PREFERENCES, width, width, 2 * spec.act_dim)
    weights, biases = init_layers(sizes, key)
    return Actor(weights, biases, jnp.zeros(spec.obs_dim), jnp.ones(spec.obs_dim))


def init_layers(sizes: tuple[int, ...], key: Key[Array, ""]) -> tuple[tuple, tuple]:
    """Weights and biases: uniform with variance 1 / inputs, a hundredth of that at the output."""
    pairs = list(itertools.pairwise(sizes))
    bounds = [(3.0 / i) ** 0.5 for i, _ in pairs[:-1]] + [0.1 * (3.0 / pairs[-1][0]) ** 0.5]
    keys = jax.random.split(key, len(pairs))
    weights = tuple(
        jax.random.uniform(k, shape, minval=-bound, maxval=bound)
        for k, shape, bound in zip(keys, pairs, bounds, strict=True)
    )
    return weights, tuple(jnp.zeros(o) for _, o in pairs)


def preference(lam: Float[AnyArray, "*b"]) -> Float[Array, "*b 2"]:
    """What the networks see of lambda: its logarithm, and the weight of the reward; in [-1, 1]."""
    lam = jnp.asarray(lam)
    log = jnp.log1p(lam / LAMBDA_MIN) / np.log1p(LAMBDA_MAX / LAMBDA_MIN).astype(np.float32)
    return 2.0 * jnp.stack([log, 1.0 / (1.0 + lam)], -1) - 1.0


def normalise(actor: Actor, obs: Float[AnyArray, "*b o"]) -> Float[Array, "*b o"]:
    """Observations in the units of the networks."""
    mean, scale = _row(actor.obs_mean, obs), _row(actor.obs_scale, obs)
    return jnp.clip((obs - mean) / scale, -CLIP, CLIP)


def distribution(
    actor: Actor, obs: Float[AnyArray, "*b o"], lam: Float[AnyArray, "*b"]
) -> tuple[Float[Array, "*b a"], Float[Array, "*b a"]]:
    """Mean and log standard deviation of the action before the tanh."""
    x = jnp.concatenate([normalise(actor, obs), preference(lam)], -1)
    x = forward(actor.weights, actor.biases, x)
    mean, raw = jnp.split(x, 2, -1)
    return mean, LOG_STD_MIN + 0.5 * (LOG_STD_MAX - LOG_STD_MIN) * (jnp.tanh(raw) + 1.0)


def forward(weights: tuple, biases: tuple, x: Float[Array, "*b i"]) -> Float[Array, "*b o"]:
    """Linear layers with ReLU between them."""
    for i, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        x = x if i == 0 else jax.nn.relu(x)
        x = x @ weight + _row(bias, x)
    return x


def act(
    actor: Actor,
    obs: Float[AnyArray, "*b o"],
    lam: Float[AnyArray, "*b"],
    noise: Float[AnyArray, "*b a"],
) -> Float[Array, "*b a"]:
    """Actions in [-1, 1]; standard normal noise draws from the policy, zeros give its middle."""
    mean, log_std = distribution(actor, obs, lam)
    return jnp.tanh(mean + jnp.exp(log_std) * noise)


def task_action(spec: Spec, action: Float[AnyArray, "*b a"]) -> Float[AnyArray, "*b a"]:
    """From [-1, 1] to the task's range."""
    middle, half = (
        (spec.action_high + spec.action_low) / 2,
        (spec.action_high - spec.action_low) / 2,
    )
    return middle + half * action


def _row(vector: Float[AnyArray, " n"], like: Float[AnyArray, "*b m"]) -> Float[AnyArray, "*r n"]:
    """A vector as a row that broadcasts against `like`, rank by rank."""
    return vector.reshape((1,) * (like.ndim - 1) + (-1,))
