"""Behaviours of a task as one small file: actors of several seeds and moments of training.

A safetensors file: weights in float16, units of observations in float32, and as JSON what the task
is, what each snapshot was measured to do, and a digest of it all. Nothing is ever unpickled; every
file is treated as hostile until it is checked.
"""

import dataclasses
import hashlib
import json
import math
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy

from safestitch.behaviours.actor import PREFERENCES, Actor
from safestitch.catalog import catalog
from safestitch.files import write_atomic
from safestitch.records import SafestitchError, Spec

FORMAT = 1
LAYERS = 3
MAX_BYTES = 256 * 2**20
"""A file larger than this is no file of ours."""


@dataclasses.dataclass(frozen=True)
class Moment:
    """Where a snapshot comes from, and what its noiseless actor was measured to do."""

    seed: int
    step: int
    """Environment steps of training."""
    lambdas: tuple[float, ...]
    rewards: tuple[float, ...]
    """Mean return of an episode at each lambda."""
    costs: tuple[float, ...]
    """Mean cost of an episode at each lambda."""


@dataclasses.dataclass(frozen=True)
class Behaviours:
    """Snapshots of a task: `actors` has one axis more in front, `moments` says what they are."""

    spec: Spec
    actors: Actor
    moments: tuple[Moment, ...]

    def __len__(self) -> int:
        return len(self.moments)

    def __getitem__(self, index: int) -> Actor:
        a = self.actors
        weights, biases = (tuple(x[index] for x in layers) for layers in (a.weights, a.biases))
        return Actor(weights, biases, a.obs_mean[index], a.obs_scale[index])


def behaviours_of(spec: Spec, actors: Sequence[Actor], moments: Sequence[Moment]) -> Behaviours:
    """A stack of single actors, rounded to what a file holds."""

    def stacked(leaves, kind: Any = np.float16):
        return np.stack([np.asarray(x) for x in leaves]).astype(kind).astype(np.float32)

    def layers(name):
        return tuple(stacked(of) for of in zip(*(getattr(a, name) for a in actors), strict=True))

    units = (
        stacked([getattr(a, n) for a in actors], np.float32) for n in ("obs_mean", "obs_scale")
    )
    return Behaviours(spec, Actor(layers("weights"), layers("biases"), *units), tuple(moments))


def joined(parts: Sequence[Behaviours]) -> Behaviours:
    """All snapshots of several behaviours of one task.

    Raises:
        SafestitchError: if they are of different tasks, or their networks of different sizes.
    """
    first = parts[0]
    for part in parts[1:]:
        if part.spec != first.spec:
            raise SafestitchError(
                f"behaviours of {first.spec.task} and of {part.spec.task} do not go together: one "
                f"file is of one task. {first.spec}; {part.spec}"
            )
        widths = [of.actors.biases[0].shape[1] for of in (first, part)]
        if widths[0] != widths[1]:
            raise SafestitchError(
                f"networks {widths[0]} and {widths[1]} wide do not go into one file: "
                "give runs of one --actor-width"
            )
    actors = [part[i] for part in parts for i in range(len(part))]
    return behaviours_of(first.spec, actors, [m for part in parts for m in part.moments])


def chosen(behaviours: Behaviours, indices: Sequence[int]) -> Behaviours:
    """Some of the snapshots, in the order given."""
    actors = [behaviours[i] for i in indices]
    return behaviours_of(behaviours.spec, actors, [behaviours.moments[i] for i in indices])


def shipped(task: str) -> Path:
    """The behaviours that come with safestitch.

    Raises:
        SafestitchError: if there are none of that task.
    """
    path = Path(str(resources.files("safestitch"))) / "behaviours" / "networks"
    path /= f"{task}.safetensors"
    if task in catalog() and path.is_file():
        return path
    raise SafestitchError(
        f"no behaviours of {task} come with safestitch: train some with `safestitch behaviours "
        f"train {task}`, which writes them to a file"
    )


# --- the file ---------------------------------------------------------------------------------


def save(path: Path, behaviours: Behaviours) -> None:
    """Write behaviours to a file, at once or not at all."""
    arrays = _arrays(behaviours.actors)
    facts = _facts(behaviours)
    # One key: the order of several is random, and equal behaviours must be equal files.
    metadata = {"behaviours": json.dumps({"facts": facts, "sha256": _digest(arrays, facts)})}
    write_atomic(path, safetensors.numpy.save(arrays, metadata=metadata))


def load(path: Path) -> Behaviours:
    """Read behaviours.

    Raises:
        SafestitchError: if the file is missing, damaged, or holds something else.
    """
    arrays, metadata = _read(path)
    try:
        stored = json.loads(metadata.get("behaviours", "{}"))
        facts = stored["facts"]
        if stored["sha256"] != _digest(arrays, facts):
            raise ValueError("its digest does not match its contents")
        fields = json.loads(facts)
        if fields["format"] != FORMAT:
            raise ValueError(f"format {fields['format']!r}, this version reads {FORMAT}")
        spec = _spec(fields["spec"])
        moments = tuple(_moment(m) for m in fields["moments"])
        _check(arrays, spec, len(moments))
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        what = f"no {error}" if isinstance(error, KeyError) else error
        raise SafestitchError(f"{path} is not a file of behaviours: {what}") from None
    floats = {name: array.astype(np.float32) for name, array in arrays.items()}
    weights, biases = (
        tuple(floats[f"{kind}.{i}"] for i in range(LAYERS)) for kind in ("weights", "biases")
    )
    return Behaviours(
        spec, Actor(weights, biases, floats["obs_mean"], floats["obs_scale"]), moments
    )


