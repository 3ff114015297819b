"""The solver table: one row a backend, cheapest exact solver first (``auto`` takes the first that fits).

To add a solver, write its file and add its row here; nothing else changes.
"""

from __future__ import annotations

from coco_opt.registry import Backend

BACKENDS: tuple[Backend, ...] = (
    Backend(
        name="pav",
        target="coco_solvers.structured.isotonic:PoolAdjacentViolators",
        summary="pool adjacent violators, compiled, O(n)",
        kinds=("isotonic_l2",),
        packages=("numba",),
        honours_ties=True,
    ),
    Backend(
        name="divide-and-conquer",
        target="coco_solvers.structured.isotonic:DivideAndConquer",
        summary="divide and conquer on the value range, compiled, O(n log range)",
        kinds=("isotonic_l1",),
        packages=("numba",),
        honours_ties=True,
    ),
    Backend(
        name="pivot",
        target="coco_solvers.structured.simplex:SimplexPivot",
        summary="threshold by pivoting, compiled, expected O(n)",
        kinds=("simplex_projection",),
        packages=("numba",),
        honours_ties=True,
    ),
    Backend(
        name="largest-fractions",
        target="coco_solvers.structured.rounding:LargestFractions",
        summary="round up the largest fractional parts, expected O(n)",
        kinds=("controlled_rounding",),
        honours_ties=True,
    ),
    Backend(
        name="sorted-runs",
        target="coco_solvers.structured.matching:SortedRuns",
        summary="Algorithm 2 on sorted runs, compiled, O(R log R)",
        kinds=("group_matching",),
        packages=("numba",),
        honours_ties=True,
    ),
    Backend(
        name="scipy-pava",
        target="coco_solvers.structured.isotonic:SciPyPava",
        summary="scipy.optimize.isotonic_regression",
        kinds=("isotonic_l2",),
        packages=("scipy",),
        honours_ties=True,
    ),
    Backend(
        name="highs",
        target="coco_solvers.generic.highs:HiGHS",
        summary="HiGHS through highspy: simplex, interior point, active-set QP, branch and bound",
        forms=("lp", "qp", "milp"),
        packages=("highspy",),
        size_limit=100_000,
        size_limits={"isotonic_l2": 1_000, "simplex_projection": 1_000},
    ),
    Backend(
        name="piqp",
        target="coco_solvers.generic.piqp:PIQP",
        summary="PIQP: proximal interior point",
        forms=("lp", "qp"),
        packages=("piqp",),
        size_limit=200_000,
    ),
    Backend(
        name="clarabel",
        target="coco_solvers.generic.clarabel:Clarabel",
        summary="Clarabel: conic interior point",
        forms=("lp", "qp"),
        packages=("clarabel",),
        size_limit=100_000,
    ),
    Backend(
        name="osqp",
        target="coco_solvers.generic.osqp:OSQP",
        summary="OSQP: operator splitting with polishing",
        forms=("lp", "qp"),
        packages=("osqp",),
        size_limit=20_000,
        size_limits={"isotonic_l2": 3_000, "isotonic_l1": 3_000},
    ),
    Backend(
        name="scipy",
        target="coco_solvers.generic.scipy:SciPyLinprog",
        summary="scipy.optimize.linprog",
        forms=("lp",),
        packages=("scipy",),
        size_limit=30_000,
    ),
    Backend(
        name="scipy-milp",
        target="coco_solvers.generic.scipy:SciPyMilp",
        summary="scipy.optimize.milp",
        forms=("lp", "milp"),
        packages=("scipy",),
        size_limit=30_000,
    ),
    Backend(
        name="cvxpy",
        target="coco_solvers.generic.cvxpy:CVXPY",
        summary="CVXPY, the readable reference; cvxpy:NAME for any of its solvers",
        forms=("lp", "qp", "milp"),
        packages=("cvxpy",),
        parameter="engine",
        size_limit=20_000,
    ),
    Backend(
        name="brute-force",
        target="coco_solvers.oracles.brute_force:BruteForce",
        summary="exhaustive search in rational arithmetic, for tests",
        kinds=("isotonic_l2", "isotonic_l1", "simplex_projection", "controlled_rounding", "group_matching"),
        honours_ties=True,
        size_limit=12,
        size_limits={"group_matching": 36, "controlled_rounding": 16},
    ),
)
