"""Episodes: the one in-memory form of logged data, columns plus episode offsets."""

import dataclasses
import functools
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from safestitch.records import DataError

COLUMNS = (
    "observations",
    "actions",
    "rewards",
    "costs",
    "terminated",
    "truncated",
)


@dataclasses.dataclass(frozen=True, eq=False)
class Episodes:
    """Finished episodes, one row a step, episode `i` in rows `offsets[i]:offsets[i + 1]`.

    Episodes may have different lengths. Every column is checked on construction, so code that
    holds an `Episodes` never needs to check again.

    Example:
        >>> import numpy as np
        >>> two_steps = np.zeros(2, bool), np.array([False, True])
        >>> Episodes.of(np.zeros((2, 3)), np.zeros((2, 1)), [1, 2], [0, 1], *two_steps)
        Episodes(1 episodes, 2 steps, observations 3, actions 1, reward 3..3, cost 1..1)
    """

    observations: Float[np.ndarray, "n o"]
    actions: Float[np.ndarray, "n a"]
    rewards: Float[np.ndarray, " n"]
    costs: Float[np.ndarray, " n"]
    """Cost of each step, >= 0, lower is better."""
    terminated: Bool[np.ndarray, " n"]
    """True on the last step of an episode that the task ended (a fall, a crash)."""
    truncated: Bool[np.ndarray, " n"]
    """True on the last step of an episode that the clock ended."""
    offsets: Int[np.ndarray, " e1"]
    """First row of each episode, and the number of rows at the end."""
    final_observations: Float[np.ndarray, "e o"] | None = None
    """What was seen after each episode's last step, where it was logged."""

    def __post_init__(self):
        _check_shapes(self)
        _check_offsets(self)
        _check_values(self)
        _check_ends(self)
        _check_final(self)

    @classmethod
    def of(cls, observations, actions, rewards, costs, terminated, truncated):
        """Build from columns alone: an episode ends where it terminated or was truncated.

        Raises:
            DataError: if a column is malformed, or the last episode has no end.
        """
        columns = (observations, actions, rewards, costs)
        floats = [_as_floats(n, c) for n, c in zip(COLUMNS, columns, strict=False)]
        flags = [
            _as_flags("terminated", terminated),
            _as_flags("truncated", truncated),
        ]
        if flags[0].shape != flags[1].shape:
            raise DataError(
                f"terminated has shape {flags[0].shape}, truncated {flags[1].shape}: "
                "both need one value a step"
            )
        ends = np.flatnonzero(flags[0] | flags[1]) + 1
        n = len(flags[0])
        if n and (len(ends) == 0 or ends[-1] != n):
            first = int(ends[-1]) if len(ends) else 0
            raise DataError(
                f"truncated: episode {len(ends)} (rows {first} to {n - 1}) has no end: its last "
                "row is neither terminated nor truncated. Drop the unfinished rows, or mark the "
                "last one truncated"
            )
        return cls(*floats, *flags, offsets=np.concatenate([[0], ends]).astype(np.int64))

    @classmethod
    def trusted(cls, columns: Mapping[str, Any], facts: Mapping[str, Any]) -> "Episodes":
        """Columns that were checked when they were stored: nothing of them is read.

        Args:
            columns: every field.
            facts: what is known of them, so that it need not be computed: lengths, returns,
                cost_returns, fingerprint.
        """
        episodes = object.__new__(cls)
        vars(episodes).update(columns, **facts)
        return episodes

    @classmethod
    def join(cls, parts: Sequence["Episodes"]) -> "Episodes":
        """Concatenate data sets of the same task."""
        if not parts:
            raise DataError("nothing to join: give at least one data set")
        for name in ("observations", "actions"):
            widths = {getattr(part, name).shape[1] for part in parts}
            if len(widths) > 1:
                raise DataError(f"{name}: cannot join data of {sorted(widths)} dimensions")
        sizes = np.cumsum([0] + [part.steps for part in parts[:-1]])
        shifted = [p.offsets[:-1] + s for p, s in zip(parts, sizes, strict=True)]
        total = np.array([sum(part.steps for part in parts)])
        columns = [np.concatenate([getattr(p, name) for p in parts]) for name in COLUMNS]
        finals = [p.final_observations for p in parts]
        known = [final for final in finals if final is not None]
        final = np.concatenate(known) if len(known) == len(parts) else None
        offsets = np.concatenate([*shifted, total])
        return cls(*columns, offsets=offsets, final_observations=final)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __iter__(self) -> Iterator[dict[str, np.ndarray]]:
        for first, last in zip(self.offsets[:-1], self.offsets[1:], strict=True):
            yield {name: getattr(self, name)[first:last] for name in COLUMNS}

    def __repr__(self) -> str:
        r, c = self.returns, self.cost_returns
        return (
            f"Episodes({len(self)} episodes, {self.steps} steps, observations "
            f"{self.observations.shape[1]}, actions {self.actions.shape[1]}, reward "
            f"{r.min():.4g}..{r.max():.4g}, cost {c.min():.4g}..{c.max():.4g})"
        )

    def take(self, first: int, last: int) -> "Episodes":
        """Episodes first .. last - 1, as views; what was checked is not checked again."""
        begin, end = self.offsets[first], self.offsets[last]
        columns: dict[str, Any] = {name: getattr(self, name)[begin:end] for name in COLUMNS}
        final = self.final_observations
        columns["offsets"] = self.offsets[first : last + 1] - begin
        columns["final_observations"] = None if final is None else final[first:last]
        return Episodes.trusted(columns, {})

    def select(self, chosen: Int[np.ndarray, " c"]) -> "Episodes":
        """The chosen episodes, in the order given."""
        if not len(chosen):
            raise DataError(f"none of the {len(self)} episodes is chosen: nothing would be left")
        lengths = self.lengths[chosen]
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        rows = np.arange(offsets[-1]) + np.repeat(self.offsets[chosen] - offsets[:-1], lengths)
        final = self.final_observations
        columns: dict[str, Any] = {name: getattr(self, name)[rows] for name in COLUMNS}
        columns["offsets"] = offsets
        columns["final_observations"] = None if final is None else final[chosen]
        return Episodes.trusted(columns, {})

    def blocks(self, rows: int = 2**16) -> Iterator["Episodes"]:
        """The whole as sets of about `rows` steps, in order; at least one episode each."""
        first = 0
        while first < len(self):
            reach = np.searchsorted(self.offsets, self.offsets[first] + rows, "right") - 1
            last = max(int(reach), first + 1)
            yield self.take(first, last)
            first = last

    def next_observations(self) -> Float[np.ndarray, "n o"]:
        """What was seen after each step; an end that was not logged repeats its observation."""
        following = np.empty_like(self.observations)
        following[:-1] = self.observations[1:]
        ends = self.offsets[1:] - 1
        final = self.final_observations
        following[ends] = self.observations[ends] if final is None else final
        return following

    @property
    def steps(self) -> int:
        """Number of rows."""
        return len(self.rewards)

    @functools.cached_property
    def lengths(self) -> Int[np.ndarray, " e"]:
        """Steps of each episode."""
        return np.diff(self.offsets)

    @functools.cached_property
    def returns(self) -> Float[np.ndarray, " e"]:
        """Undiscounted reward of each episode."""
        return np.add.reduceat(self.rewards.astype(np.float64), self.offsets[:-1])

    @functools.cached_property
    def cost_returns(self) -> Float[np.ndarray, " e"]:
        """Undiscounted cost of each episode."""
        return np.add.reduceat(self.costs.astype(np.float64), self.offsets[:-1])

    @functools.cached_property
    def fingerprint(self) -> str:
        """SHA-256 of every column: two data sets with one fingerprint are the same data."""
        names = (*COLUMNS, "offsets", "final_observations")
        columns = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        return fingerprint_of(
            (name, column.dtype, column.shape, [np.ascontiguousarray(column).data])
            for name, column in columns.items()
        )


