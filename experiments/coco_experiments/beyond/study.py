"""Cases by ways from a budget to a table, on paired seeds: what the experiments beyond the papers share.

Ways that ask the same questions at the same epsilon read the same noise, seed by seed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from time import process_time

import numpy as np

from coco_experiments.beyond.questions import EPSILON, GROWTH, Questions, cells, leaves_alone
from coco_experiments.experiment import Cell, Outcome, Reporter, Table, write_csv
from coco_experiments.kuo2018.cases import Case, hawaii_case, small_cases, taxi_case, top
from coco_experiments.kuo2018.draws import Levels, errors_by_level
from coco_experiments.kuo2018.joint import TAXI_MAX_SIZE
from coco_experiments.kuo2018.sweep import BARS, SEEDED, means_of
from coco_experiments.plots import Panel
from coco_experiments.statistics import Mean
from coco_opt.choices import SolverChoices
from coco_opt.groups.estimated.estimate import GroupsResult, estimate_groups
from coco_opt.groups.estimated.method import Consistency, GroupsMethod
from coco_opt.histograms import CountOfCounts
from coco_opt.privacy import Measurement

MATCHING, JOINT, BOTTOM_UP = "matching, cells", "joint, cells", "bottom-up"
_KNOWN: dict[tuple[object, ...], tuple[GroupsResult, float]] = {}  # several experiments of a run ask for the same


@dataclass(frozen=True, slots=True)
class Way:
    """A way from a budget to a table: what is asked, how it is estimated, the total epsilon; ``setting`` what moves."""

    name: str
    consistency: Consistency
    questions: Questions
    epsilon: Fraction = EPSILON
    setting: str = ""


@dataclass(frozen=True, eq=False, slots=True)
class Result:
    """One way on one case: the errors by level and the processor seconds of every seed, and what did not hold."""

    case: Case
    way: Way
    errors: list[Levels] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    @property
    def means(self) -> tuple[Mean, ...]:
        """Return the mean error of each level."""
        return means_of(self.errors)

    def add(self, histograms: Sequence[CountOfCounts], seconds: float) -> None:
        """Keep one seed's table, and a failure where it does not add up."""
        self.errors.append(errors_by_level(self.case, histograms))
        self.seconds.append(seconds)
        tree = self.case.hierarchy
        for region in range(tree.regions):
            children = tree.children(region)
            if len(children) and not histograms[region].equals(CountOfCounts.total(histograms[c] for c in children)):
                name = f"{self.case.name}, {self.way.name}"
                self.failures.append(f"{name}: {tree.paths[region]} is not its children's sum")


def hawaii_to_tracts(folder: Path | None) -> Case:
    """Return Hawaii's state, counties and tracts by native Hawaiians a block: what several settings can afford."""
    return replace(top(hawaii_case(folder), 3), name="Hawaii to tracts")


def asked_cases(
    data: Path | None, taxi: tuple[float, ...] = (0.0,) * 3, *, small: bool
) -> list[tuple[Case, tuple[float, ...]]]:
    """Return a study's cases and how buckets grow in them, root first, Taxi's as stated; small: made data."""
    if small:
        return [(small_cases(30)[2], GROWTH[-3:])]
    return [(hawaii_to_tracts(data), GROWTH[:3]), (taxi_case(data, TAXI_MAX_SIZE), taxi)]


def usual_ways(case: Case, epsilon: Fraction = EPSILON, setting: str = "") -> list[Way]:
    """Return what other methods make of single cells: Algorithm 1, joint estimation, and bottom-up."""
    return [
        Way(MATCHING, "matching", cells(case), epsilon, setting),
        Way(JOINT, "joint", cells(case), epsilon, setting),
        Way(BOTTOM_UP, "bottom_up", leaves_alone(case), epsilon, setting),
    ]


