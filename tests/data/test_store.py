"""The memory-mapped set: what it gives back, and what is never taken for a whole one."""

import json
import math
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from safestitch.data import store
from safestitch.episodes import COLUMNS, Episodes
from safestitch.records import DataError, SafestitchError


@pytest.fixture
def small(tmp_path, episodes_of):
    data = episodes_of([4, 2, 5], final=True)
    store.write(tmp_path / "a.store", data, provenance={"from": "a test"})
    return tmp_path / "a.store", data


def is_mapped(array: np.ndarray) -> bool:
    while isinstance(array, np.ndarray):
        if isinstance(array, np.memmap):
            return True
        array = array.base  # pyright: ignore[reportAssignmentType]
    return False


@given(st.lists(st.integers(1, 30), min_size=1, max_size=9), st.integers(1, 4), st.booleans())
def test_round_trip(tmp_path_factory, episodes_of, same, lengths, observations, final):
    path = tmp_path_factory.mktemp("trip") / "a.store"
    data = episodes_of(lengths, observations, final=final)
    store.write(path, data)
    same(store.read(path), data)
    store.verify(path)


def test_facts_come_with_it(small):
    path, data = small
    found = store.read(path)
    assert {"lengths", "returns", "cost_returns", "fingerprint"} <= set(vars(found))  # not computed
    assert found.fingerprint == data.fingerprint
    for name in ("lengths", "returns", "cost_returns"):
        assert getattr(found, name).tolist() == getattr(data, name).tolist()
    assert repr(found) == repr(data)
    assert store.provenance(path) == {"from": "a test"}


def test_columns_are_memory_maps_that_nobody_writes(small):
    found = store.read(small[0])
    for name in COLUMNS:
        column = getattr(found, name)
        assert is_mapped(column), name
        with pytest.raises(ValueError, match="read-only"):
            column[0] = 0


def test_appending_equals_writing_at_once(tmp_path, episodes_of, same):
    parts = [episodes_of([40, 3], seed=i, final=True) for i in range(5)]
    with store.Writer(tmp_path / "a.store") as writer:
        for part in parts:
            writer.append(part)
    same(store.read(tmp_path / "a.store"), Episodes.join(parts))


def test_final_observations_of_some_only_are_left_out(tmp_path, episodes_of, same):
    parts = [episodes_of([4], final=True), episodes_of([3, 2])]
    with store.Writer(tmp_path / "a.store") as writer:
        for part in parts:
            writer.append(part)
    same(store.read(tmp_path / "a.store"), Episodes.join(parts))
    store.verify(tmp_path / "a.store")


def test_a_set_opens_without_reading_its_columns(tmp_path, episodes_of):
    """A sparse file of a terabyte: reading even a part of it would show."""
    store.write(tmp_path / "a.store", episodes_of([1]))
    steps = 2 * 10**9
    path = tmp_path / "a.store"
    header = json.loads((path / store.HEADER).read_bytes())
    header |= {"steps": steps, "obs_dim": 100}
    np.array([0, steps], "<i8").tofile(path / "offsets.bin")
    for name, shape in store._shapes(header).items():
        if name not in store.PER_EPISODE:
            size = math.prod(shape) * np.dtype(store.TYPES[name]).itemsize
            os.truncate(path / f"{name}.bin", size)
    arrays = {n: np.fromfile(path / f"{n}.bin", store.TYPES[n]) for n in store.PER_EPISODE}
    reseal(path, steps=steps, obs_dim=100, per_episode_sha256=store._digest(arrays))
    assert store.read(path).observations.shape == (steps, 100)


def reseal(path: Path, **changes) -> None:
    """Change a header and give it a digest that fits, as an attacker would."""
    header = {**json.loads((path / store.HEADER).read_bytes()), **changes}
    header.pop("sha256")
    header["sha256"] = store._header_digest(header)
    (path / store.HEADER).write_text(json.dumps(header))


# --- damaged and hostile -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"steps": 12}, "bytes, expected"),
        ({"steps": 10**30}, "bytes, expected"),
        ({"obs_dim": 4}, "observations.bin has"),
        ({"episodes": 0}, "episodes is 0"),
        ({"episodes": -3}, "episodes is -3"),
        ({"steps": "11"}, "steps is '11'"),
        ({"steps": True}, "steps is True"),
        ({"fingerprint": None}, "fingerprint is None"),
        ({"format": 2}, "is of format 2, this version reads 1"),
        ({"per_episode_sha256": "0"}, "do not match their digest"),
    ],
)
def test_a_header_that_lies(small, changes, part):
    path, _ = small
    reseal(path, **changes)
    with pytest.raises(DataError, match=part):
        store.read(path)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"{}", b"[" * 10**5, b"null", b"\xff"])
