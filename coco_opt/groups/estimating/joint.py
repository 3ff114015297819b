"""Joint estimation of a hierarchy: one convex program, then integer tables from the root down.

All noisy cumulative counts are fitted together (``coco_opt.problems.joint``)::

    minimise  sum_v w_v sum_i |x_v[i] - y_v[i]|^p   over nondecreasing tables that sum to their parents'

to a relative gap of 1e-4, or 1e-3 from sums. Then the root's row is rounded half up
and each region's children are rounded to its row (``coco_opt.problems.CumulativeRounding``), so that the histograms
are integer, nonnegative, consistent, and have the public numbers of groups.

Where a level was measured in buckets, the program from sums is used (``coco_opt.problems.joint_sums``), on the common
cells of all levels: the stretches of sizes that no level's buckets separate. Answers contain no information on the
shape inside a cell. Counts rise evenly between the middles of the cells, as they do where a region's buckets are fitted
alone. This rule is linear and the same in every region, so parents stay the sums of their children.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from coco_opt.array_types import Floats, Ints
from coco_opt.choices import Certificate, SolverChoices
from coco_opt.errors import ProblemError, SolverError
from coco_opt.groups.buckets import Buckets, common_cells
from coco_opt.groups.estimating.estimators import LOSSES, check_choice
from coco_opt.groups.estimating.nearest import integer_histograms, nearest
from coco_opt.groups.noisy_measurements import GroupsMeasurements, Loss
from coco_opt.histograms import CountOfCounts
from coco_opt.privacy import Measurement
from coco_opt.problems.cumulative_rounding import CumulativeRounding
from coco_opt.problems.joint import JointL1, JointL2
from coco_opt.problems.joint_sums import JointSumsL1, JointSumsL2
from coco_opt.problems.tree import Tree

JointProblem = JointL1 | JointL2 | JointSumsL1 | JointSumsL2

_GRID_BITS = 20  # fractional digits kept before rounding, so that parents are exactly the sums of their children


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
        return integer_histograms(self.cumulative, self.group_counts)


def joint(measurement: Measurement, solvers: SolverChoices, *, loss: Loss = "l1") -> JointEstimate:
    """Return the joint estimate of all regions from cumulative counts or buckets of them, at any measured levels.

    loss "l1" weighs a level by 1 / scale of its noise (maximum likelihood for geometric noise), "l2" by 1 / variance
    (maximum likelihood for Gaussian noise). Raises ProblemError
    where another query was measured on a level, SolverError where the fit misses its tolerance and ``solvers`` allow no
    fallback; where they do, the best fit is returned with its gap. Memory: about eight tables of regions x max_size
    numbers, from buckets five.
    """
    check_choice("loss", loss, LOSSES)
    answers = GroupsMeasurements(measurement)
    _check_queries(answers)
    tree, groups = Tree(answers.hierarchy.parent), answers.group_counts
    cells = _common_cells(answers)
    problem = _problem(answers, tree, loss) if cells is None else _from_sums(answers, tree, loss, cells)
    fitted, gap, uncertified_gap = _fit(problem, solvers)
    gaps = _level_gaps(problem.losses(fitted), gap, answers)
    if cells is not None:
        fitted = _rising(fitted, cells, groups)
    tables, rounding_gap = round_tables(tree, fitted, groups, solvers)
    return JointEstimate(fitted, tables, groups, gaps, max(uncertified_gap, rounding_gap))


def _fit(problem: JointProblem, solvers: SolverChoices) -> tuple[Floats, float, float]:
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


def _common_cells(answers: GroupsMeasurements) -> Buckets | None:
    """Return the stretches of sizes that no measured level's buckets separate, None where all are single sizes."""
    buckets = [answers.buckets(level) for level in answers.measured_levels]
    return None if all(partition is None for partition in buckets) else common_cells(buckets, answers.max_size)


