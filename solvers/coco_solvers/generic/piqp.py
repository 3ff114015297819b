"""PIQP: a proximal interior-point method for sparse linear and quadratic programs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from coco_opt.array_types import Flags, Floats
from coco_opt.forms import LinearProgram, ProgramDual, QuadraticProgram
from coco_opt.solution import Status
from coco_opt.solver import ProgramAnswer, ProgramSolver
from coco_solvers.generic.adapt import Indices, claim, csc32, quadratic_term, taken

if TYPE_CHECKING:
    from scipy.sparse import csc_matrix


@dataclass(frozen=True)
class PIQP(ProgramSolver):
    """PIQP, sparse; ``eps_abs`` and ``eps_rel`` bound the residuals and the duality gap."""

    name: ClassVar[str] = "piqp"
    accepts: ClassVar[tuple[type[LinearProgram], ...]] = (LinearProgram, QuadraticProgram)

    eps_abs: float = 1e-9
    eps_rel: float = 1e-10
    max_iter: int = 250
    tolerance: float = 1e-7

    def solve_program(self, program: LinearProgram) -> ProgramAnswer:
        """Solve a linear or quadratic program."""
        import piqp

        rows = _SplitRows.of(program)
        solver = piqp.SparseSolver()
        settings = solver.settings
        settings.verbose = False
        settings.max_iter = self.max_iter
        settings.eps_abs = settings.eps_duality_gap_abs = self.eps_abs
        settings.eps_rel = settings.eps_duality_gap_rel = self.eps_rel
        solver.setup(
            quadratic_term(program),
            program.c,
            rows.equal_matrix,
            rows.equal_values,
            rows.ranged_matrix,
            program.row_lower[rows.ranged],
            program.row_upper[rows.ranged],
            np.where(rows.is_fixed, -np.inf, program.lower),
            np.where(rows.is_fixed, np.inf, program.upper),
        )
        statuses = {
            piqp.PIQP_SOLVED: Status.OPTIMAL,
            piqp.PIQP_PRIMAL_INFEASIBLE: Status.INFEASIBLE,
            piqp.PIQP_DUAL_INFEASIBLE: Status.UNBOUNDED,
            piqp.PIQP_MAX_ITER_REACHED: Status.ITERATION_LIMIT,
        }
        status = statuses.get(solver.solve(), Status.NUMERICAL_TROUBLE)
        result = solver.result
        dual = rows.dual(result.y, result.z_l - result.z_u, result.z_bl - result.z_bu)
        return claim(status, np.array(result.x), dual, int(result.info.iter))


@dataclass(frozen=True, eq=False, slots=True)
class _SplitRows:
    """Rows in PIQP's form: equalities (fixed variables too) separate from ranges, without free rows."""

    equal: Indices
    ranged: Indices
    is_fixed: Flags
    equal_matrix: csc_matrix
    equal_values: Floats
    ranged_matrix: csc_matrix
    rows: int

    @classmethod
    def of(cls, program: LinearProgram) -> _SplitRows:
        is_equal = program.row_lower == program.row_upper
        is_free = (program.row_lower == -np.inf) & (program.row_upper == np.inf)
        equal, ranged = np.flatnonzero(is_equal), np.flatnonzero(~is_equal & ~is_free)
        is_fixed = program.lower == program.upper
        equal_matrix = taken(program.A, equal)
        if is_fixed.any():
            from scipy.sparse import eye_array, vstack

            units = eye_array(program.variables, format="csr")[np.flatnonzero(is_fixed)]
            equal_matrix = csc32(vstack([equal_matrix, units]))
        return cls(
            equal=equal,
            ranged=ranged,
            is_fixed=is_fixed,
            equal_matrix=equal_matrix,
            equal_values=np.concatenate([program.row_lower[equal], program.lower[is_fixed]]),
            ranged_matrix=taken(program.A, ranged),
            rows=program.rows,
        )

    def dual(self, equal: Floats, ranged: Floats, bounds: Floats) -> ProgramDual:
        """Return duals of the program's rows and bounds; PIQP's for equalities have the opposite sign."""
        rows = np.zeros(self.rows)
        rows[self.equal] = -equal[: self.equal.size]
        rows[self.ranged] = ranged
        on_bounds = np.array(bounds)
        on_bounds[self.is_fixed] = -equal[self.equal.size :]
        return ProgramDual(rows, on_bounds)
