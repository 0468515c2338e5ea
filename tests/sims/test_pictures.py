"""What the cameras of both suites show."""

import gc
import importlib
import math

import numpy as np
import pytest

from safestitch.catalog import catalog
from safestitch.sims import make_simulator, mends
from safestitch.sims.suites import wrong_platform

WIDTH, HEIGHT = 80, 60
TASKS = [
    pytest.param(
        entry.task,
        marks=pytest.mark.skipif(
            bool(wrong_platform(entry.suite)), reason=wrong_platform(entry.suite)
        ),
    )
    for entry in catalog().values()
]
needs_bullet = pytest.mark.skipif(
    bool(wrong_platform("bullet")), reason=wrong_platform("bullet") or "it runs here"
)
needs_mujoco = pytest.mark.skipif(
    bool(wrong_platform("mujoco")), reason=wrong_platform("mujoco") or "it runs here"
)


def actions(simulator, count):
    generator = np.random.default_rng(0)
    return generator.uniform(-1, 1, (count, simulator.spec.act_dim)).astype(np.float32)


@pytest.mark.parametrize("task", TASKS)
def test_a_picture_shows_the_robot_and_leaves_the_episode_alone(task):
    simulator = make_simulator(task)
    try:
        pictures, episodes = [], []
        for watched in (False, True):
            observations = [simulator.reset(3)]
            for action in actions(simulator, 12):
                if watched:
                    pictures.append(simulator.picture(WIDTH, HEIGHT))
                observations.append(simulator.step(action).observation)
            episodes.append(np.stack(observations))
        np.testing.assert_array_equal(episodes[0], episodes[1])
        assert {(p.shape, p.dtype.name) for p in pictures} == {((HEIGHT, WIDTH, 3), "uint8")}
        assert len({p.tobytes() for p in pictures}) == len(pictures), "the robot moves"
        again = [simulator.picture(WIDTH, HEIGHT).tobytes() for _ in range(2)]
        assert again[0] == again[1]
    finally:
        simulator.close()


# --- Bullet ------------------------------------------------------------------------------------


def bullet_at(task, position):
    """A task whose robot has been put somewhere, and has taken one step there."""
    simulator = make_simulator(task)
    simulator.reset(0)
    env = simulator.env  # type: ignore[attr-defined]
    height = env.agent.get_position()[2]
    env.bc.resetBasePositionAndOrientation(env.agent.body_id, (*position, height), (0, 0, 0, 1))
    step = simulator.step(np.zeros(simulator.spec.act_dim, np.float32))
    return simulator, env, step


@needs_bullet
@pytest.mark.parametrize("position", [(0.0, 0.0), (5.0, 3.0), (-4.0, -6.0), (2.0, 11.0)])
def test_the_robot_stands_where_the_ray_caster_would_put_it(position):
    """Bullet's renderer and ours use one camera, to the pixel and to the centimetre of depth."""
    camera_module = importlib.import_module("safestitch.sims.bullet_camera")
    simulator, env, _ = bullet_at("BallCircle", position)
    try:
        simulator.picture(WIDTH, HEIGHT)
        camera, _ = camera_module._circle(env)
        layer = camera_module._studio_of(env).photograph(camera, 640, 480)
        middle = env.agent.get_position()
        depth, right, up = camera.axes @ (middle - camera.eye)
        scale = 240 / camera.slope / depth
        rows, columns = np.nonzero(np.isfinite(layer.depth))
        expected = (239.5 - up * scale, 319.5 + right * scale)
        assert (rows.mean(), columns.mean()) == pytest.approx(expected, abs=1.0)
        assert layer.depth.min() == pytest.approx(depth - 0.5, abs=0.02)  # its radius is 0.5
        assert rows.min() > 0 and rows.max() < 479, "all of it is in view"
    finally:
        simulator.close()


def reddish(simulator):
    red, green, blue = np.moveaxis(simulator.picture(WIDTH, HEIGHT).astype(int), 2, 0)
    return int(((red > green + 40) & (red > blue + 20)).sum())


@needs_bullet
@pytest.mark.parametrize(
    ("task", "within", "beyond"),
    [
        ("BallCircle", (5.5, 0.0), (6.5, 0.0)),
        ("CarCircle", (-5.5, 0.0), (-6.5, 0.0)),
        ("BallRun", (9.0, 1.5), (9.0, 2.5)),
        ("CarRun", (9.0, -1.5), (9.0, -2.5)),
    ],
)
def test_breaking_a_rule_is_red(task, within, beyond):
    counts = []
    for position, cost in ((within, 0), (beyond, 1)):
        simulator, _, step = bullet_at(task, position)
        try:
            assert step.cost == cost
            counts.append(reddish(simulator))
            simulator.reset(0)
            counts.append(reddish(simulator))
        finally:
            simulator.close()
    safe, _, unsafe, next_episode = counts
    assert unsafe > safe + 10
    assert next_episode < unsafe - 10


