import dataclasses
import math
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import safestitch
from safestitch.algos import get_algorithm
from safestitch.envs import get_task
from safestitch.evaluation.rollout import episode_keys, rollout
from safestitch.policy import Policy, Session, load, load_policies
from safestitch.records import RunError, SafestitchError
from safestitch.training import loop

pytestmark = pytest.mark.usefixtures("as_installed")

TASK = get_task("StitchChain")
TINY: dict[str, Any] = {
    "thrift": 0.0,  # a goal that has learned nothing says that budgets buy nothing
    "iterations": 300,
    "batch": 16,
    "hidden": 8,
    "embedding": 4,
    "layers": 2,
    "budget_batch": 8,
    "schedule": "constant",
}
STEP, OBSERVE = jax.jit(TASK.step), jax.jit(TASK.observe)
WALK = np.stack([np.zeros(20), np.arange(20) / 20, np.full(20, 0.1)], axis=1).astype(np.float32)
"""What is seen on the way along the corridor in a wind of 0.1."""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("trained") / "run"
    gas = get_algorithm("gas")
    config = dataclasses.replace(gas.presets["fast"], **TINY)
    loop.train(gas, config, TASK.spec, TASK.make_data(0), [3, 7], out)
    return out


@pytest.fixture(scope="module")
def policy(trained: Path) -> Policy:
    return load(trained)


def walk(session: Session, steps: int = 20, cost: float = 1.0) -> np.ndarray:
    """The actions along the corridor, where every step earns 1 and costs something."""
    actions = []
    for obs in WALK[:steps]:
        actions.append(session.act(obs))
        session.observe(1.0, cost)
    return np.stack(actions)


# --- loading -----------------------------------------------------------------------------------


def test_a_session_does_what_the_rollout_did(trained):
    limits = [0.0, 4.0, 20.0]
    result, paths = rollout(load_policies(trained), TASK, limits, 5)
    for s, seed in enumerate((3, 7)):
        policy = load(trained, seed=seed)
        for i, limit in enumerate(limits):
            session = policy.start(limit=limit)
            state = TASK.reset(episode_keys(0, 5)[2])
            for t in range(TASK.spec.horizon):
                np.testing.assert_allclose(
                    np.asarray(TASK.position(state)), paths.positions[s, i, 2, t], atol=1e-4
                )
                action = session.act(OBSERVE(state))
                state, reward, cost, _ = STEP(state, action)
                assert float(cost) == pytest.approx(paths.costs[s, i, 2, t], abs=1e-4)
                session.observe(float(reward), float(cost))
            assert session.reward == pytest.approx(result.rewards[s, i, 2], abs=1e-4)
            assert session.cost == pytest.approx(result.costs[s, i, 2], abs=1e-4)
            assert session.remaining == pytest.approx(limit - result.costs[s, i, 2], abs=1e-4)


def test_the_same_target_as_the_rollout(trained):
    limits = [0.0, 4.0, 20.0]
    result, _ = rollout(load_policies(trained), TASK, limits, 5, target_reward=12.0)
    session = load(trained).start(4.0, target_reward=12.0)
    state = TASK.reset(episode_keys(0, 5)[1])
    for _ in range(TASK.spec.horizon):
        state, reward, cost, _ = STEP(state, session.act(OBSERVE(state)))
        session.observe(float(reward), float(cost))
    assert session.reward == pytest.approx(result.rewards[0, 1, 1], abs=1e-4)


def test_seeds_are_chosen(trained):
    first, second = load(trained, seed=3), load(str(trained), seed=7)
    assert (load(trained).seed, first.seed, second.seed) == (3, 3, 7)
    assert np.array_equal(walk(load(trained).start(5)), walk(first.start(5)))
    assert np.abs(walk(first.start(5)) - walk(second.start(5))).max() > 1e-3
    assert repr(second) == "Policy(gas on StitchChain, seed 7)"


