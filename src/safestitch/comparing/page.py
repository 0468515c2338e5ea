"""A comparison as the plain values of its page."""

import dataclasses
import importlib.metadata
from typing import Any

from safestitch.comparing.figures import Cell
from safestitch.comparing.summary import Comparison
from safestitch.comparing.wording import data_lines, notes, title
from safestitch.evaluation.score import plain


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
            }
            for result in here
        ],
    }


def _cell(cell: Cell) -> dict[str, Any]:
    fields = dataclasses.asdict(cell)
    fields["paper"] = cell.paper._asdict() if cell.paper else None
    return fields
