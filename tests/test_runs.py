import dataclasses
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy

from safestitch import runs
from safestitch.files import write_atomic
from safestitch.records import RunError, SafestitchError, Spec

pytestmark = pytest.mark.usefixtures("as_installed")

FACTS = {"step": 100, "note": "of 200"}


def some_run(**changes: Any) -> runs.Run:
    fields = {
        "algorithm": "gas",
        "config": {"alpha": 0.8, "layers": 7},
        "spec": Spec(task="MiniRun", obs_dim=3, act_dim=1, horizon=100, cost_range=40.0),
        "seeds": [0, 1],
        "data_source": "built-in task MiniRun",
        "data_seed": 0,
        "data_fingerprint": "ab12",
        "data_summary": dict.fromkeys(runs.SUMMARY, 5.0),
        "versions": runs.versions(),
    }
    return runs.Run(**{**fields, **changes})


def some_tree() -> dict[str, Any]:
    return {
        "weights": (jnp.arange(6.0).reshape(2, 3), jnp.array([0.5, -1.0])),
        "step": jnp.int32(7),
        "keys": jnp.array([[1, 2], [3, 4]], jnp.uint32),
        "flags": jnp.array([True, False]),
        "none": jnp.zeros((0, 3)),
    }


def assert_same(found: Any, expected: Any) -> None:
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b), strict=True)


def files_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


@pytest.fixture
def run_directory(tmp_path: Path) -> Path:
    directory = tmp_path / "run"
    with runs.locked(directory):
        runs.create(directory, some_run())
    return directory


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "tree.safetensors"
    runs.save_tree(path, some_tree(), **FACTS)
    return path


# --- run.json ----------------------------------------------------------------------------------


def test_a_run_is_read_as_it_was_written(run_directory):
    assert runs.read(run_directory) == some_run()


def test_run_json_is_readable(run_directory):
    written = json.loads((run_directory / runs.RUN).read_text())
    assert written["format"] == runs.FORMAT
    assert written["spec"]["task"] == "MiniRun"
    assert set(written["versions"]) >= {"python", "safestitch", "jax", "numpy"}


def test_an_unfinished_run_is_not_overwritten(run_directory):
    with pytest.raises(RunError, match=r"unfinished run: resume it with .*--resume"):
        runs.create(run_directory, some_run(seeds=[9]))
    assert runs.read(run_directory) == some_run()


def test_a_finished_run_is_not_overwritten(run_directory):
    runs.save_tree(run_directory / runs.POLICY, some_tree())
    with pytest.raises(RunError, match="finished run: choose another --out"):
        runs.create(run_directory, some_run())


def test_a_directory_of_something_else_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(RunError, match="not empty"), runs.locked(tmp_path):
        pass
    assert files_in(tmp_path) == ["thesis.tex"]


def test_no_directory(tmp_path):
    with pytest.raises(RunError, match="no run directory"):
        runs.read(tmp_path / "nowhere")


def test_no_run_json(tmp_path):
    with pytest.raises(RunError, match=r"run\.json is missing"):
        runs.read(tmp_path)


def test_run_json_is_a_directory(tmp_path):
    (tmp_path / runs.RUN).mkdir()
    with pytest.raises(RunError, match="cannot read"):
        runs.read(tmp_path)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x00" * 100,
        b"{",
        b'{"format": 1',
        b"\xff\xfe\xfd",
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"format": ' + b"9" * 5_000 + b"}",
        b"[]",
        b"null",
        b"3",
        b'"run"',
    ],
    ids=lambda content: f"{content[:12]!r} of {len(content)}",
)
def test_malformed_run_json(tmp_path, content):
    (tmp_path / runs.RUN).write_bytes(content)
    with pytest.raises(RunError, match="damaged"):
        runs.read(tmp_path)


def test_every_truncation_of_run_json(run_directory):
    path = run_directory / runs.RUN
    whole = path.read_bytes()
    for size in range(len(whole.rstrip())):
        path.write_bytes(whole[:size])
        with pytest.raises(RunError, match="damaged"):
            runs.read(run_directory)


def rewrite(directory: Path, **changes: Any) -> None:
    path = directory / runs.RUN
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


@pytest.mark.parametrize("number", [0, 2, "1", None, [1], {"a": 1}], ids=repr)
def test_another_format_says_which_version_made_it(run_directory, number):
    rewrite(run_directory, format=number, versions={"safestitch": "9.9"})
    with pytest.raises(
        RunError, match=r"run format .*safestitch 9\.9.*this version reads format 1"
    ):
        runs.read(run_directory)


