"""Isotonic regression with squared loss: pool adjacent violators, over an array or a stream.

    minimise  sum_i w_i (x_i - y_i)^2   subject to   lo <= x_0 <= x_1 <= ... <= x_{n-1} <= hi

The fit is the slope of the greatest convex minorant of the partial sums, a constant on each pooled block.

1. Take the entries in chunks, and thin each chunk (``_thin_values``, ``_thin_blocks``).
2. Push the chunk's blocks on a stack; as long as the mean below is not smaller, pool the two (``_push_blocks``). This
   alone is the algorithm: with a chunk's entries as its blocks the result is the same.
3. At the end every block's mean, clipped to lo..hi, is the fit of its entries (``_spread``).

With weights, step 1 is left out (``_push_weighted``).

Integer data (int64) are pooled exactly: block sums are integers and means are compared by exact products.

Why thin: the branches of step 2 are hard to predict, and thinning has none. A point of the path of partial sums that
lies on or above the chord between its two neighbours is no vertex of the minorant; one pass drops all such points, and
few reach the stack. Many integers are pooled in halves on two cores: exact blocks do not depend on the order of
pooling.

Invariant: the means of the blocks on the stack increase strictly, for floats up to rounding (``_spread`` restores
it in the result). Cost: O(n).
Source: Barlow, Bartholomew, Bremner and Brunk 1972, chapter 1; step 2 is one loop as in Busing 2022. The thinning
passes are our own.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coco_opt.errors import ProblemError
from coco_opt.kernels.arrays import as_data, as_floats
from coco_opt.kernels.compile import compiled

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_CHUNK = 2048
_MANY = 1 << 20  # integers from which two threads pool a half each
_EXACT_PRODUCT = 2.0**53
_EXACT_VALUE = 1 << 40  # a chunk's sums times its counts then stay below 2**62


@compiled
def _violates(left: Any, left_count: int, right: Any, right_count: int, is_integer: bool) -> bool:
    """Return whether the left mean is at least the right mean: exactly for integers, whatever the size of the sums."""
    a, b = float(left) * right_count, float(right) * left_count
    if not is_integer or (abs(a) < _EXACT_PRODUCT and abs(b) < _EXACT_PRODUCT):
        return a >= b
    # Products would overflow or round: compare the quotients, then the remainders.
    quotient_left, quotient_right = left // left_count, right // right_count
    if quotient_left != quotient_right:
        return bool(quotient_left > quotient_right)
    rest_left = left - quotient_left * left_count
    rest_right = right - quotient_right * right_count
    return bool(rest_left * right_count >= rest_right * left_count)


@compiled
def _push_blocks(
    sums: Any, counts: Any, top: int, new_sums: Any, new_counts: Any, blocks: int, is_rising: bool, is_integer: bool
) -> int:
    """Push blocks on the stack and pool backward; return the new top.

    Where the means of the new blocks rise, all others follow the first that is pooled with none.
    """
    # Step 2: pool backward until the mean below is smaller, then put the block on top.
    for i in range(blocks):
        total, count = new_sums[i], new_counts[i]
        clean = True
        while top >= 0 and _violates(sums[top], counts[top], total, count, is_integer):
            total += sums[top]
            count += counts[top]
            top -= 1
            clean = False
        top += 1
        sums[top] = total
        counts[top] = count
        # Nothing was pooled and the rest rises: copy it.
        if is_rising and clean:
            rest = blocks - i - 1
            for k in range(1, rest + 1):
                sums[top + k] = new_sums[i + k]
                counts[top + k] = new_counts[i + k]
            return top + rest
    return top


@compiled
def _push_weighted(y: Any, w: Floats, values: Floats, sums: Floats, weights: Floats, counts: Ints, top: int) -> int:
    """Pool weighted values into the stack; return its new top, or -2 at a weight that is not positive."""
    # Step 2: pool backward until the mean below is smaller; the stack stores means, so comparing needs no division.
    for i in range(y.size):
        value, weight, count = float(y[i]), w[i], 1
        if not weight > 0.0:
            return -2
        total = weight * value
        while top >= 0 and values[top] >= value:
            total += sums[top]
            weight += weights[top]
            count += counts[top]
            value = total / weight
            top -= 1
        top += 1
        values[top], sums[top], weights[top], counts[top] = value, total, weight, count
    return top


@compiled
def _chunk_is_rising(y: Any, begin: int, end: int) -> bool:
    for i in range(begin + 1, end):
        if y[i - 1] >= y[i]:
            return False
    return True


@compiled
def _thin_values(y: Any, begin: int, end: int, sums: Any, counts: Any) -> tuple[int, bool]:
    """Write runs without a strict rise as blocks; return how many, and whether products of sums and counts fit."""
    last, start, blocks = y[begin], begin, 0
    total, low, high = last, last, last
    # A run grows while values do not rise. Every step writes: a branch here would cost more.
    for i in range(begin + 1, end):
        value = y[i]
        sums[blocks] = total
        counts[blocks] = i - start
        rises = last < value
        blocks += rises
        total = value if rises else total + value
        start = i if rises else start
        low = min(low, value)
        high = max(high, value)
        last = value
    sums[blocks] = total
    counts[blocks] = end - start
    return blocks + 1, low > -_EXACT_VALUE and high < _EXACT_VALUE


@compiled
def _thin_blocks(sums: Any, counts: Any, blocks: int) -> int:
    """Join, in place and in one pass, each block to the one before it unless its mean is higher."""
    before, before_count = sums[0], counts[0]
    total, count, joined = before, before_count, 0
    # Means are compared as products; ``before`` is the neighbour as it was, not as it is pooled.
    for i in range(1, blocks):
        value, size = sums[i], counts[i]
        sums[joined] = total
        counts[joined] = count
        rises = before * size < value * before_count
        joined += rises
        total = value if rises else total + value
        count = size if rises else count + size
        before, before_count = value, size
    sums[joined] = total
    counts[joined] = count
    return joined + 1


@compiled
def _push_values(y: Any, sums: Any, counts: Any, top: int, is_integer: bool) -> int:
    """Pool values of weight one into the stack; return its new top. The stack needs y.size free entries."""
    new_sums = np.empty(_CHUNK, y.dtype)
    new_counts = np.empty(_CHUNK, np.int64)
    ones = np.ones(_CHUNK, np.int64)
    rising = True
    # Step 1: one chunk at a time, so that its blocks stay in the cache.
    for begin in range(0, y.size, _CHUNK):
        end = min(y.size, begin + _CHUNK)
        if rising and _chunk_is_rising(y, begin, end):
            top = _push_blocks(sums, counts, top, y[begin:end], ones, end - begin, True, is_integer)
            continue
        blocks, products_fit = _thin_values(y, begin, end, new_sums, new_counts)
        rising = blocks == end - begin
        ordered = rising
        # Thin until all means rise, or until a pass removes less than an eighth.
        while blocks > 8 and not ordered and (products_fit or not is_integer):
            joined = _thin_blocks(new_sums, new_counts, blocks)
            ordered, stalled = joined == blocks, 8 * joined > 7 * blocks
            blocks = joined
            if stalled:
                break
        top = _push_blocks(sums, counts, top, new_sums, new_counts, blocks, ordered, is_integer)
    return top


@compiled
def _expand(starts: Ints, means: Floats, lo: float, hi: float, out: Floats) -> None:
    """Write each block's clipped mean over its entries, from the back so that ``means`` may lie in ``out``."""
    # Step 3: block i is written at or behind its own mean, so no mean is lost before it is read.
    for i in range(means.size - 1, -1, -1):
        value = min(max(means[i], lo), hi)
        begin, end = starts[i], starts[i + 1]
        if end - begin == 1:
            out[begin] = value
        else:
            for k in range(begin, end):
                out[k] = value


