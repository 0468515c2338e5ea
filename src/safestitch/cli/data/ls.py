"""`safestitch data ls`."""

import dataclasses
from pathlib import Path

import tyro
from rich.markup import escape
from rich.table import Table

from safestitch.cli.console import stdout


@dataclasses.dataclass(frozen=True)
class Options:
    """What is on disk, what can be downloaded, what can be made."""

    dir: Path | None = None
    """Where to look; $DSRL_DATASET_DIR or ~/.dsrl/datasets unless given."""


def run(arguments: list[str]) -> int:
    """Parse, look, print."""
    options = tyro.cli(Options, args=arguments, prog="safestitch data ls")
    from safestitch.catalog import catalog, public_files
    from safestitch.data.places import data_dir, held
    from safestitch.envs import TASKS

    directory = options.dir or data_dir()
    found = held(directory)
    console = stdout()
    console.print(f"on disk, in {directory}:", markup=False)
    if found:
        console.print(_table(("", "size", "episodes", "file", ""), map(_on_disk, found)))
    else:
        console.print("  nothing")
    whole = {one.entry.task for one in found if one.entry and not one.flaw and not one.made}
    missing = [entry for name, entry in public_files().items() if name not in whole]
    console.print("\ncan be downloaded, with `safestitch data get NAME`:", markup=False)
    columns = ("", "episodes", "horizon", "cost range", "observations", "actions")
    numbers = [
        (e.task, e.trajectories, e.horizon, e.cost_range, e.obs_dim, e.act_dim) for e in missing
    ]
    rows = ((name, *(f"{number:g}" for number in rest)) for name, *rest in numbers)
    console.print(_table(columns, rows) if missing else "  nothing more")
    console.print("\ncan be made, with `safestitch data make NAME`:", markup=False)
    console.print(f"  {', '.join(catalog())}", markup=False)
    console.print("\nbuilt in, made when `safestitch train gas NAME` needs them:", markup=False)
    console.print(f"  {', '.join(TASKS)}", markup=False)
    return 0


def _on_disk(one) -> tuple[str, ...]:
    name = one.entry.task if one.entry else "-"
    # What the public file of that name holds: opening every file would take its time.
    known = one.entry and not one.flaw and not one.made
    episodes = f"{one.entry.trajectories}" if known else "-"
    note = one.flaw or ("of our own making" if one.made else "")
    return name, f"{one.size / 1e6:,.1f} MB", episodes, one.path.name, note


def _table(columns, rows) -> Table:
    shown = Table(box=None)
    for column in columns:
        left = column in ("", "file")
        shown.add_column(column, justify="left" if left else "right", no_wrap=True)
    for row in rows:
        shown.add_row(*(escape(cell) for cell in row))
    return shown
