"""What every benchmark prints: a readable table, then one JSON object as the last line."""

import json
from typing import Any

from rich.console import Console
from rich.table import Table

console = Console(width=140, highlight=False)


def show(title: str, rows: list[dict[str, Any]]) -> None:
    """Print dictionaries with the same keys as a table."""
    table = Table(title=title, title_justify="left")
    for name in rows[0]:
        table.add_column(name, justify="left" if isinstance(rows[0][name], str) else "right")
    for row in rows:
        table.add_row(*(_text(value) for value in row.values()))
    console.print(table)


def finish(**figures: Any) -> None:
    """The last line: every figure, for machines."""
    print(json.dumps(figures))


def _text(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
