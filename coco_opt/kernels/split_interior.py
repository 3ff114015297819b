"""A part of a top-down split under exact counts of classes: interior points in the sums.

    minimise  sum_r weight_rj (rows x_j - target_rj)^2 + single_cj (x_cj - base_cj)^2
    subject to  x >= 0,  sum_j x_cj = sums_c,  sum_{c in a} x_cj = exact_ja

over tables x [cells, children], from a strictly feasible start. A round of the primal-dual method is

1. Stop if the gap, the sum of x z over multipliers z of x >= 0, is small (``_complementarity``).
2. Factor the rows of every child: theta is the inverse diagonal of its cells (``_factor_child``).
3. Eliminate the children, which leaves a system in the prices of the cells' sums, and factor it (``_add_to_system``).
4. Take the affine step; it tells how far to centre (``_centring``).
5. Take the corrected step, almost to the nearest bound.

Invariant: all sums and the dual rows hold from the first step on. Cost: with k rows and classes and n cells a round
costs O(children x (k^2 n + k n^2) + n^3).
Source: Mehrotra 1992 (predictor and corrector); the elimination is our own.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from coco_opt.kernels.compile import compiled

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

_PIVOT = 1e-13  # of a diagonal entry: what is left of it below this belongs to a sum of other rows
_FURTHEST = 0.995  # of the way to the nearest bound
_STEPS = 80
_STALLED = 1e-6  # of a step


class Part(NamedTuple):
    """Cells of a parent that are solved together.

    ``rows`` [rows, cells] are the measured ones, of ``weight`` and ``target`` [rows, children], and below them the
    classes, whose sums are ``exact`` [classes, children]. ``single`` and ``base`` [cells, children] are the curvature
    and centre of the cells' own squares, ``sums`` [cells] the people, ``shut`` cells of empty classes.
    """

    rows: Floats
    weight: Floats
    target: Floats
    single: Floats
    base: Floats
    sums: Floats
    exact: Floats
    shut: Flags


class Point(NamedTuple):
    """Tables x and multipliers z of x >= 0 [cells, children]; prices of the cells' sums and of classes."""

    x: Floats
    z: Floats
    price: Floats
    class_price: Floats


class Move(NamedTuple):
    """A change of a point: of x, z, the cells' prices, and the prices of rows [rows, children]."""

    x: Floats
    z: Floats
    price: Floats
    rows: Floats


class Equations(NamedTuple):
    """What Newton steps at a point share: inverse diagonal, children's factors, the sums' factor, rows' moves."""

    theta: Floats
    factors: Floats
    system: Floats
    row_moves: Floats


@compiled
def _factor(a: Floats) -> None:
    """Replace a symmetric positive semidefinite matrix by its Cholesky factor; dependent rows get the pivot 0."""
    # Row by row, from the left.
    for i in range(a.shape[0]):
        diagonal = a[i, i]
        for k in range(i):
            total = a[i, k]
            for e in range(k):
                total -= a[i, e] * a[k, e]
            a[i, k] = total / a[k, k] if a[k, k] > 0.0 else 0.0
            a[i, i] -= a[i, k] * a[i, k]
        a[i, i] = np.sqrt(a[i, i]) if a[i, i] > _PIVOT * diagonal else 0.0


@compiled
def _forward(a: Floats, b: Floats) -> None:
    # Solve with the lower factor; rows without a pivot are 0.
    for i in range(a.shape[0]):
        total = b[i]
        for k in range(i):
            total -= a[i, k] * b[k]
        b[i] = total / a[i, i] if a[i, i] > 0.0 else 0.0


@compiled
def _backward(a: Floats, b: Floats) -> None:
    # Solve with its transpose, from the last row up.
    for i in range(a.shape[0] - 1, -1, -1):
        total = b[i]
        for k in range(i + 1, a.shape[0]):
            total -= a[k, i] * b[k]
        b[i] = total / a[i, i] if a[i, i] > 0.0 else 0.0


