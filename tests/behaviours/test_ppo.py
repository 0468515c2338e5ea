"""The equations against values worked by hand, and what a chunk of steps teaches."""

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from safestitch.behaviours import actor as acting
from safestitch.behaviours import ppo, sac
from safestitch.behaviours.actor import Actor
from safestitch.records import Spec

SPEC = Spec("Own", obs_dim=2, act_dim=1, horizon=4, cost_range=5.0)
CONFIG = ppo.Config(width=16, actor_width=8, gamma=0.5, trace=0.5, batch=64, epochs=4, kl=0.02)
UNITS = sac.Units(jnp.zeros(2), jnp.ones(2), jnp.float32(2.0))


def steps(count: int, **columns) -> sac.Batch:
    """One lane that walks on and on, under one lambda."""
    place = np.arange(count + 1, dtype=np.float32)
    obs = np.stack([place, 0.0 * place], 1)
    one = np.ones(count, np.float32)
    action = np.zeros((count, 1), np.float32)
    made = sac.Batch(*map(jnp.asarray, (obs[:-1], action, one, one, 0.5 * one, one, obs[1:])))
    return made._replace(**{name: jnp.asarray(value) for name, value in columns.items()})


@functools.cache
def learner() -> ppo.Learner:
    return jax.jit(functools.partial(ppo.init, CONFIG, SPEC))(jax.random.key(0))


def unsure(mean: float, log_std: float) -> Actor:
    """The same Gaussian everywhere; the squashing of the log std is undone."""
    raw = math.atanh((log_std + 5.0) / 3.5 - 1.0)
    weights = (jnp.zeros((4, 3)), jnp.zeros((3, 3)), jnp.zeros((3, 2)))
    biases = (jnp.zeros(3), jnp.zeros(3), jnp.array([mean, raw]))
    return Actor(weights, biases, UNITS.obs_mean, UNITS.obs_scale)


def test_advantages_sum_up_to_where_the_next_row_does_not_follow():
    # decay 1/4: last 4; then 2 + 4/4; then 1, cut; then 8 + 1/4; each currency by itself.
    errors = jnp.array([[8.0, 1.0, 2.0, 4.0], [0.0, 0.0, 0.0, 16.0]])
    decay = jnp.array([0.25, 0.0, 0.25, 0.25])
    found = ppo.advantages(errors, decay)
    np.testing.assert_allclose(found, [[8.25, 1.0, 3.0, 4.0], [0.0, 0.0, 4.0, 16.0]])


def test_rows_follow_within_an_episode_under_one_lambda():
    rows = steps(5, lam=jnp.array([1.0, 1.0, 2.0, 2.0, 2.0]))
    np.testing.assert_array_equal(ppo.follows(rows), [True, False, True, True, False])
    begun_anew = rows._replace(obs=rows.obs.at[3].set(-1.0))
    np.testing.assert_array_equal(ppo.follows(begun_anew), [True, False, False, True, False])


def test_both_currencies_are_weighed_by_lambda():
    found = ppo.weighed(jnp.array([[3.0] * 3, [1.0] * 3]), jnp.array([0.0, 1.0, 3.0]))
    np.testing.assert_allclose(found, [3.0, 1.0, 0.0])


def test_advantages_are_normalised_among_steps_of_similar_lambda():
    lam = jnp.array([5.0, 0.0, 5.0, 0.0, 7.0])
    found = ppo.normalised(jnp.array([0.03, 10.0, 0.01, 30.0, 0.04]), lam, bands=2)
    np.testing.assert_allclose(found, [1.0, -1.0, -1.0, 1.0, 2.0], rtol=1e-4)


def test_the_density_is_the_normal_one_but_for_constants():
    mean, log_std = jnp.full((2, 1), 0.5), jnp.full((2, 1), -1.0)
    density = ppo.log_density(mean, log_std, jnp.array([[1.5], [0.5]]))
    np.testing.assert_allclose(density, [1.0 - 0.5 * math.e**2, 1.0], rtol=1e-4)


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss"),
    [(1.1, 2.0, -2.2), (1.5, 2.0, -2.4), (1.5, -2.0, 3.0), (0.5, 2.0, -1.0), (0.5, -2.0, 1.6)],
)
def test_what_a_change_gains_is_cut_and_what_it_loses_is_not(ratio, advantage, loss):
    actor, rows, before = unsure(0.0, 0.0), steps(1), jnp.zeros((1, 1))
    old = jnp.array([-math.log(ratio)])  # the new log density is 0
    policy = actor.weights, actor.biases
    judged = ppo.Judged(rows, before, old, jnp.array([advantage]))
    assert float(ppo.policy_loss(policy, UNITS, judged, 0.2, 0.0)) == pytest.approx(loss, rel=1e-5)


