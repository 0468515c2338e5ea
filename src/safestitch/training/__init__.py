"""Training: config + data + algorithm -> run directory."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from safestitch import runs
from safestitch.algos import get_algorithm
from safestitch.episodes import Episodes
from safestitch.names import lookup, unknown
from safestitch.policy import Policy, load, recall
from safestitch.records import SafestitchError, Spec
from safestitch.training.loop import Progress, train
from safestitch.training.loop import resume as resume_run

__all__ = ["spec_of", "train_on"]


def train_on(
    episodes: Episodes,
    out: str | Path,
    *,
    algorithm: str = "gas",
    spec: Spec | None = None,
    seeds: int = 1,
    preset: str = "fast",
    resume: bool = False,
    memory: float | None = None,
    progress: Progress | None = None,
    **settings: Any,
) -> Policy:
    """Train on logged episodes, no simulator needed, and return the first seed's policy.

    Args:
        episodes: the data.
        out: run directory, new or empty.
        algorithm: name of the algorithm.
        spec: what the task looks like; read off the data unless given.
        seeds: how many, trained together.
        preset: settings to start from.
        resume: go on with the run in `out`, which decides algorithm, seeds and settings.
        memory: bytes the data may take; half of what is free unless given. Larger data are visited
            in blocks of sampled episodes.
        progress: called with (iterations done, metrics) as training goes on.
        settings: fields of the algorithm's config to change.

    Raises:
        SafestitchError: for an unknown name or setting, or a directory in use.
    """
    if resume:
        run = runs.read(Path(out))
        resume_run(*recall(run), run, episodes, Path(out), progress=progress)
        return load(out)
    if seeds < 1:
        raise SafestitchError(f"seeds is {seeds}: expected at least 1")
    chosen = get_algorithm(algorithm)
    config = lookup("preset", preset, chosen.presets)
    fields = [field.name for field in dataclasses.fields(config)]
    for name in settings:
        if name not in fields:
            raise SafestitchError(unknown("setting", name, fields))
    config = dataclasses.replace(config, **settings)
    spec = spec or spec_of(episodes)
    train(
        chosen,
        config,
        spec,
        episodes,
        list(range(seeds)),
        Path(out),
        memory=memory,
        progress=progress,
    )
    return load(out)


def spec_of(episodes: Episodes, task: str = "own data") -> Spec:
    """What the data say of their task: dimensions, longest episode, largest cost, action range."""
    return Spec(
        task=task,
        obs_dim=episodes.observations.shape[1],
        act_dim=episodes.actions.shape[1],
        horizon=int(episodes.lengths.max()),
        cost_range=float(episodes.cost_returns.max()),
        action_low=min(-1.0, float(np.min(episodes.actions))),
        action_high=max(1.0, float(np.max(episodes.actions))),
    )
