"""The posterior of one row of cumulative counts, exactly: a hidden Markov chain over the sizes.

The chain is x_0 <= x_1 <= ... <= x_{K-1}, with x_{-1} = 0 and a public x_K = G. Its increments are independent:

    P(x_i - x_{i-1} = 0) = 1 - q_i,    P(x_i - x_{i-1} = n) = q_i (1 - rho_i) rho_i^(n-1),  n = 1, 2, ...,   i = 0..K,

and every cell has a weight w_i(x), the likelihood of its noisy measurements. States are stored in windows, ragged
arrays: cell i has the values low[i] + j at the places start[i] + j, j < start[i+1] - start[i]; all else has no mass.

1. ``weigh``: the likelihood of every state given the other rows.
2. ``_filter``: forwards, the distribution of each cell given the measurements so far. The geometric part turns a
   matrix-vector product into one recursion, J(x) = rho J(x - 1) + a(x - 1), so a pass costs O(states) and not
   O(states x window); gaps between windows are skipped by powers of rho.
3. ``_draw``: backwards, an entire row given all measurements.
4. ``sweep``: the rows of a hierarchy are drawn in turn, each given all others (Gibbs sampling): a noisy measurement of
   an ancestor is then a measurement of the row, shifted by the contribution of the other rows.

Invariant: after the draw of a row all residuals are those of the present rows. Cost: O(states x depth) a sweep.
Source: Carter and Kohn 1994 (forward filtering, backward sampling); Geman and Geman
1984 (Gibbs sampling); the recursion and windows are our own.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from coco_opt.kernels.compile import compiled
from coco_opt.kernels.drawing import uniform

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Words = NDArray[np.uint64]

GEOMETRIC, GAUSSIAN = 0, 1


class Increments(NamedTuple):
    """The prior of K + 1 increments: ``q``, the probability of any, and ``rho``, the geometric ratio beyond one."""

    q: Floats
    rho: Floats


class Window(NamedTuple):
    """The states of K cells: ``low`` int64[K] the lowest value, ``start`` int64[K + 1] the place of its weight."""

    low: Ints
    start: Ints


class CellAnswers(NamedTuple):
    """Noisy measurements of single cells: ``residual`` int64[blocks, K] is sum minus measurement.

    Every block has one noise distribution and one steepness.

    Steepness is 1 / scale for the geometric distribution, with likelihood exp(-|residual| steepness), and 1 / (2
    variance) for the Gaussian, exp(-residual^2 steepness). Row r adds to the blocks ``path[path_start[r]:path_start[r +
    1]]``.
    """

    residual: Ints
    distribution: Ints
    steepness: Floats
    path_start: Ints
    path: Ints


class Rows(NamedTuple):
    """Rows drawn in turn, with the numbers of groups of their regions: ``values`` int64[regions, K], ``totals``.

    ``low`` [regions, K] and ``start`` [regions, K + 1] are each row's window, ``powers[b, d]`` exp(-d steepness_b) of
    the blocks of measurements, ``words`` the generator's state.
    """

    values: Ints
    totals: Ints
    low: Ints
    start: Ints
    powers: Floats
    words: Words


@compiled
def _last_weight(increment: int, q: float, rho: float) -> float:
    """Return the probability of one increment."""
    if increment < 0:
        return 0.0
    return 1.0 - q if increment == 0 else q * (1.0 - rho) * rho ** (increment - 1)


@compiled
def _begin(window: Window, weight: Floats, prior: Increments, alpha: Floats, jump: Floats) -> float:
    """Fill in cell 0, whose row before is the one value 0; return the sum of its weights."""
    low, start = window
    q, rho = prior.q[0], prior.rho[0]
    norm = 0.0
    # From the value 0 every state of cell 0 is one increment away.
    for position in range(start[1]):
        x = low[0] + position
        jump[position] = rho ** (x - 1) if x > 0 else 0.0
        alpha[position] = weight[position] * (q * (1.0 - rho) * jump[position] if x > 0 else 1.0 - q)
        norm += alpha[position]
    return norm


@compiled
def _filter(window: Window, weight: Floats, prior: Increments, total: int, alpha: Floats, jump: Floats) -> float:
    """Fill alpha and jump, and return the log-likelihood.

    Alpha is the distribution of x_i given the measurements up to i; jump is J of the row before.

    Rows of alpha sum to a number of their own, jump goes with the row before. Returns minus infinity where no path
    through the windows has mass.
    """
    low, start = window
    cells = low.size
    norm = _begin(window, weight, prior, alpha, jump)
    log_likelihood = 0.0
    product = norm
    # Alpha of the row before sums to ``norm``; dividing by it here keeps numbers in range.
    for i in range(1, cells):
        if not norm > 0.0:
            return -np.inf
        q, rho = prior.q[i], prior.rho[i]
        # The row before has the values before_low .. before_end - 1, the value z at the place shift + z.
        before_low = low[i - 1]
        shift = start[i - 1] - before_low
        before_end = start[i] - shift
        position, first, top = start[i], low[i], low[i] + start[i + 1] - start[i]
        stay, go = (1.0 - q) / norm, q * (1.0 - rho) / norm
        norm = 0.0
        running = 0.0
        # Values below the present window: only their running sum J matters.
        for z in range(before_low, min(first, before_end)):
            running = rho * running + alpha[shift + z]
        if first > before_end:
            running *= rho ** (first - before_end)
        x = first
        # States below the row before cannot be reached.
        while x < min(before_low, top):
            jump[position] = alpha[position] = 0.0
            position += 1
            x += 1
        # States in both windows: stay at the value, or come from below through J.
        while x < min(before_end, top):
            last = alpha[shift + x]
            value = weight[position] * (stay * last + go * running)
            jump[position] = running
            alpha[position] = value
            norm += value
            running = rho * running + last
            position += 1
            x += 1
        # States above the window before: J falls off by powers of rho.
        while x < top:
            value = weight[position] * go * running
            jump[position] = running
            alpha[position] = value
            norm += value
            running *= rho
            position += 1
            x += 1
        product *= norm
        # Take the logarithm rarely: only before the product of the norms leaves the range of numbers.
        if not 1e-100 < product < 1e100:
            if not product > 0.0:
                return -np.inf
            log_likelihood += math.log(product)
            product = 1.0
    end = 0.0
    # The last increment leads to the public total.
    for position in range(start[cells - 1], start[cells]):
        increment = total - low[cells - 1] - (position - start[cells - 1])
        end += alpha[position] * _last_weight(increment, prior.q[cells], prior.rho[cells])
    if not (norm > 0.0 and end > 0.0):
        return -np.inf
    return log_likelihood + math.log(product) + math.log(end / norm)


@compiled
def _draw(window: Window, prior: Increments, total: int, alpha: Floats, jump: Floats, state: Words, row: Ints) -> None:
    """Draw an entire row given all measurements, from the last cell back; alpha and jump come from the filter."""
    low, start = window
    cells = low.size
    last = alpha[start[cells - 1] : start[cells]]
    sum_of = 0.0
    for j in range(last.size):
        sum_of += last[j] * _last_weight(total - low[cells - 1] - j, prior.q[cells], prior.rho[cells])
    left = uniform(state) * sum_of
    x = low[cells - 1] - 1
    # Inversion: subtract terms until the uniform draw is used up.
    for j in range(last.size):
        part = last[j] * _last_weight(total - low[cells - 1] - j, prior.q[cells], prior.rho[cells])
        if part > 0.0:
            x = low[cells - 1] + j
            left -= part
            if left <= 0.0:
                break
    row[cells - 1] = x
    # Either the cell before has the same value, or the increment is positive.
    for i in range(cells - 1, 0, -1):
        before, bottom = alpha[start[i - 1] : start[i]], low[i - 1]
        end = bottom + before.size
        rest = jump[start[i] + x - low[i]]
        same = before[x - bottom] if bottom <= x < end else 0.0
        q, rho = prior.q[i], prior.rho[i]
        go = q * (1.0 - rho) * rest
        if uniform(state) * ((1.0 - q) * same + go) >= (1.0 - q) * same:
            # J(x) = a(x - 1) + rho a(x - 2) + ...: take the first term that brings the rest below zero.
            rest *= uniform(state)
            z = x - 1
            power = 1.0
            if z >= end:
                power = rho ** (z - end + 1)
                z = end - 1
            x = z
            while z >= bottom:
                part = power * before[z - bottom]
                if part > 0.0:
                    x = z
                    rest -= part
                    if rest <= 0.0:
                        break
                power *= rho
                z -= 1
        row[i - 1] = x


@compiled
def _weigh_cell(
    weight: Floats, begin: int, width: int, answers: CellAnswers, first: int, last: int, away: Ints, powers: Floats
) -> None:
    """Fill in one cell's weights state by state; away[p] is the residual of block path[p] at the lowest state."""
    for j in range(width):
        weight[begin + j] = 1.0
    # One factor a block, relative to that of the state nearest to the measurement.
    for p in range(first, last):
        block, off = answers.path[p], away[p - first]
        nearest = max(off, -(off + width - 1), 0)
        for j in range(width):
            if answers.distribution[block] == GEOMETRIC:
                weight[begin + j] *= powers[block, abs(off + j) - nearest]
            else:
                weight[begin + j] *= math.exp(-answers.steepness[block] * float((off + j) ** 2 - nearest**2))


