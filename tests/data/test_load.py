"""One door for every format, and converting between them."""

import itertools

import numpy as np
import pytest

from safestitch import data
from safestitch.catalog import get_entry
from safestitch.cli import _run
from safestitch.data import dsrl, minari, store
from safestitch.episodes import COLUMNS
from safestitch.records import DataError, SafestitchError

NAMES = {"dsrl": "a.hdf5", "store": "a.store", "minari": "a-v0"}
WRITE = {"dsrl": dsrl.write, "store": store.write, "minari": minari.write}


@pytest.fixture
def episodes(episodes_of):
    return episodes_of([5, 1, 4], final=True)


def test_every_format_by_its_name(tmp_path, episodes, same):
    for kind, name in NAMES.items():
        WRITE[kind](tmp_path / name, episodes)
        assert data.format_of(tmp_path / name) == kind
        assert data.load(str(tmp_path / name)).returns.tolist() == episodes.returns.tolist()
        parts = list(data.load_blocks(tmp_path / name))
        same(type(episodes).join(parts), episodes)


def test_a_renamed_store_and_minari_set(tmp_path, episodes, same):
    store.write(tmp_path / "mine", episodes)
    minari.write(tmp_path / "other", episodes)
    same(data.load(tmp_path / "mine"), episodes)
    same(data.load(tmp_path / "other"), episodes)


def test_own_logs(tmp_path, episodes):
    columns = {
        "episode": np.repeat(np.arange(3), episodes.lengths),
        "obs": episodes.observations,
        "action": episodes.actions,
        "reward": episodes.rewards,
        "cost": episodes.costs,
    }
    np.savez(tmp_path / "log.npz", **columns, terminated=episodes.terminated)
    found = data.load(tmp_path / "log.npz")
    for name in COLUMNS:
        assert getattr(found, name).tobytes() == getattr(episodes, name).tobytes(), name


def test_a_public_data_set_on_disk(tmp_path, episodes, monkeypatch):
    monkeypatch.setenv("DSRL_DATASET_DIR", str(tmp_path))
    with pytest.raises(SafestitchError, match="safestitch data get CarCircle"):
        data.load("CarCircle")
    dsrl.write(tmp_path / get_entry("CarCircle").dsrl_file, episodes)
    assert data.load("CarCircle").returns.tolist() == episodes.returns.tolist()


@pytest.mark.parametrize("source", ["no/such", "no.hdf5", "no.store"])
def test_no_such_source(source):
    with pytest.raises(DataError, match=f"no file {source}"):
        data.load(source)
    with pytest.raises(SafestitchError, match="unknown"):
        data.load("CarCirle")


def test_an_unknown_format(tmp_path):
    (tmp_path / "a.docx").touch()
    (tmp_path / "folder").mkdir()
    for name in ("a.docx", "folder"):
        with pytest.raises(DataError, match=r"unknown format: expected \.hdf5"):
            data.load(tmp_path / name)
    with pytest.raises(DataError, match="logs are only read"):
        data.writer(tmp_path / "a.csv")


# --- converting --------------------------------------------------------------------------------


@pytest.mark.parametrize(("one", "other"), list(itertools.permutations(NAMES, 2)))
def test_convert_there_and_back(tmp_path, episodes, same, capsys, one, other):
    first, second = tmp_path / NAMES[one], tmp_path / NAMES[other]
    back = tmp_path / f"back-{NAMES[one]}"
    WRITE[one](first, episodes)
    for source, out in ((first, second), (second, back)):
        assert _run(["data", "convert", str(source), str(out)]) == 0
        assert f"{out}: 3 episodes, 10 steps" in capsys.readouterr().out
    same(type(episodes).join(list(data.load_blocks(back))), episodes)


def test_convert_for_the_dsrl_package(tmp_path, episodes, dsrl_reader, capsys):
    store.write(tmp_path / "a.store", episodes)
    source, out = str(tmp_path / "a.store"), str(tmp_path / "a.hdf5")
    assert _run(["data", "convert", source, out, "--exact-dsrl"]) == 0
    assert dsrl_reader(out)["next_observations"].tobytes() == episodes.next_observations().tobytes()
    assert dsrl.provenance(out) == {"converted_from": source}
    assert _run(["data", "convert", source, out]) == 2
    assert "exists: delete it" in capsys.readouterr().err
    assert _run(["data", "convert", source, out, "--overwrite"]) == 0


def test_convert_tells_of_dropped_rows_and_leaves_nothing_on_failure(tmp_path, episodes, capsys):
    import h5py  # noqa: PLC0415

    path, out = tmp_path / "a.hdf5", tmp_path / "a.store"
    dsrl.write(path, episodes)
    with h5py.File(path, "a") as file:
        file["timeouts"][-1] = file["terminals"][-1] = False  # pyright: ignore
    assert _run(["data", "convert", str(path), str(out)]) == 0
    assert "note: " in (said := capsys.readouterr().out) and "dropped the last 4 rows" in said
    with h5py.File(path, "a") as file:
        file["rewards"][0] = np.nan  # pyright: ignore
    assert _run(["data", "convert", str(path), str(tmp_path / "b.store")]) == 2
    assert "rewards: episode 0, row 0" in capsys.readouterr().err
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.hdf5", "a.store"]
