"""The difference of two methods, with an interval that uses what their evaluations share.

Episode number i begins in the same state for every method, policy seed and limit, so start states
are drawn once for both methods; what is luck of the start cancels. Policy seeds of two methods have
nothing in common but their number, so they are drawn for each method apart.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

BOOTSTRAPS = 4000


class Difference(NamedTuple):
    """First method minus second, with its 95% interval."""

    value: float
    low: float
    high: float

    @property
    def clear(self) -> bool:
        """Whether the interval leaves out 0."""
        return self.low > 0 or self.high < 0


Pair = tuple[Float[np.ndarray, "_ _"], Float[np.ndarray, "_ _"]]
"""A figure of two methods on one task, by policy seed and episode; seeds may differ in number."""


def difference(pairs: Sequence[Pair]) -> Difference:
    """The mean difference over tasks; each task is drawn by itself, tasks are not drawn.

    Example:
        >>> luck = np.array([[3.0, -7.0, 12.0, 0.0]])
        >>> difference([(luck + 1.0, luck)])
        Difference(value=1.0, low=1.0, high=1.0)
    """
    value = float(np.mean([ours.mean() - theirs.mean() for ours, theirs in pairs]))
    draws = np.mean([_draws(pair, number) for number, pair in enumerate(pairs)], axis=0)
    low, high = np.quantile(draws, (0.025, 0.975))
    return Difference(value, float(low), float(high))


def _draws(pair: Pair, number: int) -> Float[np.ndarray, " k"]:
    """Differences of bootstrap resamples. Seeded, so that a table is the same each time."""
    ours, theirs = pair
    rng = np.random.default_rng([0, number])
    starts = _shares(rng, ours.shape[1])
    found = [_means(rng, values, starts) for values in (ours, theirs)]
    return found[0] - found[1]


def _means(
    rng: np.random.Generator, values: Float[np.ndarray, "s e"], starts: Float[np.ndarray, "k e"]
) -> Float[np.ndarray, " k"]:
    return ((_shares(rng, len(values)) @ values) * starts).sum(1)


def _shares(rng: np.random.Generator, size: int) -> Float[np.ndarray, "k n"]:
    """How much each of `size` things counts in each resample: draws with replacement, summed."""
    return rng.multinomial(size, np.full(size, 1.0 / size), BOOTSTRAPS) / size
