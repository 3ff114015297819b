"""Predict a strategy's accuracy without data: the variance of the best linear unbiased estimate.

With weights p_k = 1 / variance, the estimate of a table has covariance N^-1, N = sum_k p_k Q_k' Q_k. Marginals share
the eigenspaces of N, one for each set T of attributes, of dimension prod over T of (values - 1): that of marginal S is
prod over attributes outside S of their values where T is part of S, and 0 elsewhere. So variances are sums over sets.
Sources: McKenna et al. 2018 (HDMM), section 7; Xiao et al. 2023 (ResidualPlanner).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from itertools import combinations
from math import prod
from typing import Any, Protocol

import numpy as np

from coco_opt.array_types import Floats
from coco_opt.errors import ProblemError
from coco_opt.privacy.budget import Neighbours
from coco_opt.privacy.cost import Cost, Epsilon
from coco_opt.topdown.budget_plan import Strategy, TablePlan
from coco_opt.topdown.queries import Query, marginal_query
from coco_opt.topdown.rows import CellClasses
from coco_opt.topdown.schema import Schema

Sets = tuple[frozenset[int], ...]

EPSILON = Epsilon(Fraction(1))
MAX_ATOMS = 4096  # distinct cells of a dense prediction: seconds, and 128 MB a matrix
_RANK = 1e-12  # eigenvalues below this part of the largest are zero


class VarianceModel(Protocol):
    """The mean variance of an answer of each workload query, as a function of the measured queries' precisions."""

    def variances(self, precisions: Floats) -> Floats:
        """Return float64[workload], infinite where the measured queries do not determine the answers."""
        ...

    def gradient(self, precisions: Floats) -> Floats:
        """Return the derivatives by the precisions, float64[workload, measured], where variances are finite."""
        ...


@dataclass(frozen=True, eq=False)
class MarginalModel:
    """Marginals of a full product of attributes: ``measured`` and ``workload`` are sets of attributes.

    ``shape`` holds the attributes' numbers of values, 1 for attributes of no query. Structural zeros never increase the
    variances: with structural zeros the values are upper bounds.
    """

    shape: tuple[int, ...]
    measured: Sets
    workload: Sets

    def variances(self, precisions: Floats) -> Floats:
        """Return the closed form; O(sets x (measured + workload))."""
        spread, eigenvalues = self._shares, self._eigenvalues @ precisions
        each = np.divide(spread, eigenvalues, out=np.full(spread.shape, np.inf), where=eigenvalues > 0)
        return np.asarray(np.where(spread > 0, each, 0.0).sum(axis=1))

    def gradient(self, precisions: Floats) -> Floats:
        """Return the derivatives of the closed form."""
        eigenvalues = self._eigenvalues
        inverse = 1.0 / (eigenvalues @ precisions)
        return np.asarray(-(self._shares * inverse**2) @ eigenvalues)

    @cached_property
    def _sets(self) -> Sets:
        sizes = [(axes, size) for axes in self.workload for size in range(len(axes) + 1)]
        below = {frozenset(part) for axes, size in sizes for part in combinations(axes, size)}
        return tuple(sorted(below, key=lambda axes: (len(axes), sorted(axes))))

    @cached_property
    def _eigenvalues(self) -> Floats:
        """Return the eigenvalue of each measured Q'Q on each set's space, float64[sets, measured]."""
        outside = [self._product(set(range(len(self.shape))) - axes) for axes in self.measured]
        return np.array(
            [
                [size if part <= axes else 0.0 for axes, size in zip(self.measured, outside, strict=True)]
                for part in self._sets
            ]
        )

    @cached_property
    def _shares(self) -> Floats:
        """Return each set's part of the mean variance over its inverse eigenvalue, float64[workload, sets]."""
        rows = []
        for axes in self.workload:
            scale = self._product(set(range(len(self.shape))) - axes) / self._product(axes)
            rows.append([scale * self._product(part, less=1) if part <= axes else 0.0 for part in self._sets])
        return np.array(rows)

    def _product(self, axes: frozenset[int] | set[int], less: int = 0) -> float:
        return float(np.prod([self.shape[axis] - less for axis in axes]))


