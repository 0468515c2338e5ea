"""Units: standardised observations, actions in [-1, 1], returns near [0, 1]."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from safestitch.episodes import Episodes
from safestitch.records import Spec
from safestitch.scaling import Scaling, blank_scaling, fit_scaling

SPEC = Spec("hand-made", obs_dim=3, act_dim=2, horizon=7, cost_range=5.0)


def episodes(**changes) -> Episodes:
    """Two episodes of 2 steps; the observation's middle column is constant."""
    worked = {
        "observations": np.array([[0, 7, 1], [2, 7, 1], [4, 7, 1], [6, 7, 5]], float),
        "actions": np.zeros((4, 2)),
        "rewards": np.array([1.0, 2.0, -3.0, -1.0]),
        "costs": np.array([1.0, 0.0, 0.5, 2.0]),
        "terminated": np.zeros(4, bool),
        "truncated": np.array([0, 1, 0, 1], bool),
    }
    return Episodes.of(**{**worked, **changes})


def test_measured_by_hand():
    scaling = fit_scaling(episodes(), SPEC)
    # Column 0: mean 3, variance (9 + 1 + 1 + 9) / 4 = 5. Column 2: mean 2, variance (3 + 9) / 4.
    np.testing.assert_allclose(scaling.obs_mean, [3.0, 7.0, 2.0])
    np.testing.assert_allclose(scaling.obs_std, [5**0.5, 1.0, 3**0.5], rtol=1e-6)
    assert float(scaling.reward_unit) == 4.0  # returns 3 and -4: the largest by size
    assert float(scaling.cost_unit) == 2.5  # cost returns 1 and 2.5
    assert float(scaling.horizon) == 7.0


def test_observations_are_standardised_one_or_many():
    data = episodes()
    scaling = fit_scaling(data, SPEC)
    seen = np.asarray(scaling.observation(jnp.asarray(data.observations)))
    np.testing.assert_allclose(seen.mean(0), 0.0, atol=1e-6)
    np.testing.assert_allclose(seen.std(0), [1.0, 0.0, 1.0], rtol=1e-5)
    one = scaling.observation(jnp.asarray(data.observations[2]))
    np.testing.assert_array_equal(one, seen[2])


@pytest.mark.parametrize("value", [0.0, 7.0, -1e6, 1e-9, 0.1])
def test_constant_column_is_centred_and_not_divided(value):
    observations = episodes().observations.copy()
    observations[:, 1] = value
    scaling = fit_scaling(episodes(observations=observations), SPEC)
    assert float(scaling.obs_std[1]) == 1.0
    seen = np.asarray(scaling.observation(jnp.asarray(observations)))
    np.testing.assert_allclose(seen[:, 1], 0.0, atol=1e-6)


def test_a_column_that_varies_a_little_is_divided():
    observations = episodes().observations.copy()
    observations[:, 1] = np.array([0, 1, 0, 1]) * 1e-3
    scaling = fit_scaling(episodes(observations=observations), SPEC)
    assert float(scaling.obs_std[1]) == pytest.approx(5e-4)


def test_zero_cost_everywhere():
    scaling = fit_scaling(episodes(costs=np.zeros(4)), SPEC)
    assert float(scaling.cost_unit) == 1.0


def test_zero_reward_everywhere():
    scaling = fit_scaling(episodes(rewards=np.zeros(4)), SPEC)
    assert float(scaling.reward_unit) == 1.0


@pytest.mark.parametrize(("low", "high"), [(-1.0, 1.0), (0.0, 4.0), (-3.0, -1.0)])
def test_action_range_and_its_inverse(low, high):
    spec = dataclasses.replace(SPEC, action_low=low, action_high=high)
    scaling = fit_scaling(episodes(), spec)
    ends = jnp.array([-1.0, 0.0, 1.0])
    np.testing.assert_allclose(scaling.action(ends), [low, (low + high) / 2, high], atol=1e-6)
    inside = jnp.linspace(-1.0, 1.0, 9).reshape(3, 3)
    np.testing.assert_allclose(scaling.unscale_action(scaling.action(inside)), inside, atol=1e-6)
    task = jnp.linspace(low, high, 5)
    np.testing.assert_allclose(scaling.action(scaling.unscale_action(task)), task, atol=1e-6)


def test_logged_actions_beyond_the_range_are_clipped():
    scaling = fit_scaling(episodes(), SPEC)
    assert scaling.unscale_action(jnp.array([-5.0, 5.0])).tolist() == [-1.0, 1.0]


def test_blank_scaling_has_the_shapes_of_a_fitted_one():
    fitted, blank = fit_scaling(episodes(), SPEC), blank_scaling(SPEC)
    assert isinstance(blank, Scaling)
    assert jax.tree.structure(blank) == jax.tree.structure(fitted)
    for a, b in zip(jax.tree.leaves(blank), jax.tree.leaves(fitted), strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
