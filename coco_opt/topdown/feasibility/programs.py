"""The linear and integer programs that constraints pose, solved by the solver table and checked in integers.

Integer leaves are found near fractional leaves, in all regions together, with ties broken at random. What constraints
about single leaves leave each variable is derived before, in integers: boxes tightened until nothing changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from coco_opt.array_types import Flags, Floats, Ints
from coco_opt.forms import LinearProgram, MixedIntegerProgram
from coco_opt.registry import program_solver
from coco_opt.solution import Status
from coco_opt.solver import ProgramAnswer, hushed
from coco_opt.topdown.constraint import UNBOUNDED
from coco_opt.topdown.feasibility.system import ConstraintSystem, Ranged
from coco_opt.topdown.rows import infinite

if TYPE_CHECKING:
    from scipy.sparse import csr_array

TIME_LIMIT = 60.0
"""Seconds that a program may take by default."""

_NEAR = 1e-6  # a solver's number this near an integer is that integer
_TIE = 1e-3  # the largest perturbation that decides between equal distances, in persons
_GAP = 1e-3  # of the sum of distances: nearer leaves would take long to prove
_TIGHTENINGS = 8
_LEAVES = 1 << 16  # whose sides are in memory at a time
_FAR = 2**40


def solved(
    cost: Floats,
    rows: Ranged,
    least: Floats | float = 0.0,
    most: Floats | float = np.inf,
    *,
    integer: Flags | None = None,
    seconds: float = np.inf,
    gap: float = 0.0,
) -> ProgramAnswer:
    """Return the answer to a program of least cost: ranged ``rows`` (matrix, low, high), a box, integers if any.

    Prices of rows are those of ``coco_opt.forms``. With ``integer`` the relative ``gap`` is proved, and there are none.
    """
    from scipy.sparse import csc_array

    matrix, low, high = rows
    if not cost.size:  # packages refuse programs without variables
        feasible = bool(((low <= 0.0) & (high >= 0.0)).all())
        return ProgramAnswer(np.zeros(0) if feasible else None, Status.OPTIMAL if feasible else Status.INFEASIBLE)
    lower, upper = (np.broadcast_to(np.asarray(side, np.float64), cost.shape) for side in (least, most))
    relaxed = LinearProgram(c=cost, A=csc_array(matrix), row_lower=low, row_upper=high, lower=lower, upper=upper)
    limit = None if np.isinf(seconds) else seconds
    with hushed:
        if integer is None:
            return program_solver("scipy", method="highs-ds", time_limit=limit).solve_program(relaxed)
        program = MixedIntegerProgram(**vars(relaxed), integer=integer)
        return program_solver("scipy-milp", mip_rel_gap=gap, time_limit=limit).solve_program(program)


def integer_leaves(system: ConstraintSystem, seconds: float) -> tuple[Ints | None, bool]:
    """Return integer leaves int64[leaves, classes] that meet all constraints, and whether a solver reports none.

    Leaves are checked in integers; that there are none is passed on as it is reported.
    """
    lower, upper = system.box
    if (lower > upper).any():
        return None, True
    rows, sides = system.matrix(list(system.ranged())), (lower.reshape(-1).astype(np.float64), infinite(upper).ravel())
    answer = solved(np.zeros(lower.size), rows, *sides, integer=np.ones(lower.size, np.bool_), seconds=seconds)
    if answer.z is None:
        return None, answer.status is Status.INFEASIBLE
    leaves = np.rint(answer.z).astype(np.int64).reshape(lower.shape)
    return (leaves, False) if system.holds(leaves) else (None, False)


def least_violation(rows: Ranged, seconds: float = np.inf) -> tuple[float, Floats]:
    """Return the least total violation of ranged rows over x >= 0 and the rows' prices; infinite without an answer."""
    from scipy.sparse import eye_array, hstack

    matrix, low, high = rows
    count, n = matrix.shape
    if not count:
        return 0.0, np.zeros(0)
    slack = eye_array(count, format="csr")
    cost = np.concatenate([np.zeros(n), np.ones(2 * count)])
    answer = solved(cost, (hstack([matrix, slack, -slack]), low, high), seconds=seconds)
    if answer.z is None or answer.dual is None or answer.status is not Status.OPTIMAL:
        return np.inf, np.zeros(count)
    return float(cost @ answer.z), answer.dual.rows


