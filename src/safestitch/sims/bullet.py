"""Bullet-Safety-Gym: Ant, Ball, Car and Drone, each in Run and Circle."""

import functools

import numpy as np
from jaxtyping import Float, UInt8

from safestitch.catalog import Entry
from safestitch.sims import mends
from safestitch.sims.base import Step, check_spaces


class Bullet:
    """One task of the suite.

    The suite ignores `reset(seed=)`: its randomness is numpy's global generator, and what the last
    episode left in the motors reaches into the next one. Here the generator is seeded for each
    reset and put back, and the physics begins each episode in the state of a new environment.
    """

    def __init__(self, entry: Entry):
        self.spec = entry.spec
        gymnasium, _ = mends.bullet()
        with mends.quiet():
            self.env = _environment_class()(**gymnasium.spec(entry.env_id).kwargs)
        check_spaces(entry.task, self.env, self.spec)
        mends.remember_states(self.env)
        mends.leave_window_alone(self.env)
        self._new = self.env.bc.saveState()
        self._start = np.array(self.env.agent.init_xyz)
        self._steps = 0

    def reset(self, seed: int) -> Float[np.ndarray, " o"]:
        """Begin the episode that a new environment begins after `np.random.seed(seed)`."""
        self._renew()
        self._steps = 0
        outside = np.random.get_state()  # noqa: NPY002 (the suite draws from it)
        np.random.seed(seed)  # noqa: NPY002
        try:
            return self.env.reset()[0]
        finally:
            np.random.set_state(outside)  # noqa: NPY002

    def _renew(self) -> None:
        """Undo what episodes leave behind: body states, the saved start, motor targets."""
        env, agent = self.env, self.env.agent
        env.bc.restoreState(self._new)
        if env.stored_state_id >= 0:
            env.bc.removeState(env.stored_state_id)
            env.stored_state_id = -1
        agent.init_xyz = self._start.copy()
        for joint in agent.joint_list:
            joint.init_motor()
        if type(agent).__name__ == "RaceCar":  # its wheels begin under velocity control
            for joint in range(env.bc.getNumJoints(agent.body_id)):
                env.bc.setJointMotorControl2(
                    agent.body_id, joint, env.bc.VELOCITY_CONTROL, targetVelocity=0, force=0
                )

    def step(self, action: Float[np.ndarray, " a"]) -> Step:
        """Take one action; the suite clips it to [-1, 1]."""
        self._steps += 1
        observation, reward, terminated, _, info = self.env.step(action)
        truncated = self._steps >= self.spec.horizon
        return Step(observation, reward, info["cost"], terminated, truncated)

    def position(self) -> tuple[float, float]:
        """X and y in metres."""
        x, y = self.env.agent.get_position()[:2]
        return float(x), float(y)

    def picture(self, width: int, height: int) -> UInt8[np.ndarray, "h w 3"]:
        """The robot, the floor and the safety boundaries."""
        from safestitch.sims import bullet_camera  # noqa: PLC0415 (only pictures need it)

        return bullet_camera.picture(self.env, width, height)

    def close(self) -> None:
        """Disconnect from the physics server."""
        self.env.close()


@functools.cache
def _environment_class() -> type:
    _, original = mends.bullet()

    class Environment(original):
        def _setup_client_and_physics(self, graphics: bool = False):
            client = super()._setup_client_and_physics(graphics)
            mends.bind_functions(client)
            mends.load_without_visuals(client)
            return client

    return Environment
