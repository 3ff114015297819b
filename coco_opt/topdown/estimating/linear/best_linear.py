"""Which linear estimates a measurement gets: one tree per query, or matrices where those leave information out.

All that was measured and all constraints in every estimate, at any number of cells, where few directions need it.

In the coordinates of ``directions`` a measurement falls into two parts that know nothing of each other:
the tree of the base's queries, with one variance in every direction, and the K directions that other queries and exact
rows look at, for which ``full_information`` is K small matrices. With D = N^+ f of the directions and k what
full information says of them, the tables are

    x_v = x0_v + D (k_v - f' x0_v),

x0 those of the base's trees, and r' x_v has the variance P_v |r without f|^2 + that of r's part in the directions.
These are the estimates of generalised least squares over all cells of all regions under all constraints.

The few functionals of a table whose estimates need matrices, whatever the number of cells: an orthonormal basis.

Let the ``base`` be queries that have the same shares of the precision in every region, 1/s2_vq = a_v w_q, and
N = sum_q w_q Q_q' Q_q. In the metric of N their noise is the same in every direction, in every region. So a functional
of a table that is orthogonal, f' N^+ g = 0, to every other query's row and to every exact row has a tree of its own
with the variances 1/a_v, and nothing else says anything about it. What is left are the functionals that those rows
span, K of them, whatever the number of cells: some within the base's rows, the others outside of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from coco_opt.array_types import Flags, Floats
from coco_opt.errors import ProblemError
from coco_opt.operators import Operator, blocks_of_rows
from coco_opt.topdown.estimating.linear.constrained_trees import constrained_trees
from coco_opt.topdown.estimating.linear.information import FullInformation, full_information, joint_cells, kinds_of
from coco_opt.topdown.estimating.linear.linear_estimates import (
    ExactRows,
    LinearEstimates,
    NormalEquations,
    checked_variance,
)
from coco_opt.topdown.estimating.linear.query_trees import LinearStage, linear_stage

if TYPE_CHECKING:
    from coco_opt.topdown.noisy_measurements import TableMeasurements


MOST_ATOMS = 96
"""Joint cells, or directions, up to which matrices are used by default: seconds for a state's blocks."""

_ALIKE = 1e-12  # difference of two shares that is rounding


def best_linear(
    measured: TableMeasurements, full: bool | None = None, stage: LinearStage | None = None
) -> LinearEstimates:
    """Return the best linear unbiased estimates of a measurement, or nearly the best where those cost too much.

    The trees of ``linear_stage`` are the best where every level is measured in the same proportions and nothing is
    exact. Else ``full_information`` is, which is taken up to ``MOST_ATOMS`` joint cells, and beyond them its form by
    ``low_rank_information``, if so many directions suffice. What is left are the trees, corrected to the exact
    constraints of each region; ``stage`` holds these trees where they were computed before. ``full`` asks for full
    information (True, at any size) or for the trees (False). Raises ProblemError where it is requested and does not fit
    in memory.
    """
    if full:
        try:
            return full_information(measured)
        except MemoryError:
            raise ProblemError(
                "full information needs too much memory: measure fewer different cells, or leave out full=True"
            ) from None
    if full is None and not trees_are_best(measured):
        for form in (_by_matrices, low_rank_information):
            with suppress(MemoryError):
                estimates = form(measured, MOST_ATOMS)
                if estimates is not None:
                    return estimates
    return constrained_trees(measured, stage)


def _by_matrices(measured: TableMeasurements, most: int) -> LinearEstimates | None:
    """Return full information of up to ``most`` joint cells, else None."""
    return full_information(measured) if joint_cells(measured) <= most else None


def is_full(estimates: LinearEstimates) -> bool:
    """Return whether estimates use all answers and constraints together."""
    return isinstance(estimates, FullInformation | LowRankInformation)


