"""Segments of episodes: pieces from one step to a later one, their returns in O(1) (TSRA)."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from safestitch.episodes import Episodes
from safestitch.records import Spec
from safestitch.scaling import AnyArray, Scaling


class Data(NamedTuple):
    """The data as training sees them; `n` steps, memory O(n)."""

    observations: Float[AnyArray, "n o"]
    actions: Float[AnyArray, "n a"]
    rewards: Float[AnyArray, " n"]
    costs: Float[AnyArray, " n"]
    reward_before: Float[AnyArray, " n"]
    """Reward of the episode before this step."""
    cost_before: Float[AnyArray, " n"]
    last: Int[AnyArray, " n"]
    """Row of the episode's last step."""
    final: Int[AnyArray, " n"]
    """The last Γ: `last`, or beyond it where a fall's aftermath counts."""
    top_rows: Int[AnyArray, " m"]
    top_ends: Int[AnyArray, " m"]
    """First and last rows of the segments of D^q."""
    horizon: Float[AnyArray, ""]


def measure(episodes: Episodes, spec: Spec, scaling: Scaling, aftermath: bool = False) -> Data:
    """Prefix sums in units of the largest returns; observations and actions as they are.

    With `aftermath`, whoever ended an episode by a fall earns nothing and costs nothing until the
    horizon: Γ may lie beyond the last logged step. Without, a piece that ends with the fall is as
    good as any other, though nothing can follow it.
    """
    episode = np.repeat(np.arange(len(episodes)), episodes.lengths)
    first, last = episodes.offsets[episode], episodes.offsets[episode + 1] - 1
    fell = episodes.terminated[episodes.offsets[1:] - 1]
    missed = np.where(fell, np.maximum(spec.horizon - episodes.lengths, 0), 0)
    rewards = episodes.rewards / np.float64(scaling.reward_unit)
    costs = episodes.costs / np.float64(scaling.cost_unit)
    reward_before, cost_before = (np.cumsum(x) - x for x in (rewards, costs))
    return Data(
        observations=episodes.observations,
        actions=episodes.actions,
        rewards=rewards.astype(np.float32),
        costs=costs.astype(np.float32),
        reward_before=(reward_before - reward_before[first]).astype(np.float32),
        cost_before=(cost_before - cost_before[first]).astype(np.float32),
        last=last.astype(np.int32),
        final=(last + aftermath * missed[episode]).astype(np.int32),
        top_rows=np.zeros(0, np.int32),
        top_ends=np.zeros(0, np.int32),
        horizon=np.float32(spec.horizon),
    )


def segments(
    data: Data, row: Int[AnyArray, " b"], end: Int[AnyArray, " b"]
) -> tuple[Float[AnyArray, " b"], Float[AnyArray, " b"], Float[AnyArray, " b"]]:
    """TSRA: R_{t:Γ}, C_{t:Γ} and t' / T of the segments from `row` to `end`, in O(1) each."""
    logged = end.clip(max=data.last[row])
    R = data.reward_before[logged] + data.rewards[logged] - data.reward_before[row]
    C = data.cost_before[logged] + data.costs[logged] - data.cost_before[row]
    length = (end - row + 1).astype(np.float32)  # Γ - t + 1 = T - t'
    return R, C, 1.0 - length / data.horizon


def draw_ends(whole: float, data: Data, row: Int[AnyArray, " b"], u: Float[AnyArray, " b"]):
    """Γ: the last step in a share `whole` of draws, else uniform over t .. the last step (D1)."""
    last = data.final[row]
    if whole == 1.0:
        return last
    steps = u / (1.0 - whole) * (last - row + 1).astype(u.dtype)  # beyond the last: the last
    return (row + steps.astype(row.dtype)).clip(max=last)
