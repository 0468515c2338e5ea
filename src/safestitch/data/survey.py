"""One pass over a log of any size: what its columns and its episodes look like, sound or broken."""

import dataclasses
import hashlib
import heapq
import itertools
import zlib
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from safestitch.data.importing import Log, Progress
from safestitch.data.rows import Cuts, Rows, Splitter, dimensions, unnamed
from safestitch.records import DataError

SAMPLE_BYTES = 48_000_000
"""Memory for episodes kept whole, drawn without preference."""
BINS = 512
"""Most points along the order of the episodes at which columns are summed up."""


@dataclasses.dataclass
class Tally:
    """How often something is wrong in a column, and where it first is."""

    count: int
    where: str
    episode: str
    value: float = float("nan")


@dataclasses.dataclass(frozen=True, eq=False)
class Sampled:
    """One episode kept whole."""

    number: int
    observations: Float[np.ndarray, "n o"]
    actions: Float[np.ndarray, "n a"]
    rewards: Float[np.ndarray, " n"]
    costs: Float[np.ndarray, " n"]
    terminated: bool


@dataclasses.dataclass(frozen=True, eq=False)
class Survey:
    """What one pass found. Columns are the observation's, the action's, reward and cost."""

    name: str
    log: Log
    columns: list[str]
    steps: int
    lengths: Int[np.ndarray, " e"]
    returns: Float[np.ndarray, " e"]
    """NaN where a reward of the episode is not a number."""
    cost_returns: Float[np.ndarray, " e"]
    ends: Int[np.ndarray, " e"]
    """0 no flag, 1 terminated, 2 truncated, 3 both."""
    low: Float[np.ndarray, " c"]
    high: Float[np.ndarray, " c"]
    mean: Float[np.ndarray, " c"]
    std: Float[np.ndarray, " c"]
    prints: list[int]
    """A checksum of each column: equal ones hold the same numbers."""
    correlation: float
    """Of reward and cost over the steps; NaN where one of them is constant."""
    bin_start: Int[np.ndarray, " b"]
    """First episode of each bin along the order of the episodes."""
    bin_mean: Float[np.ndarray, "b c"]
    bin_size: Float[np.ndarray, "b c"]
    """Root mean square."""
    tallies: dict[tuple[str, str], Tally]
    """(what, column) -> how often and where."""
    sample: list[Sampled]
    stopped: str
    """Why reading stopped before the end; empty if it did not."""


def survey(source: Any, mapping: Any = None, progress: Progress | None = None) -> Survey:
    """Go through a log once, without judging it.

    Raises:
        DataError: if not even its columns can be read.
    """
    log = Log.open(source, mapping)
    found, stopped = _Pass(log), ""
    try:
        for rows, place in log.rows():
            found.add(rows)
            if progress is not None:
                progress(place.offset, log.table.size)
    except DataError as error:  # what was read up to here can be looked at all the same
        stopped = str(error)
    return found.result(stopped)


