"""Environments with a known optimum, imported by name in worker processes."""

import gymnasium
import numpy as np


class Hallway(gymnasium.Env):
    """Reward is the action, 2 a unit; going faster than 0.5 costs 1. Twelve steps, or fewer.

    Without regard to cost 1 is best: reward 24, cost 12. Without cost 0.5 is: reward 12.
    """

    def __init__(self, ends_at: int = 0):
        self.ends_at = ends_at
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,))
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,))
        self.time = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed, options=options)
        self.time, self.place = 0, self.np_random.uniform(-1, 1)
        return self._seen(), {}

    def step(self, action):
        self.time += 1
        speed = float(action[0])
        info = {"cost": float(speed > 0.5)}
        terminated = self.time == self.ends_at
        return self._seen(), 2.0 * speed, terminated, self.time >= 12, info

    def _seen(self):
        return np.array([self.place, self.time], np.float32)


hallway = Hallway


def cliff():
    """The task ends it after five steps."""
    return Hallway(5)
