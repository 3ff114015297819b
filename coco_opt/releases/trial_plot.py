"""The picture of ``coco-opt compare --vary``: errors by level, against a key of numbers where there is one."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

from coco_opt.releases.trials import Trial, Trials
from coco_opt.report.style import PAGE, fitted_legend, plain, saved, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLUMNS = 3  # panels next to each other
_HEIGHT = 2.4  # inches of a panel


@styled()
def draw_trials(path: Path, trials: Trials) -> list[Path]:
    """Write ``path``.png and ``path``.pdf, a panel a level, with standard errors; return the files."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    rows = [trial for trial in trials.rows if trial.means]
    key = _key_of_numbers(rows)
    columns = min(_COLUMNS, len(trials.levels))
    lines = -(-len(trials.levels) // columns)
    figure = Figure(figsize=(PAGE, 0.6 + _HEIGHT * lines), layout="constrained")
    FigureCanvasAgg(figure)
    for level, name in enumerate(trials.levels):
        axes = figure.add_subplot(lines, columns, level + 1)
        axes.set_title(name)
        _draw(axes, rows, level, key)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    if len(labels) > 1:
        fitted_legend(figure, dict(zip(labels, handles, strict=True)), 4, loc="outside upper center")
    figure.supylabel("mean error", fontsize="medium")
    figure.supxlabel(key, fontsize="medium")
    return saved(figure, path)


def _key_of_numbers(rows: list[Trial]) -> str:
    """Return the first key with several values that are all positive numbers, "" without one."""
    for key in rows[0].values if rows else ():
        values = {trial.values[key] for trial in rows}
        if len(values) > 1 and all(_number(value) > 0 for value in values):
            return key
    return ""


def _number(text: str) -> float:
    """Return a number, 0 for another text."""
    try:
        return float(Fraction(text))
    except (ValueError, ZeroDivisionError):
        return 0.0


def _draw(axes: Axes, rows: list[Trial], level: int, key: str) -> None:
    """Draw a line for each combination of the other keys; without a key of numbers, a place for each."""
    names = [", ".join(value for other, value in trial.values.items() if other != key) for trial in rows]
    for number, name in enumerate(dict.fromkeys(names)):
        some = [trial for trial, combination in zip(rows, names, strict=True) if combination == name]
        x = [_number(trial.values[key]) for trial in some] if key else [float(number)] * len(some)
        y, bars = [trial.means[level] for trial in some], [trial.standard_errors[level] for trial in some]
        axes.errorbar(x, y, bars, marker="o", markersize=4, linewidth=1.1, capsize=2, label=name)
    if key:
        axes.set_xscale("log")
        axes.set_yscale("log")
        plain(axes.xaxis)
        plain(axes.yaxis)
    else:
        axes.set_xticks([])
        axes.set_xlim(-0.5, len(set(names)) - 0.5)
        axes.set_ylim(0.0, 1.05 * axes.get_ylim()[1])
    axes.grid(alpha=0.3)
