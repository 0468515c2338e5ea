"""Evaluating a run: limits in, rows and records out."""

import dataclasses
from pathlib import Path

from safestitch import runs
from safestitch.evaluation.limits import PAPER_LIMITS, parse_limit
from safestitch.evaluation.score import Row, plain, records, rows
from safestitch.evaluation.simulated import Progress
from safestitch.evaluation.stage import default_episodes, play, stage_of
from safestitch.evaluation.stored import Question, store
from safestitch.policy import load_policies

__all__ = ["PAPER_LIMITS", "Row", "evaluate_run", "parse_limit", "plain"]


def evaluate_run(
    directory: Path,
    limits: list[str],
    *,
    episodes: int | None = None,
    target_reward: float | None = None,
    seed: int = 0,
    env: str | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> tuple[list[Row], list[str]]:
    """Roll out all seeds at all limits and write `eval.json`; rows per limit, notes to the user.

    Args:
        directory: a finished run.
        limits: a cost per episode such as "20", or a share of the cost range such as "10%".
        episodes: per seed and limit; 100 on built-in tasks and 20 on simulators unless given.
        target_reward: reward to ask for; chosen unless given.
        seed: of the start states.
        env: the user's own environment, `package.module:function`.
        workers: simulator processes, one per core unless given; never changes a result.
        progress: called with (steps taken, episodes played, episodes in all).

    Raises:
        SafestitchError: if a limit cannot be used or the run is not finished.
    """
    policies = load_policies(directory)
    run = policies.run
    costs = [parse_limit(limit, run.spec.cost_range) for limit in limits]
    stage = stage_of(run, env)
    episodes = default_episodes(stage, episodes, built_in=100, simulated=20)
    result, _ = play(
        policies,
        stage,
        costs,
        episodes,
        target_reward=target_reward,
        seed=seed,
        workers=workers,
        progress=progress,
    )
    found = records(run, costs, result)
    runs.write_json(directory / runs.EVAL, [dataclasses.asdict(record) for record in found])
    highest = run.data_summary["cost_max"]
    notes = [
        f"the limit {limit:g} is above the largest cost of the data ({highest:g}): it is asked "
        f"for as {highest:g}"
        for limit in costs
        if limit > highest
    ]
    table = rows(run, costs, result)
    runs.write_json(directory / runs.ROWS, [plain(row) for row in table])
    store(directory, Question(tuple(costs), episodes, seed, target_reward, env), result)
    return table, notes
