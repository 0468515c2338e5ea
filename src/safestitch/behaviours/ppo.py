"""Proximal policy optimisation that learns all trade-offs of reward and cost at once.

For simulators that step faster than a soft actor-critic learns: each chunk of steps is gone over a
few times and then forgotten. Policy and values are told a multiplier lambda >= 0 of the cost:

    errors       delta^X = scale * x + discount * V^X(s', lambda) - V^X(s, lambda)    X: R or C
    advantages   A^X(t)  = delta^X(t) + discount * trace * A^X(t + 1), up to where the lane, the
                           episode or lambda changes
    weighed      A       = (A^R - lambda * A^C) / (1 + lambda), normalised among steps of similar
                           lambda: where the cost is heavy and avoided, the reward is all there is
    policy       minimises  -min(ratio * A, clip(ratio, 1 - clip, 1 + clip) * A) - bonus * entropy
                            + |what of the mean is beyond FLAT|^2
                 ratio   = pi(a|s, lambda) / pi_old(a|s, lambda)
    values       minimise  |V^X(s, lambda) - (A^X + V_old^X(s, lambda))|^2
    rate         of the policy: smaller after KL(pi_old | pi) > 2 kl, larger after < kl / 2

Rewards are in units of a typical good step, as in `sac`, so that lambda means the same.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Key, PyTree

from safestitch.behaviours.actor import PREFERENCES, Actor, distribution, init_actor
from safestitch.behaviours.preferences import Preferences, counted
from safestitch.behaviours.sac import Batch, Critic, Units, critic_inputs, init_critic, q_values
from safestitch.learn import Trained, descend, start_training
from safestitch.records import Spec


@dataclasses.dataclass(frozen=True)
class Config(Preferences):
    """Settings of the learner."""

    width: int = 128
    """Of the values' two hidden layers."""
    actor_width: int = 128
    trace: float = 0.95
    """How far advantages look ahead: 0 one step, 1 to the end."""
    rollout: int = 64
    """Steps of each lane in a chunk."""
    epochs: int = 6
    """Times a chunk is gone over."""
    batch: int = 512
    clip: float = 0.2
    kl: float = 0.01
    """Change of the policy in a chunk that its learning rate is adapted to, in nats."""
    bonus: float = 0.002
    """Weight of the entropy beside advantages of spread 1."""
    rate: float = 1e-3
    """Learning rate of the values."""

    @property
    def scale(self) -> float:
        """Of rewards: values are then of the order of 1, whatever gamma is."""
        return 1.0 - self.gamma


RATES = (1e-5, 2e-3)
"""Least and largest learning rate of the policy."""
FIRST_RATE = 3e-4
FIRST_LOG_STD = 0.3
"""Before the squashing of the actor: a standard deviation of 0.6, which covers the range."""
FLAT = 3.0
"""Where the tanh is flat: a mean beyond it would change no action, and ratios without bound."""
FAR = 10.0
"""A change of a log density beyond this is taken as this: its exponential stays finite."""
GRADIENT = 1.0
"""Largest norm of the policy's gradient."""
LIMIT = 1.0 - 1e-6
"""Of actions, before the tanh is undone."""
BANDS = 8
"""Of lambda, that advantages are normalised in."""
CURRENCIES = 2
"""Reward, cost."""


class Learner(NamedTuple):
    """All that is learned."""

    policy: Trained
    """(weights, biases) of the actor"""
    values: Trained
    key: Key[Array, ""]


class Judged(NamedTuple):
    """Steps, and how good they turned out to be."""

    batch: Batch
    before: Float[Array, "b a"]
    """Actions before the tanh."""
    density: Float[Array, " b"]
    """Log density of them under the policy that took them."""
    better: Float[Array, " b"]
    """Than expected: the normalised advantage."""


