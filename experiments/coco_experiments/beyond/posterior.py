"""The posterior of cells and of buckets against joint estimation, Algorithm 1 and bottom-up.

Total epsilon 1, independent noise, five seeds fixed beforehand; released integer tables. Cells are read by every method
from the same noise, seed by seed; buckets and other splits have noise of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from coco_experiments.beyond.queries import CELLS, GROWTH, PLANNED, QueryPlan, cells, grown, planned
from coco_experiments.beyond.study import (
    JOINT,
    Result,
    Way,
    error_table,
    finish,
    seconds_table,
    studied,
    usual_ways,
)
from coco_experiments.kuo2018.cases import Case, hawaii_case, small_cases, taxi_case
from coco_experiments.kuo2018.joint import TAXI_MAX_SIZE
from coco_experiments.kuo2018.sweep import means_of
from coco_experiments.outcome import Cell, Outcome, Reporter, Table

NAME = "beyond/posterior"
SEEDS = (2018, 2019, 2020, 2021, 2022)
PLANNED_COLUMNS = ("data", "level", "growth", "cells", "planner's", "times cells", "against cells, paired")
NOTES = (
    f"Seeds {', '.join(map(str, SEEDS))}, fixed beforehand. Whole consistent tables, as released.",
    "Even split but for bottom-up, which spends all on the leaves, and where a split is named.",
    f"Buckets of max(1, c x size) sizes, c = {GROWTH} at Hawaii's levels, root first.",
)


def ways_of(case: Case, all_queries: Sequence[QueryPlan]) -> list[Way]:
    """Return the other methods, and the posterior by every query; of buckets "matching" too, without a prior."""
    ways = usual_ways(case)
    for queries in all_queries:
        ways.append(Way(queries.name, "posterior", queries))
        if any(queries.growth):
            ways.append(Way(f"matching, {queries.words}", "matching", queries))
    return ways


def planned_table(results: Sequence[Result]) -> Table:
    """Return one row a case and level: the growth that the planner chooses, and its error next to that of cells."""
    rows: list[tuple[Cell, ...]] = []
    for planned_result in (result for result in results if result.way.name == PLANNED):
        (of_cells,) = (
            candidate for candidate in results if candidate.case is planned_result.case and candidate.way.name == CELLS
        )
        differences = means_of([tuple(row) for row in np.array(planned_result.errors) - np.array(of_cells.errors)])
        for level, growth in enumerate(planned_result.way.queries.growth):
            mean, mean_cells = planned_result.means[level].value, of_cells.means[level].value
            quotient = mean / mean_cells if mean_cells else None
            rows.append(
                (planned_result.case.name, level, growth, mean_cells, mean, quotient, differences[level].signed)
            )
    notes = (
        "What is chosen without a look from public numbers alone: regions, groups and K.",
        "Where single cells are chosen, a data set is missing here.",
    )
    return Table("The planner's buckets and single cells, the posterior of both", PLANNED_COLUMNS, tuple(rows), notes)


def with_planned(case: Case, all_queries: Sequence[QueryPlan]) -> list[QueryPlan]:
    """Return queries, and what the planner chooses where those are not the cells."""
    chosen = planned(case)
    return [*all_queries, chosen] if any(chosen.growth) else [*all_queries]


def run(*, small: bool, out: Path, reporter: Reporter, data: Path | None = None) -> Outcome:
    """Measure, print and write ``beyond/posterior`` as CSV; small: one seed on simulated data."""
    if small:
        dense, _, blocks = small_cases(60)
        settings = [(dense, [cells(dense)]), (blocks, [cells(blocks), *grown(blocks, GROWTH[-3:])])]
    else:
        taxi, hawaii = taxi_case(data, TAXI_MAX_SIZE), hawaii_case(data)
        settings = [(taxi, [cells(taxi)]), (hawaii, [cells(hawaii), *grown(hawaii, GROWTH)])]
        settings += [(case, [cells(case)]) for case in (hawaii_case(data, "white"), hawaii_case(data, "asian"))]
    ways = ((case, ways_of(case, with_planned(case, queries))) for case, queries in settings)
    results = studied(NAME, ways, SEEDS, out, reporter, small=small)
    tables = {
        "": error_table("The posterior, total epsilon 1", results, JOINT, notes=NOTES),
        "_planned": planned_table(results),
        "_seconds": seconds_table(results),
    }
    return finish(NAME, out, tables, results, (), reporter)