@pytest.mark.parametrize("seed", [0, 1, -1, 8])
def test_an_unknown_seed(trained, seed):
    with pytest.raises(SafestitchError, match=rf"has no seed {seed}: it holds \[3, 7\]"):
        load(trained, seed=seed)


def test_no_run(tmp_path):
    with pytest.raises(RunError, match="no run directory"):
        safestitch.load(tmp_path / "nowhere")


def test_actions_are_of_the_task(policy):
    actions = walk(policy.start(limit=20))
    assert actions.shape == (20, 2)
    assert actions.dtype == np.float32
    assert (np.abs(actions) <= 1.0).all()


def test_deterministic(policy, trained):
    expected = walk(policy.start(limit=7))
    assert np.array_equal(walk(policy.start(limit=7)), expected)
    assert np.array_equal(walk(load(trained).start(limit=7)), expected)


def test_sessions_do_not_disturb_each_other(policy):
    expected = walk(policy.start(limit=7))
    one, other = policy.start(limit=7), policy.start(limit=0)
    found = []
    for obs in WALK:
        found.append(one.act(obs))
        other.act(obs + 1)
        one.observe(1.0, 1.0)
        other.observe(-5.0, 3.0)
    assert np.array_equal(np.stack(found), expected)


# --- the limit ---------------------------------------------------------------------------------


def test_limits_may_be_whole_numbers(policy):
    session = policy.start(limit=5)
    assert (session.limit, type(session.limit)) == (5.0, float)
    assert np.array_equal(walk(session), walk(policy.start(limit=5.0)))
    session.limit = 9
    assert (session.limit, type(session.limit)) == (9.0, float)
    session.limit = np.float32(2.5)
    assert session.limit == 2.5


def test_rewards_and_costs_may_be_whole_numbers(policy):
    session = policy.start(limit=5)
    session.act(WALK[0])
    session.observe(2, 1)
    session.observe(np.float32(0.5), np.float32(0.25))
    assert (session.reward, session.cost, session.remaining) == (2.5, 1.25, 3.75)


def test_what_remains(policy):
    session = policy.start(limit=2.0)
    assert session.remaining == 2.0
    walk(session, steps=3)
    assert (session.reward, session.cost, session.remaining) == (3.0, 3.0, -1.0)
    session.limit = 10.0
    assert (session.limit, session.remaining) == (10.0, 7.0)
    session.limit = 0.0
    assert session.remaining == -3.0


def test_the_limit_changes_what_is_done(policy):
    assert np.abs(walk(policy.start(limit=20)) - walk(policy.start(limit=0))).max() > 1e-3


@pytest.mark.parametrize(("before", "after"), [(20.0, 2.0), (0.0, 15.0), (5.0, 5.0), (1e9, 5.0)])
def test_a_limit_changed_on_the_way_of_a_rule_without_memory(policy, before, after):
    """From then on the session does what one would that had this limit from the beginning."""
    dialled, steady, other = (policy.start(limit) for limit in (before, after, before))
    for session in (dialled, steady, other):
        walk(session, steps=3, cost=0.5)
    dialled.limit = after
    assert dialled.remaining == steady.remaining
    found, expected = walk(dialled, cost=0.5), walk(steady, cost=0.5)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    if before != after:
        assert np.abs(found - walk(other, cost=0.5)).max() > 1e-3


@pytest.mark.parametrize(("before", "after"), [(20.0, 2.0), (0.0, 15.0), (1e9, 5.0)])
def test_a_limit_changed_on_the_way(policy, before, after):
    """The plan under the limit before is forgotten: it does not matter what that limit was."""
    config = dataclasses.replace(policy.config, target="first")
    policy = dataclasses.replace(policy, config=config)
    dialled, another, untouched = (policy.start(limit) for limit in (before, 9.0, before))
    for session in (dialled, another, untouched):
        walk(session, steps=3, cost=0.5)
    dialled.limit = another.limit = after
    assert dialled.remaining == another.remaining == after - 1.5
    found, expected = walk(dialled, cost=0.5), walk(another, cost=0.5)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert np.abs(found - walk(untouched, cost=0.5)).max() > 1e-3


