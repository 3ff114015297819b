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
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from coco_opt.array_types import Floats, Ints
from coco_opt.errors import ProblemError, SolverError
from coco_opt.problems.topdown_split import SplitTerm, TopdownSplit
from coco_opt.solution import Status
from coco_opt.topdown.constraint import UNBOUNDED
from coco_opt.topdown.estimating.rounding import round_tables
from coco_opt.topdown.estimating.splitting.step import SplitStep
from coco_opt.topdown.feasibility.programs import least_violation, solved
from coco_opt.topdown.feasibility.system import Ranged
from coco_opt.topdown.rows import Constraints, MatrixOperator, infinite, integer_matrix, side_by_side

TIME_LIMIT = 60.0
"""Seconds that one mixed-integer program of the failsafe may take; 1 once the estimation's time is over."""

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


def relaxed_rows(parent: Ints, count: int, binding: Sequence[Constraints], *, keep_total: bool = True) -> Constraints:
    """Return the rows of a table's relaxed split: over the cells of ``count`` children, and what is added and taken.

    These are (count + 2) n cells in all, which ``binding`` rows bind too. Without ``keep_total`` these alone bind the
    parent's total.
    """
    from scipy.sparse import csr_array, eye_array, hstack, vstack

    n, eye = parent.size, eye_array(parent.size, format="csr")
    total = np.repeat([0.0, 1.0, -1.0], [count * n, n, n])[None, :]
    matrix = MatrixOperator(csr_array(vstack([hstack([*[eye] * count, -eye, eye]), csr_array(total)])))
    free = 0 if keep_total else UNBOUNDED
    lower, upper = (np.append(parent, side)[None, :] for side in (-free, free))
    sums = Constraints(matrix, lower, upper, (*("the parent's table",) * n, "the parent's total"))
    return Constraints.stacked([sums, *binding])


def least(
    rows: Constraints, cost: Floats, where: str, seconds: float, advice: str = "check these constraints"
) -> tuple[int, Ints | None]:
    """Return the least cost of nonnegative integer variables of one table, and such variables, by an integer program.

    There are none if rounding breaks the rows. When time runs out, these are the best so far. Raises ProblemError
    naming ``where``, the rows that no integers meet and what to do; SolverError where none were found in time.
    """
    ranged = rows.operator.to_sparse(), infinite(rows.lower[0]), infinite(rows.upper[0])
    answer = solved(cost, ranged, integer=np.ones(cost.size, np.bool_), seconds=seconds)
    if answer.status is Status.INFEASIBLE:
        raise ProblemError(f"{where}: no integer tables meet {_conflict(rows.labels, ranged)}: {advice}")
    values = None if answer.z is None else np.rint(answer.z).astype(np.int64)
    if values is not None and ((values < 0).any() or rows.broken_by(values[None]).any()):
        values = None
    if answer.z is not None and answer.status is Status.OPTIMAL:
        return round(float(cost @ answer.z)), values
    if values is not None:
        return round(float(cost @ values)), values
    raise SolverError(f"{where}: whether integer tables meet the constraints was not settled in {seconds:g} s")


def _conflict(labels: Sequence[str], rows: Ranged) -> str:
    """Return in words a small set of rows that violate each other: those that pay in the least total violation.

    The text says so where fractional tables exist.
    """
    total, prices = least_violation(rows)
    if np.isinf(total):
        return "their constraints"
    if total < 1e-6:
        return "their constraints in integers (fractional ones exist)"
    names = list(dict.fromkeys(labels[row] for row in np.flatnonzero(np.abs(prices) > 1e-6).tolist()))
    return " and ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


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
    n, count, where = own[0].size, len(step.children(region)), step.name(region)
    binding, limit = list(_binding(step, region, own)), min(TIME_LIMIT, step.seconds_left)
    rows, cost = relaxed_rows(own[0], count, binding), np.repeat([0.0, 1.0], [count * n, 2 * n])
    try:
        moved, tables = least(rows, cost, where, limit)
    except ProblemError:
        rows = relaxed_rows(own[0], count, binding, keep_total=False)
        moved, tables = least(rows, cost, where, limit, _NO_ROOM)
    if moved == 0:
        values = step.last_resort(tables, failure)
    else:
        try:
            values = _best(step, region, _with_least(rows, cost, moved), count, n)
        except (ProblemError, SolverError) as error:
            values = step.last_resort(tables, error)
    return values[: count * n].reshape(count, n), values[count * n : -n] - values[-n:]


def unsplit(step: SplitStep, region: int | None, failure: Exception) -> Ints:
    """Return integer tables [J, n] that hold, where a fit without a parent's table failed; not certified.

    Raises ProblemError naming the constraints that nothing meets, and the failure where nothing binds the tables, for
    then none is better than another, or without last resort.
    """
    regions = step.children(region)
    constraints = step.constraints(regions)
    if constraints is None:
        raise failure
    rows = constraints.end_to_end([step.measured.hierarchy.paths[child] for child in regions])
    limit = min(TIME_LIMIT, step.seconds_left)
    _, tables = least(rows, np.zeros(rows.operator.cells), step.name(region), limit)
    return step.last_resort(tables, failure).reshape(len(regions), -1)


def _with_least(rows: Constraints, cost: Floats, least_cost: int) -> Constraints:
    """Return the rows after one that keeps the cost of a table at its least."""
    lower, upper = (np.full((1, 1), side) for side in (-UNBOUNDED, least_cost))
    first = Constraints(integer_matrix(cost[None, :].astype(np.int64)), lower, upper, ("the least change",))
    return Constraints.stacked([first, rows])


def _best(step: SplitStep, region: int, rows: Constraints, count: int, n: int) -> Ints:
    """Return the integer variables of the relaxed split with the least objective, rounded."""
    terms = [
        SplitTerm(side_by_side(term.operator, count, 2 * n), term.answers.reshape(1, -1), term.weights.reshape(1, -1))
        for term in step.terms(step.children(region), range(len(step.measured.queries)))
    ]
    fractional = np.asarray(step.solvers.solve(TopdownSplit(terms, None, rows.linear)))
    return np.asarray(round_tables(np.maximum(fractional, 0.0), None, rows.linear, step.solvers)[0], dtype=np.int64)


def _binding(step: SplitStep, region: int, own: Sequence[Ints]) -> Iterator[Constraints]:
    """Yield what binds the children's tables, and what binds the change.

    The change is bound by the constraints of the region and of those above, less their present answers.
    """
    from scipy.sparse import csr_array, hstack

    n, regions, hierarchy = own[0].size, step.children(region), step.measured.hierarchy
    children = step.constraints(regions)
    if children is not None:
        yield children.end_to_end([hierarchy.paths[child] for child in regions], 2 * n)
    for member, table in zip((region, *hierarchy.ancestors(region)), own, strict=True):
        constraints = step.constraints(range(member, member + 1))
        if constraints is not None:
            present, alone = constraints.operator.apply(table), constraints.end_to_end([hierarchy.paths[member]])
            matrix = alone.operator.to_sparse()
            change = MatrixOperator(
                csr_array(hstack([csr_array((matrix.shape[0], len(regions) * n)), matrix, -matrix]))
            )
            yield Constraints(change, alone.lower - present, alone.upper - present, alone.labels)
