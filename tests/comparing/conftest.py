from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from safestitch import runs
from safestitch.comparing.entries import Entry
from safestitch.comparing.figures import Result
from safestitch.evaluation.rollout import Rollout
from safestitch.evaluation.stored import Question, store
from safestitch.records import Spec

LIMITS = (8.0, 16.0, 24.0, 56.0, 64.0, 72.0)
"""10 .. 90% of BallRun's cost range, 80."""
MADE = "made by safestitch, file /somewhere/BallRun-made-by-safestitch.hdf5"


def make_run(
    task: str = "BallRun", algorithm: str = "gas", seeds: int = 2, **changed: Any
) -> runs.Run:
    fields: dict[str, Any] = {
        "algorithm": algorithm,
        "config": {"alpha": 0.8},
        "spec": Spec(task, 7, 2, 100, 80.0),
        "seeds": list(range(seeds)),
        "data_source": MADE,
        "data_seed": 0,
        "data_fingerprint": "0123456789abcdef",
        "data_summary": {
            "episodes": 3,
            "reward_max": 100.0,
            "cost_max": 80.0,
            "frontier_costs": [0.0, 20.0, 60.0],
            "frontier_rewards": [50.0, 80.0, 100.0],
        },
        "versions": {"safestitch": "0"},
    }
    return runs.Run(**(fields | changed))


def returns(per_seed: list[float], limits: tuple[float, ...], episodes: int = 2) -> np.ndarray:
    """The same return in every episode of a seed, at every limit."""
    return np.broadcast_to(
        np.asarray(per_seed, float)[:, None, None], (len(per_seed), len(limits), episodes)
    ).copy()


def make_result(
    method: str,
    rewards: list[float],
    shares: list[float],
    run: runs.Run | None = None,
    limits: tuple[float, ...] = LIMITS,
) -> Result:
    """Seeds that earn `rewards` and spend `shares` of the limit in every episode."""
    costs = returns(shares, limits) * np.asarray(limits)[:, None]
    entry = Entry(method, Path(method), run or make_run(seeds=len(rewards)))
    return Result(entry, limits, Rollout(returns(rewards, limits), costs))


@pytest.fixture
def on_disk(tmp_path: Path) -> Callable[..., Path]:
    """A finished and evaluated run; its policy is rubbish, so that rolling it out is an error."""

    def write(name: str, result: Result, run: runs.Run | None = None) -> Path:
        directory = tmp_path / name
        with runs.locked(directory):
            runs.create(directory, run or result.entry.run)
        (directory / runs.POLICY).write_bytes(b"rubbish")
        store(directory, Question(result.limits, result.rollout.rewards.shape[2]), result.rollout)
        return directory

    return write
