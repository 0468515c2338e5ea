"""The jobs of a plan: make a task's data, train a method on it, evaluate what was trained.

A job is finished when what it makes is there: a data file, a policy, an evaluation that answers
what the plan asks. Nothing else is remembered, so that nothing can disagree with what is there.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from safestitch import runs
from safestitch.comparing import ask, kept
from safestitch.comparing.entries import Entry
from safestitch.data import places
from safestitch.envs import TASKS
from safestitch.evaluation.stored import answer
from safestitch.names import unknown
from safestitch.records import DataError, RunError, SafestitchError
from safestitch.reproducing.plan import Method, Plan

Kind = Literal["data", "train", "eval"]


@dataclasses.dataclass(frozen=True)
class Job:
    """One process, and how to know that it need not be started."""

    name: str
    """Task, method and kind; also the name of its log."""
    kind: Kind
    words: tuple[str, ...]
    """The command, after `safestitch`."""
    is_finished: Callable[[], bool]
    resume: Callable[[], tuple[str, ...] | None] = lambda: None
    """The command that goes on with what was begun; None if there is nothing."""
    after: tuple[str, ...] = ()
    """Jobs that must be finished first."""
    seconds: float | None = None
    """How long it should take, if the plan says."""


def jobs_of(
    plan: Plan, out: Path, *, only: Sequence[str] = (), workers: int | None = None
) -> list[Job]:
    """All jobs, task by task, or those of some tasks and methods.

    Raises:
        SafestitchError: if `only` names what is not there.
    """
    methods = [method.name for method in plan.methods]
    known = [*plan.tasks, *methods]
    for word in only:
        if word not in known:
            raise SafestitchError(unknown("task or method", word, known))
    tasks = [task for task in plan.tasks if task in only] or plan.tasks
    chosen = [method for method in plan.methods if method.name in only] or plan.methods
    found: list[Job] = []
    for task in tasks:
        here = [method for method in chosen if task in method.tasks]
        data = _data_job(plan, task) if here else None
        after = (data.name,) if data else ()
        rest = [j for m in here for j in _method_jobs(plan, task, m, out, after, workers)]
        found += ([_while_needed(data, rest)] if data else []) + rest
    return found


def _while_needed(data: Job, by: Sequence[Job]) -> Job:
    """Data are not made for jobs that are all finished, as those of a record are."""
    is_there = data.is_finished
    return dataclasses.replace(
        data, is_finished=lambda: is_there() or all(job.is_finished() for job in by)
    )


def run_directory(out: Path, task: str, method: Method) -> Path:
    """Where a method's run on a task lies."""
    return out / task / method.name


def recall(plan: Plan, known: Path, out: Path) -> list[str]:
    """Take over records of runs as the plan asks for; says which."""
    found = []
    for task, method in ((t, m) for t in plan.tasks for m in plan.methods if t in m.tasks):
        record, directory = (run_directory(place, task, method) for place in (known, out))
        if (directory / runs.RUN).exists() or not _is_evaluated(plan, task, method, record):
            continue
        directory.mkdir(parents=True, exist_ok=True)
        kept.copy(record, directory)
        found.append(f"{task}.{method.name}")
    return found


def evaluated(plan: Plan, out: Path) -> list[str]:
    """The runs that can stand in the table, as `NAME=RUN`."""
    return [
        f"{method.name}={run_directory(out, task, method)}"
        for task in plan.tasks
        for method in plan.methods
        if task in method.tasks
        and _is_evaluated(plan, task, method, run_directory(out, task, method))
    ]


def _data_job(plan: Plan, task: str) -> Job | None:
    if task in TASKS or task in plan.data_files or not plan.data_command:
        return None

    def is_there() -> bool:
        try:
            places.find(task)
        except DataError:
            return False
        return True

    words = tuple(word.replace("{task}", task) for word in plan.data_command)
    return Job(f"{task}.data", "data", words + plan.data_more.get(task, ()), is_there)


def _method_jobs(
    plan: Plan, task: str, method: Method, out: Path, after: tuple[str, ...], workers: int | None
) -> list[Job]:
    directory = run_directory(out, task, method)
    name = f"{task}.{method.name}"

    def resume() -> tuple[str, ...] | None:
        return ("train", "--resume", str(directory)) if (directory / runs.RUN).exists() else None

    train = Job(
        f"{name}.train",
        "train",
        train_words(plan, task, method, directory),
        lambda: runs.is_trained(directory) or _is_evaluated(plan, task, method, directory),
        resume,
        after,
        None if method.minutes is None else 60 * method.minutes,
    )
    words = ["eval", str(directory), "--limits", *plan.limits]
    words += [] if plan.episodes is None else ["--episodes", str(plan.episodes)]
    words += ["--episode-seed", str(plan.episode_seed)] if plan.episode_seed else []
    words += [] if workers is None else ["--workers", str(workers)]
    evaluation = Job(
        f"{name}.eval",
        "eval",
        tuple(words),
        lambda: _is_evaluated(plan, task, method, directory),
        after=(train.name,),
    )
    return [train, evaluation]


def train_words(plan: Plan, task: str, method: Method, directory: Path) -> tuple[str, ...]:
    """The command that trains a method on a task, after `safestitch`."""
    words = ["train", method.algorithm, task, "--seeds", str(method.seeds)]
    words += ["--preset", method.presets.get(task, method.preset), *_flags(method.settings)]
    if method.minutes is not None:
        words += ["--minutes", f"{method.minutes:g}"]
    if task in plan.data_files:
        words += ["--data", str(plan.data_files[task])]
    if plan.data_seed:
        words += ["--data-seed", str(plan.data_seed)]
    return (*words, "--out", str(directory))


def _flags(settings: Mapping[str, Any]) -> list[str]:
    """Settings as the command line takes them.

    Example:
        >>> _flags({"alpha": 0.9, "relabel": False, "budget_batch": 8})
        ['--alpha', '0.9', '--no-relabel', '--budget-batch', '8']
    """
    words = []
    for name, value in settings.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            words += [f"--{flag}", str(value)]
    return words


def _is_evaluated(plan: Plan, task: str, method: Method, directory: Path) -> bool:
    if not runs.is_evaluated(directory):
        return False
    try:
        entry = Entry("", directory, runs.read(directory))
        asked = ask(entry, plan.limits, plan.episodes, plan.episode_seed, None)
        return _is_as_asked(task, method, entry.run) and answer(directory, asked) is not None
    except RunError:
        return False


def _is_as_asked(task: str, method: Method, run: runs.Run) -> bool:
    """Whether a run has a method's settings; minutes decide the iterations, if they are given.

    What a record of an earlier version does not name is as that version did it: at its default.
    """
    wanted = method.config(task)
    if run.algorithm != method.algorithm or not set(run.config) <= set(vars(wanted)):
        return False
    found = type(wanted)(**run.config)
    free = {"iterations"} if method.minutes is not None else set()
    same = all(getattr(found, k) == v for k, v in vars(wanted).items() if k not in free)
    return same and run.seeds == list(range(method.seeds))
