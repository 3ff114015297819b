"""Top-down splits of many parents whose children have exact counts by class of cells.

Over tables x [occupied cells, children] of a parent::

    minimise  sum of weighted squared residuals   s.t.   x >= 0,  sum_j x_cj = people_c,  sum_{c in a} x_cj = exact_ja,

the second sums for classes a of cells (at most one a cell). Such splits of small counts end at vertices, often at
degenerate ones, where faces cycle.

1. Rows that classes decide are constants and left out. Cells that no class and no other row of several cells connects
   are separate parts (``_connect``).
2. Each part starts from the counts in proportion, people x exact / total, which are strictly feasible once cells of
   empty classes are fixed at 0 (``_extract``).
3. Interior points improve the part (``split_interior``).
4. The gradients of the rows left out are added to the classes' prices (``_price_decided``), and the prices certify the
   gap (``judge``).

Invariant: the parts filled in so far meet all their sums. Cost: that of ``split_interior``, part after part.
Source: our own; disjoint sets as in Galler and Fischer 1964.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from coco_opt.kernels import split_certificate, split_level
from coco_opt.kernels.compile import compiled, compiled_in_place
from coco_opt.kernels.split_interior import Part, improve

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
Columns = tuple[Ints, Ints, Floats, Ints]
Level = tuple[Ints, Ints, Floats, Ints, Floats, Floats]

_ROUNDING = 4.0 * np.finfo(np.float64).eps
_FINE = 1e-3  # of the gap allowed, at which a part ends


class Rows(NamedTuple):
    """A parent's measured rows: entries by rows (starts, cells, values), weights and targets [rows, children]."""

    start: Ints
    cell: Ints
    value: Floats
    weight: Floats
    target: Floats


class Cells(NamedTuple):
    """A parent's cells: curvature and centre of their own squares [cells, children], and their people."""

    single: Floats
    base: Floats
    people: Floats


class Classes(NamedTuple):
    """The class of each cell (-1: none), and of each class its size, its first cell (-1: none) and its people."""

    label: Ints
    size: Ints
    first: Ints
    people: Floats


@compiled_in_place
def _root(links: Ints, c: int) -> int:
    while links[c] != c:
        links[c] = links[links[c]]
        c = links[c]
    return c


@compiled_in_place
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
def _rows_of(columns: Columns, level: Level, p: int) -> tuple[Rows, Cells]:
    """Return one parent's measured rows, and its cells' own squares and people."""
    begin, end = level[3][p], level[3][p + 1]
    cells, people = level[1][level[0][p] : level[0][p + 1]], level[2][level[0][p] : level[0][p + 1]]
    met, of_row, of_cell, weigh = split_level.cut(columns, cells, columns[3].size)
    weight, target = split_level.fitted(columns, level, met, begin, end)
    form = split_certificate.by_rows_and_columns(of_row, of_cell, weigh, met.size, cells.size)
    single, base = split_certificate.single_cells(form.start, form.cell, form.value, weight, target, cells.size)
    return Rows(form.start, form.cell, form.value, weight, target), Cells(single, base, people)


@compiled
def _classes(label: Ints, people: Floats, classes: int) -> Classes:
    """Return the classes' cells and people, for the class of each cell."""
    size, total, first = np.zeros(classes, np.int64), np.zeros(classes), np.full(classes, -1)
    for c in range(label.size):
        if label[c] >= 0:
            size[label[c]] += 1
            total[label[c]] += people[c]
            if first[label[c]] < 0:
                first[label[c]] = c
    return Classes(label, size, first, total)


@compiled_in_place
def _adds_up(exact: Floats, people: Floats) -> bool:
    """Return whether the children's exact counts [children, classes] add up to the parent's people of each class."""
    for k in range(people.size):
        total = 0.0
        for j in range(exact.shape[0]):
            total += exact[j, k]
        if abs(total - people[k]) > 0.5:
            return False
    return True


@compiled
def _connect(rows: Rows, classes: Classes) -> tuple[Flags, Ints]:
    """Return which rows connect cells (not decided, of several), and links whose roots are the parts."""
    start, cell, value, _, _ = rows
    label, size, first, _ = classes
    links, wide = np.arange(label.size), np.zeros(start.size - 1, np.bool_)
    scratch = np.zeros(size.size, np.int64)
    # Cells of one class belong together ...
    for c in range(label.size):
        if label[c] >= 0:
            links[_root(links, c)] = _root(links, first[label[c]])
    # ... and so do the cells of a row that classes do not decide.
    for a in range(wide.size):
        several = start[a + 1] - start[a] > 1
        if several and not _is_decided(start, cell, value, a, label, size, scratch):
            wide[a] = True
            for e in range(start[a] + 1, start[a + 1]):
                links[_root(links, cell[e])] = _root(links, cell[start[a]])
    return wide, links


@compiled
def _members(links: Ints, root: int) -> tuple[Ints, Ints]:
    """Return the cells of a part, and each cell's number in it (-1: another part)."""
    inside, number, count = np.empty(links.size, np.int64), np.full(links.size, -1), 0
    for c in range(links.size):
        if _root(links, c) == root:
            inside[count], number[c] = c, count
            count += 1
    return inside[:count], number


@compiled
def _classes_inside(classes: Classes, number: Ints) -> Ints:
    """Return the classes whose cells are in a part."""
    first, own, count = classes.first, np.empty(classes.first.size, np.int64), 0
    for k in range(first.size):
        if first[k] >= 0 and number[first[k]] >= 0:
            own[count] = k
            count += 1
    return own[:count]


