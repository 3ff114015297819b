"""Measured next to reference and published values, a row a label, written without a display.

A method has one colour and one mark, the same in all figures of all papers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from coco_opt.report.style import COLOURS, MARKS, PAGE, fitted_legend, plain, saved, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SAME = re.compile(r"\b(\w+)(?: x \1)+\b")
# What is said of a method without changing it: it keeps its colour.
_ASIDE = re.compile(r"^(?:exact|bound) | unrounded$| zeroed$| exact nonnegative$|[:,].*$")
_PUBLISHED = "x"  # the mark of values read off a paper
_PLACES = {
    "measured": 0,
    "published": 6,
    "reference": 2,
    "independent": 0,
    "one seed (NOT PRIVATE)": 1,
    "matching": 0,
    "matching Hc": 0,
    "matching Hg": 1,
    "matching Hc x Hg": 2,
    "matching Hg x Hc": 3,
    "Hc matching": 0,
    "Hg matching": 1,
    "no consistency Hc": 5,
    "no consistency Hg": 4,
    "Hc alone": 5,
    "Hg alone": 4,
    "bottom-up": 6,
    "bottom-up Hc": 6,
    "joint": 7,
    "Hc joint": 7,
    "joint p = 1": 7,
    "posterior": 2,
    "relative entropy": 4,
    "joint p = 2": 9,
    "Hc convex program": 2,
    "omniscient": 8,
    "equal": 8,
    "budget": 8,
    "H-bar": 0,
    "H-bar zeroed, by leaves": 3,
    "H-bar exact nonnegative": 4,
    "H~": 1,
    "L~": 2,
    "S-bar": 0,
    "S~": 1,
    "S~r": 4,
    "true counts": 6,
    "Theorem 4 (iii)": 8,
    "Theorem 4 (iv)": 8,
    "Theorem 2": 8,
    "bound of Appendix E": 8,
    "GDPC": 0,
    "RDPC": 1,
    "ADPC": 2,
}


@dataclass(frozen=True, slots=True)
class Look:
    """A colour, a mark, and whether it is ``hollow``: another variant of the method is drawn full."""

    colour: str
    mark: str
    hollow: bool = False


def method_of(name: str) -> str:
    """Return the method behind a series' name: "matching Hc x Hc, average half up" is "matching Hc"."""
    if name in _PLACES:
        return name
    short = without_repeats(name)
    while short not in _PLACES and (shorter := _ASIDE.sub("", short)) != short:
        short = shorter
    return short


def without_repeats(name: str) -> str:
    """Return the name of a method that has one estimator at all levels, however many: "matching Hc"."""
    return _SAME.sub(r"\1", name)


def looks(names: Iterable[str]) -> dict[str, Look]:
    """Return the look of every series: that of its method, or a free look; of variants all but the first are hollow."""
    methods = {name: method_of(name) for name in names}
    places = {method: _PLACES[method] for method in methods.values() if method in _PLACES}
    free = [place for place in range(len(COLOURS)) if place not in places.values()] or list(range(len(COLOURS)))
    unknown = [method for method in dict.fromkeys(methods.values()) if method not in places]
    places |= {method: free[k % len(free)] for k, method in enumerate(unknown)}
    seen: set[str] = set()
    shown = {}
    for name, method in methods.items():
        mark = _PUBLISHED if name == "published" else MARKS[places[method]]
        shown[name] = Look(COLOURS[places[method]], mark, method in seen)
        seen.add(method)
    return shown


Values = tuple[float | None, ...]

