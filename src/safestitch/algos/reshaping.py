"""Which segments stand out: the top share of rewards among those of like cost and like length.

Of rewards as they are, or of what they are above par: above what the data know of states like the
one that a segment begins in. Whoever comes out of trouble well earns less than who never was in it.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from safestitch.algos.segments import Data, draw_ends, measure, segments
from safestitch.episodes import Episodes
from safestitch.records import Spec
from safestitch.scaling import AnyArray, Scaling

BINS = 20
GROUPS = (BINS + 1) * BINS
FEATURES = 512
"""Of par; half as many leave a tenth more of its loss (DroneRun)."""
FITTED = 60_000
"""Segments that par is fitted to."""
PART = 10_000
"""Segments whose features are in memory at a time."""


def draws(n: int, q: float) -> int:
    """How many segments are drawn from n steps, for D^q to have nearly as many as there are steps.

    A policy that sees the same few segments again and again learns them by heart.
    """
    return min(max(200_000, round(0.95 * n / q)), 4_000_000)


class Par(NamedTuple):
    """An expectile of R, given s, C and t': linear in random features of them."""

    of_state: Float[np.ndarray, "o f"]
    of_piece: Float[np.ndarray, "4 f"]
    offset: Float[np.ndarray, " f"]
    weights: Float[np.ndarray, " _"]

    def features(
        self, s: Float[AnyArray, "n o"], C: Float[AnyArray, " n"], t: Float[AnyArray, " n"]
    ):
        """Nothing is earned in no time: all of them are in proportion to the length 1 - t'."""
        length = 1.0 - t
        piece = np.stack([2 * C, 2 * np.sqrt(np.maximum(C, 0)), 2 * length, C <= 1e-6], 1)
        piece = piece.astype(np.float32)
        hidden = np.maximum(s.clip(-5, 5) @ self.of_state + piece @ self.of_piece + self.offset, 0)
        return np.concatenate([hidden, piece], 1) * length[:, None]

    def __call__(self, s, C, t) -> Float[np.ndarray, " n"]:
        """The par of segments from s."""
        return self.features(s, C, t) @ self.weights


def fit_par(
    expectile: float,
    s: Float[AnyArray, "n o"],
    R: Float[AnyArray, " n"],
    C: Float[AnyArray, " n"],
    t: Float[AnyArray, " n"],
) -> Par:
    """Least squares, again and again: what lies above the last fit weighs `expectile`."""
    rng = np.random.default_rng(0)
    count = s.shape[1]
    par = Par(
        of_state=rng.normal(size=(count, FEATURES)).astype(np.float32) / np.float32(count**0.5),
        of_piece=rng.normal(size=(4, FEATURES)).astype(np.float32),
        offset=rng.normal(size=FEATURES).astype(np.float32),
        weights=np.zeros(FEATURES + 4, np.float32),
    )
    x = par.features(s, C, t)
    weight = np.ones(len(R), np.float32)
    little = 1e-5 * len(R) * np.eye(x.shape[1])  # of no use is no reason for a large weight
    for _ in range(8):
        square = ((x * weight[:, None]).T @ x).astype(np.float64)
        right = (x.T @ (weight * R)).astype(np.float64)
        par = par._replace(weights=np.linalg.solve(square + little, right).astype(np.float32))
        last, weight = weight, np.where(x @ par.weights > R, 1 - expectile, expectile)
        weight = weight.astype(np.float32)
        if np.mean(last != weight) < 1e-3:
            break
    return par


def begin(whole: float, data: Data, size: int, seed: int = 0):
    """Segments as training draws them: first and last rows, R, C and t'."""
    rng = np.random.default_rng(seed)
    row = rng.integers(0, len(data.rewards), size, dtype=np.int32)
    end = draw_ends(whole, data, row, rng.random(size, dtype=np.float32))
    return row, end, *segments(data, row, end)


def starts(whole: float, data: Data, size: int):
    """What par is fitted to: s, R, C and t' of segments."""
    row, _, R, C, t = begin(whole, data, size, seed=1)
    return data.observations[row], R, C, t


def draw(whole: float, data: Data, size: int, par: Par | None = None):
    """First rows, last rows, merit, and number of the group (D2); merit is R, or R above par."""
    row, end, merit, C, t = begin(whole, data, size)
    group = group_of(C, end - row, int(data.horizon))
    if par is not None:
        for part in np.array_split(np.arange(size), 1 + size // PART):
            merit[part] -= par(data.observations[row[part]], C[part], t[part])
    return row, end, merit, group


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


class Facts(NamedTuple):
    """What a block of data does not show by itself of D^q."""

    bars: Float[np.ndarray, " g"]
    par: Par | None


def survey(cfg, episodes: Episodes, spec: Spec, scaling: Scaling):
    """The bars that segments of D^q pass, from one walk over rewards and costs of all data.

    With par from two, over observations too.
    """
    if not cfg.reshape:
        return None

    def walk(count: int, take, *rest):
        for block in episodes.blocks(2**18):
            data = measure(block, spec, scaling, cfg.aftermath)
            if cfg.par:
                data = data._replace(observations=scaling.observation(block.observations))
            share = len(data.last) / episodes.steps
            yield take(cfg.whole, data, round(share * count) or 1, *rest)

    par = None
    if cfg.par:
        par = fit_par(cfg.par, *joined(walk(FITTED, starts)))
    count = draws(episodes.steps, cfg.q)
    _, _, merit, group = joined(walk(count, draw, par))
    return Facts(bars_of(merit, group, cfg.q), par)


def joined(parts):
    """Columns of one whole from tuples of columns."""
    return tuple(np.concatenate(column) for column in zip(*parts, strict=True))


def top_segments(cfg, data: Data, facts=None) -> dict[str, Int[np.ndarray, " m"]]:
    """D^q from sampled segments: the top q of those of like C and like length (D2, D11)."""
    par = facts.par if facts else None
    if cfg.par and facts is None:
        par = fit_par(cfg.par, *starts(cfg.whole, data, FITTED))
    count = draws(len(data.rewards), cfg.q)
    row, end, merit, group = draw(cfg.whole, data, count, par)
    share = merit, group, cfg.q
    chosen = above(*share, facts.bars) if facts else top_share(*share)
    return {"top_rows": row[chosen], "top_ends": end[chosen]}
