"""What data reach, beside the public data: numbers worked by hand."""

import math

import numpy as np
import pytest

from safestitch.catalog import catalog, get_entry
from safestitch.data.coverage import LEVELS, compare, cover, public_frontier, tenth


def test_tenths_of_the_cost_range():
    found = tenth(np.array([0.0, 7.0, 8.0, 72.0, 79.0, 80.0, 80.5]), 80.0)
    assert found.tolist() == [0, 0, 1, 9, 9, 9, 10]
    assert tenth(np.array([0.0, 1.0]), 0.0).tolist() == [0, 10]


def test_coverage_worked_by_hand():
    rewards, costs = np.array([5.0, 3.0, 9.0, 1.0]), np.array([2.0, 0.0, 10.0, 10.0])
    found = cover(rewards, costs, 10.0, steps=40)
    assert (found.episodes, found.steps) == (4, 40)
    assert (found.reward_min, found.reward_max, found.cost_min, found.cost_max) == (1, 9, 0, 10)
    assert found.tenths == (0.25, 0, 0.25, 0, 0, 0, 0, 0, 0, 0.5)
    assert found.frontier == (3, 3, 5, 5, 5, 5, 5, 5, 5, 5, 9)


def test_no_episode_is_cheap_enough():
    found = cover(np.array([1.0]), np.array([5.0]), 10.0)
    assert math.isnan(found.frontier[4]) and found.frontier[5] == 1.0


def test_the_public_frontier_never_falls():
    for task in catalog():
        values = public_frontier(task)
        assert len(values) == len(LEVELS)
        assert list(values) == sorted(values)
        # It was read off a picture.
        assert values[-1] == pytest.approx(catalog()[task].reward_max, rel=0.03)
    assert public_frontier("AntRun")[:4] == (693.8, 696.3, 696.3, 705.1)


def test_comparison():
    entry = get_entry("BallRun")
    public = np.array(public_frontier("BallRun"))
    costs = np.array([level * 80.0 for level in LEVELS])
    beside = compare(cover(public * 0.95, costs, 80.0), entry)
    assert beside.ratios == pytest.approx([0.95] * 11)
    assert beside.covers and not beside.spans  # the least reward is 0.95 x 443.8
    assert compare(cover(public * 0.951, costs, 80.0), entry).reaches
    assert not compare(cover(public * 0.949, costs, 80.0), entry).reaches
    with_hopeless = compare(cover(np.append(public, 30.0), np.append(costs, 3.0), 80.0), entry)
    assert with_hopeless.spans
    assert with_hopeless.reward_gap == pytest.approx((30 - 26.339754) / 1327.445557)
    assert compare(cover(public, costs, 80.0), get_entry("AntRun")).least_ratio == 0.85


def test_a_frontier_without_cheap_episodes_is_not_reached():
    beside = compare(cover(np.array([9e3]), np.array([80.0]), 80.0), get_entry("BallRun"))
    assert not beside.reaches
