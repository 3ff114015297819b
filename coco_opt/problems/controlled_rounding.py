"""Controlled rounding with a fixed sum: integers next to fractions (Kuo et al. 2018, section 4.1).

::

    minimise  sum_i |X_i - x_i|   subject to   X_i in {floor(x_i), ceil(x_i)},  sum_i X_i = total

With f_i the fractional part and b_i = X_i - floor(x_i), a cell costs f_i + b_i (1 - 2 f_i), so the problem is to choose
k = total - sum floor(x_i) of the fractional cells to round up. Its linear relaxation 0 <= b <= 1 has integer vertices:
the bound certified by one multiplier nu of the sum is exact. The gap is
``sum_i (c_i + nu) b_i - min(0, c_i + nu)`` with c_i = 1 - 2 f_i, every term nonnegative.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from coco_opt.array_types import Flags, Floats, Ints
from coco_opt.errors import ProblemError
from coco_opt.forms import Formulation, LinearProgram, MixedIntegerProgram, in_form
from coco_opt.problem import MAX_INTEGER, IntegerProblem, checked_vector, integer_answer

IntegerOrNot = Floats | Ints


@dataclass(frozen=True, eq=False, init=False)
class ControlledRounding(IntegerProblem[IntegerOrNot, float]):
    """Round x (n,) up or down to integers with a given integer total, nearest in L1.

    Parameters
    ----------
    x : array_like, shape (n,)
        The fractional values.
    total : int
        The sum of the integers.

    Raises
    ------
    ProblemError
        No choice of floors and ceilings reaches the total.

    Notes
    -----
    Values are int64 (n,). A solver may return fractions, which the problem's repair turns into the best choice of the
    same size. Source: Kuo et al. 2018, section 4.1.

    Examples
    --------
    >>> from coco_opt import ControlledRounding, solve
    >>> solve(ControlledRounding([0.6, 1.4], 2)).value.tolist()
    [1, 1]
    """

    x: Floats
    total: int

    kind: ClassVar[str] = "controlled_rounding"
    forms: ClassVar[tuple[type[LinearProgram], ...]] = (LinearProgram, MixedIntegerProgram)

    def __init__(self, x: ArrayLike, total: int) -> None:
        object.__setattr__(self, "x", checked_vector(x, "x"))
        if not -MAX_INTEGER <= total <= MAX_INTEGER or total != int(total):
            raise ProblemError("total must be an integer, at most 2^53 in magnitude")
        object.__setattr__(self, "total", int(total))
        if np.abs(np.floor(self.x)).max(initial=0.0) > MAX_INTEGER or np.abs(np.floor(self.x)).sum() > MAX_INTEGER:
            raise ProblemError("the numbers to round must not add up to more than 2^53 in magnitude")
        down = int(self.floors.sum())
        up = down + int(self.fractional.sum())
        if not down <= self.total <= up:
            raise ProblemError(
                f"no rounding of these {self.x.size} numbers has the required total: "
                "floors sum to more, or ceilings to less"
            )

    @property
    def floors(self) -> Ints:
        """Return the cells rounded down (n,)."""
        return np.floor(self.x).astype(np.int64)

    @property
    def fractions(self) -> Floats:
        """Return the fractional parts (n,), in [0, 1)."""
        return self.x - np.floor(self.x)

    @property
    def fractional(self) -> Flags:
        """Return which cells (n,) are not integers already."""
        return self.fractions > 0

    @classmethod
    def examples(cls) -> Mapping[str, Self]:
        """Return numbers that all go up, all go down, are halves, integers, negative, or large."""
        return {
            "tiny": cls([0.5, 0.25, 1.25], 2),
            "halves": cls([0.5, 1.25, 2.75, 0.5, 3.0], 8),
            "up": cls([0.1, 0.2, 0.3], 3),
            "down": cls([0.9, 1.8, 2.7], 3),
            "whole": cls([1, 2], 3),
            "negative": cls([-0.5, -1.25, 0.75], -1),
            "large-counts": cls([1e12 + 0.5, 0.25, 2e12 + 0.25], 3 * 10**12 + 1),
        }

    @property
    def variables(self) -> int:
        """Return the number of cells n."""
        return self.x.size

    def objective(self, x: IntegerOrNot) -> float:
        """Return the L1 distance to the fractional cells."""
        return float(np.abs(x - self.x).sum())

    def violation(self, x: IntegerOrNot) -> float:
        """Return the largest distance of a cell from its floor or ceiling, or the error of the sum."""
        x = integer_answer(x)
        if x.shape != self.x.shape or not np.isfinite(x).all():
            return np.inf
        floors = self.floors
        up = x - floors
        off = np.where(self.fractional, np.minimum(np.abs(up), np.abs(up - 1)), np.abs(up))
        integers = np.rint(x).astype(np.int64)
        return max(float(off.max(initial=0.0)), float(abs(int(integers.sum()) - self.total)))

    def repair(self, x: IntegerOrNot) -> IntegerOrNot:
        """Round up the cells where x lies farthest above the floor; a wrong shape comes back unchanged."""
        if x.shape != self.x.shape or not np.isfinite(x).all():
            return x
        floors, choices = self.floors, np.flatnonzero(self.fractional)
        count = self.total - int(floors.sum())
        ranked = np.argsort(-(x - floors)[choices], kind="stable")
        floors[choices[ranked[:count]]] += 1
        return floors

    def multipliers(self, x: IntegerOrNot) -> float:
        """Return the optimal nu, which does not depend on the choice: minus the largest cost worth rounding up."""
        from coco_opt.kernels import rounding

        return rounding.multiplier(self.x, self.total)

    def gap(self, x: IntegerOrNot, multipliers: float) -> float:
        """Return the certified gap of the module docstring, for integer x."""
        from coco_opt.kernels import rounding

        return rounding.gap(self.x, np.asarray(x, dtype=np.int64), multipliers)

    def formulate(self, form: type[LinearProgram]) -> Formulation[IntegerOrNot, float]:
        """Write the choice of cells to round up as a linear or a mixed-integer program."""
        if form not in self.forms:
            raise self._no_form(form)
        from scipy.sparse import csc_array

        floors, choices = self.floors, np.flatnonzero(self.fractional)
        count = float(self.total - int(floors.sum()))
        linear = LinearProgram(
            c=1.0 - 2.0 * self.fractions[choices],
            A=csc_array(np.ones((1, choices.size))),
            row_lower=np.array([count]),
            row_upper=np.array([count]),
            lower=np.zeros(choices.size),
            upper=np.ones(choices.size),
            offset=float(self.fractions.sum()),
        )

        def recover(z: Floats) -> IntegerOrNot:
            x: Floats = floors.astype(np.float64)
            x[choices] += z
            return x

        return Formulation(in_form(linear, form), recover, multipliers=lambda dual: -float(dual.rows[0]))
