import html.parser
import json
import re
from pathlib import Path

import numpy as np
import pytest

from safestitch.cli.data.report import run
from safestitch.data.stitching import Pieces, best_chains, cut, stitch, top_of_cost
from safestitch.data.survey import Sampled, survey
from safestitch.envs import get_task
from safestitch.episodes import COLUMNS, Episodes, best_within, frontier
from safestitch.report import data as report
from safestitch.report.data import data_page, figures

HOSTILE = "</script><img src=x onerror=alert(1)>"
SECTIONS = {"findings", "returns", "limits", "time", "ranges", "provenance"}


def table(episodes: Episodes) -> dict[str, np.ndarray]:
    return {
        "observations": episodes.observations,
        "actions": episodes.actions,
        "rewards": episodes.rewards,
        "costs": episodes.costs,
        "terminals": episodes.terminated,
        "timeouts": episodes.truncated,
    }


@pytest.fixture(scope="module")
def chain() -> Episodes:
    return get_task("StitchChain").make_data(0)


@pytest.fixture(scope="module")
def few(chain) -> Episodes:
    """The first episodes of the chain: enough for a page."""
    n = chain.offsets[60]
    columns = [getattr(chain, name)[:n] for name in COLUMNS]
    return Episodes(*columns, offsets=chain.offsets[:61])


class Reader(html.parser.HTMLParser):
    """Tags with attributes, and the text of each script block."""

    def __init__(self, text: str):
        super().__init__()
        self.tags: list[tuple[str, dict]] = []
        self.scripts: list[str] = []
        self.in_script = False
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.in_script = tag == "script"
        if self.in_script:
            self.scripts.append("")

    def handle_endtag(self, tag):
        self.in_script = self.in_script and tag != "script"

    def handle_data(self, data):
        if self.in_script:
            self.scripts[-1] += data


# --- the page ----------------------------------------------------------------------------------


def test_the_page_needs_nothing_from_elsewhere(few):
    text = data_page(table(few))
    assert set(re.findall(r"""https?://[^\s"'`)]*""", text)) == {"http://www.w3.org/2000/svg"}
    reader = Reader(text)
    assert not [tag for tag, attrs in reader.tags if {"src", "href", "srcset"} & attrs.keys()]
    assert not re.search(r"@import|url\(|\bfetch\(|XMLHttpRequest|import\(", text)
    policies = [attrs.get("content", "") for tag, attrs in reader.tags if tag == "meta"]
    assert any("default-src 'none'" in policy for policy in policies)
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write", text)


