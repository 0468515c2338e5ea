"""DSRL files: what DSRL itself reads and writes, and what no honest file holds."""

import dataclasses
import os
import random
import subprocess
import sys
import time
import tracemalloc
import warnings
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from safestitch.data import dsrl, hdf5
from safestitch.episodes import Episodes
from safestitch.records import DataError, DataNote, SafestitchError

SEVEN = {*dsrl.KEYS.values(), dsrl.NEXT}


def columns(**changes: Any) -> dict[str, Any]:
    """Two episodes of 2 and 3 steps as DSRL stores them; the first one terminated."""
    worked = {
        "observations": np.arange(10, dtype=np.float32).reshape(5, 2),
        "next_observations": np.arange(10, dtype=np.float32).reshape(5, 2) + 100,
        "actions": np.arange(5, dtype=np.float32).reshape(5, 1) / 10,
        "rewards": np.array([1, 2, 4, 8, 16], np.float32),
        "costs": np.array([0, 1, 0, 0, 1], np.float32),
        "terminals": np.array([0, 1, 0, 0, 0], bool),
        "timeouts": np.array([0, 0, 0, 0, 1], bool),
    }
    return {k: v for k, v in {**worked, **changes}.items() if v is not None}


def store(path: Path, **changes: Any) -> Path:
    with h5py.File(path, "w") as file:
        for key, values in columns(**changes).items():
            file.create_dataset(key, data=values, compression="gzip")
    return path


def spoil(path: Path, key: str, make: Any) -> Path:
    """A good file with one array replaced by what `make(file, key)` puts there."""
    store(path)
    with h5py.File(path, "a") as file:
        del file[key]
        make(file, key)
    return path


# --- reading -----------------------------------------------------------------------------------


def test_values_worked_by_hand(tmp_path):
    data = dsrl.read(store(tmp_path / "a.hdf5"))
    assert data.offsets.tolist() == [0, 2, 5]
    assert data.returns.tolist() == [3.0, 28.0]
    assert data.cost_returns.tolist() == [1.0, 1.0]
    assert data.terminated.tolist() == [False, True, False, False, False]
    assert data.truncated.tolist() == [False, False, False, False, True]
    assert data.observations[3].tolist() == [6.0, 7.0]
    assert data.final_observations is None
    assert data.next_observations()[:, 0].tolist() == [2, 2, 6, 8, 8]


def test_stored_final_observations(tmp_path):
    data = dsrl.read(store(tmp_path / "a.hdf5"), final_observations=True)
    assert data.final_observations is not None
    assert data.final_observations.tolist() == [[102.0, 103.0], [108.0, 109.0]]
    assert data.next_observations()[:, 0].tolist() == [2, 102, 6, 8, 108]


def test_next_observations_are_optional(tmp_path):
    path = store(tmp_path / "a.hdf5", next_observations=None)
    assert dsrl.read(path, final_observations=True).final_observations is None


@pytest.mark.parametrize("dtype", ["f8", ">f4", "f2", "i4", "u1", "?"])
def test_columns_of_other_types_and_one_wide(tmp_path, dtype):
    changed = {
        "rewards": np.array([[1], [0], [1], [0], [1]]).astype(dtype),
        "costs": np.array([0, 1, 0, 0, 1]).astype(dtype),
        "terminals": columns()["terminals"].astype(dtype)[:, None],
        "timeouts": columns()["timeouts"].astype(dtype),
    }
    data = dsrl.read(store(tmp_path / "a.hdf5", **changed))
    assert data.rewards.tolist() == [1, 0, 1, 0, 1]
    assert data.costs.tolist() == [0, 1, 0, 0, 1]
    assert data.offsets.tolist() == [0, 2, 5]
    assert {data.rewards.dtype, data.costs.dtype} == {np.dtype(np.float32)}
    assert data.terminated.dtype == bool


def test_an_unfinished_end_is_dropped_with_a_note(tmp_path):
    path = store(tmp_path / "a.hdf5", timeouts=np.zeros(5, bool))
    with pytest.warns(DataNote, match=r"a\.hdf5: dropped the last 3 rows"):
        data = dsrl.read(path)
    assert data.offsets.tolist() == [0, 2]


def test_an_unfinished_end_is_kept_on_request(tmp_path):
    path = store(tmp_path / "a.hdf5", timeouts=np.zeros(5, bool))
    data = dsrl.read(path, unfinished="keep")
    assert data.offsets.tolist() == [0, 2, 5]
    assert data.truncated.tolist() == [False] * 4 + [True]


def test_no_episode_ends(tmp_path):
    path = store(tmp_path / "a.hdf5", timeouts=np.zeros(5), terminals=np.zeros(5))
    with pytest.raises(DataError, match=r"a\.hdf5: no episode of the 5 rows ends"):
        dsrl.read(path)
    assert len(dsrl.read(path, unfinished="keep")) == 1


