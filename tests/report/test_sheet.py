"""Datasheets: what they say is what the file holds."""

import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest

from safestitch.catalog import get_entry
from safestitch.cli import _run
from safestitch.data import dsrl
from safestitch.data.coverage import LEVELS, public_frontier
from safestitch.data.places import made_path
from safestitch.episodes import Episodes
from safestitch.records import DataError
from safestitch.report.scatter import POINTS, scatter
from safestitch.report.sheet import read_sheet, write_sheets

MADE = {
    "made_by": "safestitch",
    "task": "BallRun",
    "env": None,
    "seed": 4,
    "snapshots": 9,
    "behaviours": "abc123",
    "rolled": 1500,
    "steps_rolled": 150_000,
    "versions": {"safestitch": "1.2.3", "pybullet": "3.2.7"},
    "cost_range": 80.0,
}


def as_public(task: str, share: float = 1.0) -> Episodes:
    """One-step episodes on the public frontier, and a hopeless one."""
    entry = get_entry(task)
    rewards = share * np.array([*public_frontier(task), entry.reward_min])
    costs = np.array([*(level * entry.cost_range for level in LEVELS), 0.0])
    n = len(rewards)
    return Episodes.of(
        np.zeros((n, entry.obs_dim)),
        np.zeros((n, entry.act_dim)),
        rewards,
        costs,
        np.zeros(n, bool),
        np.ones(n, bool),
    )


@pytest.fixture
def made(tmp_path) -> Path:
    dsrl.write(tmp_path / "made.hdf5", as_public("BallRun"), exact=False, provenance=MADE)
    return tmp_path / "made.hdf5"


def test_the_page_of_a_task(made, tmp_path):
    [page] = write_sheets([made], tmp_path / "sheets")
    assert page == tmp_path / "sheets" / "BallRun.md"
    text = page.read_text()
    assert "| episodes | 12 | 940 |" in text
    assert "| reward | 26.34 to 1327 | 26.34 to 1327 |" in text
    assert "| ratio | " + " | ".join(["1.000"] * 11) + " |" in text
    assert "| these data | 443.8 | 447.4 | 447.4 | 528.4 |" in text
    shares = "16.7% |" + " 8.3% |" * 8 + " 16.7% |"  # 0 twice; 90% and 100% share the last
    assert f"| episodes | {shares}" in text
    assert "`safestitch data make BallRun --seed 4`" in text
    assert "9 snapshots, SHA-256 `abc123`" in text and "pybullet 3.2.7" in text
    assert "Apache-2.0" in text and "](BallRun.svg)" in text


def test_the_table_of_all_tasks(made, tmp_path):
    poor = {**MADE, "task": "AntRun"}
    dsrl.write(tmp_path / "poor.hdf5", as_public("AntRun", 0.8), provenance=poor)
    pages = write_sheets([made, tmp_path / "poor.hdf5"], tmp_path)
    assert [page.name for page in pages] == ["BallRun.md", "AntRun.md", "README.md"]
    text = pages[-1].read_text()
    good, bad = (next(x for x in text.splitlines() if f"[{t}]" in x) for t in ("BallRun", "AntRun"))
    assert good.count("1.00") == 11 and good.count("✓") == 4 and "✗" not in good
    assert bad.count("0.80") == 11 and bad.count("✗") == 2
    assert "1 of 2 tasks pass all three" in text


def test_a_file_of_ones_own(tmp_path):
    dsrl.write(tmp_path / "robots.hdf5", as_public("CarRun"))
    [page] = write_sheets([tmp_path / "robots.hdf5"], tmp_path)
    text = page.read_text()
    assert page.name == "robots.md" and "public" not in text
    assert "The file does not say" in text and "That of its owner" in text


@pytest.mark.parametrize("lie", [{"rolled": "many"}, {"versions": 3}, {"task": ["BallRun"]}])
def test_a_file_that_says_nonsense(tmp_path, lie):
    dsrl.write(tmp_path / "a.hdf5", as_public("BallRun"), provenance={**MADE, **lie})
    assert write_sheets([tmp_path / "a.hdf5"], tmp_path)


def test_the_file_is_named_by_its_digest(made):
    first, again = read_sheet(made), read_sheet(made)
    assert first.sha256 == again.sha256 and re.fullmatch("[0-9a-f]{64}", first.sha256)


def test_what_is_not_data(tmp_path):
    (tmp_path / "a.hdf5").write_text("no")
    with pytest.raises(DataError, match="not a whole HDF5 file"):
        read_sheet(tmp_path / "a.hdf5")


def test_the_verb(made, monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("DSRL_DATASET_DIR", str(tmp_path))
    assert _run(["data", "sheet", "BallRun"]) == 2
    assert "safestitch data make BallRun" in capsys.readouterr().err
    assert _run(["data", "sheet", "nowhere.hdf5"]) == 2
    assert _run(["data", "sheet", "all"]) == 2
    made.rename(made_path(get_entry("BallRun")))
    for name in ("BallRun", "all"):
        assert _run(["data", "sheet", name, "--out", "pages"]) == 0
        assert str(Path("pages/BallRun.md")) in capsys.readouterr().out


# --- the picture ------------------------------------------------------------------------------


def test_the_picture_is_small_and_sound():
    random = np.random.default_rng(0)
    costs, rewards = random.uniform(0, 200, 9000), random.uniform(-5, 460, 9000)
    lines = {"ours": ([0.0, 200.0], [100.0, 460.0]), "<theirs>": ([0.0, 200.0], [9.0, 450.0])}
    text = scatter("Ant & Circle", rewards, costs, lines, 200.0)
    assert len(text) < 60_000
    root = ElementTree.fromstring(text)
    texts = [node.text for node in root.iter() if node.text and node.text.strip()]
    assert {"Ant & Circle", "ours", "<theirs>", "0", "100", "200", "400"} <= set(texts)
    dots = next(node.get("d", "") for node in root.iter() if "h0" in node.get("d", ""))
    assert 0.9 * POINTS < dots.count("h0") <= POINTS


def test_dots_are_where_they_belong():
    """Pixels of the plot: 64 to 628 across, 374 to 34 upwards."""
    text = scatter("a", np.array([0.0, 10.0]), np.array([0.0, 5.0]), {}, 10.0)
    assert 'd="m64 374h0m282 -340h0"' in text


def test_one_episode_that_earned_nothing():
    assert "svg" in scatter("a", np.zeros(1), np.zeros(1), {}, 0.0)
