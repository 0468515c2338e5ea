"""`safestitch data make CarCircle`, or of an environment of one's own with --env."""

import dataclasses
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro
from rich.table import Table

from safestitch.cli.console import stdout
from safestitch.cli.progress import CountingBar
from safestitch.records import SafestitchError

if TYPE_CHECKING:
    from safestitch.behaviours.making import Made, Order
    from safestitch.behaviours.snapshots import Behaviours

ALL = "all"


@dataclasses.dataclass(frozen=True)
class Options:
    """Roll out behaviours on a simulator and keep what covers rewards and costs evenly.

    The same seed gives the same file with any number of workers, and after a stop: the same command
    goes on.
    """

    task: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="TASK")] = ""
    """A task of the field, or all: see `safestitch tasks`; none with --env."""
    seed: int = 0
    """Of all that is drawn."""
    episodes: int | None = None
    """To keep; as many as the public data have unless given, 1000 with --env."""
    workers: int | None = None
    """Simulator processes, one per core unless given; never changes the file."""
    behaviours: Path | None = None
    """File of behaviours; those that come with safestitch unless given."""
    env: str | None = None
    """Your own environment: package.module:function, or a gymnasium id."""
    horizon: int | None = None
    """Steps of a full episode of --env; as the behaviours were trained unless given."""
    cost_range: float | None = None
    """Largest cost of an episode to keep; the task's, or with --env what a survey finds."""
    out: Path | None = None
    """File to write; where `safestitch train gas TASK` finds it unless given."""
    layout: Literal["compact", "dsrl"] = "compact"
    """dsrl holds next_observations, as the `dsrl` package demands; compact is half the size."""
    overwrite: bool = False
    """Replace the file if it exists."""


def run(arguments: list[str]) -> int:
    """Parse, make one file or all, say what they hold."""
    options = tyro.cli(Options, args=arguments, prog="safestitch data make")
    _check(options)
    from safestitch.behaviours.making import make

    for behaviours, order, out in _orders(options):
        title = f"rolling {behaviours.spec.task}"
        with RollingBar(title) as bar:
            made = make(
                behaviours,
                order,
                out,
                workers=options.workers,
                overwrite=options.overwrite,
                progress=bar,
            )
        _tell(made, behaviours.spec.task, bar)
    return 0


def _check(options: Options) -> None:
    if bool(options.task) == bool(options.env):
        raise SafestitchError(
            "which data? Give a task, such as CarCircle, or all, or your own environment with --env"
        )
    if options.workers is not None and not 1 <= options.workers <= 256:
        raise SafestitchError(f"--workers {options.workers}: expected 1 to 256")
    if options.episodes is not None and not 10 <= options.episodes <= 1_000_000:
        raise SafestitchError(f"--episodes {options.episodes}: expected 10 to 1000000")
    if not 0 <= options.seed < 2**32:
        raise SafestitchError(f"--seed {options.seed}: expected 0 to 4294967295")
    if options.cost_range is not None and not 0 < options.cost_range < float("inf"):
        raise SafestitchError(f"--cost-range {options.cost_range:g}: expected a cost above 0")
    if options.horizon is not None and (options.horizon < 1 or not options.env):
        raise SafestitchError("--horizon: expected 1 or more, with --env; tasks have their own")
    if options.env and not (options.behaviours and options.out):
        raise SafestitchError(
            "--env needs --behaviours, a file that `safestitch behaviours train --env` wrote, and "
            "--out, the file to write"
        )
    if options.task == ALL and (options.out or options.behaviours):
        raise SafestitchError("all tasks are made with their own behaviours, each to its own file")


def _orders(options: Options) -> "list[tuple[Behaviours, Order, Path]]":
    from safestitch.behaviours.making import Order, order_for
    from safestitch.behaviours.snapshots import load, shipped
    from safestitch.catalog import catalog, get_entry
    from safestitch.data.places import made_path

    if options.env:
        found = load(options.behaviours or Path())
        horizon = options.horizon or found.spec.horizon
        found = dataclasses.replace(found, spec=dataclasses.replace(found.spec, horizon=horizon))
        order = Order(
            options.episodes or 1000,
            options.seed,
            options.env,
            options.cost_range or found.spec.cost_range,
            options.layout,
        )
        return [(found, order, options.out or Path())]
    orders = []
    for name in catalog() if options.task == ALL else [options.task]:
        entry = get_entry(name)
        found = load(options.behaviours or shipped(name))
        if found.spec.task != name:
            raise SafestitchError(
                f"{options.behaviours} holds behaviours of {found.spec.task}, not of {name}"
            )
        order = order_for(entry, options.episodes, options.seed, options.layout)
        order = dataclasses.replace(order, cost_range=options.cost_range or order.cost_range)
        orders.append((found, order, options.out or made_path(entry)))
    return orders


class RollingBar(CountingBar):
    """Episodes rolled, steps per second, remaining time."""

    def __init__(self, title: str):
        super().__init__(title, "episodes")
        self.rate = 0.0

    def __call__(self, finished: int, total: int, steps: int) -> None:  # type: ignore[override]
        """Show how far it is; the rate counts from the first step on, not the start of workers."""
        since = time.monotonic() - self.first[0] if self.first else 0.0
        self.rate = steps / since if since else 0.0
        super().__call__(finished, total, f"{self.rate:,.0f} steps/s")


def _tell(made: "Made", task: str, bar: RollingBar) -> None:
    """What the file holds, beside the public data where there are any."""
    from safestitch.catalog import catalog
    from safestitch.data.coverage import LEVELS, compare

    console, found = stdout(), made.coverage
    rate = f", {bar.rate:,.0f} steps/s" if bar.rate else ""
    console.print(
        f"{made.path}: {found.episodes:,} episodes, {found.steps:,} steps"
        f"{' (it was there)' if made.already else ''}; {made.rolled:,} episodes were rolled{rate}\n"
        f"reward {found.reward_min:.4g} to {found.reward_max:.4g}, "
        f"cost {found.cost_min:g} to {found.cost_max:g}",
        markup=False,
    )
    table = Table(box=None)
    table.add_column("cost range")
    rows = {"share of the episodes": ["", *(f"{share:.1%}" for share in found.tenths)]}
    rows["best reward within"] = [f"{reward:.4g}" for reward in found.frontier]
    if task in catalog():
        beside = compare(found, catalog()[task])
        rows["of the public data"] = [f"{reward:.4g}" for reward in beside.public_frontier]
        rows["ratio"] = [f"{ratio:.2f}" for ratio in beside.ratios]
    for level in LEVELS:
        table.add_column(f"{level:.0%}", justify="right")
    for name, cells in rows.items():
        table.add_row(name, *cells)
    console.print(table)
    console.print(
        f"next: safestitch train gas {task if task in catalog() else made.path}", markup=False
    )
