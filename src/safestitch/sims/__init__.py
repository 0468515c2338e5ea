"""The field's simulators, and environments of the user's own, behind one protocol."""

from safestitch.catalog import Entry, catalog
from safestitch.records import SafestitchError
from safestitch.sims.base import Simulator, Step
from safestitch.sims.suites import obstacle

__all__ = ["Simulator", "Step", "make_own", "make_simulator"]


def make_simulator(task: str, *, pictures: bool = False) -> Simulator:
    """The simulator of a catalog task; with `pictures` it can be drawn, and starts more slowly.

    Raises:
        SafestitchError: if the task is unknown, or its simulator does not run here.
    """
    from safestitch.catalog import get_entry

    entry: Entry = get_entry(task)
    reason = obstacle(entry.suite)
    if reason:
        raise SafestitchError(f"{task} cannot run here: {reason}")
    if entry.suite == "bullet":
        from safestitch.sims.bullet import Bullet

        return Bullet(entry, pictures=pictures)
    from safestitch.sims.mujoco import Mujoco

    return Mujoco(entry)


def make_own(source: str, horizon: int | None = None) -> Simulator:
    """The user's own environment, named as `package.module:function` or by its gymnasium id."""
    from safestitch.sims.own import Own

    return Own(source, horizon)


def has_simulator(task: str) -> bool:
    """Whether the name is that of a simulated task, installed or not."""
    return task in catalog()
