"""A split and a rounding problem of an estimation, restricted to any size: all solvers get the same data."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from coco_opt.choices import SolverChoices
from coco_opt.config.model import Config
from coco_opt.errors import ProblemError
from coco_opt.privacy.measurement import Measurement
from coco_opt.problems import TableRounding, TopdownSplit
from coco_opt.problems.topdown_split import SplitTerm
from coco_opt.releases.kind import Instance
from coco_opt.topdown.estimating.linear.query_trees import linear_stage
from coco_opt.topdown.estimating.method import TopdownMethod
from coco_opt.topdown.estimating.splitting.step import split_step
from coco_opt.topdown.noisy_measurements import TableMeasurements

_LEAST_CELLS = 2


def instances_of(measurement: Measurement, config: Config | None = None) -> Sequence[Instance]:
    """Return the split of the first region with the most children, and the rounding of its result.

    The region's table is its linear estimate rounded to integers. Raises ProblemError where no region has two children.
    """
    measured = TableMeasurements.of(measurement)
    region = int(np.diff(measured.hierarchy.first_child).argmax())
    linear = linear_stage(measured).tables(*measured.hierarchy.within_level(range(region, region + 1)))[0]
    table = np.rint(np.maximum(linear, 0.0)).astype(np.int64)
    step = split_step(measured, TopdownMethod(), SolverChoices())
    regions, occupied = step.children(region), np.flatnonzero(table)
    if len(regions) < 2:
        raise ProblemError("no region has more than one child: there is nothing to split")
    terms = step.terms(regions, range(len(measured.queries)))

    def split(unknowns: int) -> TopdownSplit:
        count = max(1, min(occupied.size, unknowns // len(regions)))
        cells = occupied[:count] if occupied.size else np.arange(1)
        restricted = [SplitTerm(term.operator.restrict(cells), term.answers, term.weights) for term in terms]
        return TopdownSplit(restricted, table[cells].astype(np.float64))

    def rounding(unknowns: int) -> TableRounding:
        problem = split(unknowns)
        x = np.asarray(SolverChoices().solve(problem), np.float64)
        assert problem.parent is not None
        return TableRounding(np.maximum(x, 0.0), problem.parent.astype(np.int64), slack=2)

    largest = len(regions) * max(occupied.size, _LEAST_CELLS)
    return [Instance("topdown_split", largest, split), Instance("table_rounding", largest, rounding)]
