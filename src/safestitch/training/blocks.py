"""Data larger than memory: blocks of sampled episodes, made ready while the last one is used.

A block is as many whole episodes as fit, drawn at random; the last of them is cut to its final
steps, so that every block has the same number of rows and one program serves all. What is in a
block depends on its number alone, and its number on the iteration: a resumed run sees the same.
"""

import concurrent.futures
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from safestitch.episodes import COLUMNS, Episodes
from safestitch.memory import available_memory
from safestitch.records import SafestitchError

WORKSPACE = 320
"""Bytes a row takes while it is prepared, its own values aside: prefix sums, sampled segments."""


def rows_within(episodes: Episodes, memory: float | None = None) -> int | None:
    """Rows of a block that training can take within `memory` bytes; None if all data can.

    Args:
        episodes: the data.
        memory: bytes for the data; half of what is free unless given.

    Raises:
        SafestitchError: if not even the longest episode fits.
    """
    memory = available_memory() / 2 if memory is None else memory
    values = 4 * (episodes.observations.shape[1] + episodes.actions.shape[1] + 7)
    if episodes.steps * (2 * values + WORKSPACE) <= memory:
        return None
    rows = int(memory / (4 * values + WORKSPACE))  # one in use, one waiting, one in the making
    longest = int(episodes.lengths.max())
    if rows < longest:
        needed = longest * (4 * values + WORKSPACE)
        raise SafestitchError(
            f"the data may take {memory / 1e6:.0f} MB, but an episode of {longest} steps needs "
            f"{needed / 1e6:.0f} MB: allow more memory"
        )
    return min(rows, episodes.steps)


def draw_block(episodes: Episodes, rows: int, number: int) -> Episodes:
    """Block `number`: random episodes of `rows` steps in all."""
    order = np.random.default_rng(number).permutation(len(episodes))
    reach = np.cumsum(episodes.lengths[order])
    count = int(np.searchsorted(reach, rows)) + 1
    chosen = order[:count]
    first, last = episodes.offsets[chosen], episodes.offsets[chosen + 1]
    first[-1] += reach[count - 1] - rows  # only its final steps: they are an episode as well
    on_disk = np.argsort(first)
    first, last, chosen = first[on_disk], last[on_disk], chosen[on_disk]
    pieces = list(zip(first, last, strict=True))
    columns: dict[str, Any] = {
        name: np.concatenate([getattr(episodes, name)[a:b] for a, b in pieces]) for name in COLUMNS
    }
    columns["offsets"] = np.concatenate([[0], np.cumsum(last - first)])
    final = episodes.final_observations
    columns["final_observations"] = None if final is None else final[chosen]
    return Episodes.trusted(columns, {})


def visit_length(rows: int, steps: int, batch: int, iterations: int, chunk: int) -> int:
    """Iterations on one block: until its rows were drawn about once each.

    At most so many that a training sees all its data twice; a multiple of the chunk.
    """
    once = rows / batch
    fair = iterations * rows / (2 * steps)
    return chunk * max(1, round(min(once, fair) / chunk))


class Blocks:
    """(iteration) -> data on the device; a thread makes the next block in the meantime."""

    def __init__(self, make: Callable[[int], PyTree], visit: int, iterations: int):
        self.make = lambda number: jax.block_until_ready(jax.device_put(make(number)))
        self.visit = visit
        self.iterations = iterations
        self.number = -1
        self.data: PyTree = None
        self.coming: tuple[int, concurrent.futures.Future] | None = None
        self.thread = concurrent.futures.ThreadPoolExecutor(1, "blocks")

    def __enter__(self) -> "Blocks":
        return self

    def __exit__(self, *_: Any) -> None:
        self.thread.shutdown(cancel_futures=True)

    def __call__(self, step: int) -> PyTree:
        """The data that iteration `step` draws from."""
        number = step // self.visit
        if number != self.number:
            self.data = None  # free it before the next but one takes its place
            ready = self.coming and self.coming[0] == number
            self.data = self.coming[1].result() if self.coming and ready else self.make(number)
            self.number = number
            self.coming = None
            if (number + 1) * self.visit < self.iterations:
                self.coming = number + 1, self.thread.submit(self.make, number + 1)
        return self.data
