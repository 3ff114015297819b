"""Controlled rounding of the children of many parents in one call, in passes, where only sums constrain them.

    minimise  sum |answers of X - answers of x|, query by query, then sum |X - x|
    subject to  X in {floor(x), ceil(x)},  sums over the children = the parent's table

For every parent:

1. Keep the cells in which some child's number is not an integer (``_open_cells``).
2. For each pass, one query after the other and the cells last: break ties within a solver's precision by a hash
   (``_break_ties``), and cut the pass's rows to the open cells (``_rows``).
3. Round the pass: all rows are nested, so it is a flow (``table_rounding_flow``) with a certified gap (``_pass``).
4. Check the result, and record the sums of the pass's rows, which later passes keep.

Tables of a parent lie one after the other as [occupied cells, children].

Invariant: a pass keeps the sums that earlier passes have made integer. Cost: one flow a pass and parent.
Source: Cox and Ernst 1982 (controlled rounding as a flow); the hash is SplitMix64 (Steele, Lea and Flood 2014), as in
``topdown.estimating.rounding``.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from coco_opt.kernels import (
    split_certificate,
    table_rounding,
    table_rounding_certificate,
    table_rounding_flow,
    table_rounding_prices,
)
from coco_opt.kernels.compile import compiled, compiled_in_place

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
Reach = tuple[Floats, Floats]
"""The least and largest value of every row [children, rows]."""
Columns = tuple[Ints, Ints, Ints]
"""The passes' rows by columns (starts, rows), and each row's pass, rising."""
Level = tuple[Ints, Ints, Ints, Ints, Ints]
"""Parents' starts in their cells, cells, people; the region of each parent's first child; starts in the children."""


class Network(NamedTuple):
    """Which rows bind, their sides, and their aims (-1: carrying costs nothing), all [children, rows]."""

    binds: Flags
    sides: table_rounding.RowSides
    aim: Floats


_PRECISION, _ROUNDS = 1e-6, 20
_STEP, _FIRST, _SECOND = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


@compiled_in_place
def _hash(state: np.uint64) -> np.uint64:
    state = (state ^ (state >> np.uint64(30))) * _FIRST
    state = (state ^ (state >> np.uint64(27))) * _SECOND
    return state ^ (state >> np.uint64(31))


@compiled
def _open_cells(x: Floats) -> Ints:
    """Return the cells in which some child's number is not an integer."""
    opened, count = np.empty(x.shape[0], np.int64), 0
    # One fractional child is enough.
    for c in range(x.shape[0]):
        for j in range(x.shape[1]):
            if abs(x[c, j] - np.rint(x[c, j])) > _PRECISION:
                opened[count] = c
                count += 1
                break
    return opened[:count]


@compiled
def _break_ties(x: Floats, opened: Ints, cells: Ints, first: int, seed: np.uint64, number: int) -> Floats:
    """Return the open cells' numbers [children, open cells] with ties broken."""
    children = x.shape[1]
    out = np.empty((children, opened.size))
    start = _hash(_hash(seed) + np.uint64(number))
    # A hash of seed, pass, region and cell: the same everywhere, and independent of the order of work.
    for j in range(children):
        region = _hash(start + _STEP * np.uint64(first + j + 1))
        for position in range(opened.size):
            now = x[opened[position], j]
            if abs(now - np.rint(now)) <= _PRECISION:
                out[j, position] = max(0.0, np.rint(now))
            else:
                bits = _hash(region + _STEP * np.uint64(cells[opened[position]] + 1))
                out[j, position] = max(0.0, now + _PRECISION * (np.float64(bits >> np.uint64(11)) * 2.0**-53 - 0.5))
    return out


