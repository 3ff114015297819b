"""Consistent rounding of cumulative tables: integer rows of children that sum to the parent's, nearest in L1.

Given fractional nondecreasing rows x_j of the children of one region and the region's integer row R::

    minimise  sum_j sum_i |X_j[i] - x_j[i]|
    subject to  X_j integer, nondecreasing,  0 <= X_j <= G_j,  sum_j X_j[i] = R[i] in every cell.

With the cost interpolated between integers this is a minimum-cost flow of units through cells, so its linear
program has integer vertices and the bounds below are exact for the right multipliers: prices pi (cells,) of the
parent's units. They split the problem into one rounding a child; the gap is the sum, over children, of what its row
costs more than the best at these prices, each nonnegative.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coco_opt.array_types import Floats, Ints
from coco_opt.errors import ProblemError
from coco_opt.forms import Formulation, LinearProgram, MixedIntegerProgram, ProgramDual, first_differences
from coco_opt.kernels.arrays import as_floats
from coco_opt.problem import MAX_INTEGER, Problem, as_array, integer_answer


@dataclass(frozen=True, eq=False, init=False)
class CumulativeRounding(Problem[NDArray[Any], Floats]):
    """Integer rows near x that sum to the parent's: ``CumulativeRounding(x, parent, groups)``.

    Minimise sum_j sum_i |X_j[i] - x_j[i]| over nondecreasing integer rows X_j of the children, between 0 and groups_j,
    that sum to the parent's row.

    Parameters
    ----------
    x : array_like, shape (children, cells)
        The fractional cumulative counts of the children, in groups; nondecreasing rows between 0 and groups.
    parent : array_like of int, shape (cells,)
        The parent's cumulative counts; nondecreasing, between 0 and the sum of groups.
    groups : array_like of int, shape (children,)
        The number of groups of each child.

    Raises
    ------
    ProblemError
        The arrays are not like this.

    Notes
    -----
    Values are int64 (children, cells). The fast solver schedules the parent's units, to a relative gap of 0.05.

    Examples
    --------
    >>> from coco_opt import CumulativeRounding, solve
    >>> solve(CumulativeRounding([[0.6, 1.2], [0.4, 0.8]], [1, 2], [2, 1])).value.tolist()
    [[1, 1], [0, 1]]
    """

    x: Floats
    parent: Ints
    groups: Ints

    kind: ClassVar[str] = "cumulative_rounding"
    forms: ClassVar[tuple[type[LinearProgram], ...]] = (LinearProgram, MixedIntegerProgram)
    repair_limit: ClassVar[float] = np.inf  # optimal fractional points lie anywhere between integers

    def __init__(self, x: ArrayLike, parent: ArrayLike, groups: ArrayLike) -> None:
        rows, total, counts = as_array(x, "x"), as_array(parent, "parent"), as_array(groups, "groups")
        if rows.ndim != 2 or 0 in rows.shape or rows.dtype.kind not in "iuf":
            raise ProblemError("x must be a table of numbers, one row a child and at least one cell")
        if total.shape != rows.shape[1:] or counts.shape != rows.shape[:1]:
            raise ProblemError("parent must have one entry a cell and groups one a child")
        if total.dtype.kind not in "iu" or counts.dtype.kind not in "iu" or (counts < 0).any():
            raise ProblemError("parent and groups must be integers, and groups not negative")
        rows, total, counts = np.array(rows, np.float64), np.array(total, np.int64), np.array(counts, np.int64)
        if not np.isfinite(rows).all() or counts.sum() > MAX_INTEGER:
            raise ProblemError("x must be finite and all groups together at most 2^53")
        if (np.diff(rows, axis=1) < 0).any() or (rows < 0).any() or (rows > counts[:, None]).any():
            raise ProblemError("every row of x must be nondecreasing, between 0 and its child's groups")
        if (np.diff(total) < 0).any() or total[0] < 0 or total[-1] > counts.sum():
            raise ProblemError("parent must be nondecreasing, between 0 and the groups of all children")
        for name, values in (("x", rows), ("parent", total), ("groups", counts)):
            values.setflags(write=False)
            object.__setattr__(self, name, values)

    @classmethod
    def examples(cls) -> Mapping[str, Self]:
        """Return rows of halves, rows that are integer, one child, no groups and large counts."""
        return {
            "tiny": cls([[0.5, 1.25], [0.5, 0.75]], [1, 2], [2, 1]),
            "halves": cls([[0.5, 0.5, 1.0], [1.0, 2.0, 2.0], [0.5, 0.5, 2.0]], [2, 3, 5], [1, 2, 2]),
            "whole": cls([[0, 1, 1, 4], [2, 2, 5, 5]], [2, 3, 6, 9], [4, 6]),
            "far-parent": cls([[0.25, 1.5, 1.75], [0.5, 0.5, 2.25]], [0, 3, 6], [3, 3]),
            "one-child": cls([[0.3, 1.6, 2.0]], [1, 1, 2], [2]),
            "no-groups": cls([[0.0, 0.0], [0.0, 0.0]], [0, 0], [0, 0]),
            "large-counts": cls([[0.5, 4e9 + 0.5], [1e9 + 0.25, 3e9]], [10**9 + 1, 7 * 10**9], [5 * 10**9] * 2),
        }

    @property
    def variables(self) -> int:
        """Return the number of cells of all children."""
        return self.x.size

    @property
    def resolution(self) -> float:
        """Return the rounding error of adding up all cells."""
        return float(np.finfo(np.float64).eps) * self.x.size

    def accept(self, answer: Any) -> NDArray[Any]:
        """Return the answer as int64 where it is integer, else as float64."""
        return integer_answer(answer)

    def objective(self, x: NDArray[Any]) -> float:
        """Return the L1 distance to the fractional rows."""
        return float(np.abs(x - self.x).sum())

    def violation(self, x: NDArray[Any]) -> float:
        """Return the largest distance from an integer, decrease, excess over a bound or error of a sum."""
        x = integer_answer(x)
        if x.shape != self.x.shape or not np.isfinite(x).all():
            return np.inf
        decrease = -float(np.diff(x, axis=1).min(initial=0))
        beyond = max(-float(x.min(initial=0)), float((x - self.groups[:, None]).max(initial=0)))
        sums = float(np.abs(x.sum(axis=0) - self.parent).max())
        return max(decrease, beyond, sums, float(np.abs(x - np.rint(x)).max()))

    def repair(self, x: NDArray[Any]) -> NDArray[Any]:
        """Round a fractional point by earliest deadlines, in order and bounds first; a wrong shape comes back."""
        if x.shape != self.x.shape or not np.isfinite(x).all() or self.violation(x) == 0.0:
            return x
        from coco_opt.kernels import joint_rounding

        rows = np.clip(np.maximum.accumulate(np.asarray(x, np.float64), axis=1), 0.0, self.groups[:, None])
        integers = np.rint(rows)
        rows = np.where(np.abs(rows - integers) < 1e-6, integers, rows)
        return joint_rounding.schedule(as_floats(rows), self.parent, self.groups, 1.0, wait=True)

    def multipliers(self, x: NDArray[Any]) -> Floats:
        """Return prices that are optimal cell by cell, the order left out; they do not depend on the point."""
        from coco_opt.kernels import joint_rounding

        return joint_rounding.cell_prices(self.x, self.parent)

    def admissible(self, multipliers: Floats) -> Floats:
        """Return the prices, zero for what is no number; any prices are valid."""
        prices = np.asarray(multipliers, dtype=np.float64)
        if prices.shape != self.parent.shape:
            return np.zeros(self.parent.size)
        return np.where(np.isfinite(prices), prices, 0.0)

    def gap(self, x: NDArray[Any], multipliers: Floats) -> float:
        """Return the certified gap of the module docstring, for integer x."""
        from coco_opt.kernels import joint_leaves

        integers, top = np.asarray(x, dtype=np.float64), self.groups.astype(np.float64)
        return float(joint_leaves.rounding_gap(self.x, integers, -np.asarray(multipliers), top))

    def formulate(self, form: type[LinearProgram]) -> Formulation[NDArray[Any], Floats]:
        """Write X = floor(x) + g + e - b with 0 <= g <= 1 at cost 1 - 2 fraction and e, b >= 0 at cost 1."""
        if form not in self.forms:
            raise self._no_form(form)
        from scipy.sparse import csc_array, eye_array, hstack, kron, vstack

        children, cells = self.x.shape
        n, floors = self.x.size, np.floor(self.x)
        fractions = self.x - floors
        ends = csc_array((np.ones(2), ([0, 1], [0, cells - 1])), shape=(2, cells))
        each = eye_array(children)
        sums = kron(np.ones((1, children)), eye_array(cells))
        rows = csc_array(vstack([sums, kron(each, first_differences(cells)), kron(each, ends)]))
        missing, infinite = self.parent - floors.sum(axis=0), np.full((children, 1), np.inf)
        falls = floors[:, :-1] - floors[:, 1:]
        low = [missing, falls.ravel(), np.hstack([-floors[:, :1], -infinite]).ravel()]
        last = self.groups[:, None] - floors[:, -1:]
        high = [missing, np.full(falls.size, np.inf), np.hstack([infinite, last]).ravel()]
        linear = LinearProgram(
            c=np.concatenate([1.0 - 2.0 * fractions.ravel(), np.ones(2 * n)]),
            A=csc_array(hstack([rows, rows, -rows])),
            row_lower=np.concatenate(low),
            row_upper=np.concatenate(high),
            lower=np.zeros(3 * n),
            upper=np.concatenate([np.ones(n), np.full(2 * n, np.inf)]),
            offset=float(fractions.sum()),
        )
        program: LinearProgram = linear
        if form is MixedIntegerProgram:
            program = MixedIntegerProgram(**vars(linear), integer=np.ones(3 * n, dtype=np.bool_))

        def recover(z: Floats) -> NDArray[Any]:
            rounded: Floats = floors + (z[:n] + z[n : 2 * n] - z[2 * n :]).reshape(children, cells)
            return rounded

        def read_dual(dual: ProgramDual) -> Floats:
            return dual.rows[:cells].copy()

        return Formulation(program, recover, multipliers=read_dual)
