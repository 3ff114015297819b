"""Exact solutions of tiny instances, by enumerating all candidate optima in rational arithmetic.

This file shares no code with the kernels: tests compare the kernels with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, permutations, product
from math import comb, factorial, isinf
from time import perf_counter
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from coco_opt.array_types import Floats, Ints
from coco_opt.errors import UnknownSolverError
from coco_opt.problem import Problem
from coco_opt.problems import (
    ControlledRounding,
    ExpectedDistance,
    Flow,
    GroupMatching,
    IsotonicL1,
    IsotonicL2,
    SimplexProjection,
)
from coco_opt.solution import Answer, Status

MOST_STEPS = 10_000_000  # some ten seconds


@dataclass(frozen=True)
class BruteForce:
    """Enumerates candidate optima; for tests and for the smallest rows of ``compare``."""

    tolerance: float = 1e-9

    name: ClassVar[str] = "brute-force"

    def solve(self, problem: Problem[Any, Any]) -> Answer[Any, Any]:
        """Solve one tiny problem; UnknownSolverError for an unknown type, and before it starts, for a large problem."""
        method, steps = _METHODS.get(type(problem), (None, None))
        if method is None or steps is None:
            raise UnknownSolverError(f"solver {self.name!r} cannot express {problem.kind}")
        if steps(problem) > MOST_STEPS:
            raise UnknownSolverError(f"solver {self.name!r} tries every point, and this {problem.kind} has too many")
        start = perf_counter()
        value = method(problem)
        return Answer(value, Status.OPTIMAL, seconds=perf_counter() - start)


def isotonic_l2(problem: IsotonicL2) -> Floats:
    """Evaluate the min-max formula x_k = min_{j >= k} max_{i <= j} mean(y[i..j]) (Hay et al. 2010, Theorem 1)."""
    y, w = _fractions(problem.y), _fractions(problem.dense_weights)
    n = len(y)
    mean = {
        (i, j): sum(map(lambda a, b: a * b, w[i : j + 1], y[i : j + 1])) / sum(w[i : j + 1])
        for i in range(n)
        for j in range(i, n)
    }
    largest = [max(mean[i, j] for i in range(j + 1)) for j in range(n)]
    fit = [float(min(largest[k:])) for k in range(n)]
    return np.clip(np.array(fit, dtype=np.float64), problem.lower, problem.upper)


def isotonic_l1(problem: IsotonicL1) -> Floats:
    """Search all nondecreasing sequences of data values and bounds by dynamic programming, with the tie rule.

    Cost-to-go over the last value used; among equal costs the largest ("upper") or smallest ("lower") next value.
    The componentwise extreme optimum takes values among the data and the finite bounds.
    """
    if problem.ties == "midpoint":
        return 0.5 * (_l1_extreme(problem, upper=True) + _l1_extreme(problem, upper=False))
    return _l1_extreme(problem, upper=problem.ties == "upper")


def _l1_extreme(problem: IsotonicL1, *, upper: bool) -> Floats:
    y, w = _fractions(problem.y), _fractions(problem.dense_weights)
    bounds = [Fraction(b) for b in (problem.lower, problem.upper) if not isinf(b)]
    values = [v for v in sorted({*y, *bounds}) if problem.lower <= v <= problem.upper]
    levels, n = len(values), len(y)
    to_go = [[Fraction(0)] * levels for _ in range(n + 1)]
    for i in reversed(range(n)):
        best: Fraction | None = None
        for k in reversed(range(levels)):
            cost = w[i] * abs(values[k] - y[i]) + to_go[i + 1][k]
            best = cost if best is None else min(best, cost)
            to_go[i][k] = best
    fit, start = [], 0
    for i in range(n):
        optimal = [k for k in range(start, levels) if w[i] * abs(values[k] - y[i]) + to_go[i + 1][k] == to_go[i][start]]
        start = max(optimal) if upper else min(optimal)
        fit.append(float(values[start]))
    return np.array(fit, dtype=np.float64)


def simplex_projection(problem: SimplexProjection) -> Floats:
    """Try every set of positive cells; the shift is the same in all of them."""
    y, total = _fractions(problem.y), Fraction(problem.total)

    def candidates() -> Iterator[list[Fraction]]:
        for size in range(1, len(y) + 1):
            for support in combinations(range(len(y)), size):
                shift = (sum(y[i] for i in support) - total) / size
                x = [y[i] - shift if i in support else Fraction(0) for i in range(len(y))]
                if min(x) >= 0:
                    yield x

    best = min(candidates(), key=lambda x: sum((a - b) ** 2 for a, b in zip(x, y, strict=True)))
    return np.array([float(v) for v in best])


def controlled_rounding(problem: ControlledRounding) -> Ints:
    """Try every choice of cells to round up."""
    x = _fractions(problem.x)
    fractional = np.flatnonzero(problem.fractional)
    count = problem.total - int(problem.floors.sum())

    def rounded(ups: tuple[int, ...]) -> Ints:
        cells = problem.floors
        cells[list(ups)] += 1
        return cells

    def cost(cells: Ints) -> Fraction:
        return sum((abs(int(c) - v) for c, v in zip(cells, x, strict=True)), Fraction(0))

    return min((rounded(ups) for ups in combinations(fractional.tolist(), count)), key=cost)


def group_matching(problem: GroupMatching) -> Flow:
    """Try every assignment of single groups."""
    parents = np.repeat(np.arange(problem.parent_sizes.size), problem.parent_counts)
    children = np.repeat(np.arange(problem.child_sizes.size), problem.child_counts)

    def cost(order: tuple[int, ...]) -> int:
        return int(np.abs(problem.parent_sizes[parents] - problem.child_sizes[list(order)]).sum())

    best = min(permutations(children.tolist()), key=cost)
    pairs, counts = np.unique(np.column_stack([parents, best]), axis=0, return_counts=True)
    return Flow(pairs[:, 0], pairs[:, 1], counts.astype(np.int64))


def _rounding_steps(problem: ControlledRounding) -> int:
    ups = problem.total - int(problem.floors.sum())
    return comb(int(problem.fractional.sum()), ups) * problem.variables


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


_METHODS: dict[type, tuple[Callable[[Any], Any], Callable[[Any], float]]] = {
    IsotonicL2: (isotonic_l2, lambda problem: problem.variables**3),
    IsotonicL1: (isotonic_l1, lambda problem: problem.variables**2),
    SimplexProjection: (simplex_projection, lambda problem: problem.variables * 2.0**problem.variables),
    ControlledRounding: (controlled_rounding, _rounding_steps),
    GroupMatching: (group_matching, lambda problem: problem.groups * factorial(min(problem.groups, 20))),
    ExpectedDistance: (expected_distance, lambda problem: problem.marginals.shape[1] * values_of_leaves(problem) ** 2),
}
"""By type of problem, what solves it and about how many steps that takes."""


def _fractions(values: NDArray[Any]) -> list[Fraction]:
    return [Fraction(value) for value in values.tolist()]
