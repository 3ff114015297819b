"""Joint estimation of a hierarchy: one convex program, then integer tables from the root down.

All noisy cumulative counts are fitted together (``coco_opt.problems.joint``)::

    minimise  sum_v w_v sum_i |x_v[i] - y_v[i]|^p   over nondecreasing tables that sum to their parents'

to a relative gap of 1e-4. Then all tables are rounded together
(``coco_opt.problems.ExpectedDistance.rounding``), so that the histograms are integer, nonnegative, consistent, and have
the public numbers of groups.

Where all levels were measured in the same buckets, the means of buckets are fitted, weighed by the noise of the sums.
Answers contain no information on the shape inside a bucket. Counts rise evenly between the middles of the buckets, as
they do where a region's buckets are fitted alone. This rule is linear and the same in every region, so parents stay the
sums of their children. Levels with unlike buckets are for "matching", which was nearer to the truth wherever both were
compared, in a tenth of the time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from coco_opt.array_types import Floats, Ints
from coco_opt.choices import Certificate, SolverChoices
from coco_opt.errors import ProblemError, SolverError
from coco_opt.groups.buckets import Buckets, same_buckets
from coco_opt.groups.estimating.estimators import LOSSES, check_choice
from coco_opt.groups.noisy_measurements import GroupsMeasurements, Loss
from coco_opt.histograms import CountOfCounts, histograms_of
from coco_opt.privacy import Measurement
from coco_opt.problems.expected_distance import ExpectedDistance
from coco_opt.problems.joint import JointFit, JointL1, JointL2
from coco_opt.problems.tree import Tree


@dataclass(frozen=True, eq=False, slots=True)
class JointEstimate:
    """The fitted tables before and after rounding, in groups, sizes 0 .. max_size - 1, in the hierarchy's order.

    ``level_gaps`` float64[levels] are the fit's certified gap over the loss of each level alone: no other tables lower
    the total loss by more than that share of the level's. A level that was not measured has none (nan).
    ``uncertified_gap`` is the largest gap, relative to the distance (or 1), of a fit or rounding that missed its
    solver's tolerance; 0 where none did. Such tables are integer and consistent, only not certified nearest.
    """

    fitted: Floats
    cumulative: Ints
    group_counts: Ints
    level_gaps: Floats
    uncertified_gap: float

    @property
    def histograms(self) -> list[CountOfCounts]:
        """Return one consistent histogram a region."""
        return histograms_of(self.cumulative, self.group_counts)


def joint(measurement: Measurement, solvers: SolverChoices, *, loss: Loss = "l1") -> JointEstimate:
    """Return the joint estimate of all regions from cumulative counts or buckets of them, at any measured levels.

    loss "l1" weighs a level by 1 / scale of its noise (maximum likelihood for geometric noise), "l2" by 1 / variance
    (maximum likelihood for Gaussian noise). Raises ProblemError
    where another query was measured on a level, or other buckets than elsewhere, SolverError where the fit misses its
    tolerance and ``solvers`` allow no fallback; where they do, the best fit is returned with its gap. Memory: about
    eight tables of regions x max_size numbers.
    """
    check_choice("loss", loss, LOSSES)
    answers = GroupsMeasurements(measurement)
    _check_queries(answers)
    tree, groups = Tree(answers.hierarchy.parent), answers.group_counts
    buckets = answers.buckets(answers.measured_levels[0])
    problem = _problem(answers, tree, loss, buckets or Buckets.cells(answers.max_size))
    fitted, gap, uncertified_gap = _fit(problem, solvers)
    gaps = _level_gaps(problem.losses(fitted), gap, answers)
    if buckets is not None:
        fitted = _rising(fitted, buckets, groups)
    tables, rounding_gap = solvers.nearest(ExpectedDistance.rounding(tree, fitted, groups))
    return JointEstimate(fitted, tables, groups, gaps, max(uncertified_gap, rounding_gap))


def _fit(problem: JointFit, solvers: SolverChoices) -> tuple[Floats, float, float]:
    """Return the fitted tables, their certified gap, and that gap relative to the loss where no solver closed it."""
    try:
        solution = solvers.solution(problem)
        return np.asarray(solution.value, dtype=np.float64), solution.gap, 0.0
    except SolverError as error:
        if not (solvers.fallback and error.solution is not None and np.isfinite(error.solution.gap)):
            raise
        solution = error.solution
    solvers.merge([Certificate.of(solution)])
    return np.asarray(solution.value, dtype=np.float64), solution.gap, solution.relative_gap


def _check_queries(answers: GroupsMeasurements) -> None:
    for level in answers.measured_levels:
        if answers.query(level) not in ("cumulative", "buckets"):
            raise ProblemError(
                f"the query of level {level} is {answers.query(level)!r}: joint estimation needs the query "
                "'cumulative' on every measured level"
            )
    if not same_buckets(answers.buckets(level) for level in answers.measured_levels):
        raise ProblemError("joint estimation reads the same buckets on every measured level: use 'matching'")


def _problem(answers: GroupsMeasurements, tree: Tree, loss: Loss, buckets: Buckets) -> JointFit:
    """Return the program on the means of buckets (regions, buckets), zeros where nothing was measured."""
    widths, table = buckets.end - buckets.begin, np.zeros((len(answers), buckets.count))
    for level in answers.measured_levels:
        regions = answers.hierarchy.level_range(level)
        table[regions.start : regions.stop] = answers.table(level) / widths
    if loss == "l1":
        return JointL1(tree, table, answers.group_counts, answers.weights(loss), widths)
    return JointL2(tree, table, answers.group_counts, answers.weights(loss), widths**2)


def _rising(fitted: Floats, buckets: Buckets, groups: Ints) -> Floats:
    """Return rows (regions, max_size) that rise evenly between the middles of buckets, from fits (regions, buckets)."""
    middles = np.append(0.5 * (buckets.begin + buckets.end - 1), buckets.end[-1])
    heights = np.column_stack([fitted, groups])
    place = np.interp(np.arange(int(buckets.end[-1])), middles, np.arange(middles.size))
    left = np.floor(place).astype(np.int64)
    part = place - left
    rows: Floats = heights[:, left]
    rows += part * (heights[:, np.minimum(left + 1, buckets.count)] - rows)
    return rows


def _level_gaps(losses: Floats, gap: float, answers: GroupsMeasurements) -> Floats:
    """Return the gap relative to the loss (or 1, as for the total problem) of each measured level, nan elsewhere."""
    starts = answers.hierarchy.level_start[:-1]
    gaps = np.full(starts.size, np.nan)
    levels = list(answers.measured_levels)
    gaps[levels] = gap / np.maximum(np.add.reduceat(losses, starts)[levels], 1.0)
    return gaps