@compiled
def _rows(columns: Columns, cells: Ints, opened: Ints, last: int) -> tuple[Ints, Ints, Ints, Ints]:
    """Return the rows of passes up to ``last`` on the open cells: starts and cells, ids, and the last pass's number.

    Rows that meet no open cell are left out. The order of passes stays the same.
    """
    start, row, turn = columns
    entries, touched = 0, np.zeros(turn.size, np.bool_)
    # Count the entries of these passes' rows that meet open cells.
    for position in opened:
        for e in range(start[cells[position]], start[cells[position] + 1]):
            if turn[row[e]] <= last:
                entries = entries + 1
                touched[row[e]] = True
    row_ids, number, row_count = np.empty(turn.size, np.int64), np.empty(turn.size, np.int64), 0
    # Number the rows that are met, in the order of their passes.
    for a in range(turn.size):
        number[a] = row_count if touched[a] else -1
        if touched[a]:
            row_ids[row_count] = a
            row_count += 1
    row_ids = row_ids[:row_count]
    of_row, of_cell, position = np.empty(entries, np.int64), np.empty(entries, np.int64), 0
    # Collect the entries, cell by cell.
    for k in range(opened.size):
        for e in range(start[cells[opened[k]]], start[cells[opened[k]] + 1]):
            if number[row[e]] >= 0:
                of_row[position], of_cell[position] = number[row[e]], k
                position += 1
    begin, cell, _, _, _, _ = split_certificate.by_rows_and_columns(
        of_row, of_cell, np.ones(entries), row_ids.size, opened.size
    )
    new_rows = np.zeros(1, np.int64)
    # Rows of the last pass come last: their number tells where they begin.
    for r in row_ids:
        new_rows[0] += turn[r] == last
    return begin, cell, row_ids, new_rows


@compiled
def _answers_gap(
    table: Ints, low: Ints, high: Ints, aim: Floats, begin: Ints, cell: Ints, slope: Floats, price: Floats, before: int
) -> tuple[float, float]:
    """Return the error of the answers to the pass's rows (from ``before`` on) and its certified gap without sides."""
    error, gap = 0.0, 0.0
    worth = -slope
    for j in range(table.shape[0]):
        # A row of the pass: what its distance exceeds the least one at its price by.
        for r in range(before, begin.size - 1):
            carries = 0
            for e in range(begin[r], begin[r + 1]):
                carries += table[j, cell[e]] - low[j, cell[e]]
                worth[j, cell[e]] += price[j, r]
            residual, above = carries - aim[j, r], aim[j, r] - np.floor(aim[j, r])
            least = min(above * (1.0 + price[j, r]), (1.0 - above) * (1.0 - price[j, r]))
            error += abs(residual)
            gap += max(0.0, abs(residual) - price[j, r] * residual - least)
        # A cell: what it is worth at the prices, times the distance from its better end.
        for c in range(table.shape[1]):
            if worth[j, c] > 0.0:
                gap += worth[j, c] * (table[j, c] - low[j, c])
            else:
                gap -= worth[j, c] * (high[j, c] - table[j, c])
    return error, gap


@compiled_in_place
def _enclose(x: Floats, low: Ints, high: Ints, room: Ints) -> None:
    """Write floors, ceilings and their differences (``room``)."""
    for j in range(x.shape[0]):
        for c in range(x.shape[1]):
            low[j, c], high[j, c] = np.int64(np.floor(x[j, c])), np.int64(np.ceil(x[j, c]))
            room[j, c] = high[j, c] - low[j, c]


@compiled_in_place
def _bind(
    box: table_rounding.Box, begin: Ints, cell: Ints, reach: Reach, fixed: Floats, before: int, network: Network
) -> bool:
    """Write which rows bind, their sides (the first ``before``) or aims; return whether the sides can be reached."""
    least, most = reach
    binds, (lower, upper), aim = network
    for j in range(binds.shape[0]):
        # Rows of earlier passes are kept exactly; those of this pass have an aim and pay for their distance from it.
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
                    aim[j, r] += box.x[j, cell[e]] - box.low[j, cell[e]]
    return True