def _problem(answers: GroupsMeasurements, tree: Tree, loss: Loss) -> JointL1 | JointL2:
    """Return the program on single sizes: answers (regions, max_size), zeros where nothing was measured."""
    table = np.zeros((len(answers), answers.max_size))
    for level in answers.measured_levels:
        regions = answers.hierarchy.level_range(level)
        table[regions.start : regions.stop] = answers.table(level)
    return (JointL1 if loss == "l1" else JointL2)(tree, table, answers.group_counts, answers.weights(loss))


def _from_sums(answers: GroupsMeasurements, tree: Tree, loss: Loss, cells: Buckets) -> JointSumsL1 | JointSumsL2:
    """Return the program on common cells; a region that was not measured has one bucket, of weight 0."""
    table, begins = np.zeros((2, len(answers), cells.count))
    begins[:, 0] = 1.0
    for level in answers.measured_levels:
        regions, buckets = answers.hierarchy.level_range(level), answers.buckets(level)
        columns = np.arange(cells.count) if buckets is None else np.searchsorted(cells.begin, buckets.begin)
        table[regions.start : regions.stop, columns] = answers.table(level)
        begins[regions.start : regions.stop, columns] = 1.0
    widths, weights = cells.end - cells.begin, answers.weights(loss)
    return (JointSumsL1 if loss == "l1" else JointSumsL2)(tree, table, begins, answers.group_counts, weights, widths)


def _rising(fitted: Floats, cells: Buckets, groups: Ints) -> Floats:
    """Return rows (regions, max_size) that rise evenly between the middles of cells, from fits (regions, cells)."""
    middles = np.append(0.5 * (cells.begin + cells.end - 1), cells.end[-1])
    heights = np.column_stack([fitted, groups])
    place = np.interp(np.arange(int(cells.end[-1])), middles, np.arange(middles.size))
    left = np.floor(place).astype(np.int64)
    part = place - left
    rows: Floats = heights[:, left]
    rows += part * (heights[:, np.minimum(left + 1, cells.count)] - rows)
    return rows


def _level_gaps(losses: Floats, gap: float, answers: GroupsMeasurements) -> Floats:
    """Return the gap relative to the loss (or 1, as for the total problem) of each measured level, nan elsewhere."""
    starts = answers.hierarchy.level_start[:-1]
    gaps = np.full(starts.size, np.nan)
    levels = list(answers.measured_levels)
    gaps[levels] = gap / np.maximum(np.add.reduceat(losses, starts)[levels], 1.0)
    return gaps


def round_tables(tree: Tree, fitted: Floats, groups: Ints, solvers: SolverChoices) -> tuple[Ints, float]:
    """Return consistent integer tables (regions, cells) near fitted tables, and the largest uncertified relative gap.

    Only the leaves' rows are read; they are put on a fixed grid, where sums are exact, and the root is rounded half up.
    """
    exact = on_grid(tree, fitted, groups)
    tables = np.zeros(exact.shape, dtype=np.int64)
    tables[0] = np.floor(exact[0] + 0.5).astype(np.int64)
    uncertified_gap = 0.0
    for region in np.flatnonzero(~tree.is_leaf):
        children = slice(int(tree.first_child[region]), int(tree.first_child[region + 1]))
        if children.stop - children.start == 1:
            tables[children] = tables[region]
            continue
        rounded, gap = nearest(CumulativeRounding(exact[children], tables[region], groups[children]), solvers)
        tables[children] = rounded
        uncertified_gap = max(uncertified_gap, gap)
    return tables, uncertified_gap


def on_grid(tree: Tree, fitted: Floats, groups: Ints) -> Floats:
    """Return tables whose leaves are on a grid of binary fractions and whose inner rows are exact sums."""
    from coco_opt.kernels import joint_certificate

    bits = min(_GRID_BITS, 52 - int(np.ceil(np.log2(float(groups[0]) + 1.0))))
    grid = 2.0 ** max(bits, 0)
    exact = np.rint(fitted * grid) / grid
    exact = np.clip(np.maximum.accumulate(exact, axis=1), 0.0, groups[:, None])
    joint_certificate.add_upward(tree.first_child, exact)
    return exact
