"""The equations against values worked by hand, and which gradient reaches what."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from safestitch.behaviours import sac
from safestitch.behaviours.actor import Actor, preference
from safestitch.behaviours.preferences import counted, draw_lambda
from safestitch.records import Spec

SPEC = Spec("Own", obs_dim=3, act_dim=2, horizon=10, cost_range=5.0)
CONFIG = sac.Config(width=16, actor_width=8, gamma=0.9, batch=32)  # gamma 0.9: scale 1
UNITS = sac.Units(jnp.zeros(3), jnp.ones(3), jnp.float32(2.0))


def batch(size: int = 32, **columns) -> sac.Batch:
    random = np.random.default_rng(3)
    obs, next_obs = (random.standard_normal((size, 3), np.float32) for _ in range(2))
    action = random.uniform(-1.0, 1.0, (size, 2)).astype(np.float32)
    one = np.ones(size, np.float32)
    made = sac.Batch(
        *map(jnp.asarray, (obs, action, one, one, np.float32(0.9) * one, one, next_obs))
    )
    given = {name: jnp.asarray(value, np.float32) for name, value in columns.items()}
    return made._replace(**given)


@functools.cache
def learner() -> sac.Learner:
    return jax.jit(functools.partial(sac.init, CONFIG, SPEC))(jax.random.key(0))


# One program each: operations one by one would all be compiled alone.
policy_slopes = jax.jit(jax.grad(sac.policy_loss), static_argnums=5)
drawn, critic_inputs = jax.jit(sac.drawn), jax.jit(sac.critic_inputs)


def moved(before, after) -> float:
    pairs = zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True)
    return max(float(jnp.abs(a - b).max()) for a, b in pairs)


# --- values -----------------------------------------------------------------------------------


def test_the_three_currencies_are_weighed_by_lambda():
    # reward 3, cost 1, entropy 0.25. lambda 0: 3. lambda 1: (3 - 1) / 2. lambda 3: (3 - 3) / 4.
    values = jnp.array([[3.0] * 3, [1.0] * 3, [0.25] * 3])
    lam = jnp.array([0.0, 1.0, 3.0])
    np.testing.assert_allclose(sac.weighed(values, lam), [3.25, 1.25, 0.25], rtol=1e-6)
    costs = values.at[1].set(jnp.array([7.0, 0.5, 9.0]))  # any number is a cost
    np.testing.assert_allclose(sac.weighed(costs, lam), [3.25, 1.5, -5.75], rtol=1e-6)


def test_the_target_in_each_currency_goes_through_a_time_limit_and_not_through_an_end():
    rows = batch(2, reward=[6.0] * 2, cost=[0.5] * 2, discount=[0.9, 0.0])
    next_values = jnp.array([[5.0] * 2, [2.0] * 2, [1.0] * 2])
    found = sac.td_target(0.1, UNITS.reward, rows, next_values, jnp.array([0.25] * 2))
    # unit 2: reward 6 is 3 good steps
    cut = [0.1 * 3.0 + 0.9 * 5.0, 0.1 * 0.5 + 0.9 * 2.0, 0.9 * (1.0 + 0.25)]
    ended = [0.1 * 3.0, 0.1 * 0.5, 0.0]
    np.testing.assert_allclose(found, np.transpose([cut, ended]), rtol=1e-6)


def test_values_are_of_one_size_for_every_gamma():
    rows = batch(1, reward=[2.0], cost=[1.0])
    for gamma in (0.9, 0.99, 0.999):
        scale = sac.Config(gamma=gamma).scale
        now = sac.td_target(scale, UNITS.reward, rows, jnp.zeros((3, 1)), jnp.zeros(1))
        np.testing.assert_allclose(now[:2, 0] / (1.0 - gamma), [10.0, 10.0], rtol=1e-4)


def by_hand(mean: float, log_std: float) -> Actor:
    """One observation, one action, whatever is seen."""
    raw = np.arctanh((log_std + 5.0) / 3.5 - 1.0)
    sizes = ((3, 4), (4, 4), (4, 2))
    biases = (jnp.zeros(4), jnp.zeros(4), jnp.array([mean, raw], jnp.float32))
    return Actor(tuple(jnp.zeros(s) for s in sizes), biases, jnp.zeros(1), jnp.ones(1))


def test_the_log_density_of_an_action():
    one, zero = jnp.ones((1, 1)), jnp.zeros(1)
    action, log_prob = drawn(by_hand(0.0, 0.0), one, zero, jnp.zeros((1, 1)))
    assert action[0, 0] == 0.0  # the tanh has slope 1 there: the density is the normal one
    assert log_prob[0] == pytest.approx(-0.5 * np.log(2 * np.pi), rel=1e-5)
    action, log_prob = drawn(by_hand(0.5, -1.0), one, zero, 2.0 * jnp.ones((1, 1)))
    before = 0.5 + 2.0 * np.exp(-1.0)
    normal = -0.5 * 4.0 + 1.0 - 0.5 * np.log(2 * np.pi)
    assert action[0, 0] == pytest.approx(np.tanh(before), rel=1e-5)
    assert log_prob[0] == pytest.approx(normal - np.log(1 - np.tanh(before) ** 2), rel=1e-4)


def test_the_log_density_is_finite_at_the_ends_of_the_range():
    far = jnp.full((1, 1), 30.0)
    _, log_prob = drawn(by_hand(0.0, 0.0), jnp.ones((1, 1)), jnp.zeros(1), far)
    assert np.isfinite(log_prob).all()


def constant(reward: float, cost: float, entropy: float) -> sac.Critic:
    """Of three inputs, whatever they are."""
    biases = (jnp.zeros(4), jnp.array([reward, cost, entropy]))
    return sac.Critic((jnp.zeros((4, 3)), jnp.zeros((3, 4))), biases)


def test_the_critic_whose_weighed_value_is_lower_counts_with_all_its_values():
    bold, tame = constant(5.0, 1.0, 0.0), constant(3.0, 0.0, 0.5)
    # lambda 0: 5 against 3.5. lambda 3: (5 - 3) / 4 against 3 / 4 + 0.5.
    for pair in ((bold, tame), (tame, bold)):
        found = sac.lowest(pair, jnp.ones((3, 2)), jnp.array([0.0, 3.0]))
        np.testing.assert_allclose(found, np.transpose([[3.0, 0.0, 0.5], [5.0, 1.0, 0.0]]))


def test_the_errors_of_both_critics_in_all_currencies_are_summed():
    critics = constant(5.0, 1.0, 0.0), constant(3.0, 0.0, 0.5)
    target = jnp.broadcast_to(jnp.array([[4.0], [1.0], [1.0]]), (3, 5))
    loss = sac.critic_loss(critics, jnp.ones((3, 5)), target)
    assert loss == pytest.approx((1.0 + 0.0 + 1.0) + (1.0 + 1.0 + 0.25))


def test_lambdas_are_zero_or_log_uniform():
    found = draw_lambda(CONFIG, jnp.array([0.0, 0.0999, 0.1, 0.55, 1.0]))
    np.testing.assert_allclose(found, [0.0, 0.0, 0.1, 3.0**0.5, 30.0], rtol=1e-4)
    uniform = np.linspace(0, 0.999, 50).astype(np.float32)
    on_host = draw_lambda(CONFIG, uniform)
    np.testing.assert_allclose(on_host, draw_lambda(CONFIG, jnp.asarray(uniform)), rtol=1e-5)


def test_more_than_enough_counts_for_nothing_unless_cost_counts_for_nothing():
    reward, lam = jnp.array([3.0, 3.0, 1.0, -9.0]), jnp.array([0.0, 0.5, 0.5, 2.0])
    found = counted(sac.Config(enough=2.0), reward, lam)
    np.testing.assert_array_equal(found, [3.0, 2.0, 1.0, -9.0])
    np.testing.assert_array_equal(counted(sac.Config(), reward, lam), reward)


def test_critics_learn_what_counts():
    update = jax.jit(sac.update_critics, static_argnums=0)
    bounded = dataclasses.replace(CONFIG, enough=2.0)
    much, _ = update(bounded, learner(), UNITS, batch(reward=np.full(32, 9.0)), NOISE)
    less, _ = update(bounded, learner(), UNITS, batch(reward=np.full(32, 2.0)), NOISE)
    free, _ = update(CONFIG, learner(), UNITS, batch(reward=np.full(32, 9.0)), NOISE)
    assert moved(much.critics.net, less.critics.net) == 0.0
    assert moved(much.critics.net, free.critics.net) > 0.0


def test_half_of_a_batch_keeps_its_lambdas():
    found = sac.refreshed(CONFIG, batch(), jax.random.key(0)).lam
    assert (found[16:] == 1.0).all() and not (found[:16] == 1.0).any()


# --- gradients --------------------------------------------------------------------------------


NOISE = np.random.default_rng(1).standard_normal((32, 2)).astype(np.float32)


def policy_gradient(entropy: float = -50.0):
    state = learner()
    return policy_slopes(state.policy.net, state.critics.net, UNITS, batch(), NOISE, entropy)


@pytest.mark.parametrize(("target", "rises"), [(-50.0, False), (50.0, True)])
def test_the_temperature_rises_when_the_entropy_is_below_its_target(target, rises):
    slope = policy_gradient(entropy=target)[2][0]
    assert (slope < 0) == rises  # descent goes against the slope


def test_the_temperature_moves_by_the_surplus_alone():
    state, rows = learner(), batch()
    actor = sac.actor_of(state, UNITS)
    _, log_prob = drawn(actor, rows.obs, rows.lam, NOISE)
    expected = -(log_prob[:, None] - 50.0) * preference(rows.lam)
    np.testing.assert_allclose(policy_gradient()[2][1:], expected.mean(0), rtol=1e-4)


def test_the_entropy_target_does_not_reach_the_actor():
    low, high = (policy_gradient(entropy=target)[:2] for target in (-50.0, 50.0))
    for a, b in zip(low, high, strict=True):
        assert moved(a, b) < 1e-6


@pytest.mark.parametrize(("lam", "heeded"), [(0.0, False), (1.0, True)])
def test_the_actor_heeds_the_cost_unless_lambda_is_zero(lam, heeded):
    """Critics that value cost alone, and a temperature of next to nothing."""
    state, rows = learner(), batch(lam=[lam] * 32)
    critics = tuple(
        critic._replace(weights=(*critic.weights[:-1], critic.weights[-1].at[::2].set(0.0)))
        for critic in state.critics.net
    )
    weights, biases, temperature = state.policy.net
    cold = (weights, biases, temperature.at[0].set(-50.0))
    gradient = policy_slopes(cold, critics, UNITS, rows, NOISE, -50.0)
    largest = max(float(jnp.abs(leaf).max()) for leaf in jax.tree.leaves(gradient[:2]))
    assert (largest > 1e-5) == heeded


def test_an_error_in_one_currency_moves_the_output_of_that_one():
    state, rows = learner(), batch()
    inputs = critic_inputs(sac.actor_of(state, UNITS), rows.obs, rows.action, rows.lam)
    critics = (state.critics.net[0],) * 2
    target = jax.jit(sac.q_values)(critics[0], inputs) + np.array([[0.0], [1.0], [0.0]], np.float32)
    gradient = jax.jit(jax.grad(sac.critic_loss))(critics, inputs, target)[0].weights[-1]
    assert (jnp.abs(gradient).max(1) > 1e-3).tolist() == [False, True, False]


def test_an_update_of_the_critics_leaves_the_policy_and_drags_the_targets_behind():
    before = learner()
    after, _ = jax.jit(functools.partial(sac.update_critics, CONFIG))(before, UNITS, batch(), NOISE)
    assert moved(before.policy, after.policy) == 0.0
    assert moved(before.critics.net, after.critics.net) > 0.0
    expected = jax.tree.map(
        lambda old, new: 0.995 * old + 0.005 * new, before.targets, after.critics.net
    )
    assert moved(expected, after.targets) < 1e-6


def test_an_update_of_the_policy_leaves_the_critics():
    before = learner()
    after, _ = jax.jit(functools.partial(sac.update_policy, CONFIG))(before, UNITS, batch(), NOISE)
    assert moved(before.critics, after.critics) == 0.0
    assert moved(before.targets, after.targets) == 0.0
    assert moved(before.policy.net, after.policy.net) > 0.0


def test_critics_learn_the_values_of_a_task_of_one_state():
    """One unit of reward, 0.3 of cost and the same entropy in every step, for ever."""
    config = sac.Config(width=16, actor_width=8, gamma=0.5, batch=32, rate=3e-3, polyak=0.05)
    state = jax.jit(functools.partial(sac.init, config, SPEC))(jax.random.key(0))
    same, every = np.zeros((32, 3)), np.ones(32)
    rows = batch(obs=same, next_obs=same, reward=2 * every, cost=0.3 * every, discount=0.5 * every)
    actor, noise = sac.actor_of(state, UNITS), jnp.zeros((32, 2))

    def update(_, learner):
        return sac.update_critics(config, learner, UNITS, rows, noise)[0]

    state = jax.jit(lambda s: jax.lax.fori_loop(0, 1200, update, s))(state)
    inputs = critic_inputs(actor, rows.obs, rows.action, rows.lam)
    _, log_prob = drawn(actor, rows.obs, rows.lam, noise)
    alpha = 0.2 * config.scale
    bonus = float(-alpha * log_prob[0])  # of the next step on: half of it now, and so on
    values = sac.q_values(state.critics.net[0], inputs).mean(1)
    expected = [config.scale / 0.5, config.scale * 0.3 / 0.5, 0.5 * bonus / 0.5]
    np.testing.assert_allclose(values, expected, rtol=0.05)
