"""What a simulator is: the one protocol that evaluation, films and data making speak."""

from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, UInt8

from safestitch.records import SafestitchError, Spec


class Step(NamedTuple):
    """What one action brought."""

    observation: Float[np.ndarray, " o"]
    reward: float
    cost: float
    """>= 0, lower is better."""
    terminated: bool
    """The task ended the episode: a fall, a crash."""
    truncated: bool
    """The clock ended it: the horizon is reached."""


@runtime_checkable
class Simulator(Protocol):
    """One task, one episode at a time.

    The same seed and the same actions give the same episode, bit for bit, whatever ran before: each
    episode begins as the first one of a newly made environment does.
    """

    spec: Spec

    def reset(self, seed: int) -> Float[np.ndarray, " o"]:
        """Begin an episode and return its first observation."""
        ...

    def step(self, action: Float[np.ndarray, " a"]) -> Step:
        """Take one action."""
        ...

    def position(self) -> tuple[float, float]:
        """Where the robot is drawn, in the axes of the task's picture; NaN where it has none."""
        ...

    def picture(self, width: int, height: int) -> UInt8[np.ndarray, "h w 3"]:
        """What it looks like now."""
        ...

    def close(self) -> None:
        """Free what the simulator holds."""
        ...


def check_spaces(name: str, env, spec: Spec) -> None:
    """Raise unless an environment's spaces are those of the spec."""
    observations, actions = env.observation_space, env.action_space
    found = (observations.shape, actions.shape, actions.low.min(), actions.high.max())
    expected = ((spec.obs_dim,), (spec.act_dim,), spec.action_low, spec.action_high)
    if found != expected:
        raise SafestitchError(
            f"{name} has observations {found[0]} and actions {found[1]} in [{found[2]:g}, "
            f"{found[3]:g}], expected {expected[0]} and {expected[1]} in [{expected[2]:g}, "
            f"{expected[3]:g}]: is another version of its simulator installed? `safestitch doctor` "
            "shows the versions that are known to work"
        )
