"""The few functionals of a table whose estimates need matrices, whatever the number of cells: an orthonormal basis.

Let the ``base`` be queries that have the same shares of the precision in every region, 1/s2_vq = a_v w_q, and
N = sum_q w_q Q_q' Q_q. In the metric of N their noise is the same in every direction, in every region. So a functional
of a table that is orthogonal, f' N^+ g = 0, to every other query's row and to every exact row has a tree of its own
with the variances 1/a_v, and nothing else says anything about it. What is left are the functionals that those rows
span, K of them, whatever the number of cells: some within the base's rows, the others outside of them.

Without a base these are all functionals that queries and exact rows span.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from coco_opt.array_types import Flags, Floats
from coco_opt.operators import Operator, blocks_of_rows
from coco_opt.topdown.estimating.linear.linear_estimates import ExactRows, NormalEquations, checked_variance, kinds_of

if TYPE_CHECKING:
    from coco_opt.topdown.noisy_measurements import TableMeasurements

ALIKE = 1e-12  # difference of two shares that is rounding
_RANK = 1e-7  # singular values of rows of length 1 that count as zero
_OUTSIDE = 1e-8  # part of a row, relative to its size, that counts as zero
_MOST_ROWS = 4  # times as many rows as directions are looked at


@dataclass(frozen=True, eq=False)
class Base:
    """Queries of precision a_v w_q in every region v: their places in the plan, operators, and weights w, largest 1."""

    queries: tuple[int, ...]
    operators: tuple[Operator, ...]
    weights: Floats

    @classmethod
    def none(cls, measured: TableMeasurements) -> Base:
        """Return no queries: everything is outside."""
        return cls((), (measured.queries[0].operator,), np.zeros(1))

    @classmethod
    def of(cls, measured: TableMeasurements) -> Base:
        """Return the queries of equal shares that have the most answers."""
        precisions, _ = kinds_of(measured)
        totals = precisions.sum(axis=0)
        shares = precisions / np.where(totals > 0, totals, 1.0)
        best: tuple[int, tuple[int, ...]] = (0, ())
        for first in np.flatnonzero(totals > 0).tolist():
            alike = (totals > 0) & (np.abs(shares - shares[:, [first]]).max(axis=0) <= ALIKE)
            same = tuple(np.flatnonzero(alike).tolist())
            best = max(best, (sum(measured.queries[query].operator.answers for query in same), same))
        operators = tuple(measured.queries[query].operator for query in best[1])
        weights = totals[list(best[1])]
        return cls(best[1], operators, weights / weights.max(initial=np.finfo(np.float64).tiny))

    @cached_property
    def normal(self) -> NormalEquations:
        """Return N."""
        return NormalEquations(self.operators, self.weights)

    def lengths(self, solved: Floats) -> Floats:
        """Return the squared length f' N^+ f of functionals, given N^+ f [functionals, cells]."""
        return np.asarray((self.whitened(solved) ** 2).sum(axis=1))

    def whitened(self, solved: Floats) -> Floats:
        """Return functionals, given N^+ f [functionals, cells], in coordinates in which their metric is Euclid's."""
        rows = np.asfortranarray(solved)  # as sums over groups of cells read it
        parts = zip(self.weights.tolist(), self.operators, strict=True)
        return np.hstack([np.sqrt(weight) * operator.apply(rows) for weight, operator in parts])


