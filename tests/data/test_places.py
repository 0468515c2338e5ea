"""Finding data on disk, and telling whole files from others."""

from pathlib import Path

import h5py
import numpy as np
import pytest

from safestitch.data.places import data_dir, declared_size, find, flaw, held
from safestitch.records import SafestitchError

FILE = "SafetyCarRun-v0-40-651.hdf5"


def write(path: Path, version=None) -> bytes:
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w", libver=version) as file:
        file.create_dataset("rewards", data=np.arange(1000.0), chunks=(100,), compression="gzip")
    return path.read_bytes()


def test_the_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("DSRL_DATASET_DIR", raising=False)
    assert data_dir() == tmp_path / ".dsrl" / "datasets"
    monkeypatch.setenv("DSRL_DATASET_DIR", "")
    assert data_dir() == tmp_path / ".dsrl" / "datasets"
    monkeypatch.setenv("DSRL_DATASET_DIR", "~/data")
    assert data_dir() == tmp_path / "data"


@pytest.mark.parametrize("version", ["earliest", "v108", "latest"])
def test_a_whole_file_declares_its_length(version: str):
    content = write(Path("a.h5"), version)
    assert declared_size(content[:64]) == len(content)
    assert flaw(Path("a.h5")) is None


@pytest.mark.parametrize("version", ["earliest", "v108", "latest"])
@pytest.mark.parametrize("kept", [0, 1, 7, 8, 47, 63, 64, 500, -1])
def test_every_truncation_is_seen(version: str, kept: int):
    content = write(Path("a.h5"), version)
    Path("a.h5").write_bytes(content[:kept])
    assert flaw(Path("a.h5")) is not None


def test_what_is_not_hdf5():
    Path("a.h5").write_bytes(b"\x00\xff rubbish")
    assert "not HDF5" in (flaw(Path("a.h5")) or "")
    Path("a.h5").write_bytes(b"\x89HDF\r\n\x1a\n" + b"\xff" * 100)
    assert "damaged" in (flaw(Path("a.h5")) or "")
    assert "cannot be read" in (flaw(Path("missing.h5")) or "")
    assert "cannot be read" in (flaw(Path(".")) or "")


def test_held():
    whole = Path("data", FILE)
    content = write(whole)
    Path(f"{whole}.json").write_text("{}")
    Path("data/SafetyCarCircle-v0-100-1450.hdf5.part").write_bytes(content[:100])
    Path("data/cut.h5").write_bytes(content[:100])
    Path("data/notes.txt").write_text("mine")
    Path("data/folder.h5").mkdir()
    found = held(Path("data"))
    assert [one.path.name for one in found] == [
        "SafetyCarCircle-v0-100-1450.hdf5.part",
        FILE,
        "cut.h5",
    ]
    tasks = [one.entry.task if one.entry else None for one in found]
    assert tasks == ["CarCircle", "CarRun", None]
    assert [one.flaw is None for one in found] == [False, True, False]
    assert found[1].size == len(content)
    assert held(Path("nowhere")) == []


def test_find():
    with pytest.raises(SafestitchError, match="safestitch data get CarRun"):
        find("CarRun", Path("data"))
    content = write(Path("data", FILE))
    for name in ("CarRun", "OfflineCarRun-v0", FILE):
        assert find(name, Path("data")) == Path("data", FILE)
    Path("data", FILE).write_bytes(content[:-1])
    with pytest.raises(SafestitchError, match="cut short"):
        find("CarRun", Path("data"))
    with pytest.raises(SafestitchError, match="did you mean CarRun"):
        find("CarRum", Path("data"))
