"""What chains of tables read and change: the leaves' occupied cells, what is left of the answers, and the prior.

The state holds every leaf's occupied cells in slots of a pool, and of every answer what is left of its noisy value:
value - sum of the persons it counts. A person counts in the answers of the regions above its leaf alone. Constraints
are answers too: their noise is 0 between two sides.

1. Find a cell of a leaf among its slots.
2. Let persons enter or leave it: a leaf without a free slot moves to the end of the pool.
3. Compact the pool when it is full.

Invariant: between moves every value is that of the tables.
Cost: O(occupied cells of the leaf) a change.
Source: the usual sparse rows with room to grow.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from coco_opt.kernels.compile import compiled_in_place

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

GEOMETRIC, GAUSSIAN, BETWEEN, BY_REGION = 0, 1, 2, 3
"""The kinds of answers: -|noise| weight, -noise^2 weight, or within two sides."""
SIZES = 24
"""Sizes of leaves and of their classes of cells: 0 and 1 persons, 2 and 3, 4 to 7, and so on."""


class Tree(NamedTuple):
    """The regions above each leaf: ``above`` [leaves, levels] counts them within their level.

    ``start`` [place[level] + region] is a region's first leaf, and the next one's where it ends. ``row`` [leaves] is
    the row of the leaf's parent in the prior, ``moves`` [leaves] the moves of a visit.
    """

    above: NDArray[np.int32]
    place: Ints
    start: Ints
    row: Ints
    moves: Ints


class Answers(NamedTuple):
    """Which answers a person counts in: in those of a level, if in cell c, start[level, c] .. start[level, c + 1] - 1.

    For such an entry, region r's value is at first + r * stride, and a person counts ``coefficient`` times. ``first``
    rises within a level and cell, and ``column`` numbers what is equal. Of an entry of kind BETWEEN the sides of the
    value at k are ``low`` and ``high`` at k - side; of one of kind BY_REGION region r's weight is precision[side + r].
    """

    start: Ints
    first: Ints
    stride: Ints
    coefficient: Ints
    kind: Ints
    weight: Floats
    side: Ints
    column: Ints
    low: Ints
    high: Ints
    precision: Floats


class Prior(NamedTuple):
    """What is learned of the tables, for each row: the regions above the leaves, after the base in row 0.

    Totals lie in bins edge[k] .. edge[k + 1] - 1, small ones in ``bin`` [totals]; ``log_probability`` [rows, bins] is
    that of each integer of a bin in a leaf below a region. Cells and classes of cells form a tree: ``up`` [parts] is
    the class of a cell or class, which comes after it; the last one has all cells, and is its own. ``share`` [rows,
    parts] are the shares within the class above and ``draw`` [rows, cells] the distribution functions from which cells
    are proposed; ``strength`` [levels above the leaves + SIZES, classes] are the concentrations around the parents'
    shares, the leaves' last, by how many persons a leaf has in the class; ``likeness`` [levels above the leaves] those
    of the totals' distributions.
    """

    edge: Ints
    bin: Ints
    log_probability: Floats
    up: Ints
    share: Floats
    draw: Floats
    strength: Floats
    likeness: Floats


class State(NamedTuple):
    """The occupied cells of leaf b are the slots first[b] .. first[b] + used[b] - 1 of ``cell`` and ``number``.

    ``room`` are the slots reserved, ``tail`` the first free one of the pool. ``persons`` [leaves, classes] are those in
    each class of cells, all of them last. ``words`` is the generator's; ``old_cell`` and ``old_count`` [cells] hold a
    table that is poured, ``moved`` and ``touched`` [columns] what it counts in the answers of a region and ``entered``
    [classes] in classes; ``tried`` [kinds, 2] counts moves and those accepted.
    """

    first: Ints
    room: Ints
    used: Ints
    persons: Ints
    cell: NDArray[np.int32]
    number: NDArray[np.int32]
    tail: Ints
    value: NDArray[Any]
    words: NDArray[np.uint64]
    old_cell: Ints
    old_count: Ints
    moved: Ints
    touched: Ints
    entered: Ints
    tried: Ints


@compiled_in_place
def size_of(persons: int) -> int:
    """Return the size of so many persons: how often they can be halved."""
    size = 0
    while persons > 1 and size < SIZES - 1:
        persons >>= 1
        size += 1
    return size


@compiled_in_place
def concentration(prior: Prior, number: int, persons: int) -> float:
    """Return the concentration of a class of cells in a leaf that has so many persons in the class."""
    return float(prior.strength[prior.strength.shape[0] - SIZES + size_of(persons), number])


@compiled_in_place
def bin_of(prior: Prior, total: int) -> int:
    """Return the bin of a total, the number of bins where it is too large."""
    if total < prior.bin.size:
        return int(prior.bin[total])
    # Halve until edge[low] <= total < edge[high] holds for neighbours.
    low, high = 0, prior.edge.size - 1
    if total >= prior.edge[high]:
        return high
    while high - low > 1:
        middle = (low + high) // 2
        if prior.edge[middle] <= total:
            low = middle
        else:
            high = middle
    return low


@compiled_in_place
def find(state: State, leaf: int, cell: int) -> int:
    """Return the slot of a leaf's cell, -1 where it is empty."""
    for slot in range(state.first[leaf], state.first[leaf] + state.used[leaf]):
        if state.cell[slot] == cell:
            return slot
    return -1


