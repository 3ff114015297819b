"""A sweep of small programs for controlled rounding of tables: two children at a time exchange people.

The start keeps the parent's sums and as many rows of C as are nested. Then pairs of children, worst first, share their
people anew: fewest broken rows first, then the least distance. With everything else fixed such a program is small,
and a transport problem where C is two partitions of the cells.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coco_opt.array_types import Floats, Ints
from coco_opt.forms import MixedIntegerProgram
from coco_opt.operators import stack
from coco_opt.problems.table_rounding import UNBOUNDED, IntegerRows, TableRounding
from coco_opt.problems.table_rounding.program import Written, relaxation
from coco_opt.problems.table_rounding.transport import nested_part, solve
from coco_solvers.generic.highs import HiGHS

_BETTER = 1e-9  # the least improvement that counts, in people


@dataclass(eq=False, slots=True)
class _Sweep:
    problem: TableRounding
    table: Ints
    deadline: float

    def broken(self) -> Floats:
        """Return by how much each child misses its rows in all (children,)."""
        constraints = self.problem.constraints
        assert constraints is not None
        values = constraints.operator.apply(self.table.astype(np.float64))
        short = np.maximum(constraints.lower - values, 0.0) + np.maximum(values - constraints.upper, 0.0)
        return np.asarray(short.sum(axis=1))

    def cost(self, children: list[int]) -> float:
        """Return the distance of some children's tables."""
        apart = self.table[children] - self.problem.x[children]
        queries = self.problem.queries
        return float(np.abs(stack(queries).apply(apart) if queries else apart).sum())

    def run(self) -> None:
        """Sweep until a pass over all pairs changes nothing, or time is over."""
        changed = True
        while changed:
            changed = False
            broken = self.broken()
            pairs = sorted(combinations(range(len(broken)), 2), key=lambda pair: -float(broken[list(pair)].sum()))
            for pair in pairs:
                if perf_counter() > self.deadline:
                    return
                changed |= self.exchange(list(pair))

    def exchange(self, pair: list[int]) -> bool:
        """Let a pair share its people anew; return whether that helped."""
        before, broken, cost = self.table[pair].copy(), self.broken()[pair].sum(), self.cost(pair)
        best = self.best(pair)
        if best is None:
            return False
        self.table[pair] = best
        now, worth = self.broken()[pair].sum(), self.cost(pair)
        if now < broken - _BETTER or (now <= broken + _BETTER and worth < cost - _BETTER):
            return True
        self.table[pair] = before
        return False

    def best(self, pair: list[int]) -> Ints | None:
        """Return the pair's best tables, None where HiGHS finds none in the time left."""
        problem, constraints = self.problem, self.problem.constraints
        assert constraints is not None
        shape = (len(pair), constraints.operator.answers)
        free = IntegerRows(constraints.operator, np.full(shape, -UNBOUNDED), np.full(shape, UNBOUNDED))
        part = TableRounding(problem.x[pair], self.table[pair].sum(axis=0), free, problem.slack, problem.queries)
        written = relaxation(part, (problem.sides[0][pair], problem.sides[1][pair]))
        program = _elastic(written)
        left = max(0.01, self.deadline - perf_counter())
        answer = HiGHS(time_limit=left).solve_program(program)
        return None if answer.z is None else np.asarray(written.table(answer.z[: written.program.variables]))


def _elastic(written: Written) -> MixedIntegerProgram:
    """Return the program in which a row of C may be missed at a price that no saved distance repays."""
    from scipy.sparse import csc_array, eye_array, hstack

    data, program = written.data, written.program
    first = 0 if data.parent is None else data.open.size
    rows = int(written.row_present.sum())
    unit = eye_array(program.rows, format="csc")[:, first : first + rows]
    counted = sum((query.absolute_columns for query in data.queries), np.zeros(data.shape[1]))
    most = (data.room * counted[data.open]).sum() if data.queries else data.room.sum()
    extra = 2 * rows
    return MixedIntegerProgram(
        c=np.concatenate([program.c, np.full(extra, 2.0 * most + 1.0)]),
        A=csc_array(hstack([program.A, unit, -unit], format="csc")),
        row_lower=program.row_lower,
        row_upper=program.row_upper,
        lower=np.concatenate([program.lower, np.zeros(extra)]),
        upper=np.concatenate([program.upper, np.full(extra, np.inf)]),
        offset=program.offset,
        integer=np.concatenate([written.integer, np.zeros(extra, np.bool_)]),
    )


def sweep(problem: TableRounding, start: NDArray[Any] | None, seconds: float) -> Ints:
    """Return tables that keep the parent's sums and, where the sweep finds such, all rows of C.

    ``start`` is a table to improve, None for the nearest table that keeps the nested rows. After about ``seconds`` the
    best so far is returned, so the answer depends on the machine. Without a parent's sums there is nothing to exchange.
    """
    deadline = perf_counter() + seconds
    if start is None:
        start = solve(nested_part(problem)).table
    running = _Sweep(problem, np.array(start, dtype=np.int64), deadline)
    if problem.parent is not None and problem.constraints is not None:
        running.run()
    return running.table
