"""The likelihood of every state of a row of cumulative counts, given all other rows.

A row x_0 <= x_1 <= ... <= x_{K-1} has in cell i the weight w_i(x), the likelihood of the noisy measurements of that
cell: its own, and those of ancestors, shifted by the contribution of the other rows. With residuals r_p + (x - x_i) and
steepness s_p of the blocks p on the row's path

    w_i(x) = prod_p exp(-s_p |r_p + x - x_i|),   or with the square for Gaussian noise.

States are stored in windows, ragged arrays: cell i has the values low[i] + j at the places start[i] + j,
j < start[i+1] - start[i]; all else has no mass.

1. Find the weight at a cell's lowest state, and the states at which a residual changes its sign.
2. Between two of these the product is geometric: multiply from state to state.
3. Where a distribution is Gaussian, or the first weight would vanish, multiply block by block (``_weigh_cell``).

Invariant: weights of a cell are right up to one factor.
Cost: O(states + cells x depth), or O(states x depth) in step 3.
Source: our own.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from coco_opt.kernels.compile import compiled

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

GEOMETRIC, GAUSSIAN = 0, 1


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


@compiled
def _weigh_cell(
    weight: Floats, begin: int, width: int, answers: CellAnswers, first: int, last: int, away: Ints, powers: Floats
) -> None:
    """Fill in one cell's weights state by state; away[p] is the residual of block path[p] at the lowest state."""
    # No measurement at all: every state is as likely.
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
    # One Gaussian block on the path is enough to need every state's own factor.
    for p in range(first, last):
        geometric &= answers.distribution[answers.path[p]] == GEOMETRIC
    # Cells are independent here: the order along the row is the filter's matter.
    for i in range(low.size):
        begin, width = start[i], start[i + 1] - start[i]
        value = 1.0
        waiting = 0
        # The weight at the lowest state, and where residuals change sign.
        for p in range(first, last):
            block = answers.path[p]
            off = answers.residual[block, i] + low[i] - row[i]
            away[p - first] = off
            value *= powers[block, max(abs(off) - max(off, -(off + width - 1), 0), 0)]
            if 0 > off > -width:
                position = waiting
                # Keep the turns sorted.
                while position > 0 and turns[position - 1] > -off:
                    turns[position] = turns[position - 1]
                    position -= 1
                turns[position] = -off
                waiting += 1
        if width == 1 or not geometric or value < 1e-200:
            _weigh_cell(weight, begin, width, answers, first, last, away, powers)
            continue
        # From state to state. No factor divided by is 0, however sharp the answers: ``value`` has them all.
        ratio = 1.0
        for p in range(first, last):
            power = powers[answers.path[p], 1]
            ratio = ratio * power if away[p - first] >= 0 else ratio / power
        turns[waiting] = width
        j = 0
        # Between two turns the weights are geometric.
        for turn in range(waiting + 1):
            while j < turns[turn]:
                weight[begin + j] = value
                value *= ratio
                j += 1
            if turn < waiting:
                # A residual is 0 here, so its factor turns over: once for each block of the same turn.
                for p in range(first, last):
                    if away[p - first] == -turns[turn] and (turn == 0 or turns[turn] > turns[turn - 1]):
                        ratio *= powers[answers.path[p], 1] ** 2
