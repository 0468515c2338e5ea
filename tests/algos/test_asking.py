"""What to ask for: the budget goal G and the rules that turn it into a request."""

import math
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
    Segments,
    advise,
    ask,
    budget_goal,
    budget_goal_loss,
    choose_reward,
    cost_floor,
    cost_floor_loss,
    expectile_weight,
    modest,
    moved,
    start_advisors,
    thrifty,
    tight_budget,
    train_advisors,
)
from safestitch.learn import clipped_adamw
from safestitch.nn import EmbeddedMLP

NONE = jnp.float32(np.nan)
"""No plan yet."""


def row(*values: float) -> jax.Array:
    return jnp.asarray(values, jnp.float32)


def linear(constant: float, *slopes: float) -> EmbeddedMLP:
    """A constant plus a slope for each input: one linear layer behind embeddings of width 1."""
    sizes = {"embedding": 1, "hidden": 1, "layers": 1}
    net = EmbeddedMLP([1] * len(slopes), 1, **sizes, key=jax.random.key(0))
    values = ((jnp.ones((1, 1)),) * len(slopes), (row(*slopes)[None],), (row(constant),))
    return eqx.tree_at(lambda n: (n.embeddings, n.weights, n.biases), net, values)


def linear_goal(s: float, C: float, t: float, constant: float) -> EmbeddedMLP:
    """G = s obs + C C^ + t t' + constant."""
    return linear(constant, s, C, t)


# --- G -----------------------------------------------------------------------------------------


def test_expectile_weight():
    # |0.8 - 1(A < 0)|; A = 0 counts as good.
    found = expectile_weight(0.8, row(2.0, 0.0, -1e-6, -3.0))
    np.testing.assert_allclose(found, [0.8, 0.8, 0.2, 0.2], rtol=1e-6)
    np.testing.assert_allclose(expectile_weight(0.5, row(1.0, -1.0)), 0.5)


def test_budget_goal_takes_state_budget_time():
    # 2 * 1 + 3 * 0.5 - 4 * 0.25 + 0.5 = 3; 2 * 2 + 3 * 1 - 0 + 0.5 = 7.5.
    net = linear_goal(2.0, 3.0, -4.0, 0.5)
    found = budget_goal(net, row(1.0, 2.0)[:, None], row(0.5, 1.0), row(0.25, 0.0), 0.9)
    assert found.tolist() == [3.0, 7.5]


def test_a_g_of_many_expectiles_sees_which_one_is_asked_for():
    # 1 + logit / 5: of e / (1 + e) it is 1.2; never less than 1.1 or more than 2, its range.
    net = linear(1.0, 0.0, 0.0, 0.0, 1.0)
    for expectile, expected in ((math.e / (1 + math.e), 1.2), (0.5, 1.1), (1.0, 2.0)):
        found = budget_goal(net, row(1.0)[:, None], row(0.5), row(0.25), expectile)
        assert found.tolist() == pytest.approx([expected])


def test_many_expectiles_are_learned_at_once():
    """Of rewards 0 and 1, as many of each, the expectile 0.9 is 0.9 and that of 0.7 is 0.7."""
    optimiser = clipped_adamw(1e-2, 0.0, 1.0, 3000)
    sizes = {"embedding": 8, "hidden": 64, "layers": 3}
    advisors = start_advisors(1, optimiser, jax.random.key(0), True, **sizes)
    R = jnp.tile(row(0.0, 1.0), 128)
    zero = jnp.zeros(256)
    seen = Segments(zero[:, None], R, zero, zero, zero)

    def step(advisors, _):
        return train_advisors(advisors, optimiser, seen, 0.8)[0], None

    trained, _ = jax.jit(lambda a: jax.lax.scan(step, a, None, 3000))(advisors)
    for expectile in (0.7, 0.9, 0.95):
        found = budget_goal(trained.budget_goal.net, zero[:1, None], zero[:1], zero[:1], expectile)
        assert float(found[0]) == pytest.approx(expectile, abs=0.02)


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


# --- B -----------------------------------------------------------------------------------------


