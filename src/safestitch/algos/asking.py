"""What to ask for: the requested reward, chosen from the budget instead of by hand.

For policies conditioned on a (reward, cost) request. A budget goal G(s, C^, t'), trained beside the
policy, knows what a budget can buy; a rule turns that into the request of each step. No simulator
and no table by hand. `bench/target_rules.py` compares the rules, `docs/algorithms/gas.md` shows it.
"""

from collections.abc import Callable
from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from safestitch.nn import EmbeddedMLP

Rule = Literal["affordable", "first", "again", "rising"]


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


def choose_reward(
    rule: Rule,
    plan: Float[Array, ""],
    bought: Float[Array, ""],
    C_hat: Float[Array, ""],
    price: Callable[[Float[Array, " k"]], Float[Array, " k"]],
    floor: float,
) -> Float[Array, ""]:
    """The reward to ask for now.

    Args:
        rule: how to choose.
        plan: the last request minus what has been earned since; NaN before the first.
        bought: G at this state and budget.
        C_hat: the remaining budget.
        price: cost-to-go that goes with each of some rewards-to-go from this state.
        floor: share of G that "affordable" asks for whatever its price.
    """
    plan = jnp.where(jnp.isnan(plan), bought, plan)
    match rule:
        case "first":  # what the budget buys at the first step, then keep to it
            return plan
        case "again":  # what the remaining budget buys from here
            return bought
        case "rising":  # as "again", but never give up what was planned
            return jnp.maximum(plan, bought)
        case "affordable":
            return affordable(bought, C_hat, price, floor)


def affordable(
    bought: Float[Array, ""],
    C_hat: Float[Array, ""],
    price: Callable[[Float[Array, " k"]], Float[Array, " k"]],
    floor: float,
) -> Float[Array, ""]:
    """The largest reward in [floor G, G] whose price fits the budget; floor G if none does.

    G alone is an optimist: at tight budgets it promises what only luck delivered. The price is the
    second opinion, and asking again at every step lets spending and state correct both. Four
    rewards are priced at once, as the price need not rise with the reward; between the largest that
    fits and the next, the price is taken to rise evenly.
    """
    least = bought - (1.0 - floor) * jnp.abs(bought)
    asked = jnp.linspace(least, bought, 4)
    prices = price(asked)
    last = jnp.max(jnp.where(prices <= C_hat, jnp.arange(4), -1))
    below, above = jnp.maximum(last, 0), jnp.minimum(last + 1, 3)
    rise = jnp.maximum(prices[above] - prices[below], 1e-6)
    share = jnp.clip((C_hat - prices[below]) / rise, 0.0, 1.0)
    return asked[below] + share * (asked[above] - asked[below])
