"""Every method on every case, level and epsilon, several seeds: the rows, the table and the curves of an experiment."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from coco_experiments.curves import AxisStyle, Curve, CurvePanel, draw
from coco_experiments.kuo2018.cases import Case
from coco_experiments.kuo2018.draws import Draws, Levels, errors_by_level, omniscient_line, split_evenly
from coco_experiments.kuo2018.methods import Method
from coco_experiments.outcome import Cell, Outcome, Reporter, Statement, Table, write_csv
from coco_experiments.plots import Panel, comparison
from coco_experiments.statistics import Mean

SEEDS = tuple(range(2018, 2028))  # ten, as in the paper
SMALL_SEEDS = SEEDS[:2]
BARS = "Bars and standard errors: sample standard deviation over the runs / sqrt(runs), one of it, as in the paper."
SEEDED = "Noise is seeded (NOT PRIVATE) and independent between regions."
COLUMNS = (
    "data",
    "total epsilon",
    "epsilon a level",
    "level",
    "method",
    "measured",
    "standard error",
    "runs",
    "omniscient",
    "best",
)


@dataclass(frozen=True, slots=True)
class Point:
    """One method on one case at one total epsilon: a mean a level, and the omniscient line next to it."""

    case: str
    epsilon: Fraction
    method: str
    consistent: bool
    means: tuple[Mean, ...]
    line: Levels
    seconds: float


def sweep(
    case: Case, methods: Sequence[Method], epsilons: Sequence[Fraction], seeds: Sequence[int], reporter: Reporter
) -> list[Point]:
    """Return one point a method and total epsilon; methods of one seed share its noise where they can.

    ``seconds`` of a point is the time of its runs, noise included where it was the first to ask for it.
    """
    points: list[Point] = []
    for number, epsilon in enumerate(epsilons):
        errors: dict[str, list[Levels]] = {method.name: [] for method in methods}
        seconds = dict.fromkeys(errors, 0.0)
        for done, seed in enumerate(seeds):
            draws = Draws(case, seed)
            for method in methods:
                if method.most_runs is None or done < method.most_runs:
                    begin = time.perf_counter()
                    errors[method.name].append(errors_by_level(case, method.run(draws, epsilon)))
                    seconds[method.name] += time.perf_counter() - begin
            reporter.progress(case.name, number * len(seeds) + done + 1, len(seeds) * len(epsilons))
        line = omniscient_line(case, split_evenly(epsilon, case.levels))
        points += [
            Point(
                case.name,
                epsilon,
                entry.name,
                entry.consistent,
                means_of(errors[entry.name]),
                line,
                seconds[entry.name],
            )
            for entry in methods
        ]
    return points


def means_of(runs: Sequence[Levels]) -> tuple[Mean, ...]:
    """Return one mean a level."""
    return tuple(Mean.of(values) for values in zip(*runs, strict=True))


def table_of(title: str, points: Sequence[Point], notes: Sequence[str] = ()) -> Table:
    """Return one row a case, epsilon, level and method; the best consistent one of each level is marked."""
    rows = [row for group in _groups(points) for row in _rows(group)]
    return Table(title, COLUMNS, tuple(rows), (SEEDED, BARS, *notes))


def _groups(points: Sequence[Point]) -> list[list[Point]]:
    groups: dict[tuple[str, Fraction], list[Point]] = {}
    for point in points:
        groups.setdefault((point.case, point.epsilon), []).append(point)
    return list(groups.values())


def _rows(group: Sequence[Point]) -> list[tuple[Cell, ...]]:
    levels = len(group[0].line)
    consistent = [point for point in group if point.consistent]
    least = [min(point.means[level].value for point in consistent) for level in range(levels)]
    return [
        (
            point.case,
            float(point.epsilon),
            float(point.epsilon) / levels,
            level,
            point.method,
            point.means[level].value,
            point.means[level].standard_error,
            point.means[level].runs,
            point.line[level],
            point.consistent and point.means[level].value == least[level],
        )
        for level in range(levels)
        for point in group
    ]


def best_table(title: str, points: Sequence[Point], notes: Sequence[str] = ()) -> Table:
    """Return one row a case, epsilon and level: the best method, its error, and the omniscient line."""
    rows = [
        (*row[:4], row[4], mean.value, mean.standard_error, line, mean.value / line if line else None)
        for group in _groups(points)
        for row, mean, line in zip(_rows(group), *_means_and_lines(group), strict=True)
        if row[9]
    ]
    columns = (*COLUMNS[:4], "best method", "measured", "standard error", "omniscient", "times omniscient")
    return Table(title, columns, tuple(rows), tuple(notes))


def _means_and_lines(group: Sequence[Point]) -> tuple[list[Mean], list[float]]:
    """Return each row's mean and omniscient error, in the order of ``_rows``."""
    cells = [(point.means[level], point.line[level]) for level in range(len(group[0].line)) for point in group]
    return [mean for mean, _ in cells], [line for _, line in cells]


