"""GAS, in the order of `safestitch/algos/gas.py`: every equation on numbers worked by hand."""

import dataclasses
import functools
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.compiling import quick_jit

from safestitch.algos import asking, gas, reshaping
from safestitch.algos.base import Request
from safestitch.algos.gas import ALGORITHM, Batch, Carry, Config, Data, Networks
from safestitch.episodes import Episodes
from safestitch.learn import Trained
from safestitch.nn import EmbeddedMLP
from safestitch.records import SafestitchError, Spec
from safestitch.scaling import Scaling, fit_scaling

TINY = Config(
    iterations=20,
    batch=64,
    learning_rate=3e-2,
    layers=2,
    hidden=6,
    embedding=3,
    weight_decay=0.1,
    alpha=0.7,
    budget_expectile=0.9,
    budget_batch=40,
    thrift=0.0,
    reserve=0.0,
)
SPEC = Spec("hand-made", obs_dim=2, act_dim=2, horizon=12, cost_range=5.0)


def row(*values: float) -> jax.Array:
    return jnp.asarray(values, jnp.float32)


def close(found: Any, expected: Any, **options: Any) -> None:
    np.testing.assert_allclose(found, expected, **{"rtol": 1e-5, "atol": 1e-6, **options})


def episodes_of(lengths, rewards, costs, observations=None, actions=None) -> Episodes:
    """Episodes of given lengths; observations default to the row number."""
    n = sum(lengths)
    ends = np.zeros(n, bool)
    ends[np.cumsum(lengths) - 1] = True
    if observations is None:
        observations = np.arange(float(n))[:, None]
    if actions is None:
        actions = np.zeros((n, 1))
    return Episodes.of(observations, actions, rewards, costs, np.zeros(n, bool), ends)


def spec_of(episodes: Episodes, horizon: int) -> Spec:
    dims = episodes.observations.shape[1], episodes.actions.shape[1]
    return Spec("hand-made", *dims, horizon=horizon, cost_range=5.0)


def plain_scaling(**changes: Any) -> Scaling:
    """Every unit 1 and nothing moved, unless changed."""
    one = jnp.ones(())
    worked = {
        "obs_mean": jnp.zeros(1),
        "obs_std": jnp.ones(1),
        "action_middle": jnp.zeros(()),
        "action_half": one,
        "reward_unit": one,
        "cost_unit": one,
        "horizon": one,
    }
    return Scaling(**{**worked, **changes})


def linear_net(obs: list[list[float]], scalars: list[list[float]], constant: list[float]):
    """W_obs s + W_scalars (R^, C^, ..) + constant: one linear layer, so nothing is cut by a ReLU.

    One row per output.
    """
    o, k, out = len(obs[0]), len(scalars[0]), len(constant)
    sizes = {"embedding": o, "hidden": 1, "layers": 1}
    blank = jax.eval_shape(
        lambda key: EmbeddedMLP([o] + [1] * k, out, **sizes, key=key), jax.random.key(0)
    )
    net = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape), blank)
    first = np.eye(o, 1, dtype=np.float32)  # a scalar is embedded as (x, 0, ..)
    weight = np.concatenate([np.array(obs), np.kron(np.array(scalars), first.T)], axis=1)
    values = (
        (jnp.eye(o), *[jnp.asarray(first)] * k),
        (jnp.asarray(weight, jnp.float32),),
        (jnp.asarray(constant, jnp.float32),),
    )
    return eqx.tree_at(lambda n: (n.embeddings, n.weights, n.biases), net, values)


def constant_goal(value: float) -> EmbeddedMLP:
    return linear_net([[0.0]], [[0.0] * 3], [value])


# --- Config ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("iterations", 0, "1 to 1e+09"),
        ("batch", 0, "1 to 1e+09"),
        ("hidden", -3, "1 to 1e+09"),
        ("embedding", 0, "1 to 1e+09"),
        ("budget_batch", 0, "1 to 1e+09"),
        ("layers", 1, "2 to 64"),
        ("layers", 65, "2 to 64"),
        ("learning_rate", 0.0, "1e-12 to 1000"),
        ("learning_rate", math.nan, "1e-12 to 1000"),
        ("clip", -0.25, "1e-12 to 1000"),
        ("weight_decay", -1e-4, "0 to 1"),
        ("delta", 1.5, "0 to 1"),
        ("epsilon", 1.01, "0 to 1"),
        ("thrift", -0.1, "0 to 1"),
        ("reserve", -0.02, "0 to 1"),
        ("alpha", 0.0, "1e-06 to 1"),
        ("alpha", 80.0, "1e-06 to 1"),
        ("q", 10.0, "1e-06 to 1"),
        ("budget_expectile", math.inf, "1e-06 to 1"),
    ],
)
def test_config_refuses_nonsense(field, value, expected):
    with pytest.raises(SafestitchError) as error:
        Config(**{field: value})
    assert str(error.value) == f"{field} is {value}: expected {expected}"


def test_config_accepts_the_ends_of_its_ranges():
    Config(weight_decay=0.0, delta=0.0, epsilon=0.0, thrift=0.0, layers=2, iterations=1)
    Config(delta=1.0, epsilon=1.0, thrift=1.0, alpha=1.0, q=1.0, budget_expectile=1.0, layers=64)


def test_paper_preset_is_the_papers_table():
    paper = dataclasses.asdict(ALGORITHM.presets["paper"])
    table = {
        "layers": 7,
        "hidden": 128,
        "embedding": 64,
        "batch": 2048,
        "learning_rate": 1e-4,
        "clip": 0.25,
        "weight_decay": 1e-4,
        "alpha": 0.8,
        "delta": 0.1,
        "q": 0.1,
        "epsilon": 0.5,
        "iterations": 400_000,
        "schedule": "constant",
        "whole": 0.0,
        "relabel": True,
        "reshape": True,
        "modes": 1,
        "policy_width": 1,
        "leeway": 1.0,
        "near": 0.0,
        "pace": False,
        "haste": 1.0,
        "many": False,
        "aftermath": False,
        "par": 0.0,
        "modesty": 0.0,
    }
    assert {name: paper[name] for name in table} == table


def test_the_policy_may_be_wider_and_of_several_modes():
    nets = gas.policy_of(
        gas.init(Config(hidden=6, policy_width=3, modes=4), SPEC, jax.random.key(0))
    )
    assert {w.shape[0] for w in nets.policy.weights[:-1]} == {18}
    assert nets.policy.weights[-1].shape[0] == 4 * (SPEC.act_dim + 1)
    for net in (nets.reward_goal, nets.cost_goal, nets.budget_goal, nets.cost_floor):
        assert {w.shape[0] for w in net.weights[:-1]} == {6}


def test_acting_takes_one_of_the_modes():
    """Two modes of equal weight, left and right: both are taken, and nothing between."""
    cfg = dataclasses.replace(TINY, modes=2)
    nets = gas.policy_of(gas.init(cfg, SPEC, jax.random.key(0)))
    left_and_right = jnp.asarray([-0.5, 0.0, 0.5, 0.0, 0.0, 0.0])  # two actions, two logits
    flat = jax.tree.map(jnp.zeros_like, nets.policy)
    policy = eqx.tree_at(lambda net: net.biases[-1], flat, left_and_right)
    nets = nets._replace(policy=policy)
    seen = {"observations": np.eye(3, 2), "actions": np.zeros((3, 2))}
    scaling = fit_scaling(episodes_of([3], [1.0] * 3, [1.0] * 3, **seen), SPEC)
    carry = gas.start(cfg, nets, scaling, Request(jnp.float32(2.0), jnp.float32(1.0)))
    taken = set()
    for step in range(40):
        action, carry = gas.act(cfg, nets, scaling, carry, jnp.full(2, 0.1 * step))
        taken.add(round(float(action[0]), 4))
    assert taken == {round(float(np.tanh(x)), 4) for x in (-0.5, 0.5)}


def test_chance_does_not_hang_on_the_last_bits_of_what_is_seen():
    """It is settled by the first observation: the same policy acts alike alone and in a batch."""
    cfg = dataclasses.replace(TINY, modes=3, rare=1e-6)
    nets = gas.policy_of(gas.init(cfg, SPEC, jax.random.key(0)))
    seen = {"observations": np.eye(3, 2), "actions": np.zeros((3, 2))}
    scaling = fit_scaling(episodes_of([3], [1.0] * 3, [1.0] * 3, **seen), SPEC)
    first = gas.start(cfg, nets, scaling, Request(jnp.float32(2.0), jnp.float32(1.0)))
    _, carry = gas.act(cfg, nets, scaling, first, jnp.asarray([0.1, 0.2]))
    other = gas.act(cfg, nets, scaling, first, jnp.asarray([0.1, 0.3]))[1]
    assert int(carry.luck) != int(other.luck)
    for step in range(1, 10):
        obs = jnp.asarray([0.1 * step, 0.2])
        action, later = gas.act(cfg, nets, scaling, carry, obs)
        nearly, _ = gas.act(cfg, nets, scaling, carry, obs + 1e-7)
        close(nearly, action, atol=1e-5)
        assert int(later.luck) == int(carry.luck)
        carry = later


