"""What to ask for: the budget goal G and the rules that turn it into a request."""

import types
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from safestitch.algos.asking import (
    Advisors,
    advise,
    affordable,
    ask,
    budget_goal,
    budget_goal_loss,
    choose_reward,
    expectile_weight,
    lowered,
    modest,
    moved,
    offered,
    reward_price_loss,
    tight_budget,
)
from safestitch.nn import EmbeddedMLP

NONE = jnp.float32(np.nan)
"""No plan yet."""


def row(*values: float) -> jax.Array:
    return jnp.asarray(values, jnp.float32)


def linear_goal(s: float, C: float, t: float, constant: float) -> EmbeddedMLP:
    """G = s obs + C C^ + t t' + constant: one linear layer behind embeddings of width 1."""
    net = EmbeddedMLP((1, 1, 1), 1, embedding=1, hidden=1, layers=1, key=jax.random.key(0))
    ones = (jnp.ones((1, 1)),) * 3
    values = (ones, (row(s, C, t)[None],), (row(constant),))
    return eqx.tree_at(lambda n: (n.embeddings, n.weights, n.biases), net, values)


def free(rewards: jax.Array) -> jax.Array:
    """The price where nothing costs."""
    return jnp.zeros_like(rewards)


# --- G -----------------------------------------------------------------------------------------


def test_expectile_weight():
    # |0.8 - 1(A < 0)|; A = 0 counts as good.
    found = expectile_weight(0.8, row(2.0, 0.0, -1e-6, -3.0))
    np.testing.assert_allclose(found, [0.8, 0.8, 0.2, 0.2], rtol=1e-6)
    np.testing.assert_allclose(expectile_weight(0.5, row(1.0, -1.0)), 0.5)


def test_budget_goal_takes_state_budget_time():
    # 2 * 1 + 3 * 0.5 - 4 * 0.25 + 0.5 = 3; 2 * 2 + 3 * 1 - 0 + 0.5 = 7.5.
    net = linear_goal(2.0, 3.0, -4.0, 0.5)
    found = budget_goal(net, row(1.0, 2.0)[:, None], row(0.5, 1.0), row(0.25, 0.0))
    assert found.tolist() == [3.0, 7.5]


def test_budget_goal_loss_by_hand():
    # G = C^ = (0.5, 0.5); A = R - G = (0.5, -0.25).
    # Expectile 0.9: (0.9 * 0.25 + 0.1 * 0.0625) / 2 = 0.23125 / 2 = 0.115625.
    # In the constant of G: mean(-2 w A) = -(0.9 * 0.5 - 0.1 * 0.25) = -0.425.
    net = linear_goal(0.0, 1.0, 0.0, 0.0)
    s, R, C_hat, t = row(3.0, 4.0)[:, None], row(1.0, 0.25), row(0.5, 0.5), row(0.0, 0.5)
    value, gradient = jax.value_and_grad(budget_goal_loss)(net, s, R, C_hat, t, 0.9)
    assert float(value) == pytest.approx(0.115625)
    assert float(gradient.biases[0][0]) == pytest.approx(-0.425)


def test_budget_goal_rises_to_the_upper_expectile():
    # R is 0 three times and 1 once; the minimiser m has 0.9 (1 - m) = 3 * 0.1 m, so m = 0.75.
    s, R = jnp.zeros((4, 1)), row(0.0, 0.0, 0.0, 1.0)
    slopes = [
        jax.grad(budget_goal_loss)(linear_goal(0, 0, 0, m), s, R, R, R, 0.9).biases[0][0]
        for m in (0.7, 0.75, 0.8)
    ]
    assert float(slopes[0]) < -1e-3
    assert float(slopes[1]) == pytest.approx(0.0, abs=1e-6)
    assert float(slopes[2]) > 1e-3


@given(C=st.floats(0, 1, width=32), u=st.floats(0, 1, width=32))
def test_tight_budget_lies_between_the_cost_and_the_largest(C, u):
    budget = float(tight_budget(row(C), row(u))[0])
    assert C - 1e-6 <= budget <= 1.0 + 1e-6
    assert budget == pytest.approx(C + (1 - C) * u**3, abs=1e-6)


