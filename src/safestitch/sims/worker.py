"""A worker process: steps the simulators of its lanes when told to. Loads no JAX.

    python -m safestitch.sims.worker JOB     (JOB as JSON, written by the pool)

Commands come as single bytes through a pipe and are answered by the same byte: the number of a
group of lanes to step, or BEGIN. When the pipe closes, however the master ended, the worker ends.
"""

import json
import math
import os
import signal
import sys

import numpy as np

from safestitch.records import SafestitchError
from safestitch.sims import Simulator, make_own, make_simulator
from safestitch.sims.board import BEGUN, IDLE, TERMINATED, TRUNCATED, Board, Shape, groups_of

BEGIN, FAILED = 254, 255


def main() -> None:
    """Serve until the pipe closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the master's business
    job = json.loads(sys.argv[1])
    try:
        worker = Worker(job)
        while command := os.read(job["commands"], 1):
            worker.obey(command[0])
            os.write(job["reports"], command)
    except SafestitchError as error:
        _fail(job, str(error))
    except BrokenPipeError:
        return
    except Exception as error:  # a simulator may fail in any way: the master says where
        _fail(job, f"{type(error).__name__}: {error}")


def _fail(job: dict, message: str) -> None:
    content = message.encode()[:60_000]  # fits a pipe at once
    os.write(job["reports"], bytes([FAILED]) + len(content).to_bytes(4, "little") + content)


class Worker:
    """The simulators of some lanes."""

    def __init__(self, job: dict):
        self.name = job["task"] or job["own"]
        self.job = job
        self.board = Board(Shape(**job["shape"]), job["board"])
        self.groups = groups_of(job["lanes"], job["groups"])
        self.sims: dict[int, Simulator] = {lane: self._made() for lane in job["lanes"]}
        self.lap: dict[int, int] = {}
        self.steps: dict[int, int] = {}

    def _made(self) -> Simulator:
        if self.job["task"]:
            return make_simulator(self.job["task"])
        sim, shape = make_own(self.job["own"], self.job["horizon"]), self.board.shape
        found, expected = (sim.spec.obs_dim, sim.spec.act_dim), (shape.obs_dim, shape.act_dim)
        if found != expected:
            raise SafestitchError(
                f"{self.name} has {found[0]} observations and {found[1]} actions, but the policy "
                f"was trained with {expected[0]} and {expected[1]}"
            )
        return sim

    def obey(self, command: int) -> None:
        """Step a group, or begin the episodes of all lanes."""
        if command == BEGIN:
            for lane in self.sims:
                self.lap[lane] = int(self.board.lap[lane])
                self._begin(lane)
            self._check(list(self.sims))
        else:
            self._step(self.groups[command])

    def _begin(self, lane: int) -> None:
        board, lap = self.board, self.lap[lane]
        seed = int(board.seeds[lane, lap]) if lap < board.shape.laps else -1
        if seed < 0:
            board.flags[lane] |= IDLE
            return
        self.steps[lane] = 0
        board.observations[lane] = self._valid(lane, self.sims[lane].reset(seed))
        board.flags[lane] |= BEGUN

    def _step(self, lanes: list[int]) -> None:
        board = self.board
        idle = (board.flags[lanes] & IDLE).tolist()
        actions = board.actions[lanes]
        for i, lane in enumerate(lanes):
            if idle[i]:
                continue
            sim = self.sims[lane]
            if self.job["positions"]:
                board.positions[lane] = sim.position()
            self.steps[lane] += 1
            after, reward, cost, terminated, truncated = sim.step(actions[i])
            board.rewards[lane], board.costs[lane] = reward, cost
            board.observations[lane] = self._valid(lane, after)
            if terminated or truncated:
                self._check([lane])
                board.flags[lane] = TERMINATED * bool(terminated) + TRUNCATED * bool(truncated)
                board.last_observations[lane] = after
                self.lap[lane] += 1
                self._begin(lane)
        self._check(lanes)

    def _valid(self, lane: int, observation: np.ndarray) -> np.ndarray:
        expected = (self.board.shape.obs_dim,)
        if observation.shape != expected:
            raise self._error(lane, f"an observation of shape {observation.shape}, not {expected}")
        return observation

    def _check(self, lanes: list[int]) -> None:
        """Every number is one, and no cost is negative; all lanes at once, for speed."""
        board = self.board
        for name in ("observations", "rewards", "costs"):
            values = getattr(board, name)[lanes]
            if math.isfinite(values.sum()):  # then all of them are
                continue
            wrong = ~np.isfinite(values)
            if wrong.any():
                lane = lanes[int(np.argwhere(wrong)[0][0])]
                value = getattr(board, name)[lane]
                raise self._error(lane, f"{name} {value}: a number is not finite")
        negative = board.costs[lanes] < 0
        if negative.any():
            lane = lanes[int(np.argmax(negative))]
            what = f"the cost {board.costs[lane]:g} is negative: costs are >= 0, lower is better"
            raise self._error(lane, what)

    def _error(self, lane: int, what: str) -> SafestitchError:
        seed = self.board.seeds[lane, self.lap[lane]]
        return SafestitchError(f"{self.name}, episode seed {seed}, step {self.steps[lane]}: {what}")


if __name__ == "__main__":
    main()
