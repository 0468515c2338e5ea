"""Policies x limits x episodes on a simulator: workers step, one compiled program acts for all."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from safestitch.algos.base import Request
from safestitch.evaluation.rollout import Paths, Rollout
from safestitch.policy import Policies
from safestitch.sims.pool import BEGUN, TERMINATED, TRUNCATED, Outcome, Pool, Source

LANES = 128
"""Episodes under way at once, over all seeds. More lanes make acting cheaper per step and the last
lap longer; results do not depend on the machine as long as this stays the same."""

Progress = Callable[[int, int], None]
"""Called with (steps taken, episodes finished) after each round."""


class Plan(NamedTuple):
    """Which lane plays which episode, and when. Fixed beforehand, so that results are too."""

    lanes: int
    """Of each policy seed; even, for two groups."""
    laps: int
    episode: Int[np.ndarray, "s lanes laps"]
    """limit * episodes + number of the episode; -1 where there is none."""


def plan(seeds: int, requests: int, lanes: int = LANES) -> Plan:
    """Spread the episodes of each seed evenly over an even number of lanes."""
    most = max(2, lanes // seeds)
    laps = -(-requests // most)
    width = -(-requests // laps)
    width += width % 2
    numbers = np.arange(width * laps).reshape(laps, width).T
    episode = np.where(numbers < requests, numbers, -1)
    return Plan(width, laps, np.repeat(episode[None], seeds, 0))


def episode_seeds(seed: int, episodes: int) -> Int[np.ndarray, " e"]:
    """Simulator seeds of the first episodes: number i is the same however many are asked for."""
    draw = [np.random.SeedSequence([seed, i]).generate_state(1)[0] for i in range(episodes)]
    return np.asarray(draw, np.int64)


def simulate(
    policies: Policies,
    source: Source,
    limits: list[float],
    episodes: int,
    *,
    target_reward: float | None = None,
    seed: int = 0,
    workers: int | None = None,
    drawn: int = 0,
    progress: Progress | None = None,
) -> tuple[Rollout, Paths]:
    """Roll out every policy seed at every limit, from the same start states (paired comparison).

    The result is the same for any number of workers, and if workers die on the way.
    """
    chosen = plan(len(policies.run.seeds), len(limits) * episodes)
    players = [_Player(policies, chosen, g, limits, episodes, target_reward) for g in (0, 1)]
    tally = Tally(chosen, len(limits), episodes, source.spec.horizon, drawn)
    which = chosen.episode.reshape(-1, chosen.laps)
    seeds = np.where(which >= 0, episode_seeds(seed, episodes)[which % episodes], -1)
    pool = Pool(source, lanes=len(seeds), laps=chosen.laps, workers=workers, positions=drawn > 0)
    with pool:
        pool.begin(seeds)
        while live := pool.live:
            for group in live:
                outcome = pool.receive(group)
                tally.add(outcome, pool.board.positions)
                pool.send(group, players[group].act(outcome, tally.lap[outcome.lanes]))
            if progress:
                progress(tally.steps, tally.finished)
    return tally.result()


class Tally:
    """Sums what each lane brings and files it when an episode ends."""

    def __init__(self, chosen: Plan, limits: int, episodes: int, horizon: int, drawn: int):
        seeds, lanes, laps = chosen.episode.shape
        self.which = chosen.episode.reshape(seeds * lanes, laps)
        self.of_seed = np.repeat(np.arange(seeds), lanes)
        self.limits, self.episodes = limits, episodes
        self.lap = np.zeros(seeds * lanes, np.int64)
        self.time = np.full(seeds * lanes, -1)
        self.sums = np.zeros((2, seeds * lanes))
        self.found = np.full((2, seeds, limits * episodes), np.nan)
        self.drawn = min(drawn, episodes)
        self.positions = np.full((limits, self.drawn, horizon, 2), np.nan)
        self.costs = np.zeros((limits, self.drawn, horizon))
        self.steps = self.finished = 0

    def add(self, outcome: Outcome, positions: np.ndarray) -> None:
        """Take in what a group of lanes brought."""
        lanes, flags = outcome.lanes, outcome.flags
        stepped = (self.time[lanes] >= 0) & ~outcome.restarted & (self.lap[lanes] < self.laps)
        self.sums[:, lanes] += np.where(stepped, (outcome.rewards, outcome.costs), 0.0)
        self.steps += int(stepped.sum())
        if self.drawn:
            self._draw(lanes[stepped], outcome.costs[stepped], positions)
        for lane in lanes[stepped & ((flags & (TERMINATED | TRUNCATED)) > 0)]:
            number = self.which[lane, self.lap[lane]]
            self.found[:, self.of_seed[lane], number] = self.sums[:, lane]
            self.lap[lane] += 1
            self.finished += 1
        self.time[lanes] += 1
        begun = lanes[(flags & BEGUN) > 0]
        self.sums[:, begun] = 0.0
        self.time[begun] = 0

    @property
    def laps(self) -> int:
        """Episodes of a lane."""
        return self.which.shape[1]

    def _draw(self, lanes: np.ndarray, costs: np.ndarray, positions: np.ndarray) -> None:
        for lane, cost in zip(lanes, costs, strict=True):
            limit, episode = divmod(int(self.which[lane, self.lap[lane]]), self.episodes)
            if self.of_seed[lane] == 0 and episode < self.drawn:
                self.positions[limit, episode, self.time[lane]] = positions[lane]
                self.costs[limit, episode, self.time[lane]] = cost

    def result(self) -> tuple[Rollout, Paths]:
        """All episodes, by seed, limit and number; the paths of the first seed's first ones."""
        rewards, costs = self.found.reshape(2, -1, self.limits, self.episodes)
        return Rollout(rewards, costs), Paths(self.positions[None], self.costs[None])


