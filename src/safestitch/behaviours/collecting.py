"""Episodes from the simulators' workers: those that are learned from, and those that measure."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int

from safestitch.behaviours import actor as acting
from safestitch.behaviours.actor import Actor
from safestitch.behaviours.replay import pack
from safestitch.behaviours.teaching import Teacher, teacher_of
from safestitch.sims.pool import BEGUN, IDLE, TERMINATED, TRUNCATED, Outcome, Pool

LAPS = 512
"""Episodes that a lane plays before all begin anew."""
SEEDS = 2**31

act = jax.jit(acting.act)


class Episode(NamedTuple):
    """How an episode of training went."""

    lam: float
    """NaN where it was switched on the way."""
    reward: float
    cost: float


class Collector:
    """Plays episodes for ever and hands out what they bring, transition by transition.

    Each episode has a lambda of its own, and now and then another from some step on: states that
    one preference leads to are then seen under others too.
    """

    def __init__(
        self,
        pool: Pool,
        draw_lambda,
        gamma: float,
        switch: float,
        seed: Sequence[int],
        teacher: Teacher | None = None,
    ):
        self.pool, self.spec = pool, pool.source.spec
        self.draw_lambda, self.gamma, self.switch = draw_lambda, gamma, switch
        self.teacher = teacher or teacher_of(pool.source)
        self.random = np.random.default_rng(seed)
        lanes = pool.shape.lanes
        self.obs = np.zeros((lanes, self.spec.obs_dim), np.float32)
        self.actions = np.zeros((lanes, self.spec.act_dim), np.float32)
        self.lam = np.zeros(lanes, np.float32)
        self.pure = np.ones(lanes, bool)
        """Whether the episode has had one lambda so far."""
        self.sums = np.zeros((2, lanes))
        self.playing = np.zeros(lanes, bool)
        self.episodes: list[Episode] = []
        """Finished ones that nobody has taken yet."""

    def begin(self) -> None:
        """Start new episodes in all lanes; what those under way would still bring is dropped."""
        self.pool.begin(self.random.integers(0, SEEDS, (self.pool.shape.lanes, LAPS)))
        self.playing[:] = False

    def receive(self, group: int) -> tuple[Float[np.ndarray, "n _"], Int[np.ndarray, " n"]]:
        """Rows of the transitions that the last actions of a group brought, and their lanes."""
        outcome = self.pool.receive(group)
        lanes, flags = outcome.lanes, outcome.flags
        ended = (flags & (TERMINATED | TRUNCATED)) > 0
        stepped = self.playing[lanes] & ~outcome.restarted & (ended | ((flags & IDLE) == 0))
        rows = self._rows(outcome, ended)[stepped]
        self.sums[:, lanes] += np.where(stepped, (outcome.rewards, outcome.costs), 0.0)
        for lane in lanes[stepped & ended]:
            lam = float(self.lam[lane]) if self.pure[lane] else float("nan")
            self.episodes.append(Episode(lam, *self.sums[:, lane].tolist()))
        self._renew(lanes, (flags & BEGUN) > 0)
        self.obs[lanes] = outcome.observations
        self.playing[lanes] = (flags & IDLE) == 0
        return rows, lanes[stepped]

    def _rows(self, outcome: Outcome, ended: np.ndarray) -> Float[np.ndarray, "n _"]:
        lanes = outcome.lanes
        last = self.pool.board.last_observations[lanes]
        after = np.where(ended[:, None], last, outcome.observations)
        discount = np.where(outcome.flags & TERMINATED, 0.0, self.gamma)
        scalars = np.stack([outcome.rewards, outcome.costs, discount, self.lam[lanes]], 1)
        return pack(self.obs[lanes], self.actions[lanes], scalars, after)

    def _renew(self, lanes: np.ndarray, begun: np.ndarray) -> None:
        """Lambdas of new episodes, and other ones for a few of those under way."""
        switched = ~begun & (self.random.random(len(lanes)) < self.switch)
        drawn = self.draw_lambda(self.random.random(len(lanes), np.float32))
        self.lam[lanes] = np.where(begun | switched, drawn, self.lam[lanes])
        self.pure[lanes] = (self.pure[lanes] & ~switched) | begun
        self.sums[:, lanes[begun]] = 0.0

    def send(self, group: int, actor: Actor | None) -> None:
        """Act; as the teacher does where there is no actor yet."""
        lanes = self.pool.groups[group]
        if not self.playing[lanes].all():  # a lane has played all its episodes
            self.begin()
            return
        if actor is None:
            actions = self.teacher(self.obs[lanes], self.lam[lanes], self.random)
        else:
            noise = self.random.standard_normal((len(lanes), self.spec.act_dim), np.float32)
            actions = np.asarray(act(actor, self.obs[lanes], self.lam[lanes], noise))
        self.actions[lanes] = actions
        self.pool.send(group, acting.task_action(self.spec, actions))


def measure(
    pool: Pool, actor: Actor, lambdas: Sequence[float], episodes: int, seed: int
) -> tuple[Float[np.ndarray, " l"], Float[np.ndarray, " l"]]:
    """Mean return and cost of the noiseless actor at each lambda, from the same start states."""
    spec, lanes = pool.source.spec, pool.shape.lanes
    random = np.random.default_rng([seed, 1])
    count = len(lambdas) * episodes
    place, lap = random.permutation(lanes)[np.arange(count) % lanes], np.arange(count) // lanes
    number = np.full((lanes, pool.shape.laps + 1), -1)
    number[place, lap] = np.arange(count)
    starts = random.integers(0, SEEDS, episodes)
    pool.begin(np.where(number >= 0, starts[number % episodes], -1)[:, :-1])
    at, sums = np.zeros(lanes, np.int64), np.zeros((2, count))
    playing = np.zeros(lanes, bool)
    while live := pool.live:
        for group in live:
            outcome = pool.receive(group)
            of, flags = outcome.lanes, outcome.flags
            now = number[of, at[of]]
            void = now[outcome.restarted & (now >= 0)]
            sums[:, void] = 0.0
            stepped = playing[of] & ~outcome.restarted & (now >= 0)
            sums[:, now[stepped]] += np.stack([outcome.rewards, outcome.costs])[:, stepped]
            at[of] += ((flags & (TERMINATED | TRUNCATED)) > 0) & stepped
            playing[of] = (flags & IDLE) == 0
            lam = np.asarray(lambdas, np.float32)[np.maximum(number[of, at[of]], 0) // episodes]
            noise = np.zeros((len(of), spec.act_dim), np.float32)
            actions = np.asarray(act(actor, outcome.observations, lam, noise))
            pool.send(group, acting.task_action(spec, actions))
    rewards, costs = sums.reshape(2, len(lambdas), episodes).mean(2)
    return rewards, costs
