"""CAPS-SAC, in the order of `safestitch/algos/caps_sac.py`: every equation on numbers by hand."""

import dataclasses
import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.compiling import quick_jit

from safestitch.algos import caps_sac
from safestitch.algos.caps_sac import ALGORITHM, Acting, Batch, Config
from safestitch.algos.switching import Carry
from safestitch.envs import TASKS
from safestitch.evaluation.rollout import rollout
from safestitch.nn import MLP
from safestitch.policy import load_policies
from safestitch.records import Spec
from safestitch.scaling import Scaling
from safestitch.training.loop import train

SPEC = Spec("hand-made", obs_dim=1, act_dim=1, horizon=4, cost_range=4.0)
TINY = Config(iterations=10, batch=2, hidden=4, layers=2, learning_rate=1e-2)


def row(*values: float) -> jax.Array:
    return jnp.asarray(values, jnp.float32)


def close(found: Any, expected: Any, **options: Any) -> None:
    np.testing.assert_allclose(found, expected, **{"rtol": 1e-5, "atol": 1e-6, **options})


def linear(weight: list[list[float]], bias: list[float]) -> MLP:
    """One layer: outputs x inputs."""
    net = MLP(len(weight[0]), len(weight), hidden=1, layers=1, key=jax.random.key(0))
    values = (jnp.asarray(weight, jnp.float32),), (jnp.asarray(bias, jnp.float32),)
    return eqx.tree_at(lambda n: (n.weights, n.biases), net, values)


def batch_of(**changes: Any) -> Batch:
    worked = {
        "s": row(1.0, 2.0)[:, None],
        "a": row(0.5, -0.5)[:, None],
        "r": row(1.0, 0.0),
        "c": row(0.0, 1.0),
        "s_next": row(2.0, 9.0)[:, None],
        "goes_on": row(1.0, 0.0),
        "noise": jnp.zeros((2, 2, 1)),
        "noise_next": jnp.zeros((2, 2, 1)),
    }
    return Batch(**{**worked, **changes})


def policy_of(mean: tuple[float, float], log_std: tuple[float, float]) -> MLP:
    """Two heads whatever the state; outputs are (μ_0, log σ_0, μ_1, log σ_1)."""
    return linear([[0.0]] * 4, [mean[0], log_std[0], mean[1], log_std[1]])


# --- equations ---------------------------------------------------------------------------------


def test_draw_by_hand():
    # Head 0: u = 0.5 + 2 (0.25) = 1, log N = -0.03125 - ln 2 - 0.918939, log of tanh's slope
    # = ln(1 - tanh(1)^2) = -0.867562. Head 1: u = 0, log N = -0.918939, slope 1.
    policy = policy_of((0.5, 0.0), (float(np.log(2.0)), 0.0))
    noise = jnp.asarray([[[0.25], [0.0]]])
    a, log_pi = caps_sac.draw(policy, row(3.0)[:, None], noise)
    close(a[0, :, 0], [np.tanh(1.0), 0.0])
    close(log_pi[0], [-0.03125 - 0.693147 - 0.918939 + 0.867562, -0.918939])


def test_the_spread_is_bounded():
    _, log_std = caps_sac.heads_at(policy_of((0.0, 0.0), (50.0, -50.0)), jnp.zeros((1, 1)), 2)
    close(log_std[0, :, 0], [2.0, -20.0])


def test_backup_by_hand():
    batch = batch_of()
    q_next, entropy = jnp.asarray([[2.0, 4.0], [6.0, 8.0]]), jnp.asarray([[0.1, 0.2], [0.3, 0.4]])
    cfg = dataclasses.replace(TINY, discount=0.5)
    # The second step ends its episode; as released the entropy stays.
    close(caps_sac.backup(cfg, batch.r, q_next, entropy, batch), [[2.1, 3.2], [0.3, 0.4]])
    inside = dataclasses.replace(cfg, discount_entropy=True)
    close(caps_sac.backup(inside, batch.r, q_next, entropy, batch), [[2.05, 3.1], [0.0, 0.0]])


def test_critic_loss_by_hand():
    # Q_1 = s = 1, 2 and Q_2 = 0 against y = (1, 0), (2, 2): squares Q_1 0 1 | 0 0, Q_2 1 0 | 4 4;
    # summed over critics, mean over batch and heads: 10 / 4
    critics = linear([[1.0, 0.0]], [0.0]), linear([[0.0, 0.0]], [0.0])
    y = jnp.asarray([[1.0, 0.0], [2.0, 2.0]])
    close(caps_sac.critic_loss(critics, y, batch_of()), 2.5)
    at = jnp.asarray([[[3.0], [-1.0]], [[0.0], [1.0]]])
    close(
        caps_sac.least((linear([[0.0, 1.0]], [0.0]), critics[1]), batch_of().s, at),
        [[0, -1], [0, 0]],
    )


def test_mixture_by_hand():
    q_r, q_c = jnp.full((1, 2), 10.0), jnp.full((1, 2), -4.0)
    close(caps_sac.mixture(q_r, q_c), [[10.0, -4.0]])
    five = caps_sac.mixture(jnp.full((1, 5), 10.0), jnp.full((1, 5), -4.0))
    close(five, [[10.0, 8.0, 6.0, 4.0, -4.0]])  # 10 - 4 k / 2