@compiled_in_place
def _split_prices(prices: Floats, before: int, sides: Floats) -> None:
    """Write the prices of the first ``before`` rows, the rest 0; turn the others into those of answers' distances."""
    for j in range(prices.shape[0]):
        for r in range(prices.shape[1]):
            sides[j, r] = prices[j, r] if r < before else 0.0
            if r >= before:
                prices[j, r] = min(1.0, max(-1.0, -prices[j, r]))


@compiled_in_place
def _distance(table: Ints, x: Floats) -> float:
    total = 0.0
    for j in range(x.shape[0]):
        for c in range(x.shape[1]):
            total += abs(table[j, c] - x[j, c])
    return total


@compiled
def _pass(
    x: Floats, sums: Ints, rows: tuple[Ints, Ints, Ints, Ints], fixed: Floats, cells: bool, table: Ints
) -> tuple[bool, float, float]:
    """Round one pass into ``table`` [children, open cells]; return whether it succeeded, the distance and its gap.

    ``fixed`` [children, rows] is the excess of rows of earlier passes over the least tables.
    """
    begin, cell, row_ids, new_rows = rows
    children, count = x.shape[0], row_ids.size
    before = count if cells else count - new_rows[0]
    low, high, room = np.empty(x.shape, np.int64), np.empty(x.shape, np.int64), np.empty(x.shape, np.int64)
    _enclose(x, low, high, room)
    box, value, shape = table_rounding.Box(x, low, high), np.ones(cell.size), (children, count)
    sides, aim = table_rounding.RowSides(np.empty(shape), np.empty(shape)), np.empty(shape)
    network = Network(np.empty(shape, np.bool_), sides, aim)
    if not _bind(box, begin, cell, table_rounding.reach(begin, cell, value, room), fixed, before, network):
        return False, 0.0, 0.0
    nested, leaf, up = table_rounding.nest(begin, cell, value, room, network.binds)
    cell_price, row_price = np.zeros(x.shape[1]), np.zeros(shape)
    prices = table_rounding.Prices(cell_price, row_price)
    if not nested or table_rounding.largest_fractions(x, low, high, sums, table, cell_price) >= 0:
        return False, 0.0, 0.0
    # A pass over answers: cells cost nothing, so their prices start at 0.
    if not cells:
        for c in range(cell_price.size):
            cell_price[c] = 0.0
    elif count:
        table_rounding_prices.ascend(box, begin, cell, up, sides, table, prices, _ROUNDS)
    unit = 1.0 if cells else 0.0
    if table_rounding_flow.solve(box, table_rounding.Nest(leaf, up), sides, table, prices, aim, unit) >= 0:
        return False, 0.0, 0.0
    price = np.empty(shape)
    _split_prices(row_price, before, price)
    slope = table_rounding_certificate.slopes(begin, cell, value, price, cell_price)
    if cells:
        return True, _distance(table, x), table_rounding_certificate.cells(table, low, high, x, slope)
    error, gap = _answers_gap(table, low, high, aim, begin, cell, slope, row_price, before)
    return True, error, gap


@compiled_in_place
def _keeps_sums(table: Ints, sums: Ints, rows: tuple[Ints, Ints, Ints, Ints], x: Floats, fixed: Floats) -> bool:
    """Return whether tables are floors or ceilings that keep the sums and the rows of earlier passes."""
    begin, cell, row_ids, new_rows = rows
    # Every cell adds up to the parent's, and every child's number is a floor or a ceiling.
    for c in range(table.shape[1]):
        total = 0
        for j in range(table.shape[0]):
            total += table[j, c]
            if table[j, c] < np.floor(x[j, c]) or table[j, c] > np.ceil(x[j, c]):
                return False
        if total != sums[c]:
            return False
    # Rows of earlier passes carry what they did.
    for j in range(table.shape[0]):
        for r in range(row_ids.size - new_rows[0]):
            carries = 0
            for e in range(begin[r], begin[r + 1]):
                carries += table[j, cell[e]] - np.int64(np.floor(x[j, cell[e]]))
            if carries != fixed[j, r]:
                return False
    return True


