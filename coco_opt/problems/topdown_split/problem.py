"""The top-down split: tables of all children of a region together, nearest to their noisy answers in squares.

Over tables x_j (cells), one a child::

    minimise  sum_j sum_q w_jq ||Q_q x_j - m_jq||^2
    subject to  x >= 0,  sum_j x_j = parent,  lower_j <= C x_j <= upper_j.

With w = 1 / variance of the measurements it is the L2 step of the 2020 Census TopDown algorithm (Abowd et al. 2022).
Cells in which the parent is 0 are 0 in every child and never become variables; without a parent (at the root, say)
there are no sums to meet.

Multipliers are prices lambda (cells) of the parent sums and nu_j of the rows of C. With the gradient g_j at x, reduced
costs s_j = g_j - lambda - C' nu_j and any diagonal D below the Hessian's half, weak duality bounds the distance to the
optimum by

    sum_jc max_{0 <= y <= u} [s (x - y) - D (x - y)^2]  +  sum_jk nu+ (C x - lower) + nu- (upper - C x),

every term nonnegative, and |lambda| times the errors of the sums of x. D is the weight of the rows with a single cell;
without such rows it is 0 and the bound is the linear one, still valid. The cap u is the parent's count, or what any
table better than x can reach.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from coco_opt.array_types import Floats
from coco_opt.forms import Formulation, LinearProgram, QuadraticProgram
from coco_opt.operators import Grouping, identity, total
from coco_opt.problem import Problem, plain_answer
from coco_opt.problems.linear_rows import LinearRows
from coco_opt.problems.topdown_split import prices
from coco_opt.problems.topdown_split.data import SplitData, SplitDual, SplitTerm
from coco_opt.problems.topdown_split.program import lifted

_ENOUGH = 1e-8  # a relative gap that needs no better prices
_BEYOND = 1e100  # a cell of more is no answer: its square might be infinite, and infinity proves anything


@dataclass(frozen=True, eq=False, init=False)
class TopdownSplit(SplitData, Problem[Floats, SplitDual]):
    """Joint nonnegative least squares over all children: ``TopdownSplit(terms, parent, constraints)``.

    Minimise sum_j sum_q w_jq |Q_q x_j - m_jq|^2 over nonnegative tables x_j of the children that sum to the parent's
    table and meet the constraints.

    Parameters
    ----------
    terms : sequence of SplitTerm
        The noisy answers m of each query Q in every child, and their weights w, usually 1 / variance.
    parent : array_like, shape (cells,), optional
        The parent's table, in persons; without it there are no sums to meet.
    constraints : LinearRows, optional
        Linear rows with a lower and an upper side for each child.

    Raises
    ------
    ProblemError
        Terms, parent and constraints do not fit together.

    Notes
    -----
    Values are float64 (children, cells). Source: Abowd et al. 2022, the L2 step of the TopDown algorithm.

    Examples
    --------
    >>> from coco_opt import TopdownSplit, solve
    >>> all(solve(split).violation <= 1e-6 for split in TopdownSplit.examples().values())
    True
    """

    kind: ClassVar[str] = "topdown_split"
    suited: ClassVar[tuple[str, ...]] = ("piqp", "clarabel")
    forms: ClassVar[tuple[type[LinearProgram], ...]] = (QuadraticProgram,)
    # Repair mends to 1e-13; with the usual 1e-9 a person of a billion does not count.
    feasibility_tolerance: ClassVar[float] = 1e-10

    @classmethod
    def examples(cls) -> Mapping[str, Self]:
        """Return splits with and without parent, constraints and answers for single cells, of large and far counts."""
        cells, parent = identity(4), [5.0, 0.0, 3.0, 9.0]
        answers = np.array([[4.0, -1.0, 0.5, 2.0], [2.0, 1.0, 3.5, 8.0], [-3.0, 0.0, 1.0, 1.0]])
        own = SplitTerm(cells, answers, np.array([1.0, 0.25, 1.0]))
        sums = SplitTerm(total(4), np.array([[6.0], [13.0], [-2.0]]), np.ones(3))
        halves = SplitTerm(Grouping(np.array([0, 0, 1, 1]), 2), answers[:, :2], np.ones(3))
        equal, least = np.array([[6.0], [11.0], [0.0]]), np.array([[4.0], [10.0], [1.0]])
        large = SplitTerm(cells, answers + 1e6 * np.array([[2.0], [3.0], [4.0]]), np.ones(3))
        far = SplitTerm(identity(2), 1e3 * np.array([[-20.0, -3.0], [18.0, -27.0]]), np.array([2.0, 1.0]))
        near = SplitTerm(total(2), np.array([[4.0], [0.0]]), np.array([5.0, 0.0]))
        return {
            "tiny": cls([SplitTerm(identity(2), np.eye(2), np.ones(2))], [1.0, 1.0]),
            "one-cell": cls([SplitTerm(identity(1), np.array([[5.0], [1.0], [-9.0]]), np.ones(3))], [4.0]),
            "parent": cls([own, sums], parent),
            "root": cls([own, sums]),
            "equal-totals": cls([own, sums], parent, LinearRows(total(4), equal, equal)),
            "least-totals": cls([own], parent, LinearRows(total(4), least, np.full((3, 1), np.inf))),
            "sums-alone": cls([sums, halves], parent),
            "no-people": cls([own, sums], np.zeros(4)),
            "large-counts": cls([large], 9e6 + np.array(parent)),
            "far-below-zero": cls([far, near]),
        }

    @property
    def variables(self) -> int:
        """Return the number of cells of all children that may hold anything."""
        return self.shape[0] * self.occupied_cells.size

    def accept(self, answer: Any) -> Floats:
        """Return the answer as float64."""
        return plain_answer(answer).astype(np.float64)

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

    def repair(self, x: Floats) -> Floats:
        """Return the table without negative cells whose sums and constraints are mended in proportion to the cells."""
        broken = self.violation(x)
        if broken == np.inf or (broken <= prices.EXACT * self.scale and float(x.min(initial=0.0)) >= 0.0):
            return x
        return self.expand(prices.mended(self, self.table(x)))

    def multipliers(self, x: Floats) -> SplitDual:
        """Rebuild prices from x: least squares on the cells in use, then the best prices of the sums."""
        return prices.rebuilt(self, self.table(x))

    def admissible(self, multipliers: SplitDual) -> SplitDual:
        """Return finite prices, 0 at missing sides and, for a wrong shape, everywhere."""
        shapes = (self.shape[1],), self.sides[0].T.shape
        parent, rows = (
            np.where(np.isfinite(values), values, 0.0) if values.shape == shape else np.zeros(shape)
            for values, shape in zip((multipliers.parent, multipliers.rows), shapes, strict=True)
        )
        lower, upper = (side.T for side in self.sides)
        rows = np.where(((rows > 0.0) & np.isinf(lower)) | ((rows < 0.0) & np.isinf(upper)), 0.0, rows)
        answers = multipliers.answers
        if answers is not None and (answers.shape != self.answers.T.shape or not np.isfinite(answers).all()):
            answers = None
        return SplitDual(parent if self.parent is not None else np.zeros(shapes[0]), rows, answers)

    def gap(self, x: Floats, multipliers: SplitDual) -> float:
        """Return the certified gap of the module docstring."""
        parent, rows, answers = multipliers.parent[self.occupied_cells], multipliers.rows.T, multipliers.answers
        return prices.gap(self, self.table(x), parent, rows, None if answers is None else answers.T)

    def certified_gap(self, x: Floats, multipliers: SplitDual | None = None) -> float:
        """Return the gap of a solver's prices or, where that is not small enough, of those rebuilt from x too."""
        best, enough = np.inf, _ENOUGH * max(1.0, self.objective(x))
        if multipliers is not None:
            best = self.gap(x, self.admissible(multipliers))
        if best > enough:
            rebuilt = self.multipliers(x)
            best = min(best, self.gap(x, rebuilt))
        if enough < best < np.inf and self.constraints is None:
            best = min(best, self.gap(x, replace(rebuilt, answers=prices.fitted_answers(self, self.table(x)).T)))
        return best

    @property
    def resolution(self) -> float:
        """Return the cost of moving every answer by the last digit of the largest number."""
        last = np.finfo(np.float64).eps * self.magnitude
        return float(self.weights.sum()) * last**2

    def formulate(self, form: type[LinearProgram]) -> Formulation[Floats, SplitDual]:
        """Write the quadratic program in distances from single cells' answers and in the other rows' residuals."""
        if form is not QuadraticProgram:
            raise self._no_form(form)
        return lifted(self)
