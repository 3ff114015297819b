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

_SIDES = ("row_lower", "row_upper", "lower", "upper")
_TINY = 2.0**-10  # costs below which a program is counted in a larger unit


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


def in_form(program: LinearProgram, form: type[LinearProgram], integer: Flags | None = None) -> LinearProgram:
    """Return a linear program as it is, or with integer variables: those marked in ``integer`` (n,), or all."""
    if form is not MixedIntegerProgram:
        return program
    marked = np.ones(program.variables, np.bool_) if integer is None else integer
    return MixedIntegerProgram(**vars(program), integer=marked)


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
    program's duals to the problem's own. ``in_residuals`` says that z = 0 costs nothing, P is diagonal, no cost is
    negative, and what z = 0 misses sides by is as small as the problem's residuals, unless variables without a cost
    make it larger: such a program can be counted in units of its own, around any point.
    """

    program: LinearProgram
    recover: Callable[[Floats], ValueT]
    multipliers: Callable[[ProgramDual], DualT] | None = None
    in_residuals: bool = False

    @property
    def free_columns(self) -> Flags:
        """Return which variables cost nothing bool[n]; none in a program that is not in residuals."""
        program = self.program
        free: Flags = (program.c == 0.0) & self.in_residuals
        if isinstance(program, QuadraticProgram):
            free &= program.P.diagonal() == 0.0
        return free

    def around(self, z: Floats) -> Formulation[ValueT, DualT]:
        """Return the same program with its free variables counted from those of z, a point near the optimum."""
        program, recover = self.program, self.recover
        base = np.where(self.free_columns, np.clip(z, program.lower, program.upper), 0.0)
        met = program.A @ base
        moved = {"row_lower": met, "row_upper": met, "lower": base, "upper": base}
        sides: dict[str, Any] = {side: getattr(program, side) - move for side, move in moved.items()}
        return replace(self, program=replace(program, **sides), recover=lambda u: recover(base + u))

    def units(self, least: float, steepest: float) -> tuple[float, float]:
        """Return the units to count variables and objective in: most packages' tolerances are absolute.

        They call a program in large numbers infeasible, and one whose optimum is tiny solved too soon. So variables are
        counted in the most that z = 0 misses a side by, and the objective in the most that a single miss costs, or in
        ``least``, an objective that counts as none, if that is more. One unit for both would make the objective tiny
        where residuals are small and counts large. Where costs or curvature would be above ``steepest``, the
        objective's unit is larger.
        """
        program = self.program
        degree = 2 if isinstance(program, QuadraticProgram) else 1
        steep = _steepest(program)
        if not self.in_residuals:
            return 1.0, steep if 0.0 < steep < _TINY else 1.0
        rows, bounds = _misses(program.row_lower, program.row_upper), _misses(program.lower, program.upper)
        unit = max(float(rows.max(initial=0.0)), float(bounds.max(initial=0.0))) or 1.0
        return unit, max(least, _largest_cost(program, rows, bounds), steep * unit**degree / steepest)

    def counted_in(self, unit: float, price: float) -> Formulation[ValueT, DualT]:
        """Return the same program with its variables counted in ``unit`` and its objective in ``price``."""
        program, recover, multipliers, worth = self.program, self.recover, self.multipliers, price / unit
        changed: dict[str, Any] = {side: getattr(program, side) / unit for side in _SIDES}
        changed |= {"c": program.c * (unit / price), "offset": program.offset / price}
        if isinstance(program, QuadraticProgram):
            changed["P"] = program.P * (unit * unit / price)
        return replace(
            self,
            program=replace(program, **changed),
            recover=lambda z: recover(unit * z),
            multipliers=multipliers and (lambda dual: multipliers(ProgramDual(worth * dual.rows, worth * dual.bounds))),
        )


def _steepest(program: LinearProgram) -> float:
    """Return the largest cost or curvature of a program."""
    largest = float(np.abs(program.c).max(initial=0.0))
    if isinstance(program, QuadraticProgram):
        largest = max(largest, float(np.abs(program.P.data).max(initial=0.0)))
    return largest


def _misses(lower: Floats, upper: Floats) -> Floats:
    """Return by how much 0 misses the sides."""
    misses: Floats = np.maximum(np.maximum(lower, -upper), 0.0)
    return misses


def _largest_cost(program: LinearProgram, rows: Floats, bounds: Floats) -> float:
    """Return the most that any single one of these misses must cost: a lower bound on the optimum."""
    entries = program.A.tocoo()
    row, size = entries.row, np.abs(entries.data)
    with np.errstate(divide="ignore", invalid="ignore"):
        if isinstance(program, QuadraticProgram):
            curvature = program.P.diagonal()
            along = np.bincount(row, np.where(size > 0.0, size**2 / curvature[entries.col], 0.0), program.rows)
            costs = np.concatenate([0.5 * rows**2 / along, 0.5 * bounds**2 * curvature])
        else:
            cheapest = np.full(program.rows, np.inf)
            np.minimum.at(cheapest, row, np.where(size > 0.0, program.c[entries.col] / size, np.inf))
            costs = np.concatenate([rows * cheapest, bounds * program.c])
    return float(costs[np.isfinite(costs)].max(initial=0.0))


def first_differences(n: int) -> Any:
    """Return the sparse (n - 1, n) matrix with rows ``x[i+1] - x[i]``, as csc_array."""
    from scipy.sparse import diags_array

    if n < 2:
        from scipy.sparse import csc_array

        return csc_array((0, n), dtype=np.float64)
    ones = np.ones(n - 1)
    return diags_array([-ones, ones], offsets=[0, 1], shape=(n - 1, n), format="csc")