def test_cost_floor_takes_state_and_time():
    # 0.5 + 2 * 1 - 4 * 0.25 = 1.5; 0.5 + 2 * 2 - 0 = 4.5.
    found = cost_floor(linear(0.5, 2.0, -4.0), row(1.0, 2.0)[:, None], row(0.25, 0.0))
    assert found.tolist() == [1.5, 4.5]


def test_cost_floor_loss_by_hand():
    # B = 0.5; A = C - B = (0.5, -0.25). With G's expectile at 0.9, B's is 0.1:
    # (0.1 * 0.25 + 0.9 * 0.0625) / 2 = 0.08125 / 2 = 0.040625.
    # In the constant of B: mean(-2 w A) = -(0.1 * 0.5 - 0.9 * 0.25) = 0.175.
    s, C, t = row(3.0, 4.0)[:, None], row(1.0, 0.25), row(0.0, 0.5)
    value, gradient = jax.value_and_grad(cost_floor_loss)(linear(0.5, 0.0, 0.0), s, C, t, 0.9)
    assert float(value) == pytest.approx(0.040625)
    assert float(gradient.biases[0][0]) == pytest.approx(0.175)


# --- rules -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "plan", "asked"),
    [
        ("first", np.nan, 0.6),
        ("first", 0.4, 0.4),
        ("first", 0.8, 0.8),
        ("again", np.nan, 0.6),
        ("again", 0.8, 0.6),
        ("frontier", np.nan, 0.6),
        ("frontier", 0.8, 0.6),
        ("frontier", 0.4, 0.6),
        ("rising", np.nan, 0.6),
        ("rising", 0.8, 0.8),
        ("rising", 0.4, 0.6),
    ],
)
def test_rules(rule, plan, asked):
    found = choose_reward(rule, jnp.float32(plan), jnp.float32(0.6))
    assert found.shape == ()
    assert float(found) == pytest.approx(asked, rel=1e-6)


def steep(C):
    return jnp.minimum(2.0 * C, 1.0)


@pytest.mark.parametrize(
    ("goal", "C_hat", "thrift", "budget"),
    [
        (steep, 1.0, 0.1, 0.6),  # all of C^max: only what buys nothing is spared
        (steep, 0.5, 0.1, 0.475),  # half of it: half of the thrift
        (steep, 0.3, 0.1, 0.279),  # 0.6 less 0.07 of it, and 65% of the way from 0.24 to 0.3
        (steep, 0.3, 0.0, 0.3),
        (jnp.ones_like, 0.8, 0.1, 0.0),  # what buys nothing is not spent
        (lambda C: C - 1.0, 0.5, 0.1, 0.475),  # less than a negative goal is more negative
        (lambda C: C + 0.5, 0.0, 0.1, 0.0),  # nothing left to spare
        (lambda C: 1.0 - C, 0.4, 0.0, 0.4),  # without thrift all is asked for, whatever G
    ],
)
def test_thrift_by_hand(goal, C_hat, thrift, budget):
    assert float(thrifty(thrift, jnp.float32(C_hat), goal)) == pytest.approx(budget, abs=1e-6)


@pytest.mark.parametrize(
    ("bought", "C_hat", "expected"),
    [
        (2.0, 0.0, 1.6),  # of nothing all of the modesty
        (2.0, 0.5, 1.9),  # of half of C^max a quarter of it
        (2.0, 1.0, 2.0),
        (2.0, 1.5, 2.0),  # beyond C^max no more than none
        (2.0, -1.0, 1.6),  # overspent: as with nothing left
        (-2.0, 0.0, -2.4),  # less than a negative reward is more negative
    ],
)
def test_modesty_by_hand(bought, C_hat, expected):
    found = modest(0.2, jnp.float32(bought), jnp.float32(C_hat))
    assert float(found) == pytest.approx(expected, abs=1e-6)


class Left(NamedTuple):
    """The least that a carry is."""

    R_hat: jax.Array
    C_hat: jax.Array
    fixed: jax.Array = jnp.asarray(False)


def config(target="frontier", thrift=0.0):
    return types.SimpleNamespace(target=target, thrift=thrift, budget_expectile=0.99)


