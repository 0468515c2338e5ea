"""Reward against cost as a small SVG picture: a dot per episode, two frontiers."""

import math
from html import escape

import numpy as np
from jaxtyping import Float

WIDTH, HEIGHT = 640, 420
LEFT, RIGHT, TOP, BOTTOM = 64, 12, 34, 46
"""Margins around the plot, in pixels."""
POINTS = 4000
"""Most dots; a fair draw of them where there are more episodes."""

Line = tuple[list[float], list[float]]
"""Costs and rewards of a line's corners."""


def scatter(
    title: str,
    rewards: Float[np.ndarray, " e"],
    costs: Float[np.ndarray, " e"],
    lines: dict[str, Line],
    cost_high: float,
) -> str:
    """The picture as SVG text.

    Args:
        title: Above the plot.
        rewards: Reward of each episode.
        costs: Cost of each episode.
        lines: Name -> a line over the dots, for instance a frontier; at most two.
        cost_high: Where the axis of the costs ends, at least.
    """
    corners = [np.asarray(line[1]) for line in lines.values()]
    both = np.concatenate([rewards, *corners])
    xs = _Axis(0.0, max(cost_high, float(costs.max())), LEFT, WIDTH - RIGHT)
    ys = _Axis(min(0.0, float(both.min())), float(both.max()), HEIGHT - BOTTOM, TOP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="12" text-anchor="middle">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
        *_grid(xs, ys),
        f'<path fill="none" stroke="#1f77b4" stroke-opacity=".4" stroke-width="4" '
        f'stroke-linecap="round" d="{_dots(xs.pixels(costs), ys.pixels(rewards))}"/>',
        *_lines(lines, xs, ys),
        f'<text x="{WIDTH / 2:g}" y="20" font-size="15">{escape(title)}</text>',
        f'<text x="{WIDTH / 2:g}" y="{HEIGHT - 10}">cost of the episode</text>',
        f'<text transform="translate(14 {HEIGHT / 2:g}) rotate(-90)">reward of the episode</text>',
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


class _Axis:
    """From values to pixels."""

    def __init__(self, low: float, high: float, first: int, last: int):
        high = high if high > low else low + 1.0
        self.low, self.high, self.first, self.last = low, high, first, last

    def pixels(self, values) -> np.ndarray:
        share = (np.asarray(values) - self.low) / (self.high - self.low)
        return self.first + share * (self.last - self.first)

    def ticks(self) -> list[float]:
        """Round numbers, four to ten of them."""
        rough = (self.high - self.low) / 5
        power = 10.0 ** math.floor(math.log10(rough))
        step = power * max(s for s in (1, 2, 5) if s * power <= rough)
        inside = np.arange(math.ceil(self.low / step), math.floor(self.high / step) + 1)
        return (inside * step).tolist()


def _grid(xs: _Axis, ys: _Axis) -> list[str]:
    lines = []
    for x, tick in zip(xs.pixels(xs.ticks()), xs.ticks(), strict=True):
        lines.append(f'<path stroke="#ddd" d="M{x:.1f} {TOP}V{HEIGHT - BOTTOM}"/>')
        lines.append(f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 16}">{tick:g}</text>')
    for y, tick in zip(ys.pixels(ys.ticks()), ys.ticks(), strict=True):
        lines.append(f'<path stroke="#ddd" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>')
        label = f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{tick:g}</text>'
        lines.append(label)
    return lines


def _dots(xs: Float[np.ndarray, " e"], ys: Float[np.ndarray, " e"]) -> str:
    """A path of lines of no length, which round ends make dots: the shortest way to say it."""
    if len(xs) > POINTS:
        drawn = np.sort(np.random.default_rng(0).choice(len(xs), POINTS, replace=False))
        xs, ys = xs[drawn], ys[drawn]
    places = np.unique(np.stack([xs, ys], 1).round().astype(int), axis=0)
    steps = np.diff(places, axis=0, prepend=0).tolist()  # small numbers are short ones
    return "".join(f"m{x} {y}h0" for x, y in steps)


def _lines(lines: dict[str, Line], xs: _Axis, ys: _Axis) -> list[str]:
    parts = []
    for i, (name, (costs, rewards)) in enumerate(lines.items()):
        colour, dash = (("#d62728", ""), ("#333", ' stroke-dasharray="5 4"'))[i]
        pairs = zip(xs.pixels(costs).tolist(), ys.pixels(rewards).tolist(), strict=True)
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in pairs)
        parts.append(
            f'<path fill="none" stroke="{colour}" stroke-width="2"{dash} d="M{path}"/>'
            f'<text x="{WIDTH - RIGHT - 6}" y="{HEIGHT - BOTTOM - 8 - 16 * i}" fill="{colour}" '
            f'text-anchor="end">{escape(name)}</text>'
        )
    return parts
