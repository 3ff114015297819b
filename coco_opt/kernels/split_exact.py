"""Top-down splits of many parents whose children have exact counts by class of cells: interior points in the sums.

Over tables x [occupied cells, children] of a parent::

    minimise  sum of weighted squared residuals   s.t.   x >= 0,  sum_j x_cj = people_c,  sum_{c in a} x_cj = exact_ja,

the second sums for classes a of cells (at most one a cell). Such splits of small counts end at vertices, often at
degenerate ones, where faces cycle.

1. Rows that classes decide are constants and left out. Cells that no class and no other row of several cells connects
   are separate parts (``_connect``).
2. Each part starts from the counts in proportion, people x exact / total, which are strictly feasible once cells of
   empty classes are fixed at 0 (``_extract``).
3. A primal-dual method improves the part (``_part``): an affine step tells how far to centre, a corrected step moves.
   It eliminates the moves of the cells, then the rows' prices, and solves for the prices of the cells' sums.
4. The prices certify the gap (``judge``).

Invariant: all sums and the dual rows hold from the first step on. Cost: with k rows and classes and n cells of a part a
step costs O(children x (k^2 n + k n^2) + n^3).
Source: Mehrotra 1992 (predictor and corrector); the elimination is our own.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from coco_opt.kernels import split_certificate, split_level
from coco_opt.kernels.compile import compiled

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
Columns = tuple[Ints, Ints, Floats, Ints]
Level = tuple[Ints, Ints, Floats, Ints, Floats, Floats]

_ROUNDING = 4.0 * np.finfo(np.float64).eps
_PIVOT = 1e-13  # of a diagonal entry: what is left of it below this belongs to a sum of other rows
_FURTHEST = 0.995  # of the way to the nearest bound
_STEPS = 80
_FINE = 1e-3  # of the gap allowed, at which a part ends
_STALLED = 1e-6  # of a step


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
def _slopes(rows: Floats, weight: Floats, target: Floats, single: Floats, base: Floats, x: Floats) -> Floats:
    """Return the gradient [cells, children]."""
    out = 2.0 * single * (x - base)
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
def _part(
    rows: Floats,
    weight: Floats,
    target: Floats,
    single: Floats,
    base: Floats,
    sums: Floats,
    exact: Floats,
    shut: Flags,
    x: Floats,
    allowed: float,
) -> tuple[bool, Floats, Floats]:
    """Improve one part from a strictly feasible x, in place; return whether all is finite, prices of cells and classes.

    ``rows`` are the measured ones, of ``weight`` and ``target`` [rows, children], and below them the classes, whose
    sums are ``exact`` [classes, children].
    """
    n, children = x.shape
    soft, hard = weight.shape[0], exact.shape[0]
    all_rows = soft + hard
    price, class_price = np.zeros(n), np.zeros((hard, children))
    z, theta, b = np.zeros((n, children)), np.zeros((n, children)), np.zeros((n, children))
    g = _slopes(rows, weight, target, single, base, x)
    free, spread = 0, 0.0
    for c in range(n):
        low, high = np.inf, -np.inf
        for j in range(children):
            if not shut[c, j]:
                low, high, free = min(low, g[c, j]), max(high, g[c, j]), free + 1
        price[c] = low
        spread = max(spread, high - low)
    spread = max(spread, 1e-3)
    for c in range(n):
        price[c] -= spread
        for j in range(children):
            if not shut[c, j]:
                z[c, j] = g[c, j] - price[c]
    own = np.full(n, -1)  # the class of each cell
    for k in range(hard):
        for c in range(n):
            if rows[soft + k, c] != 0.0:
                own[c] = k
    factors, row_moves = np.empty((children, all_rows, all_rows)), np.zeros((all_rows, children))
    scaled, system, right = np.empty((all_rows, n)), np.empty((n, n)), np.empty(n)
    column, slack = np.empty(all_rows), np.empty((n, children))  # slack: by how much a dual row is missed
    for _ in range(_STEPS):
        g = _slopes(rows, weight, target, single, base, x)
        gap = 0.0
        for c in range(n):
            for j in range(children):
                gap += x[c, j] * z[c, j]
        if not np.isfinite(gap):
            return False, price, class_price
        if gap <= allowed:
            return True, price, class_price
        mu = gap / free
        for k in range(hard):
            for j in range(children):
                total = exact[k, j]
                for c in range(n):
                    total -= rows[soft + k, c] * x[c, j]
                row_moves[soft + k, j] = total
        system[:, :] = 0.0
        for j in range(children):
            for c in range(n):
                theta[c, j] = 0.0 if shut[c, j] else 1.0 / (2.0 * single[c, j] + z[c, j] / x[c, j])
            for r in range(all_rows):
                for s in range(r + 1):
                    total = 0.0
                    for c in range(n):
                        total += rows[r, c] * theta[c, j] * rows[s, c]
                    factors[j, r, s] = factors[j, s, r] = total
                if r < soft:
                    # A row without weight constrains nothing: it is treated as almost unmeasured.
                    factors[j, r, r] += 0.5 / weight[r, j] if weight[r, j] > 0.0 else 1e100
            _factor(factors[j])
            for c in range(n):
                for r in range(all_rows):
                    column[r] = rows[r, c] * theta[c, j]
                _forward(factors[j], column)
                for r in range(all_rows):
                    scaled[r, c] = column[r]
                if own[c] < 0:
                    system[c, c] += theta[c, j]
            # No move changes a class's sum, so a row adds up to 0 over it: its diagonal entry is minus the others'.
            for c in range(n):
                for i in range(c + 1):
                    total = 0.0
                    for r in range(all_rows):
                        total += scaled[r, c] * scaled[r, i]
                    if i < c:
                        system[c, i] -= total
                        if own[c] >= 0 and own[c] == own[i]:
                            system[c, c] += total
                            system[i, i] += total
                    elif own[c] < 0:
                        system[c, c] -= total
        for k in range(hard):  # and one cell's sum follows from the others': that of the cell that moves most
            most, chosen = -1.0, 0
            for c in range(n):
                total = 0.0
                for j in range(children):
                    total += theta[c, j]
                if own[c] == k and total > most:
                    most, chosen = total, c
            for c in range(n):
                system[max(c, chosen), min(c, chosen)] = 0.0
        _factor(system)
        dx, dz = np.zeros((n, children)), np.zeros((n, children))
        dprice, du = np.zeros(n), np.zeros((all_rows, children))
        centre = 0.0
        for c in range(n):
            for j in range(children):
                slack[c, j] = g[c, j] - price[c] - z[c, j]
                for k in range(hard):
                    slack[c, j] -= rows[soft + k, c] * class_price[k, j]
        for turn in range(2):  # the affine step, then the corrected one
            for c in range(n):
                for j in range(children):
                    if not shut[c, j]:
                        goal = centre * mu - x[c, j] * z[c, j] - (dx[c, j] * dz[c, j] if turn else 0.0)
                        b[c, j] = goal / x[c, j] - slack[c, j]
            dx, du = _moves(rows, factors, theta, b, row_moves, np.zeros(n))
            for c in range(n):
                right[c] = sums[c]
                for j in range(children):
                    right[c] -= x[c, j] + dx[c, j]
            _forward(system, right)
            _backward(system, right)
            dprice = right.copy()
            dx, du = _moves(rows, factors, theta, b, row_moves, dprice)
            for c in range(n):
                for j in range(children):
                    if not shut[c, j]:
                        dz[c, j] = (b[c, j] + slack[c, j]) - z[c, j] / x[c, j] * dx[c, j]
            if turn == 0:
                step = min(1.0, _longest(x, dx, shut), _longest(z, dz, shut))
                after = 0.0
                for c in range(n):
                    for j in range(children):
                        after += (x[c, j] + step * dx[c, j]) * (z[c, j] + step * dz[c, j])
                centre = (max(after, 0.0) / gap) ** 3
        step = min(1.0, _FURTHEST * min(_longest(x, dx, shut), _longest(z, dz, shut)))
        if not step > _STALLED:
            return True, price, class_price  # the judge decides what this point is worth
        for c in range(n):
            price[c] += step * dprice[c]
            for j in range(children):
                if not shut[c, j]:
                    x[c, j] += step * dx[c, j]
                    z[c, j] += step * dz[c, j]
        for k in range(hard):
            for j in range(children):
                class_price[k, j] += step * du[soft + k, j]
    return True, price, class_price


@compiled
def _root(links: Ints, c: int) -> int:
    while links[c] != c:
        links[c] = links[links[c]]
        c = links[c]
    return c


@compiled
def _is_decided(start: Ints, cell: Ints, value: Floats, a: int, label: Ints, size: Ints, met: Ints) -> bool:
    """Return whether a row is a sum of complete classes, each with one value; ``met`` is scratch, zero at both ends."""
    decided = True
    # Count how many cells of each class the row meets.
    for e in range(start[a], start[a + 1]):
        if label[cell[e]] < 0:
            decided = False
        else:
            met[label[cell[e]]] += 1
    # All cells of a class, with one value.
    for e in range(start[a], start[a + 1]):
        k = label[cell[e]]
        if decided and met[k] < size[k]:
            decided = False
        for f in range(start[a], e):
            if label[cell[f]] == k and value[f] != value[e]:
                decided = False
    # Leave the scratch clean.
    for e in range(start[a], start[a + 1]):
        if label[cell[e]] >= 0:
            met[label[cell[e]]] = 0
    return decided


@compiled
def _parent(
    columns: Columns, level: Level, p: int, labels: Ints, exact: Floats, tolerance: float,
    x: Floats, cell_price: Floats, class_price: Floats,
) -> bool:  # fmt: skip
    """Fill one parent's tables x [occupied cells, children] and its prices; return whether every part converged."""
    begin, end = level[3][p], level[3][p + 1]
    cells, sums = level[1][level[0][p] : level[0][p + 1]], level[2][level[0][p] : level[0][p + 1]]
    n, children, classes = cells.size, end - begin, exact.shape[1]
    met, of_row, of_cell, weigh = split_level.cut(columns, cells, columns[3].size)
    weight, target = split_level.fitted(columns, level, met, begin, end)
    start, cell, value, _, _, _ = split_certificate.by_rows_and_columns(of_row, of_cell, weigh, met.size, n)
    single, base = split_certificate.single_cells(start, cell, value, weight, target, n)
    label, size, class_sums, scratch = (
        np.empty(n, np.int64),
        np.zeros(classes, np.int64),
        np.zeros(classes),
        np.zeros(classes, np.int64),
    )
    first, links = np.full(classes, -1), np.arange(n)
    for c in range(n):
        label[c] = labels[cells[c]]
        if label[c] >= 0:
            size[label[c]] += 1
            class_sums[label[c]] += sums[c]
            if first[label[c]] < 0:
                first[label[c]] = c
            links[_root(links, c)] = _root(links, first[label[c]])
    for k in range(classes):
        total = 0.0
        for j in range(children):
            total += exact[begin + j, k]
        if abs(total - class_sums[k]) > 0.5:
            return False
    wide = np.zeros(met.size, np.bool_)
    for a in range(met.size):
        if start[a + 1] - start[a] > 1 and not _is_decided(start, cell, value, a, label, size, scratch):
            wide[a] = True
            for e in range(start[a] + 1, start[a + 1]):
                links[_root(links, cell[e])] = _root(links, cell[start[a]])
    number = np.full(n, -1)
    for root in range(n):
        if _root(links, root) != root:
            continue
        count, soft, hard = 0, 0, 0
        for c in range(n):
            if _root(links, c) == root:
                number[c] = count
                count += 1
        for k in range(classes):
            hard += first[k] >= 0 and _root(links, first[k]) == root
        for a in range(met.size):
            soft += wide[a] and _root(links, cell[start[a]]) == root
        inside, own = np.empty(count, np.int64), np.empty(hard, np.int64)
        rows, position = np.zeros((soft + hard, count)), 0
        part_weight, part_target = np.empty((soft, children)), np.empty((soft, children))
        for a in range(met.size):
            if wide[a] and _root(links, cell[start[a]]) == root:
                for e in range(start[a], start[a + 1]):
                    rows[position, number[cell[e]]] = value[e]
                for j in range(children):
                    part_weight[position, j], part_target[position, j] = weight[a, j], target[a, j]
                position += 1
        position = 0
        place = np.full(classes, -1)
        for k in range(classes):
            if first[k] >= 0 and _root(links, first[k]) == root:
                own[position], place[k] = k, position
                position += 1
        shut, y = np.zeros((count, children), np.bool_), np.empty((count, children))
        own_single, own_base = np.empty((count, children)), np.empty((count, children))
        own_sums, own_exact = np.empty(count), np.empty((hard, children))
        for k in range(hard):
            for j in range(children):
                own_exact[k, j] = exact[begin + j, own[k]]
        for c in range(n):
            i = number[c]
            if _root(links, c) != root:
                continue
            inside[i], own_sums[i] = c, sums[c]
            for j in range(children):
                own_single[i, j], own_base[i, j] = single[c, j], base[c, j]
                if label[c] >= 0:
                    shut[i, j] = exact[begin + j, label[c]] <= 0.0
                    y[i, j] = sums[c] * exact[begin + j, label[c]] / class_sums[label[c]]
                else:
                    y[i, j] = sums[c] / children
            if label[c] >= 0:
                rows[soft + place[label[c]], i] = 1.0
        if count == 1 and hard == 1:  # a class of one cell fixes that cell
            c = inside[0]
            for j in range(children):
                class_price[begin + j, own[0]] = 2.0 * own_single[0, j] * (y[0, j] - own_base[0, j])
                x[c, j] = y[0, j]
            continue
        ended, price, priced = _part(
            rows, part_weight, part_target, own_single, own_base, own_sums, own_exact, shut, y,
            _FINE * tolerance * children,
        )  # fmt: skip
        if not ended:
            return False
        for i in range(count):
            cell_price[level[0][p] + inside[i]] = price[i]
            for j in range(children):
                x[inside[i], j] = y[i, j]
        for k in range(hard):
            for j in range(children):
                class_price[begin + j, own[k]] = priced[k, j]
    # The gradient of a decided row is the same for all cells of a class: it is part of the class's price.
    for a in range(met.size):
        if start[a + 1] - start[a] > 1 and not wide[a]:
            for j in range(children):
                slope = -target[a, j]
                for e in range(start[a], start[a + 1]):
                    slope += value[e] * x[cell[e], j]
                slope *= 2.0 * weight[a, j]
                for e in range(start[a], start[a + 1]):
                    k = label[cell[e]]
                    if first[k] == cell[e]:
                        class_price[begin + j, k] += slope * value[e]
    return True


