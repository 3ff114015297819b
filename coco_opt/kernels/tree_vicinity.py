"""Bounds on the optimum of bounded tree least squares, found beforehand: they shorten the curves of deep trees.

The problem: ranges that hold the values of the optimum of ``tree_bounded_l2``, in linear time.

1. The unbounded optimum x comes from two passes over the tree, and variances of all nodes from a third.
2. One more pass makes it feasible.
3. The optimum is at most as far from x as the feasible point, in weighted squares; a node's share of that distance is
   bounded by its posterior standard deviation.

Invariant: the optimum lies within the ranges. Cost: O(n).
Source: the centre of a quadratic and the inequality of Cauchy and Schwarz; ours.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from coco_opt.kernels import tree_certificate, tree_passes
from coco_opt.kernels.compile import compiled

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def vicinity(first_child: Ints, y: Floats, weights: Floats, lower: Floats, upper: Floats) -> tuple[Floats, Floats]:
    """Return for every node (n,) a range that holds its optimal value; O(n).

    Least squares without bounds, x, is the centre of the costs: cost(z) = cost(x) + |z - x|^2 with weighted squares.
    So the optimum is at most as far from x as any feasible point f, and x_v differs by at most |f - x| times the
    posterior standard deviation of v.
    """
    s2 = np.divide(1.0, weights, out=np.full(y.size, np.inf), where=weights > 0)
    x, V, C = tree_passes.upward(first_child, y, s2)
    tree_passes.downward(first_child, x, V, C, equal_parts=True)
    variance, _ = tree_passes.variances(first_child, s2, V, C)
    feasible = _feasible(first_child, x, *tree_certificate.implied_bounds(first_child, lower, upper))
    distance = float(np.sqrt((weights * (feasible - x)) @ (feasible - x)))
    radius = 1.001 * distance * np.sqrt(variance) + 1e-6 * (1.0 + np.abs(x)) if distance > 0 else np.inf
    return x - radius, x + radius


@compiled
def _feasible(first_child: Ints, x: Floats, low: Floats, high: Floats) -> Floats:
    """Return a point that satisfies all sums and (implied) bounds: the missing amount goes to the first siblings."""
    f = x.copy()
    f[0] = min(max(f[0], low[0]), high[0])
    for v in range(x.size):
        missing = f[v]
        # Clip the children to their ranges, then give what is missing to the first ones that have room.
        for c in range(first_child[v], first_child[v + 1]):
            f[c] = min(max(x[c], low[c]), high[c])
            missing -= f[c]
        for c in range(first_child[v], first_child[v + 1]):
            moved = min(max(f[c] + missing, low[c]), high[c])
            missing -= moved - f[c]
            f[c] = moved
    return f


@compiled
def mean_depth(parent: Ints) -> float:
    """Return the mean number of nodes above a node; O(n)."""
    depth, total = np.zeros(parent.size, np.int64), 0
    # Parents come before their children.
    for v in range(1, parent.size):
        depth[v] = depth[parent[v]] + 1
        total += depth[v]
    return total / parent.size
