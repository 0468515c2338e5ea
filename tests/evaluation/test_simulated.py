"""Evaluation on simulators: all limits, seeds and episodes together, whatever the workers do."""

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from safestitch.catalog import get_entry
from safestitch.cli import main
from safestitch.episodes import Episodes
from safestitch.evaluation import evaluate_run, simulated
from safestitch.evaluation.dial import dial_run
from safestitch.evaluation.simulated import episode_seeds, lanes_of, plan, simulate
from safestitch.evaluation.watching import watch
from safestitch.policy import load, load_policies
from safestitch.records import SafestitchError, Spec
from safestitch.sims.own import Own
from safestitch.sims.pool import Pool, Source
from safestitch.training import train_on

pytestmark = pytest.mark.usefixtures("as_installed")

ENV = "own_environments:corridor"
SPEC = Spec("own data", 3, 1, 12, 12.0)
SMALL: dict[str, Any] = {
    "iterations": 5,
    "batch": 16,
    "hidden": 8,
    "embedding": 4,
    "layers": 2,
    "budget_batch": 8,
}


@pytest.fixture(autouse=True)
def own_environments(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "sims"))


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """Two seeds trained on random walks along the corridor."""
    random, rows = np.random.default_rng(0), []
    for _ in range(20):
        position = random.uniform(-1, 1)
        for t in range(12):
            action = random.uniform(-1, 1)
            seen = (position, t / 12, 1.0)
            rows.append((seen, [action], action, abs(action) > 0.5, False, t == 11))
            position += action
    columns = [np.asarray(column, float) for column in zip(*rows, strict=True)]
    out = tmp_path_factory.mktemp("runs") / "corridor"
    train_on(Episodes.of(*columns), out, spec=SPEC, seeds=2, **SMALL)
    return out


def rolled(run: Path, workers: int, progress=None) -> tuple[np.ndarray, np.ndarray]:
    policies, source, limits = load_policies(run), Source(SPEC, ENV), [2.0, 6.0, 12.0]
    result, _ = simulate(policies, source, limits, 5, workers=workers, progress=progress)
    return result.rewards, result.costs


def test_every_seed_limit_and_episode_is_there(run):
    rewards, costs = rolled(run, 2)
    assert rewards.shape == costs.shape == (2, 3, 5)
    assert np.isfinite(rewards).all()
    assert (costs >= 0).all() and (costs <= 12).all()


def test_the_result_does_not_depend_on_the_workers(run):
    results = [rolled(run, workers) for workers in (1, 2, 3)]
    for rewards, costs in results[1:]:
        assert (rewards == results[0][0]).all()
        assert (costs == results[0][1]).all()


def test_it_is_what_a_session_does_alone(run):
    """One episode by the public interface, step by step."""
    rewards, costs = rolled(run, 2)
    policy, simulator = load(run, seed=1), Own(ENV, 12)
    session = policy.start(limit=6.0)
    observation = simulator.reset(int(episode_seeds(0, 5)[3]))
    for _ in range(12):
        step = simulator.step(session.act(np.asarray(observation, np.float32)))
        session.observe(step.reward, step.cost)
        observation = step.observation
    assert session.reward == pytest.approx(rewards[1, 1, 3], abs=1e-4)
    assert session.cost == costs[1, 1, 3]


def test_a_worker_killed_in_mid_evaluation_changes_nothing(run, monkeypatch):
    pools: list[Pool] = []

    class Watched(Pool):
        def begin(self, seeds):
            super().begin(seeds)
            pools.append(self)

    monkeypatch.setattr(simulated, "Pool", Watched)
    expected = rolled(run, 2)
    kills = iter((40, 130, 220))
    next_kill = next(kills)

    def kill(steps: int, *_: int) -> None:
        nonlocal next_kill
        if steps >= next_kill:
            os.kill(pools[-1].processes[0], signal.SIGKILL)
            next_kill = next(kills, 10**9)

    found = rolled(run, 2, progress=kill)
    assert (found[0] == expected[0]).all()
    assert (found[1] == expected[1]).all()


