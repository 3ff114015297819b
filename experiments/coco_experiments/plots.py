"""Measured beside reference and published values, written without a display."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

Values = tuple[float | None, ...]

PAGE = 7.2
"""Inches across a page of text: figures are drawn at the size at which they are read."""
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#8c6d31", "#777777", "#6a3d9a")
"""Okabe and Ito's palette, told apart with any kind of sight, and three more."""
MARKS = "osD^v<>Pdh*"
_MANY_DECADES = 300.0
_STYLE: Any = {
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 9.0,
    "axes.labelsize": 8.0,
    "font.size": 8.0,
    "legend.frameon": False,
    "pdf.fonttype": 42,
    "svg.fonttype": "none",
}


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel: a place for each label, one mark a series; None leaves a gap; ``errors`` are half-lengths."""

    labels: tuple[str, ...]
    series: Mapping[str, Values]
    errors: Mapping[str, Values] = field(default_factory=dict)


@contextmanager
def styled() -> Iterator[None]:
    """Draw in the style of every figure: colours told apart by all, no frame, and text that stays text in a PDF."""
    from matplotlib import rc_context
    from matplotlib.rcsetup import cycler

    with rc_context({**_STYLE, "axes.prop_cycle": cycler(color=COLOURS)}):
        yield


def width_of(columns: int) -> float:
    """Return the inches across a figure of panels side by side: a page of text for two or three, a part for one."""
    return 4.6 if columns == 1 else max(PAGE, 2.4 * columns)


def plain(axis: Axis) -> None:
    """Label a logarithmic axis 10, 100, 1,000, and between them only where it spans little."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    low, high = sorted(axis.get_view_interval())
    few = low > 0 and high / low < _MANY_DECADES
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if few else (1.0,)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}" if value >= 1 else f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


@styled()
def comparison(path: Path, panels: Mapping[str, Panel], xlabel: str, *, log: bool = False) -> list[Path]:
    """Write ``path``.png and ``path``.pdf, a row a label, at the width of a page of text; return the files.

    A linear axis starts at zero. Neighbouring panels with the same labels name them once.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(name for panel in panels.values() for name in panel.series))
    columns = min(2, len(panels))
    rows = -(-len(panels) // columns)
    tallest = max(len(panel.labels) for panel in panels.values())
    each = 0.5 + tallest * max(0.2, 0.11 * len(names))
    figure = Figure(figsize=(PAGE, 0.7 + rows * each), layout="constrained")
    FigureCanvasAgg(figure)
    shown = list(panels.values())
    for place, (title, panel) in enumerate(panels.items()):
        axes = figure.add_subplot(rows, columns, place + 1)
        _draw(axes, panel, names, log=log)
        axes.set_title(title)
        axes.set_xlabel(xlabel if place >= len(panels) - columns else "")
        if place % columns and panel.labels == shown[place - 1].labels:
            axes.tick_params(labelleft=False)
    handles = {
        label: handle for axes in figure.axes for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    figure.legend(list(handles.values()), list(handles), loc="outside upper center", ncols=min(4, len(names)))
    return saved(figure, path)


def _draw(axes: Axes, panel: Panel, names: Sequence[str], *, log: bool) -> None:
    """Draw one panel; a series has the colour and mark of its place in ``names``, the same in every panel."""
    apart = 0.7 / max(1, len(panel.series))
    for number, (name, values) in enumerate(panel.series.items()):
        shown = [(i, value) for i, value in enumerate(values) if value is not None]
        lengths = panel.errors.get(name)
        whiskers = None if lengths is None else [lengths[i] or 0.0 for i, _ in shown]
        places = [i + (number - (len(panel.series) - 1) / 2) * apart for i, _ in shown]
        style = names.index(name)
        axes.errorbar(
            [value for _, value in shown],
            places,
            xerr=whiskers,
            fmt=MARKS[style % len(MARKS)],
            color=f"C{style % len(COLOURS)}",
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


@styled()
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
    height = header + 2.5 * len(rows)
    figure = Figure(figsize=(width_of(width), height))
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
            if yscale == "log":
                plain(axes.yaxis)
            axes.set_title(panel.title, fontsize=9)
            axes.set_ylabel(ylabel if place == 0 else "", fontsize=8)
            axes.set_xlabel(xlabel if number == len(rows) - 1 else "")
            _ticks(axes, panel, xscale)
            axes.grid(alpha=0.3)
    figure.legend([handles[name] for name in names], names, loc="upper center", ncols=3, fontsize=8)
    return saved(figure, path)


def _ticks(axes: Axes, panel: LinePanel, xscale: str) -> None:
    axes.tick_params(which="both", labelsize=7)
    points = sorted({x for line in panel.lines for x in line.x})
    if xscale == "log" and len(points) <= 8:
        axes.set_xticks(points, [f"{x:.3g}" for x in points])
        axes.set_xticks([], minor=True)


def _line(axes: Axes, line: Line, number: int, *, marks: bool) -> Artist:
    colour = f"C{number % len(COLOURS)}"
    if not line.errors:
        return axes.plot(line.x, line.y, "--" if marks else "-", color=colour, linewidth=1.0)[0]
    mark = MARKS[number % len(MARKS)]
    drawn = axes.errorbar(
        line.x, line.y, line.errors, color=colour, marker=mark, markersize=4, linewidth=1.0, capsize=2
    )
    return drawn.lines[0]


def saved(figure: Figure, path: Path) -> list[Path]:
    """Write a figure as ``path``.png and ``path``.pdf; return the files."""
    path.parent.mkdir(parents=True, exist_ok=True)
    files = [path.with_name(f"{path.name}.{kind}") for kind in ("png", "pdf")]
    for file in files:
        # Without dates the same numbers give the same file.
        metadata = {"Software": None} if file.suffix == ".png" else {"CreationDate": None}
        figure.savefig(file, dpi=150, metadata=metadata)
        # The layout found for the first file is the second one's: finding it takes a third of the drawing.
        figure.set_layout_engine("none")
    return files
