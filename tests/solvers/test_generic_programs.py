"""Every generic backend on small programs with known answers, judged by the KKT conditions, not by the point."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from coco_solvers.generic.clarabel import Clarabel
from coco_solvers.generic.cvxpy import CVXPY
from coco_solvers.generic.highs import HiGHS, HiPO
from coco_solvers.generic.osqp import OSQP
from coco_solvers.generic.piqp import PIQP
from coco_solvers.generic.scipy import SciPyLinprog, SciPyMilp
from scipy.sparse import csc_array

from coco_opt import ControlledRounding, IsotonicL2, Problem, SimplexProjection, Status, solve
from coco_opt.errors import ConfigError, SolverError, UnknownSolverError
from coco_opt.forms import FORMS, LinearProgram, MixedIntegerProgram, QuadraticProgram
from coco_opt.operators import Grouping, identity
from coco_opt.problems import JointL2, SplitTerm, TopdownSplit
from coco_opt.registry import backend as registry_backend
from coco_opt.registry import make_solver
from coco_opt.solver import ProgramAnswer, ProgramSolver

INF = np.inf

HIPO: list[HiPO] = (
    [HiPO()] if registry_backend("hipo").installed else []
)  # an extra that not every machine has wheels for

BACKENDS: list[ProgramSolver] = [
    *HIPO,
    HiGHS(),
    HiGHS(method="simplex", presolve=False),
    HiGHS(method="ipm"),
    HiGHS(method="pdlp"),
    PIQP(),
    OSQP(),
    Clarabel(),
    CVXPY(),
    CVXPY(engine="SCS", accuracy=1e-9),
    CVXPY(engine="OSQP", accuracy=1e-9),
    CVXPY(engine="HIGHS"),
    SciPyLinprog(),
    SciPyLinprog(method="highs-ds", presolve=False),
    SciPyLinprog(method="highs-ipm"),
    SciPyMilp(),
]


ADAPTERS = ("highs", "piqp", "osqp", "clarabel", "cvxpy", "scipy")


def label(backend: ProgramSolver) -> str:
    changed = [
        str(getattr(backend, field.name))
        for field in dataclasses.fields(backend)  # type: ignore[arg-type]
        if getattr(backend, field.name) != field.default
    ]
    return "-".join([backend.name, *changed])


def lp(
    c: list[float],
    A: list[list[float]],
    rows: tuple[list[float], list[float]],
    bounds: tuple[list[float], list[float]],
    **more: Any,
) -> LinearProgram:
    """Return a program from lists; ``P`` makes it quadratic and ``integer`` mixed-integer."""
    kind: type[LinearProgram] = LinearProgram
    if "P" in more:
        kind, more["P"] = QuadraticProgram, csc_array(np.array(more["P"], dtype=float))
    if "integer" in more:
        kind, more["integer"] = MixedIntegerProgram, np.array(more["integer"], dtype=bool)
    return kind(
        c=np.array(c, dtype=float),
        A=csc_array(np.array(A, dtype=float).reshape(len(rows[0]), len(c))),
        row_lower=np.array(rows[0], dtype=float),
        row_upper=np.array(rows[1], dtype=float),
        lower=np.array(bounds[0], dtype=float),
        upper=np.array(bounds[1], dtype=float),
        **more,
    )


# name -> (program, optimal value without the offset)
INSTANCES: dict[str, tuple[LinearProgram, float]] = {
    "lp-ranged-row": (lp([-1, -2], [[1, 1]], ([1], [3]), ([0, 0], [INF, 2])), -5.0),
    "lp-lower-row": (lp([2, 3], [[1, 1], [1, -1]], ([4, -INF], [INF, 1]), ([0, 0], [INF, INF])), 9.5),
    "lp-equality-and-free-variable": (lp([1, 1], [[1, -1]], ([2], [2]), ([-3, -INF], [INF, INF])), -8.0),
    "lp-free-row": (lp([1, 1], [[1, 2], [1, 0]], ([-INF, 1], [INF, 2])[:2], ([0, 0], [5, 5])), 1.0),
    "lp-no-rows": (lp([1, -1], [], ([], []), ([-1, 0], [4, 7])), -8.0),
    "lp-one-variable": (lp([3], [[2]], ([4], [INF]), ([-INF], [INF])), 6.0),
    "lp-fixed-variable": (lp([1, 1], [[1, 1]], ([3], [INF]), ([2, 0], [2, INF])), 3.0),
    "qp-unconstrained": (lp([-2, -4], [], ([], []), ([-INF] * 2, [INF] * 2), P=[[2, 0], [0, 2]]), -5.0),
    "qp-bound-active": (lp([-2, 4], [], ([], []), ([0, 0], [INF] * 2), P=[[2, 0], [0, 2]]), -1.0),
    "qp-equality": (lp([0, 0], [[1, 1]], ([2], [2]), ([-INF] * 2, [INF] * 2), P=[[2, 0], [0, 2]]), 2.0),
    "qp-upper-row": (lp([-6, -6], [[1, 1]], ([-INF], [2]), ([-INF] * 2, [INF] * 2), P=[[2, 0], [0, 2]]), -10.0),
    "qp-off-diagonal": (lp([-3, 0], [[1, 1]], ([0], [1]), ([0, 0], [INF] * 2), P=[[2, -1], [-1, 2]]), -2.0),
    "qp-singular-P": (lp([0, 1], [[1, 1]], ([1], [4]), ([-INF, 0], [INF] * 2), P=[[2, 0], [0, 0]]), 0.75),
    "qp-one-variable": (lp([2], [[1]], ([-INF], [-3]), ([-10], [10]), P=[[2]]), 3.0),
    "qp-fixed-variable": (lp([0, 0], [[1, 1]], ([4], [INF]), ([1, 0], [1, INF]), P=[[2, 0], [0, 2]]), 10.0),
    "milp-knapsack": (
        lp([-10, -13, -7, -11], [[5, 6, 4, 5]], ([-INF], [10]), ([0] * 4, [1] * 4), integer=[1] * 4),
        -21.0,
    ),
    "milp-mixed": (lp([-1, -1], [[2, 1]], ([-INF], [4.5]), ([0, 0], [INF, 2]), integer=[1, 0]), -3.0),
    "milp-no-rows": (lp([1, -1], [], ([], []), ([0.5, 0], [3, 2.5]), integer=[1, 1]), -1.0),
}

PAIRS = [
    pytest.param(backend, name, id=f"{label(backend)}-{name}")
    for backend in BACKENDS
    for name, (program, _) in INSTANCES.items()
    if type(program) in backend.accepts
    and not (isinstance(program, MixedIntegerProgram) and getattr(backend, "engine", None) in ("SCS", "OSQP"))
    and not (isinstance(program, QuadraticProgram) and getattr(backend, "method", "choose") != "choose")
    # SCS takes no program without constraints.
    and not (name == "qp-unconstrained" and getattr(backend, "engine", None) == "SCS")
]


def objective(program: LinearProgram, z: np.ndarray) -> float:
    quadratic = 0.5 * z @ (program.P @ z) if isinstance(program, QuadraticProgram) else 0.0
    return float(program.c @ z + quadratic)


def violation(program: LinearProgram, z: np.ndarray) -> float:
    rows = program.A @ z
    parts = (program.row_lower - rows, rows - program.row_upper, program.lower - z, z - program.upper)
    return max(float(part.max(initial=0.0)) for part in parts)


def kkt_residual(program: LinearProgram, answer: ProgramAnswer) -> float:
    """Return the largest error of stationarity and of complementary slackness, signs as forms.py has them."""
    assert answer.z is not None
    assert answer.dual is not None
    rows, bounds = answer.dual.rows, answer.dual.bounds
    assert rows.shape == (program.rows,)
    assert bounds.shape == (program.variables,)
    gradient = program.c + (program.P @ answer.z if isinstance(program, QuadraticProgram) else 0.0)
    worst = float(np.abs(gradient - program.A.T @ rows - bounds).max())
    sides = (
        (program.A @ answer.z, program.row_lower, program.row_upper, rows),
        (answer.z, program.lower, program.upper, bounds),
    )
    for value, lower, upper, dual in sides:
        # A nonnegative dual needs the lower side active, a nonpositive one the upper side.
        slack = np.minimum(np.where(dual >= 0, value - lower, upper - value), 1.0)
        worst = max(worst, float(np.abs(dual * slack).max(initial=0.0)))
    return worst


@pytest.mark.parametrize(("backend", "name"), PAIRS)
def test_reaches_the_known_optimum_and_meets_its_conditions(backend: ProgramSolver, name: str) -> None:
    program, optimum = INSTANCES[name]
    answer = backend.solve_program(program)
    assert answer.status is Status.OPTIMAL
    assert answer.z is not None
    assert violation(program, answer.z) <= 1e-5
    assert objective(program, answer.z) == pytest.approx(optimum, abs=1e-5)
    if isinstance(program, MixedIntegerProgram):
        assert np.abs(answer.z - np.rint(answer.z))[program.integer].max() <= 1e-6
    if isinstance(program, MixedIntegerProgram) or isinstance(backend, SciPyMilp):
        assert answer.dual is None
    else:
        assert kkt_residual(program, answer) <= 2e-5


def random_qp(rng: np.random.Generator, n: int, m: int) -> QuadraticProgram:
    """Return a feasible strictly convex program with ranges, equalities, free rows and bounds of every kind."""
    A = rng.normal(size=(m, n)) * (rng.random((m, n)) < 0.5)
    root = rng.normal(size=(n, n))
    inside = rng.normal(size=n)
    rows = A @ inside
    row_lower = np.where(rng.random(m) < 0.3, -INF, rows - rng.random(m))
    row_upper = np.where(rng.random(m) < 0.3, INF, rows + rng.random(m))
    equal = rng.random(m) < 0.2
    return QuadraticProgram(
        c=3.0 * rng.normal(size=n),
        A=csc_array(A),
        row_lower=np.where(equal, rows, row_lower),
        row_upper=np.where(equal, rows, row_upper),
        lower=np.where(rng.random(n) < 0.5, -INF, inside - rng.random(n)),
        upper=np.where(rng.random(n) < 0.5, INF, inside + rng.random(n)),
        P=csc_array(root @ root.T + 0.1 * np.eye(n)),
    )


QP_BACKENDS: list[ProgramSolver] = [*HIPO, HiGHS(), PIQP(), OSQP(), Clarabel(), CVXPY()]


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("backend", QP_BACKENDS, ids=label)
def test_random_quadratic_programs_are_solved_to_optimality(backend: ProgramSolver, seed: int) -> None:
    rng = np.random.default_rng(seed)
    program = random_qp(rng, n=int(rng.integers(1, 13)), m=int(rng.integers(0, 9)))
    answer = backend.solve_program(program)
    assert answer.status is Status.OPTIMAL
    assert answer.z is not None
    assert violation(program, answer.z) <= 1e-6
    assert kkt_residual(program, answer) <= 1e-5


def random_lp(seed: int, n: int, m: int) -> LinearProgram:
    """Return the same without the quadratic part, between bounds."""
    quadratic = random_qp(np.random.default_rng(seed), n, m)
    fields = {field.name: getattr(quadratic, field.name) for field in dataclasses.fields(LinearProgram)}
    return LinearProgram(**{**fields, "lower": np.full(n, -10.0), "upper": np.full(n, 10.0)})


@pytest.mark.parametrize("seed", range(4))
def test_backends_agree_on_a_random_linear_program(seed: int) -> None:
    program, values = random_lp(100 + seed, n=8, m=5), []
    for backend in (*HIPO, HiGHS(), PIQP(), OSQP(), Clarabel(), CVXPY(), SciPyLinprog(), SciPyMilp()):
        answer = backend.solve_program(program)
        assert answer.status is Status.OPTIMAL
        assert answer.z is not None
        values.append(objective(program, answer.z))
    assert values == pytest.approx([values[0]] * len(values), rel=1e-6, abs=1e-6)


INFEASIBLE = {
    "lp": lp([1, 1], [[1, 1], [1, 1]], ([3, -INF], [INF, 1]), ([0, 0], [INF, INF])),
    "qp": lp([0, 0], [[1, 1]], ([5], [INF]), ([0, 0], [1, 1]), P=[[2, 0], [0, 2]]),
    "milp": lp([1], [[2]], ([1], [1]), ([0], [3]), integer=[1]),
}
UNBOUNDED = {
    "lp": lp([-1, 0], [[1, -1]], ([-INF], [2]), ([0, 0], [INF, INF])),
    "qp": lp([0, -1], [[1, 0]], ([1], [2]), ([0, 0], [INF, INF]), P=[[2, 0], [0, 0]]),
}
ONE_EACH: list[ProgramSolver] = [*HIPO, HiGHS(), PIQP(), OSQP(), Clarabel(), CVXPY(), SciPyLinprog(), SciPyMilp()]


def accepted(backends: list[ProgramSolver], programs: dict[str, LinearProgram]) -> list[Any]:
    return [
        pytest.param(backend, program, id=f"{label(backend)}-{name}")
        for backend in backends
        for name, program in programs.items()
        if type(program) in backend.accepts
    ]


@pytest.mark.parametrize(("backend", "program"), accepted(ONE_EACH, INFEASIBLE))
def test_an_infeasible_program_yields_no_point(backend: ProgramSolver, program: LinearProgram) -> None:
    answer = backend.solve_program(program)
    assert answer.status is Status.INFEASIBLE
    assert answer.z is None


@pytest.mark.parametrize(("backend", "program"), accepted(ONE_EACH, UNBOUNDED))
def test_an_unbounded_program_is_called_unbounded(backend: ProgramSolver, program: LinearProgram) -> None:
    answer = backend.solve_program(program)
    if isinstance(backend, PIQP) and answer.status is Status.ITERATION_LIMIT:
        # Before 0.7 PIQP has no certificate for a linear one: its point runs off until the iterations end.
        assert not isinstance(program, QuadraticProgram)
        return
    # HiPO does not tell which: a quadratic program without a solution is infeasible or unbounded to it.
    status = {Status.UNBOUNDED, Status.INFEASIBLE} if isinstance(backend, HiPO) else {Status.UNBOUNDED}
    assert answer.status in status
    assert answer.z is None


@pytest.mark.parametrize(
    "backend",
    [
        *[HiPO(max_iter=1)][: len(HIPO)],
        HiGHS(max_iter=1),
        PIQP(max_iter=2),
        OSQP(max_iter=2),
        Clarabel(max_iter=2),
        CVXPY(max_iter=2),
    ],
    ids=label,
)
def test_the_iteration_limit_is_reported(backend: ProgramSolver) -> None:
    program = random_qp(np.random.default_rng(5), n=12, m=8)
    assert backend.solve_program(program).status is Status.ITERATION_LIMIT


@pytest.mark.parametrize(
    "backend",
    [HiGHS(time_limit=0.0), SciPyLinprog(time_limit=0.0), SciPyMilp(time_limit=0.0)],
    ids=label,
)
def test_the_time_limit_is_reported(backend: ProgramSolver) -> None:
    assert backend.solve_program(random_lp(0, n=300, m=200)).status is Status.TIME_LIMIT


def test_the_form_option_picks_one_writing_of_a_problem() -> None:
    problem = ControlledRounding([0.5, 1.25, 2.25], 4)
    assert HiGHS().form_for(problem) is LinearProgram
    for solver in (HiGHS(form="milp"), CVXPY(form="milp"), SciPyMilp(form="milp")):
        assert solver.form_for(problem) is MixedIntegerProgram
        answer = solver.solve(problem)
        assert answer.value is not None
        assert answer.value.sum() == pytest.approx(4)


def test_a_problem_of_another_form_is_refused() -> None:
    with pytest.raises(UnknownSolverError, match=r"scipy.*lp.*qp"):
        SciPyLinprog().solve(SimplexProjection([1.0, 2.0], 1.0))
    with pytest.raises(UnknownSolverError, match=r"highs.*milp.*qp"):
        HiGHS(form="milp").solve(SimplexProjection([1.0, 2.0], 1.0))
    with pytest.raises(ConfigError, match=r"solvers.highs.form\] must be 'lp' or 'qp' or 'milp', not 'sdp'"):
        HiGHS(form="sdp").solve(SimplexProjection([1.0, 2.0], 1.0))  # type: ignore[arg-type]


@pytest.mark.parametrize("solver", [OSQP(), CVXPY(engine="OSQP")], ids=label)
def test_no_package_prints(solver: ProgramSolver, capsys: pytest.CaptureFixture[str]) -> None:
    """OSQP says so on standard output where no constraint is active and there is nothing to polish."""
    free = IsotonicL2([1, 2, 3], lower=0, upper=9)
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda _: solver.solve(free), range(4)))
    assert all(answer.value is not None for answer in answers)
    sys.stdout.write("heard again\n")
    assert capsys.readouterr().out == "heard again\n"


@pytest.mark.parametrize("backend", [HiGHS(), CVXPY(), SciPyMilp(), Clarabel()], ids=label)
def test_a_program_without_variables_needs_no_solver(backend: ProgramSolver) -> None:
    answer = backend.solve(ControlledRounding([1.0, 2.0], 3))
    assert answer.status is Status.OPTIMAL
    np.testing.assert_array_equal(answer.value, [1.0, 2.0])


@pytest.mark.parametrize("backend", QP_BACKENDS, ids=label)
def test_multipliers_reach_the_problem_with_the_right_sign(backend: ProgramSolver) -> None:
    problem = IsotonicL2([14.0, 9.0, 10.0, 15.0], lower=0.0, upper=13.0)
    answer = backend.solve(problem)
    np.testing.assert_allclose(answer.value, [11, 11, 11, 13], atol=1e-6)
    np.testing.assert_allclose(answer.multipliers, [0, 6, 2, 0, 4], atol=1e-5)


def test_cvxpy_names_what_is_installed() -> None:
    with pytest.raises(UnknownSolverError, match=r"'NOPE'.*CLARABEL"):
        CVXPY(engine="NOPE").solve_program(INSTANCES["lp-no-rows"][0])
    with pytest.raises(UnknownSolverError, match=r"OSQP.*HIGHS"):
        CVXPY(engine="OSQP").solve_program(INSTANCES["milp-mixed"][0])
    with pytest.raises(UnknownSolverError, match="SCIPY cannot express"):
        CVXPY(engine="SCIPY").solve_program(INSTANCES["qp-equality"][0])
    with pytest.raises(ConfigError, match=r"solvers\.cvxpy\.accuracy"):
        CVXPY(engine="HIGHS", accuracy=1e-6).solve_program(INSTANCES["lp-no-rows"][0])


def test_highs_refuses_values_and_programs_it_cannot_use() -> None:
    with pytest.raises(ConfigError, match=r"solvers\.highs\.mip_rel_gap"):
        HiGHS(mip_rel_gap=-1.0).solve_program(INSTANCES["milp-mixed"][0])
    concave = lp([0], [], ([], []), ([0], [1]), P=[[-2]])
    with pytest.raises(SolverError, match="qp"):
        HiGHS().solve_program(concave)


def _few_groups(seed: int) -> JointL2:
    """Measured groups in a tree of 13 regions, some of them without a weight."""
    rng = np.random.default_rng(seed)
    weights = (rng.random(13) < 0.6).astype(float)
    weights[0] = 1
    parent, groups = [-1, 0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3], [33, 11, 9, 13, 3, 7, 1, 3, 6, 0, 5, 1, 7]
    return JointL2(parent, np.rint(rng.laplace(0, 1000, (13, 20))), groups, weights)


def _noisy_split(seed: int) -> TopdownSplit:
    """Two children whose noise is as large as their persons."""
    rng = np.random.default_rng(seed)
    true = rng.multinomial(10_000, rng.dirichlet(np.full(80, 0.3))).reshape(2, 40).astype(float)
    fives = true.reshape(2, 8, 5).sum(axis=2)
    terms = [
        SplitTerm(operator, counts + np.rint(rng.laplace(0, noise, counts.shape)), np.full(2, noise**-2))
        for noise in (1.0, 100.0, 10_000.0)
        for operator, counts in ((identity(40), true), (Grouping(np.arange(40) // 5, 8), fives))
    ]
    return TopdownSplit(terms[-2:], true.sum(axis=0))


@pytest.mark.skipif(not HIPO, reason="needs HiPO")
@pytest.mark.parametrize(
    "problem",
    [
        pytest.param(SimplexProjection(np.random.default_rng(5).normal(0, 1e6, 300), 0.0), id="point"),
        pytest.param(_few_groups(21), id="joint"),
        pytest.param(_noisy_split(16338), id="split"),
        pytest.param(_noisy_split(16602), id="split 2"),
    ],
)
def test_highs_answers_where_its_active_set_ends_in_trouble(problem: Problem[Any, Any]) -> None:
    """The point that HiGHS refuses is kept where it is good after repair, the interior point's is taken elsewhere."""
    assert solve(problem, "highs").status is Status.OPTIMAL


