"""`safestitch eval runs/first --limits 10% 20% 30% 70% 80% 90%`."""

import dataclasses
import math
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.table import Table

from safestitch.cli.console import stdout
from safestitch.cli.progress import EpisodesBar
from safestitch.evaluation.limits import PAPER_LIMITS
from safestitch.records import SafestitchError


@dataclasses.dataclass(frozen=True)
class Options:
    """Roll out every seed at every limit, from the same start states."""

    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """Run directory of a finished training."""
    limits: tuple[str, ...] = PAPER_LIMITS
    """Cost limits: 20 is a cost per episode, 10% a share of the task's cost range."""
    episodes: int | None = None
    """Episodes per seed and limit; 100 on built-in tasks, 20 on simulators unless given."""
    target_reward: float | None = None
    """Reward to ask for; chosen for each state and budget unless given."""
    episode_seed: int = 0
    """Seed of the start states."""
    env: str | None = None
    """Your own environment: package.module:function, or a gymnasium id."""
    workers: int | None = None
    """Simulator processes, one per core unless given; never changes a result."""


def run(arguments: list[str]) -> int:
    """Parse, evaluate, print the table, write eval.json."""
    options = tyro.cli(Options, args=arguments, prog="safestitch eval")
    console = stdout()
    evaluate(options, console)
    return 0


def evaluate(options: Options, console: Console) -> None:
    """Evaluate a run at some limits; the library call behind the verb is `evaluate_run`."""
    check_episodes(options.episodes)
    if options.workers is not None and not 1 <= options.workers <= 256:
        raise SafestitchError(f"--workers {options.workers}: expected 1 to 256")
    if not options.limits:
        raise SafestitchError("--limits needs at least one limit, such as 20 or 10%")
    if options.target_reward is not None and not math.isfinite(options.target_reward):
        raise SafestitchError(f"--target-reward {options.target_reward} is not a finite number")
    from safestitch.evaluation import evaluate_run, plain

    with EpisodesBar() as bar:
        rows, notes = evaluate_run(
            options.run,
            list(options.limits),
            episodes=options.episodes,
            target_reward=options.target_reward,
            seed=options.episode_seed,
            env=options.env,
            workers=options.workers,
            progress=bar,
        )
    for note in notes:
        console.print(f"note: {note}", markup=False)
    console.print(table([plain(row) for row in rows]))
    console.print(f"written to {options.run / 'eval.json'}", markup=False)


def check_episodes(episodes: int | None) -> None:
    """Episodes per seed and limit that fit into memory together."""
    if episodes is not None and not 1 <= episodes <= 10_000:
        raise SafestitchError(f"--episodes {episodes}: expected 1 to 10000")


def stored_table(directory: Path) -> Table:
    """The table of the last evaluation, without rolling out again."""
    from safestitch import runs

    return table(runs.read_json(directory / runs.ROWS))


def table(rows: list[dict[str, Any]]) -> Table:
    """Rows per limit as a person reads them."""
    shown = Table(caption="mean [95% bootstrap interval over seeds and episodes]")
    for title in ("limit", "reward", "cost", "R/R_max", "C/L", "over limit", "frontier ratio", ""):
        shown.add_column(title, justify="right")
    for row in rows:
        shown.add_row(
            f"{row['limit']:g} ({100 * row['limit_fraction']:.0f}%)",
            _cell(row["reward"], 1),
            _cell(row["cost"], 1),
            _cell(row["reward_norm"], 2),
            _cell(row["cost_norm"], 2),
            _cell([100 * v for v in row["violation_rate"]], 0, "%"),
            _cell(row["frontier_ratio"], 3),
            "kept" if row["cost"][0] <= row["limit"] else "[bold]broken[/bold]",
        )
    return shown


def _cell(values: list[float | None], digits: int, unit: str = "") -> str:
    value, low, high = values
    if value is None:
        return "-"
    return f"{value:.{digits}f}{unit} [dim]\\[{low:.{digits}f}, {high:.{digits}f}][/dim]"
