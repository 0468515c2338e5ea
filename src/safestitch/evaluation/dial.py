"""The limit dial: a run asked for every limit from 0 to 100%, as the data of its report page."""

import base64
import csv
import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np

from safestitch import runs
from safestitch.evaluation.rollout import Paths
from safestitch.evaluation.score import plain, rows
from safestitch.evaluation.simulated import Progress
from safestitch.evaluation.stage import default_episodes, play, stage_of
from safestitch.policy import load_policies
from safestitch.records import Picture, RunError, SafestitchError
from safestitch.sims.pool import Source
from safestitch.sims.scenery import picture_of

STEPS = 21
"""Limits on the dial: 0, 5, .. 100% of the cost range."""
DRAWN = 3
"""Episodes drawn per limit."""


def dial_run(
    directory: Path,
    *,
    episodes: int | None = None,
    seed: int = 0,
    env: str | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Everything the report page shows, as plain values; also written to `dial.json`.

    Episodes are per seed and limit: 50 on built-in tasks and 5 on simulators unless given.

    Raises:
        RunError: if the run is not finished or cannot be written.
    """
    policies = load_policies(directory)
    run, stage = policies.run, stage_of(policies.run, env)
    episodes = default_episodes(stage, episodes, built_in=50, simulated=5)
    limits = [run.spec.cost_range * i / (STEPS - 1) for i in range(STEPS)]
    result, paths = play(
        policies, stage, limits, episodes, seed=seed, drawn=DRAWN, progress=progress
    )
    optimum = None if isinstance(stage, Source) else stage.optimum
    dial = [
        {
            **plain(row),
            "optimum": optimum(row.limit) if optimum else None,
            "paths": _drawn(paths, i),
        }
        for i, row in enumerate(rows(run, limits, result))
    ]
    picture = picture_of(stage.spec.task) if isinstance(stage, Source) else stage.picture
    page = {**_facts(run, directory), "episodes": episodes, "dial": dial}
    page["picture"] = _picture(picture)
    page["still"] = _still(directory, env) if isinstance(stage, Source) else None
    runs.write_json(directory / runs.DIAL, page)
    return page


def _still(directory: Path, env: str | None) -> str | None:
    """A picture at three limits to put into the page; none where it cannot be drawn."""
    try:
        from safestitch.evaluation.watching import still  # noqa: PLC0415 (needs Pillow, an extra)

        content = still(directory, ["10%", "50%", "90%"], env)
    except (ImportError, SafestitchError):  # an environment of one's own need not draw itself
        return None
    return f"data:image/png;base64,{base64.b64encode(content).decode()}"


def _facts(run: runs.Run, directory: Path) -> dict[str, Any]:
    """What the page shows beside the dial."""
    summary = run.data_summary
    stored = directory / runs.ROWS
    return {
        "task": run.spec.task,
        "algorithm": run.algorithm,
        "seeds": run.seeds,
        "cost_range": run.spec.cost_range,
        "horizon": run.spec.horizon,
        "table": runs.read_json(stored) if stored.exists() else [],
        "frontier": {"costs": summary["frontier_costs"], "rewards": summary["frontier_rewards"]},
        "data": {
            "source": run.data_source,
            "fingerprint": run.data_fingerprint,
            **{k: v for k, v in summary.items() if not k.startswith("frontier")},
        },
        "curves": learning_curves(directory),
        "settings": run.config,
        "versions": run.versions,
        "commands": [
            f"safestitch train {run.algorithm} {run.spec.task} --seeds {len(run.seeds)} "
            f"--data-seed {run.data_seed} --out {directory}",
            f"safestitch eval {directory}",
            f"safestitch report {directory}",
        ],
    }


def learning_curves(directory: Path, points: int = 200) -> list[dict[str, Any]]:
    """Every metric over training: mean, lowest and highest seed, thinned to some points."""
    try:
        with open(directory / runs.METRICS, newline="") as file:
            header, *lines = csv.reader(file)
        names, values = header[2:], np.asarray(lines, np.float64).reshape(-1, len(header))
        if not len(values):
            raise ValueError("it has no rows")
    except (OSError, ValueError, csv.Error) as error:
        raise RunError(f"{directory / runs.METRICS} is missing or damaged: {error}") from None
    steps, first = np.unique(values[:, 0], return_index=True)
    per_step = np.split(values[:, 2:], first[1:])
    chosen = np.unique(np.linspace(0, len(steps) - 1, points).astype(int))
    return [
        {
            "name": name,
            "step": [int(steps[i]) for i in chosen],
            "mean": [_finite(per_step[i][:, m].mean()) for i in chosen],
            "low": [_finite(per_step[i][:, m].min()) for i in chosen],
            "high": [_finite(per_step[i][:, m].max()) for i in chosen],
        }
        for m, name in enumerate(names)
    ]


def _finite(value: float) -> float | None:
    """A diverged metric is a gap in its curve."""
    return float(value) if math.isfinite(value) else None


def _drawn(paths: Paths, limit: int) -> list[dict[str, Any]]:
    """The first episodes of the first seed, rounded: a page is to look at."""
    drawn = []
    for e in range(min(DRAWN, paths.costs.shape[2])):
        positions = paths.positions[0, limit, e].astype(float)
        known = np.isfinite(positions).all(1)  # not after an early end, nor in unknown places
        if known.any():
            x, y = np.round(positions[known].T, 3).tolist()
            cost = paths.costs[0, limit, e][known].astype(float).tolist()
            drawn.append({"x": x, "y": y, "cost": cost})
    return drawn


def _picture(picture: Picture) -> dict[str, Any]:
    """The picture with "to the edge" as null."""
    fields = dataclasses.asdict(picture)
    fields["zones"] = [[v if math.isfinite(v) else None for v in zone] for zone in picture.zones]
    return fields
