"""Which multipliers lambda of the cost are learned: 0, and log-uniform in between two."""

import dataclasses
import math

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from safestitch.behaviours.actor import AnyArray


@dataclasses.dataclass(frozen=True)
class Preferences:
    """Settings that every learner has."""

    gamma: float = 0.99
    zero_share: float = 0.1
    """Share of lambdas that are 0; the others are log-uniform between the next two."""
    lambda_low: float = 0.1
    lambda_high: float = 30.0
    """Costs in typical good steps. Above 10 or so the share of the reward is too small to learn
    from, and zero cost is reached well before."""
    enough: float = 0.0
    """Reward of a step beyond which more counts for nothing where lambda > 0; 0 for no such bound.
    For robots that pay for speed: without it they learn to run or to stand, and no pace between."""


def draw_lambda(preferences: Preferences, uniform: Float[AnyArray, "*b"]) -> Float[AnyArray, "*b"]:
    """Lambdas from uniform numbers in [0, 1): some 0, the others log-uniform. NumPy's or JAX's."""
    xp = np if isinstance(uniform, np.ndarray) else jnp
    share = (uniform - preferences.zero_share) / (1.0 - preferences.zero_share)
    low, high = math.log(preferences.lambda_low), math.log(preferences.lambda_high)
    return xp.where(share < 0, 0.0, xp.exp(low + share * (high - low)))


def counted(
    preferences: Preferences, reward: Float[AnyArray, "*b"], lam: Float[AnyArray, "*b"]
) -> Float[AnyArray, "*b"]:
    """What a step's reward counts for who has a lambda, in the task's units."""
    if not preferences.enough:
        return reward
    return jnp.where(lam > 0, jnp.minimum(reward, preferences.enough), reward)
