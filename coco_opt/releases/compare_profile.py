"""The performance profile of ``coco-opt compare``: how many problems each solver solves, and how fast, as a picture."""

from __future__ import annotations

from pathlib import Path

from coco_opt.releases.compare import Comparison, Row
from coco_opt.report.style import PAGE, plain, saved, styled
from coco_opt.solution import Status

AUTO = "auto (fast exact)"
_FLOOR = 1e-7  # seconds: the resolution of a clock


@styled()
def draw_profiles(path: Path, comparison: Comparison) -> list[Path]:
    """Write ``path``.png and ``path``.pdf with a curve a solver; return the files."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(PAGE, PAGE / 2), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for name, points in profiles(comparison).items():
        axes.step(*zip(*points, strict=True), where="post", label=name)
    axes.set(
        xscale="log", ylim=(0.0, 1.02), xlabel="times the fastest solver's seconds", ylabel="share of the problems"
    )
    plain(axes.xaxis)
    figure.legend(loc="outside right upper")
    return saved(figure, path)


def profiles(comparison: Comparison) -> dict[str, list[tuple[float, float]]]:
    """Return each solver's profile: factors of the fastest time, rising, and the share of the problems within them.

    The fast exact solvers, one for each kind of problem, together are ``AUTO``, what is used where none is chosen.
    Source: Dolan and Moré 2002, equation 2.1, over the problems at their full size.
    """
    factors: dict[str, list[float]] = {}
    kinds = list(dict.fromkeys(row.problem for row in comparison.rows))
    for kind in kinds:
        solved = _solved(kind, comparison)
        fastest = min((_seconds(row) for row in solved), default=_FLOOR)
        auto = next(row.solver for row in comparison.rows if row.problem == kind)
        for row in solved:
            factors.setdefault(AUTO if row.solver == auto else row.solver, []).append(_seconds(row) / fastest)
    last = max((value for values in factors.values() for value in values), default=1.0)
    return {
        name: [
            (1.0, sum(value <= 1.0 for value in values) / len(kinds)),
            *((value, (k + 1) / len(kinds)) for k, value in enumerate(sorted(values)) if value > 1.0),
            (last, len(values) / len(kinds)),
        ]
        for name, values in factors.items()
    }


def _solved(kind: str, comparison: Comparison) -> list[Row]:
    """Return the certified answers to a problem at its full size."""
    rows = [row for row in comparison.rows if row.problem == kind and not row.planted]
    full = max(row.unknowns for row in rows)
    return [row for row in rows if row.status == Status.OPTIMAL.name and row.unknowns == full]


def _seconds(row: Row) -> float:
    return max(_FLOOR, row.seconds or 0.0)
