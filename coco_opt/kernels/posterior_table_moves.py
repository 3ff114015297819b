"""Metropolis moves of persons between the cells of the leaves' tables, given noisy answers and constraints.

1. Visit every leaf; propose some moves there: persons more or fewer, from cell to cell, from leaf to leaf, or a leaf's
   whole table into another's.
2. Add up what the move changes in the log posterior: answers that count its persons twice or not at all are left out.
3. Accept the move with the probability of Metropolis and Hastings, and only then change the tables.

Invariant: the tables meet all constraints. A move changes each answer once, so it breaks one exactly where the changed
value is beyond a side.
Cost: O(levels x answers a person + occupied cells of a leaf) a move, whatever the number of cells.
Source: Hastings 1970.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from coco_opt.kernels.compile import compiled_in_place
from coco_opt.kernels.drawing import below, uniform
from coco_opt.kernels.posterior_table_state import (
    BY_REGION,
    GAUSSIAN,
    GEOMETRIC,
    Answers,
    Floats,
    Ints,
    Prior,
    State,
    Tree,
    bin_of,
    concentration,
    count_at,
    enter,
    find,
    leave,
    persons_of,
)
from coco_opt.kernels.sorting import first_of

_FACTORS = 24  # a product of so many factors and one logarithm cost less than four gamma functions


class Proposals(NamedTuple):
    """Cumulative probabilities of the ``kinds`` of moves and the partners' ``levels``, and numbers of persons.

    A move adds or removes as many persons as one of the ``steps`` says; the last is also the most that change their
    cell or leaf. ``poured`` [1] is the largest table that is poured.
    """

    kinds: Floats
    levels: Floats
    steps: Ints
    poured: Ints


@compiled_in_place
def log_rise(x: float, y: float, m: int) -> float:
    """Return the log of x (x + 1) ... (x + m - 1) / (y (y + 1) ... (y + m - 1)), for x, y > 0."""
    # The product stays between 1e-200 and 1e216 for counts up to 1e9.
    if m > _FACTORS:
        return math.lgamma(x + m) - math.lgamma(x) - math.lgamma(y + m) + math.lgamma(y)
    ratio = 1.0
    for k in range(m):
        ratio *= (x + k) / (y + k)
    return math.log(ratio)


@compiled_in_place
def log_change(x: float, y: float, by: int) -> float:
    """Return the same for x and y that become x + by and y + by, where ``by`` may be negative."""
    return log_rise(x, y, by) if by > 0 else -log_rise(x + by, y + by, -by)


@compiled_in_place
def log_resized(tree: Tree, prior: Prior, state: State, leaf: int, part: int, by: int) -> float:
    """Return the change of the log prior of a leaf's persons in a class when its concentration becomes another one.

    It becomes that of ``by`` persons more, who are not there yet.
    """
    cells = prior.draw.shape[1]
    n, row = state.persons[leaf, part - cells], tree.row[leaf]
    before, after = concentration(prior, part - cells, n), concentration(prior, part - cells, n + by)
    if before == after or n == 0:
        return 0.0
    change = log_rise(before, after, n)
    for slot in range(state.first[leaf], state.first[leaf] + state.used[leaf]):
        cell = state.cell[slot]
        if prior.up[cell] == part:
            share = prior.share[row, cell]
            change += log_rise(after * share, before * share, state.number[slot])
    for own in range(cells, prior.up.size - 1):
        if prior.up[own] == part and state.persons[leaf, own - cells] > 0:
            share = prior.share[row, own]
            change += log_rise(after * share, before * share, state.persons[leaf, own - cells])
    return change


@compiled_in_place
def log_part(tree: Tree, prior: Prior, state: State, leaf: int, part: int, by: int, above: int) -> float:
    """Return the change of the log prior of a class of cells in a leaf when it has ``by`` persons more, or fewer.

    They are chosen for it in the class above, which has ``above`` more, and spread in it.
    """
    own, up = part - prior.draw.shape[1], prior.up[part] - prior.draw.shape[1]
    n = state.persons[leaf, own]
    a = concentration(prior, up, state.persons[leaf, up] + above) * prior.share[tree.row[leaf], part]
    return log_change(n + a, n + concentration(prior, own, n + by), by)


@compiled_in_place
def log_cell(tree: Tree, prior: Prior, state: State, leaf: int, cell: int, h: int, by: int, above: int) -> float:
    """Return the change of the log prior of a leaf's cell when it has ``by`` persons more than h.

    Its class has ``above`` persons more.
    """
    up = prior.up[cell] - prior.draw.shape[1]
    strength = concentration(prior, up, state.persons[leaf, up] + above)
    return log_change(h + strength * prior.share[tree.row[leaf], cell], h + 1.0, by)


@compiled_in_place
def log_total(tree: Tree, prior: Prior, state: State, leaf: int, by: int) -> float:
    """Return the change of the log prior of a leaf's total when ``by`` persons more are in it, or fewer."""
    n, row = persons_of(state, leaf), tree.row[leaf]
    before, after = bin_of(prior, n), bin_of(prior, n + by)
    if after >= prior.log_probability.shape[1]:
        return -np.inf
    change = float(prior.log_probability[row, after] - prior.log_probability[row, before])
    strength = concentration(prior, prior.strength.shape[1] - 1, n + by)
    return change + log_change(n + 1.0, n + strength, by)


