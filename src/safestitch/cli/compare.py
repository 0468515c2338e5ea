"""`safestitch compare gas=runs/a caps=runs/b --limits 10% 20% 30% 70% 80% 90%`."""

import dataclasses
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from safestitch.cli.console import stdout
from safestitch.cli.eval import check_episodes
from safestitch.cli.progress import EpisodesBar
from safestitch.evaluation.limits import PAPER_LIMITS
from safestitch.records import SafestitchError

if TYPE_CHECKING:
    from safestitch.comparing.figures import Cell
    from safestitch.comparing.summary import Comparison


@dataclasses.dataclass(frozen=True)
class Options:
    """Set methods side by side: same data, same limits, same start states."""

    runs: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """Finished runs, as RUN or NAME=RUN; without a name, its algorithm's."""
    limits: tuple[str, ...] = PAPER_LIMITS
    """Cost limits: 20 is a cost per episode, 10% a share of the task's cost range."""
    episodes: int | None = None
    """Episodes per seed and limit; 100 on built-in tasks, 20 on simulators unless given."""
    against: str | None = None
    """Method that the others are set against; gas unless given, if it is there."""
    out: Path = Path("runs/comparison")
    """Where the tables and the page go."""
    episode_seed: int = 0
    """Seed of the start states."""
    env: str | None = None
    """Your own environment: package.module:function, or a gymnasium id."""
    workers: int | None = None
    """Simulator processes, one per core unless given; never changes a result."""


def run(arguments: list[str]) -> int:
    """Parse, evaluate what is missing, print the table, write the files."""
    options = tyro.cli(Options, args=arguments, prog="safestitch compare")
    check_episodes(options.episodes)
    if options.workers is not None and not 1 <= options.workers <= 256:
        raise SafestitchError(f"--workers {options.workers}: expected 1 to 256")
    write_comparison(options, [f"safestitch compare {shlex.join(arguments)}"], stdout())
    return 0


def write_comparison(options: Options, commands: Sequence[str], console: Console) -> None:
    """Compare runs, print the table and leave it as Markdown, CSV, LaTeX and a page."""
    from safestitch.comparing import compare_runs
    from safestitch.comparing.kept import keep
    from safestitch.comparing.page import page_of
    from safestitch.comparing.tables import bands_csv, latex, limits_csv, markdown
    from safestitch.files import write_atomic, write_error
    from safestitch.report.html import render

    def say(line: str) -> None:
        console.print(line, markup=False)

    with EpisodesBar() as bar:
        found = compare_runs(
            options.runs,
            options.limits,
            episodes=options.episodes,
            against=options.against,
            seed=options.episode_seed,
            env=options.env,
            workers=options.workers,
            say=say,
            progress=bar,
        )
    show(found, console)
    try:
        options.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise write_error(options.out, error) from None
    files = {
        "comparison.md": markdown(found),
        "comparison.csv": bands_csv(found),
        "limits.csv": limits_csv(found),
        "comparison.tex": latex(found),
        "comparison.html": render(page_of(found, list(commands)), "compare.html"),
    }
    for name, text in files.items():
        write_atomic(options.out / name, text.encode())
    keep([result.entry for result in found.results], options.out / "runs")
    say(f"written to {options.out}: {', '.join(files)}; runs: what they are made of")


def show(comparison: "Comparison", console: Console) -> None:
    """The table of each band, then what each method comes to."""
    from safestitch.comparing.wording import notes, number, title

    for band in comparison.bands:
        shown = Table(title=f"{title(band)}: R/R_max / C/L", title_justify="left")
        shown.add_column("")
        for method in comparison.methods:
            shown.add_column(escape(method))
        for task in comparison.tasks:
            cells = [comparison.cell(task, method, band) for method in comparison.methods]
            shown.add_row(escape(task), *(_cell(cell) for cell in cells), end_section=True)
        for name, of in _SUMMARIES.items():
            own = [s for s in comparison.summaries if s.band == band]
            shown.add_row(name, *(of(s) for s in own))
        ratios = [number(s.frontier_ratio, 3) for s in comparison.summaries if s.band == band]
        shown.add_row("frontier ratio", *ratios)
        console.print(shown)
    for note in notes(comparison):
        console.print(note, markup=False, style="dim")


_SUMMARIES = {
    "safe on": lambda s: f"{s.safe} of {s.tasks} tasks",
    "best on": lambda s: f"{s.best} of {s.tasks} tasks",
}


def _cell(cell: "Cell | None") -> str:
    from safestitch.comparing.wording import MARKS, NONE, apart, number, spread

    if cell is None:
        return NONE
    looks = {"best": "bold green", "safe": "default", "unsafe": "yellow"}[cell.mark]
    first = f"{spread(cell.reward, cell.reward_std)} / {spread(cell.cost, cell.cost_std)}"
    lines = [f"[{looks}]{first} {MARKS[cell.mark]}[/]"]
    if cell.gap:
        lines.append(f"[dim]{escape(apart(cell.gap, 0))}[/]")
    if cell.paper:
        paper = f"{number(cell.paper.reward)} / {number(cell.paper.cost)} {MARKS[cell.paper.mark]}"
        lines.append(f"[dim]paper, public data: {paper}[/]")
    return "\n".join(lines)
