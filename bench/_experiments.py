"""Trainings that benchmarks share: made once, kept under runs/bench, never computed twice."""

import dataclasses
import hashlib
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from safestitch import runs
from safestitch.algos import get_algorithm
from safestitch.cli.progress import TrainingBar
from safestitch.cli.train import material
from safestitch.envs import TASKS
from safestitch.evaluation import PAPER_LIMITS, evaluate_run
from safestitch.evaluation.score import Row
from safestitch.policy import load_policies
from safestitch.training.loop import resume, train

SECONDS = "seconds.json"


def trained(
    task_name: str,
    seeds: int,
    data_seed: int = 0,
    preset: str = "fast",
    data: Path | None = None,
    **settings: Any,
) -> tuple[Path, float]:
    """A finished run of GAS with a preset and some settings changed; and its seconds.

    The time is of training alone, compilation included, data making not.
    """
    algorithm = get_algorithm("gas")
    config = dataclasses.replace(algorithm.presets[preset], **settings)
    of = [hashlib.sha256(data.read_bytes()).hexdigest()] if data else []
    spelled = json.dumps([task_name, seeds, data_seed, dataclasses.asdict(config), *of])
    out = Path("runs/bench") / f"{task_name}-{hashlib.sha256(spelled.encode()).hexdigest()[:12]}"
    if not (out / SECONDS).exists():
        spec, episodes, source = material(task_name, data, data_seed)
        begin = time.monotonic()
        title = f"{task_name} {settings or 'default'}"
        with TrainingBar(title, config.iterations, out) as bar:
            if (out / runs.RUN).exists():
                resume(algorithm, config, runs.read(out), episodes, out, progress=bar)
            else:
                train(
                    algorithm,
                    config,
                    spec,
                    episodes,
                    list(range(seeds)),
                    out,
                    data_source=source,
                    data_seed=data_seed,
                    progress=bar,
                )
        runs.write_json(out / SECONDS, time.monotonic() - begin)
    return out, runs.read_json(out / SECONDS)


def answers(out: Path, episodes: int, **settings: Any) -> dict[str, Any]:
    """The six limits of the paper: figures per limit and over all of them."""
    rows, _ = evaluate_run(out, list(PAPER_LIMITS), episodes=episodes, **settings)
    return summarise(rows, load_policies(out).run.spec.task)


def summarise(rows: list[Row], task: str) -> dict[str, Any]:
    """Frontier ratio (of the known optimum where there is one), C/L, and how many limits kept."""
    optimum = TASKS[task].optimum if task in TASKS else None
    best = [
        row.reward[0] / optimum(row.limit) if optimum else row.frontier_ratio[0] for row in rows
    ]
    return {
        "kept": f"{sum(row.safe for row in rows)}/{len(rows)}",
        "ratio": float(np.mean(best)),
        "lowest": float(np.min(best)),
        "ratio per limit": " ".join(f"{b:.2f}" for b in best),
        "C/L per limit": " ".join(f"{row.cost_norm[0]:.2f}" for row in rows),
    }
