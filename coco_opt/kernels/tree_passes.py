"""Generalised least squares on a tree by two linear passes, with the posterior variances of nodes and of their sums.

    minimise  sum_v (x_v - y_v)^2 / s2_v   subject to   x_v = sum of the children's x

Nodes are numbered breadth first: the root is 0 and the children of v are ``first_child[v]:first_child[v + 1]``. Every
node has a measurement y_v of variance s2_v, 0 for an exact one and infinite for none. The passes are

1. up: with C_v the sum of V and zc_v the sum of z over the children, V_v = 1 / (1/s2_v + 1/C_v) and z_v the mean of
   y_v and zc_v weighted by the inverse variances s2_v and C_v (a leaf: V_v = s2_v, z_v = y_v);
2. down: x_root = z_root, and x_c = z_c + (V_c / C_v) (x_v - zc_v).

Given x_v, what lies below v is independent of the rest: x_c = (V_c / C_v) x_v + noise with covariance
``diag(V) - V V' / C_v`` among the children. All variances follow from that.

A node is undetermined where V is infinite. A discrepancy goes to the undetermined children alone, in equal parts or
all to the first of them; their variance is infinite unless there is only one.

Invariant: after the downward pass every sum of children is exact up to rounding. Cost: O(n) a pass.
Source: Hay et al. 2010, Theorem 3, written for any tree and any variances.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from coco_opt.kernels.arrays import read_only
from coco_opt.kernels.compile import compiled

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_NO_BOUNDS = read_only(np.empty(0))


@compiled
def postorder(parent: Ints, first_child: Ints) -> Ints:
    """Return the nodes (n,) with children before their parent and siblings in order; O(n)."""
    n = parent.size
    size = np.ones(n, np.int64)
    # Sizes of subtrees.
    for v in range(n - 1, 0, -1):
        size[parent[v]] += size[v]
    order = np.empty(n, np.int64)
    start = np.zeros(n, np.int64)
    # A node comes last of its subtree; its children's subtrees divide the places before it.
    for v in range(n):
        order[start[v] + size[v] - 1] = v
        position = start[v]
        for c in range(first_child[v], first_child[v + 1]):
            start[c] = position
            position += size[c]
    return order


@compiled
def sums(first_child: Ints, table: Any) -> None:
    """Replace the rows of inner nodes by the sums of their children's, from the leaves up, in place."""
    # Children come after their parent, so that backwards they are complete.
    for v in range(table.shape[0] - 1, -1, -1):
        begin, end = first_child[v], first_child[v + 1]
        for c in range(begin, end):
            for i in range(table.shape[1]):
                table[v, i] = table[c, i] + (table[v, i] if c > begin else 0)


def upward(
    first_child: Ints, y: Floats, s2: Floats, lower: Floats = _NO_BOUNDS, upper: Floats = _NO_BOUNDS
) -> tuple[Floats, Floats, Floats]:
    """Return z, V and C (n,) of the upward pass; C is infinite at leaves.

    y must be finite; where s2 is infinite it is what an undetermined leaf starts from. ``lower`` and ``upper`` (n,)
    only clip the start of undetermined nodes.
    """
    return _upward(first_child, *(read_only(values) for values in (y, s2, lower, upper)))


@compiled
def _upward(first_child: Ints, y: Floats, s2: Floats, lower: Floats, upper: Floats) -> tuple[Floats, Floats, Floats]:
    n = y.size
    z, V = y.copy(), s2.copy()
    C = np.full(n, np.inf)
    # The children's sum is a second measurement of v, of variance C.
    for v in range(n - 1, -1, -1):
        begin, end = first_child[v], first_child[v + 1]
        if begin == end:
            continue
        total = below = 0.0
        for c in range(begin, end):
            total += z[c]
            below += V[c]
        C[v] = below
        own = s2[v]
        if own == 0.0:
            continue
        if own == np.inf or below == 0.0:
            z[v], V[v] = total, below
            if below == np.inf and lower.size > 0:
                z[v] = min(max(total, lower[v]), upper[v])
        elif below != np.inf:
            part = own / (own + below)
            z[v], V[v] = y[v] + (total - y[v]) * part, part * below
    return z, V, C


@compiled
def downward(first_child: Ints, z: Floats, V: Floats, C: Floats, equal_parts: bool) -> None:
    """Turn z (n,) into the estimates x of the downward pass, in place."""
    # Parents before children: each child takes the discrepancy in the ratio of its variance.
    for v in range(z.size):
        begin, end = first_child[v], first_child[v + 1]
        if begin == end or C[v] == 0.0:
            continue
        total = 0.0
        for c in range(begin, end):
            total += z[c]
        excess = z[v] - total
        if C[v] != np.inf:
            share = excess / C[v]
            for c in range(begin, end):
                z[c] += share * V[c]
        else:
            takers = 0
            for c in range(begin, end):
                takers += V[c] == np.inf
            part = excess / takers if equal_parts else excess
            for c in range(begin, end):
                if V[c] == np.inf:
                    z[c] += part
                    part = part if equal_parts else 0.0


