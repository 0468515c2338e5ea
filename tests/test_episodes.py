import dataclasses
import doctest
import math
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from safestitch import episodes as module
from safestitch.episodes import COLUMNS, Episodes, best_within, frontier
from safestitch.records import DataError


def columns(**changes: Any) -> dict[str, Any]:
    """Three episodes of 2, 1 and 3 steps: rows 0-1, 2, 3-5; the second one terminated."""
    worked = {
        "observations": np.arange(12.0).reshape(6, 2),
        "actions": np.arange(6.0).reshape(6, 1) / 10,
        "rewards": np.array([1.0, 2.0, 4.0, 8.0, 16.0, 32.0]),
        "costs": np.array([0.0, 1.0, 0.0, 0.5, 0.25, 2.0]),
        "terminated": np.array([0, 0, 1, 0, 0, 0], bool),
        "truncated": np.array([0, 1, 0, 0, 0, 1], bool),
    }
    return {**worked, **changes}


def direct(offsets: Any, **changes: Any) -> Episodes:
    """The constructor itself, with given offsets."""
    given_columns = Episodes.of(**columns())
    return dataclasses.replace(given_columns, offsets=offsets, **changes)


def spoiled(name: str, place: int | tuple[int, int], value: float) -> dict[str, Any]:
    column = columns()[name].copy()
    column[place] = value
    return columns(**{name: column})


def assert_names(error: pytest.ExceptionInfo, column: str, *parts: str) -> None:
    message = str(error.value)
    assert message.startswith(f"{column}: "), message
    for part in parts:
        assert re.search(rf"{part}(?!\d)", message), f"{part!r} is not in {message!r}"


# --- values worked by hand ---------------------------------------------------------------------


def test_examples_in_docstrings():
    results = doctest.testmod(module)
    assert results.attempted >= 2
    assert results.failed == 0


def test_lengths_and_returns():
    data = Episodes.of(**columns())
    assert len(data) == 3
    assert data.steps == 6
    assert data.offsets.tolist() == [0, 2, 3, 6]
    assert data.lengths.tolist() == [2, 1, 3]
    assert data.returns.tolist() == [3.0, 4.0, 56.0]  # 1 + 2, 4, 8 + 16 + 32
    assert data.cost_returns.tolist() == [1.0, 0.0, 2.75]  # 0 + 1, 0, 0.5 + 0.25 + 2


def test_columns_become_float32_and_bool():
    data = Episodes.of(**columns(terminated=[0, 0, 1.0, 0, 0, 0], rewards=[1, 2, 4, 8, 16, 32]))
    for name in ("observations", "actions", "rewards", "costs"):
        assert getattr(data, name).dtype == np.float32
    assert data.terminated.tolist() == [False, False, True, False, False, False]


def test_returns_are_summed_in_double_precision():
    # In float32, 1e8 + 1 - 1e8 = 0.
    changes = {"rewards": np.array([0, 0, 0, 1e8, 1, -1e8], np.float32)}
    assert Episodes.of(**columns(**changes)).returns[2] == 1.0


def test_iteration_gives_one_dictionary_an_episode():
    second = list(Episodes.of(**columns()))[1]
    assert tuple(second) == COLUMNS
    assert second["observations"].tolist() == [[4.0, 5.0]]
    assert second["actions"].tolist() == [[np.float32(0.2)]]
    assert second["rewards"].tolist() == [4.0]
    assert second["terminated"].tolist() == [True]


def test_repr_says_what_is_inside():
    assert repr(Episodes.of(**columns())) == (
        "Episodes(3 episodes, 6 steps, observations 2, actions 1, reward 3..56, cost 0..2.75)"
    )


