import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.compiling import quick_jit

from safestitch.behaviours.actor import (
    CLIP,
    LAMBDA_MAX,
    LOG_STD_MAX,
    LOG_STD_MIN,
    Actor,
    act,
    distribution,
    init_actor,
    normalise,
    preference,
    task_action,
)
from safestitch.records import Spec

SPEC = Spec("Own", obs_dim=3, act_dim=2, horizon=10, cost_range=5.0)
fresh = quick_jit(lambda key: init_actor(SPEC, 8, key))


def by_hand() -> Actor:
    """One observation, one action; the first hidden unit carries the observation, if positive."""
    first = jnp.zeros((3, 2)).at[0, 0].set(1.0).at[2, 1].set(1.0)
    second = jnp.eye(2)
    last = jnp.array([[2.0, 0.0], [0.0, 1.0]])
    zeros = (jnp.zeros(2), jnp.zeros(2), jnp.array([0.5, 0.0]))
    return Actor((first, second, last), zeros, jnp.array([1.0]), jnp.array([4.0]))


def test_the_distribution_worked_by_hand():
    # obs 3 is (3 - 1) / 4 = 0.5; mean = 2 * 0.5 + 0.5. At lambda 0 the weight of the reward is 1,
    # scaled to 2 * 1 - 1 = 1, so the raw log std is 1.
    mean, log_std = distribution(by_hand(), jnp.array([3.0]), jnp.array(0.0))
    assert mean[0] == pytest.approx(1.5)
    assert log_std[0] == pytest.approx(-5.0 + 3.5 * (np.tanh(1.0) + 1.0))


def test_noise_zero_is_the_middle_and_noise_spreads_by_the_standard_deviation():
    obs, lam = jnp.array([3.0]), jnp.array(0.0)
    _, log_std = distribution(by_hand(), obs, lam)
    middle, drawn = (act(by_hand(), obs, lam, jnp.array([n])) for n in (0.0, -2.0))
    assert middle[0] == pytest.approx(np.tanh(1.5))
    assert drawn[0] == pytest.approx(np.tanh(1.5 - 2.0 * np.exp(log_std[0])))


def test_lambda_is_seen_from_zero_to_the_largest():
    low, middle, high = preference(jnp.array([0.0, 1.0, LAMBDA_MAX]))
    np.testing.assert_allclose(low, [-1.0, 1.0])
    np.testing.assert_allclose(middle, [2 * np.log(101) / np.log(1e5 + 1) - 1, 0.0], rtol=1e-5)
    np.testing.assert_allclose(high, [1.0, -1.0], atol=2.1e-3)


def test_far_observations_are_cut_off():
    assert normalise(by_hand(), jnp.array([1e9]))[0] == CLIP
    assert normalise(by_hand(), jnp.array([-1e9]))[0] == -CLIP


def test_a_stack_acts_as_its_actors_do():
    actors = [fresh(jax.random.key(i)) for i in range(3)]
    stack = jax.tree.map(lambda *x: jnp.stack(x), *actors)
    obs = jax.random.normal(jax.random.key(7), (3, 5, 3))
    lam, noise = jnp.ones((3, 5)), jnp.zeros((3, 5, 2))
    together, alone = quick_jit(jax.vmap(act))(stack, obs, lam, noise), quick_jit(act)
    for i, actor in enumerate(actors):
        np.testing.assert_allclose(together[i], alone(actor, obs[i], lam[i], noise[i]), atol=1e-6)


def test_standard_deviations_and_actions_are_bounded():
    actor = jax.tree.map(lambda x: 100.0 * jnp.abs(x) + 1.0, fresh(jax.random.key(0)))
    obs = jax.random.normal(jax.random.key(1), (20, 3)) * 1e3
    _, log_std = quick_jit(distribution)(actor, obs, jnp.full(20, 5.0))
    assert (log_std >= LOG_STD_MIN).all() and (log_std <= LOG_STD_MAX).all()
    assert (np.abs(quick_jit(act)(actor, obs, jnp.full(20, 5.0), jnp.ones((20, 2)))) <= 1.0).all()


def test_actions_reach_the_ends_of_the_tasks_range():
    spec = Spec("Own", 3, 1, 10, 5.0, action_low=-0.5, action_high=2.5)
    np.testing.assert_allclose(task_action(spec, np.array([-1.0, 0.0, 1.0])), [-0.5, 1.0, 2.5])
