"""The posterior of cells and of buckets against joint estimation, Algorithm 1 and bottom-up.

Total epsilon 1, independent noise, five seeds fixed beforehand; released whole tables. Cells are read by every method
from the same noise, seed by seed; buckets and other splits have noise of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import numpy as np

from coco_experiments.beyond.questions import CELLS, EPSILON, GROWTH, PLANNED, Questions, cells, grown, planned
from coco_experiments.experiment import Cell, Outcome, Reporter, Table, write_csv
from coco_experiments.kuo2018.cases import Case, hawaii_case, small_cases, taxi_case
from coco_experiments.kuo2018.draws import Draws, Levels, errors_by_level
from coco_experiments.kuo2018.joint import TAXI_MAX_SIZE
from coco_experiments.kuo2018.methods import jointly, leaves_only, matched
from coco_experiments.kuo2018.sweep import BARS, SEEDED, means_of
from coco_opt.choices import SolverChoices
from coco_opt.groups.estimated.estimate import GroupsMethod, estimate_groups
from coco_opt.groups.estimated.posterior.consistent import posterior_estimate
from coco_opt.histograms import CountOfCounts

NAME = "beyond/posterior"
SEEDS = (2018, 2019, 2020, 2021, 2022)
SMALL_SEEDS = SEEDS[:1]
JOINT = "joint p = 1"
ALGORITHM_1 = "Algorithm 1, "  # of the posterior's buckets: what better questions do without a prior
COLUMNS = ("data", "K", "method", "level", "measured", "standard error", "runs", "times joint", "against joint, paired")
PLANNED_COLUMNS = ("data", "level", "growth", "cells", "planner's", "times cells", "against cells, paired")


@dataclass(eq=False, slots=True)
class Results:
    """What was found on one case by method: the errors and seconds of every seed; the questions by method."""

    case: Case
    asked: dict[str, Questions]
    errors: dict[str, list[Levels]]
    seconds: dict[str, list[float]]
    failures: list[str]

    def add(self, method: str, histograms: Sequence[CountOfCounts], seconds: float) -> None:
        """Keep one seed's table, and a failure where it does not add up."""
        self.errors.setdefault(method, []).append(errors_by_level(self.case, histograms))
        self.seconds.setdefault(method, []).append(seconds)
        tree = self.case.hierarchy
        for region in range(tree.regions):
            children = tree.children(region)
            if len(children) and not histograms[region].equals(CountOfCounts.total(histograms[c] for c in children)):
                self.failures.append(f"{self.case.name}, {method}: {tree.paths[region]} is not its children's sum")


def results_of(case: Case, asked: Sequence[Questions], seeds: Sequence[int], reporter: Reporter) -> Results:
    """Return the results of every method on one case."""
    results = Results(case, {one.name: one for one in asked}, {}, {}, [])
    for done, seed in enumerate(seeds, 1):
        draws = Draws(case, seed)
        for method in (matched(("Hc",) * case.levels), jointly("l1"), leaves_only("Hc")):
            start = perf_counter()
            results.add(method.name, method.run(draws, EPSILON), perf_counter() - start)
        for questions in asked:
            noisy, start = questions.measured(case, seed), perf_counter()
            found = posterior_estimate(noisy, SolverChoices())
            results.add(questions.name, found.histograms, perf_counter() - start)
            if any(questions.growth):
                start = perf_counter()
                alone = estimate_groups(noisy, GroupsMethod("l1", consistency="matching"), SolverChoices())
                results.add(ALGORITHM_1 + questions.words, alone.histograms, perf_counter() - start)
            if not found.convergence.converged:
                reporter.note(f"{case.name}, {questions.name}, seed {seed}: the chains did not converge")
        reporter.progress(f"{NAME} {case.name}", done, len(seeds))
    return results


