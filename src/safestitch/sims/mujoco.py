"""Safety-Gymnasium: Point and Car in Circle 1 and 2, and the five Velocity tasks."""

import math

import numpy as np
from jaxtyping import Float, UInt8

from safestitch.catalog import Entry
from safestitch.sims import mends
from safestitch.sims.base import Step, check_spaces


class Mujoco:
    """One task of the suite; `reset(seed)` is the suite's own, on a world as new."""

    def __init__(self, entry: Entry):
        self.spec = entry.spec
        package = mends.safety_gymnasium()
        with mends.quiet():
            self.env = package.make(entry.env_id, disable_env_checker=True).unwrapped
        check_spaces(entry.task, self.env, self.spec)
        self.navigates = hasattr(self.env, "task")
        """Circle tasks are built by the suite; Velocity tasks are gymnasium's robots."""
        self._steps = 0
        self._info: dict = {}

    def reset(self, seed: int) -> Float[np.ndarray, " o"]:
        """Begin the episode that a new environment begins with `reset(seed=seed)`."""
        self._steps, self._info = 0, {}
        if not self.navigates:
            return self.env.reset(seed=seed)[0]
        self.env.task.world = None  # a world used before differs from a new one in the last bits
        with mends.without_sky():
            return self.env.reset(seed=seed)[0]

    def step(self, action: Float[np.ndarray, " a"]) -> Step:
        """Take one action."""
        self._steps += 1
        observation, reward, cost, terminated, truncated, info = self.env.step(action)
        self._info = info
        truncated = truncated or self._steps >= self.spec.horizon
        return Step(observation, reward, cost, terminated, truncated)

    def position(self) -> tuple[float, float]:
        """Circle: x and y in metres. Velocity: the step and the speed in m/s, which costs."""
        if self.navigates:
            x, y = self.env.task.agent.pos[:2]
            return float(x), float(y)
        speed = math.hypot(self._info.get("x_velocity", 0.0), self._info.get("y_velocity", 0.0))
        return float(self._steps), speed

    def picture(self, width: int, height: int) -> UInt8[np.ndarray, "h w 3"]:
        """The robot and its world, by ray casting: no display, no graphics library."""
        from safestitch.sims import mujoco_camera  # noqa: PLC0415 (only pictures need it)

        return mujoco_camera.picture(self.env, width, height)

    def close(self) -> None:
        """Free the model."""
        self.env.close()