@compiled_in_place
def log_prior(
    tree: Tree, prior: Prior, state: State, leaf: int, cell: int, h: int, by: int, top: int, above: int
) -> float:
    """Return the change of the log prior when ``by`` persons more than h are in a leaf's cell, or fewer.

    They are so in its classes below ``top``; this one has ``above`` more: all of them, or none, who only move in it.
    """
    change, part, last = 0.0, cell, prior.up.size - 1
    while part != top:
        up = prior.up[part]
        more = above if up == top else by
        if more != 0:
            change += log_resized(tree, prior, state, leaf, up, more)
        if part == cell:
            change += log_cell(tree, prior, state, leaf, cell, h, by, more)
        else:
            change += log_part(tree, prior, state, leaf, part, by, more)
        part = up
    return change + log_total(tree, prior, state, leaf, above) if top == last and above != 0 else change


@compiled_in_place
def common(prior: Prior, cell: int, other: int) -> int:
    """Return the smallest class of two cells."""
    # A class comes after its parts, so the one that comes first is not yet that of both.
    first, second = prior.up[cell], prior.up[other]
    while first != second:
        if first < second:
            first = prior.up[first]
        else:
            second = prior.up[second]
    return int(first)


@compiled_in_place
def fewer(answers: Answers, state: State, k: int, region: int, by: int) -> float:
    """Return the change of the log likelihood when a region's value at entry k falls by a number."""
    place, kind = answers.first[k] + region * answers.stride[k], answers.kind[k]
    before = int(state.value[place])
    after = before - by
    if kind == GEOMETRIC:
        return float(answers.weight[k] * (abs(before) - abs(after)))
    if kind == GAUSSIAN:
        # Squares of values of 64 bits could overflow as integers.
        return float(answers.weight[k] * (float(before) * float(before) - float(after) * float(after)))
    if kind == BY_REGION:
        weight = answers.precision[answers.side[k] + region]
        return float(weight * (float(before) * float(before) - float(after) * float(after)))
    # Every answer changes once in a move, so this is its value afterwards.
    place -= answers.side[k]
    return 0.0 if answers.low[place] <= after <= answers.high[place] else -np.inf


@compiled_in_place
def added(tree: Tree, answers: Answers, state: State, leaf: int, cell: int, m: int, level: int) -> float:
    """Return the change of the log likelihood of the answers from a level on when m persons enter a cell of a leaf."""
    change = 0.0
    for at in range(level, tree.above.shape[1]):
        region = tree.above[leaf, at]
        for k in range(answers.start[at, cell], answers.start[at, cell + 1]):
            change += fewer(answers, state, k, region, m * answers.coefficient[k])
    return change


