"""`safestitch tasks`: every task, what it looks like, and whether it runs here."""

import dataclasses

import numpy as np
import tyro
from rich.table import Table

from safestitch.catalog import catalog
from safestitch.cli.console import stdout
from safestitch.records import SafestitchError, Spec


@dataclasses.dataclass(frozen=True)
class Options:
    """All tasks, or a look at an environment of your own."""

    env: str | None = None
    """Your own environment: package.module:function, or a gymnasium id. One episode is tried."""
    horizon: int | None = None
    """Steps of a full episode, where the environment does not say."""


def run(arguments: list[str]) -> int:
    """Parse, list the tasks or try the environment."""
    options = tyro.cli(Options, args=arguments, prog="safestitch tasks")
    if options.env is None:
        stdout().print(listed(), markup=False)
    else:
        stdout().print(try_own(options.env, options.horizon), markup=False)
    return 0


def listed() -> Table:
    """Name, suite, dimensions, horizon, cost range, and whether it runs here."""
    from safestitch.envs import TASKS
    from safestitch.sims.suites import SUITES, obstacle

    table = Table(box=None)
    for title in ("task", "suite"):
        table.add_column(title, no_wrap=True)
    for title in ("observations", "actions", "horizon", "cost range"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("runs here")
    reasons = {suite: obstacle(suite) for suite in SUITES}
    rows = [(task.spec, "built in", "") for task in TASKS.values()]
    rows += [(e.spec, SUITES[e.suite].title, reasons[e.suite]) for e in catalog().values()]
    for spec, suite, reason in rows:
        table.add_row(spec.task, suite, *_facts(spec), "no" if reason else "yes")
    for reason in filter(None, dict.fromkeys(reasons.values())):
        table.caption = f"{table.caption or ''}{reason}\n"
    return table


def _facts(spec: Spec) -> list[str]:
    return [str(spec.obs_dim), str(spec.act_dim), str(spec.horizon), f"{spec.cost_range:g}"]


def try_own(source: str, horizon: int | None) -> str:
    """One episode of random actions through the same checks as an evaluation.

    Raises:
        SafestitchError: what is wrong with it.
    """
    from safestitch.sims import make_own
    from safestitch.sims.pool import BEGUN, IDLE, Pool, Source

    sim = make_own(source, horizon)
    spec = sim.spec
    sim.close()
    random = np.random.default_rng(0)
    reward = cost = steps = 0
    with Pool(Source(spec, source), lanes=1, laps=1, workers=1) as pool:
        pool.begin(np.zeros((1, 1), np.int64))
        while pool.live:
            outcome = pool.receive(0)
            if not outcome.flags[0] & BEGUN:
                steps, reward = steps + 1, reward + outcome.rewards[0]
                cost += outcome.costs[0]
            if not outcome.flags[0] & IDLE:
                drawn = random.uniform(spec.action_low, spec.action_high, (1, spec.act_dim))
                pool.send(0, drawn.astype(np.float32))
    if not steps:
        raise SafestitchError(f"{source}: an episode without a step")
    return (
        f"{source} works: observations {spec.obs_dim}, actions {spec.act_dim} in "
        f"[{spec.action_low:g}, {spec.action_high:g}], horizon {spec.horizon}. An episode of "
        f"random actions: {steps} steps, reward {reward:.4g}, cost {cost:.4g}"
    )
