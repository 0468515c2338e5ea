"""Figures of a comparison as words, the same in every kind of table."""

from collections.abc import Sequence

from safestitch.comparing.paired import Difference
from safestitch.comparing.published import PAPER_DATA
from safestitch.comparing.summary import Comparison

MARKS = {"best": "safe, best", "safe": "safe", "unsafe": "unsafe"}
NONE = "–"


def number(value: float | None, digits: int = 2) -> str:
    """A number, or a dash.

    Example:
        >>> number(0.714), number(None)
        ('0.71', '–')
    """
    return NONE if value is None or value != value else f"{value:.{digits}f}"


def spread(value: float | None, std: float | None) -> str:
    """Mean and standard deviation between seeds.

    Example:
        >>> spread(0.714, 0.02), spread(0.714, None)
        ('0.71 ± 0.02', '0.71')
    """
    return number(value) if std is None else f"{number(value)} ± {number(std)}"


def apart(gap: tuple[Difference, Difference] | None, which: int) -> str:
    """A difference with its interval; 0 is reward, 1 cost.

    Example:
        >>> apart((Difference(0.1, -0.05, 0.25), Difference(0.0, 0.0, 0.0)), 0)
        '+0.10 [-0.05, +0.25]'
    """
    if gap is None or gap[which].value != gap[which].value:
        return NONE
    value, low, high = gap[which]
    return f"{value:+.2f} [{low:+.2f}, {high:+.2f}]"


def title(band: str, limits: Sequence[str] = ()) -> str:
    """What a band is called in a heading."""
    shares = {"tight": "10, 20, 30% of the cost range", "loose": "70, 80, 90% of the cost range"}
    return f"{band} ({shares[band]})" if band in shares else " ".join([band, *limits])


def notes(comparison: Comparison) -> list[str]:
    """What a reader must know to read the table."""
    of = f"differences are to {comparison.against}, " if comparison.against else ""
    found = [
        "R/R_max is mean reward over the largest reward return of the data, C/L mean cost over "
        "limit, averaged over the limits; ± is the standard deviation between seeds.",
        "Safe: C/L at most 1. Best: the highest R/R_max of the safe methods, to two decimals.",
        "Frontier ratio: mean reward over the best logged episode within the limit, averaged over "
        "the limits that were kept (kept / asked).",
    ]
    if of:
        found.append(
            f"All {of}with 95% bootstrap intervals: start states are drawn for both methods "
            "together, policy seeds for each apart."
        )
        alone = sorted({c.method for c in comparison.cells if c.seeds == 1})
        if alone:
            found.append(
                f"One seed only: {', '.join(alone)}. Its intervals know nothing of how much "
                "another seed would differ."
            )
    if any(cell.paper for cell in comparison.cells):
        found.append(
            f"Paper: the GAS paper's own figures, on the {PAPER_DATA}, 5 seeds; ours are on the "
            "data named with each task. They are not the same experiment unless the data are "
            "the same."
        )
    return found


def data_lines(comparison: Comparison) -> list[str]:
    """Task by task, what was learned from and how it was evaluated."""
    found = []
    for task in comparison.tasks:
        first = next(r for r in comparison.results if r.entry.task == task)
        summary = first.entry.run.data_summary
        trained = "; ".join(
            f"{r.entry.method} {_count(len(r.entry.run.seeds), 'seed')}"
            + (f", {steps:,} iterations" if isinstance(steps, int) else "")
            for r in comparison.results
            if r.entry.task == task
            for steps in [r.entry.run.config.get("iterations")]
        )
        found.append(
            f"{task}: {comparison.data(task)}, {summary.get('episodes', '?')} episodes, "
            f"R_max {summary['reward_max']:.6g}, cost range {first.entry.run.spec.cost_range:g}; "
            f"{first.rollout.rewards.shape[2]} episodes per seed and limit; {trained}"
        )
    return found


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
