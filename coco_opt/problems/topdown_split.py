"""The top-down split: tables of all children of a region at once, nearest to their noisy answers in squares.

Over tables x_j (cells), one a child::

    minimise  sum_j sum_q w_jq ||Q_q x_j - m_jq||^2
    subject to  x >= 0,  sum_j x_j = parent,  lower_j <= C x_j <= upper_j.

With w = 1 / variance of the measurements it is the L2 step of the 2020 Census TopDown algorithm (Abowd et al. 2022).
Cells in which the parent is 0 are 0 in every child and never become variables; without a parent (at the root, say) no
sums are asked.

Multipliers are prices lambda (cells) of the parent sums and nu_j of the rows of C. With the gradient g_j at x, reduced
costs s_j = g_j - lambda - C' nu_j and any diagonal D below the Hessian's half, weak duality bounds the distance to the
optimum by

    sum_jc max_{0 <= y <= u} [s (x - y) - D (x - y)^2]  +  sum_jk nu+ (C x - lower) + nu- (upper - C x),

every term nonnegative, and |lambda| times what the sums of x are off by. D is what the rows with a single cell weigh;
without such rows it is 0 and the bound is the linear one, still valid. The cap u is the parent's count, or what any
table better than x can reach.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coco_opt.errors import ProblemError
from coco_opt.forms import FloatArray, Formulation, LinearProgram, QuadraticProgram
from coco_opt.problem import MAX_INTEGER, Problem, checked_vector, plain_answer
from coco_opt.problems.split_rows import Floats, LinearRows, SparseRows, SplitTerm, stacked

_ENOUGH = 1e-8  # a relative gap that needs no better prices
_ROUNDS = 12
_BEYOND = 1e100  # a cell of more is no answer: its square might be infinite, and infinity proves anything


@dataclass(frozen=True, eq=False, slots=True)
class SplitDual:
    """Prices of the parent sums float64[cells] and of the constraints float64[children, rows of C]."""

    parent: Floats
    rows: Floats


@dataclass(frozen=True, eq=False, init=False)
class TopdownSplit(Problem[Floats, SplitDual]):
    """Joint nonnegative least squares over all children: ``TopdownSplit(terms, parent, constraints)``.

    parent: numbers from 0 to 2^53 float64[cells], whole or not, or None. Values are float64[children, cells].
    Raises ProblemError for terms, parent and constraints that do not fit together.
    """

    kind: ClassVar[str] = "topdown_split"
    forms: ClassVar[tuple[type[LinearProgram], ...]] = (QuadraticProgram,)
    # Repair mends to 1e-13; with the usual 1e-9 a person of a billion does not count.
    feasibility_tolerance: ClassVar[float] = 1e-10

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
        given = None if parent is None else checked_vector(parent, "parent")
        if given is not None:
            cells.add(given.size)
            if given.size and not 0.0 <= given.min() <= given.max() <= MAX_INTEGER:
                raise ProblemError("a parent's cells must be nonnegative and at most 2^53")
        if len(cells) > 1 or len(children) > 1:
            counts = f"cells: {sorted(cells)}, children: {sorted(children)}"
            raise ProblemError(f"terms, parent and constraints must be of one size, not of several ({counts})")
        object.__setattr__(self, "parent", given)

    @property
    def shape(self) -> tuple[int, int]:
        """Return (children, cells)."""
        return self.terms[0].answers.shape[0], self.terms[0].operator.cells

    @property
    def variables(self) -> int:
        """Return the number of cells of all children that may hold anything."""
        return self.shape[0] * self.kept.size

    @cached_property
    def kept(self) -> NDArray[np.int64]:
        """Return the cells that may hold anything: those in which the parent does."""
        return np.arange(self.shape[1]) if self.parent is None else np.flatnonzero(self.parent)

    @cached_property
    def queries(self) -> SparseRows:
        """Return all terms' rows on the kept cells."""
        return stacked([term.operator for term in self.terms], self.kept)

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
        """Return the parent's kept cells."""
        return None if self.parent is None else self.parent[self.kept]

    @cached_property
    def rows(self) -> SparseRows:
        """Return the constraints' rows on the kept cells."""
        return stacked([] if self.constraints is None else [self.constraints.operator], self.kept)

    @cached_property
    def sides(self) -> tuple[Floats, Floats]:
        """Return the constraints' lower and upper sides [rows, children]."""
        if self.constraints is None:
            return np.zeros((0, self.shape[0])), np.zeros((0, self.shape[0]))
        return np.ascontiguousarray(self.constraints.lower.T), np.ascontiguousarray(self.constraints.upper.T)

    @cached_property
    def single(self) -> tuple[Floats, Floats]:
        """Return what the rows with one cell weigh and answer in each cell, both [cells, children].

        Their part of the objective is ``weight (x - answer)^2`` and a constant. No weight, no answer: both are 0.
        """
        from coco_opt.kernels import split_certificate

        rows, n = self.queries, self.kept.size
        return split_certificate.single_cells(rows.start, rows.cell, rows.value, self.weights, self.answers, n)

    @cached_property
    def scale(self) -> float:
        """Return the largest magnitude of what a table must meet: parent and finite sides, at least 1.

        Noise is no part of it, or much noise would pass for leave to break the constraints; without a parent the
        answers are, for only they tell how large a table is.
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

    def accept(self, answer: Any) -> Floats:
        """Return the answer as float64."""
        return plain_answer(answer).astype(np.float64)

    def table(self, x: Floats) -> Floats:
        """Return tables [children, cells] as [kept cells, children], the order all kernels work in."""
        return np.ascontiguousarray(x[:, self.kept].T, dtype=np.float64)

    def expand(self, table: Floats) -> Floats:
        """Return tables [kept cells, children] as [children, cells], 0 in all other cells."""
        whole = np.zeros(self.shape)
        whole[:, self.kept] = table.T
        return whole

    def objective(self, x: Floats) -> float:
        """Return the weighted sum of squared residuals."""
        residual = self.queries.apply(self.table(x)) - self.answers
        return float(np.einsum("ij,ij,ij->", self.weights, residual, residual))

    def violation(self, x: Floats) -> float:
        """Return the largest negative cell, error of a parent sum or distance from a constraint's side."""
        if x.shape != self.shape or not float(np.abs(x).max(initial=0.0)) <= _BEYOND:
            return np.inf
        worst = -float(x.min(initial=0.0))
        if self.parent is not None:
            worst = max(worst, float(np.abs(x.sum(axis=0) - self.parent).max(initial=0.0)))
        return max(worst, self.broken(self.table(x)))

    def broken(self, table: Floats) -> float:
        """Return the largest distance of a row of C from its sides, for a table [kept cells, children]."""
        if self.constraints is None:
            return 0.0
        values, (lower, upper) = self.rows.apply(table), self.sides
        below = float((lower - values).max(initial=0.0))
        return max(below, float((values - upper).max(initial=0.0)))

    def repair(self, x: Floats) -> Floats:
        """Return the table without negative cells whose sums and constraints are mended in proportion to the cells."""
        from coco_opt.problems.split_prices import EXACT, mended

        broken = self.violation(x)
        if broken == np.inf or (broken <= EXACT * self.scale and float(x.min(initial=0.0)) >= 0.0):
            return x

        return self.expand(mended(self, self.table(x)))

    def multipliers(self, x: Floats) -> SplitDual:
        """Rebuild prices from x: least squares on the cells in use, then one price after the other while it helps."""
        from coco_opt.problems.split_prices import rebuilt

        table = self.table(x)
        return rebuilt(self, table, _ENOUGH * max(1.0, self.objective(x)), _ROUNDS)

    def admissible(self, multipliers: SplitDual) -> SplitDual:
        """Return finite prices, 0 at missing sides and, for a wrong shape, everywhere."""
        shapes = (self.shape[1],), self.sides[0].T.shape
        parent, rows = (
            np.where(np.isfinite(given), given, 0.0) if given.shape == shape else np.zeros(shape)
            for given, shape in zip((multipliers.parent, multipliers.rows), shapes, strict=True)
        )
        lower, upper = (side.T for side in self.sides)
        rows = np.where(((rows > 0.0) & np.isinf(lower)) | ((rows < 0.0) & np.isinf(upper)), 0.0, rows)
        return SplitDual(parent if self.parent is not None else np.zeros(shapes[0]), rows)

    def gap(self, x: Floats, multipliers: SplitDual) -> float:
        """Return the certified gap of the module docstring."""
        from coco_opt.problems.split_prices import gap

        return gap(self, self.table(x), multipliers.parent[self.kept], multipliers.rows.T)

    def certified_gap(self, x: Floats, candidates: Iterable[SplitDual | None] = ()) -> float:
        """Return the smallest gap over the candidates and, where these are not enough, the prices rebuilt from x."""
        given = (candidate for candidate in candidates if candidate is not None)
        best = min((self.gap(x, self.admissible(candidate)) for candidate in given), default=np.inf)
        if best <= _ENOUGH * max(1.0, self.objective(x)):
            return best
        return min(best, self.gap(x, self.multipliers(x)))

    @property
    def resolution(self) -> float:
        """Return the cost of moving every answer by the last digit of the largest number."""
        last = np.finfo(np.float64).eps * self.magnitude
        return float(self.weights.sum()) * last**2

    def formulate(self, form: type[LinearProgram]) -> Formulation[FloatArray, SplitDual]:
        """Write the quadratic program in distances from single cells' answers and in the other rows' residuals."""
        if form is not QuadraticProgram:
            raise self._no_form(form)
        from coco_opt.problems.split_program import lifted

        return lifted(self)
