"""What is kept, what it weighs, and what is shown of it."""

from pathlib import Path

import jax
import pytest

from safestitch.behaviours import packing
from safestitch.behaviours.actor import init_actor
from safestitch.behaviours.packing import HEADER, best_at_levels, bytes_each, packed
from safestitch.behaviours.snapshots import Behaviours, Moment, behaviours_of, load, save
from safestitch.cli import main
from safestitch.records import SafestitchError, Spec

SPEC = Spec("Own", obs_dim=3, act_dim=2, horizon=10, cost_range=10.0)
ACTOR = init_actor(SPEC, 8, jax.random.key(0))


def of(*moments: Moment, actor=ACTOR) -> Behaviours:
    return behaviours_of(SPEC, [actor] * len(moments), moments)


def made(*doings: tuple[float, float]) -> Behaviours:
    """One snapshot per (reward, cost) at lambda 1."""
    return of(*(Moment(0, 10 * i, (1.0,), (r,), (c,)) for i, (r, c) in enumerate(doings)))


def steps(behaviours: Behaviours) -> list[int]:
    return [m.step for m in behaviours.moments]


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["behaviours", *arguments])
    return int(ended.value.code or 0)


def test_the_best_within_each_cost_come_first():
    some = made((1.0, 0.0), (0.5, 0.0), (9.0, 9.0), (3.0, 2.0), (2.0, 5.0), (99.0, 11.0))
    # cost 0 and 1: snapshot 0; 2 .. 8: snapshot 3; 9 and 10: snapshot 2; 11 is out of range
    assert best_at_levels(some) == [0, 3, 2]


def test_the_best_of_each_band_of_lambda_follow():
    careless = Moment(0, 1, (0.0, 5.0), (9.0, 1.0), (8.0, 0.0))
    careful = Moment(0, 2, (0.0, 5.0), (3.0, 4.0), (8.0, 0.0))
    novice = Moment(0, 3, (0.0, 20.0), (0.0, 2.0), (0.0, 0.0))
    # any lambda: careful from 0, careless from 8. At lambda 0 the novice is the best up to 7.
    assert best_at_levels(of(careless, careful, novice)) == [1, 0, 2]


def test_then_an_early_one_then_any_that_differs():
    some = made(*((r, 0.0) for r in (1.0, 0.1, 2.0, 10.0, 6.0, 9.9, 9.8, 9.7, 9.6)))
    assert packing.early(some.moments) == [0, 1, 2]  # of 80 steps, up to 20
    # best: 30. Of the early ones step 10 is farthest from it. Step 40 is in the
    # middle of what is between them.
    assert steps(packed(some, HEADER + 3 * bytes_each(some))) == [10, 30, 40]
    assert steps(packed(some, HEADER + 2 * bytes_each(some))) == [10, 30]
    assert steps(packed(some, HEADER + 1 * bytes_each(some))) == [30]


def test_snapshots_measured_at_different_lambdas_go_together():
    """Read off between its lambdas, the second does as the first: the third is the one to keep."""
    first = Moment(0, 100, (0.0, 1.0, 3.0), (8.0, 4.0, 0.0), (0.0, 0.0, 0.0))
    same = Moment(0, 99, (3.0, 0.0), (0.0, 8.0), (0.0, 0.0))  # log2(1 + lambda): 0, 1, 2
    other = Moment(1, 100, (1.0,), (7.0,), (0.0,))
    some = of(first, same, other)
    kept = packed(some, HEADER + 2 * bytes_each(some))
    assert [(m.seed, m.step) for m in kept.moments] == [(0, 100), (1, 100)]


def test_a_snapshot_that_was_never_measured_is_named():
    with pytest.raises(SafestitchError, match=r"seed 7, step 1,000 was measured at no lambda"):
        packed(of(Moment(7, 1000, (), (), ())), 10**6)


@pytest.mark.parametrize("room", [1, 4, 40])
def test_no_more_than_fits_and_no_more_than_there_are(tmp_path, room):
    long = 0.1234567890123456
    numbers = tuple(-long * 10.0**-i for i in range(12))  # as many digits as there can be
    some = of(*(Moment(0, 10**6 + i, numbers, numbers, numbers) for i in range(30)))
    size = HEADER + room * bytes_each(some)
    kept = packed(some, size)
    save(tmp_path / "file", kept)
    assert len(kept) == min(room, 30)
    assert (tmp_path / "file").stat().st_size <= size
    with pytest.raises(SafestitchError, match="--megabytes"):
        packed(some, HEADER)


def test_a_task_without_a_range_of_costs_is_packed_by_what_was_seen():
    free = made((1.0, 0.0), (2.0, 0.0))
    assert best_at_levels(free) == [1]
    spec = Spec("Own", 3, 2, 10, 0.0)
    seen = behaviours_of(spec, [ACTOR] * 2, made((1.0, 0.0), (2.0, 70.0)).moments)
    assert best_at_levels(seen) == [0, 1]


def test_packed_and_shown(tmp_path, capsys):
    run_of = tmp_path / "run" / "snapshots"
    run_of.mkdir(parents=True)
    save(run_of / "0000000010.safetensors", of(Moment(3, 10, (0.0, 1.0), (7.5, 2.0), (4.0, 0.0))))
    save(tmp_path / "file", of(Moment(4, 25_000, (1.0, 100.0), (3.25, 1.0), (0.5, 0.0))))
    both = [str(tmp_path / "run"), str(tmp_path / "file")]
    assert run("pack", *both, "--out", str(tmp_path / "packed")) == 0
    assert "2 of 2 snapshots of Own" in capsys.readouterr().out
    assert steps(load(tmp_path / "packed")) == [10, 25_000]
    assert run("show", str(tmp_path / "packed")) == 0
    lines = [line.split("│") for line in capsys.readouterr().out.splitlines() if "│" in line]
    assert [[cell.strip() for cell in line[1:-1]] for line in lines] == [
        ["3", "10", "7.5/4", "2/0", ""],
        ["4", "25,000", "", "3.25/0.5", "1/0"],
    ]
    assert run("show", both[0]) == 0
    assert "7.5/4" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("pack", "empty", "--out", "x"), "no snapshots in empty"),
        (("show", "missing"), "missing"),
        (("pack", "empty", "--out", "x", "--megabytes", "1.5"), "at most 1"),
        (("pack", "one", "wide", "--out", "x"), "8 and 9 wide"),
    ],
)
def test_mistakes_are_told(arguments, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("empty").mkdir()
    moment = Moment(0, 1, (1.0,), (1.0,), (1.0,))
    save(Path("one"), of(moment))
    save(Path("wide"), of(moment, actor=init_actor(SPEC, 9, jax.random.key(0))))
    assert run(*arguments) == 2
    assert said in capsys.readouterr().err
    assert not Path("x").exists()
