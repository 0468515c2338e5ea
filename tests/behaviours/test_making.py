"""From behaviours to a file: the same bytes with any workers, and after any kill."""

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from safestitch import data
from safestitch.behaviours import making
from safestitch.behaviours.making import Order, behind, make, order_for
from safestitch.behaviours.snapshots import digest, save
from safestitch.behaviours.thinning import Region
from safestitch.catalog import get_entry
from safestitch.data import dsrl
from safestitch.data.coverage import public_frontier
from safestitch.records import SafestitchError

ENV = "own_environments:corridor"
pytestmark = pytest.mark.usefixtures("as_installed", "own_environments")


@pytest.fixture(scope="module")
def corridor(fresh, tmp_path_factory) -> Path:
    """120 episodes of the corridor, made without a stop by two workers."""
    out = tmp_path_factory.mktemp("made") / "corridor.hdf5"
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).parents[1] / "sims"))
        make(fresh(), Order(120, 3, ENV), out, workers=2)
    return out


def test_what_is_made(corridor, fresh):
    found = data.load(corridor)
    assert len(found) == 120 and (found.lengths == 12).all()
    assert found.truncated[found.offsets[1:] - 1].all()
    assert np.abs(found.actions).max() <= 1
    whole = dsrl.read(corridor, final_observations=True)
    assert whole.final_observations is not None
    # An episode moves by its actions.
    first = whole.offsets[:-1]
    moved = np.add.reduceat(whole.actions[:, 0], first)
    np.testing.assert_allclose(
        whole.final_observations[:, 0], whole.observations[first, 0] + moved, atol=1e-4
    )
    known = dsrl.provenance(corridor)
    assert known["made_by"] == "safestitch" and known["behaviours"] == digest(fresh())
    assert (known["seed"], known["episodes"], known["env"]) == (3, 120, ENV)
    assert known["rolled"] == 72 + 60 + 60 or known["rolled"] > 192
    assert known["cost_range"] == found.cost_returns.max()
    assert not corridor.with_name("corridor.hdf5.making").exists()


def test_one_worker_makes_the_same_file(corridor, fresh, tmp_path):
    make(fresh(), Order(120, 3, ENV), tmp_path / "a.hdf5", workers=1)
    assert (tmp_path / "a.hdf5").read_bytes() == corridor.read_bytes()


def test_another_seed_makes_another_file(corridor, fresh, tmp_path):
    make(fresh(), Order(120, 4, ENV), tmp_path / "a.hdf5")
    assert data.load(tmp_path / "a.hdf5").fingerprint != data.load(corridor).fingerprint


def test_it_is_made_once(corridor, fresh):
    before = corridor.stat().st_mtime_ns
    made = make(fresh(), Order(120, 3, ENV), corridor)
    assert made.already and corridor.stat().st_mtime_ns == before
    assert made.coverage.episodes == 120 and made.coverage.steps == 1440
    with pytest.raises(SafestitchError, match=r"exists: choose another --out, or give --overwrite"):
        make(fresh(), Order(120, 5, ENV), corridor)


PROGRAM = """
import sys
from pathlib import Path
from safestitch.behaviours import stock
from safestitch.behaviours.making import Order, make
from safestitch.behaviours.snapshots import load
stock.CERTAIN_SECONDS = 0.0
make(load(Path(sys.argv[1])), Order(120, 3, "own_environments:corridor"), Path(sys.argv[2]))
"""


def test_killed_and_resumed(corridor, fresh, tmp_path):
    """SIGKILL at four moments of one making; at the end the file is the same."""
    save(tmp_path / "b.safetensors", fresh())
    out = tmp_path / "a.hdf5"
    sims = str(Path(__file__).parents[1] / "sims")
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {sims!r})\n{PROGRAM}"]
    command += [str(tmp_path / "b.safetensors"), str(out)]
    finished = tmp_path / "a.hdf5.making" / "finished.bin"
    sizes = []
    for _ in range(3):
        process = subprocess.Popen(command)
        aim = sizes[-1] + 3000 if sizes else 1
        while process.poll() is None and not (finished.exists() and size(finished) >= aim):
            time.sleep(0.005)
        process.kill()
        process.wait()
        sizes.append(size(finished))
        assert not out.exists()
    assert sizes == sorted(sizes) and sizes[0] > 0
    assert subprocess.run(command, check=False).returncode == 0
    assert out.read_bytes() == corridor.read_bytes()


