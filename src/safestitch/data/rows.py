"""Blocks of a table as rows of episodes: every column in its place, every episode told apart."""

import dataclasses
import hashlib
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Float, Int

from safestitch.data.blocks import Block, Table
from safestitch.data.mapping import CostPart, Mapping


@dataclasses.dataclass(frozen=True, eq=False)
class Rows:
    """Some steps, in order, not yet judged: values may be missing or wrong."""

    observations: Float[np.ndarray, "n o"]
    actions: Float[np.ndarray, "n a"]
    rewards: Float[np.ndarray, " n"]
    costs: Float[np.ndarray, " n"]
    terminated: Float[np.ndarray, " n"]
    """0 or 1 in sound data; all 0 where no column says it."""
    truncated: Float[np.ndarray, " n"]
    episode: np.ndarray | None
    """Text that names the episode; None without such a column."""
    step: Float[np.ndarray, " n"] | None
    where: Callable[[int], str]
    """Row of these -> words to find it by."""

    def __len__(self) -> int:
        return len(self.rewards)


def rows_of(block: Block, mapping: Mapping) -> Rows:
    """Put the columns of a block in their places; the numbers become float32."""

    def single(name: str) -> np.ndarray:
        column = block.columns[name] if name else np.zeros(len(block))
        return column.reshape(len(block), -1)[:, 0]

    return Rows(
        observations=_wide(block, mapping.obs),
        actions=_wide(block, mapping.action),
        rewards=_single_precision(single(mapping.reward)),
        costs=_single_precision(sum((_cost(single(p.column), p) for p in mapping.cost), 0.0)),
        terminated=single(mapping.terminated),
        truncated=single(mapping.truncated),
        episode=block.columns[mapping.episode] if mapping.episode else None,
        step=single(mapping.step) if mapping.step else None,
        where=block.where,
    )


def dimensions(table: Table, names: Sequence[str]) -> list[str]:
    """A name for each number: the column's, with an index where the column is wide."""
    return [
        name if table.columns[name] == 1 else f"{name}[{i}]"
        for name in names
        for i in range(table.columns[name])
    ]


def _wide(block: Block, names: Sequence[str]) -> np.ndarray:
    parts = [block.columns[name].reshape(len(block), -1) for name in names]
    return _single_precision(np.concatenate(parts, axis=1))


def _single_precision(values: Any) -> np.ndarray:
    with np.errstate(over="ignore"):  # too large for float32 becomes infinite, which is reported
        return np.asarray(values, np.float32)


def _cost(values: np.ndarray, part: CostPart) -> np.ndarray:
    if part.kind == "margin":
        values = np.where(values < 0, -values, 0 * values)  # 0 * keeps NaN
    elif part.kind == "broken-margin":
        values = np.where(np.isnan(values), values, values < 0)
    elif part.kind == "flag":
        values = np.where(np.isin(values, (0, 1)), values, np.nan)
    return part.weight * values


# --- telling episodes apart --------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, eq=False)
class Cuts:
    """Where episodes begin in some rows, and what is wrong with that; rows are counted in them."""

    starts: Bool[np.ndarray, " n"]
    episode: Int[np.ndarray, " n"]
    """Running number of each row's episode."""
    returned: Int[np.ndarray, " r"]
    """Starts of episodes that were there before: several were logged at once."""
    backwards: Int[np.ndarray, " b"]
    """Rows whose step is not above the one before."""
    early: Int[np.ndarray, " e"]
    """Rows after a flagged end that belong to the same episode all the same."""


@dataclasses.dataclass
class Splitter:
    """Goes through the rows once; what it remembers between blocks is one row and the names."""

    rule: Literal["episode", "flags", "step"]
    episodes: int = 0
    last_episode: str | None = None
    last_step: float = -np.inf
    last_flagged: bool = False
    seen: set[int] = dataclasses.field(default_factory=set)
    """Hash of every episode's name."""
    fresh: list[int] = dataclasses.field(default_factory=list)
    """Those not yet written to the journal."""

    @classmethod
    def of(cls, mapping: Mapping) -> "Splitter":
        """By the episode column; without one, by the flagged ends; without them, by the steps."""
        if mapping.episode:
            return cls("episode")
        return cls("flags" if mapping.terminated or mapping.truncated else "step")

    def split(self, rows: Rows) -> Cuts:
        """The cuts in the next rows."""
        flagged = (rows.terminated == 1) | (rows.truncated == 1)
        before = np.concatenate([[self.last_flagged], flagged[:-1]])
        step = rows.step if rows.step is not None else np.zeros(0)
        rises = np.diff(step, prepend=self.last_step) > 0 if len(step) else np.ones(len(rows), bool)
        starts, returned = self._starts(rows, before, rises)
        episode = self.episodes + np.cumsum(starts) - 1
        self.episodes += int(starts.sum())
        self.last_flagged = bool(flagged[-1])
        self.last_step = float(step[-1]) if len(step) else -np.inf
        same = ~starts
        return Cuts(
            starts=starts,
            episode=episode,
            returned=np.array(returned, np.int64),
            backwards=np.flatnonzero(same & ~rises),
            early=np.flatnonzero(same & before),
        )

    def _starts(
        self, rows: Rows, before: np.ndarray, rises: np.ndarray
    ) -> tuple[np.ndarray, list[int]]:
        starts, returned = before.copy(), []
        if self.rule == "step":
            starts = ~rises
        elif rows.episode is not None and self.rule == "episode":
            starts = np.empty(len(rows), bool)
            starts[0] = rows.episode[0] != self.last_episode
            starts[1:] = rows.episode[1:] != rows.episode[:-1]
            self.last_episode = rows.episode[-1]
        if not self.episodes:
            starts[0] = True
        if self.rule == "episode" and rows.episode is not None:
            for row in np.flatnonzero(starts):
                name = short_hash(rows.episode[row])
                if name in self.seen:
                    returned.append(int(row))
                self.seen.add(name)
                self.fresh.append(name)
        return starts, returned


def unnamed(rows: Rows) -> Int[np.ndarray, " k"]:
    """Rows whose episode has no name though there is a column for it."""
    names = rows.episode if rows.episode is not None else ()
    return np.flatnonzero([not name for name in names]).astype(np.int64)


def short_hash(name: Any) -> int:
    """64 bits of a name, the same in every process."""
    return int.from_bytes(hashlib.blake2b(str(name).encode(), digest_size=8).digest(), "little")
