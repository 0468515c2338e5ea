"""How the paths of simulated tasks are drawn: what costs, and a line to compare the path with."""

import math

from safestitch.records import Picture

_INF = math.inf
SPEED_LIMITS = {
    "HopperVelocity": 0.7402,
    "HalfCheetahVelocity": 3.2096,
    "SwimmerVelocity": 0.2282,
    "Walker2dVelocity": 2.3415,
    "AntVelocity": 2.6222,
}
"""m/s above which a step of a Velocity task costs 1."""
BLANK = Picture("", "", (), "")
"""Of an environment whose positions are not known."""


def picture_of(task: str) -> Picture:
    """The picture of a task's paths; blank for environments of the user's own."""
    if task in SPEED_LIMITS:
        too_fast = ((-_INF, _INF, SPEED_LIMITS[task], _INF),)
        return Picture("step", "speed [m/s]", too_fast, "costs: too fast")
    if task.endswith("Circle"):
        return _plane(((-_INF, -6.0, -_INF, _INF), (6.0, _INF, -_INF, _INF)), _circle(7.0))
    if task.endswith("Circle1"):
        return _plane(((-_INF, -1.125, -_INF, _INF), (1.125, _INF, -_INF, _INF)), _circle(1.5))
    if task.endswith("Circle2"):
        sides = ((-_INF, -1.125, -_INF, _INF), (1.125, _INF, -_INF, _INF))
        ends = ((-1.125, 1.125, -_INF, -1.125), (-1.125, 1.125, 1.125, _INF))
        return _plane(sides + ends, _circle(1.5))
    if task.endswith("Run"):
        # Being too fast costs as well, which no place can show: those steps are marked on the path.
        return _plane(((-_INF, _INF, -_INF, -2.0), (-_INF, _INF, 2.0, _INF)), ())
    return BLANK


def _plane(zones, guide) -> Picture:
    return Picture("x [m]", "y [m]", zones, "costs: outside the boundaries", guide)


def _circle(radius: float) -> tuple[tuple[float, float], ...]:
    angles = [2.0 * math.pi * i / 64 for i in range(65)]
    return tuple((radius * math.cos(a), radius * math.sin(a)) for a in angles)
