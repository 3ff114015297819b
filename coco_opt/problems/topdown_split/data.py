"""The data of a top-down split, checked, and as the arrays that programs, prices and kernels compute with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from coco_opt.array_types import Floats, Ints
from coco_opt.errors import ProblemError
from coco_opt.problem import MAX_INTEGER, checked_vector
from coco_opt.problems.linear_rows import LinearRows
from coco_opt.problems.sparse_rows import SparseRows, stacked
from coco_opt.problems.topdown_split.rows import SplitTerm


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
