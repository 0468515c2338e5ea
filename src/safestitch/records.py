"""What crosses module borders: small frozen records without behaviour."""

import dataclasses


class SafestitchError(ValueError):
    """Something the user gave cannot be used; the message says what to do about it."""


class DataError(SafestitchError):
    """The data are malformed; the message names the column, the episode and the row."""


class DataNote(UserWarning):
    """Something was done to the data on the way in that their owner should know of."""


class RunError(SafestitchError):
    """A run directory is missing, incomplete, of another version, or in use."""


@dataclasses.dataclass(frozen=True)
class Spec:
    """The outside of a task: what a policy must know to be built and asked."""

    task: str
    """Name of the task, as in `safestitch train gas NAME`."""
    obs_dim: int
    act_dim: int
    horizon: int
    """Steps of a full episode; step indices run from 0 to horizon - 1."""
    cost_range: float
    """The cost per episode that 100% stands for in `--limits 10%`."""
    action_low: float = -1.0
    action_high: float = 1.0


@dataclasses.dataclass(frozen=True)
class Picture:
    """How a task is drawn: axis labels, shaded cost zones, a line to compare the path with."""

    x_label: str
    y_label: str
    zones: tuple[tuple[float, float, float, float], ...]
    """Rectangles (x low, x high, y low, y high) where being costs; +-inf reaches the edge."""
    zone_label: str
    guide: tuple[tuple[float, float], ...] = ()
