"""Soft actor-critic that learns all trade-offs of reward and cost at once.

Policy and critics are told a multiplier lambda >= 0 and learn, for each value of it, what an action
brings in three currencies: reward (R), cost (C) and entropy (H). They are weighed when compared:

    Q            = (Q^R - lambda * Q^C) / (1 + lambda) + Q^H
    targets      y^R = scale * r / unit + discount * Q'^R(s', a', lambda)
                 y^C = scale * c        + discount * Q'^C(s', a', lambda)
                 y^H =                    discount * (Q'^H(s', a', lambda) - alpha log pi(a'|s',..))
                 discount = gamma, and 0 where the task ended the episode: a time limit is no end
                 Q' are those of the critic whose weighed Q is the lower of the two
    critics      minimise  sum_i |Q_i(s, a, lambda) - y|^2
    actor        minimises  alpha log pi(a|s, lambda) - min_i Q_i(s, a, lambda)
    temperature  minimises  -log alpha(lambda) * (log pi + target entropy)
    Q'           follows Q: Q' <- (1 - polyak) Q' + polyak Q

`unit` is the reward of a typical good step, so that lambda means the same for every task. No
transition depends on lambda, hence half of each batch is learned from under freshly drawn ones.
The temperature depends on lambda too: with a heavy cost the differences of reward are small, and
one temperature for all would drown them.

Activations of the critics are (features, batch): weight gradients are then products of the fast
kind.
"""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Key, PyTree

from safestitch.behaviours.actor import (
    PREFERENCES,
    Actor,
    distribution,
    init_actor,
    init_layers,
    normalise,
    preference,
)
from safestitch.behaviours.preferences import Preferences, counted, draw_lambda
from safestitch.learn import Trained, descend, start_training
from safestitch.records import Spec


@dataclasses.dataclass(frozen=True)
class Config(Preferences):
    """Settings of the learner."""

    width: int = 128
    """Of the critics' two hidden layers."""
    actor_width: int = 128
    rate: float = 1e-3
    """Learning rate of the critics."""
    actor_rate: float = 5e-4
    """Learning rate of actor and temperature."""
    batch: int = 256
    polyak: float = 0.005
    delay: int = 2
    """Updates of the critics for each of the actor."""
    entropy: float = -1.0
    """Target entropy per action dimension, in nats."""

    @property
    def scale(self) -> float:
        """Of rewards: values are then of the order of 10, whatever gamma is."""
        return 10.0 * (1.0 - self.gamma)


CURRENCIES = 3
"""Reward, cost, entropy."""


class Critic(NamedTuple):
    """Q^R, Q^C and Q^H of (s, a, lambda); layers are (outputs, inputs), normalised between."""

    weights: tuple[Float[Array, "_ _"], ...]
    biases: tuple[Float[Array, " _"], ...]


class Learner(NamedTuple):
    """All that is learned."""

    policy: Trained
    """(weights and biases of the actor, temperature)"""
    critics: Trained
    targets: tuple[Critic, Critic]
    key: Key[Array, ""]


class Units(NamedTuple):
    """What observations and rewards are measured in."""

    obs_mean: Float[Array, " o"]
    obs_scale: Float[Array, " o"]
    reward: Float[Array, ""]


class Batch(NamedTuple):
    """Transitions; `discount` is what the value of the next observation counts."""

    obs: Float[Array, "b o"]
    action: Float[Array, "b a"]
    reward: Float[Array, " b"]
    cost: Float[Array, " b"]
    discount: Float[Array, " b"]
    lam: Float[Array, " b"]
    next_obs: Float[Array, "b o"]


def init(config: Config, spec: Spec, key: Key[Array, ""]) -> Learner:
    """A learner that knows nothing."""
    actor_key, *critic_keys, key = jax.random.split(key, 4)
    actor = init_actor(spec, config.actor_width, actor_key)
    sizes = (spec.obs_dim + spec.act_dim + PREFERENCES, config.width, config.width, CURRENCIES)
    critics = tuple(init_critic(sizes, k) for k in critic_keys)
    temperature = jnp.zeros(TEMPERATURE).at[0].set(jnp.log(0.2 * config.scale))
    policy_optimiser, critic_optimiser = optimisers(config)
    return Learner(
        start_training((actor.weights, actor.biases, temperature), policy_optimiser),
        start_training(critics, critic_optimiser),
        jax.tree.map(jnp.copy, critics),
        key,
    )


def init_critic(sizes: tuple[int, ...], key: Key[Array, ""]) -> Critic:
    """A fresh one."""
    weights, biases = init_layers(sizes, key)
    return Critic(tuple(w.T for w in weights), biases)


def optimisers(config: Config) -> tuple[optax.GradientTransformation, optax.GradientTransformation]:
    """Of policy and critics."""
    return optax.adam(config.actor_rate), optax.adam(config.rate)


# --- equations --------------------------------------------------------------------------------


def weighed(q: Float[Array, "3 b"], lam: Float[Array, " b"]) -> Float[Array, " b"]:
    """Q: the three currencies in one number."""
    return (q[0] - lam * q[1]) / (1.0 + lam) + q[2]


def drawn(
    actor: Actor, obs: Float[Array, "b o"], lam: Float[Array, " b"], noise: Float[Array, "b a"]
) -> tuple[Float[Array, "b a"], Float[Array, " b"]]:
    """Actions of the policy and their log density; that of the tanh is in its stable form."""
    mean, log_std = distribution(actor, obs, lam)
    before = mean + jnp.exp(log_std) * noise
    normal = -0.5 * jnp.square(noise) - log_std - 0.5 * jnp.log(2.0 * jnp.pi)
    squash = 2.0 * (jnp.log(2.0) - before - jax.nn.softplus(-2.0 * before))
    return jnp.tanh(before), (normal - squash).sum(-1)