def init(config: Config, spec: Spec, key: Key[Array, ""]) -> Learner:
    """A learner that knows nothing."""
    actor_key, value_key, key = jax.random.split(key, 3)
    actor = init_actor(spec, config.actor_width, actor_key)
    biases = (*actor.biases[:-1], actor.biases[-1].at[spec.act_dim :].set(FIRST_LOG_STD))
    sizes = (spec.obs_dim + PREFERENCES, config.width, config.width, CURRENCIES)
    return Learner(
        start_training((actor.weights, biases), policy_optimiser()),
        start_training(init_critic(sizes, value_key), optax.adam(config.rate)),
        key,
    )


def actor_of(learner: Learner, units: Units) -> Actor:
    """The actor that is being learned."""
    weights, biases = learner.policy.net
    return Actor(weights, biases, units.obs_mean, units.obs_scale)


# --- equations --------------------------------------------------------------------------------


def follows(batch: Batch) -> Bool[Array, " n"]:
    """Whether the next row is the next step under the same lambda; rows are in order, by lane."""
    same_state = (batch.next_obs[:-1] == batch.obs[1:]).all(-1)
    return jnp.append(same_state & (batch.lam[:-1] == batch.lam[1:]), False)


def advantages(errors: Float[Array, "2 n"], decay: Float[Array, " n"]) -> Float[Array, "2 n"]:
    """A(t) = delta(t) + decay(t) A(t + 1), for all t at once."""

    def joined(later, earlier):
        (d2, c2), (d1, c1) = later, earlier
        return d1 + c1 * d2, c1 * c2

    decays = jnp.broadcast_to(decay[None], errors.shape)
    return jax.lax.associative_scan(joined, (errors, decays), reverse=True, axis=1)[0]


def weighed(values: Float[Array, "2 n"], lam: Float[Array, " n"]) -> Float[Array, " n"]:
    """Both currencies in one number."""
    return (values[0] - lam * values[1]) / (1.0 + lam)


def normalised(
    better: Float[Array, " n"], lam: Float[Array, " n"], bands: int = BANDS
) -> Float[Array, " n"]:
    """Mean 0 and spread 1 in each of some equally large bands of lambda."""
    order = jnp.argsort(lam)
    whole = len(lam) // bands * bands  # the last few of the heaviest are taken as they are
    grouped = better[order[:whole]].reshape(bands, -1)
    mean, spread = grouped.mean(1, keepdims=True), grouped.std(1, keepdims=True)
    inside = ((grouped - mean) / (spread + 1e-8)).reshape(-1)
    rest = (better[order[whole:]] - mean[-1]) / (spread[-1] + 1e-8)
    return jnp.zeros_like(better).at[order].set(jnp.concatenate([inside, rest]))


def log_density(
    mean: Float[Array, "b a"], log_std: Float[Array, "b a"], before: Float[Array, "b a"]
) -> Float[Array, " b"]:
    """Log density of actions before the tanh, whose own part cancels in ratios, as constants do."""
    apart = (before - mean) * jnp.exp(-log_std)
    return (-0.5 * jnp.square(apart) - log_std).sum(-1)


def policy_loss(
    policy: PyTree, units: Units, steps: Judged, clip: float, bonus: float
) -> Float[Array, ""]:
    """The clipped surrogate."""
    weights, biases = policy
    actor = Actor(weights, biases, units.obs_mean, units.obs_scale)
    mean, log_std = distribution(actor, steps.batch.obs, steps.batch.lam)
    change = log_density(mean, log_std, steps.before) - steps.density
    ratio = jnp.exp(jnp.clip(change, -FAR, FAR))
    kept = jnp.clip(ratio, 1.0 - clip, 1.0 + clip)
    gain = jnp.minimum(ratio * steps.better, kept * steps.better) + bonus * log_std.sum(-1)
    return (jnp.square(jax.nn.relu(jnp.abs(mean) - FLAT)).sum(-1) - gain).mean()


def value_loss(
    values: Critic, inputs: Float[Array, "i b"], target: Float[Array, "2 b"]
) -> Float[Array, ""]:
    """Squared errors, summed over currencies."""
    return jnp.square(q_values(values, inputs) - target).sum(0).mean()


