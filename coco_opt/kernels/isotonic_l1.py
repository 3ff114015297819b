"""Isotonic regression with absolute loss: divide and conquer on the value range.

    minimise  sum_i w_i |x_i - y_i|   subject to   lo <= x_0 <= x_1 <= ... <= x_{n-1} <= hi

For a segment and a threshold t the entries fitted at most t are a prefix. Its end is an argmin of the walk
that goes one step up at y_i > t and one down otherwise: the smallest argmin leads to the largest optimum
("upper"), the largest argmin to the smallest optimum ("lower").

1. Take a segment and the range of its values, at first all entries and lo..hi.
2. Choose a threshold t in the range: the median of a sample.
3. Find the prefix fitted at most t by one pass over the walk (``_cut``).
4. Solve both parts on their own: the prefix in low..t, the rest in t + 1..high. A range of one value ends a segment,
   and short segments are solved by the slope trick on a sorted buffer (``_fit_small``).

Speed: the walk is first counted in blocks of 64, which compiles to vector instructions; a block is looked at
entry by entry only if it can hold the minimum. Thresholds are sample medians, so few levels are needed.

Invariant: the optimum of every waiting segment lies within its value range. Cost: O(n log range) at worst.
Source: the cut of Ahuja and Orlin 2001 and Stout 2013; blocks and sampling are our own.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from coco_opt.errors import ProblemError
from coco_opt.kernels.arrays import as_floats, read_only
from coco_opt.kernels.compile import compiled

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_BLOCK = 64
_SMALL = 128
_SAMPLES = 9
_MEDIAN_LEVELS = 48  # deeper segments halve their value range, which bounds the depth by this plus 64
_STACK = 128


@compiled
def _threshold(z: Any, begin: int, end: int, low: int, high: int, level: int, sample: Any) -> int:
    """Choose t with low <= t < high: a sample median, or the middle of the range in deep segments."""
    if level > _MEDIAN_LEVELS:
        return low + (high - low) // 2
    stride = max(1, (end - begin) // _SAMPLES)
    size = 0
    # Insert a few evenly spaced entries into a sorted sample.
    for i in range(begin + stride // 2, end, stride):
        value = z[i]
        j = size
        while j > 0 and sample[j - 1] > value:
            sample[j] = sample[j - 1]
            j -= 1
        sample[j] = value
        size += 1
        if size == _SAMPLES:
            break
    return min(max(int(sample[size // 2]), low), high - 1)


@compiled
def _cut(z: Any, threshold: int, upper: bool, above: Ints) -> int:
    """Return the argmin (0..z.size) of the walk over a segment: the smallest if ``upper``, else the largest."""
    t = z.dtype.type(threshold)
    blocks = z.size // _BLOCK
    walk = lowest = 0
    # First pass: count the steps up by block; no branch depends on the data.
    for k in range(blocks):
        count = 0
        for i in range(k * _BLOCK, (k + 1) * _BLOCK):
            count += z[i] > t
        above[k] = count
        walk += 2 * count - _BLOCK
        lowest = min(lowest, walk)
    # The walk at the blocks' edges bounds its minimum; only blocks that can get below are looked into.
    slack = 0 if upper else 1
    best, cut = (0, 0) if lowest == 0 else (lowest + 1 - slack, 0)
    walk = 0
    # Second pass: a block is walked through only if the walk can come below the best value there.
    for k in range(blocks):
        count = above[k]
        if walk + count - _BLOCK < best + slack:
            inner = walk
            for i in range(k * _BLOCK, (k + 1) * _BLOCK):
                inner += 1 if z[i] > t else -1
                better = inner < best + slack
                best = inner if better else best
                cut = i + 1 if better else cut
        walk += 2 * count - _BLOCK
    # The entries after the last full block.
    for i in range(blocks * _BLOCK, z.size):
        walk += 1 if z[i] > t else -1
        better = walk < best + slack
        best = walk if better else best
        cut = i + 1 if better else cut
    return cut


@compiled
def _fit_small(z: Any, begin: int, end: int, low: int, high: int, base: int, upper: bool, x: Ints, slopes: Any) -> None:
    """Fit a short segment by the slope trick: breakpoints of the partial optimum, sorted, the argmin last.

    The left end of the argmin gives the lower fit; the upper fit is the lower one of the mirrored data.
    """
    sign = -1 if upper else 1
    # slopes[:k] holds the breakpoints in order. The new one is added twice, and the largest of all is dropped.
    for k in range(end - begin):
        i = end - 1 - k if upper else begin + k
        value = sign * int(z[i])
        j = k
        if k > 0 and slopes[k - 1] > value:
            # Insertion: larger breakpoints move up by two places.
            while j > 0 and slopes[j - 1] > value:
                slopes[j + 1] = slopes[j - 1]
                j -= 1
            slopes[j + 1] = value
        slopes[j] = value
        x[i] = slopes[k]
    running = slopes[end - begin - 1]
    # Backwards each entry is the least of its own argmin and the entry after it.
    for k in range(end - begin - 1, -1, -1):
        i = end - 1 - k if upper else begin + k
        running = min(running, x[i])
        x[i] = min(max(sign * running, low), high) + base


@compiled
def _push(stack: Ints, waiting: int, begin: int, end: int, low: int, high: int, level: int) -> None:
    """Put a segment on the stack, entry by entry: assigning a tuple takes a second to compile."""
    stack[waiting, 0] = begin
    stack[waiting, 1] = end
    stack[waiting, 2] = low
    stack[waiting, 3] = high
    stack[waiting, 4] = level


@compiled
def _pop(stack: Ints, waiting: int) -> tuple[int, int, int, int, int]:
    return stack[waiting, 0], stack[waiting, 1], stack[waiting, 2], stack[waiting, 3], stack[waiting, 4]


@compiled
def _fit(z: Any, top: int, base: int, upper: bool, x: Ints) -> None:
    """Fit z (offsets 0..top from ``base``) into x; segments wait on an explicit stack."""
    above = np.empty(z.size // _BLOCK + 1, np.int64)
    sample = np.empty(_SAMPLES, np.int64)
    slopes = np.empty(_SMALL + 2, np.int64)
    stack = np.empty((_STACK, 5), np.int64)
    _push(stack, 0, 0, z.size, 0, top, 0)
    waiting = 1
    # The stack holds right parts that are still to be solved; the left part is solved at once.
    while waiting:
        waiting -= 1
        begin, end, low, high, level = _pop(stack, waiting)
        # A sample median about halves the segment; deep segments halve their range of values instead.
        while end > begin:
            if low == high:
                for i in range(begin, end):
                    x[i] = low + base
                break
            if end - begin <= _SMALL:
                _fit_small(z, begin, end, low, high, base, upper, x, slopes)
                break
            t = _threshold(z, begin, end, low, high, level, sample)
            cut = begin + _cut(z[begin:end], t, upper, above)
            level += 1
            _push(stack, waiting, cut, end, t + 1, high, level)
            waiting += 1
            end, high = cut, t


@compiled
def _shift(y: Ints, low: int, high: int, z: Any) -> None:
    for i in range(y.size):
        z[i] = min(max(y[i], low), high) - low


def _integers(y: NDArray[Any]) -> Ints:
    """Return y as contiguous int64; a float would be cut off, an unsigned number could wrap around."""
    data = np.asarray(y)
    if data.size and not np.can_cast(data.dtype, np.int64):
        raise ProblemError(f"isotonic regression on integers takes values that fit in int64, not {data.dtype}")
    return read_only(np.ascontiguousarray(data, np.int64))


def _clipped_range(y: Ints, lo: int | None, hi: int | None) -> tuple[int, int]:
    low, high = int(y.min()), int(y.max())
    if lo is not None and hi is not None and lo > hi:
        raise ProblemError("isotonic regression has no feasible point: the lower bound lies above the upper one")
    # An optimum needs no value outside the data's range.
    low = low if lo is None else max(low, lo)
    high = high if hi is None else min(high, hi)
    if high - low >= 2**62:
        raise ProblemError("isotonic regression on integers needs values that span less than 2^62")
    # Data wholly outside the bounds leave one value: the bound they lie beyond.
    if low > high:
        return (low, low) if lo is not None and low == lo else (high, high)
    return low, high


def fit(y: Ints, lo: int | None = None, hi: int | None = None, *, upper: bool = True) -> Ints:
    """Return the largest (``upper``) or smallest optimum for integers y, n int64; None is no bound.

    Bounds only clip: thresholds outside them decide nothing. Raises ProblemError if lo > hi. O(n log range)
    at worst, about O(n) on noise around long runs. Source: the cut of Ahuja and Orlin 2001, Stout 2013.
    """
    data = _integers(y)
    x = np.empty(data.size, np.int64)
    if data.size:
        low, high = _clipped_range(data, lo, hi)
        # Half the bytes for narrow data: the walk's passes are bound by memory.
        narrow = high - low < 2**31 - 1
        z: NDArray[Any] = np.empty(data.size, np.int32 if narrow else np.int64)
        _shift(data, low, high, z)
        _fit(z, high - low, low, upper, x)
    return x


@compiled
def _fit_weighted(y: Ints, w: Floats, low: int, high: int, upper: bool, x: Ints) -> None:
    sample = np.empty(_SAMPLES, np.int64)
    stack = np.empty((_STACK, 5), np.int64)
    _push(stack, 0, 0, y.size, low, high, 0)
    waiting = 1
    # As in ``_fit``: the stack holds right parts that are still to be solved.
    while waiting:
        waiting -= 1
        begin, end, low, high, level = _pop(stack, waiting)
        while end > begin:
            if low == high or end - begin == 1:
                for i in range(begin, end):
                    x[i] = min(max(y[begin], low), high)
                break
            t = _threshold(y, begin, end, low, high, level, sample)
            walk, best, cut = 0.0, 0.0, begin
            # The walk takes steps of the weights; its argmin is the end of the prefix fitted at most t.
            for i in range(begin, end):
                walk += w[i] if y[i] > t else -w[i]
                if walk < best or (walk == best and not upper):
                    best, cut = walk, i + 1
            level += 1
            _push(stack, waiting, cut, end, t + 1, high, level)
            waiting += 1
            end, high = cut, t


def fit_weighted(y: Ints, w: NDArray[Any], lo: int | None = None, hi: int | None = None, *, upper: bool = True) -> Ints:
    """Return the largest or smallest optimum for integers y with n positive weights, n int64.

    Ties are exact for weights whose sums are exact doubles (integers below 2^53). Raises ProblemError if
    lo > hi or a weight is not positive. O(n log range).
    """
    data, weights = _integers(y), as_floats(w)
    if weights.size != data.size or not bool((weights > 0).all()):
        raise ProblemError("isotonic regression needs one positive weight for each value")
    x = np.empty(data.size, np.int64)
    if data.size:
        low, high = _clipped_range(data, lo, hi)
        _fit_weighted(data, weights, low, high, upper, x)
    return x


def fit_real(
    y: Floats,
    w: NDArray[Any] | None = None,
    lo: float = -np.inf,
    hi: float = np.inf,
    *,
    upper: bool = True,
) -> Floats:
    """Return the largest or smallest optimum for real y: the integer fit of the ranks. O(n log n).

    An optimum needs no values but those of y and the bounds. Raises as ``fit_weighted``.
    """
    if lo > hi:
        raise ProblemError("isotonic regression has no feasible point: the lower bound lies above the upper one")
    values, ranks = np.unique(np.asarray(y, np.float64), return_inverse=True)
    ranks = ranks.astype(np.int64, copy=False)
    fitted = fit(ranks, upper=upper) if w is None else fit_weighted(ranks, w, upper=upper)
    return np.clip(values[fitted], lo, hi)
