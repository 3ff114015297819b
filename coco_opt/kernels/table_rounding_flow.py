"""Controlled rounding of several tables as a minimum-cost flow: largest fractions repaired along shortest paths.

    minimise  sum_jc |X_jc - x_jc|   subject to   low <= X <= high,  sum_j X_jc = total_c,  lower <= rows of X <= upper

over integers X, where each child's rows are nested. A unit of flow is a person of some cell c assigned to some child j:
from cell c to the smallest row of the child's nested rows that counts c, from there row by row outwards, and to the
sink. The count in a cell of a child costs its distance from a fractional number, which is convex; rows carry between
their lower and upper sides for nothing. Where the distance is that of answers, cells cost nothing, and the rows that
are answers cost their distance from a fractional aim. Without a parent's table the people come from the sink itself.
Nodes: cells, then rows (child by child), then the sink.

1. Largest fractions meet the cells' sums at least cost (``table_rounding``, the caller).
2. ``_load``: every row carries what its side demands; what is left over or lacking is the excess of its node.
3. ``_nearest_lack``: from a node with people left over, find the shortest path to one that lacks some (Dijkstra with a
   heap, on costs reduced by potentials); stop at the first.
4. Lower the potentials of the nodes passed, and send people along the path, as many as one price allows.
5. Repeat until no excess is left; the potentials are the prices.

Invariant: flow and potentials stay optimal for the rows met so far. Cost: O(unmet people x arcs x log nodes) at worst.
Source: Cox and Ernst 1982 (controlled rounding is a transportation problem); successive shortest paths with potentials,
Ahuja, Magnanti and Orlin 1993, section 9.7; Williams 1964 (heap).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from coco_opt.kernels.compile import compiled, compiled_in_place
from coco_opt.kernels.sorting import falling
from coco_opt.kernels.table_rounding import Box, Nest, Prices, RowSides

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Graph = tuple[Floats, Ints, Ints, Ints, Ints, Floats, Floats, Ints, Ints, bool, Floats, float]
"""x, low, high [children, cells]; leaf, up; lower, upper [children, rows]; members' bounds, members; any parent; the
rows' aims, negative where carrying costs nothing; 1 or 0, the cost of a person's distance in a cell."""
Search = tuple[Floats, Ints, Ints, Ints, Ints]
"""Distances; each node's predecessor, arc and kind of arc [nodes, 3]; heap, places in it; nodes seen."""

# A cell of a child gains, loses; a row carries more, less.
_MORE, _LESS, _OUT, _BACK = 0, 1, 2, 3
_NO_ROW = -1
_PLENTY = 2**61


@compiled_in_place
def _next_cost(x: float, people: int) -> float:
    """Return the cost of one person more in a cell that holds ``people``."""
    if people + 1 <= x:
        return -1.0
    if people >= x:
        return 1.0
    return 1.0 - 2.0 * (x - people)


@compiled_in_place
def _next_row_cost(aim: float, carries: int) -> float:
    """Return the cost of one person more in a row that carries ``carries``."""
    return 0.0 if aim < 0.0 else _next_cost(aim, carries)


@compiled
def _members(leaf: Ints, rows: int) -> tuple[Ints, Ints]:
    """Return the cells of each row of each child, those in no row last: bounds [children, rows + 2], cells."""
    children, cells = leaf.shape
    bound, member = np.zeros((children, rows + 2), np.int64), np.empty((children, cells), np.int64)
    position = np.empty(rows + 1, np.int64)
    for j in range(children):
        # Count the cells of each row ...
        for c in range(cells):
            bound[j, (leaf[j, c] if leaf[j, c] >= 0 else rows) + 1] += 1
        # ... find where each row's cells begin ...
        for r in range(rows + 1):
            position[r] = bound[j, r]
            bound[j, r + 1] += bound[j, r]
        # ... and put them there.
        for c in range(cells):
            r = leaf[j, c] if leaf[j, c] >= 0 else rows
            member[j, position[r]] = c
            position[r] += 1
    return bound, member


