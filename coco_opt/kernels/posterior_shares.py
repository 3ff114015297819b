"""How regions share their groups out over sizes: a hierarchical Dirichlet prior, drawn along with the groups.

The law of sizes of region v is a mixture of fixed laws B_j, pi_v(k) = sum_j w_vj B_j(k), with
B_j(k) = shape(k) hat_j(k) / mass_j and mass_j = sum_k shape(k) hat_j(k): hats that add up to 1, so that w = mass gives
the shape back. The weights of a region are scattered about its parent's,

    w_root ~ Dirichlet(s_0 mass),   w_v ~ Dirichlet(s_l w_parent),   s_l ~ gamma(1, mean s_0) for every level l below.

Given the groups all of it is drawn exactly (Gibbs sampling): the hat each group is of; by the franchise of Teh et al.
2006, sections 5.1 and 5.3, how many of a region's groups were drawn from its parent anew ("tables"), which count as
groups of the parent; the strengths s_l from groups and tables (Escobar and West 1995; Teh et al., appendix A); then the
weights from the root down.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from coco_opt.kernels.compile import compiled_in_place
from coco_opt.kernels.drawing import gamma, uniform

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Words = NDArray[np.uint64]

_LEAST = 1e-12  # of a weight: what underflows must be able to come back
_LEAST_ROOT = 0.1  # groups that every hat has at the root


class Basis(NamedTuple):
    """The tree, each region's level, the regions that are leaves, and the hats with their masses, which sum to 1.

    Size k has the share 1 - ``part[k]`` in hat ``left[k]`` and the rest in the one after it. ``strength`` is s_0.
    Without regions weights stay as they are.
    """

    parent: Ints
    level: Ints
    leaves: Ints
    left: Ints
    part: Floats
    mass: Floats
    strength: float


class Shares(NamedTuple):
    """One chain's weights (regions, hats) and strengths (levels), and room for counts: (regions, hats), (levels, 2)."""

    weights: Floats
    strengths: Floats
    counts: Ints
    told: Floats


@compiled_in_place
def draw(
    basis: Basis,
    shares: Shares,
    histograms: Ints,
    occupied: NDArray[np.int32],
    held: Ints,
    factors: Floats,
    words: Words,
) -> None:
    """Draw all weights anew given the groups; ``factors`` (leaves, hats) become the leaves' w / mass. O(groups)."""
    weights, strengths, counts = shares.weights, shares.strengths, shares.counts
    hats = basis.mass.size
    for v in range(counts.shape[0]):
        for j in range(hats):
            counts[v, j] = 0
    for leaf in range(held.size):
        _count_hats(
            basis, histograms[leaf], occupied[leaf, : held[leaf]], factors[leaf], counts[basis.leaves[leaf]], words
        )
    _draw_tables(basis, shares, words)
    for level in range(1, strengths.size):
        strengths[level] = max(gamma(words, shares.told[level, 0]) / shares.told[level, 1], _LEAST)
    for v in range(counts.shape[0]):
        total = 0.0
        for j in range(hats):
            if v == 0:
                alpha = max(basis.strength * basis.mass[j], _LEAST_ROOT)
            else:
                alpha = strengths[basis.level[v]] * weights[basis.parent[v], j]
            weights[v, j] = max(gamma(words, alpha + counts[v, j]), _LEAST) if basis.mass[j] > 0.0 else 0.0
            total += weights[v, j]
        for j in range(hats):
            weights[v, j] /= total
    for leaf in range(held.size):
        for j in range(hats):
            factors[leaf, j] = weights[basis.leaves[leaf], j] / basis.mass[j] if basis.mass[j] > 0.0 else 0.0


@compiled_in_place
def _count_hats(
    basis: Basis, histogram: Ints, occupied: NDArray[np.int32], factors: Floats, counts: Ints, words: Words
) -> None:
    """Draw which hat each group of a leaf is of, and count them."""
    for n in range(occupied.size):
        size = occupied[n]
        j, part, groups = basis.left[size], basis.part[size], histogram[size]
        if part == 0.0:
            counts[j] += groups
            continue
        after = part * factors[j + 1]
        chance = after / (after + (1.0 - part) * factors[j])
        drawn = 0
        for _ in range(groups):
            drawn += uniform(words) < chance
        counts[j + 1] += drawn
        counts[j] += groups - drawn


@compiled_in_place
def _draw_tables(basis: Basis, shares: Shares, words: Words) -> None:
    """Draw how many groups of each region and hat come from its parent anew, add them to the parent's, from below.

    ``told[level]`` becomes shape and rate of the gamma law of the level's strength.
    """
    counts, told = shares.counts, shares.told
    for level in range(told.shape[0]):
        told[level, 0], told[level, 1] = 1.0, 1.0 / basis.strength
    for v in range(counts.shape[0] - 1, 0, -1):
        level, above = basis.level[v], basis.parent[v]
        strength = shares.strengths[level]
        groups = tables = 0
        for j in range(counts.shape[1]):
            alpha = strength * shares.weights[above, j]
            drawn = 0
            for i in range(counts[v, j]):
                drawn += uniform(words) * (alpha + i) < alpha
            drawn = max(drawn, min(counts[v, j], 1))
            counts[above, j] += drawn
            groups += counts[v, j]
            tables += drawn
        if groups > 0:
            one, other = gamma(words, strength + 1.0), gamma(words, float(groups))
            told[level, 1] -= math.log(one / (one + other))
            told[level, 0] += tables - (1 if uniform(words) * (groups + strength) < groups else 0)
