"""Charts as SVG within a page, in its light and dark colours; no matplotlib.

Line charts have names where lines end; panels have dots, lines and bands.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Points = Sequence[tuple[float, float]]

COLOURS = 10
"""The number of line colours in the page's style; further lines repeat them, dashed."""
_TICKS = 8  # labelled along an axis
_LINE = 13.0  # distance between names


Scale = Literal["log", "linear"]


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis: its label with the unit, its range ``low`` to ``high``, its scale, and names in place of 0, 1, ..."""

    label: str
    low: float
    high: float
    scale: Scale = "log"
    names: Sequence[str] = ()

    @classmethod
    def over(cls, label: str, values: Iterable[float]) -> Axis:
        """Return a logarithmic axis of complete decades that holds the values, all above zero."""
        numbers = list(values)
        low, high = math.floor(math.log10(min(numbers))), math.ceil(math.log10(max(numbers)))
        return cls(label, 10.0**low, 10.0 ** max(high, low + 1))

    def share(self, value: float) -> float:
        """Return where a value lies, from 0 at the low end to 1; values outside lie at the nearer end."""
        low, high = self._height(self.low), self._height(self.high)
        return (self._height(min(self.high, max(self.low, value))) - low) / (high - low)

    def _height(self, value: float) -> float:
        return value if self.scale == "linear" else math.log10(value)

    def ticks(self) -> list[float]:
        """Return the values that are labelled: each name, decades, or multiples of 1, 2 or 5; at most eight or so."""
        if self.names:
            step = -(-len(self.names) // _TICKS)
            return [float(k) for k in range(0, len(self.names), step)]
        if self.scale == "linear":
            return _steps(self.low, self.high)
        first, last = round(math.log10(self.low)), round(math.log10(self.high))
        return [10.0**k for k in range(first, last + 1, -(-(last - first + 1) // _TICKS))]

    def words(self, value: float) -> str:
        """Return the label of a tick."""
        return self.names[round(value)] if self.names else tick(value)


def _steps(low: float, high: float) -> list[float]:
    rough = (high - low) / (_TICKS - 2)
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(unit * times for times in (1, 2, 5, 10) if unit * times >= rough * (1 - 1e-9))
    return [k * step for k in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


_HALF_LETTER = 3.5  # units that half a letter takes at most, also on a narrow screen


@dataclass(frozen=True, slots=True)
class Canvas:
    """The size of a picture and the margins around what it plots, in the units of its coordinates."""

    wide: int
    high: int
    left: int
    right: int
    top: int
    bottom: int
    inset: int = 0
    """The distance of the outermost points from the edge of the plot: a dot is not cut in half there."""

    def place(self, point: tuple[float, float], x: Axis, y: Axis) -> tuple[float, float]:
        """Return the coordinates of a point."""
        across = self.wide - self.left - self.right - 2 * self.inset
        up = self.high - self.top - self.bottom - 2 * self.inset
        left, bottom = self.left + self.inset, self.high - self.bottom - self.inset
        return left + x.share(point[0]) * across, bottom - y.share(point[1]) * up

    def svg(self, what: str, parts: Iterable[str]) -> str:
        """Return the picture; ``what`` describes it in words."""
        label = escape(what, quote=True)
        opened = f'<svg class="chart" viewBox="0 0 {self.wide} {self.high}" role="img" aria-label="{label}">'
        return f"{opened}{''.join(parts)}</svg>"

    def grid(self, x: Axis, y: Axis) -> str:
        """Return the lines at the ticks of both axes, their values and the labels of the axes."""
        right, bottom, parts = self.wide - self.right, self.high - self.bottom, []
        free = 0.0  # where the last label ends
        for value in x.ticks():
            position = self.place((value, y.low), x, y)[0]
            parts.append(f'<path class="grid" d="M{position:.1f} {self.top}V{bottom}"/>')
            words = x.words(value)
            half = _HALF_LETTER * len(words)
            inside = min(position, self.wide - half)  # the last label must not be cut off
            if inside - half < free:
                continue
            free = inside + half
            parts.append(f'<text x="{inside:.1f}" y="{bottom + 14}" text-anchor="middle">{escape(words)}</text>')
        for value in y.ticks():
            position = self.place((x.low, value), x, y)[1]
            parts.append(f'<path class="grid" d="M{self.left} {position:.1f}H{right}"/>')
            words = escape(y.words(value))
            parts.append(f'<text x="{self.left - 5}" y="{position + 4:.1f}" text-anchor="end">{words}</text>')
        middle = (self.left + right) / 2
        parts.append(f'<text x="{middle:.0f}" y="{self.high - 8}" text-anchor="middle">{escape(x.label)}</text>')
        parts.append(
            f'<text transform="translate(12 {(self.top + bottom) / 2:.0f}) rotate(-90)" text-anchor="middle">'
            f"{escape(y.label)}</text>"
        )
        return "".join(parts)


_LINES = Canvas(480, 260, 52, 140, 12, 40)


def line_chart(lines: Mapping[str, Points], x: Axis, y: Axis, what: str) -> str:
    """Return an SVG of named lines; ``what`` describes it in words."""
    ends = sorted((_LINES.place(points[-1], x, y)[1], name) for name, points in lines.items())
    heights = dict(zip([name for _, name in ends], _spread_heights([height for height, _ in ends]), strict=True))
    svg_lines = [_line(k, name, points, heights[name], x, y) for k, (name, points) in enumerate(lines.items())]
    return _LINES.svg(what, [_LINES.grid(x, y), *svg_lines])


def _spread_heights(heights: Sequence[float]) -> list[float]:
    """Return sorted heights moved down to lie a line apart, then up where they would leave the picture."""
    placed: list[float] = []
    for height in heights:
        placed.append(max(height, placed[-1] + _LINE if placed else height))
    lowest = float(_LINES.high - _LINES.bottom)
    for k in range(len(placed) - 1, -1, -1):
        placed[k] = min(placed[k], lowest)
        lowest = placed[k] - _LINE
    return placed


def _line(number: int, name: str, points: Points, height: float, x: Axis, y: Axis) -> str:
    places = [_LINES.place(point, x, y) for point in points]
    path = f"M{places[0][0]:.1f} {places[0][1]:.1f}"
    for across, down in places[1:]:
        path += f"L{across:.1f} {down:.1f}"
    last, right = places[-1], _LINES.wide - _LINES.right
    style = f"s{number % COLOURS}" + (" dashed" if number >= COLOURS else "")
    marks = "".join(f'<circle cx="{a:.1f}" cy="{b:.1f}" r="2.5"/>' for a, b in places)
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


Values = NDArray[Any] | Sequence[float]
Colour = Literal["released", "noisy", "true", "band"]

_PANEL = Canvas(420, 270, 56, 12, 46, 38, 3)
_LEGEND = 34  # where the legend's line of text stands
_LETTER = 5.6  # of a legend, in the panel's units


@dataclass(frozen=True, eq=False, slots=True)
class Dots:
    """Points, all in one path: a browser takes a second to place thousands of them singly."""

    colour: Colour
    x: Values
    y: Values
    name: str = ""

    @property
    def heights(self) -> Values:
        """Return the values that the panel must hold."""
        return self.y

    def drawn(self, x: Axis, y: Axis) -> str:
        """Return the path."""
        places = (_PANEL.place(point, x, y) for point in zip(self.x, self.y, strict=True))
        moves = "".join(f"M{across:.1f} {down:.1f}h0" for across, down in places)
        return f'<path class="dots {self.colour}" d="{moves}"/>'


@dataclass(frozen=True, eq=False, slots=True)
class Steps:
    """A line that keeps each of the ``heights`` from one edge to the next."""

    colour: Colour
    edges: Values
    heights: Values
    name: str = ""

    def drawn(self, x: Axis, y: Axis) -> str:
        """Return the path."""
        return f'<path class="steps {self.colour}" d="M{_outline(self.edges, self.heights, x, y)}"/>'


@dataclass(frozen=True, eq=False, slots=True)
class Band:
    """The area between two lines of steps."""

    edges: Values
    low: Values
    high: Values
    name: str = ""
    colour: Colour = "band"

    @property
    def heights(self) -> Values:
        """Return the values that the panel must hold."""
        return np.concatenate([self.low, self.high])

    def drawn(self, x: Axis, y: Axis) -> str:
        """Return the path."""
        there = _outline(self.edges, self.high, x, y)
        back = _outline(self.edges[::-1], self.low[::-1], x, y)
        return f'<path class="band" d="M{there}L{back}Z"/>'


Layer = Dots | Steps | Band


def _outline(edges: Values, heights: Values, x: Axis, y: Axis) -> str:
    """Return the corners of a line of steps."""
    corners = (
        _PANEL.place((edge, height), x, y) for k, height in enumerate(heights) for edge in (edges[k], edges[k + 1])
    )
    return "L".join(f"{across:.1f} {down:.1f}" for across, down in corners)


def panel(title: str, x: Axis, y: Axis, layers: Sequence[Layer], what: str) -> str:
    """Return a picture of layers, the lowest first, with their names as a legend; ``what`` describes it in words."""
    heading = f'<text class="heading" x="4" y="14">{escape(title)}</text>'
    return _PANEL.svg(what, [heading, _legend(layers), _PANEL.grid(x, y), *(layer.drawn(x, y) for layer in layers)])


def _legend(layers: Iterable[Layer]) -> str:
    left, parts = float(_PANEL.left), []
    for layer in layers:
        if not layer.name:
            continue
        shape = "band" if isinstance(layer, Band) else f"key {layer.colour}"
        key = f'<path class="{shape}" d="M{left:.1f} {_LEGEND - 8}h9v8h-9Z"/>'
        parts.append(f'{key}<text x="{left + 13:.1f}" y="{_LEGEND}">{escape(layer.name)}</text>')
        left += 26 + _LETTER * len(layer.name)
    return "".join(parts)


def linear(label: str, *values: Values) -> Axis:
    """Return a linear axis that holds zero and the values."""
    numbers = np.concatenate([np.asarray(each, np.float64) for each in values])
    low, high = float(numbers.min(initial=0.0)), float(numbers.max(initial=0.0))
    return Axis(label, low, high if high > low else low + 1.0, "linear")


def error_figure(errors: Mapping[str, Sequence[float]], levels: Sequence[str], what: str) -> str:
    """Return mean errors by level, one line a method; ``what`` names the error with its unit."""
    # A logarithmic axis has no zero: an exact answer is drawn at its low end.
    lines = {
        name: [(float(level), max(0.5, value)) for level, value in enumerate(values)] for name, values in errors.items()
    }
    y = Axis.over(what, [value for points in lines.values() for _, value in points])
    x = Axis("level", 0.0, max(1.0, len(levels) - 1.0), "linear", tuple(levels))
    return line_chart(lines, x, y, "Mean error by level and method; the table has the figures")
