"""A part of a top-down split under exact counts of classes: interior points in the sums.

    minimise  sum_r weight_rj (rows x_j - target_rj)^2 + single_cj (x_cj - base_cj)^2
    subject to  x >= 0,  sum_j x_cj = sums_c,  sum_{c in a} x_cj = exact_ja

over tables x [cells, children], from a strictly feasible start. A round of the primal-dual method is

1. Stop if the gap, the sum of x z over multipliers z of x >= 0, is small (``_complementarity``).
2. Factor the rows of every child: theta is the inverse diagonal of its cells (``_factor_children``).
3. Eliminate the children, which leaves a system in the prices of the cells' sums, and factor it (``_fill_system``).
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

from coco_opt.kernels.compile import compiled, compiled_in_place

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
    """What Newton steps at a point share.

    ``theta``, the inverse diagonal, and ``slack``, by how much a dual row is missed [cells, children]; each child's
    factor of its rows; the factor of the sums' system [cells, cells]; ``row_moves``, by how much rows are to move.
    """

    theta: Floats
    slack: Floats
    factors: Floats
    system: Floats
    row_moves: Floats


class Scratch(NamedTuple):
    """Work space: a gradient and right-hand sides [cells, children]; [rows, cells]; [rows]; and zeros [cells]."""

    slopes: Floats
    right: Floats
    scaled: Floats
    column: Floats
    zero: Floats


@compiled_in_place
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


@compiled_in_place
def _forward(a: Floats, b: Floats) -> None:
    # Solve with the lower factor; rows without a pivot are 0.
    for i in range(a.shape[0]):
        total = b[i]
        for k in range(i):
            total -= a[i, k] * b[k]
        b[i] = total / a[i, i] if a[i, i] > 0.0 else 0.0


@compiled_in_place
def _backward(a: Floats, b: Floats) -> None:
    # Solve with its transpose, from the last row up.
    for i in range(a.shape[0] - 1, -1, -1):
        total = b[i]
        for k in range(i + 1, a.shape[0]):
            total -= a[k, i] * b[k]
        b[i] = total / a[i, i] if a[i, i] > 0.0 else 0.0


@compiled_in_place
def _write_moves(
    rows: Floats, equations: Equations, b: Floats, price: Floats, solution: Floats, out: Floats, u: Floats
) -> None:
    """Write the moves ``out`` of x under a change ``price`` of the cells' prices, and those of the rows' prices, u.

    b are the cells' right-hand sides, ``solution`` [rows] is scratch.
    """
    theta, _, factors, _, row_moves = equations
    n, children = theta.shape
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


@compiled_in_place
def _longest(x: Floats, dx: Floats, shut: Flags) -> float:
    longest = 1.0 / _FURTHEST
    # The ratio test: the first entry that would reach 0.
    for c in range(x.shape[0]):
        for j in range(x.shape[1]):
            if not shut[c, j] and dx[c, j] < 0.0:
                longest = min(longest, -x[c, j] / dx[c, j])
    return longest


@compiled_in_place
def _slopes(part: Part, x: Floats, out: Floats) -> None:
    """Write the gradient [cells, children]."""
    rows, weight, target, single, base = part.rows, part.weight, part.target, part.single, part.base
    for c in range(x.shape[0]):
        for j in range(x.shape[1]):
            out[c, j] = 2.0 * single[c, j] * (x[c, j] - base[c, j])
    # The residual of each measured row, times its weight, goes to the row's cells.
    for r in range(weight.shape[0]):
        for j in range(x.shape[1]):
            total = -target[r, j]
            for c in range(x.shape[0]):
                total += rows[r, c] * x[c, j]
            total *= 2.0 * weight[r, j]
            for c in range(x.shape[0]):
                out[c, j] += rows[r, c] * total


@compiled_in_place
def _first_prices(part: Part, point: Point, g: Floats) -> int:
    """Write prices and positive multipliers for x, g being scratch; return how many cells are open."""
    x, z, price, _ = point
    _slopes(part, x, g)
    free, spread = 0, 0.0
    # A cell's price starts below all its slopes, by the largest spread of any cell's slopes: then z is positive.
    for c in range(x.shape[0]):
        low, high = np.inf, -np.inf
        for j in range(x.shape[1]):
            if not part.shut[c, j]:
                low, high, free = min(low, g[c, j]), max(high, g[c, j]), free + 1
        price[c] = low
        spread = max(spread, high - low)
    spread = max(spread, 1e-3)
    for c in range(x.shape[0]):
        price[c] -= spread
        for j in range(x.shape[1]):
            if not part.shut[c, j]:
                z[c, j] = g[c, j] - price[c]
    return free


@compiled_in_place
def _complementarity(x: Floats, z: Floats) -> float:
    """Return the sum of x z, which is the gap once the sums and the dual rows hold."""
    gap = 0.0
    for c in range(x.shape[0]):
        for j in range(x.shape[1]):
            gap += x[c, j] * z[c, j]
    return gap


@compiled_in_place
def _missing_counts(part: Part, x: Floats, row_moves: Floats) -> None:
    """Write by how much the classes' sums are off (rounding) into their rows of ``row_moves``."""
    soft = part.weight.shape[0]
    for k in range(part.exact.shape[0]):
        for j in range(x.shape[1]):
            total = part.exact[k, j]
            for c in range(x.shape[0]):
                total -= part.rows[soft + k, c] * x[c, j]
            row_moves[soft + k, j] = total