@given(st.lists(st.integers(1, 9), min_size=1, max_size=8), st.integers(1, 12))
def test_blocks_are_the_whole_in_pieces(tmp_path_factory, episodes_of, same, lengths, rows):
    path = tmp_path_factory.mktemp("blocks") / "a.hdf5"
    data = episodes_of(lengths, final=True)
    dsrl.write(path, data)
    blocks = list(dsrl.read_blocks(path, rows=rows))
    same(Episodes.join(blocks), data)
    assert all(len(block) == 1 or block.steps <= rows for block in blocks)


# --- the real reader ---------------------------------------------------------------------------


@pytest.mark.parametrize("lengths", [[1], [3, 1, 4, 1, 5], [700, 300]])
def test_the_dsrl_package_reads_what_we_write(tmp_path, episodes_of, dsrl_reader, lengths):
    data = episodes_of(lengths, final=True)
    dsrl.write(tmp_path / "a.hdf5", data)
    found = dsrl_reader(tmp_path / "a.hdf5")
    assert set(found) == SEVEN
    for column, key in dsrl.KEYS.items():
        ours = getattr(data, column)
        assert (found[key].dtype, found[key].tobytes()) == (ours.dtype, ours.tobytes())
    assert found[dsrl.NEXT].tobytes() == data.next_observations().tobytes()


def test_we_read_what_the_dsrl_package_reads(tmp_path, dsrl_reader):
    changes = {"rewards": columns()["rewards"][:, None], "observations": np.ones((5, 2))}
    path = store(tmp_path / "a.hdf5", **changes)
    theirs, ours = dsrl_reader(path, 2, 1), dsrl.read(path)
    for column, key in dsrl.KEYS.items():
        assert getattr(ours, column).tobytes() == theirs[key].tobytes()


# --- writing -----------------------------------------------------------------------------------


def test_the_layout_is_dsrls(tmp_path, episodes_of):
    dsrl.write(tmp_path / "a.hdf5", episodes_of([3, 2]), provenance={"from": "a test"})
    with h5py.File(tmp_path / "a.hdf5") as file:
        arrays = {key: file[key] for key in file}
        assert set(arrays) == SEVEN
        assert {str(a.dtype) for a in arrays.values()} == {"float32", "bool"}  # pyright: ignore
        assert {a.compression for a in arrays.values()} == {"gzip"}  # pyright: ignore
    assert dsrl.provenance(tmp_path / "a.hdf5") == {"from": "a test"}


@given(
    st.lists(st.integers(1, 30), min_size=1, max_size=6),
    st.integers(1, 5),
    st.booleans(),
    st.booleans(),
)
def test_round_trip(tmp_path_factory, episodes_of, same, lengths, observations, exact, final):
    path = tmp_path_factory.mktemp("trip") / "a.hdf5"
    data = episodes_of(lengths, observations, final=final)
    dsrl.write(path, data, exact=exact)
    found = dsrl.read(path, final_observations=True)
    if exact and not final:  # what nobody saw is stored as the last that was seen
        assert found.final_observations is not None
        repeated = data.observations[data.offsets[1:] - 1]
        assert found.final_observations.tobytes() == repeated.tobytes()
        data = dataclasses.replace(data, final_observations=repeated)
    same(found, data)
    same(dsrl.read(path), dataclasses.replace(data, final_observations=None))


def test_a_compact_file_has_no_next_observations(tmp_path, episodes_of, same):
    parts = [episodes_of([4, 2], final=True), episodes_of([3])]
    dsrl.write(tmp_path / "a.hdf5", parts[0], exact=False)
    with h5py.File(tmp_path / "a.hdf5") as file:
        assert set(file) == {*dsrl.KEYS.values(), dsrl.FINAL}
    same(dsrl.read(tmp_path / "a.hdf5", final_observations=True), parts[0])
    with dsrl.Writer(tmp_path / "b.hdf5", exact=False) as writer:
        for part in parts:
            writer.append(part)
    same(dsrl.read(tmp_path / "b.hdf5", final_observations=True), Episodes.join(parts))


def test_appending_equals_writing_at_once(tmp_path, episodes_of, same):
    parts = [episodes_of([40, 3], seed=i, final=True) for i in range(5)]
    with dsrl.Writer(tmp_path / "a.hdf5") as writer:
        for part in parts:
            writer.append(part)
    same(dsrl.read(tmp_path / "a.hdf5", final_observations=True), Episodes.join(parts))