def test_a_header_that_is_none(small, content):
    path, _ = small
    (path / store.HEADER).write_bytes(content)
    with pytest.raises(DataError, match=r"header\.json is damaged"):
        store.read(path)


def test_a_changed_header(small):
    path, _ = small
    text = (path / store.HEADER).read_text()
    (path / store.HEADER).write_text(text.replace("a test", "a lie!"))
    with pytest.raises(DataError, match="digest does not match"):
        store.read(path)


def test_a_huge_header(small):
    path, _ = small
    (path / store.HEADER).write_bytes(b" " * (store.LARGEST_HEADER + 1))
    with pytest.raises(DataError, match="too large"):
        store.read(path)


@pytest.mark.parametrize("name", sorted(store.TYPES))
def test_a_column_cut_short_missing_or_elsewhere(small, name):
    path, _ = small
    column = path / f"{name}.bin"
    whole = column.read_bytes()
    column.write_bytes(whole[:-1])
    with pytest.raises(DataError, match=rf"{name}\.bin has {len(whole) - 1} bytes"):
        store.read(path)
    column.unlink()
    with pytest.raises(DataError, match=rf"{name}\.bin is missing"):
        store.read(path)
    elsewhere = path.with_name("elsewhere")
    elsewhere.write_bytes(whole)
    column.symlink_to(elsewhere)
    with pytest.raises(DataError, match=rf"{name}\.bin is a link"):
        store.read(path)


@pytest.mark.parametrize("name", store.PER_EPISODE)
def test_changed_facts_are_seen_at_once(small, name):
    path, _ = small
    changed = bytearray((path / f"{name}.bin").read_bytes())
    changed[-1] ^= 1
    (path / f"{name}.bin").write_bytes(changed)
    with pytest.raises(DataError, match="do not match their digest"):
        store.read(path)


def test_changed_values_are_seen_by_verify(small):
    path, _ = small
    changed = bytearray((path / "rewards.bin").read_bytes())
    changed[-1] ^= 1
    (path / "rewards.bin").write_bytes(changed)
    with pytest.raises(DataError, match="its values are not those that were written"):
        store.verify(path)


@pytest.mark.parametrize("offsets", [[0, 4, 4, 11], [0, 6, 4, 11], [1, 4, 6, 11], [0, 4, 6, 12]])
def test_offsets_that_lie(small, offsets):
    path, _ = small
    np.array(offsets, "<i8").tofile(path / "offsets.bin")
    arrays = {n: np.fromfile(path / f"{n}.bin", store.TYPES[n]) for n in store.PER_EPISODE}
    reseal(path, per_episode_sha256=store._digest(arrays))
    with pytest.raises(DataError, match=r"empty episode|do not cover"):
        store.read(path)


# --- writing -----------------------------------------------------------------------------------


def test_what_exists_is_not_replaced(small, episodes_of, same):
    path, data = small
    with pytest.raises(DataError, match="exists already"):
        store.write(path, episodes_of([3]))
    same(store.read(path), data)


def test_a_failed_write_leaves_nothing(tmp_path, episodes_of):
    with pytest.raises(DataError, match="dimensions"), store.Writer(tmp_path / "a.store") as writer:
        writer.append(episodes_of([4]))
        writer.append(episodes_of([4], observations=5))
    with pytest.raises(DataError, match="no episodes"), store.Writer(tmp_path / "a.store"):
        pass
    with pytest.raises(SafestitchError, match="cannot write"):
        store.write(tmp_path / "missing" / "a.store", episodes_of([3]))
    assert not list(tmp_path.iterdir())


KILLED = """
import sys, numpy as np
from safestitch.data import store
from safestitch.episodes import Episodes
n = 2000
ends = np.arange(n) % 100 == 99
part = Episodes.of(np.ones((n, 8)), np.ones((n, 2)), np.ones(n), np.ones(n), ends, ends)
with store.Writer(sys.argv[1]) as writer:
    print("begun", flush=True)
    for _ in range(10**6):
        writer.append(part)
"""


def test_a_kill_leaves_nothing_that_looks_whole(tmp_path):
    path = tmp_path / "a.store"
    command = [sys.executable, "-c", KILLED, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout and process.stdout.readline() == "begun\n"
        time.sleep(random.uniform(0, 0.3))
        process.kill()
    [left] = tmp_path.iterdir()
    assert left.suffix == ".tmp"
    for missing in (path, left):
        with pytest.raises(DataError, match=r"header\.json is missing"):
            store.read(missing)
