"""Which linear estimates a measurement gets: one tree per query, or matrices where those leave information out.

All that was measured and all constraints in every estimate, at any number of cells, where few directions need it.

In the coordinates of ``directions`` a measurement falls into two parts that know nothing of each other:
the tree of the base's queries, with one variance in every direction, and the K directions that other queries and exact
rows look at, for which ``full_information`` is K small matrices. With D = N^+ f of the directions and k what
full information says of them, the tables are

    x_v = x0_v + D (k_v - f' x0_v),

x0 those of the base's trees, and r' x_v has the variance P_v |r without f|^2 + that of r's part in the directions.
These are the estimates of generalised least squares over all cells of all regions under all constraints.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from coco_opt.array_types import Flags, Floats
from coco_opt.errors import ProblemError
from coco_opt.operators import Operator
from coco_opt.topdown.estimating.linear.constrained_trees import constrained_trees
from coco_opt.topdown.estimating.linear.directions import ALIKE, Base, Directions, directions
from coco_opt.topdown.estimating.linear.information import FullInformation, full_information
from coco_opt.topdown.estimating.linear.linear_estimates import LinearEstimates, kinds_of
from coco_opt.topdown.estimating.linear.query_trees import LinearStage, linear_stage
from coco_opt.topdown.estimating.linear.shapes import UndeterminedError

if TYPE_CHECKING:
    from coco_opt.topdown.noisy_measurements import TableMeasurements


MOST_DIRECTIONS = 96
"""Directions up to which matrices are used by default: seconds for a state's blocks."""


def best_linear(
    measured: TableMeasurements, full: bool | None = None, stage: LinearStage | None = None
) -> LinearEstimates:
    """Return the best linear unbiased estimates of a measurement, or nearly the best where those cost too much.

    The trees of ``linear_stage`` are the best where every level is measured in the same proportions and nothing is
    exact. Else ``low_rank_information`` is, if ``MOST_DIRECTIONS`` suffice and every region's answers determine what is
    measured anywhere. What is left are the trees, corrected to the exact constraints of each region; ``stage`` holds
    these trees where they were computed before. ``full`` asks for full information with covariances (True, at any size)
    or for the trees (False). Raises ProblemError where it is requested and does not fit in memory, or where some
    region is not determined.
    """
    if full:
        every = directions(measured, Base.none(measured))
        assert every is not None
        try:
            return full_information(measured, every)
        except MemoryError:
            raise ProblemError(
                "full information needs too much memory: measure fewer different cells, or leave out full=True"
            ) from None
    if full is None and not trees_are_best(measured):
        with suppress(MemoryError, UndeterminedError):
            estimates = low_rank_information(measured, MOST_DIRECTIONS, stage)
            if estimates is not None:
                return estimates
    return constrained_trees(measured, stage)


def is_full(estimates: LinearEstimates) -> bool:
    """Return whether estimates use all answers and constraints together."""
    return isinstance(estimates, FullInformation | LowRankInformation)


def trees_are_best(measured: TableMeasurements) -> bool:
    """Return whether nothing is exact and all measured regions have the same queries in the same proportions."""
    hierarchy, levels = measured.hierarchy, range(measured.hierarchy.levels)
    for level in levels:
        constraints = measured.constraints_of(hierarchy.level_range(level))
        if constraints is not None and (constraints.lower == constraints.upper).any():
            return False
    precisions, _ = kinds_of(measured)
    shares = precisions[precisions.any(axis=1)]
    shares /= shares.sum(axis=1, keepdims=True)
    return bool((np.abs(shares - shares[0]) <= ALIKE).all())


__all__ = ["LinearEstimates", "LinearStage", "best_linear", "is_full", "trees_are_best"]


@dataclass(frozen=True, eq=False)
class LowRankInformation(LinearEstimates):
    """Best linear unbiased estimates from trees and a few directions: build it with ``low_rank_information``."""

    stage: LinearStage
    directions: Directions
    reduced: FullInformation

    def tables(self, level: int, regions: slice = slice(None)) -> Floats:
        """Return estimated tables, where undetermined their part in the span of queries and constraints."""
        base = self.directions.base
        right = np.zeros((len(self.hierarchy.level_range(level)[regions]), base.normal.cells))
        for query, weight, operator in zip(base.queries, base.weights, base.operators, strict=True):
            estimates = self.stage.trees[query].estimates(level, regions)
            assert estimates is not None
            right += weight * operator.adjoint(estimates)
        moved = self.reduced.means[level][regions] - right @ self.directions.matrix_of_cells
        return np.asarray(base.normal.solve(right) + self.directions.to_cells(moved))

    def standard_errors(self, operator: Operator, level: int, regions: slice = slice(None)) -> Floats:
        """Return the exact standard errors [regions of level, answers] in people, infinite where undetermined."""
        lengths, resolved = self.directions.remainder(operator)
        variances = self.reduced.standard_errors(operator, level, regions) ** 2
        free = np.flatnonzero(lengths)
        # The variance of a functional of length 1 that the directions do not touch.
        single = self.stage.variances(self.directions.base.queries[0], level) * self.directions.base.weights[0]
        variances[:, free] += np.multiply.outer(single[regions], lengths[free])
        return np.where(resolved, np.sqrt(variances), np.inf)

    def known(self, operator: Operator, level: int, regions: slice = slice(None)) -> Flags:
        """Return which answers of a query are determined in some regions of a level, bool[regions, answers]."""
        return np.isfinite(self.standard_errors(operator, level, regions))


def low_rank_information(
    measured: TableMeasurements, most: int, stage: LinearStage | None = None
) -> LowRankInformation | None:
    """Return the best linear unbiased estimates by at most ``most`` directions, None where there are more of them.

    Raises ProblemError for a variance that is not positive, UndeterminedError, and MemoryError where the tree has too
    many different subtrees.
    """
    few = directions(measured, Base.of(measured), most)
    if few is None:
        return None
    reduced, stage = full_information(measured, few), linear_stage(measured) if stage is None else stage
    return LowRankInformation(measured.hierarchy, stage, few, reduced)