@compiled_in_place
def swapped(tree: Tree, answers: Answers, state: State, leaf: int, old: int, new: int, m: int, level: int) -> float:
    """Return the change of the log likelihood of the answers above a level when m persons go from cell to cell."""
    change = 0.0
    for at in range(level):
        region = tree.above[leaf, at]
        i, j = answers.start[at, old], answers.start[at, new]
        last_i, last_j = answers.start[at, old + 1], answers.start[at, new + 1]
        # Both cells' entries rise: merge them, so that an answer that counts both cells changes once.
        while i < last_i or j < last_j:
            if j == last_j or (i < last_i and answers.first[i] < answers.first[j]):
                change += fewer(answers, state, i, region, -m * answers.coefficient[i])
                i += 1
            elif i == last_i or answers.first[j] < answers.first[i]:
                change += fewer(answers, state, j, region, m * answers.coefficient[j])
                j += 1
            else:
                by = m * (answers.coefficient[j] - answers.coefficient[i])
                if by != 0:
                    change += fewer(answers, state, j, region, by)
                i += 1
                j += 1
    return change


@compiled_in_place
def count(tree: Tree, answers: Answers, state: State, leaf: int, cell: int, m: int, level: int) -> None:
    """Count m persons more in the answers from a level on."""
    for at in range(level, tree.above.shape[1]):
        region = tree.above[leaf, at]
        for k in range(answers.start[at, cell], answers.start[at, cell + 1]):
            state.value[answers.first[k] + region * answers.stride[k]] -= m * answers.coefficient[k]


@compiled_in_place
def pick(draw: Floats, row: int, words: NDArray[np.uint64]) -> int:
    """Draw a cell from a row of distribution functions."""
    return first_of(draw, row, uniform(words), 0, draw.shape[1] - 1)


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
    """Decide a move by its log ratio, and count it."""
    state.tried[kind, 0] += 1
    if not change > -np.inf or (change < 0.0 and math.log(uniform(state.words)) >= change):
        return False
    state.tried[kind, 1] += 1
    return True


@compiled_in_place
def add(tree: Tree, answers: Answers, prior: Prior, state: State, leaf: int, m: int) -> None:
    """Try m persons more in a cell of the prior's choice."""
    row = tree.row[leaf]
    cell = pick(prior.draw, row, state.words)
    slot = find(state, leaf, cell)
    change = log_prior(tree, prior, state, leaf, cell, count_at(state, slot), m, prior.up.size - 1, m)
    # The way back removes from one of the cells then occupied.
    occupied = state.used[leaf] + (slot < 0)
    change -= math.log(proposed(prior.draw, row, cell) * occupied)
    change += added(tree, answers, state, leaf, cell, m, 0)
    if accepted(state, change, 0):
        count(tree, answers, state, leaf, cell, m, 0)
        enter(prior, state, leaf, cell, m)


@compiled_in_place
def remove(tree: Tree, answers: Answers, prior: Prior, state: State, leaf: int, m: int) -> None:
    """Try m persons fewer in one of the occupied cells."""
    used = state.used[leaf]
    if used == 0:
        return
    slot = state.first[leaf] + below(state.words, used)
    h = int(state.number[slot])
    if h < m:
        return
    cell = int(state.cell[slot])
    change = log_prior(tree, prior, state, leaf, cell, h, -m, prior.up.size - 1, -m)
    change += math.log(proposed(prior.draw, tree.row[leaf], cell) * used)
    change += added(tree, answers, state, leaf, cell, -m, 0)
    if accepted(state, change, 0):
        count(tree, answers, state, leaf, cell, -m, 0)
        leave(prior, state, leaf, slot, m)


@compiled_in_place
def fork(tree: Tree, leaf: int, other: int) -> int:
    """Return the first level at which two leaves lie in different regions; the number of levels for one leaf."""
    level = 0
    while level < tree.above.shape[1] and tree.above[leaf, level] == tree.above[other, level]:
        level += 1
    return level