@dataclass(frozen=True, eq=False, slots=True)
class DenseModel:
    """Any queries over few cells: sparse matrices (answers, cells), ``measured`` and ``workload``.

    The last inverse is kept: a search needs variances and their gradient at the same precisions.
    """

    measured: tuple[Any, ...]
    workload: tuple[Any, ...]
    _last: dict[bytes, tuple[Floats, Floats]] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, measured: Sequence[Query], workload: Sequence[Query], most: int = MAX_ATOMS) -> DenseModel:
        """Merge cells that no query distinguishes into atoms. Raises ProblemError for more than ``most`` atoms."""
        atoms = CellClasses.of([query.operator for query in (*measured, *workload)], measured[0].operator.cells)
        if atoms.count > most:
            raise ProblemError(
                f"the queries distinguish {atoms.count:,} cells, more than the {most:,} that can be predicted: use "
                "marginals only, or fewer attributes"
            )
        matrices = [query.operator.to_sparse()[:, atoms.first].astype(np.float64) for query in (*measured, *workload)]
        return cls(tuple(matrices[: len(measured)]), tuple(matrices[len(measured) :]))

    def variances(self, precisions: Floats) -> Floats:
        """Return traces of Q N^-1 Q' over the answers; O(atoms^3)."""
        inverse, missed = self._inverse(precisions)
        result = []
        for matrix in self.workload:
            lost = ((matrix @ missed) ** 2).sum() > 1e-9 * matrix.power(2).sum()
            result.append(np.inf if lost else float(matrix.multiply(matrix @ inverse).sum()) / matrix.shape[0])
        return np.array(result)

    def gradient(self, precisions: Floats) -> Floats:
        """Return -||Q_k N^-1 Q'||^2 / answers for every workload query; O(atoms^3)."""
        inverse, _ = self._inverse(precisions)
        solved = [(matrix @ inverse, matrix.shape[0]) for matrix in self.workload]
        return np.array(
            [[-((q @ projected.T) ** 2).sum() / answers for q in self.measured] for projected, answers in solved]
        )

    def _inverse(self, precisions: Floats) -> tuple[Floats, Floats]:
        """Return the pseudo-inverse of N, and a basis of what no query measures, float64[atoms, none]."""
        key = np.asarray(precisions).tobytes()
        if key not in self._last:
            information = np.zeros((self.measured[0].shape[1],) * 2)
            for precision, matrix in zip(precisions, self.measured, strict=True):
                information += precision * (matrix.T @ matrix).toarray()
            self._last.clear()
            self._last[key] = _inverted(information)
        return self._last[key]


def _inverted(matrix: Floats) -> tuple[Floats, Floats]:
    """Return the pseudo-inverse of a positive semidefinite matrix and a basis of its kernel, float64[n, dimension].

    By a Cholesky factor, a tenth of the work of eigenvalues, unless the condition tells that there may be a kernel:
    LAPACK's estimate is at most the ratio of the extreme eigenvalues, up to a small factor.
    """
    from scipy.linalg.lapack import dpocon, dpotrf, dpotri

    factor, failed = dpotrf(matrix, lower=1)
    if not failed and dpocon(factor, np.abs(matrix).sum(axis=0).max(), uplo="L")[0] > 10.0 * _RANK:
        lower = np.tril(dpotri(factor, lower=1)[0])
        return lower + np.tril(lower, -1).T, np.zeros((len(matrix), 0))
    values, vectors = np.linalg.eigh(matrix)
    positive = values > _RANK * max(values[-1], 0.0)
    along = vectors[:, positive]
    return (along / values[positive]) @ along.T, vectors[:, ~positive]


def variance_model(
    measured: Sequence[Query], workload: Sequence[Query], schema: Schema, most: int = MAX_ATOMS
) -> VarianceModel:
    """Return the closed form for marginals whose attributes take all combinations, matrices otherwise.

    Marginals over more than ``most`` combinations get the closed form's bounds. Raises ProblemError for other queries
    that distinguish more cells.
    """
    closed = closed_form(measured, workload, schema)
    if closed is None:
        return DenseModel.of(measured, workload, most)
    union = frozenset[int]().union(*closed.measured, *closed.workload)
    combinations_met = marginal_query(sorted(union), schema).answers
    if combinations_met < prod(closed.shape) and combinations_met <= most:
        return DenseModel.of(measured, workload)
    return closed


def closed_form(measured: Sequence[Query], workload: Sequence[Query], schema: Schema) -> MarginalModel | None:
    """Return the closed form, upper bounds where combinations cannot occur; None where a query is no marginal."""
    sets, workload_sets = marginals_of(measured), marginals_of(workload)
    if sets is None or workload_sets is None:
        return None
    union = frozenset[int]().union(*sets, *workload_sets)
    return MarginalModel(
        tuple(size if axis in union else 1 for axis, size in enumerate(schema.shape)), sets, workload_sets
    )


def predicted_variance(
    strategy: Strategy,
    query: Query,
    schema: Schema,
    *,
    cost: Cost = EPSILON,
    neighbours: Neighbours = "add_remove",
) -> float:
    """Return the mean variance (people squared) of a query's answers in one region, from its own level's measurements.

    ``cost`` is that of the level; infinite where the strategy does not determine the answers.
    """
    return float(predicted_variances(strategy, (query,), schema, cost, neighbours)[0])


def predicted_variances(
    strategy: Strategy, workload: Sequence[Query], schema: Schema, cost: Cost, neighbours: Neighbours = "add_remove"
) -> Floats:
    """Return ``predicted_variance`` of each query of a workload, float64[workload]."""
    plan = TablePlan.of_levels(strategy, [cost], neighbours)
    precisions = np.array([1.0 / plan.variance(0, index) for index in range(len(strategy.queries))])
    return variance_model(strategy.queries, workload, schema).variances(precisions)


def marginals_of(queries: Sequence[Query]) -> Sets | None:
    """Return the sets of attributes of marginals, or None where a query is no marginal."""
    marginals = [query.marginal for query in queries]
    return (
        None
        if any(marginal is None for marginal in marginals)
        else tuple(marginal for marginal in marginals if marginal is not None)
    )
