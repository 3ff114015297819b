"""What a problem is: an immutable value that judges any point, whoever proposes it.

A problem holds the data of one post-processing step, checked once. It computes the objective, the violation of its
constraints and, from multipliers, a certified gap: a number that the distance to the optimum cannot exceed. The
gap is summed term by term, every term nonnegative, because a difference of two large objectives loses all its
digits. Multipliers come from a solver or are rebuilt from the point alone; wrong multipliers give a large gap, never a
false certificate.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Self, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coco_opt.array_types import has_masked
from coco_opt.errors import ProblemError, UnknownSolverError
from coco_opt.forms import Formulation, LinearProgram

ValueT = TypeVar("ValueT")
DualT = TypeVar("DualT")

MAX_INTEGER = 2**53
"""The largest magnitude of integer data: up to it a double holds every integer, so no comparison rounds."""

MAX_MAGNITUDE = 1e100
"""The largest magnitude of other data: beyond it squares, inverses and sums of weights leave the range of doubles."""


def step_of(kind: str) -> str:
    """Return the step that a type of problem belongs to: its name without the loss."""
    return kind.removesuffix("_l1").removesuffix("_l2")


@dataclass(frozen=True, eq=False, slots=True)
class Appraisal(Generic[ValueT]):
    """A problem's judgement of a solver's point: the point after repair, and its violation before and after.

    ``objective`` and certified ``gap`` are those of a feasible point; of another they are nan and infinite.
    """

    value: ValueT
    raw_violation: float
    violation: float
    objective: float = float("nan")
    gap: float = float("inf")


class Problem(ABC, Generic[ValueT, DualT]):
    """A convex or integer minimisation problem with value type ``ValueT`` and multipliers ``DualT``.

    Notes
    -----
    A problem is immutable, and its data are checked once, when it is made. It judges any point by ``objective``,
    ``violation`` and ``gap``, repairs points that are nearly feasible, and writes itself as a linear, quadratic or
    mixed-integer program for general solvers (``formulate``).
    """

    kind: ClassVar[str]
    """The problem's name in config and in the solver table."""

    forms: ClassVar[tuple[type[LinearProgram], ...]]
    """The canonical programs it can write itself as, best first."""

    feasibility_tolerance: ClassVar[float] = 1e-9
    """The violation, relative to the problem's scale, that counts as none."""

    suited: ClassVar[tuple[str, ...]] = ()
    """Solvers that "auto" tries first where the shape of an instance suits them."""

    repair_limit: ClassVar[float] = 1e-5
    """The violation, relative to the problem's scale, up to which repair may mend a point.

    Repair is a projection: of a point far from feasible it would do the solver's work in the solver's name.
    """

    @classmethod
    @abstractmethod
    def examples(cls) -> Mapping[str, Self]:
        """Return small public instances by name, such as rehearsals and tests need; the first is tiny.

        They show what is characteristic of the kind: ties, zeros, a single unknown, bounds, large counts, deep trees.
        Every solver of the kind answers the first in an instant.
        """

    @property
    @abstractmethod
    def variables(self) -> int:
        """Return the number of unknowns of the problem itself (a program may need more)."""

    @property
    def scale(self) -> float:
        """Return the magnitude of a typical value, to which violations are compared."""
        return 1.0

    @property
    def objective_scale(self) -> float:
        """Return what gaps are compared with where the objective is smaller, at most 1.

        It is the objective of a typical residual in every answer, so that other units of data or weights change no
        status.
        """
        return 1.0

    @property
    def resolution(self) -> float:
        """Return the gap that rounding an optimal point to doubles can cause: no solver can promise less."""
        return 0.0

    def accept(self, answer: Any) -> ValueT:
        """Return a solver's point in the problem's own value type; what cannot be read is left to ``violation``."""
        return cast(ValueT, plain_answer(answer))

    @abstractmethod
    def objective(self, x: ValueT) -> float:
        """Return the objective at any point."""

    @abstractmethod
    def violation(self, x: ValueT) -> float:
        """Return the largest absolute violation of any constraint at any point (infinite for a wrong shape)."""

    @abstractmethod
    def repair(self, x: ValueT) -> ValueT:
        """Return a feasible point near a slightly infeasible point; a feasible point comes back unchanged."""

    @abstractmethod
    def multipliers(self, x: ValueT) -> DualT:
        """Rebuild multipliers from a feasible point alone; they are optimal if the point is."""

    @abstractmethod
    def gap(self, x: ValueT, multipliers: DualT) -> float:
        """Return a certified bound on objective(x) minus the optimum, for feasible x and admissible multipliers."""

    def admissible(self, multipliers: DualT) -> DualT:
        """Return admissible multipliers near approximate multipliers: those for which ``gap`` is a bound."""
        return multipliers

    @property
    def own_forms(self) -> tuple[type[LinearProgram], ...]:
        """Return those of ``forms`` that this very problem can be written as."""
        return self.forms

    @abstractmethod
    def formulate(self, form: type[LinearProgram]) -> Formulation[ValueT, DualT]:
        """Write the problem as one of its ``own_forms``."""

    def certified_gap(self, x: ValueT, multipliers: DualT | None = None) -> float:
        """Return the smaller gap of the multipliers rebuilt from x and of a solver's own, admissible or not."""
        rebuilt = self.gap(x, self.multipliers(x))
        return rebuilt if multipliers is None else min(rebuilt, self.gap(x, self.admissible(multipliers)))

    def appraise(self, x: ValueT, multipliers: DualT | None = None) -> Appraisal[ValueT]:
        """Judge a solver's point: repair a small violation, then compute violation, objective and certified gap.

        A problem that computes them in one pass overrides this for points without a violation.
        """
        raw = violation = self.violation(x)
        if 0.0 < raw < np.inf and raw <= self.repair_limit * self.scale:
            mended = self.repair(x)
            if mended is not x:
                x, violation = mended, self.violation(mended)
        if not violation <= self.feasibility_tolerance * self.scale:
            return Appraisal(x, raw, violation)
        return Appraisal(x, raw, violation, self.objective(x), self.certified_gap(x, multipliers))

    def _no_form(self, form: type[LinearProgram]) -> UnknownSolverError:
        forms = ", ".join(f.form for f in self.own_forms)
        return UnknownSolverError(f"{self.kind} cannot be written as {form.form}; it can as: {forms}")


