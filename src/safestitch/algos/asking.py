"""What to ask for: the requested reward, chosen from the budget instead of by hand.

For policies conditioned on a (reward, cost) request. Two advisors are trained beside the policy: a
budget goal G(s, C^, t') knows what a budget buys, a cost floor B(s, t') what must be spent at
least. A rule turns them into the request of each step. No simulator and no table by hand.
`bench/target_rules.py` compares the rules, `docs/algorithms/gas.md` shows it.
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree

from safestitch.algos.base import Metrics
from safestitch.learn import descend, start_training
from safestitch.nn import EmbeddedMLP
from safestitch.scaling import Scaling

Rule = Literal["frontier", "again", "first", "rising"]
SOON = 0.02
"""Share of the horizon over which a cost counts as one that must be: what is to come later can
still be avoided, by other pieces of the data than those that began here."""
LEVELS = 0.5, 5.0
"""Logits of the least and the greatest expectile that a G of many learns: 0.62 and 0.993."""


def expectile_weight(alpha, advantage: Float[Array, " b"]) -> Float[Array, " b"]:
    """|α - 1(A < 0)|, the weight of an expectile regression."""
    return jnp.where(advantage < 0, 1.0 - alpha, alpha)


def knows_many(net: EmbeddedMLP) -> bool:
    """Whether G has learned many expectiles at once: then it sees which one is asked for."""
    return len(net.embeddings) == 4


def budget_goal(net: EmbeddedMLP, s, C_hat, t, expectile) -> Float[Array, " b"]:
    """G(s, C^, t'): the reward-to-go that a budget buys."""
    scalars = [C_hat, t]
    if knows_many(net):
        level = jnp.clip(jax.scipy.special.logit(expectile), *LEVELS)  # others it never learned
        scalars.append(jnp.broadcast_to(0.2 * level, t.shape))
    return net(s, *(x[:, None] for x in scalars))[:, 0]


def budget_goal_loss(net: EmbeddedMLP, s, R, C_hat, t, expectile) -> Float[Array, ""]:
    """G is an upper expectile of R over the segments from s that cost at most C^."""
    A = R - budget_goal(net, s, C_hat, t, expectile)
    return jnp.mean(jax.lax.stop_gradient(expectile_weight(expectile, A)) * A**2)


def tight_budget(C: Float[Array, " b"], u: Float[Array, " b"]) -> Float[Array, " b"]:
    """A budget between C and C^max = 1, mostly tight: there G has to be sharp."""
    return C + (1.0 - C) * u**3


def cost_floor(net: EmbeddedMLP, s, t) -> Float[Array, " b"]:
    """B(s, t'): the least cost that the data know, from here on for as many steps as t' leaves."""
    return net(s, t[:, None])[:, 0]


def cost_floor_loss(net: EmbeddedMLP, s, C, t, expectile: float) -> Float[Array, ""]:
    """B is a lower expectile of C over the segments from s: as low as G's is high."""
    A = C - cost_floor(net, s, t)
    return jnp.mean(jax.lax.stop_gradient(expectile_weight(1.0 - expectile, A)) * A**2)


# --- rules -------------------------------------------------------------------------------------

Goal = Callable[[Float[Array, " k"]], Float[Array, " k"]]
"""Budgets -> the rewards that they buy from this state, by G."""


def thrifty(thrift: float, C_hat: Float[Array, ""], goal: Goal) -> Float[Array, ""]:
    """The least budget that buys all but a share of what C^ buys: a margin where it is cheap.

    The share is `thrift` of a small budget, nothing of C^max = 1. Policies miss the budget they are
    given, and a large part of a budget often buys next to nothing. G is asked at six budgets and
    taken to be straight between them.
    """
    if not thrift:
        return C_hat
    budgets = jnp.linspace(0.0, C_hat, 6)
    bought = goal(budgets)
    bar = bought[-1] - thrift * (1.0 - C_hat) * jnp.abs(bought[-1])
    first = jnp.argmax(bought >= bar)
    before = jnp.maximum(first - 1, 0)
    rise = jnp.maximum(bought[first] - bought[before], 1e-6)
    share = jnp.clip((bar - bought[before]) / rise, 0.0, 1.0)
    return budgets[before] + share * (budgets[first] - budgets[before])


def choose_reward(rule: Rule, plan: Float[Array, ""], bought: Float[Array, ""]) -> Float[Array, ""]:
    """The reward to ask for now.

    Args:
        rule: how to choose.
        plan: the last request minus what has been earned since; NaN before the first.
        bought: what the budget buys from this state.
    """
    plan = jnp.where(jnp.isnan(plan), bought, plan)
    match rule:
        case "frontier" | "again":  # what the budget buys from here
            return bought
        case "first":  # what the budget bought at the first step, less what was earned
            return plan
        case "rising":  # as "again", but never give up what was planned
            return jnp.maximum(plan, bought)


# --- a request, and what is left of it --------------------------------------------------------


def budget_of(cfg, scaling: Scaling, limit: Float[Array, ""]) -> Float[Array, ""]:
    """The budget of a whole episode: the limit, at most C^max, less the reserve.

    Who aims at a limit itself misses it half the time. What a policy misses it by is an excursion
    or a few steps too many, whatever the limit: so the reserve is a share of C^max. Of a limit that
    is hardly more than that, a fifth.
    """
    whole = jnp.minimum(limit / scaling.cost_unit, 1.0)
    return whole - jnp.minimum(cfg.reserve, whole / 5)


Carry = TypeVar("Carry", bound=Any)
"""Any with `R_hat`, `C_hat` and `fixed`: reward planned, budget left, whether the user chose."""


def modest(modesty: float, bought: Float[Array, ""], C_hat: Float[Array, ""]) -> Float[Array, ""]:
    """What a budget buys, less a share `modesty` where it is nothing, and nothing of C^max = 1.

    The best that ever cost nothing is the luckiest, and without a budget bad luck is not mended.
    """
    return bought - modesty * (1.0 - jnp.clip(C_hat, 0.0, 1.0)) ** 2 * jnp.abs(bought)


def ask(
    cfg, carry: Carry, goal: Goal, least: Float[Array, ""], modesty: float = 0.0
) -> tuple[Carry, Float[Array, ""]]:
    """What to ask for now, by the rule of the config: a plan, and the budget that goes with it.

    Never a pair that the data do not know. Less than must be spent from this state cannot be had,
    so that is asked for, however little is left; and "frontier" asks for no more budget than what
    it buys is worth. What is not asked for is not lost: the next step looks again at all that is
    left. A reward that the user chose stays as it is.
    """
    least = jnp.maximum(least, 0.0)
    left = jnp.maximum(carry.C_hat, least)
    thrift = cfg.thrift if cfg.target == "frontier" else 0.0
    budget = jnp.maximum(thrifty(thrift, left, goal), least)
    bought = modest(modesty, goal(budget[None])[0], left)
    R_hat = choose_reward(cfg.target, carry.R_hat, bought)
    asked = jnp.where(carry.fixed, carry.R_hat, R_hat)
    return carry._replace(R_hat=asked), jnp.where(carry.fixed, left, budget)


def ease(haste: float, before: Carry, asked: Carry) -> Carry:
    """A request that moves by a share of the way in each step, from what is left of the last one.

    What G says swings with a gait and from state to state, and whoever follows every swing is
    driven to and fro between the ways of those who made the data. Both carries have a `C_asked`.
    """
    if haste == 1.0:
        return asked
    R_hat = before.R_hat + haste * (asked.R_hat - before.R_hat)
    C_asked = before.C_asked + haste * (asked.C_asked - before.C_asked)
    at_once = jnp.isnan(before.R_hat) | before.fixed
    return asked._replace(
        R_hat=jnp.where(at_once, asked.R_hat, R_hat),
        C_asked=jnp.where(at_once, asked.C_asked, jnp.maximum(C_asked, 0.0)),
    )


def observe(cfg, scaling: Scaling, carry: Carry, reward, cost) -> Carry:  # noqa: ARG001
    """R^ and C^ lose what the step brought."""
    return carry._replace(
        R_hat=carry.R_hat - reward / scaling.reward_unit,
        C_hat=carry.C_hat - cost / scaling.cost_unit,
    )


def moved(carry: Carry, change: Float[Array, ""]) -> Carry:
    """Another budget in mid-episode: a request that was not the user's is chosen anew."""
    kept = carry.fixed | (change == 0)
    R_hat = jnp.where(kept, carry.R_hat, jnp.full_like(carry.R_hat, jnp.nan))
    return carry._replace(R_hat=R_hat, C_hat=carry.C_hat + change)


# --- the advisors ------------------------------------------------------------------------------


class Advisors(NamedTuple):
    """G and B: each with its optimiser in training, bare in acting."""

    budget_goal: PyTree
    cost_floor: PyTree


def start_advisors(
    obs_dim: int, optimiser, key: Key[Array, ""], many: int = False, **sizes: int
) -> Advisors:
    """Fresh ones; G learns many expectiles at once, or one."""
    goal_key, floor_key = jax.random.split(key)
    goal = EmbeddedMLP([obs_dim, 1, 1] + [1] * many, 1, **sizes, key=goal_key)
    floor = EmbeddedMLP([obs_dim, 1], 1, **sizes, key=floor_key)
    return Advisors(start_training(goal, optimiser), start_training(floor, optimiser))


class Segments(NamedTuple):
    """What the advisors learn from: segments and, for each, a budget that it keeps."""

    s: Float[Array, "b o"]
    R: Float[Array, " b"]
    C: Float[Array, " b"]
    t: Float[Array, " b"]
    budget: Float[Array, " b"]


def train_advisors(
    advisors: Advisors, optimiser, seen: Segments, expectile: float
) -> tuple[Advisors, Metrics]:
    """One step each. Where G learns many expectiles, B is as low as the highest of them."""
    s, R, C, t, budget = seen
    asked = expectile
    if knows_many(advisors.budget_goal.net):
        asked, expectile = jax.nn.sigmoid(jnp.linspace(*LEVELS, len(t))), 0.99
    goal = descend(advisors.budget_goal, optimiser, budget_goal_loss, s, R, budget, t, asked)
    floor = descend(advisors.cost_floor, optimiser, cost_floor_loss, s, C, t, expectile)
    losses = {"loss/budget_goal": goal[1], "loss/cost_floor": floor[1]}
    return Advisors(goal[0], floor[0]), losses


def advise(
    cfg,
    advisors: Advisors,
    carry: Carry,
    s: Float[Array, " o"],
    t: Float[Array, ""],
    modesty: float = 0.0,
) -> tuple[Carry, Float[Array, ""]]:
    """What to ask for now, by G and B: the plan and the budget."""

    def goal(C: Float[Array, " k"]) -> Float[Array, " k"]:
        at = jnp.repeat(s[None], len(C), 0)
        now = jnp.full_like(C, t)
        return budget_goal(advisors.budget_goal, at, C, now, cfg.budget_expectile)

    soon = jnp.maximum(t, 1.0 - SOON)[None]
    return ask(cfg, carry, goal, cost_floor(advisors.cost_floor, s[None], soon)[0], modesty)