@dataclass(frozen=True, eq=False)
class Directions:
    """Coordinates of a table: functionals within the base's rows, and functionals that these say nothing about.

    ``inside`` (cells, k) are N^+ f of functionals f that are orthonormal in N^+, ``outside`` (cells, m) an orthonormal
    basis of the others.
    """

    base: Base
    inside: Floats
    outside: Floats
    _remainders: dict[Operator, tuple[Floats, Flags]] = field(default_factory=dict, repr=False)

    @cached_property
    def matrix_of_cells(self) -> Floats:
        """Return both (cells, count)."""
        return np.hstack([self.inside, self.outside])

    @property
    def count(self) -> int:
        """Return the number of functionals."""
        return int(self.inside.shape[1] + self.outside.shape[1])

    def matrix(self, query: Operator) -> Floats:
        """Return the answers of a query in the coordinates, float64[answers, count]."""
        return np.ascontiguousarray(query.apply(np.asfortranarray(self.matrix_of_cells.T)).T)

    def to_cells(self, values: Floats) -> Floats:
        """Return the tables [regions, cells] with these coordinates [regions, count] and nothing else."""
        return np.asarray(values @ self.matrix_of_cells.T)

    def resolves(self, query: Operator) -> Flags:
        """Return which answers (answers,) the base's queries determine together with the functionals outside."""
        return self.remainder(query)[1]

    def remainder(self, query: Operator) -> tuple[Floats, Flags]:
        """Return the squared length (answers,) of what the functionals leave of a query's rows, and ``resolves``.

        O(answers x cells^2), once for each query.
        """
        if query not in self._remainders:
            self._remainders[query] = self._remainder(query)
        return self._remainders[query]

    def _remainder(self, query: Operator) -> tuple[Floats, Flags]:
        lengths, resolved = np.zeros(query.answers), np.zeros(query.answers, np.bool_)
        for block, rows in blocks_of_rows(query):
            solved = self.base.normal.solve(rows)
            left = rows - self.base.normal.apply(solved) - (rows @ self.outside) @ self.outside.T
            resolved[block] = np.linalg.norm(left, axis=1) <= _OUTSIDE * np.maximum(1.0, np.linalg.norm(rows, axis=1))
            full = self.base.lengths(solved)
            rest = self.base.lengths(solved - (rows @ self.inside) @ self.inside.T)
            lengths[block] = np.where(rest > _RANK**2 * full, rest, 0.0)
        return lengths, resolved


def directions(measured: TableMeasurements, base: Base, most: float = np.inf) -> Directions | None:
    """Return the functionals that other queries than the base's and exact rows span; None for more than ``most``."""
    rows = _other_rows(measured, base, most * _MOST_ROWS)
    if rows is None:
        return None
    solved = base.normal.solve(rows)
    outside = _outside(rows, rows - base.normal.apply(solved))
    if outside.shape[1] > most:
        return None
    inside = _inside(base, solved)
    return Directions(base, inside, outside) if inside.shape[1] + outside.shape[1] <= most else None


def _other_rows(measured: TableMeasurements, base: Base, most: float) -> Floats | None:
    """Return the distinct rows [rows, cells] of length 1 outside the base; None for more than ``most``."""
    levels, queries = range(measured.hierarchy.levels), enumerate(measured.queries)
    operators: list[Operator] = [
        query.operator
        for place, query in queries
        if place not in base.queries and any(np.isfinite(checked_variance(measured, level, place)) for level in levels)
    ]
    operators += [ExactRows.of(measured, level).operator for level in levels]
    distinct: dict[bytes, Floats] = {}
    for row in _rows(operators):
        size = float(np.linalg.norm(row))
        if size:
            distinct.setdefault((row / size).tobytes(), row / size)
        if len(distinct) > most:
            return None
    return np.array(list(distinct.values())).reshape(-1, base.operators[0].cells)


def _rows(operators: Sequence[Operator]) -> Iterator[Floats]:
    for operator in operators:
        for _, rows in blocks_of_rows(operator):
            yield from rows


def _outside(rows: Floats, left: Floats) -> Floats:
    """Return an orthonormal basis (cells, m) of what the base's queries leave of rows of length 1."""
    left = left[np.linalg.norm(left, axis=1) > _OUTSIDE]
    if not len(left):
        return np.zeros((rows.shape[1], 0))
    _, values, right = np.linalg.svd(left, full_matrices=False)
    return np.ascontiguousarray(right[values > _RANK].T)


def _inside(base: Base, solved: Floats) -> Floats:
    """Return N^+ f (cells, k) of an orthonormal basis f of functionals, given N^+ of what they must span."""
    whitened = base.whitened(solved)
    sizes = np.linalg.norm(whitened, axis=1)
    present = sizes > _OUTSIDE * max(float(sizes.max(initial=0.0)), np.finfo(np.float64).tiny)
    if not present.any():
        return np.zeros((solved.shape[1], 0))
    left, values, _ = np.linalg.svd(whitened[present] / sizes[present, None], full_matrices=False)
    clear = values > _RANK * values[0]
    basis = (left[:, clear] / values[clear]).T @ (solved[present] / sizes[present, None])
    # Once more: small singular values have carried rounding into the first basis.
    rows = base.whitened(basis)
    return np.ascontiguousarray(np.linalg.solve(np.linalg.cholesky(rows @ rows.T), basis).T)
