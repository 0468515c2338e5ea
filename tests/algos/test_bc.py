"""BC, in the order of `safestitch/algos/bc.py`: every equation on numbers worked by hand."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.compiling import quick_jit

from safestitch.algos import bc
from safestitch.algos.bc import ALGORITHM, Batch, Config
from safestitch.envs import TASKS
from safestitch.episodes import Episodes
from safestitch.evaluation.rollout import rollout
from safestitch.nn import MLP
from safestitch.policy import load_policies
from safestitch.records import SafestitchError, Spec
from safestitch.scaling import fit_scaling
from safestitch.training import train_on
from safestitch.training.loop import train

SPEC = Spec("hand-made", obs_dim=1, act_dim=1, horizon=3, cost_range=10.0)


def close(found: Any, expected: Any, **options: Any) -> None:
    np.testing.assert_allclose(found, expected, **{"rtol": 1e-5, "atol": 1e-6, **options})


def episodes_of(rewards: list[float], costs: list[float], steps: int = 2) -> Episodes:
    """One episode per reward and cost, of equal length; all of either at its last step."""
    n = steps * len(rewards)
    ends = np.tile(np.arange(steps) == steps - 1, len(rewards))
    reward, cost = np.zeros(n), np.zeros(n)
    reward[ends], cost[ends] = rewards, costs
    observations, actions = np.arange(float(n))[:, None], np.zeros((n, 1))
    return Episodes.of(observations, actions, reward, cost, np.zeros(n, bool), ends)


def drawn_rows(cfg: Config, episodes: Episodes, facts=None) -> set[int]:
    data = bc.prepare(cfg, episodes, SPEC, fit_scaling(episodes, SPEC), facts)
    return set(np.asarray(data.rows[: data.chosen]).tolist())


# --- which episodes ----------------------------------------------------------------------------


def test_safe_is_a_share_of_the_range_or_a_cost():
    episodes = episodes_of([1.0, 2.0, 3.0], [0.0, 2.0, 2.5])
    assert drawn_rows(Config(clone="all"), episodes) == {0, 1, 2, 3, 4, 5}
    assert drawn_rows(Config(clone="safe", limit=0.2), episodes) == {0, 1, 2, 3}  # 0.2 x 10
    cost = Config(clone="safe", limit=2.4, limit_unit="cost")
    assert drawn_rows(cost, episodes) == {0, 1, 2, 3}
    assert drawn_rows(dataclasses.replace(cost, limit=0.0), episodes) == {0, 1}


def test_the_frontiers_polynomial_is_of_the_least_degree_that_fits():
    line = bc.fit_frontier(episodes_of([1.0, 3.0, 5.0, 2.0], [0.0, 1.0, 2.0, 2.0]))
    close(line.polynomial, [2.0, 1.0])  # R = 1 + 2 C through three of the four
    assert line.spread == 4.0
    point = bc.fit_frontier(episodes_of([5.0, 1.0], [0.0, 3.0]))
    close(point.polynomial, [5.0])
    bent = bc.fit_frontier(episodes_of([0.0, 10.0, 11.0], [0.0, 1.0, 2.0]))
    close(bent.polynomial, [-4.5, 14.5, 0.0], atol=1e-9)  # 0, 10, 11: a line explains 82%


def test_near_the_frontier():
    # Frontier (0, 1), (1, 3), (2, 5): p(C) = 1 + 2 C. Rewards range over 5, so w = 0.21 is 1.05
    # either way: at C = 2 a reward of 4 is near and 3.9 is not.
    episodes = episodes_of([1.0, 3.0, 5.0, 4.0, 3.9, 0.0], [0.0, 1.0, 2.0, 2.0, 2.0, 3.0])
    kept = bc.choose(Config(clone="frontier", width=0.21), episodes, SPEC)
    assert kept.tolist() == [True, True, True, True, False, False]
    wide = bc.choose(Config(clone="frontier", width=0.25), episodes, SPEC)
    assert wide.tolist() == [True] * 5 + [False]


def test_no_safe_episode_is_an_error():
    with pytest.raises(SafestitchError, match=r"the least costly has 2: raise limit"):
        drawn_rows(Config(clone="safe", limit=0.1), episodes_of([1.0], [2.0]))


def test_blocks_follow_all_the_data():
    cfg = Config(clone="frontier", width=0.1)
    episodes = episodes_of([1.0, 3.0, 5.0, 2.0], [0.0, 1.0, 2.0, 2.0])
    facts = bc.survey(cfg, episodes, SPEC, fit_scaling(episodes, SPEC))
    lone = episodes_of([2.0, 3.0], [2.0, 1.0])
    assert drawn_rows(cfg, lone) == {2, 3}  # by itself (3, 1) is its frontier
    assert drawn_rows(cfg, lone, facts) == {2, 3}
    poor = episodes_of([0.0, 2.0], [1.0, 2.0])
    assert drawn_rows(cfg, poor, facts) == {0, 1}  # none is near: the least costly stands in
    safe = Config(clone="safe", limit=0.05)
    facts = bc.survey(safe, episodes, SPEC, fit_scaling(episodes, SPEC))
    assert drawn_rows(safe, poor, facts) == {0, 1}
    with pytest.raises(SafestitchError, match="raise limit"):
        bc.survey(safe, poor, SPEC, fit_scaling(episodes, SPEC))


def test_batches_hold_chosen_rows_only():
    episodes = episodes_of([1.0, 2.0, 3.0], [0.0, 2.0, 0.0])
    scaling = fit_scaling(episodes, SPEC)
    cfg = Config(clone="safe", batch=400)
    data = jax.tree.map(jnp.asarray, bc.prepare(cfg, episodes, SPEC, scaling))
    s = bc.sample(cfg, data, jax.random.key(0)).s[:, 0]
    rows, counts = np.unique(np.rint(s * scaling.obs_std + scaling.obs_mean), return_counts=True)
    assert rows.tolist() == [0, 1, 4, 5]
    assert counts.min() > 60


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"limit": 1.5}, "limit is 1.5: expected 0 to 1"),
        ({"limit": -1.0, "limit_unit": "cost"}, "limit is -1.0: expected 0 to 1e+38"),
        ({"width": 2.0}, "width is 2.0: expected 0 to 1"),
        ({"layers": 1}, "layers is 1: expected 2 to 64"),
    ],
)
def test_config_refuses_nonsense(settings, expected):
    with pytest.raises(SafestitchError) as error:
        Config(**settings)
    assert str(error.value) == expected


def test_paper_preset_is_the_released_table():
    paper = ALGORITHM.presets["paper"]
    table = (paper.iterations, paper.batch, paper.learning_rate, paper.layers, paper.hidden)
    assert table == (100_000, 512, 1e-3, 3, 256)


# --- learning ----------------------------------------------------------------------------------


def linear(weight: list[list[float]]) -> MLP:
    blank = MLP(len(weight[0]), len(weight), hidden=1, layers=1, key=jax.random.key(0))
    return eqx.tree_at(lambda net: net.weights, blank, (jnp.asarray(weight),))


def test_clone_loss_by_hand():
    # tanh(0) = 0 against (1, 0.5); tanh(1) = 0.761594, tanh(2) = 0.964028 against (0, 1):
    # (1 + 0.25 + 0.580026 + 0.001294) / 4 = 0.457830
    batch = Batch(jnp.array([[0.0], [1.0]]), jnp.array([[1.0, 0.5], [0.0, 1.0]]))
    close(bc.clone_loss(linear([[1.0], [2.0]]), batch), 0.457830)


def test_learns_the_mean_action():
    cfg = Config(iterations=300, batch=64, hidden=8, layers=2, learning_rate=1e-2)
    state = bc.init(cfg, SPEC, jax.random.key(0))
    a = jnp.where(jnp.arange(64) % 4 == 0, -1.0, 1.0)[:, None]  # mean 0.5
    step = quick_jit(lambda state: bc.update(cfg, state, Batch(jnp.zeros((64, 1)), a)))
    for _ in range(299):
        state, _ = step(state)
    state, metrics = step(state)
    close(bc.act_as(state.net, jnp.zeros((1, 1))), 0.5, atol=1e-2)
    close(metrics["loss/policy"], 0.75, atol=1e-3)  # the variance: 1 - 0.25


# --- behaviour ---------------------------------------------------------------------------------

CHAIN = TASKS["StitchChain"]
QUICK = {"iterations": 600, "batch": 256, "hidden": 64, "learning_rate": 3e-3}


def test_bc_serves_no_limit_but_that_of_its_data(tmp_path):
    """All data cost 10 of 20 on average, whatever is asked for; the safe ones cost little."""
    episodes = CHAIN.make_data(0)
    costs = {}
    for data in ("all", "safe"):
        out = tmp_path / data
        cfg = Config(**QUICK, schedule="cosine", clone=data, limit=0.2)
        train(ALGORITHM, cfg, CHAIN.spec, episodes, [0], out)
        found, _ = rollout(load_policies(out), CHAIN, [2.0, 18.0], 50)
        costs[data] = found.costs.mean((0, 2))
        assert costs[data][0] == costs[data][1]
    assert costs["all"][0] > 4.0  # a limit of 2 is broken
    assert costs["safe"][0] <= 4.0


def test_the_api_trains_it(tmp_path):
    policy = train_on(
        CHAIN.make_data(1), tmp_path / "run", algorithm="bc", iterations=20, hidden=8, clone="safe"
    )
    action = policy.start(limit=3.0).act(np.zeros(3))
    assert action.shape == (2,) and (np.abs(action) <= 1).all()
