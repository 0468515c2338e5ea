"""`safestitch behaviours show FILE|RUN`: what each snapshot earns and costs."""

import dataclasses
from pathlib import Path
from typing import Annotated

import tyro
from rich.markup import escape
from rich.table import Table

from safestitch.cli.console import stdout


@dataclasses.dataclass(frozen=True)
class Options:
    """One row a snapshot: reward/cost of a noiseless episode at each lambda."""

    place: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FILE|RUN")]
    """A file of behaviours, or a run directory, also an unfinished one."""


def run(arguments: list[str]) -> int:
    """Parse, read, print."""
    options = tyro.cli(Options, args=arguments, prog="safestitch behaviours show")
    from safestitch.behaviours.packing import gathered

    found = gathered([options.place])
    lambdas = sorted({lam for moment in found.moments for lam in moment.lambdas})
    title = f"{found.spec.task}: reward/cost by lambda"
    table = Table("seed", "step", *(f"{lam:g}" for lam in lambdas), title=escape(title))
    for moment in found.moments:
        rows = zip(moment.lambdas, moment.rewards, moment.costs, strict=True)
        doings = {lam: f"{reward:.4g}/{cost:.4g}" for lam, reward, cost in rows}
        cells = (doings.get(lam, "") for lam in lambdas)
        table.add_row(str(moment.seed), f"{moment.step:,}", *cells)
    stdout().print(table)
    return 0