@compiled_in_place
def _factor_children(part: Part, x: Floats, z: Floats, theta: Floats, factors: Floats) -> None:
    """Write theta, the inverse diagonal of the cells, and each child's factor of rows theta rows' + 1 / 2 weight."""
    rows, weight, single, shut, soft = part.rows, part.weight, part.single, part.shut, part.weight.shape[0]
    n, children = theta.shape
    for j in range(children):
        factor = factors[j]
        for c in range(n):
            theta[c, j] = 0.0 if shut[c, j] else 1.0 / (2.0 * single[c, j] + z[c, j] / x[c, j])
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


@compiled_in_place
def _fill_system(
    rows: Floats, own: Ints, theta: Floats, factors: Floats, scaled: Floats, column: Floats, system: Floats
) -> None:
    """Write the matrix of the prices of the cells' sums; ``scaled`` [rows, cells] and ``column`` are scratch."""
    n, children = theta.shape
    for c in range(n):
        for i in range(n):
            system[c, i] = 0.0
    for j in range(children):
        for c in range(n):
            for r in range(rows.shape[0]):
                column[r] = rows[r, c] * theta[c, j]
            _forward(factors[j], column)
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


@compiled_in_place
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


@compiled_in_place
def _write_missed(part: Part, point: Point, g: Floats, slack: Floats) -> None:
    """Write by how much every dual row is missed: slope less prices less z [cells, children]; g is scratch."""
    soft = part.weight.shape[0]
    _slopes(part, point.x, g)
    for c in range(g.shape[0]):
        for j in range(g.shape[1]):
            slack[c, j] = g[c, j] - point.price[c] - point.z[c, j]
            for k in range(part.exact.shape[0]):
                slack[c, j] -= part.rows[soft + k, c] * point.class_price[k, j]


@compiled_in_place
def _longest_step(x: Floats, z: Floats, move: Move, shut: Flags, most: float) -> float:
    """Return the part of a move, 1 at most, that goes ``most`` of the way to the nearest bound at most."""
    return min(1.0, most * min(_longest(x, move.x, shut), _longest(z, move.z, shut)))


@compiled_in_place
def _write_move(
    part: Part, point: Point, equations: Equations, centre: float, last: Move, scratch: Scratch, move: Move
) -> None:
    """Write the Newton step towards x z = ``centre`` in every open cell, corrected by the products of ``last``."""
    x, z, shut, slack, b, right = point.x, point.z, part.shut, equations.slack, scratch.right, move.price
    n, children = x.shape
    for c in range(n):
        for j in range(children):
            if not shut[c, j]:
                goal = centre - x[c, j] * z[c, j] - last.x[c, j] * last.z[c, j]
                b[c, j] = goal / x[c, j] - slack[c, j]
    # What the cells' sums are off by after a move at unchanged prices is made up by the prices' move.
    _write_moves(part.rows, equations, b, scratch.zero, scratch.column, move.x, move.rows)
    for c in range(n):
        right[c] = part.sums[c]
        for j in range(children):
            right[c] -= x[c, j] + move.x[c, j]
    _forward(equations.system, right)
    _backward(equations.system, right)
    _write_moves(part.rows, equations, b, right, scratch.column, move.x, move.rows)
    for c in range(n):
        for j in range(children):
            if not shut[c, j]:
                move.z[c, j] = (b[c, j] + slack[c, j]) - z[c, j] / x[c, j] * move.x[c, j]


