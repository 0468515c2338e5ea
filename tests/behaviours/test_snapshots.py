import dataclasses
import json
from pathlib import Path

import jax
import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given
from hypothesis import strategies as st

from safestitch.behaviours import snapshots
from safestitch.behaviours.actor import init_actor
from safestitch.behaviours.snapshots import Behaviours, Moment, behaviours_of, chosen, joined
from safestitch.records import SafestitchError, Spec

pytestmark = pytest.mark.usefixtures("as_installed")
SPEC = Spec("BallRun", obs_dim=3, act_dim=2, horizon=10, cost_range=5.0)


def moment(step: int, seed: int = 0) -> Moment:
    return Moment(seed, step, (0.0, 1.0), (10.5, 3.25), (7.0, 0.0))


def some(count: int = 2, width: int = 8, spec: Spec = SPEC) -> Behaviours:
    actors = [init_actor(spec, width, jax.random.key(i)) for i in range(count)]
    return behaviours_of(spec, actors, [moment(100 * i) for i in range(count)])


def assert_same(a: Behaviours, b: Behaviours) -> None:
    assert (a.spec, a.moments) == (b.spec, b.moments)
    assert jax.tree.structure(a.actors) == jax.tree.structure(b.actors)
    for x, y in zip(jax.tree.leaves(a.actors), jax.tree.leaves(b.actors), strict=True):
        np.testing.assert_array_equal(x, y, strict=True)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "file.safetensors"
    snapshots.save(path, some())
    return path


def test_behaviours_are_read_as_they_were_written(saved):
    assert_same(snapshots.load(saved), some())


def test_equal_behaviours_are_equal_files_and_digests(saved, tmp_path):
    other = tmp_path / "other.safetensors"
    snapshots.save(other, some())
    assert other.read_bytes() == saved.read_bytes()
    assert snapshots.digest(snapshots.load(saved)) == snapshots.digest(some())


def test_the_digest_tells_content_apart():
    base, digest = some(), snapshots.digest
    named = dataclasses.replace(base, spec=dataclasses.replace(SPEC, task="Other"))
    later = dataclasses.replace(base, moments=(moment(1), moment(2)))
    nudged = base.actors._replace(obs_mean=base.actors.obs_mean + np.float32(0.1))
    found = {digest(base), digest(named), digest(later)}
    found.add(digest(dataclasses.replace(base, actors=nudged)))
    assert len(found) == 4


def test_what_is_held_in_memory_is_what_the_file_holds():
    actor = init_actor(SPEC, 8, jax.random.key(0))
    held = behaviours_of(SPEC, [actor], [moment(0)])[0].weights[0]
    np.testing.assert_array_equal(held, np.asarray(actor.weights[0]).astype(np.float16))
    assert held.dtype == np.float32


def test_a_snapshot_of_the_default_size_is_small(tmp_path):
    spec = dataclasses.replace(SPEC, obs_dim=40, act_dim=2)
    path = tmp_path / "file"
    snapshots.save(path, some(10, 128, spec))
    assert path.stat().st_size < 10 * 46_000 + 4_000


def test_behaviours_join_and_are_chosen_from():
    both = joined([some(1), some(2)])
    assert [m.step for m in both.moments] == [0, 0, 100]
    assert_same(chosen(both, [1, 2]), some(2))


def test_other_tasks_or_widths_do_not_join():
    with pytest.raises(SafestitchError, match="BallRun and of Other"):
        joined([some(), some(spec=dataclasses.replace(SPEC, task="Other"))])
    with pytest.raises(SafestitchError, match="8 and 4 wide"):
        joined([some(), some(width=4)])


@pytest.mark.parametrize("task", ["../../etc/passwd", "NoSuchTask", "CarGoal1"])
def test_a_task_without_behaviours_is_told_how_to_get_some(task):
    with pytest.raises(SafestitchError, match="safestitch behaviours train"):
        snapshots.shipped(task)


# --- hostile files ----------------------------------------------------------------------------


