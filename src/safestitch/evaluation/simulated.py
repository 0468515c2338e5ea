"""Policies x limits x episodes on a simulator: workers step, one compiled program acts for all."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from safestitch.algos.base import Request
from safestitch.catalog import get_entry
from safestitch.evaluation.rollout import Paths, Rollout
from safestitch.policy import Policies
from safestitch.sims.pool import BEGUN, IDLE, TERMINATED, TRUNCATED, Outcome, Pool, Source

LANES, HEAVY_LANES = 256, 128
"""Episodes under way at once, over all seeds: with more of them a worker waits less often, and
acting is cheaper per step. Fixed, so that results do not depend on the machine. Fewer where a
simulator is large: one of Bullet takes 30 to 40 MB, and of the user's own nothing is known."""

Progress = Callable[[int, float, int], None]
"""Called with (steps taken, episodes finished, those under way in part, episodes in all) after
each round."""


class Plan(NamedTuple):
    """Which lane plays which episode, and when. Fixed beforehand, so that results are too."""

    lanes: int
    """Of each policy seed; even, for two groups."""
    laps: int
    episode: Int[np.ndarray, "s lanes laps"]
    """limit * episodes + number of the episode; -1 where there is none."""


def plan(seeds: int, requests: int, lanes: int) -> Plan:
    """Spread the episodes of each seed evenly over an even number of lanes."""
    most = max(2, lanes // seeds)
    laps = -(-requests // most)
    width = -(-requests // laps)
    width += width % 2
    numbers = np.arange(width * laps).reshape(laps, width).T
    episode = np.where(numbers < requests, numbers, -1)
    return Plan(width, laps, np.repeat(episode[None], seeds, 0))


def lanes_of(source: Source) -> int:
    """Episodes of a simulator that are under way at once."""
    light = source.own is None and get_entry(source.spec.task).suite == "mujoco"
    return LANES if light else HEAVY_LANES


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
    chosen = plan(len(policies.run.seeds), len(limits) * episodes, lanes_of(source))
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
                progress(tally.steps, tally.played(), tally.found[0].size)
    return tally.result()


class Tally:
    """Sums what each lane brings and files it when an episode ends."""

    def __init__(self, chosen: Plan, limits: int, episodes: int, horizon: int, drawn: int):
        seeds, lanes, laps = chosen.episode.shape
        self.which = chosen.episode.reshape(seeds * lanes, laps)
        self.of_seed = np.repeat(np.arange(seeds), lanes)
        self.limits, self.episodes, self.horizon = limits, episodes, horizon
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
        ended = (flags & (TERMINATED | TRUNCATED)) > 0
        idle = ((flags & IDLE) > 0) & ~ended
        stepped = (self.time[lanes] >= 0) & ~outcome.restarted & ~idle
        self.sums[:, lanes] += np.where(stepped, (outcome.rewards, outcome.costs), 0.0)
        self.steps += int(stepped.sum())
        if self.drawn:
            self._draw(lanes[stepped], outcome.costs[stepped], positions)
        for lane in lanes[stepped & ended]:
            number = self.which[lane, self.lap[lane]]
            self.found[:, self.of_seed[lane], number] = self.sums[:, lane]
            self.lap[lane] += 1
            self.finished += 1
        self.time[lanes] += 1
        begun = lanes[(flags & BEGUN) > 0]
        self.sums[:, begun] = 0.0
        self.time[begun] = 0

    def played(self) -> float:
        """Episodes finished, and those under way as the share of the horizon they are at."""
        lanes, laps = self.which.shape
        number = self.which[np.arange(lanes), np.minimum(self.lap, laps - 1)]
        playing = (self.lap < laps) & (number >= 0) & (self.time > 0)
        return self.finished + float(self.time[playing].sum()) / self.horizon

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
        which = chosen.episode[:, group::2]
        by_number = np.asarray([*limits, 0.0], np.float32)
        self.limits = by_number[np.where(which >= 0, which // episodes, len(limits))]
        target = np.float32(np.nan if target_reward is None else target_reward)
        self.target = jnp.full(which.shape[:2], target)
        self.program = _program(policies)
        self.lap = np.full(which.shape[:2], -1)
        self._ask(np.zeros(which.shape[:2], np.int64))
        self.carry = _first_carry(policies)(self.request)

    def act(self, outcome: Outcome, lap: Int[np.ndarray, " n"]) -> Float[np.ndarray, "n a"]:
        """Tell the episodes what their last actions brought, and choose the next ones."""
        self._ask(lap.reshape(self.lap.shape))
        seen = np.empty((len(lap), outcome.observations.shape[1] + 3), np.float32)
        seen[:, 0], seen[:, 1] = outcome.rewards, outcome.costs
        seen[:, 2] = outcome.flags & BEGUN
        seen[:, 3:] = outcome.observations
        actions, self.carry = self.program(
            self.carry, self.request, seen.reshape(*self.lap.shape, -1)
        )
        return np.asarray(actions).reshape(len(lap), -1)

    def _ask(self, lap: Int[np.ndarray, "s lanes"]) -> None:
        """Put the limits of the episodes under way where the program finds them."""
        if (lap == self.lap).all():
            return
        self.lap = lap
        number = np.minimum(lap, self.limits.shape[2] - 1)[..., None]
        limits = np.take_along_axis(self.limits, number, 2)[..., 0]
        self.request = Request(jnp.asarray(limits), self.target)


def _first_carry(policies: Policies):
    def one(network, request):
        return policies.algorithm.start(policies.config, network, policies.scaling, request)

    over_lanes = jax.vmap(one, in_axes=(None, 0))
    return jax.jit(functools.partial(jax.vmap(over_lanes), policies.networks))


def _program(policies: Policies):
    """One step of all lanes of a group, compiled.

    The networks are constants of the program: their embeddings are folded once and not per call,
    which more than halves the time of small batches.
    """
    algorithm, config, scaling = policies.algorithm, policies.config, policies.scaling

    def one(network, carry, request: Request, seen: Float[Array, " o3"]):
        reward, cost, begun, obs = seen[0], seen[1], seen[2] > 0, seen[3:]
        carry = algorithm.observe(config, scaling, carry, reward, cost)
        first = algorithm.start(config, network, scaling, request)
        carry = jax.tree.map(lambda new, old: jnp.where(begun, new, old), first, carry)
        return algorithm.act(config, network, scaling, carry, obs)

    over_lanes = jax.vmap(one, in_axes=(None, 0, 0, 0))
    return jax.jit(functools.partial(jax.vmap(over_lanes), policies.networks))
