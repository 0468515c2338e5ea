"""Pictures of Safety-Gymnasium's tasks. A picture reads the simulation and leaves it alone."""

import math
from typing import Any

import numpy as np

from safestitch.sims.raycast import Camera, draw, stepped_back
from safestitch.sims.shapes import Kind, Shape, shape

FAINTEST = 0.35  # opacity; the suite's markers have 0.1, which is hard to see
PLAIN = (0.5, 0.5, 0.5, 1.0)  # the colour of a MuJoCo geom that has none of its own
FLOOR = (0.78, 0.84, 0.88, 1.0)

ARENA = Camera((0.0, -0.1, 0.0), distance=4.3, azimuth=90.0, elevation=-60.0)
IN_VIEW = 1.6  # metres from the middle that this camera shows on all sides
# How a robot is followed: height looked at, distance, elevation. All run along x, to the right.
FOLLOW = {
    "Hopper": (0.75, 3.2, -12.0),
    "Walker2d": (0.75, 3.2, -12.0),
    "HalfCheetah": (0.5, 3.4, -14.0),
    "Ant": (0.4, 4.6, -28.0),
    "Swimmer": (0.0, 5.6, -50.0),
}
FOLLOW_ANY = (0.5, 4.0, -20.0)


def picture(env: Any, width: int, height: int) -> np.ndarray:
    """The task as it stands, (height, width, 3) of bytes.

    Args:
        env: An environment of the suite, wrapped or not.
        width: In pixels.
        height: In pixels.
    """
    bare = env.unwrapped
    arena = getattr(bare, "task", None)  # the Circle tasks keep the simulation there
    if arena is None:
        return draw(shapes_of(bare.model, bare.data), _following(bare), width, height)
    camera = stepped_back(ARENA, math.hypot(*arena.agent.pos[:2]), IN_VIEW)
    return draw(shapes_of(arena.model, arena.data), camera, width, height)


def _following(bare: Any) -> Camera:
    robot = type(bare).__name__.removeprefix("Safety").removesuffix("VelocityEnv")
    look_at, distance, elevation = FOLLOW.get(robot, FOLLOW_ANY)
    x, y, _ = bare.data.body("torso").xpos
    return Camera((float(x), float(y), look_at), distance, azimuth=90.0, elevation=elevation)


def shapes_of(model: Any, data: Any) -> list[Shape]:
    """Every geom of a model where it is now; a mesh as the box around it."""
    drawn = {Kind.MESH: Kind.BOX}
    return [
        shape(
            drawn.get(kind, kind),
            model.geom_size[index],
            data.geom_xpos[index],
            rotation=data.geom_xmat[index],
            rgba=_colour(model, index),
        )
        for index, kind in enumerate(map(Kind, model.geom_type))
        if kind != Kind.HEIGHT_FIELD
    ]


def _colour(model: Any, index: int) -> np.ndarray:
    """A geom's own colour, else that of its material; markers made visible."""
    if model.geom_type[index] == Kind.PLANE:
        return np.array(FLOOR)
    rgba, material = model.geom_rgba[index].astype(float), model.geom_matid[index]
    if material >= 0 and np.allclose(rgba, PLAIN):
        rgba = model.mat_rgba[material].astype(float)
    if 0 < rgba[3] < FAINTEST:
        rgba[3] = FAINTEST
    return rgba