class _Player:
    """Acts for one group of lanes; the carries of its episodes live here."""

    def __init__(
        self,
        policies: Policies,
        chosen: Plan,
        group: int,
        limits: list[float],
        episodes: int,
        target_reward: float | None,
    ):
        self.policies = policies
        self.which = chosen.episode[:, group::2]
        self.limits = np.asarray([*limits, 0.0], np.float32)[
            np.where(self.which >= 0, self.which // episodes, len(limits))
        ]
        self.target = np.float32(np.nan if target_reward is None else target_reward)
        self.shape = self.which.shape[:2]
        self.carry = None
        self.program = _compiled(policies.algorithm, policies.config)

    def act(self, outcome: Outcome, lap: Int[np.ndarray, " n"]) -> Float[np.ndarray, "n a"]:
        """Tell the episodes what their last actions brought, and choose the next ones."""
        laps = np.minimum(lap.reshape(self.shape), self.which.shape[2] - 1)
        limits = np.take_along_axis(self.limits, laps[..., None], 2)[..., 0]
        request = Request(jnp.asarray(limits), jnp.full(self.shape, self.target))

        def by_seed(column: np.ndarray) -> np.ndarray:
            return column.reshape(*self.shape, *column.shape[1:])

        p = self.policies
        if self.carry is None:
            self.carry = _first_carry(p.algorithm, p.config)(p.networks, p.scaling, request)
        actions, self.carry = self.program(
            p.networks,
            p.scaling,
            self.carry,
            request,
            by_seed(outcome.observations),
            by_seed(outcome.rewards.astype(np.float32)),
            by_seed(outcome.costs.astype(np.float32)),
            by_seed((outcome.flags & BEGUN) > 0),
        )
        return np.asarray(actions).reshape(-1, actions.shape[-1])


def _first_carry(algorithm: Any, config: Any):
    start = functools.partial(algorithm.start, config)
    over_lanes = jax.vmap(start, in_axes=(None, None, 0))
    return jax.jit(jax.vmap(over_lanes, in_axes=(0, None, 0)))


@functools.lru_cache(maxsize=8)
def _compiled(algorithm: Any, config: Any):
    def one(
        network,
        scaling,
        carry,
        request: Request,
        obs: Float[Array, " o"],
        reward: Float[Array, ""],
        cost: Float[Array, ""],
        begun: Bool[Array, ""],
    ):
        carry = algorithm.observe(config, scaling, carry, reward, cost)
        first = algorithm.start(config, network, scaling, request)
        carry = jax.tree.map(lambda new, old: jnp.where(begun, new, old), first, carry)
        return algorithm.act(config, network, scaling, carry, obs)

    over_lanes = jax.vmap(one, in_axes=(None, None, 0, 0, 0, 0, 0, 0))
    return jax.jit(jax.vmap(over_lanes, in_axes=(0, None, 0, 0, 0, 0, 0, 0)))
