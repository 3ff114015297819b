"""Metropolis moves of persons between the cells of the leaves' tables, given noisy answers and constraints.

1. Visit every leaf; propose some moves there: persons more or fewer, from cell to cell, from leaf to leaf, or a leaf's
   whole table into another's.
2. Take the steps of a move, each of which changes one cell of one leaf; add up the changes of the log posterior.
3. Accept the move with the probability of Metropolis and Hastings, or take its steps back.

The state holds every leaf's occupied cells in slots of a pool, and of every answer what is left of its noisy value:
value - sum of the persons it counts. A person counts in the answers of the regions above its leaf alone. Constraints
are answers too: their noise is 0 between two sides.

Invariant: between moves every value is that of the tables, and ``broken``, the persons by which all constraints
together are missed, is 0. Steps see each other's changes, so their sum is right where they meet in an answer.
Cost: O(levels x answers a person + occupied cells of a leaf) a move, whatever the number of cells.
Source: Hastings 1970.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from coco_opt.kernels.compile import compiled_in_place
from coco_opt.kernels.drawing import below, uniform

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

GEOMETRIC, GAUSSIAN, BETWEEN = 0, 1, 2
"""The kinds of answers: -|noise| weight, -noise^2 weight, or within two sides."""

_POURED = 200  # persons of two leaves up to which one is poured into the other


class Tree(NamedTuple):
    """The regions above each leaf: ``above`` [leaves, levels] counts them within their level.

    ``start`` [place[level] + region] is a region's first leaf, and the next one's where it ends. ``row`` [leaves] is
    the row of the leaf's parent among the shares, ``moves`` [leaves] the moves of a visit.
    """

    above: Ints
    place: Ints
    start: Ints
    row: Ints
    moves: Ints


class Answers(NamedTuple):
    """Which answers a person counts in: in those of a level, if in cell c, start[level, c] .. start[level, c + 1] - 1.

    For such an entry, region r's value is at first + r * stride, and a person counts ``coefficient`` times. Of an entry
    of kind BETWEEN the sides of the value at k are ``low`` and ``high`` at k - side.
    """

    start: Ints
    first: Ints
    stride: Ints
    coefficient: Ints
    kind: Ints
    weight: Floats
    side: Ints
    low: Ints
    high: Ints


class Prior(NamedTuple):
    """Totals lie in bins edge[k] .. edge[k + 1] - 1 of log probability ``log_probability`` [bins] for each integer.

    ``share`` [rows, cells] are the shares of the regions above the leaves, ``draw`` the distribution functions from
    which cells are proposed, ``strength`` [levels] the concentrations around the parents' shares, the leaves' last.
    """

    edge: Ints
    log_probability: Floats
    share: Floats
    draw: Floats
    strength: Floats


class State(NamedTuple):
    """The occupied cells of leaf b are the slots first[b] .. first[b] + used[b] - 1 of ``cell`` and ``number``.

    ``room`` are the slots reserved, ``tail`` the first free one of the pool. ``words`` is the generator's; ``old_cell``
    and ``old_count`` [cells] hold a table that is poured; ``tried`` [kinds, 2] counts moves and those accepted.
    """

    first: Ints
    room: Ints
    used: Ints
    persons: Ints
    cell: NDArray[np.int32]
    number: NDArray[np.int32]
    tail: Ints
    value: NDArray[Any]
    broken: Ints
    words: NDArray[np.uint64]
    old_cell: Ints
    old_count: Ints
    tried: Ints


class Proposals(NamedTuple):
    """Cumulative probabilities of the ``kinds`` of moves and the partners' ``levels``, and the numbers of persons."""

    kinds: Floats
    levels: Floats
    steps: Ints


@compiled_in_place
def rise(x: float, m: int) -> float:
    """Return log Gamma(x + m) - log Gamma(x), x > 0, m >= 0."""
    if m > 8:
        return math.lgamma(x + m) - math.lgamma(x)
    # A product of a few factors and one logarithm cost less than two gamma functions.
    product = 1.0
    for k in range(m):
        product *= x + k
    return math.log(product)