@compiled
def weigh(window: Window, answers: CellAnswers, region: int, row: Ints, powers: Floats, weight: Floats) -> None:
    """Fill in the likelihood of every state of a row, given the other rows, up to one factor a cell.

    powers[b, d] = exp(-d steepness_b). The product of geometric likelihoods is itself geometric between the values at
    which one of the residuals is 0: there one multiplication a state does, unless the first weight would vanish.
    """
    low, start = window
    first, last = answers.path_start[region], answers.path_start[region + 1]
    away, turns = np.empty(last - first, np.int64), np.empty(last - first + 1, np.int64)
    geometric = True
    for p in range(first, last):
        geometric &= answers.distribution[answers.path[p]] == GEOMETRIC
    for i in range(low.size):
        begin, width = start[i], start[i + 1] - start[i]
        value = ratio = 1.0
        waiting = 0
        # The weight at the lowest state, the factor from state to state there, and where residuals change sign.
        for p in range(first, last):
            block = answers.path[p]
            off = answers.residual[block, i] + low[i] - row[i]
            away[p - first] = off
            value *= powers[block, max(abs(off) - max(off, -(off + width - 1), 0), 0)]
            ratio = ratio * powers[block, 1] if off >= 0 else ratio / powers[block, 1]
            if 0 > off > -width:
                position = waiting
                # Keep the turns sorted.
                while position > 0 and turns[position - 1] > -off:
                    turns[position] = turns[position - 1]
                    position -= 1
                turns[position] = -off
                waiting += 1
        if not geometric or value < 1e-200:
            _weigh_cell(weight, begin, width, answers, first, last, away, powers)
            continue
        turns[waiting] = width
        j = 0
        # Between two turns the weights are geometric.
        for turn in range(waiting + 1):
            while j < turns[turn]:
                weight[begin + j] = value
                value *= ratio
                j += 1
            if turn < waiting:
                for p in range(first, last):
                    if away[p - first] == -turns[turn] and (turn == 0 or turns[turn] > turns[turn - 1]):
                        ratio *= powers[answers.path[p], 1] ** 2