def test_tight_budget_is_mostly_tight():
    assert tight_budget(row(0.2, 0.2, 0.0), row(0.0, 1.0, 0.5)).tolist() == pytest.approx(
        [0.2, 1.0, 0.125]
    )


# --- rules -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "plan", "bought", "asked"),
    [
        ("first", np.nan, 0.6, 0.6),
        ("first", 0.4, 0.6, 0.4),
        ("first", 0.8, 0.6, 0.8),
        ("again", np.nan, 0.6, 0.6),
        ("again", 0.8, 0.6, 0.6),
        ("again", 0.4, 0.6, 0.6),
        ("rising", np.nan, 0.6, 0.6),
        ("rising", 0.8, 0.6, 0.8),
        ("rising", 0.4, 0.6, 0.6),
        ("affordable", np.nan, 0.6, 0.6),
        ("affordable", 0.8, 0.6, 0.6),
        ("affordable", 0.4, 0.6, 0.6),
        ("planned", np.nan, 0.6, 0.6),
        ("planned", 0.8, 0.6, 0.8),
        ("planned", 0.4, 0.6, 0.6),
    ],
)
def test_rules(rule, plan, bought, asked):
    given_ = jnp.float32(plan), jnp.float32(0.5), jnp.float32(bought)
    found = choose_reward(rule, *given_, free, 0.8)
    assert found.shape == ()
    assert float(found) == pytest.approx(asked, rel=1e-6)


@pytest.mark.parametrize(
    ("plan", "budget", "bought", "asked"),
    [
        # The price of a reward is the reward itself.
        (0.4, 0.5, 0.6, 0.5),  # raised as far as the budget goes
        (0.6, 0.5, 0.4, 0.5),  # G sank, the budget pays half of the way back to the plan
        (0.6, 0.1, 0.4, 0.4),  # never below the lesser
        (-0.4, -9.0, -0.2, -0.4),
        (np.nan, 0.1, 0.6, 0.6),  # at first the plan is G
    ],
)
def test_planned_by_hand(plan, budget, bought, asked):
    given_ = jnp.float32(plan), jnp.float32(budget), jnp.float32(bought)
    found = choose_reward("planned", *given_, lambda r: r, 0.9)
    assert float(found) == pytest.approx(asked, rel=1e-5)


def test_only_two_rules_ask_for_the_price():
    def dear(rewards):
        return jnp.full_like(rewards, 9.0)

    plan, bought, budget = jnp.float32(0.3), jnp.float32(0.5), jnp.float32(0.1)
    asked = {
        rule: float(choose_reward(rule, plan, budget, bought, dear, 0.8))
        for rule in ("first", "again", "rising", "affordable", "planned")
    }
    blind = {"first": 0.3, "again": 0.5, "rising": 0.5}
    assert asked == pytest.approx(blind | {"affordable": 0.4, "planned": 0.3})


def steep(C):
    return jnp.minimum(2.0 * C, 1.0)


@pytest.mark.parametrize(
    ("goal", "C_hat", "thrift", "budget", "bought"),
    [
        (steep, 1.0, 0.1, 0.6, 1.0),  # all of C^max: only what buys nothing is spared
        (steep, 0.5, 0.1, 0.475, 0.95),  # half of it: half of the thrift
        (steep, 0.3, 0.1, 0.279, 0.558),  # 0.6 less 0.07 of it, and 65% of the way from 0.24 to 0.3
        (steep, 0.3, 0.0, 0.3, 0.6),
        (jnp.ones_like, 0.8, 0.1, 0.0, 1.0),  # what buys nothing is not spent
        (lambda C: C - 1.0, 0.5, 0.1, 0.475, -0.525),  # less than a negative goal is more negative
        (lambda C: C + 0.5, 0.0, 0.1, 0.0, 0.5),  # nothing left to spare
        (lambda C: 1.0 - C, 0.4, 0.0, 0.4, 0.6),  # without thrift all is asked for, whatever G
    ],
)
def test_thrift_by_hand(goal, C_hat, thrift, budget, bought):
    offer = offered(thrift, NONE, jnp.float32(C_hat), goal)
    assert [float(x) for x in offer] == pytest.approx([budget, bought], abs=1e-6)


