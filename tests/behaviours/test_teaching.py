"""The ant and the swimmer that show learners the way."""

import dataclasses
import math

import jax.numpy as jnp
import numpy as np
import pytest

from safestitch.behaviours.actor import act
from safestitch.behaviours.snapshots import Moment
from safestitch.behaviours.teaching import LOOSENESS, ablest, heading, teacher_of, turned
from safestitch.catalog import get_entry
from safestitch.sims import make_simulator
from safestitch.sims.pool import Source
from safestitch.sims.suites import obstacle


def degrees(x: float, y: float, careful: bool = False) -> float:
    found = heading(jnp.array([[x, y]]), jnp.array([float(careful)]))
    return math.degrees(float(found[0]))


def test_on_the_circle_it_runs_clockwise():
    assert degrees(0.0, 7.0) == pytest.approx(0.0, abs=1e-4)
    assert degrees(7.0, 0.0) == pytest.approx(-90.0, abs=1e-4)
    assert abs(degrees(0.0, -7.0)) == pytest.approx(180.0, abs=1e-4)


def test_off_the_circle_it_runs_towards_it():
    # 0.4 per metre: one metre inside, tan = 0.4; far inside no more than 45 degrees
    assert degrees(0.0, 6.0) == pytest.approx(math.degrees(math.atan(0.4)), abs=1e-3)
    assert degrees(0.0, 8.0) == pytest.approx(-math.degrees(math.atan(0.4)), abs=1e-3)
    assert degrees(0.0, 1.0) == pytest.approx(45.0, abs=1e-3)


def test_a_careful_one_turns_before_the_bound():
    # at the bound, 1.2 m beyond the margin: (0.4, -1) by attraction, and 1.5 * 1.2 back
    assert degrees(6.0, 0.0) == pytest.approx(math.degrees(math.atan2(-1.0, 0.4)), abs=1e-3)
    expected = math.degrees(math.atan2(-1.0, 0.4 - 1.8))
    assert degrees(6.0, 0.0, careful=True) == pytest.approx(expected, abs=1e-3)
    assert degrees(4.5, 0.0, careful=True) == degrees(4.5, 0.0)


def test_a_turned_ant_sees_what_the_unturned_one_sees():
    rng = np.random.default_rng(0)
    angle, yaw = 0.7, 0.2
    seen = rng.normal(size=(1, 33)).astype(np.float32)
    seen[0, :2] = 0.0
    seen[0, 6:10] = (0.0, 0.0, math.sin(yaw / 2), math.cos(yaw / 2))
    world = seen.copy()
    c, s = math.cos(angle), math.sin(angle)
    for at in (3, 10):
        x, y = seen[0, at : at + 2]
        world[0, at : at + 2] = (c * x - s * y, s * x + c * y)
    world[0, :2] = (0.3, -0.4)  # where it is does not matter
    world[0, 6:10] = (0.0, 0.0, math.sin((yaw + angle) / 2), math.cos((yaw + angle) / 2))
    np.testing.assert_allclose(turned(jnp.asarray(world), jnp.array([angle])), seen, atol=1e-5)
    world[0, 6:10] *= -1.0
    np.testing.assert_allclose(turned(jnp.asarray(world), jnp.array([angle])), seen, atol=1e-5)


def test_others_begin_by_chance():
    teacher = teacher_of(Source(get_entry("AntRun").spec))
    actions = teacher(np.zeros((500, 33), "f"), np.zeros(500, "f"), np.random.default_rng(0))
    assert actions.shape == (500, 8)
    assert abs(actions.mean()) < 0.05
    assert 0.95 < actions.max() <= 1.0
    own = teacher_of(Source(get_entry("AntCircle").spec, "some.where:ant"))
    assert own(np.zeros((3, 34), "f"), np.zeros(3, "f"), np.random.default_rng(0)).shape == (3, 8)


def test_the_ablest_does_best_over_all_lambdas(fresh):
    # Horizon 12, largest reward 24. (r / 24 - lambda c / 12) / (1 + lambda), its mean:
    moments = [
        Moment(0, 1, (0.0, 1.0), (24.0, 24.0), (12.0, 12.0)),  # 1 and 0: 0.5
        Moment(0, 2, (0.0, 1.0), (24.0, 12.0), (12.0, 0.0)),  # 1 and 0.25: 0.625
        Moment(0, 3, (0.0, 1.0), (12.0, 12.0), (0.0, 0.0)),  # 0.5 and 0.25: 0.375
        Moment(0, 4, (), (), ()),
    ]
    behaviours = dataclasses.replace(fresh(count=4), moments=tuple(moments))
    assert ablest(behaviours) == 1
    assert ablest(fresh(count=3)) == 2  # nothing is known: the last


def test_behaviours_teach_with_some_of_their_noise(fresh):
    behaviours = fresh()
    source = Source(behaviours.spec, "own_environments:corridor")
    obs, lam = np.ones((5, 3), "f"), np.full(5, 2.0, "f")
    shown = teacher_of(source, behaviours)(obs, lam, np.random.default_rng(7))
    noise = np.random.default_rng(7).standard_normal((5, 1), np.float32)
    expected = act(behaviours[2], obs, lam, np.float32(LOOSENESS) * noise)
    np.testing.assert_allclose(shown, expected, rtol=1e-5)


def taught(task: str, lam: float, seeds: int) -> list[tuple[float, float, float]]:
    """Reward, cost and strongest action of episodes that the teacher plays on the simulator."""
    entry = get_entry(task)
    if reason := obstacle(entry.suite):
        pytest.skip(reason)
    environment, random = make_simulator(task), np.random.default_rng(0)
    teacher, weight, episodes = teacher_of(Source(entry.spec)), np.full(1, lam, "f"), []
    for seed in range(seeds):
        obs, sums, strongest, done = environment.reset(seed), np.zeros(2), 0.0, False
        while not done:
            action = teacher(np.asarray(obs, np.float32)[None], weight, random)[0]
            obs, reward, cost, terminated, truncated = environment.step(action)
            sums += (reward, cost)
            strongest = max(strongest, float(np.abs(action).max()))
            done = terminated or truncated
        episodes.append((float(sums[0]), float(sums[1]), strongest))
    environment.close()
    return episodes


def test_it_earns_on_the_simulator_and_within_bounds_if_careful():
    reckless, careful = (max(taught("AntCircle", lam, seeds=3)) for lam in (0.0, 1.0))
    assert reckless[0] > 100
    assert reckless[1] > 20
    assert careful[0] > 50
    assert careful[1] < 20


def test_the_swimmer_swims_weaker_where_the_cost_weighs():
    [strong], [weak] = (taught("SwimmerVelocity", lam, seeds=1) for lam in (0.0, 3.0))
    assert strong[0] > 300  # of random actions: about 0
    assert strong[2] <= 1.0
    assert 100 < weak[0] < 250
    assert weak[2] <= 0.25
