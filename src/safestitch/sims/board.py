"""The memory that the workers and their master share: one row per lane.

A lane is one simulator that plays one episode after the other. The master writes actions, the
workers what they brought; a byte through a pipe says whose turn it is, so nothing is ever locked.
"""

import dataclasses
import mmap
import os
import tempfile
from collections.abc import Sequence

import numpy as np

TERMINATED, TRUNCATED, BEGUN, IDLE = 1, 2, 4, 8
"""Bits of `flags`: how the last step ended the episode; the observation is the first of an episode;
no episode is left for this lane."""


@dataclasses.dataclass(frozen=True)
class Shape:
    """What decides the size of a board."""

    lanes: int
    laps: int
    """Episodes of a lane, one after the other."""
    obs_dim: int
    act_dim: int


class Board:
    """Arrays over one shared mapping."""

    def __init__(self, shape: Shape, descriptor: int):
        n = shape.lanes
        fields = {
            "seeds": (np.int64, (n, shape.laps)),
            "lap": (np.int64, (n,)),
            "rewards": (np.float64, (n,)),
            "costs": (np.float64, (n,)),
            "positions": (np.float64, (n, 2)),
            "actions": (np.float32, (n, shape.act_dim)),
            "observations": (np.float32, (n, shape.obs_dim)),
            "last_observations": (np.float32, (n, shape.obs_dim)),
            "flags": (np.uint8, (n,)),
        }
        sizes = [np.dtype(kind).itemsize * int(np.prod(size)) for kind, size in fields.values()]
        self.shape, self.descriptor = shape, descriptor
        if os.fstat(descriptor).st_size < sum(sizes):
            os.ftruncate(descriptor, max(sum(sizes), 1))
        self._map = mmap.mmap(descriptor, sum(sizes))
        starts = np.concatenate([[0], np.cumsum(sizes)[:-1]]).tolist()
        arrays = {
            name: np.frombuffer(self._map, kind, int(np.prod(size)), start).reshape(size)
            for (name, (kind, size)), start in zip(fields.items(), starts, strict=True)
        }
        self.seeds: np.ndarray = arrays["seeds"]
        """Seed of each lane's episodes; -1 where there is none."""
        self.lap: np.ndarray = arrays["lap"]
        """Where a lane begins when its worker (re)starts."""
        self.rewards: np.ndarray = arrays["rewards"]
        self.costs: np.ndarray = arrays["costs"]
        self.positions: np.ndarray = arrays["positions"]
        self.actions: np.ndarray = arrays["actions"]
        self.observations: np.ndarray = arrays["observations"]
        """What to act on next; of a new episode where the last one ended."""
        self.last_observations: np.ndarray = arrays["last_observations"]
        """The observation after the last step of an episode that has ended."""
        self.flags: np.ndarray = arrays["flags"]


def shared_file() -> int:
    """Descriptor of an unnamed file to share: nothing is left behind, however a process ends."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("safestitch")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def groups_of(lanes: Sequence[int], groups: int) -> list[list[int]]:
    """The lanes of each group: while one group is stepped, the actions of another are chosen."""
    return [[lane for lane in lanes if lane % groups == g] for g in range(groups)]