def test_policy_loss_by_hand():
    # Both heads act tanh(0) = 0 with log π = -0.918939. Q_r = 4, Q⁻ = -2 everywhere, so M / E|M| is
    # 1 and -1. Cloning: 0.25 each. Loss: 2 (0.5 x -0.918939) - 2.5 + 2.5 + 0.5
    critics = [(linear([[0.0, 0.0]], [value]),) for value in (4.0, -2.0)]
    policy = policy_of((0.0, 0.0), (0.0, 0.0))
    found = caps_sac.policy_loss(policy, critics, jnp.float32(0.5), batch_of(), 2.5)
    close(found, -0.918939 + 0.5)


def test_the_normaliser_is_a_constant():
    # With Q_r = a and α = 0, head 0's slope is -2.5 / E|a|, as cloning is at its best; were E|M|
    # not held fixed, M / E|M| would not move at all.
    critics = [(linear([[0.0, 1.0]], [0.0]),), (linear([[0.0, 0.0]], [0.0]),)]
    policy = policy_of((0.5, 0.0), (-20.0, -20.0))
    batch = batch_of(a=jnp.full((2, 1), np.tanh(0.5)))
    loss = functools.partial(caps_sac.policy_loss, value_weight=2.5)
    slope = quick_jit(jax.grad(loss))(policy, critics, jnp.float32(0.0), batch).biases[0][0]
    tanh_slope = 1 - np.tanh(0.5) ** 2
    close(slope, -2.5 * tanh_slope / np.tanh(0.5), rtol=1e-4)


def test_temperature_loss_by_hand():
    log_pi = jnp.asarray([[1.0, 2.0], [3.0, 4.0]])
    # Σ over heads of mean(-log π + 1): (-2 + 1) + (-3 + 1) = -3, times α = 2
    close(caps_sac.temperature_loss(jnp.log(jnp.float32(2)), log_pi, 1), -6.0)


# --- update ------------------------------------------------------------------------------------


def test_the_entropy_of_the_cost_backup_is_a_switch():
    state = quick_jit(lambda key: caps_sac.init(TINY, SPEC, key))(jax.random.key(0))
    batch = batch_of()

    @quick_jit
    def expected(after, share):
        a, log_pi = caps_sac.draw(state.policy.net, batch.s_next, batch.noise_next)
        q_next = caps_sac.least(state.cost_targets, batch.s_next, a)
        y = caps_sac.backup(TINY, -batch.c, q_next, -0.1 * share * log_pi, batch)
        # The heads meet the critics after their step.
        nets = after.reward_critics.net, after.cost_critics.net
        loss = caps_sac.policy_loss(state.policy.net, nets, jnp.float32(0.1), batch, 2.5)
        return caps_sac.critic_loss(state.cost_critics.net, y, batch), loss

    after, metrics = quick_jit(lambda state: caps_sac.update(TINY, state, batch))(state)
    cost_loss, policy_loss = expected(after, jnp.float32(1.0))
    close(metrics["loss/cost_critics"], cost_loss, rtol=1e-4)
    close(metrics["loss/policy"], policy_loss, rtol=1e-3)
    cfg = dataclasses.replace(TINY, cost_entropy=False)
    without = quick_jit(lambda state: caps_sac.update(cfg, state, batch)[1]["loss/cost_critics"])
    close(without(state), expected(after, jnp.float32(0.0))[0], rtol=1e-4)
    assert float(without(state)) != float(cost_loss)


def test_paper_preset_is_the_released_table():
    paper = ALGORITHM.presets["paper"]
    table = (paper.iterations, paper.batch, paper.hidden, paper.layers, paper.heads)
    assert table == (100_000, 512, 512, 3, 2)
    assert (paper.learning_rate, paper.critic_learning_rate, paper.value_weight) == (
        1e-4,
        1e-3,
        2.5,
    )
    assert (paper.cost_entropy, paper.discount_entropy, paper.timeouts_end) == (True, False, True)
    state = jax.eval_shape(lambda key: caps_sac.init(TINY, SPEC, key), jax.random.key(0))
    assert len(state.reward_critics.net) == len(state.cost_targets) == 4


def test_acting_counts_no_cost_below_zero():
    # Q⁻ = +5 for all: a cost of -5 counts as 0, and 0 < 0 does not hold: head 0 of equally cheap.
    policy = Acting(
        policy_of((2.0, -2.0), (0.0, 0.0)),
        (linear([[0.0, -1.0]], [0.0]),),
        (linear([[0.0, 0.0]], [5.0]),),
    )
    one = jnp.ones(())
    scaling = Scaling(jnp.zeros(1), jnp.ones(1), jnp.zeros(()), one, one, one, jnp.float32(4))
    spent, left = (
        caps_sac.act(TINY, policy, scaling, Carry(jnp.float32(b), jnp.float32(4)), jnp.zeros(1))[0]
        for b in (0.0, 1.0)
    )
    close(spent, np.tanh(2.0))
    close(left, np.tanh(-2.0))  # both fit: the richest, Q_r = -a


@pytest.mark.slow
def test_caps_keeps_limits_on_the_chain(tmp_path):
    chain = TASKS["StitchChain"]
    cfg = dataclasses.replace(ALGORITHM.presets["fast"], iterations=4_000, hidden=64)
    train(ALGORITHM, cfg, chain.spec, chain.make_data(0), [0, 1], tmp_path / "run")
    limits = [2.0, 6.0, 14.0, 18.0]
    found, _ = rollout(load_policies(tmp_path / "run"), chain, limits, 50)
    assert (found.costs.mean((0, 2)) <= np.asarray(limits) + 0.5).all()