def trees_are_best(measured: TableMeasurements) -> bool:
    """Return whether nothing is exact and all measured regions have the same queries in the same proportions."""
    hierarchy, levels = measured.hierarchy, range(measured.hierarchy.levels)
    for level in levels:
        constraints = measured.constraints_of(hierarchy.level_range(level))
        if constraints is not None and (constraints.lower == constraints.upper).any():
            return False
    precisions, _ = kinds_of(measured)
    shares = precisions[precisions.any(axis=1)]
    shares /= shares.sum(axis=1, keepdims=True)
    return bool((np.abs(shares - shares[0]) <= _ALIKE).all())


__all__ = ["LinearEstimates", "LinearStage", "best_linear", "is_full", "trees_are_best"]


@dataclass(frozen=True, eq=False)
class LowRankInformation(LinearEstimates):
    """Best linear unbiased estimates from trees and a few directions: build it with ``low_rank_information``."""

    stage: LinearStage
    directions: Directions
    reduced: FullInformation

    def tables(self, level: int, regions: slice = slice(None)) -> Floats:
        """Return estimated tables, where undetermined their part in the span of queries and constraints."""
        base = self.directions.base
        right = np.zeros((len(self.hierarchy.level_range(level)[regions]), base.normal.cells))
        for query, weight, operator in zip(base.queries, base.weights, base.operators, strict=True):
            estimates = self.stage.trees[query].estimates(level, regions)
            assert estimates is not None
            right += weight * operator.adjoint(estimates)
        moved = self.reduced.means[level][regions] - right @ self.directions.matrix_of_cells
        return np.asarray(base.normal.solve(right) + self.directions.to_cells(moved))

    def standard_errors(self, operator: Operator, level: int, regions: slice = slice(None)) -> Floats:
        """Return the exact standard errors [regions of level, answers] in people, infinite where undetermined."""
        lengths, resolved = self.directions.remainder(operator)
        variances = self.reduced.standard_errors(operator, level, regions) ** 2
        free = np.flatnonzero(lengths)
        # The variance of a functional of length 1 that the directions do not touch.
        single = self.stage.variances(self.directions.base.queries[0], level) * self.directions.base.weights[0]
        variances[:, free] += np.multiply.outer(single[regions], lengths[free])
        return np.where(resolved, np.sqrt(variances), np.inf)

    def known(self, operator: Operator, level: int, regions: slice = slice(None)) -> Flags:
        """Return which answers of a query are determined in some regions of a level, bool[regions, answers]."""
        return np.isfinite(self.standard_errors(operator, level, regions))


def low_rank_information(measured: TableMeasurements, most: int) -> LowRankInformation | None:
    """Return the best linear unbiased estimates by at most ``most`` directions, None where there are more of them.

    Raises ProblemError for a variance that is not positive, and MemoryError where the tree has too many different
    subtrees.
    """
    few = directions(measured, most)
    if few is None:
        return None
    return LowRankInformation(measured.hierarchy, linear_stage(measured), few, full_information(measured, few))


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
    def of(cls, measured: TableMeasurements) -> Base:
        """Return the queries of equal shares that have the most answers."""
        precisions, _ = kinds_of(measured)
        totals = precisions.sum(axis=0)
        shares = precisions / np.where(totals > 0, totals, 1.0)
        best: tuple[int, tuple[int, ...]] = (0, ())
        for first in np.flatnonzero(totals > 0).tolist():
            alike = (totals > 0) & (np.abs(shares - shares[:, [first]]).max(axis=0) <= _ALIKE)
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


def directions(measured: TableMeasurements, most: int) -> Directions | None:
    """Return the functionals that other queries than the base's and exact rows span; None for more than ``most``."""
    base = Base.of(measured)
    rows = _other_rows(measured, base, most * _MOST_ROWS)
    if rows is None:
        return None
    solved = base.normal.solve(rows)
    outside = _outside(rows, rows - base.normal.apply(solved))
    if outside.shape[1] > most:
        return None
    inside = _inside(base, solved)
    return Directions(base, inside, outside) if inside.shape[1] + outside.shape[1] <= most else None


def _other_rows(measured: TableMeasurements, base: Base, most: int) -> Floats | None:
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
