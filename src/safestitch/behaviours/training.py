"""Behaviours of a task, learned on its simulator: workers step while the learner learns.

run.json                    what was asked
metrics.csv                 how it went
snapshots/STEP.safetensors  actors, each written at once as it comes; never overwritten
checkpoint.safetensors      learner and transitions: everything needed to go on
behaviours.safetensors      all snapshots in one file; its presence means "trained"
"""

import dataclasses
import functools
import itertools
import math
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from safestitch import runs
from safestitch.behaviours import sac, snapshots
from safestitch.behaviours.collecting import LAPS, Collector, Episode, measure
from safestitch.behaviours.methods import METHODS
from safestitch.behaviours.preferences import Preferences, draw_lambda
from safestitch.behaviours.settings import BANDS, MOMENTS, Schedule, band_of, learned_lambdas
from safestitch.behaviours.snapshots import Behaviours, Moment, behaviours_of
from safestitch.behaviours.teaching import Teacher, teacher_of
from safestitch.catalog import catalog
from safestitch.records import RunError, Spec
from safestitch.sims.pool import Pool, Source
from safestitch.training.loop import Interrupted, Stop
from safestitch.training.metrics import MetricsLog

SNAPSHOTS, RESULT = "snapshots", "behaviours.safetensors"
LOG_STEPS = 5_000
UNIT_STEPS = 5_000
"""Recent steps whose mean absolute reward is the unit of reward of the user's own environments."""
RECENT = 50
"""Episodes of a band that its means are over."""

Progress = Callable[[int, int, str], None]
"""Called with (steps, steps in all, a note on how it goes)."""


@dataclasses.dataclass(frozen=True)
class Training:
    """What is trained, as written in `run.json`."""

    spec: Spec
    own: str | None
    """Name of the user's environment; none for a task of the catalog."""
    seed: int
    config: Preferences
    """Of the learner it names."""
    schedule: Schedule
    versions: dict[str, str]
    learner: str = "sac"
    teacher: str | None = None
    """File of behaviours that play the first steps; none: chance, or what suits the task."""
    kind: str = "behaviours"
    format: int = 1

    @property
    def source(self) -> Source:
        """What the workers simulate."""
        return Source(self.spec, self.own)


def create(out: Path, training: Training) -> None:
    """Write `run.json` into a directory without a run, held by `runs.locked`.

    Raises:
        RunError: if there is a run.
    """
    if (out / runs.RUN).exists():
        raise RunError(f"{out} already holds a run: go on with --resume, or choose another --out")
    (out / SNAPSHOTS).mkdir(exist_ok=True)
    runs.write_json(out / runs.RUN, dataclasses.asdict(training))


def read(out: Path) -> Training:
    """What a directory holds the training of.

    Raises:
        RunError: if it holds none, or a broken one.
    """
    fields = runs.read_json(out / runs.RUN)
    if not isinstance(fields, dict) or fields.get("kind") != "behaviours":
        raise RunError(f"{out} holds no training of behaviours")
    try:
        learner = METHODS[fields.get("learner", "sac")]
        parts = {"spec": Spec, "config": learner.config, "schedule": Schedule}
        made = {name: kind(**fields[name]) for name, kind in parts.items()}
        return Training(**{**fields, **made})
    except (KeyError, TypeError) as error:
        raise RunError(f"{out / runs.RUN} is damaged: {error}") from None


def lengthened(out: Path, training: Training, steps: int) -> Training:
    """The training with more steps, so written in `run.json`."""
    longer = dataclasses.replace(
        training, schedule=dataclasses.replace(training.schedule, steps=steps)
    )
    runs.write_json(out / runs.RUN, dataclasses.asdict(longer))
    (out / RESULT).unlink(missing_ok=True)
    return longer


def train(out: Path, workers: int | None = None, progress: Progress | None = None) -> Behaviours:
    """Begin or go on with the training that `run.json` describes, to its end.

    Raises:
        Interrupted: on Ctrl-C, after saving.
    """
    training = read(out)
    session = _Session(training, out)
    schedule = training.schedule
    measures = len(learned_lambdas(training.config)) * schedule.measured
    with (
        Pool(training.source, lanes=schedule.lanes, laps=LAPS, workers=workers) as pool,
        # One of its own: beginning anew to measure would cut the episodes that are learned from.
        Pool(training.source, lanes=measures, laps=1, workers=workers) as measuring,
        MetricsLog(out, [training.seed], after=session.step, tensorboard=False) as log,
        Stop() as stop,
    ):
        session.play(pool, measuring, log, stop, progress)
    session.save()
    if session.step < schedule.steps:
        raise Interrupted(f"saved at step {session.step:,} of {schedule.steps:,}")
    found = snapshots.joined([snapshots.load(path) for path in taken(out)])
    snapshots.save(out / RESULT, found)
    return found


def taken(out: Path) -> list[Path]:
    """Snapshots of a run, oldest first."""
    return sorted((out / SNAPSHOTS).glob("*.safetensors"))


