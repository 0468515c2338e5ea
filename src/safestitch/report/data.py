"""What a data set can support, as one page: figures from a survey of it."""

import dataclasses
import importlib.metadata
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from safestitch.data.check import judge
from safestitch.data.importing import Progress
from safestitch.data.stitching import EPISODES, PIECES, REACH, Stitched, stitch, top_of_cost
from safestitch.data.survey import Survey, survey
from safestitch.episodes import best_within, frontier
from safestitch.report.html import render

Frontier = tuple[np.ndarray, np.ndarray]
"""Costs at which the best reward rises, and that best reward."""
TOP_SHARE = 0.1
"""q of GAS's reshaping, as its settings have it."""
SHARES = (0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
"""Limits shown, as shares of the largest cost of an episode."""
POINTS = 2500
"""Most episodes drawn one by one."""
DRIFT = 0.2
"""Of its spread; what a column must move from the first quarter to the last to be drawn."""
DIMENSIONS = 300
"""Most columns whose range is drawn."""


def data_page(
    source: Any,
    mapping: Any = None,
    *,
    horizon: int | None = None,
    bounds: tuple[float, float] = (-1.0, 1.0),
    progress: Progress | None = None,
) -> str:
    """One self-contained HTML page about a log or a data set, sound or broken.

    Raises:
        DataError: if not even the columns can be read.
    """
    found = survey(source, mapping, progress)
    return render(figures(found, horizon=horizon, bounds=bounds), "data.html")


def figures(
    found: Survey, *, horizon: int | None = None, bounds: tuple[float, float] = (-1.0, 1.0)
) -> dict[str, Any]:
    """Everything the page shows, as plain values."""
    known = np.isfinite(found.returns) & np.isfinite(found.cost_returns)
    returns, costs = found.returns[known], found.cost_returns[known]
    steps = horizon or int(found.lengths.max(initial=1))
    findings = judge(found, horizon=horizon, bounds=bounds)
    stitched = stitch(found.sample, steps) if found.sample else None
    kept = top_of_cost(returns, costs, TOP_SHARE)
    best = frontier(returns, costs) if len(returns) else (np.zeros(0), np.zeros(0))
    return {
        "name": found.name,
        "facts": {
            "Episodes": f"{len(found.lengths):,}",
            "Steps": f"{found.steps:,}",
            "Observation": f"{found.log.widths[0]} numbers",
            "Action": f"{found.log.widths[1]} numbers",
            "Horizon": f"{steps:,} steps",
        },
        "findings": [{**dataclasses.asdict(f), "text": str(f)} for f in findings],
        "left_out": int((~known).sum()),
        "scatter": _scatter(returns, costs, kept),
        "density": _density(returns, costs, kept),
        "frontier": {"costs": best[0].tolist(), "rewards": best[1].tolist()},
        "limits": _limits(returns, costs, best, stitched),
        "stitching": _curve(stitched, best),
        "lengths": _histogram(found.lengths),
        "drift": _drift(found),
        "ranges": _ranges(found, bounds),
        "mapping": _plain_mapping(found),
        "method": _method(stitched),
        "versions": {"safestitch": importlib.metadata.version("safestitch")},
    }


def _scatter(
    returns: Float[np.ndarray, " e"], costs: Float[np.ndarray, " e"], kept: Bool[np.ndarray, " e"]
) -> dict[str, Any]:
    """Points to draw: all, or a fair draw of them."""
    index = np.arange(len(returns))
    if len(index) > POINTS:
        index = np.sort(np.random.default_rng(0).choice(index, POINTS, replace=False))
    chosen = np.flatnonzero(kept)
    if len(chosen) > POINTS:
        chosen = np.sort(np.random.default_rng(0).choice(chosen, POINTS, replace=False))
    return {
        "all": {"costs": _short(costs[index]), "rewards": _short(returns[index])},
        "kept": {"costs": _short(costs[chosen]), "rewards": _short(returns[chosen])},
        "count": len(returns),
        "kept_count": int(kept.sum()),
        "share": TOP_SHARE,
    }


def _density(
    returns: np.ndarray, costs: np.ndarray, kept: np.ndarray, cells: tuple[int, int] = (36, 28)
) -> dict[str, Any]:
    """Share of the episodes in each cell of cost and reward, before and after reshaping."""
    if not len(returns):
        return {"costs": [0, 1], "rewards": [0, 1], "before": [], "after": []}
    edges = [_edges(values, count) for values, count in zip((costs, returns), cells, strict=True)]
    grids = [
        np.histogram2d(costs[mask], returns[mask], edges)[0] / max(mask.sum(), 1)
        for mask in (np.ones(len(returns), bool), kept)
    ]
    return {
        "costs": edges[0].tolist(),
        "rewards": edges[1].tolist(),
        "before": _cells(grids[0]),
        "after": _cells(grids[1]),
    }


def _edges(values: np.ndarray, count: int) -> np.ndarray:
    low, high = float(values.min()), float(values.max())
    return np.linspace(low, high if high > low else low + 1, count + 1)


def _cells(grid: np.ndarray) -> list[list[float | int]]:
    """[column, row, share] of the cells that are not empty."""
    return [[int(i), int(j), round(float(grid[i, j]), 5)] for i, j in np.argwhere(grid > 0)]


def _limits(
    returns: np.ndarray, costs: np.ndarray, best: Frontier, stitched: Stitched | None
) -> list[dict[str, Any]]:
    """For each limit: how many episodes keep it, the best of them, and what stitching may add."""
    if not len(returns):
        return []
    top = float(costs.max())
    limits = [top * share for share in SHARES] if top > 0 else [0.0]
    needed = max(10, int(np.ceil(0.01 * len(returns))))
    rows = []
    for limit in limits:
        within = int((costs <= limit + 1e-9 * top).sum())
        logged = best_within(*best, limit + 1e-9 * top)
        may = _stitched_within(stitched, limit)
        rows.append(
            {
                "limit": limit,
                "fraction": limit / top if top > 0 else 0.0,
                "within": within,
                "share": within / len(returns),
                "needed": needed,
                "supported": within >= needed,
                "logged": logged,
                "stitched": float(np.fmax(may, logged)),
            }
        )
    return rows


def _stitched_within(stitched: Stitched | None, limit: float) -> float:
    if stitched is None:
        return float("nan")
    at = int(np.searchsorted(stitched.budgets, limit * (1 + 1e-9) + 1e-9, side="right")) - 1
    return float(stitched.rewards[at]) if at >= 0 else float("nan")


def _curve(stitched: Stitched | None, best: Frontier) -> dict[str, list[float]]:
    """The estimate against the limit, never below the best that is logged."""
    if stitched is None:
        return {"costs": [], "rewards": []}
    logged = [best_within(*best, float(budget)) for budget in stitched.budgets]
    return {
        "costs": stitched.budgets.tolist(),
        "rewards": np.fmax(stitched.rewards, logged).tolist(),
    }


def _histogram(lengths: np.ndarray) -> dict[str, list[float]]:
    if not len(lengths):
        return {"edges": [], "counts": []}
    low, high = int(lengths.min()), int(lengths.max())
    edges = np.unique(np.linspace(low, high + 1, min(high - low + 1, 40) + 1).round())
    return {"edges": edges.tolist(), "counts": np.histogram(lengths, edges)[0].tolist()}


def _drift(found: Survey, wanted: int = 120, shown: int = 6) -> dict[str, Any]:
    """Means along the order of the episodes, and the columns that move most along it."""
    if not len(found.lengths):
        return {"least": DRIFT, "series": []}
    edges = np.unique(np.linspace(0, len(found.lengths), wanted + 1).astype(int))
    series = [
        {"name": name, "episode": edges[:-1].tolist(), "mean": _means(values, edges)}
        for name, values in (
            ("reward per episode", found.returns),
            ("cost per episode", found.cost_returns),
            ("steps per episode", found.lengths.astype(float)),
        )
    ]
    count, bins = len(found.columns) - 2, len(found.bin_start)
    if bins >= 8:
        quarter = bins // 4
        ends = [
            found.bin_mean[part].mean(axis=0) for part in (slice(quarter), slice(-quarter, None))
        ]
        moved = np.abs(ends[1] - ends[0])[:count] / np.maximum(found.std[:count], 1e-9)
        step = -(-bins // wanted)
        for i in [i for i in np.argsort(-moved)[:shown] if moved[i] >= DRIFT]:
            mean = found.bin_mean[: bins // step * step, i].reshape(-1, step).mean(axis=1)
            series.append(
                {
                    "name": f"{found.columns[i]}: moved by {moved[i]:.2g} of its spread",
                    "episode": found.bin_start[: bins // step * step : step].tolist(),
                    "mean": _short(mean),
                }
            )
    return {"least": DRIFT, "series": series}


def _means(values: np.ndarray, edges: np.ndarray) -> list[float]:
    fine = np.isfinite(values)
    sums = np.add.reduceat(np.where(fine, values, 0.0), edges[:-1])
    counts = np.add.reduceat(fine.astype(float), edges[:-1])
    return _short(np.where(counts > 0, sums / np.maximum(counts, 1), np.nan))


def _ranges(found: Survey, bounds: tuple[float, float]) -> list[dict[str, Any]]:
    """Smallest, largest, mean and where the middle 98% of sampled steps lie."""
    obs, act = found.log.widths
    kinds = ["observation"] * obs + ["action"] * act + ["reward", "cost"]
    parts = [
        np.concatenate([e.observations, e.actions, e.rewards[:, None], e.costs[:, None]], axis=1)[
            :: max(1, found.steps // 200_000)
        ]
        for e in found.sample
    ]
    rows = np.concatenate(parts) if parts else np.full((1, len(kinds)), np.nan)
    middle = np.quantile(rows, (0.01, 0.99), axis=0)
    order = [*range(obs, len(kinds)), *range(obs)]  # actions, reward and cost before observations
    return [
        {
            "name": found.columns[i],
            "kind": kinds[i],
            "low": float(found.low[i]),
            "high": float(found.high[i]),
            "mean": float(found.mean[i]),
            "std": float(found.std[i]),
            "inner": middle[:, i].tolist(),
            "bounds": list(bounds) if kinds[i] == "action" else None,
        }
        for i in order[:DIMENSIONS]
    ]


def _plain_mapping(found: Survey) -> dict[str, str]:
    plain = found.log.mapping.plain()
    plain["cost"] = [f"{p['column']} ({p['kind']}, weight {p['weight']:g})" for p in plain["cost"]]
    return {
        name: ", ".join(value) if isinstance(value, list | tuple) else value
        for name, value in plain.items()
        if value
    }


def _method(stitched: Stitched | None) -> str:
    if stitched is None:
        return "No estimate: no sound episode was found to cut up."
    return (
        f"An estimate, not a promise. {stitched.episodes:,} episodes (at most {EPISODES}: half the "
        f"best of their cost, half at random) were cut into {PIECES} pieces each. A piece may be "
        "followed by the next one of its own episode, or by a piece of another that begins closer "
        f"than the data move in {REACH} steps (each dimension in units of its spread); there are "
        f"{stitched.seams:.1f} such on average. The best chain from a logged start within each "
        "limit is found by dynamic programming. It is too high where closeness hides a gap that "
        "cannot be crossed or luck is taken for skill, and too low where a policy can do better "
        "than any logged piece."
    )


def _short(values: np.ndarray) -> list[float]:
    """Six digits are more than a drawing shows."""
    return [float(f"{value:.6g}") for value in np.asarray(values, np.float64)]