@compiled_in_place
def _centring(x: Floats, z: Floats, move: Move, step: float, gap: float) -> float:
    """Return how much of the gap a corrected step is to keep: the cube of what the affine step would leave."""
    after, dx, dz = 0.0, move.x, move.z
    for c in range(x.shape[0]):
        for j in range(x.shape[1]):
            after += (x[c, j] + step * dx[c, j]) * (z[c, j] + step * dz[c, j])
    return float((max(after, 0.0) / gap) ** 3)


@compiled_in_place
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


@compiled_in_place
def _set_up(part: Part, point: Point, own: Ints, equations: Equations, scratch: Scratch) -> None:
    """Fill in the equations of the present point: every child's factor, and the factor of the sums' system."""
    theta, slack, factors, system, row_moves = equations
    _missing_counts(part, point.x, row_moves)
    _write_missed(part, point, scratch.slopes, slack)
    _factor_children(part, point.x, point.z, theta, factors)
    _fill_system(part.rows, own, theta, factors, scratch.scaled, scratch.column, system)
    _drop_dependent(own, part.exact.shape[0], theta, system)
    _factor(system)


@compiled
def _new_move(part: Part, shape: tuple[int, int]) -> Move:
    """Return a move that changes nothing."""
    rows = np.zeros((part.rows.shape[0], shape[1]))
    return Move(np.zeros(shape), np.zeros(shape), np.zeros(shape[0]), rows)


@compiled
def _classes_of(part: Part) -> Ints:
    """Return the class of each cell, -1 for none."""
    soft, own, rows = part.weight.shape[0], np.full(part.sums.size, -1), part.rows
    for k in range(part.exact.shape[0]):
        for c in range(own.size):
            if rows[soft + k, c] != 0.0:
                own[c] = k
    return own


@compiled_in_place
def _run(
    part: Part, point: Point, own: Ints, equations: Equations, scratch: Scratch, moves: tuple[Move, Move, Move],
    allowed: float,
) -> bool:  # fmt: skip
    """Take rounds until the gap is at most ``allowed`` or steps are tiny; return whether all is finite."""
    (none, affine, move), (x, z, _, _), shut = moves, point, part.shut
    free = _first_prices(part, point, scratch.slopes)
    # One predictor and one corrector a round; both use the same factors.
    for _ in range(_STEPS):
        gap = _complementarity(x, z)
        if not np.isfinite(gap):
            return False
        if gap <= allowed:
            return True
        _set_up(part, point, own, equations, scratch)
        _write_move(part, point, equations, 0.0, none, scratch, affine)
        centre = _centring(x, z, affine, _longest_step(x, z, affine, shut, 1.0), gap)
        _write_move(part, point, equations, centre * (gap / free), affine, scratch, move)
        step = _longest_step(x, z, move, shut, _FURTHEST)
        if not step > _STALLED:
            return True  # the judge decides what this point is worth
        _take(part, point, move, step)
    return True


@compiled
def improve(part: Part, x: Floats, allowed: float) -> tuple[bool, Floats, Floats]:
    """Improve one part from a strictly feasible x, in place; return whether all is finite, and both kinds of prices.

    All arrays are made here, so that rounds count no references.
    """
    (n, children), all_rows, own = x.shape, part.rows.shape[0], _classes_of(part)
    shape = n, children
    point = Point(x, np.zeros(shape), np.zeros(n), np.zeros(part.exact.shape))
    factors, row_moves = np.empty((children, all_rows, all_rows)), np.zeros((all_rows, children))
    equations = Equations(np.zeros(shape), np.empty(shape), factors, np.empty((n, n)), row_moves)
    columns = np.empty((all_rows, n)), np.empty(all_rows)
    scratch = Scratch(np.empty(shape), np.zeros(shape), *columns, np.zeros(n))
    moves = _new_move(part, shape), _new_move(part, shape), _new_move(part, shape)
    ended = _run(part, point, own, equations, scratch, moves, allowed)
    return ended, point.price, point.class_price
