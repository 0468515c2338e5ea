"""The field's simulators, and environments of the user's own, behind one protocol."""

from safestitch.catalog import get_entry
from safestitch.sims.base import Simulator, Step
from safestitch.sims.suites import require

__all__ = ["Simulator", "Step", "make_own", "make_simulator"]


def make_simulator(task: str) -> Simulator:
    """The simulator of a task of the catalog.

    Raises:
        SafestitchError: if the task is unknown, or its simulator does not run here.
    """
    entry = get_entry(task)
    require(entry.suite, task)
    if entry.suite == "bullet":
        from safestitch.sims.bullet import Bullet

        return Bullet(entry)
    from safestitch.sims.mujoco import Circle, Velocity

    return Velocity(entry) if task.endswith("Velocity") else Circle(entry)


def make_own(source: str, horizon: int | None = None) -> Simulator:
    """The user's own environment, named as `package.module:function` or by its gymnasium id."""
    from safestitch.sims.own import Own

    return Own(source, horizon)
