"""Making data: survey, aim, thin, write. The same seed gives the same file, byte for byte."""

import dataclasses
import hashlib
import importlib.metadata
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from safestitch.behaviours.aiming import aim, chase
from safestitch.behaviours.plan import Planned, Setting, draw, ladder_of, measured, survey
from safestitch.behaviours.rolling import SLOT, most_laps, roll, slots_for
from safestitch.behaviours.snapshots import Behaviours, digest
from safestitch.behaviours.stock import Stock, clear
from safestitch.behaviours.thinning import QUOTA, Region, thin
from safestitch.catalog import Entry, catalog
from safestitch.data import dsrl
from safestitch.data.coverage import REWARD_MARGIN, TENTHS, Coverage, compare, cover, tenth
from safestitch.records import SafestitchError
from safestitch.sims.pool import Pool, Source
from safestitch.sims.suites import SUITES, require

FORMAT = 1
"""Changes when equal orders no longer give equal files."""
ROUNDS = (0.6, 0.5, 0.5)
"""Episodes of the survey and of the aimed rounds, as shares of those wanted."""
MORE_ROUNDS = (0.25, 0.25)
"""Rounds that follow while too few episodes are of use."""
LAST_ROUNDS = (0.25,) * 8
"""Rounds that follow while the public data are ahead: the best of more episodes is better."""
CROSSING_ROUNDS = (0.25,) * 8
"""Rounds that follow while they still are, in which one snapshot may hand over to another."""

Layout = Literal["compact", "dsrl"]
Progress = Callable[[int, int, int], None]
"""Called with (episodes rolled, episodes to roll, steps taken in this call)."""


@dataclasses.dataclass(frozen=True)
class Order:
    """What is to be made."""

    episodes: int
    seed: int = 0
    env: str | None = None
    """The user's own environment; none for a task of the catalog."""
    cost_range: float = 0.0
    """Largest cost of an episode to keep; 0: that of the survey."""
    layout: Layout = "compact"


@dataclasses.dataclass(frozen=True)
class Made:
    """What was made."""

    path: Path
    coverage: Coverage
    rolled: int
    """Episodes that were rolled to choose from."""
    steps_rolled: int
    already: bool = False
    """The very file was there."""


def order_for(
    entry: Entry, episodes: int | None = None, seed: int = 0, layout: Layout = "compact"
) -> Order:
    """Data of a task of the field: as many episodes as the public ones, up to the same cost."""
    count = entry.trajectories if episodes is None else episodes
    return Order(count, seed, None, entry.cost_range, layout)


