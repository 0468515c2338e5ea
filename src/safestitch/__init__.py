"""Offline safe reinforcement learning with a cost limit you choose later."""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from safestitch.episodes import Episodes
    from safestitch.policy import Policy, Session, load
    from safestitch.records import DataError, RunError, SafestitchError, Spec
    from safestitch.training import train_on as train

_HOMES = {
    "DataError": "records",
    "Episodes": "episodes",
    "Policy": "policy",
    "RunError": "records",
    "SafestitchError": "records",
    "Session": "policy",
    "Spec": "records",
    "load": "policy",
    "train": "training",
}
__all__ = [
    "DataError",
    "Episodes",
    "Policy",
    "RunError",
    "SafestitchError",
    "Session",
    "Spec",
    "load",
    "train",
]


def __getattr__(name: str):
    """Import on first use: `safestitch --help` and a report need no JAX."""
    if name not in _HOMES:
        raise AttributeError(f"module 'safestitch' has no attribute '{name}'")
    home = importlib.import_module(f"safestitch.{_HOMES[name]}")
    return home.train_on if name == "train" else getattr(home, name)
