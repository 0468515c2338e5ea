"""Every simulated task: what it looks like, and that the adapters change no number."""

import functools
import importlib
from collections.abc import Iterator

import numpy as np
import pytest

from safestitch.catalog import Entry, catalog
from safestitch.records import SafestitchError
from safestitch.sims import Simulator, make_simulator, mends
from safestitch.sims.suites import SUITES, obstacle

pytestmark = pytest.mark.usefixtures("as_installed")


def tasks(suite: str) -> list:
    """The tasks of a suite; skipped only where its engine has no wheels."""
    marks = [pytest.mark.skipif(bool(obstacle(suite)), reason=obstacle(suite))]
    return [
        pytest.param(entry, id=entry.task, marks=marks)
        for entry in catalog().values()
        if entry.suite == suite
    ]


every_task = pytest.mark.parametrize("entry", [*tasks("bullet"), *tasks("mujoco")])


@pytest.fixture(scope="module")
def simulators() -> Iterator[dict[str, Simulator]]:
    """Each task's simulator, made once and used again and again."""
    made: dict[str, Simulator] = {}
    yield made
    for simulator in made.values():
        simulator.close()


def simulator_of(made: dict[str, Simulator], entry: Entry) -> Simulator:
    if entry.task not in made:
        made[entry.task] = make_simulator(entry.task)
    return made[entry.task]


@functools.cache
def actions(entry: Entry, seed: int) -> np.ndarray:
    drawn = np.random.default_rng(seed).uniform(-1, 1, (entry.horizon, entry.act_dim))
    return drawn.astype(np.float32)


def played(simulator: Simulator, entry: Entry, seed: int, steps: int | None = None) -> list:
    """Everything an episode brings, as numbers."""
    rows: list = [simulator.reset(seed).tolist()]
    for action in actions(entry, seed)[:steps]:
        step = simulator.step(action)
        rows.append([*step.observation.tolist(), float(step.reward), float(step.cost)])
        if step.terminated or step.truncated:
            rows.append([bool(step.terminated), bool(step.truncated)])
            break
    return rows


def original(entry: Entry, seed: int) -> list:
    """The same episode by the package itself, in a new environment, with all its wrappers."""
    if entry.suite == "bullet":
        gymnasium, _ = mends.bullet()
        with mends.quiet():
            env = gymnasium.make(entry.env_id)
            np.random.seed(seed)  # noqa: NPY002 (what the package draws from)
            rows = [env.reset()[0].tolist()]
    else:
        with mends.quiet():
            env = mends.safety_gymnasium().make(entry.env_id)
            rows = [env.reset(seed=seed)[0].tolist()]
    for action in actions(entry, seed):
        with mends.quiet():
            outcome = env.step(action)
        observation, reward, *cost, terminated, truncated, info = outcome
        spent = cost[0] if cost else info["cost"]
        rows.append([*observation.tolist(), float(reward), float(spent)])
        if terminated or truncated:
            rows.append([bool(terminated), bool(truncated)])
            break
    env.close()
    return rows


# Facts of the public data sets, written down here a second time on purpose.
FACTS = {
    "AntRun": (33, 8, 200),
    "BallRun": (7, 2, 100),
    "CarRun": (7, 2, 200),
    "DroneRun": (17, 4, 200),
    "AntCircle": (34, 8, 500),
    "BallCircle": (8, 2, 200),
    "CarCircle": (8, 2, 300),
    "DroneCircle": (18, 4, 300),
    "PointCircle1": (28, 2, 500),
    "PointCircle2": (28, 2, 500),
    "CarCircle1": (40, 2, 500),
    "CarCircle2": (40, 2, 500),
    "HopperVelocity": (11, 3, 1000),
    "HalfCheetahVelocity": (17, 6, 1000),
    "SwimmerVelocity": (8, 2, 1000),
    "Walker2dVelocity": (17, 6, 1000),
    "AntVelocity": (27, 8, 1000),
}


@every_task
def test_dimensions_horizon_and_action_range(simulators, entry):
    simulator = simulator_of(simulators, entry)
    spec = simulator.spec
    assert (spec.obs_dim, spec.act_dim, spec.horizon) == FACTS[entry.task]
    assert simulator.reset(0).shape == (spec.obs_dim,)
    environment = simulator.env  # type: ignore[attr-defined]  # both adapters have one
    assert environment.observation_space.shape == (spec.obs_dim,)
    assert (environment.action_space.low == -1).all()
    assert (environment.action_space.high == 1).all()
    registered = importlib.import_module("gymnasium").spec(entry.env_id)
    assert registered.max_episode_steps == spec.horizon