def test_fast_preset_is_smaller_and_annealed():
    fast, paper = ALGORITHM.presets["fast"], ALGORITHM.presets["paper"]
    assert fast.schedule == "cosine"
    assert fast.iterations * fast.batch * fast.layers < paper.iterations * paper.batch
    same = ("alpha", "relabel", "reshape", "target", "thrift", "reserve")
    assert all(getattr(fast, name) == getattr(paper, name) for name in same)
    assert fast.delta < paper.delta  # requests say more
    assert fast.leeway < paper.leeway == 1.0
    assert fast.q < paper.q  # of fewer and better segments, more
    assert fast.epsilon > paper.epsilon


def test_presets_for_robots_that_slip():
    fast, careful, steady = (ALGORITHM.presets[name] for name in ("fast", "careful", "steady"))
    for preset in (careful, steady):
        assert preset.budget_expectile < fast.budget_expectile  # does not count on luck
        assert preset.reserve > fast.reserve
    assert careful.iterations > fast.iterations == steady.iterations == 15_000
    assert steady.haste < careful.haste == fast.haste == 1.0
    assert steady.near > careful.near == fast.near == 0.0
    assert steady.many and not careful.many
    assert steady.delta < careful.delta == fast.delta
    assert steady.pace and not careful.pace and not fast.pace


def test_the_preset_for_robots_that_fall():
    fast, wary = ALGORITHM.presets["fast"], ALGORITHM.presets["wary"]
    assert wary.iterations > fast.iterations
    assert wary.q > fast.q  # of more hands
    assert 0.0 == fast.par < wary.par  # each at its best from where it was
    assert wary.aftermath and not fast.aftermath
    assert wary.thrift > fast.thrift
    assert wary.modesty > fast.modesty == 0.0
    assert wary.haste < fast.haste


def test_the_preset_for_long_episodes():
    fast, patient = ALGORITHM.presets["fast"], ALGORITHM.presets["patient"]
    assert patient.pace and patient.policy_width > fast.policy_width
    assert patient.iterations * patient.batch == 4 * fast.iterations * fast.batch
    assert patient.haste < fast.haste
    acting = "thrift", "reserve", "budget_expectile", "target"
    assert all(getattr(patient, name) == getattr(fast, name) for name in acting)


# --- prepare and segments ----------------------------------------------------------------------

N = 12
PAIRS = np.array([(t, end) for t in range(N) for end in range(N)])


def brute_force(episodes: Episodes, horizon: int) -> dict[tuple[int, int], tuple]:
    """(first row, last row) -> (R, C, t' / T) of every segment, by summing it."""
    largest_reward = max(abs(float(e["rewards"].sum(dtype=float))) for e in episodes) or 1.0
    largest_cost = max(float(e["costs"].sum(dtype=float)) for e in episodes) or 1.0
    T = horizon - 1  # the index of the last step
    found, before = {}, 0
    for episode in episodes:
        steps = len(episode["rewards"])
        for t in range(steps):
            for end in range(t, steps):
                R = sum(float(r) for r in episode["rewards"][t : end + 1]) / largest_reward
                C = sum(float(c) for c in episode["costs"][t : end + 1]) / largest_cost
                found[before + t, before + end] = (R, C, (t + T - end) / horizon)
        before += steps
    return found


@settings(max_examples=25)
@given(st.sets(st.integers(1, N - 1)), st.integers(0, 10**6), st.booleans())
def test_segments_equal_brute_force(cuts, seed, free):
    lengths = np.diff([0, *sorted(cuts), N]).tolist()
    rng = np.random.default_rng(seed)
    costs = np.zeros(N) if free else rng.uniform(size=N) * (rng.uniform(size=N) < 0.5)
    episodes = episodes_of(lengths, rng.normal(size=N), costs)
    horizon = max(lengths) + int(rng.integers(0, 3))
    spec = spec_of(episodes, horizon)
    cfg = Config(reshape=False)
    data = gas.prepare(cfg, episodes, spec, fit_scaling(episodes, spec))
    found = np.stack(gas.segments(data, *jnp.asarray(PAIRS.T, jnp.int32)), axis=1)
    expected = brute_force(episodes, horizon)
    valid = [tuple(pair) in expected for pair in PAIRS.tolist()]
    assert sum(valid) == len(expected)
    close(found[valid], list(expected.values()), rtol=1e-4, atol=1e-5)
    ends = np.repeat(np.cumsum(lengths) - 1, lengths)
    assert data.last.tolist() == ends.tolist()


def test_one_step_episodes():
    episodes = episodes_of([1] * 4, [1.0, -2.0, 0.5, 0.0], [0.0, 4.0, 1.0, 0.0])
    spec = spec_of(episodes, 1)
    data = gas.prepare(TINY, episodes, spec, fit_scaling(episodes, spec))
    rows = jnp.arange(4, dtype=jnp.int32)
    R, C, t = gas.segments(data, rows, rows)
    close(R, [0.5, -1.0, 0.25, 0.0])  # divided by |-2|
    close(C, [0.0, 1.0, 0.25, 0.0])  # divided by 4
    close(t, 0.0)  # T = 1: nothing was done before, one step remains
    assert set(np.asarray(data.top_ends - data.top_rows).tolist()) == {0}


def test_time_of_a_segment_by_hand():
    # Horizon 10, so T = 9 is the last index. t' = t + T - Γ of one episode of 6 steps:
    # (0, 5): 0 + 9 - 5 = 4; (2, 2): 9; (2, 4): 2 + 9 - 4 = 7; (5, 5): 9.
    # All ten steps of an episode start at 0.
    episodes = episodes_of([6, 10], np.zeros(16), np.zeros(16))
    spec = spec_of(episodes, 10)
    data = gas.prepare(Config(reshape=False), episodes, spec, fit_scaling(episodes, spec))
    first = jnp.array([0, 2, 2, 5, 6], jnp.int32)
    end = jnp.array([5, 2, 4, 5, 15], jnp.int32)
    close(gas.segments(data, first, end)[2], [0.4, 0.9, 0.7, 0.9, 0.0])


def fallen(lengths: list[int], falls: list[bool]) -> Episodes:
    """Episodes that earn 1, 2, 4, .. and cost 1 a step; some of them end by a fall."""
    n = sum(lengths)
    ends = np.zeros(n, bool)
    ends[np.cumsum(lengths) - 1] = True
    fell = ends & np.repeat(falls, lengths)
    rewards = np.concatenate([2.0 ** np.arange(length) for length in lengths])
    rows = np.arange(float(n))[:, None]
    return Episodes.of(rows, np.zeros((n, 1)), rewards, np.ones(n), fell, ends & ~fell)


def test_a_fall_lasts_until_the_horizon():
    # Horizon 6. The first falls after 3 steps (1, 2, 4), the second is cut there by the clock, the
    # third falls at the very horizon. A piece of the first may end at row 2 or beyond, up to 5.
    episodes = fallen([3, 3, 6], [True, False, True])
    spec = spec_of(episodes, 6)
    scaling = plain_scaling(horizon=jnp.float32(6))
    data = gas.prepare(Config(reshape=False, aftermath=True), episodes, spec, scaling)
    assert data.final.tolist() == [5, 5, 5, 5, 5, 5] + [11] * 6
    assert gas.draw_ends(1.0, data, jnp.array([1, 4, 7]), jnp.zeros(3)).tolist() == [5, 5, 11]
    R, C, t = gas.segments(data, jnp.array([0, 1, 1, 1, 3]), jnp.array([5, 1, 2, 4, 5]))
    close(R, [7.0, 2.0, 6.0, 6.0, 7.0])
    close(C, [3.0, 1.0, 2.0, 2.0, 3.0])
    close(6 * t, [0.0, 5.0, 4.0, 2.0, 3.0])  # six, one, two, four, three steps remained


def test_without_its_aftermath_a_fall_looks_like_any_other_end():
    episodes = fallen([3, 3, 6], [True, False, True])
    data = gas.prepare(Config(reshape=False), episodes, spec_of(episodes, 6), plain_scaling())
    assert data.final.tolist() == data.last.tolist() == [2] * 3 + [5] * 3 + [11] * 6


def test_what_falls_is_left_out_of_the_top():
    # Two sprint at 1 a step for 10 steps and fall, two walk at 0.6 for all 20. Where a fall is an
    # end like any other, the best pieces of up to 10 steps are theirs; over what is left, none is.
    rewards = np.repeat([1.0, 0.6], [20, 40])
    ends = np.isin(np.arange(60), [9, 19, 39, 59])
    fell = ends & (np.arange(60) < 20)
    episodes = Episodes.of(
        np.arange(60.0)[:, None], np.zeros((60, 1)), rewards, np.zeros(60), fell, ends & ~fell
    )
    spec, scaling = spec_of(episodes, 20), plain_scaling()
    rows = {}
    for aftermath in (False, True):
        cfg = Config(whole=1.0, q=0.4, aftermath=aftermath)
        data = gas.prepare(cfg, episodes, spec, scaling)
        rows[aftermath] = np.asarray(data.top_rows) < 20
    assert rows[False].mean() > 0.5
    assert rows[True].sum() == 0


