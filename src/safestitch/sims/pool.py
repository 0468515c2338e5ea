"""Simulators in worker processes: many episodes at once, bit-equal however many workers there are.

Lanes and the episodes of each lane are fixed before the start, and each lane's numbers depend on
its own actions alone. So who steps a lane, in what order, and whether a worker died on the way
changes nothing: a dead worker is replaced and the episodes of its lanes begin again.
"""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, UInt8

from safestitch.records import SafestitchError, Spec
from safestitch.sims.board import (
    BEGUN,
    IDLE,
    TERMINATED,
    TRUNCATED,
    Board,
    Shape,
    groups_of,
    shared_file,
)
from safestitch.sims.worker import BEGIN, FAILED

__all__ = [
    "BEGUN",
    "IDLE",
    "TERMINATED",
    "TRUNCATED",
    "Outcome",
    "Pool",
    "Source",
    "default_workers",
]

DEATHS = 3
"""Times in a row that a worker may die at one step of its episodes: then they are what kills it."""


class Source(NamedTuple):
    """What the workers simulate."""

    spec: Spec
    own: str | None = None
    """`package.module:function` or an id; none for a task of the catalog."""


class Outcome(NamedTuple):
    """What the last actions of a group brought; one row per lane of the group."""

    lanes: Int[np.ndarray, " n"]
    flags: UInt8[np.ndarray, " n"]
    rewards: Float[np.ndarray, " n"]
    costs: Float[np.ndarray, " n"]
    observations: Float[np.ndarray, "n o"]
    """What to act on next."""
    restarted: Bool[np.ndarray, " n"]
    """A worker died: the lane's current episode begins again, what it brought so far is void."""


def default_workers() -> int:
    """As many as there are cores to run on."""
    with contextlib.suppress(AttributeError):  # not on every platform
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Pool:
    """Worker processes stepping lanes, in groups that alternate.

    Example:
        with Pool(source, lanes=16, laps=3) as pool:
            pool.begin(seeds)
            while pool.live:
                for group in pool.live:
                    outcome = pool.receive(group)
                    pool.send(group, actions_for(outcome))
    """

    def __init__(
        self,
        source: Source,
        *,
        lanes: int,
        laps: int,
        workers: int | None = None,
        groups: int = 2,
        positions: bool = False,
    ):
        self.source, self.positions = source, positions
        spec = source.spec
        self.groups = [np.asarray(g) for g in groups_of(range(lanes), groups) if g]
        self.shape = Shape(lanes, laps, spec.obs_dim, spec.act_dim)
        self._descriptor = shared_file()
        self.board = Board(self.shape, self._descriptor)
        count = max(1, min(workers or default_workers(), lanes))
        chunks = [lanes_of for lanes_of in _dealt(self.groups, count) if lanes_of]
        self._workers = [_Process(self, chunk) for chunk in chunks]
        self._restarted = np.zeros(lanes, bool)
        self._idle = np.ones(lanes, bool)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    @property
    def live(self) -> list[int]:
        """Groups that still have episodes to play."""
        return [g for g, lanes in enumerate(self.groups) if not self._idle[lanes].all()]

    def begin(self, seeds: Int[np.ndarray, "lanes laps"]) -> None:
        """Start the first episode of every lane; -1 is no episode."""
        for group in range(len(self.groups)):
            self._await(group)  # what is left of an earlier beginning
        self.board.seeds[:] = seeds
        self.board.lap[:] = 0
        self.board.flags[:] = 0
        self._idle[:] = False
        for worker in self._workers:
            worker.begin()

    def receive(self, group: int) -> Outcome:
        """Wait until every lane of the group has stepped."""
        self._await(group)
        lanes, board = self.groups[group], self.board
        flags = board.flags[lanes]
        ended = (flags & (TERMINATED | TRUNCATED)) > 0
        board.lap[lanes] += ended
        restarted = self._restarted[lanes]
        self._restarted[lanes] = False
        self._idle[lanes] = (flags & IDLE) > 0
        return Outcome(
            lanes,
            flags,
            board.rewards[lanes],
            board.costs[lanes],
            board.observations[lanes],
            restarted,
        )

    def _await(self, group: int) -> None:
        for worker in self._workers:
            while not worker.reported(group):
                self._replace(worker)

    def send(self, group: int, actions: Float[np.ndarray, "n a"]) -> None:
        """Have every lane of the group take its action; nothing if none has an episode left."""
        lanes = self.groups[group]
        if self._idle[lanes].all():
            return
        self.board.actions[lanes] = actions
        self.board.flags[lanes] &= IDLE
        for worker in self._workers:
            worker.command(group)

    def close(self) -> None:
        """End all workers; none is left behind."""
        for worker in self._workers:
            worker.end()
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    @property
    def processes(self) -> list[int]:
        """Process numbers of the workers."""
        return [worker.process.pid for worker in self._workers]

    def _replace(self, worker: "_Process") -> None:
        """A worker died: start another and begin the current episodes of its lanes again."""
        if worker.died(self.board.lap[worker.lanes].tolist()) >= DEATHS:
            raise SafestitchError(
                f"the simulator of {self.source.spec.task} crashed {DEATHS} times in a row at step "
                f"{worker.answered} of its episodes ({worker.ending()}). The seeds of the episodes "
                f"under way: {sorted(self._seeds_under_way(worker.lanes))[:8]}"
            )
        self._restarted[worker.lanes] = True
        self.board.flags[worker.lanes] = 0  # a report that nobody has read is void too
        worker.restart()

    def _seeds_under_way(self, lanes: Sequence[int]) -> list[int]:
        laps = np.minimum(self.board.lap[lanes], self.shape.laps - 1)
        return self.board.seeds[lanes, laps].tolist()