@compiled_in_place
def exchange(
    tree: Tree, answers: Answers, prior: Prior, state: State, source: int, target: int, most: int, same: bool
) -> None:
    """Try to move persons of an occupied cell of a leaf to a cell of a leaf: the ``same`` cell, or the prior's.

    Their number is uniform from 1 to all that are there, or to ``most``.
    """
    used = state.used[source]
    if used == 0:
        return
    slot = state.first[source] + below(state.words, used)
    h = int(state.number[slot])
    m = 1 + below(state.words, min(h, most))
    cell = int(state.cell[slot])
    new = cell if same else pick(prior.draw, tree.row[target], state.words)
    if new == cell and source == target:
        return
    at = find(state, target, new)
    there = count_at(state, at)
    # Forward one of the source's occupied cells is chosen, and back one of the target's, and then a number.
    occupied = state.used[target] + (at < 0) - (source == target and h == m)
    ratio = used * min(h, most) / (occupied * min(there + m, most))
    if not same:
        ratio *= proposed(prior.draw, tree.row[source], cell) / proposed(prior.draw, tree.row[target], new)
    # In one leaf, classes that have both cells stay as they are.
    top, more = (common(prior, cell, new), 0) if source == target else (prior.up.size - 1, m)
    change = math.log(ratio) + log_prior(tree, prior, state, target, new, there, m, top, more)
    change += log_prior(tree, prior, state, source, cell, h, -m, top, -more)
    # Above the fork both leaves lie in one region, where persons only change their cell.
    level = fork(tree, source, target)
    if not same:
        change += swapped(tree, answers, state, source, cell, new, m, level)
    change += added(tree, answers, state, source, cell, -m, level)
    change += added(tree, answers, state, target, new, m, level)
    if accepted(state, change, 1 if source == target else 2):
        # Where both leave and enter, the answers above the fork change only if the cells differ.
        level = level if same else 0
        count(tree, answers, state, source, cell, -m, level)
        count(tree, answers, state, target, new, m, level)
        leave(prior, state, source, slot, m)
        enter(prior, state, target, new, m)


@compiled_in_place
def gathered(tree: Tree, answers: Answers, state: State, source: int, target: int, kept: int) -> float:
    """Return the change of the log likelihood when the first ``kept`` entries of the old table go to another leaf."""
    change = 0.0
    for at in range(fork(tree, source, target), tree.above.shape[1]):
        # Add up what the table counts in the answers of a region, then change each answer once.
        touched = 0
        for entry in range(kept):
            cell, m = state.old_cell[entry], state.old_count[entry]
            for k in range(answers.start[at, cell], answers.start[at, cell + 1]):
                column = answers.column[k]
                if state.moved[column] == 0:
                    state.touched[touched] = k
                    touched += 1
                state.moved[column] += m * answers.coefficient[k]
        for entry in range(touched):
            k = state.touched[entry]
            by = state.moved[answers.column[k]]
            change += fewer(answers, state, k, tree.above[target, at], by)
            change += fewer(answers, state, k, tree.above[source, at], -by)
            state.moved[answers.column[k]] = 0
    return change


@compiled_in_place
def log_poured(tree: Tree, prior: Prior, state: State, source: int, target: int, kept: int, persons: int) -> float:
    """Return the change of the log prior when the first ``kept`` entries of the old table go to another leaf."""
    change = log_total(tree, prior, state, target, persons) + log_total(tree, prior, state, source, -persons)
    cells, last = prior.draw.shape[1], prior.up.size - 1
    for entry in range(kept):
        part = state.old_cell[entry]
        while part != last:
            part = prior.up[part]
            state.entered[part - cells] += state.old_count[entry]
    for entry in range(kept):
        cell, m = state.old_cell[entry], state.old_count[entry]
        more = state.entered[prior.up[cell] - cells]
        change += log_cell(tree, prior, state, target, cell, count_at(state, find(state, target, cell)), m, more)
        change += log_cell(tree, prior, state, source, cell, count_at(state, find(state, source, cell)), -m, -more)
    for part in range(cells, last + 1):
        m = state.entered[part - cells]
        if m > 0:
            change += log_resized(tree, prior, state, target, part, m)
            change += log_resized(tree, prior, state, source, part, -m)
            if part < last:
                more = state.entered[prior.up[part] - cells]
                change += log_part(tree, prior, state, target, part, m, more)
                change += log_part(tree, prior, state, source, part, -m, -more)
    for part in range(cells, last + 1):
        state.entered[part - cells] = 0
    return change


