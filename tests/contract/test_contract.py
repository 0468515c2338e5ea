"""What every algorithm owes: the contract of `safestitch.algos.base.Algorithm`, on a tiny task."""

import dataclasses
import functools
import inspect
import json
import math
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.compiling import QUICK, quick_jit

from safestitch.algos import ALGORITHMS, Algorithm, Request, get_algorithm
from safestitch.episodes import Episodes
from safestitch.records import SafestitchError, Spec
from safestitch.scaling import Scaling, fit_scaling
from safestitch.training.loop import Checkpoint, compile_chunk

every_algorithm = pytest.mark.parametrize(
    "algorithm", ALGORITHMS.values(), ids=[name for name in ALGORITHMS]
)

SPEC = Spec(
    "tiny", obs_dim=3, act_dim=2, horizon=6, cost_range=4.0, action_low=-2.0, action_high=3.0
)
LENGTHS = (6, 1, 4, 6, 2, 6)
STEPS = sum(LENGTHS)
SMALL = {"iterations": 4, "batch": 16, "budget_batch": 8, "hidden": 8, "embedding": 4, "layers": 2}
SMALL |= {"context": 3, "blocks": 1, "heads": 2}
SMALL |= {"thrift": 0.0}  # a goal that has learned nothing says that budgets buy nothing


def episodes_of(lengths=LENGTHS, seed: int = 0, **changes: Any) -> Episodes:
    rng = np.random.default_rng(seed)
    n = sum(lengths)
    ends = np.zeros(n, bool)
    ends[np.cumsum(lengths) - 1] = True
    worked = {
        "observations": rng.normal(size=(n, SPEC.obs_dim)),
        "actions": rng.uniform(SPEC.action_low, SPEC.action_high, (n, SPEC.act_dim)),
        "rewards": rng.normal(size=n) + 1.0,
        "costs": (rng.uniform(size=n) < 0.3).astype(float),
        "terminated": np.zeros(n, bool),
        "truncated": ends,
    }
    return Episodes.of(**{**worked, **changes})


def small(algorithm: Algorithm) -> Any:
    """The fast preset with whatever sizes it has made small."""
    config = algorithm.presets["fast"]
    names = {field.name for field in dataclasses.fields(config)}
    return dataclasses.replace(config, **{k: v for k, v in SMALL.items() if k in names})


def prepared(algorithm: Algorithm, episodes: Episodes) -> tuple[Any, Scaling]:
    scaling = fit_scaling(episodes, SPEC)
    data = algorithm.prepare(small(algorithm), episodes, SPEC, scaling)
    return jax.tree.map(jnp.asarray, data), scaling


@dataclasses.dataclass(frozen=True, eq=False)
class Parts:
    """An algorithm's functions, compiled, with its config filled in."""

    algorithm: Algorithm
    init: Any
    sample: Any
    update: Any
    act: Any

    @property
    def config(self) -> Any:
        return small(self.algorithm)


@functools.cache
def parts(name: str) -> Parts:
    algorithm = ALGORITHMS[name]
    config = small(algorithm)
    return Parts(
        algorithm,
        quick_jit(lambda key: algorithm.init(config, SPEC, key)),
        quick_jit(lambda data, key: algorithm.sample(config, data, key)),
        quick_jit(lambda state, batch: algorithm.update(config, state, batch)),
        quick_jit(lambda *given: algorithm.act(config, *given)),
    )


@functools.cache
def ready(name: str):
    """(parts, data, scaling, state, batch) of the ordinary data."""
    p = parts(name)
    data, scaling = prepared(p.algorithm, episodes_of())
    return p, data, scaling, p.init(jax.random.key(0)), p.sample(data, jax.random.key(1))


def shapes(tree: Any) -> Any:
    return jax.tree.map(
        lambda leaf: (leaf.shape, leaf.dtype, getattr(leaf, "weak_type", False)), tree
    )


def assert_same(found: Any, expected: Any, rtol: float = 0.0, atol: float = 0.0) -> None:
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=atol)


def assert_finite(tree: Any) -> None:
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        assert np.isfinite(leaf).all(), jax.tree_util.keystr(path)


# --- registry, config --------------------------------------------------------------------------


