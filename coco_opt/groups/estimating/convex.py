"""The exact convex program cell by cell (Fioretto, Van Hentenryck and Zhu 2021), made into consistent histograms.

The paper's abstract says: for each size the counts over the tree are fitted by a convex cost, in integers, with parents
equal to the sums of their children (``coco_opt.problems.integer_tree``). Cells are fitted independently, so constraints
between them are restored afterwards. There are two variants, chosen by the measured query:

* "sizes": the cells of the size histogram, H[0..K]. Afterwards every region's row is moved to the nearest nonnegative
  one that adds up to the public number of groups (projection on a simplex, then controlled rounding);
* "cumulative": the cells of the cumulative histogram, Hc[0..K-1]. Afterwards every region's row is moved to the nearest
  nondecreasing one within 0..G (isotonic regression in the program's loss).

Both steps break the sums. They are restored from the root down: where the children have more units of a size than their
parent, the excess is moved within each child to the sizes where units are missing, smallest to smallest. That keeps
every child's number of groups. No consistent tables below the same parent are nearer to the children's, neither in
counts nor in cumulative counts, because each cell's difference from the parent is paid exactly once.

The program has no bounds 0 and G: cutting noise off on one side of a cell shifts its mean, and the sums of many leaves
add up these shifts. On Taxi (K = 5,000, epsilon 1) bounds raise the errors of the upper levels to 1.5 to 2.3 times as
much.
"""

from __future__ import annotations

import numpy as np

from coco_opt.array_types import Flags, Floats, Ints
from coco_opt.choices import SolverChoices
from coco_opt.errors import ProblemError
from coco_opt.groups.estimating.method import GroupsMethod
from coco_opt.groups.noisy_measurements import GroupsMeasurements, Loss
from coco_opt.groups.queries import MeasuredQuery
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


def convex(measurement: Measurement, method: GroupsMethod, solvers: SolverChoices) -> list[CountOfCounts]:
    """Return one consistent histogram a region from answers about sizes, or cumulative counts, on any measured levels.

    The method's loss "l1" weighs a level by 1 / scale of its noise, "l2" by 1 / variance. Regions with nothing measured
    at or below them take their parent's sizes in proportion to their groups. Raises ProblemError where ranks or
    different queries were measured, SolverError where a fit misses its tolerance. Memory: about ten tables of regions x
    max_size numbers.
    Source: Fioretto et al. 2021, arXiv 2006.15673, as far as the abstract describes it.
    """
    loss = method.loss(0)
    answers = GroupsMeasurements(measurement)
    query, groups = _query(answers), answers.group_counts
    weights = answers.weights(loss)
    problem = IntegerTreeL1 if loss == "l1" else IntegerTreeL2
    fitted = solvers.solve(problem(answers.hierarchy.parent, _table(answers), weights))
    counts = np.zeros((len(answers), answers.max_size + 1), dtype=np.int64)
    measured = _measured_regions(answers.hierarchy, weights)
    for region in np.flatnonzero(measured & (groups > 0)):
        if query == "sizes":
            counts[region] = _with_total(fitted[region], int(groups[region]), solvers)
        else:
            counts[region] = _nondecreasing(fitted[region], int(groups[region]), loss, solvers)
    _agree(answers.hierarchy, groups, counts, measured, solvers)
    return [CountOfCounts.from_dense(row) for row in counts]


def _query(answers: GroupsMeasurements) -> MeasuredQuery:
    """Return the query that all measured levels have."""
    queries = {answers.query(level) for level in answers.measured_levels}
    if len(queries) > 1 or not queries <= {"sizes", "cumulative"}:
        raise ProblemError(
            f"consistency 'convex' fits cells, but the measured queries are {', '.join(sorted(queries))}: use "
            "'sizes' or 'cumulative' on every level (groups.query)"
        )
    return queries.pop()


