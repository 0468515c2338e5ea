"""The registry of tasks: name -> Task."""

from safestitch.envs.base import Task
from safestitch.envs.chain import STITCH_CHAIN
from safestitch.envs.point import MINI_CIRCLE, MINI_RUN
from safestitch.names import lookup

TASKS: dict[str, Task] = {task.spec.task: task for task in (MINI_CIRCLE, MINI_RUN, STITCH_CHAIN)}

__all__ = ["TASKS", "Task", "get_task"]


def get_task(name: str) -> Task:
    """The task of that name; an unknown name is an error that suggests the nearest."""
    return lookup("task", name, TASKS)