@compiled_in_place
def bin_of(edge: Ints, total: int) -> int:
    """Return the bin of a total, the number of bins where it is too large. Bins 0 to 3 hold their number alone."""
    if total < 4:
        return total
    # Halve until edge[low] <= total < edge[high] holds for neighbours.
    low, high = 4, edge.size - 1
    if total >= edge[high]:
        return high
    while high - low > 1:
        middle = (low + high) // 2
        if edge[middle] <= total:
            low = middle
        else:
            high = middle
    return low


@compiled_in_place
def log_of_total(prior: Prior, total: int) -> float:
    """Return the log probability of a leaf's total."""
    number = bin_of(prior.edge, total)
    return prior.log_probability[number] if number < prior.log_probability.size else -np.inf


@compiled_in_place
def find(state: State, leaf: int, cell: int) -> int:
    """Return the slot of a leaf's cell, -1 where it is empty."""
    for slot in range(state.first[leaf], state.first[leaf] + state.used[leaf]):
        if state.cell[slot] == cell:
            return slot
    return -1


@compiled_in_place
def put(state: State, leaf: int, cell: int, m: int) -> None:
    """Change a cell by m persons; a leaf without a free slot moves to the end of the pool."""
    slot = find(state, leaf, cell)
    state.persons[leaf] += m
    if slot >= 0:
        state.number[slot] += m
        if state.number[slot] == 0:
            # The last slot takes the place of the empty one.
            state.used[leaf] -= 1
            last = state.first[leaf] + state.used[leaf]
            state.cell[slot], state.number[slot] = state.cell[last], state.number[last]
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
def shift(tree: Tree, answers: Answers, state: State, leaf: int, cell: int, m: int, level: int) -> float:
    """Add m persons to the answers of the regions from a level on; return the change of the log likelihood."""
    change = 0.0
    # Of two leaves with a common ancestor the caller leaves out the levels whose answers do not change.
    for at in range(level, tree.above.shape[1]):
        region = tree.above[leaf, at]
        for k in range(answers.start[at, cell], answers.start[at, cell + 1]):
            place, kind = answers.first[k] + region * answers.stride[k], answers.kind[k]
            before = np.int64(state.value[place])
            after = before - m * answers.coefficient[k]
            state.value[place] = after
            if kind == GEOMETRIC:
                change += answers.weight[k] * (abs(before) - abs(after))
            elif kind == GAUSSIAN:
                change += answers.weight[k] * (float(before) * float(before) - float(after) * float(after))
            else:
                low, high = answers.low[place - answers.side[k]], answers.high[place - answers.side[k]]
                state.broken[0] += max(low - after, after - high, 0) - max(low - before, before - high, 0)
    return change


@compiled_in_place
def back(tree: Tree, answers: Answers, state: State, leaf: int, cell: int, m: int, level: int) -> None:
    """Undo a step that added m persons to a cell of a leaf, as the answers from a level on saw it."""
    for at in range(level, tree.above.shape[1]):
        region = tree.above[leaf, at]
        for k in range(answers.start[at, cell], answers.start[at, cell + 1]):
            state.value[answers.first[k] + region * answers.stride[k]] += m * answers.coefficient[k]
    put(state, leaf, cell, -m)


@compiled_in_place
def prior_change(tree: Tree, prior: Prior, state: State, leaf: int, cell: int, m: int) -> float:
    """Return the change of the log prior of a leaf's table when m persons enter (m < 0: leave) a cell."""
    slot = find(state, leaf, cell)
    h, n = (state.number[slot] if slot >= 0 else 0), state.persons[leaf]
    sign = 1.0
    of_total = log_of_total(prior, n + m) - log_of_total(prior, n)
    # Persons who leave are those who would enter the table without them.
    if m < 0:
        h, n, m, sign = h + m, n + m, -m, -1.0
    strength = prior.strength[prior.strength.size - 1]
    a = strength * prior.share[tree.row[leaf], cell]
    if m == 1:
        return of_total + sign * math.log((h + a) * (n + 1.0) / ((h + 1.0) * (n + strength)))
    return of_total + sign * (rise(h + a, m) - rise(h + 1.0, m) + rise(n + 1.0, m) - rise(n + strength, m))


