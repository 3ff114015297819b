"""What all linear estimates give: tables, answers to any query, exact standard errors, and what is determined.

The normal equations of tables measured by weighted queries, N = sum_q w_q Q_q' Q_q, factored once and solved often.

Up to ``DENSE_CELLS`` cells N is a dense matrix: a Cholesky factor where it is safely definite, else its eigenvectors
and the pseudo-inverse; with fewer answers than cells these come from the smaller matrix over the answers. Beyond,
conjugate gradients through the operators, which from zero find the pseudo-inverse's solution too.

The rows of a level that hold exactly in some of its regions: constraints whose two sides are equal.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from os import cpu_count
from typing import TYPE_CHECKING

import numpy as np

from coco_opt.array_types import Flags, Floats, Ints
from coco_opt.errors import ProblemError, SolverError
from coco_opt.execution import Threads
from coco_opt.histograms import Hierarchy
from coco_opt.operators import Grouping, Operator
from coco_opt.topdown.rows import MatrixOperator

if TYPE_CHECKING:
    from coco_opt.topdown.noisy_measurements import TableMeasurements


_BLOCK = 1024  # regions whose tables are in memory at a time


@dataclass(frozen=True, eq=False)
class LinearEstimates(ABC):
    """Linear unbiased estimates of the tables of all regions, with exact standard errors.

    Levels are counted from the root. ``regions`` are consecutive regions of a level, counted in it; the results have
    one row for each of them. A subclass says how tables are estimated, what is determined and how large the errors
    are; answers to queries follow from the tables.
    """

    hierarchy: Hierarchy

    @abstractmethod
    def tables(self, level: int, regions: slice = slice(None)) -> Floats:
        """Return estimated tables [regions, cells]; they may be negative and fractional.

        Where the answers do not determine a table this is its part in the span of what was measured: read ``answers``
        of a query that they do determine.
        """

    @abstractmethod
    def known(self, operator: Operator, level: int, regions: slice = slice(None)) -> Flags:
        """Return which answers of a query are determined, bool[regions, answers]."""

    @abstractmethod
    def standard_errors(self, operator: Operator, level: int, regions: slice = slice(None)) -> Floats:
        """Return exact standard errors [regions, answers] in people, infinite where undetermined.

        They depend on the plan, the hierarchy and the constraints alone, not on any answer.
        """

    def determines(self, operator: Operator, level: int) -> Flags:
        """Return which answers (answers,) of a query are determined in every region of a level."""
        return np.asarray(self.known(operator, level).all(axis=0))

    def answers(self, operator: Operator, level: int, regions: slice = slice(None)) -> Floats:
        """Return estimated answers [regions, answers] of any query, NaN where undetermined.

        Tables are computed and dropped block by block: whole levels of them need not fit in memory.
        """
        selected = range(len(self.hierarchy.level_range(level)))[regions]
        starts = range(selected.start, selected.stop, _BLOCK)
        blocks = [operator.apply(self.tables(level, slice(at, min(at + _BLOCK, selected.stop)))) for at in starts]
        answers = np.concatenate([np.zeros((0, operator.answers)), *blocks])
        return np.where(self.known(operator, level, regions), answers, np.nan)

    def of_level(self, level: int) -> Callable[[Operator, slice], Floats]:
        """Return a function from a query and regions to ``answers``; all tables of the level are computed once."""
        regions, cells = len(self.hierarchy.level_range(level)), self.tables(level, slice(0, 0)).shape[1]
        # In columns: sums over groups of cells read them so, once for every query.
        tables = np.empty((regions, cells), order="F")

        def fill(start: int) -> None:
            block = slice(start, min(start + _BLOCK, regions))
            tables[block] = self.tables(level, block)

        Threads(cpu_count() or 1).map(fill, range(0, regions, _BLOCK))

        def answers(operator: Operator, regions: slice = slice(None)) -> Floats:
            return np.where(self.known(operator, level, regions), operator.apply(tables[regions]), np.nan)

        return answers


def checked_variance(measured: TableMeasurements, level: int, query: int) -> float:
    """Return the variance of a query's answers at a level, infinite where it was not measured.

    Raises ProblemError for a variance that is not positive and finite: exact answers are invariants, not measurements.
    """
    if measured.answers[level][query] is None:
        return np.inf
    variance, by_region = float(measured.variance(level, query)), measured.by_region.get((level, query))
    if not 0.0 < variance < np.inf or (by_region is not None and not by_region.min() > 0.0):
        raise ProblemError(
            f"query {measured.queries[query].name!r} at level {level} has noise of variance {variance}: it must "
            "be positive and finite; an exact answer is an invariant"
        )
    return variance


def kinds_of(measured: TableMeasurements) -> tuple[Floats, Ints]:
    """Return the precisions [kinds, queries] of the different regions of every level, and each region's kind."""
    weights: list[Floats] = []
    kind_of = np.zeros(measured.hierarchy.regions, np.int64)
    for level in range(measured.hierarchy.levels):
        regions, queries = measured.hierarchy.level_range(level), range(len(measured.queries))
        kinds, of = (
            1.0 / np.array([[checked_variance(measured, level, query) for query in queries]]),
            np.zeros(len(regions), int),
        )
        if any((level, query) in measured.by_region for query in queries):
            each = np.stack([1.0 / measured.region_variances(level, query) for query in queries], axis=1)
            kinds, of = np.unique(each, axis=0, return_inverse=True)
        kind_of[regions.start : regions.stop] = sum(len(earlier) for earlier in weights) + of.reshape(-1)
        weights.append(kinds)
    return np.concatenate(weights), kind_of


