"""The failsafe's split: least change of the parent's table first, then the split's own objective, then rounding."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from coco_opt.errors import ProblemError, SolverError
from coco_opt.problems.split_rows import LinearRows, SplitTerm
from coco_opt.problems.topdown_split import TopdownSplit
from coco_opt.topdown.failsafe import Bound, Rows, change_cost, least, own_rows, relaxed_rows
from coco_opt.topdown.invariants import Constraints
from coco_opt.topdown.matrix_operator import MatrixOperator, side_by_side
from coco_opt.topdown.step import SplitStep, round_tables, whole_rows

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

TIME_LIMIT = 60.0
"""Seconds that the failsafe's mixed-integer program may take."""

_NO_ROOM = (
    "check these public facts; if they are right, the tables made so far of the regions around leave no room within "
    "them: give the levels above more of the budget"
)


def relaxed_split(step: SplitStep, region: int, own: Sequence[Ints], failure: Exception) -> tuple[Ints, Ints]:
    """Return the children's whole tables [J, n] and the change int64[n] of their parent's table that they need.

    ``own`` holds the whole tables of the region and of those above it, the root last; ``failure`` is why the ordinary
    split failed, raised again where the least change turns out to be none: then a solver failed, not the tables.
    Raises ProblemError naming the constraints that nothing satisfies.
    """
    regions = step.children(region)
    n, count = own[0].size, len(regions)
    constraints = step.constraints(regions)
    if constraints is None:
        raise failure
    paths = step.measurements.hierarchy.paths
    children = [_bound(constraints, child, paths[v]) for child, v in enumerate(regions)]
    lineage, where = _of_lineage(step, region, own), step.name(region)
    rows, cost = relaxed_rows(own[0], children, lineage), change_cost(count, n)
    try:
        needed = least(rows, cost, where, TIME_LIMIT)
    except ProblemError:
        rows = relaxed_rows(own[0], children, lineage, keep_total=False)
        needed = least(rows, cost, where, TIME_LIMIT, _NO_ROOM)
    if needed == 0:
        raise failure
    whole = _best(step, regions, rows.with_least(cost, needed), count, n)
    return whole[: count * n].reshape(count, n), whole[count * n : -n] - whole[-n:]


def explain(step: SplitStep, region: int | None, failure: Exception) -> Exception:
    """Return why tables without a parent's could not be found: the constraints nothing meets, else the failure."""
    regions = step.children(region)
    constraints = step.constraints(regions)
    if constraints is None:
        return failure
    paths = step.measurements.hierarchy.paths
    rows = own_rows([_bound(constraints, child, paths[v]) for child, v in enumerate(regions)])
    try:
        least(rows, np.zeros(rows.matrix.shape[1]), step.name(region), TIME_LIMIT)
    except (ProblemError, SolverError) as error:
        return error
    return failure


def _best(step: SplitStep, regions: range, rows: Rows, count: int, n: int) -> Ints:
    """Return the whole variables of the relaxed split with the least objective, rounded."""
    matrix = MatrixOperator(rows.matrix)
    queries = range(len(step.measurements.queries))
    terms = [
        SplitTerm(side_by_side(term.operator, count, 2 * n), term.answers.reshape(1, -1), term.weights.reshape(1, -1))
        for term in step.terms(regions, queries)
    ]
    lower, upper = rows.lower[None, :], rows.upper[None, :]
    found = np.asarray(step.solvers.solve(TopdownSplit(terms, None, LinearRows(matrix, lower, upper))))
    whole = round_tables(np.maximum(found, 0.0), None, whole_rows(matrix, lower, upper), step.solvers, step.unproved)
    return np.asarray(whole[0], dtype=np.int64)


def _of_lineage(step: SplitStep, region: int, own: Sequence[Ints]) -> list[Bound]:
    """Return what binds the change: the constraints of the region and of those above, less their present answers."""
    found = []
    lineage = (region, *step.measurements.hierarchy.ancestors(region))
    for one, table in zip(lineage, own, strict=True):
        constraints = step.constraints(range(one, one + 1))
        if constraints is not None:
            bound = _bound(constraints, 0, step.measurements.hierarchy.paths[one])
            present = constraints.operator.apply(table).astype(np.float64)
            found.append(Bound(bound.operator, bound.lower - present, bound.upper - present, bound.names))
    return found


def _bound(constraints: Constraints, child: int, path: str) -> Bound:
    names = tuple(f"{label!r} of {path!r}" for label in constraints.labels)
    lower = constraints.lower[child].astype(np.float64)
    return Bound(constraints.operator, lower, constraints.float_upper[child], names)
