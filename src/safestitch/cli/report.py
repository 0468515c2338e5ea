"""`safestitch report runs/first`: one self-contained HTML page."""

import dataclasses
from pathlib import Path
from typing import Annotated

import tyro

from safestitch.cli.console import stdout
from safestitch.cli.eval import check_episodes
from safestitch.cli.progress import EpisodesBar


@dataclasses.dataclass(frozen=True)
class Options:
    """Ask a trained run for every limit and draw what it does."""

    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """Run directory of a finished training."""
    episodes: int | None = None
    """Episodes per seed and limit on the dial; 50 on built-in tasks, 5 on simulators."""
    env: str | None = None
    """Your own environment: package.module:function, or a gymnasium id."""


def run(arguments: list[str]) -> int:
    """Parse, make the page, say where it is."""
    options = tyro.cli(Options, args=arguments, prog="safestitch report")
    check_episodes(options.episodes)
    page = write_report(options.run, options.episodes, options.env)
    stdout().print(f"open {page}", markup=False)
    return 0


def write_report(directory: Path, episodes: int | None = None, env: str | None = None) -> Path:
    """Make the page of a run and return its address."""
    from safestitch import runs
    from safestitch.evaluation.dial import dial_run
    from safestitch.files import write_atomic
    from safestitch.report.html import render

    page = directory / runs.REPORT
    with EpisodesBar() as bar:
        facts = dial_run(directory, episodes=episodes, env=env, progress=bar)
    write_atomic(page, render(facts).encode())
    return page.resolve()
