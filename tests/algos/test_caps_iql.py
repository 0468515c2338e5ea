"""CAPS-IQL, in the order of `safestitch/algos/caps_iql.py`: every equation on numbers by hand."""

import dataclasses
import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.compiling import quick_jit

from safestitch.algos import caps_iql, switching, transitions
from safestitch.algos.base import Request
from safestitch.algos.caps_iql import ALGORITHM, Acting, Config, Heads
from safestitch.algos.switching import Carry
from safestitch.algos.transitions import Batch
from safestitch.envs import TASKS
from safestitch.episodes import Episodes
from safestitch.evaluation.rollout import rollout
from safestitch.nn import MLP
from safestitch.policy import load_policies
from safestitch.records import SafestitchError, Spec
from safestitch.scaling import Scaling, fit_scaling
from safestitch.training.loop import train

SPEC = Spec("hand-made", obs_dim=1, act_dim=1, horizon=4, cost_range=4.0)
TINY = Config(iterations=10, batch=3, hidden=4, layers=2, learning_rate=1e-2, follow=0.01)


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
        "s": row(1.0, 2.0, 3.0)[:, None],
        "a": row(0.5, -0.5, 0.0)[:, None],
        "r": row(1.0, 0.0, 2.0),
        "c": row(0.0, 1.0, 0.0),
        "s_next": row(2.0, 3.0, 9.0)[:, None],
        "goes_on": row(1.0, 1.0, 0.0),
    }
    return Batch(**{**worked, **changes})


# --- transitions -------------------------------------------------------------------------------


def five_steps() -> Episodes:
    """Two steps that terminate, three that time out; rewards 1 .. 5, a cost at each end."""
    terminated, truncated = np.zeros(5, bool), np.zeros(5, bool)
    terminated[1], truncated[4] = True, True
    columns = np.arange(5.0)[:, None], np.zeros((5, 1)), np.arange(1.0, 6.0), [0, 2, 0, 0, 1]
    return Episodes.of(*columns[:2], columns[2], columns[3], terminated, truncated)


def test_steps_meet_their_successors():
    episodes = five_steps()
    scaling = fit_scaling(episodes, SPEC)
    data = transitions.prepare(Config(), episodes, SPEC, scaling)
    close(data.rewards, [0.1, 0.2, 0.3, 0.4, 0.5])  # as released: a tenth
    close(data.costs, [0.0, 2.0, 0.0, 0.0, 1.0])
    assert data.goes_on.tolist() == [1.0, 0.0, 1.0, 1.0, 0.0]
    following = data.next_observations * scaling.obs_std + scaling.obs_mean
    close(following[[0, 2, 3], 0], [1.0, 3.0, 4.0])
    on = transitions.prepare(Config(timeouts_end=False), episodes, SPEC, scaling)
    assert on.goes_on.tolist() == [1.0, 0.0, 1.0, 1.0, 1.0]


def test_units_of_the_data():
    # Largest returns 3 + 4 + 5 = 12 and 2 over a horizon of 4: a reward of 3 a step is 1.
    episodes = five_steps()
    data = transitions.prepare(Config(units="data"), episodes, SPEC, fit_scaling(episodes, SPEC))
    close(data.rewards, np.arange(1.0, 6.0) / 3)
    close(data.costs, [0.0, 4.0, 0.0, 0.0, 2.0])


# --- equations ---------------------------------------------------------------------------------


def test_value_loss_by_hand():
    # V(s) = s = 1, 2, 3; Q = 2, 1, 3: u = 1, -1, 0; (0.7 + 0.3 + 0) / 3
    net = linear([[1.0]], [0.0])
    close(caps_iql.value_loss(net, row(2.0, 1.0, 3.0), batch_of().s, 0.7), 1.0 / 3)
    close(caps_iql.value_loss(net, row(3.0, 2.0, 3.0), batch_of().s, 0.7), 0.7 * 4 / 3)


def test_backup_by_hand():
    batch = batch_of()
    close(caps_iql.backup(batch.r, row(2.0, 4.0, 8.0), batch, 0.5), [2.0, 2.0, 2.0])
    close(caps_iql.backup(-batch.c, row(-1.0, -1.0, -1.0), batch, 0.5), [-0.5, -1.5, 0.0])


def test_critic_loss_by_hand():
    # Q_1 = s + 2a = 2, 1, 3 and Q_2 = 0 against y = 1, 1, 1: (1 + 0 + 4 + 3) / 6
    critics = linear([[1.0, 2.0]], [0.0]), linear([[0.0, 0.0]], [0.0])
    close(caps_iql.critic_loss(critics, row(1.0, 1.0, 1.0), batch_of()), 8.0 / 6)
    close(caps_iql.least(critics, batch_of().s, -batch_of().s), [-1.0, -2.0, -3.0])


