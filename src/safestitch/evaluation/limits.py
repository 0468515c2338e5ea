"""Cost limits as people write them: `20` is a cost per episode, `10%` a share of the cost range."""

import math

from safestitch.records import SafestitchError

PAPER_LIMITS = ("10%", "20%", "30%", "70%", "80%", "90%")
"""Tight and loose limits of the GAS paper's tables."""


def parse_limit(text: str, cost_range: float) -> float:
    """A limit in cost per episode.

    Example:
        >>> parse_limit("10%", cost_range=80), parse_limit("20", cost_range=80)
        (8.0, 20.0)
    """
    number = text.strip().removesuffix("%")
    is_share = text.strip().endswith("%")
    try:
        value = float(number)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise SafestitchError(
            f"the limit '{text}' is not a number: give a cost per episode such as 20, or a share "
            "of the cost range such as 10%"
        )
    if value < 0:
        raise SafestitchError(f"the limit '{text}' is below 0: costs are never negative")
    if is_share and value > 100:
        raise SafestitchError(
            f"the limit '{text}' is above 100% of the cost range ({cost_range:g})"
        )
    if is_share and cost_range <= 0:
        raise SafestitchError(
            f"the limit '{text}' is a share of the cost range, which is 0: give a cost per episode"
        )
    return value / 100.0 * cost_range if is_share else value
