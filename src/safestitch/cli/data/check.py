"""`safestitch data check FILE`: what is wrong, in plain words; exits 1 on errors."""

import dataclasses
from pathlib import Path
from typing import Annotated

import tyro

from safestitch.cli.console import stdout
from safestitch.cli.progress import CountingBar


@dataclasses.dataclass(frozen=True)
class Options:
    """Look a log or a data set over before training on it."""

    file: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FILE")]
    """CSV, JSON lines, Parquet, NPZ or HDF5."""
    map: Path | None = None
    """TOML file that says which column means what; guessed unless given."""
    horizon: int | None = None
    """Steps of a full episode; the longest one unless given."""
    bounds: tuple[float, float] = (-1.0, 1.0)
    """Smallest and largest action that means something."""


def run(arguments: list[str]) -> int:
    """Parse, read once, print the findings."""
    options = tyro.cli(Options, args=arguments, prog="safestitch data check")
    from safestitch.data.check import check

    with CountingBar(f"checking {options.file}", "bytes") as bar:
        findings = check(
            options.file,
            options.map,
            horizon=options.horizon,
            bounds=options.bounds,
            progress=bar,
        )
    console = stdout()
    for finding in findings:
        console.print(f"{finding.level}: {finding}", markup=False)
    counts = {level: sum(f.level == level for f in findings) for level in ("error", "warning")}
    console.print(
        f"{options.file}: {counts['error']} errors, {counts['warning']} warnings", markup=False
    )
    return 1 if counts["error"] else 0