DENSE_CELLS = 4096
_SAFE = 1e-7  # smallest pivot of a Cholesky factor, relative to the largest, that is taken for definite
_CONVERGED = 1e-12  # residual, or curvature, relative to its start, at which conjugate gradients end
_ROUNDING = 1e-8  # relative residual up to which a row counts as lying in the span of the queries


class NormalEquations:
    """N = sum_q w_q Q_q' Q_q over the cells of a table; ``solve`` applies its pseudo-inverse.

    ``operators`` and ``weights`` (nonnegative) are the queries'. Raises ProblemError where they do not fit together.
    """

    def __init__(self, operators: Sequence[Operator], weights: Floats, dense_cells: int = DENSE_CELLS) -> None:
        if len(operators) != len(weights) or not operators or (np.asarray(weights) < 0).any():
            raise ProblemError("normal equations need one weight of 0 or more for every query")
        if len({operator.cells for operator in operators}) > 1:
            raise ProblemError("all queries must be about tables of the same cells")
        self.cells = operators[0].cells
        self._terms = [(float(w), operator) for w, operator in zip(weights, operators, strict=True) if w > 0]
        self._dense = self.cells <= dense_cells

    def apply(self, tables: Floats) -> Floats:
        """Return N times each table [..., cells]."""
        out = np.zeros_like(tables)
        for weight, operator in self._terms:
            out += weight * operator.adjoint(operator.apply(tables))
        return out

    def solve(self, right: Floats) -> Floats:
        """Return N^+ times each right side [..., cells]; O(cells^2) each where N is dense."""
        rows = right.reshape(-1, self.cells)
        solutions = self._solve_dense(rows) if self._dense else np.array([self._gradients(row) for row in rows])
        return np.asarray(solutions.reshape(right.shape))

    @property
    def definite(self) -> bool:
        """Whether N is known to be definite, so that every answer is determined."""
        return self._dense and (self._sees_every_cell or self._cholesky is not None)

    @property
    def _sees_every_cell(self) -> bool:
        """Whether a query of every cell weighs so much that the Cholesky factor, not computed yet, must be safe.

        N is then w I and more. So no pivot is below sqrt(w), and none is above the root of the largest entry of N.
        """
        own = [weight for weight, operator in self._terms if isinstance(operator, Grouping) and operator.is_identity]
        return bool(own) and max(own) > (2 * _SAFE) ** 2 * sum(weight for weight, _ in self._terms)

    def determines(self, operator: Operator) -> Flags:
        """Return which answers (answers,) of a query every solution of the normal equations agrees on."""
        if self.definite:
            return np.ones(operator.answers, dtype=bool)
        rows = operator.to_sparse()
        determined = np.empty(operator.answers, dtype=bool)
        for begin in range(0, operator.answers, 256):
            block = rows[begin : begin + 256].toarray()
            seen = self._range[1] if self._dense else None
            residual = block - (self.apply(self.solve(block)) if seen is None else (block @ seen) @ seen.T)
            size = np.sqrt((block**2).sum(axis=1))
            determined[begin : begin + 256] = np.sqrt((residual**2).sum(axis=1)) <= _ROUNDING * np.maximum(size, 1.0)
        return determined

    @cached_property
    def _matrix(self) -> Floats:
        out = np.zeros((self.cells, self.cells))
        for weight, operator in self._terms:
            out += weight * _gram(operator)
        return out

    @cached_property
    def _cholesky(self) -> Floats | None:
        if sum(operator.answers for _, operator in self._terms) < self.cells:
            return None
        try:
            factor: Floats = np.asarray(np.linalg.cholesky(self._matrix), dtype=np.float64)
        except np.linalg.LinAlgError:
            return None
        pivots = np.diag(factor)
        # In columns, as LAPACK reads it: else every solution of a few tables would copy it first.
        return np.asfortranarray(factor) if pivots.min() > _SAFE * pivots.max() else None

    @cached_property
    def _range(self) -> tuple[Floats, Floats]:
        """Return the nonzero eigenvalues (k,) of N and their vectors (cells, k): the tables that answers can see."""
        from scipy.sparse import csr_array, vstack

        none = csr_array((0, self.cells))
        rows = csr_array(vstack([none, *(np.sqrt(weight) * operator.to_sparse() for weight, operator in self._terms)]))
        few = rows.shape[0] < self.cells  # N = A'A has the nonzero eigenvalues of A A', which is smaller then
        values, vectors = np.linalg.eigh((rows @ rows.T).toarray() if few else self._matrix)
        nonzero = values > self.cells * 1e-14 * max(float(values.max(initial=0.0)), np.finfo(np.float64).tiny)
        values, vectors = values[nonzero], vectors[:, nonzero]
        return values, np.asarray(rows.T @ vectors) / np.sqrt(values) if few else vectors

    def _solve_dense(self, rows: Floats) -> Floats:
        if self._cholesky is not None:
            from scipy.linalg import cho_solve

            return np.asarray(cho_solve((self._cholesky, True), rows.T, check_finite=False).T)
        values, vectors = self._range
        return np.asarray(((rows @ vectors) / values) @ vectors.T)

    def _gradients(self, row: Floats) -> Floats:
        """Return N^+ row by conjugate gradients; of a row outside the span of the queries, wherever they stop."""
        solution, residual = np.zeros(self.cells), row.copy()
        direction, size = residual.copy(), float(residual @ residual)
        enough = _CONVERGED**2 * size
        for _ in range(10 * self.cells):
            if size <= enough:
                return solution
            image = self.apply(direction)
            bend = float(direction @ image)
            if bend <= _CONVERGED * float(direction @ direction):
                return solution
            solution += size / bend * direction
            residual -= size / bend * image
            direction, size = residual + float(residual @ residual) / size * direction, float(residual @ residual)
        raise SolverError(f"conjugate gradients did not converge on {self.cells} cells in {10 * self.cells} steps")