class _Pass:
    """What is remembered on the way; its size depends on the columns and episodes, not the rows."""

    def __init__(self, log: Log):
        self.log = log
        m = log.mapping
        costs = "+".join(part.column for part in m.cost)
        wide = [dimensions(log.table, names) for names in (m.obs, m.action)]
        self.columns = [*wide[0], *wide[1], m.reward, costs]
        width = len(self.columns)
        self.splitter = Splitter.of(m)
        self.steps = 0
        self.low, self.high = np.full(width, np.inf), np.full(width, -np.inf)
        self.count, self.total, self.squares = (np.zeros(width) for _ in range(3))
        self.product = np.zeros(6)  # n, r, c, rr, cc, rc
        self.prints = [0] * width
        self.lengths: list[int] = []
        self.returns: list[float] = []
        self.cost_returns: list[float] = []
        self.ends: list[int] = []
        self.bins = _Bins(width)
        self.tallies: dict[tuple[str, str], Tally] = {}
        self.sampler = _Sampler()
        self.seen: set[bytes] = set()
        self.open = _Open(width, "")

    def add(self, rows: Rows) -> None:
        """Take in the next rows."""
        cuts = self.splitter.split(rows)
        values = np.concatenate(
            [rows.observations, rows.actions, rows.rewards[:, None], rows.costs[:, None]], axis=1
        )
        self._add_columns(values)
        self._add_troubles(rows, cuts, values)
        self._add_episodes(rows, cuts, values)
        self.steps += len(rows)

    def _add_columns(self, values: np.ndarray) -> None:
        fine = np.isfinite(values)
        clean = np.where(fine, values, 0).astype(np.float64)
        self.low = np.minimum(self.low, np.where(fine, values, np.inf).min(axis=0))
        self.high = np.maximum(self.high, np.where(fine, values, -np.inf).max(axis=0))
        self.count += fine.sum(axis=0)
        self.total += clean.sum(axis=0)
        self.squares += (clean**2).sum(axis=0)
        for i, column in enumerate(np.ascontiguousarray(values.T)):
            self.prints[i] = zlib.crc32(column.data, self.prints[i])
        both = fine[:, -2] & fine[:, -1]
        r, c = clean[both, -2], clean[both, -1]
        self.product += [len(r), r.sum(), c.sum(), (r * r).sum(), (c * c).sum(), (r * c).sum()]

    def _add_troubles(self, rows: Rows, cuts: Cuts, values: np.ndarray) -> None:
        m = self.log.mapping
        wrong = {"missing": np.isnan(values), "infinite": np.isinf(values)}
        for what, where in wrong.items():
            for i in np.flatnonzero(where.any(axis=0)):
                self._tally(
                    what, self.columns[i], np.flatnonzero(where[:, i]), rows, cuts, values[:, i]
                )
        costs = values[:, -1]
        self._tally("negative", self.columns[-1], np.flatnonzero(costs < 0), rows, cuts, costs)
        for name in ("terminated", "truncated"):
            flags = getattr(rows, name)
            bad = np.flatnonzero(~np.isin(flags, (0, 1)))
            self._tally("flag", getattr(m, name), bad, rows, cuts, flags)
        nothing = np.zeros(len(rows))
        if rows.step is not None:
            self._tally(
                "missing", m.step, np.flatnonzero(np.isnan(rows.step)), rows, cuts, rows.step
            )
        self._tally("missing", m.episode, unnamed(rows), rows, cuts, nothing)
        flagged = " and ".join(name for name in (m.terminated, m.truncated) if name)
        self._tally("early", flagged, cuts.early, rows, cuts, nothing)
        self._tally("returned", m.episode, cuts.returned, rows, cuts, nothing)
        self._tally("backwards", m.step, cuts.backwards, rows, cuts, nothing)

    def _tally(
        self,
        what: str,
        column: str,
        found: np.ndarray,
        rows: Rows,
        cuts: Cuts,
        values: np.ndarray,
    ) -> None:
        if not len(found):
            return
        first = int(found[0])
        name = str(rows.episode[first] if rows.episode is not None else cuts.episode[first])
        fresh = Tally(0, rows.where(first), name, float(values[first]))
        self.tallies.setdefault((what, column), fresh).count += len(found)

    def _add_episodes(self, rows: Rows, cuts: Cuts, values: np.ndarray) -> None:
        flags = 1 * (rows.terminated == 1) + 2 * (rows.truncated == 1)
        for first, last in itertools.pairwise([0, *np.flatnonzero(cuts.starts), len(rows)]):
            if first < len(rows) and cuts.starts[first]:
                self._close()
                self.open = _Open(len(self.columns), rows.where(int(first)))
            if last > first:
                self.open.add(values[first:last], int(flags[last - 1]))

    def _close(self) -> None:
        """An episode is over."""
        whole = self.open
        if not whole.length:
            return
        number = len(self.lengths)
        self.lengths.append(whole.length)
        reward, cost = whole.returns
        self.returns.append(float(reward) if np.isfinite(reward) else np.nan)
        self.cost_returns.append(float(cost) if np.isfinite(cost) else np.nan)
        self.ends.append(whole.end)
        self.bins.add(whole.sums)
        digest = whole.digest.digest()
        if digest in self.seen:
            fresh = Tally(0, whole.where, str(number))
            self.tallies.setdefault(("copy", ""), fresh).count += 1
        self.seen.add(digest)
        if whole.parts:
            values, obs = np.concatenate(whole.parts), self.log.widths[0]
            kept = Sampled(
                number,
                observations=values[:, :obs],
                actions=values[:, obs:-2],
                rewards=values[:, -2],
                costs=values[:, -1],
                terminated=whole.end == 1,
            )
            self.sampler.add(kept, values.nbytes)

    def result(self, stopped: str) -> Survey:
        """Everything found."""
        self._close()
        count = np.maximum(self.count, 1)
        mean = self.total / count
        std = np.sqrt(np.maximum(self.squares / count - mean**2, 0))
        bins = self.bins.table()
        return Survey(
            name=self.log.table.name,
            log=self.log,
            columns=self.columns,
            steps=self.steps,
            lengths=np.array(self.lengths, np.int64),
            returns=np.array(self.returns, np.float64),
            cost_returns=np.array(self.cost_returns, np.float64),
            ends=np.array(self.ends, np.int64),
            low=self.low,
            high=self.high,
            mean=mean,
            std=std,
            prints=self.prints,
            correlation=_correlation(self.product),
            bin_start=bins[0],
            bin_mean=bins[1],
            bin_size=bins[2],
            tallies=self.tallies,
            sample=sorted(self.sampler.kept(), key=lambda each: each.number),
            stopped=stopped,
        )


