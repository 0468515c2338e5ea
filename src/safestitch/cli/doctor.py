"""`safestitch doctor`: exits non-zero if something that is needed does not work."""

import dataclasses

import tyro
from rich.table import Table

from safestitch.cli.console import stdout


@dataclasses.dataclass(frozen=True)
class Options:
    """Look at this installation."""


def run(arguments: list[str]) -> int:
    """Parse, examine, print."""
    tyro.cli(Options, args=arguments, prog="safestitch doctor")
    from safestitch.doctor import examine

    findings = examine()
    shown = Table(box=None)
    for title in ("", "what", "state", "to mend it"):
        shown.add_column(title, no_wrap=True)
    for f in findings:
        mark = "ok" if f.ok else ("-" if f.optional else "NO")
        shown.add_row(mark, f.name, f.state, f.fix)
    stdout().print(shown, markup=False)
    return 0 if all(f.ok or f.optional for f in findings) else 1
