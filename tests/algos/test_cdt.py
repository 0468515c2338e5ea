"""CDT, in the order of `safestitch/algos/cdt.py`: every equation on numbers worked by hand."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.compiling import quick_jit

from safestitch.algos import asking, augmenting, cdt, windows
from safestitch.algos.augmenting import HandSet
from safestitch.algos.base import Request
from safestitch.algos.cdt import ALGORITHM, Batch, Config
from safestitch.catalog import catalog
from safestitch.envs import TASKS
from safestitch.episodes import Episodes
from safestitch.evaluation.rollout import rollout
from safestitch.policy import load_policies
from safestitch.records import SafestitchError, Spec
from safestitch.scaling import fit_scaling
from safestitch.training.loop import train
from safestitch.transformer import Dropout, attention, kept_values

SPEC = Spec("hand-made", obs_dim=2, act_dim=2, horizon=5, cost_range=4.0)
TINY = Config(
    iterations=10,
    batch=8,
    context=3,
    embedding=4,
    blocks=2,
    heads=2,
    budget_batch=4,
    units="data",
    cost_offset=1.0,
    cost_cap=1.1,
    dropout=0.0,
)
SHALLOW = dataclasses.replace(TINY, blocks=1)


def row(*values: float) -> jax.Array:
    return jnp.asarray(values, jnp.float32)


def close(found: Any, expected: Any, **options: Any) -> None:
    np.testing.assert_allclose(found, expected, **{"rtol": 1e-5, "atol": 1e-6, **options})


# --- augmenting --------------------------------------------------------------------------------


def test_requests_lie_beyond_the_frontier():
    # Frontier (0, 1), (1, 3), (3, 5), of a line fitted to it: 1.285714 C + 1.285714.
    R, C = np.array([1.0, 3.0, 2.0, 5.0]), np.array([0.0, 1.0, 2.0, 3.0])
    numbers = HandSet(1, 10.0, 2.0, (), ())
    r, c = augmenting.requests(R, C, numbers, 200, np.random.default_rng(0))
    close(c, np.linspace(0.0, 3.0, 200))
    least = 1.285714 * c + 1.285714 + 0.04  # a hundredth of the range
    assert (r >= least - 1e-5).all() and (r <= 10.0).all()
    close(((r - least) / (10.0 - least)).mean(), 0.5, atol=0.05)


def test_the_stand_in_keeps_the_cost():
    R, C = np.array([1.0, 3.0, 2.0, 5.0]), np.array([0.0, 1.0, 2.0, 3.0])
    assert augmenting.stand_in(R, C, r=6.0, c=3.0) == 3
    assert augmenting.stand_in(R, C, r=6.0, c=2.9) == 1  # (3, 1): 9 + 3.61; (2, 2): 16 + 0.81
    assert augmenting.stand_in(R, C, r=6.0, c=0.0) == 0


def test_another_is_as_cheap_and_not_much_poorer():
    R, C = np.array([5.0, 4.0, 2.0, 9.0]), np.array([2.0, 1.0, 0.0, 3.0])
    rng = np.random.default_rng(0)
    drawn = [augmenting.another(R, C, 0, 1.0, rng) for _ in range(2000)]
    counts = np.bincount(drawn, minlength=4) / 2000
    # Weights 1 / (0 + 1) and 1 / (√2 + 1) = 0.414214; the others are too poor or too costly.
    close(counts, [0.707107, 0.292893, 0.0, 0.0], atol=0.03)


@pytest.mark.parametrize("pairing", ["released", "kept"])
def test_relabelled_episodes(pairing):
    rng = np.random.default_rng(0)
    C = np.repeat(np.arange(10.0), 20)
    R = C + rng.uniform(0, 5, 200)
    found = augmenting.relabel_episodes(R, C, augmenting.measured(R), 0.2, pairing)
    assert len(found.episode) == len(found.R) == len(found.C)
    assert sorted(found.C.tolist()) == found.C.tolist() or pairing == "kept"
    if pairing == "kept":
        assert (C[found.episode] <= found.C + 1e-9).all()  # each request goes to its own stand-in
    assert np.ptp(found.C) == 9.0


def test_crowded_cells_are_thinned_and_lonely_ones_dropped():
    C = np.concatenate([np.zeros(30), [5.0, 5.0], np.full(3, 10.0)])
    R = np.concatenate([np.zeros(30), [5.0, 5.0], np.full(3, 10.0)])
    kept = augmenting.thin(R, C, np.random.default_rng(0))
    assert np.bincount(C[kept].astype(int), minlength=11)[[0, 5, 10]].tolist() == [10, 0, 3]
    assert len(augmenting.thin(R[:2], C[:2], np.random.default_rng(0))) == 2


def test_hand_set_targets():
    table = jnp.asarray(augmenting.targets_of("CarCircle"))
    asked = [
        float(augmenting.read_table(table, jnp.float32(L)))
        for L in (10, 15, 20, 35, 50, 60, 0, 80, 90)
    ]
    # The last line rises by 5 / 3 per cost and meets the largest reward, 600, at a cost of 80.
    close(asked, [450.0, 475.0, 500.0, 525.0, 550.0, 566.6667, 400.0, 600.0, 600.0])
    assert len(augmenting.hand_set()) == 17
    for task, numbers in augmenting.hand_set().items():
        known = augmenting.targets_of(task)
        assert catalog()[task].reward_min < known[1].min() and known[1].max() <= numbers.max_reward
        for cost, reward in zip(numbers.costs, numbers.rewards, strict=True):
            assert float(augmenting.read_table(jnp.asarray(known), jnp.float32(cost))) == reward
    with pytest.raises(SafestitchError, match="MiniRun has no hand-set targets"):
        augmenting.targets_of("MiniRun")


# --- windows -----------------------------------------------------------------------------------


def two_episodes() -> Episodes:
    """Three and five steps; rewards 1, 2, 4, .. and a cost of 1 at the first steps of each."""
    n, ends = 8, np.zeros(8, bool)
    ends[[2, 7]] = True
    rewards = np.array([1.0, 2, 4, 1, 2, 4, 8, 1])
    costs = np.array([1.0, 0, 0, 1, 1, 1, 1, 0])
    observations, actions = np.arange(16.0).reshape(n, 2), np.zeros((n, 2))
    return Episodes.of(observations, actions, rewards, costs, np.zeros(n, bool), ends)


def test_episodes_are_drawn_by_what_their_cost_leaves():
    close(
        windows.episode_weights(np.array([0.0, 30.0, 70.0, 90.0]), 70.0), [0.636364, 0.363636, 0, 0]
    )
    close(windows.episode_weights(np.array([80.0, 90.0]), 70.0), [0.5, 0.5])


def test_windows_by_hand():
    episodes = two_episodes()
    scaling = fit_scaling(episodes, SPEC)
    cfg = dataclasses.replace(TINY, augment=0.0, units="task", cost_cap=5.0)
    data = jax.tree.map(jnp.asarray, cdt.prepare(cfg, episodes, SPEC, scaling))
    # Costs 1 and 4, so weights 4 and 1: u below 0.8 is the first episode.
    cut = quick_jit(functools.partial(windows.cut_windows, cfg))
    window, costly, valid = cut(data, row(0.1, 0.9, 0.79), row(0.4, 0.0, 0.99))
    assert window.time.tolist() == [[1, 2, 0], [0, 1, 2], [2, 0, 0]]
    assert valid.tolist() == [[1, 1, 0], [1, 1, 1], [1, 0, 0]]
    close(window.R_hat, [[0.6, 0.4, 0.0], [1.6, 1.5, 1.3], [0.4, 0.0, 0.0]])  # a tenth, to go
    close(window.C_hat, [[0.0, 0.0, 0.0], [4.0, 3.0, 2.0], [0.0, 0.0, 0.0]])
    assert costly.tolist() == [[0, 0, 0], [1, 1, 1], [0, 0, 0]]
    rows = np.rint(window.s[..., 0] * scaling.obs_std[0] + scaling.obs_mean[0])
    assert rows[np.asarray(valid) > 0].tolist() == [2, 4, 6, 8, 10, 4]


def test_relabelling_shifts_all_returns_to_go_alike():
    episodes = two_episodes()
    scaling = fit_scaling(episodes, SPEC)
    added = augmenting.Relabelled(np.array([0]), np.array([32.0]), np.array([2.0]))
    data = windows.tabulate(TINY, episodes, SPEC, scaling, added)
    data = jax.tree.map(jnp.asarray, data)._replace(
        reach=row(0.0, 0.0, 1.0, 2.0, 2.0, 2.0, 2, 2, 2)
    )
    cut = quick_jit(functools.partial(windows.cut_windows, TINY))
    window, _, _ = cut(data, row(0.5), row(0.0))
    close(window.R_hat[0], np.array([32.0, 31.0, 29.0]) / 16)  # largest return 16
    close(window.C_hat[0], np.array([2.0, 1.0, 1.0]) / 4)


def test_own_steps_shift_through_the_window():
    window = windows.empty_window(3, 1, 1)
    remember = quick_jit(windows.remember)
    for step in range(5):
        now = [jnp.float32(step)] * 2 + [row(step), row(-step), jnp.int32(step)]
        window, place = remember(window, jnp.int32(step), now)
        assert int(place) == min(step, 2)
        if step == 1:
            assert window.time.tolist() == [[0, 1, 0]]
    assert window.time.tolist() == [[2, 3, 4]]
    assert window.a[0, :, 0].tolist() == [-2, -3, -4]


# --- equations ---------------------------------------------------------------------------------


def batch_of(valid: list[list[float]], a: Any, costly: Any = 0.0) -> Batch:
    b, k = np.shape(valid)
    on = jnp.asarray(valid, jnp.float32)
    window = windows.Window(
        jnp.zeros((b, k)),
        jnp.zeros((b, k)),
        jnp.zeros((b, k, 2)),
        jnp.broadcast_to(jnp.asarray(a, jnp.float32), (b, k, 2)),
        jnp.zeros((b, k), jnp.int32),
    )
    costs = jnp.broadcast_to(jnp.asarray(costly, jnp.float32), (b, k))
    one = jnp.zeros(b)
    seen = cdt.asking.Segments(jnp.zeros((b, 2)), one, one, one, one)
    return Batch(window, costs, on, jnp.arange(b, dtype=jnp.uint32), seen)


def test_likelihood_and_entropy_by_hand():
    # One valid step: μ = (0, 1), σ = (1, 2), a = (1, 1). log N = -0.5 - 0.918939 and
    # -0.918939 - ln 2; H = 1.418939 and 1.418939 + ln 2.
    batch = batch_of([[1, 0]], [1.0, 1.0])
    mean = jnp.broadcast_to(row(0.0, 1.0), (1, 2, 2))
    log_std = jnp.broadcast_to(row(0.0, float(np.log(2.0))), (1, 2, 2))
    close(cdt.likelihood(mean, log_std, batch), -0.918939 - 0.25 - 0.346574)
    close(cdt.entropy(log_std, batch), 1.418939 + 0.346574)


def test_cost_loss_by_hand():
    # p(costly) = 0.75: -ln 0.75 and -ln 0.25 on two valid steps of four.
    batch = batch_of([[1, 1], [0, 0]], 0.0, [[1, 0], [1, 1]])
    logits = jnp.broadcast_to(row(0.0, float(np.log(3.0))), (2, 2, 2))
    close(cdt.cost_loss(logits, batch), (0.287682 + 1.386294) / 4)


def test_temperature_falls_while_entropy_is_above_its_target():
    slope = jax.grad(cdt.temperature_loss)(jnp.float32(0.0), jnp.float32(0.5), -2.0)
    close(slope, 2.5)


@functools.cache
def fresh(cfg: Config) -> cdt.Networks:
    key = jax.random.key(0, impl="unsafe_rbg")  # the default's many draws take long to compile
    return quick_jit(lambda key: cdt.init(cfg, SPEC, key))(key)


def network(cfg: Config = TINY) -> cdt.Network:
    """Weights large enough for every token to matter."""

    def grow(x):
        return jnp.asarray(x + 0.3 * np.sin(7.0 * np.arange(x.size)).reshape(x.shape), x.dtype)

    return jax.tree.map(lambda x: grow(np.asarray(x)), fresh(cfg).policy.net)


def random_window(b: int = 2, k: int = 3) -> windows.Window:
    rng = np.random.default_rng(0)
    R, C = jnp.asarray(rng.normal(size=(2, b, k)), jnp.float32)
    s, a = jnp.asarray(rng.normal(size=(2, b, k, 2)), jnp.float32)
    return windows.Window(R, C, s, a, jnp.broadcast_to(jnp.arange(k), (b, k)))


def test_nothing_sees_the_future():
    """An action is predicted from everything up to its state, and from nothing after it."""
    net, window = network(), random_window()
    read = quick_jit(lambda window: cdt.read(TINY, net, window))
    mean, _, logits = read(window)
    for name, sees_own in (("R_hat", True), ("C_hat", True), ("s", True), ("a", False)):
        column = getattr(window, name)
        other, _, other_logits = read(window._replace(**{name: column.at[:, 1].add(1.0)}))
        assert (other[:, 0] == mean[:, 0]).all()
        assert bool((other[:, 1] != mean[:, 1]).any()) == sees_own, name
        assert (other[:, 2] != mean[:, 2]).any(), name
        assert (other_logits[:, 1] != logits[:, 1]).any()


def test_reading_some_tokens_equals_reading_all():
    net, window = network(), random_window()

    @quick_jit
    def both(window):
        x = cdt.tokens(TINY, net, window)
        return net.body(x, heads=2), net.body(x, (4, 2), heads=2)

    everything, some = both(window)
    close(some.reshape(2, 3, 2, 4), everything.reshape(2, 3, 4, 4)[:, :, 2:], atol=1e-5)


@pytest.mark.parametrize("position", [[0, 1, 2, 3, 4], [2, 3, 6, 7], [0], [7]])
def test_attention_is_the_textbooks(position):
    """Each query alone in NumPy: a softmax over the tokens up to its own."""
    rng, n = np.random.default_rng(0), position[-1] + 1
    q, k, v = (rng.normal(size=(2, m, 3, 4)) for m in (len(position), n, n))
    expected = np.zeros_like(q)
    for b, i, h in np.ndindex(2, len(position), 3):
        past = slice(position[i] + 1)
        weights = np.exp(k[b, past, h] @ q[b, i, h] / 2.0)
        expected[b, i, h] = weights @ v[b, past, h] / weights.sum()
    shown = (x.astype(np.float32) for x in (q, k, v))
    found = quick_jit(lambda q, k, v: attention(q, k, v, np.array(position), None, 0))(*shown)
    close(found, expected, atol=1e-5)


def test_every_query_draws_its_own_dropout():
    """Weights are equal over the past, so a query shows how many of its tokens were kept."""
    zero, one = jnp.zeros((300, 8, 1, 1)), jnp.ones((300, 8, 1, 1))
    drop = Dropout(jax.random.bits(jax.random.key(0), (300,)), 0.5)
    found = quick_jit(lambda k, v: attention(k, k, v, np.arange(8), drop, 1))(zero, one)[:, :, 0, 0]
    close(found.mean(0), 1.0, atol=0.15)
    between = np.corrcoef(np.asarray(found).T)
    assert np.abs(between - np.eye(8)).max() < 0.25


def test_dropout_drops_its_share_and_keeps_the_mean():
    seeds = jax.random.bits(jax.random.key(0), (200,))
    kept, others = (
        quick_jit(lambda seeds, site=site: kept_values(seeds, site, 500, 0.1))(seeds)
        for site in (3, 4)
    )
    assert abs(float(kept.mean(dtype=jnp.float32)) - 0.9) < 0.005
    assert (
        abs(np.corrcoef(np.asarray(kept[:, :-1]).ravel(), np.asarray(kept[:, 1:]).ravel())[0, 1])
        < 0.02
    )
    assert (
        abs(np.corrcoef(np.asarray(kept[:-1]).ravel(), np.asarray(kept[1:]).ravel())[0, 1]) < 0.02
    )
    assert (kept != others).any()
    x = quick_jit(lambda seeds: Dropout(seeds, 0.25)(jnp.ones((200, 50, 10)), 0))(seeds)
    assert {round(v, 4) for v in np.unique(x).tolist()} == {0.0, 1.3333}
    close(x.mean(), 1.0, atol=0.01)


def test_each_loss_trains_its_own_network():
    """Without segments' targets the advisors move, without windows only they do."""
    cfg = dataclasses.replace(SHALLOW, weight_decay=0.0, learning_rate=1e-2)
    state = fresh(SHALLOW)
    update = quick_jit(lambda state, batch: cdt.update(cfg, state, batch)[0])
    batch = batch_of([[1, 1, 1]] * 8, 0.5)
    plain = update(state, batch)
    changed = batch._replace(segments=batch.segments._replace(C=jnp.ones(8)))
    other = update(state, changed)

    def same(a, b):
        return all(bool((x == y).all()) for x, y in zip(*map(jax.tree.leaves, (a, b)), strict=True))

    assert same(plain.policy, other.policy)
    assert same(plain.advisors.budget_goal, other.advisors.budget_goal)
    assert not same(plain.advisors.cost_floor, other.advisors.cost_floor)
    moved = update(state, batch._replace(window=batch.window._replace(a=-batch.window.a)))
    assert not same(plain.policy, moved.policy)
    assert same(plain.advisors, moved.advisors)


