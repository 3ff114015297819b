"""The posterior against all methods on housing made from the 2010 census, and on simulated versions of race by blocks.

California, Oregon and Washington, three levels, 137 regions; total epsilon 1, even split but for bottom-up, and the
queries that the planner chooses from public numbers. Housing follows the paper's recipe from table H13; how blocks lie
in counties is made.
"""

from __future__ import annotations

from pathlib import Path

from coco_experiments.beyond.posterior import ways_of, with_planned
from coco_experiments.beyond.queries import BUCKETS, GROWTH, cells, grown
from coco_experiments.beyond.study import (
    MATCHING,
    Way,
    error_table,
    finish,
    panels,
    seconds_table,
    studied,
)
from coco_experiments.kuo2018.cases import hawaiian_case, housing_case, small_cases, west_coast, white_case
from coco_experiments.outcome import Outcome, Reporter
from coco_experiments.plots import comparison

NAME = "beyond/west_coast"
SEEDS = (2018,)  # millions of cells by every method


def run(*, small: bool, out: Path, reporter: Reporter, data: Path | None = None) -> Outcome:
    """Measure, print and write ``beyond/west_coast`` as CSV, PNG and PDF; small: simulated data."""
    if small:
        cases = small_cases(30)[1:2]
    else:
        cases = [west_coast(case) for case in (housing_case(data), white_case(data), hawaiian_case(data))]
    settings = []
    for case in cases:
        ways = ways_of(case, with_planned(case, [cells(case)])[-1:])
        buckets = grown(case, GROWTH[:3])[0]
        ways += [Way("matching, buckets", "matching", buckets), Way(BUCKETS, "posterior", buckets)]
        settings.append((case, ways))
    results = studied(NAME, settings, SEEDS, out, reporter, small=small)
    notes = (
        "Bottom-up spends all on the leaves. Where no planner's buckets are shown it asks for cells.",
        f"Buckets grow by {GROWTH[:3]}, root first: no planner asks for them where groups are so dense.",
    )
    errors = error_table("West Coast, total epsilon 1", results, MATCHING, notes=notes)
    tables = {"": errors, "_seconds": seconds_table(results)}
    figure = comparison(out / NAME, panels(results), "mean distance (entities) a region", log=True)
    return finish(NAME, out, tables, results, figure, reporter)
