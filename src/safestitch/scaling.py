"""Units: what a network sees against what the data and the user speak of."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float

from safestitch.episodes import Episodes
from safestitch.records import Spec

if TYPE_CHECKING:
    AnyArray = Any
else:
    AnyArray = Array | np.ndarray  # NumPy in, NumPy out; JAX in, JAX out


class Scaling(eqx.Module):
    """Facts of the training data that are stored with a policy.

    Observations are standardised, actions mapped to [-1, 1], rewards and costs divided by the
    largest return of the data, so that requests lie near [0, 1].
    """

    obs_mean: Float[AnyArray, " o"]
    obs_std: Float[AnyArray, " o"]
    action_middle: Float[AnyArray, ""]
    action_half: Float[AnyArray, ""]
    reward_unit: Float[AnyArray, ""]
    """Largest absolute reward return of the data."""
    cost_unit: Float[AnyArray, ""]
    """Largest cost return of the data, C^max; 1 where the data never cost anything."""
    horizon: Float[AnyArray, ""]

    def observation(self, obs: Float[AnyArray, "*b o"]) -> Float[AnyArray, "*b o"]:
        """Standardise."""
        per_column = (1,) * (obs.ndim - 1) + (-1,)
        return (obs - self.obs_mean.reshape(per_column)) / self.obs_std.reshape(per_column)

    def action(self, action: Float[AnyArray, "*b a"]) -> Float[AnyArray, "*b a"]:
        """From [-1, 1] to the task's range."""
        return self.action_middle + self.action_half * action

    def unscale_action(self, action: Float[AnyArray, "*b a"]) -> Float[AnyArray, "*b a"]:
        """From the task's range to [-1, 1], where the networks live."""
        return ((action - self.action_middle) / self.action_half).clip(-1.0, 1.0)


def fit_scaling(episodes: Episodes, spec: Spec) -> Scaling:
    """Measure the data. A constant observation column is centred and not divided."""
    mean = _sum(episodes, lambda x: x) / episodes.steps
    std = np.sqrt(_sum(episodes, lambda x: np.square(x - mean)) / episodes.steps)

    def floats(x):
        return np.asarray(x, np.float32)

    return Scaling(
        obs_mean=floats(mean),
        obs_std=floats(np.where(std > 1e-6 * (1.0 + np.abs(mean)), std, 1.0)),
        action_middle=floats((spec.action_low + spec.action_high) / 2),
        action_half=floats((spec.action_high - spec.action_low) / 2),
        reward_unit=floats(np.abs(episodes.returns).max() or 1.0),
        cost_unit=floats(episodes.cost_returns.max() or 1.0),
        horizon=floats(spec.horizon),
    )


def _sum(episodes: Episodes, value: Callable) -> Float[np.ndarray, " o"]:
    """Sum of a value of all observations, row after row: the same bits for any size of block."""
    total = np.zeros(episodes.observations.shape[1])
    for block in episodes.blocks():
        rows = value(block.observations.astype(np.float64))
        total = np.concatenate([total[None], rows]).sum(0)
    return total


def blank_scaling(spec: Spec) -> Scaling:
    """A scaling of the right shapes, to load a stored one into."""
    one = np.ones((), np.float32)
    per_observation = np.ones(spec.obs_dim, np.float32)
    return Scaling(per_observation, per_observation, one, one, one, one, one)
