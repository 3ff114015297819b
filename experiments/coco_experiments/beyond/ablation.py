"""Better queries alone, the learned prior alone, both and neither: what each takes off the error.

Total epsilon 1, even split. Buckets are asked without a prior by Algorithm 1 and joint estimation, cells with one by
the posterior. Beside them bottom-up, which spends all on the leaves.
"""

from __future__ import annotations

from pathlib import Path

from coco_experiments.beyond.queries import BUCKETS, CELLS, GROWTH, cells, grown
from coco_experiments.beyond.study import (
    MATCHING,
    Way,
    error_table,
    finish,
    measured_cases,
    panels,
    studied,
    usual_ways,
)
from coco_experiments.kuo2018.cases import Case
from coco_experiments.outcome import Outcome, Reporter
from coco_experiments.plots import comparison

NAME = "beyond/ablation"
SEEDS = (2018,)
# Dense groups: wide buckets would lose, these are as narrow as the planner tries.
TAXI_GROWTH = (0.0, 0.02, 0.02)


def ways_of(case: Case, growth: tuple[float, ...]) -> list[Way]:
    """Return neither, each alone, and both, and bottom-up."""
    buckets, *_ = grown(case, growth)
    return [
        *usual_ways(case),
        Way("matching, buckets", "matching", buckets),
        Way(CELLS, "posterior", cells(case)),
        Way(BUCKETS, "posterior", buckets),
    ]


def run(*, small: bool, out: Path, reporter: Reporter, data: Path | None = None) -> Outcome:
    """Measure, print and write ``beyond/ablation`` as CSV, PNG and PDF; small: one seed on simulated data."""
    settings = measured_cases(data, TAXI_GROWTH, small=small)
    ways = ((case, ways_of(case, growth)) for case, growth in settings)
    results = studied(NAME, ways, SEEDS, out, reporter, small=small)
    notes = (f"Buckets of max(1, c x size) sizes, c = {GROWTH[:3]} on Hawaii and {TAXI_GROWTH} on Taxi, root first.",)
    table = error_table("Queries and prior", results, MATCHING, notes=notes)
    figure = comparison(out / NAME, panels(results), "mean distance (entities) a region", log=True)
    return finish(NAME, out, {"": table}, results, figure, reporter)
