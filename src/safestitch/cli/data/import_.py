"""`safestitch data import logs.parquet --map map.toml --out my.h5`."""

import dataclasses
import time
from pathlib import Path
from typing import Annotated

import tyro
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from safestitch.cli.console import stdout


@dataclasses.dataclass(frozen=True)
class Options:
    """Logs of your own into one file that every other command reads.

    Columns that neither a flag nor --map names are guessed from their names; what was guessed is
    said. The same command goes on after it was stopped.
    """

    file: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FILE")]
    """CSV, JSON lines, Parquet, NPZ or HDF5."""
    out: Path | None = None
    """File to write; FILE with the ending .h5 unless given."""
    map: Path | None = None
    """TOML file that says which column means what."""
    obs: tuple[str, ...] = ()
    """Columns of the observation: names, or patterns such as 'obs.*'."""
    action: tuple[str, ...] = ()
    """Columns of the action."""
    reward: str = ""
    """Column of the reward."""
    cost: tuple[str, ...] = ()
    """Columns of the cost, summed: column, column:kind or column:kind:weight; the kinds are number,
    flag, margin (costs what it is below 0) and broken-margin (costs 1 where it is below 0)."""
    episode: str = ""
    """Column whose value changes where an episode begins."""
    step: str = ""
    """Column that rises within an episode."""
    terminated: str = ""
    """Column that is true where the task ended an episode."""
    truncated: str = ""
    """Column that is true where the clock ended an episode."""
    overwrite: bool = False
    """Replace --out if it exists."""


def run(arguments: list[str]) -> int:
    """Parse, import, say what was guessed and what was made."""
    options = tyro.cli(Options, args=arguments, prog="safestitch data import")
    from safestitch.data.importing import import_logs

    out = options.out or options.file.with_suffix(".h5")
    with ReadingBar(f"importing {options.file}") as bar:
        made = import_logs(
            options.file, out, mapping_of(options), overwrite=options.overwrite, progress=bar
        )
    console = stdout()
    for note in made.notes:
        console.print(f"note: {note}", markup=False)
    console.print(
        f"{made.path}: {made.episodes:,} episodes, {made.steps:,} steps; next: "
        f"safestitch data report {made.path}",
        markup=False,
    )
    return 0


def mapping_of(options: Options):
    """The mapping of --map, changed by the flags."""
    from safestitch.data.importing import as_mapping
    from safestitch.data.mapping import CostPart, Mapping

    flags = Mapping(
        obs=options.obs,
        action=options.action,
        reward=options.reward,
        cost=tuple(CostPart.parse(text) for text in options.cost),
        episode=options.episode,
        step=options.step,
        terminated=options.terminated,
        truncated=options.truncated,
    )
    return as_mapping(options.map).but(flags)


class ReadingBar:
    """How much of a file is read: a bar on a terminal, a line now and then in a log."""

    def __init__(self, title: str):
        self.console = stdout()
        self.title = title
        self.started = self.said = time.monotonic()
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TaskProgressColumn(),
            TimeRemainingColumn(),
            console=self.console,
        )

    def __enter__(self) -> "ReadingBar":
        self.task = self.bar.add_task(self.title, total=1.0)
        if self.console.is_terminal:
            self.bar.start()
        return self

    def __call__(self, read: int, size: int) -> None:
        """Show where the reading is."""
        share, now = read / max(size, 1), time.monotonic()
        self.bar.update(self.task, completed=share)
        if not self.console.is_terminal and now - self.said > 10:
            self.said = now
            left = (now - self.started) * (1 - share) / max(share, 1e-9)
            self.console.print(f"{self.title}: {share:.0%}, {left:.0f} s left", markup=False)

    def __exit__(self, *_: object) -> None:
        if self.console.is_terminal:
            self.bar.stop()
