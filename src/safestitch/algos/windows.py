"""Windows of episodes: K steps in a row with their returns-to-go; logged ones and one's own."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from safestitch.algos import segments
from safestitch.algos.augmenting import Relabelled
from safestitch.episodes import Episodes
from safestitch.records import Spec
from safestitch.scaling import AnyArray, Scaling


class Data(NamedTuple):
    """Steps and the table of episodes, relabelled copies included; entries past the last are idle.

    Returns are in units of the data's largest.
    """

    steps: segments.Data
    first: Int[AnyArray, " e"]
    length: Int[AnyArray, " e"]
    reward_shift: Float[AnyArray, " e"]
    cost_shift: Float[AnyArray, " e"]
    """What relabelling adds to the returns-to-go."""
    reach: Float[AnyArray, " e"]
    """Probability of this and all earlier episodes."""
    per_unit: Float[AnyArray, " 2"]
    """A token's value for the largest reward and cost."""


class Window(NamedTuple):
    """K steps from any step of an episode on; past its end zero and not valid."""

    R_hat: Float[Array, "b k"]
    C_hat: Float[Array, "b k"]
    s: Float[Array, "b k o"]
    a: Float[Array, "b k a"]
    time: Int[Array, "b k"]


def per_unit(cfg: Any, scaling: Scaling):
    """What a token shows for the data's largest reward return and cost return."""
    if cfg.units == "data":
        return 1.0, 1.0
    return scaling.reward_unit * cfg.reward_scale, scaling.cost_unit


def episode_weights(C: Float[np.ndarray, " e"], cap: float) -> Float[np.ndarray, " e"]:
    """Eq. (4): P(episode) ~ max(0, c_cap - C); all alike where none costs less than the cap."""
    weight = np.maximum(0.0, cap - C)
    return weight / weight.sum() if weight.any() else np.full(len(C), 1.0 / len(C))


def tabulate(cfg: Any, episodes: Episodes, spec: Spec, scaling: Scaling, added: Relabelled) -> Data:
    """Prefix sums, and a table of episodes as long as there are steps, for blocks of one shape."""
    unit = np.float64(scaling.reward_unit), np.float64(scaling.cost_unit)
    which = np.concatenate([np.arange(len(episodes)), added.episode])
    R, C = episodes.returns / unit[0], episodes.cost_returns / unit[1]
    asked_R = np.concatenate([R, added.R / unit[0]])
    asked_C = np.concatenate([C, added.C / unit[1]])
    cap = cfg.cost_cap / (1.0 if cfg.units == "data" else unit[1])
    room = episodes.steps + int(cfg.augment * episodes.steps) - len(which)
    columns = {
        "first": episodes.offsets[which].astype(np.int32),
        "length": episodes.lengths[which].astype(np.int32),
        "reward_shift": (asked_R - R[which]).astype(np.float32),
        "cost_shift": (asked_C - C[which]).astype(np.float32),
    }
    reach = np.cumsum(episode_weights(asked_C, cap)).astype(np.float32)
    steps = segments.measure(episodes, spec, scaling)._replace(
        observations=scaling.observation(episodes.observations),
        actions=scaling.unscale_action(episodes.actions),
    )
    return Data(
        steps=steps,
        **{name: np.pad(column, (0, room), "edge") for name, column in columns.items()},
        reach=np.pad(reach, (0, room), constant_values=2.0),
        per_unit=np.asarray(per_unit(cfg, scaling), np.float32),
    )


def cut_windows(cfg: Any, data: Data, u: Float[Array, " b"], v: Float[Array, " b"]):
    """Windows, which steps cost, and which are valid, from uniform draws."""
    found = jnp.searchsorted(data.reach, u, side="right").astype(jnp.int32)
    episode = jnp.minimum(found, len(data.reach) - 1)  # idle entries repeat the last episode
    first, length = data.first[episode], data.length[episode]
    begin = jnp.minimum((v * length.astype(v.dtype)).astype(jnp.int32), length - 1)
    time = begin[:, None] + jnp.arange(cfg.context, dtype=jnp.int32)[None]
    valid = time < length[:, None]
    row = jnp.where(valid, first[:, None] + time, (first + length - 1)[:, None])
    steps, last_row = data.steps, first + length - 1
    whole = [
        before[last_row] + each[last_row] + shift[episode]
        for before, each, shift in (
            (steps.reward_before, steps.rewards, data.reward_shift),
            (steps.cost_before, steps.costs, data.cost_shift),
        )
    ]
    on = valid.astype(v.dtype)
    R_hat = (whole[0][:, None] - steps.reward_before[row]) * data.per_unit[0] * on
    C_hat = (whole[1][:, None] - steps.cost_before[row]) * data.per_unit[1] * on
    s, a = steps.observations[row] * on[..., None], steps.actions[row] * on[..., None]
    costly = (steps.costs[row] > 0).astype(v.dtype) * on
    return Window(R_hat, C_hat, s, a, jnp.where(valid, time, 0)), costly, on


def empty_window(context: int, obs_dim: int, act_dim: int) -> Window:
    """A batch of one, before the first step."""
    scalars = jnp.zeros((1, context))
    s, a = jnp.zeros((1, context, obs_dim)), jnp.zeros((1, context, act_dim))
    return Window(scalars, scalars, s, a, jnp.zeros((1, context), jnp.int32))


def remember(window: Window, step: Int[Array, ""], now: Sequence) -> tuple[Window, Int[Array, ""]]:
    """This step's tokens in the window, and their place; a full one forgets its first step."""
    size = window.time.shape[1]
    place = jnp.minimum(step, size - 1)
    full = step >= size

    def put(column, value):
        column = jnp.where(full, jnp.roll(column, -1, axis=1), column)
        return column.at[0, place].set(value)

    return Window(*(put(*pair) for pair in zip(window, now, strict=True))), place
