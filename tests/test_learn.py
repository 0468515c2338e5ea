"""Descent: AdamW behind a clip, and who moves."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from safestitch.learn import (
    Trained,
    clipped_adamw,
    descend,
    descend_in_parts,
    split,
    start_training,
)


class Line(eqx.Module):
    """A network of one vector."""

    w: jax.Array


def line(*values: float) -> Line:
    return Line(jnp.asarray(values, jnp.float32))


def run(optimiser: optax.GradientTransformation, gradients: np.ndarray, start: np.ndarray):
    """The parameters after each of several steps on given gradients."""
    trained = start_training(line(*start), optimiser)
    path = []
    for gradient in gradients:
        constant = jnp.asarray(gradient, jnp.float32)
        trained, _ = descend(trained, optimiser, lambda net, g: jnp.sum(net.w * g), constant)
        path.append(np.asarray(trained.net.w))
    return np.array(path)


def adamw(gradients, start, rate, decay_of_weights, clip, iterations=None):
    """AdamW from its paper, in NumPy: betas (0.9, 0.999), epsilon 1e-8, decay outside the moments.

    The learning rate of step k (from 0) is `rate` or, over n iterations, its share
    (1 + cos(pi k / n)) / 2.
    """
    w, m, v = np.array(start, float), np.zeros(len(start)), np.zeros(len(start))
    path = []
    for k, g in enumerate(np.asarray(gradients, float)):
        g = g * min(1.0, clip / np.linalg.norm(g))
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
        direction = (m / (1 - 0.9 ** (k + 1))) / (np.sqrt(v / (1 - 0.999 ** (k + 1))) + 1e-8)
        now = rate if iterations is None else rate * (1 + np.cos(np.pi * k / iterations)) / 2
        w = w - now * (direction + decay_of_weights * w)
        path.append(w)
    return np.array(path)


START = np.array([1.0, -2.0, 0.5])
GRADIENTS = np.random.default_rng(0).normal(size=(6, 3)) * np.array(
    [[5], [0.01], [1], [0.1], [3], [1]]
)


# --- descend -----------------------------------------------------------------------------------


def test_descend_takes_one_step_and_reports_the_loss_before_it():
    # loss = 0.5 |w|^2 = 2.5 at (1, 2); gradient (1, 2); SGD with rate 0.1: (0.9, 1.8).
    optimiser = optax.sgd(0.1)
    trained = start_training(line(1.0, 2.0), optimiser)
    after, value = descend(trained, optimiser, lambda net: 0.5 * jnp.sum(net.w**2))
    assert float(value) == 2.5
    np.testing.assert_allclose(after.net.w, [0.9, 1.8], rtol=1e-6)


def test_descend_differentiates_its_first_argument_only():
    # loss = <w, u> with u the same network: the gradient is u = (3, 4), not 2 w = (6, 8).
    optimiser = optax.sgd(1.0)
    other = line(3.0, 4.0)
    trained = start_training(other, optimiser)
    after, _ = descend(trained, optimiser, lambda net, rest: jnp.sum(net.w * rest.w), other)
    assert after.net.w.tolist() == [0.0, 0.0]
    assert other.w.tolist() == [3.0, 4.0]


def test_a_loss_that_ignores_its_network_moves_nothing():
    optimiser = clipped_adamw(0.1, 0.0, 1.0, None)
    trained = start_training(line(1.0, 2.0), optimiser)
    after, value = descend(trained, optimiser, lambda _, other: jnp.sum(other.w**2), line(5.0))
    assert float(value) == 25.0
    assert (after.net.w == trained.net.w).all()


def test_optimiser_state_is_carried():
    optimiser = optax.sgd(1.0, momentum=0.5)  # steps 1, then 1 + 0.5
    trained = start_training(line(0.0), optimiser)
    for _ in range(2):
        trained, _ = descend(trained, optimiser, lambda net: jnp.sum(net.w))
    assert isinstance(trained, Trained)
    assert trained.net.w.tolist() == [-2.5]


# --- clipped_adamw -----------------------------------------------------------------------------


@pytest.mark.parametrize("decay", [None, 6])
def test_adamw_against_numpy(decay):
    found = run(clipped_adamw(0.05, 0.1, 0.25, decay), GRADIENTS, START)
    expected = adamw(GRADIENTS, START, 0.05, 0.1, 0.25, decay)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_clip_binds_on_the_norm_of_all_parameters_together():
    # (30, 40) has norm 50; clipped to 1 it is (0.6, 0.8). Through SGD-like moments: mu = 0.1 g.
    optimiser = clipped_adamw(0.1, 0.0, 1.0, None)
    net = {"a": jnp.array([3.0]), "b": jnp.array([4.0])}
    gradient = {"a": jnp.array([30.0]), "b": jnp.array([40.0])}
    with jax.numpy_dtype_promotion("standard"):
        _, state = optimiser.update(gradient, optimiser.init(net), net)
    mu = optax.tree.get(state, "mu")
    assert float(mu["a"][0]) == pytest.approx(0.06)
    assert float(mu["b"][0]) == pytest.approx(0.08)


def test_a_small_gradient_is_not_clipped():
    tight, loose = clipped_adamw(0.1, 0.0, 0.25, None), clipped_adamw(0.1, 0.0, 1e3, None)
    small = 0.01 * GRADIENTS / np.abs(GRADIENTS).max()
    assert (run(tight, small, START) == run(loose, small, START)).all()
    assert not (run(tight, GRADIENTS, START) == run(loose, GRADIENTS, START)).all()


def test_cosine_reaches_zero():
    path = run(clipped_adamw(0.1, 0.5, 1.0, 4), np.ones((6, 3)), START)
    steps = np.abs(np.diff(np.vstack([START, path]), axis=0)).max(axis=1)
    # With equal gradients Adam's step is the rate: 0.1 x (1, 0.854, 0.5, 0.146, 0, 0), decay aside.
    assert (np.diff(steps[:5]) < 0).all()
    assert steps[3] > 0.01
    np.testing.assert_allclose(steps[4:], 0.0, atol=1e-7)


def test_constant_rate_stays():
    path = run(clipped_adamw(0.1, 0.0, 100.0, None), np.ones((20, 3)), START)
    np.testing.assert_allclose(np.diff(path, axis=0), -0.1, rtol=1e-3)


def test_weight_decay_shrinks_without_a_gradient():
    # Each step multiplies by 1 - rate * decay = 1 - 0.1 * 0.5 = 0.95, biases and all.
    path = run(clipped_adamw(0.1, 0.5, 1.0, None), np.zeros((2, 3)), START)
    np.testing.assert_allclose(path, [START * 0.95, START * 0.95**2], rtol=1e-5)


# --- parts of a batch --------------------------------------------------------------------------


def test_a_batch_is_split_evenly_or_not_at_all():
    batch = {"x": jnp.arange(6.0), "y": jnp.zeros((6, 2))}
    parts = split(batch, 2)
    assert parts["x"].tolist() == [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]
    assert parts["y"].shape == (3, 2, 2)
    assert split(batch, 4)["x"].shape == (1, 6)
    assert split(batch, 8)["x"].shape == (1, 6)


def test_the_mean_over_parts_is_descended():
    # Parts 1, 5 and 3 of the loss w x: gradient 3, loss 6 at w = 2, aux the mean of x.
    optimiser = optax.sgd(0.1)
    trained = start_training(line(2.0), optimiser)

    def loss(net, scale, x):
        return jnp.sum(net.w) * scale * x, x

    parts = (jnp.asarray([1.0, 5.0, 3.0]),)
    after, (value, mean) = descend_in_parts(trained, optimiser, loss, jnp.float32(1.0), parts=parts)
    assert float(after.net.w[0]) == pytest.approx(1.7)
    assert (float(value), float(mean)) == pytest.approx((6.0, 3.0))