def test_weights_by_hand():
    found = caps_iql.advantage_weight(row(0.0, 1.0, 2.0, -1.0, 1e30), 3.0)
    close(found, [1.0, 20.085537, 100.0, 0.049787, 100.0])
    w_r, w_c = row(1.0, 2.0), row(10.0, 20.0)
    close(caps_iql.head_weights(w_r, w_c, 2), [[1.0, 10.0], [2.0, 20.0]])
    # Five heads: k / 2 = 0.5, 1, 1.5 parts of W_c between.
    close(caps_iql.head_weights(w_r, w_c, 5)[0], [1.0, 6.0, 11.0, 16.0, 10.0])


def test_policy_loss_by_hand():
    # Means tanh(0) = 0 and tanh(s): σ = 1, so -log π = (a - μ)^2 / 2 + 0.918939.
    heads = Heads(linear([[0.0], [1.0]], [0.0, 0.0]), jnp.zeros((2, 1)))
    batch = batch_of(s=row(0.0, 0.0, 1.0)[:, None])
    weights = jnp.asarray([[1.0, 0.0], [2.0, 0.0], [0.0, 4.0]])
    # 0.125 + 2 (0.125) + 4 (0.761594^2 / 2 = 0.290013) = 1.535052, and 7 x 0.918939
    close(caps_iql.policy_loss(heads, weights, batch, False), (1.535052 + 7 * 0.918939) / 6)


@pytest.mark.parametrize("learn_std", [False, True])
def test_std_is_learned_only_if_asked(learn_std):
    heads = Heads(linear([[0.0], [1.0]], [0.0, 0.0]), jnp.zeros((2, 1)))
    loss = functools.partial(caps_iql.policy_loss, learn_std=learn_std)
    slope = quick_jit(jax.grad(loss))(heads, jnp.ones((3, 2)), batch_of())
    assert bool((slope.log_std != 0).any()) == learn_std
    # d/d log σ of -log π at σ = 1 is 1 - (a - μ)^2: 1 - (0.25 + 0.25 + 0) / 3 for μ = 0, over 2
    if learn_std:
        close(slope.log_std[0], (1 - 0.5 / 3) / 2)


# --- update ------------------------------------------------------------------------------------


@functools.cache
def fresh() -> caps_iql.Networks:
    return quick_jit(lambda key: caps_iql.init(TINY, SPEC, key))(jax.random.key(0))


update = quick_jit(functools.partial(caps_iql.update, TINY))


def test_an_update_follows_the_equations():
    """Advantages and backups from the networks before the step; targets move by 1%."""
    state, batch = fresh(), batch_of()
    after, metrics = update(state, batch)

    @quick_jit
    def expected(state, batch):
        v, v_next = (state.cost_value.net(s)[:, 0] for s in (batch.s, batch.s_next))
        y = caps_iql.backup(-batch.c, v_next, batch, TINY.discount)
        q = caps_iql.least(state.cost_targets, batch.s, batch.a)
        weight = caps_iql.advantage_weight(q - v, TINY.beta_cost).mean()
        return caps_iql.critic_loss(state.cost_critics.net, y, batch), weight

    loss, weight = expected(state, batch)
    close(metrics["loss/cost_critics"], loss, rtol=1e-4)
    close(metrics["weight/cost"], weight, rtol=1e-4)
    moved = after.cost_targets[0].weights[0] - state.cost_targets[0].weights[0]
    whole = after.cost_critics.net[0].weights[0] - state.cost_targets[0].weights[0]
    close(moved, 0.01 * whole, rtol=1e-3, atol=1e-7)


def test_costs_never_reach_the_reward_networks_nor_rewards_the_cost_networks():
    plain, costlier, richer = (
        update(fresh(), batch_of(**change))[0]
        for change in ({}, {"c": row(5.0, 5, 5)}, {"r": row(7.0, 7, 7)})
    )

    def same(a, b):
        return all(bool((x == y).all()) for x, y in zip(*map(jax.tree.leaves, (a, b)), strict=True))

    assert same(plain.reward_critics, costlier.reward_critics)
    assert same(plain.reward_value, costlier.reward_value)
    assert same(plain.policy, costlier.policy)  # its weights are those before the step
    assert not same(plain.cost_critics, costlier.cost_critics)
    assert same(plain.cost_critics, richer.cost_critics)
    assert not same(plain.reward_critics, richer.reward_critics)


def test_presets_and_ranges():
    paper = ALGORITHM.presets["paper"]
    table = (paper.iterations, paper.batch, paper.hidden, paper.layers, paper.learning_rate)
    assert table == (100_000, 512, 512, 3, 3e-4)
    assert (paper.heads, paper.expectile, paper.beta, paper.follow) == (2, 0.7, 3.0, 0.005)
    assert (paper.units, paper.reward_scale, paper.learn_std) == ("task", 0.1, False)
    with pytest.raises(SafestitchError, match="heads is 1: expected 2 to 64"):
        Config(heads=1)


