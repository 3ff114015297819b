"""Controlled rounding in passes of the children of many parents in one call, where nothing but sums binds them.

The passes round the answers of one query after the other, then the cells; each keeps what those before made whole. All
rows are nested, so every pass is a flow (``table_rounding_flow``) with a certified gap. Fractions within a solver's
precision are told apart by a hash (SplitMix64; Steele, Lea and Flood 2014), as in ``topdown.estimated.ties``. Tables of
a parent lie one after the other as [kept cells, children].
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from coco_opt.kernels import (
    split_certificate,
    table_rounding,
    table_rounding_certificate,
    table_rounding_flow,
    table_rounding_prices,
)
from coco_opt.kernels.compile import compiled, compiled_in_place, constant

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
Columns = tuple[Ints, Ints, Ints]
"""The passes' rows by columns (starts, rows), and each row's pass, rising."""
Level = tuple[Ints, Ints, Ints, Ints, Ints]
"""Parents' starts in their cells, cells, people; the region of each parent's first child; starts in the children."""

_PRECISION, _ROUNDS = 1e-6, constant(20)
_STEP, _FIRST, _SECOND = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


@compiled_in_place
def _mixed(state: np.uint64) -> np.uint64:
    state = (state ^ (state >> np.uint64(30))) * _FIRST
    state = (state ^ (state >> np.uint64(27))) * _SECOND
    return state ^ (state >> np.uint64(31))


@compiled
def _open_cells(x: Floats) -> Ints:
    """Return the cells in which some child's number is not whole."""
    found, count = np.empty(x.shape[0], np.int64), 0
    for c in range(x.shape[0]):
        for j in range(x.shape[1]):
            if abs(x[c, j] - np.rint(x[c, j])) > _PRECISION:
                found[count] = c
                count += 1
                break
    return found[:count]


@compiled
def _untied(x: Floats, opened: Ints, cells: Ints, first: int, seed: np.uint64, number: int) -> Floats:
    """Return the open cells' numbers [children, open cells], told apart."""
    children = x.shape[1]
    out = np.empty((children, opened.size))
    start = _mixed(_mixed(seed) + np.uint64(number))
    for j in range(children):
        region = _mixed(start + _STEP * np.uint64(first + j + 1))
        for at in range(opened.size):
            now = x[opened[at], j]
            if abs(now - np.rint(now)) <= _PRECISION:
                out[j, at] = max(0.0, np.rint(now))
            else:
                bits = _mixed(region + _STEP * np.uint64(cells[opened[at]] + 1))
                out[j, at] = max(0.0, now + _PRECISION * (np.float64(bits >> np.uint64(11)) * 2.0**-53 - 0.5))
    return out


@compiled
def _rows(columns: Columns, cells: Ints, opened: Ints, last: int) -> tuple[Ints, Ints, Ints, Ints]:
    """Return the rows of passes up to ``last`` on the open cells: starts, cells; which they are; how many are asked.

    Rows that meet no open cell are left out. The order of passes is kept.
    """
    start, row, turn = columns
    entries, seen = 0, np.zeros(turn.size, np.bool_)
    for at in opened:
        for e in range(start[cells[at]], start[cells[at] + 1]):
            if turn[row[e]] <= last:
                entries = entries + 1
                seen[row[e]] = True
    kept, number, found = np.empty(turn.size, np.int64), np.empty(turn.size, np.int64), 0
    for a in range(turn.size):
        number[a] = found if seen[a] else -1
        if seen[a]:
            kept[found] = a
            found += 1
    kept = kept[:found]
    of_row, of_cell, at = np.empty(entries, np.int64), np.empty(entries, np.int64), 0
    for k in range(opened.size):
        for e in range(start[cells[opened[k]]], start[cells[opened[k]] + 1]):
            if number[row[e]] >= 0:
                of_row[at], of_cell[at] = number[row[e]], k
                at += 1
    begin, cell, _, _, _, _ = split_certificate.by_rows_and_columns(
        of_row, of_cell, np.ones(entries), kept.size, opened.size
    )
    asked = np.zeros(1, np.int64)
    for here in kept:
        asked[0] += turn[here] == last
    return begin, cell, kept, asked


