"""Canonical sparse programs that problems write themselves as and generic solvers read.

All three minimise over variables z::

    (1/2) z' P z + c' z + offset   subject to   row_lower <= A z <= row_upper,  lower <= z <= upper

with P = 0 for a linear program and some z integer for a mixed-integer program. The classes share their fields,
not their solvers: a solver lists exactly the forms it accepts.

Duals follow one sign convention: the gradient of the objective equals ``A' row_dual + bound_dual``, a dual being
nonnegative where a lower side is active and nonpositive where an upper side is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

import numpy as np

from coco_opt.array_types import Flags, Floats

if TYPE_CHECKING:
    from scipy.sparse import csc_array

FormName = Literal["lp", "qp", "milp"]
ValueT = TypeVar("ValueT")
DualT = TypeVar("DualT")


@dataclass(frozen=True, eq=False, kw_only=True)
class LinearProgram:
    """Minimise ``c @ z + offset`` over a polyhedron given by ranged rows and bounds.

    Shapes: c, lower, upper (n,); A (m, n) in compressed sparse columns; row_lower, row_upper (m,). Infinite sides
    are ``-inf`` and ``inf``.
    """

    c: Floats
    A: csc_array
    row_lower: Floats
    row_upper: Floats
    lower: Floats
    upper: Floats
    offset: float = 0.0

    form = "lp"

    @property
    def variables(self) -> int:
        """Return the number of variables n."""
        return self.c.size

    @property
    def rows(self) -> int:
        """Return the number of rows m."""
        return self.row_lower.size


@dataclass(frozen=True, eq=False, kw_only=True)
class QuadraticProgram(LinearProgram):
    """A linear program with a convex quadratic term; P (n, n) is symmetric and stored in full."""

    P: csc_array

    form = "qp"


@dataclass(frozen=True, eq=False, kw_only=True)
class MixedIntegerProgram(LinearProgram):
    """A linear program in which the variables marked in ``integer`` (n,) take integer values."""

    integer: Flags

    form = "milp"


FORMS: dict[str, type[LinearProgram]] = {
    "lp": LinearProgram,
    "qp": QuadraticProgram,
    "milp": MixedIntegerProgram,
}


@dataclass(frozen=True, eq=False)
class ProgramDual:
    """Multipliers of a program's rows (m,) and bounds (n,), in the sign convention of this module."""

    rows: Floats
    bounds: Floats


@dataclass(frozen=True, eq=False)
class Formulation(Generic[ValueT, DualT]):
    """A problem written as a program, with the way back.

    ``recover`` maps the program's variables to the problem's value type; ``multipliers``, where given, maps the
    program's duals to the problem's own.
    """

    program: LinearProgram
    recover: Callable[[Floats], ValueT]
    multipliers: Callable[[ProgramDual], DualT] | None = None

    def in_own_unit(self, above: float = 0.0) -> Formulation[ValueT, DualT]:
        """Return the same program with its variables counted in the most that z = 0 misses a side by.

        Most packages' tolerances are absolute: they call a program in large numbers infeasible, and one whose optimum
        is tiny solved too soon. The objective must be homogeneous, c'z or z'Pz / 2 alone: it is divided by the unit or
        by its square. A program that misses no side by more than ``above`` stays as it is.
        """
        program = self.program
        sides = {"row_lower": 1.0, "row_upper": -1.0, "lower": 1.0, "upper": -1.0}
        misses = [float((sign * getattr(program, side)).max(initial=0.0)) for side, sign in sides.items()]
        unit, squared = max(misses) or 1.0, isinstance(program, QuadraticProgram)
        if unit <= above:
            return self
        scaled: dict[str, Any] = {side: getattr(program, side) / unit for side in sides}
        price, multipliers = unit if squared else 1.0, self.multipliers
        return Formulation(
            replace(program, **scaled, offset=program.offset / (unit * price)),
            recover=lambda z: self.recover(unit * z),
            multipliers=multipliers and (lambda dual: multipliers(ProgramDual(price * dual.rows, price * dual.bounds))),
        )


def first_differences(n: int) -> Any:
    """Return the sparse (n - 1, n) matrix with rows ``x[i+1] - x[i]``, as csc_array."""
    from scipy.sparse import diags_array

    if n < 2:
        from scipy.sparse import csc_array

        return csc_array((0, n), dtype=np.float64)
    ones = np.ones(n - 1)
    return diags_array([-ones, ones], offsets=[0, 1], shape=(n - 1, n), format="csc")