def test_progress_counts_steps_and_episodes(run):
    seen = []
    rolled(run, 2, progress=lambda *counts: seen.append(counts))
    assert seen[-1] == (2 * 3 * 5 * 12, 30, 30)
    assert [s for s, _, _ in seen] == sorted(s for s, _, _ in seen)
    played = [p for _, p, _ in seen]
    assert played == sorted(played)
    assert any(0.0 < p < 30.0 for p in played)  # all end at once: parts of those under way


def test_large_simulators_are_fewer():
    assert lanes_of(Source(get_entry("HalfCheetahVelocity").spec)) == 256
    assert lanes_of(Source(get_entry("BallRun").spec)) == 128
    assert lanes_of(Source(get_entry("HalfCheetahVelocity").spec, "mine:env")) == 128


@pytest.mark.parametrize(("seeds", "requests", "lanes"), [(1, 1, 32), (5, 61, 32), (3, 60, 128)])
def test_a_plan_plays_every_episode_once(seeds, requests, lanes):
    chosen = plan(seeds, requests, lanes)
    assert chosen.lanes % 2 == 0
    assert chosen.episode.shape == (seeds, chosen.lanes, chosen.laps)
    for episodes in chosen.episode:
        played = episodes[episodes >= 0]
        assert sorted(played) == list(range(requests))


def test_episode_seeds_do_not_depend_on_how_many():
    assert episode_seeds(3, 8)[:5].tolist() == episode_seeds(3, 5).tolist()
    assert len(set(episode_seeds(0, 100)) | set(episode_seeds(1, 100))) == 200


# --- by the user's door ------------------------------------------------------------------------


def test_eval_with_ones_own_environment(run, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["eval", str(run), "--env", ENV, "--limits", "3", "50%", "--episodes", "2"])
    assert ended.value.code == 0
    assert "6 (50%)" in capsys.readouterr().out
    assert (run / "eval.json").exists()


def test_a_run_without_a_simulator_is_told_of_env(run):
    with pytest.raises(SafestitchError, match=r"has no simulator.*--env"):
        evaluate_run(run, ["3"])


def test_the_report_of_an_environment_without_positions(run):
    page = dial_run(run, episodes=1, env=ENV)
    assert len(page["dial"]) == 21
    assert all(row["paths"] == [] for row in page["dial"])


def test_watch_writes_a_clip_and_a_still(run, tmp_path):
    watch(run, ["2", "50%"], tmp_path / "clip.gif", env=ENV, every=5)
    with Image.open(tmp_path / "clip.gif") as clip:
        assert getattr(clip, "n_frames", 1) in (3, 4)  # steps 0, 5, 10 and the end; equal ones join
        assert clip.width > 2 * 240
    watch(run, ["2"], tmp_path / "still.png", env=ENV)
    with Image.open(tmp_path / "still.png") as still:
        assert still.width == 240


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--out", "clip.mp4"], "ends in .gif or .png"),
        (["--every", "0"], "at least 1 step"),
        (["--task", "CarCircle"], "was trained on own data, not on CarCircle"),
        (["--width", "4"], "32 to 2000"),
        (["--limits", "-3"], "below 0"),
    ],
)
def test_watch_with_bad_options(run, capsys, options, message):
    with pytest.raises(SystemExit) as ended:
        main(["watch", str(run), "--env", ENV, *options])
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def test_tasks_lists_all_and_tries_ones_own(capsys):
    with pytest.raises(SystemExit):
        main(["tasks"])
    listed = capsys.readouterr().out
    assert "CarCircle1" in listed and "MiniRun" in listed
    with pytest.raises(SystemExit) as ended:
        main(["tasks", "--env", ENV, "--horizon", "12"])
    assert ended.value.code == 0
    assert "works: observations 3, actions 1 in [-1, 1], horizon 12" in capsys.readouterr().out
    with pytest.raises(SystemExit) as ended:
        main(["tasks", "--env", "own_environments:negative", "--horizon", "12"])
    assert ended.value.code == 2
    assert "the cost -1 is negative" in capsys.readouterr().err