def error_table(found: Sequence[Results]) -> Table:
    """Return one row a case, method and level; beside it the quotient of means with joint estimation's."""
    rows: list[tuple[Cell, ...]] = []
    for one in found:
        beside = np.array(one.errors[JOINT])
        for method, runs in one.errors.items():
            differences = means_of([tuple(row) for row in np.array(runs) - beside])
            for level, (mean, difference) in enumerate(zip(means_of(runs), differences, strict=True)):
                own: tuple[Cell, ...] = (one.case.name, one.case.max_size, method, level)
                quotient = mean.value / float(beside[:, level].mean()) if beside[:, level].any() else None
                rows.append((*own, mean.value, mean.standard_error, mean.runs, quotient, difference.signed))
    notes = (
        SEEDED,
        BARS,
        f"Seeds {', '.join(map(str, SEEDS))}, fixed beforehand. Whole consistent tables, as released.",
        "Even split but for bottom-up, which spends all on the leaves, and where a split is named.",
        f"Buckets of max(1, c x size) sizes, c = {GROWTH} at Hawaii's levels, root first.",
    )
    return Table("The posterior: mean distance (entities) a region, total epsilon 1", COLUMNS, tuple(rows), notes)


def planned_table(found: Sequence[Results]) -> Table:
    """Return one row a case and level: the growth that the planner chooses, and its error beside that of cells."""
    rows: list[tuple[Cell, ...]] = []
    for one in found:
        if PLANNED not in one.errors:
            continue
        own, beside = np.array(one.errors[PLANNED]), np.array(one.errors[CELLS])
        differences = means_of([tuple(row) for row in own - beside])
        for level, growth in enumerate(one.asked[PLANNED].growth):
            mean, mean_cells = float(own[:, level].mean()), float(beside[:, level].mean())
            quotient = mean / mean_cells if mean_cells else None
            rows.append((one.case.name, level, growth, mean_cells, mean, quotient, differences[level].signed))
    notes = (
        "What plan --optimise chooses from public facts alone: regions, groups and K, no public data.",
        "A data set that is missing here is asked for its cells by the planner too.",
    )
    return Table(
        "The planner's buckets beside single cells, the posterior of both", PLANNED_COLUMNS, tuple(rows), notes
    )


def seconds_table(found: Sequence[Results]) -> Table:
    """Return the mean seconds a run, noise left out for the posterior."""
    rows = [(one.case.name, name, float(np.mean(runs))) for one in found for name, runs in one.seconds.items()]
    return Table("Seconds a run", ("data", "method", "seconds"), tuple(rows), ("The first run of all compiles.",))


def with_planned(case: Case, asked: Sequence[Questions]) -> list[Questions]:
    """Return questions, and what the planner chooses where those are not the cells."""
    chosen = planned(case)
    return [*asked, chosen] if any(chosen.growth) else [*asked]


def run(*, small: bool, out: Path, reporter: Reporter, data: Path | None = None) -> Outcome:
    """Measure, print and write ``beyond/posterior`` as CSV; small: one seed on made data."""
    if small:
        dense, _, blocks = small_cases(60)
        asked = [(dense, [cells(dense)]), (blocks, [cells(blocks), *grown(blocks, GROWTH[-3:])])]
    else:
        taxi, hawaii = taxi_case(data, TAXI_MAX_SIZE), hawaii_case(data)
        asked = [(taxi, [cells(taxi)]), (hawaii, [cells(hawaii), *grown(hawaii, GROWTH)])]
        asked += [(case, [cells(case)]) for case in (hawaii_case(data, "white"), hawaii_case(data, "asian"))]
    seeds = SMALL_SEEDS if small else SEEDS
    found = [results_of(case, with_planned(case, questions), seeds, reporter) for case, questions in asked]
    tables = error_table(found), planned_table(found), seconds_table(found)
    for table in tables:
        reporter.table(table)
    names = NAME, f"{NAME}_planned", f"{NAME}_seconds"
    files = tuple(write_csv(out / f"{name}.csv", table) for name, table in zip(names, tables, strict=True))
    return Outcome(tables, files, tuple(line for one in found for line in one.failures))
