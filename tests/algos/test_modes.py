"""Policies of several modes, on numbers worked by hand and on logs of two hands."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from safestitch.algos import modes
from safestitch.algos.modes import Proposals
from safestitch.learn import descend, plain_adam, start_training

SPREAD = 0.5  # for two dimensions the width is 2 * 0.25 * 2 = 1


def two(logits=(0.0, 0.0)) -> Proposals:
    """One state; modes at (0, 0) and (1, 0)."""
    actions = jnp.asarray([[[0.0, 0.0], [1.0, 0.0]]])
    return Proposals(actions, jnp.asarray([logits], jnp.float32))


def close(found, expected, **options) -> None:
    np.testing.assert_allclose(found, expected, **{"rtol": 1e-5, "atol": 1e-6, **options})


@pytest.mark.parametrize(("count", "expected"), [(1, 3), (2, 8), (4, 16)])
def test_one_mode_needs_no_weight(count, expected):
    assert modes.outputs(count, act_dim=3) == expected


def test_outputs_are_all_actions_and_then_the_logits():
    out = jnp.asarray([[0.1, 0.2, 0.3, 0.4, 5.0, 6.0]])
    found = modes.proposals(out, 2)
    close(found.actions, np.tanh([[[0.1, 0.2], [0.3, 0.4]]]))
    close(found.logits, [[5.0, 6.0]])
    alone = modes.proposals(out, 1)
    close(alone.actions, np.tanh(np.asarray(out))[:, None])
    assert alone.logits.shape == (1, 1)


def test_error_by_hand():
    # Distances from (1, 1): 2 and 1. -log((e^-2 + e^-1) / 2) = -log(0.251607) = 1.379888.
    close(modes.error(two(), jnp.ones((1, 2)), SPREAD), [1.379888])
    # Weights 3/4 and 1/4: -log(0.75 e^-2 + 0.25 e^-1) = -log(0.193471) = 1.642627.
    tilted = two((float(np.log(3.0)), 0.0))
    close(modes.error(tilted, jnp.ones((1, 2)), SPREAD), [1.642627])
    # Half the spread: the width is 1/4, -1/4 log((e^-8 + e^-4) / 2) = 1.168749.
    close(modes.error(two(), jnp.ones((1, 2)), SPREAD / 2), [1.168749])


@pytest.mark.parametrize("spread", [0.01, 0.2, 5.0])
def test_one_mode_is_the_squared_error(spread):
    alone = modes.proposals(jnp.arctanh(jnp.asarray([[0.5, -0.5]])), 1)
    close(modes.error(alone, jnp.asarray([[1.0, 0.5]]), spread), [0.25 + 1.0])


def test_only_the_mode_at_hand_is_pulled():
    def loss(actions):
        return modes.error(Proposals(actions, two().logits), jnp.asarray([[1.0, 0.2]]), 0.1)[0]

    pull = jax.grad(loss)(two().actions)[0]
    close(pull[1], [0.0, -0.4], atol=1e-4)  # as of the squared error alone
    close(pull[0], [0.0, 0.0], atol=1e-4)


def test_modes_are_taken_as_often_as_their_weights_say():
    tilted = two((float(np.log(3.0)), 0.0))
    observations = jax.random.normal(jax.random.key(0), (4000, 3))
    keys = jax.vmap(lambda obs: modes.dice(modes.luck(obs), jnp.float32(7.0)))(observations)
    taken = jax.vmap(lambda key: modes.choose(tilted, 0.03, key))(keys)
    assert set(np.unique(taken[:, 0])) == {0.0, 1.0}
    assert float(taken[:, 0].mean()) == pytest.approx(0.25, abs=0.03)  # four standard deviations


def test_a_rare_mode_is_never_taken():
    keys = jax.random.split(jax.random.key(1), 2000)
    for weight, expected in ((0.029, {0.0}), (0.031, {0.0, 1.0})):
        lopsided = two((0.0, float(np.log(weight))))
        taken = jax.vmap(lambda key, p=lopsided: modes.choose(p, 0.03, key))(keys)
        assert set(np.unique(taken[:, 0])) == expected


def test_chance_is_the_same_for_the_same_start_and_step():
    obs = jnp.asarray([0.1, 0.2, 0.3])

    def draw(obs, step):
        key = modes.dice(modes.luck(jnp.asarray(obs)), jnp.float32(step))
        return float(jax.random.uniform(key))

    assert draw(obs, 3) == draw(obs, 3)
    others = [draw(obs, 4), draw(obs[::-1], 3), draw(obs.at[0].add(1e-7), 3), draw(-obs, 3)]
    assert len({draw(obs, 3), *others}) == 5


def test_logs_of_two_hands_are_not_averaged():
    """A quarter of the logs steer right, the others left: no log goes straight ahead."""
    rng = np.random.default_rng(0)
    a = np.where(rng.random(256) < 0.25, 0.8, -0.8)[:, None] + 0.05 * rng.normal(size=(256, 1))
    logged = jnp.asarray(a, jnp.float32)
    optimiser = plain_adam(0.05, None)

    def learned(count: int) -> Proposals:
        def loss(out):
            proposed = modes.proposals(jnp.repeat(out, len(logged), 0), count)
            return modes.error(proposed, logged, 0.2).mean()

        out = 0.1 * jax.random.normal(jax.random.key(2), (1, modes.outputs(count, 1)))
        step = jax.jit(lambda trained: descend(trained, optimiser, loss)[0])
        trained = start_training(out, optimiser)
        for _ in range(300):
            trained = step(trained)
        return modes.proposals(trained.net, count)

    close(learned(1).actions[0, 0, 0], logged.mean(), atol=1e-2)  # between the two
    keys = jax.random.split(jax.random.key(3), 2000)
    taken = jax.vmap(functools.partial(modes.choose, learned(2), 0.03))(keys)
    assert np.abs(np.abs(taken) - 0.8).max() < 0.05
    assert float((taken > 0).mean()) == pytest.approx(float((logged > 0).mean()), abs=0.04)
