"""The style of all figures: colours that everybody can distinguish, plain numbers at ticks, real text in a PDF."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coco_opt.report.chart import tick

if TYPE_CHECKING:
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure
    from matplotlib.legend import Legend
    from matplotlib.text import Text

PAGE = 7.2
"""The width of a page of text in inches: figures are drawn at the size at which they are read."""
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#8c6d31", "#777777", "#6a3d9a")
"""Okabe and Ito's palette, distinguishable with any colour vision, and three more colours."""
MARKS = "osD^v<>Pdh"
_DOTS = 150  # an inch
_MANY_DECADES = 300.0
_TICKS = 6  # decades labelled along an axis
_LONGEST = (1e3, 1e4)  # before and after which labels are shorter
_LETTER = 0.07  # inches of a digit, wide ones and the space between two labels counted
_AFTER_LAYOUT = 0.6  # of a panel's width
_RAGGED = 4  # letters by which lines of a divided text may differ
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


@contextmanager
def styled() -> Iterator[None]:
    """Draw in the style of every figure."""
    from matplotlib import rc_context
    from matplotlib.rcsetup import cycler

    with rc_context({**_STYLE, "axes.prop_cycle": cycler(color=COLOURS)}):
        yield


def plain(axis: Axis) -> None:
    """Label a logarithmic or symmetric logarithmic axis 10, 100, 1,000; label between them only on a short axis."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    if axis.get_scale() == "log":
        low, high = sorted(axis.get_view_interval())
        letters = max(len(tick(value)) for value in (low, high, *_LONGEST) if low <= value <= high)
        upright = axis is axis.axes.yaxis
        room = math.inf if upright else width_of(axis) / (_LETTER * letters)
        few = low > 0 and high / low < _MANY_DECADES and room * math.log10(2.0) > math.log10(high / low)
        most = _TICKS if upright else min(_TICKS, max(2, round(room)))
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if few else (1.0,), numticks=most))
    axis.set_major_formatter(FuncFormatter(lambda value, _: tick(value)))
    axis.set_minor_formatter(NullFormatter())


def width_of(axis: Axis) -> float:
    """Return about how many inches wide a horizontal axis will be."""
    from matplotlib.figure import Figure

    figure = axis.axes.figure
    inches = axis.axes.get_window_extent().width / figure.dpi
    if isinstance(figure, Figure) and figure.get_layout_engine() is not None:  # labels of rows will take their part
        inches *= _AFTER_LAYOUT
    return inches


def wrapped(text: Text, inches: float) -> int:
    """Divide a text into as few lines as fit a width, if its words allow; return how many there are."""
    words, figure = text.get_text(), text.get_figure()
    assert figure is not None
    lines = math.ceil(text.get_window_extent().width / figure.dpi / inches)
    text.set_text(textwrap.fill(words, max(1, len(words) // lines + _RAGGED)) if lines > 1 else words)
    return text.get_text().count("\n") + 1


def fitted_legend(figure: Figure, handles: dict[str, Any], columns: int, **place: Any) -> Legend:
    """Return a legend above the panels, with at most ``columns`` columns, as many as fit the figure's width."""
    for several in range(min(columns, len(handles)), 0, -1):
        legend = figure.legend(list(handles.values()), list(handles), ncols=several, **place)
        if several == 1 or legend.get_window_extent().width <= figure.bbox.width:
            break
        legend.remove()
    return legend


def saved(figure: Figure, path: Path) -> list[Path]:
    """Write a figure as ``path``.png and ``path``.pdf, creating the folder; return the files."""
    path.parent.mkdir(parents=True, exist_ok=True)
    files = [path.with_name(f"{path.name}.{kind}") for kind in ("png", "pdf")]
    for file in files:
        # Without dates the same numbers give the same file.
        metadata = {"Software": None} if file.suffix == ".png" else {"CreationDate": None}
        figure.savefig(file, dpi=_DOTS, metadata=metadata)
        # The second file reuses the layout of the first: finding it takes a third of the drawing time.
        figure.set_layout_engine("none")
    return files
