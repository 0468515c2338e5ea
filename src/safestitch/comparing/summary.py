"""A whole comparison: every cell, and what each method comes to over its tasks."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from safestitch.comparing.entries import data_name
from safestitch.comparing.figures import Cell, Result, bands_of, cells_of, gap
from safestitch.comparing.paired import Difference
from safestitch.evaluation.score import Row, rows


@dataclasses.dataclass(frozen=True)
class Summary:
    """One method in one band, over the tasks it was run on."""

    method: str
    band: str
    tasks: int
    safe: int
    """Tasks on which it is safe."""
    best: int
    """Tasks on which it is the best safe method."""
    reward: float | None
    cost: float | None
    frontier_ratio: float | None
    """Mean of its tasks; a task on which no limit was kept has none."""
    gap: tuple[Difference, Difference] | None
    """To the reference, over the tasks that both have."""


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Everything that is printed and drawn."""

    results: tuple[Result, ...]
    bands: tuple[str, ...]
    cells: tuple[Cell, ...]
    summaries: tuple[Summary, ...]
    against: str | None
    """The reference method of all differences."""

    @property
    def tasks(self) -> list[str]:
        """In the order given."""
        return list(dict.fromkeys(result.entry.task for result in self.results))

    @property
    def methods(self) -> list[str]:
        """In the order given."""
        return list(dict.fromkeys(result.entry.method for result in self.results))

    def cell(self, task: str, method: str, band: str) -> Cell | None:
        """A cell of the table; None where the method was not run on the task."""
        wanted = (task, method, band)
        return next((c for c in self.cells if (c.task, c.method, c.band) == wanted), None)

    def data(self, task: str) -> str:
        """What the methods learned a task from."""
        return next(data_name(r.entry.run) for r in self.results if r.entry.task == task)

    def limit_rows(self) -> list[tuple[Result, Row]]:
        """Every method on every task at every limit, with intervals."""
        return [
            (result, row)
            for result in self.results
            for row in rows(result.entry.run, list(result.limits), result.rollout)
        ]


def summarise(results: Sequence[Result], against: str | None) -> Comparison:
    """Average, mark, and set against the reference."""
    bands = bands_of(results)
    cells = cells_of(results, bands, against)
    methods = dict.fromkeys(result.entry.method for result in results)
    summaries = [
        _summary(method, band, cells, results, against) for band in bands for method in methods
    ]
    return Comparison(tuple(results), tuple(bands), tuple(cells), tuple(summaries), against)


def _summary(
    method: str, band: str, cells: Sequence[Cell], results: Sequence[Result], against: str | None
) -> Summary:
    own = [cell for cell in cells if (cell.method, cell.band) == (method, band)]
    return Summary(
        method=method,
        band=band,
        tasks=len(own),
        safe=sum(cell.mark != "unsafe" for cell in own),
        best=sum(cell.mark == "best" for cell in own),
        reward=_mean([cell.reward for cell in own]),
        cost=_mean([cell.cost for cell in own]),
        frontier_ratio=_mean([cell.frontier_ratio for cell in own]),
        gap=_gap(method, band, results, against),
    )


def _gap(
    method: str, band: str, results: Sequence[Result], against: str | None
) -> tuple[Difference, Difference] | None:
    references = {r.entry.task: r for r in results if r.entry.method == against}
    shared = [
        (result, references[result.entry.task])
        for result in results
        if result.entry.method == method and result.entry.task in references
    ]
    return gap(shared, band) if shared else None


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None