def _table(answers: GroupsMeasurements) -> Ints:
    """Return the noisy table (regions, cells), zeros where nothing was measured."""
    cells = answers.table(answers.measured_levels[0]).shape[1]
    table = np.zeros((len(answers), cells), dtype=np.int64)
    for level in answers.measured_levels:
        regions = answers.hierarchy.level_range(level)
        table[regions.start : regions.stop] = answers.table(level)
    return table


def _measured_regions(hierarchy: Hierarchy, weights: Floats) -> Flags:
    """Return the regions at or below which something was measured."""
    measured = weights > 0.0
    for region in range(hierarchy.regions - 1, 0, -1):
        if measured[region]:
            measured[hierarchy.parent[region]] = True
    return measured


def _with_total(row: Ints, groups: int, solvers: SolverChoices) -> Ints:
    """Return nonnegative integer counts near the row (cells,) that add up to the number of groups."""
    fractional = solvers.solve(SimplexProjection(row, groups))
    return np.asarray(solvers.solve(ControlledRounding(fractional, groups)), dtype=np.int64)


def _nondecreasing(row: Ints, groups: int, loss: Loss, solvers: SolverChoices) -> Ints:
    """Return the counts (cells + 1,) of the nondecreasing cumulative row nearest to the row, within 0..groups."""
    if loss == "l1":
        fitted = solvers.solve(IsotonicL1(row, lower=0, upper=groups))
    else:
        fitted = solvers.solve(IsotonicL2(row, lower=0, upper=groups))
    cumulative = fitted if fitted.dtype == np.int64 else round_sizes(fitted, "half_up")
    return np.diff(np.append(cumulative, groups), prepend=0)


def _agree(hierarchy: Hierarchy, groups: Ints, counts: Ints, measured: Flags, solvers: SolverChoices) -> None:
    """Make the counts (regions, cells) of children add up to their parent's, root first, in place."""
    for parent in range(hierarchy.regions):
        children = hierarchy.children(parent)
        for child in children:
            if not measured[child] and groups[child] > 0:
                share = counts[parent] * (int(groups[child]) / int(groups[parent]))
                counts[child] = _with_total(share, int(groups[child]), solvers)
        if len(children):
            below = slice(children.start, children.stop)
            counts[below] = reconciled(counts[parent], counts[below])


def reconciled(parent: Ints, children: Ints) -> Ints:
    """Return children's counts (children, cells) that add up to the parent's (cells,), by the shortest moves.

    All counts are nonnegative and the totals agree; every child's total is preserved. Where children have too many
    units of a size, they give them up in proportion to what they have. Both the L1 distance to the given counts and
    that of the cumulative counts are the least possible. O(children x cells).
    """
    excess = children.sum(axis=0) - parent
    surplus = _surplus(np.maximum(excess, 0), children)
    size, child = np.nonzero(surplus.T)
    deficits = np.flatnonzero(excess < 0)
    gives = np.cumsum(surplus[child, size])
    takes = np.cumsum(-excess[deficits])
    stops = np.union1d(gives, takes)
    units = np.diff(stops, prepend=0)
    source, target = np.searchsorted(gives, stops), np.searchsorted(takes, stops)
    moved = children.copy()
    np.subtract.at(moved, (child[source], size[source]), units)
    np.add.at(moved, (child[source], deficits[target]), units)
    return moved


def _surplus(excess: Ints, children: Ints) -> Ints:
    """Return how many units of each size each child gives up (children, cells), in proportion to what it has.

    Shares are differences of rounded running sums. Units that rounding assigns beyond a child's own are passed on.
    """
    totals = children.cumsum(axis=0)
    share = np.divide(excess, totals[-1], out=np.zeros(excess.size), where=totals[-1] > 0)
    running = np.minimum(np.floor(totals * share + 0.5).astype(np.int64), excess)
    running[-1] = excess
    surplus: Ints = np.minimum(np.diff(running, axis=0, prepend=0), children)
    missing = excess - surplus.sum(axis=0)
    for child in range(len(children) if missing.any() else 0):
        more = np.minimum(missing, children[child] - surplus[child])
        surplus[child] += more
        missing -= more
    return surplus