def test_frontier():
    # Cost 0: 5 is best. Cost 1: 3 is dominated. Cost 2: 9 beats 7. Cost 3: 8 is dominated, 4: ties.
    returns = np.array([9.0, 8.0, 5.0, 3.0, 7.0, 9.0, 1.0])
    costs = np.array([2.0, 3.0, 0.0, 1.0, 2.0, 4.0, 0.0])
    frontier_costs, frontier_rewards = frontier(returns, costs)
    assert frontier_costs.tolist() == [0.0, 2.0]
    assert frontier_rewards.tolist() == [5.0, 9.0]


def test_frontier_of_one_episode():
    frontier_costs, frontier_rewards = frontier(np.array([-1.0]), np.array([3.0]))
    assert (frontier_costs.tolist(), frontier_rewards.tolist()) == ([3.0], [-1.0])


@pytest.mark.parametrize(
    ("limit", "best"),
    [(0.5, math.nan), (1.0, 5.0), (2.9, 5.0), (3.0, 9.0), (math.inf, 9.0), (-1.0, math.nan)],
)
def test_best_within(limit, best):
    found = best_within(np.array([1.0, 3.0]), np.array([5.0, 9.0]), limit)
    assert found == pytest.approx(best, nan_ok=True)


# --- malformed data ----------------------------------------------------------------------------


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    ("name", "place"), [("observations", (4, 1)), ("actions", (4, 0)), ("rewards", 4), ("costs", 4)]
)
def test_not_finite(name, place, value):
    with pytest.raises(DataError) as error:
        Episodes.of(**spoiled(name, place, value))
    assert_names(error, name, "episode 2", "row 4", "step 1", "not finite", f"{value:g}")
    if isinstance(place, tuple):
        assert_names(error, name, f"dimension {place[1]}")


def test_negative_cost():
    with pytest.raises(DataError) as error:
        Episodes.of(**spoiled("costs", 2, -0.5))
    assert_names(error, "costs", "episode 1", "row 2", "step 0", "-0.5", "negative")


def test_further_errors_are_counted():
    bad = columns()["costs"]
    bad[[1, 3, 5]] = -1.0
    with pytest.raises(DataError) as error:
        Episodes.of(**columns(costs=bad))
    assert_names(error, "costs", "episode 0", "row 1", "2 more")


def test_too_large_for_single_precision():
    with pytest.raises(DataError) as error:
        Episodes.of(**spoiled("rewards", 4, 1e300))
    assert_names(error, "rewards", "episode 2", "row 4")


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.usefixtures("as_installed")
def test_rank(name):
    for wrong in (columns()[name][..., None], columns()[name].reshape(-1)[0]):
        with pytest.raises(DataError, match=name):
            Episodes.of(**columns(**{name: wrong}))


@pytest.mark.parametrize("name", ["observations", "actions"])
@pytest.mark.usefixtures("as_installed")
def test_flat_vectors_are_refused(name):
    with pytest.raises(DataError) as error:
        Episodes.of(**columns(**{name: np.zeros(6)}))
    assert_names(error, name, r"\(steps, dimensions\)", r"\(6,\)")


@pytest.mark.usefixtures("as_installed")
def test_flags_with_a_second_axis():
    flat = columns()
    both = {name: flat[name][:, None] for name in ("terminated", "truncated")}
    with pytest.raises(DataError) as error:
        Episodes.of(**columns(**both))
    assert_names(error, "terminated", r"\(steps,\)", r"\(6, 1\)")


@pytest.mark.parametrize("name", ["actions", "rewards", "costs"])
@pytest.mark.usefixtures("as_installed")
def test_columns_of_unequal_length(name):
    for wrong in (columns()[name][:-1], np.concatenate([columns()[name]] * 2)):
        with pytest.raises(DataError) as error:
            Episodes.of(**columns(**{name: wrong}))
        assert_names(error, name, f"{len(wrong)} rows", "6")


@pytest.mark.usefixtures("as_installed")
def test_flags_of_unequal_length():
    with pytest.raises(DataError, match=r"terminated .*\(6,\).*truncated .*\(5,\)"):
        Episodes.of(**columns(truncated=[0, 1, 0, 0, 1]))
    with pytest.raises(DataError) as error:
        Episodes.of(**columns(terminated=[0, 0, 1], truncated=[0, 1, 0]))
    assert_names(error, "terminated", "3 rows", "6")


