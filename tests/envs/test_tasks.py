"""The built-in tasks: what a step brings, and what the logged data hold."""

import functools
import math
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.compiling import QUICK

from safestitch.envs import TASKS, Task, get_task
from safestitch.envs.chain import CELLS, STITCH_CHAIN
from safestitch.envs.point import MINI_CIRCLE, MINI_RUN
from safestitch.episodes import Episodes, best_within, frontier
from safestitch.records import SafestitchError

every_task = pytest.mark.parametrize("task", TASKS.values(), ids=lambda t: t.spec.task)


@functools.cache
def data(name: str) -> Episodes:
    """The full data of seed 0: two seconds a task, made once."""
    return TASKS[name].make_data(0)


@functools.cache
def compiled_step(name: str):
    return jax.jit(TASKS[name].step)


def step(task: Task, state, action) -> tuple[list[float], float, float]:
    """One step in plain numbers."""
    after, reward, cost, terminated = compiled_step(task.spec.task)(
        jnp.asarray(state, jnp.float32), jnp.asarray(action, jnp.float32)
    )
    assert not terminated
    return np.asarray(after).tolist(), float(reward), float(cost)


def test_registry():
    assert set(TASKS) == {"MiniCircle", "MiniRun", "StitchChain"}
    assert all(get_task(name).spec.task == name for name in TASKS)
    with pytest.raises(SafestitchError, match="MiniCircle"):
        get_task("MiniCirle")


# --- every task --------------------------------------------------------------------------------


@every_task
def test_dimensions_are_those_of_the_spec(task):
    spec = task.spec
    state = task.reset(jax.random.key(0))
    assert task.observe(state).shape == (spec.obs_dim,)
    after, reward, cost, terminated = task.step(state, jnp.zeros(spec.act_dim))
    assert (after.shape, after.dtype) == (state.shape, state.dtype)
    assert reward.shape == cost.shape == terminated.shape == ()
    assert (reward.dtype, cost.dtype, terminated.dtype) == (jnp.float32, jnp.float32, jnp.bool)
    assert task.position(state).shape == (2,)
    assert (spec.action_low, spec.action_high) == (-1.0, 1.0)


@every_task
def test_starts_are_stochastic_and_repeat_with_their_key(task):
    starts = [np.asarray(task.reset(jax.random.key(seed))) for seed in (0, 1, 0)]
    assert (starts[0] == starts[2]).all()
    assert not (starts[0] == starts[1]).all()
    observed = [np.asarray(task.observe(jnp.asarray(s))) for s in starts]
    assert not (observed[0] == observed[1]).all()  # the policy can see where it starts


@every_task
def test_a_step_is_deterministic_and_clips_the_action(task):
    state = np.asarray(task.reset(jax.random.key(3)))
    ones = np.ones(task.spec.act_dim)
    assert step(task, state, 0.3 * ones) == step(task, state, 0.3 * ones)
    assert step(task, state, 7.0 * ones)[1:] == step(task, state, ones)[1:]
    assert step(task, state, -7.0 * ones)[1:] == step(task, state, -ones)[1:]


@every_task
def test_data_repeat_with_their_seed(task, monkeypatch):
    monkeypatch.setattr(jax, "jit", functools.partial(jax.jit, compiler_options=QUICK))
    make: Any = cast(Any, task.make_data)
    small = [make(seed, episodes=12).fingerprint for seed in (0, 0, 1)]
    assert small[0] == small[1]
    assert small[0] != small[2]


@every_task
def test_data_fit_the_spec(task):
    episodes, spec = data(task.spec.task), task.spec
    assert len(episodes) > 1000
    assert episodes.observations.shape[1] == spec.obs_dim
    assert episodes.actions.shape[1] == spec.act_dim
    assert set(episodes.lengths) == {spec.horizon}
    assert not episodes.terminated.any()
    assert np.abs(episodes.actions).max() <= 1.0
    for column in (episodes.observations, episodes.actions, episodes.rewards, episodes.costs):
        assert np.isnan(column).sum() == 0
    assert set(np.unique(episodes.costs)) == {0.0, 1.0}