@compiled
def _spread(sums: Any, counts: Ints, blocks: int, lo: float, hi: float, out: Floats) -> None:
    """Write each block's clipped mean over its entries, from the back so that ``sums`` may lie in ``out``.

    Means that rounding puts out of order take that of the block after them.
    """
    end, mean = out.size, np.inf
    # Step 3: block i is written at or behind its own sum, so no sum is lost before it is read.
    for i in range(blocks - 1, -1, -1):
        count = counts[i]
        mean = min(mean, float(sums[i]) / count)
        value = min(max(mean, lo), hi)
        begin = end - count
        if count == 1:
            out[begin] = value
        else:
            for k in range(begin, end):
                out[k] = value
        end = begin


def _pool_units(y: NDArray[Any]) -> tuple[NDArray[Any], Ints, int]:
    """Return sums and counts of the blocks of values of weight one, with room for n of them, and how many there are.

    Many integers are pooled in halves, side by side: exact blocks are the same in any order of pooling. Those of the
    second half are pushed on the first's within the same arrays, where none is written beyond the place it is read at.
    """
    # numpy, unlike compiled code, asks for huge pages: first touches are half the cost of n blocks.
    sums, counts, is_integer = np.empty(y.size, y.dtype), np.empty(y.size + 1, np.int64), y.dtype == np.int64
    half = y.size // 2 if is_integer and y.size >= _MANY else 0
    if not half:
        return sums, counts, _push_values(y, sums, counts, -1, is_integer) + 1
    second = sums[half:], counts[half:]
    # The second half on another core; its blocks are then pushed on those of the first.
    with ThreadPoolExecutor(1) as executor:
        later = executor.submit(_push_values, y[half:], *second, -1, is_integer)
        top = _push_values(y[:half], sums, counts, -1, is_integer)
    return sums, counts, _push_blocks(sums, counts, top, *second, later.result() + 1, True, is_integer) + 1


