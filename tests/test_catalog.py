"""The table of the field's tasks."""

import pytest

from safestitch.catalog import catalog, get_entry, get_public, public_files
from safestitch.records import SafestitchError

BULLET = {
    f"{robot}{task}" for robot in ("Ant", "Ball", "Car", "Drone") for task in ("Run", "Circle")
}
MUJOCO = {f"{robot}Circle{level}" for robot in ("Point", "Car") for level in (1, 2)} | {
    f"{robot}Velocity" for robot in ("Hopper", "HalfCheetah", "Swimmer", "Walker2d", "Ant")
}


TRAFFIC = ("sparse", "mean", "dense")


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


MORE = {
    f"{robot}{task}{level}"
    for robot in ("Point", "Car")
    for task in ("Button", "Goal", "Push")
    for level in (1, 2)
} | {f"{road}{traffic}" for road in ("easy", "medium", "hard") for traffic in TRAFFIC}


def test_all_38_public_files():
    assert set(public_files()) == BULLET | MUJOCO | MORE
    assert len(public_files()) == 38
    assert len({entry.dsrl_file for entry in public_files().values()}) == 38


@pytest.mark.parametrize("entry", public_files().values(), ids=lambda e: e.task)
def test_a_public_file_is_named_for_what_it_holds(entry):
    assert entry.dsrl_file.endswith(f"-{entry.cost_range:.0f}-{entry.trajectories}.hdf5")
    assert 0 <= entry.cost_min < entry.cost_max < entry.cost_range + 0.5
    assert 0 <= entry.reward_min < entry.reward_max
    assert (entry.obs_dim, entry.act_dim) > (6, 1)


def test_names_of_a_public_file():
    for name in (
        "CarGoal1",
        "OfflineCarGoal1Gymnasium-v0",
        "SafetyCarGoal1Gymnasium-v0-120-1671.hdf5",
    ):
        assert get_public(name).task == "CarGoal1"
    assert get_public("OfflineHopperVelocityGymnasium-v1").task == "HopperVelocity"
    assert get_public("OfflineCarCircle-v0").task == "CarCircle"
    assert get_public("OfflineMetadrive-hardmean-v0").reward_max == 486.9967956542969
    with pytest.raises(SafestitchError, match="CarGoal2"):
        get_public("CarGoal3")
    with pytest.raises(SafestitchError, match="unknown task"):
        get_entry("CarGoal1")
