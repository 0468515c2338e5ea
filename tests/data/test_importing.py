import dataclasses
import json
import os
import shutil
from pathlib import Path

import h5py
import hypothesis
import numpy as np
import pandas as pd
import pytest
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from safestitch.cli.data.import_ import run
from safestitch.data import blocks, text
from safestitch.data import staging as staging_module
from safestitch.data.importing import import_logs, read_logs
from safestitch.data.mapping import CostPart, Mapping
from safestitch.data.rows import Splitter
from safestitch.data.staging import Staging
from safestitch.episodes import COLUMNS, Episodes
from safestitch.records import DataError, SafestitchError

LOG = """\
episode,step,obs.x,obs.y,action,reward,cost,terminated
a,0,1,2,0.5,1,0,0
a,1,3,4,0.5,2,1,1
b,0,5,6,-0.5,3,0,0
b,1,7,8,-0.5,4,2,0
"""


def log(content: str = LOG, **changes: str) -> Path:
    for old, new in changes.items():
        content = content.replace(old, new)
    path = Path("log.csv")
    path.write_text(content)
    return path


def same(a: Episodes, b: Episodes) -> bool:
    return a.fingerprint == b.fingerprint


def read_back(path: Path) -> Episodes:
    with h5py.File(path) as file:
        names = ("observations", "actions", "rewards", "costs", "terminals", "timeouts")
        found = [np.asarray(file[name]) for name in names]
    return Episodes.of(*found[:4], *found[4:])


def test_a_log_by_hand():
    made = import_logs(log(), "my.h5")
    assert (made.episodes, made.steps) == (2, 4)
    assert made.notes[-1] == (
        "1 of 2 episodes end without a flag: their last rows are marked truncated"
    )
    assert made.notes[0] == "guessed obs = obs.x, obs.y"
    episodes = read_back(made.path)
    np.testing.assert_array_equal(episodes.observations, [[1, 2], [3, 4], [5, 6], [7, 8]])
    np.testing.assert_array_equal(episodes.costs, [0, 1, 0, 2])
    np.testing.assert_array_equal(episodes.terminated, [False, True, False, False])
    np.testing.assert_array_equal(episodes.truncated, [False, False, False, True])
    assert same(episodes, read_logs("log.csv"))
    with h5py.File(made.path) as file:
        provenance = json.loads(file.attrs["safestitch"])  # type: ignore[arg-type]
    assert provenance["observations"] == ["obs.x", "obs.y"]
    assert provenance["mapping"]["episode"] == "episode"
    assert not Path("my.h5.importing").exists()


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ((CostPart("m", "margin"),), [0, 0, 2, 0.5]),
        ((CostPart("m", "broken-margin", 3.0),), [0, 0, 3, 3]),
        ((CostPart("hit", "flag", 10.0), CostPart("m", "margin", 2.0)), [0, 10, 4, 11]),
        ((CostPart("minus", "number", -1.0),), [0, 1, 2, 3]),
    ],
    ids=str,
)
def test_kinds_of_cost(parts, expected):
    table = {
        "obs": np.zeros(4), "action": np.zeros(4), "reward": np.zeros(4),
        "m": np.array([1.0, 0.0, -2.0, -0.5]), "hit": np.array([False, True, False, True]),
        "minus": -np.arange(4.0), "terminated": np.array([0, 0, 0, 1]),
    }  # fmt: skip
    np.testing.assert_array_equal(read_logs(table, Mapping(cost=parts)).costs, expected)