class IntegerProblem(Problem[ValueT, DualT]):
    """A problem whose points are integers: int64 where a solver's point is integer, else float64."""

    repair_limit: ClassVar[float] = np.inf
    """Any: optimal fractional points lie anywhere between integers."""

    def accept(self, answer: Any) -> ValueT:
        """Return a solver's point as int64 where it is integer, else as float64."""
        return cast(ValueT, integer_answer(answer))


def at_most_one(size: float) -> float:
    """Return a size between 0 and 1 as it is, and 1 in place of any other."""
    return size if 0.0 < size < 1.0 else 1.0


def as_array(values: ArrayLike, name: str, dtype: type[Any] | None = None) -> NDArray[Any]:
    """Return data as an array, perhaps the caller's own: every array of every problem comes in here.

    Raises ProblemError where an entry is masked, which NumPy would count as measured, and where it is no array.
    """
    if has_masked(values):
        raise ProblemError(f"{name} has masked entries: fill or drop what is masked first")
    reason = ""
    try:
        return np.asarray(values, dtype)
    except (TypeError, ValueError, OverflowError) as error:
        reason = str(error)
    raise ProblemError(f"{name} must be an array of numbers: {reason}")


def checked_vector(values: ArrayLike, name: str, *, keep_integers: bool = False) -> NDArray[Any]:
    """Return a read-only contiguous vector of finite float64 (or int64) values that nobody else can write.

    Raises ProblemError for another dimension, for values that are not finite numbers and for integers beyond 2^53.
    """
    array = as_array(values, name)
    if array.ndim != 1:
        raise ProblemError(f"{name} must be one-dimensional, not of shape {array.shape}")
    if array.size and array.dtype.kind not in "iuf":
        raise ProblemError(f"{name} must be numbers, not {array.dtype}")
    integral = array.dtype.kind in "iu"
    if integral and array.size and max(int(array.max()), -int(array.min())) > MAX_INTEGER:
        raise ProblemError(f"{name} must not exceed 2^53 in magnitude: beyond it doubles do not hold every integer")
    checked = np.ascontiguousarray(array, dtype=np.int64 if integral and keep_integers else np.float64)
    if not integral and not np.isfinite(checked).all():
        raise ProblemError(f"{name} must be finite")
    if isinstance(values, np.ndarray) and checked.flags.writeable and np.may_share_memory(checked, values):
        checked = checked.copy()
    view = checked.view()
    view.flags.writeable = False
    return view


def plain_answer(answer: Any) -> NDArray[Any]:
    """Return a solver's vector as int64 or float64, not a number where it holds anything else.

    Unsigned, short and very large integers wrap around in a sum or difference, which would hide a violation.
    """
    array = np.asarray(answer)
    if array.dtype.kind == "i" and max(int(array.max(initial=0)), -int(array.min(initial=0))) <= MAX_INTEGER:
        return array.astype(np.int64, copy=False)
    if array.dtype.kind in "iuf":
        return array.astype(np.float64, copy=False)
    return np.full(array.shape, np.nan)


def integer_answer(answer: Any) -> NDArray[Any]:
    """Return a solver's vector as int64 where every entry is an integer, else as ``plain_answer`` does."""
    array = plain_answer(answer)
    if array.dtype == np.int64 or not (np.abs(array) <= MAX_INTEGER).all() or (array != np.rint(array)).any():
        return array
    return array.astype(np.int64)
