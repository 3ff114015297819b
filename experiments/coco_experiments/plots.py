"""Measured beside reference and published values, written without a display."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Values = tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel: a place for each label, one mark a series; None leaves a gap; ``errors`` are half-lengths."""

    labels: tuple[str, ...]
    series: Mapping[str, Values]
    errors: Mapping[str, Values] = field(default_factory=dict)


def comparison(path: Path, panels: Mapping[str, Panel], ylabel: str, *, log: bool = False) -> list[Path]:
    """Write ``path``.png and ``path``.pdf, one panel beside the other; return the files.

    Bars from zero on a linear axis; points on a logarithmic one, where a bar's length would mean nothing.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(1.5 + 4.2 * len(panels), 5.0), layout="constrained")
    FigureCanvasAgg(figure)
    names = list(dict.fromkeys(name for panel in panels.values() for name in panel.series))
    for place, (title, panel) in enumerate(panels.items(), 1):
        axes = figure.add_subplot(1, len(panels), place)
        _draw(axes, panel, names, log=log)
        axes.set_title(title)
        axes.set_ylabel(ylabel if place == 1 else "")
    handles = {
        label: handle for axes in figure.axes for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    columns = max(1, min(len(names), 2 * len(panels)))
    figure.legend(list(handles.values()), list(handles), loc="outside upper center", ncols=columns, fontsize=9)
    return _saved(figure, path)


def _draw(axes: Axes, panel: Panel, names: Sequence[str], *, log: bool) -> None:
    """Draw one panel; a series has the colour of its place in ``names``, the same in every panel."""
    width = 0.8 / max(1, len(panel.series))
    for number, (name, values) in enumerate(panel.series.items()):
        shown = [(i, value) for i, value in enumerate(values) if value is not None]
        lengths = panel.errors.get(name)
        whiskers = None if lengths is None else [lengths[i] or 0.0 for i, _ in shown]
        places = [i + (number - (len(panel.series) - 1) / 2) * width for i, _ in shown]
        heights = [value for _, value in shown]
        style = names.index(name)
        if log:
            mark, colour = "osD^v<>P"[style % 8], f"C{style % 10}"
            axes.errorbar(places, heights, whiskers, fmt=mark, color=colour, label=name, capsize=2)
        else:
            axes.bar(places, heights, width, yerr=whiskers, color=f"C{style % 10}", label=name, capsize=2)
    if log:
        axes.set_yscale("log")
    axes.set_xticks(range(len(panel.labels)), panel.labels, rotation=35, ha="right", fontsize=8)
    axes.grid(axis="y", alpha=0.3)


@dataclass(frozen=True, slots=True)
class Line:
    """A named line; ``errors`` are half-lengths of its bars, none for lines of theory, which are dashed."""

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    errors: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class LinePanel:
    """One panel of lines under a title."""

    title: str
    lines: tuple[Line, ...]


def lines(
    path: Path,
    rows: Sequence[Sequence[LinePanel]],
    xlabel: str,
    ylabel: str,
    *,
    xscale: str = "log",
    yscale: str = "log",
    marks: bool = True,
) -> list[Path]:
    """Write ``path``.png and ``path``.pdf, panels in rows of any length, one legend for all; return the files."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    width = max(len(row) for row in rows)
    names = list(dict.fromkeys(line.name for row in rows for panel in row for line in panel.lines))
    header = 0.5 + 0.2 * -(-len(names) // 3)
    height = header + 3.2 * len(rows)
    figure = Figure(figsize=(1.0 + 3.8 * width, height))
    FigureCanvasAgg(figure)
    # Set by hand: a constrained layout draws every panel several times, half a minute for a page of them.
    figure.subplots_adjust(left=0.09, right=0.98, bottom=0.6 / height, top=1.0 - (header + 0.2) / height, hspace=0.32)
    handles: dict[str, Artist] = {}
    for number, row in enumerate(rows):
        for place, panel in enumerate(row):
            axes = figure.add_subplot(len(rows), width, number * width + place + 1)
            axes.set_xscale(xscale)
            axes.set_yscale(yscale)
            for line in panel.lines:
                handles[line.name] = _line(axes, line, names.index(line.name), marks=marks)
            axes.set_title(panel.title, fontsize=9)
            axes.set_ylabel(ylabel if place == 0 else "", fontsize=8)
            axes.set_xlabel(xlabel if number == len(rows) - 1 else "")
            _ticks(axes, panel, xscale)
            axes.grid(alpha=0.3)
    figure.legend([handles[name] for name in names], names, loc="upper center", ncols=3, fontsize=8)
    return _saved(figure, path)


def _ticks(axes: Axes, panel: LinePanel, xscale: str) -> None:
    axes.tick_params(which="both", labelsize=7)
    points = sorted({x for line in panel.lines for x in line.x})
    if xscale == "log" and len(points) <= 8:
        axes.set_xticks(points, [f"{x:.3g}" for x in points])
        axes.set_xticks([], minor=True)


def _line(axes: Axes, line: Line, number: int, *, marks: bool) -> Artist:
    colour = f"C{number % 10}"
    if not line.errors:
        return axes.plot(line.x, line.y, "--" if marks else "-", color=colour, linewidth=1.0)[0]
    mark = "osD^v<>Pdh*"[number % 11]
    drawn = axes.errorbar(
        line.x, line.y, line.errors, color=colour, marker=mark, markersize=4, linewidth=1.0, capsize=2
    )
    return drawn.lines[0]


def _saved(figure: Figure, path: Path) -> list[Path]:
    path.parent.mkdir(parents=True, exist_ok=True)
    files = [path.with_name(f"{path.name}.{kind}") for kind in ("png", "pdf")]
    for file in files:
        # Without dates the same numbers give the same file.
        metadata = {"Software": None} if file.suffix == ".png" else {"CreationDate": None}
        figure.savefig(file, dpi=150, metadata=metadata)
    return files
