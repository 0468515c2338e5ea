"""Safety-Gymnasium: Point and Car in Circle 1 and 2, and the five Velocity tasks.

The suite builds and resets its worlds; the steps are taken here, with the same calls of the engine
and the same arithmetic in the same order, so that every bit is equal, without looking bodies and
sensors up by name, checking spaces and filling dictionaries at each step.
"""

import math
from typing import Any

import numpy as np
from jaxtyping import Float, UInt8

from safestitch.catalog import Entry
from safestitch.sims import mends
from safestitch.sims.base import Step, check_spaces


class Mujoco:
    """What the tasks of the suite have in common."""

    def __init__(self, entry: Entry):
        self.spec = entry.spec
        package = mends.safety_gymnasium()
        self.engine = mends.mujoco()
        with mends.quiet():
            self.env: Any = package.make(entry.env_id, disable_env_checker=True).unwrapped
        check_spaces(entry.task, self.env, self.spec)
        self._steps = 0

    def picture(self, width: int, height: int) -> UInt8[np.ndarray, "h w 3"]:
        """The robot and its world, by ray casting: no display, no graphics library."""
        from safestitch.sims import mujoco_camera  # noqa: PLC0415 (only pictures need it)

        return mujoco_camera.picture(self.env, width, height)

    def close(self) -> None:
        """Free the model."""
        self.env.close()


class Velocity(Mujoco):
    """A robot of gymnasium that earns by running forward, and pays while it runs too fast."""

    def __init__(self, entry: Entry):
        super().__init__(entry)
        env = self.env
        self.model, self.data = _first_model(entry.task, env.model), env.data
        self.angles, self.speeds = env.data.qpos, env.data.qvel  # they stay where they are
        self.robot = entry.task.removesuffix("Velocity")
        self.dt = float(env.dt)
        on_plane = self.robot in {"Ant", "Swimmer"}
        self.torso = env.data.xpos[env.model.body("torso").id] if self.robot == "Ant" else None
        self.hidden = 2 if on_plane else 1
        """Coordinates of the place, which are not observed."""
        self.clips_speeds = self.robot in {"Hopper", "Walker2d"}
        self.can_fall = self.robot in {"Ant", "Hopper", "Walker2d"}
        self._velocity = (0.0, 0.0)

    def reset(self, seed: int) -> Float[np.ndarray, " o"]:
        """Begin the episode that a new environment begins with `reset(seed=seed)`."""
        self._steps, self._velocity = 0, (0.0, 0.0)
        return self.env.reset(seed=seed)[0]

    def step(self, action: Float[np.ndarray, " a"]) -> Step:
        """Take one action."""
        env, data = self.env, self.data
        self._steps += 1
        place = self.angles if self.torso is None else self.torso
        x, y = place[:2].tolist()
        data.ctrl[:] = action
        self.engine.mj_step(self.model, data, env.frame_skip)
        x_after, y_after = place[:2].tolist()
        along, across = (x_after - x) / self.dt, (y_after - y) / self.dt
        self._velocity = (along, across)
        healthy = self._healthy()
        reward = along + env._healthy_reward if self.can_fall else along
        reward -= float(env._ctrl_cost_weight * np.square(action).sum())
        speed = math.sqrt(along**2 + across**2) if self.robot == "Ant" else along
        cost = float(speed > env._velocity_threshold)
        truncated = self._steps >= self.spec.horizon
        return Step(self._observation(), reward, cost, not healthy, truncated)

    def _healthy(self) -> bool:
        """Whether the robot has not fallen."""
        env, angles = self.env, self.angles
        if not self.can_fall:
            return True
        low, high = env._healthy_z_range
        if self.robot == "Ant":
            finite = math.isfinite(angles.sum()) and math.isfinite(self.speeds.sum())
            return finite and low <= float(angles[2]) <= high
        tilt_low, tilt_high = env._healthy_angle_range
        upright = low < angles[1] < high and tilt_low < angles[2] < tilt_high
        if self.robot == "Walker2d" or not upright:
            return bool(upright)
        low, high = env._healthy_state_range
        return bool(
            low < angles[2:].min()
            and angles[2:].max() < high
            and low < self.speeds.min()
            and self.speeds.max() < high
        )

    def _observation(self) -> Float[np.ndarray, " o"]:
        speeds = self.speeds
        if self.clips_speeds:
            speeds = np.minimum(np.maximum(speeds, -10.0), 10.0)
        return np.concatenate((self.angles[self.hidden :], speeds))

    def position(self) -> tuple[float, float]:
        """The step, and the speed in m/s, which costs."""
        return float(self._steps), math.hypot(*self._velocity)


_models: dict[str, Any] = {}


