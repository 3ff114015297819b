"""Clarabel: an interior-point method over cones, here for linear and quadratic programs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from coco_opt.forms import LinearProgram, QuadraticProgram
from coco_opt.solution import Status
from coco_opt.solver import ProgramAnswer, ProgramSolver
from coco_solvers.generic.adapt import claim, csc32, quadratic_term, sides, stacked_rows


@dataclass(frozen=True)
class Clarabel(ProgramSolver):
    """Clarabel; the three tolerances bound the duality gap (absolute, relative) and the residuals."""

    name: ClassVar[str] = "clarabel"
    accepts: ClassVar[tuple[type[LinearProgram], ...]] = (LinearProgram, QuadraticProgram)

    tol_gap_abs: float = 1e-9
    tol_gap_rel: float = 1e-9
    tol_feas: float = 1e-9
    max_iter: int = 200
    time_limit: float | None = None
    threads: int = 1
    tolerance: float = 1e-6

    def solve_program(self, program: LinearProgram) -> ProgramAnswer:
        """Solve a linear or quadratic program written as ``A z + s = b`` with s in a cone."""
        import clarabel
        from scipy.sparse import csr_array, triu, vstack

        rows = stacked_rows(program)
        split = sides(rows.lower, rows.upper)
        by_row = csr_array(rows.matrix)
        matrix = vstack([by_row[split.equal], by_row[split.upper], -by_row[split.lower]])
        b = np.concatenate([rows.lower[split.equal], rows.upper[split.upper], -rows.lower[split.lower]])
        cones = [
            clarabel.ZeroConeT(split.equal.size),
            clarabel.NonnegativeConeT(split.upper.size + split.lower.size),
        ]
        P = csc32(triu(quadratic_term(program)))
        result = clarabel.DefaultSolver(P, program.c, csc32(matrix), b, cones, self._settings()).solve()

        equal, upper, lower = np.split(
            np.asarray(result.z, dtype=np.float64),
            [split.equal.size, split.equal.size + split.upper.size],
        )
        stacked = np.zeros(rows.lower.size)
        stacked[split.equal] -= equal
        stacked[split.upper] -= upper
        stacked[split.lower] += lower
        z = np.asarray(result.x, dtype=np.float64)
        return claim(_status(result.status), z, rows.dual(stacked), int(result.iterations))

    def _settings(self) -> object:
        import clarabel

        settings = clarabel.DefaultSettings()
        settings.verbose = False
        settings.tol_gap_abs, settings.tol_gap_rel = self.tol_gap_abs, self.tol_gap_rel
        settings.tol_feas = self.tol_feas
        settings.max_iter = self.max_iter
        settings.max_threads = self.threads
        if self.time_limit is not None:
            settings.time_limit = self.time_limit
        return settings


def _status(status: object) -> Status:
    """Translate Clarabel's status; "almost solved" counts as trouble unless the certificate proves otherwise."""
    return {
        "Solved": Status.OPTIMAL,
        "PrimalInfeasible": Status.INFEASIBLE,
        "AlmostPrimalInfeasible": Status.INFEASIBLE,
        "DualInfeasible": Status.UNBOUNDED,
        "AlmostDualInfeasible": Status.UNBOUNDED,
        "MaxIterations": Status.ITERATION_LIMIT,
        "MaxTime": Status.TIME_LIMIT,
    }.get(str(status), Status.NUMERICAL_TROUBLE)
