"""Workers: the same numbers however many there are and whatever becomes of them."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

from safestitch.catalog import catalog, get_entry
from safestitch.records import SafestitchError, Spec
from safestitch.sims.board import BEGUN, IDLE, TERMINATED, TRUNCATED, groups_of
from safestitch.sims.own import Own
from safestitch.sims.pool import Pool, Source
from safestitch.sims.suites import obstacle

pytestmark = pytest.mark.usefixtures("as_installed", "own_environments")

CORRIDOR = Spec("own_environments:corridor", 3, 1, 12, 0.0)
LANES, LAPS = 5, 3
SEEDS = np.arange(LANES * LAPS).reshape(LANES, LAPS)


@pytest.fixture(autouse=True)
def own_environments(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


def source(name: str = "corridor") -> Source:
    return Source(CORRIDOR, f"own_environments:{name}")


def action_for(observation: np.ndarray) -> np.ndarray:
    """A policy that depends on all it sees."""
    return np.tanh(observation.sum(keepdims=True) * 1.7).astype(np.float32)


def play(pool: Pool, seeds: np.ndarray, after_round=lambda _: None) -> dict[int, list]:
    """Episode seed -> every (reward, cost) of it; a restarted episode begins a new list."""
    found: dict[int, list] = {}
    laps = np.zeros(len(seeds), int)
    pool.begin(seeds)
    rounds = 0
    while pool.live:
        for group in pool.live:
            outcome = pool.receive(group)
            for i, lane in enumerate(outcome.lanes):
                if outcome.restarted[i] and laps[lane] < seeds.shape[1]:
                    found[int(seeds[lane, laps[lane]])] = []
                elif laps[lane] < seeds.shape[1] and seeds[lane, laps[lane]] >= 0 and rounds:
                    record = (float(outcome.rewards[i]), float(outcome.costs[i]))
                    found.setdefault(int(seeds[lane, laps[lane]]), []).append(record)
                    laps[lane] += bool(outcome.flags[i] & (TERMINATED | TRUNCATED))
            pool.send(group, np.stack([action_for(o) for o in outcome.observations]))
        rounds += 1
        after_round(rounds)
    return found


def alone(seed: int) -> list:
    """The same episode without any pool."""
    simulator = Own("own_environments:corridor", 12)
    observation, record = simulator.reset(seed), []
    while True:
        step = simulator.step(action_for(np.asarray(observation, np.float32)))
        record.append((step.reward, step.cost))
        observation = step.observation
        if step.terminated or step.truncated:
            return record


def run(workers: int, seeds: np.ndarray = SEEDS, **options) -> dict[int, list]:
    with Pool(source(), lanes=len(seeds), laps=seeds.shape[1], workers=workers) as pool:
        return play(pool, seeds, **options)


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_every_episode_is_played_as_if_alone(workers):
    assert run(workers) == {seed: alone(seed) for seed in range(LANES * LAPS)}


def test_lanes_without_an_episode_stay_idle():
    seeds = SEEDS.copy()
    seeds[2:, 1:] = -1
    seeds[4] = -1
    assert run(2, seeds) == {seed: alone(seed) for seed in seeds[seeds >= 0]}


def test_a_pool_can_begin_again():
    with Pool(source(), lanes=LANES, laps=LAPS, workers=2) as pool:
        assert play(pool, SEEDS) == play(pool, SEEDS)
        assert set(play(pool, SEEDS + 100)) == set((SEEDS + 100).ravel())


@pytest.mark.parametrize("task", catalog())
def test_real_tasks_are_bit_equal_with_one_two_and_three_workers(task):
    entry = get_entry(task)
    if obstacle(entry.suite):
        pytest.skip(obstacle(entry.suite))

    def rolled(workers: int) -> list:
        rows = []
        with Pool(Source(entry.spec), lanes=6, laps=2, workers=workers) as pool:
            pool.begin(np.arange(12).reshape(6, 2))
            for _ in range(25):
                for group in (0, 1):
                    o = pool.receive(group)
                    rows.append([o.observations.tolist(), o.rewards.tolist(), o.costs.tolist()])
                    pool.send(group, np.sin(o.observations[:, : entry.act_dim] * 9.0))
        return rows

    assert rolled(1) == rolled(2) == rolled(3)


# --- workers that die --------------------------------------------------------------------------


# Around the ends of episodes, which have 12 steps. The third death of a worker comes later after
# its second than the second after the first: three at one step would be a simulator to give up.
@pytest.mark.parametrize("moments", [[1], [2, 3], [5, 17, 30], [12, 13, 24, 25, 40]])
def test_a_killed_worker_is_replaced_and_nothing_changes(moments):
    with Pool(source(), lanes=LANES, laps=LAPS, workers=2) as pool:
        killed = []

        def kill(rounds: int) -> None:
            if rounds in moments:
                killed.append(pool.processes[len(killed) % 2])
                os.kill(killed[-1], signal.SIGKILL)

        found = play(pool, SEEDS, after_round=kill)
        assert len(killed) == len(moments)
        processes = pool.processes
    assert found == {seed: alone(seed) for seed in range(LANES * LAPS)}
    assert not any(psutil.pid_exists(pid) for pid in [*killed, *processes])


def test_deaths_at_one_step_of_different_episodes_are_no_reason_to_give_up():
    seeds = np.arange(2 * 5).reshape(2, 5)
    with Pool(source(), lanes=2, laps=5, workers=1) as pool:

        def kill(rounds: int) -> None:
            if rounds in (6, 24, 42, 60):  # the same step of a new worker, each time a lap later
                time.sleep(0.2)  # the step under way ends first
                os.kill(pool.processes[0], signal.SIGKILL)

        assert play(pool, seeds, after_round=kill) == {seed: alone(seed) for seed in range(10)}


def test_a_simulator_that_always_crashes_is_given_up():
    with Pool(source("dies"), lanes=2, laps=1, workers=1) as pool:
        with pytest.raises(
            SafestitchError, match=r"crashed 3 times in a row at step 2.*exit code 9"
        ):
            play(pool, np.array([[41], [42]]))
        processes = pool.processes
    assert not any(psutil.pid_exists(pid) for pid in processes)


def test_no_worker_outlives_a_master_that_is_killed():
    program = f"""