def test_prepare_scales_observations_and_actions():
    episodes = episodes_of([2, 2], np.ones(4), np.ones(4), actions=[[0.0], [1.0], [2.0], [4.0]])
    spec = dataclasses.replace(spec_of(episodes, 2), action_low=0.0, action_high=4.0)
    data = gas.prepare(Config(reshape=False), episodes, spec, fit_scaling(episodes, spec))
    # Observations 0, 1, 2, 3: mean 1.5, variance 1.25.
    close(data.observations[:, 0], (np.arange(4) - 1.5) / 1.25**0.5)
    close(data.actions[:, 0], [-1.0, -0.5, 0.0, 1.0])
    close(data.rewards, 0.5)
    assert float(data.horizon) == 2.0


def test_prefix_sums_keep_their_precision_over_many_episodes():
    # Summed over the whole data in float32, the last episode's 1e-3 would drown in 1e5.
    n, length = 20_000, 2
    rewards = np.full(n, 5.0)
    rewards[-2:] = [1e-3, 2e-3]
    episodes = episodes_of([length] * (n // length), rewards, np.zeros(n))
    spec = spec_of(episodes, length)
    data = gas.prepare(Config(reshape=False), episodes, spec, fit_scaling(episodes, spec))
    close(data.reward_before[-1], 1e-4, rtol=1e-4, atol=0)  # 1e-3 / 10
    R = gas.segments(data, jnp.array([n - 2], jnp.int32), jnp.array([n - 1], jnp.int32))[0]
    close(R, 3e-4, rtol=1e-4, atol=0)


def test_memory_is_linear_in_the_steps():
    n, length = 60_000, 1_000  # all segments would be 30 million
    rng = np.random.default_rng(0)
    costs = (rng.uniform(size=n) < 0.1).astype(float)
    episodes = episodes_of([length] * (n // length), rng.normal(size=n), costs)
    spec = spec_of(episodes, length)
    data = gas.prepare(Config(), episodes, spec, fit_scaling(episodes, spec))
    assert max(leaf.size for leaf in jax.tree.leaves(data)) <= n  # one dimension each
    assert sum(leaf.nbytes for leaf in jax.tree.leaves(data)) <= 11 * 4 * n
    assert 0 < len(data.top_rows) == len(data.top_ends)


# --- draw_ends ---------------------------------------------------------------------------------


def hand_data(n: int = 5, /, **changes: Any) -> Data:
    """One episode of n steps; rewards 1, 2, 4, .. tell every segment by its sum."""
    rewards, costs = 2.0 ** np.arange(n), np.full(n, 1.0 / n)
    worked = {
        "observations": jnp.arange(float(n))[:, None],
        "actions": jnp.zeros((n, 1)),
        "rewards": jnp.asarray(rewards, jnp.float32),
        "costs": jnp.asarray(costs, jnp.float32),
        "reward_before": jnp.asarray(np.cumsum(rewards) - rewards, jnp.float32),
        "cost_before": jnp.asarray(np.cumsum(costs) - costs, jnp.float32),
        "last": jnp.full(n, n - 1, jnp.int32),
        "final": jnp.full(n, n - 1, jnp.int32),
        "top_rows": jnp.zeros(0, jnp.int32),
        "top_ends": jnp.zeros(0, jnp.int32),
        "horizon": jnp.float32(n),
    }
    return Data(**{**worked, **changes})


@pytest.mark.parametrize("first", [0, 2, 4])
def test_ends_cover_the_rest_of_the_episode_uniformly(first):
    u = (jnp.arange(3000.0) + 0.5) / 3000.0
    ends = gas.draw_ends(0.0, hand_data(), jnp.full(3000, first, jnp.int32), u)
    values, counts = np.unique(np.asarray(ends), return_counts=True)
    assert values.tolist() == list(range(first, 5))
    assert counts.max() - counts.min() <= 1


def test_ends_at_the_ends_of_the_unit_interval():
    below_one = float(np.nextafter(np.float32(1), np.float32(0)))
    rows = jnp.array([1, 1, 1], jnp.int32)
    assert gas.draw_ends(0.0, hand_data(), rows, row(0.0, below_one, 1.0)).tolist() == [1, 4, 4]


def test_ends_stay_in_their_own_episode():
    data = hand_data(final=jnp.array([1, 1, 4, 4, 4], jnp.int32))
    rows = jnp.array([0, 1, 2, 3, 4], jnp.int32)
    assert gas.draw_ends(0.0, data, rows, jnp.full(5, 0.999)).tolist() == [1, 1, 4, 4, 4]


def test_without_tsra_segments_end_with_their_episode():
    data = hand_data(final=jnp.array([1, 1, 4, 4, 4], jnp.int32))
    rows = jnp.array([0, 1, 2, 3, 4], jnp.int32)
    assert gas.draw_ends(1.0, data, rows, jnp.zeros(5)).tolist() == [1, 1, 4, 4, 4]


def test_a_share_of_segments_is_whole():
    # Of 4 steps each is the end of a tenth of the draws, and the last of 60% more.
    u = (jnp.arange(3000.0) + 0.5) / 3000.0
    ends = gas.draw_ends(0.6, hand_data(), jnp.full(3000, 1, jnp.int32), u)
    assert np.bincount(np.asarray(ends)).tolist() == [0, 300, 300, 300, 2100]


# --- top_segments ------------------------------------------------------------------------------


@functools.cache
def random_data() -> Data:
    """Episodes of several lengths up to 31, a fifth of the steps at a cost."""
    rng = np.random.default_rng(0)
    lengths = [31, 7, 31, 1, 20, 15]
    n = sum(lengths)
    costs = rng.uniform(size=n) * (rng.uniform(size=n) < 0.2)
    episodes = episodes_of(lengths, rng.normal(size=n), costs)
    spec = spec_of(episodes, 31)
    return gas.prepare(Config(reshape=False), episodes, spec, fit_scaling(episodes, spec))


def groups_of(data: Data, chosen: dict[str, Any]) -> dict[tuple[int, int], np.ndarray]:
    """(cost bin, length bin) -> sorted R; zero cost is bin -1."""
    rows, ends = chosen["top_rows"], chosen["top_ends"]
    R, C, _ = (np.asarray(x) for x in gas.segments(data, rows, ends))
    cost_bin = np.where(C == 0, -1, np.clip(np.floor(20 * C.astype(float)), 0, 19)).astype(int)
    length_bin = np.asarray(ends - rows) * 20 // 31
    found = {}
    for cost, length in set(zip(cost_bin.tolist(), length_bin.tolist(), strict=True)):
        found[cost, length] = np.sort(R[(cost_bin == cost) & (length_bin == length)])
    return found


@pytest.mark.parametrize("q", [0.1, 0.25])
def test_top_segments_keep_the_top_of_every_group(q):
    data = random_data()
    # q = 1 keeps all candidates: the same draws, none left out.
    everything = groups_of(data, gas.top_segments(dataclasses.replace(TINY, q=1.0), data))
    kept = groups_of(data, gas.top_segments(dataclasses.replace(TINY, q=q), data))
    assert sum(map(len, everything.values())) == 200_000
    assert len(everything) > 50
    assert kept.keys() == everything.keys()  # no group dies out
    for key, candidates in everything.items():
        share = max(1, round(q * len(candidates)))
        assert len(kept[key]) == share, key
        close(kept[key], candidates[-share:], err_msg=str(key))


def test_top_segments_compare_zero_cost_with_zero_cost():
    # One-step episodes: zero cost earns 1 or 2, a cost of 0.01 (the same twentieth) earns 8 or 9.
    rewards = np.array([1.0, 2.0, 8.0, 9.0])
    costs = jnp.asarray([0.0, 0.0, 0.01, 0.01], jnp.float32)
    data = hand_data(
        4,
        rewards=jnp.asarray(rewards, jnp.float32),
        costs=costs,
        reward_before=jnp.zeros(4),
        cost_before=jnp.zeros(4),
        last=jnp.arange(4, dtype=jnp.int32),
        final=jnp.arange(4, dtype=jnp.int32),
        horizon=jnp.float32(1),
    )
    kept = gas.top_segments(dataclasses.replace(TINY, q=0.2), data)
    assert set(np.asarray(kept["top_rows"]).tolist()) == {1, 3}


def test_top_segments_compare_like_lengths():
    # Rewards 1 a step, so R is the length: without length bins only the longest would be kept.
    # With a horizon of 19 each length has one of the 20 bins to itself.
    data = hand_data(
        19,
        rewards=jnp.ones(19),
        costs=jnp.zeros(19),
        reward_before=jnp.arange(19.0),
        cost_before=jnp.zeros(19),
    )
    kept = gas.top_segments(TINY, data)
    lengths = np.asarray(kept["top_ends"] - kept["top_rows"]) + 1
    assert set(lengths.tolist()) == set(range(1, 20))


# --- par ---------------------------------------------------------------------------------------


def pieces(n: int, seed: int = 0):
    """s in one dimension, C and t' of n segments of any length."""
    rng = np.random.default_rng(seed)
    s = rng.normal(size=(n, 1)).astype(np.float32)
    return s, *rng.uniform(size=(2, n)).astype(np.float32)


def test_par_is_an_expectile_of_what_like_segments_earn():
    # R is 0 or 1, times the length: its 0.9-expectile is 0.9, as 0.1 x 0.9 = 0.9 x (1 - 0.9).
    s, C, t = pieces(20_000)
    length = 1.0 - t
    R = length * (np.random.default_rng(1).uniform(size=len(t)) < 0.5)
    par = reshaping.fit_par(0.9, s, R.astype(np.float32), C, t)
    fresh = pieces(2_000, seed=2)
    per_length = par(*fresh) / (1.0 - fresh[2])
    assert abs(per_length.mean() - 0.9) < 0.02
    assert np.mean(abs(per_length - 0.9) < 0.1) > 0.9
    close(par(fresh[0], fresh[1], np.ones(2_000, np.float32)), 0.0)  # nothing in no time


def test_par_follows_the_state():
    s, C, t = pieces(20_000)
    length = 1.0 - t
    R = (length * np.where(s[:, 0] > 0, 2.0, 0.5)).astype(np.float32)
    par = reshaping.fit_par(0.9, s, R, C, t)
    half = np.full(2, 0.5, np.float32)
    close(par(np.array([[1.5], [-1.5]], np.float32), half, half), [1.0, 0.25], rtol=0, atol=0.1)


def troubled() -> Episodes:
    """Half of the episodes begin well (observed as 1) and half badly (-1), of two hands each.

    Of those that begin well one hand earns 1.0 a step and one 0.9, of the others 0.5 and 0.3.
    """
    per_step = np.array([1.0, 0.9, 0.5, 0.3])
    rewards, state = np.repeat(per_step, 20), np.repeat([1.0, 1.0, -1.0, -1.0], 20)
    return episodes_of([20] * 4, rewards, np.zeros(80), observations=state[:, None])


@pytest.mark.parametrize("by_facts", [False, True])
def test_above_par_the_best_from_every_state_stand_out(by_facts):
    episodes = troubled()
    spec = spec_of(episodes, 20)
    scaling = fit_scaling(episodes, spec)
    hands = {}
    for par in (0.0, 0.9):
        cfg = Config(whole=1.0, q=0.4, par=par)
        facts = gas.survey(cfg, episodes, spec, scaling) if by_facts else None
        data = gas.prepare(cfg, episodes, spec, scaling, facts)
        hands[par] = np.bincount(np.asarray(data.top_rows) // 20, minlength=4)
        hands[par] = hands[par] / hands[par].sum()
    assert hands[0.0][:2].sum() > 0.95  # who began well
    assert hands[0.9][[0, 2]].sum() > 0.95  # who did well
    assert (hands[0.9][[0, 2]] > 0.3).all()


# --- relabel, Eq. (8) --------------------------------------------------------------------------


@given(st.floats(-3, 3, width=32), st.floats(0, 1, width=32), st.floats(0, 1), st.integers(0, 9))
def test_relabel_stays_within_its_bounds(R, C, delta, seed):
    u = jnp.asarray(np.random.default_rng(seed).uniform(size=(2, 8)), jnp.float32)
    u = u.at[:, 0].set(0.0).at[:, 1].set(1.0)
    cfg = dataclasses.replace(TINY, delta=delta)
    R_hat, C_hat = gas.relabel(cfg, jnp.full(8, R), jnp.full(8, C), u)
    low, high = sorted([(1 - delta) * R, (1 + delta) * R])
    assert (np.asarray(R_hat) >= low - 1e-5).all()
    assert (np.asarray(R_hat) <= high + 1e-5).all()
    close(np.sort(np.asarray(R_hat)[:2]), [low, high], atol=1e-5)  # both ends are reached
    assert (np.asarray(C_hat) >= C - 1e-6).all()
    assert (np.asarray(C_hat) <= 1 + 1e-6).all()
    close(np.asarray(C_hat)[:2], [C, 1.0], atol=1e-6)


def test_relabel_by_hand():
    # δ = 0.1. R = 10: 0.9 * 10 + 0.75 * 2 = 10.5. R = -10, u = 0: -9; u = 1: -11.
    # C = 0.2 and u = 0.5: half-way to 1 is 0.6.
    u = jnp.asarray([[0.75, 0.0, 1.0], [0.5, 0.0, 1.0]], jnp.float32)
    R_hat, C_hat = gas.relabel(TINY, row(10.0, -10.0, -10.0), row(0.2, 0.2, 0.2), u)
    close(R_hat, [10.5, -9.0, -11.0])
    close(C_hat, [0.6, 0.2, 1.0])


def test_relabel_with_delta_zero_asks_for_the_true_reward():
    R_hat, C_hat = gas.relabel(
        dataclasses.replace(TINY, delta=0.0), row(3.0, -2.0), row(0.5, 0.5), jnp.full((2, 2), 0.9)
    )
    assert R_hat.tolist() == [3.0, -2.0]
    close(C_hat, 0.95)


def test_leeway_keeps_budgets_near_the_cost():
    # C = 0.2, a quarter of the way to 1 at most, u = 0.5: 0.2 + 0.25 * 0.8 * 0.5 = 0.3.
    cfg = dataclasses.replace(TINY, leeway=0.25)
    _, C_hat = gas.relabel(cfg, row(1.0, 1.0), row(0.2, 0.2), jnp.asarray([[0.5, 0.5], [0.5, 1.0]]))
    close(C_hat, [0.3, 0.4])


def test_without_relabel_the_request_is_the_truth():
    cfg = dataclasses.replace(TINY, relabel=False)
    R_hat, C_hat = gas.relabel(cfg, row(3.0, -2.0), row(0.5, 0.1), jnp.full((2, 2), 0.9))
    assert R_hat.tolist() == [3.0, -2.0]
    close(C_hat, [0.5, 0.1])


# --- sample ------------------------------------------------------------------------------------

BIG = 4096


@functools.cache
def sampler(cfg: Config):
    return quick_jit(functools.partial(gas.sample, cfg))


def drawn(seed: int = 0, data: Data | None = None, **changes: Any) -> Batch:
    """A big batch of `hand_data`, whose D^q holds one segment alone: rows 3 to 4."""
    top = hand_data(top_rows=jnp.array([3], jnp.int32), top_ends=jnp.array([4], jnp.int32))
    cfg = dataclasses.replace(TINY, batch=BIG, **changes)
    return sampler(cfg)(data or top, jax.random.key(seed))


def segment_counts(batch: Batch) -> dict[tuple[int, int], int]:
    """(first, last) -> how often, told by observation and R = 2^(last + 1) - 2^first."""
    first = np.asarray(batch.s[:, 0]).astype(int)
    last = np.log2(np.asarray(batch.R) + 2.0**first).round().astype(int) - 1
    pairs, counts = np.unique(np.stack([first, last], 1), axis=0, return_counts=True)
    return {(int(f), int(e)): int(c) for (f, e), c in zip(pairs, counts, strict=True)}


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0])
def test_the_share_of_the_top_segments_is_epsilon(epsilon):
    counts = segment_counts(drawn(epsilon=epsilon))
    # From D, row 3 comes in a fifth of the draws and ends at 4 in half of these.
    share = epsilon + (1 - epsilon) / 10
    error = 4 * math.sqrt(share * (1 - share) / BIG)
    assert abs(counts[3, 4] / BIG - share) <= error


def test_without_reshaping_d_q_is_not_drawn():
    counts = segment_counts(drawn(reshape=False, epsilon=1.0, data=hand_data()))
    assert set(counts) == {(f, e) for f in range(5) for e in range(f, 5)}
    for first in range(5):  # t uniform, then Γ uniform (D1)
        for last in range(first, 5):
            share = 1 / 5 / (5 - first)
            error = 4 * math.sqrt(share * (1 - share) / BIG)
            assert abs(counts[first, last] / BIG - share) <= error


def test_without_tsra_every_segment_ends_with_its_episode():
    counts = segment_counts(drawn(whole=1.0, epsilon=0.0))
    assert set(counts) == {(first, 4) for first in range(5)}


def test_a_sample_belongs_together():
    batch = drawn(epsilon=0.5)
    first = np.asarray(batch.s[:, 0]).astype(int)
    last = np.log2(np.asarray(batch.R) + 2.0**first).round().astype(int) - 1
    close(batch.C, (last - first + 1) / 5)
    close(batch.t, (first + 4 - last) / 5)
    assert (np.abs(batch.R_hat - batch.R) <= 0.1 * np.abs(batch.R) + 1e-5).all()
    for asked in (batch.C_hat, batch.budget):
        assert (np.asarray(asked) >= np.asarray(batch.C) - 1e-6).all()
        assert (np.asarray(asked) <= 1 + 1e-6).all()
    spread = np.asarray((batch.R_hat / batch.R - 1) / 0.1)
    assert np.corrcoef(spread, np.asarray(batch.C_hat - batch.C))[0, 1] < 0.1  # separate draws
    assert abs(spread.mean()) < 0.05
    assert spread.std() == pytest.approx(3**-0.5, rel=0.05)


def test_sample_without_relabel_asks_for_the_truth():
    batch = drawn(relabel=False)
    assert (batch.R_hat == batch.R).all()
    assert (batch.C_hat == batch.C).all()


def test_same_key_same_batch():
    one, same, other = drawn(0), drawn(0), drawn(1)
    for a, b, c in zip(one, same, other, strict=True):
        assert (a == b).all()
        if a is not one.a:  # hand_data has one action for all
            assert not (a == c).all()


# --- Eq. (9) to (13) by hand -------------------------------------------------------------------
#
# Three samples, α = 0.8:            R      C     C^
#                                    1      0.2   0.5
#                                    0.5    0.6   0.5
#                                    2      0.1   0.25
# V^C = 0.25 for all: 1(V^C < C^) = 1, 1, 0; the last because 0.25 < 0.25 is false.

ALPHA = 0.8
SQUARED = Config(alpha=ALPHA)
V_C = row(0.25, 0.25, 0.25)
BY_HAND = Batch(
    s=row(1.0, 2.0, 3.0)[:, None],
    a=jnp.array([[0.5, 0.5], [1.0, 0.0], [-1.0, 0.0]]),
    R=row(1.0, 0.5, 2.0),
    C=row(0.2, 0.6, 0.1),
    R_hat=row(1.1, 0.45, 2.1),
    C_hat=row(0.5, 0.5, 0.25),
    t=row(0.0, 0.5, 0.9),
    budget=row(0.3, 0.7, 0.2),
)


def test_networks_see_their_inputs_in_order():
    # 2 s + 10 R^ + 100 C^ + 1000 t' + 0.5 at the second sample: 4 + 4.5 + 50 + 500 + 0.5 = 559.
    net = linear_net([[2.0]], [[10.0, 100.0, 1000.0]], [0.5])
    found = gas.goal(net, BY_HAND.s, BY_HAND.R_hat, BY_HAND.C_hat, BY_HAND.t)
    close(found, [2 + 11 + 50 + 0.5, 559.0, 6 + 21 + 25 + 900 + 0.5])
    # Every output of π shows one of s, R^, C^, V^R, V^C, t', through tanh.
    net = linear_net(np.eye(6)[:, :1].tolist(), np.eye(6)[:, 1:].tolist(), [0.0] * 6)
    inputs = [
        row(x)[None] if i == 0 else row(x) for i, x in enumerate([0.1, 0.2, 0.3, 0.4, 0.5, 0.6])
    ]
    proposed = gas.act_as(net, *inputs, cfg=TINY).actions
    close(proposed, np.tanh([[[0.1, 0.2, 0.3, 0.4, 0.5, 0.6]]]))


def test_within_is_strict():
    assert gas.within(row(0.25, 0.2499, 0.2501), row(0.25, 0.25, 0.25)).tolist() == [0.0, 1.0, 0.0]


def test_reward_advantage():
    # Eq. (9) with V^R = 0.75: 1 - 0.75, 0.5 - 0.75, 0 - 0.75.
    close(gas.reward_advantage(jnp.full(3, 0.75), V_C, BY_HAND), [0.25, -0.25, -0.75])


def test_reward_goal_loss():
    # Eq. (10): (0.8 * 0.0625 + 0.2 * 0.0625 + 0.2 * 0.5625) / 3 = 0.175 / 3.
    close(gas.reward_goal_loss(constant_goal(0.75), V_C, BY_HAND, ALPHA), 0.175 / 3)


def test_reward_goal_gradient():
    # V^R = 0.5: A^R = 0.5, 0, -0.5; A = 0 is not negative. In the network's constant:
    # mean(-2 w A) = -2 (0.8 * 0.5 + 0.8 * 0 - 0.2 * 0.5) / 3 = -0.2. The weights add nothing.
    gradient = jax.grad(gas.reward_goal_loss)(constant_goal(0.5), V_C, BY_HAND, ALPHA)
    close(gradient.biases[0], [-0.2])


def test_cost_advantage():
    close(gas.cost_advantage(V_C, BY_HAND), [-0.05, 0.35, -0.15])  # Eq. (11)


A_R = row(0.25, -0.25, -0.75)


def test_cost_goal_loss_takes_the_sign_of_the_reward_advantage():
    # Eq. (12) with A^R = 0.25, -0.25, -0.75 and A^C = -0.05, 0.35, -0.15: signs differ twice.
    # (0.8 * 0.0025 + 0.2 * 0.1225 + 0.2 * 0.0225) / 3 = 0.031 / 3.
    # By the sign of A^C it would be (0.2 * 0.0025 + 0.8 * 0.1225 + 0.2 * 0.0225) / 3 = 0.103 / 3.
    close(gas.cost_goal_loss(constant_goal(0.25), A_R, BY_HAND, ALPHA), 0.031 / 3)


def test_cost_goal_gradient():
    # A^R = 0.25, 0.25, -0.75: weights 0.8, 0.8, 0.2.
    # -2 (0.8 * -0.05 + 0.8 * 0.35 + 0.2 * -0.15) / 3 = -2 * 0.21 / 3 = -0.14.
    A_r = row(0.25, 0.25, -0.75)
    gradient = jax.grad(gas.cost_goal_loss)(constant_goal(0.25), A_r, BY_HAND, ALPHA)
    close(gradient.biases[0], [-0.14])


def test_cost_goal_regresses_to_the_cost_of_the_good():
    # α = 1: only the first sample is good, and the minimum is its cost, 0.2.
    for value, sign in ((0.15, -1), (0.25, 1)):
        gradient = jax.grad(gas.cost_goal_loss)(constant_goal(value), A_R, BY_HAND, 1.0)
        assert np.sign(float(gradient.biases[0][0])) == sign


def test_policy_loss():
    # Eq. (13) with π = tanh(0) = 0: squared errors 0.5, 1, 1; weights 0.8, 0.2, 0.2 (V^R = 0.75);
    # the third is not within: (0.8 * 0.5 + 0.2 * 1 + 0) / 3 = 0.2.
    net = linear_net([[0.0]] * 2, [[0.0] * 5] * 2, [0.0, 0.0])
    close(gas.policy_loss(net, jnp.full(3, 0.75), V_C, BY_HAND, SQUARED), 0.2)


def test_policy_gradient():
    # tanh' = 1 at 0. In the constants: mean(-2 w a) over the first two samples:
    # -2 (0.8 * 0.5 + 0.2 * 1) / 3 = -0.4 and -2 (0.8 * 0.5) / 3 = -0.2667.
    net = linear_net([[0.0]] * 2, [[0.0] * 5] * 2, [0.0, 0.0])
    gradient = jax.grad(gas.policy_loss)(net, jnp.full(3, 0.75), V_C, BY_HAND, SQUARED)
    close(gradient.biases[0], [-0.4, -0.8 / 3])


# --- Eq. (9) to (13) against NumPy -------------------------------------------------------------


def random_batch(seed: int = 0, size: int = TINY.batch) -> Batch:
    """Near zero, so that indicators and signs of untrained networks fall either way."""
    rng = np.random.default_rng(seed)

    def draw(*shape):
        return jnp.asarray(rng.normal(scale=0.7, size=shape), jnp.float32)

    b = size
    return Batch(
        draw(b, 2), jnp.tanh(draw(b, 2)), draw(b), draw(b), draw(b), draw(b), draw(b), draw(b)
    )


def fresh(seed: int = 0) -> Networks:
    """Untrained networks with every parameter random, and fresh optimisers (all zeros)."""
    blank = jax.eval_shape(lambda key: gas.init(TINY, SPEC, key), jax.random.key(0))
    rng = np.random.default_rng(seed)

    def draw(leaf):
        return jnp.asarray(rng.normal(size=leaf.shape) / leaf.shape[-1] ** 0.5, jnp.float32)

    def zeros(leaf):
        return jnp.asarray(np.zeros(leaf.shape, leaf.dtype))

    return Networks(
        *(
            Trained(jax.tree.map(draw, net), jax.tree.map(zeros, opt_state))
            for net, opt_state in blank
        )
    )


def forward(net: EmbeddedMLP, *inputs: Any) -> np.ndarray:
    """An EmbeddedMLP in NumPy, unfused."""
    columns = [np.asarray(x, float).reshape(len(inputs[0]), -1) for x in inputs]
    x = np.concatenate(
        [
            c @ np.asarray(e).T + np.asarray(s)
            for c, e, s in zip(columns, net.embeddings, net.shifts, strict=True)
        ],
        axis=1,
    )
    for i, (w, b) in enumerate(zip(net.weights, net.biases, strict=True)):
        x = (x if i == 0 else np.maximum(x, 0.0)) @ np.asarray(w).T + np.asarray(b)
    return x


def losses(state: Networks, batch: Batch, cfg: Config) -> tuple[dict[str, float], np.ndarray]:
    """Every loss by the equations, sample by sample; and how often each case was met."""
    request = (batch.s, batch.R_hat, batch.C_hat, batch.t)
    V_R = forward(state.reward_goal.net, *request)[:, 0]
    V_C = forward(state.cost_goal.net, *request)[:, 0]
    pi = np.tanh(forward(state.policy.net, batch.s, batch.R_hat, batch.C_hat, V_R, V_C, batch.t))
    G = forward(state.budget_goal.net, batch.s, batch.budget, batch.t)[:, 0]
    total: dict[str, float] = {"reward_goal": 0.0, "cost_goal": 0.0, "policy": 0.0}
    cases = np.zeros((2, 2), int)
    size = len(V_R)
    for i in range(size):
        kept = 1.0 if V_C[i] < float(batch.C_hat[i]) else 0.0
        A_R = kept * float(batch.R[i]) - V_R[i]
        A_C = float(batch.C[i]) - V_C[i]
        weight = abs(cfg.alpha - (1.0 if A_R < 0 else 0.0))
        total["reward_goal"] += weight * A_R**2 / size
        total["cost_goal"] += weight * A_C**2 / size
        total["policy"] += kept * weight * ((pi[i] - np.asarray(batch.a[i])) ** 2).sum() / size
        cases[int(kept), int(A_R < 0)] += 1
    few = min(cfg.budget_batch, size)
    A = [float(batch.R[i]) - G[i] for i in range(few)]
    weights = [abs(cfg.budget_expectile - (1.0 if a < 0 else 0.0)) for a in A]
    total["budget_goal"] = sum(w * a**2 for w, a in zip(weights, A, strict=True)) / few
    B = forward(state.cost_floor.net, batch.s, batch.t)[:, 0]
    A = [float(batch.C[i]) - B[i] for i in range(few)]
    weights = [abs((1 - cfg.budget_expectile) - (1.0 if a < 0 else 0.0)) for a in A]
    total["cost_floor"] = sum(w * a**2 for w, a in zip(weights, A, strict=True)) / few
    return total, cases


update = quick_jit(functools.partial(gas.update, TINY))


def test_every_loss_equals_a_numpy_transcription():
    cfg = TINY
    seen = np.zeros((2, 2), int)
    for seed in range(3):
        state, batch = fresh(seed), random_batch(seed)
        _, metrics = update(state, batch)
        expected, cases = losses(state, batch, cfg)
        found = {name: float(metrics[f"loss/{name}"]) for name in expected}
        assert found == pytest.approx(expected, rel=1e-4)
        good, kept = cases[:, 0].sum() / cfg.batch, cases[1].sum() / cfg.batch
        assert float(metrics["share/good"]) == pytest.approx(good)
        assert float(metrics["share/within_budget"]) == pytest.approx(kept)
        seen += cases
    assert (seen > 0).all(), "a case of the equations was never met"


# --- update: who learns from what --------------------------------------------------------------

LOSSES = {
    "reward_goal": "reward_goal_loss",
    "cost_goal": "cost_goal_loss",
    "policy": "policy_loss",
    "budget_goal": "budget_goal_loss",
    "cost_floor": "cost_floor_loss",
}


def flat_loss(net: EmbeddedMLP, *_: Any) -> jax.Array:
    """Zero, and so is its gradient."""
    return 0.0 * sum((jnp.sum(leaf) for leaf in jax.tree.leaves(net)), jnp.zeros(()))


def decayed(net: EmbeddedMLP) -> EmbeddedMLP:
    """What AdamW makes of a network without a gradient."""
    return jax.tree.map(lambda leaf: leaf * (1 - TINY.learning_rate * TINY.weight_decay), net)


def close_trees(found: Any, expected: Any, **options: float) -> None:
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        close(a, b, **options)


@pytest.mark.parametrize(
    "silent", [("reward_goal", "policy", "cost_floor"), ("cost_goal", "budget_goal")]
)
def test_each_loss_trains_its_own_network_and_no_other(silent, monkeypatch):
    """With two losses silenced their networks stand still and the others move as they did."""
    state, batch = fresh(), random_batch(3)
    moved, _ = update(state, batch)
    for name in silent:
        home = asking if name in ("budget_goal", "cost_floor") else gas
        monkeypatch.setattr(home, LOSSES[name], flat_loss)
    after, _ = quick_jit(lambda *given: gas.update(TINY, *given))(state, batch)
    for name in LOSSES:
        before, now, usual = (getattr(s, name).net for s in (state, after, moved))
        still = decayed(before)
        assert not any(
            np.allclose(a, b, rtol=1e-3) for a, b in zip(usual.weights, still.weights, strict=True)
        )
        close_trees(now, still if name in silent else usual, rtol=1e-4, atol=1e-5)


def test_a_request_that_cannot_be_kept_teaches_the_policy_nothing():
    # V^C is near 99, above C^ everywhere: Eq. (13)'s indicator is 0, while V^R learns 0 - V^R
    # and V^C goes on learning.
    state, batch = fresh(), random_batch(3)
    dear = eqx.tree_at(lambda n: n.biases[-1], state.cost_goal.net, jnp.array([99.0]))
    state = state._replace(cost_goal=state.cost_goal._replace(net=dear))
    after, metrics = update(state, batch)
    assert float(metrics["share/within_budget"]) == 0.0
    close_trees(after.policy.net, decayed(state.policy.net))
    for name in ("reward_goal", "cost_goal", "budget_goal", "cost_floor"):
        now, still = getattr(after, name).net, decayed(getattr(state, name).net)
        assert not np.allclose(now.weights[0], still.weights[0], rtol=1e-3)


def textbook(cfg: Config) -> optax.GradientTransformation:
    adam = optax.adamw(cfg.learning_rate, b1=0.9, b2=0.999, weight_decay=cfg.weight_decay)
    return optax.chain(optax.clip_by_global_norm(cfg.clip), adam)


def expected_update(cfg: Config, nets: Networks, memory: dict, batch: Batch):
    """Alg. 1 written out anew: all values from before the step, weights as constants."""
    request = (batch.s, batch.R_hat[:, None], batch.C_hat[:, None], batch.t[:, None])
    v_r, v_c = nets.reward_goal(*request)[:, 0], nets.cost_goal(*request)[:, 0]
    kept = jnp.where(v_c < batch.C_hat, 1.0, 0.0)
    weight = jnp.abs(cfg.alpha - jnp.where(kept * batch.R - v_r < 0, 1.0, 0.0))
    few = cfg.budget_batch
    budget = (batch.s[:few], batch.budget[:few, None], batch.t[:few, None])
    bought = nets.budget_goal(*budget)[:, 0]
    budget_weight = jnp.abs(cfg.budget_expectile - jnp.where(batch.R[:few] < bought, 1.0, 0.0))
    here = (batch.s[:few], batch.t[:few, None])
    above = jnp.where(batch.C[:few] < nets.cost_floor(*here)[:, 0], 1.0, 0.0)
    floor_weight = jnp.abs((1.0 - cfg.budget_expectile) - above)

    def policy(net):
        goals = (v_r[:, None], v_c[:, None])
        action = jnp.tanh(net(*request[:3], *goals, request[3]))
        return jnp.mean(kept * weight * jnp.sum((action - batch.a) ** 2, axis=1))

    plain = {
        "reward_goal": lambda net: jnp.mean(weight * (kept * batch.R - net(*request)[:, 0]) ** 2),
        "cost_goal": lambda net: jnp.mean(weight * (batch.C - net(*request)[:, 0]) ** 2),
        "policy": policy,
        "budget_goal": lambda net: jnp.mean(
            budget_weight * (batch.R[:few] - net(*budget)[:, 0]) ** 2
        ),
        "cost_floor": lambda net: jnp.mean(floor_weight * (batch.C[:few] - net(*here)[:, 0]) ** 2),
    }
    optimiser = textbook(cfg)
    moved, remembered = {}, {}
    for name, loss in plain.items():
        net = getattr(nets, name)
        with jax.numpy_dtype_promotion("standard"):
            step, remembered[name] = optimiser.update(jax.grad(loss)(net), memory[name], net)
        moved[name] = eqx.apply_updates(net, step)
    return Networks(**moved), remembered


def test_update_uses_the_networks_from_before_the_step():
    """Two steps: the second would differ if a loss saw a network that the first had moved."""
    state = fresh()
    begin = wanted = gas.policy_of(state)
    memory = {name: textbook(TINY).init(getattr(wanted, name)) for name in LOSSES}
    manual = quick_jit(functools.partial(expected_update, TINY))
    for seed in (1, 2):
        batch = random_batch(seed)
        state, _ = update(state, batch)
        wanted, memory = manual(wanted, memory, batch)
    trees = (gas.policy_of(state), wanted, begin)
    for a, b, c in zip(*map(jax.tree.leaves, trees), strict=True):
        assert not (a == c).all()
        close(a, b, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(("schedule", "moves"), [("constant", True), ("cosine", False)])
def test_the_schedule_runs_over_all_iterations(schedule, moves):
    """After the last iteration a cosine is at rate 0."""
    cfg = dataclasses.replace(TINY, iterations=2, schedule=schedule)
    optimiser, net = gas.optimiser(cfg), jnp.ones(3)
    state = optimiser.init(net)
    sizes = []
    with jax.numpy_dtype_promotion("standard"):
        for _ in range(3):
            step, state = optimiser.update(net, state, net)
            sizes.append(float(np.abs(np.asarray(step)).max()))
    assert sizes[1] > 1e-3
    assert (sizes[2] > 1e-3) == moves


def test_init_gives_each_network_its_inputs():
    state = quick_jit(lambda key: gas.init(TINY, SPEC, key))(jax.random.key(0))
    widths = {name: [e.shape[1] for e in getattr(state, name).net.embeddings] for name in LOSSES}
    assert widths == {
        "reward_goal": [2, 1, 1, 1],
        "cost_goal": [2, 1, 1, 1],
        "policy": [2, 1, 1, 1, 1, 1],
        "budget_goal": [2, 1, 1],
        "cost_floor": [2, 1],
    }
    assert [len(trained.net.biases[-1]) for trained in state] == [1, 1, 2, 1, 1]
    assert not (state.reward_goal.net.weights[0] == state.cost_goal.net.weights[0]).any()


# --- acting ------------------------------------------------------------------------------------
#
# Observation (obs - 1) / 2, reward unit 10, cost unit 4, horizon 5, actions 0.5 + 2 a. The policy
# shows its inputs: action i is 0.5 + 2 tanh(0.1 x_i) for x = (s, R^, C^, V^R, V^C, t').

UNITS = plain_scaling(
    obs_mean=row(1.0),
    obs_std=row(2.0),
    action_middle=jnp.float32(0.5),
    action_half=jnp.float32(2.0),
    reward_unit=jnp.float32(10.0),
    cost_unit=jnp.float32(4.0),
    horizon=jnp.float32(5.0),
)
TENTH = 0.1 * np.eye(6)
# V^R = R^ + 2 C^; V^C = 0.5 R^ + 0.25 C^ + t'; G = 0.6 + 0.2 C^ + 0.1 s - t'; B = 0.1 s - 0.1.
SHOWING = Networks(
    reward_goal=linear_net([[0.0]], [[1.0, 2.0, 0.0]], [0.0]),
    cost_goal=linear_net([[0.0]], [[0.5, 0.25, 1.0]], [0.0]),
    policy=linear_net(TENTH[:, :1].tolist(), TENTH[:, 1:].tolist(), [0.0] * 6),
    budget_goal=linear_net([[0.1]], [[0.2, -1.0]], [0.6]),
    cost_floor=linear_net([[0.1]], [[0.0]], [-0.1]),
)


@functools.cache
def actor(cfg: Config):
    return quick_jit(functools.partial(gas.act, cfg))


def begin(limit: float, target: float = math.nan) -> Carry:
    return gas.start(TINY, SHOWING, UNITS, Request(jnp.float32(limit), jnp.float32(target)))


def shown(carry: Carry, obs: float = 1.0, **changes: Any) -> tuple[dict[str, float], Carry]:
    """What the policy saw, and the carry after acting."""
    action, after = actor(dataclasses.replace(TINY, **changes))(SHOWING, UNITS, carry, row(obs))
    x = 10.0 * np.arctanh((np.asarray(action, float) - 0.5) / 2.0)
    names = ("s", "R_hat", "C_hat", "v_r", "v_c", "t")
    return dict(zip(names, x.tolist(), strict=True)), after


def observed(carry: Carry, reward: float, cost: float) -> Carry:
    return gas.observe(TINY, UNITS, carry, jnp.float32(reward), jnp.float32(cost))


def test_start_in_the_datas_units():
    carry = begin(2.0)
    assert float(carry.C_hat) == 0.5  # 2 / 4
    assert math.isnan(float(carry.R_hat))
    assert float(carry.t) == 0.0
    assert not carry.fixed
    carry = begin(2.0, target=5.0)
    assert float(carry.R_hat) == 0.5  # 5 / 10
    assert carry.fixed


def test_a_fixed_target_goes_down_the_equations():
    # R^ = 0.5, C^ = 0.5: V^R = 0.5 + 1 = 1.5, V^C = 0.25 + 0.125 + 0 = 0.375. s = (3 - 1) / 2 = 1.
    seen, after = shown(begin(2.0, target=5.0), obs=3.0)
    expected = {"s": 1.0, "R_hat": 0.5, "C_hat": 0.5, "v_r": 1.5, "v_c": 0.375, "t": 0.0}
    assert seen == pytest.approx(expected, abs=1e-4)
    assert float(after.t) == pytest.approx(0.2)  # 1 / 5


@pytest.mark.parametrize("rule", ["first", "again", "rising", "frontier"])
def test_a_fixed_target_is_honoured_by_every_rule(rule):
    carry = begin(2.0, target=-30.0)  # far from what G = 0.7 would ask
    for step in range(2):
        seen, carry = shown(carry, target=rule)
        assert seen["R_hat"] == pytest.approx(-3.0 - 0.1 * step, abs=1e-4)
        carry = observed(carry, 1.0, 0.0)


def test_observing_takes_away_what_the_step_brought():
    _, carry = shown(begin(2.0, target=5.0))
    carry = observed(carry, 3.0, 1.0)
    # R^ = (5 - 3) / 10, C^ = (2 - 1) / 4, t' = 1 / 5.
    seen, carry = shown(carry)
    assert (seen["R_hat"], seen["C_hat"], seen["t"]) == pytest.approx((0.2, 0.25, 0.2), abs=1e-4)
    assert float(carry.t) == pytest.approx(0.4)
    carry = observed(carry, 4.0, 0.0)  # the remaining reward is not clamped
    seen, _ = shown(carry)
    assert (seen["R_hat"], seen["C_hat"], seen["t"]) == pytest.approx((-0.2, 0.25, 0.4), abs=1e-4)


def test_the_budget_is_clamped_for_the_networks_and_remembered_by_the_carry():
    carry = observed(begin(2.0, target=5.0), 0.0, 3.0)  # overspent by 1
    assert float(carry.C_hat) == -0.25
    seen, carry = shown(carry)
    assert seen["C_hat"] == pytest.approx(0.0, abs=1e-4)
    assert seen["v_r"] == pytest.approx(0.5, abs=1e-4)  # R^ + 2 * 0
    assert float(carry.C_hat) == -0.25
    seen, carry = shown(begin(40.0, target=5.0))  # ten times what any episode cost
    assert seen["C_hat"] == pytest.approx(1.0, abs=1e-4)
    assert float(carry.C_hat) == 1.0  # asked for as the largest cost of the data


# G = 0.6 + 0.2 C^ + 0.1 s - t'. With limit 2 and s = 0: 0.6 + 0.1 = 0.7 at the start. After a
# step that earns 1 (0.1) and costs 1 (0.25): plan 0.6; G = 0.6 + 0.05 + 0.1 s - 0.2 = 0.45 + 0.1 s.


@pytest.mark.parametrize(
    ("rule", "state", "asked"),
    [
        ("first", 0.0, 0.6),
        ("first", 3.0, 0.6),
        ("again", 0.0, 0.45),
        ("again", 3.0, 0.75),
        ("rising", 0.0, 0.6),
        ("rising", 3.0, 0.75),
    ],
)
def test_target_rules(rule, state, asked):
    seen, carry = shown(begin(2.0), target=rule)
    assert seen["R_hat"] == pytest.approx(0.7, abs=1e-4)
    seen, carry = shown(observed(carry, 1.0, 1.0), obs=1.0 + 2.0 * state, target=rule)
    assert seen["R_hat"] == pytest.approx(asked, abs=1e-4)
    assert float(carry.R_hat) == pytest.approx(asked, abs=1e-4)


def test_thrift_shows_the_policy_a_smaller_budget_and_keeps_the_rest():
    # G = 0.6 + 0.2 C^: all but a twentieth of the 0.7 that C^ = 0.5 buys is had for 0.325.
    seen, carry = shown(begin(2.0), thrift=0.1)
    assert (seen["R_hat"], seen["C_hat"]) == pytest.approx((0.665, 0.325), abs=1e-4)
    assert float(carry.C_hat) == 0.5
    # A target that the user chose goes with all of the budget.
    seen, _ = shown(begin(2.0, target=5.0), thrift=0.1)
    assert (seen["R_hat"], seen["C_hat"]) == pytest.approx((0.5, 0.5), abs=1e-4)


def test_what_must_be_spent_is_asked_for():
    # B = 0.1 s - 0.1: from s = 8 on 0.7 must be spent, more than the 0.5 that are left.
    seen, carry = shown(begin(2.0), obs=17.0)
    assert seen["C_hat"] == pytest.approx(0.7, abs=1e-4)
    assert seen["R_hat"] == pytest.approx(0.6 + 0.14 + 0.8, abs=1e-4)
    assert float(carry.C_hat) == 0.5


def test_redial_moves_the_budget_and_asks_anew():
    _, carry = shown(begin(2.0), target="first")
    carry = observed(carry, 1.0, 1.0)  # plan 0.6, C^ = 0.25
    carry = gas.redial(TINY, UNITS, carry, jnp.float32(2.0), jnp.float32(4.0))
    assert float(carry.C_hat) == 0.75
    assert math.isnan(float(carry.R_hat))
    # G = 0.6 + 0.2 * 0.75 - 0.2 = 0.55, instead of the old plan.
    seen, carry = shown(carry, target="first")
    assert seen["R_hat"] == pytest.approx(0.55, abs=1e-4)
    seen, _ = shown(observed(carry, 1.0, 0.0), target="first")  # and from then on the new plan
    assert seen["R_hat"] == pytest.approx(0.45, abs=1e-4)


def test_the_reserve_is_kept_back_from_the_limit():
    # Of the limit 2 / 4 all but 1 / 16 is asked for; costs and a change count in full.
    cfg = dataclasses.replace(TINY, reserve=1 / 16)
    asked = Request(jnp.float32(2.0), jnp.float32(math.nan))
    carry = gas.start(cfg, SHOWING, UNITS, asked)
    assert float(carry.C_hat) == 7 / 16
    carry = asking.observe(cfg, UNITS, carry, jnp.float32(0.0), jnp.float32(0.5))
    assert float(carry.C_hat) == 5 / 16
    assert float(gas.redial(cfg, UNITS, carry, jnp.float32(2.0), jnp.float32(4.0)).C_hat) == 13 / 16


@pytest.mark.parametrize(("limit", "budget"), [(0.0, 0.0), (1.0, 0.2), (2.0, 0.4), (9.0, 0.9)])
def test_the_reserve_is_at_most_a_fifth_of_the_limit(limit, budget):
    # C^max is 4: limits 1 / 4, 2 / 4 and all of it, less 0.1 or a fifth.
    cfg = dataclasses.replace(TINY, reserve=0.1)
    found = float(asking.budget_of(cfg, UNITS, jnp.float32(limit)))
    assert found == pytest.approx(budget)


def test_a_request_moves_a_share_of_the_way():
    # At s = 0 and C^ = 0.5 the rule asks for G = 0.6 + 0.1.
    seen, carry = shown(begin(2.0), haste=0.5)  # the first request is the rule's own
    assert (seen["R_hat"], seen["C_hat"]) == (pytest.approx(0.7, abs=1e-4), pytest.approx(0.5))
    # After reward 1 and cost 0.8, 0.6 and 0.3 are left of it. The rule says 0.3 left, so
    # G = 0.6 + 0.06 - t' with t' = 1/5; half-way between 0.6 and that, and the budget stays at 0.3.
    seen, carry = shown(observed(carry, 1.0, 0.8), haste=0.5)
    assert seen["R_hat"] == pytest.approx(0.5 * (0.6 + 0.66 - 1 / 5), abs=1e-4)
    assert seen["C_hat"] == pytest.approx(0.3, abs=1e-4)
    # Cost 2 more than was left: what is left of the request is below 0 and so is the rule's; ask 0.
    seen, _ = shown(observed(carry, 0.0, 2.0), haste=0.5)
    assert seen["C_hat"] == pytest.approx(0.0, abs=1e-4)


def test_what_the_user_chose_does_not_wait():
    _, carry = shown(begin(2.0, target=5.0), haste=0.01)
    carry = gas.redial(TINY, UNITS, carry, jnp.float32(2.0), jnp.float32(3.0))
    seen, _ = shown(carry, haste=0.01)
    assert (seen["R_hat"], seen["C_hat"]) == (pytest.approx(0.5), pytest.approx(0.75, abs=1e-4))


def test_small_budgets_are_magnified():
    # Weights of 1 on exp(-C^ / 0.1) alone: budgets 0, 0.1, 1 show as 1, 1/e, nearly nothing.
    cfg = dataclasses.replace(TINY, near=0.1)
    net = linear_net([[0.0]], [[0.0] * 5 + [1.0]], [0.0])
    none = jnp.zeros(3)
    found = gas.act_as(net, none[:, None], none, row(0.0, 0.1, 1.0), none, none, none, cfg=cfg)
    close(found.actions[:, 0, 0], np.tanh([1.0, math.exp(-1), math.exp(-10)]))
    assert len(gas.init(cfg, SPEC, jax.random.key(0)).policy.net.embeddings) == 7
    assert len(gas.init(TINY, SPEC, jax.random.key(0)).policy.net.embeddings) == 6


def test_the_pace_that_is_asked_for():
    # R^ and C^ of 0.3 and 0.1 over half, a tenth, a hundredth of the horizon; the last as over 5%.
    cfg = dataclasses.replace(TINY, pace=True)
    none, R, C, t = jnp.zeros(3), jnp.full(3, 0.3), jnp.full(3, 0.1), row(0.5, 0.9, 0.99)
    for place, expected in ((5, [0.6, 3.0, 6.0]), (6, [0.2, 1.0, 2.0])):
        weights = [0.0] * 7
        weights[place] = 0.1
        net = linear_net([[0.0]], [weights], [0.0])
        found = gas.act_as(net, none[:, None], R, C, none, none, t, cfg=cfg).actions[:, 0, 0]
        close(found, np.tanh(0.1 * np.array(expected)))
    assert len(gas.init(cfg, SPEC, jax.random.key(0)).policy.net.embeddings) == 8


def test_redial_below_what_was_spent():
    carry = observed(begin(2.0), 0.0, 2.0)
    carry = gas.redial(TINY, UNITS, carry, jnp.float32(2.0), jnp.float32(1.0))
    assert float(carry.C_hat) == -0.25
    assert shown(carry)[0]["C_hat"] == pytest.approx(0.0, abs=1e-4)


def test_redial_keeps_a_fixed_target():
    carry = observed(begin(2.0, target=5.0), 1.0, 1.0)
    carry = gas.redial(TINY, UNITS, carry, jnp.float32(2.0), jnp.float32(4.0))
    assert float(carry.R_hat) == pytest.approx(0.4)
    assert float(carry.C_hat) == 0.75
    assert carry.fixed


def test_policy_of_drops_the_optimisers():
    state = fresh()
    assert gas.policy_of(state) == Networks(*(trained.net for trained in state))


# --- behaviour: stitching ----------------------------------------------------------------------
#
# Two episodes from one start that cross in the middle. Action +1 leads up, -1 down, each fork
# joins again after two steps:
#     A: + + - -   earns 1, 1, 0.2, 0.2 = 2.4
#     B: - - + +   earns 0, 0, 1, 1     = 2
# The best that the data allow to piece together, + + + +, earns 4 and is in no episode.

CROSSING = {
    "A": ([1, 1, -1, -1], [1.0, 1.0, 0.2, 0.2]),
    "B": ([-1, -1, 1, 1], [0.0, 0.0, 1.0, 1.0]),
}


def fork(step: int, last_action: float) -> list[float]:
    """(where along, which branch): one and the same state at the start and at the crossing."""
    return [float(step), 0.0 if step % 2 == 0 else float(np.sign(last_action))]


def play(cfg: Config, policy: Networks, scaling: Scaling, **request: float):
    carry = gas.start(
        cfg,
        policy,
        scaling,
        Request(jnp.float32(request["limit"]), jnp.float32(request.get("target", math.nan))),
    )
    act = actor(cfg)
    actions, total = [], 0.0
    for step in range(4):
        last = actions[-1] if actions else 0.0
        action, carry = act(policy, scaling, carry, row(*fork(step, last)))
        actions.append(float(action[0]))
        up, down = ("A", "B") if step < 2 else ("B", "A")
        reward = CROSSING[up if actions[-1] > 0 else down][1][step]
        carry = asking.observe(cfg, scaling, carry, jnp.float32(reward), jnp.float32(0))
        total += reward
    return np.sign(actions).tolist(), total


def test_stitches_two_episodes_at_their_crossing():
    rows = [(fork(t, a[t - 1]), a[t], r[t]) for a, r in CROSSING.values() for t in range(4)]
    observations, actions, rewards = (np.array(x, float) for x in zip(*rows, strict=True))
    episodes = episodes_of([4, 4], rewards, np.zeros(8), observations, actions[:, None])
    spec = spec_of(episodes, 4)
    scaling = fit_scaling(episodes, spec)
    cfg = Config(
        iterations=400,
        batch=64,
        learning_rate=5e-3,
        schedule="cosine",
        layers=3,
        hidden=32,
        embedding=8,
        target="again",
    )
    data = gas.prepare(cfg, episodes, spec, scaling)

    @quick_jit
    def train(key, data):
        def iteration(state, i):
            batch = gas.sample(cfg, data, jax.random.fold_in(key, i))
            return gas.update(cfg, state, batch)[0], None

        state = gas.init(cfg, spec, key)
        return gas.policy_of(jax.lax.scan(iteration, state, jnp.arange(cfg.iterations))[0])

    policy = train(jax.random.key(0), data)
    actions, total = play(cfg, policy, scaling, limit=1.0)
    assert actions == [1, 1, 1, 1]  # A's first, B's after the crossing
    assert total == 4.0 > episodes.returns.max()
    # Asked for no more than A earned, the rest of the request at the crossing is A's 0.4.
    assert play(cfg, policy, scaling, limit=1.0, target=2.4)[0] == [1, 1, -1, -1]
