"""What is known to work: settings of the learner per family of tasks."""

import dataclasses

from safestitch.behaviours import ppo, sac
from safestitch.behaviours.preferences import Preferences


@dataclasses.dataclass(frozen=True)
class Schedule:
    """How long, how many at once, how often."""

    steps: int = 300_000
    """Of the environment, over all lanes."""
    lanes: int = 64
    """Episodes under way at once."""
    updates: float = 0.25
    """Of a soft actor-critic: updates of the critics per step of the environment."""
    warmup: int = 5_000
    """Steps before learning begins: of random actions, or a teacher's (teaching.py)."""
    capacity: int = 1_000_000
    """Of a soft actor-critic: transitions that are remembered."""
    switches: float = 0.5
    """Changes of lambda within an episode of full length, on average."""
    measured: int = 2
    """Episodes that measure a snapshot, at each of LAMBDAS."""
    checkpoint_seconds: float = 240.0


LAMBDAS = (0.0, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)
"""Where snapshots are measured: at those that were learned."""
BANDS = (0.0, 0.1, 1.0, 10.0)
"""Upper ends of the bands of lambda that results are given for; the last band has none."""
MOMENTS = (0.01, 0.02, 0.04, 0.07, 0.1, 0.15, 0.2, 0.3, 0.4, 0.55, 0.7, 0.85, 1.0)
"""Shares of training at which snapshots are taken: skill rises fastest at first."""

RUNNING = ppo.Config(gamma=0.995, zero_share=0.3, lambda_high=5.0)
"""Robots that pay for speed: standing still costs nothing and is a trap. Many episodes without cost
teach to run; lambda then changes often in mid-episode, so that heavy ones learn to slow down."""
FAMILIES: dict[str, tuple[Preferences, Schedule]] = {
    "": (sac.Config(), Schedule()),
    "AntRun": (
        sac.Config(zero_share=0.3, lambda_high=3.0),
        Schedule(steps=1_200_000, switches=2.0),
    ),
    "AntCircle": (
        sac.Config(lambda_high=8.0),
        Schedule(steps=1_100_000, warmup=60_000, switches=2.0),
    ),
    "CarCircle": (sac.Config(lambda_high=4.0), Schedule(steps=1_600_000, switches=2.0)),
    "DroneCircle": (sac.Config(lambda_high=6.0), Schedule(steps=2_200_000, switches=2.0)),
    "DroneRun": (sac.Config(), Schedule(steps=900_000)),
    "PointCircle1": (sac.Config(lambda_high=5.0), Schedule(steps=900_000, switches=2.0)),
    "Circle1": (ppo.Config(lambda_high=10.0), Schedule(steps=2_500_000, switches=3.0)),
    "Circle2": (ppo.Config(lambda_high=10.0), Schedule(steps=2_500_000, switches=3.0)),
    "Velocity": (RUNNING, Schedule(steps=4_000_000, switches=5.0)),
    "AntVelocity": (
        sac.Config(zero_share=0.2, lambda_high=4.0),
        Schedule(steps=1_600_000, switches=3.0),
    ),
    "HalfCheetahVelocity": (sac.Config(), Schedule(steps=500_000)),
    "HopperVelocity": (
        dataclasses.replace(RUNNING, enough=1.75),
        Schedule(steps=10_000_000, switches=5.0),
    ),
    "Walker2dVelocity": (
        sac.Config(lambda_high=3.0, enough=3.3),
        Schedule(steps=1_400_000, switches=3.0),
    ),
    "SwimmerVelocity": (
        sac.Config(gamma=0.997, lambda_high=2.0, enough=0.22),
        Schedule(steps=1_900_000, warmup=60_000, switches=3.0),
    ),
}
"""Ending of a task's name -> what it is learned with."""


def learned_lambdas(config: Preferences) -> tuple[float, ...]:
    """Those of LAMBDAS that training draws from."""
    low, high = config.lambda_low, config.lambda_high
    return tuple(lam for lam in LAMBDAS if lam == 0 or low <= lam <= high)


def band_of(lam: float) -> int:
    """Number of the band of a lambda."""
    return sum(lam > end for end in BANDS)


def settings_of(task: str) -> tuple[Preferences, Schedule]:
    """Settings of a task: those of the longest ending that fits its name."""
    return FAMILIES[max((e for e in FAMILIES if task.endswith(e)), key=len)]
