"""Gibbs draws of the prior of the leaves' tables: shares of the cells down the hierarchy, and concentrations.

The cells of a leaf are Dirichlet-multinomial around the shares of its parent, and a region's shares are Dirichlet
around its own parent's, the root's around equal shares.

1. From the leaves up, draw the numbers of tables of the Chinese restaurant process: what a region's customers, the
   persons of a leaf or the tables of its children, send to its parent.
2. Draw the concentrations of every level given the numbers of tables, those of the leaves by their sizes: the more
   persons a leaf has, the less it differs from its parent.
3. From the root down, draw the shares of every region given its parent's and the tables that its children send.

Invariant: row 0 of the shares is the base and stays; a row comes after its parent's and adds up to 1.
Cost: O(persons + regions x cells).
Source: Teh, Jordan, Beal and Blei 2006, sections 5.3 and A; Antoniak 1974 for the concentrations.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from coco_opt.kernels.compile import compiled_in_place
from coco_opt.kernels.drawing import gamma, uniform
from coco_opt.kernels.posterior_table_state import (
    SIZES,
    Floats,
    Ints,
    Prior,
    State,
    Tree,
    size_of,
)

_FIRST_CUSTOMERS, _RARE = 64, 8.0
_LEAST = 1e-12  # share of a cell: a gamma draw can underflow to 0, which no table could ever leave
_STEPS = 8  # of a log concentration; each is half as wide as the one before, from 1 on


@compiled_in_place
def tables_of(customers: int, strength: float, words: NDArray[np.uint64]) -> int:
    """Draw the number of tables of so many customers: customer k + 1 opens one with probability a / (a + k).

    After the first customers the next one that opens a table is drawn directly: that none from k to K - 1 does has the
    probability Gamma(K) Gamma(k + a) / (Gamma(k) Gamma(K + a)), close to ((k + c) / (K + c))^a, c = (a - 1) / 2, with
    an error in the log below a^3 / (24 k^2).
    """
    if customers == 0:
        return 0
    tables = 1  # the first customer always opens one
    for k in range(1, min(customers, _FIRST_CUSTOMERS)):
        tables += uniform(words) * (strength + k) < strength
    if customers <= _FIRST_CUSTOMERS:
        return tables
    if strength >= _RARE:
        for k in range(_FIRST_CUSTOMERS, customers):
            tables += uniform(words) * (strength + k) < strength
        return tables
    # Invert the probability that no customer from k on opens a table.
    k, centre = _FIRST_CUSTOMERS, 0.5 * (strength - 1.0)
    while True:
        opening = (k + centre) * uniform(words) ** (-1.0 / strength) - centre
        if not opening < customers:
            break
        tables += 1
        k = int(opening) + 1
    return tables


@compiled_in_place
def send(prior: Prior, at: int, row: int, part: int, customers: int, tables: Ints, words: NDArray[np.uint64]) -> int:
    """Send the tables that a part's customers open up to a region, and return their number.

    The concentration is in row ``at``.
    """
    strength = prior.strength[at, prior.up[part] - prior.draw.shape[1]]
    opened = tables_of(customers, strength * prior.share[row, part], words)
    tables[row, part] += opened
    return opened


@compiled_in_place
def draw_tables(tree: Tree, prior: Prior, state: State, above: Ints, levels: Ints, tables: Ints, total: Ints) -> None:
    """Fill ``tables`` [rows, parts]: what the children of each region send up; ``total`` is by concentration.

    ``above`` [rows] is each row's parent row and ``levels`` its level; parents come before children.
    """
    tables[:] = 0
    total[:] = 0
    cells, all_cells, first = prior.draw.shape[1], prior.up.size - 1, prior.strength.shape[0] - SIZES
    for leaf in range(tree.row.size):
        row = tree.row[leaf]
        for slot in range(state.first[leaf], state.first[leaf] + state.used[leaf]):
            cell = state.cell[slot]
            number = prior.up[cell] - cells
            at = first + size_of(state.persons[leaf, number])
            total[at, number] += send(prior, at, row, cell, state.number[slot], tables, state.words)
        for part in range(cells, all_cells):
            number = prior.up[part] - cells
            at = first + size_of(state.persons[leaf, number])
            total[at, number] += send(prior, at, row, part, state.persons[leaf, part - cells], tables, state.words)
    # Rows from the last on: all children of a region have sent their tables before it sends its own.
    for row in range(tables.shape[0] - 1, 0, -1):
        for part in range(all_cells):
            if tables[row, part] > 0:
                opened = send(prior, levels[row], above[row], part, tables[row, part], tables, state.words)
                total[levels[row], prior.up[part] - cells] += opened


@compiled_in_place
def draw_shares(prior: Prior, above: Ints, levels: Ints, tables: Ints, sums: Floats, words: NDArray[np.uint64]) -> None:
    """Draw the shares of every region given its parent's and the tables that its children send.

    ``sums`` [2, parts] is scratch.
    """
    cells, all_cells = prior.draw.shape[1], prior.up.size - 1
    for row in range(1, tables.shape[0]):
        up = above[row]
        sums[:] = 0.0
        # A Dirichlet draw in each class: gamma draws, normalised among the parts of the same class.
        for part in range(all_cells):
            strength = prior.strength[levels[row], prior.up[part] - cells]
            drawn = gamma(words, strength * prior.share[up, part] + tables[row, part])
            prior.share[row, part] = drawn
            sums[0, prior.up[part]] += drawn
        for part in range(all_cells):
            # Gamma draws of tiny shapes can all underflow; the parent's shares are the prior's mean.
            every = sums[0, prior.up[part]]
            drawn = prior.share[row, part] / every if every > 0.0 else prior.share[up, part]
            prior.share[row, part] = max(drawn, _LEAST)
            sums[1, prior.up[part]] += prior.share[row, part]
        for part in range(all_cells):
            prior.share[row, part] /= sums[1, prior.up[part]]


@compiled_in_place
def set_draw(prior: Prior, flat: float) -> None:
    """Set the distributions that cells are proposed from: the shares, and ``flat`` of the time any cell."""
    cells = prior.draw.shape[1]
    for row in range(prior.draw.shape[0]):
        running = 0.0
        for cell in range(cells):
            # A cell's probability is the product of the shares on its way up the classes.
            share, part = prior.share[row, cell], prior.up[cell]
            while part < prior.up.size - 1:
                share *= prior.share[row, part]
                part = prior.up[part]
            running += (1.0 - flat) * share + flat / cells
            prior.draw[row, cell] = running
        # Rounded sums may end a little below 1, which a uniform number could exceed.
        prior.draw[row, cells - 1] = 1.0


@compiled_in_place
def log_strength(sizes: Ints, strength: float, opened: int) -> float:
    """Return the log likelihood of a concentration given the customers of each region and all tables they opened."""
    value = opened * math.log(strength)
    for k in range(sizes.size):
        if sizes[k] > 0:
            value += math.lgamma(strength) - math.lgamma(strength + sizes[k])
    return value


@compiled_in_place
def draw_strength(
    sizes: Ints,
    opened: int,
    strength: float,
    low: float,
    high: float,
    centre: float,
    precision: float,
    words: NDArray[np.uint64],
) -> float:
    """Return a concentration after a few Metropolis steps of its log.

    This is uniform between two ends, or normal there, where its ``precision`` is not 0.
    """
    now, width = log_strength(sizes, strength, opened), 1.0
    for _ in range(_STEPS):
        # Steps on the scale of the logarithm, from wide to narrow.
        other = strength * math.exp(width * (2.0 * uniform(words) - 1.0))
        width *= 0.5
        if low <= other <= high:
            then = log_strength(sizes, other, opened)
            nearer = (math.log(strength) - centre) ** 2 - (math.log(other) - centre) ** 2
            change = then - now + 0.5 * precision * nearer
            if change >= 0.0 or math.log(uniform(words)) < change:
                strength, now = other, then
    return strength


@compiled_in_place
def draw_strengths(
    prior: Prior, state: State, number: int, opened: Ints, low: float, high: float, precision: float, own: Ints
) -> None:
    """Draw the concentrations of a class in leaves of every size; logs of neighbours differ with a ``precision``.

    ``opened`` is by concentration, and ``own`` [leaves] is scratch.
    """
    first = prior.strength.shape[0] - SIZES
    for size in range(SIZES):
        customers = 0
        for leaf in range(own.size):
            persons = state.persons[leaf, number]
            if persons > 0 and size_of(persons) == size:
                own[customers] = persons
                customers += 1
        at = first + size
        below = math.log(prior.strength[at - 1, number]) if size > 0 else 0.0
        above = math.log(prior.strength[at + 1, number]) if size + 1 < SIZES else 0.0
        neighbours = int(size > 0) + int(size + 1 < SIZES)
        prior.strength[at, number] = draw_strength(
            own[:customers],
            opened[at, number],
            prior.strength[at, number],
            low,
            high,
            (below + above) / neighbours,
            neighbours * precision,
            state.words,
        )