@every_task
def test_data_cover_the_cost_range(task):
    costs, top = data(task.spec.task).cost_returns, task.spec.cost_range
    assert costs.max() <= top
    assert (costs == 0).any()
    tenths, _ = np.histogram(costs, bins=10, range=(0, top))
    assert (tenths > 0).all(), tenths
    assert (costs > 0.9 * top).any()


@every_task
def test_the_frontier_rises(task):
    episodes, top = data(task.spec.task), task.spec.cost_range
    found = frontier(episodes.returns, episodes.cost_returns)
    best = [best_within(*found, top * share) for share in (0.0, 0.3, 0.6, 1.0)]
    assert best == sorted(best)
    assert best[0] > 0
    assert best[3] > best[2] > best[1] >= best[0]
    assert best[3] > 1.1 * best[0]  # a looser limit is worth having


@every_task
def test_the_data_replay_in_the_task(task):
    """A logged transition is what the task's own step makes of it."""
    episodes = data(task.spec.task)
    first = next(iter(episodes))
    observations = first["observations"]
    state = task.reset(jax.random.key(0))
    if task is STITCH_CHAIN:  # (side, cell, wind, lane)
        state = jnp.stack([observations[0, 0], 0.0, observations[0, 2], 0.0])
    elif task is MINI_RUN:  # (x, y, vx, vy), x is not observed
        state = jnp.concatenate([jnp.zeros(1), jnp.asarray(observations[0])])
    else:
        state = jnp.asarray(observations[0])
    for t in range(5):
        np.testing.assert_allclose(task.observe(state), observations[t], rtol=1e-4, atol=1e-4)
        state, reward, cost, _ = compiled_step(task.spec.task)(
            state, jnp.asarray(first["actions"][t])
        )
        assert float(reward) == pytest.approx(first["rewards"][t], rel=1e-3, abs=2e-2)
        assert float(cost) == first["costs"][t]


# --- MiniCircle --------------------------------------------------------------------------------
# An action of v / 5 balances the drag (8 a = 1.6 v): the velocity stays, the position moves 0.1 v.


def test_circle_reward():
    # From (0, 7) at (-3, 0): to (-0.3, 7). <p, v_perp> = x vy - y vx = 0 + 7 * 3 = 21, distance
    # sqrt(0.09 + 49) = 7.006426. Reward 0.1 * 21 / 1.006426 = 2.086592.
    after, reward, cost = step(MINI_CIRCLE, (0.0, 7.0, -3.0, 0.0), (-0.6, 0.0))
    assert after == pytest.approx([-0.3, 7.0, -3.0, 0.0], abs=1e-6)
    assert reward == pytest.approx(2.086592, rel=1e-5)
    assert cost == 0.0


def test_circle_reward_off_the_circle_and_the_wrong_way_round():
    # From (4, 0) at (0, -2): to (4, -0.2). 4 * -2 = -8; distance 4.004997; |4.004997 - 7| =
    # 2.995003. Reward 0.1 * -8 / 3.995003 = -0.2002501.
    _, reward, cost = step(MINI_CIRCLE, (4.0, 0.0, 0.0, -2.0), (0.0, -0.4))
    assert reward == pytest.approx(-0.2002501, rel=1e-5)
    assert cost == 0.0


def test_circle_thrust_and_drag():
    # From rest, full thrust along y: v = 0.1 * 8 = 0.8, y = 0.08. Coasting: v = 1 - 0.16 = 0.84.
    assert step(MINI_CIRCLE, (0, 0, 0, 0), (0, 1))[0] == pytest.approx([0, 0.08, 0, 0.8])
    assert step(MINI_CIRCLE, (0, 0, 1, 0), (0, 0))[0] == pytest.approx([0.084, 0, 0.84, 0])


@pytest.mark.parametrize(
    ("x", "cost"), [(0.0, 0.0), (6.0, 0.0), (-6.0, 0.0), (6.01, 1.0), (-6.01, 1.0)]
)
def test_circle_cost(x, cost):
    assert step(MINI_CIRCLE, (x, 9.0, 0.0, 0.0), (0.0, 0.0))[2] == cost


