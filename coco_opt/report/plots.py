"""The report's figures: panels of dots, lines and bands as SVG within the page, in its light and dark colours."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from coco_opt.report.chart import Axis, Canvas, line_chart

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