def test_highs_keeps_to_its_limits_where_its_active_set_ends_in_trouble() -> None:
    y = [[106994.21389482348], [81584.49121717345], [27790.82066476997], [27869.433070290906]]
    problem = JointL2([-1, 0, 0, 0], y, [155123, 82264, 44121, 28738], [1.0, 0.0, 0.0, 100.0])
    answer = HiGHS(max_iter=5).solve(problem)
    assert answer.status is Status.ITERATION_LIMIT
    assert HiGHS().solve(problem).seconds < 10


def test_highs_changes_its_number_of_threads_and_runs_in_threads() -> None:
    program, optimum = INSTANCES["lp-ranged-row"]

    def value(threads: int) -> float:
        answer = HiGHS(threads=threads).solve_program(program)
        assert answer.z is not None
        return objective(program, answer.z)

    with ThreadPoolExecutor(2) as pool:
        values = [value(1), value(2), value(1), *pool.map(value, [1, 2, 1, 1])]
    assert values == pytest.approx([optimum] * 7)


def test_importing_adapters_loads_no_package() -> None:
    code = f"import sys, {', '.join(f'coco_solvers.generic.{module}' for module in ADAPTERS)}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not set(done.stdout.split()) & {"highspy", "piqp", "osqp", "clarabel", "cvxpy", "scipy"}


@pytest.mark.parametrize("backend", ONE_EACH, ids=label)
def test_the_table_row_builds_the_class_and_lists_its_forms(backend: ProgramSolver) -> None:
    row = registry_backend(backend.name)
    assert row.make() == backend
    assert {FORMS[form] for form in row.forms} == set(backend.accepts)


def test_a_misspelt_option_names_the_near_one() -> None:
    with pytest.raises(ConfigError, match=r"solvers\.highs\.methd.*'method'"):
        make_solver("highs", methd="ipm")
    with pytest.raises(ConfigError, match="'simplex'"):
        make_solver("highs", method="simplx")
    assert make_solver("cvxpy:SCS", accuracy=1e-7) == CVXPY(engine="SCS", accuracy=1e-7)
