"""`safestitch reproduce reproductions/rivals.toml`: a whole comparison, from data to page."""

import dataclasses
import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro
from rich.console import Console
from rich.status import Status

from safestitch.cli import compare
from safestitch.cli.console import stdout
from safestitch.records import SafestitchError

if TYPE_CHECKING:
    from safestitch.reproducing.plan import Plan
    from safestitch.reproducing.runner import Failure, State

SAID_EVERY = 60.0
"""Seconds between lines in a log."""


@dataclasses.dataclass(frozen=True)
class Options:
    """Make or get the data, train and evaluate every method on every task, compare.

    The same command goes on where it was stopped: what is finished is never computed again.
    """

    file: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FILE")]
    """What to run: see docs/comparing.md, and reproductions/ for examples."""
    out: Path | None = None
    """Where everything goes; runs/<name of the file> unless given."""
    only: tuple[str, ...] = ()
    """Only these tasks and methods; the page shows all that are finished."""
    known: Path | None = None
    """Records of an earlier comparison, its runs/: what they answer is not computed again."""
    jobs: int = 1
    """Processes at once."""
    workers: int | None = None
    """Simulator processes of an evaluation, one per core unless given."""
    dry_run: bool = False
    """Say what would be run, and run nothing."""


def run(arguments: list[str]) -> int:
    """Parse, run what is missing, compare; 1 if a job failed, 130 after Ctrl-C."""
    options = tyro.cli(Options, args=arguments, prog="safestitch reproduce")
    if not 1 <= options.jobs <= 256:
        raise SafestitchError(f"--jobs {options.jobs}: expected 1 to 256")
    if options.workers is not None and not 1 <= options.workers <= 256:
        raise SafestitchError(f"--workers {options.workers}: expected 1 to 256")
    from safestitch.reproducing.jobs import jobs_of, recall
    from safestitch.reproducing.plan import check_names, read_plan
    from safestitch.reproducing.runner import run_jobs

    plan = read_plan(options.file)
    check_names(plan)
    out = options.out or Path("runs") / plan.name
    jobs = jobs_of(plan, out, only=options.only, workers=options.workers)
    console = stdout()
    if options.known is not None:
        taken = recall(plan, _directory(options.known), out)
        console.print(f"{len(taken)} runs are known from {options.known}", markup=False)
    if options.dry_run:
        for job in jobs:
            state = "finished" if job.is_finished() else f"safestitch {shlex.join(job.words)}"
            console.print(f"{job.name}: {state}", markup=False)
        return 0
    with JobsBar(console) as bar:
        failures = run_jobs(jobs, out, at_once=options.jobs, say=bar.say, tick=bar)
    _compare(plan, out, options, console)
    for failure in failures:
        _tell(failure, console)
    return 1 if failures else 0


def _directory(path: Path) -> Path:
    if not path.is_dir():
        raise SafestitchError(f"--known {path}: no such directory")
    return path


def _compare(plan: "Plan", out: Path, options: Options, console: Console) -> None:
    from safestitch.reproducing.jobs import evaluated, run_directory, train_words

    found = evaluated(plan, out)
    if not found:
        console.print("no method has been evaluated yet: there is nothing to compare")
        return
    held = {entry.split("=", 1)[0] for entry in found}
    commands = [
        f"safestitch reproduce {options.file.name}",
        *(
            f"safestitch {shlex.join(train_words(plan, t, m, run_directory(out, t, m)))}"
            for t in plan.tasks
            for m in plan.methods
            if t in m.tasks
        ),
    ]
    chosen = compare.Options(
        tuple(found),
        limits=plan.limits,
        episodes=plan.episodes,
        against=plan.against if plan.against in held else None,
        out=out / "comparison",
        episode_seed=plan.episode_seed,
        workers=options.workers,
    )
    compare.write_comparison(chosen, commands, console)


def _tell(failure: "Failure", console: Console) -> None:
    console.print(f"\n{failure.job.name} {failure.why}; {failure.log} ends:", markup=False)
    console.print(failure.tail, markup=False, style="dim")


class JobsBar:
    """How many jobs are finished, what is running, the remaining time; lines in a log."""

    def __init__(self, console: Console):
        self.console = console
        self.status = Status("", console=console)
        self.said = time.monotonic()

    def __enter__(self):
        if self.console.is_terminal:
            self.status.start()
        return self

    def __exit__(self, *_) -> None:
        self.status.stop()

    def say(self, line: str) -> None:
        """Something happened."""
        self.console.print(line, markup=False)

    def __call__(self, state: "State") -> None:
        """Show where the jobs are."""
        from safestitch.reproducing.runner import duration

        left = "" if state.left is None else f", about {duration(state.left)} left"
        failed = f", {state.failed} failed" if state.failed else ""
        running = ", ".join(state.running) or "none"
        line = f"{state.finished}/{state.total} jobs finished{failed}{left}; running: {running}"
        if self.console.is_terminal:
            self.status.update(line)
        elif time.monotonic() - self.said > SAID_EVERY:
            self.said = time.monotonic()
            self.say(line)
