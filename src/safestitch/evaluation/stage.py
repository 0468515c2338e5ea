"""Where a run is played: a built-in task, a simulator, or an environment of the user's own."""

import dataclasses

from safestitch.catalog import catalog
from safestitch.envs import TASKS, Task
from safestitch.evaluation.rollout import Paths, Rollout, rollout
from safestitch.evaluation.simulated import Progress, simulate
from safestitch.policy import Policies
from safestitch.records import SafestitchError
from safestitch.runs import Run
from safestitch.sims.pool import Source

Stage = Task | Source


def stage_of(run: Run, env: str | None = None) -> Stage:
    """Where a run can be rolled out; `env` names the user's own environment.

    Raises:
        SafestitchError: if the run was trained on data without a simulator.
    """
    if env is not None:
        return Source(dataclasses.replace(run.spec, task=env), env)
    if run.spec.task in TASKS:
        return TASKS[run.spec.task]
    if run.spec.task in catalog():
        return Source(run.spec)
    raise SafestitchError(
        f"'{run.spec.task}' has no simulator, so it cannot be rolled out: give your own with "
        "--env package.module:function. Without any, act with safestitch.load(RUN).start(limit)"
    )


def default_episodes(stage: Stage, asked: int | None, built_in: int, simulated: int) -> int:
    """Episodes per seed and limit: built-in tasks roll out thousands of times faster."""
    if asked is not None:
        return asked
    return built_in if isinstance(stage, Task) else simulated


def play(
    policies: Policies,
    stage: Stage,
    limits: list[float],
    episodes: int,
    *,
    target_reward: float | None = None,
    seed: int = 0,
    workers: int | None = None,
    drawn: int = 0,
    progress: Progress | None = None,
) -> tuple[Rollout, Paths]:
    """Roll out every seed at every limit from the same start states (paired comparison).

    The paths of the first `drawn` episodes per limit are kept; those of built-in tasks always.
    """
    if isinstance(stage, Task):
        return rollout(policies, stage, limits, episodes, target_reward=target_reward, seed=seed)
    return simulate(
        policies,
        stage,
        limits,
        episodes,
        target_reward=target_reward,
        seed=seed,
        workers=workers,
        drawn=drawn,
        progress=progress,
    )
