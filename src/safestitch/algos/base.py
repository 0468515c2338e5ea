"""What an algorithm is: one record of pure functions. The loop scans, vmaps and saves them."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, get_args, get_type_hints

import jax.numpy as jnp
from jaxtyping import Array, Float, Int, UInt

from safestitch.names import unknown
from safestitch.records import SafestitchError

Metrics = dict[str, Float[Array, ""]]
"""Name -> value of one iteration."""


class Request(NamedTuple):
    """What the user asks of an episode, in the task's own units."""

    cost_limit: Float[Array, ""]
    """Undiscounted cost per episode."""
    target_reward: Float[Array, ""]
    """Undiscounted reward per episode; NaN lets the algorithm choose."""


@dataclasses.dataclass(frozen=True, eq=False)
class Algorithm:
    """The contract every algorithm file fulfils; see `docs/algorithms`."""

    name: str
    Config: type
    presets: Mapping[str, Any]
    """Name -> Config; "paper" is the published table."""
    prepare: Callable
    """(config, episodes, spec, scaling[, facts]) -> data: what is done to the data once, in NumPy.

    Of data larger than memory the episodes are a block, and `facts` is what `survey` found. Blocks
    have equal numbers of steps and must give arrays of equal shapes.
    """
    init: Callable
    """(config, spec, key) -> state: networks and optimisers of one seed."""
    sample: Callable
    """(config, data, key) -> batch: one batch, drawn inside the compiled program."""
    update: Callable
    """(config, state, batch) -> state, metrics: one iteration."""
    policy: Callable
    """(state) -> the networks that acting needs."""
    start: Callable
    """(config, policy, scaling, request) -> carry: the start of an episode."""
    act: Callable
    """(config, policy, scaling, carry, obs) -> action, carry."""
    observe: Callable
    """(config, scaling, carry, reward, cost) -> carry: what the last action brought."""
    redial: Callable
    """(config, scaling, carry, old limit, new limit) -> carry: a new limit in mid-episode."""
    threshold: Literal["train", "test"]
    """Whether the cost limit is fixed in training or chosen when acting."""
    survey: Callable | None = None
    """(config, episodes, spec, scaling) -> facts of all the data that one block does not show."""


def pick(bits: UInt[Array, " b"], n: int | Int[Array, ""]) -> Int[Array, " b"]:
    """Row numbers below n from random bits, uniform but for a bias of at most n / 2^32."""
    return (bits % jnp.uint32(n)).astype(jnp.int32)


def check_range(config: Any, names: Sequence[str], low: float | int, high: float | int) -> None:
    """Raise unless every named field of a config lies in [low, high]."""
    for name in names:
        value = getattr(config, name)
        if not low <= value <= high:
            raise SafestitchError(f"{name} is {value}: expected {low:g} to {high:g}")


def check_kinds(config: Any) -> None:
    """Raise unless every field of a config has a value of its declared kind."""
    for name, kind in get_type_hints(type(config)).items():
        value, choices = getattr(config, name), get_args(kind)
        if choices and value not in choices:
            raise SafestitchError(unknown(name, str(value), choices))
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if kind is bool and not isinstance(value, bool):
            raise SafestitchError(f"{name} is {value!r}: expected true or false")
        if kind is int and not (number and value == int(value)):
            raise SafestitchError(f"{name} is {value!r}: expected a whole number")
        if kind is float and not number:
            raise SafestitchError(f"{name} is {value!r}: expected a number")
