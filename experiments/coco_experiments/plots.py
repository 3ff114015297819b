"""Measured next to reference and published values, a row a label, written without a display."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from coco_experiments.looks import Look, looks
from coco_opt.report.style import PAGE, fitted_legend, plain, saved, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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
        axes.set_xlim(left=min(0.0, axes.get_xlim()[0]))
    axes.set_yticks(range(len(panel.labels)), panel.labels)
    axes.set_ylim(len(panel.labels) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", alpha=0.3)
