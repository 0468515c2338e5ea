"""`safestitch data edit IN OUT --density 0.5 --task CarCircle --seed 0`."""

import dataclasses
from pathlib import Path
from typing import Annotated

import tyro

from safestitch.cli.console import stdout
from safestitch.records import SafestitchError


@dataclasses.dataclass(frozen=True)
class Options:
    """Edit a data file into another; the edits are made in the order listed here."""

    source: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="IN")]
    """Data of any format, or the name of a public data set on disk."""
    out: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="OUT")]
    """File to write; its name says the format: .hdf5, .store, or NAME-v0 for Minari."""
    join: tuple[str, ...] = ()
    """More data of the same task, appended first of all."""
    clip_cost: float | None = None
    """Drop the episodes that cost more."""
    density: float | None = None
    """DSRL's thinning of crowded regions: 0.25, 0.5 or 0.75, as defined for --task."""
    outliers: float | None = None
    """Share of costly episodes made to look safe and rewarding; needs --limit."""
    inpaint: tuple[tuple[float, float, float, float], ...] = ()
    """Boxes to remove, as shares: cost from, cost to, reward from, reward to."""
    epsilon: float | None = None
    """Remove safe episodes whose reward is this near to the best; unsafe ones if below 0. Needs
    --limit."""
    noise: float | None = None
    """Noise on observations, as a share of their standard deviation."""
    subsample: float | None = None
    """Keep a random share of the episodes."""
    validation: float | None = None
    """Put a random share of the episodes into a second file, OUT with -validation in its name."""
    task: str | None = None
    """Public data set whose ranges of cost and reward count; those of the data unless given."""
    limit: float | None = None
    """Cost limit, for --outliers and --epsilon."""
    seed: int = 0
    """Seed of all that is random; DSRL's own is 1234."""


def run(arguments: list[str]) -> int:
    """Parse, edit, write, say what is left."""
    options = tyro.cli(Options, args=arguments, prog="safestitch data edit")
    if options.seed < 0:
        raise SafestitchError(f"--seed {options.seed}: expected 0 or more")
    from safestitch.data import load_blocks, maker, writer
    from safestitch.data.edits import split
    from safestitch.episodes import Episodes

    sources = (options.source, *options.join)
    whole = Episodes.join([block for source in sources for block in load_blocks(source)])
    edited = cut(filtered(whole, options), options)
    files = {options.out: edited}
    if options.validation is not None:
        name = f"{options.out.stem}-validation{options.out.suffix}"
        training, held_out = split(edited, options.validation, options.seed)
        files = {options.out: training, options.out.with_name(name): held_out}
    how = {"edited_from": list(sources), "arguments": arguments}
    for source in sources:
        how |= maker(source)
    console = stdout()
    console.print(f"{options.source}: {whole}", markup=False)
    for path, episodes in files.items():
        with writer(path, provenance=how) as file:
            file.append(episodes)
        console.print(f"{path}: {episodes}", markup=False)
    return 0


def filtered(episodes, options: Options):
    """Clipped, and DSRL's filters in DSRL's order."""
    from safestitch.catalog import get_public
    from safestitch.data import edits

    entry = None if options.task is None else get_public(options.task)
    if options.clip_cost is not None:
        episodes = edits.clip_cost(episodes, options.clip_cost)
    ranges = edits.Ranges.of(entry or episodes)
    if options.density is not None:
        if entry is None:
            raise SafestitchError(
                "--density needs --task, such as CarCircle: the grid is the task's"
            )
        grid = edits.get_grid(entry.task, options.density)
        episodes = edits.density(episodes, ranges, grid, options.seed)
    spared = ()
    if options.outliers is not None:
        limit = _limit(options, "--outliers")
        spared = edits.pick_outliers(episodes, ranges, options.outliers, options.seed).tolist()
        episodes = edits.outliers(episodes, ranges, options.outliers, limit, options.seed)
    if options.inpaint:
        episodes = edits.inpaint(episodes, ranges, options.inpaint, spared)
    if options.epsilon is not None:
        episodes = edits.epsilon(episodes, _limit(options, "--epsilon"), options.epsilon)
    return episodes


def cut(episodes, options: Options):
    """Perturbed and subsampled."""
    from safestitch.data import edits

    if options.noise is not None:
        episodes = edits.noise(episodes, options.noise, options.seed)
    if options.subsample is not None:
        episodes = edits.subsample(episodes, options.subsample, options.seed)
    return episodes


def _limit(options: Options, flag: str) -> float:
    if options.limit is None:
        raise SafestitchError(f"{flag} needs --limit, the cost limit that safe means here")
    return options.limit
