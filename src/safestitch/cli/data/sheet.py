"""`safestitch data sheet CarCircle AntRun --out docs/datasheets`."""

import dataclasses
from pathlib import Path
from typing import Annotated

import tyro

from safestitch.cli.console import stdout
from safestitch.records import SafestitchError


@dataclasses.dataclass(frozen=True)
class Options:
    """Datasheets: a page and a picture per data file, and a table of all tasks of the field."""

    names: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="FILE")]
    """Files of the DSRL layout, or tasks whose data were made; all for every task made."""
    out: Path = Path("datasheets")
    """Directory of the pages."""


def run(arguments: list[str]) -> int:
    """Parse, write the pages, say where they are."""
    options = tyro.cli(Options, args=arguments, prog="safestitch data sheet")
    from safestitch.report.sheet import write_sheets

    paths = [path for name in options.names for path in _paths(name)]
    if not paths:
        raise SafestitchError("no data to describe: give files, or make some first")
    for page in write_sheets(paths, options.out):
        stdout().print(f"{page}", markup=False)
    return 0


def _paths(name: str) -> list[Path]:
    from safestitch.catalog import catalog, get_entry
    from safestitch.data.places import made_path

    if Path(name).exists():
        return [Path(name)]
    if name == "all":
        return [p for p in (made_path(entry) for entry in catalog().values()) if p.exists()]
    if Path(name).suffix or len(Path(name).parts) > 1:
        raise SafestitchError(f"no file {name}")
    path = made_path(get_entry(name))
    if not path.exists():
        raise SafestitchError(f"{path} does not exist: make it with `safestitch data make {name}`")
    return [path]
