"""Where verbs print: as wide as the terminal, wide enough for every table in a log."""

from rich.console import Console


def stdout() -> Console:
    """Standard output, without colours guessed into numbers."""
    width = None if Console().is_terminal else 150
    return Console(soft_wrap=True, highlight=False, width=width)
