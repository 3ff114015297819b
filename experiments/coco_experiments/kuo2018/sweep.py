"""Methods on cases at several total epsilons: the points, the tables and the curves of figures 4 to 6."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

import numpy as np

from coco_experiments.curves import AxisStyle, Curve, CurvePanel, draw, level_title
from coco_experiments.groups import BARS, SEEDED, Case, Levels, evenly, means_of
from coco_experiments.kuo2018.methods import Draws, Method
from coco_experiments.outcome import Record, Statement, Table
from coco_experiments.plots import without_repeats
from coco_experiments.statistics import Mean
from coco_experiments.study import Report, Runs, Study
from coco_opt.privacy import Cost, Sensitivity

SEEDS = tuple(range(2018, 2028))  # ten, as in the paper
SMALL_SEEDS = SEEDS[:2]
Found = dict[str, tuple[Levels, float]]
"""One seed's errors by level and seconds, by method."""


@dataclass(frozen=True, eq=False, slots=True)
class Setting:
    """A case, the methods that run on it, and the total epsilon."""

    case: Case
    methods: Sequence[Method]
    epsilon: Fraction


@dataclass(frozen=True, slots=True)
class Point:
    """One method on one case at one total epsilon: a mean a level, the omniscient line next to it, seconds a run."""

    case: str
    epsilon: Fraction
    method: str
    consistent: bool
    means: tuple[Mean, ...]
    line: Levels
    seconds: float


def omniscient(case: Case, costs: Sequence[Cost]) -> Levels:
    """Return the error (entities a region) by level of a method that knows which sizes occur where, and noises those.

    A region of d distinct sizes costs d standard deviations of noise, d sqrt(2) / epsilon for Laplace noise; a level's
    line is the mean over its regions, infinite where it has no budget. Kuo et al. 2018, section 6.2, "Interpreting
    error".
    """
    means = case.by_level(np.array([histogram.distinct for histogram in case.truth], dtype=np.float64))
    noise = (np.sqrt(cost.distribution(Sensitivity(1, 1)).nominal_variance) if cost else np.inf for cost in costs)
    # A level without groups has no error, whatever its noise.
    return tuple(float(mean * deviation) if mean else 0.0 for mean, deviation in zip(means, noise, strict=True))


def measure(setting: Setting, seed: int) -> Found:
    """Return what the methods make of one seed's noise, which they share where they can.

    A method's seconds include the noise where it was the first to ask for it.
    """
    draws, found = Draws(setting.case, seed), {}
    for method in setting.methods:
        if method.most_runs is None or SEEDS.index(seed) < method.most_runs:
            begin = time.perf_counter()
            errors = setting.case.errors(method.run(draws, setting.epsilon))
            found[method.name] = errors, time.perf_counter() - begin
    return found


def points_of(results: Sequence[Runs[Setting, Found]]) -> list[Point]:
    """Return one point a case, total epsilon and method."""
    points = []
    for runs in results:
        case, epsilon = runs.case.case, runs.case.epsilon
        line = omniscient(case, evenly(epsilon, case.levels))
        for method in runs.case.methods:
            found = [by_method[method.name] for by_method in runs.found if method.name in by_method]
            errors, seconds = zip(*found, strict=True)
            pace = sum(seconds) / len(seconds)
            points.append(Point(case.name, epsilon, method.name, method.consistent, means_of(errors), line, pace))
    return points


def table_of(title: str, points: Sequence[Point], notes: Sequence[str] = ()) -> Table:
    """Return one row a case, epsilon, level and method; the best consistent one of each level is marked."""
    return Table.of(title, (row for group in _groups(points) for row in _rows(group)), (SEEDED, BARS, *notes))


def _groups(points: Sequence[Point]) -> list[list[Point]]:
    groups: dict[tuple[str, Fraction], list[Point]] = {}
    for point in points:
        groups.setdefault((point.case, point.epsilon), []).append(point)
    return list(groups.values())