@pytest.mark.parametrize("versions", [None, [], [1], "9.9", 3, {}], ids=repr)
def test_another_format_without_versions(run_directory, versions):
    rewrite(run_directory, format=2, versions=versions)
    with pytest.raises(RunError, match="run format 2"):
        runs.read(run_directory)


@pytest.mark.parametrize(
    "name", [f.name for f in dataclasses.fields(runs.Run) if f.name != "block_rows"]
)
def test_a_missing_field(run_directory, name):
    path = run_directory / runs.RUN
    fields = json.loads(path.read_text())
    del fields[name]
    path.write_text(json.dumps(fields))
    with pytest.raises(RunError, match=name):
        runs.read(run_directory)


@pytest.mark.parametrize("spec", [None, 3, "MiniRun", [], {}, {"task": "MiniRun"}], ids=repr)
def test_a_broken_spec(run_directory, spec):
    rewrite(run_directory, spec=spec)
    with pytest.raises(RunError, match="damaged"):
        runs.read(run_directory)


def test_an_unknown_field(run_directory):
    rewrite(run_directory, colour="red")
    with pytest.raises(RunError, match="colour"):
        runs.read(run_directory)


@pytest.mark.parametrize(
    ("name", "value"),
    [("seeds", "abc"), ("seeds", 3), ("config", [1]), ("algorithm", 3), ("data_summary", None)]
    + [("block_rows", value) for value in (0, -1, 2.5, True, "all")],
    ids=repr,
)
def test_a_field_of_the_wrong_type(run_directory, name, value):
    rewrite(run_directory, **{name: value})
    with pytest.raises(RunError, match=name):
        runs.read(run_directory)


def test_runs_older_than_blocks_were_trained_on_all_data_at_once(run_directory):
    fields = json.loads((run_directory / runs.RUN).read_text())
    del fields["block_rows"]
    (run_directory / runs.RUN).write_text(json.dumps(fields))
    assert runs.read(run_directory).block_rows is None


# --- trained or not ----------------------------------------------------------------------------


def test_a_finished_run(run_directory):
    runs.save_tree(run_directory / runs.POLICY, some_tree())
    assert runs.is_trained(run_directory)
    assert runs.require_trained(run_directory) == some_run()


def test_an_unfinished_run(run_directory):
    assert not runs.is_trained(run_directory)
    with pytest.raises(RunError, match=r"unfinished run: finish it with .*--resume"):
        runs.require_trained(run_directory)


def test_a_run_in_training(run_directory):
    with runs.locked(run_directory), pytest.raises(RunError, match="still being trained"):
        runs.require_trained(run_directory)


# --- the lock ----------------------------------------------------------------------------------

HOLD = """
import sys
from pathlib import Path
from safestitch import runs
with runs.locked(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen]:
    """Another process that holds the lock of `tmp_path / "run"`."""
    command = [sys.executable, "-c", HOLD, str(tmp_path / "run")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        yield process
        process.kill()


@pytest.mark.usefixtures("holder")
def test_a_directory_held_by_another_process(tmp_path):
    assert runs.is_locked(tmp_path / "run")
    with (
        pytest.raises(RunError, match="being written by another training"),
        runs.locked(tmp_path / "run"),
    ):
        pytest.fail("the lock was given twice")


def test_a_killed_process_holds_nothing(tmp_path, holder):
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait(timeout=10)
    assert not runs.is_locked(tmp_path / "run")
    with runs.locked(tmp_path / "run"):
        assert runs.is_locked(tmp_path / "run")


def test_the_lock_is_freed_by_an_error(tmp_path):
    with pytest.raises(KeyboardInterrupt), runs.locked(tmp_path / "a" / "b"):
        raise KeyboardInterrupt
    assert not runs.is_locked(tmp_path / "a" / "b")


def test_a_directory_without_a_lock_is_not_locked(tmp_path):
    assert not runs.is_locked(tmp_path)
    assert files_in(tmp_path) == []


def test_a_file_where_the_directory_should_be(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot write to"), runs.locked(tmp_path / "file" / "run"):
        pytest.fail("locked a directory that cannot exist")


# --- atomic files ------------------------------------------------------------------------------


def test_a_file_is_replaced_whole(tmp_path):
    path = tmp_path / "file"
    for content in (b"long " * 1000, b"short", b""):
        write_atomic(path, content)
        assert path.read_bytes() == content
    assert files_in(tmp_path) == ["file"]


def test_a_reader_keeps_the_file_it_opened(tmp_path):
    path = tmp_path / "file"
    write_atomic(path, b"old")
    with open(path, "rb") as reader:
        write_atomic(path, b"new")
        assert reader.read() == b"old"
    assert path.read_bytes() == b"new"


def test_a_failed_replacement_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "file"
    write_atomic(path, b"old")

    def refuse(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(SafestitchError, match=r"No space left on device\. What was there before"):
        write_atomic(path, b"new")
    assert path.read_bytes() == b"old"
    assert files_in(tmp_path) == ["file"]


FILL = """
import resource, signal, sys
from pathlib import Path
import numpy as np
from safestitch import runs
from safestitch.files import write_atomic
from safestitch.records import SafestitchError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
write = {
    "bytes": lambda path: write_atomic(path, b"new" * 100_000),
    "barely": lambda path: write_atomic(path, b"n" * 4097),
    "json": lambda path: runs.write_json(path, ["new"] * 10_000),
    "tree": lambda path: runs.save_tree(path, {"w": np.zeros((100, 100), np.float32)}, step=1),
}[sys.argv[2]]
try:
    write(Path(sys.argv[1]))