def size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def test_dsrl_reads_it(corridor, fresh, tmp_path, dsrl_reader):
    out = tmp_path / "exact.hdf5"
    make(fresh(), Order(120, 3, ENV, layout="dsrl"), out)
    ours = dsrl.read(out, final_observations=True)
    assert ours.fingerprint == dsrl.read(corridor, final_observations=True).fingerprint
    theirs = dsrl_reader(out, 3, 1)
    for column, key in dsrl.KEYS.items():
        assert np.asarray(theirs[key]).astype(getattr(ours, column).dtype).tobytes() == (
            getattr(ours, column).tobytes()
        )
    assert theirs[dsrl.NEXT].tobytes() == ours.next_observations().tobytes()


@pytest.mark.parametrize("task", ["BallRun", "HopperVelocity"])
def test_real_tasks(fresh, tmp_path, task, monkeypatch):
    """Few and short rounds on both simulators, by one worker and by two."""
    monkeypatch.setattr(making, "MORE_ROUNDS", ())
    entry = get_entry(task)
    behaviours = fresh(entry.spec, count=2)
    # Whatever these behaviours earn and cost is of use here.
    order = Order(16, 0, None, 1e6)
    monkeypatch.setattr(making, "_least_reward", lambda *_: -np.inf)
    for workers in (1, 2):
        make(behaviours, order, tmp_path / f"{workers}.hdf5", workers=workers)
    assert (tmp_path / "1.hdf5").read_bytes() == (tmp_path / "2.hdf5").read_bytes()
    found = data.load(tmp_path / "1.hdf5")
    assert len(found) == 16 and found.lengths.max() <= entry.horizon
    ends = found.terminated[found.offsets[1:] - 1]
    assert ends.all() if task == "HopperVelocity" else not ends.any()  # it falls
    known = dsrl.provenance(tmp_path / "1.hdf5")
    assert {"pybullet", "mujoco"} & set(known["versions"])


def test_an_order_is_as_the_public_data():
    order = order_for(get_entry("CarCircle"))
    assert (order.episodes, order.cost_range, order.layout) == (1450, 100.0, "compact")
    # Public rewards of CarRun begin at 204; a twentieth of the largest, 575, below that will do.
    assert making._least_reward(order, "CarRun") == pytest.approx(204.287 - 28.733, abs=0.01)
    assert making._least_reward(Order(9, env="my:env"), "CarRun") == -np.inf


def test_where_public_data_are_ahead():
    """One episode at each tenth of the cost range, at a share of the public frontier; the rest 0.

    From 50 to 70% the public frontier of CarCircle is flat: an episode at 50% counts for all three.
    """
    entry = get_entry("CarCircle")
    best = np.array(public_frontier("CarCircle"))
    costs = np.append(np.arange(0.0, 101.0, 10.0), np.zeros(1439))
    region = Region(100.0)

    def ahead(*shares: float, order: Order | None = None) -> list[int]:
        rewards = np.append(np.asarray(shares) * best, np.zeros(1439))
        return behind(order or order_for(entry), "CarCircle", region, rewards, costs)

    fair = [1.0] * 11
    assert ahead(*fair) == []
    assert ahead(*[0.951] * 11) == [] and ahead(*[0.949] * 11) == list(range(11))
    assert ahead(*fair[:4], 0.96, 0.94, 0.97, *fair[7:]) == [5]
    assert ahead(*fair[:5], 0.97, 0.94, *fair[7:]) == []
    # Few episodes are not asked to reach as far, nor is the user's own environment.
    assert ahead(*[0.5] * 11, order=Order(1449, cost_range=100.0)) == []
    assert ahead(*[0.5] * 11, order=Order(1450, env=ENV)) == []


def test_too_few_are_of_use(fresh, tmp_path, monkeypatch):
    monkeypatch.setattr(making, "_least_reward", lambda *_: 1e3)
    with pytest.raises(SafestitchError, match=r"earn at least 1000, 20 are wanted"):
        make(fresh(), Order(20, 3, ENV), tmp_path / "a.hdf5")