def test_no_rows():
    none = {name: column[:0] for name, column in columns().items()}
    with pytest.raises(DataError) as error:
        Episodes.of(**none)
    assert_names(error, "observations", "no rows")


@pytest.mark.usefixtures("as_installed")
def test_empty_lists():
    with pytest.raises(DataError, match="observations: "):
        Episodes.of([], [], [], [], [], [])


@pytest.mark.parametrize("name", ["observations", "actions"])
def test_no_dimensions(name):
    with pytest.raises(DataError) as error:
        Episodes.of(**columns(**{name: np.zeros((6, 0))}))
    assert_names(error, name, "no columns", r"\(6, 0\)")


@pytest.mark.parametrize("name", ["observations", "actions", "rewards", "costs"])
@pytest.mark.parametrize(
    "wrong",
    [
        ["a"] * 6,
        [{}] * 6,
        [[1.0], [1.0, 2.0], [3.0], [4.0], [5.0], [6.0]],
        "reward",
        object(),
        np.ones(6) * 1j,
        np.array(["2020-01-01"] * 6, "datetime64[D]"),
    ],
    ids=["text", "objects", "ragged", "word", "object", "complex", "dates"],
)
@pytest.mark.usefixtures("as_installed")
def test_not_numbers(name, wrong):
    with pytest.raises(DataError) as error:
        Episodes.of(**columns(**{name: wrong}))
    assert_names(error, name, "expected numbers")


@pytest.mark.parametrize("name", ["terminated", "truncated"])
@pytest.mark.parametrize("value", [2, -1, 0.5, math.nan])
def test_flags_that_are_not_zero_or_one(name, value):
    with pytest.raises(DataError) as error:
        Episodes.of(**columns(**{name: [0, 0, 1, 0, value, 1]}))
    assert_names(error, name, "0/1", "row 4")


@pytest.mark.parametrize("name", ["terminated", "truncated"])
@pytest.mark.parametrize("wrong", [["no"] * 6, None, [[1], [1, 0], [1]]], ids=repr)
@pytest.mark.usefixtures("as_installed")
def test_flags_that_are_not_numbers(name, wrong):
    with pytest.raises(DataError) as error:
        Episodes.of(**columns(**{name: wrong}))
    assert_names(error, name)


def test_last_episode_unfinished():
    with pytest.raises(DataError) as error:
        Episodes.of(**columns(truncated=[0, 1, 0, 0, 0, 0]))
    assert_names(error, "truncated", "episode 2", "rows 3 to 5", "no end")


def test_no_episode_finished():
    with pytest.raises(DataError) as error:
        Episodes.of(**columns(terminated=[0] * 6, truncated=[0] * 6))
    assert_names(error, "truncated", "episode 0", "rows 0 to 5", "no end")


def test_offsets_without_a_flag():
    with pytest.raises(DataError) as error:
        direct(np.array([0, 2, 3, 4, 6]))
    assert_names(error, "terminated", "episode 2", "row 3", "unflagged")


@pytest.mark.parametrize(
    ("offsets", "name", "episode", "row"),
    [([0, 3, 6], "truncated", 0, 1), ([0, 2, 6], "terminated", 1, 2)],
)
def test_a_flag_without_an_offset(offsets, name, episode, row):
    with pytest.raises(DataError) as error:
        direct(np.array(offsets))
    assert_names(error, name, f"episode {episode}", f"row {row}", "before its episode ends")


def test_empty_episode():
    with pytest.raises(DataError) as error:
        direct(np.array([0, 2, 3, 3, 6]))
    assert_names(error, "offsets", "episode 2", "empty", "row 3")


