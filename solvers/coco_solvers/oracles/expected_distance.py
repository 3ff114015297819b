"""The consistent table of least expected distance by enumerating all integer tables, cell by cell."""

from __future__ import annotations

from itertools import product

import numpy as np
from numpy.typing import NDArray

from coco_opt.array_types import Ints
from coco_opt.problems.expected_distance import ExpectedDistance


def values_of_leaves(problem: ExpectedDistance) -> float:
    """Return how many values the leaves have together in a cell."""
    return float(np.prod(problem.groups[problem.tree.is_leaf] + 1.0))


def expected_distance(problem: ExpectedDistance) -> Ints:
    """Try all values of the leaves in every cell, where those of the cell before are at most as large."""
    tree, marginals = problem.tree, problem.marginals
    leaves, (_, cells) = np.flatnonzero(tree.is_leaf), marginals.shape
    ranges = [range(int(problem.groups[v]) + 1) for v in leaves]
    values = list(product(*ranges))
    tables = [_with_sums(problem, leaves, value) for value in values]
    best: dict[tuple[int, ...], tuple[int, list[int]]] = {}
    for cell in range(cells):
        reached: dict[tuple[int, ...], tuple[int, list[int]]] = {}
        for k, value in enumerate(values):
            before = min(
                (past for last, past in best.items() if all(map(int.__le__, last, value))), default=(0, list[int]())
            )
            reached[value] = before[0] + _cost(problem, cell, tables[k]), [*before[1], k]
        best = reached
    chosen = min(best.values())[1]
    return np.array([tables[k] for k in chosen], dtype=np.int64).T


def _with_sums(problem: ExpectedDistance, leaves: NDArray[np.intp], value: tuple[int, ...]) -> list[int]:
    table = [0] * problem.tree.nodes
    for leaf, x in zip(leaves.tolist(), value, strict=True):
        table[leaf] = x
    for v in range(problem.tree.nodes - 1, 0, -1):
        table[int(problem.tree.parent[v])] += table[v]
    return table


def _cost(problem: ExpectedDistance, cell: int, table: list[int]) -> int:
    """Return the cost of one cell's values, in units of weight."""
    marginals, total = problem.marginals, 0
    for v, x in enumerate(table):
        c = v * marginals.shape[1] + cell
        for k in range(int(marginals.offsets[c]), int(marginals.offsets[c + 1])):
            total += int(marginals.weights[k]) * abs(x - int(marginals.atoms[k]))
    return total