@compiled
def _rows_inside(rows: Rows, wide: Flags, number: Ints, count: int, hard: int) -> tuple[Floats, Floats, Floats]:
    """Return a part's rows on its ``count`` cells, with ``hard`` empty ones below, their weights and targets."""
    start, cell, value, of_all, aims = rows
    children, soft = of_all.shape[1], 0
    for a in range(wide.size):
        soft += wide[a] and number[cell[start[a]]] >= 0
    matrix, position = np.zeros((soft + hard, count)), 0
    weight, target = np.empty((soft, children)), np.empty((soft, children))
    for a in range(wide.size):
        if wide[a] and number[cell[start[a]]] >= 0:
            for e in range(start[a], start[a + 1]):
                matrix[position, number[cell[e]]] = value[e]
            for j in range(children):
                weight[position, j], target[position, j] = of_all[a, j], aims[a, j]
            position += 1
    return matrix, weight, target


@compiled
def _extract(
    rows: Rows, cells: Cells, classes: Classes, exact: Floats, wide: Flags, inside: Ints, number: Ints, own: Ints
) -> tuple[Part, Floats]:
    """Return a part's problem, and the counts in proportion that it starts from."""
    (of_cell, centre, every), label, totals = cells, classes.label, classes.people
    children, count, hard = exact.shape[0], inside.size, own.size
    matrix, weight, target = _rows_inside(rows, wide, number, count, hard)
    shape = count, children
    single, base, people = np.empty(shape), np.empty(shape), np.empty(count)
    shut, x = np.zeros(shape, np.bool_), np.empty(shape)
    for i in range(count):
        c, k = inside[i], label[inside[i]]
        people[i] = every[c]
        for j in range(children):
            single[i, j], base[i, j] = of_cell[c, j], centre[c, j]
            shut[i, j] = k >= 0 and exact[j, k] <= 0.0
            x[i, j] = people[i] * exact[j, k] / totals[k] if k >= 0 else people[i] / children
    # Below the measured rows one row a class, which counts its cells.
    counts, place = np.empty((hard, children)), np.full(classes.first.size, -1)
    for position in range(hard):
        place[own[position]] = weight.shape[0] + position
        for j in range(children):
            counts[position, j] = exact[j, own[position]]
    for i in range(count):
        if label[inside[i]] >= 0:
            matrix[place[label[inside[i]]], i] = 1.0
    return Part(matrix, weight, target, single, base, people, counts, shut), x


@compiled
def _solve_part(
    part: Part, y: Floats, inside: Ints, own: Ints, allowed: float, x: Floats, cell_price: Floats, class_price: Floats
) -> bool:
    """Fill in one part of a parent's tables and prices, from its start y; return whether it converged."""
    count, children = y.shape
    if count == 1 and own.size == 1:  # a class of one cell fixes that cell
        single, base = part.single, part.base
        for j in range(children):
            class_price[j, own[0]] = 2.0 * single[0, j] * (y[0, j] - base[0, j])
            x[inside[0], j] = y[0, j]
        return True
    ended, price, priced = improve(part, y, allowed)
    if not ended:
        return False
    for i in range(count):
        cell_price[inside[i]] = price[i]
        for j in range(children):
            x[inside[i], j] = y[i, j]
    for k in range(own.size):
        for j in range(children):
            class_price[j, own[k]] = priced[k, j]
    return True


@compiled_in_place
def _price_decided(rows: Rows, classes: Classes, wide: Flags, x: Floats, class_price: Floats) -> None:
    """Add the gradients of decided rows to the classes' prices: they are the same for all cells of a class."""
    start, cell, value = rows.start, rows.cell, rows.value
    for a in range(wide.size):
        if start[a + 1] - start[a] > 1 and not wide[a]:
            for j in range(x.shape[1]):
                slope = -rows.target[a, j]
                for e in range(start[a], start[a + 1]):
                    slope += value[e] * x[cell[e], j]
                slope *= 2.0 * rows.weight[a, j]
                for e in range(start[a], start[a + 1]):
                    k = classes.label[cell[e]]
                    if classes.first[k] == cell[e]:
                        class_price[j, k] += slope * value[e]


@compiled
def _parent(
    columns: Columns,
    level: Level,
    p: int,
    label: Ints,
    exact: Floats,
    tolerance: float,
    x: Floats,
    cell_price: Floats,
    class_price: Floats,
) -> bool:
    """Fill one parent's tables x [occupied cells, children] and its prices; return whether every part converged.

    ``label`` are its cells' classes; ``exact`` and ``class_price`` [children, classes] and ``cell_price`` are its own.
    """
    rows, cells = _rows_of(columns, level, p)
    classes = _classes(label, cells.people, exact.shape[1])
    if not _adds_up(exact, classes.people):
        return False
    wide, links = _connect(rows, classes)
    # One part after the other; its root is its name.
    for root in range(links.size):
        if _root(links, root) == root:
            inside, number = _members(links, root)
            own = _classes_inside(classes, number)
            part, y = _extract(rows, cells, classes, exact, wide, inside, number, own)
            if not _solve_part(part, y, inside, own, _FINE * tolerance * y.shape[1], x, cell_price, class_price):
                return False
    _price_decided(rows, classes, wide, x, class_price)
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
        begin, end, first, last = level[3][p], level[3][p + 1], level[0][p], level[0][p + 1]
        x, label = np.zeros((last - first, end - begin)), np.empty(last - first, np.int64)
        for c in range(label.size):
            label[c] = labels[level[1][first + c]]
        own_prices = cell_price[first:last], class_price[begin:end]
        ended[p] = _parent(columns, level, p, label, exact[begin:end], tolerance, x, *own_prices)
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
