"""The page of ``coco-opt compare``: how many problems each solver solves, how fast, and every row's figures."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

from coco_opt.files.versions import machine, versions
from coco_opt.releases.compare import Comparison, Row
from coco_opt.report.chart import Axis, line_chart
from coco_opt.report.html import GAP_NOTE, document, reading_section, table
from coco_opt.solution import Status

_HEADER = (
    "solver",
    "unknowns",
    "status",
    "seconds",
    "times the fastest",
    "objective - exact",
    "relative gap",
    "violation",
)
_PACKAGES = ("coco-opt", "numpy", "scipy", "numba", "highspy", "osqp", "piqp", "clarabel", "cvxpy")
AUTO = "auto (fast exact)"
_FLOOR = 1e-7  # seconds: the resolution of a clock
_NOTES = (
    (
        "Performance profile",
        "For every solver and every factor: the share of the problems for which it certified an answer within that "
        "factor of the fastest solver's seconds. High on the left is fast, high on the right is able. A problem that a "
        "solver cannot express, or received in a smaller cut, counts as not solved (Dolan and Moré 2002). Auto is the "
        "fast exact solver of each problem, the first of its table, which is used where no solver is chosen.",
    ),
    ("Objective - exact", "The objective minus the fast exact solver's on the same problem, divided by it or by one."),
    GAP_NOTE,
    (
        "Planted",
        "A wrong answer that every comparison plants, to see that the certificates catch it: it is not a solver.",
    ),
)


def render_comparison(comparison: Comparison) -> str:
    """Return a comparison as one HTML document without references to anything outside it."""
    caught = "was caught" if comparison.caught else "WAS NOT CAUGHT: do not trust these certificates"
    sections = [
        "<h1>Solvers side by side</h1>",
        f"<p>{escape(comparison.data[0].upper() + comparison.data[1:])}. The planted wrong answer {caught}.</p>",
        _profile(comparison),
        *(_problem(kind, comparison) for kind in dict.fromkeys(row.problem for row in comparison.rows)),
        reading_section(_NOTES),
        f"<footer>{escape(_machine())}</footer>",
    ]
    return document("Solvers side by side", sections)


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


def _profile(comparison: Comparison) -> str:
    curves = profiles(comparison)
    if not curves:
        return ""
    count = len({row.problem for row in comparison.rows})
    farthest = max(factor for points in curves.values() for factor, _ in points)
    x = Axis.over("times the fastest solver's seconds", (1.0, max(10.0, farthest)))
    chart = line_chart(
        curves, x, Axis("share of the problems", 0.0, 1.0, scale="linear"), _description(curves, count), steps=True
    )
    rows = [
        (name, *(f"{_share_at(points, factor):.0%}" for factor in (1, 10, 100, 1e9))) for name, points in curves.items()
    ]
    header = ("solver", "fastest", "within 10 times", "within 100 times", "ever")
    return f"<h2>Share of {count} problems solved, by time</h2>\n{chart}\n{table(header, rows)}"


def _description(curves: Mapping[str, list[tuple[float, float]]], count: int) -> str:
    shares = "; ".join(
        f"{name} {_share_at(points, 1.0):.0%} and {points[-1][1]:.0%}" for name, points in curves.items()
    )
    return f"Performance profile over {count} problems, fastest and ever certified: {shares}. The table below has it."


def _share_at(points: list[tuple[float, float]], factor: float) -> float:
    return max(share for reached, share in points if reached <= factor)


def _problem(kind: str, comparison: Comparison) -> str:
    fastest = min((_seconds(row) for row in _solved(kind, comparison)), default=None)
    full = max(row.unknowns for row in comparison.rows if row.problem == kind)
    rows = [
        (
            row.solver + (" (planted)" if row.planted else ""),
            f"{row.unknowns:,}",
            row.status.replace("_", " ").lower(),
            _figure(row.seconds),
            "-" if fastest is None or row.seconds is None or row.unknowns < full else f"{_seconds(row) / fastest:,.3g}",
            _figure(row.difference),
            _figure(row.relative_gap),
            _figure(row.violation),
        )
        for row in comparison.rows
        if row.problem == kind
    ]
    remarks = dict.fromkeys(f"{row.solver}: {row.note}" for row in comparison.rows if row.problem == kind and row.note)
    notes = f'<p class="note">{escape("; ".join(remarks))}.</p>' if remarks else ""
    return f"<h2>{escape(kind.replace('_', ' '))}</h2>\n{table(_HEADER, rows)}\n{notes}"


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def _machine() -> str:
    packages = ", ".join(f"{name} {number}" for name, number in versions(_PACKAGES).items() if name != "python")
    return f"One run on {machine()}: compare the times of one page only. {packages}."
