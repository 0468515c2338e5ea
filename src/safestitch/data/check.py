"""What is wrong with a log, in plain words: before the strict `Episodes` refuses it."""

import dataclasses
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np

from safestitch.data.importing import Progress
from safestitch.data.survey import Survey, survey

LEVELS = ("error", "warning", "note")
MOST_LISTED = 5
"""Findings of one kind that are shown one by one."""
JUMP = 8.0
"""Times by which the size of a column must change to be called another unit."""


@dataclasses.dataclass(frozen=True)
class Finding:
    """One thing a person should know; errors are what cannot be trained on."""

    level: Literal["error", "warning", "note"]
    what: str
    fix: str = ""
    """What to do about it."""
    column: str = ""
    episode: str = ""
    where: str = ""
    """Line or row."""

    def __str__(self) -> str:
        named = [self.column, f"episode {self.episode}" if self.episode else "", self.where]
        place = ", ".join(part for part in named if part)
        return f"{place + ': ' if place else ''}{self.what}{'. ' + self.fix if self.fix else ''}"


def check(
    source: Any,
    mapping: Any = None,
    *,
    horizon: int | None = None,
    bounds: tuple[float, float] = (-1.0, 1.0),
    progress: Progress | None = None,
) -> list[Finding]:
    """Go through a log once and say what is wrong, the worst first.

    Args:
        source: What `import_logs` takes, or a data set file.
        mapping: As in `import_logs`.
        horizon: Steps of a full episode; the longest one unless given.
        bounds: Smallest and largest action that means something.
        progress: Told how far it is.

    Raises:
        DataError: if not even the columns can be read.
    """
    return judge(survey(source, mapping, progress), horizon=horizon, bounds=bounds)


def judge(
    found: Survey, *, horizon: int | None = None, bounds: tuple[float, float] = (-1.0, 1.0)
) -> list[Finding]:
    """The findings of a survey, the worst first."""
    findings = [
        *_unreadable(found),
        *_values(found),
        *_order(found),
        *_columns(found),
        *_actions(found, bounds),
        *_costs(found),
        *_units(found),
        *_ends(found, horizon or int(found.lengths.max(initial=0))),
        *(Finding("note", f"guessed {guess}") for guess in found.log.guesses),
    ]
    return sorted(findings, key=lambda finding: LEVELS.index(finding.level))


def _unreadable(found: Survey) -> Iterator[Finding]:
    if found.stopped:
        yield Finding("error", f"reading stopped: {found.stopped}", "The rest was not looked at")
    elif not found.steps:
        yield Finding("error", "there are no rows", "A data set needs at least one step")


def _tallied(found: Survey, what: str) -> Iterator[tuple[str, Any, str]]:
    """(column, tally, how many more) of one kind of trouble; many columns are cut short."""
    columns = [(column, tally) for (kind, column), tally in found.tallies.items() if kind == what]
    for column, tally in columns[:MOST_LISTED]:
        yield column, tally, f" ({tally.count:,} of them)" if tally.count > 1 else ""
    if len(columns) > MOST_LISTED:
        rest = columns[MOST_LISTED:]
        column, tally = rest[0]
        yield f"{column} and {len(rest) - 1} more columns", tally, ""


def _values(found: Survey) -> Iterator[Finding]:
    for column, t, more in _tallied(found, "missing"):
        fix = "Fill it in or drop the episode"
        what = f"missing or not a number{more}"
        yield Finding("error", what, fix, column, t.episode, t.where)
    for column, t, more in _tallied(found, "infinite"):
        fix = "Numbers must fit into 32 bits: repair it, or drop the episode"
        what = f"{t.value:g} is not finite{more}"
        yield Finding("error", what, fix, column, t.episode, t.where)
    for column, t, more in _tallied(found, "flag"):
        fix = "Write true or false, or 1 or 0"
        what = f"{t.value:g} is neither true nor false{more}"
        yield Finding("error", what, fix, column, t.episode, t.where)
    for column, t, more in _tallied(found, "negative"):
        fix = (
            "Costs are >= 0, lower is better. If it is a reward or its sign is flipped, give it "
            "the weight -1; if it is a distance to a bound, the kind margin"
        )
        what = f"the cost {t.value:g} is negative{more}"
        yield Finding("error", what, fix, column, t.episode, t.where)


