"""The live line of a training: share finished, rate, losses, remaining time."""

import time
from pathlib import Path

from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from safestitch.cli.console import stdout


class TrainingBar:
    """A bar on a terminal, a line now and then in a log; says how to resume after Ctrl-C."""

    def __init__(self, title: str, iterations: int, out: Path):
        self.console = stdout()
        self.title, self.iterations, self.out = title, iterations, out
        self.exit_code = 0
        self.started: tuple[float, int] | None = None
        self.said = 0.0
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.completed:,.0f}/{task.total:,.0f}"),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[losses]}"),
            console=self.console,
        )

    def __enter__(self):
        self.console.print(f"training {self.title}: compiling", markup=False)
        if self.console.is_terminal:
            self.bar.start()
        self.task = self.bar.add_task("training", total=self.iterations, rate="", losses="")
        return self

    def __call__(self, step: int, metrics: dict[str, float]) -> None:
        """Show where training is."""
        now = time.monotonic()
        self.started = self.started or (now, step)
        elapsed, moved = now - self.started[0], step - self.started[1]
        rate = moved / elapsed if elapsed > 0 else 0.0
        losses = " ".join(
            f"{name.removeprefix('loss/')} {value:.4f}"
            for name, value in metrics.items()
            if name.startswith("loss/")
        )
        shown = f"{rate:.0f} it/s" if rate else ""
        self.bar.update(self.task, completed=step, rate=shown, losses=losses)
        if not self.console.is_terminal and (now - self.said > 10 or step == self.iterations):
            self.said = now
            left = f", {(self.iterations - step) / rate:.0f} s left" if rate else ""
            self.console.print(
                f"{step:,}/{self.iterations:,} iterations {shown}{left} {losses}", markup=False
            )

    def __exit__(self, kind, error, trace) -> bool:
        from safestitch.training.loop import Interrupted

        self.bar.stop()
        if kind is Interrupted:
            self.exit_code = 130
            self.console.print(
                f"stopped: {error}. Go on with: safestitch train --resume {self.out}", markup=False
            )
            return True
        if kind is None:
            self.console.print(
                f"trained; next: safestitch eval {self.out}, safestitch report {self.out}",
                markup=False,
            )
        return False


class CountingBar:
    """Share finished and remaining time of any long work; a line now and then in a log."""

    def __init__(self, title: str, unit: str):
        self.console = stdout()
        self.title, self.unit = title, unit
        self.begin = self.said = time.monotonic()
        self.first: tuple[float, float] | None = None
        """When it was first told how much is finished, and how much: work may have been resumed."""
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.completed:,.0f}/{task.total:,.0f} {task.fields[unit]}"),
            TextColumn("{task.fields[note]}"),
            TimeRemainingColumn(),
            console=self.console,
            transient=True,
        )

    def __enter__(self):
        if self.console.is_terminal:
            self.bar.start()
        self.task = self.bar.add_task(self.title, total=None, unit=self.unit, note="")
        return self

    def __call__(self, finished: int | float, total: int, note: str = "") -> None:
        """Show how much is finished."""
        self.bar.update(self.task, completed=finished, total=total, note=note)
        now = time.monotonic()
        self.first = self.first or (now, finished)
        if not self.console.is_terminal and now - self.said > 10:
            self.said = now
            moved = finished - self.first[1]
            left = (now - self.first[0]) * (total - finished) / moved if moved else 0.0
            rest = f", {left:.0f} s left" if moved else ""
            self.console.print(
                f"{self.title} {finished:,.0f}/{total:,} {self.unit}{rest} {note}", markup=False
            )

    def __exit__(self, *_) -> None:
        if self.console.is_terminal:
            self.bar.stop()


class EpisodesBar(CountingBar):
    """Of an evaluation: episodes finished, and steps per second."""

    def __init__(self):
        super().__init__("rolling out", "episodes")

    def __call__(self, steps: int, finished: float, total: int) -> None:  # type: ignore[override]
        """Show where the evaluation is."""
        elapsed = time.monotonic() - self.begin
        super().__call__(finished, total, f"{steps / elapsed:,.0f} steps/s")
