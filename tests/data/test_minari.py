"""Minari data sets: with the real package, and through DSRL and back."""

import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from safestitch.data import dsrl
from safestitch.data import minari as ours
from safestitch.records import DataError, DataNote

theirs: Any = pytest.importorskip("minari")


@pytest.fixture
def written(tmp_path, episodes_of):
    data = episodes_of([4, 1, 3], final=True)
    ours.write(tmp_path / "chain-v0", data, provenance={"from": "a test"})
    return tmp_path / "chain-v0", data


def change(path: Path, key: str, values: Any) -> None:
    with h5py.File(path / "data" / ours.MAIN, "a") as file:
        del file[key]
        if values is not None:
            file[key] = values


# --- round trips -------------------------------------------------------------------------------


@given(
    st.lists(st.integers(1, 12), min_size=1, max_size=6),
    st.integers(1, 4),
    st.integers(1, 3),
    st.booleans(),
)
def test_dsrl_to_minari_to_dsrl(
    tmp_path_factory, episodes_of, same, lengths, observations, actions, logged
):
    """Bit-equal files: every array of the DSRL file, next_observations included."""
    place = tmp_path_factory.mktemp("trip")
    data = episodes_of(lengths, observations, actions, seed=len(lengths), final=logged)
    dsrl.write(place / "a.hdf5", data)
    first = dsrl.read(place / "a.hdf5", final_observations=True)
    ours.write(place / "a-v0", first)
    second = ours.read(place / "a-v0")
    same(second, first)
    dsrl.write(place / "b.hdf5", second)
    with h5py.File(place / "a.hdf5") as a, h5py.File(place / "b.hdf5") as b:
        assert set(a) == set(b) == {*dsrl.KEYS.values(), dsrl.NEXT}
        for key in a:
            one, other = (np.asarray(file[key]) for file in (a, b))
            assert (one.dtype, one.tobytes()) == (other.dtype, other.tobytes()), key


def test_blocks_are_the_whole_in_pieces(written, same):
    path, data = written
    blocks = list(ours.read_blocks(path, rows=4))
    assert [len(block) for block in blocks] == [1, 2]
    same(type(data).join(blocks), data)


# --- the real package --------------------------------------------------------------------------


def test_minari_reads_what_we_write(written, monkeypatch):
    path, data = written
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(path.parent))
    dataset = theirs.load_dataset("chain-v0")
    assert (dataset.total_episodes, dataset.total_steps) == (3, 8)
    assert dataset.observation_space.shape == (3,)
    assert dataset.action_space.shape == (2,)
    for found, expected, final in zip(
        dataset.iterate_episodes(), data, data.final_observations, strict=True
    ):
        assert np.array_equal(found.observations[:-1], expected["observations"])
        assert np.array_equal(found.observations[-1], final)
        assert np.array_equal(found.actions, expected["actions"])
        assert np.array_equal(found.rewards, expected["rewards"])
        assert np.array_equal(found.terminations, expected["terminated"])
        assert np.array_equal(found.truncations, expected["truncated"])
        assert found.infos["cost"].tolist() == [0, *expected["costs"]]


@pytest.mark.filterwarnings("ignore::UserWarning:minari")  # of metadata that nobody gave
@pytest.mark.parametrize("reset", [True, False])
def test_we_read_what_minari_writes(tmp_path, monkeypatch, episodes_of, same, reset):
    gymnasium: Any = pytest.importorskip("gymnasium")
    from minari.data_collector import EpisodeBuffer  # noqa: PLC0415

    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    data = episodes_of([4, 1, 3], final=True)
    buffers = [
        EpisodeBuffer(
            observations=[*episode["observations"], final],
            actions=list(episode["actions"]),
            rewards=episode["rewards"].tolist(),
            terminations=episode["terminated"].tolist(),
            truncations=episode["truncated"].tolist(),
            infos={"cost": [0.0] * reset + episode["costs"].tolist()},
        )
        for episode, final in zip(data, data.final_observations, strict=True)
    ]
    box = gymnasium.spaces.Box
    theirs.create_dataset_from_buffers(
        "test/chain-v3",
        buffers,
        observation_space=box(-np.inf, np.inf, (3,), np.float32),
        action_space=box(-1, 1, (2,), np.float32),
    )
    same(ours.read(tmp_path / "test" / "chain-v3"), data)
    same(ours.read(tmp_path / "test" / "chain-v3" / "data"), data)


