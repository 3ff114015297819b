"""Exact variances of H-bar against H~ over every range of a binary tree, two thousand million of them in seconds.

In a complete binary tree with equal noise a range is one leaf, or has a lowest node that holds it, of height h (a leaf
has height 1), and takes the last i leaves of the left child and the first j of the right one. The variance of its
estimate depends on h, i and j alone. With V the variance of a child given what lies below it, T_h the posterior
variance of the node, a and b the shares i and j of a child's leaves, and own(i) the variance of i leaves at the edge of
a child given the child's value, it is

    own(i) + own(j) + V (a - b)^2 / 2 + T_h ((a + b) / 2)^2.

H~ takes as many nodes as i and j have ones among their binary digits, or the node itself if the range is all of it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from coco_opt.kernels.compile import compiled

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Extremes:
    """The largest and least ratio of H-bar's to H~'s variance over ``ranges`` ranges."""

    largest: float
    least: float
    ranges: int


def subtree_variances(height: int) -> Floats:
    """Return V (height + 1,): a node's variance from its own subtree, by height; unit noise, entry 0 unused."""
    v = np.ones(height + 1)
    for h in range(2, height + 1):
        v[h] = 2.0 * v[h - 1] / (1.0 + 2.0 * v[h - 1])
    return v


def posterior_variances(height: int) -> Floats:
    """Return T (height + 1,): the variance of a node's estimate, by height; unit noise, entry 0 unused."""
    v = subtree_variances(height)
    t = v.copy()
    for h in range(height - 1, 0, -1):
        t[h] = v[h] / 2.0 + t[h + 1] / 4.0
    return t


def extremes(height: int) -> Extremes:
    """Return the extreme ratios over all n (n + 1) / 2 ranges of n = 2^(height - 1) leaves; O(n^2), no memory."""
    v, t = subtree_variances(height), posterior_variances(height)
    largest = least = float(t[1])
    ranges = 2 ** (height - 1)
    own, nodes = np.zeros(2), np.array([0.0, 1.0])
    for h in range(1, height):
        high, low = _extremes_at(own, nodes, v[h], t[h + 1])
        largest, least = max(largest, high), min(least, low)
        ranges += (own.size - 1) ** 2 * 2 ** (height - h - 1)
        own, nodes = _longer(own, nodes, v[h])
    return Extremes(largest, least, ranges)


def _longer(own: Floats, nodes: Floats, child: float) -> tuple[Floats, Floats]:
    """Return own variances and H~'s nodes for the prefixes of a parent (2 m + 1,) from those of a child (m + 1,)."""
    share = np.arange(own.size) / (own.size - 1)
    own = np.concatenate([own + child / 2.0 * share**2, own[1:] + child / 2.0 * (1.0 - share[1:]) ** 2])
    nodes = np.concatenate([nodes, nodes[1:] + 1.0])
    nodes[-1] = 1.0
    return own, nodes


@compiled
def _extremes_at(own: Floats, nodes: Floats, child: float, top: float) -> tuple[float, float]:
    """Return the extreme ratios over i and j, which may be swapped."""
    full = own.size - 1
    full_ratio = own[full] + own[full] + top
    largest = least = full_ratio
    for i in range(1, full + 1):
        a = i / full
        for j in range(i, full + 1):
            b = j / full
            smooth = own[i] + own[j] + child * (0.5 * (a - b) * (a - b)) + top * (0.25 * (a + b) * (a + b))
            ratio = smooth / (nodes[i] + nodes[j])
            if i < full:
                largest = max(largest, ratio)
                least = min(least, ratio)
    return largest, least