def curves(path: Path, points: Sequence[Point]) -> list[Path]:
    """Draw error against epsilon a level: a row a case, a column a level, a line a method; return the files."""
    rows: list[list[CurvePanel]] = []
    for case in dict.fromkeys(point.case for point in points):
        own = [point for point in points if point.case == case]
        rows.append([_panel(case, level, own) for level in range(len(own[0].line))])
    return draw(path, rows, AxisStyle("epsilon a level", "mean earth mover's\ndistance (entities)"))


def _panel(case: str, level: int, points: Sequence[Point]) -> CurvePanel:
    drawn = []
    for method in dict.fromkeys(point.method for point in points):
        own = [point for point in points if point.method == method]
        drawn.append(
            Curve(
                method,
                tuple(float(point.epsilon) / len(point.line) for point in own),
                tuple(point.means[level].value for point in own),
                tuple(point.means[level].standard_error or 0.0 for point in own),
            )
        )
    line = {float(point.epsilon) / len(point.line): point.line[level] for point in points}
    drawn.append(Curve("omniscient", tuple(line), tuple(line.values()), theory=True))
    return CurvePanel(f"{case}, level {level}", tuple(drawn))


def level_figure(path: Path, means: Mapping[str, Mapping[str, Sequence[Mean]]]) -> list[Path]:
    """Draw mean errors by level, a panel a case, a mark a method, with standard errors; return the files."""
    panels = {
        case: Panel(
            tuple(f"level {level}" for level in range(max(map(len, methods.values())))),
            {name: tuple(mean.value for mean in levels) for name, levels in methods.items()},
            {name: tuple(mean.standard_error for mean in levels) for name, levels in methods.items()},
        )
        for case, methods in means.items()
    }
    return comparison(path, panels, "mean distance (entities) a region", log=True)


@dataclass(frozen=True, slots=True)
class Sweep:
    """A declared experiment: cases with their methods and number of runs, total epsilons, and what is made of them.

    ``cases`` and ``epsilons`` are those of the real data or, small, of simulated ones; ``summaries`` are tables of all
    points, ``drawn`` says which methods the curves show, and ``claims`` hold them against the paper's sentences.
    ``{runs}`` in the title is the number of seeds.
    """

    name: str
    title: str
    cases: Callable[[Path | None, bool], Sequence[tuple[Case, Sequence[Method], int]]]
    epsilons: Callable[[bool], Sequence[Fraction]]
    summaries: Callable[[Sequence[Point]], Sequence[Table]]
    notes: tuple[str, ...] = ()
    drawn: Callable[[str], bool] = lambda _: True
    claims: Callable[[Sequence[Point]], Sequence[Statement]] = lambda _: ()

    def run(self, *, small: bool, out: Path, reporter: Reporter, data: Path | None = None) -> Outcome:
        """Measure, print and write every table, the full one under the experiment's own name, and the curves."""
        points: list[Point] = []
        seeds = SMALL_SEEDS if small else SEEDS
        for case, methods, runs in self.cases(data, small):
            points += sweep(case, methods, self.epsilons(small), seeds[:runs], reporter)
        full = table_of(self.title.format(runs=len(seeds)), points, self.notes)
        summaries = self.summaries(points)
        files = [write_csv(out / f"{self.name}.csv", full)]
        for number, table in enumerate(summaries, 1):
            files.append(write_csv(out / f"{self.name}_summary{number if number > 1 else ''}.csv", table))
            reporter.table(table)
        reporter.note(f"Every method's error ({len(full.rows)} rows, bars included) is in {self.name}.csv.")
        for note in full.notes:
            reporter.note(note)
        shown = [point for point in points if self.drawn(point.method)]
        files += curves(out / self.name, shown)
        return Outcome((full, *summaries), tuple(files), statements=tuple(self.claims(points)))