@compiled
def _answers_gap(
    held: Ints, low: Ints, high: Ints, aim: Floats, begin: Ints, cell: Ints, slope: Floats, price: Floats, before: int
) -> tuple[float, float]:
    """Return the error of the answers asked (rows from ``before`` on) and its certified gap, but for sides."""
    error, gap = 0.0, 0.0
    worth = -slope
    for j in range(held.shape[0]):
        for r in range(before, begin.size - 1):
            carries = 0
            for e in range(begin[r], begin[r + 1]):
                carries += held[j, cell[e]] - low[j, cell[e]]
                worth[j, cell[e]] += price[j, r]
            residual, above = carries - aim[j, r], aim[j, r] - np.floor(aim[j, r])
            least = min(above * (1.0 + price[j, r]), (1.0 - above) * (1.0 - price[j, r]))
            error += abs(residual)
            gap += max(0.0, abs(residual) - price[j, r] * residual - least)
        for c in range(held.shape[1]):
            if worth[j, c] > 0.0:
                gap += worth[j, c] * (held[j, c] - low[j, c])
            else:
                gap -= worth[j, c] * (high[j, c] - held[j, c])
    return error, gap


@compiled_in_place
def _enclose(x: Floats, low: Ints, high: Ints, room: Ints) -> None:
    """Write floors, ceilings and the room between them."""
    for j in range(x.shape[0]):
        for c in range(x.shape[1]):
            low[j, c], high[j, c] = np.int64(np.floor(x[j, c])), np.int64(np.ceil(x[j, c]))
            room[j, c] = high[j, c] - low[j, c]


@compiled_in_place
def _bind(
    x: Floats,
    low: Ints,
    begin: Ints,
    cell: Ints,
    least: Floats,
    most: Floats,
    fixed: Floats,
    before: int,
    binds: Flags,
    aim: Floats,
    lower: Floats,
    upper: Floats,
) -> bool:
    """Write which rows bind, their sides (the first ``before``) or aims; return whether the sides can be reached."""
    for j in range(binds.shape[0]):
        for r in range(binds.shape[1]):
            binds[j, r] = least[j, r] < most[j, r]
            lower[j, r], upper[j, r], aim[j, r] = 0.0, np.inf, -1.0
            if r < before:
                lower[j, r] = upper[j, r] = fixed[j, r]
                if fixed[j, r] < least[j, r] or fixed[j, r] > most[j, r]:
                    return False
            else:
                aim[j, r] = 0.0
                for e in range(begin[r], begin[r + 1]):
                    aim[j, r] += x[j, cell[e]] - low[j, cell[e]]
    return True


@compiled_in_place
def _tell_apart(prices: Floats, before: int, sides: Floats) -> None:
    """Write the prices of the first ``before`` rows, the rest 0; turn the others into those of answers' distances."""
    for j in range(prices.shape[0]):
        for r in range(prices.shape[1]):
            sides[j, r] = prices[j, r] if r < before else 0.0
            if r >= before:
                prices[j, r] = min(1.0, max(-1.0, -prices[j, r]))


@compiled_in_place
def _distance(held: Ints, x: Floats) -> float:
    total = 0.0
    for j in range(x.shape[0]):
        for c in range(x.shape[1]):
            total += abs(held[j, c] - x[j, c])
    return total


@compiled
def _pass(
    x: Floats, sums: Ints, rows: tuple[Ints, Ints, Ints, Ints], fixed: Floats, cells: bool, held: Ints
) -> tuple[bool, float, float]:
    """Round one pass into ``held`` [children, open cells]; return whether it went, the distance and its gap.

    ``fixed`` [children, rows] is what rows of earlier passes hold above the least tables.
    """
    begin, cell, kept, asked = rows
    children, count = x.shape[0], kept.size
    before = count if cells else count - asked[0]
    low, high, room = np.empty(x.shape, np.int64), np.empty(x.shape, np.int64), np.empty(x.shape, np.int64)
    _enclose(x, low, high, room)
    value = np.ones(cell.size)
    least, most = table_rounding.reach(begin, cell, value, room)
    binds, aim = np.empty((children, count), np.bool_), np.empty((children, count))
    lower, upper = np.empty((children, count)), np.empty((children, count))
    if not _bind(x, low, begin, cell, least, most, fixed, before, binds, aim, lower, upper):
        return False, 0.0, 0.0
    nested, leaf, up = table_rounding.nest(begin, cell, value, room, binds)
    cell_price, row_price = np.zeros(x.shape[1]), np.zeros((children, count))
    if not nested or table_rounding.largest_fractions(x, low, high, sums, held, cell_price) >= 0:
        return False, 0.0, 0.0
    if not cells:
        for c in range(cell_price.size):
            cell_price[c] = 0.0
    elif count:
        table_rounding_prices.ascend(x, low, high, begin, cell, up, lower, upper, held, cell_price, row_price, _ROUNDS)
    unit = 1.0 if cells else 0.0
    if table_rounding_flow.solve(x, low, high, leaf, up, lower, upper, held, cell_price, row_price, aim, unit) >= 0:
        return False, 0.0, 0.0
    price = np.empty((children, count))
    _tell_apart(row_price, before, price)
    slope = table_rounding_certificate.slopes(begin, cell, value, price, cell_price)
    if cells:
        return True, _distance(held, x), table_rounding_certificate.cells(held, low, high, x, slope)
    error, gap = _answers_gap(held, low, high, aim, begin, cell, slope, row_price, before)
    return True, error, gap