@compiled
def _load(
    table: Ints, low: Ints, leaf: Ints, up: Ints, lower: Floats, upper: Floats, price: Floats, aim: Floats
) -> tuple[Ints, Ints]:
    """Return what every row carries, at the side that its price demands or in between, and each node's excess.

    Rows with aims are at price 0 and carry the nearest integer.
    """
    children, cells = table.shape
    rows = up.shape[1]
    sink = cells + children * rows
    carries, excess = np.zeros((children, rows), np.int64), np.zeros(sink + 1, np.int64)
    depth, order = np.empty(rows, np.int64), np.empty(rows, np.int64)
    for j in range(children):
        # People go from the sink to the smallest row around their cell.
        for c in range(cells):
            people = table[j, c] - low[j, c]
            excess[sink if leaf[j, c] < 0 else cells + j * rows + leaf[j, c]] += people
            excess[sink] -= people
        # A row's depth: how many rows lie around it; -1 where it does not bind.
        for r in range(rows):
            depth[r] = -1
            above = up[j, r]
            while above != -2:
                depth[r] += 1
                if above < 0:
                    break
                above = up[j, above]
        falling(depth, order)
        # From the innermost rows outwards: a row passes on what it carries and keeps the rest as excess.
        for k in range(rows):
            r = order[k]
            if depth[r] < 0:
                break
            node = cells + j * rows + r
            least = upper[j, r] if price[j, r] < 0.0 else lower[j, r]
            most = lower[j, r] if price[j, r] > 0.0 else upper[j, r]
            if aim[j, r] >= 0.0:
                least = min(max(np.ceil(aim[j, r] - 0.5), lower[j, r]), upper[j, r])
                most = max(min(np.floor(aim[j, r] + 0.5), upper[j, r]), least)
            carries[j, r] = np.int64(min(max(float(excess[node]), least), most))
            excess[node] -= carries[j, r]
            excess[sink if up[j, r] < 0 else cells + j * rows + up[j, r]] += carries[j, r]
    return carries, excess


@compiled_in_place
def _even(excess: Ints) -> bool:
    """Return whether no node has too much or too little."""
    for node in range(excess.size):
        if excess[node] != 0:
            return False
    return True


