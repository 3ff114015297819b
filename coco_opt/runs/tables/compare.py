"""Every available solver on the same split and rounding, judged by the problems; spends nothing.

The measurement is seeded. It is taken of the user's data only where their own configuration says ``noise =
"seeded"``; otherwise of made persons in their public regions and cells, and the private table stays closed.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from coco_opt.choices import SolverChoices
from coco_opt.errors import ProblemError
from coco_opt.privacy import SeededNoise
from coco_opt.problems import TableRounding, TopdownSplit
from coco_opt.problems.split_rows import SplitTerm
from coco_opt.runs.compare import DEFAULT_SIZE, Comparison, compare_instances
from coco_opt.runs.instances import Instance
from coco_opt.runs.planted import EvenSplit
from coco_opt.runs.reporter import Reporter, Silent
from coco_opt.runs.tables.made import MADE_SEED, made_tables
from coco_opt.runs.tables.plan import TablesPlan, plan_tables, read_private_tables
from coco_opt.runs.tables.settings import TablesSettings
from coco_opt.topdown.counts import TableCounts
from coco_opt.topdown.measure import measure_tables
from coco_opt.topdown.method import TopdownMethod
from coco_opt.topdown.step import SplitStep, split_step

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_LEAST_CELLS = 2


def compare_tables(
    settings: TablesSettings, *, size: int = DEFAULT_SIZE, reporter: Reporter | None = None
) -> Comparison:
    """Solve one split and one rounding, of at most ``size`` unknowns, with every solver that can express them.

    Raises what ``plan_tables`` does, and ProblemError where no region has more than one child.
    """
    told = Silent() if reporter is None else reporter
    plan = plan_tables(settings)
    counts, seed, data = _counts(plan, told)
    measured = measure_tables(counts, plan.queries, source=SeededNoise(seed))
    step = split_step(measured, TopdownMethod(), SolverChoices())
    region = _widest(plan)
    found = _instances(step, region, counts.tables_of(range(region, region + 1))[0])
    return compare_instances(found, data, plan.solvers, size=size, reporter=told)


def _counts(plan: TablesPlan, told: Reporter) -> tuple[TableCounts, int, str]:
    """Return counts, the noise's seed, and in words what they are."""
    seed = plan.settings.privacy.seed
    if plan.settings.privacy.noise == "seeded" and seed is not None:
        with told.stage("Counting the table"):
            counts, _ = read_private_tables(plan)
        name = plan.settings.name
        return counts, seed, f"NOT PRIVATE: seeded noise on the data of {name!r}; no privacy budget was spent"
    made = made_tables(plan.hierarchy, plan.schema)
    return made, MADE_SEED, "made persons with seeded noise; the private table was not opened, no budget was spent"


def _widest(plan: TablesPlan) -> int:
    """Return the first region with the most children."""
    region = int(np.diff(plan.hierarchy.first_child).argmax())
    if len(plan.hierarchy.children(region)) < 2:
        raise ProblemError("no region has more than one child: there is nothing to split")
    return region


def _instances(step: SplitStep, region: int, table: Ints) -> list[Instance]:
    """Return the split of a region's table and the rounding of what comes out, each cut to any size."""
    regions = step.children(region)
    terms = step.terms(regions, range(len(step.measurements.queries)))
    occupied = np.flatnonzero(table)

    def split(unknowns: int) -> TopdownSplit:
        count = max(1, min(occupied.size, unknowns // max(1, len(regions))))
        kept = occupied[:count] if occupied.size else np.arange(1)
        cut = [SplitTerm(one.operator.restrict(kept), one.answers, one.weights) for one in terms]
        return TopdownSplit(cut, table[kept].astype(np.float64))

    def rounding(unknowns: int) -> TableRounding:
        problem = split(unknowns)
        x = np.asarray(SolverChoices().solve(problem), np.float64)
        assert problem.parent is not None
        return TableRounding(np.maximum(x, 0.0), problem.parent.astype(np.int64), slack=2)

    largest = len(regions) * max(occupied.size, _LEAST_CELLS)
    return [
        Instance("topdown_split", largest, split, EvenSplit()),
        Instance("table_rounding", largest, rounding),
    ]