def test_a_failed_write_leaves_what_was_there(tmp_path, episodes_of, same):
    path = tmp_path / "a.hdf5"
    before = episodes_of([3])
    dsrl.write(path, before)
    with pytest.raises(DataError, match="dimensions"), dsrl.Writer(path) as writer:
        writer.append(episodes_of([4]))
        writer.append(episodes_of([4], observations=5))
    with pytest.raises(DataError, match="no episodes were given"), dsrl.Writer(path):
        pass
    same(dsrl.read(path), before)
    assert [p.name for p in tmp_path.iterdir()] == ["a.hdf5"]


def test_a_place_that_cannot_be_written(tmp_path, episodes_of):
    with pytest.raises(SafestitchError, match=r"cannot write .*a\.hdf5"):
        dsrl.write(tmp_path / "missing" / "a.hdf5", episodes_of([3]))


KILLED = """
import sys, numpy as np
from safestitch.data import dsrl
from safestitch.episodes import Episodes
n = 2000
ends = np.arange(n) % 100 == 99
part = Episodes.of(np.ones((n, 8)), np.ones((n, 2)), np.ones(n), np.ones(n), ends, ends)
with dsrl.Writer(sys.argv[1]) as writer:
    print("begun", flush=True)
    for _ in range(10**6):
        writer.append(part)
"""


