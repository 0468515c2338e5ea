from pathlib import Path

import h5py
import numpy as np
import pytest

from safestitch.cli.data.check import run
from safestitch.data import survey as survey_module
from safestitch.data.check import check, judge
from safestitch.data.survey import survey
from safestitch.records import DataError

EPISODES, LENGTH = 30, 20


def table(seed: int = 0) -> dict[str, np.ndarray]:
    """Sound data: nothing to say about them but what was guessed."""
    rng = np.random.default_rng(seed)
    n = EPISODES * LENGTH
    return {
        "obs.0": rng.standard_normal(n),
        "obs.1": rng.standard_normal(n),
        "action.0": rng.uniform(-1, 1, n),
        "reward": rng.standard_normal(n),
        "cost": (rng.random(n) < 0.2).astype(float),
        "episode": np.repeat(np.arange(EPISODES), LENGTH),
        "step": np.tile(np.arange(LENGTH), EPISODES),
        "truncated": np.tile(np.arange(LENGTH) == LENGTH - 1, EPISODES),
    }


def said(data: dict[str, np.ndarray], **options) -> list[str]:
    return [f"{f.level}: {f}" for f in check(data, **options) if "guessed" not in f.what]


def changed(**columns) -> dict[str, np.ndarray]:
    return {**table(), **columns}


def put(name: str, row: int, value: float) -> dict[str, np.ndarray]:
    data = table()
    data[name] = data[name].astype(float)
    data[name][row] = value
    return data


def swapped() -> dict[str, np.ndarray]:
    data = table()
    order = np.arange(EPISODES * LENGTH)
    order[[25, 45]] = order[[45, 25]]
    return {name: column[order] for name, column in data.items()}


def short() -> dict[str, np.ndarray]:
    data = {name: np.delete(column, np.arange(22, 40)) for name, column in table().items()}
    data["truncated"][21] = True
    return data


def copied() -> dict[str, np.ndarray]:
    data = table()
    for name in ("obs.0", "obs.1", "action.0", "reward", "cost"):
        data[name][60:80] = data[name][20:40]
    return data


def in_degrees() -> dict[str, np.ndarray]:
    data = table()
    data["obs.1"][15 * LENGTH :] *= 57.3
    return data


def test_sound_data_are_sound():
    assert said(table()) == []
    assert next(f.what for f in check(table())) == "guessed obs = obs.0, obs.1"


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (put("obs.1", 33, np.nan), "error: obs.1, episode 1, row 33: missing or not a"),
        (put("action.0", 7, np.inf), "error: action.0, episode 0, row 7: inf is not finite"),
        (put("cost", 99, -3), "error: cost, episode 4, row 99: the cost -3 is negative"),
        (put("truncated", 5, 2), "error: truncated, episode 0, row 5: 2 is neither true nor false"),
        (put("truncated", 5, 1), "error: truncated, episode 0, row 6: the end was flagged a row"),
        (put("step", 5, 2), "error: step, episode 0, row 5: the step does not rise"),
        (swapped(), "error: episode, episode 1, row 26: an episode that was over goes on"),
        (changed(**{"obs.0": np.full(600, 4.0)}), "warning: obs.0: always 4"),
        (changed(**{"obs.0": table()["obs.1"]}), "warning: obs.1: holds the same numbers as obs.0"),
        (changed(**{"action.0": 9 * table()["action.0"]}), "warning: action.0: actions run from"),
        (changed(cost=np.zeros(600)), "warning: cost: the cost is never above 0"),
        (changed(cost=10 - table()["reward"]), "warning: cost: the cost looks like minus"),
        (changed(cost=9 + table()["reward"]), "warning: cost: the cost looks like the reward"),
        (changed(reward=np.ones(600)), "warning: reward: the reward is always 1"),
        (in_degrees(), "warning: obs.1, episode 15: the size of its numbers changes "),
        (short(), "warning: episode 1: 1 of 30 episodes stop before the horizon of 20 steps"),
        (copied(), "warning: episode 3, row 60: the episode is a copy of an earlier one"),
        (put("truncated", 599, 0), "warning: episode 29: the last episode (20 steps) has no end"),
    ],
    ids=lambda x: x[:50] if isinstance(x, str) else "",
)  # fmt: skip
def test_every_finding(data, expected):
    found = said(data)
    assert [f for f in found if f.startswith(expected)], found
    if expected.startswith("warning"):
        assert not [f for f in found if f.startswith("error")], found