@compiled
def sweep(answers: CellAnswers, rows: Rows, prior: Increments) -> bool:
    """Draw every row anew given all the others, and keep the residuals up to date; O(states x depth).

    ``prior`` [regions, K + 1]. Returns False, with that row unchanged, where a window has no mass.
    """
    values, words = rows.values, rows.words
    largest = 0
    for r in range(values.shape[0]):
        largest = max(largest, rows.start[r, -1])
    weight, alpha, jump = np.empty(largest), np.empty(largest), np.empty(largest)
    drawn = np.empty(values.shape[1], np.int64)
    complete = True
    # Weigh, filter, draw; then the residuals follow the new row.
    for r in range(values.shape[0]):
        window, own = Window(rows.low[r], rows.start[r]), Increments(prior.q[r], prior.rho[r])
        weigh(window, answers, r, values[r], rows.powers, weight)
        if _filter(window, weight, own, rows.totals[r], alpha, jump) == -np.inf:
            complete = False
            continue
        _draw(window, own, rows.totals[r], alpha, jump, words, drawn)
        for p in range(answers.path_start[r], answers.path_start[r + 1]):
            residual = answers.residual[answers.path[p]]
            for i in range(drawn.size):
                residual[i] += drawn[i] - values[r, i]
        values[r] = drawn
    return complete


@compiled
def advance(answers: CellAnswers, rows: Rows, prior: Increments, sweeps: int, counts: Floats, present: Floats) -> bool:
    """Take ``sweeps`` sweeps; after each add every size's counts and occurrence to float64[regions, K + 1]."""
    complete = True
    cells = rows.values.shape[1]
    for _ in range(sweeps):
        complete &= sweep(answers, rows, prior)
        for r in range(rows.values.shape[0]):
            before = 0
            # The groups of size i are the rise of the row there.
            for i in range(cells + 1):
                after = rows.values[r, i] if i < cells else rows.totals[r]
                if after > before:
                    counts[r, i] += after - before
                    present[r, i] += 1.0
                before = after
    return complete