def test_the_same_limit_again_changes_nothing(policy):
    dialled, untouched = policy.start(5.0), policy.start(5.0)
    for session in (dialled, untouched):
        walk(session, steps=3, cost=0.5)
    dialled.limit = 5.0
    np.testing.assert_array_equal(walk(dialled, cost=0.5), walk(untouched, cost=0.5))


def test_a_target_survives_a_new_limit(policy):
    dialled, steady = policy.start(20.0, target_reward=9.0), policy.start(4.0, target_reward=9.0)
    for session in (dialled, steady):
        walk(session, steps=3)
    dialled.limit = 4.0
    np.testing.assert_allclose(walk(dialled), walk(steady), atol=1e-5)


# --- refusals ----------------------------------------------------------------------------------

BAD_LIMITS = [-1, -1e-9, math.nan, math.inf, -math.inf]


@pytest.mark.parametrize("limit", BAD_LIMITS, ids=str)
def test_limits_that_cannot_be(policy, limit):
    expected = f"the cost limit must be a finite number >= 0, got {limit}"
    with pytest.raises(SafestitchError, match=expected):
        policy.start(limit=limit)
    session = policy.start(limit=4)
    walk(session, steps=2)
    with pytest.raises(SafestitchError, match=expected):
        session.limit = limit
    assert (session.limit, session.remaining) == (4.0, 2.0)


@pytest.mark.parametrize("limit", ["many", "10%", None, [1, 2]], ids=repr)
def test_limits_that_are_no_numbers(policy, limit):
    with pytest.raises(SafestitchError, match=r"the cost limit .* is not a number") as caught:
        policy.start(limit=limit)
    assert repr(limit) in str(caught.value)
    session = policy.start(limit=4)
    with pytest.raises(SafestitchError, match="is not a number"):
        session.limit = limit
    assert session.limit == 4.0


@pytest.mark.parametrize("target", [math.inf, -math.inf], ids=str)
def test_targets_that_cannot_be(policy, target):
    with pytest.raises(SafestitchError, match=r"target.*inf"):
        policy.start(limit=4, target_reward=target)


@pytest.mark.parametrize(
    ("obs", "given"),
    [
        (np.zeros(2), r"shape \(2,\)"),
        (np.zeros(4), r"shape \(4,\)"),
        (np.zeros((1, 3)), r"shape \(1, 3\)"),
        (0.5, r"shape \(\)"),
        (np.array([0, math.nan, 0]), "nan"),
        (np.array([math.inf, 0, 0]), "inf"),
    ],
    ids=["few", "many", "batch", "scalar", "nan", "inf"],
)
def test_observations_that_cannot_be(policy, obs, given):
    session = policy.start(limit=4)
    walk(session, steps=2)
    expected = rf"expected a finite observation of shape \(3,\), got .*{given}"
    with pytest.raises(SafestitchError, match=expected):
        session.act(obs)
    steady = policy.start(limit=4)
    walk(steady, steps=2)
    assert np.array_equal(session.act(WALK[2]), steady.act(WALK[2]))  # nothing was spoilt


@pytest.mark.parametrize(
    ("reward", "cost"),
    [(math.nan, 0.0), (math.inf, 0.0), (0.0, math.nan), (0.0, math.inf), (0.0, -1.0)],
    ids=str,
)
def test_outcomes_that_cannot_be(policy, reward, cost):
    session = policy.start(limit=4)
    expected = f"finite reward and a cost >= 0, got reward {reward} and cost {cost}"
    with pytest.raises(SafestitchError, match=expected):
        session.observe(reward, cost)
    assert (session.reward, session.cost, session.remaining) == (0.0, 0.0, 4.0)
    assert np.array_equal(walk(session), walk(policy.start(limit=4)))
