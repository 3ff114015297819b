"""The failsafe's split: least change of the parent's table first, then the split's own objective, then rounding."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from coco_opt.array_types import Ints
from coco_opt.errors import ProblemError, SolverError
from coco_opt.problems.topdown_split import LinearRows, SplitTerm, TopdownSplit
from coco_opt.topdown.estimating.rounding.passes import round_tables, rows_between
from coco_opt.topdown.estimating.splitting.failsafe import (
    Bound,
    Rows,
    change_cost,
    least,
    own_rows,
    relaxed_rows,
    unbound,
)
from coco_opt.topdown.estimating.splitting.step import SplitStep
from coco_opt.topdown.invariants import Constraints
from coco_opt.topdown.matrix_operator import MatrixOperator, side_by_side

TIME_LIMIT = 60.0
"""Seconds that one mixed-integer program of the failsafe may take; 1 once the estimation's time is over."""

_NO_ROOM = (
    "check these public constraints; if they are right, the tables estimated so far of the regions around allow none "
    "within them: give the levels above more of the budget"
)


def relaxed_split(step: SplitStep, region: int, own: Sequence[Ints], failure: Exception) -> tuple[Ints, Ints]:
    """Return the children's integer tables [J, n] and the change int64[n] of their parent's table that they need.

    ``own`` holds the integer tables of the region and of those above it, the root last; ``failure`` is why the ordinary
    split failed. Where the least change turns out to be none, a solver failed and not the tables: any integer tables
    that hold are the last resort, with which the relaxed split ends too where its solvers fail. Raises ProblemError
    naming the constraints that nothing satisfies, and the failure without last resort (``SplitStep.last_resort``).
    """
    n, count = own[0].size, len(step.children(region))
    children = _children(step, region, n)
    lineage, where = _of_lineage(step, region, own), step.name(region)
    rows, cost = relaxed_rows(own[0], children, lineage), change_cost(count, n)
    limit = min(TIME_LIMIT, step.seconds_left)
    try:
        minimum = least(rows, cost, where, limit)
    except ProblemError:
        rows = relaxed_rows(own[0], children, lineage, keep_total=False)
        minimum = least(rows, cost, where, limit, _NO_ROOM)
    if minimum.cost == 0:
        values = step.last_resort(minimum.values, failure)
    else:
        try:
            values = _best(step, region, rows.with_least(cost, minimum.cost), count, n)
        except (ProblemError, SolverError) as error:
            values = step.last_resort(minimum.values, error)
    return values[: count * n].reshape(count, n), values[count * n : -n] - values[-n:]


def unsplit(step: SplitStep, region: int | None, failure: Exception) -> Ints:
    """Return integer tables [J, n] that hold, where a fit without a parent's table failed; not certified.

    Raises ProblemError naming the constraints that nothing meets, and the failure where nothing binds the tables, for
    then none is better than another, or without last resort.
    """
    regions = step.children(region)
    if step.constraints(regions) is None:
        raise failure
    rows = own_rows(_children(step, region, step.measured.schema.size))
    minimum = least(rows, np.zeros(rows.matrix.shape[1]), step.name(region), min(TIME_LIMIT, step.seconds_left))
    return step.last_resort(minimum.values, failure).reshape(len(regions), -1)


def _best(step: SplitStep, region: int, rows: Rows, count: int, n: int) -> Ints:
    """Return the integer variables of the relaxed split with the least objective, rounded."""
    matrix, regions = MatrixOperator(rows.matrix), step.children(region)
    queries = range(len(step.measured.queries))
    terms = [
        SplitTerm(side_by_side(term.operator, count, 2 * n), term.answers.reshape(1, -1), term.weights.reshape(1, -1))
        for term in step.terms(regions, queries)
    ]
    lower, upper = rows.lower[None, :], rows.upper[None, :]
    fractional = np.asarray(step.solvers.solve(TopdownSplit(terms, None, LinearRows(matrix, lower, upper))))
    tables = round_tables(np.maximum(fractional, 0.0), None, rows_between(matrix, lower, upper), step.solvers)
    return np.asarray(tables[0], dtype=np.int64)


def _children(step: SplitStep, region: int | None, cells: int) -> list[Bound]:
    """Return what binds the children's tables, one each."""
    regions, paths = step.children(region), step.measured.hierarchy.paths
    constraints = step.constraints(regions)
    if constraints is None:
        return [unbound(cells)] * len(regions)
    return [_bound(constraints, child, paths[v]) for child, v in enumerate(regions)]


def _of_lineage(step: SplitStep, region: int, own: Sequence[Ints]) -> list[Bound]:
    """Return what binds the change: the constraints of the region and of those above, less their present answers."""
    bounds = []
    lineage = (region, *step.measured.hierarchy.ancestors(region))
    for member, table in zip(lineage, own, strict=True):
        constraints = step.constraints(range(member, member + 1))
        if constraints is not None:
            bound = _bound(constraints, 0, step.measured.hierarchy.paths[member])
            present = constraints.operator.apply(table).astype(np.float64)
            bounds.append(Bound(bound.operator, bound.lower - present, bound.upper - present, bound.names))
    return bounds


def _bound(constraints: Constraints, child: int, path: str) -> Bound:
    names = tuple(f"{label!r} of {path!r}" for label in constraints.labels)
    return Bound(constraints.operator, constraints.float_lower[child], constraints.float_upper[child], names)