def test_a_flag_that_is_none():
    table = {name: np.zeros(2) for name in ("obs", "action", "reward", "terminated")}
    with pytest.raises(DataError, match=r"row 1: column hit, .*a flag is 0 or 1"):
        read_logs(table | {"hit": np.array([0, 7])}, {"cost": {"column": "hit", "kind": "flag"}})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"3,4,": "3,nan,"}, "log.csv, line 3: column obs.y, episode a: missing or not a number"),
        ({"3,4,": "3,,"}, "log.csv, line 3: column obs.y, episode a: missing"),
        ({"3,4,": "3,oops,"}, "log.csv, line 3: column obs.y: expected a number, got 'oops'"),
        ({"5,6,-0.5": "5,6,inf"}, "line 4: column action, episode b: inf is not finite"),
        ({"5,6,": "5,1e39,"}, "line 4: column obs.y, episode b: inf is not finite"),
        ({"0.5,1,0": "0.5,nan,0"}, "line 2: column reward, episode a"),
        ({"4,2,0": "4,-2,0"}, "line 5: column cost, episode b: -2 is negative. .* weight -1"),
        ({"2,1,1": "2,1,3"}, "line 3: column terminated, episode a: 3 is neither true nor false"),
        ({"2,1,1": "2,1,"}, "line 3: column terminated, episode a: nan is neither"),
        ({"a,1": "c,1", "b,1": "a,1"}, "line 5: column episode, episode a: .*several at once"),
        ({"b,1": "b,"}, "line 5: column step, episode b: missing or not a number"),
        ({"b,1": ",1"}, "line 5: column episode, .*: the episode has no name"),
        ({"b,1": "b,0"}, "line 5: column step, episode b: the step does not rise"),
        ({"1,0,0\n": "1,0,1\n"}, "line 3: column episode, episode a: terminated ended the episode"),
    ],
    ids=lambda x: str(x)[:30],
)
def test_bad_rows_are_named(change, words):
    with pytest.raises(DataError, match=words):
        import_logs(log(**change), "my.h5")
    assert [p.name for p in Path().iterdir()] == ["log.csv"]


def test_ends_by_flags_alone_and_by_steps_alone():
    rows = pd.read_csv(log())
    by_flags = read_logs(rows.drop(columns=["episode", "step"]))
    by_steps = read_logs(rows.drop(columns=["episode", "terminated"]))
    np.testing.assert_array_equal(by_flags.offsets, [0, 2, 4])
    np.testing.assert_array_equal(by_steps.offsets, [0, 2, 4])
    assert by_steps.truncated.sum() == 2 and not by_steps.terminated.any()


def test_no_rows():
    for call in (read_logs, lambda path: import_logs(path, "my.h5")):
        with pytest.raises(DataError, match=r"log\.csv holds no rows"):
            call(log(LOG.splitlines()[0] + "\n"))


# --- round trips -------------------------------------------------------------------------------

finite = {"allow_nan": False, "allow_infinity": False, "width": 32}


@st.composite
def structures(draw) -> Episodes:
    lengths = draw(st.lists(st.integers(1, 5), min_size=1, max_size=6))
    n, o, a = sum(lengths), draw(st.integers(1, 3)), draw(st.integers(1, 2))
    ends = np.zeros(n, bool)
    ends[np.cumsum(lengths) - 1] = True
    fell = ends & draw(arrays.arrays(bool, n))
    both = ends & draw(arrays.arrays(bool, n))
    numbers = st.floats(**finite)
    return Episodes.of(
        draw(arrays.arrays(np.float32, (n, o), elements=numbers)),
        draw(arrays.arrays(np.float32, (n, a), elements=numbers)),
        draw(arrays.arrays(np.float32, n, elements=numbers)),
        draw(arrays.arrays(np.float32, n, elements=st.floats(0, 2.0**100, width=32))),
        fell,
        (ends & ~fell) | both,
    )


def as_csv(episodes: Episodes, *, with_names: bool) -> str:
    o, a = episodes.observations.shape[1], episodes.actions.shape[1]
    header = [f"obs.{i}" for i in range(o)] + [f"action.{i}" for i in range(a)]
    header += ["reward", "cost", "terminated", "truncated"] + ["episode"] * with_names
    lines = [",".join(header)]
    for number, episode in enumerate(episodes):
        for i in range(len(episode["rewards"])):
            numbers = [v for name in COLUMNS[:4] for v in np.ravel(episode[name][i])]
            flags = [str(episode["terminated"][i]), str(int(episode["truncated"][i]))]
            names = [f'"run {number}"'] * with_names
            lines.append(",".join([*(str(v) for v in numbers), *flags, *names]))
    return "\n".join(lines) + "\n"


