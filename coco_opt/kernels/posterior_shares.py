"""How regions share their groups out over sizes: a hierarchical Dirichlet prior, drawn along with the groups.

The size distribution of region v is a mixture of distributions B_j, pi_v(k) = sum_j w_vj B_j(k), with
B_j(k) = shape(k) hat_j(k) / mass_j and mass_j = sum_k shape(k) hat_j(k): hats that add up to 1, so that w = mass gives
the shape back (drawn too: ``kernels.posterior_shape``). The weights of a region are scattered about its parent's, and
the root's about the base's masses m (``kernels.posterior_base``), with a strength s_0 that is drawn too,

    w_root ~ Dirichlet(s_0 m),   w_v ~ Dirichlet(s_l w_parent),

and the strength s_l of every level l below has a density in proportion to (s + s_l)^-(1 + ``TAIL``) up to ``MOST``. Its
tail is heavy, so that regions that share one distribution are found to share it.

Given the groups all but the base and the strengths is drawn exactly (Gibbs sampling):

1. the hat that each group is of (``_count_hats``);
2. the shape, departing from its base (``_redraw_shape``);
3. level by level from the leaves up, the strength s_l (Metropolis steps, the weights of the level integrated out), and
   how many of a region's groups were drawn from its parent anew ("tables"), which count as groups of the parent
   (``_draw_tables``);
4. the base and s_0 (Metropolis steps);
5. the weights from the root down (``_draw_weights``). The leaves' weights are needed where entire rows are drawn
   (``draw``); single groups are moved with these weights summed out (``draw_collapsed``), because a leaf's groups and
   its weights fix each other and would mix slowly.

Invariant: weights of a region sum to 1. Cost: O(groups + regions x hats) a draw.
Source: the franchise of Teh, Jordan, Beal and Blei 2006, sections 5.1 and 5.3; Metropolis et al. 1953 (strengths).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from coco_opt.kernels.compile import compiled_in_place
from coco_opt.kernels.drawing import gamma, uniform
from coco_opt.kernels.posterior_base import Base, Counted, Knots, draw_base, step_of_any_length
from coco_opt.kernels.posterior_shape import Scales, Shape, draw_shape, sum_masses

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Words = NDArray[np.uint64]

MOST, TAIL = 1e5, 0.25  # of a strength: the largest, and the power of its tail
_TRIES = 4  # strengths proposed a draw
_LEAST = 1e-12  # of a weight: what underflows must be able to come back


class Basis(NamedTuple):
    """The tree, each region's level, the regions that are leaves, and the hats with their masses, which sum to 1.

    Size k has the share 1 - ``part[k]`` in hat ``left[k]`` and the rest in the one after it; ``mass`` is that of the
    shape that chains begin with, ``scales`` are its blocks and ``knots`` its base's. ``strength`` is the scale s of the
    strengths' density. Without regions weights stay as they are.
    """

    parent: Ints
    level: Ints
    leaves: Ints
    left: Ints
    part: Floats
    mass: Floats
    strength: float
    scales: Scales
    knots: Knots


class Shares(NamedTuple):
    """One chain's weights (regions, hats) and strengths (levels), and work space: (regions, hats)."""

    weights: Floats
    strengths: Floats
    counts: Ints
    mass: Floats
    shape: Shape
    base: Base


@compiled_in_place
def draw(
    basis: Basis,
    shares: Shares,
    histograms: NDArray[Any],
    occupied: NDArray[Any],
    occupied_count: Ints,
    upper: NDArray[Any],
    factors: Floats,
    words: Words,
) -> None:
    """Draw all weights anew given the groups; ``factors`` (leaves, hats) become the leaves' w / mass. O(groups)."""
    weights, mass = shares.weights, shares.mass
    _draw_above(basis, shares, histograms, occupied, occupied_count, upper, factors, words)
    # The leaves' weights come last: they depend on their parents'.
    for leaf in range(occupied_count.size):
        v = basis.leaves[leaf]
        if v > 0:
            _draw_weights(basis, shares, v, words)
        for j in range(mass.size):
            factors[leaf, j] = weights[v, j] / mass[j] if mass[j] > 0.0 else 0.0


