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

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from coco_opt.kernels.compile import compiled

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Slopes = tuple[Floats, Floats, Ints]  # first part, second part, leaf

_REACH = 2  # steps that a leaf may move up or down at once


class Tree(NamedTuple):
    """Each node's parent and first child, nodes numbered breadth first; the last entry ends the last node's."""

    parent: Ints
    first_child: Ints


class Cost(NamedTuple):
    """The nodes' weights (n,), 0 where nothing was measured, of absolute values or of ``squares``.

    ``second`` (n,) weighs the squares that decide among optima of absolute values.
    """

    weights: Floats
    second: Floats
    squares: bool


class Bounds(NamedTuple):
    """The nodes' bounds (n,)."""

    lower: Ints
    upper: Ints


class Window(NamedTuple):
    """Scratch: the leaves' first places, lists of slopes and a spare; each node's list from ``low_k`` on, and its k.

    ``lists`` and ``list_sizes`` are of one node's children.
    """

    begin: Ints
    slopes: Slopes
    spare: Slopes
    low_k: Ints
    size: Ints
    k: Ints
    lists: Ints
    list_sizes: Ints


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
def _window(tree: Tree) -> Window:
    """Return scratch for 2 ``_REACH`` slopes a leaf, and for the lists of the widest family."""
    n, first_child = tree.parent.size, tree.first_child
    room, fan = 0, 1
    for v in range(n):
        room += first_child[v] == first_child[v + 1]
        fan = max(fan, first_child[v + 1] - first_child[v])
    room *= 2 * _REACH
    slopes = (np.empty(room), np.empty(room), np.empty(room, np.int64))
    spare = (np.empty(room), np.empty(room), np.empty(room, np.int64))
    low_k, size, k = np.zeros(n, np.int64), np.zeros(n, np.int64), np.zeros(n, np.int64)
    lists, list_sizes = np.zeros(fan, np.int64), np.zeros(fan, np.int64)
    return Window(spans(tree.parent, first_child), slopes, spare, low_k, size, k, lists, list_sizes)


@compiled
def _add_own(cost: Cost, v: int, x: int, y: int, step: int, position: int, window: Window) -> None:
    """Add the own cost's differences between neighbouring k; they rise with k, so the list stays in order."""
    weights, second, squares = cost
    first, then, _ = window.slopes
    for m in range(window.size[v]):
        value = x + step * (window.low_k[v] + m)
        if squares:
            first[position + m] += _squares(value, step, y, weights[v])
        else:
            first[position + m] += _absolute(value, step, y, weights[v])
            then[position + m] += _squares(value, step, y, second[v])


@compiled
def _best(tree: Tree, y: Ints, x: Ints, cost: Cost, bounds: Bounds, step: int, window: Window) -> None:
    """Write the best k of every leaf in the window around x."""
    first_child, (lower, upper) = tree.first_child, bounds
    begin, slopes, spare, low_k, size, k, lists, list_sizes = window
    # Children before parents: join the children's lists, cut them at the bounds, add the own cost.
    for v in range(x.size - 1, -1, -1):
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
                lists[c - a], list_sizes[c - a] = 2 * _REACH * begin[c], size[c]
            size[v] = _join(b - a, lists, list_sizes, slopes, spare)
            _cut(v, low, high, position, low_k, size, slopes, k)
        if cost.weights[v] > 0.0:
            _add_own(cost, v, x[v], y[v], step, position, window)
    # The root rises through every slope that lowers the cost.
    for m in range(size[0]):
        below = slopes[0][m] < 0.0 or (slopes[0][m] == 0.0 and slopes[1][m] < 0.0)
        if below:
            k[slopes[2][m]] += 1


@compiled
def _at_edge(first_child: Ints, k: Ints) -> bool:
    """Return whether some leaf moves as far as its window goes."""
    edge = False
    for v in range(k.size):
        edge = edge or (first_child[v] == first_child[v + 1] and abs(k[v]) == _REACH)
    return edge


@compiled
def _move(tree: Tree, y: Ints, x: Ints, cost: Cost, step: int, k: Ints) -> bool:
    """Move x by step times k (set at the leaves) if that lowers the cost; return whether it did."""
    (parent, first_child), (weights, second, squares) = tree, cost
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
def improve(tree: Tree, cost: Cost, bounds: Bounds, y: Ints, x: Ints, limit: int, cell: int, last: int) -> int:
    """Make the feasible points x (cells, n) optimal in place, for the cells cell..last - 1; return the windows solved.

    y (cells, n). Cells are independent; ``limit`` bounds the windows of each. A window takes O(n height + leaves log
    fan-out); a good start leaves few of them, and from a start at a distance D some log2 D have wide steps.
    """
    window, windows = _window(tree), 0
    # One cell after the other; ``left`` windows remain to it.
    for i in range(cell, last):
        step, left = 1, limit
        # Solve one window, then widen or narrow the next one.
        while step > 0 and left > 0:
            windows, left = windows + 1, left - 1
            _best(tree, y[i], x[i], cost, bounds, step, window)
            # A leaf at the edge of its window might go further: double the step.
            edge = _at_edge(tree.first_child, window.k)
            if not _move(tree, y[i], x[i], cost, step, window.k):
                step //= 2
            elif edge:
                step *= 2
    return windows
