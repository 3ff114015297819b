"""Controlled rounding of tables: a flow for nested rows."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter
from typing import Any, ClassVar

from coco_opt.errors import UnknownSolverError
from coco_opt.problem import Problem
from coco_opt.problems.table_rounding import TableRounding
from coco_opt.problems.table_rounding_transport import solve_nested
from coco_opt.solution import Answer, Status


@dataclass(frozen=True)
class ShortestPaths:
    """Largest fractions repaired along shortest paths for nested rows; for others HiGHS."""

    tolerance: float = 1e-9
    time_limit: float = 30.0

    name: ClassVar[str] = "shortest-paths"

    def solve(self, problem: Problem[Any, Any]) -> Answer[Any, Any]:
        """Solve one problem; UnknownSolverError for another type, ProblemError naming a row that nothing meets."""
        if not isinstance(problem, TableRounding):
            raise UnknownSolverError(f"solver {self.name!r} answers table_rounding, not {problem.kind}")
        start = perf_counter()
        found = solve_nested(problem)
        if found is None:
            from coco_solvers.generic.highs import HiGHS

            return HiGHS(form="milp", time_limit=self.time_limit).solve(problem)
        seconds = perf_counter() - start
        if found.unmet is not None:
            raise problem.unmet(*found.unmet)
        return Answer(found.table, Status.OPTIMAL, found.prices, seconds=seconds)
