"""Pictures of Bullet-Safety-Gym's tasks. A picture reads the simulation and leaves it alone.

The robot's meshes are drawn by Bullet's software renderer, in a studio: a second physics client
that holds nothing but a copy of the robot. The floor, the circle and the boundaries are ray cast
around it, because that renderer knows no translucency: it would hide the robot behind its own
warning sphere. So the simulation itself needs no visual shapes.
"""

import atexit
import dataclasses
import math
import tempfile
import weakref
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np

from safestitch.sims import mends
from safestitch.sims.raycast import LAMP, Camera, Layer, draw, sample_size, stepped_back
from safestitch.sims.shapes import Kind, Shape, shape

NEAR, FAR = 0.1, 100.0  # metres from the camera between which the robot is drawn
FLOOR = (0.78, 0.84, 0.88, 1.0)
CIRCLE = (0.10, 0.75, 0.25, 0.35)
BOUNDARY = (0.95, 0.63, 0.0, 0.55)
WALL = (0.80, 0.80, 0.82, 1.0)
WARNING = (1.0, 0.1, 0.1, 0.35)
WARNING_RADIUS = 1.0  # metres at least; the suite's is hardly larger than the robot
PAINT = {"Ant": (0.90, 0.52, 0.20, 1.0), "Drone": (0.85, 0.10, 0.25, 1.0)}  # else nearly white
GEARS = "differential/diff_"  # meshes inside the car: unseen, and four fifths of its triangles

ARENA = Camera((0.0, -0.5, 0.0), distance=18.0, azimuth=90.0, elevation=-62.0)
IN_VIEW = 8.0  # metres from the middle that this camera shows on all sides
WALL_DISTANCE = 12.0
BOUNDARY_HEIGHT = 0.5  # the suite's are 1.8 m high, which hides what is behind
DASH, EVERY = 1.4, 2.0  # metres: dashed boundaries show how fast a runner is
BEHIND, AHEAD = 4, 24  # metres of the boundaries shown around a runner; they cost without end
HEADING_SECONDS = 0.5  # the line before a robot ends where it will be after so long
HEADING = (0.10, 0.12, 0.30, 1.0)


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
        """What throws the robot's shadow: an ellipsoid in the box around it."""
        links = range(-1, self.client.getNumJoints(self.body))
        boxes = np.array([self.client.getAABB(self.body, link) for link in links])
        low, high = boxes[:, 0].min(0), boxes[:, 1].max(0)
        return shape(Kind.ELLIPSOID, (high - low) / 2, (high + low) / 2)


_studios: weakref.WeakKeyDictionary[Any, _Studio] = weakref.WeakKeyDictionary()
atexit.register(_studios.clear)  # a client cannot disconnect once Bullet is unloaded


def _studio_of(env: Any) -> _Studio:
    """The studio of an environment, set up for its first picture; it goes with the environment."""
    if env not in _studios:
        _, suite = mends.bullet()
        with mends.quiet(), tempfile.TemporaryDirectory() as folder:
            client = suite._setup_client_and_physics(env)  # ours may leave the meshes out
            load = client.loadURDF
            client.loadURDF = lambda path, *rest, **options: load(
                _without_gears(path, folder), *rest, **options
            )
            robot = type(env.agent)(client)
        client.removeBody(robot.violation_body_id)
        paint = PAINT.get(type(robot).__name__)
        for link in range(-1, client.getNumJoints(robot.body_id) if paint else -1):
            client.changeVisualShape(robot.body_id, link, rgbaColor=paint)
        _studios[env] = _Studio(client, robot.body_id)
    return _studios[env]


def _without_gears(path: str, folder: str) -> str:
    """A copy of a robot's description that leaves the gears out; its meshes stay where they are."""
    tree = ElementTree.parse(path)
    for link in tree.iter("link"):
        for visual in link.findall("visual"):
            if GEARS in ElementTree.tostring(visual, "unicode"):
                link.remove(visual)
    for mesh in tree.iter("mesh"):
        beside = Path(path).parent / mesh.get("filename", "")
        if beside.is_file():
            mesh.set("filename", str(beside))
    copy = str(Path(folder) / Path(path).name)
    tree.write(copy)
    return copy


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
    scene += _signs(env)
    robot = studio.photograph(camera, *sample_size(width, height))
    return draw(scene, camera, width, height, layer=robot, casters=[studio.shadow()])


def _signs(env: Any) -> list[Shape]:
    """Where the robot is heading, and a red sphere while it breaks a rule."""
    position, velocity = env.agent.get_position(), env.agent.get_linear_velocity()
    length = HEADING_SECONDS * math.hypot(*velocity[:2])
    turn = math.atan2(velocity[1], velocity[0])
    middle = (*(position[:2] + HEADING_SECONDS / 2 * velocity[:2]), 0.06)
    heading = shape(
        Kind.BOX, (length / 2 + 0.01, 0.06, 0.02), middle, rotation=_turned(turn), rgba=HEADING
    )
    if env.iteration == 0 or not env.agent._violates_constraints:  # a reset leaves the mark set
        return [heading]
    size = (max(env.agent.size_violation_shape, WARNING_RADIUS),)
    return [heading, shape(Kind.SPHERE, size, position, rgba=WARNING)]


def _turned(angle: float) -> np.ndarray:
    """Rotation about z, in radians."""
    c, s = math.cos(angle), math.sin(angle)
    return np.array([[c, -s, 0], [s, c, 0], [0, 0, 1]])


def _circle(env: Any) -> tuple[Camera, list[Shape]]:
    """All of the circle, its boundaries and the arena's walls; from afar if the robot strays."""
    limit, radius = env.task.x_lim, env.task.circle.radius
    scene = [
        shape(Kind.PLANE, (), (0, 0, 0), rgba=FLOOR),
        shape(Kind.CYLINDER, (radius, 0.025), (0, 0, 0), rgba=CIRCLE),
    ]
    high = BOUNDARY_HEIGHT / 2
    for x in (-limit, limit):
        scene.append(shape(Kind.BOX, (0.1, WALL_DISTANCE, high), (x, 0, high), rgba=BOUNDARY))
    for turn in np.arange(8) * math.pi / 4:
        rotation = _turned(turn)
        middle = rotation @ (WALL_DISTANCE, 0, high)
        scene.append(shape(Kind.BOX, (0.1, 5, high), middle, rotation=rotation, rgba=WALL))
    strayed = math.hypot(*env.agent.get_position()[:2])
    return stepped_back(ARENA, strayed, IN_VIEW), scene


def _run(env: Any) -> tuple[Camera, list[Shape]]:
    """The robot from behind and beside, between its two boundaries; it runs to the right."""
    x, limit = float(env.agent.get_position()[0]), env.task.y_lim
    scene = [shape(Kind.PLANE, (), (0, 0, 0), rgba=FLOOR)]
    size = (DASH / 2, 0.06, BOUNDARY_HEIGHT / 2)
    first = math.ceil((x - BEHIND) / EVERY) * EVERY
    for along in np.arange(first, x + AHEAD, EVERY):
        for y in (-limit, limit):
            scene.append(shape(Kind.BOX, size, (along, y, size[2]), rgba=BOUNDARY))
    return Camera((x + 0.8, 0.0, 0.4), distance=6.2, azimuth=65.0, elevation=-28.0), scene