def _rows(group: Sequence[Point]) -> list[Record]:
    levels = range(len(group[0].line))
    least = [min(point.means[level].value for point in group if point.consistent) for level in levels]
    return [
        {
            "data": point.case,
            "total epsilon": float(point.epsilon),
            "epsilon a level": float(point.epsilon) / len(levels),
            "level": level,
            "method": point.method,
            **point.means[level].cells(),
            "runs": point.means[level].runs,
            "omniscient": point.line[level],
            "best": point.consistent and point.means[level].value == least[level],
        }
        for level in levels
        for point in group
    ]


def best_rows(points: Sequence[Point]) -> list[Record]:
    """Return one row a case, epsilon and level: the best consistent method, its error, and the omniscient line."""
    rows = []
    for row in (row for group in _groups(points) for row in _rows(group) if row["best"]):
        error, line = float(row["measured"] or 0.0), float(row["omniscient"] or 0.0)
        shown = {("best method" if name == "method" else name): cell for name, cell in row.items()}
        del shown["runs"], shown["best"]
        rows.append({**shown, "times omniscient": error / line if line else None})
    return rows


def best_table(title: str, points: Sequence[Point]) -> Table:
    """Return the best consistent method of each case, epsilon and level."""
    return Table.of(title, best_rows(points))


def curves(path: Path, points: Sequence[Point]) -> list[Path]:
    """Draw error against epsilon a level: a row a case, a column a level, a line a method; return the files."""
    rows: list[list[CurvePanel]] = []
    if len({len(point.line) for point in points}) > 1:  # one name and look for all rows
        points = [replace(point, method=without_repeats(point.method)) for point in points]
    for case in dict.fromkeys(point.case for point in points):
        own = [point for point in points if point.case == case]
        rows.append([_panel(case, level, own) for level in range(len(own[0].line))])
    return draw(path, rows, AxisStyle("epsilon a level", "mean earth mover's\ndistance (entities)"))


def _panel(case: str, level: int, points: Sequence[Point]) -> CurvePanel:
    drawn = []
    for method in dict.fromkeys(point.method for point in points):
        own = [point for point in points if point.method == method]
        x, means = [float(point.epsilon) / len(point.line) for point in own], [point.means[level] for point in own]
        drawn.append(Curve(method, x, [mean.value for mean in means], [mean.standard_error or 0.0 for mean in means]))
    line = {float(point.epsilon) / len(point.line): point.line[level] for point in points}
    drawn.append(Curve("omniscient", tuple(line), tuple(line.values()), theory=True))
    return CurvePanel(level_title(case, level), tuple(drawn))


def sweep(
    name: str,
    title: str,
    cases: Callable[[Path | None, bool], Sequence[tuple[Case, Sequence[Method], int]]],
    epsilons: Callable[[bool], Sequence[Fraction]],
    summaries: Callable[[Sequence[Point]], Sequence[Table]],
    notes: Sequence[str] = (),
    drawn: Callable[[str], bool] = lambda _: True,
    claims: Callable[[Sequence[Point]], Sequence[Statement]] = lambda _: (),
) -> Study[Setting, Found]:
    """Return the study of methods on cases, each with its number of runs, at several total epsilons.

    ``summaries`` are tables of all points, ``drawn`` says which methods the curves show, and ``claims`` hold them
    against the paper's sentences. ``{runs}`` in the title is the number of seeds.
    """

    def plan(data: Path | None, small: bool) -> list[tuple[Setting, Sequence[int]]]:
        return [
            (Setting(case, methods, epsilon), (SMALL_SEEDS if small else SEEDS)[:runs])
            for case, methods, runs in cases(data, small)
            for epsilon in epsilons(small)
        ]

    def report(results: Sequence[Runs[Setting, Found]], path: Path) -> Report:
        points = points_of(results)
        most = max(len(runs.seeds) for runs in results)
        tables = {"": table_of(title.format(runs=most), points, notes)}
        for number, table in enumerate(summaries(points), 1):
            tables[f"_summary{number if number > 1 else ''}"] = table
        figures = curves(path, [point for point in points if drawn(point.method)])
        return Report(tables, figures, statements=claims(points))

    return Study(name, plan, measure, report)
