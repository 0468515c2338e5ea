"""Minari data sets, read and written as they lie on disk; the package itself is not needed.

    NAME-v0/data/metadata.json       spaces, number of episodes
    NAME-v0/data/main_data.hdf5      episode_0/{observations, actions, rewards, terminations,
                                     truncations, infos/cost}, episode_1/...

Observations have one row more than there are steps: the last is what was seen after the episode.
The cost of a step stands in its info; infos begin with the one that came with the first
observation, which costs nothing.
"""

import json
import os
import re
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from safestitch.data import hdf5
from safestitch.episodes import Episodes
from safestitch.files import refuse_links, write_error
from safestitch.memory import available_memory
from safestitch.records import DataError, DataNote

METADATA, MAIN, VERSION = "metadata.json", "main_data.hdf5", "0.5.0"
COST = "cost"
LARGEST_METADATA = 2**24


def is_minari(path: str | Path) -> bool:
    """Whether a path is a Minari data set: its directory, or `data` inside it."""
    return (_data(Path(path)) / METADATA).is_file()


def read(path: str | Path, *, cost: str = COST) -> Episodes:
    """Read a whole set.

    Args:
        path: its directory.
        cost: key of the cost in the infos; `a/b` is b inside a.

    Raises:
        DataError: names the file and the key that cannot be used.
    """
    parts, held = [], 0
    for part in read_blocks(path, cost=cost):
        parts.append(part)
        held += part.observations.nbytes + part.actions.nbytes
        if held > available_memory():  # as much again is needed to join the parts
            raise DataError(
                f"{path} does not fit into memory: convert it to a memory-mapped set with "
                f"`safestitch data convert {path} OUT.store`"
            )
    return Episodes.join(parts)


def read_blocks(path: str | Path, *, cost: str = COST, rows: int = 2**16) -> Iterator[Episodes]:
    """Read a set of any size as sets of whole episodes, about `rows` steps each.

    Raises:
        DataError: as `read`.
    """
    data = _data(Path(path))
    refuse_links(data / METADATA, data / MAIN)
    total = _read_metadata(data / METADATA)
    with hdf5.open_file(data / MAIN) as file:
        waiting: list[Episodes] = []
        for number in range(total):
            waiting.append(_read_episode(hdf5.find_group(file, f"episode_{number}"), cost))
            if sum(episode.steps for episode in waiting) >= rows:
                yield Episodes.join(waiting)
                waiting = []
    if waiting:
        yield Episodes.join(waiting)


def _data(path: Path) -> Path:
    return path / "data" if (path / "data").is_dir() else path


def _read_metadata(path: Path) -> int:
    """The number of episodes, of a set in the format that is read here."""
    try:
        if path.stat().st_size > LARGEST_METADATA:
            raise ValueError("too large")
        metadata = json.loads(path.read_bytes())
        kind, total = metadata["data_format"], metadata["total_episodes"]
    except (OSError, ValueError, RecursionError, KeyError, TypeError) as error:
        raise DataError(f"{path} cannot be read: {error!r}") from None
    if kind != "hdf5":
        raise DataError(f"{path}: data_format is {kind!r}: only Minari's hdf5 is read")
    if type(total) is not int or total < 1:
        raise DataError(f"{path}: total_episodes is {total!r}: expected at least 1")
    return total


def _read_episode(group: h5py.Group, cost: str) -> Episodes:
    names = ("observations", "actions", "rewards", "terminations", "truncations")
    arrays = {name: hdf5.find_array(group, name) for name in names}
    arrays["cost"] = _find_cost(group, cost)
    steps = len(arrays["rewards"])
    for name, array in arrays.items():
        wide = name in ("observations", "actions")
        rows = {"observations": (steps + 1,), "cost": (steps, steps + 1)}.get(name, (steps,))
        flat = array.ndim == 1 or array.shape[1:] == (1,)
        if len(array) not in rows or not (array.ndim == 2 if wide else flat):
            raise DataError(
                f"{group.file.filename}: {group.name}: {name} has shape {array.shape}, expected "
                f"{rows[-1]} rows of {'several' if wide else 'single'} numbers"
            )
    observations, actions, rewards = (hdf5.read_floats(arrays[name]) for name in names[:3])
    costs = hdf5.read_floats(arrays["cost"]).reshape(-1)[-steps:]
    terminated, truncated = (hdf5.read_flags(arrays[name]).reshape(-1) for name in names[3:])
    if steps and not (terminated[-1] or truncated[-1]):
        warnings.warn(
            f"{group.file.filename}: {group.name} has no end: taken as truncated",
            DataNote,
            stacklevel=2,
        )
        truncated[-1] = True
    try:
        checked = Episodes.of(
            observations[:-1], actions, rewards.reshape(-1), costs, terminated, truncated
        )
        if len(checked) > 1:
            raise DataError("terminations or truncations are set before the last step")
        fields = {name: getattr(checked, name) for name in vars(checked)}
        return Episodes(**{**fields, "final_observations": observations[-1:]})
    except DataError as error:
        raise DataError(f"{group.file.filename}: {group.name}: {error}") from None


