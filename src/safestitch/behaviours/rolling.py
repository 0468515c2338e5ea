"""Rolling planned episodes: workers step the simulators, one compiled program acts for them all.

Lanes come in slots of a few neighbours. All episodes of a slot are of one snapshot, or of one that
hands over to one other, so that acting is a product of matrices per slot and layer. Which lane
plays which episode is fixed by the plan: the last bits of a product may depend on the place, and
nothing may depend on the workers.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from safestitch.behaviours.actor import Actor, act, task_action
from safestitch.behaviours.plan import NOISES, Planned, noise_of
from safestitch.behaviours.snapshots import Behaviours
from safestitch.behaviours.stock import Stock
from safestitch.sims.pool import BEGUN, IDLE, TERMINATED, TRUNCATED, Outcome, Pool

SLOT = 8
"""Lanes of a slot, in both groups of the pool together."""
SLOTS = 32
"""At least, where there is enough to roll: with more lanes a worker waits less often."""
FEWEST_LAPS = 3
"""Episodes of a lane, one after the other; fewer lanes where there would not be so many."""

Progress = Callable[[int, int], None]
"""Called with (episodes in stock, steps taken in this call) after each turn."""


class Arrangement(NamedTuple):
    """Which lane plays which episodes."""

    kind: Int[np.ndarray, " slots"]
    episode: Int[np.ndarray, "lanes laps"]
    """Place in the plan; -1 for none."""


def slots_for(snapshots: int, episodes: int) -> int:
    """Slots to roll so many episodes of so many snapshots in, a round at a time."""
    enough = -(-episodes // (SLOT * FEWEST_LAPS))
    return max(2 * snapshots, min(SLOTS, enough))


def most_laps(snapshots: int, episodes: int, slots: int) -> int:
    """Laps that suffice for any plan, however its episodes are spread over the snapshots."""
    return -(-episodes // (SLOT * (slots - snapshots)))


def arrange(of: Sequence[int], slots: int) -> Arrangement:
    """Give each kind of episode slots for its share of them, with as few laps as can be.

    Args:
        of: Kind of each planned episode: who plays it.
        slots: How many there are; more than different kinds.
    """
    kinds, counts = np.unique(of, return_counts=True)
    laps = next(n for n in range(1, len(of) + 1) if _needed(counts, n).sum() <= slots)
    shares = _needed(counts, laps)
    while shares.sum() < slots:  # shorten the longest
        shares[np.argmax(counts / shares)] += 1
    of_slot = np.repeat(kinds, shares)
    busy = np.argsort(-np.repeat(counts / shares, shares), kind="stable")
    # The busiest outside, so that neighbours, who share a worker, have about the same to do.
    of_slot = of_slot[np.concatenate([busy[::2], busy[1::2][::-1]])]
    episode = np.full((slots * SLOT, laps), -1)
    for kind in kinds:
        lanes = np.flatnonzero(np.repeat(of_slot, SLOT) == kind)
        mine = np.flatnonzero(np.asarray(of) == kind)
        places = np.arange(len(mine))
        episode[lanes[places % len(lanes)], places // len(lanes)] = mine
    return Arrangement(of_slot, episode)


def _needed(counts: Int[np.ndarray, " k"], laps: int) -> Int[np.ndarray, " k"]:
    """Slots that each snapshot needs to play its episodes in so many laps."""
    return -(-counts // (SLOT * laps))


def episode_seed(seed: int, number: int) -> int:
    """Seed of an episode's simulator and noise, by its number: the same however many there are."""
    return int(np.random.SeedSequence([seed, number]).generate_state(1)[0])


