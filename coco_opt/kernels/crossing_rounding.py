"""Round tables so that the answers to queries that cross stay near: persons change places, at a falling temperature.

    minimise  sum_jq |Q_q X_j - a_jq|   subject to   0 <= X <= room,  C X and, between paired children, sum_j X_j kept

over integers X [children, cells], from tables that meet the constraints. Queries that cross make this a nearest-point
problem in a lattice, which is hard, but with hundreds of fractional cells nearly all answers have a table within one.

1. ``exchange``: draw a child j, a cell c and another child k that shares c, and a cell d counted by the same rows of C.
2. Move a person of k from c to d, and one of j from d to c. Without sums to keep, k is a last child without answers.
3. Keep a move that is no worse, and one worse by e with probability exp(-e / T), while T falls geometrically.

Invariant: moves keep C X of every child, and the children's sum in every cell. Cost: O(moves x answers that count a
cell). The draws depend on the seed alone.
Source: Kirkpatrick, Gelatt and Vecchi 1983; Cox 1987 for controlled rounding.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from coco_opt.kernels.compile import compiled

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

HOT, COLD = 0.3, 0.004  # temperatures at the first and the last move, in persons
_TRIES = 6  # cells d that are drawn for a move

_STEP, _FIRST, _SECOND = (np.uint64(k) for k in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
_LOW = np.uint64(0xFFFFFFFF)


class Columns(NamedTuple):
    """The queries by cells: cell c has ``row[start[c]:start[c + 1]]``, rising, with ``value``."""

    start: Ints
    row: Ints
    value: Floats


class Open(NamedTuple):
    """What may change: ``child`` and ``cell`` of each entry with room, and the children of each cell's entries.

    Cell c has ``sharing[first[c]:first[c + 1]]``. ``sums`` says whether the children's sum is kept.
    """

    child: Ints
    cell: Ints
    first: Ints
    sharing: Ints
    sums: bool


class Alike(NamedTuple):
    """Cells that the same rows of C count: those of class ``of[c]`` are ``cells[first[of[c]]:first[of[c] + 1]]``."""

    of: Ints
    first: Ints
    cells: Ints


@compiled
def exchange(
    columns: Columns, entries: Open, alike: Alike, room: Ints, x: Ints, residual: Floats, moves: int, seed: int
) -> int:
    """Change ``x`` and ``residual`` = Q x - a [children, answers] by some moves; return how many were made.

    The last child stands for all outside: it has room for anything, and no answers.
    """
    outside = x.shape[0] - 1
    state, temperature, made = np.uint64(seed), HOT, 0
    cooling = (COLD / HOT) ** (1.0 / max(1, moves))
    for _ in range(moves):
        temperature *= cooling
        state += _STEP
        bits = _mixed(state)
        # One word serves two draws: its upper half chooses the entry, its lower half who shares the cell.
        entry = np.int64((bits >> np.uint64(32)) % np.uint64(entries.cell.size))
        j, c, k = entries.child[entry], entries.cell[entry], outside
        if entries.sums:
            sharing = entries.first[c + 1] - entries.first[c]
            k = entries.sharing[entries.first[c] + np.int64((bits & _LOW) % np.uint64(sharing))]
        # Child j gets a person in c, or loses it where c is full.
        if x[j, c] >= room[j, c]:
            j, k = k, j
        if j == k or x[j, c] >= room[j, c] or x[k, c] <= 0:
            continue
        first, count = alike.first[alike.of[c]], alike.first[alike.of[c] + 1] - alike.first[alike.of[c]]
        # A swap needs a person of j in d and room for k there: a crowded class waits for a later move.
        d = -1
        for _ in range(_TRIES):
            state += _STEP
            drawn = alike.cells[first + np.int64(_mixed(state) % np.uint64(count))]
            if drawn != c and x[j, drawn] > 0 and x[k, drawn] < room[k, drawn]:
                d = int(drawn)
                break
        if d < 0:
            continue
        # The outside has no answers to err on: only real children are charged.
        worse = _change(columns, residual[j], c, d) if j < outside else 0.0
        if k < outside:
            worse += _change(columns, residual[k], d, c)
        # Metropolis: what is no worse always passes, so plateaus are crossed even when cold.
        if worse > 0.0:
            state += _STEP
            if np.float64(_mixed(state) >> np.uint64(11)) * 2.0**-53 >= np.exp(-worse / temperature):
                continue
        # Residuals follow at once: the next move is judged by exact distances.
        for child, up, down in ((j, c, d), (k, d, c)):
            x[child, up] += 1
            x[child, down] -= 1
            if child < outside:
                _add(columns, residual[child], up, 1.0)
                _add(columns, residual[child], down, -1.0)
        made += 1
    return made


@compiled
def _change(columns: Columns, residual: Floats, up: int, down: int) -> float:
    """Return by how much a child's distance grows if a person moves from cell ``down`` to cell ``up``."""
    start, row, value = columns
    total, a, b = 0.0, start[up], start[down]
    # Both lists of rows rise: a row in both counts the difference.
    while a < start[up + 1] or b < start[down + 1]:
        of_up = row[a] if a < start[up + 1] else np.int64(2**62)
        of_down = row[b] if b < start[down + 1] else np.int64(2**62)
        by, answer = 0.0, min(of_up, of_down)
        if of_up == answer:
            by += value[a]
            a += 1
        if of_down == answer:
            by -= value[b]
            b += 1
        total += abs(residual[answer] + by) - abs(residual[answer])
    return total


@compiled
def _add(columns: Columns, residual: Floats, cell: int, persons: float) -> None:
    """Add persons to a cell's answers."""
    for at in range(columns.start[cell], columns.start[cell + 1]):
        residual[columns.row[at]] += persons * columns.value[at]


@compiled
def _mixed(state: np.uint64) -> np.uint64:
    """Return the finaliser of SplitMix64 (Steele, Lea and Flood 2014)."""
    state = (state ^ (state >> np.uint64(30))) * _FIRST
    state = (state ^ (state >> np.uint64(27))) * _SECOND
    return state ^ (state >> np.uint64(31))