@compiled_in_place
def _kept_whole(held: Ints, sums: Ints, rows: tuple[Ints, Ints, Ints, Ints], x: Floats, fixed: Floats) -> bool:
    """Tell whether tables are floors or ceilings that keep the sums and what rows of earlier passes hold."""
    begin, cell, kept, asked = rows
    for c in range(held.shape[1]):
        total = 0
        for j in range(held.shape[0]):
            total += held[j, c]
            if held[j, c] < np.floor(x[j, c]) or held[j, c] > np.ceil(x[j, c]):
                return False
        if total != sums[c]:
            return False
    for j in range(held.shape[0]):
        for r in range(kept.size - asked[0]):
            carries = 0
            for e in range(begin[r], begin[r + 1]):
                carries += held[j, cell[e]] - np.int64(np.floor(x[j, cell[e]]))
            if carries != fixed[j, r]:
                return False
    return True


@compiled_in_place
def _read(carried: Floats, kept: Ints, fixed: Floats) -> None:
    """Write what the rows ``kept`` of earlier passes hold above the least tables, [children, rows]."""
    for j in range(fixed.shape[0]):
        for r in range(kept.size):
            fixed[j, r] = carried[j, kept[r]]


@compiled_in_place
def _note(held: Ints, x: Floats, rows: tuple[Ints, Ints, Ints, Ints], carried: Floats) -> None:
    """Note what the rows of a pass hold above the least tables."""
    begin, cell, kept, asked = rows
    for j in range(held.shape[0]):
        for r in range(kept.size - asked[0], kept.size):
            total = 0
            for e in range(begin[r], begin[r + 1]):
                total += held[j, cell[e]] - np.int64(np.floor(x[j, cell[e]]))
            carried[j, kept[r]] = total


@compiled_in_place
def _write(x: Floats, opened: Ints, held: Ints, people: Ints, whole: Ints) -> bool:
    """Write a parent's tables [cells, children] as whole numbers; tell whether they sum to its people."""
    children = x.shape[1]
    for c in range(x.shape[0]):
        for j in range(children):
            whole[c * children + j] = np.int64(np.rint(x[c, j]))
    for at in range(opened.size):
        for j in range(children):
            whole[opened[at] * children + j] = held[j, at]
    summed = True
    for c in range(x.shape[0]):
        total = 0
        for j in range(children):
            total += whole[c * children + j]
        summed = summed and total == people[c]
    return summed


@compiled
def solve(
    columns: Columns, level: Level, places: Ints, found: Floats, passes: int, seed: np.uint64, whole: Ints
) -> tuple[Ints, Floats, Floats, Floats]:
    """Round all parents' tables ``found`` into ``whole``, parent p's from ``places[p]``.

    Return which parents were rounded in every pass, 1 or 0, and by pass, the cells last, the largest gap, the largest
    relative gap, and the passes solved.
    """
    parents = places.size - 1
    rounded = np.ones(parents, np.int64)
    worst, relative, solved = np.zeros(passes + 1), np.zeros(passes + 1), np.zeros(passes + 1)
    for p in range(parents):
        cells, people = level[1][level[0][p] : level[0][p + 1]], level[2][level[0][p] : level[0][p + 1]]
        children = level[4][p + 1] - level[4][p]
        x = found[places[p] : places[p + 1]].copy().reshape((cells.size, children))
        opened = _open_cells(x)
        held, sums = np.zeros((children, opened.size), np.int64), people[opened]
        carried = np.zeros((children, columns[2].size))
        for number in range(passes + 1):
            if not opened.size:
                break
            last = number == passes
            given = _untied(x, opened, cells, level[3][p], seed, number)
            rows = _rows(columns, cells, opened, number)
            if not last and rows[3][0] == 0:
                continue
            fixed = np.empty((children, rows[2].size))
            _read(carried, rows[2], fixed)
            went, error, gap = _pass(given, sums, rows, fixed, last, held)
            if not went or not _kept_whole(held, sums, rows, given, fixed):
                rounded[p] = 0
                break
            worst[number] = max(worst[number], gap)
            relative[number] = max(relative[number], gap / max(1.0, error))
            solved[number] += 1
            _note(held, given, rows, carried)
        if not _write(x, opened, held, people, whole[places[p] : places[p + 1]]):
            rounded[p] = 0
    return rounded, worst, relative, solved
