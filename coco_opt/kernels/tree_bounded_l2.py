"""Tree least squares with bounds, exactly, by merging piecewise-linear derivatives from the leaves to the root.

    minimise  sum_v w_v (x_v - y_v)^2   subject to   x_v = sum of the children's x,  lo_v <= x_v <= hi_v

Let F_v(x) be the least cost of the subtree of v for x_v = x. It is convex and piecewise quadratic. The curve of v is
the graph {(t, x): t is a derivative of F_v at x}, a rising polyline: points (t, x) in order, a slope dx/dt between
neighbours and beyond both ends, infinite on a jump of x and 0 on a jump of t.

1. A leaf's curve is a line between its bounds.
2. Siblings are joined by adding their x at equal t (the derivative of the infimal convolution).
3. The own cost w (x - y)^2 moves every point to (t + 2 w (x - y), x) and a slope s to s / (1 + 2 w s).
4. Bounds cut the curve at x = lo and x = hi and put a point there.
5. Every point is the place where one bound of one node starts or stops to bind. As all values below a node rise with
   its own, a bound binds in the optimum exactly if the root's optimal point (t = 0) lies on the right side of its
   point. So no curve has to be stored for later: the fate of a point is recorded when it is cut off or when the root is
   reached.
6. Least squares with the nodes at their bounds fixed gives the values (``tree_passes``).

Where t does not decide (unmeasured siblings), the first sibling in order moves first.

Invariant: every curve on the stack rises. Cost: O(n + total number of points over all nodes), at most O(n x height).
Source: Rockafellar 1970, sections 16 and 31 (conjugates of sums and infimal convolutions); recording the fate of points
is our own.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from coco_opt.kernels import tree_certificate, tree_passes
from coco_opt.kernels.arrays import read_only
from coco_opt.kernels.compile import compiled

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Marks = NDArray[np.int8]
Ranges = tuple[Floats, Floats]  # each node's lower and upper end (n,)
Points = tuple[Floats, Floats, Floats, Ints]  # t, x, the slope right of the point, the bound it belongs to

_NOBODY = -1  # a point that only anchors a curve: no bound belongs to it
_LINE = -2  # the same on a line at t = 0: a leaf without measurement and bounds


def fit(
    parent: Ints, first_child: Ints, y: Floats, weights: Floats, lower: Floats, upper: Floats
) -> tuple[Floats, Marks]:
    """Return the optimal values (n,) and the bound at which each node is fixed (n,): -1 lower, 1 upper, 2 both, 0 free.

    y and weights (n,) finite, weights 0 for a node that was not measured; bounds may be infinite. The bounds must allow
    a solution. O(n + total number of points over all nodes): at most O(n x height), O(n log n) in balanced trees.
    """
    y, weights, lower, upper = (read_only(array) for array in (y, weights, lower, upper))
    bounds = binding(first_child, lower, upper)
    order = tree_passes.postorder(parent, first_child)
    passed = _sweep(order, parent, first_child, y, weights, bounds)
    sides, target, s2 = _fix_at_bounds(y, weights, lower, upper, *bounds, passed)
    return tree_passes.fit(first_child, target, s2, (lower, upper)), sides


def binding(first_child: Ints, lower: Floats, upper: Floats) -> tuple[Floats, Floats]:
    """Return the bounds (n,) without those of inner nodes that the nodes below imply; O(n)."""
    low, high = tree_certificate.implied_bounds(first_child, lower, upper)
    return _without_implied(first_child, lower, upper, low, high)


@compiled
def _without_implied(
    first_child: Ints, lower: Floats, upper: Floats, low: Floats, high: Floats
) -> tuple[Floats, Floats]:
    lo, hi = lower.copy(), upper.copy()
    # A bound that the children's ranges imply can never bind by itself.
    for v in range(lower.size):
        begin, end = first_child[v], first_child[v + 1]
        if begin < end and lo[v] != hi[v]:
            least = most = 0.0
            for c in range(begin, end):
                least += low[c]
                most += high[c]
            lo[v] = lo[v] if lo[v] > least else -np.inf
            hi[v] = hi[v] if hi[v] < most else np.inf
    return lo, hi


@compiled
def _fix_at_bounds(
    y: Floats, weights: Floats, lower: Floats, upper: Floats, lo: Floats, hi: Floats, passed: Marks
) -> tuple[Marks, Floats, Floats]:
    """Return the sides, and the targets and variances of least squares in which nodes at bounds are exact."""
    n = y.size
    sides, target, s2 = np.zeros(n, np.int8), y.copy(), np.empty(n)
    # The lower bound binds unless the optimum lies beyond its point, the upper one if it does.
    for v in range(n):
        s2[v] = 1.0 / weights[v] if weights[v] > 0.0 else np.inf
        if lo[v] == hi[v]:
            sides[v], target[v], s2[v] = 2, lo[v], 0.0
        elif lo[v] > -np.inf and not passed[2 * v]:
            sides[v], target[v], s2[v] = -1, lo[v], 0.0
        elif hi[v] < np.inf and passed[2 * v + 1]:
            sides[v], target[v], s2[v] = 1, hi[v], 0.0
        elif s2[v] == np.inf:
            target[v] = min(max(0.0, lower[v]), upper[v])
    return sides, target, s2


@compiled
def _leaf(y: float, w: float, lo: float, hi: float, v: int, points: Points, k: int) -> tuple[int, float]:
    """Write a leaf's curve (one or two points) from position k on; return its end and the slope left of it."""
    T, X, S, N = points
    slope = 1.0 / (2.0 * w) if w > 0.0 else np.inf
    if lo == hi:
        T[k], X[k], S[k], N[k] = 0.0, lo, 0.0, _NOBODY
        return k + 1, 0.0
    if lo == -np.inf and hi == np.inf:
        T[k], X[k], S[k], N[k] = 0.0, y if w > 0.0 else 0.0, slope, _NOBODY if w > 0.0 else _LINE
        return k + 1, slope
    if lo > -np.inf:
        T[k], X[k], S[k], N[k] = 2.0 * w * (lo - y), lo, slope, 2 * v
        k += 1
    if hi < np.inf:
        T[k], X[k], S[k], N[k] = 2.0 * w * (hi - y), hi, 0.0, 2 * v + 1
        k += 1
    return k, 0.0 if lo > -np.inf else slope


