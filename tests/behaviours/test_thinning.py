"""Thinning on the plane of reward and cost: counts worked by hand, and what always holds."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from safestitch.behaviours.thinning import ROWS, Region, outstanding, rows_of, thin
from safestitch.data.coverage import tenth
from safestitch.episodes import frontier
from safestitch.records import SafestitchError

EVEN = Region(10.0)


def test_the_fullest_cell_is_thinned_first():
    """Cells of 6, 2 and 2 episodes: 7 are 3 + 2 + 2."""
    costs = np.array([0.0] * 6 + [5.0] * 2 + [9.0] * 2)
    rewards = np.array([1.0] * 6 + [2.0] * 2 + [3.0] * 2)
    kept = thin(rewards, costs, EVEN, 7, seed=0)
    assert len(set(kept.tolist())) == 7
    assert np.bincount(costs[kept].astype(int)).tolist() == [3, 0, 0, 0, 0, 2, 0, 0, 0, 2]


def test_what_lies_outside_is_dropped():
    costs, rewards = np.array([0.0, 11.0, 5.0, 10.0]), np.array([1.0, 50.0, -1.0, 2.0])
    kept = thin(rewards, costs, Region(10.0, 0.0), 2, seed=0)
    assert sorted(kept.tolist()) == [0, 3]
    with pytest.raises(SafestitchError, match=r"2 of 4 episodes cost at most 10 .* 3 are wanted"):
        thin(rewards, costs, Region(10.0, 0.0), 3, seed=0)


def test_the_frontier_the_best_and_the_worst_stay():
    random = np.random.default_rng(0)
    costs = random.integers(0, 11, 2000).astype(float)
    rewards = 10 * costs + random.normal(size=2000)
    rewards[7] = -100.0
    for seed in range(3):
        kept = set(thin(rewards, costs, EVEN, 400, seed).tolist())
        assert 7 in kept
        best = set(zip(*frontier(rewards, costs), strict=True))
        assert best <= {(costs[i], rewards[i]) for i in kept}
        columns = tenth(costs, 10.0)
        for column in range(10):
            mine = np.flatnonzero(columns == column)
            assert set(mine[np.argsort(-rewards[mine])][:2].tolist()) <= kept  # 0.5% of 400


def test_a_thin_tenth_keeps_its_share():
    """Ten in the last tenth, all in one cell; the first tenth spreads over every cell."""
    costs = np.array([0.0] * 2000 + [10.0] * 10)
    rewards = np.concatenate([np.linspace(0, 100, 2000), np.full(10, 50.0)])
    kept = thin(rewards, costs, EVEN, 200, seed=0)
    assert (kept >= 2000).sum() == 7  # 3.3% of 200
    assert (thin(rewards, costs, EVEN, 1000, seed=0) >= 2000).sum() == 10  # all there are


def test_rows():
    assert rows_of(np.array([0.0, 1.0, 12.5, 25.0])).tolist() == [0, 1, 12, ROWS - 1]
    assert rows_of(np.array([3.0, 3.0])).tolist() == [0, 0]
    assert rows_of(np.array([-5.0, 99.0]), (0.0, 25.0)).tolist() == [0, ROWS - 1]


def test_a_handful_is_a_fair_draw():
    """Ten tenths have a best episode each: they do not fit into five."""
    costs, rewards = np.arange(11.0), np.arange(11.0)
    assert not outstanding(rewards, costs, tenth(costs, 10.0), 5).any()
    assert len(thin(rewards, costs, EVEN, 5, seed=0)) == 5


@given(
    st.integers(1, 60),
    st.integers(0, 2**32 - 1),
    st.lists(st.tuples(st.integers(0, 30), st.floats(-5, 5, width=32)), min_size=60, max_size=200),
)
def test_as_many_as_wanted_each_once_and_again_the_same(wanted, seed, episodes):
    costs, rewards = np.array(episodes).T
    region = Region(20.0, -4.0)
    inside = set(np.flatnonzero(region.holds(rewards, costs)).tolist())
    if len(inside) < wanted:
        with pytest.raises(SafestitchError):
            thin(rewards, costs, region, wanted, seed)
        return
    kept = thin(rewards, costs, region, wanted, seed).tolist()
    assert len(kept) == len(set(kept)) == wanted
    assert set(kept) <= inside
    assert kept == thin(rewards, costs, region, wanted, seed).tolist()
