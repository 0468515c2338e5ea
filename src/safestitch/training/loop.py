"""Config + data + algorithm -> run directory: scan, log, checkpoint, resume."""

import contextlib
import dataclasses
import functools
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Key, PyTree

from safestitch import runs
from safestitch.algos.base import Algorithm
from safestitch.episodes import Episodes, frontier
from safestitch.records import RunError, Spec
from safestitch.scaling import fit_scaling
from safestitch.training.blocks import Blocks, draw_block, rows_within, visit_length
from safestitch.training.metrics import MetricsLog

IN_MEMORY = "episodes in memory"
CHUNK = 100
"""Iterations of one call of the compiled program; metrics are their means. Fixed, because a
resumed run must make the same calls as one that was never stopped."""
CHECKPOINT_SECONDS = 10.0
"""A kill loses at most this much; when checkpoints are written never changes the result."""


class Interrupted(Exception):
    """The user pressed Ctrl-C; the state is saved."""


@runtime_checkable
class Progress(Protocol):
    """Who is told how training goes: (iterations done, metrics averaged over seeds)."""

    def __call__(self, step: int, metrics: dict[str, float]) -> None:
        """Called after every chunk."""


class Checkpoint(NamedTuple):
    """Everything that decides what comes next."""

    states: PyTree
    """One algorithm state per seed, stacked."""
    keys: Key[Array, " seeds"]
    """Root of each seed's randomness; iteration i folds i into it."""
    step: Int[Array, ""]


def train(
    algorithm: Algorithm,
    config: Any,
    spec: Spec,
    episodes: Episodes,
    seeds: list[int],
    out: Path,
    *,
    data_source: str = IN_MEMORY,
    data_seed: int = 0,
    memory: float | None = None,
    tensorboard: bool = False,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    progress: Progress | None = None,
) -> None:
    """Train all seeds in one compiled program and leave a finished run in `out`.

    Data that do not fit into `memory` bytes (half of what is free unless given) are visited in
    blocks of sampled episodes.

    Raises:
        RunError: if `out` holds a run already, is in use, or cannot be written.
        Interrupted: on Ctrl-C, after saving.
    """
    check_fit(episodes, spec)
    with runs.locked(out):
        run = runs.Run(
            algorithm=algorithm.name,
            config=dataclasses.asdict(config),
            spec=spec,
            seeds=seeds,
            data_source=data_source,
            data_seed=data_seed,
            data_fingerprint=episodes.fingerprint,
            data_summary=summarise(episodes),
            versions=runs.versions(),
            block_rows=rows_within(episodes, memory),
        )
        runs.create(out, run)
        _train(
            algorithm,
            config,
            run,
            episodes,
            out,
            tensorboard=tensorboard,
            checkpoint_seconds=checkpoint_seconds,
            progress=progress,
        )


def resume(
    algorithm: Algorithm,
    config: Any,
    run: runs.Run,
    episodes: Episodes,
    out: Path,
    *,
    tensorboard: bool = False,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    progress: Progress | None = None,
) -> None:
    """Go on with an unfinished run; the result is bit-identical to one that was never stopped.

    Raises:
        RunError: if the data or the versions are not those the run was started with.
        Interrupted: on Ctrl-C, after saving.
    """
    if episodes.fingerprint != run.data_fingerprint:
        raise RunError(
            f"the data differ from those {out} was started with (fingerprint "
            f"{episodes.fingerprint[:12]} instead of {run.data_fingerprint[:12]}): resuming would "
            "mix two data sets. Train again with another --out"
        )
    now = runs.versions()
    changed = [k for k in now if now[k] != run.versions.get(k)]
    if changed:
        raise RunError(
            f"{out} was started with {changed[0]} {run.versions.get(changed[0])}, this is "
            f"{now[changed[0]]}: the result would match neither version. Train again, or resume "
            "where that version is installed"
        )
    with runs.locked(out):
        if not runs.is_trained(out):
            _train(
                algorithm,
                config,
                run,
                episodes,
                out,
                tensorboard=tensorboard,
                checkpoint_seconds=checkpoint_seconds,
                progress=progress,
            )


def summarise(episodes: Episodes) -> dict[str, Any]:
    """The figures of a data set that tables and pages show beside results."""
    frontier_costs, frontier_rewards = frontier(episodes.returns, episodes.cost_returns)
    return {
        "episodes": len(episodes),
        "steps": episodes.steps,
        "reward_max": float(episodes.returns.max()),
        "reward_min": float(episodes.returns.min()),
        "cost_max": float(episodes.cost_returns.max()),
        "cost_min": float(episodes.cost_returns.min()),
        "frontier_costs": frontier_costs.tolist(),
        "frontier_rewards": frontier_rewards.tolist(),
    }


def check_fit(episodes: Episodes, spec: Spec) -> None:
    """Raise unless the data are of the task that `spec` describes."""
    found = (episodes.observations.shape[1], episodes.actions.shape[1])
    if found != (spec.obs_dim, spec.act_dim):
        raise RunError(
            f"the data have {found[0]} observation and {found[1]} action dimensions, {spec.task} "
            f"has {spec.obs_dim} and {spec.act_dim}"
        )
    if episodes.lengths.max() > spec.horizon:
        longest = int(episodes.lengths.argmax())
        raise RunError(
            f"episode {longest} has {episodes.lengths[longest]} steps, the horizon of {spec.task} "
            f"is {spec.horizon}: give the horizon of the longest episode"
        )


