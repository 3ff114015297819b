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

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from coco_opt.array_types import Floats, Ints
from coco_opt.errors import ProblemError, SolverError
from coco_opt.operators import Grouping, Operator
from coco_opt.solver import hushed
from coco_opt.topdown.feasibility.programs import least_total

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
