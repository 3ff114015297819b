"""The certificate of isotonic regression with absolute loss: multipliers rebuilt from a fit, and its gap.

    minimise  sum_i w_i |x_i - y_i|   subject to   lo <= x_0 <= x_1 <= ... <= x_{n-1} <= hi

With a multiplier lam[i] >= 0 for each constraint x_{i-1} <= x_i the dual points are those with
|lam[i+1] - lam[i]| <= w_i, and a point is optimal exactly if some dual point has the differences of its signs.

1. ``judge``: one pass carries the interval of multipliers that the entries so far allow. If it never comes out empty,
   the point is optimal, and no multipliers are needed.
2. Otherwise ``multipliers`` rebuilds a dual point: intervals backward, then a choice inside them forward. A point of
   another solver may lie a few digits off the data, its neighbours and the bounds, so that the nearly equal are also
   taken as equal. Any dual point bounds the gap, and the one that bounds it best is returned.
3. ``gap`` adds up the duality gap of the point as it is, term by term.

Invariant: every term of the gap is nonnegative, for any dual point. Cost: O(n).
Source: linear programming duality; the rebuilding from the fit alone is our own.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from coco_opt.kernels.arrays import as_data, as_floats, read_only
from coco_opt.kernels.compile import compiled

Floats = NDArray[np.float64]

_NEARLY_EQUAL = (0.0, 2.0**-46, 2.0**-26)  # of the data's scale: exact, a solver's rounding, a solver's tolerance
_ROUNDED = 2.0**-40  # of all weights: less than this may be what rounding leaves of multipliers that vanish
_UNIT = read_only(np.ones(1))
_INTEGER_UNIT = read_only(np.ones(1, np.int64))


@compiled
def _judge(x: Any, y: Any, w: Any, step: int, free: Any, lo: float, hi: float) -> tuple[float, float, bool]:
    """Return the violation and the objective of x, and whether some multipliers prove it optimal.

    Invariant: [least, most] are the values that lam[i] can take in a dual point that proves the entries before i
    optimal, ``least`` at least 0; it is {0} wherever x changes. ``free`` stands for no bound on lam[0], in the type of
    the weights: the sum of all weights, for more cannot come down again. Unit weights are integers: nothing rounds.
    """
    n = x.size
    objective, proved = 0.0, True
    violation = max(0.0, lo - x[0], x[n - 1] - hi)
    none = free - free
    least, most = none, free if x[0] <= lo else none
    # An entry shifts the interval by +w or -w, or widens it by w to both sides where x = y; it is clipped at 0.
    for i in range(n):
        level = x[i]
        # The row rises: the constraint between is slack, so the multiplier must be able to be 0.
        if i > 0 and level != x[i - 1]:
            proved = proved and least == none
            least = most = none
            if not level > x[i - 1]:
                fall = float(x[i - 1]) - float(level)
                violation = max(violation, fall) if fall == fall else np.inf
        weight = w[i * step]
        miss = float(level) - float(y[i])
        objective += weight * abs(miss)
        least = max(least + (weight if miss < 0.0 else -weight), none)
        most += weight if miss <= 0.0 else -weight
        proved = proved and most >= none
    return violation, objective, proved and (least == none or x[n - 1] >= hi)


@compiled
def _project(lam: Floats, w: Floats, step: int) -> None:
    n = lam.size - 1
    for i in range(n + 1):
        lam[i] = max(lam[i], 0.0)
    # Forward and backward: no multiplier exceeds a neighbour's by more than the weight between them.
    for i in range(n):
        lam[i + 1] = min(lam[i + 1], lam[i] + w[i * step])
    for i in range(n - 1, -1, -1):
        lam[i] = min(lam[i], lam[i + 1] + w[i * step])


@compiled
def _multipliers(
    x: Any, y: Any, w: Floats, step: int, lo: float, hi: float, near: float, lam: Floats, least: Floats, most: Floats
) -> None:
    """Backward: the interval of each lam from which the rest can be completed; forward: choose inside it.

    Numbers that differ by at most ``near`` are taken as equal. Where x is not optimal an interval is empty; its ends
    are clamped to the nearest allowed value, and the forward pass keeps to valid steps, so the result is a dual point
    in any case. What rounding leaves of a multiplier that must vanish is removed at the end: multiplied by a far bound
    it would be a gap.
    """
    n, total = x.size, 0.0
    least[n] = 0.0
    most[n] = np.inf if x[n - 1] >= hi - near else 0.0
    cap = 0.0 if hi == np.inf else np.inf  # the largest lam that can still come down to zero at the end
    # Backward: which values lam[i] can take if the entries from i on are to be proved optimal.
    for i in range(n - 1, -1, -1):
        weight = w[i * step]
        cap += weight
        total += weight
        miss = float(x[i]) - float(y[i])
        below = -weight if miss >= -near else weight
        above = weight if miss <= near else -weight
        free = x[i] <= lo + near if i == 0 else x[i] - x[i - 1] <= near
        limit = cap if free else 0.0
        least[i] = min(max(least[i + 1] - above, 0.0), limit)
        most[i] = min(max(most[i + 1] - below, 0.0), limit)
        lam[i] = cap
    lam[n] = 0.0 if hi == np.inf else np.inf
    lam[0] = 0.0 if lo == -np.inf else least[0]
    # Forward: the step that the sign of x - y demands, clamped to the interval and to a valid step.
    for i in range(n):
        weight, current = w[i * step], lam[i]
        target = current
        if x[i] < y[i]:
            target = current + weight
        elif x[i] > y[i]:
            target = current - weight
        target = min(max(target, least[i + 1]), most[i + 1])
        target = min(max(target, current - weight), current + weight)
        lam[i + 1] = min(max(target, 0.0), lam[i + 1])
    rounded = False
    # Where only 0 is allowed, a tiny remainder is rounding.
    for i in range(n + 1):
        if most[i] == 0.0 and 0.0 < lam[i] <= _ROUNDED * total:
            lam[i] = 0.0
            rounded = True
    if rounded:
        _project(lam, w, step)


@compiled
def _gap(x: Any, y: Any, w: Floats, step: int, lo: float, hi: float, lam: Floats) -> float:
    n = x.size
    total = 0.0
    if lam[0] > 0.0:
        total += lam[0] * (x[0] - lo)
    if lam[n] > 0.0:
        total += lam[n] * (hi - x[n - 1])
    # w |miss| and the step times miss, and the multiplier times the rise: neither sum is negative.
    for i in range(n):
        weight = w[i * step]
        slope = min(max(lam[i + 1] - lam[i], -weight), weight)
        miss = float(x[i] - y[i])
        total += (weight + slope) * miss if miss > 0.0 else (slope - weight) * miss
        if i > 0:
            total += lam[i] * (x[i] - x[i - 1])
    return total


def multipliers(
    x: NDArray[Any],
    y: NDArray[Any],
    w: NDArray[Any] | None = None,
    lo: float = -np.inf,
    hi: float = np.inf,
) -> Floats:
    """Rebuild valid multipliers of the order constraints from a fit alone, n + 1 numbers.

    Valid: lam >= 0, |lam[i+1] - lam[i]| <= w_i, zero where its bound is infinite (lam[0] belongs to lo,
    lam[n] to hi). For an optimal x they prove it: the difference is +w_i where x_i < y_i, -w_i where
    x_i > y_i, and lam is zero wherever x strictly increases. A point a few digits off an optimal one gets the
    multipliers of that one. O(n).
    """
    n = x.size
    best = np.zeros(n + 1)
    if not n:
        return best
    point, data, lower, upper = as_data(x), as_data(y), float(lo), float(hi)
    weights, step = _weights(w)
    least, most = np.empty(n + 1), np.empty(n + 1)
    smallest, scale = np.inf, max(float(y.max()), -float(y.min()), abs(float(x[0])), abs(float(x[-1])))
    for near in _NEARLY_EQUAL:
        lam = np.empty(n + 1)
        _multipliers(point, data, weights, step, lower, upper, near * scale, lam, least, most)
        bound = _gap(point, data, weights, step, lower, upper, lam)
        if bound < smallest:
            best, smallest = lam, bound
        if smallest == 0.0:
            break
    return best


def project_multipliers(lam: Floats, w: NDArray[Any] | None = None, lo: float = -np.inf, hi: float = np.inf) -> Floats:
    """Return the largest valid multipliers below a backend's approximate ones (n + 1 numbers). O(n)."""
    valid = np.array(lam, dtype=np.float64)
    valid[~np.isfinite(valid)] = 0.0
    if lo == -np.inf:
        valid[0] = 0.0
    if hi == np.inf:
        valid[-1] = 0.0
    weights, step = _weights(w)
    _project(valid, weights, step)
    return valid