class _Session:
    """A training under way."""

    def __init__(self, training: Training, out: Path):
        self.training, self.out = training, out
        spec, config, schedule = training.spec, training.config, training.schedule
        self.method = METHODS[training.learner]
        self.chunk = self.method.chunk(config, schedule)
        self.learn = self.method.learning(config, spec, schedule)
        self.state = self.method.begin(config, spec, schedule, jax.random.key(training.seed))
        self.observed = Observed(spec.obs_dim)
        self.unit = self.typical = reward_unit(spec)
        self.step, self.seconds = 0, 0.0
        self.actors: deque = deque([None], maxlen=1 + self.method.lag)
        """The newest, which may still be computed; the oldest is acted with."""
        self.losses = jnp.full(2, jnp.nan)
        self.recent = {band: deque(maxlen=RECENT) for band in range(len(BANDS) + 1)}
        self.waiting: list[tuple[np.ndarray, np.ndarray]] = []
        """Rows that are not learned from yet, and their lanes."""
        if self.method.remember is None:
            self._act_anew()
        if (out / runs.CHECKPOINT).exists():
            self._load()
        self.saved = self.begun = time.monotonic()
        self.begun -= self.seconds

    def play(
        self, pool: Pool, measuring: Pool, log: MetricsLog, stop: Stop, progress: Progress | None
    ) -> None:
        """Collect and learn until the end, or until asked to stop."""
        training, schedule, config = self.training, self.training.schedule, self.training.config
        draw = functools.partial(draw_lambda, config)
        switch = schedule.switches / training.spec.horizon
        seed = [training.seed, self.step]
        collector = Collector(pool, draw, config.gamma, switch, seed, self._teacher())
        collector.begin()
        due = deque(s for share in MOMENTS if (s := round(share * schedule.steps)) > self.step)
        logged = time.monotonic(), self.step
        while self.step < schedule.steps and not stop.asked:
            for group in range(len(pool.groups)):
                came = collector.receive(group)
                collector.send(group, self.actors[0])
                self._take(*came)
            while due and self.step >= due[0]:
                self._snapshot(measuring, due.popleft())
            if self.step - logged[1] >= LOG_STEPS or self.step >= schedule.steps:
                self._log(log, collector.episodes, logged, progress)
                logged = time.monotonic(), self.step
            if time.monotonic() - self.saved > schedule.checkpoint_seconds:
                self.save()

    def _teacher(self) -> Teacher:
        """Who plays until learning begins; afterwards the file is not asked for."""
        file, learning = self.training.teacher, self.step > self.training.schedule.warmup
        shown = snapshots.load(Path(file)) if file and not learning else None
        return teacher_of(self.training.source, shown)

    def _take(self, rows: Float[np.ndarray, "n _"], lanes: Int[np.ndarray, " n"]) -> None:
        """Transitions: remember them and learn, a chunk at a time, lane by lane."""
        self.step += len(rows)
        self.observed.add(rows[:, : self.training.spec.obs_dim])
        if self.training.own:
            self._weigh_rewards(rows[:, self.training.spec.obs_dim + self.training.spec.act_dim])
        self.waiting.append((rows, lanes))
        if sum(len(lanes) for _, lanes in self.waiting) < self.chunk:
            return
        rows, lanes = (np.concatenate(parts) for parts in zip(*self.waiting, strict=True))
        self.waiting = [(rows[self.chunk :], lanes[self.chunk :])]
        now = rows[: self.chunk][np.argsort(lanes[: self.chunk], kind="stable")]
        if self.method.remember and self.step <= self.training.schedule.warmup:
            self.state = self.method.remember(self.state, now)
            return
        self.state, actor, self.losses = self.learn(self.state, now, self.actors[0], self.units())
        self.actors.append(actor)

    def _weigh_rewards(self, rewards: Float[np.ndarray, " n"]) -> None:
        """Raise the unit of reward to that of recent steps; it never sinks once learning began."""
        window = max(1, min(self.step, UNIT_STEPS))
        self.typical += (np.abs(rewards) - self.typical).sum() / window
        learning = self.step > self.training.schedule.warmup
        self.unit = float(max(self.typical, self.unit if learning else 1e-6))

    def units(self) -> sac.Units:
        """What the networks see observations and rewards in."""
        mean, scale = self.observed.units()
        return sac.Units(jnp.asarray(mean), jnp.asarray(scale), jnp.float32(self.unit))

    # --- what is left behind -------------------------------------------------------------------

    def _path(self, step: int) -> Path:
        return self.out / SNAPSHOTS / f"{step:010d}.safetensors"

    def _snapshot(self, pool: Pool, step: int) -> None:
        """Keep the actor of this moment, with what it does."""
        if self._path(step).exists():  # taken before a kill, after the last checkpoint
            return
        training = self.training
        actor = self.method.actor_of(self.state, self.units())
        kept = behaviours_of(training.spec, [actor], [Moment(training.seed, step, (), (), ())])[0]
        episodes, lambdas = training.schedule.measured, learned_lambdas(training.config)
        rewards, costs = measure(pool, kept, lambdas, episodes, training.seed)
        moment = Moment(
            training.seed, step, lambdas, tuple(rewards.tolist()), tuple(costs.tolist())
        )
        snapshots.save(self._path(step), behaviours_of(training.spec, [kept], [moment]))

    def save(self) -> None:
        """Write a checkpoint."""
        self.seconds = time.monotonic() - self.begun
        facts: dict[str, Any] = {"step": self.step, "seconds": self.seconds, "unit": self.unit}
        facts["observed"] = self.observed.facts()
        runs.save_tree(self.out / runs.CHECKPOINT, self._tree(), **facts)
        self.saved = time.monotonic()

    def _tree(self) -> tuple:
        learner, *rest = self.state
        return learner._replace(key=jax.random.key_data(learner.key)), *rest

    def _load(self) -> None:
        (learner, *rest), facts = runs.load_tree(self.out / runs.CHECKPOINT, self._tree())
        self.state = learner._replace(key=jax.random.wrap_key_data(learner.key)), *rest
        self.step, self.seconds = facts["step"], facts["seconds"]
        self.unit = self.typical = facts["unit"]
        self.observed = Observed(self.training.spec.obs_dim, **facts["observed"])
        if self.step > self.training.schedule.warmup:
            self._act_anew()

    def _act_anew(self) -> None:
        """Act with what the learner knows now."""
        actor = jax.tree.map(jnp.copy, self.method.actor_of(self.state, self.units()))
        self.actors.extend([actor] * (1 + self.method.lag))

    def _log(self, log, episodes: list[Episode], logged, progress: Progress | None) -> None:
        for episode in episodes:
            if not math.isnan(episode.lam):
                self.recent[band_of(episode.lam)].append(episode)
        episodes.clear()
        now = time.monotonic()
        rate = (self.step - logged[1]) / (now - logged[0])
        critic_loss, policy_loss = np.asarray(self.losses).tolist()
        metrics = {"seconds": now - self.begun, "steps_per_second": rate, "reward_unit": self.unit}
        metrics |= {"loss/critic": critic_loss, "loss/policy": policy_loss}
        metrics |= self.method.facts(self.state)
        names = [f"to {end:g}" for end in BANDS] + ["above"]
        for band, held in self.recent.items():
            for field in ("reward", "cost"):
                values = [getattr(e, field) for e in held]
                metrics[f"{field}/{names[band]}"] = float(np.mean(values)) if values else math.nan
        log.write(self.step, {name: np.array([value]) for name, value in metrics.items()})
        if progress:
            bands = {
                band: (metrics[f"reward/{names[band]}"], metrics[f"cost/{names[band]}"])
                for band, held in self.recent.items()
                if held
            }
            total = self.training.schedule.steps  # the lanes may go a little beyond
            progress(min(self.step, total), total, how_it_goes(rate, bands))


