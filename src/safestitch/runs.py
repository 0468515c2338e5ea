"""The run directory: the only module that knows its file names and formats.

    run.json                  what was asked: algorithm, config, seeds, data fingerprint, versions
    metrics.csv               one row per seed and logging interval
    checkpoint.safetensors    everything needed to go on: parameters, optimisers, keys, step
    policy.safetensors        the finished policies of all seeds; its presence means "trained"
    eval.json                 one record per seed and limit
    eval_rows.json            the same over all seeds, one row per limit: the printed table
    eval_episodes.json        what the evaluation was asked, and the return of every episode
    dial.json, report.html    what the report was made of, and the report

Every file is replaced atomically, so a reader or a kill sees the old file or the new, never half.
Nothing here is ever unpickled: JSON and safetensors only, checked against what is expected.
"""

import contextlib
import dataclasses
import fcntl
import hashlib
import importlib.metadata
import json
import platform
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import safetensors
import safetensors.numpy
from jaxtyping import PyTree

from safestitch.files import write_atomic
from safestitch.records import RunError, Spec

FORMAT = 1
RUN, METRICS, CHECKPOINT, POLICY = (
    "run.json",
    "metrics.csv",
    "checkpoint.safetensors",
    "policy.safetensors",
)
EVAL, ROWS, DIAL = "eval.json", "eval_rows.json", "dial.json"
EPISODES = "eval_episodes.json"
REPORT, LOCK = "report.html", ".lock"
RECORD = (RUN, METRICS, EPISODES)
"""What comparisons are made of: kept without its networks, a run is some kilobytes."""


@dataclasses.dataclass(frozen=True)
class Run:
    """What a run is, as written in its `run.json` before the first step."""

    algorithm: str
    config: dict[str, Any]
    spec: Spec
    seeds: list[int]
    data_source: str
    """Where the episodes came from, in words a person can act on."""
    data_seed: int
    data_fingerprint: str
    data_summary: dict[str, Any]
    """Episodes, ranges of reward and cost, and the frontier: what results are shown beside."""
    versions: dict[str, str]
    block_rows: int | None = None
    """Steps of the blocks that data larger than memory are visited in; None: all at once."""
    format: int = FORMAT


def versions() -> dict[str, str]:
    """Versions of what a result depends on."""
    names = ("safestitch", "jax", "jaxlib", "equinox", "optax", "numpy")
    found = {name: importlib.metadata.version(name) for name in names}
    return {"python": platform.python_version(), **found}


def create(directory: Path, run: Run) -> None:
    """Write `run.json` into an empty directory, held by `locked`.

    Raises:
        RunError: if the directory already holds a run.
    """
    if (directory / RUN).exists():
        state = "a finished run" if is_trained(directory) else "an unfinished run"
        advice = (
            "choose another --out, or delete it"
            if is_trained(directory)
            else f"resume it with `safestitch train --resume {directory}`, or choose another --out"
        )
        raise RunError(f"{directory} already holds {state}: {advice}")
    write_json(directory / RUN, dataclasses.asdict(run))


def read(directory: Path) -> Run:
    """The run in a directory.

    Raises:
        RunError: if there is none, or it is broken or of another format.
    """
    if not directory.is_dir():
        raise RunError(f"no run directory {directory}: make one with `safestitch train`")
    fields = read_json(directory / RUN)
    if not isinstance(fields, dict):
        raise RunError(f"{directory / RUN} is damaged: expected an object")
    if fields.get("format") != FORMAT:
        made_with = fields.get("versions")
        made_by = made_with.get("safestitch") if isinstance(made_with, dict) else "unknown"
        raise RunError(
            f"{directory} is of run format {fields.get('format')!r} (safestitch {made_by}); this "
            f"version reads format {FORMAT}: use that version, or train again"
        )
    try:
        run = Run(**{**fields, "spec": Spec(**fields["spec"])})
    except (KeyError, TypeError) as error:
        raise RunError(f"{directory / RUN} is damaged: {error}") from None
    for field, kind in _KINDS.items():
        if not isinstance(getattr(run, field), kind):
            raise RunError(f"{directory / RUN} is damaged: {field} is not a {kind.__name__}")
    if not run.seeds or not all(type(seed) is int for seed in run.seeds):
        raise RunError(f"{directory / RUN} is damaged: seeds are not a list of numbers")
    if run.block_rows is not None and (type(run.block_rows) is not int or run.block_rows < 1):
        raise RunError(f"{directory / RUN} is damaged: block_rows is {run.block_rows!r}")
    missing = [name for name in SUMMARY if name not in run.data_summary]
    if missing:
        raise RunError(f"{directory / RUN} is damaged: data_summary has no {missing[0]}")
    return run


SUMMARY = ("reward_max", "cost_max", "frontier_costs", "frontier_rewards")
_KINDS = {
    "algorithm": str,
    "config": dict,
    "seeds": list,
    "data_source": str,
    "data_seed": int,
    "data_fingerprint": str,
    "data_summary": dict,
    "versions": dict,
}


