"""The failsafe, for a region whose table cannot be split among its children under their constraints.

Integer tables that meet everything a parent must meet can still fail to extend to its children, and deciding it is
NP-complete. Then "the children's sum is the parent's table" gives way cell by cell, and nothing else does: with d what
is added to the parent's table,

    first   minimise  sum_c |d_c|           over integer X_j >= 0 and integer d
    s.t.    sum_j X_j = parent + d,  sum_c d_c = 0,  lower_j <= C X_j <= upper_j,
            and what binds the parent and every region above it, whose tables change by d too;
    then    minimise the split's own objective over all (X, d) with that least sum, and round.

(Kifer's slides; Abowd et al. 2022, section 5, the failsafe.) Where no d of total 0 suffices, because overlapping rows
of the children require another total than the parent's noisy one, that row gives way too. The least sum is a
mixed-integer program; both further steps are the problems of an ordinary split, written for one table of all children's
cells and d's two parts. Where their solvers fail, the program's own integer tables are used and counted as not
certified. Regions outside the lineage keep their tables, even where only changing them would help.

The failsafe's split: least change of the parent's table first, then the split's own objective, then rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from coco_opt.array_types import Floats, Ints
from coco_opt.errors import ProblemError, SolverError
from coco_opt.operators import Grouping, Operator
from coco_opt.problems.topdown_split import LinearRows, SplitTerm, TopdownSplit
from coco_opt.solver import hushed
from coco_opt.topdown.estimating.rounding import round_tables, rows_between
from coco_opt.topdown.estimating.splitting.step import SplitStep
from coco_opt.topdown.feasibility.programs import least_total
from coco_opt.topdown.invariants import Constraints
from coco_opt.topdown.matrix_operator import MatrixOperator, side_by_side

if TYPE_CHECKING:
    from scipy.sparse import csr_array


_SHOWN = 8  # changed cells in a sentence


NO_TABLES_FIT = "no integer tables of its children that meet their constraints add up to the table that it had"
"""Why a table had to change: the least change is above zero, whatever a solver reported before."""


@dataclass(frozen=True, slots=True)
class Relaxation:
    """A region whose table had to change so that it could be split: ``moved`` people changed cells in it and above.

    Where its total had to change too, ``moved`` is the larger of the people added and the people taken. ``changes`` are
    cells in words and by how many people each changed, the largest first, and ``why`` says in words why.
    """

    region: int
    path: str
    moved: int
    changes: tuple[tuple[str, int], ...] = ()
    why: str = ""

    @property
    def words(self) -> str:
        """Return the change in one sentence."""
        shown = "; ".join(f"{change:+,} {cell}" for cell, change in self.changes[:_SHOWN])
        more = f"; and {len(self.changes) - _SHOWN} more cells" if len(self.changes) > _SHOWN else ""
        return f"{self.path!r} changed by {self.moved:,} persons ({shown}{more}): {self.why}"


@dataclass(frozen=True, eq=False, slots=True)
class Bound:
    """What binds a table: lower <= C x <= upper, float64[k] (infinite for none), with a name for each row."""

    operator: Operator
    lower: Floats
    upper: Floats
    names: tuple[str, ...]


@dataclass(frozen=True, eq=False, slots=True)
class Rows:
    """Ranged rows over the cells of all J children followed by the parts added and taken, (J + 2) n in all."""

    matrix: csr_array
    lower: Floats
    upper: Floats
    names: tuple[str, ...]

    def hold(self, values: Ints) -> bool:
        """Return whether integer variables are nonnegative and within every row's sides."""
        rows = self.matrix @ values.astype(np.float64)
        inside = ((self.lower <= rows) & (rows <= self.upper)).all()
        return bool((values >= 0).all() and inside)

    def with_least(self, cost: Floats, least: float) -> Rows:
        """Return the rows with ``cost @ variables <= least`` added."""
        from scipy.sparse import csr_array, vstack

        return Rows(
            csr_array(vstack([csr_array(cost[None, :]), self.matrix], format="csr")),
            np.append(-np.inf, self.lower),
            np.append(least, self.upper),
            ("the least change", *self.names),
        )


def unbound(cells: int) -> Bound:
    """Return the bound of a table without constraints."""
    return Bound(Grouping(np.full(cells, -1), 0), np.zeros(0), np.zeros(0), ())