@compiled
def _pass(begin: int, end: int, points: Points, passed: Marks) -> None:
    """Record that the optimum lies beyond these points."""
    for m in range(begin, end):
        if points[3][m] >= 0:
            passed[points[3][m]] = 1


@compiled
def _between(t: float, t0: float, x0: float, t1: float, x1: float, slope: float) -> float:
    """Return x at t on a piece of slope between two points, computed from the nearer (an infinite t: no point)."""
    back, ahead = t - t0, t1 - t
    if back <= ahead:
        return x0 if back == 0.0 else x0 + slope * back
    return x1 if ahead == 0.0 else x1 - slope * ahead


@compiled
def _stay(t: float, begin: int, end: int, left: float, points: Points, passed: Marks) -> float:
    """Fix a curve at t for good, at the end of a jump from minus infinity, and return its x there.

    A curve that is a line at t stays where an upper bound is followed by a lower one: there all nodes below are fixed.
    A single leaf that is a line stays at its only point, and no bound fixes it.
    """
    T, X, S, N = points
    i = begin
    if left == np.inf and S[end - 1] == np.inf:
        for m in range(begin, end):
            if N[m] >= 0 and N[m] % 2 == 0 and N[i] % 2 == 1 and N[i] >= 0:
                break
            i = i if N[m] == _NOBODY else m
        _pass(begin, i + 1, points, passed)
        return float(X[i])
    # The first point behind t.
    while i < end and (T[i] < t or (T[i] == t and left == np.inf)):
        i += 1
    _pass(begin, i, points, passed)
    if i == begin:
        return float(_between(t, -np.inf, 0.0, T[i], X[i], left))
    return float(_between(t, T[i - 1], X[i - 1], T[i] if i < end else np.inf, X[min(i, end - 1)], S[i - 1]))


