"""The programs that constraints pose, solved by HiGHS through SciPy and checked in integers.

What constraints about single leaves leave each variable: boxes tightened until nothing changes, in integers.

Integer leaves that keep every constraint, near fractional leaves: in all regions together, ties broken at random.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from coco_opt.array_types import Floats, Ints
from coco_opt.solver import hushed
from coco_opt.topdown.bounds import UNBOUNDED
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


_TIGHTENINGS = 8
_LEAVES = 1 << 16  # whose sides are in memory at a time
_FAR = 2**40


def open_classes(system: ConstraintSystem) -> Ints:
    """Return how many classes the constraints leave open in each leaf, int64[leaves]; some leaves at a time."""
    counts = np.empty(system.leaves, np.int64)
    for start in range(0, system.leaves, _LEAVES):
        leaves = range(start, min(start + _LEAVES, system.leaves))
        lower, upper = tightened(system, leaves)
        counts[leaves.start : leaves.stop] = np.count_nonzero(upper != lower, axis=1)
    return counts


def tightened(system: ConstraintSystem, leaves: range | None = None) -> tuple[Ints, Ints]:
    """Return lower and upper sides int64[leaves, classes] that every integer table keeps; lower > upper proves none.

    ``leaves`` are consecutive, and all if they are left out.

    Rows of single leaves are used, with coefficients of any sign; rows of larger regions bound from above only, as in
    ``ConstraintSystem.box``. O(rounds x rows x leaves x classes).
    """
    lower, upper = (side.copy() for side in system.box) if leaves is None else system.box_of(leaves)
    last, chosen = system.hierarchy.levels - 1, slice(None) if leaves is None else slice(leaves.start, leaves.stop)
    rows = [row for row in system.rows if row.level == last and np.count_nonzero(row.coefficients) > 1]
    for _ in range(_TIGHTENINGS):
        before = lower.copy(), upper.copy()
        for row in rows:
            used = np.flatnonzero(row.coefficients)
            low, high = row.lower[chosen], row.upper[chosen]
            for sign, side in ((1, high), (-1, np.where(low <= -UNBOUNDED, UNBOUNDED, -low))):
                _by_row(sign * row.coefficients[used], side, used, lower, upper)
        if (lower > upper).any() or all(np.array_equal(a, b) for a, b in zip(before, (lower, upper), strict=True)):
            break
    return lower, upper


def _by_row(weights: Ints, side: Ints, used: Ints, lower: Ints, upper: Ints) -> None:
    """Tighten by sum of weight x variable <= side, UNBOUNDED for none."""
    least = np.where(weights > 0, lower[:, used], upper[:, used])
    # Numbers beyond the stated constraints come from large coefficients. They imply nothing, and products may overflow.
    endless = least >= _FAR
    finite = np.where(endless, 0, least)
    parts, size = finite * weights, finite.astype(np.float64) @ np.abs(weights)
    total, missing = parts.sum(axis=1), endless.sum(axis=1) + 2 * (size >= UNBOUNDED / 2)
    for place, (variable, weight) in enumerate(zip(used.tolist(), weights.tolist(), strict=True)):
        bounded = (side < UNBOUNDED) & (missing - endless[:, place] == 0)
        slack = side - (total - parts[:, place])
        if weight > 0:
            upper[:, variable] = np.where(bounded, np.minimum(upper[:, variable], slack // weight), upper[:, variable])
        else:
            lower[:, variable] = np.where(
                bounded, np.maximum(lower[:, variable], -(slack // -weight)), lower[:, variable]
            )


_NEAR = 1e-6  # a solver's number this near an integer is that integer
_TIE = 1e-3  # the largest perturbation that decides between equal distances, in persons
ROUNDING_SECONDS = 60.0


def round_leaves(
    system: ConstraintSystem,
    x: Floats,
    lower: Ints,
    upper: Ints,
    rng: np.random.Generator,
    time_limit: float = ROUNDING_SECONDS,
) -> Ints | None:
    """Return integer leaves int64[leaves, classes] that meet all constraints, near x; None where none were found.

    First each count is one of the two integers next to x, and so is each class's sum over every region above: a
    network where constraints are nested, whose linear program has integer vertices. Where that has no solution, the
    nearest in the sum of distances, by a mixed-integer program. Every program may take ``time_limit`` seconds.
    """
    snapped = np.where(np.abs(x - np.rint(x)) <= _NEAR, np.rint(x), x)
    clipped = np.clip(snapped, lower.astype(np.float64), infinite(upper))
    leaves = _round_to_neighbours(system, clipped, lower, upper, rng, time_limit)
    if leaves is None:
        leaves = _nearest(system, clipped, lower, upper, rng, time_limit)
    return leaves if leaves is not None and system.holds(leaves) else None


def _round_to_neighbours(
    system: ConstraintSystem, x: Floats, lower: Ints, upper: Ints, rng: np.random.Generator, time_limit: float
) -> Ints | None:
    low, high = np.maximum(np.floor(x), lower).astype(np.int64), np.ceil(x)
    high = np.minimum(high, infinite(upper))
    rows, row_low, row_high = system.matrix(list(system.ranged()))
    boxes = [_sums_between(system, x, level) for level in range(system.hierarchy.levels - 1)]
    matrix = _stack([rows, *(box[0] for box in boxes)])
    row_low = np.concatenate([row_low, *(box[1] for box in boxes)])
    row_high = np.concatenate([row_high, *(box[2] for box in boxes)])
    cost = (1.0 - 2.0 * (x - np.floor(x)) + _TIE * rng.random(x.shape)).reshape(-1)
    return _solve(matrix, row_low, row_high, low.reshape(-1), high.reshape(-1), cost, x.shape, time_limit)


def _sums_between(system: ConstraintSystem, x: Floats, level: int) -> tuple[csr_array, Floats, Floats]:
    """Return every class's sum over the regions of a level, between the integers next to it."""
    from scipy.sparse import csr_array, eye_array, kron

    starts, leaves = system.leaf_starts[level], system.leaves
    sums = csr_array((np.ones(leaves), np.arange(leaves), starts), shape=(starts.size - 1, leaves))
    values = system.sums(x, level).reshape(-1)
    near = np.where(np.abs(values - np.rint(values)) <= leaves * _NEAR, np.rint(values), values)
    return csr_array(kron(sums, eye_array(x.shape[1]), format="csr")), np.floor(near), np.ceil(near)


