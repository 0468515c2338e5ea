"""How many iterations fit into a time, so that methods can be given equal minutes.

The number is settled before training begins: learning-rate schedules then end where training ends,
and a run that is stopped and resumed is the one that was never stopped.
"""

import dataclasses
import math
import time
from typing import Any

import jax

from safestitch.algos.base import Algorithm
from safestitch.episodes import Episodes
from safestitch.records import SafestitchError, Spec
from safestitch.scaling import fit_scaling
from safestitch.training.blocks import draw_block, rows_within
from safestitch.training.loop import CHUNK, compile_chunk, fresh_checkpoint

PROBE_SECONDS = 2.0
"""How long a timed call should at least take."""
CALLS = 3
"""Timed calls; the median counts."""


def within_minutes(
    algorithm: Algorithm,
    config: Any,
    spec: Spec,
    episodes: Episodes,
    seeds: list[int],
    minutes: float,
    memory: float | None = None,
) -> Any:
    """The config with as many iterations as fit into the time, never more than it has.

    All seeds train together, so that their number counts.

    Raises:
        SafestitchError: if the time is not above 0.
    """
    if not (math.isfinite(minutes) and minutes > 0):
        raise SafestitchError(f"--minutes {minutes}: expected a time above 0")
    seconds = iteration_seconds(algorithm, config, spec, episodes, seeds, memory)
    fitting = max(1, int(60.0 * minutes / seconds))
    return dataclasses.replace(config, iterations=min(config.iterations, fitting))


def iteration_seconds(
    algorithm: Algorithm,
    config: Any,
    spec: Spec,
    episodes: Episodes,
    seeds: list[int],
    memory: float | None = None,
) -> float:
    """Seconds of one iteration of all seeds on this machine, as it is loaded now."""
    scaling = fit_scaling(episodes, spec)
    rows, facts = rows_within(episodes, memory), ()
    if rows is not None:
        if algorithm.survey:
            facts = (algorithm.survey(config, episodes, spec, scaling),)
        episodes = draw_block(episodes, rows, 0)
    data = jax.device_put(algorithm.prepare(config, episodes, spec, scaling, *facts))
    checkpoint = fresh_checkpoint(algorithm, config, spec, seeds)

    def timed(size: int) -> float:
        nonlocal checkpoint
        begin = time.perf_counter()
        checkpoint, _ = jax.block_until_ready(
            compile_chunk(algorithm, config, size)(checkpoint, data)
        )
        return (time.perf_counter() - begin) / size

    timed(1)  # compiles
    alone = timed(1)
    size = min(CHUNK, max(1, math.ceil(PROBE_SECONDS / CALLS / alone)))
    if size > 1:
        timed(size)  # compiles
    return sorted(timed(size) for _ in range(CALLS))[CALLS // 2]
