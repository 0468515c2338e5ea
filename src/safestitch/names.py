"""Looking a name up in a registry, with help for the mistyped."""

import difflib
from collections.abc import Mapping
from typing import TypeVar

from safestitch.records import SafestitchError

T = TypeVar("T")


def lookup(kind: str, name: str, known: Mapping[str, T]) -> T:
    """`known[name]`, or an error that names what exists and what was probably meant."""
    if name in known:
        return known[name]
    raise SafestitchError(unknown(kind, name, known))


def unknown(kind: str, name: str, known) -> str:
    """The message for an unknown name: the nearest known ones first.

    Example:
        >>> unknown("task", "minicirle", ["MiniCircle", "MiniRun"])
        "unknown task 'minicirle': did you mean MiniCircle or MiniRun? Known: MiniCircle, MiniRun"
    """
    folded = {k.lower(): k for k in known}
    near = difflib.get_close_matches(name.lower(), folded, n=2, cutoff=0.5)
    meant = f"did you mean {' or '.join(folded[n] for n in near)}? " if near else ""
    return f"unknown {kind} '{name}': {meant}Known: {', '.join(known)}"
