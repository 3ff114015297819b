"""The failsafe's split: least change of the parent's table first, then the split's own objective, then rounding."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from coco_opt.errors import ProblemError, SolverError
from coco_opt.problems.topdown_split import LinearRows, SplitTerm, TopdownSplit
from coco_opt.topdown.estimated.failsafe import Bound, Rows, change_cost, least, own_rows, relaxed_rows, unbound
from coco_opt.topdown.estimated.rounding import round_tables, whole_rows
from coco_opt.topdown.estimated.step import SplitStep
from coco_opt.topdown.invariants import Constraints
from coco_opt.topdown.matrix_operator import MatrixOperator, side_by_side

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
    split failed. Where the least change turns out to be none, a solver failed and not the tables: any whole tables that
    hold are the last resort, with which the relaxed split ends too where its solvers fail. Raises ProblemError naming
    the constraints that nothing satisfies, and the failure without last resort (``SplitStep.last_resort``).
    """
    n, count = own[0].size, len(step.children(region))
    children = _children(step, region, n)
    lineage, where = _of_lineage(step, region, own), step.name(region)
    rows, cost = relaxed_rows(own[0], children, lineage), change_cost(count, n)
    try:
        found = least(rows, cost, where, TIME_LIMIT)
    except ProblemError:
        rows = relaxed_rows(own[0], children, lineage, keep_total=False)
        found = least(rows, cost, where, TIME_LIMIT, _NO_ROOM)
    if found.cost == 0:
        whole = step.last_resort(found.values, failure)
    else:
        try:
            whole = _best(step, region, rows.with_least(cost, found.cost), count, n)
        except (ProblemError, SolverError) as error:
            whole = step.last_resort(found.values, error)
    return whole[: count * n].reshape(count, n), whole[count * n : -n] - whole[-n:]


def unsplit(step: SplitStep, region: int | None, failure: Exception) -> Ints:
    """Return whole tables [J, n] that hold, where a fit without a parent's table failed; unproved.

    Raises ProblemError naming the constraints that nothing meets, and the failure where nothing binds the tables, for
    then none is better than another, or without last resort.
    """
    regions = step.children(region)
    if step.constraints(regions) is None:
        raise failure
    rows = own_rows(_children(step, region, step.measured.schema.size))
    found = least(rows, np.zeros(rows.matrix.shape[1]), step.name(region), TIME_LIMIT)
    return step.last_resort(found.values, failure).reshape(len(regions), -1)


def _best(step: SplitStep, region: int, rows: Rows, count: int, n: int) -> Ints:
    """Return the whole variables of the relaxed split with the least objective, rounded."""
    matrix, regions = MatrixOperator(rows.matrix), step.children(region)
    queries = range(len(step.measured.queries))
    terms = [
        SplitTerm(side_by_side(term.operator, count, 2 * n), term.answers.reshape(1, -1), term.weights.reshape(1, -1))
        for term in step.terms(regions, queries)
    ]
    lower, upper = rows.lower[None, :], rows.upper[None, :]
    found = np.asarray(step.solvers.solve(TopdownSplit(terms, None, LinearRows(matrix, lower, upper))))
    whole = round_tables(np.maximum(found, 0.0), None, whole_rows(matrix, lower, upper), step.solvers, step.unproved)
    return np.asarray(whole[0], dtype=np.int64)


def _children(step: SplitStep, region: int | None, cells: int) -> list[Bound]:
    """Return what binds the children's tables, one each."""
    regions, paths = step.children(region), step.measured.hierarchy.paths
    constraints = step.constraints(regions)
    if constraints is None:
        return [unbound(cells)] * len(regions)
    return [_bound(constraints, child, paths[v]) for child, v in enumerate(regions)]


def _of_lineage(step: SplitStep, region: int, own: Sequence[Ints]) -> list[Bound]:
    """Return what binds the change: the constraints of the region and of those above, less their present answers."""
    found = []
    lineage = (region, *step.measured.hierarchy.ancestors(region))
    for one, table in zip(lineage, own, strict=True):
        constraints = step.constraints(range(one, one + 1))
        if constraints is not None:
            bound = _bound(constraints, 0, step.measured.hierarchy.paths[one])
            present = constraints.operator.apply(table).astype(np.float64)
            found.append(Bound(bound.operator, bound.lower - present, bound.upper - present, bound.names))
    return found


def _bound(constraints: Constraints, child: int, path: str) -> Bound:
    names = tuple(f"{label!r} of {path!r}" for label in constraints.labels)
    return Bound(constraints.operator, constraints.float_lower[child], constraints.float_upper[child], names)