def test_a_batch_in_parts_is_the_batch(monkeypatch):
    """Also where parts differ in how many of their steps are valid."""
    cfg = dataclasses.replace(SHALLOW, dropout=0.0)
    state = fresh(SHALLOW)
    batch = batch_of([[1.0, 1.0, 1.0]] * 4 + [[1.0, 0.0, 0.0]] * 4, 0.5)
    found = []
    for part in (8, 2):
        monkeypatch.setattr(cdt, "PART", part)
        found.append(quick_jit(lambda *given: cdt.update(cfg, *given))(state, batch))
    (whole, of_whole), (parts, of_parts) = found
    assert of_whole.keys() == of_parts.keys()
    for name, value in of_whole.items():
        assert float(of_parts[name]) == pytest.approx(float(value), rel=1e-5)
    gradients = [jax.tree.leaves(s.policy.opt_state) for s in (whole, parts)]
    for a, b in zip(*gradients, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-7)


def test_paper_preset_is_the_released_table():
    paper = dataclasses.asdict(ALGORITHM.presets["paper"])
    table = {
        "iterations": 100_000,
        "batch": 2048,
        "learning_rate": 1e-4,
        "warm_up": 500,
        "clip": 0.25,
    }
    table |= {"context": 10, "embedding": 128, "blocks": 3, "heads": 8, "dropout": 0.1}
    table |= {"cost_weight": 0.02, "augment": 0.2, "cost_offset": 50.0, "cost_cap": 70.0}
    assert {name: paper[name] for name in table} == table
    with pytest.raises(SafestitchError, match="embedding is 10: expected a multiple of heads"):
        Config(embedding=10, heads=4)


