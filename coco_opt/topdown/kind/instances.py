"""A split and a rounding problem of an estimation, restricted to any size: all solvers get the same data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np

from coco_opt.array_types import Floats, Ints
from coco_opt.choices import SolverChoices
from coco_opt.config.model import Config
from coco_opt.errors import ProblemError
from coco_opt.histograms import Hierarchy
from coco_opt.privacy.measurement import Measurement
from coco_opt.problem import Problem
from coco_opt.problems import TableRounding, TopdownSplit
from coco_opt.problems.topdown_split import SplitTerm
from coco_opt.releases.kind import Instance
from coco_opt.solution import Answer, Status
from coco_opt.topdown.estimating.linear.query_trees import linear_stage
from coco_opt.topdown.estimating.method import TopdownMethod
from coco_opt.topdown.estimating.splitting.step import SplitStep, split_step
from coco_opt.topdown.noisy_measurements import TableMeasurements

_LEAST_CELLS = 2


@dataclass(frozen=True)
class EvenSplit:
    """A baseline that gives every child an equal share of its parent: it adds up but ignores the measurements."""

    tolerance: float = 1e-6

    name = "even split"

    def solve(self, problem: Problem[Any, Any]) -> Answer[Floats, Any]:
        """Return the parent's table divided by the number of children."""
        start = perf_counter()
        assert isinstance(problem, TopdownSplit)
        assert problem.parent is not None
        even = np.tile(problem.parent / problem.shape[0], (problem.shape[0], 1))
        return Answer(even, Status.OPTIMAL, seconds=perf_counter() - start)


def instances_of(measurement: Measurement, config: Config | None = None) -> Sequence[Instance]:
    """Return the split of the region with the most children, and the rounding of its result.

    The region's table is its linear estimate rounded to integers. Raises ProblemError where no region has two children.
    """
    measured = TableMeasurements.of(measurement)
    region = _widest(measured.hierarchy)
    linear = linear_stage(measured).tables(*measured.hierarchy.within_level(range(region, region + 1)))[0]
    step = split_step(measured, TopdownMethod(), SolverChoices())
    return _instances(step, region, np.rint(np.maximum(linear, 0.0)).astype(np.int64))


def _widest(hierarchy: Hierarchy) -> int:
    """Return the first region with the most children."""
    region = int(np.diff(hierarchy.first_child).argmax())
    if len(hierarchy.children(region)) < 2:
        raise ProblemError("no region has more than one child: there is nothing to split")
    return region


def _instances(step: SplitStep, region: int, table: Ints) -> list[Instance]:
    regions = step.children(region)
    terms = step.terms(regions, range(len(step.measured.queries)))
    occupied = np.flatnonzero(table)

    def split(unknowns: int) -> TopdownSplit:
        count = max(1, min(occupied.size, unknowns // max(1, len(regions))))
        cells = occupied[:count] if occupied.size else np.arange(1)
        restricted = [SplitTerm(term.operator.restrict(cells), term.answers, term.weights) for term in terms]
        return TopdownSplit(restricted, table[cells].astype(np.float64))

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