def q_values(critic: Critic, inputs: Float[Array, "i b"]) -> Float[Array, "currencies b"]:
    """Layer normalisation keeps large learning rates stable and unseen actions modest."""
    x = inputs
    for weight, bias in zip(critic.weights[:-1], critic.biases[:-1], strict=True):
        x = weight @ x + bias[:, None]
        x = x - x.mean(0, keepdims=True)
        x = jax.nn.relu(x * jax.lax.rsqrt(jnp.square(x).mean(0, keepdims=True) + 1e-5))
    return critic.weights[-1] @ x + critic.biases[-1][:, None]


def lowest(
    critics: tuple[Critic, Critic], inputs: Float[Array, "i b"], lam: Float[Array, " b"]
) -> Float[Array, "3 b"]:
    """The values of the critic that promises less: what both agree on."""
    one, other = (q_values(critic, inputs) for critic in critics)
    return jnp.where((weighed(one, lam) < weighed(other, lam))[None], one, other)


TEMPERATURE = 3


def log_temperature(temperature: Float[Array, " 3"], lam: Float[Array, " b"]) -> Float[Array, " b"]:
    """Log alpha(lambda): affine in what the networks see of lambda."""
    return temperature[0] + preference(lam) @ temperature[1:]


def td_target(
    scale: float,
    unit: Float[Array, ""],
    batch: Batch,
    next_values: Float[Array, "3 b"],
    next_bonus: Float[Array, " b"],
) -> Float[Array, "3 b"]:
    """The targets y^R, y^C and y^H, constants for the critics; the bonus is -alpha log pi."""
    now = jnp.stack([scale * batch.reward / unit, scale * batch.cost, jnp.zeros_like(next_bonus)])
    return now + batch.discount[None] * next_values.at[2].add(next_bonus)


def critic_loss(
    critics: tuple[Critic, Critic], inputs: Float[Array, "i b"], target: Float[Array, "3 b"]
) -> Float[Array, ""]:
    """Squared errors of both critics, summed over currencies."""
    errors = [q_values(critic, inputs) - target for critic in critics]
    return sum((jnp.square(error).sum(0).mean() for error in errors), jnp.zeros(()))


def policy_loss(
    policy: PyTree,
    critics: tuple[Critic, Critic],
    units: Units,
    batch: Batch,
    noise: Float[Array, "b a"],
    entropy: float,
) -> Float[Array, ""]:
    """Actor and temperature; neither moves what the other is held against."""
    weights, biases, temperature = policy
    actor = Actor(weights, biases, units.obs_mean, units.obs_scale)
    log_alpha = log_temperature(temperature, batch.lam)
    action, log_prob = drawn(actor, batch.obs, batch.lam, noise)
    inputs = critic_inputs(actor, batch.obs, action, batch.lam)
    value = weighed(lowest(critics, inputs, batch.lam), batch.lam)
    fixed_alpha = jax.lax.stop_gradient(jnp.exp(log_alpha))
    surplus = jax.lax.stop_gradient(log_prob + entropy)
    return (fixed_alpha * log_prob - value - log_alpha * surplus).mean()


def critic_inputs(
    actor: Actor, obs: Float[Array, "b o"], action: Float[Array, "b a"], lam: Float[Array, " b"]
) -> Float[Array, "i b"]:
    """What the critics see; one column per transition."""
    return jnp.concatenate([normalise(actor, obs), action, preference(lam)], -1).T


# --- one update -------------------------------------------------------------------------------


def actor_of(learner: Learner, units: Units) -> Actor:
    """The actor that is being learned."""
    weights, biases, _ = learner.policy.net
    return Actor(weights, biases, units.obs_mean, units.obs_scale)


def refreshed(config: Config, batch: Batch, key: Key[Array, ""]) -> Batch:
    """The first half of the batch under other lambdas."""
    half = len(batch.lam) // 2
    fresh = draw_lambda(config, jax.random.uniform(key, (half,)))
    return batch._replace(lam=jnp.concatenate([fresh, batch.lam[half:]]))


def update_critics(
    config: Config, learner: Learner, units: Units, batch: Batch, noise: Float[Array, "b a"]
) -> tuple[Learner, Float[Array, ""]]:
    """One step of the critics, and the targets after them."""
    actor, lam = actor_of(learner, units), batch.lam
    batch = batch._replace(reward=counted(config, batch.reward, lam))
    next_action, next_log_prob = drawn(actor, batch.next_obs, lam, noise)
    next_inputs = critic_inputs(actor, batch.next_obs, next_action, lam)
    next_values = lowest(learner.targets, next_inputs, lam)
    bonus = -jnp.exp(log_temperature(learner.policy.net[2], lam)) * next_log_prob
    target = td_target(config.scale, units.reward, batch, next_values, bonus)
    inputs = critic_inputs(actor, batch.obs, batch.action, lam)
    critics, loss = descend(learner.critics, optimisers(config)[1], critic_loss, inputs, target)
    targets = jax.tree.map(
        lambda old, new: old + config.polyak * (new - old), learner.targets, critics.net
    )
    return learner._replace(critics=critics, targets=targets), loss


def update_policy(
    config: Config, learner: Learner, units: Units, batch: Batch, noise: Float[Array, "b a"]
) -> tuple[Learner, Float[Array, ""]]:
    """One step of actor and temperature."""
    policy, loss = descend(
        learner.policy,
        optimisers(config)[0],
        policy_loss,
        learner.critics.net,
        units,
        batch,
        noise,
        config.entropy * batch.action.shape[1],
    )
    return learner._replace(policy=policy), loss
