"""Top-down splits of many parents in one call, where only the parents' sums constrain them: solutions and certificates.

For every parent, over tables x [occupied cells, children]::

    minimise  sum_j sum_a weight_ja (R x - answer)_ja^2   subject to   x >= 0,  sum_j x_cj = people_c

1. Keep the cells in which the parent has people, and cut the level's queries, stored by columns once, to those.
2. Rows left with one cell are the curvature, the others the least squares of ``split_faces``, which solves the split.
3. Clip at 0 and scale to the sums, which removes what rounding leaves.
4. ``judge`` certifies every table by prices of its sums (``split_certificate``).

Tables of a parent lie one after the other as [occupied cells, children], in the parents' order.

Invariant: every table meets its parent's sums. Cost: O(entries x children) a step of conjugate gradients, parent after
parent.
Source: the method of ``split_faces``; Abowd et al. 2022 for the split itself.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from coco_opt.kernels import split_certificate, split_faces
from coco_opt.kernels.compile import compiled, compiled_in_place

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
Columns = tuple[Ints, Ints, Floats, Ints]
"""The queries' rows by columns (starts, rows, values), and each row's query."""
Level = tuple[Ints, Ints, Floats, Ints, Floats, Floats]
"""Parents' starts in their cells, cells, people; starts in the children; answers [children, rows], weights
[children, queries]."""

_FLAT = 1e-4  # a cell whose own answers weigh less than this part of any other counts as not measured by itself
_ROUNDING = 4.0 * np.finfo(np.float64).eps
_FAR = 1e-2  # of the misfit at the start: below it the first descent may have stopped too early


@compiled
def cut(columns: Columns, cells: Ints, rows: int) -> tuple[Ints, Ints, Ints, Floats]:
    """Return which rows some cells meet, and the entries there: row, cell (both counted anew) and value."""
    start, row, value, _ = columns
    entries = 0
    for c in cells:
        entries += start[c + 1] - start[c]
    number, met = np.empty(rows, np.int64), np.empty(min(rows, entries), np.int64)
    for a in range(rows):
        number[a] = -1
    of_row, of_cell, weigh = np.empty(entries, np.int64), np.empty(entries, np.int64), np.empty(entries)
    count, position = 0, 0
    # Number each row when its first entry comes.
    for k in range(cells.size):
        for e in range(start[cells[k]], start[cells[k] + 1]):
            if number[row[e]] < 0:
                number[row[e]] = count
                met[count] = row[e]
                count += 1
            of_row[position], of_cell[position], weigh[position] = number[row[e]], k, value[e]
            position += 1
    return met[:count], of_row, of_cell, weigh


@compiled
def fitted(columns: Columns, level: Level, met: Ints, begin: int, end: int) -> tuple[Floats, Floats]:
    """Return weights and answers [met rows, children] of some children."""
    weight, target = np.empty((met.size, end - begin)), np.empty((met.size, end - begin))
    # Weights are by query, answers by row.
    for a in range(met.size):
        for j in range(begin, end):
            weight[a, j - begin] = level[5][j, columns[3][met[a]]]
            target[a, j - begin] = level[4][j, met[a]]
    return weight, target


@compiled
def _wide(start: Ints, of_row: Ints, of_cell: Ints, weigh: Floats) -> tuple[Ints, Ints, Ints, Floats]:
    """Return the rows with several cells, and their entries with rows counted anew."""
    number, wide_rows, count = np.empty(start.size - 1, np.int64), np.empty(start.size - 1, np.int64), 0
    # Number the rows with several cells.
    for a in range(start.size - 1):
        number[a] = -1
        if start[a + 1] - start[a] > 1:
            number[a] = count
            wide_rows[count] = a
            count += 1
    entries = 0
    for e in range(of_row.size):
        entries += number[of_row[e]] >= 0
    row, cell, value, position = np.empty(entries, np.int64), np.empty(entries, np.int64), np.empty(entries), 0
    # Keep their entries.
    for e in range(of_row.size):
        if number[of_row[e]] >= 0:
            row[position], cell[position], value[position] = number[of_row[e]], of_cell[e], weigh[e]
            position += 1
    return wide_rows[:count], row, cell, value


@compiled
def _error(start: Ints, cell: Ints, value: Floats, weight: Floats, target: Floats, x: Floats) -> float:
    """Return the weighted sum of squared residuals."""
    total = 0.0
    product = split_certificate.products(start, cell, value, x)
    # The objective at the start, to scale what is allowed.
    for a in range(target.shape[0]):
        for j in range(target.shape[1]):
            total += weight[a, j] * (product[a, j] - target[a, j]) ** 2
    return total


@compiled_in_place
def _flat(single: Floats, least: Floats) -> bool:
    for c in range(single.shape[0]):
        for j in range(single.shape[1]):
            if single[c, j] <= 0.0 or single[c, j] < _FLAT * least[c, j]:
                return True
    return False


@compiled
def _largest(weight: Floats, target: Floats, sums: Floats) -> float:
    largest = 1.0
    for c in range(sums.size):
        largest = max(largest, sums[c])
    for a in range(target.shape[0]):
        for j in range(target.shape[1]):
            if weight[a, j] > 0.0:
                largest = max(largest, abs(float(target[a, j])))
    return largest


@compiled_in_place
def _scale_to_sums(x: Floats, sums: Floats) -> None:
    """Clip at 0 and meet the sums in proportion."""
    # A cell without any number is shared evenly.
    for c in range(x.shape[0]):
        now = 0.0
        for j in range(x.shape[1]):
            x[c, j] = max(0.0, x[c, j])
            now += x[c, j]
        for j in range(x.shape[1]):
            x[c, j] = x[c, j] * (sums[c] / now) if now > 0.0 else sums[c] / x.shape[1]


@compiled
def _split(
    columns: Columns,
    level: Level,
    p: int,
    tolerance: float,
    energy: float,
    least: float,
    limits: Ints,
) -> tuple[bool, int, Floats]:
    """Return whether one parent's split converged, the steps, and its tables."""
    rows = columns[3].size
    begin, end = level[3][p], level[3][p + 1]
    cells, sums = level[1][level[0][p] : level[0][p + 1]], level[2][level[0][p] : level[0][p + 1]]
    n, children = cells.size, end - begin
    met, of_row, of_cell, weigh = cut(columns, cells, rows)
    weight, target = fitted(columns, level, met, begin, end)
    every = split_certificate.by_rows_and_columns(of_row, of_cell, weigh, met.size, n)
    single, base = split_certificate.single_cells(every.start, every.cell, every.value, weight, target, n)
    x = base.copy()  # the cells' own answers are near the optimum, which equal parts are not
    _scale_to_sums(x, sums)
    wide_rows, row, place, entry = _wide(every.start, of_row, of_cell, weigh)
    wide = split_certificate.by_rows_and_columns(row, place, entry, wide_rows.size, n)
    shape = wide_rows.size, children
    measured = split_faces.Measured(np.empty(shape), np.empty(shape))
    for a in range(wide_rows.size):
        for j in range(children):
            measured.weight[a, j], measured.target[a, j] = weight[wide_rows[a], j], target[wide_rows[a], j]
    _, lightest = split_certificate.wide_cells(wide.column_start, wide.row, wide.column_value, measured.weight)
    if _flat(single, lightest):
        return False, 0, x
    begun = _error(every.start, every.cell, every.value, weight, target, x)
    free, none = np.ones((n, children), np.bool_), np.zeros((0, children))
    sides, own = split_faces.Sides(none, none, none), split_faces.Own(single, base)
    signs, enough = least * _largest(weight, target, sums), energy * tolerance
    wrong, _, steps = split_faces.descend(
        wide, measured, sides, own, sums, x, free, signs, enough * max(1.0, begun), limits[0], limits[1]
    )
    ended = _error(every.start, every.cell, every.value, weight, target, x)
    # What is allowed is a part of the objective, which was much larger at the start: go on from here.
    if wrong == 0 and ended < _FAR * begun:
        wrong, _, more = split_faces.descend(
            wide, measured, sides, own, sums, x, free, signs, enough * max(1.0, ended), limits[0], limits[1] - steps
        )
        steps += more
    _scale_to_sums(x, sums)
    return wrong == 0, steps, x