def _solve(
    matrix: csr_array,
    low: Floats,
    high: Floats,
    least: Ints,
    most: Floats,
    cost: Floats,
    shape: tuple[int, ...],
    time_limit: float,
) -> Ints | None:
    """Return a vertex of the linear program where it is integer, else a mixed-integer program's answer."""
    from scipy.optimize import linprog
    from scipy.sparse import csr_array, vstack

    base = least.astype(np.float64)
    free = np.flatnonzero(most > base)
    shift = matrix @ base
    inner = csr_array(matrix.tocsc()[:, free])
    used = np.flatnonzero(np.diff(inner.indptr))
    inner, row_low, row_high = csr_array(inner[used]), (low - shift)[used], (high - shift)[used]
    if free.size:
        has_low, has_high = np.flatnonzero(np.isfinite(row_low)), np.flatnonzero(np.isfinite(row_high))
        equal = np.flatnonzero(row_low == row_high)
        has_low, has_high = np.setdiff1d(has_low, equal), np.setdiff1d(has_high, equal)
        solve: Any = hushed(linprog)  # its stubs know no sparse matrices
        result = solve(
            cost[free],
            A_ub=csr_array(vstack([inner[has_high], -inner[has_low]])),
            b_ub=np.concatenate([row_high[has_high], -row_low[has_low]]),
            A_eq=csr_array(inner[equal]),
            b_eq=row_low[equal],
            bounds=np.column_stack([np.zeros(free.size), most[free] - base[free]]),
            method="highs-ds",
            options={"time_limit": time_limit},
        )
        if result.status == 0 and (np.abs(result.x - np.rint(result.x)) <= _NEAR).all():
            values = least.copy()
            values[free] += np.rint(result.x).astype(np.int64)
            return values.reshape(shape)
        if result.status == 2:
            return None
    answer = integer_program(matrix, low, high, least, most, time_limit, cost)
    return None if answer.values is None else answer.values.reshape(shape)


def _nearest(
    system: ConstraintSystem, x: Floats, lower: Ints, upper: Ints, rng: np.random.Generator, time_limit: float
) -> Ints | None:
    """Return the leaves nearest in the sum of distances over all classes of all regions, above and below x."""
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import block_array, csr_array, eye_array

    rows, row_low, row_high = system.matrix(list(system.ranged()))
    parts = [eye_array(x.size, format="csr")]
    centres, weights = [x.reshape(-1)], [1.0 + _TIE * rng.random(x.size)]
    for level in range(system.hierarchy.levels - 1):
        sums, _, _ = _sums_between(system, x, level)
        parts.append(sums)
        centres.append(system.sums(x, level).reshape(-1))
        weights.append(np.full(sums.shape[0], 1.0))
    measured, centre, weight = _stack(parts), np.concatenate(centres), np.concatenate(weights)
    open_rows = np.flatnonzero(np.concatenate([(upper > lower).reshape(-1), np.ones(centre.size - x.size, np.bool_)]))
    measured, centre, weight = csr_array(measured[open_rows]), centre[open_rows], weight[open_rows]
    slack = eye_array(open_rows.size, format="csr")
    matrix = csr_array(block_array([[rows, None, None], [measured, -slack, slack]], format="csr"))
    if not rows.shape[0]:
        matrix = csr_array(block_array([[measured, -slack, slack]], format="csr"))
    size = x.size + 2 * open_rows.size
    most = np.concatenate([infinite(upper.reshape(-1)), np.full(2 * open_rows.size, np.inf)])
    least = np.concatenate([lower.reshape(-1).astype(np.float64), np.zeros(2 * open_rows.size)])
    integrality = np.zeros(size, np.int64)
    integrality[: x.size] = 1
    rows_of: Any = matrix  # its stubs know no sparse matrices
    constraint = LinearConstraint(rows_of, np.concatenate([row_low, centre]), np.concatenate([row_high, centre]))
    result = hushed(milp)(
        np.concatenate([np.zeros(x.size), weight, weight]),
        integrality=integrality,
        bounds=Bounds(least, most),
        constraints=constraint,
        options={"time_limit": time_limit, "mip_rel_gap": 1e-3},
    )
    return None if result.x is None else np.rint(result.x[: x.size]).astype(np.int64).reshape(x.shape)


def _stack(parts: list[csr_array]) -> csr_array:
    from scipy.sparse import csr_array, vstack

    nonempty = [part for part in parts if part.shape[0]]
    return csr_array(vstack(nonempty, format="csr")) if nonempty else parts[0]