@compiled_in_place
def _sift(heap: Ints, place: Ints, distance: Floats, position: int, size: int) -> None:
    """Restore the heap order around one entry."""
    node = heap[position]
    # Up past every parent that is farther ...
    while position > 0 and distance[heap[(position - 1) // 2]] > distance[node]:
        heap[position] = heap[(position - 1) // 2]
        place[heap[position]] = position
        position = (position - 1) // 2
    # ... or down below every child that is nearer.
    while 2 * position + 1 < size:
        below = 2 * position + 1
        if below + 1 < size and distance[heap[below + 1]] < distance[heap[below]]:
            below += 1
        if distance[heap[below]] >= distance[node]:
            break
        heap[position] = heap[below]
        place[heap[position]] = position
        position = below
    heap[position] = node
    place[node] = position


@compiled_in_place
def _relax(node: int, length: float, origin: int, arc: int, kind: int, search: Search, size: int) -> int:
    """Record a shorter way to a node; return the heap's new size."""
    distance, before, heap, place, seen = search
    if length < distance[node]:
        if distance[node] == np.inf:
            seen[0] += 1
            seen[seen[0]] = node
            heap[size] = node
            place[node] = size
            size += 1
        distance[node] = length
        before[node, 0], before[node, 1], before[node, 2] = origin, arc, kind
        _sift(heap, place, distance, place[node], size)
    return size


@compiled_in_place
def _from_cell(c: int, graph: Graph, table: Ints, potential: Floats, search: Search, size: int, most: float) -> int:
    """Go from a cell to every child whose table has room there."""
    x, _, high, leaf, up, _, _, _, _, _, _, unit = graph
    children, cells = x.shape
    rows, sink = up.shape[1], potential.size - 1
    so_far = search[0][c]
    # Arcs of reduced length cost + potential here - potential there, which is never below 0 but for rounding.
    for j in range(children):
        if table[j, c] < high[j, c]:
            node = sink if leaf[j, c] < 0 else cells + j * rows + leaf[j, c]
            length = so_far + max(0.0, unit * _next_cost(x[j, c], table[j, c]) + potential[c] - potential[node])
            if length < most:
                size = _relax(node, length, c, j * cells + c, _MORE, search, size)
    return size


@compiled_in_place
def _from_members(
    u: int, j: int, r: int, graph: Graph, table: Ints, potential: Floats, search: Search, size: int, most: float
) -> int:
    """Go from a row (or the sink) back to the cells that give child j people there."""
    x, low, _, _, _, _, _, bound, member, parent, _, unit = graph
    cells, sink = x.shape[1], potential.size - 1
    so_far = search[0][u]
    # Taking a person out of a cell saves what the last one cost.
    for a in range(bound[j, r], bound[j, r + 1]):
        c = member[j, a]
        if table[j, c] > low[j, c]:
            node = c if parent else sink
            length = so_far + max(0.0, potential[u] - potential[node] - unit * _next_cost(x[j, c], table[j, c] - 1))
            if length < most:
                size = _relax(node, length, u, j * cells + c, _LESS, search, size)
    return size


@compiled_in_place
def _from_around(
    u: int, j: int, r: int, graph: Graph, carries: Ints, potential: Floats, search: Search, size: int, most: float
) -> int:
    """Go from a row (or, with r = -1, the sink) back to the rows of child j just inside it."""
    cells, up, lower, aim = graph[0].shape[1], graph[4], graph[5], graph[10]
    rows = up.shape[1]
    so_far = search[0][u]
    # An inner row that carries more than it must can carry less.
    for inner in range(rows):
        if up[j, inner] == r and carries[j, inner] > lower[j, inner]:
            node = cells + j * rows + inner
            saved = _next_row_cost(aim[j, inner], carries[j, inner] - 1)
            length = so_far + max(0.0, potential[u] - potential[node] - saved)
            if length < most:
                size = _relax(node, length, u, j * rows + inner, _BACK, search, size)
    return size


@compiled_in_place
def _from_row(
    u: int, graph: Graph, table: Ints, carries: Ints, potential: Floats, search: Search, size: int, most: float
) -> int:
    """Go from a row outwards, to the rows inside it and to its own cells."""
    cells, up, upper, aim = graph[0].shape[1], graph[4], graph[6], graph[10]
    rows, sink = up.shape[1], potential.size - 1
    j, r = (u - cells) // rows, (u - cells) % rows
    if carries[j, r] < upper[j, r]:
        node = sink if up[j, r] < 0 else cells + j * rows + up[j, r]
        length = search[0][u] + max(0.0, _next_row_cost(aim[j, r], carries[j, r]) + potential[u] - potential[node])
        if length < most:
            size = _relax(node, length, u, j * rows + r, _OUT, search, size)
    size = _from_around(u, j, r, graph, carries, potential, search, size, most)
    return _from_members(u, j, r, graph, table, potential, search, size, most)


@compiled_in_place
def _from_sink(
    graph: Graph, table: Ints, carries: Ints, potential: Floats, search: Search, size: int, most: float
) -> int:
    """Go from the sink back to outermost rows and to cells in no row; without a parent, also to every row with room."""
    x, _, high, leaf, up, _, _, _, _, parent, _, unit = graph
    children, cells = x.shape
    rows, sink = up.shape[1], potential.size - 1
    so_far = search[0][sink]
    for j in range(children):
        size = _from_around(sink, j, _NO_ROW, graph, carries, potential, search, size, most)
        if parent:
            size = _from_members(sink, j, rows, graph, table, potential, search, size, most)
            continue
        # Without a parent the sink gives a person to any row with a cell that has room.
        for c in range(cells):
            if leaf[j, c] >= 0 and table[j, c] < high[j, c]:
                node = cells + j * rows + leaf[j, c]
                length = so_far + max(0.0, unit * _next_cost(x[j, c], table[j, c]) + potential[sink] - potential[node])
                if length < most:
                    size = _relax(node, length, sink, j * cells + c, _MORE, search, size)
    return size


@compiled_in_place
def _nearest_lack(
    source: int, graph: Graph, table: Ints, carries: Ints, excess: Ints, potential: Floats, search: Search
) -> int:
    """Return the nearest node that lacks people, -1 for none, and leave the way there in ``search``."""
    distance, _, heap, place, seen = search
    cells, sink = graph[0].shape[1], potential.size - 1
    # Reset the nodes of the search before alone.
    for a in range(1, seen[0] + 1):
        distance[seen[a]] = np.inf
    seen[0], seen[1] = 1, source
    distance[source], heap[0], place[source], size = 0.0, source, 0, 1
    most = np.inf
    # Take the nearest node, and go on from it; ``most`` is the nearest lack seen so far.
    while size > 0:
        u, counted = heap[0], seen[0]
        if excess[u] < 0:
            return int(u)
        size -= 1
        if size > 0:
            heap[0] = heap[size]
            place[heap[0]] = 0
            _sift(heap, place, distance, 0, size)
        if u < cells:
            size = _from_cell(u, graph, table, potential, search, size, most)
        elif u < sink:
            size = _from_row(u, graph, table, carries, potential, search, size, most)
        else:
            size = _from_sink(graph, table, carries, potential, search, size, most)
        # No path longer than to a node that lacks people is of use.
        for a in range(counted + 1, seen[0] + 1):
            if excess[seen[a]] < 0:
                most = min(most, distance[seen[a]])
    return -1


@compiled_in_place
def _before_kink(now: int, kink: float, more: bool, room: int) -> int:
    """Return how many of ``room`` people can come (or go) at the price of the first, around a number ``kink``."""
    to_kink = np.int64(np.floor(kink)) - now if more else now - np.int64(np.ceil(kink))
    beyond = now >= kink if more else now <= kink
    return int(room if beyond else min(float(room), max(1.0, float(to_kink))))


@compiled_in_place
def _same_price(kind: int, arc: int, graph: Graph, table: Ints, carries: Ints) -> int:
    """Return how many people can go along an arc at its present price."""
    x, low, high, _, up, lower, upper, _, _, _, aim, _ = graph
    if kind >= _OUT:
        j, r = arc // up.shape[1], arc % up.shape[1]
        room = upper[j, r] - carries[j, r] if kind == _OUT else carries[j, r] - lower[j, r]
        people = int(min(room, float(_PLENTY)))
        return people if aim[j, r] < 0.0 else _before_kink(carries[j, r], aim[j, r], kind == _OUT, people)
    j, c = arc // x.shape[1], arc % x.shape[1]
    more = kind == _MORE
    return _before_kink(table[j, c], x[j, c], more, high[j, c] - table[j, c] if more else table[j, c] - low[j, c])


@compiled_in_place
def _send(source: int, target: int, graph: Graph, table: Ints, carries: Ints, excess: Ints, search: Search) -> None:
    """Send along the path in ``search`` as many people as its ends and its arcs allow at one price."""
    before = search[1]
    cells, rows = graph[0].shape[1], graph[4].shape[1]
    people, node = min(excess[source], -excess[target]), target
    # The least that any arc of the path takes at its present price ...
    while node != source:
        people = min(people, _same_price(before[node, 2], before[node, 1], graph, table, carries))
        node = before[node, 0]
    node = target
    # ... is sent along all of them.
    while node != source:
        arc, kind = before[node, 1], before[node, 2]
        if kind >= _OUT:
            carries[arc // rows, arc % rows] += people if kind == _OUT else -people
        else:
            table[arc // cells, arc % cells] += people if kind == _MORE else -people
        node = before[node, 0]
    excess[source] -= people
    excess[target] += people


@compiled
def _settle(graph: Graph, table: Ints, carries: Ints, excess: Ints, potential: Floats) -> int:
    """Send every excess to nodes that lack people; return -1, or a node whose excess cannot be sent."""
    nodes = potential.size
    search = (
        np.empty(nodes),
        np.zeros((nodes, 3), np.int64),
        np.zeros(nodes, np.int64),
        np.zeros(nodes, np.int64),
        np.zeros(nodes + 1, np.int64),
    )
    distance, seen = search[0], search[4]
    for node in range(nodes):
        distance[node] = np.inf
    # One node with people left over after the other.
    for source in range(nodes):
        while excess[source] > 0:
            target = _nearest_lack(source, graph, table, carries, excess, potential, search)
            if target < 0:
                return source
            # Nodes nearer than the target come closer to it: reduced lengths on the path become 0.
            for a in range(1, seen[0] + 1):
                potential[seen[a]] += min(0.0, distance[seen[a]] - distance[target])
            _send(source, target, graph, table, carries, excess, search)
    return -1


@compiled_in_place
def _culprit(stuck: int, excess: Ints, cells: int) -> int:
    """Return the row, counted over all children, that made a search fail: people are stuck there or lacking."""
    if stuck < excess.size - 1:
        return stuck - cells
    for node in range(cells, excess.size - 1):
        if excess[node] < 0:
            return node - cells
    return 0


@compiled
def _potentials(up: Ints, row_price: Floats, cell_price: Floats, cells: int) -> Floats:
    """Return node potentials in which cells and rows have their prices against the sink."""
    children, rows = up.shape
    out = np.zeros(cells + children * rows + 1)
    for c in range(cell_price.size):
        out[c] = -cell_price[c]
    for j in range(children):
        for r in range(rows):
            around = np.int64(r) if up[j, r] != -2 else np.int64(-1)
            # A row's potential adds up the prices of the rows around it.
            while around >= 0:
                out[cells + j * rows + r] += row_price[j, around]
                around = up[j, around]
    return out


@compiled_in_place
def _read_prices(potential: Floats, up: Ints, row_price: Floats, cell_price: Floats, cells: int) -> None:
    """Set prices to the potentials' differences."""
    children, rows = up.shape
    sink = potential[-1]
    for c in range(cell_price.size):
        cell_price[c] = sink - potential[c]
    for j in range(children):
        node = cells + j * rows
        for r in range(rows):
            if up[j, r] != -2:
                row_price[j, r] = potential[node + r] - (sink if up[j, r] < 0 else potential[node + up[j, r]])


@compiled
def solve(box: Box, nest: Nest, sides: RowSides, tables: Ints, prices: Prices, aim: Floats, unit: float) -> int:
    """Turn ``tables`` [children, cells], nearest at the present prices, into those that meet all rows; return -1.

    Prices are updated too; without a parent's sums those of cells are empty and the children are independent. Where
    carrying costs, ``aim`` [children, rows] is not negative, ``unit`` 0 and all prices are 0. Where nothing meets the
    rows, return child x rows + row of one of those that contradict each other.
    O(unmet people x arcs x log nodes) at worst.
    """
    x, low, high = box
    (leaf, up), (lower, upper), (cell_price, row_price) = nest, sides, prices
    children, cells = x.shape
    rows, parent = up.shape[1], cell_price.size == cells
    step = children if parent else 1
    # With a parent's sums all children at once, without them one after the other.
    for j in range(0, children, step):
        part = slice(j, j + step)
        table, price = tables[part], row_price[part]
        carries, excess = _load(table, low[part], leaf[part], up[part], lower[part], upper[part], price, aim[part])
        if _even(excess):
            continue
        bound, member = _members(leaf[part], rows)
        of_rows = lower[part], upper[part], bound, member
        graph = (x[part], low[part], high[part], leaf[part], up[part], *of_rows, parent, aim[part], unit)
        potential = _potentials(up[part], price, cell_price, cells)
        stuck = _settle(graph, table, carries, excess, potential)
        if stuck >= 0:
            return int(j * rows) + _culprit(stuck, excess, cells)
        _read_prices(potential, up[part], price, cell_price, cells)
    return -1