@hypothesis.settings(max_examples=30)  # each one waits for the disk several times
@hypothesis.given(structures(), st.booleans(), st.sampled_from([150, 8_000_000]))
def test_csv_to_hdf5_to_episodes_is_bit_equal(episodes, with_names, block):
    Path("log.csv").write_text(as_csv(episodes, with_names=with_names))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text, "BLOCK_BYTES", block)
        made = import_logs("log.csv", "my.h5", overwrite=True)
    found = read_back(made.path)
    for name in (*COLUMNS, "offsets"):
        assert getattr(found, name).tobytes() == getattr(episodes, name).tobytes(), name
    assert same(read_logs("log.csv"), episodes)
    assert same(read_logs("my.h5"), episodes)


# --- kills -------------------------------------------------------------------------------------


class Killed(BaseException):
    """Stands for a kill: nothing of ours may catch it."""


def big_log(rows: int = 400) -> Path:
    rng = np.random.default_rng(1)
    frame = pd.DataFrame(
        rng.standard_normal((rows, 4)), columns=["obs.0", "obs.1", "action", "reward"]
    )
    frame["cost"] = (rng.random(rows) < 0.3).astype(float)
    frame["episode"] = [f"e{i // 7}" for i in range(rows)]
    frame["step"] = np.arange(rows) % 7
    frame.to_csv("log.csv", index=False)
    return Path("log.csv")


def stop_at(monkeypatch, owner, name: str, count: int) -> None:
    """Be killed in the so-manyth call."""
    original, calls = getattr(owner, name), iter(range(10**6))

    def call(*arguments, **options):
        if next(calls) == count:
            raise Killed
        return original(*arguments, **options)

    monkeypatch.setattr(owner, name, call)


@pytest.mark.parametrize(
    ("owner", "name", "count"),
    [
        *((Staging, "append", i) for i in (0, 1, 5)),
        *((Staging, "note", i) for i in (0, 1, 4)),
        (Staging, "begin", 0),
        (Staging, "assemble", 0),
        (Staging, "clear", 0),
        (h5py.File, "create_dataset", 3),
        (os, "replace", 2),
        (staging_module, "_sync_directory", 0),
    ],
    ids=str,
)
def test_killed_and_gone_on(monkeypatch, owner, name, count):
    path = big_log()
    monkeypatch.setattr(text, "BLOCK_BYTES", 3000)
    whole = import_logs(path, "whole.h5").path.read_bytes()
    with monkeypatch.context() as patch:
        stop_at(patch, owner, name, count)
        with pytest.raises(Killed):
            import_logs(path, "my.h5", journal_seconds=0.0)
    if name not in ("clear", "_sync_directory"):
        assert not Path("my.h5").exists()
    made = import_logs(path, "my.h5", journal_seconds=0.0)
    assert made.path.read_bytes() == whole
    assert (made.episodes, made.steps) == (58, 400)
    assert not Path("my.h5.importing").exists()