@compiled
def solve(
    columns: Columns,
    level: Level,
    places: Ints,
    labels: Ints,
    exact: Floats,
    tolerance: float,
    tables: Floats,
    cell_price: Floats,
    class_price: Floats,
) -> Flags:
    """Fill ``tables`` with all parents' tables and the prices that certify them; return which parents converged.

    ``labels`` int64[cells] are the classes, -1 for none, ``exact`` float64[children, classes] their counts;
    ``cell_price`` has one price for each occupied cell, in the parents' order; ``class_price`` is shaped as ``exact``.
    """
    parents = places.size - 1
    ended = np.zeros(parents, np.bool_)
    # Parents are independent.
    for p in range(parents):
        children = level[3][p + 1] - level[3][p]
        x = np.zeros((level[0][p + 1] - level[0][p], children))
        ended[p] = _parent(columns, level, p, labels, exact, tolerance, x, cell_price, class_price)
        flat = x.reshape(x.size)
        for position in range(flat.size):
            tables[places[p] + position] = flat[position]
    return ended


@compiled
def judge(
    columns: Columns,
    level: Level,
    places: Ints,
    labels: Ints,
    exact: Floats,
    tables: Floats,
    cell_price: Floats,
    class_price: Floats,
) -> tuple[Floats, Floats, Floats]:
    """Return every parent's objective, gap certified by the prices, and violation, as ``split_level.judge`` does."""
    parents, classes = places.size - 1, exact.shape[1]
    objective, gap, violation = np.empty(parents), np.empty(parents), np.empty(parents)
    for p in range(parents):
        begin, end = level[3][p], level[3][p + 1]
        cells, sums = level[1][level[0][p] : level[0][p + 1]], level[2][level[0][p] : level[0][p + 1]]
        n, children = cells.size, end - begin
        x = tables[places[p] : places[p + 1]].copy().reshape((n, children))
        total, single, reduced = split_level.misfit(columns, level, p, x)
        cap, worst, paid, counted = np.empty((n, children)), 0.0, 0.0, np.zeros((classes, children))
        # Reduced costs at both kinds of prices; no number exceeds its cell's people or its class's count.
        for c in range(n):
            price, k, cell_sum = cell_price[level[0][p] + c], labels[cells[c]], 0.0
            for j in range(children):
                cap[c, j] = sums[c]
                reduced[c, j] -= price
                if k >= 0:
                    cap[c, j] = min(sums[c], exact[begin + j, k])
                    reduced[c, j] -= class_price[begin + j, k]
                    counted[k, j] += x[c, j]
                cell_sum += x[c, j]
                worst = max(worst, -x[c, j])
            off = abs(cell_sum - sums[c])
            worst = max(worst, off)
            paid += abs(price) * max(0.0, off - _ROUNDING * sums[c])
        # What the classes' sums are off by is paid at their prices.
        for k in range(classes):
            for j in range(children):
                off = abs(counted[k, j] - exact[begin + j, k])
                worst = max(worst, off)
                paid += abs(class_price[begin + j, k]) * max(0.0, off - _ROUNDING * exact[begin + j, k])
        objective[p], violation[p] = total, worst
        gap[p] = split_certificate.cells_gap(reduced, x, single, cap) + paid
    return objective, gap, violation