@compiled
def _merge_vertical(
    points: Points, a: int, a_end: int, a_left: float, b: int, b_end: int, b_left: float, out: Points, passed: Marks
) -> int:
    """Join two siblings that together take any x at one t into ``out`` at a; return the end, or -1 for others.

    If one of them alone is such a line it takes everything and the other stays. Otherwise the first rises without end
    from where its last jump begins, the second until where its first jump ends: so the second moves, then the first.
    """
    T, X, S, N = points
    T2, X2, S2, N2 = out
    a_grows, b_grows = S[a_end - 1] == np.inf, S[b_end - 1] == np.inf
    b_line = b_left == np.inf and b_grows
    if a_left == np.inf and a_grows and (not b_line or a_end == a + 1 or b_end > b + 1):
        x = _stay(T[a], b, b_end, b_left, points, passed)
        _copy(a, a_end, points, out)
        for m in range(a, a_end):
            X2[m] += x
        return a_end
    if b_line:
        x = _stay(T[b], a, a_end, a_left, points, passed)
        for m in range(b, b_end):
            T2[m - b + a], X2[m - b + a], S2[m - b + a], N2[m - b + a] = T[m], X[m] + x, S[m], N[m]
        return a + b_end - b
    if not (a_grows and b_left == np.inf):
        return -1
    i, j, k = a_end - 1, b, a
    # Where the last jump of the first begins, and where the first jump of the second ends.
    while i > a and T[i - 1] == T[i]:
        i -= 1
    while j < b_end - 1 and T[j + 1] == T[j]:
        j += 1
    _pass(a, i, points, passed)
    low, high = X[i], X[j]
    # The second moves through its first jump, the first stays where its last one begins ...
    for m in range(b, j + 1):
        T2[k], X2[k], S2[k], N2[k] = T[m], low + X[m], np.inf, N[m]
        k += 1
    # ... then the first moves through its last jump, the second stays where its first one ended.
    for m in range(i, a_end):
        T2[k], X2[k], S2[k], N2[k] = T[m], high + X[m], np.inf, N[m]
        k += 1
    return k


@compiled
def _merge(
    points: Points, a: int, a_end: int, a_left: float, b: int, b_end: int, b_left: float, out: Points, passed: Marks
) -> tuple[int, float]:
    """Join two siblings' curves a:a_end and b:b_end into ``out`` at a; return the end and left slope.

    Points are taken by t, the first sibling's before the second's. A jump to infinity stops t: the other's points
    before a left one are passed for good, those after a right one are never reached.
    """
    T, X, S, N = points
    T2, X2, S2, N2 = out
    if a_left == np.inf or b_left == np.inf:
        end = _merge_vertical(points, a, a_end, a_left, b, b_end, b_left, out, passed)
        if end >= 0:
            return end, np.inf
    k, i, j = a, a, b
    # The first begins with a jump from minus infinity: the second's points before it are passed.
    if a_left == np.inf:
        while j < b_end and T[j] < T[a]:
            j += 1
        _pass(b, j, points, passed)
    # The same with the roles changed.
    if b_left == np.inf:
        while i < a_end and T[i] <= T[b]:
            i += 1
        _pass(a, i, points, passed)
    a_slope, a_t, a_x = (a_left, -np.inf, 0.0) if i == a else (S[i - 1], T[i - 1], X[i - 1])
    b_slope, b_t, b_x = (b_left, -np.inf, 0.0) if j == b else (S[j - 1], T[j - 1], X[j - 1])
    a_next, b_next = T[i] if i < a_end else np.inf, T[j] if j < b_end else np.inf
    left, last = a_slope + b_slope, -np.inf
    # Take the next point by t; the other curve is read between its points.
    while i < a_end or j < b_end:
        if j == b_end or (i < a_end and a_next <= b_next):
            x = X[i] + _between(a_next, b_t, b_x, b_next, X[min(j, b_end - 1)], b_slope)
            T2[k], N2[k] = a_next, N[i]
            a_t, a_x, a_slope = a_next, X[i], S[i]
            i += 1
            a_next = T[i] if i < a_end else np.inf
            stop = i == a_end and a_slope == np.inf
        else:
            x = X[j] + _between(b_next, a_t, a_x, a_next, X[min(i, a_end - 1)], a_slope)
            T2[k], N2[k] = b_next, N[j]
            b_t, b_x, b_slope = b_next, X[j], S[j]
            j += 1
            b_next = T[j] if j < b_end else np.inf
            stop = j == b_end and b_slope == np.inf
        last = max(x, last)
        X2[k], S2[k] = last, a_slope + b_slope
        k += 1
        if stop:
            break
    return k, left


