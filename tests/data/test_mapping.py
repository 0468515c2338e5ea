import tomllib
from pathlib import Path

import pytest

from safestitch.data.mapping import CostPart, Mapping, read_mapping, resolve
from safestitch.records import DataError

COLUMNS = ["t", "trip", "obs.0", "obs.1", "obs.10", "obs.2", "action.a", "reward", "cost", "crash"]


def test_a_complete_toml():
    Path("map.toml").write_text(
        """
        obs = "obs.*"
        action = ["action.a"]
        reward = "reward"
        episode = "trip"
        step = "t"
        terminated = "crash"

        [[cost]]
        column = "crash"
        kind = "flag"
        weight = 10

        [[cost]]
        column = "cost"
        """
    )
    mapping, guesses = resolve(read_mapping(Path("map.toml")), COLUMNS)
    assert mapping == Mapping(
        obs=("obs.0", "obs.1", "obs.2", "obs.10"),
        action=("action.a",),
        reward="reward",
        cost=(CostPart("crash", "flag", 10.0), CostPart("cost", "number", 1.0)),
        episode="trip",
        step="t",
        terminated="crash",
    )
    assert guesses == ()
    assert Mapping.of(mapping.plain()) == mapping


def test_the_example_of_the_documentation():
    page = (Path(__file__).parents[2] / "docs" / "own_data.md").read_text()
    mapping = Mapping.of(tomllib.loads(page.split("```toml")[1].split("```")[0]))
    assert mapping.obs == ("lidar.*", "speed", "heading")
    assert [part.kind for part in mapping.cost] == ["flag", "margin", "broken-margin", "number"]
    assert all(getattr(mapping, field) for field in mapping.plain())


def test_what_is_guessed_is_said():
    mapping, guesses = resolve(Mapping(episode="trip"), COLUMNS)
    assert mapping.obs == ("obs.0", "obs.1", "obs.2", "obs.10")
    assert mapping.action == ("action.a",)
    assert mapping.cost == (CostPart("cost"),)
    assert guesses == (
        "obs = obs.0 .. obs.10 (4)",
        "action = action.a",
        "reward = reward",
        "cost = cost",
        "step = t",
    )


@pytest.mark.parametrize(
    ("columns", "field", "found"),
    [
        (
            ["Observations", "Actions", "R", "Rewards", "Costs", "Terminals"],
            "obs",
            ("Observations",),
        ),
        (["state_x", "state_y", "action", "reward", "cost", "t"], "obs", ("state_x", "state_y")),
        (["obs.0", "obs.next.0", "action", "reward", "cost", "t"], "obs", ("obs.0",)),
        (["obs", "next_obs", "act", "reward", "cost", "traj_id"], "episode", "traj_id"),
        (["obs", "next_obs", "act", "reward", "cost", "timeouts"], "truncated", "timeouts"),
    ],
    ids=str,
)
def test_guesses(columns, field, found):
    assert getattr(resolve(Mapping(), columns)[0], field) == found


def test_a_pattern_keeps_the_order_of_the_file_unless_numbered():
    columns = ["s.vy", "s.x", "s.vx", "a", "reward", "cost", "t"]
    assert resolve(Mapping(obs=("s.*",), action=("a",)), columns)[0].obs == ("s.vy", "s.x", "s.vx")
    columns = ["q10[0]", "q2[0]", "q1[0]", "a", "reward", "cost", "t"]
    found = resolve(Mapping(obs=("q*",), action=("a",)), columns)[0].obs
    assert found == ("q10[0]", "q2[0]", "q1[0]")  # the last number is the same in all


def test_flags_change_what_the_file_says():
    file = Mapping(reward="r", cost=(CostPart("c"),))
    assert file.but(Mapping(reward="r2", step="t")) == Mapping(
        reward="r2", cost=(CostPart("c"),), step="t"
    )


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"rewards": "r"}, "unknown key of the mapping 'rewards': did you mean reward"),
        ({"reward": ["a", "b"]}, "reward: expected the name of a column"),
        ({"obs": 3}, "obs: expected names or patterns"),
        ({"cost": {"kind": "flag"}}, "cost: expected a column"),
        ({"cost": {"column": "c", "kind": "flags"}}, "did you mean flag"),
        ({"cost": {"column": "c", "wieght": 2}}, "did you mean weight"),
        ({"cost": {"column": "c", "weight": "heavy"}}, "expected a number, got 'heavy'"),
        ({"cost": {"column": "c", "weight": 0}}, "weight 0.0"),
        ({"cost": {"column": "c", "weight": float("inf")}}, "weight inf"),
    ],
    ids=str,
)
def test_mappings_that_cannot_be_used(values, words):
    with pytest.raises(DataError, match=words):
        Mapping.of(values)


@pytest.mark.parametrize(
    ("mapping", "words"),
    [
        (
            Mapping(obs=("sensor.*",)),
            "obs: no column matches 'sensor.*' \\(the columns are t, trip",
        ),
        (Mapping(reward="rward"), "reward: unknown column 'rward': did you mean reward"),
        (Mapping(cost=(CostPart("cots"),)), "cost: unknown column 'cots': did you mean cost"),
    ],
    ids=str,
)
def test_columns_that_do_not_exist(mapping, words):
    with pytest.raises(DataError, match=words):
        resolve(mapping, COLUMNS)


def test_columns_that_cannot_be_guessed():
    with pytest.raises(DataError, match="cost: no column looks like it; say which with --cost"):
        resolve(Mapping(), ["obs", "action", "reward", "t"])
    with pytest.raises(DataError, match="nothing says where an episode ends: give --episode"):
        resolve(Mapping(), ["obs", "action", "reward", "cost"])
    with pytest.raises(DataError, match="'done' does not say who ended an episode"):
        resolve(Mapping(), ["obs", "action", "reward", "cost", "done"])


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("hit", CostPart("hit")),
        ("hit:flag", CostPart("hit", "flag")),
        ("gap:broken-margin:0.5", CostPart("gap", "broken-margin", 0.5)),
    ],
    ids=str,
)
def test_costs_on_the_command_line(text, part):
    assert CostPart.parse(text) == part


@pytest.mark.parametrize("text", ["", ":flag", "a:b", "a:flag:x", "a:flag:1:2"])
def test_bad_costs_on_the_command_line(text):
    with pytest.raises(DataError):
        CostPart.parse(text)


@pytest.mark.parametrize("content", [b"obs = ", b"\xff\xfe", b"a" * 1_000_001, b"[[[[["], ids=repr)
def test_files_that_are_no_mapping(content):
    Path("map.toml").write_bytes(content)
    with pytest.raises(DataError, match=r"map\.toml"):
        read_mapping(Path("map.toml"))
    with pytest.raises(DataError, match="cannot read the mapping"):
        read_mapping(Path("missing.toml"))