# --- acting ------------------------------------------------------------------------------------


def ask(limit: float, target: float = np.nan) -> Request:
    return Request(jnp.float32(limit), jnp.float32(target))


@pytest.mark.parametrize("context", [1, 3])
def test_acting_equals_reading_a_logged_window(context):
    """Five steps acted one by one against all windows of the same steps, read at once."""
    cfg = dataclasses.replace(SHALLOW, context=context, reserve=0.0)
    episodes = two_episodes()
    scaling = jax.tree.map(jnp.asarray, fit_scaling(episodes, SPEC))
    policy = cdt.policy_of(fresh(SHALLOW))._replace(policy=network(SHALLOW))
    policy = policy._replace(advisors=jax.tree.map(jnp.zeros_like, policy.advisors))
    act = quick_jit(lambda carry, obs: cdt.act(cfg, policy, scaling, carry, obs))
    carry = cdt.start(cfg, policy, scaling, ask(2.0, 8.0))
    tokens: list[list] = [[], [], [], [], []]
    R, C = 8.0 / 16, 2.0 / 4
    for step in range(5):
        obs = jnp.asarray(episodes.observations[step])
        action, carry = act(carry, obs)
        for column, value in zip(
            tokens, (R, C, scaling.observation(obs), action, step), strict=True
        ):
            column.append(np.asarray(value))
        carry = asking.observe(cfg, scaling, carry, jnp.float32(1.0), jnp.float32(0.5))
        R, C = R - 1 / 16, C - 0.5 / 4
    begins = range(5 - context + 1)
    cut = [np.stack([c[i : i + context] for i in begins]) for c in tokens]
    R_hat, C_hat, s, a = (jnp.asarray(x, jnp.float32) for x in cut[:4])
    window = windows.Window(R_hat, C_hat, s, a, jnp.asarray(cut[4], jnp.int32))
    expected = np.clip(quick_jit(lambda w: cdt.read(cfg, policy.policy, w)[0])(window), -1.0, 1.0)
    # Until a window is full, its first steps are all there is: nothing sees the future.
    close(a[0, :-1], expected[0, :-1], atol=1e-5)
    close(a[:, -1], expected[:, -1], atol=1e-5)