@compiled_in_place
def log_splits(state: State, leaf: int, kept: int) -> float:
    """Return the log of the number of ways to split a leaf's table and ``kept`` entries of the old one in two."""
    total = 0.0
    for slot in range(state.first[leaf], state.first[leaf] + state.used[leaf]):
        total += math.log(state.number[slot] + 1.0)
    # Where both have persons in a cell, their pooled number replaces the target's own.
    for entry in range(kept):
        h = count_at(state, find(state, leaf, state.old_cell[entry]))
        total += math.log((h + state.old_count[entry] + 1.0) / (h + 1.0))
    return total


@compiled_in_place
def hand_over(tree: Tree, answers: Answers, prior: Prior, state: State, source: int, target: int, kept: int) -> None:
    """Move the first ``kept`` entries of the old table from one leaf to another."""
    level = fork(tree, source, target)
    for entry in range(kept):
        cell, m = state.old_cell[entry], state.old_count[entry]
        count(tree, answers, state, source, cell, -m, level)
        count(tree, answers, state, target, cell, m, level)
        leave(prior, state, source, find(state, source, cell), m)
        enter(prior, state, target, cell, m)


@compiled_in_place
def pour(tree: Tree, answers: Answers, prior: Prior, state: State, leaf: int, other: int, most: int) -> None:
    """Try to pour a leaf's whole table into another's; where it is empty, to split the other's at random.

    A split takes every part of a cell with the same probability, so 1 / (H + 1) for a pooled cell of H persons. Neither
    way moves more than ``most`` persons.
    """
    filled = state.used[leaf] > 0
    source, target = (leaf, other) if filled else (other, leaf)
    if filled and persons_of(state, leaf) > most:
        return
    # List what moves: everything, or a part of every cell.
    kept = persons = 0
    for slot in range(state.first[source], state.first[source] + state.used[source]):
        m = int(state.number[slot])
        if not filled:
            m = below(state.words, m + 1)
        if m > 0:
            state.old_cell[kept], state.old_count[kept] = state.cell[slot], m
            kept += 1
            persons += m
    if persons == 0 or persons > most:
        return
    change = log_poured(tree, prior, state, source, target, kept, persons)
    change += -log_splits(state, other, kept) if filled else log_splits(state, other, 0)
    change += gathered(tree, answers, state, source, target, kept)
    if accepted(state, change, 3):
        hand_over(tree, answers, prior, state, source, target, kept)


@compiled_in_place
def partner(tree: Tree, proposals: Proposals, state: State, leaf: int) -> int:
    """Return a random leaf below a common ancestor of a random level."""
    level = choose(proposals.levels, state.words)
    place = tree.place[level] + tree.above[leaf, level]
    return int(tree.start[place]) + below(state.words, tree.start[place + 1] - tree.start[place])


@compiled_in_place
def visit(tree: Tree, answers: Answers, prior: Prior, state: State, proposals: Proposals, leaf: int) -> None:
    """Try the moves of one leaf."""
    most = int(proposals.steps[proposals.steps.size - 1])
    for _ in range(tree.moves[leaf]):
        kind = choose(proposals.kinds, state.words)
        if kind == 0:
            m = proposals.steps[below(state.words, proposals.steps.size)]
            if uniform(state.words) < 0.5:
                add(tree, answers, prior, state, leaf, m)
            else:
                remove(tree, answers, prior, state, leaf, m)
            continue
        if kind == 1:
            exchange(tree, answers, prior, state, leaf, leaf, most, False)
            continue
        # The way back chooses the same partner, and the other direction by a coin.
        other = partner(tree, proposals, state, leaf)
        if other == leaf:
            continue
        if kind == 4:
            pour(tree, answers, prior, state, leaf, other, proposals.poured[0])
        elif uniform(state.words) < 0.5:
            exchange(tree, answers, prior, state, leaf, other, most, kind == 2)
        else:
            exchange(tree, answers, prior, state, other, leaf, most, kind == 2)


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
