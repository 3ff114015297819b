"""The certificate of isotonic regression with squared loss: multipliers rebuilt from a fit, and its gap.

minimise  sum_i w_i (x_i - y_i)^2   subject to   lo <= x_0 <= x_1 <= ... <= x_{n-1} <= hi
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from coco_opt.kernels.compile import compiled

Floats = NDArray[np.float64]

_UNIT = np.ones(1)


@compiled
def _multipliers(x: Floats, y: Any, w: Floats, step: int, lo: float, hi: float, lam: Floats) -> None:
    n, begin = x.size, 0
    lam[0] = 0.0
    while begin < n:
        end, level = begin + 1, x[begin]
        excess = 2.0 * w[begin * step] * (y[begin] - level)
        weight = w[begin * step]
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
        for i in range(begin, end):
            if i > begin or at_lo:
                lam[i] = running
                lowest = min(lowest, running)
            running += w[i * step] * (2.0 * (y[i] - level) - shift)
        lam[end] = running if at_hi else 0.0
        if at_lo and at_hi:
            lowest = min(lowest, running)
            for i in range(begin, end + 1):
                lam[i] -= lowest
        begin = end
    for i in range(n + 1):
        lam[i] = max(lam[i], 0.0)


@compiled
def _gap(x: Floats, y: Any, w: Floats, step: int, lo: float, hi: float, lam: Floats) -> float:
    n = x.size
    total = 0.0
    if lam[0] > 0.0:
        total += lam[0] * (x[0] - lo)
    if lam[n] > 0.0:
        total += lam[n] * (hi - x[n - 1])
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
        _multipliers(np.ascontiguousarray(x, np.float64), _as_data(y), weights, step, float(lo), float(hi), lam)
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
    lam = multipliers(x, y, w, lo, hi) if lam is None else np.ascontiguousarray(lam, np.float64)
    weights, step = _weights(w)
    return float(_gap(np.ascontiguousarray(x, np.float64), _as_data(y), weights, step, float(lo), float(hi), lam))


def _weights(w: NDArray[Any] | None) -> tuple[Floats, int]:
    """Return weights and the step through them: step 0 stays at a single one."""
    return (_UNIT, 0) if w is None else (np.ascontiguousarray(w, np.float64), 1)


def _as_data(values: NDArray[Any]) -> NDArray[Any]:
    return np.ascontiguousarray(values, dtype=np.int64 if values.dtype.kind in "iu" else np.float64)