def _pool_weighted(y: NDArray[Any], w: NDArray[Any]) -> tuple[Ints, Floats]:
    """Return starts and means of the blocks of values with weights; ProblemError for a weight that is not positive."""
    weights = as_floats(w)
    if weights.size != y.size:
        raise ProblemError("isotonic regression needs one weight for each value")
    means, sums, masses, counts = np.empty(y.size), np.empty(y.size), np.empty(y.size), np.empty(y.size, np.int64)
    top = _push_weighted(y, weights, means, sums, masses, counts, -1)
    if top < -1:
        raise ProblemError("isotonic regression needs positive weights: leave out entries of weight zero")
    return np.append(0, np.cumsum(counts[: top + 1])), means[: top + 1]


def fit(y: NDArray[Any], w: NDArray[Any] | None = None, lo: float = -np.inf, hi: float = np.inf) -> Floats:
    """Return the isotonic fit of y (n values, positive weights w or None) within [lo, hi], as n float64.

    Bounds only clip the unbounded fit (Kuo et al. 2018, section 4). Raises ProblemError for a weight that is
    not positive. O(n).
    """
    data = as_data(y)
    if w is None:
        sums, counts, blocks = _pool_units(data)
        out = sums.view(np.float64)
        _spread(sums, counts, blocks, float(lo), float(hi), out)
        return out
    starts, means = _pool_weighted(data, w)
    out = np.empty(data.size)
    _expand(starts, means, float(lo), float(hi), out)
    return out


class BlockStream:
    """Pool a long sequence of integers that arrives in pieces, in memory O(blocks + piece).

    The blocks are those of one pass over all, whatever the pieces.
    """

    def __init__(self, *, capacity: int = 1024) -> None:
        self._top = -1
        self._sums: Ints = np.empty(capacity, np.int64)
        self._counts: Ints = np.empty(capacity, np.int64)

    def push(self, y: NDArray[Any]) -> None:
        """Pool the next piece; raises ProblemError for values that are no integers."""
        if y.dtype.kind not in "iu":
            raise ProblemError("a stream of blocks takes integers only")
        self._reserve(y.size)
        self._top = _push_values(as_data(y), self._sums, self._counts, self._top, True)

    def blocks(self) -> tuple[Ints, Ints]:
        """Return (sums, lengths) of the blocks of everything pushed so far; the stream can go on."""
        used = self._top + 1
        return self._sums[:used].copy(), self._counts[:used].copy()

    def _reserve(self, extra: int) -> None:
        used = self._top + 1
        if used + extra <= self._sums.size:
            return
        # Doubling: each entry is copied a bounded number of times on average.
        size = max(2 * self._sums.size, used + extra)
        self._sums, self._counts = _grown(self._sums, used, size), _grown(self._counts, used, size)


def _grown(array: Ints, used: int, size: int) -> Ints:
    larger = np.empty(size, np.int64)
    larger[:used] = array[:used]
    return larger
