"""Environments of a user, good and bad; imported by name in worker processes."""

import os
from typing import Any

import gymnasium
import numpy as np


class Corridor(gymnasium.Env):
    """Walk right from a random start: reward is progress, going faster than 0.5 costs."""

    def __init__(self, fault: str = "", length: int = 12):
        self.fault, self.length = fault, length
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (3,))
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,))
        self.position = self.time = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed, options=options)
        self.position, self.time = self.np_random.uniform(-1, 1), 0
        return self._seen(), {}

    def step(self, action) -> Any:
        self.time += 1
        self.position += float(action[0])
        late = self.time == 3
        if self.fault == "raises" and late:
            raise RuntimeError("the motor is on fire")
        if self.fault == "dies" and late:
            os._exit(9)
        cost = float(abs(action[0]) > 0.5)
        cost = {"negative": -1.0, "nan cost": np.nan, "text": "much"}.get(self.fault, cost)
        reward = np.nan if self.fault == "nan reward" and late else float(action[0])
        info = {} if self.fault == "no cost" else {"cost": cost}
        ended = self.time >= self.length and self.fault != "endless"
        outcome = (self._seen(), reward, False, ended, info)
        return outcome[:4] if self.fault == "four values" else outcome

    def _seen(self):
        values = np.array([self.position, self.time / self.length, 1.0], np.float32)
        if self.fault == "nan" and self.time == 3:
            values[1] = np.nan
        return values[:2] if self.fault == "shape" and self.time == 3 else values

    def render(self):
        return np.full((20, 30, 3), 200, np.uint8)


class SixValues(Corridor):
    """The cost as Safety-Gymnasium returns it."""

    def step(self, action) -> Any:
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, reward, info.pop("cost"), terminated, truncated, info


class Wide(Corridor):
    def __init__(self):
        super().__init__()
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (4,))

    def _seen(self):
        return np.zeros(4, np.float32)


class Discrete(Corridor):
    def __init__(self):
        super().__init__()
        self.action_space = gymnasium.spaces.Discrete(3)


corridor, six_values, wide, discrete = Corridor, SixValues, Wide, Discrete


def broken():
    raise OSError("no licence found")


def _faulty(fault: str):
    return lambda: Corridor(fault)


raises, dies, endless = _faulty("raises"), _faulty("dies"), _faulty("endless")
negative, nan_cost, text = _faulty("negative"), _faulty("nan cost"), _faulty("text")
nan_reward, nan, shape = _faulty("nan reward"), _faulty("nan"), _faulty("shape")
no_cost, four_values = _faulty("no cost"), _faulty("four values")
gymnasium.register("Corridor-v0", lambda **_: Corridor(), max_episode_steps=12)
