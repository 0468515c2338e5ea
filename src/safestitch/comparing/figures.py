"""The figures of a comparison: averages over the tight and the loose limits, marks, differences.

As in the GAS paper: R/R_max is reward over the largest reward return of the data, C/L is cost over
limit; both are averaged over three limits, and a method is safe if its C/L is at most 1.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from safestitch.comparing.entries import Entry
from safestitch.comparing.paired import Difference, Pair, difference
from safestitch.comparing.published import Mark, Published, published
from safestitch.evaluation.rollout import Rollout
from safestitch.evaluation.score import best_logged

BANDS = {"tight": (0.1, 0.2, 0.3), "loose": (0.7, 0.8, 0.9)}
"""Shares of the cost range, as in the paper."""
ALL = "all limits"
"""The band of limits that hold neither of the paper's."""


class Result(NamedTuple):
    """What a run's policies did: one column of episodes per limit."""

    entry: Entry
    limits: tuple[float, ...]
    rollout: Rollout


@dataclasses.dataclass(frozen=True)
class Cell:
    """One method on one task in one band."""

    task: str
    method: str
    band: str
    seeds: int
    reward: float | None
    """Mean R/R_max; none where no reward of the data is above 0."""
    reward_std: float | None
    """Between seeds; none of a single one."""
    cost: float | None
    """Mean C/L over limits above 0."""
    cost_std: float | None
    kept: int
    """Limits whose mean cost is at most the limit."""
    limits: int
    frontier_ratio: float | None
    """Mean reward over the best logged episode within the limit, over the limits kept."""
    mark: Mark
    gap: tuple[Difference, Difference] | None = None
    """R/R_max and C/L minus those of the reference, if it has this task."""
    paper: Published | None = None


def bands_of(results: Sequence[Result]) -> list[str]:
    """The bands whose limits were all asked for on every task, or one of all limits."""
    held = [
        name
        for name in BANDS
        if all(len(chosen_limits(result, name)) == len(BANDS[name]) for result in results)
    ]
    return held or [ALL]


def chosen_limits(result: Result, band: str) -> list[int]:
    """Which of the limits belong to a band."""
    if band == ALL:
        return list(range(len(result.limits)))
    span = result.entry.run.spec.cost_range
    shares = [share * span for share in BANDS[band]]
    return [
        i
        for i, limit in enumerate(result.limits)
        if any(math.isclose(limit, share, rel_tol=1e-6) for share in shares)
    ]


def normalised(
    result: Result, band: str
) -> tuple[Float[np.ndarray, "s e"], Float[np.ndarray, "s e"]]:
    """R/R_max and C/L of every episode number, averaged over the limits of a band; NaN if unknown.

    Averaging over limits first keeps the episodes that share a start state together.
    """
    chosen = chosen_limits(result, band)
    limits = np.asarray(result.limits)[chosen]
    best = float(result.entry.run.data_summary["reward_max"])
    rewards = result.rollout.rewards[:, chosen].mean(1) / (best if best > 0 else math.nan)
    costs = result.rollout.costs[:, chosen]
    paid = limits > 0
    if not paid.any():
        return rewards, np.full(rewards.shape, math.nan)
    return rewards, (costs[:, paid] / limits[paid, None]).mean(1)


def cells_of(results: Sequence[Result], bands: Sequence[str], against: str | None) -> list[Cell]:
    """All cells, task by task, marked, with their difference to the reference method."""
    found = []
    for task in dict.fromkeys(result.entry.task for result in results):
        here = [result for result in results if result.entry.task == task]
        reference = next((r for r in here if r.entry.method == against), None)
        for band in bands:
            cells = [_cell(result, band) for result in here]
            best = _best_reward(cells)
            found += [
                dataclasses.replace(
                    cell,
                    mark="best" if _is_best(cell, best) else cell.mark,
                    gap=gap([(result, reference)], band) if reference else None,
                    paper=published(band, task, result.entry.run.algorithm),
                )
                for cell, result in zip(cells, here, strict=True)
            ]
    return found


def gap(pairs: Sequence[tuple[Result, Result]], band: str) -> tuple[Difference, Difference] | None:
    """R/R_max and C/L of a method minus those of the reference; None for the reference itself."""
    if all(result is reference for result, reference in pairs):
        return None
    both = [(normalised(result, band), normalised(other, band)) for result, other in pairs]
    rewards: list[Pair] = [(ours[0], theirs[0]) for ours, theirs in both]
    costs: list[Pair] = [(ours[1], theirs[1]) for ours, theirs in both]
    return difference(rewards), difference(costs)


def _cell(result: Result, band: str) -> Cell:
    entry, chosen = result.entry, chosen_limits(result, band)
    rewards, costs = normalised(result, band)
    mean_rewards = result.rollout.rewards[:, chosen].mean((0, 2))
    mean_costs = result.rollout.costs[:, chosen].mean((0, 2))
    limits = np.asarray(result.limits)[chosen]
    kept = mean_costs <= limits
    best = np.asarray([best_logged(entry.run, float(limit)) for limit in limits])
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.where(best > 0, mean_rewards / best, math.nan)[kept]
    cost = costs.mean()
    free = limits <= 0  # C/L says nothing of a limit of 0
    safe = not cost > 1 and bool(kept[free].all())
    return Cell(
        task=entry.task,
        method=entry.method,
        band=band,
        seeds=len(rewards),
        reward=_known(rewards.mean()),
        reward_std=_std(rewards),
        cost=_known(cost),
        cost_std=_std(costs),
        kept=int(kept.sum()),
        limits=len(limits),
        frontier_ratio=_known(ratios.mean()) if len(ratios) else None,
        mark="safe" if safe else "unsafe",
    )


def _best_reward(cells: Sequence[Cell]) -> float | None:
    safe = [c.reward for c in cells if c.mark == "safe" and c.reward is not None]
    return round(max(safe), 2) if safe else None


def _is_best(cell: Cell, best: float | None) -> bool:
    """Equal to two decimals, as printed, is equally good."""
    return cell.mark == "safe" and cell.reward is not None and round(cell.reward, 2) == best


def _std(values: Float[np.ndarray, "s e"]) -> float | None:
    """Between the means of seeds, n - 1."""
    return _known(values.mean(1).std(ddof=1)) if len(values) > 1 else None


def _known(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