def is_trained(directory: Path) -> bool:
    """Whether training has finished: the policy is written last."""
    return (directory / POLICY).exists()


def is_evaluated(directory: Path) -> bool:
    """Whether episodes were played, and hence training had finished; the policy may be gone."""
    return (directory / EPISODES).exists()


@contextlib.contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Hold the directory for writing; the system frees it when the process ends, however it ends.

    Raises:
        RunError: if another process holds it, or it holds something that is not a run.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        foreign = [p for p in directory.iterdir() if not p.name.startswith(".")]
        if foreign and not (directory / RUN).exists():
            raise RunError(f"{directory} is not empty and holds no run: choose another --out")
        handle = open(directory / LOCK, "a+")  # noqa: SIM115 (closed below: the lock lives with it)
    except OSError as error:
        raise RunError(f"cannot write to {directory}: {error.strerror}") from None
    with handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RunError(
                f"{directory} is being written by another training: wait for it, or choose "
                "another --out"
            ) from None
        yield


def is_locked(directory: Path) -> bool:
    """Whether a training is writing the directory now."""
    try:
        with open(directory / LOCK) as handle:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def require_trained(directory: Path) -> Run:
    """The run, if it has a finished policy.

    Raises:
        RunError: if it is being written, or stopped before the end.
    """
    run = read(directory)
    if is_trained(directory):
        return run
    if is_locked(directory):
        raise RunError(f"{directory} is still being trained: try again when it has finished")
    if is_evaluated(directory):
        raise RunError(
            f"{directory} is the record of a run, without its policy: it answers what the policy "
            "was asked before, and nothing else. Train it again"
        )
    raise RunError(
        f"{directory} holds an unfinished run: finish it with "
        f"`safestitch train --resume {directory}`"
    )


# --- files ------------------------------------------------------------------------------------


def write_json(path: Path, value: Any, indent: int | None = 1) -> None:
    """Write JSON without NaN, readable unless the indent is None."""
    write_atomic(path, (json.dumps(value, indent=indent, allow_nan=False) + "\n").encode())


def read_json(path: Path) -> Any:
    """Read JSON.

    Raises:
        RunError: if the file is missing or is not JSON.
    """
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        raise RunError(
            f"{path.parent} is not a complete run directory: {path.name} is missing"
        ) from None
    except (ValueError, RecursionError) as error:
        raise RunError(f"{path} is damaged: {error}") from None
    except OSError as error:
        raise RunError(f"cannot read {path}: {error.strerror}") from None


def save_tree(path: Path, tree: PyTree, **facts: Any) -> None:
    """Write a pytree of arrays, with facts beside it, as one safetensors file with a digest."""
    arrays = {name: np.asarray(leaf, order="C") for name, leaf in _named(tree)}
    stored = json.dumps(facts)
    # One key: the order of several is random, and equal runs must be equal files.
    metadata = {"safestitch": json.dumps({"facts": stored, "sha256": _digest(arrays, stored)})}
    write_atomic(path, safetensors.numpy.save(arrays, metadata=metadata))


def load_tree(path: Path, like: PyTree) -> tuple[PyTree, dict[str, Any]]:
    """Read a pytree of the structure, shapes and types of `like`, and the facts beside it.

    Raises:
        RunError: if the file is missing, damaged, or holds something else.
    """
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            metadata = json.loads((file.metadata() or {}).get("safestitch", "{}"))
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except FileNotFoundError:
        raise RunError(f"{path.parent} is incomplete: {path.name} is missing") from None
    except (OSError, safetensors.SafetensorError, ValueError, AttributeError, TypeError) as error:
        raise RunError(f"{path} is damaged: {error}") from None
    expected = {name: (leaf.shape, str(leaf.dtype)) for name, leaf in _named(like)}
    found = {name: (a.shape, str(a.dtype)) for name, a in arrays.items()}
    if expected != found:
        differing = sorted(k for k in expected | found if expected.get(k) != found.get(k))
        raise RunError(
            f"{path} does not fit this run: {differing[0]} is {found.get(differing[0], 'absent')}, "
            f"expected {expected.get(differing[0], 'absent')}"
        )
    stored = metadata.get("facts") if isinstance(metadata, dict) else None
    if not isinstance(stored, str) or _digest(arrays, stored) != metadata.get("sha256"):
        raise RunError(f"{path} is damaged: its digest does not match its contents")
    leaves = [jnp.asarray(arrays[name]) for name, _ in _named(like)]
    tree = jax.tree.unflatten(jax.tree.structure(like), leaves)
    return tree, json.loads(stored)


def _named(tree: PyTree) -> list[tuple[str, Any]]:
    return [
        (jax.tree_util.keystr(p), leaf) for p, leaf in jax.tree_util.tree_leaves_with_path(tree)
    ]


def _digest(arrays: dict[str, np.ndarray], facts: str) -> str:
    digest = hashlib.sha256(facts.encode())
    for name in sorted(arrays):
        digest.update(f"{name} {arrays[name].dtype} {arrays[name].shape}".encode())
        digest.update(np.ascontiguousarray(arrays[name]).data)
    return digest.hexdigest()