def digest(behaviours: Behaviours) -> str:
    """SHA-256 of all that the behaviours are: what data made with them are traced back to."""
    return _digest(_arrays(behaviours.actors), _facts(behaviours))


def _arrays(actors: Actor) -> dict[str, np.ndarray]:
    arrays: dict[str, Any] = {"obs_mean": actors.obs_mean, "obs_scale": actors.obs_scale}
    for i in range(LAYERS):
        arrays[f"weights.{i}"] = np.asarray(actors.weights[i]).astype(np.float16)
        arrays[f"biases.{i}"] = np.asarray(actors.biases[i]).astype(np.float16)
    return {name: np.asarray(array, order="C") for name, array in arrays.items()}


def _facts(behaviours: Behaviours) -> str:
    moments = [dataclasses.asdict(m) for m in behaviours.moments]
    spec = dataclasses.asdict(behaviours.spec)
    return json.dumps({"format": FORMAT, "spec": spec, "moments": moments}, allow_nan=False)


def _digest(arrays: dict[str, np.ndarray], facts: str) -> str:
    found = hashlib.sha256(facts.encode())
    for name in sorted(arrays):
        found.update(f"{name} {arrays[name].dtype} {arrays[name].shape}".encode())
        found.update(np.ascontiguousarray(arrays[name]).data)
    return found.hexdigest()


def _read(path: Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    try:
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise SafestitchError(
                f"{path} has {size:,} bytes, expected a file of behaviours of at most {MAX_BYTES:,}"
            )
        with safetensors.safe_open(path, framework="numpy") as file:
            return {n: file.get_tensor(n) for n in file.keys()}, file.metadata() or {}  # noqa: SIM118
    except OSError as error:
        raise SafestitchError(f"cannot read {path}: {error.strerror or error}") from None
    except (safetensors.SafetensorError, ValueError, TypeError, AttributeError) as error:
        if isinstance(error, SafestitchError):
            raise
        raise SafestitchError(f"{path} is not a file of behaviours: {error}") from None


def _spec(fields: dict[str, Any]) -> Spec:
    kinds = {"task": str, "obs_dim": int, "act_dim": int, "horizon": int}
    spec = Spec(**fields)
    for name, kind in kinds.items():
        if type(getattr(spec, name)) is not kind:
            raise ValueError(f"{name} is {getattr(spec, name)!r}, expected {kind.__name__}")
    numbers = (spec.cost_range, spec.action_low, spec.action_high)
    if not all(isinstance(x, int | float) and math.isfinite(x) for x in numbers):
        raise ValueError("the range of costs or actions is not a number")
    if min(spec.obs_dim, spec.act_dim, spec.horizon) < 1 or spec.action_low >= spec.action_high:
        raise ValueError("a task without observations, actions, steps, or a range of actions")
    return spec


def _moment(fields: dict[str, Any]) -> Moment:
    lists = {n: tuple(float(x) for x in fields[n]) for n in ("lambdas", "rewards", "costs")}
    if len({len(x) for x in lists.values()}) != 1:
        raise ValueError("a moment has not one reward and cost for every lambda")
    if not all(math.isfinite(x) for values in lists.values() for x in values):
        raise ValueError("a moment holds a number that is not finite")
    if type(fields["seed"]) is not int or type(fields["step"]) is not int:
        raise ValueError("seed or step of a moment is not a whole number")
    return Moment(fields["seed"], fields["step"], **lists)


def _check(arrays: dict[str, np.ndarray], spec: Spec, count: int) -> None:
    if not count:
        raise ValueError("it holds no snapshots")
    width = arrays["biases.0"].shape[-1]
    sizes = (spec.obs_dim + PREFERENCES, width, width, 2 * spec.act_dim)
    expected: dict[str, tuple] = {
        n: ((count, spec.obs_dim), "float32") for n in ("obs_mean", "obs_scale")
    }
    for i in range(LAYERS):
        expected[f"weights.{i}"] = ((count, sizes[i], sizes[i + 1]), "float16")
        expected[f"biases.{i}"] = ((count, sizes[i + 1]), "float16")
    found = {name: (a.shape, str(a.dtype)) for name, a in arrays.items()}
    for name in sorted(expected | found):
        if expected.get(name) != found.get(name):
            raise ValueError(
                f"{name} is {found.get(name, 'absent')}, expected {expected.get(name, 'absent')}"
            )
        if not np.isfinite(arrays[name]).all():
            raise ValueError(f"{name} holds a number that is not finite")
    if not (arrays["obs_scale"] > 0).all():
        raise ValueError("obs_scale is not above 0")
