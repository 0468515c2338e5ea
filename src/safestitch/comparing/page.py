"""A comparison as the plain values of its page."""

import dataclasses
import importlib.metadata
from pathlib import Path
from typing import Any

import numpy as np

from safestitch.comparing.figures import Cell
from safestitch.comparing.summary import Comparison
from safestitch.comparing.wording import data_lines, notes, title
from safestitch.evaluation.dial import learning_curves
from safestitch.evaluation.score import plain
from safestitch.records import RunError

POINTS = 60
"""Of a learning curve."""


def page_of(comparison: Comparison, commands: list[str] | None = None) -> dict[str, Any]:
    """Everything the page shows."""
    rows = comparison.limit_rows()
    return {
        "methods": comparison.methods,
        "against": comparison.against,
        "bands": [{"name": band, "title": title(band)} for band in comparison.bands],
        "notes": notes(comparison),
        "data": data_lines(comparison),
        "summaries": [dataclasses.asdict(summary) for summary in comparison.summaries],
        "tasks": [_task(comparison, task, rows) for task in comparison.tasks],
        "commands": commands or [],
        "versions": {"safestitch": importlib.metadata.version("safestitch")},
    }


def _task(comparison: Comparison, task: str, rows: list) -> dict[str, Any]:
    here = [result for result in comparison.results if result.entry.task == task]
    run = here[0].entry.run
    return {
        "name": task,
        "data": comparison.data(task),
        "cost_range": run.spec.cost_range,
        "frontier": {
            "costs": run.data_summary["frontier_costs"],
            "rewards": run.data_summary["frontier_rewards"],
        },
        "cells": [_cell(cell) for cell in comparison.cells if cell.task == task],
        "lines": [
            {
                "method": result.entry.method,
                "algorithm": result.entry.run.algorithm,
                "settings": result.entry.run.config,
                "rows": [plain(row) for owner, row in rows if owner is result],
                "curves": loss_curves(result.entry.directory),
            }
            for result in here
        ],
    }


def _cell(cell: Cell) -> dict[str, Any]:
    fields = dataclasses.asdict(cell)
    fields["paper"] = cell.paper._asdict() if cell.paper else None
    return fields


def loss_curves(directory: Path) -> list[dict[str, Any]]:
    """Every loss over training, and how much it still moved at the end: has it flattened?"""
    try:
        found = learning_curves(directory, POINTS)
    except RunError:  # a run can be compared without its metrics
        return []
    return [
        {
            "name": curve["name"],
            "step": curve["step"],
            "mean": [None if v is None else float(f"{v:.4g}") for v in curve["mean"]],
            "moved": moved(curve["mean"]),
        }
        for curve in found
        if curve["name"].startswith("loss/")
    ]


def moved(values: list[float | None]) -> float | None:
    """Last tenth against the tenth before it, as a share of all the loss has moved in training.

    Example:
        >>> moved([10.0] + [1.0] * 19), moved([float(10 - i) for i in range(10)])
        (0.0, -0.1111111111111111)
    """
    known = np.asarray([value for value in values if value is not None])
    tenth = len(known) // 10
    if not tenth or not np.ptp(known):
        return None
    last, before = known[-tenth:].mean(), known[-2 * tenth : -tenth].mean()
    return float((last - before) / np.ptp(known))