@compiled
def _copy(begin: int, end: int, points: Points, out: Points) -> None:
    for m in range(begin, end):
        out[0][m], out[1][m], out[2][m], out[3][m] = points[0][m], points[1][m], points[2][m], points[3][m]


@compiled
def _join(
    base: int, depth: int, starts: Ints, ends: Ints, lefts: Floats, points: Points, spare: Points, passed: Marks
) -> None:
    """Join the curves base:depth of the stack by pairs, in rounds, into one that starts where the first did.

    The stack's entry ``base`` then describes it; it lies in ``spare``.
    """
    source, target = points, spare
    rounds = 0
    # Each round halves the number of curves; source and target change roles.
    while depth - base > 1:
        joined = base
        for c in range(base, depth, 2):
            start, end, left = starts[c], ends[c], lefts[c]
            if c + 1 < depth:
                end, left = _merge(source, start, end, left, starts[c + 1], ends[c + 1], lefts[c + 1], target, passed)
            else:
                _copy(start, end, source, target)
            starts[joined], ends[joined], lefts[joined] = start, end, left
            joined += 1
        depth = joined
        source, target = target, source
        rounds += 1
    if rounds % 2 == 0:
        _copy(starts[base], ends[base], points, spare)


@compiled
def _add_own(begin: int, end: int, left: float, y: float, w: float, points: Points, out: Points) -> float:
    """Copy a curve to ``out``, perhaps itself, with the cost w (x - y)^2 added; return the slope left of it."""
    T, X, S, N = points
    T2, X2, S2, N2 = out
    w2 = 2.0 * w
    if w2 == 0.0:
        _copy(begin, end, points, out)
        return left
    steepest = 1.0 / w2
    # t changes by the derivative of the own cost, slopes become flatter.
    for m in range(begin, end):
        T2[m], X2[m], N2[m] = T[m] + w2 * (X[m] - y), X[m], N[m]
        S2[m] = S[m] / (1.0 + w2 * S[m]) if S[m] < np.inf else steepest
    return left / (1.0 + w2 * left) if left < np.inf else steepest


@compiled
def _crossing(x: float, k: int, begin: int, end: int, left: float, points: Points) -> float:
    """Return t where the curve, on the piece before point k, has the value x."""
    T, X, S, _ = points
    slope: float = left if k == begin else S[k - 1]
    if slope == 0.0:  # rounding only: bounds that leave no choice
        return float(T[k] if k == begin else T[k - 1])
    if k == begin:
        return float(T[k] - (X[k] - x) / slope)
    if k == end:
        return float(T[k - 1] + (x - X[k - 1]) / slope)
    if X[k] - x < x - X[k - 1]:
        return float(max(T[k - 1], T[k] - (X[k] - x) / slope))
    return float(min(T[k], T[k - 1] + (x - X[k - 1]) / slope))


