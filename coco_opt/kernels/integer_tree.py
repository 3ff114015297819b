"""Integer values on a tree of least separable convex cost, in many cells, by merging sorted slopes in windows.

    minimise  sum_v w_v |x_v - y_v|  or  sum_v w_v (x_v - y_v)^2
    subject to  x_v = sum of the children's x,  lower_v <= x_v <= upper_v,  x integer

in every cell. Around a feasible point x the method looks at the values x + s k, with k integer and at most ``_REACH``
in size at the leaves, for a step s. The least cost of a node's subtree is then a convex piecewise-linear function of
the node's k, stored as its list of slopes in order.

1. From the leaves up, join siblings by merging their lists (the infimal convolution).
2. Add the differences of the node's own cost, which rise, to the slopes in place; cut slopes off at the bounds.
3. At the root read the optimum off: every slope stems from one leaf, which rises through it exactly if the root does.
4. Move x by the best s k. Double s while leaves move as far as they can, halve it where nothing improves.
5. Stop when no window of step 1 improves. Then x is optimal: the difference to any better point would be a sum of
   exchanges that change no node by more than one, without cancellation, so that by convexity one of them alone would
   improve, and the window holds them all.

A cost has two parts, compared in order: for absolute values the second is the squares, which decides among optima.

Invariant: x stays feasible and its cost falls with every move. Cost: O(n height + leaves log fan-out) a window.
Source: infimal convolution (Rockafellar 1970, section 5); steps by scaling as in Ahuja and Orlin 2001; the windows are
our own.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from coco_opt.kernels.compile import ONE, compiled

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Marks = NDArray[np.bool_]
Slopes = tuple[Floats, Floats, Ints]  # first part, second part, leaf

_REACH = 2  # steps that a leaf may move up or down at once


@compiled
def spans(parent: Ints, first_child: Ints) -> Ints:
    """Return where each node's leaves begin (n,) when leaves are numbered depth first; O(n)."""
    n = parent.size
    leaves = np.zeros(n, np.int64)
    # Count the leaves below every node, children before parents.
    for v in range(n - 1, -1, -1):
        if first_child[v] == first_child[v + 1]:
            leaves[v] = 1
        if v > 0:
            leaves[parent[v]] += leaves[v]
    begin = np.zeros(n, np.int64)
    # A node's children divide its range among them, in order.
    for v in range(n):
        place = begin[v]
        for c in range(first_child[v], first_child[v + 1]):
            begin[c] = place
            place += leaves[c]
    return begin


@compiled
def _absolute(x: int, step: int, y: int, w: float) -> float:
    return w * float(abs(x + step - y) - abs(x - y))


@compiled
def _squares(x: int, step: int, y: int, w: float) -> float:
    return w * float(step) * float(2 * (x - y) + step)


@compiled
def _merge(source: Slopes, i: int, i_end: int, j: int, j_end: int, out: Slopes, k: int) -> int:
    """Merge two lists into ``out`` from k on, the first's before the second's where equal; return the end."""
    first, second, leaf = source
    # Take the smaller of the two heads; both parts of the slope are compared, in order.
    while i < i_end or j < j_end:
        if j == j_end:
            left = True
        elif i == i_end:
            left = False
        else:
            left = first[i] < first[j] or (first[i] == first[j] and second[i] <= second[j])
        if left:
            m, i = i, i + 1
        else:
            m, j = j, j + 1
        out[0][k], out[1][k], out[2][k] = first[m], second[m], leaf[m]
        k += 1
    return k


@compiled
def _copy(source: Slopes, begin: int, out: Slopes, position: int, size: int) -> None:
    for m in range(size):
        k = begin + m
        out[0][position + m], out[1][position + m], out[2][position + m] = source[0][k], source[1][k], source[2][k]


@compiled
def _join(lists: int, begin: Ints, size: Ints, slopes: Slopes, spare: Slopes) -> int:
    """Merge neighbouring lists by pairs, in rounds; the result lies in ``slopes`` at begin[0]; return its size."""
    source, target, rounds = slopes, spare, 0
    # Each round halves the number of lists; source and target change roles.
    while lists > 1:
        merged = 0
        for c in range(0, lists, 2):
            a, neighbour = begin[c], c + 1 if c + 1 < lists else c
            b, b_end = begin[neighbour], begin[neighbour] + (size[neighbour] if neighbour > c else 0)
            end = _merge(source, a, a + size[c], b, b_end, target, a)
            begin[merged], size[merged] = a, end - a
            merged += 1
        lists = merged
        source, target = target, source
        rounds += 1
    if rounds % 2 == 1:
        _copy(spare, begin[0], slopes, begin[0], size[0])
    return int(size[0])


@compiled
def _cut(v: int, low: int, high: int, position: int, low_k: Ints, size: Ints, slopes: Slopes, k: Ints) -> None:
    """Cut the list of node v down to low..high: slopes below are passed by their leaves, those above never are."""
    passed = max(0, low - low_k[v])
    # The lower bound makes the node pass these slopes in any case: book them on their leaves.
    for m in range(position, position + passed):
        k[slopes[2][m]] += 1
    size[v] = min(low_k[v] + size[v], high) - low_k[v] - passed
    low_k[v] += passed
    if passed > 0:
        _copy(slopes, position + passed, slopes, position, size[v])