def test_a_kill_leaves_nothing_that_looks_whole(tmp_path):
    path = tmp_path / "a.hdf5"
    command = [sys.executable, "-c", KILLED, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout and process.stdout.readline() == "begun\n"
        time.sleep(random.uniform(0, 0.5))
        process.kill()
    assert not path.exists()
    assert all(p.suffix == ".tmp" for p in tmp_path.iterdir())


# --- files that nobody vouches for -------------------------------------------------------------


def refused(path: Path, *parts: str) -> None:
    with pytest.raises(DataError) as caught:
        dsrl.read(path)
    for part in (str(path), *parts):
        assert part in str(caught.value), str(caught.value)


@pytest.mark.parametrize("key", sorted(SEVEN - {dsrl.NEXT}))
def test_a_missing_key(tmp_path, key):
    refused(store(tmp_path / "a.hdf5", **{key: None}), f"{key} is missing")


@pytest.mark.parametrize(
    ("key", "values", "part"),
    [
        ("rewards", np.zeros(4, np.float32), "rewards has shape (4,), expected (5,)"),
        ("costs", np.zeros((5, 2), np.float32), "costs has shape (5, 2), expected (5,)"),
        ("actions", np.zeros(5, np.float32), "actions has shape (5,), expected (5, dimensions)"),
        ("actions", np.zeros((5, 1, 1)), "actions has shape (5, 1, 1)"),
        ("terminals", np.full(5, 0.5), "terminals: row 0: expected true/false or 0/1, got 0.5"),
        ("timeouts", np.array([0, 0, 0, 0, np.nan]), "timeouts: row 4"),
        ("rewards", np.array([0, 1, np.nan, 1, 1]), "rewards: episode 1, row 2"),
        ("costs", np.array([0, -1, 0, 1, 1]), "costs: episode 0, row 1"),
        ("observations", np.full((5, 2), 1e300), "observations: episode 0, row 0"),
    ],
)
def test_wrong_shapes_and_values(tmp_path, key, values, part):
    refused(store(tmp_path / "a.hdf5", **{key: values}), part)


def group(file: h5py.File, key: str) -> None:
    file.create_group(key)["inner"] = np.zeros(5)


def external_link(file: h5py.File, key: str) -> None:
    file[key] = h5py.ExternalLink("other.hdf5", "rewards")


def soft_link(file: h5py.File, key: str) -> None:
    file[key] = h5py.SoftLink("/costs")


def external_storage(file: h5py.File, key: str) -> None:
    file.create_dataset(key, (5,), "f4", external=[("/etc/hostname", 0, 20)])


def virtual(file: h5py.File, key: str) -> None:
    layout = h5py.VirtualLayout((5,), "f4")
    layout[:] = h5py.VirtualSource("other.hdf5", "rewards", (5,))
    file.create_virtual_dataset(key, layout)


def filtered(file: h5py.File, key: str) -> None:
    file.create_dataset(key, data=np.arange(5), chunks=(5,), scaleoffset=0)


HOSTILE = {
    "group": (group, "is a group"),
    "external link": (external_link, "is a link to elsewhere"),
    "soft link": (soft_link, "is a link to elsewhere"),
    "dangling link": (lambda f, k: f.__setitem__(k, h5py.SoftLink("/no")), "is a link"),
    "external storage": (external_storage, "keeps its values in another file"),
    "virtual": (virtual, "is a virtual array"),
    "filter": (filtered, "is stored with filter"),
    "strings": (lambda f, k: f.__setitem__(k, ["a"] * 5), "expected numbers"),
    "bytes": (lambda f, k: f.__setitem__(k, np.array([b"abc"] * 5)), "expected numbers"),
    "records": (lambda f, k: f.__setitem__(k, np.zeros(5, "f4,f4")), "expected numbers"),
    "complex": (lambda f, k: f.__setitem__(k, np.zeros(5, "c8")), "expected numbers"),
    "references": (
        lambda f, k: f.create_dataset(k, (5,), h5py.ref_dtype),
        "expected numbers",
    ),
    "enum": (
        lambda f, k: f.create_dataset(k, (5,), h5py.enum_dtype({"A": 3, "B": 4})),
        "expected numbers",
    ),
    "array type": (lambda f, k: f.create_dataset(k, (5,), np.dtype("(3,)f4")), "rewards"),
    "scalar": (lambda f, k: f.__setitem__(k, 3.0), "is a single value"),
    "empty": (lambda f, k: f.__setitem__(k, h5py.Empty("f4")), "is a single value"),
    "huge, plain": (lambda f, k: f.create_dataset(k, (10**12,), "f4"), "bytes"),
    "huge, compressed": (
        lambda f, k: f.create_dataset(k, (10**12,), "f4", chunks=(1000,), compression="gzip"),
        "declares 4000000000000 bytes",
    ),
    "huge chunk": (
        lambda f, k: f.create_dataset(k, (5,), "f4", chunks=(10**9,), maxshape=(None,)),
        "rewards",
    ),
    "never written": (
        lambda f, k: f.create_dataset(k, (5,), "f4", chunks=(5,), compression="gzip"),
        "has 0 of 1 chunks",
    ),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_arrays_that_are_not_plain_numbers(tmp_path, kind):
    store(tmp_path / "other.hdf5")
    make, part = HOSTILE[kind]
    refused(spoil(tmp_path / "a.hdf5", "rewards", make), "rewards", part)


def test_a_file_cut_short(tmp_path, episodes_of):
    dsrl.write(tmp_path / "a.hdf5", episodes_of([300, 300]))
    whole = (tmp_path / "a.hdf5").read_bytes()
    for size in (0, 7, 100, len(whole) // 2, len(whole) - 1):
        (tmp_path / "a.hdf5").write_bytes(whole[:size])
        refused(tmp_path / "a.hdf5")


@pytest.mark.parametrize(
    "content", [b"", b"<!DOCTYPE html><html>", b"\x89HDF\r\n\x1a\n" + b"\0" * 99]
)
def test_files_of_something_else(tmp_path, content):
    (tmp_path / "a.hdf5").write_bytes(content)
    refused(tmp_path / "a.hdf5", "is not a whole HDF5 file")


def test_no_file(tmp_path):
    refused(tmp_path / "a.hdf5", "no file")
    refused(tmp_path, "no file")


def test_what_does_not_fit_into_memory_is_refused(tmp_path, monkeypatch, episodes_of):
    path = tmp_path / "a.hdf5"
    dsrl.write(path, episodes_of([30, 20]))
    monkeypatch.setattr(hdf5, "available_memory", lambda: 1000)
    refused(path, "GB of memory are free", "safestitch data convert")


def test_a_bomb_is_refused_before_it_is_unpacked(tmp_path):
    n = 3 * 10**6  # 480 MB of zeros in half a megabyte
    zeros = {key: np.zeros(n, np.float32) for key in SEVEN - {dsrl.NEXT}}
    zeros |= {"observations": np.zeros((n, 40), np.float32), "actions": np.zeros((n, 1))}
    path = store(tmp_path / "a.hdf5", **zeros)
    tracemalloc.start()
    refused(path, "over 100 times as much", "without compression")
    assert tracemalloc.get_traced_memory()[1] < 2**20
    tracemalloc.stop()


def test_flipped_bits_give_an_error_or_data(tmp_path, episodes_of):
    path = tmp_path / "a.hdf5"
    dsrl.write(path, episodes_of([30, 20]))
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    outcomes = {"read": 0, "refused": 0}
    for _ in range(300):
        mutated = bytearray(whole)
        for place in rng.integers(0, len(whole), 3):
            mutated[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(mutated)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DataNote)
                dsrl.read(path)
            outcomes["read"] += 1
        except DataError as error:
            assert str(path) in str(error)
            outcomes["refused"] += 1
    assert min(outcomes.values()) > 0, outcomes


def test_nothing_outside_is_opened(tmp_path):
    """The kernel's own record: no file but ours is opened for a link or outside storage."""
    secret = tmp_path / "other.hdf5"
    store(secret)
    before = os.stat(secret).st_atime_ns
    for i, make in enumerate((external_link, virtual)):
        refused(spoil(tmp_path / f"{i}.hdf5", "rewards", make), "rewards")
    assert os.stat(secret).st_atime_ns == before