def fit(first_child: Ints, y: Floats, s2: Floats, bounds: tuple[Floats, Floats] | None = None) -> Floats:
    """Return the least squares estimates x (n,) that satisfy all sums; O(n).

    With ``bounds`` (lower and upper, n), which must hold for what is determined, undetermined nodes keep them too: a
    discrepancy then goes to the first of them instead of equal parts.
    """
    z, V, C = upward(first_child, y, s2, *(bounds or ()))
    downward(first_child, z, V, C, bounds is None)
    return z


@compiled
def variances(first_child: Ints, V: Floats, C: Floats) -> Floats:
    """Return the posterior variances P (n,) of all nodes; O(n).

    P_c = V_c (1 - V_c/C) + (V_c/C)^2 P_v, with 1 - V_c/C summed over the other children so that no digits cancel.
    """
    P = np.empty(V.size)
    P[0] = V[0]
    for v in range(V.size):
        begin, end = first_child[v], first_child[v + 1]
        if begin == end:
            continue
        total, sibling_sum = C[v], 0.0
        # The sum of V over the siblings before c, ...
        for c in range(begin, end):
            P[c] = sibling_sum
            sibling_sum += V[c]
        sibling_sum = 0.0
        # ... and over those after it: together 1 - V_c / C without cancellation.
        for c in range(end - 1, begin - 1, -1):
            rest = P[c] + sibling_sum
            sibling_sum += V[c]
            if total == 0.0:
                P[c] = 0.0
            elif total != np.inf:
                share = V[c] / total
                P[c] = share * rest + share * share * P[v]
            else:
                P[c] = rest + P[v] if V[c] == np.inf else V[c]
    return P


@compiled
def _spread(begin: int, end: int, V: Floats, total: float, b: Floats) -> tuple[float, float]:
    """Return the mean of b weighted by V and the sum of V (b - mean)^2 over the children begin:end."""
    if total == 0.0:
        return 0.0, 0.0
    mean = 0.0
    if total != np.inf:
        for c in range(begin, end):
            mean += V[c] / total * b[c]
    else:
        first = begin
        # Undetermined children take all of a discrepancy: only their coefficients count.
        while V[first] != np.inf:
            first += 1
        mean = b[first]
        for c in range(first + 1, end):
            if V[c] == np.inf and b[c] != mean:
                return mean, np.inf
    spread = 0.0
    for c in range(begin, end):
        if b[c] != mean:
            spread += V[c] * (b[c] - mean) * (b[c] - mean)
    return mean, spread


@compiled
def combination(first_child: Ints, V: Floats, C: Floats, coefficients: Floats) -> float:
    """Return the posterior variance of a linear combination of the nodes, coefficients (n,); O(n)."""
    b = coefficients.copy()
    variance = 0.0
    # Upwards: replace the children's coefficients by their mean at the parent, and collect the variance of the rest.
    for v in range(b.size - 1, -1, -1):
        if first_child[v] < first_child[v + 1]:
            mean, spread = _spread(first_child[v], first_child[v + 1], V, C[v], b)
            b[v] += mean
            variance += spread
    return variance + (b[0] * b[0] * V[0] if b[0] != 0.0 else 0.0)


@compiled
def leaf_ranges(parent: Ints, first_child: Ints, V: Floats, C: Floats, begins: Ints, ends: Ints) -> Floats:
    """Return the posterior variance of each sum over nodes begin:end of one level; O(fan-out x depth) a range.

    No leaf may lie above that level: then the coefficients of the combination are 0 or 1 except at the two nodes of
    each level that the range cuts.
    """
    out = np.zeros(begins.size)
    b = np.empty(parent.size)
    # b is set along the two edges of the range alone.
    for k in range(begins.size):
        if begins[k] >= ends[k]:
            continue
        left, right = begins[k], ends[k] - 1
        b[left] = b[right] = 1.0
        # One level up: siblings outside the range have coefficient 0, inside 1, and the two cut nodes their means.
        while left > 0:
            up_left, up_right = parent[left], parent[right]
            for c in range(first_child[up_left], left):
                b[c] = 0.0
            last = right if up_left == up_right else first_child[up_left + 1]
            for c in range(left + 1, last):
                b[c] = 1.0
            for c in range(right + 1, first_child[up_right + 1]):
                b[c] = 0.0
            mean_left, spread = _spread(first_child[up_left], first_child[up_left + 1], V, C[up_left], b)
            out[k] += spread
            if up_left != up_right:
                for c in range(first_child[up_right], right):
                    b[c] = 1.0
                mean_right, spread = _spread(first_child[up_right], first_child[up_right + 1], V, C[up_right], b)
                out[k] += spread
                b[up_right] = mean_right
            b[up_left] = mean_left
            left, right = up_left, up_right
        out[k] += b[0] * b[0] * V[0] if b[0] != 0.0 else 0.0
    return out
