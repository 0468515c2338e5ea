"""The equations against values worked by hand, and which gradient reaches what."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from safestitch.behaviours import sac
from safestitch.behaviours.actor import Actor, preference
from safestitch.records import Spec

SPEC = Spec("Own", obs_dim=3, act_dim=2, horizon=10, cost_range=5.0)
CONFIG = sac.Config(width=16, actor_width=8, gamma=0.9, batch=32)  # gamma 0.9: scale 1
UNITS = sac.Units(jnp.zeros(3), jnp.ones(3), jnp.float32(2.0))


def batch(size: int = 32, **columns) -> sac.Batch:
    keys = jax.random.split(jax.random.key(3), 3)
    obs, next_obs = (jax.random.normal(k, (size, 3)) for k in keys[:2])
    action = jax.random.uniform(keys[2], (size, 2), minval=-1.0)
    ones = jnp.ones(size)
    made = sac.Batch(obs, action, ones, ones, 0.9 * ones, ones, next_obs)
    return made._replace(**{name: jnp.asarray(value) for name, value in columns.items()})


def learner() -> sac.Learner:
    return sac.init(CONFIG, SPEC, jax.random.key(0))


def moved(before, after) -> float:
    pairs = zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True)
    return max(float(jnp.abs(a - b).max()) for a, b in pairs)


# --- values -----------------------------------------------------------------------------------


def test_reward_and_cost_are_weighed_by_lambda():
    # unit 2: reward 6 is 3 good steps. lambda 0: 3. lambda 1: (3 - 1) / 2. lambda 3: (3 - 3) / 4.
    rows = batch(3, reward=[6.0] * 3, cost=[1.0] * 3, lam=[0.0, 1.0, 3.0])
    np.testing.assert_allclose(sac.weighed(CONFIG, UNITS.reward, rows), [3.0, 1.0, 0.0], atol=1e-6)
    np.testing.assert_allclose(  # costs may be any number
        sac.weighed(CONFIG, UNITS.reward, rows._replace(cost=jnp.array([0.0, 0.5, 9.0]))),
        [3.0, 1.25, -6.0],
        rtol=1e-6,
    )


def test_values_are_of_one_size_for_every_gamma():
    rows = batch(1, reward=[2.0], lam=[0.0])
    for gamma in (0.9, 0.99, 0.999):
        config = sac.Config(gamma=gamma)
        forever = sac.weighed(config, UNITS.reward, rows)[0] / (1.0 - gamma)
        assert forever == pytest.approx(10.0, rel=1e-4)


def test_the_target_goes_through_a_time_limit_and_not_through_an_end():
    reward, value = jnp.array([1.0, 1.0]), jnp.array([5.0, 5.0])
    log_prob, alpha = jnp.array([-2.0, -2.0]), jnp.array([0.5, 0.5])
    found = sac.td_target(reward, jnp.array([0.9, 0.0]), value, log_prob, alpha)
    np.testing.assert_allclose(found, [1.0 + 0.9 * (5.0 + 1.0), 1.0])


def by_hand(mean: float, log_std: float) -> Actor:
    """One observation, one action, whatever is seen."""
    raw = np.arctanh((log_std + 5.0) / 3.5 - 1.0)
    sizes = ((3, 4), (4, 4), (4, 2))
    biases = (jnp.zeros(4), jnp.zeros(4), jnp.array([mean, raw], jnp.float32))
    return Actor(tuple(jnp.zeros(s) for s in sizes), biases, jnp.zeros(1), jnp.ones(1))


def test_the_log_density_of_an_action():
    one, zero = jnp.ones((1, 1)), jnp.zeros(1)
    action, log_prob = sac.drawn(by_hand(0.0, 0.0), one, zero, jnp.zeros((1, 1)))
    assert action[0, 0] == 0.0  # the tanh has slope 1 there: the density is the normal one
    assert log_prob[0] == pytest.approx(-0.5 * np.log(2 * np.pi), rel=1e-5)
    action, log_prob = sac.drawn(by_hand(0.5, -1.0), one, zero, 2.0 * jnp.ones((1, 1)))
    before = 0.5 + 2.0 * np.exp(-1.0)
    normal = -0.5 * 4.0 + 1.0 - 0.5 * np.log(2 * np.pi)
    assert action[0, 0] == pytest.approx(np.tanh(before), rel=1e-5)
    assert log_prob[0] == pytest.approx(normal - np.log(1 - np.tanh(before) ** 2), rel=1e-4)


def test_the_log_density_is_finite_at_the_ends_of_the_range():
    far = jnp.full((1, 1), 30.0)
    _, log_prob = sac.drawn(by_hand(0.0, 0.0), jnp.ones((1, 1)), jnp.zeros(1), far)
    assert np.isfinite(log_prob).all()


def test_the_pessimist_of_two_critics_counts():
    low, high = (
        sac.Critic((jnp.zeros((4, 3)), jnp.zeros((1, 4))), (jnp.zeros(4), jnp.array([b])))
        for b in (1.0, 2.0)
    )
    np.testing.assert_array_equal(sac.lowest((low, high), jnp.ones((3, 5))), np.ones(5))
    loss = sac.critic_loss((low, high), jnp.ones((3, 5)), jnp.full(5, 4.0))
    assert loss == pytest.approx(3.0**2 + 2.0**2)


def test_lambdas_are_zero_or_log_uniform():
    found = sac.draw_lambda(CONFIG, jnp.array([0.0, 0.0999, 0.1, 0.55, 1.0]))
    np.testing.assert_allclose(found, [0.0, 0.0, 0.03, 3.0, 300.0], rtol=1e-4)
    uniform = np.linspace(0, 0.999, 50).astype(np.float32)
    on_host = sac.draw_lambda(CONFIG, uniform)
    np.testing.assert_allclose(on_host, sac.draw_lambda(CONFIG, jnp.asarray(uniform)), rtol=1e-5)


def test_half_of_a_batch_keeps_its_lambdas():
    found = sac.refreshed(CONFIG, batch(), jax.random.key(0)).lam
    assert (found[16:] == 1.0).all() and not (found[:16] == 1.0).any()


# --- gradients --------------------------------------------------------------------------------


def policy_gradient(actor_changes=lambda net: net, entropy: float = -2.0):
    state, rows = learner(), batch()
    noise = jax.random.normal(jax.random.key(1), (32, 2))
    net = actor_changes(state.policy.net)
    return jax.grad(sac.policy_loss)(net, state.critics.net, UNITS, rows, noise, entropy)


@pytest.mark.parametrize(("target", "rises"), [(-50.0, False), (50.0, True)])
def test_the_temperature_rises_when_the_entropy_is_below_its_target(target, rises):
    slope = policy_gradient(entropy=target)[2][0]
    assert (slope < 0) == rises  # descent goes against the slope


def test_the_temperature_moves_by_the_surplus_alone():
    state, rows = learner(), batch()
    noise = jax.random.normal(jax.random.key(1), (32, 2))
    actor = sac.actor_of(state, UNITS)
    _, log_prob = sac.drawn(actor, rows.obs, rows.lam, noise)
    expected = -(log_prob[:, None] - 2.0) * preference(rows.lam)
    np.testing.assert_allclose(policy_gradient()[2][1:], expected.mean(0), rtol=1e-4)


def test_the_entropy_target_does_not_reach_the_actor():
    low, high = (policy_gradient(entropy=target)[:2] for target in (-2.0, 9.0))
    for a, b in zip(low, high, strict=True):
        assert moved(a, b) < 1e-6


def test_an_update_of_the_critics_leaves_the_policy_and_drags_the_targets_behind():
    before, noise = learner(), jnp.zeros((32, 2))
    after, _ = sac.update_critics(CONFIG, before, UNITS, batch(), noise)
    assert moved(before.policy, after.policy) == 0.0
    assert moved(before.critics.net, after.critics.net) > 0.0
    expected = jax.tree.map(
        lambda old, new: 0.995 * old + 0.005 * new, before.targets, after.critics.net
    )
    assert moved(expected, after.targets) < 1e-6


def test_an_update_of_the_policy_leaves_the_critics():
    before = learner()
    noise = jax.random.normal(jax.random.key(1), (32, 2))
    after, _ = sac.update_policy(CONFIG, before, UNITS, batch(), noise)
    assert moved(before.critics, after.critics) == 0.0
    assert moved(before.targets, after.targets) == 0.0
    assert moved(before.policy.net, after.policy.net) > 0.0


def test_critics_learn_the_value_of_a_task_of_one_state():
    """Reward 2 for ever is one unit a step: Q = 1 / (1 - 0.5) at lambda 0, here without entropy."""
    config = sac.Config(width=16, actor_width=8, gamma=0.5, batch=32, rate=3e-3, polyak=0.05)
    state = sac.init(config, SPEC, jax.random.key(0))
    weights, biases, temperature = state.policy.net
    silent = (weights, biases, temperature.at[0].set(-20.0))
    state = state._replace(policy=state.policy._replace(net=silent))
    rows = batch(obs=np.zeros((32, 3), np.float32), next_obs=np.zeros((32, 3), np.float32))
    rows = rows._replace(reward=jnp.full(32, 2.0), discount=jnp.full(32, 0.5), lam=jnp.zeros(32))
    step = jax.jit(lambda s: sac.update_critics(config, s, UNITS, rows, jnp.zeros((32, 2)))[0])
    for _ in range(1200):
        state = step(state)
    inputs = sac.critic_inputs(sac.actor_of(state, UNITS), rows.obs, rows.action, rows.lam)
    one_step = config.scale * 1.0
    np.testing.assert_allclose(
        sac.lowest(state.critics.net, inputs), one_step / (1.0 - 0.5), rtol=0.05
    )