def asked(left: Left, least: float = 0.0, **settings) -> list[float]:
    """The reward and the budget that are asked for."""
    carry, budget = ask(config(**settings), left, steep, jnp.float32(least))
    assert carry.C_hat is left.C_hat  # what is left is not what is asked for
    return [float(carry.R_hat), float(budget)]


@pytest.mark.parametrize(
    ("C_hat", "least", "expected"),
    [
        (0.3, 0.0, [0.6, 0.3]),
        (0.3, 0.2, [0.6, 0.3]),  # more is left than must be spent
        (0.1, 0.2, [0.4, 0.2]),  # what must be spent is asked for, and what it buys
        (-0.5, 0.2, [0.4, 0.2]),  # also where the budget is overspent
        (-0.5, 0.0, [0.0, 0.0]),
        (0.3, -0.2, [0.6, 0.3]),  # a floor below 0 is none
        (-0.5, -0.2, [0.0, 0.0]),
    ],
)
def test_no_budget_below_what_must_be_spent(C_hat, least, expected):
    left = Left(NONE, jnp.float32(C_hat))
    assert asked(left, least) == pytest.approx(expected, abs=1e-6)


def test_thrift_asks_for_less_and_keeps_what_is_left():
    # 0.6 buys all that 1 buys. A floor of 0.8 is above it, and all of the floor buys no more.
    left = Left(NONE, jnp.float32(1.0))
    assert asked(left, thrift=0.1) == pytest.approx([1.0, 0.6])
    assert asked(left, 0.8, thrift=0.1) == pytest.approx([1.0, 0.8])
    assert asked(left, target="again", thrift=0.1) == pytest.approx([1.0, 1.0])


@pytest.mark.parametrize(("target", "R_hat"), [("frontier", 0.502), ("first", 0.9)])
def test_modesty_asks_for_less_than_the_budget_buys(target, R_hat):
    # 0.3 buys 0.6; a third times 0.7^2 of it is not asked for. A plan stays.
    left = Left(jnp.float32(0.9), jnp.float32(0.3))
    carry, budget = ask(config(target), left, steep, jnp.float32(0.0), 1 / 3)
    assert float(carry.R_hat) == pytest.approx(R_hat, abs=1e-6)
    assert float(budget) == pytest.approx(0.3)


def test_a_plan_is_what_was_asked_less_what_was_earned():
    left = Left(jnp.float32(0.9), jnp.float32(0.3))
    assert asked(left, target="first") == pytest.approx([0.9, 0.3])
    assert asked(left, target="rising") == pytest.approx([0.9, 0.3])
    assert asked(left) == pytest.approx([0.6, 0.3])


def test_a_new_limit_asks_anew():
    left = Left(jnp.float32(0.5), jnp.float32(1.0))
    dialled = moved(left, jnp.float32(-0.1))
    assert np.isnan(dialled.R_hat)
    assert float(dialled.C_hat) == pytest.approx(0.9)
    assert moved(left, jnp.float32(0.0)) == left


def test_what_the_user_chose_stays():
    given_ = Left(jnp.float32(0.9), jnp.float32(0.4), jnp.asarray(True))
    assert asked(given_, thrift=0.1) == pytest.approx([0.9, 0.4])
    assert asked(given_, 0.5, thrift=0.1) == pytest.approx([0.9, 0.5])  # the budget is still real


# --- advisors ----------------------------------------------------------------------------------


def test_advice_is_the_rule_with_g_and_b():
    # G = 0.2 + C^ - t', B = 2 s + 1 - t' for the steps that t' leaves. At t' = 0.1, 0.8 left buy
    # 0.9. From s = 0.44 on 0.9 must be spent within the next 2% of the horizon, which buys 1.
    advisors = Advisors(linear_goal(0.0, 1.0, -1.0, 0.2), linear(1.0, 2.0, -1.0))

    def advice(s: float, t: float = 0.1) -> list[float]:
        left = Left(NONE, jnp.float32(0.8))
        carry, budget = advise(config(), advisors, left, row(s), jnp.float32(t))
        return [float(carry.R_hat), float(budget)]

    assert advice(0.0) == pytest.approx([0.9, 0.8])
    assert advice(0.44) == pytest.approx([1.0, 0.9])
    assert advice(0.445, 0.99) == pytest.approx([0.11, 0.9])  # there is only 1% left