class _Open:
    """The episode that is being read; of a very long one only the sums are kept."""

    def __init__(self, width: int, where: str):
        self.where, self.length, self.end = where, 0, 0
        self.sums = np.zeros((3, width))  # how many, their total, their squares, of each column
        self.returns = np.zeros(2)
        self.digest = hashlib.blake2b(digest_size=8)
        self.parts: list[np.ndarray] = []
        self.is_kept = True

    def add(self, values: np.ndarray, end: int) -> None:
        """The next rows of the episode, and the flags of their last."""
        fine = np.isfinite(values)
        clean = np.where(fine, values, 0).astype(np.float64)
        self.sums += [fine.sum(axis=0), clean.sum(axis=0), (clean**2).sum(axis=0)]
        self.returns += values[:, -2:].sum(axis=0, dtype=np.float64)
        self.digest.update(values.tobytes())
        self.length, self.end = self.length + len(values), end
        if not fine.all() or self.length * values[0].nbytes > SAMPLE_BYTES // 4:
            self.is_kept = False
        self.parts = [*self.parts, values.copy()] if self.is_kept else []


class _Bins:
    """Sums over runs of episodes; when there are too many runs, neighbours are put together."""

    def __init__(self, width: int):
        self.width, self.per_bin, self.episodes = width, 1, 0
        self.sums: list[np.ndarray] = []  # count, total, squares of each column

    def add(self, sums: np.ndarray) -> None:
        if self.episodes % self.per_bin:
            self.sums[-1] = self.sums[-1] + sums
        else:
            self.sums.append(sums)
        self.episodes += 1
        if len(self.sums) == 2 * BINS and self.episodes % self.per_bin == 0:
            pairs = zip(self.sums[::2], self.sums[1::2], strict=True)
            self.sums, self.per_bin = [a + b for a, b in pairs], 2 * self.per_bin

    def table(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        sums = np.stack(self.sums) if self.sums else np.zeros((0, 3, self.width))
        count = np.maximum(sums[:, 0], 1)
        starts = np.arange(len(sums), dtype=np.int64) * self.per_bin
        return starts, sums[:, 1] / count, np.sqrt(sums[:, 2] / count)


class _Sampler:
    """Whole episodes, each as likely as any other, within `SAMPLE_BYTES`."""

    def __init__(self):
        self.rng = np.random.default_rng(0)
        self.heap: list[tuple[float, int, Sampled, int]] = []  # the largest draw is dropped first
        self.bytes = 0
        self.bar = 1.0

    def add(self, episode: Sampled, size: int) -> None:
        draw = float(self.rng.random())
        if draw >= self.bar:
            return
        heapq.heappush(self.heap, (-draw, episode.number, episode, size))
        self.bytes += size
        while self.bytes > SAMPLE_BYTES:
            minus, _, _, dropped = heapq.heappop(self.heap)
            self.bytes, self.bar = self.bytes - dropped, -minus

    def kept(self) -> list[Sampled]:
        return [episode for _, _, episode, _ in self.heap]


def _correlation(sums: np.ndarray) -> float:
    n, r, c, rr, cc, rc = sums
    if n < 2:
        return float("nan")
    spread = (rr - r * r / n) * (cc - c * c / n)
    return float((rc - r * c / n) / np.sqrt(spread)) if spread > 1e-12 * rr * cc else float("nan")