@every_task
@pytest.mark.parametrize("seed", [0, 7, 4_000_000_000])
def test_bit_equal_to_the_original_package(simulators, entry, seed):
    simulator = simulator_of(simulators, entry)
    played(simulator, entry, 11, steps=20)  # what ran before must not matter
    found, expected = played(simulator, entry, seed), original(entry, seed)
    assert len(found) == len(expected)
    assert found == expected


@every_task
def test_the_same_seed_gives_the_same_episode_whatever_ran_before(simulators, entry):
    simulator = simulator_of(simulators, entry)
    first = played(simulator, entry, 3, steps=60)
    for disturbance in (5, 3, 8):
        played(simulator, entry, disturbance, steps=13 * disturbance)
        assert played(simulator, entry, 3, steps=60) == first
    assert played(simulator, entry, 4, steps=60) != first


@every_task
def test_two_simulators_do_not_disturb_each_other(simulators, entry):
    one, other = simulator_of(simulators, entry), make_simulator(entry.task)
    alone = played(one, entry, 3, steps=30)
    together = [one.reset(3).tolist()]
    other.reset(9)
    for mine, theirs in zip(actions(entry, 3)[:30], actions(entry, 9)[:30], strict=True):
        step = one.step(mine)
        together.append([*step.observation.tolist(), float(step.reward), float(step.cost)])
        if step.terminated:
            together.append([True, bool(step.truncated)])
            break
        if other.step(theirs).terminated:
            other.reset(9)
    other.close()
    assert together == alone


@every_task
def test_numpys_global_generator_is_left_alone(simulators, entry):
    np.random.seed(123)  # noqa: NPY002
    expected = np.random.random(3).tolist()  # noqa: NPY002
    np.random.seed(123)  # noqa: NPY002
    played(simulator_of(simulators, entry), entry, 1, steps=25)
    assert np.random.random(3).tolist() == expected  # noqa: NPY002


@every_task
def test_an_episode_ends_at_the_horizon(simulators, entry):
    simulator = simulator_of(simulators, entry)
    simulator.reset(2)
    still = np.zeros(entry.act_dim, np.float32)
    for step in range(1, entry.horizon + 1):
        outcome = simulator.step(still)
        if outcome.terminated:
            return  # it fell
        assert outcome.truncated == (step == entry.horizon)


@every_task
def test_position_and_cost(simulators, entry):
    simulator = simulator_of(simulators, entry)
    simulator.reset(0)
    costs = set()
    for action in actions(entry, 0):
        step = simulator.step(action)
        costs.add(float(step.cost))
        if step.terminated:
            break
    assert costs <= {0.0, 1.0}
    assert np.isfinite(simulator.position()).all()


@pytest.mark.parametrize("suite", SUITES)
def test_importing_a_suite_prints_nothing(suite, capfd):
    if obstacle(suite):
        pytest.skip(obstacle(suite))
    mends.bullet.cache_clear() if suite == "bullet" else mends.safety_gymnasium.cache_clear()
    make_simulator(next(e.task for e in catalog().values() if e.suite == suite)).close()
    assert capfd.readouterr() == ("", "")


def test_unknown_task():
    with pytest.raises(SafestitchError, match="CarCircle"):
        make_simulator("CarCirle")


def test_a_missing_suite_is_named_with_the_command_that_installs_it(monkeypatch):
    monkeypatch.setattr("safestitch.sims.suites._installed", lambda name: name != "pybullet")
    monkeypatch.setattr("sys.version_info", (3, 11, 7))
    monkeypatch.setattr("sys.platform", "linux")
    with pytest.raises(SafestitchError, match=r"missing pybullet.*make setup-sims.*\[bullet\]"):
        make_simulator("CarCircle")


@pytest.mark.parametrize(
    ("version", "platform", "reason"),
    [((3, 12, 1), "linux", "up to Python 3.11, this is 3.12"), ((3, 11, 1), "win32", "not win32")],
)
def test_a_platform_without_wheels_is_told(monkeypatch, version, platform, reason):
    monkeypatch.setattr("safestitch.sims.suites._installed", lambda _: False)
    monkeypatch.setattr("sys.version_info", version)
    monkeypatch.setattr("sys.platform", platform)
    with pytest.raises(SafestitchError, match=reason):
        make_simulator("BallRun")
