import jax
import pytest

from safestitch.behaviours.actor import init_actor
from safestitch.behaviours.packing import HEADER, best_at_levels, bytes_each, packed
from safestitch.behaviours.snapshots import Behaviours, Moment, behaviours_of, save
from safestitch.records import SafestitchError, Spec

SPEC = Spec("Own", obs_dim=3, act_dim=2, horizon=10, cost_range=10.0)


def made(*doings: tuple[float, float]) -> Behaviours:
    """One snapshot per (reward, cost)."""
    actors = [init_actor(SPEC, 8, jax.random.key(i)) for i in range(len(doings))]
    moments = [Moment(0, 10 * i, (1.0,), (r,), (c,)) for i, (r, c) in enumerate(doings)]
    return behaviours_of(SPEC, actors, moments)


def steps(behaviours: Behaviours) -> list[int]:
    return [m.step for m in behaviours.moments]


def test_the_best_within_each_cost_come_first():
    some = made((1.0, 0.0), (0.5, 0.0), (9.0, 9.0), (3.0, 2.0), (2.0, 5.0))
    # cost 0 and 1: snapshot 0; 2 .. 8: snapshot 3; 9 and 10: snapshot 2
    assert best_at_levels(some) == [3, 0, 2]


def test_then_those_that_differ_most():
    some = made((1.0, 0.0), (1.1, 0.0), (10.0, 0.0), (5.0, 0.0), (9.9, 0.0))
    size = HEADER + 3 * bytes_each(some)
    assert steps(packed(some, size)) == [0, 20, 30]


def test_no_more_than_fits_and_no_more_than_there_are(tmp_path):
    some = made(*((float(i), 0.0) for i in range(6)))
    for size in (HEADER + 4 * bytes_each(some), 10**9):
        kept = packed(some, size)
        save(tmp_path / "file", kept)
        assert (tmp_path / "file").stat().st_size <= size
        assert len(kept) == (4 if size < 10**8 else 6)
    with pytest.raises(SafestitchError, match="--megabytes"):
        packed(some, HEADER)


def test_a_task_without_a_range_of_costs_is_packed_by_what_was_seen():
    free = made((1.0, 0.0), (2.0, 0.0))
    assert best_at_levels(free) == [1]