except SafestitchError as error:
    print(error)
    sys.exit(7)
"""


@pytest.mark.parametrize("what", ["bytes", "barely", "json", "tree"])
def test_a_full_disk_leaves_the_old_file(tmp_path, what):
    path = tmp_path / "file"
    write_atomic(path, b"old")
    command = [sys.executable, "-c", FILL, str(path), what]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 7, result.stderr
    assert (
        f"cannot write {path}: File too large. What was there before is untouched" in result.stdout
    )
    assert path.read_bytes() == b"old"
    assert files_in(tmp_path) == ["file"]


def test_no_directory_to_write_to(tmp_path):
    with pytest.raises(SafestitchError, match="cannot write"):
        write_atomic(tmp_path / "nowhere" / "file", b"")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write to a read-only directory")
def test_a_read_only_directory(tmp_path):
    directory = tmp_path / "run"
    directory.mkdir(mode=0o500)
    with pytest.raises(SafestitchError, match="cannot write"):
        write_atomic(directory / "file", b"")
    with pytest.raises(SafestitchError, match="cannot write"), runs.locked(directory):
        pytest.fail("locked a read-only directory")
    assert files_in(directory) == []


def test_json_round_trip(tmp_path):
    value = {"rewards": [1.5, -2.0, None], "name": "é"}
    runs.write_json(tmp_path / "file", value)
    assert runs.read_json(tmp_path / "file") == value


def test_json_holds_no_nan(tmp_path):
    with pytest.raises(ValueError, match="JSON compliant"):
        runs.write_json(tmp_path / "file", [float("nan")])
    assert files_in(tmp_path) == []


# --- trees of arrays ---------------------------------------------------------------------------


def test_a_tree_is_loaded_as_it_was_saved(saved):
    tree, facts = runs.load_tree(saved, some_tree())
    assert_same(tree, some_tree())
    assert facts == FACTS


def test_a_tree_is_loaded_into_shapes_alone(saved):
    like = jax.eval_shape(some_tree)
    assert_same(runs.load_tree(saved, like)[0], some_tree())


def test_arrays_that_are_not_contiguous(tmp_path):
    turned = {"w": np.arange(6, dtype=np.float32).reshape(2, 3).T}
    runs.save_tree(tmp_path / "file", turned)
    assert_same(runs.load_tree(tmp_path / "file", turned)[0], turned)


def test_saving_twice_gives_the_same_digest(saved, tmp_path):
    runs.save_tree(tmp_path / "again", some_tree(), **FACTS)
    assert_same(runs.load_tree(tmp_path / "again", some_tree())[0], some_tree())
    assert len((tmp_path / "again").read_bytes()) == len(saved.read_bytes())


def test_a_missing_tree(tmp_path):
    with pytest.raises(RunError, match=r"policy\.safetensors is missing"):
        runs.load_tree(tmp_path / runs.POLICY, some_tree())


def test_a_directory_instead_of_a_tree(tmp_path):
    with pytest.raises(RunError):
        runs.load_tree(tmp_path, some_tree())


def test_every_truncation(saved):
    whole = saved.read_bytes()
    for size in range(len(whole)):
        saved.write_bytes(whole[:size])
        with pytest.raises(RunError, match="damaged"):
            runs.load_tree(saved, some_tree())


def test_bytes_behind_the_end(saved):
    saved.write_bytes(saved.read_bytes() + b"\x00")
    with pytest.raises(RunError, match="damaged"):
        runs.load_tree(saved, some_tree())


def regions(content: bytes) -> dict[str, range]:
    """The parts of a safetensors file: length, our metadata, the tensors' header, the tensors."""
    header_end = 8 + int.from_bytes(content[:8], "little")
    metadata_end = content.index(b"}", content.index(b'"__metadata__"'))
    while content[metadata_end + 1 : metadata_end + 2] != b",":  # braces of the facts themselves
        metadata_end = content.index(b"}", metadata_end + 1)
    return {
        "length": range(8),
        "metadata": range(8, metadata_end + 1),
        "header": range(metadata_end + 1, header_end),
        "tensors": range(header_end, len(content)),
    }


