"""Pictures of Bullet-Safety-Gym's tasks. A picture reads the simulation and leaves it alone.

The robot's meshes are drawn by Bullet's software renderer, in a studio: a second physics client that
holds nothing but a copy of the robot. The floor, the circle and the boundaries are ray cast around
it, because that renderer knows no translucency: it would hide the robot behind its own warning
sphere. So the simulation itself needs no visual shapes.
"""

import dataclasses
import math
import weakref
from typing import Any

import numpy as np

from safestitch.sims.raycast import LAMP, Camera, Layer, draw, sample_size
from safestitch.sims.shapes import Kind, Shape, shape

NEAR, FAR = 0.1, 100.0  # metres from the camera between which the robot is drawn
FLOOR = (0.78, 0.84, 0.88, 1.0)
CIRCLE = (0.10, 0.75, 0.25, 0.35)
BOUNDARY = (0.95, 0.63, 0.0, 0.55)
WALL = (0.80, 0.80, 0.82, 1.0)
WARNING = (1.0, 0.1, 0.1, 0.35)
PAINT = {"Ant": (0.90, 0.52, 0.20, 1.0)}  # white in the suite, as pale as the floor

ARENA = Camera((0.0, -0.6, 0.0), distance=19.5, azimuth=90, elevation=-60)
BOUNDARY_HALF = (0.05, 11.0, 0.25)  # the suite's are 1.8 m high, which hides what is behind
RUN_SHOWN = 60.0  # metres of the boundaries to either side of the robot; they cost without end


@dataclasses.dataclass(frozen=True)
class _Studio:
    """A physics client with one robot in it, posed for each picture."""

    client: Any
    body: int

    def pose_as(self, env: Any) -> None:
        """Take the pose of the simulation's robot."""
        original = env.agent.body_id
        pose = env.bc.getBasePositionAndOrientation(original)
        self.client.resetBasePositionAndOrientation(self.body, *pose)
        for joint in range(env.bc.getNumJoints(original)):
            angle = env.bc.getJointState(original, joint)[0]
            self.client.resetJointState(self.body, joint, angle)

    def photograph(self, camera: Camera, width: int, height: int) -> Layer:
        """The robot alone."""
        client = self.client
        eye, up = camera.eye.tolist(), camera.axes[2].tolist()
        view = client.computeViewMatrix(eye, list(camera.look_at), up)
        lens = client.computeProjectionMatrixFOV(camera.field_of_view, width / height, NEAR, FAR)
        _, _, rgba, buffer, owners = client.getCameraImage(
            width,
            height,
            view,
            lens,
            lightDirection=LAMP.tolist(),
            shadow=0,
            renderer=client.ER_TINY_RENDERER,
        )
        buffer = np.reshape(buffer, (height, width))
        depth = FAR * NEAR / (FAR - (FAR - NEAR) * buffer)
        depth[np.reshape(owners, (height, width)) < 0] = np.inf
        rgb = np.reshape(rgba, (height, width, 4))[..., :3]
        return Layer(np.moveaxis(rgb, 2, 0).astype(np.float32) / 255, depth)

    def shadow(self) -> Shape:
        """What throws the robot's shadow: an ellipsoid as large as it is."""
        links = range(-1, self.client.getNumJoints(self.body))
        boxes = np.array([self.client.getAABB(self.body, link) for link in links])
        low, high = boxes[:, 0].min(0), boxes[:, 1].max(0)
        return shape(Kind.ELLIPSOID, (high - low) / 2, (high + low) / 2)


_studios: weakref.WeakKeyDictionary[Any, _Studio] = weakref.WeakKeyDictionary()


def _studio_of(env: Any) -> _Studio:
    """The studio of an environment, set up for its first picture; it goes with the environment."""
    if env not in _studios:
        suite = next(c for c in type(env).__mro__ if c.__name__ == "EnvironmentBuilder")
        client = suite._setup_client_and_physics(env)  # a subclass may leave meshes out
        robot = type(env.agent)(client)
        client.removeBody(robot.violation_body_id)
        for link in range(-1, client.getNumJoints(robot.body_id)):
            if type(robot).__name__ in PAINT:
                client.changeVisualShape(
                    robot.body_id, link, rgbaColor=PAINT[type(robot).__name__]
                )
        _studios[env] = _Studio(client, robot.body_id)
    return _studios[env]


def picture(env: Any, width: int, height: int) -> np.ndarray:
    """The task as it stands, (height, width, 3) of bytes; red while the robot breaks a rule.

    Args:
        env: An environment of the suite, wrapped or not.
        width: In pixels.
        height: In pixels.
    """
    env = env.unwrapped
    studio = _studio_of(env)
    studio.pose_as(env)
    camera, scene = _circle(env) if hasattr(env.task, "circle") else _run(env)
    if env.agent._violates_constraints:
        size = (env.agent.size_violation_shape,)
        scene.append(shape(Kind.SPHERE, size, env.agent.get_position(), rgba=WARNING))
    robot = studio.photograph(camera, *sample_size(width, height))
    return draw(scene, camera, width, height, layer=robot, casters=[studio.shadow()])


def _circle(env: Any) -> tuple[Camera, list[Shape]]:
    """All of the circle, its two boundaries and the walls of the arena."""
    limit, radius = env.task.x_lim, env.task.circle.radius
    scene = [
        shape(Kind.PLANE, (), (0, 0, 0), rgba=FLOOR),
        shape(Kind.CYLINDER, (radius, 0.025), (0, 0, 0), rgba=CIRCLE),
    ]
    for x in (-limit, limit):
        scene.append(shape(Kind.BOX, BOUNDARY_HALF, (x, 0, BOUNDARY_HALF[2]), rgba=BOUNDARY))
    for turn in np.arange(8) * math.pi / 4:
        c, s = math.cos(turn), math.sin(turn)
        rotation = ((c, -s, 0), (s, c, 0), (0, 0, 1))
        middle = (12 * c, 12 * s, 0.5)
        scene.append(shape(Kind.BOX, (0.1, 5, 0.5), middle, rotation=rotation, rgba=WALL))
    return ARENA, scene


def _run(env: Any) -> tuple[Camera, list[Shape]]:
    """The robot from behind and beside, between its two boundaries; it runs to the right."""
    x, limit = float(env.agent.get_position()[0]), env.task.y_lim
    scene = [shape(Kind.PLANE, (), (0, 0, 0), rgba=FLOOR)]
    thickness, _, height = BOUNDARY_HALF
    for y in (-limit, limit):
        size, middle = (RUN_SHOWN, thickness, height), (x, y, height)
        scene.append(shape(Kind.BOX, size, middle, rgba=BOUNDARY))
    return Camera((x + 0.8, 0.0, 0.4), distance=6.2, azimuth=65, elevation=-28), scene
