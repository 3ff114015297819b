"""The exact convex program cell by cell (Fioretto, Van Hentenryck and Zhu 2021), made into consistent histograms.

Known from the paper's abstract: for each size the counts over the tree are fitted by a convex cost, in whole numbers,
parents being the sums of their children (``coco_opt.problems.integer_tree``). Cells do not know of each other, so what
ties them together is restored afterwards. There are two readings, chosen by what was asked:

* "sizes": the cells of the size histogram, H[0..K]. Afterwards every region's row is moved to the nearest nonnegative
  one that adds up to the public number of groups (projection on a simplex, then controlled rounding);
* "cumulative": the cells of the cumulative histogram, Hc[0..K-1]. Afterwards every region's row is moved to the nearest
  nondecreasing one within 0..G (isotonic regression in the program's loss).

Both steps break the sums. They are restored from the root down: the units that the children have too many of, against
their parent, are moved within their child to the sizes where units are missing, smallest to smallest. That keeps every
child's number of groups, and no consistent tables below the same parent are nearer to the children's, neither in counts
nor in cumulative counts: each cell's disagreement with the parent is paid exactly once.

The program leaves 0 and G out: cutting noise off on one side of a cell moves its mean, and the sums of many leaves
collect it. On Taxi (K = 5,000, epsilon 1) bounds raise the errors of the upper levels to 1.5 to 2.3 times as much.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from coco_opt.choices import SolverChoices
from coco_opt.errors import ProblemError
from coco_opt.groups.answers import GroupsAnswers, Loss
from coco_opt.groups.estimated.estimators import LOSSES, check_choice
from coco_opt.groups.queries import AskedQuery
from coco_opt.histograms import CountOfCounts, Hierarchy
from coco_opt.kernels.merging import round_sizes
from coco_opt.privacy import Measurement
from coco_opt.problems import (
    ControlledRounding,
    IntegerTreeL1,
    IntegerTreeL2,
    IsotonicL1,
    IsotonicL2,
    SimplexProjection,
)

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


def convex(measurement: Measurement, solvers: SolverChoices, *, loss: Loss = "l1") -> list[CountOfCounts]:
    """Return one consistent histogram a region from answers about sizes, or cumulative ones, on any measured levels.

    loss "l1" weighs a level by 1 / scale of its noise, "l2" by 1 / variance. Regions of which nothing was measured, at
    or below, take their parent's sizes in proportion to their groups. Raises ProblemError where measured levels asked
    ranks or different queries, SolverError where a fit misses its tolerance. Memory: about ten tables of regions x
    max_size numbers. Source: Fioretto et al. 2021, arXiv 2006.15673, as far as the abstract tells.
    """
    check_choice("loss", loss, LOSSES)
    answers = GroupsAnswers(measurement)
    query, groups = _query(answers), answers.group_counts
    weights = answers.weights(loss)
    problem = IntegerTreeL1 if loss == "l1" else IntegerTreeL2
    fitted = solvers.solve(problem(answers.hierarchy.parent, _table(answers), weights))
    counts = np.zeros((len(answers), answers.max_size + 1), dtype=np.int64)
    known = _known(answers.hierarchy, weights)
    for region in np.flatnonzero(known & (groups > 0)):
        if query == "sizes":
            counts[region] = _with_total(fitted[region], int(groups[region]), solvers)
        else:
            counts[region] = _nondecreasing(fitted[region], int(groups[region]), loss, solvers)
    _agree(answers.hierarchy, groups, counts, known, solvers)
    return [CountOfCounts.from_dense(row) for row in counts]


def _query(answers: GroupsAnswers) -> AskedQuery:
    """Return the one query of all measured levels."""
    queries = {answers.query(level) for level in answers.measured_levels}
    if len(queries) > 1 or not queries <= {"sizes", "cumulative"}:
        raise ProblemError(
            f"consistency 'convex' fits cells, and the measured levels were asked {', '.join(sorted(queries))}: ask "
            "'sizes' or 'cumulative' of every level (groups.query)"
        )
    return queries.pop()


def _table(answers: GroupsAnswers) -> IntArray:
    """Return the noisy table (regions, cells), zeros where nothing was measured."""
    cells = answers.table(answers.measured_levels[0]).shape[1]
    table = np.zeros((len(answers), cells), dtype=np.int64)
    for level in answers.measured_levels:
        regions = answers.hierarchy.level_range(level)
        table[regions.start : regions.stop] = answers.table(level)
    return table


def _known(hierarchy: Hierarchy, weights: FloatArray) -> NDArray[np.bool_]:
    """Return the regions at or below which something was measured."""
    known = weights > 0.0
    for region in range(hierarchy.regions - 1, 0, -1):
        if known[region]:
            known[hierarchy.parent[region]] = True
    return known


def _with_total(row: IntArray, groups: int, solvers: SolverChoices) -> IntArray:
    """Return nonnegative whole counts near the row (cells,) that add up to the number of groups."""
    fractional = solvers.solve(SimplexProjection(row, groups))
    return np.asarray(solvers.solve(ControlledRounding(fractional, groups)), dtype=np.int64)


def _nondecreasing(row: IntArray, groups: int, loss: Loss, solvers: SolverChoices) -> IntArray:
    """Return the counts (cells + 1,) of the nondecreasing cumulative row nearest to the row, within 0..groups."""
    if loss == "l1":
        fitted = solvers.solve(IsotonicL1(row, lower=0, upper=groups))
    else:
        fitted = solvers.solve(IsotonicL2(row, lower=0, upper=groups))
    whole = fitted if fitted.dtype == np.int64 else round_sizes(fitted, "half_up")
    return np.diff(np.append(whole, groups), prepend=0)


def _agree(
    hierarchy: Hierarchy, groups: IntArray, counts: IntArray, known: NDArray[np.bool_], solvers: SolverChoices
) -> None:
    """Make the counts (regions, cells) of children add up to their parent's, root first, in place."""
    for parent in range(hierarchy.regions):
        children = hierarchy.children(parent)
        for child in children:
            if not known[child] and groups[child] > 0:
                share = counts[parent] * (int(groups[child]) / int(groups[parent]))
                counts[child] = _with_total(share, int(groups[child]), solvers)
        if len(children):
            below = slice(children.start, children.stop)
            counts[below] = reconciled(counts[parent], counts[below])


