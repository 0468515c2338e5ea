"""The table of the field's tasks."""

import pytest

from safestitch.catalog import catalog, get_entry
from safestitch.records import SafestitchError

BULLET = {
    f"{robot}{task}" for robot in ("Ant", "Ball", "Car", "Drone") for task in ("Run", "Circle")
}
MUJOCO = {f"{robot}Circle{level}" for robot in ("Point", "Car") for level in (1, 2)} | {
    f"{robot}Velocity" for robot in ("Hopper", "HalfCheetah", "Swimmer", "Walker2d", "Ant")
}


def test_the_seventeen_tasks():
    assert set(catalog()) == BULLET | MUJOCO
    assert {name for name, entry in catalog().items() if entry.suite == "bullet"} == BULLET


def test_an_entry():
    entry = get_entry("CarCircle")
    assert (entry.env_id, entry.obs_dim, entry.act_dim) == ("SafetyCarCircle-v0", 8, 2)
    assert (entry.horizon, entry.cost_range, entry.trajectories) == (300, 100.0, 1450)
    assert entry.reward_max == 534.3060913085938
    assert (entry.spec.task, entry.spec.cost_range) == ("CarCircle", 100.0)
    assert (entry.spec.action_low, entry.spec.action_high) == (-1.0, 1.0)


@pytest.mark.parametrize("entry", catalog().values(), ids=lambda e: e.task)
def test_numbers_are_plausible(entry):
    assert 0 <= entry.reward_min < entry.reward_max
    assert 0 < entry.cost_max <= entry.cost_range <= entry.horizon
    assert entry.dsrl_file.startswith("Safety")
    # The file name repeats the cost range and the number of episodes.
    assert entry.dsrl_file.endswith(f"-{entry.cost_range:.0f}-{entry.trajectories}.hdf5")


def test_unknown_name():
    with pytest.raises(SafestitchError, match="CarCircle"):
        get_entry("CarCirle")