_MOST_IN_A_LEGEND = 4
_LONG = 30  # letters of a label


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel: a place for each label, one mark a series; None leaves a gap; ``errors`` are half-lengths."""

    labels: tuple[str, ...]
    series: Mapping[str, Values]
    errors: Mapping[str, Values] = field(default_factory=dict)


@styled()
def comparison(path: Path, panels: Mapping[str, Panel], xlabel: str, *, log: bool = False) -> list[Path]:
    """Write ``path``.png and ``path``.pdf, a row a label, at the width of a page of text; return the files.

    A linear axis starts at zero. Neighbouring panels with the same labels name them once. A legend names few series;
    of many each has rows of its own, named next to them.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    names = [
        name
        for name in dict.fromkeys(name for panel in panels.values() for name in panel.series)
        if any(value is not None for panel in panels.values() for value in panel.series.get(name, ()))
    ]
    named = len(names) > _MOST_IN_A_LEGEND
    shown = [_rows_of_series(panel) if named else panel for panel in panels.values()]
    columns = 1 if _too_wide(shown) else min(2, len(panels))
    rows = -(-len(panels) // columns)
    tallest = max(len(panel.labels) for panel in shown)
    each = 0.5 + tallest * (0.15 if named else max(0.2, 0.11 * len(names)))
    figure = Figure(figsize=(PAGE, 0.7 + rows * each), layout="constrained")
    FigureCanvasAgg(figure)
    for place, (title, panel) in enumerate(zip(panels, shown, strict=True)):
        axes = figure.add_subplot(rows, columns, place + 1)
        _draw(axes, panel, looks(names), log=log, apart=not named)
        axes.set_title(title)
        if place % columns and panel.labels == shown[place - 1].labels:
            axes.tick_params(labelleft=False)
        if named:
            _bands(axes, panel.labels)
    figure.supxlabel(xlabel, fontsize="medium")
    if len(names) > 1 and not named:
        handles = {
            label: handle
            for axes in figure.axes
            for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
        }
        fitted_legend(figure, handles, 4, loc="outside upper center")
    return saved(figure, path)


def _too_wide(panels: Sequence[Panel]) -> bool:
    """Return whether panels side by side would leave no room next to their labels, which they do not share."""
    alike = all(panel.labels == panels[0].labels for panel in panels)
    return not alike and max(len(label) for panel in panels for label in panel.labels) > _LONG


def _rows_of_series(panel: Panel) -> Panel:
    """Return the panel with a row for every label and series: the label over them, the series' names next to them."""
    labels: list[str] = []
    series: dict[str, list[float | None]] = {name: [] for name in panel.series}
    errors: dict[str, list[float | None]] = {name: [] for name in panel.errors}
    for row, label in enumerate(panel.labels):
        labels += [label, *(f"  {name}" for name in panel.series)]
        for name, values in panel.series.items():
            series[name] += [None, *(values[row] if name == column else None for column in panel.series)]
            if name in errors:
                errors[name] += [
                    None,
                    *(panel.errors[name][row] if name == column else None for column in panel.series),
                ]
    return Panel(
        tuple(labels),
        {name: tuple(values) for name, values in series.items()},
        {name: tuple(values) for name, values in errors.items()},
    )


def _bands(axes: Axes, labels: Sequence[str]) -> None:
    """Tell the labels over groups of rows from the names of rows, by weight and by a line."""
    for text in axes.get_yticklabels():  # none next to a panel with the same labels
        text.set(fontsize=7, fontweight="normal" if text.get_text().startswith(" ") else "bold")
    for row, label in enumerate(labels):
        if not label.startswith(" "):
            axes.axhline(row, color="#dddddd", linewidth=0.8, zorder=0)


def _draw(axes: Axes, panel: Panel, styles: Mapping[str, Look], *, log: bool, apart: bool = True) -> None:
    """Draw one panel; a series has one look in every panel, ``apart`` from the others of its row."""
    own = [name for name in panel.series if name in styles]
    step = 0.7 / max(1, len(own)) if apart else 0.0
    for number, name in enumerate(own):
        shown = [(i, value) for i, value in enumerate(panel.series[name]) if value is not None]
        lengths = panel.errors.get(name)
        look = styles[name]
        axes.errorbar(
            [value for _, value in shown],
            [i + (number - (len(own) - 1) / 2) * step for i, _ in shown],
            xerr=None if lengths is None else [lengths[i] or 0.0 for i, _ in shown],
            fmt=look.mark,
            color=look.colour,
            markerfacecolor="white" if look.hollow else look.colour,
            markersize=4,
            linewidth=1.0,
            label=name,
            capsize=2,
        )
    if log:
        axes.set_xscale("log")
        plain(axes.xaxis)
    else:
        left, right = min(0.0, axes.get_xlim()[0]), axes.get_xlim()[1]
        axes.set_xlim(left, right + 0.03 * (right - left))  # no mark is cut in half
    axes.set_yticks(range(len(panel.labels)), panel.labels)
    axes.set_ylim(len(panel.labels) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", alpha=0.3)