def test_registry_names_its_algorithms():
    assert "gas" in ALGORITHMS
    for name, algorithm in ALGORITHMS.items():
        assert algorithm.name == name
        assert get_algorithm(name) is algorithm
    with pytest.raises(SafestitchError, match="did you mean gas"):
        get_algorithm("gaz")


@every_algorithm
def test_presets(algorithm):
    assert {"paper", "fast"} <= set(algorithm.presets)
    for config in algorithm.presets.values():
        assert isinstance(config, algorithm.Config)
    assert algorithm.presets["fast"].iterations < algorithm.presets["paper"].iterations
    assert algorithm.presets["paper"] == algorithm.Config()  # the defaults are the paper's table
    assert algorithm.threshold in ("train", "test")


@every_algorithm
def test_config_survives_json(algorithm):
    for config in (*algorithm.presets.values(), small(algorithm)):
        stored = json.dumps(dataclasses.asdict(config), allow_nan=False)
        assert algorithm.Config(**json.loads(stored)) == config
        assert hash(algorithm.Config(**json.loads(stored))) == hash(config)  # a cache's key


@every_algorithm
def test_config_is_frozen(algorithm):
    with pytest.raises(dataclasses.FrozenInstanceError):
        algorithm.presets["fast"].iterations = 1


# --- training ----------------------------------------------------------------------------------


@every_algorithm
def test_a_batch_has_the_configs_size(algorithm):
    p, _, _, _, batch = ready(algorithm.name)
    assert {leaf.shape[0] for leaf in jax.tree.leaves(batch)} == {p.config.batch}
    assert_finite(batch)


@every_algorithm
def test_update_keeps_the_shape_of_its_state_and_names_its_metrics(algorithm):
    p, _, _, state, batch = ready(algorithm.name)
    after, metrics = p.update(state, batch)
    assert jax.tree.structure(after) == jax.tree.structure(state)
    assert shapes(after) == shapes(state)
    assert metrics
    assert all(isinstance(name, str) and value.shape == () for name, value in metrics.items())
    assert_finite((after, metrics))
    moved = zip(
        jax.tree.leaves(p.algorithm.policy(state)),
        jax.tree.leaves(p.algorithm.policy(after)),
        strict=True,
    )
    assert any(bool((a != b).any()) for a, b in moved)


@every_algorithm
def test_same_key_same_bits(algorithm):
    p, data, _, state, batch = ready(algorithm.name)
    assert_same(p.init(jax.random.key(0)), state)
    assert_same(p.sample(data, jax.random.key(1)), batch)
    assert_same(p.update(state, batch), p.update(state, batch))
    again, _ = prepared(algorithm, episodes_of())
    assert_same(again, data)
    other = p.init(jax.random.key(5)), p.sample(data, jax.random.key(5))
    for tree, different in zip((state, batch), other, strict=True):
        pairs = zip(jax.tree.leaves(tree), jax.tree.leaves(different), strict=True)
        assert any(bool((a != b).any()) for a, b in pairs)


@every_algorithm
@pytest.mark.slow  # hundreds of operations, each compiled by itself
def test_compiled_update_agrees_with_plain(algorithm):
    p, _, _, state, batch = ready(algorithm.name)
    plain = algorithm.update(p.config, state, batch)
    assert_same(p.update(state, batch), plain, rtol=1e-3, atol=1e-5)


def stacked(states: list[Any], keys: jax.Array) -> Checkpoint:
    """Seeds at iteration 0."""
    together = jax.tree.map(lambda *leaves: jnp.asarray(np.stack(leaves)), *states)
    return Checkpoint(together, keys, jnp.zeros((), jnp.int32))


@every_algorithm
def test_scan_over_iterations_and_vmap_over_seeds_agree_with_single_steps(algorithm):
    """The training program of two seeds and two iterations against four calls by hand."""
    p, data, *_ = ready(algorithm.name)
    keys = jax.random.split(jax.random.key(3))
    states = [p.init(key) for key in keys]
    begin = stacked(states, keys)
    program: Any = compile_chunk(algorithm, p.config, 2)
    chunk = program.lower(begin, data).compile(QUICK)
    finished, metrics = chunk(jax.tree.map(jnp.copy, begin), data)
    assert int(finished.step) == 2
    for i, (state, key) in enumerate(zip(states, keys, strict=True)):
        steps = []
        for iteration in range(2):
            batch = p.sample(data, jax.random.fold_in(key, iteration))
            state, found = p.update(state, batch)
            steps.append(found)
        mine = jax.tree.map(lambda leaf, i=i: leaf[i], finished.states)
        assert_same(mine, state, rtol=1e-3, atol=1e-4)
        for name, values in metrics.items():
            expected = np.mean([float(step[name]) for step in steps])
            np.testing.assert_allclose(values[i], expected, rtol=1e-3, atol=1e-5)


