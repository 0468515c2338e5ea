"""Datasheets: what a data file holds and how it was made, as Markdown pages with a picture."""

import dataclasses
import hashlib
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from safestitch.catalog import Entry, catalog
from safestitch.data import dsrl
from safestitch.data.coverage import (
    LEAST_RATIO,
    LEAST_RATIO_ANT,
    LEAST_SHARE,
    LEVELS,
    REWARD_MARGIN,
    TENTHS,
    Comparison,
    Coverage,
    compare,
    cover,
)
from safestitch.episodes import frontier
from safestitch.files import write_atomic
from safestitch.report.scatter import Line, scatter

INDEX = "README.md"
LICENCE = (
    "Apache-2.0, like safestitch itself: these episodes were rolled by its own behaviours and hold "
    "nothing of the public data."
)


@dataclasses.dataclass(frozen=True, eq=False)
class Sheet:
    """One data file, read once."""

    name: str
    """The task, or the file's own name."""
    coverage: Coverage
    rewards: Float[np.ndarray, " e"]
    costs: Float[np.ndarray, " e"]
    lengths: tuple[int, float, int]
    """Shortest, mean and longest episode."""
    provenance: dict[str, Any]
    sha256: str
    size: int
    """Bytes."""
    beside: Comparison | None

    @property
    def entry(self) -> Entry | None:
        """The task of the field, if it is one."""
        return catalog().get(self.name)


def read_sheet(path: Path) -> Sheet:
    """Look a data file over.

    Raises:
        DataError: if it is none.
    """
    rewards, costs, lengths = dsrl.returns(path)
    known = dsrl.provenance(path)
    task = known.get("task")
    entry = catalog().get(task) if isinstance(task, str) and not known.get("env") else None
    given = known.get("cost_range")
    in_file = float(given) if isinstance(given, int | float) else float(costs.max())
    found = cover(rewards, costs, entry.cost_range if entry else in_file, int(lengths.sum()))
    with open(path, "rb") as handle:
        digest = hashlib.file_digest(handle, "sha256").hexdigest()
    return Sheet(
        entry.task if entry else path.stem,
        found,
        rewards,
        costs,
        (int(lengths.min()), float(lengths.mean()), int(lengths.max())),
        known,
        digest,
        path.stat().st_size,
        compare(found, entry) if entry else None,
    )


def write_sheets(paths: list[Path], out: Path) -> list[Path]:
    """A page and a picture for each file, and one page for all; the pages."""
    out.mkdir(parents=True, exist_ok=True)
    pages, sheets = [], [read_sheet(path) for path in paths]
    for sheet in sheets:
        write_atomic(out / f"{sheet.name}.svg", picture(sheet).encode())
        pages.append(out / f"{sheet.name}.md")
        write_atomic(pages[-1], page(sheet).encode())
    of_field = [sheet for sheet in sheets if sheet.beside]
    if len(of_field) > 1:
        pages.append(out / INDEX)
        write_atomic(pages[-1], index(of_field).encode())
    return pages


def picture(sheet: Sheet) -> str:
    """Reward against cost, with the frontiers."""
    costs, rewards = frontier(sheet.rewards, sheet.costs)
    lines: dict[str, Line] = {"frontier of these data": (costs.tolist(), rewards.tolist())}
    high = sheet.coverage.cost_range
    if sheet.beside:
        levels = [level * high for level in LEVELS]
        lines["frontier of the public data"] = (levels, list(sheet.beside.public_frontier))
    return scatter(sheet.name, sheet.rewards, sheet.costs, lines, high)


def page(sheet: Sheet) -> str:
    """The datasheet of one file."""
    sections = [
        f"# {sheet.name}\n\n![reward against cost of every episode]({sheet.name}.svg)",
        _table(_facts(sheet)),
        f"## Best reward within a cost\n\n{_table(_frontier(sheet))}",
        f"## Episodes in each tenth of the cost range\n\n{_table(_tenths(sheet.coverage))}",
        f"## How it was made\n\n{_making(sheet)}",
        f"## Licence\n\n{LICENCE if sheet.entry else 'That of its owner.'}",
    ]
    return "\n\n".join(sections) + "\n"