def rewritten(path: Path, change, arrays=None) -> None:
    """Store the file again with changed facts and a digest that matches them."""
    held = snapshots._arrays(some().actors) | (arrays or {})
    held = {name: array for name, array in held.items() if array is not None}
    facts = json.loads(snapshots._facts(some()))
    change(facts)
    text = json.dumps(facts)
    stored = {"facts": text, "sha256": snapshots._digest(held, text)}
    path.write_bytes(safetensors.numpy.save(held, metadata={"behaviours": json.dumps(stored)}))


def nothing(_):
    pass


def test_rewriting_nothing_is_accepted(saved):
    rewritten(saved, nothing)
    assert_same(snapshots.load(saved), some())


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda f: f.update(format=2), "format 2"),
        (lambda f: f.pop("spec"), "spec"),
        (lambda f: f["spec"].update(obs_dim="3"), "obs_dim"),
        (lambda f: f["spec"].update(obs_dim=10**12), "obs_mean"),
        (lambda f: f["spec"].update(action_low=1.0), "range of actions"),
        (lambda f: f["spec"].update(cost_range=float("nan")), "range of costs"),
        (lambda f: f["spec"].update(more=1), "more"),
        (lambda f: f.update(moments=[]), "no snapshots"),
        (lambda f: f["moments"].pop(), "expected"),
        (lambda f: f["moments"][0].update(rewards=[1.0]), "every lambda"),
        (lambda f: f["moments"][0].update(costs=[1.0, float("inf")]), "not finite"),
        (lambda f: f["moments"][0].update(step=1.5), "whole number"),
        (lambda f: f.update(moments=5), "iterable"),
    ],
)
def test_wrong_facts_are_refused(saved, change, said):
    rewritten(saved, change)
    with pytest.raises(SafestitchError, match=said):
        snapshots.load(saved)


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"weights.1": np.zeros((2, 8, 9), np.float16)}, "weights.1"),
        ({"weights.1": np.zeros((2, 8, 8), np.float32)}, "float32"),
        ({"weights.2": None}, "weights.2"),
        ({"biases.0": None}, "biases.0"),
        ({"biases.0": np.array(3.0, np.float16)}, "index"),
        ({"more": np.zeros(3)}, "more"),
        ({"obs_scale": np.zeros((2, 3), np.float32)}, "above 0"),
        ({"biases.1": np.full((2, 8), np.nan, np.float16)}, "not finite"),
    ],
)
def test_wrong_arrays_are_refused(saved, arrays, said):
    rewritten(saved, nothing, arrays)
    with pytest.raises(SafestitchError, match=said):
        snapshots.load(saved)


def test_a_changed_byte_is_noticed(saved):
    content = bytearray(saved.read_bytes())
    content[-3] ^= 1
    saved.write_bytes(content)
    with pytest.raises(SafestitchError, match="digest"):
        snapshots.load(saved)


@pytest.fixture(scope="module")
def whole_file(tmp_path_factory) -> bytes:
    path = tmp_path_factory.mktemp("whole") / "file"
    snapshots.save(path, some(1))
    return path.read_bytes()


@given(cut=st.integers(0, 400), junk=st.binary(max_size=60))
def test_any_bytes_are_refused_in_words(whole_file, tmp_path_factory, cut, junk):
    path = tmp_path_factory.mktemp("any") / "file"
    path.write_bytes(whole_file[:cut] + junk)
    with pytest.raises(SafestitchError, match="file"):
        snapshots.load(path)


def test_a_missing_file_and_a_directory_are_refused(tmp_path):
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(SafestitchError, match=r"cannot read|not a file"):
            snapshots.load(path)


def test_a_huge_file_is_refused_before_it_is_read(tmp_path):
    path = tmp_path / "huge"
    with open(path, "wb") as file:
        file.truncate(snapshots.MAX_BYTES + 1)
    with pytest.raises(SafestitchError, match="at most"):
        snapshots.load(path)