@compiled
def solve(
    columns: Columns,
    level: Level,
    places: Ints,
    tolerance: float,
    energy: float,
    least: float,
    limits: Ints,
    tables: Floats,
) -> tuple[Flags, int]:
    """Fill ``tables`` with all parents' tables, parent p's from ``places[p]``; return which converged, and the steps.

    ``tolerance``, ``energy``, ``least`` and ``limits`` (faces, steps) are those of the method of faces; a parent whose
    cells are not all measured by themselves is left to it.
    """
    parents = places.size - 1
    rested, total = np.zeros(parents, np.bool_), 0
    # Parents are independent; numba has no array of arrays, so their tables lie in one.
    for p in range(parents):
        rested[p], steps, x = _split(columns, level, p, tolerance, energy, least, limits)
        total += steps
        flat = x.reshape(x.size)
        for position in range(flat.size):
            tables[places[p] + position] = flat[position]
    return rested, total


@compiled
def misfit(columns: Columns, level: Level, p: int, x: Floats) -> tuple[float, Floats, Floats]:
    """Return parent p's objective at its table x [cells, children], its curvature by cell alone and its gradient."""
    rows, begin, end = columns[3].size, level[3][p], level[3][p + 1]
    met, of_row, of_cell, weigh = cut(columns, level[1][level[0][p] : level[0][p + 1]], rows)
    weight, target = fitted(columns, level, met, begin, end)
    form = split_certificate.by_rows_and_columns(of_row, of_cell, weigh, met.size, x.shape[0])
    single, _ = split_certificate.single_cells(form.start, form.cell, form.value, weight, target, x.shape[0])
    product, total = split_certificate.products(form.start, form.cell, form.value, x), 0.0
    # Residuals become the rows' part of the gradient.
    for a in range(met.size):
        for j in range(end - begin):
            residual = product[a, j] - target[a, j]
            total += weight[a, j] * residual * residual
            product[a, j] = 2.0 * weight[a, j] * residual
    # Rows without an occupied cell have the true answer 0: their residual is the noisy answer itself.
    unmet = np.ones(rows, np.bool_)
    for a in met:
        unmet[a] = False
    for j in range(begin, end):
        for a in range(rows):
            if unmet[a]:
                total += level[5][j, columns[3][a]] * level[4][j, a] ** 2
    return total, single, split_certificate.products(form.column_start, form.row, form.column_value, product)