def constant_sizes(jaxpr: Any) -> Iterator[int]:
    """Sizes of all constants of a program, those of the programs inside it included."""
    if hasattr(jaxpr, "consts"):
        yield from (np.size(const) for const in jaxpr.consts)
        jaxpr = jaxpr.jaxpr
    for equation in jaxpr.eqns:
        yield from (np.size(v.val) for v in equation.invars if hasattr(v, "val"))
        for value in equation.params.values():
            for inner in value if isinstance(value, (tuple, list)) else (value,):
                if hasattr(inner, "eqns") or hasattr(inner, "consts"):
                    yield from constant_sizes(inner)


def plain_chunk(algorithm: Algorithm, config: Any) -> Any:
    """The training program before compilation: a nested jit may not have compiler options."""
    return inspect.unwrap(compile_chunk(algorithm, config, 2))


@every_algorithm
def test_data_are_arguments_of_the_program_and_not_constants(algorithm):
    p, data, _, state, _ = ready(algorithm.name)
    begin = stacked([state], jax.random.split(jax.random.key(3), 1))
    program = jax.make_jaxpr(plain_chunk(algorithm, p.config))(begin, data)
    assert max(constant_sizes(program), default=0) < STEPS


def test_data_closed_over_are_seen_as_constants():
    """The check above can fail: the same program with the data inside."""
    p, data, _, state, _ = ready("bc")
    algorithm = p.algorithm
    begin = stacked([state], jax.random.split(jax.random.key(3), 1))
    chunk = plain_chunk(algorithm, p.config)
    closed = jax.make_jaxpr(lambda checkpoint: chunk(checkpoint, data))(begin)
    assert max(constant_sizes(closed), default=0) >= STEPS
    closing = dataclasses.replace(
        algorithm, sample=lambda config, _, key: algorithm.sample(config, data, key)
    )
    inside = jax.make_jaxpr(plain_chunk(closing, p.config))(begin, data)
    assert max(constant_sizes(inside), default=0) >= STEPS


def changed_column() -> np.ndarray:
    observations = episodes_of().observations.copy()
    observations[:, 1] = 7.0
    return observations


EXTREMES = {
    "huge rewards, costs and observations": lambda: episodes_of(
        rewards=episodes_of().rewards * 1e30,
        costs=episodes_of().costs * 1e30,
        observations=episodes_of().observations * 1e15,
    ),
    "a constant observation, negative rewards": lambda: episodes_of(
        observations=changed_column(), rewards=-np.abs(episodes_of().rewards) * 1e6
    ),
    "no cost": lambda: episodes_of(costs=np.zeros(STEPS)),
    "no reward and no cost": lambda: episodes_of(rewards=np.zeros(STEPS), costs=np.zeros(STEPS)),
    "one-step episodes": lambda: episodes_of([1] * STEPS),
}


@every_algorithm
@pytest.mark.parametrize("extreme", EXTREMES)
def test_training_stays_finite_on_extreme_data(algorithm, extreme):
    p = parts(algorithm.name)
    data, scaling = prepared(algorithm, EXTREMES[extreme]())
    assert_finite((data, scaling))
    state = p.init(jax.random.key(0))
    for i in range(2):
        batch = p.sample(data, jax.random.key(i))
        assert_finite(batch)
        state, metrics = p.update(state, batch)
        assert_finite((state, metrics))


# --- acting ------------------------------------------------------------------------------------


# Several: a policy that switches between heads need not do so everywhere.
OBSERVATIONS = jnp.asarray(np.random.default_rng(2).normal(size=(16, 3)), jnp.float32)


def request(limit: float, target: float = math.nan) -> Request:
    return Request(jnp.float32(limit), jnp.float32(target))