@compiled_in_place
def _read(carried: Floats, row_ids: Ints, fixed: Floats) -> None:
    """Write the excess of the rows ``row_ids`` of earlier passes over the least tables, [children, rows]."""
    for j in range(fixed.shape[0]):
        for r in range(row_ids.size):
            fixed[j, r] = carried[j, row_ids[r]]


@compiled_in_place
def _note(table: Ints, x: Floats, rows: tuple[Ints, Ints, Ints, Ints], carried: Floats) -> None:
    """Record the excess of a pass's rows over the least tables."""
    begin, cell, row_ids, new_rows = rows
    # The pass's own rows are the last ones.
    for j in range(table.shape[0]):
        for r in range(row_ids.size - new_rows[0], row_ids.size):
            total = 0
            for e in range(begin[r], begin[r + 1]):
                total += table[j, cell[e]] - np.int64(np.floor(x[j, cell[e]]))
            carried[j, row_ids[r]] = total


@compiled_in_place
def _write(x: Floats, opened: Ints, table: Ints, people: Ints, integers: Ints) -> bool:
    """Write a parent's tables [cells, children] as integers; return whether they sum to its people."""
    children = x.shape[1]
    # Integer cells are copied, then open ones are replaced by their rounding.
    for c in range(x.shape[0]):
        for j in range(children):
            integers[c * children + j] = np.int64(np.rint(x[c, j]))
    for position in range(opened.size):
        for j in range(children):
            integers[opened[position] * children + j] = table[j, position]
    summed = True
    # The sums are checked once more over all cells.
    for c in range(x.shape[0]):
        total = 0
        for j in range(children):
            total += integers[c * children + j]
        summed = summed and total == people[c]
    return summed


@compiled
def solve(
    columns: Columns, level: Level, places: Ints, tables: Floats, passes: int, seed: np.uint64, integer_tables: Ints
) -> tuple[Ints, Floats, Floats, Floats]:
    """Round all parents' ``tables`` into ``integer_tables``, parent p's from ``places[p]``.

    Return which parents were rounded in every pass, 1 or 0, and by pass, the cells last, the largest gap, the largest
    relative gap, and the passes solved.
    """
    parents = places.size - 1
    rounded = np.ones(parents, np.int64)
    worst, relative, solved = np.zeros(passes + 1), np.zeros(passes + 1), np.zeros(passes + 1)
    # Parents are independent.
    for p in range(parents):
        cells, people = level[1][level[0][p] : level[0][p + 1]], level[2][level[0][p] : level[0][p + 1]]
        children = level[4][p + 1] - level[4][p]
        x = tables[places[p] : places[p + 1]].copy().reshape((cells.size, children))
        opened = _open_cells(x)
        table, sums = np.zeros((children, opened.size), np.int64), people[opened]
        carried = np.zeros((children, columns[2].size))
        # The last pass rounds the cells themselves.
        for number in range(passes + 1):
            if not opened.size:
                break
            last = number == passes
            untied = _break_ties(x, opened, cells, level[3][p], seed, number)
            rows = _rows(columns, cells, opened, number)
            if not last and rows[3][0] == 0:
                continue
            fixed = np.empty((children, rows[2].size))
            _read(carried, rows[2], fixed)
            went, error, gap = _pass(untied, sums, rows, fixed, last, table)
            if not went or not _keeps_sums(table, sums, rows, untied, fixed):
                rounded[p] = 0
                break
            worst[number] = max(worst[number], gap)
            relative[number] = max(relative[number], gap / max(1.0, error))
            solved[number] += 1
            _note(table, untied, rows, carried)
        if not _write(x, opened, table, people, integer_tables[places[p] : places[p + 1]]):
            rounded[p] = 0
    return rounded, worst, relative, solved