def test_hand_set_targets_are_asked_for_with_the_bare_limit():
    spec = dataclasses.replace(SPEC, task="CarCircle")
    cfg = dataclasses.replace(TINY, target="table")
    table = quick_jit(lambda key: cdt.init(cfg, spec, key).table)(jax.random.key(0))
    policy = cdt.policy_of(fresh(SHALLOW))._replace(table=table)
    scaling = fit_scaling(two_episodes(), SPEC)
    carry = cdt.start(cfg, policy, scaling, ask(15.0))
    close([carry.R_hat * 16, carry.C_hat * 4], [475.0, 15.0])
    with pytest.raises(SafestitchError, match="no hand-set targets"):
        jax.eval_shape(lambda key: cdt.init(cfg, SPEC, key), jax.random.key(0))


@pytest.mark.slow
def test_cdt_follows_the_limit_on_the_chain(tmp_path):
    chain = TASKS["StitchChain"]
    cfg = dataclasses.replace(ALGORITHM.presets["fast"], iterations=2_000, blocks=2, context=5)
    train(ALGORITHM, cfg, chain.spec, chain.make_data(0), [0], tmp_path / "run")
    limits = [2.0, 6.0, 14.0, 18.0]
    found, _ = rollout(load_policies(tmp_path / "run"), chain, limits, 50)
    costs = found.costs.mean((0, 2))
    assert (np.diff(costs) > 1.0).all()
    assert (costs <= np.asarray(limits) + 1.0).all()