def test_every_element_the_script_asks_for_exists(few):
    reader = Reader(data_page(table(few)))
    assert {attrs.get("id") for tag, attrs in reader.tags if tag == "section"} == SECTIONS
    ids = [attrs["id"] for _, attrs in reader.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    asked = re.findall(
        r"""(?:byId|setText|headings|drawReturns)\("([\w-]+)\"""", reader.scripts[-1]
    )
    assert len(asked) > 20
    assert set(asked) <= set(ids)


def test_hostile_names_stay_data():
    n = 40
    data = {
        f"obs.{HOSTILE}": np.arange(n) / 7,
        "action": np.linspace(-1, 1, n),
        "reward": np.sin(np.arange(n)),
        "cost": np.ones(n),
        "episode": np.array([HOSTILE] * 20 + ["b"] * 20),
    }
    text = data_page(data, {"obs": f"obs.{HOSTILE}"})
    reader = Reader(text)
    assert HOSTILE not in text
    assert "img" not in {tag for tag, _ in reader.tags}
    assert json.loads(reader.scripts[0])["ranges"][-1]["name"] == f"obs.{HOSTILE}"


def test_broken_data_make_a_page_too(few):
    data = table(few)
    data["rewards"] = data["rewards"].astype(np.float64)
    data["rewards"][:] = np.nan
    found = json.loads(Reader(data_page(data)).scripts[0])
    assert found["limits"] == [] and found["left_out"] == len(few)
    assert found["findings"][0]["level"] == "error"
    Path("log.csv").write_text("obs,action,reward,cost,t\n1,0,x,0,0\n")
    found = json.loads(Reader(data_page("log.csv")).scripts[0])
    assert "line 2: column reward" in found["findings"][0]["what"]
    assert found["facts"]["Steps"] == "0"


def test_big_data_are_thinned(few, monkeypatch):
    monkeypatch.setattr(report, "POINTS", 10)
    found = figures(survey(table(few)))
    assert len(found["scatter"]["all"]["costs"]) == 10
    assert found["scatter"]["count"] == len(few)
    before = sum(cell[2] for cell in found["density"]["before"])
    assert before == pytest.approx(1, abs=0.01)  # the shading counts all


def test_limits_by_hand():
    lengths = np.full(20, 2)
    ends = np.tile([False, True], 20)
    costs = np.repeat(np.arange(20.0), 2) / 2  # an episode costs 0, 1, .. 19
    rewards = np.repeat(np.arange(20.0) % 10, 2)  # and earns 0, 2, .. 18, 0, 2, ..
    rng = np.random.default_rng(0)
    data = Episodes.of(
        rng.random((40, 2)), rng.random((40, 1)), rewards, costs, ends, ~ends & False
    )
    found = figures(survey(table(data)))
    rows = {round(row["fraction"], 2): row for row in found["limits"]}
    assert lengths.sum() == 40 and rows[0.0]["within"] == 1 and not rows[0.0]["supported"]
    assert rows[0.5]["within"] == 10 and rows[0.5]["supported"]  # 9.5: costs 0 .. 9
    assert rows[0.5]["logged"] == 18 and rows[0.2]["logged"] == 6  # 3.8: costs 0 .. 3
    assert rows[1.0]["share"] == 1.0
    assert found["lengths"] == {"edges": [2.0, 3.0], "counts": [20]}


def test_drift_is_found():
    episodes, length = 80, 5
    n = episodes * length
    rng = np.random.default_rng(0)
    order = np.repeat(np.arange(episodes), length)
    obs = np.stack([rng.standard_normal(n), rng.standard_normal(n) + order / 10], axis=1)
    data = {"obs": obs, "action": rng.random(n), "reward": rng.random(n), "cost": rng.random(n)}
    found = figures(survey(data | {"episode": order}))
    names = [series["name"] for series in found["drift"]["series"]]
    assert names[:3] == ["reward per episode", "cost per episode", "steps per episode"]
    assert names[3].startswith("obs[1]: moved by") and len(names) == 4


def test_the_verb(capsys):
    Path("log.csv").write_text("obs,action,reward,cost,t\n1,0,1,0,0\n2,0.5,2,1,1\n3,0.1,4,0,2\n")
    assert run(["log.csv"]) == 0
    assert capsys.readouterr().out == f"open {Path('log.html').resolve()}\n"
    assert '"name":"log.csv"' in Path("log.html").read_text()


# --- the estimate ------------------------------------------------------------------------------


def test_stitching_finds_the_known_optimum(chain):
    """StitchChain's optimum is in no logged episode; its pieces are."""
    task = get_task("StitchChain")
    assert task.optimum is not None
    found = stitch(survey(table(chain)).sample, task.spec.horizon)
    assert found is not None
    best = frontier(chain.returns, chain.cost_returns)
    for limit in (0.0, 5.0, 10.0, 20.0):
        (reward,) = found.rewards[found.budgets == limit]
        assert reward == pytest.approx(task.optimum(limit), rel=0.01)
        assert reward > best_within(*best, limit) + 5


def test_a_column_that_stands_still_changes_nothing(few):
    data = table(few)
    plain = stitch(survey(data).sample, 20)
    data["observations"] = np.pad(data["observations"], ((0, 0), (0, 1)), constant_values=2000.0)
    padded = stitch(survey(data).sample, 20)
    assert plain is not None and padded is not None
    np.testing.assert_array_equal(plain.rewards, padded.rewards)


def sampled(rewards, costs, *, terminated: bool = False) -> Sampled:
    n = len(rewards)
    obs = np.arange(n, dtype=np.float32)[:, None]
    values = np.array(rewards, np.float32), np.array(costs, np.float32)
    return Sampled(0, obs, np.zeros((n, 1), np.float32), *values, terminated)


def test_pieces_by_hand():
    pieces = cut([sampled([1, 2, 3, 4, 5], [0, 1, 0, 1, 1], terminated=True)], 2)
    np.testing.assert_array_equal(pieces.reward, [3, 7, 5])
    np.testing.assert_array_equal(pieces.cost, [1, 1, 1])
    np.testing.assert_array_equal(pieces.start[:, 0], [0, 2, 4])
    np.testing.assert_array_equal(pieces.after[:, 0], [2, 4, 4])
    np.testing.assert_array_equal(pieces.follower, [1, 2, -1])
    np.testing.assert_array_equal(pieces.is_first, [True, False, False])
    np.testing.assert_array_equal(pieces.is_fall, [False, False, True])


def test_chains_keep_their_budget(monkeypatch):
    monkeypatch.setattr("safestitch.data.stitching.PIECES", 2)
    obs = np.zeros((4, 1), np.float32)
    pieces = Pieces(
        reward=np.array([1.0, 2.0, 10.0, 20.0]), cost=np.array([0.0, 1.0, 1.0, 2.5]),
        start=obs, after=obs, follower=np.array([1, -1, 3, -1]),
        is_first=np.array([True, False, True, False]), is_fall=np.zeros(4, bool),
    )  # fmt: skip
    following = np.array([[1, 3], [-1, -1], [3, 1], [-1, -1]])
    best = best_chains(pieces, following, unit=1.0, levels=5)
    # 0: nothing affordable twice; 1: 1 + 2; 2: 10 + 2; 3: 1 + 20 (2.5 counts as 3); 4: 10 + 20
    np.testing.assert_array_equal(best, [np.nan, 3, 12, 21, 30])


def test_top_of_cost_by_hand():
    returns = np.array([3.0, 9.0, 4.0, 1.0, 7.0, 5.0])
    costs = np.array([0.0, 0.0, 0.0, 0.4, 0.3, 10.0])
    kept = top_of_cost(returns, costs, 0.34)
    np.testing.assert_array_equal(kept, [False, True, False, False, True, True])