def fresh_checkpoint(algorithm: Algorithm, config: Any, spec: Spec, seeds: list[int]) -> Checkpoint:
    """Every seed at iteration 0."""
    init_keys, keys = jax.vmap(lambda s: jax.random.split(jax.random.key(s)), out_axes=1)(
        jnp.asarray(seeds, jnp.uint32)
    )
    init = jax.vmap(lambda key: algorithm.init(config, spec, key))
    states = jax.jit(init, compiler_options=compiler_options())(init_keys)
    return Checkpoint(states, keys, jnp.zeros((), jnp.int32))


@functools.cache
def compiler_options() -> dict[str, bool]:
    """Lean compilation: the default emitters take 120 MB more, for a program that is no faster.

    Later versions of jaxlib know no other emitters, and no such option.
    """
    lean = {"xla_cpu_use_fusion_emitters": False}
    try:
        jax.jit(lambda x: x, compiler_options=lean)(0.0)
    except jax.errors.JaxRuntimeError:
        return {}
    return lean


@functools.lru_cache(maxsize=8)
def compile_chunk(algorithm: Algorithm, config: Any, iterations: int) -> Callable:
    """(checkpoint, data) -> checkpoint, metrics: iterations of all seeds, compiled once.

    Sampling, relabelling and updates run inside one scan; the data are an argument, not a constant
    of the program.
    """

    def one_seed(state, key, first, data):
        def iteration(state, i):
            batch = algorithm.sample(config, data, jax.random.fold_in(key, i))
            return algorithm.update(config, state, batch)

        state, metrics = jax.lax.scan(iteration, state, first + jnp.arange(iterations))
        return state, jax.tree.map(lambda m: m.mean(0), metrics)

    @functools.partial(jax.jit, donate_argnums=0, compiler_options=compiler_options())
    def chunk(checkpoint: Checkpoint, data):
        states, keys, step = checkpoint
        states, metrics = over_seeds(lambda s, k: one_seed(s, k, step, data), states, keys)
        return Checkpoint(states, keys, step + iterations), metrics

    return chunk


def over_seeds(one_seed: Callable, states: PyTree, keys: Key[Array, " seeds"]) -> PyTree:
    """`one_seed` for all seeds at once: vmap, but not for a single one.

    A batch of one matrix product takes a slower path than the product itself.
    """
    if len(keys) > 1:
        return jax.vmap(one_seed)(states, keys)
    alone = one_seed(jax.tree.map(lambda x: x[0], states), keys[0])
    return jax.tree.map(lambda x: x[None], alone)


def _train(
    algorithm, config, run, episodes, out, *, tensorboard, checkpoint_seconds, progress
) -> None:
    scaling = fit_scaling(episodes, run.spec)
    checkpoint = fresh_checkpoint(algorithm, config, run.spec, run.seeds)
    if (out / runs.CHECKPOINT).exists():
        checkpoint = _load(out, checkpoint)
    step = int(checkpoint.step)
    saved_at = time.monotonic()
    with (
        _data_of(algorithm, config, run, episodes, scaling) as data_at,
        MetricsLog(out, run.seeds, after=step, tensorboard=tensorboard) as log,
        Stop() as stop,
    ):
        while step < config.iterations and not stop.asked:
            size = min(CHUNK, config.iterations - step)
            checkpoint, metrics = compile_chunk(algorithm, config, size)(checkpoint, data_at(step))
            metrics = {name: np.asarray(values) for name, values in metrics.items()}
            step += size
            log.write(step, metrics)
            if progress:
                progress(step, {name: float(v.mean()) for name, v in metrics.items()})
            if time.monotonic() - saved_at > checkpoint_seconds:
                _save(out, checkpoint)
                saved_at = time.monotonic()
    _save(out, checkpoint)
    if step < config.iterations:
        raise Interrupted(f"saved at iteration {step} of {config.iterations}")
    policies = jax.vmap(algorithm.policy)(checkpoint.states)
    runs.save_tree(out / runs.POLICY, (policies, scaling), step=step)


@contextlib.contextmanager
def _data_of(algorithm, config, run, episodes, scaling) -> Iterator[Callable[[int], PyTree]]:
    """(iteration) -> the data it draws from: all, or the block whose turn it is."""
    rows = run.block_rows
    if rows is None:
        data = jax.device_put(algorithm.prepare(config, episodes, run.spec, scaling))
        yield lambda _: data
        return
    survey = algorithm.survey
    facts = (survey(config, episodes, run.spec, scaling),) if survey else ()

    def make(number: int) -> PyTree:
        block = draw_block(episodes, rows, number)
        return algorithm.prepare(config, block, run.spec, scaling, *facts)

    visit = visit_length(rows, episodes.steps, config.batch, config.iterations, CHUNK)
    with Blocks(make, visit, config.iterations) as blocks:
        yield blocks


def _save(out: Path, checkpoint: Checkpoint) -> None:
    plain = checkpoint._replace(keys=jax.random.key_data(checkpoint.keys))
    runs.save_tree(out / runs.CHECKPOINT, plain, step=int(checkpoint.step))


def _load(out: Path, like: Checkpoint) -> Checkpoint:
    plain = like._replace(keys=jax.random.key_data(like.keys))
    checkpoint, _ = runs.load_tree(out / runs.CHECKPOINT, plain)
    return checkpoint._replace(keys=jax.random.wrap_key_data(checkpoint.keys))


class Stop:
    """Ctrl-C asks to stop after the current chunk; a second one stops at once."""

    def __init__(self):
        self.asked = False

    def __enter__(self):
        self.main = threading.current_thread() is threading.main_thread()
        if self.main:
            self.before = signal.signal(signal.SIGINT, self._ask)
        return self

    def _ask(self, *_):
        self.asked = True
        signal.signal(signal.SIGINT, self.before)

    def __exit__(self, *_):
        if self.main:
            signal.signal(signal.SIGINT, self.before)