@compiled_in_place
def step(tree: Tree, answers: Answers, prior: Prior, state: State, leaf: int, cell: int, m: int, level: int) -> float:
    """Change a cell of a leaf by m persons, seen by answers from a level on; return the log posterior's change."""
    change = prior_change(tree, prior, state, leaf, cell, m) + shift(tree, answers, state, leaf, cell, m, level)
    put(state, leaf, cell, m)
    return change


@compiled_in_place
def pick(draw: Floats, row: int, words: NDArray[np.uint64]) -> int:
    """Draw a cell from a row of distribution functions."""
    # Halve: the first cell whose distribution function reaches u.
    u = uniform(words)
    low, high = 0, draw.shape[1] - 1
    while low < high:
        middle = (low + high) // 2
        if draw[row, middle] < u:
            low = middle + 1
        else:
            high = middle
    return low


@compiled_in_place
def proposed(draw: Floats, row: int, cell: int) -> float:
    """Return the probability with which ``pick`` draws a cell."""
    return float(draw[row, cell] - (draw[row, cell - 1] if cell > 0 else 0.0))


@compiled_in_place
def choose(cumulative: Floats, words: NDArray[np.uint64]) -> int:
    """Draw a place from a few cumulative probabilities."""
    u = uniform(words)
    for k in range(cumulative.size - 1):
        if u < cumulative[k]:
            return k
    return cumulative.size - 1


@compiled_in_place
def accepted(state: State, change: float, kind: int) -> bool:
    """Decide a move by its log ratio and by the constraints, and count it."""
    state.tried[kind, 0] += 1
    if state.broken[0] != 0 or not change > -np.inf:
        state.broken[0] = 0
        return False
    if change < 0.0 and math.log(uniform(state.words)) >= change:
        return False
    state.tried[kind, 1] += 1
    return True


@compiled_in_place
def change_total(tree: Tree, answers: Answers, prior: Prior, state: State, leaf: int, m: int) -> None:
    """Try m persons more in a cell of the prior's choice, or m fewer in an occupied cell."""
    row = tree.row[leaf]
    if uniform(state.words) < 0.5:
        # The way back removes from one of the cells then occupied.
        cell = pick(prior.draw, row, state.words)
        change = step(tree, answers, prior, state, leaf, cell, m, 0)
        change -= math.log(proposed(prior.draw, row, cell) * state.used[leaf])
    else:
        used = state.used[leaf]
        if used == 0:
            return
        slot = state.first[leaf] + below(state.words, used)
        if state.number[slot] < m:
            return
        cell, m = state.cell[slot], -m
        change = step(tree, answers, prior, state, leaf, cell, m, 0)
        change += math.log(proposed(prior.draw, row, cell) * used)
    if not accepted(state, change, 0):
        back(tree, answers, state, leaf, cell, m, 0)


@compiled_in_place
def fork(tree: Tree, leaf: int, other: int) -> int:
    """Return the first level at which two different leaves lie in different regions."""
    level = 0
    while tree.above[leaf, level] == tree.above[other, level]:
        level += 1
    return level


@compiled_in_place
def exchange(
    tree: Tree, answers: Answers, prior: Prior, state: State, source: int, target: int, m: int, same: bool
) -> None:
    """Try to move m persons of an occupied cell of a leaf to a cell of a leaf: the ``same`` cell, or the prior's."""
    used = state.used[source]
    if used == 0:
        return
    slot = state.first[source] + below(state.words, used)
    if state.number[slot] < m:
        return
    cell = int(state.cell[slot])
    new, level = cell, 0
    if same:
        level = fork(tree, source, target)
    else:
        new = pick(prior.draw, tree.row[target], state.words)
        if new == cell and source == target:
            return
    change = step(tree, answers, prior, state, source, cell, -m, level)
    change += step(tree, answers, prior, state, target, new, m, level)
    # Forward one of the source's occupied cells was chosen, and back one of the target's is.
    change += math.log(used / state.used[target])
    if not same:
        returning = proposed(prior.draw, tree.row[source], cell)
        change += math.log(returning / proposed(prior.draw, tree.row[target], new))
    if not accepted(state, change, 1 if source == target else 2):
        back(tree, answers, state, target, new, m, level)
        back(tree, answers, state, source, cell, -m, level)