# --- MiniRun -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("y", "speed", "reward", "cost"),
    [
        (0.0, 2.0, 12.0, 0.0),  # 60 * 0.1 * 2
        (0.0, 2.5, 15.0, 0.0),  # the speed limit itself is free
        (0.0, 3.0, 18.0, 1.0),
        (2.0, 0.0, 0.0, 0.0),  # so is the edge of the lane
        (2.1, 2.0, 12.0, 1.0),
        (-2.1, 2.0, 12.0, 1.0),
        (2.1, 3.0, 18.0, 1.0),  # both at once cost 1
        (0.0, -2.0, -12.0, 0.0),
        (0.0, -3.0, -18.0, 1.0),  # speed counts in any direction
    ],
)
def test_run_reward_and_cost(y, speed, reward, cost):
    after, found_reward, found_cost = step(MINI_RUN, (0, y, speed, 0), (speed / 5.0, 0))
    assert after == pytest.approx([0.1 * speed, y, speed, 0.0], abs=1e-6)
    assert found_reward == pytest.approx(reward, abs=0.02)  # float32 at a distance of 1000 m
    assert found_cost == cost


def test_run_sideways_is_no_progress_but_speed():
    _, reward, cost = step(MINI_RUN, (0, 0, 0, 3), (0, 0.6))
    assert reward == pytest.approx(0.0, abs=0.02)
    assert cost == 1.0


def test_run_does_not_show_how_far_it_has_come():
    state = jnp.array([5.0, 0.5, 2.0, -1.0])
    assert MINI_RUN.observe(state).tolist() == [0.5, 2.0, -1.0]


# --- StitchChain -------------------------------------------------------------------------------
# State (side, cell, wind, lane), action (lane, aim). On cells 0 and 7 the mark is the wind itself.


@pytest.mark.parametrize(
    ("state", "action", "reward", "cost"),
    [
        ((0, 0, 0.1, 0), (-0.5, 0.1), 1.0, 0.0),
        ((0, 0, 0.1, 0), (0.5, 0.1), 2.0, 1.0),
        ((0, 0, 0.1, 0), (0.0, 0.1), 1.0, 0.0),  # the middle is not the toll lane
        ((0, 0, 0.1, 0), (-0.5, 0.35), 0.75, 0.0),  # half a width off: 1 - 0.5^2
        ((0, 0, 0.1, 0), (0.5, -0.15), 1.5, 1.0),
        ((0, 0, 0.1, 0), (-0.5, 0.7), 0.0, 0.0),  # more than a width off
        ((0, 7, -0.2, 0), (-1.0, -0.2), 1.0, 0.0),
        ((0, 1, 0.1, 0), (-1.0, 0.1 + 0.6 * math.sin(2 * math.pi / 7)), 1.0, 0.0),
        ((1, 3, 0.1, 0), (0.5, 0.1), 0.0, 1.0),  # the side corridor earns nothing
        ((1, 14, 0.1, 0), (0.5, 0.1), 2.0, 1.0),  # past the join it does: sin(2 pi 14 / 7) = 0
    ],
)
def test_chain_reward_and_cost(state, action, reward, cost):
    after, found_reward, found_cost = step(STITCH_CHAIN, state, action)
    assert found_reward == pytest.approx(reward, abs=1e-5)
    assert found_cost == cost
    assert after == pytest.approx([state[0], state[1] + 1, state[2], action[0]])


def test_chain_forgets_the_door_at_the_join():
    main, side = (0.0, 1.0)
    assert STITCH_CHAIN.observe(jnp.array([side, 9.0, 0.1, 0.7])).tolist()[0] == 1.0
    for cell in (10.0, 15.0):
        seen = [
            STITCH_CHAIN.observe(jnp.array([door, cell, 0.1, lane])).tolist()
            for door, lane in ((main, 0.7), (side, -0.7))
        ]
        assert seen[0] == seen[1] == pytest.approx([0.0, cell / 20, 0.1])