def _order(found: Survey) -> Iterator[Finding]:
    by = ", ".join(repr(n) for n in (found.log.mapping.episode, found.log.mapping.step) if n)
    for column, t, more in _tallied(found, "returned"):
        what = f"an episode that was over goes on: several are logged at once{more}"
        fix = f"Sort the rows first, for instance frame.sort_values([{by}])"
        yield Finding("error", what, fix, column, t.episode, t.where)
    for column, t, more in _tallied(found, "backwards"):
        what = f"the step does not rise within the episode{more}"
        yield Finding("error", what, "Sort the rows by it", column, t.episode, t.where)
    for column, t, more in _tallied(found, "early"):
        what = f"the end was flagged a row before, but the episode goes on{more}"
        fix = "Either the column that ends episodes is wrong, or the one that names them"
        yield Finding("error", what, fix, column, t.episode, t.where)
    for _, t, more in _tallied(found, "copy"):
        what = f"the episode is a copy of an earlier one{more}"
        yield Finding("warning", what, "Drop copies: they count double", "", t.episode, t.where)


def _columns(found: Survey) -> Iterator[Finding]:
    width = len(found.columns) - 2  # reward and cost have their own rules
    constant = [i for i in range(width) if found.low[i] == found.high[i]]
    if found.steps > 1:
        for names, value in _listed(found, constant):
            fix = "It tells nothing: leave it out, or look why it stands still"
            yield Finding("warning", f"always {value:g}", fix, names)
        if found.low[width] == found.high[width]:
            fix = "Nothing can be learnt from it: is it the right column?"
            what = f"the reward is always {found.low[width]:g}"
            yield Finding("warning", what, fix, found.columns[width])
    first: dict[int, str] = {}
    for i, name in enumerate(found.columns):
        twin = first.setdefault(found.prints[i], name)
        if twin != name and i not in constant:
            what = f"holds the same numbers as {twin}"
            yield Finding("warning", what, "Leave one of them out", name)


def _listed(found: Survey, columns: list[int]) -> Iterator[tuple[str, float]]:
    for i in columns[:MOST_LISTED]:
        yield found.columns[i], float(found.low[i])
    if len(columns) > MOST_LISTED:
        i = columns[MOST_LISTED]
        yield f"{found.columns[i]} and {len(columns) - MOST_LISTED - 1} more", float(found.low[i])


def _actions(found: Survey, bounds: tuple[float, float]) -> Iterator[Finding]:
    low, high = bounds
    slack = 0.05 * (high - low)  # recorded actions often stray a little before they are clipped
    first = found.log.widths[0]
    for i in range(first, len(found.columns) - 2):
        least, most = found.low[i], found.high[i]
        if not (least < low or most > high):
            continue
        is_far = least < low - slack or most > high + slack
        what = f"actions run from {least:g} to {most:g}, outside {low:g} .. {high:g}"
        fix = "Scale the column, or give the task's own range: --bounds LOW HIGH"
        if not is_far:
            fix = "A little: they are clipped when a policy acts"
        yield Finding("warning" if is_far else "note", what, fix, found.columns[i])


def _costs(found: Survey) -> Iterator[Finding]:
    name = found.columns[-1]
    if found.steps and found.high[-1] <= 0:
        what = "the cost is never above 0"
        fix = "No limit can then be learnt: is it the right column?"
        yield Finding("warning", what, fix, name)
    if abs(found.correlation) > 0.95:
        sign = "the reward" if found.correlation > 0 else "minus the reward"
        what = f"the cost looks like {sign}: their correlation is {found.correlation:.3f}"
        fix = "A cost of its own is needed: the damage, not what is lost of the reward"
        yield Finding("warning", what, fix, name)


