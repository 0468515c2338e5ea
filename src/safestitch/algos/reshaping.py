"""Which segments stand out: the top share of rewards among those of like cost and like length."""

import numpy as np
from jaxtyping import Float, Int

from safestitch.algos.segments import Data, draw_ends, segments
from safestitch.scaling import AnyArray

BINS = 20
GROUPS = (BINS + 1) * BINS


def draws(n: int, q: float) -> int:
    """How many segments are drawn from n steps, for D^q to have nearly as many as there are steps.

    A policy that sees the same few segments again and again learns them by heart.
    """
    return min(max(200_000, round(0.95 * n / q)), 4_000_000)


def draw(whole: float, data: Data, size: int):
    """Segments as training draws them: first rows, last rows, R, and number of the group (D2)."""
    rng = np.random.default_rng(0)
    row = rng.integers(0, len(data.rewards), size, dtype=np.int32)
    end = draw_ends(whole, data, row, rng.random(size, dtype=np.float32))
    R, C, _ = segments(data, row, end)
    return row, end, R, group_of(C, end - row, int(data.horizon))


def group_of(
    C: Float[AnyArray, " n"], steps_after: Int[AnyArray, " n"], horizon: int
) -> Int[AnyArray, " n"]:
    """Number of a segment's group: cost (in units of C^max; zero by itself) and length."""
    cost_bin = np.where(C <= 1e-6, 0, 1 + np.minimum(C * BINS, BINS - 1).astype(int))
    return cost_bin * BINS + steps_after * BINS // horizon


def top_share(
    R: Float[AnyArray, " n"], group: Int[AnyArray, " n"], q: float
) -> Int[np.ndarray, " m"]:
    """Places of the top q of R in every group, at least one of each."""
    size = len(R)
    order = np.lexsort((R, group))
    starts = np.flatnonzero(np.diff(group[order], prepend=-1))
    sizes = np.diff(starts, append=size)
    rank = np.arange(size) - np.repeat(starts, sizes)
    kept = np.repeat(np.maximum(1, np.rint(q * sizes)), sizes)
    return order[np.repeat(sizes, sizes) - rank <= kept]


def bars_of(
    R: Float[AnyArray, " n"], group: Int[AnyArray, " n"], q: float
) -> Float[np.ndarray, " g"]:
    """The least R of the top q of every group; infinite where a group is empty."""
    bars = np.full(GROUPS, np.inf, R.dtype)
    chosen = top_share(R, group, q)
    np.minimum.at(bars, group[chosen], R[chosen])
    return bars


def above(
    R: Float[AnyArray, " n"],
    group: Int[AnyArray, " n"],
    q: float,
    bars: Float[np.ndarray, " g"],
) -> Int[np.ndarray, " m"]:
    """Places of R at or above its group's bar, repeated or thinned to a share of q.

    One size for every block of data: each size would be compiled anew.
    """
    chosen = np.flatnonzero(bars[group] <= R)
    if not len(chosen):
        chosen = top_share(R, group, q)
    shuffled = np.random.default_rng(1).permutation(chosen)
    return np.resize(shuffled, max(1, round(q * len(R))))
