"""The programs that constraints pose, solved by HiGHS through SciPy and checked in integers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from coco_opt.array_types import Floats, Ints
from coco_opt.solver import hushed
from coco_opt.topdown.feasibility.system import ConstraintSystem, infinite

if TYPE_CHECKING:
    from scipy.sparse import csr_array


@dataclass(frozen=True, eq=False, slots=True)
class IntegerSolution:
    """Integer variables int64[n] that meet all rows, or None; ``infeasible`` where the solver reports that none do."""

    values: Ints | None
    infeasible: bool = False


def solve_integer(system: ConstraintSystem, time_limit: float, cost: Floats | None = None) -> IntegerSolution:
    """Return integer leaves that meet all constraints, flat int64[leaves x classes], of least ``cost`` if given.

    Every solution is checked in integers; that there is none is passed on as the solver reports it.
    """
    lower, upper = system.box
    if (lower > upper).any():
        return IntegerSolution(None, infeasible=True)
    matrix, low, high = system.matrix(list(system.ranged()))
    solution = integer_program(matrix, low, high, lower.reshape(-1), infinite(upper.reshape(-1)), time_limit, cost)
    if solution.values is None or system.holds(solution.values.reshape(lower.shape)):
        return solution
    return IntegerSolution(None)


def integer_program(
    matrix: csr_array, low: Floats, high: Floats, least: Ints, most: Floats, time_limit: float, cost: Floats | None
) -> IntegerSolution:
    """Return integer variables of least cost within ranged rows and a box; fixed variables are taken out before."""
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import csr_array

    free = np.flatnonzero(most > least)
    base = least.astype(np.float64)
    shift = matrix @ base
    inner = csr_array(matrix.tocsc()[:, free]) if free.size < base.size else matrix
    empty = np.diff(inner.indptr) == 0
    if ((low - shift)[empty] > 0).any() or ((high - shift)[empty] < 0).any():
        return IntegerSolution(None, infeasible=True)
    used = np.flatnonzero(~empty)
    if not free.size or not used.size:
        values = least.copy()
        if cost is not None and free.size:
            down = np.isfinite(most[free]) & (cost[free] < 0)
            values[free[down]] = most[free[down]].astype(np.int64)
        return IntegerSolution(values)
    options: Any = {"time_limit": time_limit}
    rows: Any = LinearConstraint(csr_array(inner[used]), (low - shift)[used], (high - shift)[used])
    result = hushed(milp)(
        np.zeros(free.size) if cost is None else cost[free],
        integrality=np.ones(free.size, np.int64),
        bounds=Bounds(0.0, most[free] - base[free]),
        constraints=rows,
        options=options,
    )
    if result.x is None:
        return IntegerSolution(None, infeasible=result.status == 2)
    values = least.copy()
    values[free] += np.rint(result.x).astype(np.int64)
    return IntegerSolution(values)


def least_total(matrix: csr_array, low: Floats, high: Floats, time_limit: float = np.inf) -> tuple[float, Floats]:
    """Return the least total violation of ranged rows over x >= 0 and the rows' prices; infinite without an answer."""
    from scipy.optimize import linprog
    from scipy.sparse import csr_array, eye_array, hstack, vstack

    rows, n = matrix.shape
    if not rows:
        return 0.0, np.zeros(0)
    has_low, has_high = np.flatnonzero(np.isfinite(low)), np.flatnonzero(np.isfinite(high))
    slack = eye_array(rows, format="csr")
    up = hstack([matrix, -slack], format="csr")[has_high]
    down = hstack([-matrix, -slack], format="csr")[has_low]
    solve: Any = hushed(linprog)  # its stubs know no sparse matrices
    result = solve(
        np.concatenate([np.zeros(n), np.ones(rows)]),
        A_ub=csr_array(vstack([up, down], format="csr")),
        b_ub=np.concatenate([high[has_high], -low[has_low]]),
        bounds=(0, None),
        method="highs-ds",
        options={} if np.isinf(time_limit) else {"time_limit": time_limit},
    )
    prices = np.zeros(rows)
    if result.status != 0:
        return np.inf, prices
    marginals = np.asarray(result.ineqlin.marginals, np.float64)
    prices[has_high] += marginals[: has_high.size]
    prices[has_low] -= marginals[has_high.size :]
    return float(result.fun), prices
