"""Files that once got past the readers' guards; `bench/fuzz_data.py` finds more of their kind."""

import zipfile
from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from safestitch.data import load, writer
from safestitch.data.importing import read_logs
from safestitch.records import DataError


def refused(path: str, words: str) -> None:
    with pytest.raises(DataError, match=words):
        read_logs(path)


def test_a_header_that_is_no_header():
    Path("a.csv").write_bytes(b"obs.0,action.0,re\rward,cost\n1,1,1,0\n")
    refused("a.csv", "line 1: a carriage return")


def test_a_list_of_one_among_numbers():
    row = '{"obs": 1, "action": 1, "reward": %s, "cost": 0, "step": %d}'
    Path("a.jsonl").write_text(row % ("2", 0) + "\n" + row % ("[3]", 1))
    assert read_logs("a.jsonl").rewards.tolist() == [2.0, 3.0]


def test_an_array_header_that_never_ends():
    text = b"(" * 100 + b"\n"
    with zipfile.ZipFile("a.npz", "w") as archive:
        archive.writestr("x.npy", b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text)
    refused("a.npz", "damaged or not an NPZ file")


@pytest.mark.parametrize("name", ["costs", "observations"])
def test_arrays_without_columns(name: str):
    with h5py.File("a.h5", "w") as file:
        for key in ("observations", "actions", "rewards", "costs", "terminals", "timeouts"):
            file[key] = np.zeros((5, 0) if key == name else (5, 1))
    refused("a.h5", rf"{name} has shape \(5, 0\)")


def test_an_empty_dataspace():
    with h5py.File("a.h5", "w") as file:
        for key in ("observations", "actions", "rewards", "costs", "terminals", "timeouts"):
            file[key] = h5py.Empty("f4") if key == "costs" else np.zeros((5, 1))
    refused("a.h5", "costs is a single value")


def test_parquet_with_a_column_name_that_is_no_text():
    table = pa.table({"obs": [1.0], "action": [1.0], "reward": [1.0], "cost": [0.0], "marker": [1]})
    pyarrow.parquet.write_table(table, "a.parquet", store_schema=False)
    content = Path("a.parquet").read_bytes()
    Path("a.parquet").write_bytes(content.replace(b"marker", b"\xff\xffrker"))
    refused("a.parquet", "damaged or not Parquet")


def test_more_than_the_memory_holds(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("safestitch.data.importing.available_memory", lambda: 1000)
    values = np.zeros(100)
    np.savez("a.npz", obs=values, action=values, reward=values, cost=values, step=np.arange(100))
    refused("a.npz", "safestitch data import")


@pytest.mark.parametrize(
    ("name", "inner"),
    [("a.store", "header.json"), ("a-v0", "data/metadata.json"), ("a-v0", "data/main_data.hdf5")],
)
def test_links_inside_a_set_are_not_followed(name: str, inner: str, episodes_of):
    with writer(name) as target:
        target.append(episodes_of([3, 2]))
    assert len(load(name)) == 2
    file = Path(name, inner)
    file.rename("elsewhere")
    file.symlink_to(Path("elsewhere").absolute())
    with pytest.raises(DataError, match=f"{file.name} is a link"):
        load(name)


def test_damaged_infos(episodes_of):
    """Which keys there are cannot be told: the error says that much."""
    with writer("a-v0") as target:
        target.append(episodes_of([3]))
    with h5py.File("a-v0/data/main_data.hdf5", "r+") as file:
        del file["episode_0/infos"]
        file.create_group("episode_0/infos")
    with pytest.raises(DataError, match="holds no 'cost' but nothing"):
        load("a-v0")