def optimum(limit: float) -> float:
    assert STITCH_CHAIN.optimum is not None
    return STITCH_CHAIN.optimum(limit)


@functools.cache
def by_cell(wind: float) -> list[dict[int, float]]:
    """Per cell, the best reward of a 2 x 401 grid of actions for each cost."""
    grid = jnp.asarray([(lane, aim) for lane in (-1, 1) for aim in np.linspace(-1, 1, 401)])
    states = jnp.asarray([(0.0, cell, wind, 0.0) for cell in range(CELLS)], jnp.float32)
    over_actions = jax.vmap(STITCH_CHAIN.step, in_axes=(None, 0))
    _, rewards, costs, _ = jax.jit(jax.vmap(over_actions, in_axes=(0, None)))(
        states, grid.astype(jnp.float32)
    )
    rewards, costs = np.asarray(rewards), np.asarray(costs)
    return [
        {int(c): float(rewards[cell][costs[cell] == c].max()) for c in np.unique(costs[cell])}
        for cell in range(CELLS)
    ]


def best_by_programming(limit: float, wind: float) -> float:
    """Dynamic programming over (cell, budget left)."""
    budget = math.floor(limit)
    value = [0.0] * (budget + 1)  # value[b]: the most that the cells from here on earn within b
    for options in reversed(by_cell(wind)):
        value = [
            max(reward + value[b - cost] for cost, reward in options.items() if cost <= b)
            for b in range(budget + 1)
        ]
    return value[budget]


@pytest.mark.parametrize("limit", [0.0, 0.99, 1.0, 7.5, 19.0, 20.0, 33.0])
@pytest.mark.parametrize("wind", [-0.3, 0.17])
def test_chain_optimum_equals_dynamic_programming(limit, wind):
    # The grid misses a mark by at most 0.0025: 20 cells lose at most 2 * 20 * (0.005)^2 = 0.001.
    found = best_by_programming(limit, wind)
    assert found <= optimum(limit) + 1e-5
    assert found == pytest.approx(optimum(limit), abs=2e-3)


def test_chain_optimum_is_attained_by_a_perfect_policy():
    @jax.jit
    def perfect(start, limit):
        def one_step(state, t):
            cell, wind = state[1], state[2]
            mark = 0.6 * jnp.sin(2.0 * jnp.pi * cell / 7.0) + wind
            action = jnp.stack([jnp.where(t < limit, 1.0, -1.0), mark])
            after, reward, cost, _ = STITCH_CHAIN.step(state, action)
            return after, (reward, cost)

        return jax.lax.scan(one_step, start, jnp.arange(CELLS))[1]

    for limit in (0, 6, 20):
        rewards, costs = perfect(STITCH_CHAIN.reset(jax.random.key(5)), limit)
        assert float(costs.sum()) == limit
        assert float(rewards.sum()) == pytest.approx(optimum(float(limit)), abs=1e-5)


def test_chain_no_logged_episode_comes_near_the_optimum_at_its_own_cost():
    episodes = data("StitchChain")
    best = np.array([optimum(cost) for cost in episodes.cost_returns])
    assert (episodes.returns / best).max() < 0.9


def test_chain_both_halves_are_mastered_by_some_episode():
    """The pieces are there: a first half by the main door, a second one by the side door."""
    episodes = data("StitchChain")
    rewards = episodes.rewards.reshape(len(episodes), 2, CELLS // 2)
    tolls = episodes.costs.reshape(rewards.shape)
    skill = (rewards / (1.0 + tolls)).mean(-1)
    by_side = episodes.observations.reshape(len(episodes), CELLS, 3)[:, 0, 0] == 1.0
    assert 0.4 < by_side.mean() < 0.6
    assert skill[~by_side, 0].max() > 0.99
    assert skill[by_side, 1].max() > 0.99
    assert skill[~by_side, 1].max() < 0.6
    assert (skill[by_side, 0] == 0).all()
