"""What a problem is: an immutable value that judges any point, whoever proposes it.

A problem holds the data of one post-processing step, checked once. It computes the objective, the violation of its
constraints and, from multipliers, a certified gap: a number that the distance to the optimum cannot exceed. The
gap is summed term by term, every term nonnegative, because a difference of two large objectives loses all its
digits. Multipliers come from a solver or are rebuilt from the point alone; wrong ones give a large gap, never a
false certificate.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coco_opt.errors import ProblemError, UnknownSolverError
from coco_opt.forms import Formulation, LinearProgram

ValueT = TypeVar("ValueT")
DualT = TypeVar("DualT")


class Problem(ABC, Generic[ValueT, DualT]):
    """A convex or integer minimisation problem with value type ``ValueT`` and multipliers ``DualT``."""

    kind: ClassVar[str]
    """The problem's name in config and in the solver table."""

    forms: ClassVar[tuple[type[LinearProgram], ...]]
    """The canonical programs it can write itself as, best first."""

    feasibility_tolerance: ClassVar[float] = 1e-9
    """The violation, relative to the problem's scale, that counts as none."""

    repairable: ClassVar[float] = 1e-5
    """The violation, relative to the problem's scale, up to which repair may mend a point.

    Repair is a projection: of a point far from feasible it would do the solver's work in the solver's name.
    """

    @property
    @abstractmethod
    def variables(self) -> int:
        """Return the number of unknowns of the problem itself (a program may need more)."""

    @property
    def scale(self) -> float:
        """Return the magnitude of a typical value, to which violations are compared."""
        return 1.0

    @abstractmethod
    def objective(self, x: ValueT) -> float:
        """Return the objective at any point."""

    @abstractmethod
    def violation(self, x: ValueT) -> float:
        """Return the largest absolute violation of any constraint at any point (infinite for a wrong shape)."""

    @abstractmethod
    def repair(self, x: ValueT) -> ValueT:
        """Return a feasible point near a slightly infeasible one; a feasible point comes back unchanged."""

    @abstractmethod
    def multipliers(self, x: ValueT) -> DualT:
        """Rebuild multipliers from a feasible point alone; they are optimal if the point is."""

    @abstractmethod
    def gap(self, x: ValueT, multipliers: DualT) -> float:
        """Return a certified bound on objective(x) minus the optimum, for feasible x and admissible multipliers."""

    def admissible(self, multipliers: DualT) -> DualT:
        """Return admissible multipliers near approximate ones: those for which ``gap`` is a bound."""
        return multipliers

    @abstractmethod
    def formulate(self, form: type[LinearProgram]) -> Formulation[ValueT, DualT]:
        """Write the problem as one of its ``forms``."""

    def certified_gap(self, x: ValueT, candidates: Iterable[DualT | None] = ()) -> float:
        """Return the smallest gap over the multipliers rebuilt from x and every candidate given (admissible or not)."""
        best = self.gap(x, self.multipliers(x))
        for candidate in candidates:
            if candidate is not None:
                best = min(best, self.gap(x, self.admissible(candidate)))
        return best

    def _no_form(self, form: type[LinearProgram]) -> UnknownSolverError:
        known = ", ".join(f.form for f in self.forms)
        return UnknownSolverError(f"{self.kind} cannot be written as {form.form}; it can as: {known}")


def checked_vector(values: ArrayLike, name: str, *, keep_integers: bool = False) -> NDArray[Any]:
    """Return a read-only contiguous vector of finite float64 (or int64, if kept) values.

    Raises ProblemError for another dimension or for values that are not finite numbers.
    """
    array = np.asarray(values)
    if array.ndim != 1:
        raise ProblemError(f"{name} must be one-dimensional, not of shape {array.shape}")
    if array.dtype.kind not in "iuf":
        raise ProblemError(f"{name} must be numbers, not {array.dtype}")
    integral = keep_integers and array.dtype.kind in "iu"
    array = np.ascontiguousarray(array, dtype=np.int64 if integral else np.float64)
    if not integral and not np.isfinite(array).all():
        raise ProblemError(f"{name} must be finite")
    view = array.view()
    view.flags.writeable = False
    return view