def test_findings_name_how_many_and_the_first():
    data = table()
    data["obs.0"][10:15] = np.nan
    assert said(data) == [
        "error: obs.0, episode 0, row 10: missing or not a number (5 of them). Fill it in or drop "
        "the episode"
    ]


def test_many_broken_columns_are_cut_short():
    data = table()
    for i in range(40):
        data[f"obs.{i}"] = np.full(600, np.nan)
    assert len([f for f in check(data) if f.level == "error"]) == 6


def test_horizon_and_bounds():
    assert said(table(), horizon=25)[0].startswith("warning: episode 0: 30 of 30 episodes stop")
    assert said(table(), horizon=15)[0].startswith("error: 30 episodes are longer than the horizon")
    data = changed(**{"action.0": 40 * table()["action.0"]})
    assert said(data, bounds=(-40.0, 40.0)) == []
    assert said(changed(**{"action.0": 1.01 * table()["action.0"]}))[0].startswith("note: action.0")


def test_early_falls_are_only_noted():
    data = short()
    data["terminated"] = data["truncated"] & (np.arange(len(data["cost"])) == 21)
    data["truncated"] = data["truncated"] & ~data["terminated"]
    assert said(data) == ["note: 1 of 30 episodes end early by themselves"]


def test_reading_stops_at_what_cannot_be_read():
    Path("log.csv").write_text("obs,action,reward,cost,t\n1,0,1,0,0\n2,0,x,0,1\n")
    errors = [f for f in check("log.csv") if f.level == "error"]
    assert "log.csv, line 3: column reward: expected a number, got 'x'" in errors[0].what
    with pytest.raises(DataError, match="no column looks like it"):
        check({"obs": np.zeros(2)})


def test_an_unfinished_data_set_file_is_an_error():
    data = table()
    with h5py.File("set.h5", "w") as file:
        file["observations"] = np.stack([data["obs.0"], data["obs.1"]], axis=1)
        file["actions"] = data["action.0"][:, None]
        file["rewards"], file["costs"] = data["reward"], data["cost"]
        file["terminals"], file["timeouts"] = np.zeros(600), np.zeros(600)
    found = check("set.h5")
    assert [f.level for f in found] == ["error"]
    assert "the last episode (600 steps) has no end" in found[0].what


def test_blocks_do_not_change_what_is_found(monkeypatch):
    data = in_degrees() | {"cost": put("cost", 99, -3)["cost"]}
    whole = survey(data)
    monkeypatch.setattr("safestitch.data.blocks.BLOCK_VALUES", 50)
    parts = survey(data)
    assert judge(parts) == judge(whole)
    for name in ("lengths", "returns", "cost_returns", "ends", "low", "high", "bin_start"):
        np.testing.assert_array_equal(getattr(parts, name), getattr(whole, name))
    np.testing.assert_allclose(parts.mean, whole.mean)
    np.testing.assert_allclose(parts.std, whole.std)
    assert parts.prints == whole.prints


def test_returns_by_hand():
    data = {
        "obs": np.zeros(5), "action": np.zeros(5), "reward": np.arange(5.0),
        "cost": np.ones(5), "terminated": np.array([0, 1, 0, 0, 1]),
    }  # fmt: skip
    found = survey(data)
    np.testing.assert_array_equal(found.lengths, [2, 3])
    np.testing.assert_array_equal(found.returns, [1, 9])
    np.testing.assert_array_equal(found.cost_returns, [2, 3])


def test_memory_is_bounded(monkeypatch):
    monkeypatch.setattr(survey_module, "SAMPLE_BYTES", 5000)
    monkeypatch.setattr(survey_module, "BINS", 8)
    found = survey(table())
    kept = sum(each.rewards.nbytes + each.observations.nbytes for each in found.sample)
    assert 0 < kept <= 5000
    assert 8 <= len(found.bin_start) < 16 and found.bin_start[1] in (2, 4)
    assert found.steps == 600


def test_the_verb(capsys):
    Path("log.csv").write_text("obs,action,reward,cost,t\n1,0,1,0,0\n2,0.5,2,-1,1\n")
    assert run(["log.csv"]) == 1
    out = capsys.readouterr().out
    assert "error: cost, episode 0, line 3: the cost -1 is negative" in out
    assert "log.csv: 1 errors, " in out
    Path("log.csv").write_text("obs,action,reward,cost,t\n1,0,1,0,0\n2,0.5,2,1,1\n3,0.1,4,0,2\n")
    assert run(["log.csv"]) == 0