def make(
    behaviours: Behaviours,
    order: Order,
    out: Path,
    *,
    workers: int | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Made:
    """Make a data file; the same call goes on after a kill and gives the same file.

    Args:
        behaviours: Who acts.
        order: What is to be made.
        out: The file; it appears when it is complete.
        workers: Simulator processes, one per core unless given; never changes the file.
        overwrite: Replace `out` if it exists.
        progress: Told how far it is.

    Raises:
        SafestitchError: if the behaviours cannot make it, or the file cannot be written.
    """
    facts = _facts(behaviours, order)
    key = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
    if out.exists() and not overwrite:
        return _already(out, key)
    stock = Stock(out, behaviours.spec)
    with stock.held({"key": key}):
        plan, region = _rolled(behaviours, order, stock, workers, progress)
        rewards, costs = stock.returns(len(plan))
        chosen = thin(rewards, costs, region, order.episodes, order.seed)
        coverage = cover(rewards[chosen], costs[chosen], region.cost_high)
        made = {**facts, "key": key, "rolled": len(plan), "steps_rolled": stock.steps}
        made |= {"cost_range": region.cost_high}
        with dsrl.Writer(out, exact=order.layout == "dsrl", provenance=made) as writer:
            for block in stock.blocks(chosen):
                writer.append(block)
        coverage = dataclasses.replace(coverage, steps=writer.rows)
    clear(out)
    return Made(out, coverage, len(plan), stock.steps)


def _rolled(
    behaviours: Behaviours,
    order: Order,
    stock: Stock,
    workers: int | None,
    progress: Progress | None,
) -> tuple[list[Planned], Region]:
    """Roll all rounds, each aimed by those before it."""
    sizes, more = (
        [max(2, round(share * order.episodes)) for share in rounds]
        for rounds in (ROUNDS, MORE_ROUNDS)
    )
    slots = slots_for(len(behaviours), max(sizes))
    laps = most_laps(len(behaviours), max(sizes), slots)
    source = Source(
        dataclasses.replace(behaviours.spec, task=order.env or behaviours.spec.task), order.env
    )
    with Pool(source, lanes=slots * SLOT, laps=laps, workers=workers) as pool:
        rounds = _Rounds(behaviours, order, stock, pool, progress)
        rounds.survey(sizes[0], sum(sizes))
        for size in sizes[1:]:
            rounds.aim(size, sum(sizes))
        for size in more:
            if rounds.suffice():
                break
            rounds.aim(size, len(rounds.plan) + size)
        for number, share in enumerate(LAST_ROUNDS + CROSSING_ROUNDS):
            crossing = number >= len(LAST_ROUNDS)
            if not rounds.chase(max(2, round(share * order.episodes)), crossing):
                break
    return rounds.plan, rounds.region


class _Rounds:
    """Plans and rolls one round after the other."""

    def __init__(
        self,
        behaviours: Behaviours,
        order: Order,
        stock: Stock,
        pool: Pool,
        progress: Progress | None,
    ):
        self.behaviours, self.order, self.stock, self.pool = behaviours, order, stock, pool
        self.progress = progress
        self.random = np.random.Generator(np.random.PCG64([order.seed, FORMAT]))
        self.region = Region(order.cost_range, _least_reward(order, behaviours.spec.task))
        self.plan: list[Planned] = []
        self.taken = 0

    def survey(self, count: int, total: int) -> None:
        """Visit all settings; they say how much an episode may cost, where the order does not."""
        region = self.region if self.order.cost_range else None
        self._roll(survey(self.behaviours, count, region, self.random), total)
        if region is None:
            _, costs = self.stock.returns(len(self.plan))
            self.region = dataclasses.replace(self.region, cost_high=float(costs.max()))

    def aim(self, count: int, total: int) -> None:
        """Roll what is expected to land where episodes are missing."""
        before = [planned.setting for planned in self.plan]
        returns = self.stock.returns(len(self.plan))
        known, wanted = measured(self.behaviours), self.order.episodes
        self._roll(aim(before, *returns, self.region, count, wanted, known), total)

    def chase(self, count: int, crossing: bool) -> bool:
        """Roll what may earn most where the public data are ahead; False if they are not."""
        returns = self.stock.returns(len(self.plan))
        levels = behind(self.order, self.behaviours.spec.task, self.region, *returns)
        if levels:
            before = [planned.setting for planned in self.plan]
            known = measured(self.behaviours)
            pairs = len(self.behaviours) if crossing else 0  # as many as there are slots for
            chosen = chase(before, *returns, self.region, count, levels, known, pairs=pairs)
            self._roll(chosen, len(self.plan) + count)
        return bool(levels)

    def suffice(self) -> bool:
        """Whether as many as wanted are of use, and every tenth of the cost range has its share."""
        rewards, costs = self.stock.returns(len(self.plan))
        useful = self.region.holds(rewards, costs)
        tenths = tenth(costs[useful], self.region.cost_high)
        counts, wanted = np.bincount(tenths, minlength=TENTHS), self.order.episodes
        return useful.sum() >= wanted and bool((counts >= QUOTA * wanted).all())

    def _roll(self, settings: list[Setting], total: int) -> None:
        first, spec = len(self.plan), self.behaviours.spec
        self.plan += draw(settings, ladder_of(self.behaviours), spec.horizon, self.random)

        def told(finished: int, steps: int) -> None:
            if self.progress:
                self.progress(finished, total, self.taken + steps)

        self.taken += roll(
            self.pool,
            self.behaviours,
            self.plan[first:],
            self.stock,
            first=first,
            seed=self.order.seed,
            progress=told,
        )


def behind(
    order: Order,
    task: str,
    region: Region,
    rewards: Float[np.ndarray, " e"],
    costs: Float[np.ndarray, " e"],
) -> list[int]:
    """Tenths of the cost range within which public data of as many episodes earn too much more."""
    entry, useful = catalog().get(task), region.holds(rewards, costs)
    if order.env or not entry or min(order.episodes, useful.sum()) < entry.trajectories:
        return []
    beside = compare(cover(rewards[useful], costs[useful], region.cost_high), entry)
    return [i for i, ratio in enumerate(beside.ratios) if not ratio >= beside.least_ratio]


def _least_reward(order: Order, task: str) -> float:
    """Public data hold nothing that earns less; what is a little worse is as hopeless."""
    if order.env or task not in catalog():
        return -math.inf
    entry = catalog()[task]
    return entry.reward_min - 0.5 * REWARD_MARGIN * entry.reward_max


def _facts(behaviours: Behaviours, order: Order) -> dict[str, Any]:
    """All that the file depends on."""
    spec = behaviours.spec
    names = ["safestitch", "numpy", "jax", "jaxlib"]
    if order.env is None and spec.task in catalog():
        extra = catalog()[spec.task].suite
        require(extra, spec.task)
        suite = SUITES[extra]
        names += [suite.suite.split("==")[0], suite.engine]
    return {
        "made_by": dsrl.OURS,
        "format": FORMAT,
        "task": spec.task,
        "behaviours": digest(behaviours),
        "snapshots": len(behaviours),
        "versions": {name: importlib.metadata.version(name) for name in names},
        **dataclasses.asdict(order),
    }


def _already(out: Path, key: str) -> Made:
    """The file that is there, if it is the very one."""
    before = dsrl.provenance(out)
    if before.get("key") != key:
        raise SafestitchError(f"{out} exists: choose another --out, or give --overwrite")
    clear(out)  # it was killed when it had only to tidy up
    rewards, costs, lengths = dsrl.returns(out)
    coverage = cover(rewards, costs, before["cost_range"], int(lengths.sum()))
    return Made(out, coverage, before["rolled"], before["steps_rolled"], already=True)
