"""Entire rows of cumulative counts drawn under a size distribution: this mixes well where leaves have many groups.

Of G groups that have size k with probability pi(k) each the counts by size are independent Poisson numbers of means G
pi(k), given that they add up to G. So the cumulative counts x_0 <= x_1 <= ... <= x_K = G are a Markov chain, with
increments

    P(x_k - x_{k-1} = n)  proportional to  (G pi(k))^n / n!,

and with noisy measurements of single cells a hidden one.

1. Draw the size distributions (``kernels.posterior_shares``).
2. Weigh the states of a row given all other rows, in windows that must stay fixed while draws are recorded, ragged
   arrays as in ``coco_opt.kernels.posterior_weights``.
3. Filter forwards: convolve with the Poisson probabilities, leaving out increments of less than ``_LEAST`` of the
   likeliest within a window (``_filter``).
4. Draw backwards an entire row (``_draw_row``).
5. Where ancestors have answers in buckets of cells, accept the row by the ratio of their likelihoods, which no filter
   over single cells can hold (``_accepts``). Update residuals and histograms.

Invariant: residuals and histograms are those of the present rows. Cost: O(states x increments) a row.
Source: Carter and Kohn 1994 (forward filtering, backward sampling); Hastings 1970.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from coco_opt.kernels.compile import compiled, compiled_in_place
from coco_opt.kernels.drawing import uniform
from coco_opt.kernels.posterior_shares import Basis, Shares, draw
from coco_opt.kernels.posterior_weights import GEOMETRIC, CellAnswers, Window, weigh

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Words = NDArray[np.uint64]

_LEAST = 1e-60


class CountRows(NamedTuple):
    """The leaves' rows: their numbers of groups, windows ``low`` [leaves, K] and ``start`` [leaves, K + 1], and counts.

    ``powers[b, d]`` is exp(-d steepness_b) of the blocks of measurements; ``histograms``, ``occupied``,
    ``occupied_count``, ``upper``, ``factors`` and ``shape`` are a chain's (``kernels.posterior_moves.State``).
    """

    totals: Ints
    low: Ints
    start: Ints
    powers: Floats
    histograms: NDArray[Any]
    occupied: NDArray[Any]
    occupied_count: Ints
    upper: NDArray[Any]
    factors: Floats
    shape: Floats
    words: Words


class Sums(NamedTuple):
    """Answers in buckets (``kernels.posterior_moves.Queries``), with the paths from leaves to them alone.

    ``residual`` is that of all answers; ``tried`` counts the rows that met such answers, and the accepted ones.
    """

    residual: Ints
    path_start: Ints
    path: Ints
    distribution: Ints
    steepness: Floats
    offset: Ints
    scheme: Ints
    bucket_start: Ints
    begin: Ints
    end: Ints
    tried: Ints


@compiled_in_place
def _poisson(mean: float, first: int, last: int, inverse: Floats, probabilities: Floats) -> tuple[int, int]:
    """Fill ``probabilities[n - first]`` with those of n = first .. last, relative to the largest of them.

    ``inverse[n]`` is 1 / n. Returns the ends of the stretch that is not left out; outside it nothing is filled in.
    """
    mode = min(max(int(mean), first), last)
    probabilities[mode - first] = 1.0
    low = high = mode
    value = 1.0
    # Upwards from the likeliest number, by the ratio mean / n, ...
    while high < last and value > _LEAST:
        high += 1
        value *= mean * inverse[high]
        probabilities[high - first] = value
    # ... and downwards by n / mean, which is at least 1 where a number lies below; it is 0 for a leaf without groups.
    value, over = 1.0, 1.0 / max(mean, 1.0)
    while low > first and value > _LEAST:
        value *= low * over
        low -= 1
        probabilities[low - first] = value
    return low, high


@compiled_in_place
def _step(before: Floats, after: Floats, shift: int, low: int, high: int, first: int, probabilities: Floats) -> None:
    """Add to after[j] the sum of before[i] probabilities[n - first], n = j - i + shift, low <= n <= high."""
    for j in range(after.size):
        after[j] = 0.0
    # One increment at a time, so that the inner loop runs over neighbouring states.
    for n in range(low, high + 1):
        # Places j = i + n - shift of both rows.
        begin, end = max(0, shift - n), min(before.size, after.size + shift - n)
        if begin >= end:
            continue
        probability = probabilities[n - first]
        source, target = before[begin:end], after[begin + n - shift : end + n - shift]
        for t in range(end - begin):
            target[t] += probability * source[t]


@compiled
def _filter(
    window: Window, weight: Floats, means: Floats, inverse: Floats, alpha: Floats, probabilities: Floats
) -> bool:
    """Fill alpha, the distribution of x_i given the measurements up to i; return False where it has no mass.

    Rows of alpha sum to 1.
    """
    low, start = window
    unit = np.ones(1)
    # Convolve, weigh, and scale the row to sum 1.
    for i in range(low.size):
        before = unit if i == 0 else alpha[start[i - 1] : start[i]]
        lowest = 0 if i == 0 else low[i - 1]
        after = alpha[start[i] : start[i + 1]]
        # Increments run from 0 (or a gap of windows) to the top of the one less the bottom of the other.
        first, last = max(low[i] - lowest - before.size + 1, 0), low[i] + after.size - 1 - lowest
        if last < first:
            return False
        ends = _poisson(means[i], first, last, inverse, probabilities)
        _step(before, after, low[i] - lowest, ends[0], ends[1], first, probabilities)
        norm = 0.0
        own = weight[start[i] : start[i + 1]]
        for j in range(after.size):
            after[j] *= own[j]
            norm += after[j]
        if not norm > 0.0:
            return False
        norm = 1.0 / norm
        for j in range(after.size):
            after[j] *= norm
    return True


@compiled
def _draw_row(
    window: Window,
    means: Floats,
    total: int,
    inverse: Floats,
    alpha: Floats,
    probabilities: Floats,
    words: Words,
    row: Ints,
) -> bool:
    """Draw an entire row, from the last cell back; return whether one has mass."""
    low, start = window
    after = total
    # The cell after it is known: its increments weigh the states of this one.
    for i in range(low.size - 1, -1, -1):
        before, lowest = alpha[start[i] : start[i + 1]], low[i]
        first, last = max(after - lowest - before.size + 1, 0), after - lowest
        if last < first:
            return False
        ends = _poisson(means[i + 1], first, last, inverse, probabilities)
        of_all = 0.0
        for n in range(ends[0], ends[1] + 1):
            probabilities[n - first] *= before[after - n - lowest]
            of_all += probabilities[n - first]
        if not of_all > 0.0:
            return False
        left = uniform(words) * of_all
        drawn = -1
        # Inversion: subtract terms until the uniform draw is used up.
        for n in range(ends[0], ends[1] + 1):
            if probabilities[n - first] > 0.0:
                drawn = n
                left -= probabilities[n - first]
                if left <= 0.0:
                    break
        after -= drawn
        row[i] = after
    return True


@compiled
def _accepts(sums: Sums, leaf: int, row: Ints, drawn: Ints, words: Words) -> bool:
    """Return whether the answers in buckets accept a drawn row in place of the present one; update them if so."""
    first, last = sums.path_start[leaf], sums.path_start[leaf + 1]
    if first == last:
        return True
    change = np.empty(row.size + 1, np.int64)
    change[0] = 0
    for i in range(row.size):
        change[i + 1] = change[i] + drawn[i] - row[i]
    # The row was drawn given all answers about cells, so those in buckets alone are left of Hastings' ratio.
    gain = 0.0
    for p in range(first, last):
        block = sums.path[p]
        begin, at = sums.bucket_start[sums.scheme[block]], sums.offset[block]
        for b in range(sums.offset[block + 1] - at):
            before = sums.residual[at + b]
            after = before + change[sums.end[begin + b]] - change[sums.begin[begin + b]]
            if sums.distribution[block] == GEOMETRIC:
                gain -= sums.steepness[block] * float(abs(after) - abs(before))
            else:
                gain -= sums.steepness[block] * float(after**2 - before**2)
    sums.tried[0] += 1
    if gain < 0.0 and uniform(words) >= np.exp(gain):
        return False
    sums.tried[1] += 1
    for p in range(first, last):
        block = sums.path[p]
        begin, at = sums.bucket_start[sums.scheme[block]], sums.offset[block]
        for b in range(sums.offset[block + 1] - at):
            sums.residual[at + b] += change[sums.end[begin + b]] - change[sums.begin[begin + b]]
    return True


@compiled
def advance(
    answers: CellAnswers, sums: Sums, rows: CountRows, basis: Basis, shares: Shares, sweeps: int, counts: Floats
) -> bool:
    """Take ``sweeps`` sweeps: the size distribution, then every row anew given all the others; O(states x increments).

    Adds each size's counts to float64[leaves, K + 1] after each. Returns False, with that row unchanged, where a window
    has no mass.
    """
    leaves, sizes = rows.histograms.shape
    largest = widest = 0
    # Scratch for the widest window and the largest increment.
    for leaf in range(leaves):
        largest = max(largest, rows.start[leaf, -1])
        for i in range(sizes - 1):
            top = rows.low[leaf, i] + rows.start[leaf, i + 1] - rows.start[leaf, i]
            bottom = 0 if i == 0 else rows.low[leaf, i - 1]
            widest = max(widest, top - bottom)
        widest = max(widest, rows.totals[leaf] - rows.low[leaf, -1] + 1)
    weight, alpha = np.empty(largest), np.empty(largest)
    probabilities, means = np.empty(widest + 1), np.empty(sizes)
    inverse = np.empty(int(rows.totals.max()) + 1)
    for n in range(1, inverse.size):
        inverse[n] = 1.0 / n
    row, drawn = np.empty(sizes - 1, np.int64), np.empty(sizes - 1, np.int64)
    complete = True
    for _ in range(sweeps):
        if basis.parent.size > 0:
            draw(
                basis, shares, rows.histograms, rows.occupied, rows.occupied_count, rows.upper, rows.factors, rows.words
            )
        # A leaf: the means of its sizes and its present row, then weigh, filter and draw.
        for leaf in range(leaves):
            window = Window(rows.low[leaf], rows.start[leaf])
            histogram, factors = rows.histograms[leaf], rows.factors[leaf]
            running = 0
            for k in range(sizes):
                part = basis.part[k]
                share = (1.0 - part) * factors[basis.left[k]]
                if part > 0.0:
                    share += part * factors[basis.left[k] + 1]
                means[k] = rows.totals[leaf] * rows.shape[k] * share
                if k < sizes - 1:
                    running += histogram[k]
                    row[k] = running
            weigh(window, answers, leaf, row, rows.powers, weight)
            filtered = _filter(window, weight, means, inverse, alpha, probabilities)
            if not (
                filtered
                and _draw_row(window, means, rows.totals[leaf], inverse, alpha, probabilities, rows.words, drawn)
            ):
                complete = False
                continue
            if not _accepts(sums, leaf, row, drawn, rows.words):
                continue
            # The residuals of the leaf's blocks and its ancestors' follow the new row.
            for p in range(answers.path_start[leaf], answers.path_start[leaf + 1]):
                residual = answers.residual[answers.path[p]]
                for i in range(drawn.size):
                    residual[i] += drawn[i] - row[i]
            _write_histogram(drawn, rows.totals[leaf], leaf, rows)
        # Record every size that occurs.
        for leaf in range(leaves):
            for n in range(rows.occupied_count[leaf]):
                size = rows.occupied[leaf, n]
                counts[leaf, size] += rows.histograms[leaf, size]
    return complete


@compiled_in_place
def _write_histogram(row: Ints, total: int, leaf: int, rows: CountRows) -> None:
    """Write a row as the leaf's histogram and list of occupied sizes."""
    occupied = before = 0
    # The groups of a size are the rise of the row there.
    for k in range(row.size + 1):
        after = row[k] if k < row.size else total
        rows.histograms[leaf, k] = after - before
        if after > before:
            rows.occupied[leaf, occupied] = k
            occupied += 1
        before = after
    rows.occupied_count[leaf] = occupied
