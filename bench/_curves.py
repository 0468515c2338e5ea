"""A few lines over a logarithmic axis of time, as SVG text."""

import math
from html import escape

WIDTH, HEIGHT, MARGIN = 640, 380, 60
COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd")


def curves(title: str, lines: dict[str, list[tuple[float, float]]]) -> str:
    """Name -> points (minutes > 0, value); every point is marked, the line says which it is."""
    points = [point for line in lines.values() for point in line]
    logs = [math.log10(x) for x, _ in points]
    left, right = min(logs) - 0.05, max(logs) + 0.05
    low, high = min(0.5, *(y for _, y in points)), max(1.05, *(y for _, y in points))

    def place(x: float, y: float) -> tuple[float, float]:
        across = (math.log10(x) - left) / (right - left)
        up = (y - low) / (high - low)
        return MARGIN + across * (WIDTH - 2 * MARGIN), HEIGHT - MARGIN - up * (HEIGHT - 2 * MARGIN)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="12" text-anchor="middle">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
        f'<text x="{WIDTH / 2:g}" y="24" font-size="15">{escape(title)}</text>',
    ]
    for tenth in range(math.ceil(10 * low), math.floor(10 * high) + 1):
        _, y = place(10**left, tenth / 10)
        parts.append(f'<path stroke="#ddd" d="M{MARGIN} {y:.1f}H{WIDTH - MARGIN}"/>')
        parts.append(f'<text x="{MARGIN - 16}" y="{y + 4:.1f}">{tenth / 10:g}</text>')
    for minutes in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100):
        if left <= math.log10(minutes) <= right:
            x, _ = place(minutes, low)
            parts.append(f'<text x="{x:.1f}" y="{HEIGHT - MARGIN + 18}">{minutes:g}</text>')
    parts.append(f'<text x="{WIDTH / 2:g}" y="{HEIGHT - 16}">minutes</text>')
    for (name, line), colour in zip(lines.items(), COLOURS, strict=False):
        corners = [place(*point) for point in sorted(line)]
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in corners)
        parts.append(f'<path fill="none" stroke="{colour}" stroke-width="2" d="M{path}"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>' for x, y in corners]
        x, y = corners[-1]
        parts.append(f'<text x="{x:.1f}" y="{y - 10:.1f}" fill="{colour}">{escape(name)}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"