@compiled
def _moves(
    rows: Floats, factors: Floats, theta: Floats, b: Floats, row_moves: Floats, price: Floats
) -> tuple[Floats, Floats]:
    """Return the moves [cells, children] under prices of the cells' sums, and the rows' prices [rows, children].

    ``row_moves`` [rows, children] is by how much the hard rows are to move, 0 for the others.
    """
    n, children = theta.shape
    out, u = np.empty((n, children)), np.empty((rows.shape[0], children))
    solution = np.empty(rows.shape[0])
    # A child's rows: the right-hand side, two triangular solves, then the cells' moves at these prices.
    for j in range(children):
        for r in range(rows.shape[0]):
            total = row_moves[r, j]
            for c in range(n):
                total -= rows[r, c] * theta[c, j] * (b[c, j] + price[c])
            solution[r] = total
        _forward(factors[j], solution)
        _backward(factors[j], solution)
        for r in range(rows.shape[0]):
            u[r, j] = solution[r]
        for c in range(n):
            total = b[c, j] + price[c]
            for r in range(rows.shape[0]):
                total += rows[r, c] * solution[r]
            out[c, j] = theta[c, j] * total
    return out, u


@compiled
def _longest(x: Floats, dx: Floats, shut: Flags) -> float:
    longest = 1.0 / _FURTHEST
    # The ratio test: the first entry that would reach 0.
    for c in range(x.shape[0]):
        for j in range(x.shape[1]):
            if not shut[c, j] and dx[c, j] < 0.0:
                longest = min(longest, -x[c, j] / dx[c, j])
    return longest


@compiled
def _slopes(part: Part, x: Floats) -> Floats:
    """Return the gradient [cells, children]."""
    rows, weight, target = part.rows, part.weight, part.target
    out = 2.0 * part.single * (x - part.base)
    # The residual of each measured row, times its weight, goes to the row's cells.
    for r in range(weight.shape[0]):
        for j in range(x.shape[1]):
            total = -target[r, j]
            for c in range(x.shape[0]):
                total += rows[r, c] * x[c, j]
            total *= 2.0 * weight[r, j]
            for c in range(x.shape[0]):
                out[c, j] += rows[r, c] * total
    return out


@compiled
def _first_point(part: Part, x: Floats) -> tuple[Point, int]:
    """Return a strictly feasible dual point for x, and how many cells are open."""
    (n, children), g = x.shape, _slopes(part, x)
    price, z = np.zeros(n), np.zeros((n, children))
    free, spread = 0, 0.0
    # A cell's price starts below all its slopes, by the largest spread of any cell's slopes: then z is positive.
    for c in range(n):
        low, high = np.inf, -np.inf
        for j in range(children):
            if not part.shut[c, j]:
                low, high, free = min(low, g[c, j]), max(high, g[c, j]), free + 1
        price[c] = low
        spread = max(spread, high - low)
    spread = max(spread, 1e-3)
    for c in range(n):
        price[c] -= spread
        for j in range(children):
            if not part.shut[c, j]:
                z[c, j] = g[c, j] - price[c]
    return Point(x, z, price, np.zeros(part.exact.shape)), free


@compiled
def _complementarity(point: Point) -> float:
    """Return the sum of x z, which is the gap once the sums and the dual rows hold."""
    gap = 0.0
    for c in range(point.x.shape[0]):
        for j in range(point.x.shape[1]):
            gap += point.x[c, j] * point.z[c, j]
    return gap


@compiled
def _missing_counts(part: Part, x: Floats, row_moves: Floats) -> None:
    """Write by how much the classes' sums are off (rounding) into their rows of ``row_moves``."""
    soft = part.weight.shape[0]
    for k in range(part.exact.shape[0]):
        for j in range(x.shape[1]):
            total = part.exact[k, j]
            for c in range(x.shape[0]):
                total -= part.rows[soft + k, c] * x[c, j]
            row_moves[soft + k, j] = total


