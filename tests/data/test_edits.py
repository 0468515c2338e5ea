"""Edits on values worked by hand."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from safestitch.catalog import get_public, public_files
from safestitch.data import edits
from safestitch.data.edits import Grid, Ranges
from safestitch.episodes import Episodes
from safestitch.records import DataError, SafestitchError


def of_returns(rewards: list[float], costs: list[float], steps: int = 4) -> Episodes:
    """Episodes with these returns, all of it in their first step; observations count the rows."""
    n = len(rewards) * steps
    columns = np.zeros((2, len(rewards), steps))
    columns[0, :, 0], columns[1, :, 0] = rewards, costs
    truncated = np.arange(n) % steps == steps - 1
    observations = np.arange(n, dtype=np.float64)[:, None]
    rewards_flat, costs_flat = columns.reshape(2, n)
    made = Episodes.of(
        observations, np.zeros((n, 1)), rewards_flat, costs_flat, truncated & False, truncated
    )
    final = 1000 + np.arange(len(rewards), dtype=np.float32)[:, None]
    return dataclasses.replace(made, final_observations=final)


def which(edited: Episodes, steps: int = 4) -> list[int]:
    """The episodes of `of_returns` that are left, in their order."""
    left = (edited.observations[edited.offsets[:-1], 0] / steps).astype(int).tolist()
    assert edited.final_observations is not None
    assert edited.final_observations[:, 0].tolist() == [1000 + i for i in left]
    assert edited.lengths.tolist() == [steps] * len(left)
    return left


TEN = of_returns([0, 10, 20, 30, 40, 50, 60, 70, 80, 90], [0, 0, 5, 5, 10, 10, 15, 15, 20, 20])
RANGES = Ranges(0.0, 20.0, 0.0, 90.0)


def test_ranges():
    assert Ranges.of(TEN) == RANGES
    assert Ranges.of(get_public("easysparse")).cost_min == 0.00025356505648232996


# --- density -----------------------------------------------------------------------------------


def test_density_thins_full_cells_and_empties_sparse_ones():
    # Two bins of cost, [0, 10) and [10, 20), and the largest cost in a bin of its own; two of
    # reward, likewise. Cells: {0..4} in (0, 0), {5} in (1, 1), {6..9} in (1, 0), {10} the largest.
    rewards = [0, 1, 2, 3, 4, 30, 0, 1, 2, 3, 50]
    costs = [0, 1, 2, 3, 4, 12, 12, 13, 14, 15, 20]
    data = of_returns([float(r) for r in rewards], [float(c) for c in costs])
    left = which(edits.density(data, Ranges.of(data), Grid(2, 4, cost_bins=2), seed=0))
    assert len(left) == 8
    assert set(left[:4]) < {0, 1, 2, 3, 4}  # a fuller cell is drawn from
    assert left[4:] == [6, 7, 8, 9]  # one that is not too full is left in order
    keeps_one = Grid(2, 4, least=0, cost_bins=2)
    assert set(which(edits.density(data, Ranges.of(data), keeps_one, seed=0))) >= {5, 10}


def test_density_leaves_out_what_lies_beyond_the_ranges():
    grid = Grid(1, 100, least=0, cost_bins=1)
    assert which(edits.density(TEN, Ranges(0.0, 10.0, 20.0, 90.0), grid, seed=0)) == [2, 3, 4, 5]


def test_density_is_seeded():
    grid = Grid(1, 3, least=0, cost_bins=1)
    drawn = [which(edits.density(TEN, RANGES, grid, seed)) for seed in (0, 0, 1)]
    assert drawn[0] == drawn[1] != drawn[2]


def test_density_of_equal_returns():
    same = of_returns([1.0] * 5, [2.0] * 5)
    assert len(edits.density(same, Ranges.of(same), Grid(5, 3), seed=0)) == 3
    with pytest.raises(DataError, match="too sparse"):
        edits.density(same, Ranges.of(same), Grid(5, 9, least=5), seed=0)


def test_the_density_table():
    assert edits.get_grid("CarCircle", 0.5) == Grid(50, 5)
    assert edits.get_grid("BallCircle", 0.75) == Grid(30, 10)
    assert edits.get_grid("PointCircle2", 0.25) == Grid(5, 10)
    assert edits.get_grid("Walker2dVelocity", 0.5) == Grid(10, 22)
    assert {task for task, _ in edits.grids()} < set(public_files())
    with pytest.raises(SafestitchError, match=r"0\.5 and 0\.75 for CarCircle"):
        edits.get_grid("CarCircle", 0.3)
    with pytest.raises(SafestitchError, match="unknown task with a density 'AntVelocity'"):
        edits.get_grid("AntVelocity", 0.5)


# --- outliers ----------------------------------------------------------------------------------


def test_outliers_look_safe_and_rewarding():
    picked = edits.pick_outliers(TEN, RANGES, 0.3, seed=3)
    # Cost >= 10 and reward >= 45 leave episodes 5 to 9; a share of 0.3 is three of ten.
    assert len(set(picked.tolist())) == 3 and set(picked.tolist()) <= {5, 6, 7, 8, 9}
    edited = edits.outliers(TEN, RANGES, 0.3, limit=3.0, seed=3)
    others = np.setdiff1d(np.arange(10), picked)
    assert edited.cost_returns[picked].max() <= 2
    assert np.isin(edited.costs[np.repeat(np.isin(np.arange(10), picked), 4)], (0, 1)).all()
    np.testing.assert_array_equal(edited.returns[picked], 1.5 * TEN.returns[picked])
    np.testing.assert_array_equal(edited.cost_returns[others], TEN.cost_returns[others])
    np.testing.assert_array_equal(edited.returns[others], TEN.returns[others])


def test_there_is_at_least_one_outlier():
    assert len(edits.pick_outliers(TEN, RANGES, 0.0, seed=0)) == 1


@pytest.mark.parametrize(
    ("share", "limit", "words"),
    [
        (0.6, 3.0, "only 5 episodes"),
        (0.1, 0.5, "expected 1 or more"),
        (2.0, 3.0, "share of 0 to 1"),
    ],
)
def test_outliers_that_cannot_be(share: float, limit: float, words: str):
    with pytest.raises(SafestitchError, match=words):
        edits.outliers(TEN, RANGES, share, limit, seed=0)


def test_outliers_longer_than_their_episode():
    with pytest.raises(DataError, match="too few"):
        edits.outliers(TEN, RANGES, 0.5, limit=10_000.0, seed=0)


# --- inpaint, epsilon, noise -------------------------------------------------------------------


def test_inpaint():
    # Costs 5 to 15 are a quarter to three quarters of the range: episodes 2 to 7, rewards 20 to
    # 70. The upper half of that, 45 to 70, are episodes 5, 6 and 7.
    box = (0.25, 0.75, 0.5, 1.0)
    assert which(edits.inpaint(TEN, RANGES, [box])) == [0, 1, 2, 3, 4, 8, 9]
    # What is left in the band then earns 20 to 40; its lower half are episodes 2 and 3.
    second = (0.25, 0.75, 0.0, 0.5)
    assert which(edits.inpaint(TEN, RANGES, [box, second])) == [0, 1, 4, 8, 9]
    assert which(edits.inpaint(TEN, RANGES, [box], spared=[6, 0])) == [0, 1, 2, 3, 4, 8, 9, 6]
    assert which(edits.inpaint(TEN, RANGES, [(0.3, 0.4, 0.0, 1.0)])) == list(range(10))


@pytest.mark.parametrize("box", [(0.5, 0.2, 0.0, 1.0), (0.0, 1.5, 0.0, 1.0), (0.0, 1.0, -0.1, 1.0)])
def test_boxes_that_cannot_be(box):
    with pytest.raises(SafestitchError, match="expected shares"):
        edits.inpaint(TEN, RANGES, [box])


def test_nothing_left_to_inpaint():
    with pytest.raises(DataError, match="no episode of 10"):
        edits.inpaint(TEN, RANGES, [(0.0, 1.0, 0.0, 1.0)])


def test_epsilon():
    # Safe: 0 to 5, the best earns 50.
    assert which(edits.epsilon(TEN, 10.0, 20.0)) == [0, 1, 2, 6, 7, 8, 9]
    # Not safe: 6 to 9, the best earns 90.
    assert which(edits.epsilon(TEN, 10.0, -10.0)) == [0, 1, 2, 3, 4, 5, 6, 7]
    assert which(edits.epsilon(TEN, 10.0, 0.0)) == list(range(10))
    assert which(edits.epsilon(TEN, 20.0, -5.0)) == list(range(10))


def test_noise():
    edited = edits.noise(TEN, 0.1, seed=0)
    added = edited.observations - TEN.observations
    # The observations are 0 to 39: their standard deviation is sqrt((40^2 - 1) / 12) = 11.54.
    assert added.std() == pytest.approx(1.154, rel=0.3)
    assert abs(added.mean()) < 0.6
    assert edited.final_observations is not None and TEN.final_observations is not None
    assert (edited.final_observations != TEN.final_observations).all()
    np.testing.assert_array_equal(edited.returns, TEN.returns)
    assert edits.noise(TEN, 0.1, seed=0).fingerprint == edited.fingerprint
    assert edits.noise(TEN, 0.0, seed=0).fingerprint == TEN.fingerprint
    with pytest.raises(SafestitchError, match="expected 0 or more"):
        edits.noise(TEN, -0.1, seed=0)


# --- cutting -----------------------------------------------------------------------------------


def test_clip_cost_keeps_the_limit_itself():
    assert which(edits.clip_cost(TEN, 10.0)) == [0, 1, 2, 3, 4, 5]
    assert edits.clip_cost(TEN, 20.0).fingerprint == TEN.fingerprint
    with pytest.raises(DataError, match="costs more than -1"):
        edits.clip_cost(TEN, -1.0)


def test_subsample():
    left = which(edits.subsample(TEN, 0.3, seed=0))
    assert len(left) == 3 and left == sorted(left)
    assert which(edits.subsample(TEN, 0.3, seed=0)) == left
    assert len(edits.subsample(TEN, 0.001, seed=0)) == 1
    assert which(edits.subsample(TEN, 1.0, seed=0)) == list(range(10))
    with pytest.raises(SafestitchError, match="share of 0 to 1"):
        edits.subsample(TEN, 0.0, seed=0)


@given(share=st.floats(0.001, 0.999), seed=st.integers(0, 5))
def test_split_loses_and_repeats_nothing(share: float, seed: int):
    training, validation = (which(part) for part in edits.split(TEN, share, seed))
    assert sorted(training + validation) == list(range(10))
    assert len(validation) == min(max(round(10 * share), 1), 9)


def test_splits_that_cannot_be():
    with pytest.raises(DataError, match="one episode only"):
        edits.split(TEN.select(np.array([0])), 0.5, seed=0)
    with pytest.raises(SafestitchError, match="between 0 and 1"):
        edits.split(TEN, 1.0, seed=0)


def test_nothing_is_changed_in_place():
    before = TEN.fingerprint
    edits.outliers(TEN, RANGES, 0.3, 3.0, 0)
    edits.noise(TEN, 1.0, 0)
    edits.density(TEN, RANGES, Grid(1, 3, least=0), 0)
    columns = {f.name: getattr(TEN, f.name).copy() for f in dataclasses.fields(TEN)}
    assert Episodes(**columns).fingerprint == before
