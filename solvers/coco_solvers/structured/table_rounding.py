"""Controlled rounding of tables: a flow where rows are nested; elsewhere exchanges of persons, or HiGHS."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter
from typing import Any, ClassVar

import numpy as np

from coco_opt.array_types import Ints
from coco_opt.errors import UnknownSolverError
from coco_opt.problem import Problem
from coco_opt.problems.table_rounding import RoundingData, RoundingDual, TableRounding
from coco_opt.problems.table_rounding.level import Rounded, RoundingLevel
from coco_opt.problems.table_rounding.transport import solve_nested
from coco_opt.solution import Answer, Status

_ANY = 1 << 40  # persons: room that is never used up
_LEAST_ENTRIES = 50  # few cells are exchanged as often as so many


@dataclass(frozen=True)
class ShortestPaths:
    """Largest fractions, prices by coordinate ascent, shortest paths for what is left: exact where rows are nested.

    Several queries that cross, over rows that are nested, are rounded together: from the nearest cells on, persons are
    exchanged, ``moves`` times an open cell, at a falling temperature. The answer is good and not proved best.
    Other rows go to HiGHS as a mixed-integer program for ``time_limit`` seconds: where it has not finished by then, its
    best table depends on the machine, and the certified gap says how far it can be from the optimum. 20 children of 200
    cells under nested rows take 1 CPU ms, PIQP 5 and HiGHS 21.
    """

    tolerance: float = 1e-9
    time_limit: float = 30.0
    moves: int = 200

    name: ClassVar[str] = "shortest-paths"

    def solve(self, problem: Problem[Any, Any]) -> Answer[Any, Any]:
        """Solve one problem; UnknownSolverError for another type, ProblemError naming a row that nothing meets."""
        if not isinstance(problem, TableRounding):
            raise UnknownSolverError(f"solver {self.name!r} answers table_rounding, not {problem.kind}")
        start = perf_counter()
        flow = solve_nested(problem)
        together = flow is None and len(problem.queries) > 1
        if together:
            flow = solve_nested(RoundingData(problem.x, problem.parent, problem.constraints, problem.slack))
        if flow is None:
            from coco_solvers.generic.highs import HiGHS

            return HiGHS(form="milp", time_limit=self.time_limit).solve(problem)
        if flow.unmet is not None:
            raise problem.unmet(*flow.unmet)
        if together:
            table = _exchanged(problem, flow.table, self.moves)
            return Answer(
                table,
                Status.ITERATION_LIMIT,
                RoundingDual.zeros(problem.shape[1], problem.sides[0].shape),
                seconds=perf_counter() - start,
            )
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


def _exchanged(problem: TableRounding, table: Ints, moves: int) -> Ints:
    """Return tables whose answers to all queries are nearer than those of ``table``, with the same sums and rows."""
    from coco_opt.kernels import crossing_rounding

    queries, cells = problem.query_rows, problem.open
    children, none = problem.shape[0], np.zeros((1, cells.size), np.int64)
    # Outside is a last child with room for anything; a last cell that nothing counts stands for nobody.
    room = np.pad(problem.room, ((0, 1), (0, 1)), constant_values=_ANY)
    x = np.pad(np.vstack([(table - problem.low)[:, cells], none]), ((0, 0), (0, 1)), constant_values=_ANY // 2)
    x[children] = _ANY // 2
    residual = np.zeros((children + 1, queries.shape[0]))
    residual[:children] = queries.apply(x[:children, :-1].T.astype(np.float64)).T - problem.aims
    column = np.repeat(np.arange(cells.size), np.diff(queries.column_start))
    order = np.lexsort((queries.row, column))
    child, cell = np.nonzero(problem.room)
    by_cell = np.argsort(cell, kind="stable")
    first = np.searchsorted(cell[by_cell], np.arange(cells.size + 1))
    starts = np.append(queries.column_start, queries.column_start[-1])
    crossing_rounding.exchange(
        crossing_rounding.Columns(starts, queries.row[order], queries.column_value[order]),
        crossing_rounding.Open(child, cell, first, child[by_cell], problem.parent is not None),
        crossing_rounding.Alike(*_alike(problem)),
        room,
        x,
        residual,
        moves * max(child.size, _LEAST_ENTRIES),
        problem.seed,
    )
    result = table.copy()
    result[:, cells] = problem.low[:, cells] + x[:children, :-1]
    return result


def _alike(problem: TableRounding) -> tuple[Ints, Ints, Ints]:
    """Return the open cells in classes that the same rows count, with a last cell that no row counts."""
    rows, number = problem.rows, dict[bytes, int]()
    spans = [slice(*rows.column_start[cell : cell + 2]) for cell in range(problem.open.size)] + [slice(0)]
    keys = [rows.row[span].tobytes() + rows.column_value[span].tobytes() for span in spans]
    of = np.array([number.setdefault(key, len(number)) for key in keys], np.int64)
    cells = np.argsort(of, kind="stable")
    return of, np.searchsorted(of[cells], np.arange(len(number) + 1)), cells