# --- switching ---------------------------------------------------------------------------------


def test_limit_to_go_by_hand():
    # γ = 0.99: φ(300) = 0.316986, φ(1000) = 0.099996; one step left: the budget itself.
    close(switching.limit_to_go(jnp.float32(10), jnp.float32(300), 0.99), 3.16986)
    close(switching.limit_to_go(jnp.float32(10), jnp.float32(1000), 0.99), 0.99996, rtol=1e-4)
    close(switching.limit_to_go(jnp.float32(7), jnp.float32(1), 0.99), 7.0, rtol=1e-4)
    close(switching.limit_to_go(jnp.float32(7), jnp.float32(-3), 0.99), 7.0, rtol=1e-4)
    close(switching.limit_to_go(jnp.float32(-7), jnp.float32(5), 0.99), 0.0)
    close(switching.limit_to_go(jnp.float32(7), jnp.float32(5), 1.0), 7.0)


@pytest.mark.parametrize(
    ("rewards", "costs", "limit", "head"),
    [
        ((3.0, 1.0, 2.0), (5.0, 1.0, 2.0), 6.0, 0),  # all fit: the richest
        ((3.0, 1.0, 2.0), (5.0, 1.0, 2.0), 3.0, 2),  # the richest that fits
        ((3.0, 1.0, 2.0), (5.0, 1.0, 2.0), 2.0, 1),  # strictly
        ((3.0, 1.0, 2.0), (5.0, 1.0, 2.0), 0.0, 1),  # none: the cheapest
        ((-3.0, -9.0), (4.0, -1.0), 0.0, 1),
    ],
)
def test_choice_of_the_head(rewards, costs, limit, head):
    assert int(switching.choose_head(row(*rewards), row(*costs), jnp.float32(limit))) == head


def scaling_of(**changes: Any) -> Scaling:
    worked = {"obs_mean": jnp.zeros(1), "obs_std": jnp.ones(1), "action_middle": jnp.zeros(())}
    for name in ("action_half", "reward_unit", "cost_unit"):
        worked[name] = jnp.ones(())
    return Scaling(**{**worked, "horizon": jnp.float32(4), **changes})


def test_acting_switches_when_the_budget_is_spent():
    # Head 0 acts tanh(2), head 1 tanh(-2). Q_r = a and Q⁻ = -1 - a: about 1.96 and 0.04 to go.
    heads = Heads(linear([[0.0], [0.0]], [2.0, -2.0]), jnp.zeros((2, 1)))
    reward, cost = linear([[0.0, 1.0]], [0.0]), linear([[0.0, -1.0]], [-1.0])
    policy = Acting(heads, (reward, reward), (cost, cost))
    cfg, scaling = dataclasses.replace(TINY, discount=1.0), scaling_of()
    carry = switching.start(cfg, policy, scaling, Request(jnp.float32(2.5), jnp.float32(np.nan)))
    first, carry = caps_iql.act(cfg, policy, scaling, carry, jnp.zeros(1))
    close(first, np.tanh(2.0))
    assert float(carry.left) == 3.0
    carry = switching.observe(cfg, scaling, carry, jnp.float32(1), jnp.float32(1.0))
    close(carry.budget, 1.5)
    then, _ = caps_iql.act(cfg, policy, scaling, carry, jnp.zeros(1))
    close(then, np.tanh(-2.0))
    again = switching.redial(cfg, scaling, carry, jnp.float32(2.5), jnp.float32(3.5))
    close(caps_iql.act(cfg, policy, scaling, again, jnp.zeros(1))[0], np.tanh(2.0))
    # In units of the data a cost of 1 is horizon / cost unit = 2: a budget of 1.5 is 3.
    scaled = scaling_of(cost_unit=jnp.float32(2))
    data_units = dataclasses.replace(cfg, units="data")
    close(
        caps_iql.act(data_units, policy, scaled, Carry(*row(1.5, 3.0)), jnp.zeros(1))[0],
        np.tanh(2.0),
    )


# --- behaviour ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_caps_keeps_limits_on_the_chain_and_earns_more_with_more(tmp_path):
    chain = TASKS["StitchChain"]
    cfg = dataclasses.replace(ALGORITHM.presets["fast"], iterations=4_000, hidden=64)
    train(ALGORITHM, cfg, chain.spec, chain.make_data(0), [0, 1], tmp_path / "run")
    limits = [2.0, 6.0, 14.0, 18.0]
    found, _ = rollout(load_policies(tmp_path / "run"), chain, limits, 50)
    costs, rewards = found.costs.mean((0, 2)), found.rewards.mean((0, 2))
    assert (costs <= np.asarray(limits) + 0.5).all()
    assert rewards[-1] > rewards[0] + 2.0