@compiled_in_place
def draw_collapsed(
    basis: Basis,
    shares: Shares,
    histograms: NDArray[Any],
    occupied: NDArray[Any],
    occupied_count: Ints,
    upper: NDArray[Any],
    alpha: Floats,
    factors: Floats,
    words: Words,
) -> None:
    """Draw all but the leaves' weights anew, which are summed out: ``alpha`` (leaves, hats) become their parameters.

    The leaves' weights are drawn only to assign each group to a hat, and are then dropped.
    """
    mass = shares.mass
    # Weights given the leaf's groups, for the assignment to hats alone.
    for leaf in range(occupied_count.size):
        counts = shares.counts[basis.leaves[leaf]]
        for j in range(mass.size):
            some = mass[j] > 0.0 and occupied_count[leaf] > 0
            factors[leaf, j] = max(gamma(words, alpha[leaf, j] + counts[j]), _LEAST) / mass[j] if some else 0.0
    _draw_above(basis, shares, histograms, occupied, occupied_count, upper, factors, words)
    set_alpha(basis, shares, alpha)


@compiled_in_place
def set_alpha(basis: Basis, shares: Shares, alpha: Floats) -> None:
    """Fill in the parameters (leaves, hats) of the Dirichlet distribution of the leaves' weights."""
    for leaf in range(alpha.shape[0]):
        for j in range(alpha.shape[1]):
            alpha[leaf, j] = max(_parameter(basis, shares, basis.leaves[leaf], j), _LEAST)


@compiled_in_place
def _parameter(basis: Basis, shares: Shares, region: int, hat: int) -> float:
    """Return a parameter of the Dirichlet distribution of a region's weights."""
    if region == 0:
        return float(shares.base.root[hat])
    return float(shares.strengths[basis.level[region]] * shares.weights[basis.parent[region], hat])


@compiled_in_place
def _draw_weights(basis: Basis, shares: Shares, region: int, words: Words) -> None:
    """Draw a region's weights given its parent's and its counts."""
    weights, counts = shares.weights[region], shares.counts[region]
    total = 0.0
    # A Dirichlet draw: gamma draws, divided by their sum.
    for j in range(weights.size):
        some = basis.mass[j] > 0.0
        weights[j] = max(gamma(words, _parameter(basis, shares, region, j) + counts[j]), _LEAST) if some else 0.0
        total += weights[j]
    for j in range(weights.size):
        weights[j] /= total


@compiled_in_place
def _draw_above(
    basis: Basis,
    shares: Shares,
    histograms: NDArray[Any],
    occupied: NDArray[Any],
    occupied_count: Ints,
    upper: NDArray[Any],
    factors: Floats,
    words: Words,
) -> None:
    """Draw the groups' hats given the leaves' factors, then shape, strengths, tables, base and all inner weights."""
    counts = shares.counts
    # Parents before children; leaves are numbered in order and passed over.
    for v in range(counts.shape[0]):
        for j in range(counts.shape[1]):
            counts[v, j] = 0
    # Groups by hat at the leaves.
    for leaf in range(occupied_count.size):
        _count_hats(
            basis,
            histograms[leaf],
            occupied[leaf, : occupied_count[leaf]],
            factors[leaf],
            counts[basis.leaves[leaf]],
            upper[leaf],
            words,
        )
    _redraw_shape(basis, shares, histograms, occupied, occupied_count, words)
    # Children before parents, whose counts include the tables.
    for level in range(shares.strengths.size - 1, 0, -1):
        _draw_strength(basis, shares, level, words)
        _draw_tables(basis, shares, level, words)
    shape = shares.shape
    counted = Counted(shape.groups, shape.of_hat, counts[0], shape.values, basis.part)
    draw_base(basis.knots, shares.base, counted, words)
    sum_masses(shape.values, basis.left, basis.part, shares.mass)
    leaf = 0
    for v in range(counts.shape[0]):
        if leaf < basis.leaves.size and basis.leaves[leaf] == v and v > 0:
            leaf += 1
            continue
        _draw_weights(basis, shares, v, words)


