"""Measured beside reference and published values, written without a display."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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
    for place, (title, panel) in enumerate(panels.items(), 1):
        axes = figure.add_subplot(1, len(panels), place)
        _draw(axes, panel, log=log)
        axes.set_title(title)
        axes.set_ylabel(ylabel if place == 1 else "")
    handles, names = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside upper center", ncols=max(1, len(names)), fontsize=9)
    path.parent.mkdir(parents=True, exist_ok=True)
    files = [path.with_name(f"{path.name}.{kind}") for kind in ("png", "pdf")]
    for file in files:
        # Without dates the same numbers give the same file.
        metadata = {"Software": None} if file.suffix == ".png" else {"CreationDate": None}
        figure.savefig(file, dpi=150, metadata=metadata)
    return files


def _draw(axes: Axes, panel: Panel, *, log: bool) -> None:
    width = 0.8 / max(1, len(panel.series))
    for number, (name, values) in enumerate(panel.series.items()):
        shown = [(i, value) for i, value in enumerate(values) if value is not None]
        lengths = panel.errors.get(name)
        whiskers = None if lengths is None else [lengths[i] or 0.0 for i, _ in shown]
        places = [i + (number - (len(panel.series) - 1) / 2) * width for i, _ in shown]
        heights = [value for _, value in shown]
        if log:
            axes.errorbar(places, heights, whiskers, fmt="osD^"[number % 4], label=name, capsize=2)
        else:
            axes.bar(places, heights, width, yerr=whiskers, label=name, capsize=2)
    if log:
        axes.set_yscale("log")
    axes.set_xticks(range(len(panel.labels)), panel.labels, rotation=35, ha="right", fontsize=8)
    axes.grid(axis="y", alpha=0.3)