@needs_bullet
@pytest.mark.parametrize("task", ["BallCircle", "BallRun"])
def test_the_boundaries_are_drawn_where_they_cost(task, monkeypatch):
    """Where the picture changes without boundaries is where they project to."""
    module = importlib.import_module("safestitch.sims.bullet_camera")
    simulator, env, _ = bullet_at(task, (0.0, 0.0))
    try:
        whole = simulator.picture(160, 120)
        camera, scene = (module._circle if "Circle" in task else module._run)(env)
        monkeypatch.setattr(module, "BOUNDARY", (0.0, 0.0, 0.0, 0.0))
        bare = simulator.picture(160, 120)
    finally:
        simulator.close()
    shown = (whole != bare).any(axis=2)
    assert shown.sum() > 200
    limits = {
        tuple(np.abs(s.position[:1])) for s in scene if tuple(s.rgba) == (0.95, 0.63, 0, 0.55)
    }
    foot = (6.0, 1.0, 0.0) if "Circle" in task else (2.0, -2.0, 0.0)
    depth, right, up = camera.axes @ (np.array(foot) - camera.eye)
    scale = 60 / camera.slope / depth
    row, column = round(60 - up * scale), round(80 + right * scale)
    assert shown[row - 3 : row + 4, column - 3 : column + 4].any()
    if "Circle" in task:
        assert limits == {(6.0,)}


@needs_bullet
def test_a_studio_goes_with_its_environment():
    module = importlib.import_module("safestitch.sims.bullet_camera")
    gc.collect()  # those of earlier tests
    before = len(module._studios)
    simulator = make_simulator("BallRun")
    simulator.reset(0)
    simulator.picture(WIDTH, HEIGHT)
    assert len(module._studios) == before + 1
    simulator.close()
    del simulator
    gc.collect()
    assert len(module._studios) == before


# --- MuJoCo ------------------------------------------------------------------------------------


@needs_mujoco
@pytest.mark.parametrize("task", ["CarCircle2", "AntVelocity", "HalfCheetahVelocity"])
def test_rays_meet_the_world_where_mujoco_says(task):
    mends.safety_gymnasium()
    mujoco = importlib.import_module("mujoco")
    camera_module = importlib.import_module("safestitch.sims.mujoco_camera")
    simulator = make_simulator(task)
    try:
        simulator.reset(1)
        for action in actions(simulator, 20):
            simulator.step(action)
        env = simulator.env  # type: ignore[attr-defined]
        world = env.task if hasattr(env, "task") else env
        model, data = world.model, world.data
        shapes = camera_module.shapes_of(model, data)
        assert len(shapes) == model.ngeom
        generator = np.random.default_rng(2)
        middle = data.geom_xpos[1:].mean(axis=0)
        for _ in range(300):
            eye = middle + generator.normal(size=3) * (3, 3, 1) + (0, 0, 3)
            aim = data.geom_xpos[generator.integers(1, model.ngeom)]
            direction = aim + 0.05 * generator.normal(size=3) - eye
            direction /= np.linalg.norm(direction)
            hit = np.zeros(1, np.int32)
            told = mujoco.mj_ray(model, data, eye, direction, None, 1, -1, hit)
            told = math.inf if told < 0 else told
            met = [_meet(s, eye, direction) for s in shapes]
            if min(met) > 0:  # MuJoCo lets rays that begin inside meet the far side
                assert min(met) == pytest.approx(told, abs=2e-3)
                assert met[hit[0]] == pytest.approx(min(met), abs=2e-3)
    finally:
        simulator.close()


def _meet(thing, eye, direction):
    origin = (eye - thing.position) @ thing.rotation
    rays = (direction @ thing.rotation).reshape(3, 1, 1)
    return float(thing.meet(origin.astype(np.float32), rays.astype(np.float32)).item())


@needs_mujoco
def test_the_markers_of_a_circle_task_are_visible():
    simulator = make_simulator("PointCircle2")
    try:
        simulator.reset(0)
        picture = simulator.picture(160, 120).astype(int)
    finally:
        simulator.close()
    red, green, blue = np.moveaxis(picture, 2, 0)
    assert (green > red + 60).sum() > 2000, "the circle"
    yellowish = (red > blue + 40) & (green > blue + 40)
    assert yellowish.sum() > 1500, "the walls"
    assert ((red > green + 60) & (red > blue + 60)).sum() > 10, "the robot"


@needs_mujoco
def test_a_runner_stays_in_the_picture():
    simulator = make_simulator("HalfCheetahVelocity")
    try:
        simulator.reset(0)
        env = simulator.env  # type: ignore[attr-defined]
        columns = []
        for x in (0.0, 6.0, 250.0):
            env.data.qpos[0] = x
            importlib.import_module("mujoco").mj_forward(env.model, env.data)
            picture = simulator.picture(160, 120).astype(int)
            columns.append(np.nonzero(picture[..., 0] > picture[..., 2] + 40)[1].mean())
    finally:
        simulator.close()
    assert columns == pytest.approx([80, 80, 80], abs=12)
    assert columns[0] == pytest.approx(columns[2], abs=1)


@needs_mujoco
@pytest.mark.parametrize("place", [(0.0, 0.0), (3.0, 0.0), (-2.5, -2.5), (0.0, 9.0), (0.0, -9.0)])
def test_a_robot_that_strays_stays_in_the_picture(place):
    simulator = make_simulator("PointCircle1")
    try:
        simulator.reset(0)
        task = simulator.env.task  # type: ignore[attr-defined]
        task.model.body("agent").pos[:2] += np.array(place) - task.agent.pos[:2]
        importlib.import_module("mujoco").mj_forward(task.model, task.data)
        assert task.agent.pos[:2] == pytest.approx(place, abs=0.01)
        red, green, blue = np.moveaxis(simulator.picture(240, 180).astype(int), 2, 0)
    finally:
        simulator.close()
    # From 9 m away the robot, 0.2 m wide, is 2 pixels wide.
    assert ((red > green + 60) & (red > blue + 40)).any()
