"""`safestitch data VERB`."""

import http.server
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import h5py
import numpy as np
import pytest

from safestitch.cli import _run
from safestitch.cli.data import VERBS
from safestitch.data import download, dsrl, load
from safestitch.episodes import Episodes

pytestmark = pytest.mark.usefixtures("as_installed")
FILE = "SafetyCarRun-v0-40-651.hdf5"


@pytest.fixture
def mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A directory with one data file, served as the only mirror."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_, **__) -> None:
            pass

    (tmp_path / "served").mkdir()
    with h5py.File(tmp_path / "served" / FILE, "w") as file:
        file["rewards"] = [1.0, 2.0]
    monkeypatch.setattr(download, "MIRRORS", ())
    handler = partial(Quiet, directory=str(tmp_path / "served"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def test_help(capsys):
    assert _run(["data"]) == 0
    said = capsys.readouterr().out
    assert all(verb in said for verb in VERBS)
    assert _run(["data", "gte"]) == 2
    assert "did you mean get" in capsys.readouterr().err


def test_get_and_ls(mirror: str, monkeypatch: pytest.MonkeyPatch, capsys):
    monkeypatch.setenv("DSRL_DATASET_DIR", "data")
    assert _run(["data", "ls"]) == 0
    before = capsys.readouterr().out
    assert "nothing" in before and FILE not in before
    assert _run(["data", "get", "CarRun", "--mirror", mirror]) == 0
    assert str(Path("data", FILE)) in capsys.readouterr().out
    assert _run(["data", "get", "CarRun"]) == 0  # no mirror: it is there
    Path("data/SafetyCarCircle-v0-100-1450.hdf5.part").write_bytes(b"half")
    capsys.readouterr()
    assert _run(["data", "ls"]) == 0
    on_disk, rest = capsys.readouterr().out.split("can be downloaded")
    offered, made = rest.split("can be made")
    assert FILE in on_disk and "651" in on_disk and "unfinished" in on_disk
    assert "CarRun " not in offered and "CarCircle " in offered and "harddense" in offered
    assert all(name in made for name in ("MiniCircle", "MiniRun", "StitchChain"))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "which data set?"),
        (["--all", "CarRun"], "which data set?"),
        (["CarRum"], "did you mean CarRun"),
        (["CarRun", "--mirror", "ftp://host"], "expected an address"),
        (["CarRun", "--stall", "0"], "--stall"),
    ],
)
def test_get_says_what_is_wrong(arguments: list[str], words: str, capsys):
    assert _run(["data", "get", "--dir", "data", *arguments]) == 2
    assert words in capsys.readouterr().err


def test_get_of_what_no_mirror_has(mirror: str, capsys):
    assert _run(["data", "get", "--dir", "data", "AntRun", "--mirror", mirror]) == 2
    said = capsys.readouterr().err
    assert "does not have it (status 404)" in said and mirror in said
    assert not list(Path("data").iterdir())


# --- edit --------------------------------------------------------------------------------------


@pytest.fixture
def logged() -> Path:
    """Twenty episodes of three steps; episode i earns 3 i and costs 3 (i % 5)."""
    n = 60
    number = np.repeat(np.arange(20.0), 3)
    ends = np.arange(n) % 3 == 2
    made = Episodes.of(np.ones((n, 2)), np.ones((n, 1)), number, number % 5, ends & False, ends)
    dsrl.write("logged.hdf5", made)
    return Path("logged.hdf5")


def edit(*words: object) -> int:
    return _run(["data", "edit", *(str(word) for word in words)])


def test_edit(logged: Path, capsys):
    assert edit(logged, "out.hdf5", "--clip-cost", 6, "--subsample", 0.5, "--seed", 1) == 0
    edited = dsrl.read("out.hdf5")
    assert len(edited) == 6  # twelve episodes cost 0, 3 or 6
    assert edited.cost_returns.max() <= 6
    assert "6 episodes, 18 steps" in capsys.readouterr().out
    assert dsrl.provenance("out.hdf5")["edited_from"] == [str(logged)]


def test_edit_in_place_and_join_and_split(logged: Path):
    assert edit(logged, logged, "--join", logged, "--validation", 0.25) == 0
    assert len(dsrl.read(logged)) == 30
    assert len(dsrl.read("logged-validation.hdf5")) == 10


@pytest.mark.parametrize("out", ["out.store", "out-v0"])
def test_edit_into_another_format(logged: Path, out: str):
    assert edit(logged, out, "--clip-cost", 6) == 0
    assert len(load(out)) == 12


def test_all_filters(logged: Path):
    filters = ["--outliers", 0.05, "--inpaint", 0, 0.2, 0.5, 1, "--epsilon", 3, "--limit", 3]
    assert edit(logged, "out.hdf5", *filters, "--noise", 0.1) == 0
    edited = dsrl.read("out.hdf5")
    assert len(edited) < 20
    assert (edited.observations == 1).all()  # the spread of constant observations is nothing


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--density", "0.5"], "--density needs --task"),
        (["--density", "0.3", "--task", "CarCircle"], "0.5 and 0.75"),
        (["--outliers", "0.1"], "--outliers needs --limit"),
        (["--epsilon", "1"], "--epsilon needs --limit"),
        (["--clip-cost", "-1"], "no episode of 20"),
        (["--seed", "-1"], "expected 0 or more"),
        (["--join", "missing.hdf5"], "missing.hdf5"),
    ],
)
def test_edits_that_cannot_be(logged: Path, words: list[str], said: str, capsys):
    assert edit(logged, "out.hdf5", *words) == 2
    assert said in capsys.readouterr().err
    assert not Path("out.hdf5").exists()