@compiled_in_place
def log_splits(state: State, leaf: int) -> float:
    """Return the log of the number of ways to split a leaf's table in two."""
    total = 0.0
    for slot in range(state.first[leaf], state.first[leaf] + state.used[leaf]):
        total += math.log(state.number[slot] + 1.0)
    return total


@compiled_in_place
def hand_over(tree: Tree, answers: Answers, prior: Prior, state: State, source: int, target: int, moved: int) -> float:
    """Move the ``moved`` entries of the table kept in ``old_cell`` and ``old_count`` from one leaf to another."""
    level, change = fork(tree, source, target), 0.0
    for k in range(moved):
        cell, m = state.old_cell[k], state.old_count[k]
        if m > 0:
            change += step(tree, answers, prior, state, source, cell, -m, level)
            change += step(tree, answers, prior, state, target, cell, m, level)
    return change


@compiled_in_place
def take_back(tree: Tree, answers: Answers, state: State, source: int, target: int, moved: int) -> None:
    """Undo ``hand_over``."""
    level = fork(tree, source, target)
    for k in range(moved):
        cell, m = state.old_cell[k], state.old_count[k]
        if m > 0:
            back(tree, answers, state, target, cell, m, level)
            back(tree, answers, state, source, cell, -m, level)


@compiled_in_place
def pour(tree: Tree, answers: Answers, prior: Prior, state: State, leaf: int, other: int) -> None:
    """Try to pour a leaf's whole table into another's; where it is empty, to split the other's at random.

    A split takes every part of a cell with the same probability, so 1 / (H + 1) for a pooled cell of H persons.
    """
    if state.persons[leaf] + state.persons[other] > _POURED:
        return
    # Their sum does not change, so the way back is tried under the same condition.
    source, target = (leaf, other) if state.used[leaf] > 0 else (other, leaf)
    moved = state.used[source]
    if moved == 0:
        return
    for k in range(moved):
        slot = state.first[source] + k
        state.old_cell[k] = state.cell[slot]
        state.old_count[k] = state.number[slot]
    change = 0.0
    if source == other:
        change = log_splits(state, other)
        for k in range(moved):
            state.old_count[k] = below(state.words, state.old_count[k] + 1)
    change += hand_over(tree, answers, prior, state, source, target, moved)
    if source == leaf:
        change -= log_splits(state, other)
    if not accepted(state, change, 3):
        take_back(tree, answers, state, source, target, moved)


@compiled_in_place
def partner(tree: Tree, proposals: Proposals, state: State, leaf: int) -> int:
    """Return a random leaf below a common ancestor of a random level."""
    level = choose(proposals.levels, state.words)
    place = tree.place[level] + tree.above[leaf, level]
    return int(tree.start[place]) + below(state.words, tree.start[place + 1] - tree.start[place])


@compiled_in_place
def visit(tree: Tree, answers: Answers, prior: Prior, state: State, proposals: Proposals, leaf: int) -> None:
    """Try the moves of one leaf."""
    for _ in range(tree.moves[leaf]):
        kind = choose(proposals.kinds, state.words)
        m = proposals.steps[below(state.words, proposals.steps.size)]
        if kind == 0:
            change_total(tree, answers, prior, state, leaf, m)
            continue
        if kind == 1:
            exchange(tree, answers, prior, state, leaf, leaf, m, False)
            continue
        # The way back chooses the same partner, and the other direction by a coin.
        other = partner(tree, proposals, state, leaf)
        if other == leaf:
            continue
        if kind == 4:
            pour(tree, answers, prior, state, leaf, other)
        elif uniform(state.words) < 0.5:
            exchange(tree, answers, prior, state, leaf, other, m, kind == 2)
        else:
            exchange(tree, answers, prior, state, other, leaf, m, kind == 2)


@compiled_in_place
def sweep(
    tree: Tree, answers: Answers, prior: Prior, state: State, proposals: Proposals, begin: int, reserve: int
) -> int:
    """Visit the leaves from ``begin`` on; return the first not visited, because the pool has less than ``reserve``."""
    for leaf in range(begin, tree.row.size):
        if state.cell.size - state.tail[0] < reserve * (tree.moves[leaf] + 1):
            return leaf
        visit(tree, answers, prior, state, proposals, leaf)
    return tree.row.size


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
