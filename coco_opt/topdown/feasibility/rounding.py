"""Integer leaves that keep every constraint, near fractional leaves: in all regions together, ties broken at random."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from coco_opt.array_types import Floats, Ints
from coco_opt.solver import hushed
from coco_opt.topdown.feasibility.programs import integer_program
from coco_opt.topdown.feasibility.system import ConstraintSystem, infinite

if TYPE_CHECKING:
    from scipy.sparse import csr_array


_NEAR = 1e-6  # a solver's number this near an integer is that integer
_TIE = 1e-3  # the largest perturbation that decides between equal distances, in persons
TIME_LIMIT = 60.0


def round_leaves(
    system: ConstraintSystem,
    x: Floats,
    lower: Ints,
    upper: Ints,
    rng: np.random.Generator,
    time_limit: float = TIME_LIMIT,
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
