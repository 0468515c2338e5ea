"""What to ask for: the requested reward, chosen from the budget instead of by hand.

For policies conditioned on a (reward, cost) request. A budget goal G(s, C^, t'), trained beside the
policy, knows what a budget can buy; a rule turns that into the request of each step. No simulator
and no table by hand. `bench/target_rules.py` compares the rules, `docs/algorithms/gas.md` shows it.
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

Rule = Literal["planned", "affordable", "first", "again", "rising"]


def expectile_weight(alpha: float, advantage: Float[Array, " b"]) -> Float[Array, " b"]:
    """|α - 1(A < 0)|, the weight of an expectile regression."""
    return jnp.where(advantage < 0, 1.0 - alpha, alpha)


def budget_goal(net: EmbeddedMLP, s, C_hat, t) -> Float[Array, " b"]:
    """G(s, C^, t'): the reward-to-go that a budget buys."""
    return net(s, C_hat[:, None], t[:, None])[:, 0]


def budget_goal_loss(net: EmbeddedMLP, s, R, C_hat, t, expectile: float) -> Float[Array, ""]:
    """G is an upper expectile of R over the segments from s that cost at most C^."""
    A = R - budget_goal(net, s, C_hat, t)
    return jnp.mean(jax.lax.stop_gradient(expectile_weight(expectile, A)) * A**2)


def tight_budget(C: Float[Array, " b"], u: Float[Array, " b"]) -> Float[Array, " b"]:
    """A budget between C and C^max = 1, mostly tight: there G has to be sharp."""
    return C + (1.0 - C) * u**3


def reward_price(net: EmbeddedMLP, s, R, t) -> Float[Array, " b"]:
    """P(s, R, t'): the cost-to-go that goes with a reward-to-go."""
    return net(s, R[:, None], t[:, None])[:, 0]


def reward_price_loss(net: EmbeddedMLP, s, R, C, t) -> Float[Array, ""]:
    """P is the mean of C over the segments from s that earn R; for methods without a cost goal."""
    return jnp.mean((C - reward_price(net, s, R, t)) ** 2)


class Offer(NamedTuple):
    """A budget and what it buys."""

    budget: Float[Array, ""]
    bought: Float[Array, ""]


Goal = Callable[[Float[Array, " k"]], Float[Array, " k"]]
"""Budgets -> the rewards that they buy from this state, by G."""
Price = Callable[[Float[Array, " k"]], Float[Array, " k"]]
"""Rewards-to-go -> the costs-to-go that go with them from this state."""


def thrifty(thrift: float, C_hat: Float[Array, ""], goal: Goal) -> Offer:
    """The least budget that buys all but a share of what C^ buys: a margin where it is cheap.

    The share is `thrift` of a small budget, nothing of C^max. Policies miss the budget they are
    given, and a large part of a budget often buys next to nothing. G is asked at six budgets and
    taken to be straight between them.
    """
    budgets = jnp.linspace(0.0, C_hat, 6)
    bought = goal(budgets)
    bar = modest(bought[-1], C_hat, thrift)
    first = jnp.argmax(bought >= bar)
    before = jnp.maximum(first - 1, 0)
    rise = jnp.maximum(bought[first] - bought[before], 1e-6)
    share = jnp.clip((bar - bought[before]) / rise, 0.0, 1.0)
    budget = budgets[before] + share * (budgets[first] - budgets[before])
    return Offer(budget, jnp.where(first == 0, bought[0], bar))


def offered(thrift: float, plan: Float[Array, ""], C_hat: Float[Array, ""], goal: Goal) -> Offer:
    """At the first step, when there is no plan, the thrifty budget; later all that is left of it.

    Thrift at every step would set aside a share of what is left again and again.
    """
    whole = Offer(C_hat, goal(C_hat[None])[0])
    if not thrift:
        return whole
    first = thrifty(thrift, C_hat, goal)
    return Offer(*(jnp.where(jnp.isnan(plan), *pair) for pair in zip(first, whole, strict=True)))


def modest(bought: Float[Array, ""], C_hat: Float[Array, ""], caution: float) -> Float[Array, ""]:
    """G less a share of it: `caution` where the budget is spent, nothing where it is C^max = 1.

    The less a budget, the fewer episodes kept it, and the more of the best of them was luck.
    """
    return bought - caution * (1.0 - C_hat) * jnp.abs(bought)


def choose_reward(
    rule: Rule,
    plan: Float[Array, ""],
    C_hat: Float[Array, ""],
    bought: Float[Array, ""],
    price: Price,
    floor: float,
) -> Float[Array, ""]:
    """The reward to ask for now; less what is earned, the plan of the next step.

    Args:
        rule: how to choose.
        plan: the last request minus what has been earned since; NaN before the first.
        C_hat: the budget.
        bought: what it buys from this state.
        price: cost-to-go that goes with each of some rewards-to-go from this state.
        floor: share of G that "affordable" asks for whatever its price.
    """
    plan = jnp.where(jnp.isnan(plan), bought, plan)
    low, high = jnp.minimum(plan, bought), jnp.maximum(plan, bought)
    match rule:
        case "planned":  # the most that is affordable between plan and G
            asked = affordable(low, high, C_hat, price)
        case "affordable":  # the most that is affordable of what the remaining budget buys
            asked = affordable(lowered(bought, floor), bought, C_hat, price)
        case "first":  # what the budget buys at the first step, then keep to it
            asked = plan
        case "again":  # what the remaining budget buys from here
            asked = bought
        case "rising":  # as "again", but never give up what was planned
            asked = high
    return asked


def lowered(reward: Float[Array, ""], floor: float) -> Float[Array, ""]:
    """A share of a reward, less also where it is negative."""
    return reward - (1.0 - floor) * jnp.abs(reward)


def affordable(
    least: Float[Array, ""],
    most: Float[Array, ""],
    C_hat: Float[Array, ""],
    price: Price,
) -> Float[Array, ""]:
    """The largest reward between two whose price fits the budget; the least if none does.

    G alone is an optimist: at tight budgets it promises what only luck delivered. The price is the
    second opinion, and asking again at every step lets spending and state correct both. Four
    rewards are priced at once, as the price need not rise with the reward; between the largest that
    fits and the next, the price is taken to rise evenly.
    """
    asked = jnp.linspace(least, most, 4)
    prices = price(asked)
    last = jnp.max(jnp.where(prices <= C_hat, jnp.arange(4), -1))
    below, above = jnp.maximum(last, 0), jnp.minimum(last + 1, 3)
    rise = jnp.maximum(prices[above] - prices[below], 1e-6)
    share = jnp.clip((C_hat - prices[below]) / rise, 0.0, 1.0)
    return asked[below] + share * (asked[above] - asked[below])


# --- a request, and what is left of it --------------------------------------------------------

Carry = TypeVar("Carry", bound=Any)
"""Any with `R_hat`, `C_hat`, `spare` and `fixed`: reward planned, budget left, what thrift has set
aside of it, whether the user chose."""


def ask(cfg, carry: Carry, goal: Goal, price: Price) -> Carry:
    """What to ask for now, by the rule of the config; what the user chose stays as it is."""
    left = jnp.maximum(carry.C_hat, 0.0)
    budget, bought = offered(cfg.thrift, carry.R_hat, left, goal)
    bought = modest(bought, budget, cfg.caution)
    R_hat = choose_reward(cfg.target, carry.R_hat, budget, bought, price, cfg.floor)
    C_hat = jnp.minimum(carry.C_hat, budget)  # below 0 where it is overspent
    chosen = R_hat, C_hat, carry.spare + carry.C_hat - C_hat
    given = carry.R_hat, carry.C_hat, carry.spare
    pairs = zip(given, chosen, strict=True)
    R_hat, C_hat, spare = (jnp.where(carry.fixed, old, new) for old, new in pairs)
    return carry._replace(R_hat=R_hat, C_hat=C_hat, spare=spare)


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
    freed = jnp.where(kept, 0.0, carry.spare)
    return carry._replace(
        R_hat=R_hat, C_hat=carry.C_hat + change + freed, spare=carry.spare - freed
    )


# --- for methods that have no goals of their own ----------------------------------------------


class Advisors(NamedTuple):
    """G and P, with optimisers in training."""

    budget_goal: PyTree
    price: PyTree


def start_advisors(obs_dim: int, optimiser, key: Key[Array, ""]) -> Advisors:
    """Fresh ones, of the size of GAS's budget goal."""
    sizes = {"embedding": 64, "hidden": 128, "layers": 4}
    nets = [EmbeddedMLP([obs_dim, 1, 1], 1, **sizes, key=k) for k in jax.random.split(key)]
    return Advisors(*(start_training(net, optimiser) for net in nets))


class Segments(NamedTuple):
    """What G and P learn from: segments and, for each, a budget that it keeps."""

    s: Float[Array, "b o"]
    R: Float[Array, " b"]
    C: Float[Array, " b"]
    t: Float[Array, " b"]
    budget: Float[Array, " b"]


def train_advisors(
    advisors: Advisors, optimiser, seen: Segments, expectile: float
) -> tuple[Advisors, Metrics]:
    """One step each."""
    s, R, C, t, budget = seen
    goal = descend(advisors.budget_goal, optimiser, budget_goal_loss, s, R, budget, t, expectile)
    price = descend(advisors.price, optimiser, reward_price_loss, s, R, C, t)
    return Advisors(goal[0], price[0]), {"loss/budget_goal": goal[1], "loss/price": price[1]}


def advise(cfg, advisors: Advisors, carry: Carry, s, t) -> Carry:
    """What to ask for now, by G and P."""

    def price(R: Float[Array, " k"]) -> Float[Array, " k"]:
        at = jnp.repeat(s[None], len(R), 0)
        return reward_price(advisors.price, at, R, jnp.full_like(R, t))

    def goal(C: Float[Array, " k"]) -> Float[Array, " k"]:
        at = jnp.repeat(s[None], len(C), 0)
        return budget_goal(advisors.budget_goal, at, C, jnp.full_like(C, t))

    return ask(cfg, carry, goal, price)