@compiled_in_place
def _redraw_shape(
    basis: Basis, shares: Shares, histograms: NDArray[Any], occupied: NDArray[Any], occupied_count: Ints, words: Words
) -> None:
    """Draw the shape given all groups and their hats."""
    groups, of_hat = shares.shape.groups, shares.shape.of_hat
    for size in range(groups.size):
        groups[size] = 0.0
    for j in range(of_hat.size):
        of_hat[j] = 0.0
    # All groups by size and by hat.
    for leaf in range(occupied_count.size):
        for n in range(occupied_count[leaf]):
            size = occupied[leaf, n]
            groups[size] += histograms[leaf, size]
        for j in range(of_hat.size):
            of_hat[j] += shares.counts[basis.leaves[leaf], j]
    draw_shape(basis.scales, shares.shape, basis.left, basis.part, shares.mass, words)


@compiled_in_place
def _count_hats(
    basis: Basis,
    histogram: NDArray[Any],
    occupied: NDArray[Any],
    factors: Floats,
    counts: Ints,
    upper: NDArray[Any],
    words: Words,
) -> None:
    """Draw which hat each group of a leaf is of, and count them; ``upper`` (K + 1,) those of the later one by size."""
    for size in range(upper.size):
        upper[size] = 0
    # A size lies under two hats at most; their factors decide.
    for n in range(occupied.size):
        size = occupied[n]
        j, part, groups = basis.left[size], basis.part[size], histogram[size]
        if part == 0.0:
            counts[j] += groups
            continue
        after = part * factors[j + 1]
        probability = after / (after + (1.0 - part) * factors[j])
        drawn = 0
        # A binomial draw, one group at a time.
        for _ in range(groups):
            drawn += uniform(words) < probability
        counts[j + 1] += drawn
        upper[size] = drawn
        counts[j] += groups - drawn


@compiled_in_place
def _draw_strength(basis: Basis, shares: Shares, level: int, words: Words) -> None:
    """Draw a level's strength given its regions' counts by hat and their parents' weights."""
    density = _log_density(basis, shares, level, shares.strengths[level])
    for _ in range(_TRIES):
        proposed = shares.strengths[level] * math.exp(step_of_any_length(words))
        if not _LEAST < proposed < MOST:
            continue
        other = _log_density(basis, shares, level, proposed)
        if math.log(uniform(words)) < other - density:
            shares.strengths[level], density = proposed, other


@compiled_in_place
def _log_density(basis: Basis, shares: Shares, level: int, strength: float) -> float:
    """Return the log-density of the logarithm of a level's strength, the weights of its regions integrated out."""
    density = math.log(strength) - (1.0 + TAIL) * math.log(basis.strength + strength)
    for v in range(1, shares.counts.shape[0]):
        if basis.level[v] != level:
            continue
        counts, weights, groups = shares.counts[v], shares.weights[basis.parent[v]], 0
        for j in range(counts.size):
            if counts[j] > 0:
                alpha = strength * weights[j]
                density += math.lgamma(alpha + counts[j]) - math.lgamma(alpha)
                groups += counts[j]
        density += math.lgamma(strength) - math.lgamma(strength + groups)
    return float(density)


@compiled_in_place
def _draw_tables(basis: Basis, shares: Shares, level: int, words: Words) -> None:
    """Draw how many groups of each region of a level and hat come from its parent anew; add them to the parent's."""
    counts, strength = shares.counts, shares.strengths[level]
    for v in range(counts.shape[0] - 1, 0, -1):
        if basis.level[v] != level:
            continue
        above = basis.parent[v]
        for j in range(counts.shape[1]):
            alpha = strength * shares.weights[above, j]
            drawn = 0
            # Group i opens a new table with probability alpha / (alpha + i).
            for i in range(counts[v, j]):
                drawn += uniform(words) * (alpha + i) < alpha
            counts[above, j] += max(drawn, min(counts[v, j], 1))