@pytest.mark.parametrize(
    "offsets",
    [[], [0], [1, 2, 3, 6], [0, 2, 3], [0, 2, 3, 7], [-1, 2, 3, 6], [0, 9, 3, 6], [0, 3, 2, 6]],
    ids=repr,
)
def test_bad_offsets(offsets):
    with pytest.raises(DataError, match="offsets: "):
        direct(np.array(offsets, np.int64))


@pytest.mark.parametrize(
    "offsets", [np.array([[0, 2, 3, 6]]), np.array([0.0, 2.0, 3.0, 6.0])], ids=["rank", "floats"]
)
@pytest.mark.usefixtures("as_installed")
def test_offsets_that_are_no_list_of_rows(offsets):
    with pytest.raises(DataError, match="offsets: "):
        direct(offsets)


@pytest.mark.parametrize("offsets", [[], [0], [4, 6]], ids=repr)
def test_bad_offsets_beside_bad_values(offsets):
    rewards = spoiled("rewards", 1, math.nan)["rewards"].astype(np.float32)
    with pytest.raises(DataError):
        direct(np.array(offsets, np.int64), rewards=rewards)


def test_join_needs_parts_of_one_task():
    other = Episodes.of(**columns(observations=np.zeros((6, 3))))
    with pytest.raises(DataError, match="observations"):
        Episodes.join([Episodes.of(**columns()), other])


def test_join_of_nothing():
    with pytest.raises(DataError):
        Episodes.join([])


# --- properties over random episode structures -------------------------------------------------

floats = st.floats(-1e3, 1e3, width=32)
costs_of_steps = st.floats(0, 1e3, width=32)


@st.composite
def pieces(draw, longest: int = 5) -> list[dict[str, np.ndarray]]:
    """Random episodes of one task, each a dictionary of columns."""
    obs_dim, act_dim = draw(st.integers(1, 3)), draw(st.integers(1, 2))
    drawn = []
    for n in draw(st.lists(st.integers(1, longest), min_size=1, max_size=6)):
        kind = draw(st.sampled_from(["terminated", "truncated", "both"]))
        last = np.arange(n) == n - 1
        drawn.append(
            {
                "observations": draw(hnp.arrays(np.float32, (n, obs_dim), elements=floats)),
                "actions": draw(hnp.arrays(np.float32, (n, act_dim), elements=floats)),
                "rewards": draw(hnp.arrays(np.float32, n, elements=floats)),
                "costs": draw(hnp.arrays(np.float32, n, elements=costs_of_steps)),
                "terminated": last & (kind != "truncated"),
                "truncated": last & (kind != "terminated"),
            }
        )
    return drawn


def build(parts: list[dict[str, np.ndarray]]) -> Episodes:
    return Episodes.of(**{name: np.concatenate([p[name] for p in parts]) for name in COLUMNS})


def assert_same_pieces(data: Episodes, parts: list[dict[str, np.ndarray]]) -> None:
    for found, expected in zip(data, parts, strict=True):
        for name in COLUMNS:
            np.testing.assert_array_equal(found[name], expected[name], strict=True)


@given(pieces())
def test_iterating_gives_back_the_pieces(parts):
    data = build(parts)
    assert_same_pieces(data, parts)
    assert data.lengths.tolist() == [len(p["rewards"]) for p in parts]


@given(pieces(), st.data())
def test_join_is_the_pieces_in_order(parts, data):
    cuts = sorted(data.draw(st.sets(st.integers(1, len(parts) - 1)))) if len(parts) > 1 else []
    groups = [parts[a:b] for a, b in zip([0, *cuts], [*cuts, len(parts)], strict=True)]
    joined = Episodes.join([build(group) for group in groups])
    assert_same_pieces(joined, parts)
    assert joined.fingerprint == build(parts).fingerprint


@given(pieces())
def test_returns_add_up(parts):
    data = build(parts)
    assert data.returns.sum() == pytest.approx(data.rewards.sum(dtype=np.float64), abs=1e-6)
    assert data.cost_returns.sum() == pytest.approx(data.costs.sum(dtype=np.float64), abs=1e-6)
    for i, part in enumerate(parts):
        assert data.returns[i] == pytest.approx(part["rewards"].sum(dtype=np.float64), abs=1e-6)


