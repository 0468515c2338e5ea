"""What the workers bring, as rows to learn from."""

from pathlib import Path

import jax
import numpy as np
import pytest

from safestitch.behaviours.actor import init_actor
from safestitch.behaviours.collecting import LAPS, Collector, measure
from safestitch.behaviours.replay import unpack
from safestitch.records import Spec
from safestitch.sims.pool import Pool, Source

pytestmark = pytest.mark.usefixtures("as_installed", "hallways")
SPEC = Spec("hallway", 2, 1, 12, 0.0)


@pytest.fixture
def hallways(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


def pool_of(name: str, lanes: int = 4) -> Pool:
    return Pool(Source(SPEC, f"hallways:{name}"), lanes=lanes, laps=LAPS, workers=1)


def collect(name: str, rounds: int, switch: float = 0.0, actor=None):
    """Rows in the order they came, and the episodes."""
    with pool_of(name) as pool:
        collector = Collector(pool, lambda u: 1.0 + u, 0.9, switch, [0])
        collector.begin()
        rows = []
        for _ in range(rounds):
            for group in (0, 1):
                came, lanes = collector.receive(group)
                assert len(came) == len(lanes)
                rows.append(came)
                collector.send(group, actor)
    return unpack(SPEC, np.concatenate(rows)), collector.episodes


def test_rows_hold_what_was_seen_taken_and_brought():
    rows, _ = collect("hallway", 6)
    assert len(rows.obs) == 4 * 5  # nothing comes before the first action
    np.testing.assert_allclose(rows.reward, 2.0 * rows.action[:, 0], rtol=1e-6)
    np.testing.assert_array_equal(rows.cost, rows.action[:, 0] > 0.5)
    np.testing.assert_array_equal(rows.next_obs[:, 1], rows.obs[:, 1] + 1)
    np.testing.assert_array_equal(rows.next_obs[:, 0], rows.obs[:, 0])


def test_a_time_limit_is_no_end_and_its_last_observation_is_its_own():
    rows, _ = collect("hallway", 20)
    last = rows.obs[:, 1] == 11
    assert last.sum() == 4
    np.testing.assert_array_equal(rows.next_obs[last, 1], 12)
    np.testing.assert_array_equal(rows.discount, np.float32(0.9))


def test_the_task_ends_an_episode():
    rows, _ = collect("cliff", 20)
    np.testing.assert_array_equal(rows.discount, np.where(rows.obs[:, 1] == 4, 0, np.float32(0.9)))
    assert (rows.next_obs[:, 1] == rows.obs[:, 1] + 1).all()


def test_each_episode_has_one_lambda_and_its_sums():
    rows, episodes = collect("hallway", 40)
    assert len(episodes) == 12
    for episode in episodes:
        of = rows.lam == np.float32(episode.lam)
        assert of.sum() == 12
        assert rows.reward[of].sum() == pytest.approx(episode.reward, rel=1e-5)
        assert rows.cost[of].sum() == episode.cost


def test_switched_episodes_are_marked():
    _, episodes = collect("hallway", 40, switch=0.99)
    assert all(np.isnan(e.lam) for e in episodes)


def test_lanes_that_have_played_all_episodes_begin_anew(monkeypatch):
    monkeypatch.setattr("safestitch.behaviours.collecting.LAPS", 2)
    with Pool(Source(SPEC, "hallways:cliff"), lanes=4, laps=2, workers=1) as pool:
        collector = Collector(pool, lambda u: 1.0 + u, 0.9, 0.0, [0])
        collector.begin()
        count = 0
        for _ in range(60):
            for group in (0, 1):
                count += len(collector.receive(group)[0])
                collector.send(group, None)
    assert count > 4 * 40


def test_measuring_plays_every_lambda_from_the_same_starts():
    actor = init_actor(SPEC, 8, jax.random.key(0))
    weights = (*actor.weights[:2], 0.0 * actor.weights[2])
    steady = actor._replace(weights=weights, biases=(*actor.biases[:2], np.array([3.0, 0.0], "f")))
    with pool_of("hallway", 3) as pool:
        rewards, costs = measure(pool, steady, (0.0, 1.0, 10.0), 2, seed=5)
        again, _ = measure(pool, actor, (0.0, 1.0, 10.0), 2, seed=5)
    np.testing.assert_allclose(rewards, 24.0 * np.tanh(3.0), rtol=1e-5)
    np.testing.assert_array_equal(costs, 12.0)
    assert (again < rewards).all()