def _first_model(task: str, model: Any) -> Any:
    """One model for all simulators of a task in this process: it stays in the cache.

    A Velocity task never changes its model, and all of them are equal.
    """
    return _models.setdefault(task, model)


class Circle(Mujoco):
    """A Point or a Car that earns by going round, and pays while it is outside two or four walls.

    The world is compiled anew for each episode: one used before differs in the last bits.
    """

    def reset(self, seed: int) -> Float[np.ndarray, " o"]:
        """Begin the episode that a new environment begins with `reset(seed=seed)`."""
        self._steps = 0
        self.env.task.world = None
        with mends.without_sky():
            observation = self.env.reset(seed=seed)[0]
        self._look_up()
        return observation

    def _look_up(self) -> None:
        """Where the new world keeps what a step needs."""
        task, model, data = self.env.task, self.env.task.model, self.env.task.data
        self.task, self.model, self.data = task, model, data
        self.body = model.body("agent").id
        self.place, self.turn = data.xpos[self.body], data.xmat[self.body].reshape(3, 3)
        self.speeds, self.readings = data.qvel, data.sensordata
        self.jacobian = np.zeros((3, model.nv))
        self.low, self.high = model.actuator_ctrlrange.T.copy()
        self.parts = [(name, self._address(name)) for name in task.obs_info.obs_space_dict.spaces]

    def _address(self, name: str) -> slice:
        if name.endswith("_lidar"):
            return slice(0, 0)
        sensor = self.model.sensor(name).id
        start = int(self.model.sensor_adr[sensor])
        return slice(start, start + int(self.model.sensor_dim[sensor]))

    def step(self, action: Float[np.ndarray, " a"]) -> Step:
        """Take one action."""
        self._steps += 1
        model, data, forward = self.model, self.data, self.engine.mj_forward
        data.ctrl[:] = np.minimum(np.maximum(action, self.low), self.high)
        self.engine.mj_step(model, data, self.task.sim_conf.frameskip_binom_n)
        forward(model, data)
        reward = self._reward()
        forward(model, data)  # again and again, as the suite does: each starts from the one before
        cost = self._cost()
        forward(model, data)
        truncated = self._steps >= self.spec.horizon
        return Step(self._observation(), reward, cost, False, truncated)

    def _reward(self) -> float:
        """Speed round the circle, less the farther from its line."""
        x, y, _ = self.place.tolist()
        self.engine.mj_jacBody(self.model, self.data, self.jacobian, None, self.body)
        u, v, _ = np.dot(self.jacobian, self.speeds).tolist()
        radius = math.sqrt(x**2 + y**2)
        gain = ((-u * y + v * x) / radius) / (1 + abs(radius - self.task.circle.radius))
        gain *= self.task.reward_factor
        clip = self.task.reward_conf.reward_clip
        return min(max(gain, -clip), clip)

    def _cost(self) -> float:
        """1 outside the walls."""
        x, y, _ = self.place.tolist()
        walls = self.task.sigwalls
        outside = abs(x) > walls.locate_factor
        return float(outside or (walls.num == 4 and abs(y) > walls.locate_factor))

    def _observation(self) -> Float[np.ndarray, " o"]:
        parts = []
        for name, address in self.parts:
            if name.endswith("_lidar"):
                parts.append(self._lidar())
            elif name.startswith("ballquat"):
                parts.append(self._rotation(self.readings[address]))
            else:
                parts.append(self.readings[address])
        return np.concatenate(parts)

    def _rotation(self, quaternion: Float[np.ndarray, "4"]) -> Float[np.ndarray, "9"]:
        matrix = np.zeros(9)
        self.engine.mju_quat2Mat(matrix, quaternion)
        return matrix

    def _lidar(self) -> Float[np.ndarray, " bins"]:
        """Nearness of the middle of the circle, in the sector where it is and the two beside."""
        conf = self.task.lidar_conf
        right, ahead = np.matmul(0 - self.place, self.turn)[:2].tolist()
        angle = float(np.arctan2(ahead, right)) % (np.pi * 2)
        distance = float(np.abs(complex(right, ahead)))  # in the last bit, abs differs
        nearness = max(0, conf.max_dist - distance) / conf.max_dist
        width = (np.pi * 2) / conf.num_bins
        sector = int(angle / width)
        share = (angle - width * sector) / width
        seen = np.zeros(conf.num_bins)
        seen[sector] = nearness
        seen[(sector + 1) % conf.num_bins] = share * nearness
        seen[(sector - 1) % conf.num_bins] = (1 - share) * nearness
        return seen

    def position(self) -> tuple[float, float]:
        """X and y in metres."""
        x, y = self.env.task.agent.pos[:2]
        return float(x), float(y)
