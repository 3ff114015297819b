"""The certificate of isotonic regression with squared loss: multipliers rebuilt from a fit, and its gap.

    minimise  sum_i w_i (x_i - y_i)^2   subject to   lo <= x_0 <= x_1 <= ... <= x_{n-1} <= hi

A multiplier lam[i] >= 0 belongs to each constraint x_{i-1} <= x_i. Stationarity makes them, within each block of equal
values, partial sums of 2 w (y - x), and 0 between blocks.

1. Take one block of equal values after the other, and sum 2 w (y - x) along it.
2. What rounding leaves at a block's end is spread over the block; at a bound it is the bound's multiplier.
3. Cut the multipliers at 0, and add up the duality gap that they prove. ``judge`` does all this in one pass, without
   storing them.

Invariant: any nonnegative multipliers bound the distance to the optimum, and every term of the gap is nonnegative.
Cost: O(n).
Source: quadratic programming duality; the rebuilding from the fit alone is our own.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from coco_opt.kernels.arrays import as_data, as_floats, read_only
from coco_opt.kernels.compile import compiled

Floats = NDArray[np.float64]

_UNIT = read_only(np.ones(1))


@compiled
def _multipliers(x: Floats, y: Any, w: Floats, step: int, lo: float, hi: float, lam: Floats) -> None:
    n, begin = x.size, 0
    lam[0] = 0.0
    # One block of equal values at a time.
    while begin < n:
        end, level = begin + 1, x[begin]
        excess = 2.0 * w[begin * step] * (y[begin] - level)
        weight = w[begin * step]
        # Extend the block; ``excess`` is the sum of 2 w (y - level) over it, 0 for an exact mean.
        while end < n and x[end] == level:
            excess += 2.0 * w[end * step] * (y[end] - level)
            weight += w[end * step]
            end += 1
        at_lo, at_hi = begin == 0 and level <= lo, end == n and level >= hi
        if at_lo != at_hi:
            # A mean that lies off the bound by less than rounding: the bound does not hold it.
            at_lo, at_hi = at_lo and excess <= 0.0, at_hi and excess >= 0.0
        # A level that is not quite its block's mean (rounding) would leave a jump at the block's end.
        shift = 0.0 if at_lo or at_hi else excess / weight
        running = -excess if at_lo and not at_hi else 0.0
        lowest = 0.0
        # Partial sums, less the part of ``shift`` that makes them end at 0.
        for i in range(begin, end):
            if i > begin or at_lo:
                lam[i] = running
                lowest = min(lowest, running)
            running += w[i * step] * (2.0 * (y[i] - level) - shift)
        lam[end] = running if at_hi else 0.0
        # A block at both bounds is free to add a constant: the least that makes all of them nonnegative.
        if at_lo and at_hi:
            lowest = min(lowest, running)
            for i in range(begin, end + 1):
                lam[i] -= lowest
        begin = end
    for i in range(n + 1):
        lam[i] = max(lam[i], 0.0)


@compiled
def _block_gap(x: Floats, y: Any, w: Floats, step: int, begin: int, end: int, lo: float, hi: float) -> float:
    """Return the terms of one block of equal values in ``_gap``, under the multipliers of ``_multipliers``.

    The first pass computes the error of the block's mean, the second the sum. ``before`` is lam[i], ``running`` the
    same before it is cut at zero.
    """
    level, excess, mass = x[begin], 0.0, 0.0
    for i in range(begin, end):
        excess += 2.0 * w[i * step] * (y[i] - level)
        mass += w[i * step]
    at_lo, at_hi = begin == 0 and level <= lo, end == x.size and level >= hi
    if at_lo != at_hi:
        # A mean that lies off the bound by less than rounding: the bound does not hold it.
        at_lo, at_hi = at_lo and excess <= 0.0, at_hi and excess >= 0.0
    # A level that is not quite its block's mean (rounding) would leave a jump at the block's end.
    shift = 0.0 if at_lo or at_hi else excess / mass
    running = -excess if at_lo else 0.0
    if at_lo and at_hi:
        running = lowest = 0.0
        for i in range(begin, end):
            running += 2.0 * w[i * step] * (y[i] - level)
            lowest = min(lowest, running)
        running = -lowest
    before = running
    gap = before * (level - lo) if before > 0.0 else 0.0
    # Each term is a square: miss with half the difference of two neighbouring multipliers.
    for i in range(begin, end):
        weight = w[i * step]
        running += weight * (2.0 * (y[i] - level) - shift)
        after = max(running, 0.0) if i + 1 < end or at_hi else 0.0
        miss = level - y[i] + (after - before) / (2.0 * weight)
        gap += weight * miss * miss
        before = after
    return gap + before * (hi - level) if before > 0.0 else gap


@compiled
def _judge(x: Floats, y: Any, w: Floats, step: int, lo: float, hi: float) -> tuple[float, float, float]:
    """Return the violation, the objective and the gap of x in one pass; blocks that need a second one are rare.

    Invariant: within a block of equal values ``rest`` is the sum of w (y - level) so far, half of lam[i] if nothing is
    cut or shifted, and ``lowest`` the least of it at the block's inner borders. Where that is not below zero, nor below
    the block's total ``rest``, spreading the rest evenly keeps every multiplier nonnegative, and costs rest^2 / mass.
    """
    n = x.size
    violation, objective, gap, begin = max(0.0, lo - x[0], x[n - 1] - hi), 0.0, 0.0, 0
    rest = mass = 0.0
    lowest = np.inf
    # Blocks end where x changes; their terms are then added by the short formula or by ``_block_gap``.
    for i in range(n):
        level, weight = x[i], w[i * step]
        if i > 0 and level == x[i - 1]:
            lowest = min(lowest, rest)
        elif i > 0:
            if not level > x[i - 1]:
                fall = x[i - 1] - level
                violation = max(violation, fall) if fall == fall else np.inf
            if lowest >= rest and lowest >= 0.0 and (begin > 0 or x[0] > lo):
                gap += rest * rest / mass
            else:
                gap += _block_gap(x, y, w, step, begin, i, lo, hi)
            rest = mass = 0.0
            begin, lowest = i, np.inf
        miss = y[i] - level
        objective += weight * miss * miss
        rest += weight * miss
        mass += weight
    return violation, objective, gap + _block_gap(x, y, w, step, begin, n, lo, hi)


@compiled
def _gap(x: Floats, y: Any, w: Floats, step: int, lo: float, hi: float, lam: Floats) -> float:
    n = x.size
    total = 0.0
    if lam[0] > 0.0:
        total += lam[0] * (x[0] - lo)
    if lam[n] > 0.0:
        total += lam[n] * (hi - x[n - 1])
    # A square, and a multiplier times the rise at its constraint: both nonnegative.
    for i in range(n):
        weight = w[i * step]
        miss = x[i] - y[i] + (lam[i + 1] - lam[i]) / (2.0 * weight)
        total += weight * miss * miss
        if i > 0:
            total += lam[i] * (x[i] - x[i - 1])
    return total


def multipliers(
    x: Floats, y: NDArray[Any], w: NDArray[Any] | None = None, lo: float = -np.inf, hi: float = np.inf
) -> Floats:
    """Rebuild the multipliers of the order constraints from a fit alone, n + 1 nonnegative numbers.

    lam[0] belongs to lo <= x_0, lam[i] to x_{i-1} <= x_i, lam[n] to x_{n-1} <= hi. Stationarity reads
    lam[i + 1] = lam[i] + 2 w_i (y_i - x_i), and lam is zero wherever x strictly increases. Weights must be
    positive. O(n).
    """
    lam = np.zeros(x.size + 1)
    if x.size:
        weights, step = _weights(w)
        _multipliers(as_floats(x), as_data(y), weights, step, float(lo), float(hi), lam)
    return lam


def gap(
    x: Floats,
    y: NDArray[Any],
    w: NDArray[Any] | None = None,
    lo: float = -np.inf,
    hi: float = np.inf,
    lam: Floats | None = None,
) -> float:
    """Return a certified bound on objective(x) - optimum for a feasible x and any valid multipliers.

    With d_i = lam[i+1] - lam[i] the duality gap is sum_i w_i (x_i - y_i + d_i/(2 w_i))^2
    + sum_{0<i<n} lam[i] (x_i - x_{i-1}) + lam[0] (x_0 - lo) + lam[n] (hi - x_{n-1}). No term is negative, so
    nothing cancels and plain summation is off by a factor 1 + n 2^-53 at most. ``lam`` (default: rebuilt
    from x) must be nonnegative, and zero where its bound is infinite (the result is inf otherwise). O(n).
    """
    if not x.size:
        return 0.0
    lam = multipliers(x, y, w, lo, hi) if lam is None else as_floats(lam)
    weights, step = _weights(w)
    return float(_gap(as_floats(x), as_data(y), weights, step, float(lo), float(hi), lam))


def judge(
    x: Floats, y: NDArray[Any], w: NDArray[Any] | None = None, lo: float = -np.inf, hi: float = np.inf
) -> tuple[float, float, float]:
    """Return violation, objective and certified gap of a point alone, n >= 1 numbers, without a vector in between.

    The violation is the largest decrease or excess over a bound (infinite where an entry is no number); objective and
    gap mean nothing where it is not small. O(n).
    """
    point, (weights, step) = as_floats(x), _weights(w)
    if not (np.isfinite(point[0]) and np.isfinite(point[-1])):
        return np.inf, np.nan, np.inf
    violation, objective, gap = _judge(point, as_data(y), weights, step, float(lo), float(hi))
    return violation, objective, gap


def _weights(w: NDArray[Any] | None) -> tuple[Floats, int]:
    """Return weights and the step through them: step 0 stays at a single one."""
    return (_UNIT, 0) if w is None else (as_floats(w), 1)
