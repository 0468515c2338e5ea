"""Evaluating a run: limits in, rows and records out."""

import dataclasses
from pathlib import Path

from safestitch import runs
from safestitch.evaluation.limits import PAPER_LIMITS, parse_limit
from safestitch.evaluation.rollout import rollout, task_of
from safestitch.evaluation.score import Row, plain, records, rows
from safestitch.policy import load_policies

__all__ = ["PAPER_LIMITS", "Row", "evaluate_run", "parse_limit", "plain"]


def evaluate_run(
    directory: Path,
    limits: list[str],
    *,
    episodes: int = 100,
    target_reward: float | None = None,
    seed: int = 0,
) -> tuple[list[Row], list[str]]:
    """Roll out all seeds at all limits and write `eval.json`; rows per limit, notes to the user.

    Raises:
        SafestitchError: if a limit cannot be used or the run is not finished.
    """
    policies = load_policies(directory)
    run = policies.run
    costs = [parse_limit(limit, run.spec.cost_range) for limit in limits]
    result, _ = rollout(
        policies,
        task_of(run),
        costs,
        episodes,
        target_reward=target_reward,
        seed=seed,
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
    return table, notes
