"""The episodes of an evaluation on disk: enough to compare with another method, pair by pair."""

import dataclasses
from pathlib import Path

import numpy as np

from safestitch import runs
from safestitch.evaluation.rollout import Rollout
from safestitch.records import RunError


@dataclasses.dataclass(frozen=True)
class Question:
    """What an evaluation was asked: equal questions to equal policies have equal answers."""

    limits: tuple[float, ...]
    """Costs per episode."""
    episodes: int
    """Per seed and limit."""
    seed: int = 0
    """Of the start states."""
    target_reward: float | None = None
    env: str | None = None


def store(directory: Path, question: Question, result: Rollout) -> None:
    """Write the question and every episode's return: some 40 bytes an episode."""
    found = {
        "question": dataclasses.asdict(question),
        "rewards": result.rewards.tolist(),
        "costs": result.costs.tolist(),
    }
    runs.write_json(directory / runs.EPISODES, found, indent=None)


def answer(directory: Path, question: Question) -> Rollout | None:
    """The stored answer; None if the run was asked something else, or the file is not sound.

    An answer can always be had again, so that a damaged one is no error.
    """
    try:
        found = runs.read_json(directory / runs.EPISODES)
        asked = found["question"]
        if Question(**{**asked, "limits": tuple(asked["limits"])}) != question:
            return None
        rewards, costs = (np.asarray(found[name], np.float64) for name in ("rewards", "costs"))
    except (RunError, KeyError, TypeError, ValueError):
        return None
    shape = (len(runs.read(directory).seeds), len(question.limits), question.episodes)
    if rewards.shape != shape or costs.shape != shape:
        return None
    if not (np.isfinite(rewards).all() and np.isfinite(costs).all() and (costs >= 0).all()):
        return None
    return Rollout(rewards, costs)