def _find_cost(group: h5py.Group, cost: str) -> h5py.Dataset:
    infos = hdf5.find_group(group, "infos")
    *groups, key = cost.split("/")
    for name in groups:
        infos = hdf5.find_group(infos, name)
    if not hdf5.holds(infos, key):
        there = ", ".join(hdf5.names(infos)[:20]) or "nothing"
        raise DataError(
            f"{group.file.filename}: {group.name}/infos holds no {cost!r} but {there}: name the "
            "key of the cost"
        )
    return hdf5.find_array(infos, key)


# --- writing -----------------------------------------------------------------------------------


def write(path: str | Path, episodes: Episodes, **options: Any) -> None:
    """Write a whole set; options as of `Writer`."""
    with Writer(path, **options) as writer:
        writer.append(episodes)


class Writer:
    """Appends episodes to a set that appears, whole, when the `with` block ends well.

    Minari finds it by name, which is that of its directory, if that lies in Minari's own.

    Args:
        path: its directory, as in CarCircle-v0; must not exist.
        provenance: what to say of the data's origin, as JSON.
    """

    def __init__(self, path: str | Path, *, provenance: dict[str, Any] | None = None):
        self.path = Path(path)
        self.provenance = provenance or {}
        self.temporary = self.path.with_name(f".{self.path.name}.{os.getpid()}.tmp")
        self.steps, self.episodes = 0, 0
        self.widths: tuple[int, int] | None = None
        self.low, self.high = -1.0, 1.0

    def __enter__(self) -> "Writer":
        if self.path.exists():
            raise DataError(f"{self.path} exists already: delete it, or choose another name")
        try:
            (self.temporary / "data").mkdir(parents=True)
            self.file = h5py.File(self.temporary / "data" / MAIN, "w", track_order=True)
        except OSError as error:
            raise write_error(self.path, error) from None
        return self

    def append(self, episodes: Episodes) -> None:
        """Add whole episodes.

        Raises:
            SafestitchError: if the disk is full, or the dimensions differ from those before.
        """
        widths = episodes.observations.shape[1], episodes.actions.shape[1]
        if self.widths not in (None, widths):
            raise DataError(
                f"{self.path}: observations and actions have {widths} dimensions, those before "
                f"{self.widths}"
            )
        self.widths = widths
        self.low = min(self.low, float(episodes.actions.min()))
        self.high = max(self.high, float(episodes.actions.max()))
        final = episodes.final_observations
        try:
            for i, episode in enumerate(episodes):
                last = episode["observations"][-1] if final is None else final[i]
                self._add(episode, last)
        except (OSError, RuntimeError) as error:
            raise write_error(self.path, error) from None

    def _add(self, episode: dict[str, np.ndarray], final: np.ndarray) -> None:
        group = self.file.create_group(f"episode_{self.episodes}")
        steps = len(episode["rewards"])
        group.attrs.update(id=self.episodes, total_steps=steps)
        values = {
            "observations": np.concatenate([episode["observations"], final[None]]),
            "actions": episode["actions"],
            "rewards": episode["rewards"],
            "terminations": episode["terminated"],
            "truncations": episode["truncated"],
            f"infos/{COST}": np.concatenate([np.zeros(1, np.float32), episode["costs"]]),
        }
        for name, column in values.items():
            group.create_dataset(name, data=column, maxshape=(None, *column.shape[1:]))
        self.episodes += 1
        self.steps += steps

    def __exit__(self, kind: Any, *_: Any) -> None:
        try:
            self.file.close()
            if kind is None:
                self._finish()
        except (OSError, RuntimeError) as error:
            if kind is None:
                raise write_error(self.path, error) from None
        finally:
            shutil.rmtree(self.temporary, ignore_errors=True)

    def _finish(self) -> None:
        if self.widths is None:
            raise DataError(f"nothing to write to {self.path}: no episodes were given")
        data = self.temporary / "data"
        name = self.path.name
        metadata = {
            "total_episodes": self.episodes,
            "total_steps": self.steps,
            "data_format": "hdf5",
            "jpeg_encoding": True,
            "observation_space": _box(self.widths[0], -np.inf, np.inf),
            "action_space": _box(self.widths[1], self.low, self.high),
            "dataset_id": name if re.search(r"-v\d+$", name) else f"{name}-v0",
            "minari_version": VERSION,
            "dataset_size": round((data / MAIN).stat().st_size / 1e6, 1),
            "provenance": json.dumps(self.provenance, allow_nan=False),
        }
        (data / METADATA).write_text(json.dumps(metadata))
        for file in data.iterdir():
            with open(file, "rb") as handle:
                os.fsync(handle.fileno())
        os.rename(self.temporary, self.path)


def _box(width: int, low: float, high: float) -> str:
    """A Gymnasium Box as Minari stores it; JSON there knows Infinity."""
    bounds = {"low": [float(low)] * width, "high": [float(high)] * width}
    return json.dumps({"type": "Box", "dtype": "float32", "shape": [width], **bounds})
