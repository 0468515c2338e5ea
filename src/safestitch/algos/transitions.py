"""Single steps with what followed them, for methods that learn by Bellman backups."""

from typing import Any, Literal, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float, Key

from safestitch.algos.base import pick
from safestitch.episodes import Episodes
from safestitch.records import Spec
from safestitch.scaling import AnyArray, Scaling

Units = Literal["task", "data"]


class Data(NamedTuple):
    """The data as training sees them."""

    observations: Float[AnyArray, "n o"]
    actions: Float[AnyArray, "n a"]
    rewards: Float[AnyArray, " n"]
    costs: Float[AnyArray, " n"]
    next_observations: Float[AnyArray, "n o"]
    goes_on: Float[AnyArray, " n"]
    """1, or 0 where values beyond this step count as zero."""


class Batch(NamedTuple):
    """Transitions (s, a, r, c, s')."""

    s: Float[Array, "b o"]
    a: Float[Array, "b a"]
    r: Float[Array, " b"]
    c: Float[Array, " b"]
    s_next: Float[Array, "b o"]
    goes_on: Float[Array, " b"]


def units(cfg: Any, scaling: Scaling) -> tuple[Any, Any]:
    """What a reward and a cost of the task are multiplied by.

    "task": by `cfg.reward_scale` and 1, as released. "data": the largest returns of the data,
    spread over a whole episode, come to 1 a step; settings then serve tasks of any size.
    """
    if cfg.units == "task":
        return cfg.reward_scale, 1.0
    return scaling.horizon / scaling.reward_unit, scaling.horizon / scaling.cost_unit


def prepare(cfg: Any, episodes: Episodes, spec: Spec, scaling: Scaling) -> Data:  # noqa: ARG001
    """Scale, and line every step up with its successor."""
    per_reward, per_cost = units(cfg, scaling)
    ends = episodes.terminated | episodes.truncated if cfg.timeouts_end else episodes.terminated
    return Data(
        observations=scaling.observation(episodes.observations),
        actions=scaling.unscale_action(episodes.actions),
        rewards=(episodes.rewards * np.float64(per_reward)).astype(np.float32),
        costs=(episodes.costs * np.float64(per_cost)).astype(np.float32),
        next_observations=scaling.observation(episodes.next_observations()),
        goes_on=1.0 - ends.astype(np.float32),
    )


def sample(cfg: Any, data: Data, key: Key[Array, ""]) -> Batch:
    """Transitions, uniformly and with replacement."""
    row = pick(jax.random.bits(key, (cfg.batch,)), len(data.rewards))
    return Batch(*(column[row] for column in data))
