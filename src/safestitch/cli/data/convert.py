"""`safestitch data convert SafetyCarCircle-v0-100-1450.hdf5 CarCircle.store`."""

import dataclasses
import warnings
from pathlib import Path
from typing import Annotated

import tyro

from safestitch.cli.console import stdout
from safestitch.records import DataNote, SafestitchError


@dataclasses.dataclass(frozen=True)
class Options:
    """From one format into another, by their names: .hdf5 is DSRL, .store memory-mapped, a
    directory NAME-v0 Minari. All but logs are read in pieces; the result appears when it is whole.
    """  # noqa: D205 (tyro shows it as one paragraph)

    source: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="IN")]
    """File or directory, or the name of a public data set on disk."""
    out: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="OUT")]
    """What to write."""
    map: Path | None = None
    """Which column means what, for logs; see `safestitch data import --help`."""
    exact_dsrl: bool = False
    """Write .hdf5 as the `dsrl` package reads it, with next_observations: twice the size."""
    overwrite: bool = False
    """Replace OUT, if it is a file."""


def run(arguments: list[str]) -> int:
    """Parse, convert in pieces, say what was written."""
    options = tyro.cli(Options, args=arguments, prog="safestitch data convert")
    from safestitch import data

    if options.out.exists() and not (options.overwrite and options.out.is_file()):
        raise SafestitchError(f"{options.out} exists: delete it, or choose another name")
    console = stdout()
    steps = episodes = 0
    with warnings.catch_warnings(record=True) as notes:
        warnings.simplefilter("always", DataNote)
        made = {"converted_from": options.source, **data.maker(options.source)}
        with data.writer(options.out, exact=options.exact_dsrl, provenance=made) as writer:
            for block in data.load_blocks(options.source, mapping=options.map):
                writer.append(block)
                steps, episodes = steps + block.steps, episodes + len(block)
    for note in notes:
        console.print(f"note: {note.message}", markup=False)
    console.print(f"{options.out}: {episodes} episodes, {steps} steps", markup=False)
    return 0
