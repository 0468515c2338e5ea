"""`safestitch data get CarCircle AntRun`."""

import dataclasses
import time
from pathlib import Path
from typing import Annotated

import tyro
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from safestitch.cli.console import stdout
from safestitch.records import SafestitchError


@dataclasses.dataclass(frozen=True)
class Options:
    """Download public data sets; one that is there already is checked and left alone."""

    names: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="NAME")] = ()
    """Data sets: CarCircle, or DSRL's own name for it; `safestitch data ls` lists them."""
    all: bool = False
    """All 38 of them."""
    dir: Path | None = None
    """Where to; $DSRL_DATASET_DIR or ~/.dsrl/datasets unless given."""
    mirror: tuple[str, ...] = ()
    """Addresses to try first: https://host/folder, or with {file} where the file name goes."""
    stall: float = 30.0
    """Seconds without data after which a connection is tried anew."""


def run(arguments: list[str]) -> int:
    """Parse, download one after the other, say where each is."""
    options = tyro.cli(Options, args=arguments, prog="safestitch data get")
    from safestitch.catalog import get_public, public_files
    from safestitch.data.download import Patience, get

    if options.all == bool(options.names):
        raise SafestitchError("which data set? Give names, such as CarCircle, or --all")
    if not options.stall > 0:
        raise SafestitchError(f"--stall {options.stall}: expected seconds above 0")
    names = public_files() if options.all else options.names
    for entry in [get_public(name) for name in names]:
        with DownloadBar(entry.task) as bar:
            path = get(entry, options.dir, options.mirror, Patience(stall=options.stall), bar)
        stdout().print(f"{entry.task}: {path}", markup=False)
    return 0


class DownloadBar:
    """A bar on a terminal, a line now and then in a log."""

    def __init__(self, title: str):
        self.console = stdout()
        self.title = title
        self.began = self.said = time.monotonic()
        self.first: int | None = None
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
            console=self.console,
        )

    def __enter__(self):
        self.task = self.bar.add_task(self.title, total=None)
        return self

    def __exit__(self, kind, *_) -> None:
        self.bar.stop()
        if kind is KeyboardInterrupt:
            self.console.print("What has arrived is kept: the same command goes on from there.")

    def __call__(self, arrived: int, size: int | None) -> None:
        """Show how much has arrived."""
        now = time.monotonic()
        if self.first is None:
            self.first, self.began = arrived, now  # a resumed download does not begin at 0
            if self.console.is_terminal:
                self.bar.start()
        self.bar.update(self.task, completed=arrived, total=size)
        if not self.console.is_terminal and now - self.said > 10:
            self.said = now
            rate = (arrived - self.first) / (now - self.began)
            left = f", {(size - arrived) / rate:.0f} s left" if size and rate > 0 else ""
            whole = f" of {size / 1e6:,.1f}" if size else ""
            self.console.print(
                f"{self.title}: {arrived / 1e6:,.1f}{whole} MB, {rate / 1e6:.1f} MB/s{left}",
                markup=False,
            )
