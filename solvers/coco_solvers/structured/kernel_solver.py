"""The shell around a kernel: checks the problem's type, times the call, wraps the value."""

from __future__ import annotations

from abc import ABC, abstractmethod
from time import perf_counter
from typing import Any, ClassVar

from coco_opt.errors import UnknownSolverError
from coco_opt.problem import Problem
from coco_opt.solution import Answer, Status


class KernelSolver(ABC):
    """Base of the structured solvers; a subclass names its problem type and implements ``fit``."""

    name: ClassVar[str]
    problem: ClassVar[type[Problem[Any, Any]]]
    tolerance: float

    @abstractmethod
    def fit(self, problem: Any) -> Any:
        """Return the exact solution of a problem of the right type."""

    def solve(self, problem: Problem[Any, Any]) -> Answer[Any, Any]:
        """Solve one problem; UnknownSolverError for another type."""
        if not isinstance(problem, self.problem):
            raise UnknownSolverError(f"solver {self.name!r} answers {self.problem.kind}, not {problem.kind}")
        start = perf_counter()
        value = self.fit(problem)
        return Answer(value, Status.OPTIMAL, seconds=perf_counter() - start)