import sys, time, numpy as np
sys.path.insert(0, {str(Path(__file__).parent)!r})
from safestitch.records import Spec
from safestitch.sims.pool import Pool, Source
source = Source(Spec("x", 3, 1, 12, 0.0), "own_environments:corridor")
pool = Pool(source, lanes=4, laps=1, workers=2)
pool.begin(np.zeros((4, 1), np.int64))
pool.receive(0)
print(*pool.processes, flush=True)
time.sleep(60)
"""
    master = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert master.stdout is not None
    workers = [int(pid) for pid in master.stdout.readline().split()]
    assert len(workers) == 2 and all(psutil.pid_exists(pid) for pid in workers)
    master.kill()
    master.wait()
    master.stdout.close()
    for _ in range(100):
        if not any(psutil.pid_exists(pid) for pid in workers):
            return
        time.sleep(0.1)
    pytest.fail("workers outlived their master")


def test_a_worker_loads_no_jax():
    program = "import sys, safestitch.sims.worker; print(*sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert not {"jax", "equinox", "optax"} & {name.split(".")[0] for name in result.stdout.split()}


# --- environments that misbehave ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("raises", r"raises, step 3: step raised RuntimeError: the motor is on fire"),
        ("nan", r"episode seed 7, step 3: observations .* is not finite"),
        ("nan_reward", r"episode seed 7, step 3: rewards nan: a number is not finite"),
        ("nan_cost", r"episode seed 7, step 1: costs nan: a number is not finite"),
        ("negative", r"episode seed 7, step 1: the cost -1 is negative: costs are >= 0"),
        ("text", r"step 1: the cost is 'much', expected a number"),
        ("no_cost", r"step 1: step returned no cost: give it in info\[\"cost\"\]"),
        ("four_values", r"step returned 4 values, expected five or six"),
        ("shape", r"step 3: an observation of shape \(2,\), expected \(3,\)"),
        ("endless", r"step 12: the episode goes on after 12 steps, the horizon: end it there"),
        ("wide", r"has 4 observations and 1 actions, but the policy was trained with 3 and 1"),
        ("discrete", r"its action_space is Discrete\(3\), expected a Box"),
        ("broken", r"making the environment failed with OSError: no licence found"),
        ("nothing_of_that_name", r"making the environment failed with NameNotFound"),
    ],
)
def test_bad_environments_are_named_with_step_and_advice(name, message):
    with (
        Pool(source(name), lanes=1, laps=1, workers=1) as pool,
        pytest.raises(SafestitchError, match=message) as raised,
    ):
        play(pool, np.array([[7]]))
    assert f"own_environments:{name}" in str(raised.value)


def test_a_module_that_does_not_exist():
    with pytest.raises(SafestitchError, match="importing no_such_module failed"):
        Own("no_such_module:make")


def test_a_cost_as_the_third_of_six_values():
    simulator = Own("own_environments:six_values", 12)
    simulator.reset(0)
    assert [simulator.step(np.array([a])).cost for a in (0.4, 0.6)] == [0.0, 1.0]


def test_actions_are_clipped_to_the_environments_bounds():
    simulator = Own("own_environments:corridor", 12)
    simulator.reset(0)
    assert simulator.step(np.array([7.0])).reward == 1.0


def test_the_horizon_is_read_off_a_time_limit_or_asked_for():
    assert Own("own_environments:Corridor-v0").spec.horizon == 12
    with pytest.raises(SafestitchError, match="how long is an episode"):
        Own("own_environments:corridor")
    assert Own("own_environments:corridor", 12).spec.horizon == 12


def test_groups_share_the_lanes():
    assert groups_of(range(5), 2) == [[0, 2, 4], [1, 3]]
    assert BEGUN & IDLE == 0
