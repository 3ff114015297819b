"""The posterior of cells and of buckets against joint estimation, Algorithm 1 and bottom-up.

Total epsilon 1, independent noise, five seeds fixed beforehand; released whole tables. Cells are read by every method
from the same noise, seed by seed; buckets and other splits have noise of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from coco_experiments.beyond.questions import CELLS, GROWTH, PLANNED, Questions, cells, grown, planned
from coco_experiments.beyond.study import (
    JOINT,
    Result,
    Way,
    error_table,
    finish,
    kept_of,
    seconds_table,
    study,
    usual_ways,
)
from coco_experiments.experiment import Cell, Outcome, Reporter, Table
from coco_experiments.kuo2018.cases import Case, hawaii_case, small_cases, taxi_case
from coco_experiments.kuo2018.joint import TAXI_MAX_SIZE
from coco_experiments.kuo2018.sweep import means_of

NAME = "beyond/posterior"
SEEDS = (2018, 2019, 2020, 2021, 2022)
SMALL_SEEDS = SEEDS[:1]
PLANNED_COLUMNS = ("data", "level", "growth", "cells", "planner's", "times cells", "against cells, paired")
NOTES = (
    f"Seeds {', '.join(map(str, SEEDS))}, fixed beforehand. Whole consistent tables, as released.",
    "Even split but for bottom-up, which spends all on the leaves, and where a split is named.",
    f"Buckets of max(1, c x size) sizes, c = {GROWTH} at Hawaii's levels, root first.",
)


def ways_of(case: Case, asked: Sequence[Questions]) -> list[Way]:
    """Return the other methods, and the posterior by every question; of buckets the others too, without a prior."""
    ways = usual_ways(case)
    for one in asked:
        ways.append(Way(one.name, "posterior", one))
        if any(one.growth):
            ways.append(Way(f"matching, {one.words}", "matching", one))
            ways.append(Way(f"joint, {one.words}", "joint", one))
    return ways


def planned_table(results: Sequence[Result]) -> Table:
    """Return one row a case and level: the growth that the planner chooses, and its error beside that of cells."""
    rows: list[tuple[Cell, ...]] = []
    for one in (result for result in results if result.way.name == PLANNED):
        (of_cells,) = (other for other in results if other.case is one.case and other.way.name == CELLS)
        differences = means_of([tuple(row) for row in np.array(one.errors) - np.array(of_cells.errors)])
        for level, growth in enumerate(one.way.questions.growth):
            mean, mean_cells = one.means[level].value, of_cells.means[level].value
            quotient = mean / mean_cells if mean_cells else None
            rows.append((one.case.name, level, growth, mean_cells, mean, quotient, differences[level].signed))
    notes = (
        "What plan --optimise chooses from public facts alone: regions, groups and K, no public data.",
        "A data set that is missing here is asked for its cells by the planner too.",
    )
    return Table(
        "The planner's buckets beside single cells, the posterior of both", PLANNED_COLUMNS, tuple(rows), notes
    )


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
    found: list[Result] = []
    kept = kept_of(out)
    for case, questions in asked:
        found += study(NAME, case, ways_of(case, with_planned(case, questions)), seeds, reporter, kept)
    tables = {
        "": error_table("The posterior, total epsilon 1", found, JOINT, notes=NOTES),
        "_planned": planned_table(found),
        "_seconds": seconds_table(found),
    }
    return finish(NAME, out, tables, found, (), reporter)