def reconciled(parent: IntArray, children: IntArray) -> IntArray:
    """Return children's counts (children, cells) that add up to the parent's (cells,), by the shortest moves.

    All counts are nonnegative and the totals agree; every child's total is kept. Where children have too many units of
    a size, they give in proportion to theirs. Both the L1 distance to the counts given and that of the cumulative
    counts are the least possible. O(children x cells).
    """
    excess = children.sum(axis=0) - parent
    given = _given(np.maximum(excess, 0), children)
    size, child = np.nonzero(given.T)
    wanted = np.flatnonzero(excess < 0)
    gives = np.cumsum(given[child, size])
    takes = np.cumsum(-excess[wanted])
    stops = np.union1d(gives, takes)
    units = np.diff(stops, prepend=0)
    source, target = np.searchsorted(gives, stops), np.searchsorted(takes, stops)
    moved = children.copy()
    np.subtract.at(moved, (child[source], size[source]), units)
    np.add.at(moved, (child[source], wanted[target]), units)
    return moved


def _given(excess: IntArray, children: IntArray) -> IntArray:
    """Return how many units of each size each child gives (children, cells), in proportion to what it has.

    Shares are differences of rounded running sums. What floats round beyond a child's units is passed on.
    """
    held = children.cumsum(axis=0)
    share = np.divide(excess, held[-1], out=np.zeros(excess.size), where=held[-1] > 0)
    running = np.minimum(np.floor(held * share + 0.5).astype(np.int64), excess)
    running[-1] = excess
    given: IntArray = np.minimum(np.diff(running, axis=0, prepend=0), children)
    missing = excess - given.sum(axis=0)
    for child in range(len(children) if missing.any() else 0):
        more = np.minimum(missing, children[child] - given[child])
        given[child] += more
        missing -= more
    return given