@compiled_in_place
def count_at(state: State, slot: int) -> int:
    """Return the persons in a slot, 0 in slot -1."""
    return int(state.number[slot]) if slot >= 0 else 0


@compiled_in_place
def persons_of(state: State, leaf: int) -> int:
    """Return all persons of a leaf."""
    return int(state.persons[leaf, state.persons.shape[1] - 1])


@compiled_in_place
def tally(prior: Prior, state: State, leaf: int, cell: int, m: int) -> None:
    """Count m persons more in all classes of a cell."""
    cells, last, part = prior.draw.shape[1], prior.up.size - 1, cell
    while part < last:
        part = prior.up[part]
        state.persons[leaf, part - cells] += m


@compiled_in_place
def leave(prior: Prior, state: State, leaf: int, slot: int, m: int) -> None:
    """Take m persons out of a slot of a leaf."""
    tally(prior, state, leaf, state.cell[slot], -m)
    state.number[slot] -= m
    if state.number[slot] == 0:
        # The last slot takes the place of the empty one.
        state.used[leaf] -= 1
        last = state.first[leaf] + state.used[leaf]
        state.cell[slot], state.number[slot] = state.cell[last], state.number[last]


@compiled_in_place
def enter(prior: Prior, state: State, leaf: int, cell: int, m: int) -> None:
    """Put m persons into a cell of a leaf; a leaf without a free slot moves to the end of the pool."""
    slot = find(state, leaf, cell)
    tally(prior, state, leaf, cell, m)
    if slot >= 0:
        state.number[slot] += m
        return
    used = state.used[leaf]
    if used == state.room[leaf]:
        # The old slots are lost until the pool is compacted.
        begin, at = state.first[leaf], state.tail[0]
        for k in range(used):
            state.cell[at + k], state.number[at + k] = state.cell[begin + k], state.number[begin + k]
        state.first[leaf] = at
        state.room[leaf] = min(2 * used + 4, state.old_cell.size)
        state.tail[0] = at + state.room[leaf]
    slot = state.first[leaf] + used
    state.cell[slot], state.number[slot] = cell, m
    state.used[leaf] = used + 1


@compiled_in_place
def compact(state: State, old: State) -> None:
    """Copy the slots of an earlier pool into this one, with a little room in every leaf."""
    at = 0
    for leaf in range(old.first.size):
        begin, used = old.first[leaf], old.used[leaf]
        for k in range(used):
            state.cell[at + k], state.number[at + k] = old.cell[begin + k], old.number[begin + k]
        state.first[leaf], state.used[leaf] = at, used
        state.room[leaf] = min(used + used // 2 + 4, state.old_cell.size)
        at += state.room[leaf]
    state.tail[0] = at