def fingerprint_of(
    columns: Iterable[tuple[str, np.dtype, tuple[int, ...], Iterable[bytes | memoryview]]],
) -> str:
    """The fingerprint of columns whose bytes come in pieces: name, type, shape, pieces."""
    digest = hashlib.sha256()
    for name, dtype, shape, pieces in columns:
        digest.update(f"{name} {dtype} {shape}".encode())
        for piece in pieces:
            digest.update(piece)
    return digest.hexdigest()


def frontier(
    returns: Float[np.ndarray, " e"], costs: Float[np.ndarray, " e"]
) -> tuple[Float[np.ndarray, " f"], Float[np.ndarray, " f"]]:
    """The data's frontier: costs at which the best reward rises, and that best reward.

    Example:
        >>> frontier(np.array([5.0, 3.0, 9.0, 8.0]), np.array([0.0, 1.0, 2.0, 3.0]))
        (array([0., 2.]), array([5., 9.]))
    """
    order = np.lexsort((-returns, costs))
    best = np.maximum.accumulate(returns[order])
    rises = np.concatenate([[True], best[1:] > best[:-1]])
    return costs[order][rises], best[rises]


def best_within(
    frontier_costs: Float[np.ndarray, " f"],
    frontier_rewards: Float[np.ndarray, " f"],
    limit: float,
) -> float:
    """Best reward of any episode of the data with cost <= limit; NaN if there is none."""
    index = int(np.searchsorted(frontier_costs, limit, side="right")) - 1
    return float(frontier_rewards[index]) if index >= 0 else float("nan")


def _as_floats(name: str, column) -> np.ndarray:
    values = _as_array(name, column)
    if values.dtype.kind not in "fiub":
        raise DataError(f"{name}: expected numbers, got values of type {values.dtype}")
    with np.errstate(over="ignore"):  # a number too large for float32 is reported as not finite
        return np.asarray(values, np.float32, order="C")


