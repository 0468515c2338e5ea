"""`safestitch data report FILE`: one self-contained HTML page of what the data can support."""

import dataclasses
from pathlib import Path
from typing import Annotated

import tyro

from safestitch.cli.console import stdout
from safestitch.cli.progress import CountingBar


@dataclasses.dataclass(frozen=True)
class Options:
    """Draw a log or a data set: what it holds, what limits it can support, what is wrong."""

    file: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FILE")]
    """CSV, JSON lines, Parquet, NPZ or HDF5."""
    out: Path | None = None
    """Page to write; FILE with the ending .html unless given."""
    map: Path | None = None
    """TOML file that says which column means what; guessed unless given."""
    horizon: int | None = None
    """Steps of a full episode; the longest one unless given."""
    bounds: tuple[float, float] = (-1.0, 1.0)
    """Smallest and largest action that means something."""


def run(arguments: list[str]) -> int:
    """Parse, make the page, say where it is."""
    options = tyro.cli(Options, args=arguments, prog="safestitch data report")
    from safestitch.files import write_atomic
    from safestitch.report.data import data_page

    with CountingBar(f"reading {options.file}", "bytes") as bar:
        page = data_page(
            options.file,
            options.map,
            horizon=options.horizon,
            bounds=options.bounds,
            progress=bar,
        )
    out = options.out or options.file.with_suffix(".html")
    write_atomic(out, page.encode())
    stdout().print(f"open {out.resolve()}", markup=False)
    return 0