def test_killed_between_the_last_note_and_the_rename(monkeypatch):
    path = big_log()
    whole = import_logs(path, "whole.h5").path.read_bytes()
    replace = os.replace

    def not_the_last(source, target):
        if Path(target).name == "my.h5":
            raise Killed
        replace(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", not_the_last)
        with pytest.raises(Killed):
            import_logs(path, "my.h5")
    assert not Path("my.h5").exists() and Path("my.h5.importing/whole.h5").exists()
    assert import_logs(path, "my.h5").path.read_bytes() == whole


def test_going_on_reads_only_the_rest(monkeypatch):
    path = big_log()
    monkeypatch.setattr(text, "BLOCK_BYTES", 3000)
    with monkeypatch.context() as patch:
        stop_at(patch, Staging, "append", 6)
        with pytest.raises(Killed):
            import_logs(path, "my.h5", journal_seconds=0.0)
    told = []
    import_logs(path, "my.h5", progress=lambda read, size: told.append(read / size))
    assert told[0] > 0.3 and told[-1] == 1.0


def test_a_changed_source_or_mapping_starts_again(monkeypatch):
    path = big_log()
    monkeypatch.setattr(text, "BLOCK_BYTES", 3000)
    for mapping in (None, {"obs": "obs.1"}):
        with monkeypatch.context() as patch:
            stop_at(patch, Staging, "append", 6)
            with pytest.raises(Killed):
                import_logs(path, "my.h5", mapping, journal_seconds=0.0)
    path.write_text(path.read_text().replace("e0,", "first,"))
    made = import_logs(path, "my.h5")
    assert same(read_back(made.path), read_logs(path))


@pytest.mark.parametrize("damage", ["journal", "rows", "nonsense"])
def test_a_damaged_journal_starts_again(monkeypatch, damage):
    path = big_log()
    monkeypatch.setattr(text, "BLOCK_BYTES", 3000)
    with monkeypatch.context() as patch:
        stop_at(patch, Staging, "append", 6)
        with pytest.raises(Killed):
            import_logs(path, "my.h5", journal_seconds=0.0)
    staging = Path("my.h5.importing")
    if damage == "rows":
        (staging / "rows.bin").write_bytes(b"short")
    else:
        (staging / "journal.json").write_bytes(b"[1]" if damage == "journal" else b"\xff")
    assert same(read_back(import_logs(path, "my.h5").path), read_logs(path))


def test_nothing_is_overwritten_unasked():
    path = log()
    Path("my.h5").write_text("kept")
    with pytest.raises(SafestitchError, match=r"my\.h5 exists: .*--overwrite"):
        import_logs(path, "my.h5")
    assert Path("my.h5").read_text() == "kept"
    assert import_logs(path, "my.h5", overwrite=True).steps == 4


def test_another_import_does_not_pass_for_the_killed_one(monkeypatch):
    path = log()
    with monkeypatch.context() as patch:
        stop_at(patch, Staging, "clear", 0)
        with pytest.raises(Killed):
            import_logs(path, "my.h5")
    for mapping in ({"obs": "obs.x"}, None):
        if mapping is None:
            shutil.rmtree("my.h5.importing")
            path.write_text(path.read_text() + "b,2,7,8,-0.5,4,2,0\n")
        before = Path("my.h5").read_bytes()
        with pytest.raises(SafestitchError, match="exists"):
            import_logs(path, "my.h5", mapping)
        assert Path("my.h5").read_bytes() == before
    import_logs(path, "my.h5", overwrite=True)
    assert same(read_back(Path("my.h5")), read_logs(path))


def test_two_imports_into_one_file():
    path = log()
    with (
        Staging(Path("my.h5")).held(),
        pytest.raises(SafestitchError, match="written by another import"),
    ):
        import_logs(path, "my.h5")


def test_an_out_that_cannot_be_written():
    Path("file").touch()
    with pytest.raises(SafestitchError, match="cannot write"):
        import_logs(log(), "file/my.h5")


def test_memory_does_not_grow_with_the_file():
    """What the splitter remembers is one row and a hash of each episode."""
    remembered = dataclasses.asdict(Splitter.of(Mapping(episode="e")))
    assert set(remembered) == {
        "rule", "episodes", "last_episode", "last_step", "last_flagged", "seen", "fresh",
    }  # fmt: skip
    assert blocks.BLOCK_BYTES < 20_000_000


# --- the verb ----------------------------------------------------------------------------------


def test_the_verb(capsys):
    log(episode="trip", cost="c1")
    Path("map.toml").write_text('obs = "obs.*"\nreward = "action"\n[cost]\ncolumn = "c1"\n')
    assert run(["log.csv", "--map", "map.toml", "--reward", "reward", "--episode", "trip"]) == 0
    said = capsys.readouterr().out
    assert "note: guessed action = action" in said
    assert "log.h5: 2 episodes, 4 steps; next: safestitch data report log.h5" in said
    flags = ["--cost", "c1:number:2", "terminated:flag", "--out", "b.h5", "--episode", "trip"]
    assert run(["log.csv", *flags]) == 0
    np.testing.assert_array_equal(read_back(Path("b.h5")).costs, [0, 3, 0, 4])