@pytest.mark.parametrize("region", ["length", "metadata", "header", "tensors"])
def test_every_flipped_bit(saved, region):
    whole = saved.read_bytes()
    unseen = []
    for place in regions(whole)[region]:
        for bit in range(8):
            flipped = bytearray(whole)
            flipped[place] ^= 1 << bit
            saved.write_bytes(flipped)
            try:
                tree, facts = runs.load_tree(saved, some_tree())
            except RunError:
                continue
            assert_same(tree, some_tree())
            if facts != FACTS:
                unseen.append((place, bit, facts))
    assert not unseen, f"{len(unseen)} flips changed the facts unseen, first {unseen[0]}"


def test_noise_instead_of_a_tree(tmp_path):
    rng = np.random.default_rng(0)
    for size in (0, 1, 7, 8, 9, 100, 5000):
        (tmp_path / "file").write_bytes(rng.bytes(size))
        with pytest.raises(RunError, match="damaged"):
            runs.load_tree(tmp_path / "file", some_tree())


def write_by_hand(path: Path, header: Any, content: bytes) -> None:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + content)


@pytest.mark.parametrize(
    ("dtype", "size"), [("BF16", 4), ("F8_E4M3", 2), ("F8_E5M2", 2), ("F4", 1), ("F64", 16)]
)
def test_tensors_of_another_type(tmp_path, dtype, size):
    entry = {"dtype": dtype, "shape": [2], "data_offsets": [0, size]}
    write_by_hand(tmp_path / "file", {"['w']": entry}, bytes(size))
    with pytest.raises(RunError):
        runs.load_tree(tmp_path / "file", {"w": jnp.zeros(2)})


@pytest.mark.parametrize(
    "header",
    [
        [],
        {},
        {"['w']": 3},
        {"['w']": {"dtype": "F32", "shape": [1 << 62, 1 << 62], "data_offsets": [0, 8]}},
        {"['w']": {"dtype": "F32", "shape": [-2], "data_offsets": [0, 8]}},
        {"['w']": {"dtype": "F32", "shape": [2], "data_offsets": [8, 0]}},
        {"['w']": {"dtype": "F32", "shape": [2], "data_offsets": [0, 1 << 40]}},
        b'{"a":' * 10_000,
        b"\xff" * 64,
    ],
    ids=lambda header: str(header)[:60],
)
def test_a_malicious_header(tmp_path, header):
    write_by_hand(tmp_path / "file", header, bytes(8))
    with pytest.raises(RunError):
        runs.load_tree(tmp_path / "file", {"w": jnp.zeros(2)})


def test_a_tree_without_our_metadata(tmp_path):
    (tmp_path / "file").write_bytes(safetensors.numpy.save({"['w']": np.zeros(2, np.float32)}))
    with pytest.raises(RunError, match="digest"):
        runs.load_tree(tmp_path / "file", {"w": jnp.zeros(2)})


@pytest.mark.parametrize(
    ("like", "named"),
    [
        ({"w": jnp.zeros((2, 3))}, r"\['w'\]"),
        ({"w": jnp.zeros((3, 2), jnp.int32)}, r"\['w'\]"),
        ({"w": jnp.zeros((3, 2)), "b": jnp.zeros(2)}, r"\['b'\]"),
        ({"v": jnp.zeros((3, 2))}, r"\['v'\]"),
        ({}, r"\['w'\]"),
        ((jnp.zeros((3, 2)),), r"\['w'\]|\[0\]"),
    ],
    ids=["shape", "type", "more", "name", "nothing", "structure"],
)
def test_a_tree_that_does_not_fit(tmp_path, like, named):
    runs.save_tree(tmp_path / "file", {"w": jnp.zeros((3, 2))})
    with pytest.raises(RunError, match=f"does not fit this run: ({named})"):
        runs.load_tree(tmp_path / "file", like)