def test_thrift_comes_once():
    # With a plan, what is left of the budget is asked for whole, however much could be spared.
    offer = offered(0.1, jnp.float32(0.7), jnp.float32(1.0), steep)
    assert [float(x) for x in offer] == pytest.approx([1.0, 1.0])


class Left(NamedTuple):
    """The least that a carry is."""

    R_hat: jax.Array
    C_hat: jax.Array
    fixed: jax.Array = jnp.asarray(False)
    spare: jax.Array = jnp.float32(0.0)


def config(target="again", thrift=0.0, caution=0.0, floor=0.5):
    return types.SimpleNamespace(target=target, thrift=thrift, caution=caution, floor=floor)


def test_what_the_thrifty_ask_for_is_modest_too():
    # 0.6 of the largest budget buys all, and 0.4 of the caution takes 8% off it.
    left = ask(config(thrift=0.1, caution=0.2), Left(NONE, jnp.float32(1.0)), steep, free)
    assert [float(left.R_hat), float(left.C_hat)] == pytest.approx([0.92, 0.6])


def test_what_thrift_sets_aside_is_not_asked_for_later():
    # 0.4 of 1 is set aside; after a cost of 0.3 the 0.3 left buy 0.6; overspent is remembered.
    cfg = config(thrift=0.1)
    left = ask(cfg, Left(NONE, jnp.float32(1.0)), steep, free)
    left = ask(cfg, left._replace(C_hat=left.C_hat - 0.3), steep, free)
    assert [float(left.R_hat), float(left.C_hat)] == pytest.approx([0.6, 0.3])
    left = ask(cfg, left._replace(C_hat=left.C_hat - 0.5), steep, free)
    assert [float(left.R_hat), float(left.C_hat)] == pytest.approx([0.0, -0.2])


def test_a_new_limit_frees_what_was_set_aside():
    # 0.4 of 1 is set aside. A limit lower by 0.1 begins with all of the 0.9, a new plan to come.
    left = ask(config(thrift=0.1), Left(NONE, jnp.float32(1.0)), steep, free)
    assert float(left.spare) == pytest.approx(0.4)
    dialled = moved(left, jnp.float32(-0.1))
    assert np.isnan(dialled.R_hat)
    assert [float(dialled.C_hat), float(dialled.spare)] == pytest.approx([0.9, 0.0])
    assert moved(left, jnp.float32(0.0)) == left


def test_what_the_user_chose_stays():
    given_ = Left(jnp.float32(0.9), jnp.float32(0.4), jnp.asarray(True))
    assert ask(config(thrift=0.1), given_, steep, free) == given_


@pytest.mark.parametrize(
    ("bought", "budget", "asked"),
    [(0.8, 1.0, 0.8), (0.8, 0.5, 0.76), (0.8, 0.0, 0.72), (-0.8, 0.0, -0.88)],
)
def test_modest_asks_less_of_a_tight_budget(bought, budget, asked):
    assert float(modest(jnp.float32(bought), jnp.float32(budget), 0.1)) == pytest.approx(asked)


def asked(bought: float, budget: float, price, floor: float = 0.8) -> float:
    most = jnp.float32(bought)
    return float(affordable(lowered(most, floor), most, jnp.float32(budget), price))


# Price r / 2: a budget C buys 2 C, between the floor of 0.2 and the goal of 1.
@pytest.mark.parametrize(
    ("budget", "reward"),
    [(0.05, 0.2), (0.1, 0.2), (0.126, 0.252), (0.2, 0.4), (0.41, 0.82), (0.5, 1.0), (9.0, 1.0)],
)
def test_affordable_picks_the_reward_that_the_budget_pays(budget, reward):
    assert asked(1.0, budget, lambda r: 0.5 * r, floor=0.2) == pytest.approx(reward)