@compiled
def _factor_child(part: Part, point: Point, j: int, theta: Floats, factor: Floats) -> None:
    """Write a child's theta, the inverse diagonal of its cells, and the factor of rows theta rows' + 1 / 2 weight."""
    rows, weight, soft = part.rows, part.weight, part.weight.shape[0]
    n = theta.shape[0]
    for c in range(n):
        open_cell = 2.0 * part.single[c, j] + point.z[c, j] / point.x[c, j] if not part.shut[c, j] else 1.0
        theta[c, j] = 0.0 if part.shut[c, j] else 1.0 / open_cell
    for r in range(rows.shape[0]):
        for s in range(r + 1):
            total = 0.0
            for c in range(n):
                total += rows[r, c] * theta[c, j] * rows[s, c]
            factor[r, s] = factor[s, r] = total
        if r < soft:
            # A row without weight constrains nothing: it is treated as almost unmeasured.
            factor[r, r] += 0.5 / weight[r, j] if weight[r, j] > 0.0 else 1e100
    _factor(factor)


@compiled
def _add_to_system(
    rows: Floats, own: Ints, theta: Floats, j: int, factor: Floats, scaled: Floats, system: Floats
) -> None:
    """Add a child's part to the matrix of the prices of the cells' sums; ``scaled`` [rows, cells] is scratch."""
    n, column = theta.shape[0], np.empty(rows.shape[0])
    for c in range(n):
        for r in range(rows.shape[0]):
            column[r] = rows[r, c] * theta[c, j]
        _forward(factor, column)
        for r in range(rows.shape[0]):
            scaled[r, c] = column[r]
        if own[c] < 0:
            system[c, c] += theta[c, j]
    # No move changes a class's sum, so a row adds up to 0 over it: its diagonal entry is minus the others'.
    for c in range(n):
        for i in range(c + 1):
            total = 0.0
            for r in range(rows.shape[0]):
                total += scaled[r, c] * scaled[r, i]
            if i < c:
                system[c, i] -= total
                if own[c] >= 0 and own[c] == own[i]:
                    system[c, c] += total
                    system[i, i] += total
            elif own[c] < 0:
                system[c, c] -= total


@compiled
def _drop_dependent(own: Ints, classes: int, theta: Floats, system: Floats) -> None:
    """Drop from each class the cell that moves most: its sum follows from the others'."""
    n, children = theta.shape
    for k in range(classes):
        most, chosen = -1.0, 0
        for c in range(n):
            total = 0.0
            for j in range(children):
                total += theta[c, j]
            if own[c] == k and total > most:
                most, chosen = total, c
        for c in range(n):
            system[max(c, chosen), min(c, chosen)] = 0.0


@compiled
def _missed(part: Part, point: Point) -> Floats:
    """Return by how much every dual row is missed: slope less prices less z [cells, children]."""
    soft, g = part.weight.shape[0], _slopes(part, point.x)
    slack = np.empty(g.shape)
    for c in range(g.shape[0]):
        for j in range(g.shape[1]):
            slack[c, j] = g[c, j] - point.price[c] - point.z[c, j]
            for k in range(part.exact.shape[0]):
                slack[c, j] -= part.rows[soft + k, c] * point.class_price[k, j]
    return slack


@compiled
def _longest_step(part: Part, point: Point, move: Move, most: float) -> float:
    """Return the part of a move, 1 at most, that goes ``most`` of the way to the nearest bound at most."""
    primal, dual = _longest(point.x, move.x, part.shut), _longest(point.z, move.z, part.shut)
    return min(1.0, most * min(primal, dual))


@compiled
def _move(part: Part, point: Point, equations: Equations, slack: Floats, centre: float, last: Move) -> Move:
    """Return the Newton step towards x z = ``centre`` in every open cell, corrected by the products of ``last``."""
    (n, children), (theta, factors, system, row_moves) = point.x.shape, equations
    x, z, shut = point.x, point.z, part.shut
    b, right = np.zeros((n, children)), np.empty(n)
    for c in range(n):
        for j in range(children):
            if not shut[c, j]:
                goal = centre - x[c, j] * z[c, j] - last.x[c, j] * last.z[c, j]
                b[c, j] = goal / x[c, j] - slack[c, j]
    # What the cells' sums are off by after a move at unchanged prices is made up by the prices' move.
    dx, _ = _moves(part.rows, factors, theta, b, row_moves, np.zeros(n))
    for c in range(n):
        right[c] = part.sums[c]
        for j in range(children):
            right[c] -= x[c, j] + dx[c, j]
    _forward(system, right)
    _backward(system, right)
    dx, du = _moves(part.rows, factors, theta, b, row_moves, right)
    dz = np.zeros((n, children))
    for c in range(n):
        for j in range(children):
            if not shut[c, j]:
                dz[c, j] = (b[c, j] + slack[c, j]) - z[c, j] / x[c, j] * dx[c, j]
    return Move(dx, dz, right, du)