def _units(found: Survey) -> Iterator[Finding]:
    with np.errstate(divide="ignore"):
        sizes = np.log10(found.bin_size)
    listed = 0
    for i, name in enumerate(found.columns[:-2]):
        at = _jump(sizes[:, i])
        if at is None or listed >= MOST_LISTED:
            continue
        listed += 1
        times = 10 ** abs(
            np.median(sizes[at : at + 5, i]) - np.median(sizes[max(at - 5, 0) : at, i])
        )
        what = f"the size of its numbers changes {times:.3g} times at once"
        fix = "Another unit, or another sensor? Bring all episodes to one"
        yield Finding("warning", what, fix, name, str(found.bin_start[at]))


def _jump(sizes: np.ndarray, window: int = 5) -> int | None:
    """First bin whose neighbours before and after agree among themselves, not with each other."""
    if len(sizes) < 2 * window:
        return None
    windows = np.lib.stride_tricks.sliding_window_view(sizes, window)
    with np.errstate(invalid="ignore"):
        middle = np.median(windows, axis=1)
        spread = np.median(np.abs(windows - middle[:, None]), axis=1)
        change = np.abs(middle[window:] - middle[:-window])
        steady = np.maximum(spread[window:], spread[:-window]) < change / 6
    is_jump = np.isfinite(change) & (change > np.log10(JUMP)) & steady
    if not is_jump.any():
        return None
    first = int(np.flatnonzero(is_jump)[0])
    near = np.abs(np.diff(sizes[first : first + 2 * window]))
    return first + 1 + int(near.argmax())


def _ends(found: Survey, horizon: int) -> Iterator[Finding]:
    mapping, count = found.log.mapping, len(found.lengths)
    has_flags = bool(mapping.terminated or mapping.truncated)
    unflagged = int((found.ends == 0).sum())
    if has_flags and count and found.ends[-1] == 0:
        is_final = found.name.endswith((".h5", ".hdf5"))
        fix = "Drop its rows, or mark the last one truncated"
        fix = (
            fix if is_final else "An import marks its last row truncated: drop it if it was cut off"
        )
        what = f"the last episode ({found.lengths[-1]:,} steps) has no end"
        yield Finding("error" if is_final else "warning", what, fix, "", str(count - 1))
        unflagged -= 1
    if unflagged:
        which = "no column says how episodes end" if not has_flags else "without a flagged end"
        what = f"{unflagged:,} of {count:,} episodes: {which}"
        fix = "An import takes them as truncated: map terminated if the task can end an episode"
        yield Finding("note", what, fix)
    if (found.ends == 3).any():
        what = f"{int((found.ends == 3).sum()):,} episodes both terminated and truncated"
        yield Finding("note", what, "They are taken as terminated")
    short = found.lengths < horizon
    cut = short & (found.ends != 1) & (found.ends != 3)
    if cut.any():
        first = int(np.flatnonzero(cut)[0])
        what = (
            f"{int(cut.sum()):,} of {count:,} episodes stop before the horizon of {horizon:,} "
            f"steps though the task did not end them (the first has {found.lengths[first]:,})"
        )
        fix = "Their returns are of less time: give --horizon if it is another, or drop them"
        yield Finding("warning", what, fix, "", str(first))
    fallen = int((short & ~cut).sum())
    if fallen:
        yield Finding("note", f"{fallen:,} of {count:,} episodes end early by themselves")
    if (found.lengths > horizon).any():
        longer = int((found.lengths > horizon).sum())
        what = f"{longer:,} episodes are longer than the horizon of {horizon:,}"
        yield Finding("error", what, "Give the true --horizon, or cut them")
