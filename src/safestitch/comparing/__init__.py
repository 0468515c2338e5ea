"""Comparing methods: finished runs in, one table of all of them out."""

from collections.abc import Callable, Sequence

from safestitch.comparing.entries import Entry, read_entries
from safestitch.comparing.figures import Result
from safestitch.comparing.summary import Comparison, summarise
from safestitch.evaluation import PAPER_LIMITS, evaluate_run, parse_limit
from safestitch.evaluation.simulated import Progress
from safestitch.evaluation.stage import default_episodes, stage_of
from safestitch.evaluation.stored import Question, answer
from safestitch.names import unknown
from safestitch.records import SafestitchError

__all__ = ["REFERENCE", "Comparison", "compare_runs"]

REFERENCE = "gas"
"""The method others are set against unless another is named."""


def compare_runs(
    entries: Sequence[str],
    limits: Sequence[str] = PAPER_LIMITS,
    *,
    episodes: int | None = None,
    against: str | None = None,
    seed: int = 0,
    env: str | None = None,
    workers: int | None = None,
    say: Callable[[str], None] | None = None,
    progress: Progress | None = None,
) -> Comparison:
    """Compare finished runs; what was evaluated before with the same question is not played again.

    Args:
        entries: run directories, as `RUN` or as `NAME=RUN`.
        limits: a cost per episode such as "20", or a share of the cost range such as "10%".
        episodes: per seed and limit; 100 on built-in tasks and 20 on simulators unless given.
        against: the method that others are set against; gas, if it is there, unless given.
        seed: of the start states.
        env: the user's own environment, `package.module:function`.
        workers: simulator processes, one per core unless given; never changes a result.
        say: called with a line before a run is evaluated.
        progress: called with (steps taken, episodes finished, episodes in all).

    Raises:
        SafestitchError: if runs cannot be compared, or one has to be evaluated and cannot be.
    """
    found = read_entries(entries)
    methods = list(dict.fromkeys(entry.method for entry in found))
    if against is not None and against not in methods:
        raise SafestitchError(unknown("method to compare with", against, methods))
    against = against or (REFERENCE if REFERENCE in methods else None)
    results = []
    for entry in found:
        question = ask(entry, limits, episodes, seed, env)
        played = answer(entry.directory, question)
        if played is None:
            if say:
                say(f"evaluating {entry.method} on {entry.task}: {entry.directory}")
            evaluate_run(
                entry.directory,
                list(limits),
                episodes=question.episodes,
                seed=seed,
                env=env,
                workers=workers,
                progress=progress,
            )
            played = answer(entry.directory, question)
            assert played is not None, "what was just written answers what was asked"
        results.append(Result(entry, question.limits, played))
    return summarise(results, against)


def ask(
    entry: Entry, limits: Sequence[str], episodes: int | None, seed: int, env: str | None
) -> Question:
    """What a run must have been asked to stand in the comparison."""
    costs = tuple(parse_limit(limit, entry.run.spec.cost_range) for limit in limits)
    if not costs or len(set(costs)) < len(costs):
        raise SafestitchError(
            f"--limits {' '.join(limits)}: expected at least one limit, and none twice "
            f"({', '.join(f'{cost:g}' for cost in costs)} on {entry.task})"
        )
    stage = stage_of(entry.run, env)
    many = default_episodes(stage, episodes, built_in=100, simulated=20)
    return Question(costs, many, seed, None, env)