@given(pieces(longest=1))
def test_one_step_episodes(parts):
    data = build(parts)
    assert len(data) == data.steps == len(parts)
    np.testing.assert_array_equal(data.returns, data.rewards.astype(np.float64))
    np.testing.assert_array_equal(data.cost_returns, data.costs.astype(np.float64))


@given(pieces())
def test_equal_data_have_equal_fingerprints(parts):
    again = [{name: column.copy() for name, column in part.items()} for part in parts]
    assert build(parts).fingerprint == build(again).fingerprint


@given(pieces(), st.data())
def test_a_single_changed_value_changes_the_fingerprint(parts, data):
    before = build(parts).fingerprint
    name = data.draw(st.sampled_from(["observations", "actions", "rewards", "costs"]))
    column = data.draw(st.sampled_from(parts))[name]
    index = data.draw(st.integers(0, column.size - 1))
    value = data.draw(costs_of_steps if name == "costs" else floats)
    assume(column.flat[index] != value)
    column.flat[index] = value
    assert build(parts).fingerprint != before


@given(pieces(), st.data())
def test_another_kind_of_end_changes_the_fingerprint(parts, data):
    before = build(parts).fingerprint
    part = data.draw(st.sampled_from(parts))
    if part["terminated"][-1] and part["truncated"][-1]:
        part["truncated"][-1] = False
    else:
        part["terminated"], part["truncated"] = part["truncated"], part["terminated"]
    assert build(parts).fingerprint != before


def test_the_same_rows_cut_elsewhere_have_another_fingerprint():
    cut_later = columns(terminated=[0, 0, 0, 1, 0, 0])
    assert Episodes.of(**columns()).fingerprint != Episodes.of(**cut_later).fingerprint


# Few distinct values, so that ties are common.
points = st.lists(
    st.tuples(st.integers(-3, 3).map(float), st.integers(0, 3).map(float)), min_size=1, max_size=12
)


@given(points)
def test_frontier_rises_and_nothing_lies_above_it(drawn):
    returns, costs = (np.array(values) for values in zip(*drawn, strict=True))
    frontier_costs, frontier_rewards = frontier(returns, costs)
    assert (np.diff(frontier_costs) > 0).all()
    assert (np.diff(frontier_rewards) > 0).all()
    assert set(zip(frontier_rewards, frontier_costs, strict=True)) <= set(drawn)
    for reward, cost in drawn:
        assert reward <= best_within(frontier_costs, frontier_rewards, cost)


@given(points, st.integers(-1, 4).map(float))
def test_best_within_is_the_best_of_those_within(drawn, limit):
    returns, costs = (np.array(values) for values in zip(*drawn, strict=True))
    within = [reward for reward, cost in drawn if cost <= limit]
    expected = max(within) if within else math.nan
    found = best_within(*frontier(returns, costs), limit)
    assert found == pytest.approx(expected, nan_ok=True)


def test_select_keeps_the_order_given():
    ends = np.array([1, 0, 1, 1], bool)
    rows = np.arange(4.0)
    three = Episodes.of(rows[:, None], rows[:, None], rows, rows, ends & False, ends)
    three = dataclasses.replace(three, final_observations=np.array([[7], [8], [9]], np.float32))
    chosen = three.select(np.array([2, 1]))
    assert chosen.observations[:, 0].tolist() == [3.0, 1.0, 2.0]
    assert chosen.lengths.tolist() == [1, 2]
    assert chosen.final_observations is not None
    assert chosen.final_observations[:, 0].tolist() == [9.0, 8.0]
    rebuilt = Episodes(**{f.name: getattr(chosen, f.name) for f in dataclasses.fields(chosen)})
    assert rebuilt.fingerprint == chosen.fingerprint
    with pytest.raises(DataError, match="none of the 3"):
        three.select(np.array([], int))