def study(name: str, case: Case, ways: Sequence[Way], seeds: Sequence[int], reporter: Reporter) -> list[Result]:
    """Return what every way makes of one case under each seed."""
    results = [Result(case, way) for way in ways]
    for done, seed in enumerate(seeds, 1):
        noisy: dict[tuple[object, ...], Measurement] = {}
        for result in results:
            way = result.way
            asked = way.questions.growth, way.questions.split, way.epsilon
            key = case.name, case.max_size, *asked, way.consistency, seed
            if key not in _KNOWN:
                if asked not in noisy:
                    noisy[asked] = way.questions.measured(case, seed, way.epsilon)
                _KNOWN[key] = estimated(noisy[asked], way.consistency)
            found, seconds = _KNOWN[key]
            result.add(found.histograms, seconds)
            if found.convergence is not None and not found.convergence.converged:
                reporter.note(f"{case.name}, {way.name} {way.setting}, seed {seed}: the chains did not converge")
        reporter.progress(f"{name} {case.name}", done, len(seeds))
    return results


def estimated(
    noisy: Measurement, consistency: Consistency, also: Sequence[Measurement] = ()
) -> tuple[GroupsResult, float]:
    """Return a method's tables, and the seconds of processor time that they took."""
    start = process_time()
    method = GroupsMethod("l1", consistency=consistency)
    found = estimate_groups(noisy, method, SolverChoices(), threads=os.cpu_count() or 1, also=also)
    return found, process_time() - start


def beside(results: Sequence[Result], name: str) -> Callable[[Result], Result]:
    """Return which result another is compared with: that of ``name`` on its case, in its setting where there is one."""

    def of(result: Result) -> Result:
        same = [one for one in results if one.case is result.case and one.way.name == name]
        return next((one for one in same if one.way.setting == result.way.setting), same[0])

    return of


def error_table(
    title: str, results: Sequence[Result], reference: str, setting: str = "", notes: Sequence[str] = ()
) -> Table:
    """Return one row a case, setting, way and level, beside the quotient and the paired difference with a reference."""
    rows: list[tuple[Cell, ...]] = []
    other = beside(results, reference)
    for one in results:
        theirs = np.array(other(one).errors)
        differences = means_of([tuple(row) for row in np.array(one.errors) - theirs])
        moves = (one.way.setting,) if setting else ()
        for level, (mean, difference) in enumerate(zip(one.means, differences, strict=True)):
            quotient = mean.value / float(theirs[:, level].mean()) if theirs[:, level].any() else None
            key = one.case.name, one.case.max_size, *moves, one.way.name, level
            rows.append((*key, mean.value, mean.standard_error, mean.runs, quotient, difference.signed))
    moving = (setting,) if setting else ()
    measured = ("measured", "standard error", "runs", f"times {reference}", f"against {reference}, paired")
    columns = "data", "K", *moving, "method", "level", *measured
    return Table(f"{title}: mean distance (entities) a region", columns, tuple(rows), (SEEDED, BARS, *notes))


def seconds_table(results: Sequence[Result], setting: str = "") -> Table:
    """Return the mean seconds of processor time a run, noise left out."""
    moving = (setting,) if setting else ()
    rows = [
        (one.case.name, *((one.way.setting,) if setting else ()), one.way.name, float(np.mean(one.seconds)))
        for one in results
    ]
    note = "Of all threads together; the first run of all compiles."
    return Table("Processor seconds a run", ("data", *moving, "method", "seconds"), tuple(rows), (note,))


def panels(results: Sequence[Result]) -> dict[str, Panel]:
    """Return a panel a case: a place a level, a mark a way, with standard errors."""
    found = {}
    for case in dict.fromkeys(one.case for one in results):
        own = [one for one in results if one.case is case]
        labels = tuple(f"level {level}" for level in range(case.levels))
        found[case.name] = Panel(
            labels,
            {one.way.name: tuple(mean.value for mean in one.means) for one in own},
            {one.way.name: tuple(mean.standard_error for mean in one.means) for one in own},
        )
    return found


def finish(
    name: str,
    out: Path,
    tables: Mapping[str, Table],
    results: Sequence[Result],
    figures: Sequence[Path],
    reporter: Reporter,
) -> Outcome:
    """Show and write tables, each under the experiment's name and its own ending; every table must add up."""
    files = []
    for ending, table in tables.items():
        reporter.table(table)
        files.append(write_csv(out / f"{name}{ending}.csv", table))
    failures = tuple(line for one in results for line in one.failures)
    return Outcome(tuple(tables.values()), (*files, *figures), failures)