@compiled
def _cut(
    begin: int, end: int, left: float, lo: float, hi: float, v: int, points: Points, out: Points, passed: Marks
) -> tuple[int, float]:
    """Copy a curve to ``out`` between x = lo and x = hi; return the end and left slope."""
    _, X, S, _ = points
    T2, X2, S2, N2 = out
    first, last, k = begin, end, begin
    # Points below the lower bound are passed, points above the upper one are never reached.
    while first < end and X[first] < lo:
        first += 1
    _pass(begin, first, points, passed)
    if lo == hi:
        T2[k], X2[k], S2[k], N2[k] = 0.0, lo, 0.0, _NOBODY
        return k + 1, 0.0
    while last > first and X[last - 1] > hi:
        last -= 1
    if lo > -np.inf and (first > begin or left > 0.0):
        slope = left if first == begin else S[first - 1]
        T2[k], X2[k], S2[k], N2[k] = _crossing(lo, first, begin, end, left, points), lo, slope, 2 * v
        k, left_out = k + 1, 0.0
    else:
        left_out = left
        if lo > -np.inf:  # nothing reaches down to this bound
            passed[2 * v] = 1
    shift = k - first
    # The points between, moved along in ``out``.
    for m in range(first, last):
        T2[m + shift], X2[m + shift] = points[0][m], X[m]
        S2[m + shift], N2[m + shift] = S[m], points[3][m]
    k += last - first
    if hi < np.inf and (last < end or S[end - 1] > 0.0):
        T2[k], X2[k], S2[k], N2[k] = _crossing(hi, last, begin, end, left, points), hi, 0.0, 2 * v + 1
        k += 1
    return k, left_out


@compiled
def _capacity(first_child: Ints, lo: Floats, hi: Floats) -> int:
    """Return the most points that can lie on the stack: one for each bound or boundless leaf."""
    points = 1
    # Points come into being at bounds and at leaves alone.
    for v in range(lo.size):
        bounds = (lo[v] > -np.inf) + (hi[v] < np.inf)
        points += bounds
        points += bounds == 0 and first_child[v] == first_child[v + 1]
    return points


@compiled
def _sweep(order: Ints, parent: Ints, first_child: Ints, y: Floats, weights: Floats, bounds: Ranges) -> Marks:
    """Return a mark (2 n,) for each bound, lower at 2 v and upper at 2 v + 1: whether the optimum lies beyond it.

    Finished curves lie on a stack; a node without measurement and bounds leaves its children's curves to its parent.
    """
    lo, hi = bounds
    n, size = y.size, _capacity(first_child, lo, hi)
    points = (np.empty(size), np.empty(size), np.empty(size), np.empty(size, np.int64))
    spare = (np.empty(size), np.empty(size), np.empty(size), np.empty(size, np.int64))
    starts, ends, lefts = np.empty(n + 1, np.int64), np.empty(n + 1, np.int64), np.empty(n + 1)
    passed, waiting = np.zeros(2 * n, np.int8), np.zeros(n, np.int64)
    depth = top = 0
    # Children before parents: their curves lie on top of the stack.
    for v in order:
        if first_child[v] == first_child[v + 1]:
            starts[depth] = top
            ends[depth], lefts[depth] = _leaf(y[v], weights[v], lo[v], hi[v], v, points, top)
        elif v > 0 and weights[v] == 0.0 and lo[v] == -np.inf and hi[v] == np.inf:
            waiting[parent[v]] += waiting[v]
            continue
        else:
            base = depth - waiting[v]
            _join(base, depth, starts, ends, lefts, points, spare, passed)
            begin, end = starts[base], ends[base]
            bounded = lo[v] > -np.inf or hi[v] < np.inf
            target = spare if bounded else points
            lefts[base] = _add_own(begin, end, lefts[base], y[v], weights[v], spare, target)
            if bounded:
                ends[base], lefts[base] = _cut(begin, end, lefts[base], lo[v], hi[v], v, spare, points, passed)
            depth = base
        top = ends[depth]
        depth += 1
        waiting[parent[v]] += 1  # parent[0] = -1 belongs to no node that is still to come
    # At the root t = 0 is the optimum: it lies beyond the points of negative t.
    for m in range(starts[0], ends[0]):
        if points[0][m] < 0.0 and points[3][m] >= 0:
            passed[points[3][m]] = 1
    return passed