def roll(
    pool: Pool,
    behaviours: Behaviours,
    plan: Sequence[Planned],
    stock: Stock,
    *,
    first: int,
    seed: int,
    progress: Progress | None = None,
) -> int:
    """Roll what the stock does not hold yet; steps taken.

    Args:
        pool: Simulators; its lanes make whole slots, its laps are enough for any plan.
        behaviours: Who acts.
        plan: What is rolled.
        stock: Takes in what is finished.
        first: Number of the plan's first episode; the others follow.
        seed: Of all that is made.
        progress: Told how far it is.
    """
    count = len(behaviours)
    pairs = [p.setting.snapshot * count + p.setting.last for p in plan]
    chosen = arrange(pairs, pool.shape.lanes // SLOT)
    queue = np.full((pool.shape.lanes, pool.shape.laps), -1)
    for lane, places in enumerate(chosen.episode.tolist()):
        left = [p for p in places if p >= 0 and first + p not in stock.records]
        queue[lane, : len(left)] = left
    if (queue < 0).all():
        return 0
    seeds = np.array([episode_seed(seed, first + p) for p in range(len(plan))])
    desk = _Desk(stock, plan, queue, first, seeds)
    before, after = np.divmod(chosen.kind, count)
    actors = _of_slots(behaviours.actors, before)
    others = None if (before == after).all() else _of_slots(behaviours.actors, after)
    pool.begin(np.where(queue >= 0, seeds[queue], -1))
    while live := pool.live:
        for group in live:
            outcome = pool.receive(group)
            desk.take(outcome, pool.board.last_observations)
            seen = desk.seen(outcome)
            slots = seen.reshape(len(chosen.kind), -1, seen.shape[1])
            acted = np.asarray(_act(actors, slots)).reshape(len(seen), -1)
            if others is not None:
                handed = np.asarray(_act(others, slots)).reshape(len(seen), -1)
                acted = np.where(desk.switched(outcome.lanes)[:, None], handed, acted)
            pool.send(group, desk.decide(outcome.lanes, acted))
        if progress:
            progress(len(stock.records), desk.steps)
    stock.ensure()
    return desk.steps


class _Desk:
    """Where the episodes under way are written down, one row a step."""

    def __init__(
        self,
        stock: Stock,
        plan: Sequence[Planned],
        queue: Int[np.ndarray, "lanes laps"],
        first: int,
        seeds: Int[np.ndarray, " e"],
    ):
        self.stock, self.plan, self.queue, self.first, self.seeds = stock, plan, queue, first, seeds
        self.spec, lanes = stock.spec, len(queue)
        self.place = np.full(lanes, -1)
        """In the plan, of the episode under way."""
        self.time = np.full(lanes, -1)
        """Step to be taken; -1 where there is none."""
        self.lam = np.zeros((lanes, 2), np.float32)
        self.switch = np.zeros(lanes, np.int64)
        self.noise = np.zeros((lanes, self.spec.horizon, self.spec.act_dim), np.float32)
        self.drawn = np.full_like(self.noise, np.nan)
        self.rows: Any = np.zeros((lanes, self.spec.horizon), stock.layout)
        self.steps = 0

    def take(self, outcome: Outcome, last: Float[np.ndarray, "lanes o"]) -> None:
        """Write down what the last actions brought; finished episodes go to the stock."""
        lanes, flags = outcome.lanes, outcome.flags
        ended = (flags & (TERMINATED | TRUNCATED)) > 0
        idle = ((flags & IDLE) > 0) & ~ended
        stepped = (self.time[lanes] >= 0) & ~outcome.restarted & ~idle
        which, when = lanes[stepped], self.time[lanes[stepped]]
        self.rows["rewards"][which, when] = outcome.rewards[stepped]
        self.rows["costs"][which, when] = outcome.costs[stepped]
        self.rows["marks"][which, when] = flags[stepped] & (TERMINATED | TRUNCATED)
        self.time[which] += 1
        self.steps += len(which)
        for lane in lanes[stepped & ended].tolist():
            rows = self.rows[lane, : self.time[lane]]
            self.stock.add(self.first + int(self.place[lane]), rows, last[lane])
        self.time[lanes[ended | outcome.restarted]] = -1
        for lane in lanes[(flags & BEGUN) > 0].tolist():
            self._begin(lane)

    def _begin(self, lane: int) -> None:
        """The first episode of a lane that is not finished: the next, or the same again."""
        place = next(p for p in self.queue[lane].tolist() if not self._finished(p))
        planned, spec = self.plan[place], self.spec
        self.place[lane], self.time[lane] = place, 0
        self.lam[lane], self.switch[lane] = (planned.lam, planned.lam_after), planned.switch
        self.noise[lane], self.drawn[lane] = noise_of(
            NOISES[planned.setting.noise], spec.horizon, spec.act_dim, int(self.seeds[place])
        )

    def _finished(self, place: int) -> bool:
        return self.first + place in self.stock.records

    def switched(self, lanes: Int[np.ndarray, " n"]) -> Bool[np.ndarray, " n"]:
        """Whether the episodes have changed their mind."""
        return np.maximum(self.time[lanes], 0) >= self.switch[lanes]

    def seen(self, outcome: Outcome) -> Float[np.ndarray, "n o1a"]:
        """What the actors see: observation, multiplier, noise."""
        lanes, when = outcome.lanes, np.maximum(self.time[outcome.lanes], 0)
        self.rows["observations"][lanes, when] = outcome.observations
        lam = self.lam[lanes, self.switched(lanes).astype(np.int64)]
        return np.concatenate([outcome.observations, lam[:, None], self.noise[lanes, when]], 1)

    def decide(
        self, lanes: Int[np.ndarray, " n"], acted: Float[np.ndarray, "n a"]
    ) -> Float[np.ndarray, "n a"]:
        """The actions to take, in the task's own range."""
        when = np.maximum(self.time[lanes], 0)
        drawn = self.drawn[lanes, when]
        within = np.where(np.isnan(drawn), acted, drawn)
        actions = np.asarray(task_action(self.spec, within), np.float32)
        self.rows["actions"][lanes, when] = actions
        return actions


def _of_slots(actors: Actor, snapshot: Int[np.ndarray, " slots"]) -> Actor:
    return jax.tree.map(lambda leaf: jnp.asarray(leaf[snapshot]), actors)


@jax.jit
def _act(actors: Actor, seen: Float[jax.Array, "slots lanes o1a"]) -> Float[jax.Array, "s l a"]:
    """Actions of all lanes of a group: a product of matrices per slot and layer."""
    observations = actors.obs_mean.shape[-1]

    def of_slot(actor: Actor, rows):
        obs, lam, noise = (
            rows[:, :observations],
            rows[:, observations],
            rows[:, observations + 1 :],
        )
        return act(actor, obs, lam, noise)

    return jax.vmap(of_slot)(actors, seen)