# --- malformed ---------------------------------------------------------------------------------


def refused(path: Path, *parts: str, **options: Any) -> None:
    with pytest.raises(DataError) as caught:
        ours.read(path, **options)
    for part in (str(path), *parts):
        assert part in str(caught.value), str(caught.value)


def test_the_cost_under_another_name(written, same):
    path, data = written
    with h5py.File(path / "data" / ours.MAIN, "a") as file:
        for i in range(3):
            file.move(f"episode_{i}/infos/cost", f"episode_{i}/infos/safety/hazard")
    refused(path, "holds no 'cost' but safety: name the key of the cost")
    same(ours.read(path, cost="safety/hazard"), data)


@pytest.mark.parametrize(
    ("key", "values", "part"),
    [
        ("observations", np.zeros((4, 3)), "observations has shape (4, 3), expected 5 rows"),
        ("observations", np.zeros(5), "observations has shape (5,)"),
        ("actions", np.zeros((3, 2)), "actions has shape (3, 2), expected 4 rows"),
        ("infos/cost", np.zeros(3), "cost has shape (3,), expected 5 rows"),
        ("infos/cost", np.full(5, -1.0), "costs: episode 0, row 0"),
        ("rewards", np.full(4, np.nan), "rewards: episode 0, row 0"),
        ("rewards", None, "rewards is missing"),
        ("rewards", ["a"] * 4, "expected numbers"),
        ("terminations", np.array([1, 0, 0, 1]), "set before the last step"),
        ("terminations", np.array([2, 0, 0, 1]), "terminated: row 0"),
        ("observations", np.full((5, 3), np.inf), "observations: episode 0, row 0"),
        ("rewards", h5py.ExternalLink("other.hdf5", "x"), "is a link to elsewhere"),
    ],
)
def test_malformed_episodes(written, key, values, part):
    path, _ = written
    change(path, f"episode_0/{key}", values)
    refused(path, "episode_0", part)


def test_a_missing_episode(written):
    change(written[0], "episode_1", None)
    refused(written[0], "episode_1 is missing")


def test_an_episode_without_an_end(written):
    path, _ = written
    for key in ("terminations", "truncations"):
        change(path, f"episode_0/{key}", np.zeros(4, bool))
    with pytest.warns(DataNote, match="/episode_0 has no end: taken as truncated"):
        assert ours.read(path).truncated[3]


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"data_format": "arrow"}, "data_format is 'arrow'"),
        ({"total_episodes": 0}, "total_episodes is 0"),
        ({"total_episodes": "3"}, "total_episodes is '3'"),
        ({"total_episodes": 10**18}, "episode_3 is missing"),
    ],
)
def test_metadata_that_lie(written, changes, part):
    path, _ = written
    metadata = path / "data" / ours.METADATA
    metadata.write_text(json.dumps({**json.loads(metadata.read_text()), **changes}))
    refused(path, part)


def test_what_exists_is_not_replaced_and_failures_leave_nothing(written, episodes_of, same):
    path, data = written
    with pytest.raises(DataError, match="exists already"):
        ours.write(path, data)
    same(ours.read(path), data)
    with pytest.raises(DataError, match="dimensions"), ours.Writer(path.with_name("b")) as writer:
        writer.append(episodes_of([4]))
        writer.append(episodes_of([4], observations=5))
    assert [p.name for p in path.parent.iterdir()] == [path.name]