def gap(
    x: NDArray[Any],
    y: NDArray[Any],
    w: NDArray[Any] | None = None,
    lo: float = -np.inf,
    hi: float = np.inf,
    lam: Floats | None = None,
) -> float:
    """Return a certified bound on objective(x) - optimum for a feasible x and valid multipliers.

    With d_i = lam[i+1] - lam[i] in [-w_i, w_i] the duality gap is sum_i (w_i |x_i - y_i| + d_i (x_i - y_i))
    + sum_{0<i<n} lam[i] (x_i - x_{i-1}) + lam[0] (x_0 - lo) + lam[n] (hi - x_{n-1}). No term is negative, so
    nothing cancels and plain summation is off by a factor 1 + n 2^-53 at most. ``lam``: default rebuilt from
    x. O(n).
    """
    if not x.size:
        return 0.0
    lam = multipliers(x, y, w, lo, hi) if lam is None else as_floats(lam)
    weights, step = _weights(w)
    return float(_gap(as_data(x), as_data(y), weights, step, float(lo), float(hi), lam))


def judge(
    x: NDArray[Any],
    y: NDArray[Any],
    w: NDArray[Any] | None = None,
    lo: float = -np.inf,
    hi: float = np.inf,
) -> tuple[float, float, float]:
    """Return violation, objective and certified gap of a point alone, n >= 1 numbers: one pass where it is optimal.

    The violation is the largest decrease or excess over a bound (infinite where an entry is no number); the gap means
    nothing where it is not small. O(n).
    """
    point, data = as_data(x), as_data(y)
    # Unit weights are judged in integers, where no interval can be rounded empty.
    if w is None:
        result = _judge(point, data, _INTEGER_UNIT, 0, np.int64(x.size), float(lo), float(hi))
    else:
        result = _judge(point, data, *_weights(w), np.float64(np.inf), float(lo), float(hi))
    violation, objective, proved = result
    # NaN and infinite ends make every comparison above meaningless.
    if not (np.isfinite(point[0]) and np.isfinite(point[-1])):
        return np.inf, objective, np.inf
    return violation, objective, 0.0 if proved else gap(x, y, w, lo, hi)


def _weights(w: NDArray[Any] | None) -> tuple[Floats, int]:
    """Return weights and the step through them: step 0 stays at a single one."""
    return (_UNIT, 0) if w is None else (as_floats(w), 1)
