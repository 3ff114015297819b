"""The data of a top-down split, checked, and as the arrays that programs, prices and kernels compute with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from coco_opt.array_types import Floats, Ints
from coco_opt.errors import ProblemError
from coco_opt.operators import Operator
from coco_opt.problem import MAX_INTEGER, as_array, checked_vector
from coco_opt.problems.linear_rows import LinearRows, checked_table
from coco_opt.problems.sparse_rows import SparseRows, stacked

MAX_WEIGHT = 1e60  # with answers up to 2^53 a square times a weight stays finite


@dataclass(frozen=True, eq=False, init=False)
class SplitTerm:
    """One query's noisy answers in every child: ``sum_j w_j ||Q x_j - answers_j||^2``.

    Parameters
    ----------
    operator : Operator
        The query Q, a linear map from cells to answers; see ``coco_opt.operators``.
    answers : array_like, shape (children, answers)
        The noisy answers; finite.
    weights : array_like, shape (children,) or (children, answers), or float
        Weights from 0 to 1e60, usually 1 / variance; 0 where a child was not measured.

    Raises
    ------
    ProblemError
        The arrays are not like this.

    Examples
    --------
    >>> from coco_opt import SplitTerm, TopdownSplit, solve
    >>> from coco_opt.operators import identity, total
    >>> cells = SplitTerm(identity(2), [[3.5, 1.0], [0.5, 2.0]], 1.0)
    >>> totals = SplitTerm(total(2), [[4.0], [3.0]], [0.5, 0.5])
    >>> solve(TopdownSplit([cells, totals], parent=[4, 3])).value.round(6).tolist()
    [[3.375, 0.875], [0.625, 2.125]]
    """

    operator: Operator
    answers: Floats
    weights: Floats

    def __init__(self, operator: Operator, answers: ArrayLike, weights: ArrayLike) -> None:
        table = checked_table(answers, operator.answers, "the answers of a term")
        each = as_array(weights, "weights", np.float64)
        if table.size and not -MAX_INTEGER <= table.min() <= table.max() <= MAX_INTEGER:
            raise ProblemError("the answers of a term must be finite and not exceed 2^53 in magnitude")
        if each.ndim == 1:
            each = each[:, None]
        if each.ndim > 2 or any(have not in (1, need) for have, need in zip(each.shape, table.shape, strict=False)):
            raise ProblemError(f"weights must be one number a child, or one an answer, for {table.shape} answers")
        if each.size and not 0.0 <= each.min() <= each.max() <= MAX_WEIGHT:
            raise ProblemError("weights must be finite, nonnegative and at most 1e60")
        object.__setattr__(self, "operator", operator)
        for name, values in (("answers", table), ("weights", np.array(np.broadcast_to(each, table.shape)))):
            values.setflags(write=False)
            object.__setattr__(self, name, values)


@dataclass(frozen=True, eq=False, slots=True)
class SplitDual:
    """Prices of the parent sums float64[cells] and of the constraints float64[children, rows of C].

    ``answers`` float64[children, answers], where given, are prices of the residuals of answers to more than one cell,
    2 w r at the optimum. They replace the gradient at a point, whose rounding counts once for each person of a cell.
    """

    parent: Floats
    rows: Floats
    answers: Floats | None = None


@dataclass(frozen=True, eq=False, init=False)
class SplitData:
    """Noisy answers, parent and constraints of all children: ``SplitData(terms, parent, constraints)``.

    parent: numbers from 0 to 2^53 float64[cells], integer or not, or None. Raises ProblemError for terms, parent and
    constraints that do not fit together.
    """

    terms: tuple[SplitTerm, ...]
    parent: Floats | None
    constraints: LinearRows | None

    def __init__(
        self, terms: Sequence[SplitTerm], parent: ArrayLike | None = None, constraints: LinearRows | None = None
    ) -> None:
        object.__setattr__(self, "terms", tuple(terms))
        object.__setattr__(self, "constraints", constraints)
        if not self.terms:
            raise ProblemError("a split needs at least one term")
        cells = {part.operator.cells for part in self.terms}
        children = {part.answers.shape[0] for part in self.terms}
        if constraints is not None:
            cells.add(constraints.operator.cells)
            children.add(constraints.lower.shape[0])
        parent_cells = None if parent is None else checked_vector(parent, "parent")
        if parent_cells is not None:
            cells.add(parent_cells.size)
            if parent_cells.size and not 0.0 <= parent_cells.min() <= parent_cells.max() <= MAX_INTEGER:
                raise ProblemError("a parent's cells must be nonnegative and at most 2^53")
        if len(cells) > 1 or len(children) > 1:
            counts = f"cells: {sorted(cells)}, children: {sorted(children)}"
            raise ProblemError(f"terms, parent and constraints must be of one size, not of several ({counts})")
        object.__setattr__(self, "parent", parent_cells)

    @property
    def shape(self) -> tuple[int, int]:
        """Return (children, cells)."""
        return self.terms[0].answers.shape[0], self.terms[0].operator.cells

    @cached_property
    def occupied_cells(self) -> Ints:
        """Return the cells that may hold anything: those in which the parent does."""
        return np.arange(self.shape[1]) if self.parent is None else np.flatnonzero(self.parent)

    @cached_property
    def queries(self) -> SparseRows:
        """Return all terms' rows on the occupied cells."""
        return stacked([term.operator for term in self.terms], self.occupied_cells)

    @cached_property
    def answers(self) -> Floats:
        """Return all terms' answers [rows, children]."""
        return np.ascontiguousarray(np.concatenate([term.answers for term in self.terms], axis=1).T)

    @cached_property
    def weights(self) -> Floats:
        """Return all terms' weights [rows, children]."""
        return np.ascontiguousarray(np.concatenate([term.weights for term in self.terms], axis=1).T)

    @cached_property
    def sums(self) -> Floats | None:
        """Return the parent's occupied cells."""
        return None if self.parent is None else self.parent[self.occupied_cells]

    @cached_property
    def rows(self) -> SparseRows:
        """Return the constraints' rows on the occupied cells."""
        return stacked([] if self.constraints is None else [self.constraints.operator], self.occupied_cells)

    @cached_property
    def sides(self) -> tuple[Floats, Floats]:
        """Return the constraints' lower and upper sides [rows, children]."""
        if self.constraints is None:
            return np.zeros((0, self.shape[0])), np.zeros((0, self.shape[0]))
        return np.ascontiguousarray(self.constraints.lower.T), np.ascontiguousarray(self.constraints.upper.T)

    @cached_property
    def single(self) -> tuple[Floats, Floats]:
        """Return the weight and the mean answer of the rows with one cell, both [cells, children].

        Their part of the objective is ``weight (x - answer)^2`` and a constant. No weight, no answer: both are 0.
        """
        from coco_opt.kernels import split_certificate

        rows, n = self.queries, self.occupied_cells.size
        return split_certificate.single_cells(rows.start, rows.cell, rows.value, self.weights, self.answers, n)

    @cached_property
    def scale(self) -> float:
        """Return the largest magnitude of what a table must meet: parent and finite sides, at least 1.

        Noise is no part of it, for large noise would otherwise loosen the constraints' tolerance; without a parent the
        answers are included, because nothing else shows how large a table is.
        """
        lower, upper = self.sides
        largest = self._largest_answer if self.sums is None else float(self.sums.max(initial=0.0))
        for side in (lower,) if lower is upper else (lower, upper):
            largest = max(largest, float(np.abs(side).max(initial=0.0, where=np.isfinite(side))))
        return max(1.0, largest)

    @cached_property
    def magnitude(self) -> float:
        """Return the largest number there is to compute with: ``scale`` or an answer that weighs anything."""
        return max(self.scale, self._largest_answer)

    @property
    def _largest_answer(self) -> float:
        return float(np.abs(self.answers).max(initial=0.0, where=self.weights > 0.0))

    def table(self, x: Floats) -> Floats:
        """Return tables [children, cells] as [occupied cells, children], the order all kernels work in."""
        return np.ascontiguousarray(x[:, self.occupied_cells].T, dtype=np.float64)

    def expand(self, table: Floats) -> Floats:
        """Return tables [occupied cells, children] as [children, cells], 0 in all other cells."""
        tables = np.zeros(self.shape)
        tables[:, self.occupied_cells] = table.T
        return tables

    def broken(self, table: Floats) -> float:
        """Return the largest distance of a row of C from its sides, for a table [occupied cells, children]."""
        if self.constraints is None:
            return 0.0
        values, (lower, upper) = self.rows.apply(table), self.sides
        below = float((lower - values).max(initial=0.0))
        return max(below, float((values - upper).max(initial=0.0)))