@compiled
def _best(
    first_child: Ints,
    begin: Ints,
    y: Ints,
    x: Ints,
    weights: Floats,
    second: Floats,
    lower: Ints,
    upper: Ints,
    root_fixed: bool,
    squares: bool,
    step: int,
    slopes: Slopes,
    spare: Slopes,
    low_k: Ints,
    size: Ints,
    k: Ints,
    segment: Ints,
    segment_size: Ints,
) -> None:
    """Write the best k of every leaf in the window around x; the root's is 0 if ``root_fixed``."""
    n = x.size
    # Children before parents: join the children's lists, cut them at the bounds, add the own cost.
    for v in range(n - 1, -1, -1):
        position, a, b = 2 * _REACH * begin[v], first_child[v], first_child[v + 1]
        low, high = -((x[v] - lower[v]) // step), (upper[v] - x[v]) // step
        if a == b:
            low_k[v] = k[v] = max(low, -_REACH)
            size[v] = min(high, _REACH) - low_k[v]
            slopes[0][position : position + size[v]] = 0.0
            slopes[1][position : position + size[v]] = 0.0
            slopes[2][position : position + size[v]] = v
        else:
            low_k[v] = 0
            for c in range(a, b):
                low_k[v] += low_k[c]
                segment[c - a], segment_size[c - a] = 2 * _REACH * begin[c], size[c]
            size[v] = _join(b - a, segment, segment_size, slopes, spare)
            _cut(v, low, high, position, low_k, size, slopes, k)
        if weights[v] > 0.0:
            # The own cost's difference between neighbouring values of k; it rises with k, so the list stays in order.
            for m in range(size[v]):
                value = x[v] + step * (low_k[v] + m)
                if squares:
                    slopes[0][position + m] += _squares(value, step, y[v], weights[v])
                else:
                    slopes[0][position + m] += _absolute(value, step, y[v], weights[v])
                    slopes[1][position + m] += _squares(value, step, y[v], second[v])
    # The root rises through every slope that lowers the cost, or up to k = 0 if it is fixed.
    for m in range(size[0]):
        below = slopes[0][m] < 0.0 or (slopes[0][m] == 0.0 and slopes[1][m] < 0.0)
        if (root_fixed and m < -low_k[0]) or (not root_fixed and below):
            k[slopes[2][m]] += 1


@compiled
def _move(
    parent: Ints,
    first_child: Ints,
    y: Ints,
    x: Ints,
    weights: Floats,
    second: Floats,
    squares: bool,
    step: int,
    k: Ints,
) -> bool:
    """Move x by step times k (set at the leaves) if that lowers the cost; return whether it did."""
    n, first, then = x.size, 0.0, 0.0
    for v in range(n):
        if first_child[v] < first_child[v + 1]:
            k[v] = 0
    # The k of inner nodes are sums; the change of the cost is added up along the way.
    for v in range(n - 1, -1, -1):
        if v > 0:
            k[parent[v]] += k[v]
        if weights[v] > 0.0 and k[v] != 0:
            if squares:
                first += _squares(x[v], step * k[v], y[v], weights[v])
            else:
                first += _absolute(x[v], step * k[v], y[v], weights[v])
                then += _squares(x[v], step * k[v], y[v], second[v])
    if first > 0.0 or (first == 0.0 and then >= 0.0):
        return False
    # The cost falls: move every node.
    for v in range(n):
        x[v] += step * k[v]
    return True


@compiled
def improve(
    parent: Ints,
    first_child: Ints,
    y: Ints,
    weights: Floats,
    second: Floats,
    lower: Ints,
    upper: Ints,
    root_fixed: bool,
    squares: bool,
    x: Ints,
    done: Marks,
    limit: int,
    cell: int,
    last: int,
) -> int:
    """Make the feasible points x (cells, n) optimal in place, for the cells cell..last - 1; return the windows solved.

    y (cells, n); weights (n,), 0 where nothing was measured; ``second`` (n,) weighs the squares that decide among
    optima of absolute values; lower and upper (n,) are bounds; ``root_fixed`` keeps the root's values. Cells are
    independent; those ``done`` (cells,) are left alone, and those that ``limit`` windows make optimal are marked so. A
    window takes O(n height + leaves log fan-out); a good start leaves few of them.
    """
    n, begin = parent.size, spans(parent, first_child)
    room, fan = 0, 1
    # Scratch for 2 ``_REACH`` slopes a leaf, and for the lists of the widest family.
    for v in range(n):
        room += first_child[v] == first_child[v + 1]
        fan = max(fan, first_child[v + 1] - first_child[v])
    room *= 2 * _REACH
    slopes = (np.empty(room), np.empty(room), np.empty(room, np.int64))
    spare = (np.empty(room), np.empty(room), np.empty(room, np.int64))
    low_k, size, k = np.zeros(n, np.int64), np.zeros(n, np.int64), np.zeros(n, np.int64)
    segment, segment_size = np.zeros(fan, np.int64), np.zeros(fan, np.int64)
    windows = 0
    # One cell after the other; ``left`` windows remain to it.
    for i in range(cell, last):
        step, left = ONE, 0 if done[i] else limit
        # Solve one window, then widen or narrow the next one.
        while step > 0 and left > 0:
            windows, left = windows + 1, left - 1
            _best(
                first_child,
                begin,
                y[i],
                x[i],
                weights,
                second,
                lower,
                upper,
                root_fixed,
                squares,
                step,
                slopes,
                spare,
                low_k,
                size,
                k,
                segment,
                segment_size,
            )
            edge = False
            # A leaf at the edge of its window might go further: double the step.
            for v in range(n):
                edge = edge or (first_child[v] == first_child[v + 1] and abs(k[v]) == _REACH)
            if not _move(parent, first_child, y[i], x[i], weights, second, squares, step, k):
                step //= 2
            elif edge:
                step *= 2
        done[i] = done[i] or step == 0
    return windows
