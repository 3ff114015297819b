"""What a solver returns and what the core makes of it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

ValueT = TypeVar("ValueT")
DualT = TypeVar("DualT")


class Status(Enum):
    """How a solve ended; ``advice`` says what to do next."""

    OPTIMAL = "Nothing to do: the point is feasible and its certified gap is within tolerance."
    OPTIMAL_BY_SEARCH = (
        "The solver searched the integer points and claims this one optimal, which the certificate does not prove: its "
        "gap is a bound. Take the claim, or use another solver."
    )
    GAP_TOO_LARGE = (
        "The point is feasible but its certified gap exceeds the tolerance: tighten the solver's own tolerances, "
        "raise its iteration limit, or use another solver."
    )
    INFEASIBLE_POINT = (
        "The point violates the constraints by more than repair can mend: tighten the solver's feasibility "
        "tolerance, or use another solver."
    )
    ITERATION_LIMIT = "The solver ran out of iterations: raise max_iter, or use another solver."
    TIME_LIMIT = "The solver ran out of time: raise time_limit, or use another solver."
    INFEASIBLE = "The solver claims that no feasible point exists: check the problem's totals and bounds."
    UNBOUNDED = "The solver claims that the objective has no lower bound: check the problem's weights."
    NUMERICAL_TROUBLE = "The solver broke down numerically: rescale the data, or use another solver."

    @property
    def advice(self) -> str:
        """Return what to do next, in one sentence."""
        return self.value


@dataclass(frozen=True, eq=False)
class Answer(Generic[ValueT, DualT]):
    """A solver's claim: a point, perhaps multipliers, and how it stopped. Nobody believes it yet.

    ``status`` is OPTIMAL where the solver says it succeeded, OPTIMAL_BY_SEARCH where it searched integer points, whose
    optimum duality may not prove. ``seconds`` counts the solver's own work and
    ``build_seconds`` the writing of the program, both wall time.
    """

    value: ValueT | None
    status: Status
    multipliers: DualT | None = None
    iterations: int | None = None
    seconds: float = 0.0
    build_seconds: float = 0.0


@dataclass(frozen=True, eq=False, repr=False)
class Solution(Generic[ValueT]):
    """A point, judged by its problem.

    Attributes
    ----------
    value : array
        The point after the problem's repair; feasible within tolerance when ``ok``.
    objective : float
        The objective at ``value``; nan if the point stays infeasible.
    violation : float
        The largest violation of a constraint after the repair, in the unit of the data.
    raw_violation : float
        The same before the repair.
    gap : float
        A certified bound on ``objective`` minus the optimum; infinite if the point stays infeasible.
    tolerance : float
        The relative gap that counts as optimal. What rounding to doubles alone can cost (``Problem.resolution``) is
        added.
    status : Status
        How the solve ended.
    solver : str
        The solver's name.
    problem : str
        The problem's kind.
    iterations : int or None
        The solver's own count.
    seconds : float
        Wall seconds of solving.
    build_seconds : float
        Wall seconds of writing the problem in the solver's form.
    judge_seconds : float
        Wall seconds of judging the point.
    objective_scale : float
        What the gap is compared with where the objective is smaller: 1, or less where the problem's data or weights are
        so small that its objectives are too.

    Notes
    -----
    All figures are computed by the problem in the same way for every solver. No solver's own claim is used; a status of
    OPTIMAL_BY_SEARCH repeats one.
    """

    value: ValueT
    objective: float
    violation: float
    gap: float
    raw_violation: float
    tolerance: float
    status: Status
    solver: str
    problem: str
    iterations: int | None
    seconds: float
    build_seconds: float
    judge_seconds: float
    objective_scale: float = 1.0

    @property
    def ok(self) -> bool:
        """Return whether the point is certified optimal within tolerance."""
        return self.status is Status.OPTIMAL

    @property
    def usable(self) -> bool:
        """Return whether the point meets all constraints exactly and its gap is known, whatever its size."""
        return self.violation == 0.0 and math.isfinite(self.gap)

    @property
    def relative_gap(self) -> float:
        """Return the gap divided by the objective, or by ``objective_scale`` where the objective is smaller."""
        return self.gap / max(self.objective_scale, abs(self.objective))

    def __repr__(self) -> str:
        return (
            f"Solution({self.problem} by {self.solver}: {self.status.name}, objective {self.objective:.10g}, "
            f"gap <= {self.gap:.2g}, violation {self.violation:.2g}, {self.seconds:.3g} s)"
        )