def round_leaves(
    system: ConstraintSystem,
    x: Floats,
    lower: Ints,
    upper: Ints,
    rng: np.random.Generator,
    seconds: float = TIME_LIMIT,
) -> Ints | None:
    """Return integer leaves int64[leaves, classes] that meet all constraints, near x; None where none were found.

    First each count is one of the two integers next to x, and so is each class's sum over every region above: a
    network where constraints are nested, whose linear program has integer vertices. Where that has no solution, the
    nearest in the sum of distances. Every program may take so many ``seconds``.
    """
    snapped = np.where(np.abs(x - np.rint(x)) <= _NEAR, np.rint(x), x)
    near = np.clip(snapped, lower.astype(np.float64), infinite(upper))
    leaves = _next_integers(system, near, lower, upper, rng, seconds)
    if leaves is None:
        leaves = _nearest(system, near, lower, upper, rng, seconds)
    return leaves if leaves is not None and system.holds(leaves) else None


def _next_integers(
    system: ConstraintSystem, x: Floats, lower: Ints, upper: Ints, rng: np.random.Generator, seconds: float
) -> Ints | None:
    low, high = np.maximum(np.floor(x), lower).astype(np.int64), np.minimum(np.ceil(x), infinite(upper))
    rows, sums = system.matrix(list(system.ranged())), _sums_above(system, x)
    near = np.where(np.abs(sums[1] - np.rint(sums[1])) <= system.leaves * _NEAR, np.rint(sums[1]), sums[1])
    ranged = _stack([rows[0], sums[0]]), np.append(rows[1], np.floor(near)), np.append(rows[2], np.ceil(near))
    cost = (1.0 - 2.0 * (x - np.floor(x)) + _TIE * rng.random(x.shape)).reshape(-1)
    sides = low.reshape(-1).astype(np.float64), high.reshape(-1)
    answer = solved(cost, ranged, *sides, integer=np.ones(x.size, np.bool_), seconds=seconds)
    return None if answer.z is None else np.rint(answer.z).astype(np.int64).reshape(x.shape)


def _nearest(
    system: ConstraintSystem, x: Floats, lower: Ints, upper: Ints, rng: np.random.Generator, seconds: float
) -> Ints | None:
    """Return the leaves nearest in the sum of distances over all classes of all regions, above and below x."""
    from scipy.sparse import block_array, csr_array, eye_array

    (matrix, row_low, row_high), sums = system.matrix(list(system.ranged())), _sums_above(system, x)
    measured, centre = _stack([eye_array(x.size, format="csr"), sums[0]]), np.append(x, sums[1])
    weight = np.append(1.0 + _TIE * rng.random(x.size), np.ones(sums[1].size))
    open_rows = np.flatnonzero(np.append((upper > lower).reshape(-1), np.ones(sums[1].size, np.bool_)))
    slack, none = eye_array(open_rows.size, format="csr"), csr_array((matrix.shape[0], 2 * open_rows.size))
    rows = block_array(
        [[matrix, none[:, : open_rows.size], none[:, open_rows.size :]], [measured[open_rows], -slack, slack]]
    )
    free = np.full(2 * open_rows.size, np.inf)
    answer = solved(
        np.concatenate([np.zeros(x.size), weight[open_rows], weight[open_rows]]),
        (rows, np.append(row_low, centre[open_rows]), np.append(row_high, centre[open_rows])),
        np.append(lower, np.zeros(free.size)),
        np.append(infinite(upper), free),
        integer=np.arange(x.size + free.size) < x.size,
        seconds=seconds,
        gap=_GAP,
    )
    return None if answer.z is None else np.rint(answer.z[: x.size]).astype(np.int64).reshape(x.shape)


def _sums_above(system: ConstraintSystem, x: Floats) -> tuple[csr_array, Floats]:
    """Return the rows that sum each class over the leaves of every region above them, and their sums of x."""
    from scipy.sparse import csr_array, eye_array, kron

    parts: list[Any] = [csr_array((0, x.size))]
    values, leaves = [np.zeros(0)], system.leaves
    for level in range(system.hierarchy.levels - 1):
        starts = system.leaf_starts[level]
        sums = csr_array((np.ones(leaves), np.arange(leaves), starts), shape=(starts.size - 1, leaves))
        parts.append(csr_array(kron(sums, eye_array(x.shape[1]), format="csr")))
        values.append(system.sums(x, level).reshape(-1))
    return _stack(parts), np.concatenate(values)


def _stack(parts: list[Any]) -> csr_array:
    from scipy.sparse import csr_array, vstack

    return csr_array(vstack(parts, format="csr"))


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