def test_the_bonus_is_for_entropy():
    actor, rows, before = unsure(0.0, -2.0), steps(1), jnp.zeros((1, 1))
    judged = ppo.Judged(rows, before, jnp.array([2.0]), jnp.zeros(1))
    found = ppo.policy_loss((actor.weights, actor.biases), UNITS, judged, 0.2, 0.5)
    assert float(found) == pytest.approx(1.0, rel=1e-5)


def test_a_mean_where_the_tanh_is_flat_is_drawn_back():
    actor = unsure(-5.0, 0.0)
    judged = ppo.Judged(steps(1), jnp.full((1, 1), -5.0), jnp.zeros(1), jnp.zeros(1))
    loss, slope = jax.value_and_grad(ppo.policy_loss)(
        (actor.weights, actor.biases), UNITS, judged, 0.2, 0.0
    )
    assert float(loss) == pytest.approx(4.0)  # two beyond three
    assert float(slope[1][-1][0]) == pytest.approx(-4.0)


def test_no_ratio_is_too_large_to_learn_from():
    actor, far = unsure(0.0, -5.0 + 1e-3), jnp.full((1, 1), 3.0)
    judged = ppo.Judged(steps(1), far, jnp.array([-1e6]), jnp.array([-1.0]))
    slopes = jax.grad(ppo.policy_loss)((actor.weights, actor.biases), UNITS, judged, 0.2, 0.0)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(slopes))


@pytest.mark.parametrize(("change", "factor"), [(0.05, 1 / 1.5), (0.005, 1.5), (0.02, 1.0)])
def test_the_rate_follows_the_change(change, factor):
    found = ppo.adapted(jnp.float32(3e-4), jnp.float32(change), 0.02)
    assert float(found) == pytest.approx(3e-4 * factor)


def test_the_rate_has_bounds():
    low, high = ppo.RATES
    assert float(ppo.adapted(jnp.float32(low), jnp.float32(1.0), 0.02)) == pytest.approx(low)
    assert float(ppo.adapted(jnp.float32(high), jnp.float32(0.0), 0.02)) == pytest.approx(high)


def test_steps_are_judged_by_what_they_bring():
    # Values that say 0: the errors are scale * (reward / unit, cost), scale 1 - gamma.
    state = learner()
    silent = jax.tree.map(jnp.zeros_like, state.values.net)
    state = state._replace(values=state.values._replace(net=silent))
    rows = steps(2, reward=jnp.array([4.0, 8.0]), cost=jnp.array([1.0, 0.0]), lam=jnp.zeros(2))
    repeated = jax.tree.map(lambda x: jnp.tile(x, (8, *[1] * (x.ndim - 1))), rows)
    better, target = ppo.judged(CONFIG, state, repeated, UNITS)
    # A^R: 2, then 1 + 0.5 * 0.5 * 2; A^C: 0, then 0.5.
    np.testing.assert_allclose(target, np.tile([[1.5, 2.0], [0.5, 0.0]], 8), rtol=1e-6)
    np.testing.assert_allclose(better, np.tile([-1.0, 1.0], 8), rtol=1e-5)  # reward alone


def test_more_than_enough_is_judged_as_enough_where_the_cost_counts():
    bounded = dataclasses.replace(CONFIG, enough=4.0)
    rows = steps(16, cost=jnp.zeros(16), lam=jnp.ones(16))
    much, enough = (rows._replace(reward=jnp.full(16, value)) for value in (8.0, 4.0))
    found = ppo.judged(bounded, learner(), much, UNITS)[1]
    np.testing.assert_array_equal(found, ppo.judged(bounded, learner(), enough, UNITS)[1])
    free = ppo.judged(CONFIG, learner(), much, UNITS)[1]
    assert float(jnp.abs(free - found).max()) > 0.1


def test_what_was_better_is_done_more_under_each_lambda():
    random = np.random.default_rng(0)
    lam = np.where(np.arange(256) % 2, 0.0, 10.0).astype(np.float32)
    place = np.zeros((256, 2), np.float32)
    state, learn, act = learner(), ppo.learning(CONFIG, 256), jax.jit(acting.act)
    actor, losses = ppo.actor_of(state, UNITS), jnp.zeros(2)
    for _ in range(12):
        action = act(actor, place, lam, random.standard_normal((256, 1), np.float32))
        paid = {"reward": 4.0 * action[:, 0], "cost": 2.0 * action[:, 0]}
        rows = steps(256, obs=place, next_obs=place, discount=0.0 * lam, action=action, lam=lam)
        state, actor, losses = learn(state, rows._replace(**paid), actor, UNITS)
    assert np.isfinite(losses).all()
    middle = act(actor, place, lam, np.zeros((256, 1), np.float32))
    assert float(middle[1::2].mean()) > 0.1  # lambda 0: the reward counts
    assert float(middle[::2].mean()) < -0.1  # lambda 10: the cost does