def index(sheets: list[Sheet]) -> str:
    """All tasks of the field in one table."""
    head = ["task", *_percents(LEVELS), "frontier", "least tenth", "least reward", "all"]
    rows = [head]
    for sheet in sheets:
        beside = sheet.beside
        if beside is None:
            continue
        rows.append(
            [
                f"[{sheet.name}]({sheet.name}.md)",
                *(f"{ratio:.2f}" for ratio in beside.ratios),
                _mark(beside.reaches),
                f"{min(sheet.coverage.tenths):.1%} {_mark(beside.covers)}",
                f"{beside.reward_gap:+.1%} {_mark(beside.spans)}",
                _mark(beside.reaches and beside.covers and beside.spans),
            ]
        )
    passed = [sum(row[-1] == _mark(True) for row in rows), len(rows) - 1]
    return (
        "# Data of our own making\n\n"
        "`safestitch data make TASK` rolls the behaviours that come with safestitch on the "
        "simulators and keeps as many episodes as the public data have, up to the same cost. "
        "These pages are written by `safestitch data sheet`.\n\n"
        "The columns are our best reward within a share of the cost range, over that of the "
        f"public data. *Frontier*: every ratio is at least {LEAST_RATIO:g} ({LEAST_RATIO_ANT:g} "
        f"for Ant). *Least tenth*: every tenth of the cost range holds at least {LEAST_SHARE:.0%} "
        "of the episodes. *Least reward*: ours minus the public one, of the largest public reward; "
        f"at most {REWARD_MARGIN:.0%} apart.\n\n"
        f"{_table(rows)}\n\n{passed[0]} of {passed[1]} tasks pass all three.\n"
    )


def _facts(sheet: Sheet) -> list[list[str]]:
    found, entry = sheet.coverage, sheet.entry
    shortest, mean, longest = sheet.lengths
    rows = [
        ["", "these data", "public data"],
        ["episodes", f"{found.episodes:,}", f"{entry.trajectories:,}" if entry else ""],
        ["steps", f"{found.steps:,}", ""],
        ["steps of an episode", f"{shortest} to {longest}, {mean:.0f} on average", ""],
        ["reward", _span(found.reward_min, found.reward_max), ""],
        ["cost", _span(found.cost_min, found.cost_max), ""],
        ["file", f"{sheet.size / 1e6:.1f} MB", ""],
    ]
    if entry:
        rows[4][2] = _span(entry.reward_min, entry.reward_max)
        rows[5][2] = _span(entry.cost_min, entry.cost_max)
        return rows
    return [row[:2] for row in rows]


def _frontier(sheet: Sheet) -> list[list[str]]:
    rows = [["share of the cost range", *_percents(LEVELS)]]
    rows.append(["these data", *(f"{reward:.4g}" for reward in sheet.coverage.frontier)])
    if sheet.beside:
        rows.append(["public data", *(f"{r:.4g}" for r in sheet.beside.public_frontier)])
        rows.append(["ratio", *(f"{ratio:.3f}" for ratio in sheet.beside.ratios)])
    return rows


def _tenths(found: Coverage) -> list[list[str]]:
    spans = [f"{10 * i}-{10 * (i + 1)}%" for i in range(TENTHS)]
    return [["cost", *spans], ["episodes", *(f"{share:.1%}" for share in found.tenths)]]


def _making(sheet: Sheet) -> str:
    known = sheet.provenance
    versions, rolled = known.get("versions"), (known.get("rolled"), known.get("steps_rolled"))
    if not isinstance(versions, dict) or not all(isinstance(count, int) for count in rolled):
        return f"The file does not say.\n\nSHA-256 of the file: `{sheet.sha256}`"
    command = f"safestitch data make {sheet.name}" if sheet.entry else "safestitch data make --env"
    rows = [
        ["", ""],
        ["command", f"`{command} --seed {known.get('seed')}`"],
        ["behaviours", f"{known.get('snapshots')} snapshots, SHA-256 `{known.get('behaviours')}`"],
        ["episodes rolled to choose from", f"{rolled[0]:,}"],
        ["steps rolled", f"{rolled[1]:,}"],
        ["versions", ", ".join(f"{name} {version}" for name, version in versions.items())],
        ["SHA-256 of the file", f"`{sheet.sha256}`"],
    ]
    return (
        "Snapshots of actors that were trained for the reward minus a multiple of the cost are "
        "rolled out at many multiples, with noise from none to nothing but noise, now and then "
        "with another multiple from the middle of an episode on. A survey of all settings comes "
        "first; the rest is aimed at where rewards and costs are still thin. Of all episodes, the "
        f"fullest cells of the plane are thinned first.\n\n{_table(rows)}"
    )


def _percents(shares) -> list[str]:
    return [f"{share:.0%}" for share in shares]


def _span(low: float, high: float) -> str:
    return f"{low:.4g} to {high:.4g}"


def _mark(passed: bool) -> str:
    return "✓" if passed else "✗"


def _table(rows: list[list[str]]) -> str:
    """Markdown; the first row is the head."""
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([lines[0], f"|{'---|' * len(rows[0])}", *lines[1:]])