def _gram(operator: Operator) -> Floats:
    """Return Q'Q (cells, cells)."""
    if isinstance(operator, Grouping):
        labels = operator.labels
        return np.asarray((labels[:, None] == np.where(labels < 0, -2, labels)), np.float64)
    rows = operator.to_sparse()
    return np.asarray((rows.T @ rows).toarray())


@dataclass(frozen=True, eq=False, slots=True)
class ExactRows:
    """``operator`` (rows, cells); where each row is exact, ``exact`` [regions of a level, rows]; and its ``values``."""

    operator: Operator
    exact: Flags
    values: Floats

    @classmethod
    def of(cls, measured: TableMeasurements, level: int) -> ExactRows:
        """Return the exact rows of a level, without those that are exact nowhere."""
        from scipy.sparse import csr_array

        regions = measured.hierarchy.level_range(level)
        constraints = measured.constraints_of(regions)
        if constraints is None:
            none = MatrixOperator(csr_array((0, measured.queries[0].operator.cells)))
            return cls(none, np.zeros((len(regions), 0), np.bool_), np.zeros((len(regions), 0)))
        exact = constraints.lower == constraints.upper
        rows = np.flatnonzero(exact.any(axis=0))
        operator = MatrixOperator(csr_array(constraints.operator.to_sparse()[rows]))
        return cls(operator, np.ascontiguousarray(exact[:, rows]), constraints.lower[:, rows].astype(np.float64))


def groups(numbers: Ints) -> Iterator[tuple[int, Ints]]:
    """Yield each distinct number and where it stands."""
    order = np.argsort(numbers, kind="stable")
    bounds = np.flatnonzero(np.diff(numbers[order])) + 1
    for at in np.split(order, bounds):
        if at.size:
            yield int(numbers[at[0]]), at
