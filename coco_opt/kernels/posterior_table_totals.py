"""Gibbs draws of how the leaves' totals are distributed: smooth for all leaves, and around that below each region.

Totals lie in bins, and are distributed evenly within a bin. Below a region the bins' probabilities are Dirichlet around
its parent's. The root's probability of an empty leaf is free; those of the other bins, for each unit of the logarithm
of the total, have logs whose second differences are normal: totals that the answers hardly tell apart then have no
gaps and peaks, as a Dirichlet distribution would give them.

1. From the leaves up, count the leaves of each bin, and draw the numbers of tables that regions send to their parents.
2. Draw the root's probabilities: Metropolis steps of one bin after the other.
3. Draw the precision of the second differences.
4. From the root down, draw the other regions' probabilities.

Invariant: every row of probabilities adds up to 1. Cost: O(leaves + regions x bins).
Source: Teh, Jordan, Beal and Blei 2006 for the hierarchy; Rue and Held 2005, section 3.4, for second differences.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from coco_opt.kernels.compile import compiled_in_place
from coco_opt.kernels.drawing import gamma, uniform
from coco_opt.kernels.posterior_table_shares import tables_of
from coco_opt.kernels.posterior_table_state import Floats, Ints, Prior, State, Tree, bin_of, persons_of

_LEAST = 1e-12  # probability of a bin: a gamma draw can underflow to 0
_EMPTY = 0.5  # prior weight of empty leaves, and of others
_SHAPE, _RATE = 2.0, 0.2  # of the gamma prior of the precision
_CYCLES = 4


@compiled_in_place
def width_of(prior: Prior, k: int) -> float:
    """Return the number of totals in a bin."""
    return float(prior.edge[k + 1] - prior.edge[k])


@compiled_in_place
def log_width(prior: Prior, k: int) -> float:
    """Return the width of a bin of totals above 0 on the scale of their logarithms."""
    return math.log((prior.edge[k + 1] - 0.5) / (prior.edge[k] - 0.5))


@compiled_in_place
def send_totals(
    tree: Tree, prior: Prior, state: State, above: Ints, levels: Ints, sent: Ints, customers: Ints, opened: Ints
) -> None:
    """Fill ``sent`` [rows, bins]: the leaves of each region by their totals, and the tables that its children send.

    ``customers`` [rows] are their sums, and ``opened`` [levels] the tables of all regions but the root.
    """
    sent[:] = 0
    opened[:] = 0
    # A leaf is one customer of its parent, in the bin of its total.
    for leaf in range(tree.row.size):
        sent[tree.row[leaf], bin_of(prior, persons_of(state, leaf))] += 1
    # Rows from the last on: all children of a region have sent their tables before it sends its own.
    for row in range(sent.shape[0] - 1, -1, -1):
        customers[row] = 0
        # Row 1 is the root: nothing goes to the base.
        for k in range(sent.shape[1]):
            customers[row] += sent[row, k]
            if row > 1 and sent[row, k] > 0:
                share = math.exp(prior.log_probability[above[row], k]) * width_of(prior, k)
                tables = tables_of(sent[row, k], prior.likeness[levels[row]] * share, state.words)
                sent[above[row], k] += tables
                opened[levels[row]] += tables


@compiled_in_place
def second_differences(height: Floats, k: int) -> float:
    """Return the sum of the squares of the second differences of heights 1, 2, ... that contain height k."""
    total = 0.0
    for j in range(max(k - 1, 2), min(k + 1, height.size - 2) + 1):
        total += (height[j - 1] - 2.0 * height[j] + height[j + 1]) ** 2
    return total


@compiled_in_place
def draw_heights(prior: Prior, counts: Ints, height: Floats, precision: float, words: NDArray[np.uint64]) -> None:
    """Draw the logs of the probabilities of totals above 0 for each unit of the logarithm, up to a constant.

    ``counts`` [bins] and ``height`` [bins] have a place for empty leaves, which is not read.
    """
    # The heights are not normalised: ``whole`` is their integral, kept up to date from step to step.
    whole, leaves = 0.0, 0
    for k in range(1, height.size):
        whole += math.exp(height[k]) * log_width(prior, k)
        leaves += counts[k]
    for _ in range(_CYCLES):
        for k in range(1, height.size):
            before, old = height[k], second_differences(height, k)
            # In proportion to the standard deviation of a height given the others.
            step = 2.4 / math.sqrt(counts[k] + 6.0 * precision)
            height[k] = before + step * (2.0 * uniform(words) - 1.0)
            after = whole + (math.exp(height[k]) - math.exp(before)) * log_width(prior, k)
            # Leaves in the bin gain, all others lose by the normalisation, and the prior wants small differences.
            change = counts[k] * (height[k] - before) - leaves * math.log(after / whole)
            change -= 0.5 * precision * (second_differences(height, k) - old)
            if change >= 0.0 or math.log(uniform(words)) < change:
                whole = after
            else:
                height[k] = before


@compiled_in_place
def draw_precision(height: Floats, words: NDArray[np.uint64]) -> float:
    """Return the precision of the second differences of heights 1, 2, ..."""
    squares = 0.0
    for j in range(2, height.size - 1):
        squares += (height[j - 1] - 2.0 * height[j] + height[j + 1]) ** 2
    return float(gamma(words, _SHAPE + 0.5 * max(height.size - 3, 0)) / (_RATE + 0.5 * squares))


@compiled_in_place
def draw_root(
    prior: Prior, root: int, counts: Ints, precision: Floats, height: Floats, words: NDArray[np.uint64]
) -> None:
    """Draw the probabilities of a root's row from the leaves or tables in each bin, and the ``precision`` [1].

    ``height`` [bins] is scratch.
    """
    bins = counts.size
    height[0] = 0.0
    # Probabilities of single totals become densities on the scale of the logarithm, and back at the end.
    for k in range(1, bins):
        height[k] = prior.log_probability[root, k] + math.log(width_of(prior, k) / log_width(prior, k))
    draw_heights(prior, counts, height, precision[0], words)
    precision[0] = draw_precision(height, words)
    whole, leaves = 0.0, 0
    for k in range(1, bins):
        whole += math.exp(height[k]) * log_width(prior, k)
        leaves += counts[k]
    # The share of empty leaves is a beta draw of its own.
    empty, filled = gamma(words, _EMPTY + counts[0]), gamma(words, _EMPTY + leaves)
    for k in range(bins):
        share = empty / (empty + filled)
        if k > 0:
            share = (1.0 - share) * math.exp(height[k]) * log_width(prior, k) / whole
        prior.log_probability[root, k] = math.log(max(share, _LEAST) / width_of(prior, k))


@compiled_in_place
def draw_below(prior: Prior, above: Ints, levels: Ints, sent: Ints, mass: Floats, words: NDArray[np.uint64]) -> None:
    """Draw the probabilities of all regions below the root, given their parents' and what was sent.

    ``mass`` [bins] is scratch.
    """
    bins = sent.shape[1]
    # Rows from the first on: parents come before their children.
    for row in range(2, sent.shape[0]):
        whole = 0.0
        # A Dirichlet draw is one of independent gamma draws, normalised.
        for k in range(bins):
            share = math.exp(prior.log_probability[above[row], k]) * width_of(prior, k)
            mass[k] = max(gamma(words, prior.likeness[levels[row]] * share + sent[row, k]), _LEAST)
            whole += mass[k]
        for k in range(bins):
            prior.log_probability[row, k] = math.log(mass[k] / whole / width_of(prior, k))
