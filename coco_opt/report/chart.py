"""Line charts as SVG within a page, in its light and dark colours, with names where lines end; no matplotlib."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

Points = Sequence[tuple[float, float]]

COLOURS = 10
"""The number of line colours in the page's style; further lines repeat them, dashed."""
_WIDE, _HIGH = 480, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 140, 12, 40
_LINE = 13.0  # distance between names


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis: its label with the unit, and its range ``low`` to ``high``; logarithmic, or linear from zero."""

    label: str
    low: float
    high: float
    logarithmic: bool = True

    @classmethod
    def over(cls, label: str, values: Iterable[float]) -> Axis:
        """Return a logarithmic axis of complete decades that holds the values, all above zero."""
        numbers = list(values)
        low, high = math.floor(math.log10(min(numbers))), math.ceil(math.log10(max(numbers)))
        return cls(label, 10.0**low, 10.0 ** max(high, low + 1))

    def share(self, value: float) -> float:
        """Return where a value lies, from 0 at the low end to 1; values outside lie at the nearer end."""
        if self.logarithmic:
            inside = math.log(max(value, self.low) / self.low) / math.log(self.high / self.low)
        else:
            inside = (value - self.low) / (self.high - self.low)
        return min(1.0, max(0.0, inside))

    def ticks(self) -> list[float]:
        """Return the values that are labelled: decades, at most eight, or five steps."""
        if not self.logarithmic:
            return [self.low + k * (self.high - self.low) / 4 for k in range(5)]
        first, last = round(math.log10(self.low)), round(math.log10(self.high))
        step = -(-(last - first + 1) // 8)
        return [10.0**k for k in range(first, last + 1, step)]


def line_chart(lines: Mapping[str, Points], x: Axis, y: Axis, what: str, *, steps: bool = False) -> str:
    """Return an SVG of named lines; ``what`` describes it in words. ``steps`` keeps each value up to the next."""
    ends = sorted((_place(points[-1], x, y)[1], name) for name, points in lines.items())
    heights = dict(zip([name for _, name in ends], _spread_heights([height for height, _ in ends]), strict=True))
    svg_lines = [
        _line(k, name, points, heights[name], x, y, steps=steps) for k, (name, points) in enumerate(lines.items())
    ]
    return (
        f'<svg class="chart" viewBox="0 0 {_WIDE} {_HIGH}" role="img" aria-label="{escape(what, quote=True)}">'
        f"{_grid(x, y)}{''.join(svg_lines)}</svg>"
    )


def _place(point: tuple[float, float], x: Axis, y: Axis) -> tuple[float, float]:
    across = _LEFT + x.share(point[0]) * (_WIDE - _LEFT - _RIGHT)
    return across, _HIGH - _BOTTOM - y.share(point[1]) * (_HIGH - _TOP - _BOTTOM)


def _spread_heights(heights: Sequence[float]) -> list[float]:
    """Return sorted heights moved down to lie a line apart, then up where they would leave the picture."""
    placed: list[float] = []
    for height in heights:
        placed.append(max(height, placed[-1] + _LINE if placed else height))
    lowest = float(_HIGH - _BOTTOM)
    for k in range(len(placed) - 1, -1, -1):
        placed[k] = min(placed[k], lowest)
        lowest = placed[k] - _LINE
    return placed


def _grid(x: Axis, y: Axis) -> str:
    right, bottom = _WIDE - _RIGHT, _HIGH - _BOTTOM
    parts = []
    for value in x.ticks():
        position = _place((value, y.low), x, y)[0]
        parts.append(f'<path class="grid" d="M{position:.1f} {_TOP}V{bottom}"/>')
        parts.append(f'<text x="{position:.1f}" y="{bottom + 14}" text-anchor="middle">{tick(value)}</text>')
    for value in y.ticks():
        position = _place((x.low, value), x, y)[1]
        parts.append(f'<path class="grid" d="M{_LEFT} {position:.1f}H{right}"/>')
        parts.append(f'<text x="{_LEFT - 5}" y="{position + 4:.1f}" text-anchor="end">{tick(value)}</text>')
    middle = (_LEFT + right) / 2
    parts.append(f'<text x="{middle:.0f}" y="{_HIGH - 8}" text-anchor="middle">{escape(x.label)}</text>')
    parts.append(
        f'<text transform="translate(12 {(_TOP + bottom) / 2:.0f}) rotate(-90)" text-anchor="middle">'
        f"{escape(y.label)}</text>"
    )
    return "".join(parts)


def _line(number: int, name: str, points: Points, height: float, x: Axis, y: Axis, *, steps: bool) -> str:
    places = [_place(point, x, y) for point in points]
    path = f"M{places[0][0]:.1f} {places[0][1]:.1f}"
    for across, down in places[1:]:
        path += f"H{across:.1f}V{down:.1f}" if steps else f"L{across:.1f} {down:.1f}"
    last, right = places[-1], _WIDE - _RIGHT
    style = f"s{number % COLOURS}" + (" dashed" if number >= COLOURS else "")
    marks = "" if steps else "".join(f'<circle cx="{a:.1f}" cy="{b:.1f}" r="2.5"/>' for a, b in places)
    return (
        f'<g class="{style}"><path d="{path}"/>{marks}'
        f'<path class="lead" d="M{last[0]:.1f} {last[1]:.1f}L{right + 8} {height:.1f}"/></g>'
        f'<text x="{right + 11}" y="{height + 4:.1f}">{escape(name)}</text>'
    )


def tick(value: float) -> str:
    """Return a number in a short readable form: 0.001, 10, 2,000, 100k, 20M, 3G."""
    for limit, unit, letter in ((1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e5, 1e3, "k")):
        if abs(value) >= limit:
            return f"{value / unit:,.4g}{letter}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
