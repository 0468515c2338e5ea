"""The tasks of the field: one table of what they look like and what the public data hold.

The numbers are those of the 38 DSRL data sets. Returns are undiscounted sums over an episode.
"""

import csv
import dataclasses
import functools
from importlib import resources
from typing import Any, Literal, get_type_hints

from safestitch.names import lookup
from safestitch.records import Spec

Suite = Literal["bullet", "mujoco", "metadrive"]


@dataclasses.dataclass(frozen=True)
class Entry:
    """One task; a row of `catalog.csv`."""

    task: str
    """Plain name, as in `safestitch train gas CarCircle`."""
    suite: Suite
    """Which simulator runs it, and the name of the extra that installs it."""
    env_id: str
    """Name of the task in its simulator."""
    obs_dim: int
    act_dim: int
    horizon: int
    cost_range: float
    """Cost per episode that 100% stands for: the largest of the public data, rounded."""
    trajectories: int
    """Episodes of the public data."""
    reward_min: float
    """Smallest reward return of the public data."""
    reward_max: float
    cost_min: float
    """Smallest cost return of the public data."""
    cost_max: float
    dsrl_file: str
    """File name of the public data."""
    first_class: bool
    """Simulated and reported on here; the data of the others can be downloaded and learned from."""

    @property
    def dsrl_id(self) -> str:
        """Name of the task in the `dsrl` package, as in `OfflineCarCircle1Gymnasium-v0`."""
        stem = self.dsrl_file.rsplit("-", 2)[0]
        return stem.replace("SafeMetaDrive", "OfflineMetadrive").replace("Safety", "Offline")

    @property
    def spec(self) -> Spec:
        """What a policy must know. All of these tasks take actions in [-1, 1]."""
        return Spec(self.task, self.obs_dim, self.act_dim, self.horizon, self.cost_range)


@functools.cache
def public_files() -> dict[str, Entry]:
    """Name -> entry of every public data set, in the order of the table."""
    kinds = get_type_hints(Entry)
    text = resources.files("safestitch").joinpath("catalog.csv").read_text()
    rows = csv.DictReader(text.splitlines())
    return {row["task"]: Entry(**{n: _read(kinds[n], v) for n, v in row.items()}) for row in rows}


@functools.cache
def catalog() -> dict[str, Entry]:
    """Name -> entry of the first-class tasks."""
    return {name: entry for name, entry in public_files().items() if entry.first_class}


def _read(kind: Any, text: str) -> Any:
    if kind is bool:
        return {"yes": True, "no": False}[text]
    return kind(text) if kind in (int, float) else text


def get_entry(name: str) -> Entry:
    """The first-class task of that name; an unknown name is an error that suggests the nearest."""
    return lookup("task", name, catalog())


def get_public(name: str) -> Entry:
    """The public data set of that name, which may also be DSRL's id or file name."""
    known = public_files()
    for entry in known.values():
        if name in (entry.dsrl_id, entry.dsrl_file):
            return entry
    return lookup("data set", name, known)
