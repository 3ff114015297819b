"""Controlled rounding of tables: a flow where rows are nested, HiGHS and then a sweep of small programs elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter
from typing import Any, ClassVar

import numpy as np

from coco_opt.errors import UnknownSolverError
from coco_opt.problem import Problem
from coco_opt.problems.table_rounding import TableRounding
from coco_opt.problems.table_rounding.level import Rounded, RoundingLevel
from coco_opt.problems.table_rounding.transport import solve_nested
from coco_opt.solution import Answer, Status


@dataclass(frozen=True)
class ShortestPaths:
    """Largest fractions, prices by coordinate ascent, shortest paths for what is left: exact where rows are nested.

    Other rows go to HiGHS as a mixed-integer program for ``time_limit`` seconds and, where it has not finished by then,
    its best table goes through a sweep over pairs of children for ``sweep_limit`` seconds: then the answer depends on
    the machine, and its certified gap says how far it can be from the optimum.
    """

    tolerance: float = 1e-9
    time_limit: float = 30.0
    sweep_limit: float = 30.0

    name: ClassVar[str] = "shortest-paths"

    def solve(self, problem: Problem[Any, Any]) -> Answer[Any, Any]:
        """Solve one problem; UnknownSolverError for another type, ProblemError naming a row that nothing meets."""
        if not isinstance(problem, TableRounding):
            raise UnknownSolverError(f"solver {self.name!r} answers table_rounding, not {problem.kind}")
        start = perf_counter()
        flow = solve_nested(problem)
        if flow is None:
            return self._overlapping(problem)
        if flow.unmet is not None:
            raise problem.unmet(*flow.unmet)
        return Answer(flow.table, Status.OPTIMAL, flow.prices, seconds=perf_counter() - start)

    def round_level(self, level: RoundingLevel) -> Rounded:
        """Round the children of many parents in passes, all of them flows."""
        from coco_opt.kernels import round_level

        integer_tables = np.zeros(int(level.places[-1]), np.int64)
        parents, passes = (level.starts, level.cells, level.people, level.first, level.children), level.passes
        done, gaps, relative, solved = round_level.solve(
            level.columns, parents, level.places, level.tables, passes, np.uint64(level.seed), integer_tables
        )
        return Rounded(integer_tables, done == 1, int(solved.sum()), float(gaps.max()), float(relative.max()))

    def _overlapping(self, problem: TableRounding) -> Answer[Any, Any]:
        from coco_solvers.generic.highs import HiGHS

        answer = HiGHS(form="milp", time_limit=self.time_limit).solve(problem)
        if answer.status is not Status.TIME_LIMIT or self.sweep_limit <= 0.0:
            return answer
        from coco_solvers.structured.table_sweep import sweep

        start = perf_counter()
        feasible = answer.value is not None and problem.violation(answer.value) == 0.0
        value = sweep(problem, answer.value if feasible else None, self.sweep_limit)
        seconds = answer.seconds + perf_counter() - start
        # A table that misses a row would only be refused, so it is not returned.
        accepted = value if problem.violation(value) == 0.0 else None
        return Answer(accepted, Status.TIME_LIMIT, seconds=seconds, build_seconds=answer.build_seconds)