def test_affordable_includes_the_price_that_equals_the_budget():
    # A goal of 4, floor 0.25: of the rewards 1, 2, 3, 4 the third costs the budget and not less.
    assert asked(4.0, 3.0, lambda r: jnp.where(r > 3.0, 99.0, r), floor=0.25) == 3.0


def test_affordable_skips_a_dear_reward_below_a_cheap_one():
    # Only those below are dear: the largest that fits is still the largest.
    assert asked(1.0, 0.5, lambda r: jnp.where(r < 0.9, 1.0, 0.0)) == pytest.approx(1.0)


def test_affordable_asks_for_the_floor_when_nothing_fits():
    assert asked(2.0, 0.1, lambda r: jnp.full_like(r, 5.0), floor=0.7) == pytest.approx(1.4)


def test_affordable_prices_four_rewards_at_once():
    calls = []

    def price(rewards):
        calls.append(np.asarray(rewards).tolist())
        return rewards**2

    # Rewards 1, 2, 3, 4 cost 1, 4, 9, 16: a budget of 5 lies a fifth of the way from 4 to 9.
    assert asked(4.0, 5.0, price, floor=0.25) == pytest.approx(2.2)
    assert calls == [[1.0, 2.0, 3.0, 4.0]]


def test_affordable_with_a_negative_goal():
    # Floor 0.8 of G = -1 lies below it, at -1.2: less reward, not more.
    assert asked(-1.0, 0.1, lambda r: jnp.full_like(r, 5.0)) == pytest.approx(-1.2)
    assert asked(-1.0, 0.1, free) == pytest.approx(-1.0)
    # Price 2 + r fits 0.9 up to r = -1.1.
    assert asked(-1.0, 0.9, lambda r: 2.0 + r) == pytest.approx(-1.1)


@given(st.floats(-2, 2, width=32), st.floats(0, 1, width=32), st.floats(0, 1))
def test_affordable_stays_between_floor_and_goal(bought, budget, floor):
    found = asked(bought, budget, lambda r: 0.7 * r, floor)
    assert bought - (1 - floor) * abs(bought) - 1e-5 <= found <= bought + 1e-5


# --- advisors ----------------------------------------------------------------------------------


def test_price_loss_by_hand():
    # P = 2 R = (2, 0.5) against C = (1, 0.5): (1 + 0) / 2; in the constant: mean(2 (P - C)) = 1.
    net = linear_goal(0.0, 2.0, 0.0, 0.0)
    given_ = row(3.0, 4.0)[:, None], row(1.0, 0.25), row(1.0, 0.5), row(0.0, 0.5)
    value, gradient = jax.value_and_grad(reward_price_loss)(net, *given_)
    assert float(value) == pytest.approx(0.5)
    assert float(gradient.biases[0][0]) == pytest.approx(1.0)


def test_advice_is_the_rule_with_g_and_p():
    # G = 0.2 + C^ and P = R: of [0.5, 1] a budget of 0.8 affords 0.8. "again" asks for G itself.
    advisors = Advisors(linear_goal(0.0, 1.0, 0.0, 0.2), linear_goal(0.0, 1.0, 0.0, 0.0))
    left, now = Left(NONE, jnp.float32(0.8)), (row(0.0), jnp.float32(0.1))

    def advice(rule: str, caution: float = 0.0) -> list[float]:
        found = advise(config(rule, caution=caution), advisors, left, *now)
        return [float(found.R_hat), float(found.C_hat)]

    assert advice("affordable") == pytest.approx([0.8, 0.8])
    assert advice("planned") == pytest.approx([1.0, 0.8])
    assert advice("again") == pytest.approx([1.0, 0.8])
    assert advice("again", caution=0.5)[0] == pytest.approx(0.9)  # half of the fifth that is spent