@compiled_in_place
def _never_pay(closed: Flags, place: int, x: Floats, reduced: Floats, single: Floats, sums: Floats) -> None:
    """Make the gradients of closed cells so large that 0 is their best number at every price of their parent's sum."""
    if closed.size == 0:
        return
    for c in range(x.shape[0]):
        most = -np.inf
        for j in range(x.shape[1]):
            if not closed[place + c * x.shape[1] + j]:
                most = max(most, reduced[c, j] + 2.0 * single[c, j] * max(0.0, sums[c] - x[c, j]))
        for j in range(x.shape[1]):
            if closed[place + c * x.shape[1] + j]:
                reduced[c, j], single[c, j] = max(most, reduced[c, j]), 0.0


@compiled
def judge(
    columns: Columns, level: Level, places: Ints, closed: Flags, charge: Floats, tables: Floats
) -> tuple[Floats, Floats, Floats]:
    """Return every parent's objective, certified gap and violation: the terms of ``problems.topdown_split``.

    ``closed`` says which numbers must be 0, and ``charge`` is what each is paid for; both are empty without bounds.
    """
    parents = places.size - 1
    objective, gap, violation = np.empty(parents), np.empty(parents), np.empty(parents)
    for p in range(parents):
        begin, end = level[3][p], level[3][p + 1]
        cells, sums = level[1][level[0][p] : level[0][p + 1]], level[2][level[0][p] : level[0][p + 1]]
        n, children = cells.size, end - begin
        x = tables[places[p] : places[p + 1]].copy().reshape((n, children))
        total, single, reduced = misfit(columns, level, p, x)
        if charge.size > 0:
            for c in range(n):
                for j in range(children):
                    reduced[c, j] -= charge[places[p] + c * children + j]
        _never_pay(closed, places[p], x, reduced, single, sums)
        price = split_certificate.parent_prices(reduced, x, single, sums)
        cap, worst, paid = np.empty((n, children)), 0.0, 0.0
        # No number exceeds its parent's; what the sums are off by, beyond rounding, is paid at the prices.
        for c in range(n):
            cell_sum = 0.0
            for j in range(children):
                cap[c, j] = sums[c]
                reduced[c, j] -= price[c]
                cell_sum += x[c, j]
                worst = max(worst, -x[c, j])
                if closed.size and closed[places[p] + c * children + j]:
                    worst = max(worst, x[c, j])
            off = abs(cell_sum - sums[c])
            worst = max(worst, off)
            paid += abs(price[c]) * max(0.0, off - _ROUNDING * sums[c])
        objective[p], violation[p] = total, worst
        gap[p] = split_certificate.cells_gap(reduced, x, single, cap) + paid
    return objective, gap, violation