@compiled
def _centring(point: Point, move: Move, step: float, gap: float) -> float:
    """Return how much of the gap a corrected step is to keep: the cube of what the affine step would leave."""
    after = 0.0
    for c in range(point.x.shape[0]):
        for j in range(point.x.shape[1]):
            after += (point.x[c, j] + step * move.x[c, j]) * (point.z[c, j] + step * move.z[c, j])
    return float((max(after, 0.0) / gap) ** 3)


@compiled
def _take(part: Part, point: Point, move: Move, step: float) -> None:
    """Move the point, in place."""
    soft = part.weight.shape[0]
    for c in range(point.x.shape[0]):
        point.price[c] += step * move.price[c]
        for j in range(point.x.shape[1]):
            if not part.shut[c, j]:
                point.x[c, j] += step * move.x[c, j]
                point.z[c, j] += step * move.z[c, j]
    for k in range(part.exact.shape[0]):
        for j in range(point.x.shape[1]):
            point.class_price[k, j] += step * move.rows[soft + k, j]


@compiled
def _set_up(part: Part, point: Point, own: Ints, equations: Equations, scaled: Floats) -> None:
    """Fill in the equations of the present point: every child's factor, and the factor of the sums' system."""
    theta, factors, system, row_moves = equations
    _missing_counts(part, point.x, row_moves)
    for c in range(system.shape[0]):
        for i in range(system.shape[0]):
            system[c, i] = 0.0
    for j in range(point.x.shape[1]):
        _factor_child(part, point, j, theta, factors[j])
        _add_to_system(part.rows, own, theta, j, factors[j], scaled, system)
    _drop_dependent(own, part.exact.shape[0], theta, system)
    _factor(system)


@compiled
def _classes_of(part: Part) -> Ints:
    """Return the class of each cell, -1 for none."""
    soft, own = part.weight.shape[0], np.full(part.sums.size, -1)
    for k in range(part.exact.shape[0]):
        for c in range(own.size):
            if part.rows[soft + k, c] != 0.0:
                own[c] = k
    return own


@compiled
def improve(part: Part, x: Floats, allowed: float) -> tuple[bool, Floats, Floats]:
    """Improve one part from a strictly feasible x, in place; return whether all is finite, and both kinds of prices."""
    (n, children), all_rows, own = x.shape, part.rows.shape[0], _classes_of(part)
    point, free = _first_point(part, x)
    factors, scaled = np.empty((children, all_rows, all_rows)), np.empty((all_rows, n))
    equations = Equations(np.zeros((n, children)), factors, np.empty((n, n)), np.zeros((all_rows, children)))
    none = Move(np.zeros((n, children)), np.zeros((n, children)), np.zeros(n), np.zeros((all_rows, children)))
    # One predictor and one corrector a round; both use the same factors.
    for _ in range(_STEPS):
        gap = _complementarity(point)
        if not np.isfinite(gap):
            return False, point.price, point.class_price
        if gap <= allowed:
            return True, point.price, point.class_price
        _set_up(part, point, own, equations, scaled)
        slack = _missed(part, point)
        affine = _move(part, point, equations, slack, 0.0, none)
        centre = _centring(point, affine, _longest_step(part, point, affine, 1.0), gap)
        move = _move(part, point, equations, slack, centre * (gap / free), affine)
        step = _longest_step(part, point, move, _FURTHEST)
        if not step > _STALLED:
            return True, point.price, point.class_price  # the judge decides what this point is worth
        _take(part, point, move, step)
    return True, point.price, point.class_price
