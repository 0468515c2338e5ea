"""Speed of learning behaviours: environment steps per second, and where the time goes.

    python bench/behaviours_speed.py [--tasks BallRun ..] [--steps 20000]
    taskset -c 0 python bench/behaviours_speed.py     (one core for simulating and learning)

training        steps per second of a real training, after its random beginning
simulating      steps per second of the same pool with random actions, nothing learned
learning        steps per second that are learned from, nothing simulated
share           of the machine's matrix rate (256 x W @ W x W, float32) that learning reaches,
                counting the products of all layers, forward and backward, and nothing else
learning, simulating (of training)   the time each would take alone by the time of the training;
                together above 1 they overlap
"""

import argparse
import dataclasses
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from _results import finish, show

from safestitch.behaviours import ppo, replay, sac
from safestitch.behaviours.collecting import LAPS, Collector
from safestitch.behaviours.methods import METHODS, name_of
from safestitch.behaviours.preferences import Preferences
from safestitch.behaviours.settings import Schedule, settings_of
from safestitch.behaviours.training import Training, create, train
from safestitch.catalog import get_entry
from safestitch.records import Spec
from safestitch.runs import versions
from safestitch.sims.pool import Pool, Source

TASKS = ["BallRun", "AntRun", "CarCircle", "PointCircle1", "HalfCheetahVelocity", "AntVelocity"]
PRODUCTS = 200
WIDTH = 128
"""Of the critics."""


def matrix_rate(width: int) -> float:
    """FLOP/s of a chain of products of the critics' size; the best of a few."""
    weight = jnp.eye(width) + 1e-3

    @jax.jit
    def chain(x):
        return jax.lax.fori_loop(0, PRODUCTS, lambda _, y: weight @ y, x, unroll=20)

    x = jnp.ones((width, 256)) * 1e-3
    chain(x).block_until_ready()
    rates = []
    for _ in range(5):
        begin = time.perf_counter()
        chain(x).block_until_ready()
        rates.append(PRODUCTS * 2 * 256 * width**2 / (time.perf_counter() - begin))
    return max(rates)


def flop(config: Any, spec: Spec, schedule: Schedule) -> float:
    """Of what is learned from one step."""

    def weights(i: int, width: int, o: int) -> int:
        return width * (i + width + o)

    actor = weights(spec.obs_dim + 2, config.actor_width, 2 * spec.act_dim)
    if name_of(config) == "ppo":
        values = weights(spec.obs_dim + 2, config.width, ppo.CURRENCIES)
        once = 2 * actor + 4 * values  # old densities; values before and after
        return once + config.epochs * (6 + 2) * actor + config.epochs * 6 * values
    critic = weights(spec.obs_dim + spec.act_dim + 2, config.width, sac.CURRENCIES)
    critics = 2 * actor + 2 * (2 + 6) * critic  # target: forward; loss: forward, back, gradients
    policy = 6 * actor + 2 * (2 + 2) * critic  # critics: forward and back to the action
    return schedule.updates * config.batch * (critics + policy / config.delay)


def learning_rate(config: Any, spec: Spec, schedule: Schedule) -> float:
    """Steps per second of the program that training calls."""
    method = METHODS[name_of(config)]
    learn, chunk = method.learning(config, spec, schedule), method.chunk(config, schedule)
    rows = np.random.default_rng(0).standard_normal((chunk, replay.row_size(spec)), np.float32)
    units = sac.Units(jnp.zeros(spec.obs_dim), jnp.ones(spec.obs_dim), jnp.ones(()))
    state = method.begin(config, spec, schedule, jax.random.key(0))
    actor = jax.tree.map(jnp.copy, method.actor_of(state, units))
    if method.remember:
        for _ in range(100):
            state = method.remember(state, rows)
    seconds = []
    for _ in range(max(4, 2_000 // chunk)):
        begin = time.perf_counter()
        state, actor, losses = learn(state, rows, actor, units)
        losses.block_until_ready()
        seconds.append((time.perf_counter() - begin) / chunk)
    return 1.0 / statistics.median(seconds[2:])


def simulating_rate(spec: Spec, schedule: Schedule, steps: int) -> float:
    """Steps per second with random actions."""
    with Pool(Source(spec), lanes=schedule.lanes, laps=LAPS) as pool:
        collector = Collector(pool, lambda u: u, 0.99, 0.0, [0])
        collector.begin()
        count, begin = 0, 0.0
        while count < steps:
            for group in range(2):
                count += len(collector.receive(group)[0])
                collector.send(group, None)
                begin = begin or time.perf_counter()
        return count / (time.perf_counter() - begin)


def training_rate(spec: Spec, config: Preferences, schedule: Schedule) -> float:
    """Steps per second between the first marks and the end: starting and compiling left out."""
    marks: list[tuple[float, int]] = []
    with tempfile.TemporaryDirectory() as place:
        out = Path(place)
        create(out, Training(spec, None, 0, config, schedule, versions(), name_of(config)))
        train(out, progress=lambda step, *_: marks.append((time.perf_counter(), step)))
    (begin, first), (end, last) = marks[1], marks[-1]
    return (last - first) / (end - begin)


def measured(task: str, steps: int) -> dict:
    config, schedule = settings_of(task)
    spec = get_entry(task).spec
    if name_of(config) == "ppo":
        steps *= 5
    changes = {"steps": steps + 10_000, "warmup": 2_000, "capacity": 100_000, "measured": 1}
    schedule = dataclasses.replace(schedule, **changes)
    learning, simulating = (
        learning_rate(config, spec, schedule),
        simulating_rate(spec, schedule, steps),
    )
    training = training_rate(spec, config, schedule)
    return {
        "task": task,
        "learner": name_of(config),
        "training": training,
        "simulating": simulating,
        "learning": learning,
        "share": flop(config, spec, schedule) * learning / matrix_rate(WIDTH),
        "learning (of training)": training / learning,
        "simulating (of training)": training / simulating,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="speed of learning behaviours")
    parser.add_argument("--tasks", nargs="+", default=TASKS)
    parser.add_argument("--steps", type=int, default=20_000)
    options = parser.parse_args()
    rows = []
    for task in options.tasks:
        rows.append(measured(task, options.steps))
        print(rows[-1], flush=True)
    show("learning behaviours", rows)
    finish(tasks=rows)


if __name__ == "__main__":
    main()
