"""`safestitch data import logs.parquet --map map.toml --out my.h5`."""

import dataclasses
from pathlib import Path
from typing import Annotated

import tyro

from safestitch.cli.console import stdout
from safestitch.cli.progress import CountingBar


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
    with CountingBar(f"importing {options.file}", "bytes") as bar:
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