def _as_flags(name: str, column) -> np.ndarray:
    flags = _as_array(name, column)
    if flags.dtype.kind not in "biuf":
        raise DataError(f"{name}: expected true/false or 0/1, got values of type {flags.dtype}")
    if flags.dtype == bool:
        return np.asarray(flags, order="C")
    wrong = np.argwhere(~np.isin(flags, (0, 1)))
    if len(wrong):
        place = tuple(wrong[0])
        raise DataError(f"{name}: row {place[0]}: expected true/false or 0/1, got {flags[place]:g}")
    return np.asarray(flags, bool, order="C")


def _as_array(name: str, column) -> np.ndarray:
    if np.ma.isMaskedArray(column):
        raise DataError(f"{name}: masked arrays hide missing values: fill or drop them first")
    try:
        return np.asarray(column)
    except (TypeError, ValueError) as error:  # ragged rows
        raise DataError(f"{name}: expected numbers, one row a step: {error}") from None


def _check_shapes(data: Episodes) -> None:
    n = data.observations.shape[0] if data.observations.ndim else 0
    for name in COLUMNS:
        column = getattr(data, name)
        expected_rank = 2 if name in ("observations", "actions") else 1
        if column.ndim != expected_rank:
            meaning = "(steps, dimensions)" if expected_rank == 2 else "(steps,)"
            raise DataError(f"{name}: expected shape {meaning}, got {column.shape}")
        if len(column) != n:
            raise DataError(
                f"{name}: {len(column)} rows, but observations have {n}: one row a step"
            )
        if expected_rank == 2 and column.shape[1] == 0:
            raise DataError(f"{name}: no columns (shape {column.shape})")
    if n == 0:
        raise DataError("observations: no rows: a data set needs at least one step")


def _check_values(data: Episodes) -> None:
    # Masks as large as the data are made only to report what is wrong.
    for name in ("observations", "actions", "rewards", "costs"):
        column = getattr(data, name)
        if not all_finite(column):
            _report(data, name, ~np.isfinite(column), "is not finite. Remove or repair it")
    if data.costs.min() < 0:
        advice = "is negative. Costs are >= 0, lower is better: flip the sign?"
        _report(data, "costs", data.costs < 0, advice)


def all_finite(column: np.ndarray, block: int = 2**16) -> bool:
    """Whether no value is NaN or infinite; one pass over blocks that stay in the cache.

    A sum of finite values is finite unless it overflows, and any other sum is not.
    """
    rows = max(1, block * len(column) // max(1, column.size))
    with np.errstate(over="ignore", invalid="ignore"):
        for first in range(0, len(column), rows):
            part = column[first : first + rows]
            if not np.isfinite(part.sum()) and not np.isfinite(part).all():
                return False
    return True


def _check_offsets(data: Episodes) -> None:
    offsets, n = data.offsets, data.steps
    if offsets.dtype.kind not in "iu":
        raise DataError(f"offsets: expected row numbers, got values of type {offsets.dtype}")
    if offsets.ndim != 1 or len(offsets) < 2 or offsets[0] != 0 or offsets[-1] != n:
        raise DataError(
            f"offsets: expected a list from 0 to {n} (the number of rows), got {offsets[:1]}.."
            f"{offsets[-1:]}"
        )
    empty = np.flatnonzero(np.diff(offsets) <= 0)
    if len(empty):
        e = int(empty[0])
        raise DataError(f"offsets: episode {e} is empty (row {offsets[e]} to row {offsets[e + 1]})")


def _check_ends(data: Episodes) -> None:
    ends = np.zeros(data.steps, bool)
    ends[data.offsets[1:] - 1] = True
    flagged = data.terminated | data.truncated
    advice = "terminated or truncated is true on the last row of an episode and nowhere else"
    _report(data, "terminated", ends & ~flagged, f"ends its episode unflagged: {advice}", False)
    for name in ("terminated", "truncated"):
        early = getattr(data, name) & ~ends
        _report(data, name, early, f"is set before its episode ends: {advice}", False)


def _check_final(data: Episodes) -> None:
    final = data.final_observations
    if final is None:
        return
    expected = (len(data), data.observations.shape[1])
    if final.shape != expected:
        raise DataError(f"final_observations: expected shape {expected}, got {final.shape}")
    if not all_finite(final):
        episode = int(np.argwhere(~np.isfinite(final))[0][0])
        raise DataError(f"final_observations: episode {episode} is not finite. Remove or repair it")


def _report(data: Episodes, name: str, wrong: np.ndarray, what: str, show_value=True) -> None:
    """Raise a DataError for the first wrong value, naming column, episode and row."""
    if not wrong.any():
        return
    place = np.argwhere(wrong)[0]
    row = int(place[0])
    episode = int(np.searchsorted(data.offsets, row, side="right")) - 1
    first = int(data.offsets[min(max(episode, 0), len(data.offsets) - 1)])
    dimension = f", dimension {place[1]}" if len(place) > 1 else ""
    value = f" {getattr(data, name)[tuple(place)]:g}" if show_value else ""
    more = int(wrong.sum()) - 1
    others = f" ({more} more like it)" if more else ""
    raise DataError(
        f"{name}: episode {episode}, row {row} (step {row - first} of the episode{dimension}):"
        f"{value} {what}{others}"
    )