def how_it_goes(rate: float, bands: dict[int, tuple[float, float]]) -> str:
    """A note on steps per second, and (reward, cost) of the bands of lambda that have any."""
    ends = ["0", *(f"{a:g}-{b:g}" for a, b in itertools.pairwise(BANDS)), f">{BANDS[-1]:g}"]
    shown = [f"{ends[band]}: {reward:.0f}/{cost:.0f}" for band, (reward, cost) in bands.items()]
    by_lambda = [f"reward/cost by lambda {', '.join(shown)}"] if shown else []
    return "; ".join([f"{rate:.0f} steps/s", *by_lambda])


class Observed:
    """Mean and spread of all observations so far."""

    def __init__(self, dims: int, count: float = 0.0, mean=None, squares=None):
        self.count = count
        self.mean = np.zeros(dims) if mean is None else np.asarray(mean)
        self.squares = np.zeros(dims) if squares is None else np.asarray(squares)
        """Sums of squared distances from the mean."""

    def add(self, obs: Float[np.ndarray, "n o"]) -> None:
        """Take observations in (Chan's formula)."""
        if not len(obs):
            return
        values = obs.astype(np.float64)
        mean, total = values.mean(0), self.count + len(obs)
        apart = mean - self.mean
        self.squares += np.square(values - mean).sum(0)
        self.squares += np.square(apart) * self.count * len(obs) / total
        self.mean = self.mean + apart * len(obs) / total
        self.count = total

    def units(self) -> tuple[Float[np.ndarray, " o"], Float[np.ndarray, " o"]]:
        """Mean and scale; a column that does not vary is not divided."""
        std = np.sqrt(self.squares / max(self.count, 1.0))
        scale = np.where(std > 1e-6 * (1.0 + np.abs(self.mean)), std, 1.0)
        return self.mean.astype(np.float32), scale.astype(np.float32)

    def facts(self) -> dict[str, Any]:
        """As JSON holds it."""
        return {
            "count": self.count,
            "mean": self.mean.tolist(),
            "squares": self.squares.tolist(),
        }


def reward_unit(spec: Spec) -> float:
    """Reward of a typical good step: of the best public episode; 0 where it is yet to be found."""
    entry = catalog().get(spec.task)
    return entry.reward_max / entry.horizon if entry else 0.0
