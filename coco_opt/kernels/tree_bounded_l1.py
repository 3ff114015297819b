"""Weighted least absolute deviations on a tree in integers, by merging slopes from the leaves to the root.

    minimise  sum_v w_v |x_v - y_v|   subject to   x_v = sum of the children's x,  lo_v <= x_v <= hi_v

Let F_v(x) be the least cost of the subtree of v for x_v = x: convex, piecewise linear, with integer breakpoints. The
curve of v is its list of pieces in order of slope, each with an integer length, and an anchor: the value of x between
the last piece of slope <= 0 and the first of slope >= 0.

1. A leaf's curve is |x - y| within its bounds.
2. Siblings are joined by merging their pieces by slope and adding their anchors (the infimal convolution).
3. The own cost w |x - y| lowers the slopes left of y by w and raises those right of it; a piece across y is cut.
4. Bounds cut pieces off.
5. At the root the optimum is the anchor. Every piece stems from one leaf, whose value rises through it exactly where
   the root's optimum lies beyond it. So no curve is stored for later: the fate of a piece is booked on its leaf when it
   is cut off or when the root is reached, and the inner values are sums.

Among pieces of equal slope the first sibling's come first.

Invariant: the pieces of every curve on the stack are sorted by slope. Cost: O(n + total number of pieces over all
nodes), at most O(n x height).
Source: Rockafellar 1970, sections 5 and 31 (infimal convolution); booking the fate of pieces is our own.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from coco_opt.kernels import tree_passes
from coco_opt.kernels.arrays import read_only
from coco_opt.kernels.compile import compiled
from coco_opt.kernels.tree_bounded_l2 import binding

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Pieces = tuple[Floats, Ints, Ints]  # slope, length, 2 x leaf + (1 where it lies right of the leaf's measurement)

_ENDLESS = 2**62  # the length of a piece without end
_NONE = 2**63 - 1  # no bound above; its negative is none below


def fit(
    parent: Ints,
    first_child: Ints,
    y: Ints,
    weights: Floats,
    lower: Floats,
    upper: Floats,
    *,
    upper_fit: bool = False,
) -> Ints:
    """Return optimal integer values (n,): of all optima one with the smallest (or largest) root.

    y (n,) integer, weights (n,) finite and >= 0, bounds integer or infinite and such that a solution exists. O(n +
    total number of pieces over all nodes): at most O(n x height), O(n log n) in balanced trees.
    """
    lo, hi = (_as_integers(bound) for bound in binding(first_child, lower, upper))
    order = tree_passes.postorder(parent, first_child)
    x = _sweep(order, parent, first_child, read_only(y), read_only(weights), lo, hi, upper_fit)
    tree_passes.sums(first_child, x)
    return x


def _as_integers(bound: Floats) -> Ints:
    finite = np.isfinite(bound)
    return np.where(finite, np.where(finite, bound, 0.0).astype(np.int64), np.where(bound > 0, _NONE, -_NONE))


@compiled
def _leaf(y: int, w: float, lo: int, hi: int, v: int, pieces: Pieces, k: int) -> tuple[int, int, int]:
    """Write a leaf's pieces from position k on; return their anchor's position, their end and the anchor."""
    slope, length, owner = pieces
    anchor = min(max(y, lo), hi)
    if lo < anchor:
        slope[k], owner[k] = -w, 2 * v
        length[k] = _ENDLESS if lo == -_NONE else anchor - lo
        k += 1
    middle = k
    if anchor < hi:
        slope[k], owner[k] = w, 2 * v + 1
        length[k] = _ENDLESS if hi == _NONE else hi - anchor
        k += 1
    return middle, k, anchor


@compiled
def _pass(begin: int, end: int, pieces: Pieces, x: Ints) -> None:
    """Book pieces that the optimum lies beyond: a leaf rises through those right of its measurement."""
    # Pieces left of the measurement are already part of the leaf's value.
    for m in range(begin, end):
        if pieces[2][m] % 2 == 1:
            x[pieces[2][m] // 2] += pieces[1][m]


@compiled
def _miss(begin: int, end: int, pieces: Pieces, x: Ints) -> None:
    """Book pieces that the optimum does not reach: a leaf lacks those left of its measurement."""
    # Pieces right of the measurement were never part of the leaf's value.
    for m in range(begin, end):
        if pieces[2][m] % 2 == 0:
            x[pieces[2][m] // 2] -= pieces[1][m]


@compiled
def _merge(
    pieces: Pieces, a: int, a_end: int, b: int, b_end: int, out: Pieces, k: int, right: bool, x: Ints
) -> tuple[int, int]:
    """Merge two runs of pieces by slope into ``out`` from k on; return where the result begins and ends.

    An endless piece leaves no room: left of the anchor for what comes before it, right of it for what comes after.
    """
    slope, length, owner = pieces
    begin, i, j, stop = k, a, b, False
    # The smaller slope first, the first sibling's where equal.
    while not stop and (i < a_end or j < b_end):
        if j == b_end or (i < a_end and slope[i] <= slope[j]):
            m, i = i, i + 1
        else:
            m, j = j, j + 1
        if length[m] == _ENDLESS and not right:
            _pass(begin, k, out, x)
            begin = k
        out[0][k], out[1][k], out[2][k] = slope[m], length[m], owner[m]
        k += 1
        stop = right and length[m] == _ENDLESS
    _miss(i, a_end, pieces, x)
    _miss(j, b_end, pieces, x)
    return begin, k


@compiled
def _move(begin: int, end: int, source: Pieces, out: Pieces, k: int) -> int:
    for m in range(begin, end):
        out[0][k], out[1][k], out[2][k] = source[0][m], source[1][m], source[2][m]
        k += 1
    return k


@compiled
def _join(base: int, depth: int, stack: Ints, pieces: Pieces, spare: Pieces, x: Ints) -> None:
    """Join the curves base:depth of the stack by pairs, in rounds; the result lies in ``spare``.

    A row of the stack is (begin, anchor's position, end, anchor).
    """
    source, target = pieces, spare
    rounds = 0
    # Each round halves the number of curves; source and target change roles.
    while depth - base > 1:
        joined = base
        # Left and right of the anchors are merged separately, so anchors add up.
        for c in range(base, depth, 2):
            a, b = stack[c], stack[c + 1 if c + 1 < depth else c]
            begin, anchor = a[0], a[3]
            if c + 1 < depth:
                begin, middle = _merge(source, a[0], a[1], b[0], b[1], target, begin, False, x)
                _, end = _merge(source, a[1], a[2], b[1], b[2], target, middle, True, x)
                anchor += b[3]
            else:
                middle, end = a[1], _move(a[0], a[2], source, target, begin)
            row = stack[joined]
            row[0], row[1], row[2], row[3] = begin, middle, end, anchor
            joined += 1
        depth = joined
        source, target = target, source
        rounds += 1
    if rounds % 2 == 0:
        _move(stack[base, 0], stack[base, 2], pieces, spare, stack[base, 0])


@compiled
def _add_own(row: Ints, y: int, w: float, lo: int, hi: int, pieces: Pieces, out: Pieces, x: Ints) -> None:
    """Copy a curve (a row of the stack) to ``out`` with the cost w |x - y| added, cut off at its bounds."""
    slope, length, owner = pieces
    y = y if w > 0.0 else _NONE
    p = row[3]
    # Where the curve begins: the anchor less the lengths of the pieces left of it.
    for m in range(row[0], row[1]):
        p -= length[m]
    k, middle, anchor = row[0], -1, min(max(p, lo), hi)
    # A piece from p to q: book what the bounds cut off, then write its parts left and right of y.
    for m in range(row[0], row[2]):
        q = p + length[m]
        rises, leaf = owner[m] % 2 == 1, owner[m] // 2
        if p < lo and rises:
            x[leaf] += min(q, lo) - p
        if q > hi and not rises:
            x[leaf] -= q - max(p, hi)
        # Left of y the slope falls by w, right of it the slope rises by w.
        for sign in (-1.0, 1.0):
            start = max(p, lo) if sign < 0 else max(p, lo, y)
            end = min(q, hi, y) if sign < 0 else min(q, hi)
            if start < end:
                endless = length[m] == _ENDLESS and (end == q if rises else start == p)
                out[0][k], out[2][k] = slope[m] + sign * w, owner[m]
                out[1][k] = _ENDLESS if endless else end - start
                down = out[0][k] < 0.0 or (out[0][k] == 0.0 and endless and not rises)
                if middle < 0 and not down:
                    middle, anchor = k, start
                elif middle < 0:
                    anchor = end
                k += 1
        p = q
    row[1], row[2], row[3] = k if middle < 0 else middle, k, anchor


@compiled
def _capacity(first_child: Ints, weights: Floats) -> int:
    """Return the most pieces that can lie on the stack: two a leaf and one cut for each measured inner node."""
    pieces = 1
    for v in range(weights.size):
        if first_child[v] == first_child[v + 1]:
            pieces += 2
        else:
            pieces += weights[v] > 0.0
    return pieces


@compiled
def _sweep(
    order: Ints, parent: Ints, first_child: Ints, y: Ints, weights: Floats, lo: Ints, hi: Ints, upper_fit: bool
) -> Ints:
    """Return the optimal values at the leaves (n,), 0 elsewhere.

    Finished curves lie on a stack; a node without measurement and bounds leaves its children's curves to its parent.
    """
    n, size = y.size, _capacity(first_child, weights)
    pieces = (np.empty(size), np.empty(size, np.int64), np.empty(size, np.int64))
    spare = (np.empty(size), np.empty(size, np.int64), np.empty(size, np.int64))
    stack, waiting, x = np.zeros((n + 1, 4), np.int64), np.zeros(n, np.int64), np.zeros(n, np.int64)
    depth = top = 0
    # Children before parents: their curves lie on top of the stack.
    for v in order:
        if first_child[v] == first_child[v + 1]:
            middle, end, anchor = _leaf(y[v], weights[v], lo[v], hi[v], v, pieces, top)
            row = stack[depth]
            row[0], row[1], row[2], row[3] = top, middle, end, anchor
            x[v] = anchor
        elif v > 0 and weights[v] == 0.0 and lo[v] == -_NONE and hi[v] == _NONE:
            waiting[parent[v]] += waiting[v]
            continue
        else:
            base = depth - waiting[v]
            _join(base, depth, stack, pieces, spare, x)
            _add_own(stack[base], y[v], weights[v], lo[v], hi[v], spare, pieces, x)
            depth = base
        top = stack[depth, 2]
        depth += 1
        waiting[parent[v]] += 1  # parent[0] = -1 belongs to no node that is still to come
    begin, middle, end = stack[0, 0], stack[0, 1], stack[0, 2]
    slope, length, _ = pieces
    # Slopes of 0 at the root: the smallest or the largest optimum.
    while not upper_fit and middle > begin and slope[middle - 1] == 0.0 and length[middle - 1] < _ENDLESS:
        middle -= 1
    while upper_fit and middle < end and slope[middle] == 0.0 and length[middle] < _ENDLESS:
        middle += 1
    _pass(begin, middle, pieces, x)
    _miss(middle, end, pieces, x)
    return x