@every_algorithm
@pytest.mark.parametrize(
    ("limit", "target"),
    [(0.0, math.nan), (2.0, math.nan), (1e6, math.nan), (2.0, 3.0), (0.0, 1e6), (2.0, -1e6)],
)
def test_acting_accepts_any_request(algorithm, limit, target):
    p, _, scaling, state, _ = ready(algorithm.name)
    policy = algorithm.policy(state)
    carry = algorithm.start(p.config, policy, scaling, request(limit, target))
    for step in range(SPEC.horizon + 1):  # one more than the horizon: a task that runs over
        obs = jnp.full(SPEC.obs_dim, 10.0 * step, jnp.float32)
        action, carry = p.act(policy, scaling, carry, obs)
        assert (action.shape, action.dtype) == ((SPEC.act_dim,), jnp.float32)
        assert np.isfinite(action).all()
        assert (np.asarray(action) >= SPEC.action_low - 1e-5).all()
        assert (np.asarray(action) <= SPEC.action_high + 1e-5).all()
        # Costs overrun the limit on the way.
        carry = algorithm.observe(p.config, scaling, carry, jnp.float32(1.5), jnp.float32(1.0))


@every_algorithm
def test_the_carry_keeps_its_shape(algorithm):
    """A scan needs it: start, act, observe and redial give one structure and one dtype each."""
    p, _, scaling, state, _ = ready(algorithm.name)
    policy = algorithm.policy(state)
    carry = algorithm.start(p.config, policy, scaling, request(2.0))
    _, acted = p.act(policy, scaling, carry, jnp.zeros(SPEC.obs_dim))
    observed = algorithm.observe(p.config, scaling, acted, jnp.float32(1.0), jnp.float32(1.0))
    redialled = algorithm.redial(p.config, scaling, observed, jnp.float32(3.0), jnp.float32(2.0))
    for after in (acted, observed, redialled):
        assert jax.tree.structure(after) == jax.tree.structure(carry)
        for a, b in zip(jax.tree.leaves(after), jax.tree.leaves(carry), strict=True):
            assert (a.shape, a.dtype) == (b.shape, b.dtype)
    action, _ = p.act(policy, scaling, redialled, jnp.zeros(SPEC.obs_dim))
    assert np.isfinite(action).all()


@every_algorithm
def test_acting_is_deterministic_and_agrees_under_vmap(algorithm):
    p, _, scaling, state, _ = ready(algorithm.name)
    policy = algorithm.policy(state)
    limits = jnp.array([0.0, 1.0, 3.0])
    seen = OBSERVATIONS

    def first_actions(limit):
        ask = Request(limit, jnp.full_like(limit, jnp.nan))
        carry = algorithm.start(p.config, policy, scaling, ask)
        act = functools.partial(algorithm.act, p.config, policy, scaling, carry)
        return jax.vmap(lambda obs: act(obs)[0])(seen)

    together = quick_jit(jax.vmap(first_actions))(limits)
    for limit, actions in zip(limits, together, strict=True):
        carry = algorithm.start(p.config, policy, scaling, request(float(limit)))
        alone = [p.act(policy, scaling, carry, seen[0])[0] for _ in range(2)]
        assert (alone[0] == alone[1]).all()
        np.testing.assert_allclose(actions[0], alone[0], rtol=1e-4, atol=1e-5)
    if algorithm.threshold == "test":  # the limit is an input of the policy
        assert not (together[0] == together[2]).all()


@pytest.mark.parametrize(
    "algorithm", [a for a in ALGORITHMS.values() if a.threshold == "test"], ids=lambda a: a.name
)
def test_redial_equals_a_start_at_the_new_limit(algorithm):
    p, _, scaling, state, _ = ready(algorithm.name)
    policy = algorithm.policy(state)
    begun = algorithm.start(p.config, policy, scaling, request(0.0))
    redialled = algorithm.redial(p.config, scaling, begun, jnp.float32(0.0), jnp.float32(3.0))
    other = algorithm.start(p.config, policy, scaling, request(3.0))
    found, expected, unmoved = (
        np.stack([p.act(policy, scaling, carry, obs)[0] for obs in OBSERVATIONS])
        for carry in (redialled, other, begun)
    )
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    assert not (found == unmoved).all()
