"""Units: what a network sees against what the data and the user speak of."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from safestitch.episodes import Episodes
from safestitch.records import Spec


class Scaling(eqx.Module):
    """Facts of the training data that are stored with a policy.

    Observations are standardised, actions mapped to [-1, 1], rewards and costs divided by the
    largest return of the data, so that requests lie near [0, 1].
    """

    obs_mean: Float[Array, " o"]
    obs_std: Float[Array, " o"]
    action_middle: Float[Array, ""]
    action_half: Float[Array, ""]
    reward_unit: Float[Array, ""]
    """Largest absolute reward return of the data."""
    cost_unit: Float[Array, ""]
    """Largest cost return of the data, C^max; 1 where the data never cost anything."""
    horizon: Float[Array, ""]

    def observation(self, obs: Float[Array, "*b o"]) -> Float[Array, "*b o"]:
        """Standardise."""
        middle, spread = (jnp.broadcast_to(x, obs.shape) for x in (self.obs_mean, self.obs_std))
        return (obs - middle) / spread

    def action(self, action: Float[Array, "*b a"]) -> Float[Array, "*b a"]:
        """From [-1, 1] to the task's range."""
        return self.action_middle + self.action_half * action

    def unscale_action(self, action: Float[Array, "*b a"]) -> Float[Array, "*b a"]:
        """From the task's range to [-1, 1], where the networks live."""
        return jnp.clip((action - self.action_middle) / self.action_half, -1.0, 1.0)


def fit_scaling(episodes: Episodes, spec: Spec) -> Scaling:
    """Measure the data. A constant observation column is centred and not divided."""
    mean = episodes.observations.mean(0, dtype=np.float64)
    std = episodes.observations.std(0, dtype=np.float64)

    def floats(x):
        return jnp.asarray(x, jnp.float32)

    return Scaling(
        obs_mean=floats(mean),
        obs_std=floats(np.where(std > 1e-6 * (1.0 + np.abs(mean)), std, 1.0)),
        action_middle=floats((spec.action_low + spec.action_high) / 2),
        action_half=floats((spec.action_high - spec.action_low) / 2),
        reward_unit=floats(np.abs(episodes.returns).max() or 1.0),
        cost_unit=floats(episodes.cost_returns.max() or 1.0),
        horizon=floats(spec.horizon),
    )


def blank_scaling(spec: Spec) -> Scaling:
    """A scaling of the right shapes, to load a stored one into."""
    one = jnp.ones(())
    per_observation = jnp.ones(spec.obs_dim)
    return Scaling(per_observation, per_observation, one, one, one, one, one)