def relaxed_rows(parent: Ints, children: Sequence[Bound], above: Sequence[Bound], keep_total: bool = True) -> Rows:
    """Return the rows of the relaxed split: ``children``, one each, bind their tables and ``above`` bind d itself.

    Without ``keep_total`` the parent's total is bound by ``above`` alone.
    """
    from scipy.sparse import block_diag, csr_array, hstack, identity, vstack

    n, count = parent.size, len(children)
    eye = identity(n, format="csr")
    total_row = np.zeros((1, (count + 2) * n))
    total_row[0, count * n : (count + 1) * n], total_row[0, (count + 1) * n :] = 1.0, -1.0
    blocks = [hstack([*[eye] * count, -eye, eye], format="csr"), csr_array(total_row)]
    free = 0.0 if keep_total else np.inf
    lower, upper = ([parent.astype(np.float64), np.array([side])] for side in (-free, free))
    names = [*["the parent's table"] * n, "the parent's total"]
    matrices = [bound.operator.to_sparse() for bound in children]
    if any(matrix.shape[0] for matrix in matrices):
        blocks.append(hstack([block_diag(matrices), csr_array((sum(m.shape[0] for m in matrices), 2 * n))]))
    upper = [*upper, *[bound.upper for bound in children]]
    lower = [*lower, *[bound.lower for bound in children]]
    for bound in above:
        matrix = bound.operator.to_sparse()
        blocks.append(hstack([csr_array((matrix.shape[0], count * n)), matrix, -matrix]))
    return Rows(
        csr_array(vstack(blocks, format="csr")),
        np.concatenate([*lower, *[bound.lower for bound in above]]),
        np.concatenate([*upper, *[bound.upper for bound in above]]),
        (*names, *[name for bound in (*children, *above) for name in bound.names]),
    )


def own_rows(tables: Sequence[Bound]) -> Rows:
    """Return the rows of tables that have no parent's table to add up to, one bound for each table."""
    from scipy.sparse import block_diag, csr_array

    return Rows(
        csr_array(block_diag([bound.operator.to_sparse() for bound in tables])),
        np.concatenate([bound.lower for bound in tables]),
        np.concatenate([bound.upper for bound in tables]),
        tuple(name for bound in tables for name in bound.names),
    )


def change_cost(children: int, cells: int) -> Floats:
    """Return the cost of the relaxed split's variables in the first stage: 1 for each person added or taken."""
    return np.concatenate([np.zeros(children * cells), np.ones(2 * cells)])


@dataclass(frozen=True, eq=False, slots=True)
class Least:
    """The least cost, and integer variables int64[n] of that cost within the rows; None if rounding breaks them."""

    cost: int
    values: Ints | None


def least(rows: Rows, cost: Floats, where: str, time_limit: float, advice: str = "check these constraints") -> Least:
    """Return nonnegative integer variables of least cost, by a mixed-integer program (HiGHS through SciPy).

    When time runs out, these are the best so far. Raises ProblemError naming ``where``, the rows that no integers
    meet and what to do; SolverError where none were found in time.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp

    result = hushed(milp)(
        cost,
        integrality=np.ones(cost.size, np.int64),
        bounds=Bounds(0, np.inf),
        constraints=LinearConstraint(rows.matrix, rows.lower, rows.upper),
        options={"time_limit": time_limit},
    )
    if result.status == 2:
        raise ProblemError(f"{where}: no integer tables meet {conflict(rows)}: {advice}")
    integers = None if result.x is None else np.rint(result.x).astype(np.int64)
    values = integers if integers is not None and rows.hold(integers) else None
    if result.status == 0:
        return Least(round(float(result.fun)), values)
    if values is not None:
        return Least(round(float(cost @ values)), values)
    raise SolverError(
        f"{where}: whether integer tables meet the constraints was not settled in {time_limit:g} s: {result.message}"
    )


def conflict(rows: Rows) -> str:
    """Return in words a small set of rows that violate each other: those that pay in the least total violation.

    The text says so where fractional tables exist.
    """
    from scipy.sparse import csr_array

    total, prices = least_total(csr_array(rows.matrix), rows.lower, rows.upper)
    if np.isinf(total):
        return "their constraints"
    if total < 1e-6:
        return "their constraints in integers (fractional ones exist)"
    names = list(dict.fromkeys(rows.names[row] for row in np.flatnonzero(np.abs(prices) > 1e-6)))
    shown = " and ".join(names[:4])
    return shown + (f" and {len(names) - 4} more" if len(names) > 4 else "")


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
