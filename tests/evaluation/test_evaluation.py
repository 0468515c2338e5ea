import dataclasses
import doctest
import importlib
import json
import math
import pkgutil
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import safestitch
from safestitch import runs
from safestitch.algos import get_algorithm
from safestitch.envs import get_task
from safestitch.evaluation import PAPER_LIMITS, evaluate_run, parse_limit
from safestitch.evaluation.dial import DRAWN, STEPS, dial_run, learning_curves
from safestitch.evaluation.rollout import Rollout, rollout
from safestitch.evaluation.score import Record, Row, plain, records, rows
from safestitch.evaluation.stored import Question, answer
from safestitch.policy import Policies, load_policies
from safestitch.records import RunError, SafestitchError, Spec
from safestitch.report.html import render
from safestitch.training import loop

TASK = get_task("StitchChain")
WINDY = dataclasses.replace(TASK, position=lambda state: state[2:])
"""StitchChain whose drawn position is (wind, lane): the start is seen in it."""
TINY: dict[str, Any] = {
    "iterations": 300,
    "batch": 16,
    "hidden": 8,
    "embedding": 4,
    "layers": 2,
    "budget_batch": 8,
    "schedule": "constant",
}
FIELDS = {
    "task",
    "algorithm",
    "seed",
    "limit",
    "limit_fraction",
    "episodes",
    "reward",
    "cost",
    "reward_norm",
    "cost_norm",
    "violation_rate",
    "frontier_ratio",
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of two seeds; nobody writes to it."""
    out = tmp_path_factory.mktemp("trained") / "run"
    gas = get_algorithm("gas")
    config = dataclasses.replace(gas.presets["fast"], **TINY)
    loop.train(gas, config, TASK.spec, TASK.make_data(0), [0, 1], out)
    return out


@pytest.fixture(scope="module")
def policies(trained: Path) -> Policies:
    return load_policies(trained)


@pytest.fixture(scope="module")
def evaluated(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = shutil.copytree(trained, tmp_path_factory.mktemp("evaluated") / "run")
    evaluate_run(out, ["10%", "5", "0"], episodes=5)
    return out


@pytest.fixture(scope="module")
def page(evaluated: Path) -> dict[str, Any]:
    return dial_run(evaluated, episodes=5)


def strict_json(path: Path) -> Any:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{path} holds {constant}, which is not JSON")

    return json.loads(path.read_text(), parse_constant=refuse)


# --- limits ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10%", 8.0),
        ("0%", 0.0),
        ("100%", 80.0),
        ("12.5%", 10.0),
        (" 10 % ", 8.0),
        ("20", 20.0),
        ("0", 0.0),
        ("2.5", 2.5),
        ("1e1", 10.0),
        ("1000", 1000.0),
        ("\t7\n", 7.0),
    ],
)
def test_limits_as_people_write_them(text, expected):
    assert parse_limit(text, 80.0) == pytest.approx(expected, abs=0)


@pytest.mark.parametrize("text", ["abc", "", " ", "%", "10%%", "nan", "nan%", "inf", "-inf", "1,5"])
def test_limits_that_are_no_numbers(text):
    with pytest.raises(
        SafestitchError, match=r"is not a number: give a cost per episode"
    ) as caught:
        parse_limit(text, 80.0)
    assert f"the limit '{text}'" in str(caught.value)


@pytest.mark.parametrize("text", ["-5", "-5%", "-0.001", "-1e300"])
def test_limits_below_zero(text):
    with pytest.raises(SafestitchError, match=f"the limit '{text}' is below 0"):
        parse_limit(text, 80.0)


@pytest.mark.parametrize("text", ["150%", "100.01%"])
def test_shares_above_everything(text):
    with pytest.raises(SafestitchError, match=f"the limit '{text}' is above 100% of .* \\(80\\)"):
        parse_limit(text, 80.0)


@pytest.mark.parametrize("text", ["10%", "0%", "100%"])
def test_a_share_of_nothing(text):
    with pytest.raises(SafestitchError, match="share of the cost range, which is 0: give a cost"):
        parse_limit(text, 0.0)


def test_a_cost_where_the_cost_range_is_zero():
    assert parse_limit("3", 0.0) == 3.0


def test_the_limits_of_the_paper():
    assert [parse_limit(limit, 100.0) for limit in PAPER_LIMITS] == [10, 20, 30, 70, 80, 90]


@pytest.mark.usefixtures("as_installed")
def test_examples_in_docstrings():
    attempted = {}
    for module in pkgutil.walk_packages(safestitch.__path__, "safestitch."):
        if not module.name.endswith("__main__"):
            result = doctest.testmod(importlib.import_module(module.name))
            assert result.failed == 0, module.name
            attempted[module.name.removeprefix("safestitch.")] = result.attempted
    assert min(attempted[name] for name in ("evaluation.limits", "episodes", "names")) > 0


# --- figures -----------------------------------------------------------------------------------


def made_up(**summary: Any) -> runs.Run:
    """Data of best reward 20, with nothing below cost 2 and the best of 8 up to cost 6."""
    facts = {
        "cost_max": 12.0,
        "reward_max": 20.0,
        "frontier_costs": [2.0, 6.0],
        "frontier_rewards": [8.0, 20.0],
    }
    return runs.Run(
        algorithm="gas",
        config={},
        spec=Spec("StitchChain", obs_dim=3, act_dim=2, horizon=20, cost_range=16.0),
        seeds=[3, 7],
        data_source="made up",
        data_seed=0,
        data_fingerprint="ab12",
        data_summary={**facts, **summary},
        versions={},
    )


LIMITS = [4.0, 0.0, 8.0]
RESULT = Rollout(  # seeds 3 and 7, three limits, two episodes
    rewards=np.array(
        [[[4.0, 8.0], [1.0, 3.0], [10.0, 10.0]], [[6.0, 2.0], [0.0, 0.0], [30.0, 2.0]]]
    ),
    costs=np.array([[[4.0, 6.0], [0.0, 1.0], [8.0, 8.0]], [[1.0, 1.0], [0.0, 0.0], [9.0, 10.0]]]),
)


def test_records_by_hand():
    found = records(made_up(), LIMITS, RESULT)
    assert [(r.seed, r.limit) for r in found] == [(s, limit) for s in (3, 7) for limit in LIMITS]
    assert {(r.task, r.algorithm, r.episodes) for r in found} == {("StitchChain", "gas", 2)}
    first, second, third, fourth, fifth, sixth = found
    assert (first.reward, first.cost, first.violation_rate) == (6.0, 5.0, 0.5)
    assert (first.reward_norm, first.cost_norm, first.frontier_ratio) == (0.3, 1.25, 0.75)
    assert (first.limit_fraction, second.limit_fraction, third.limit_fraction) == (0.25, 0.0, 0.5)
    assert (first.reward_low, first.reward_high) == (4.0, 8.0)
    assert (first.cost_low, first.cost_high) == (4.0, 6.0)
    assert (second.reward, second.cost, second.violation_rate) == (2.0, 0.5, 0.5)
    assert (second.cost_norm, second.frontier_ratio) == (None, None)
    assert (third.cost, third.cost_norm, third.violation_rate) == (8.0, 1.0, 0.0)  # kept exactly
    assert (third.reward_low, third.reward_high, third.frontier_ratio) == (10.0, 10.0, 0.5)
    assert (fourth.reward, fourth.cost, fourth.violation_rate) == (4.0, 1.0, 0.0)
    assert (fifth.reward, fifth.cost, fifth.violation_rate) == (0.0, 0.0, 0.0)
    assert (sixth.reward, sixth.cost_norm, sixth.violation_rate) == (16.0, 9.5 / 8.0, 1.0)


def test_rows_by_hand():
    first, second, third = rows(made_up(), LIMITS, RESULT)
    assert [row.limit for row in (first, second, third)] == LIMITS
    assert (first.reward[0], first.cost[0], first.violation_rate[0]) == (5.0, 3.0, 0.25)
    assert (first.reward_norm[0], first.cost_norm[0]) == (0.25, 0.75)
    assert first.frontier_ratio[0] == 5.0 / 8.0
    assert (first.limit_fraction, first.safe) == (0.25, True)
    assert (second.reward[0], second.cost[0], second.safe) == (1.0, 0.25, False)
    assert np.isnan(second.cost_norm).all() and np.isnan(second.frontier_ratio).all()
    assert (third.reward[0], third.cost[0], third.safe) == (13.0, 8.75, False)
    assert third.reward_norm == pytest.approx(np.divide(third.reward, 20.0))
    assert third.cost_norm == pytest.approx(np.divide(third.cost, 8.0))
    assert third.frontier_ratio == pytest.approx(np.divide(third.reward, 20.0))


def test_a_row_in_json():
    row = plain(rows(made_up(), LIMITS, RESULT)[1])
    assert set(row) == {field.name for field in dataclasses.fields(Row)}
    assert row["cost_norm"] == row["frontier_ratio"] == [None] * 3
    assert json.loads(json.dumps(row, allow_nan=False)) == row


def test_a_limit_that_is_exactly_on_the_frontier():
    on, *_ = records(made_up(), [2.0, 1.99, 6.0], RESULT)
    assert on.frontier_ratio == 6.0 / 8.0


@pytest.mark.parametrize(
    "summary",
    [{"reward_max": 0.0}, {"frontier_rewards": [0.0, 20.0]}],
    ids=["no reward in the data", "no reward within the limit"],
)
def test_data_that_earned_nothing(summary):
    run = made_up(**summary)
    found = [dataclasses.asdict(record) for record in records(run, LIMITS, RESULT)]
    json.dumps(found, allow_nan=False)
    assert len(rows(run, LIMITS, RESULT)) == 3


def many(episodes: int) -> Rollout:
    rng = np.random.default_rng(episodes)
    values = rng.normal(10.0, 2.0, (2, 1, episodes)), rng.uniform(0, 8, (2, 1, episodes))
    return Rollout(*values)


def test_intervals_contain_the_mean():
    for episodes in (5, 50, 500):
        result = many(episodes)
        [row] = rows(made_up(), [4.0], result)
        for value, low, high in (row.reward, row.cost, row.violation_rate, row.frontier_ratio):
            assert low < value < high
        for record in records(made_up(), [4.0], result):
            assert record.reward_low < record.reward < record.reward_high
            assert record.cost_low < record.cost < record.cost_high


def test_intervals_shrink_with_more_episodes():
    def widths(episodes: int) -> list[float]:
        [row] = rows(made_up(), [4.0], many(episodes))
        [first, _] = records(made_up(), [4.0], many(episodes))
        found = [(row.reward[1], row.reward[2]), (row.cost[1], row.cost[2])]
        found += [(first.reward_low, first.reward_high), (first.cost_low, first.cost_high)]
        return [high - low for low, high in found]

    few, more = widths(10), widths(1000)
    assert all(m < f / 3 for f, m in zip(few, more, strict=True))
    # two standard errors either side of the mean of 1000 episodes of one seed
    assert more[2] == pytest.approx(2 * 1.96 * 2.0 / math.sqrt(1000), rel=0.15)


def test_intervals_grow_with_the_spread_of_seeds():
    result = many(100)
    apart = Rollout(result.rewards + np.array([0.0, 20.0])[:, None, None], result.costs)
    [near_row], [far_row] = (rows(made_up(), [4.0], r) for r in (result, apart))
    assert far_row.reward[2] - far_row.reward[1] > 10 * (near_row.reward[2] - near_row.reward[1])


def test_figures_are_deterministic():
    assert rows(made_up(), [4.0], many(20)) == rows(made_up(), [4.0], many(20))
    assert records(made_up(), [4.0], many(20)) == records(made_up(), [4.0], many(20))


# --- rollouts ----------------------------------------------------------------------------------


def test_every_limit_and_seed_starts_from_the_same_states(policies):
    _, paths = rollout(policies, WINDY, [0.0, 5.0, 20.0], 5)
    starts = paths.positions[:, :, :, 0]
    np.testing.assert_array_equal(starts, np.broadcast_to(starts[:1, :1], starts.shape))
    assert len(np.unique(starts[0, 0, :, 0])) == 5
    _, others = rollout(policies, WINDY, [0.0, 5.0, 20.0], 5, seed=1)
    assert not np.isin(others.positions[0, 0, :, 0, 0], starts[0, 0, :, 0]).any()


def test_an_episode_is_the_same_among_few_and_many(policies):
    few, few_paths = rollout(policies, WINDY, [0.0, 5.0, 20.0], 5)
    more, more_paths = rollout(policies, WINDY, [0.0, 5.0, 20.0], 50)
    assert more.rewards.shape == more.costs.shape == (2, 3, 50)
    np.testing.assert_array_equal(
        few_paths.positions[:, :, :, 0], more_paths.positions[:, :, :5, 0]
    )
    np.testing.assert_allclose(few.rewards, more.rewards[:, :, :5], atol=1e-4)
    np.testing.assert_allclose(few.costs, more.costs[:, :, :5], atol=1e-4)


def test_the_order_of_limits_does_not_matter(policies):
    there, _ = rollout(policies, WINDY, [0.0, 5.0, 20.0], 5)
    back, _ = rollout(policies, WINDY, [20.0, 5.0, 0.0], 5)
    np.testing.assert_allclose(there.rewards, back.rewards[:, ::-1], atol=1e-4)
    np.testing.assert_allclose(there.costs, back.costs[:, ::-1], atol=1e-4)
    assert np.ptp(there.rewards, axis=1).max() > 1e-3  # limits do change what is done


def test_a_rollout_adds_up(policies):
    result, paths = rollout(policies, WINDY, [0.0, 5.0, 20.0], 5)
    assert paths.positions.shape == (2, 3, 5, 20, 2)
    np.testing.assert_allclose(paths.costs.sum(-1), result.costs)
    assert set(np.unique(paths.costs)) <= {0.0, 1.0}
    lanes = paths.positions[:, :, :, 1:, 1]  # the lane taken on the cell before
    np.testing.assert_array_equal(lanes > 0, paths.costs[:, :, :, :-1] > 0)
    again, _ = rollout(policies, WINDY, [0.0, 5.0, 20.0], 5)
    np.testing.assert_array_equal(result.rewards, again.rewards)


def test_seeds_differ(policies):
    result, _ = rollout(policies, WINDY, [0.0, 5.0, 20.0], 5)
    assert np.abs(result.rewards[0] - result.rewards[1]).max() > 1e-3


def test_a_target_reward_is_asked_for(policies):
    chosen, _ = rollout(policies, WINDY, [0.0, 5.0, 20.0], 5)
    asked, _ = rollout(policies, WINDY, [0.0, 5.0, 20.0], 5, target_reward=1000.0)
    assert np.abs(chosen.rewards - asked.rewards).max() > 1e-3


def test_nothing_is_earned_after_the_end(policies):
    def step(state: Any, action: Any) -> Any:
        after, reward, cost, _ = TASK.step(state, action)
        return after, reward + 1.0, cost + 1.0, after[1] >= 3.0

    short, paths = rollout(policies, dataclasses.replace(WINDY, step=step), [20.0], 5)
    assert (short.rewards >= 3.0).all() and (short.rewards <= 9.0 + 1e-5).all()
    assert (paths.costs[..., :3] >= 1.0).all()
    assert (paths.costs[..., 3:] == 0).all()


# --- eval.json ---------------------------------------------------------------------------------


def test_eval_json_is_a_list_of_records(evaluated):
    found = strict_json(evaluated / runs.EVAL)
    assert [(r["seed"], r["limit"]) for r in found] == [
        (seed, limit) for seed in (0, 1) for limit in (2.0, 5.0, 0.0)
    ]
    for record in found:
        assert set(record) >= FIELDS
        assert set(record) == {field.name for field in dataclasses.fields(Record)}
        assert record["task"] == "StitchChain" and record["algorithm"] == "gas"
        assert record["episodes"] == 5
        assert record["limit_fraction"] == record["limit"] / 20.0
        assert 0.0 <= record["violation_rate"] <= 1.0
        assert 0.0 <= record["cost"] <= 20.0
        assert (record["cost_norm"] is None) == (record["limit"] == 0.0)
        assert record["frontier_ratio"] is not None
    best = TASK.make_data(0).returns.max()
    assert found[0]["reward_norm"] == pytest.approx(found[0]["reward"] / best)


def test_every_episode_is_kept(evaluated):
    """What was asked, and the returns that the records are means of."""
    found = answer(evaluated, Question((2.0, 5.0, 0.0), 5))
    assert found is not None
    recorded = [record["reward"] for record in strict_json(evaluated / runs.EVAL)]
    assert found.rewards.mean(2).ravel().tolist() == pytest.approx(recorded)
    for other in (Question((2.0, 5.0), 5), Question((2.0, 5.0, 0.0), 5, seed=1)):
        assert answer(evaluated, other) is None


def test_eval_rows_are_the_rows(evaluated, tmp_path):
    out = shutil.copytree(evaluated, tmp_path / "run")
    table, notes = evaluate_run(out, ["10%", "5", "0"], episodes=5)
    assert notes == []
    assert strict_json(out / runs.ROWS) == [plain(row) for row in table]
    assert (out / runs.EVAL).read_bytes() == (evaluated / runs.EVAL).read_bytes()
    assert (out / runs.ROWS).read_bytes() == (evaluated / runs.ROWS).read_bytes()
    found = strict_json(out / runs.EVAL)
    both = [r["reward"] for r in found if r["limit"] == 5.0]
    assert table[1].reward[0] == pytest.approx(sum(both) / 2)


def test_a_limit_above_the_data_is_noted(trained, tmp_path):
    out = shutil.copytree(trained, tmp_path / "run")
    _, notes = evaluate_run(out, ["20", "5", "1000"], episodes=5)
    assert notes == [
        "the limit 1000 is above the largest cost of the data (20): it is asked for as 20"
    ]


def test_a_limit_below_all_data(trained, tmp_path):
    out = shutil.copytree(trained, tmp_path / "run")
    facts = json.loads((out / runs.RUN).read_text())
    facts["data_summary"].update(frontier_costs=[3.0], frontier_rewards=[9.0])
    (out / runs.RUN).write_text(json.dumps(facts))
    table, _ = evaluate_run(out, ["2", "5", "0"], episodes=5)
    ratios = {r["limit"]: r["frontier_ratio"] for r in strict_json(out / runs.EVAL)}
    assert ratios[2.0] is None and ratios[0.0] is None and ratios[5.0] is not None
    assert math.isnan(table[0].frontier_ratio[0])
    assert strict_json(out / runs.ROWS)[0]["frontier_ratio"] == [None] * 3


def test_a_bad_limit_writes_nothing(trained, tmp_path):
    out = shutil.copytree(trained, tmp_path / "run")
    with pytest.raises(SafestitchError, match="'-5' is below 0"):
        evaluate_run(out, ["10%", "-5"], episodes=5)
    assert not (out / runs.EVAL).exists()


def test_a_run_on_a_task_of_ones_own(trained, tmp_path):
    out = shutil.copytree(trained, tmp_path / "run")
    facts = json.loads((out / runs.RUN).read_text())
    facts["spec"]["task"] = "own data"
    (out / runs.RUN).write_text(json.dumps(facts))
    with pytest.raises(SafestitchError, match="'own data' has no simulator"):
        evaluate_run(out, ["10%"], episodes=5)


# --- the dial ----------------------------------------------------------------------------------


def test_the_dial_is_json(evaluated, page):
    assert strict_json(evaluated / runs.DIAL) == json.loads(json.dumps(page, allow_nan=False))
    assert [entry["limit"] for entry in page["dial"]] == [float(i) for i in range(STEPS)]
    assert page["dial"][0]["cost_norm"] == [None] * 3
    assert page["dial"][7]["optimum"] == 27.0
    for entry in page["dial"]:
        assert len(entry["paths"]) == DRAWN
        assert all(len(path[name]) == 20 for path in entry["paths"] for name in ("x", "y", "cost"))
    assert page["picture"]["zones"] == [[None, None, 0.0, None]]
    assert page["table"] == strict_json(evaluated / runs.ROWS)
    assert page["commands"][0] == (
        f"safestitch train gas StitchChain --seeds 2 --data-seed 0 --out {evaluated}"
    )


def test_the_dial_without_an_evaluation(trained, tmp_path):
    out = shutil.copytree(trained, tmp_path / "run")
    assert dial_run(out, episodes=5)["table"] == []


def test_the_dial_draws_no_more_episodes_than_there_are(trained, tmp_path):
    out = shutil.copytree(trained, tmp_path / "run")
    page = dial_run(out, episodes=1)
    assert {len(entry["paths"]) for entry in page["dial"]} == {1}
    assert page["episodes"] == 1


def test_the_report_is_made_of_it(page):
    text = render(page)
    assert '"task":"StitchChain"' in text
    assert text.lstrip().lower().startswith("<!doctype html>")
    assert "NaN" not in text.split('"task":"StitchChain"')[1].split("</script>")[0]


def write_metrics(directory: Path, text: str) -> Path:
    (directory / runs.METRICS).write_text(text)
    return directory


def test_learning_curves_by_hand(tmp_path):
    lines = ["step,seed,loss/a,loss/b", "100,0,1,5", "100,1,3,5", "200,0,0.5,6", "200,1,0.5,8"]
    write_metrics(tmp_path, "\r\n".join([*lines, ""]))
    first = {"step": [100, 200], "mean": [2.0, 0.5], "low": [1.0, 0.5], "high": [3.0, 0.5]}
    second = {"step": [100, 200], "mean": [5.0, 7.0], "low": [5.0, 6.0], "high": [5.0, 8.0]}
    assert learning_curves(tmp_path) == [{"name": "loss/a", **first}, {"name": "loss/b", **second}]


def test_learning_curves_are_thinned(tmp_path):
    lines = [f"{step},0,{step}" for step in range(100, 100_100, 100)]
    [curve] = learning_curves(write_metrics(tmp_path, "\n".join(["step,seed,loss/a", *lines, ""])))
    assert len(curve["step"]) == 200
    assert (curve["step"][0], curve["step"][-1]) == (100, 100_000)
    assert curve["mean"] == curve["step"]


def test_learning_curves_of_a_run(trained):
    curves = learning_curves(trained)
    assert [curve["step"] for curve in curves] == [[100, 200, 300]] * 7
    json.dumps(curves, allow_nan=False)


def test_learning_curves_of_a_training_that_diverged(tmp_path):
    write_metrics(tmp_path, "step,seed,loss/a\n100,0,1.0\n100,1,nan\n200,0,inf\n200,1,2.0\n")
    json.dumps(learning_curves(tmp_path), allow_nan=False)


@pytest.mark.parametrize(
    "text",
    ["", "step,seed,loss/a\n", "step,seed,loss/a\n100,0,1.0\n100,1", "step,seed,loss/a\nx,y,z\n"],
    ids=["empty", "header only", "cut short", "not numbers"],
)
def test_learning_curves_of_a_damaged_file(tmp_path, text):
    write_metrics(tmp_path, text)
    with pytest.raises(RunError, match=r"metrics\.csv"):
        learning_curves(tmp_path)


def test_learning_curves_of_a_missing_file(tmp_path):
    with pytest.raises(RunError, match=r"metrics\.csv is missing"):
        learning_curves(tmp_path)