class _Process:
    """One worker process and the pipes to it."""

    def __init__(self, pool: Pool, lanes: list[int]):
        self.pool, self.lanes = pool, lanes
        self.groups = {g for g, of_group in enumerate(pool.groups) if set(lanes) & set(of_group)}
        self.waiting: list[int] = []
        """Commands that have not been answered, oldest first."""
        self.answered = 0
        """Rounds since the process began."""
        self._deaths: tuple[tuple[int, ...], int] = ((), 0)
        self._start()

    def _start(self) -> None:
        command_read, self._commands = os.pipe()
        self._reports, report_write = os.pipe()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the process)
        source = self.pool.source
        job = {
            "task": None if source.own else source.spec.task,
            "own": source.own,
            "horizon": source.spec.horizon,
            "shape": vars(self.pool.shape),
            "lanes": [int(lane) for lane in self.lanes],
            "groups": len(self.pool.groups),
            "positions": self.pool.positions,
            "board": self.pool._descriptor,
            "commands": command_read,
            "reports": report_write,
        }
        # One thread each: the workers themselves are what fills the cores.
        threads = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL")}
        path = os.pathsep.join(p for p in sys.path if p)  # the user's modules are found as here
        self.process = subprocess.Popen(
            [sys.executable, "-m", "safestitch.sims.worker", json.dumps(job)],
            env={**os.environ, **threads, "PYTHONPATH": path},
            pass_fds=(command_read, report_write, self.pool._descriptor),
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
        )
        os.close(command_read)
        os.close(report_write)

    def begin(self) -> None:
        """Have all lanes begin the episodes that the board names."""
        self.answered = 0
        self._write(BEGIN)

    def command(self, group: int) -> None:
        """Have a group stepped."""
        if group in self.groups:
            self._write(group)

    def _write(self, command: int) -> None:
        self.waiting.append(command)
        with contextlib.suppress(BrokenPipeError):  # a death is noticed when reading
            os.write(self._commands, bytes([command]))

    def reported(self, group: int) -> bool:
        """Read reports until the group's has come; False if the process has died.

        Raises:
            SafestitchError: what went wrong in the simulator.
        """
        while group in self.groups and (group in self.waiting or BEGIN in self.waiting):
            report = os.read(self._reports, 1)
            if not report:
                return False
            if report[0] == FAILED:
                size = int.from_bytes(self._exactly(4), "little")
                raise SafestitchError(self._exactly(size).decode(errors="replace"))
            self.waiting.remove(report[0])
            self.answered += report[0] == max(self.groups)
        return True

    def died(self, laps: list[int]) -> int:
        """Note a death, and return how often in a row it came at this step of these laps."""
        moment = (self.answered, *laps)
        last, times = self._deaths
        self._deaths = (moment, times + 1 if last == moment else 1)
        return self._deaths[1]

    def _exactly(self, size: int) -> bytes:
        content = b""
        while len(content) < size:
            piece = os.read(self._reports, size - len(content))
            if not piece:
                break
            content += piece
        return content

    def restart(self) -> None:
        """Replace a dead process; its lanes begin again at the lap that the board names."""
        self.end()
        self.waiting = []
        self._start()
        self.begin()

    def ending(self) -> str:
        """How the process ended and the last it said."""
        code = self.process.wait()
        self._log.seek(0)
        last = self._log.read()[-400:].decode(errors="replace").strip()
        return f"exit code {code}{': ' + last if last else ''}"

    def end(self) -> None:
        """Close the pipes, which ends the process, and wait for it."""
        for descriptor in (self._commands, self._reports):
            with contextlib.suppress(OSError):
                os.close(descriptor)
        try:
            self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:  # stuck in a step
            self.process.kill()
            self.process.wait()
        self._log.close()


def _dealt(groups: Sequence[np.ndarray], workers: int) -> list[list[int]]:
    """Each worker's lanes: neighbours of each group, so that no two write the same cache line."""
    shares = [np.array_split(lanes, workers) for lanes in groups]
    return [[int(lane) for share in shares for lane in share[w]] for w in range(workers)]