def adapted(rate: Float[Array, ""], change: Float[Array, ""], kl: float) -> Float[Array, ""]:
    """The policy's learning rate after an epoch that changed the policy by `change`."""
    factor = jnp.where(change > 2.0 * kl, 1.0 / 1.5, jnp.where(change < 0.5 * kl, 1.5, 1.0))
    return jnp.clip(rate * factor, *RATES)


# --- one chunk --------------------------------------------------------------------------------


def state_inputs(
    actor: Actor, obs: Float[Array, "b o"], lam: Float[Array, " b"]
) -> Float[Array, "i b"]:
    """What the values see; one column per transition."""
    return critic_inputs(actor, obs, jnp.zeros((len(obs), 0)), lam)


def policy_optimiser() -> optax.GradientTransformationExtraArgs:
    """Adam behind a clip of the gradient; its learning rate is part of its state."""

    def clipped(learning_rate):
        return optax.chain(optax.clip_by_global_norm(GRADIENT), optax.adam(learning_rate))

    return optax.inject_hyperparams(clipped)(learning_rate=FIRST_RATE)


def policy_rate(learner: Learner) -> float:
    """The policy's learning rate."""
    return float(learner.policy.opt_state.hyperparams["learning_rate"])


def judged(
    config: Config, learner: Learner, batch: Batch, units: Units
) -> tuple[Float[Array, " n"], Float[Array, "2 n"]]:
    """How much better than expected each step was, and what the values should have said."""
    actor = actor_of(learner, units)
    now = q_values(learner.values.net, state_inputs(actor, batch.obs, batch.lam))
    after = q_values(learner.values.net, state_inputs(actor, batch.next_obs, batch.lam))
    reward = counted(config, batch.reward, batch.lam)
    paid = config.scale * jnp.stack([reward / units.reward, batch.cost])
    errors = paid + batch.discount[None] * after - now
    ahead = advantages(errors, jnp.where(follows(batch), batch.discount * config.trace, 0.0))
    better = weighed(ahead, batch.lam)
    return normalised(better, batch.lam), ahead + now


@functools.cache
def learning(config: Config, rows: int) -> Callable:
    """(learner, batch, actor, units) -> learner, actor, losses: learn from what `actor` did."""
    size = min(config.batch, rows)
    optimisers = policy_optimiser(), optax.adam(config.rate)

    def program(learner: Learner, batch: Batch, actor: Actor, units: Units):
        better, target = judged(config, learner, batch, units)
        before = jnp.arctanh(jnp.clip(batch.action, -LIMIT, LIMIT))
        old = log_density(*distribution(actor, batch.obs, batch.lam), before)
        steps = Judged(batch, before, old, better)
        inputs = state_inputs(actor_of(learner, units), batch.obs, batch.lam)

        def step(learner: Learner, chosen):
            part = jax.tree.map(lambda x: x[chosen], steps)
            policy, loss = descend(
                learner.policy, optimisers[0], policy_loss, units, part, config.clip, config.bonus
            )
            values, value = descend(
                learner.values, optimisers[1], value_loss, inputs[:, chosen], target[:, chosen]
            )
            return learner._replace(policy=policy, values=values), jnp.stack([value, loss])

        def epoch(learner: Learner, _):
            key, draw = jax.random.split(learner.key)
            order = jax.random.permutation(draw, rows)[: rows // size * size]
            learner, losses = jax.lax.scan(step, learner._replace(key=key), order.reshape(-1, size))
            new = log_density(*distribution(actor_of(learner, units), batch.obs, batch.lam), before)
            far = jnp.clip(new - old, -FAR, FAR)
            change = jnp.expm1(far) - far  # its mean is the divergence, never < 0
            state = learner.policy.opt_state
            rate = adapted(state.hyperparams["learning_rate"], change.mean(), config.kl)
            state = state._replace(hyperparams={**state.hyperparams, "learning_rate": rate})
            policy = learner.policy._replace(opt_state=state)
            return learner._replace(policy=policy), losses.mean(0)

        learner, losses = jax.lax.scan(epoch, learner, None, config.epochs)
        return learner, actor_of(learner, units), losses[-1]

    return jax.jit(program)
