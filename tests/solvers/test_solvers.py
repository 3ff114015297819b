"""Every solver on every problem it claims, judged by certified gap and violation, never by fitted values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from coco_solvers.oracles.brute_force import BruteForce

from coco_opt import SolverChoices, backends, make_solver, solve, solve_many
from coco_opt.errors import ConfigError, ProblemError, SolverError, UnknownSolverError
from coco_opt.problem import Problem
from coco_opt.problems import PROBLEMS, ControlledRounding, Flow, IsotonicL1, IsotonicL2, SimplexProjection
from coco_opt.registry import Backend, candidates
from coco_opt.solution import Answer, Status
from coco_opt.solver import judge
from tests.solvers.instances import moderate, tiny

TINY = tiny()
MODERATE = moderate()
INSTANCES = {**TINY, **MODERATE}


def pairs(instances: dict[str, Problem[Any, Any]]) -> list[Any]:
    return [
        pytest.param(backend, problem, id=f"{backend.name}-{name}")
        for name, problem in instances.items()
        for backend in candidates(type(problem))
        if backend.installed and problem.variables <= backend.limit(problem.kind)
    ]


@pytest.mark.parametrize(("backend", "problem"), pairs(INSTANCES))
def test_reaches_the_certified_optimum(backend: Backend, problem: Problem[Any, Any]) -> None:
    solution = solve(problem, backend.make())
    reference = solve(problem)
    assert solution.ok
    assert solution.violation <= problem.feasibility_tolerance * problem.scale
    allowed = solution.tolerance * max(1.0, abs(reference.objective)) + 1e-9
    assert abs(solution.objective - reference.objective) <= allowed
    assert reference.gap <= 1e-9 * max(1.0, abs(reference.objective))


@pytest.mark.parametrize("problem", TINY.values(), ids=TINY)
def test_kernels_match_brute_force(problem: Problem[Any, Any]) -> None:
    exact = solve(problem, BruteForce())
    fast = solve(problem)
    assert fast.objective == pytest.approx(exact.objective, rel=1e-12, abs=1e-12)
    if isinstance(fast.value, np.ndarray) and not isinstance(problem, ControlledRounding):
        np.testing.assert_allclose(fast.value, exact.value, rtol=0, atol=1e-12)


ONLY_ONE_POINT = {"simplex-nothing-tiny", "simplex-one-tiny"}
CORRUPTIBLE = [
    name for name in INSTANCES if not name.startswith(("matching", "rounding")) and name not in ONLY_ONE_POINT
]


@pytest.mark.parametrize("name", CORRUPTIBLE)
def test_a_corrupted_point_is_not_certified(name: str) -> None:
    problem = INSTANCES[name]
    good = solve(problem)
    ramp = np.linspace(0.1, 1.0, good.value.size) * problem.scale
    candidates = (problem.repair(good.value + ramp), problem.repair(good.value - ramp))
    worse = max(candidates, key=problem.objective)
    assert problem.objective(worse) > good.objective * (1 + 1e-6) + 1e-6
    verdict = judge(problem, Answer(worse, Status.OPTIMAL), "liar", 1e-6)
    assert verdict.status is Status.GAP_TOO_LARGE
    assert verdict.gap >= problem.objective(worse) - good.objective - 1e-6 * max(1.0, abs(good.objective))


@pytest.mark.parametrize("name", ["rounding", "rounding-thirds"])
def test_a_corrupted_rounding_is_not_certified(name: str) -> None:
    problem = MODERATE[name]
    assert isinstance(problem, ControlledRounding)
    value = np.array(solve(problem).value)
    fractions = problem.fractions
    up = np.flatnonzero((value > problem.x) & (fractions >= 0.5))
    down = np.flatnonzero((value < problem.x) & (fractions < 0.5))
    if name == "rounding":  # all fractions are halves: any choice of cells is optimal, so break the sum instead
        value[up[0]] -= 1
        assert judge(problem, Answer(value, Status.OPTIMAL), "liar", 1e-9).violation == 0.0
        assert problem.violation(value) == 1.0
        return
    value[up[0]] -= 1
    value[down[0]] += 1
    verdict = judge(problem, Answer(value, Status.OPTIMAL), "liar", 1e-9)
    assert verdict.status is Status.GAP_TOO_LARGE
    assert verdict.gap >= 2 / 3 - 1e-9


def test_a_corrupted_matching_is_not_certified() -> None:
    problem = MODERATE["matching"]
    good = solve(problem).value
    shifted = Flow(good.parent_run, np.roll(good.child_run, 1), good.count)
    with pytest.raises(SolverError, match="INFEASIBLE_POINT"):
        solve(problem, Planted(Answer(shifted, Status.OPTIMAL)))


class Planted:
    """A solver that returns what it is told to."""

    name = "planted"
    tolerance = 1e-9

    def __init__(self, answer: Answer[Any, Any]) -> None:
        self._answer = answer

    def solve(self, problem: Problem[Any, Any]) -> Answer[Any, Any]:
        return self._answer


@pytest.mark.parametrize("kind", ["isotonic_l1", "isotonic_l2"])
def test_wrong_multipliers_never_certify(kind: str) -> None:
    problem = PROBLEMS[kind]([5, 1, 4, 2, 8, 3])
    best = solve(problem).objective
    rng = np.random.default_rng(3)
    for _ in range(200):
        x = np.sort(rng.normal(4, 3, 6))
        gap = problem.gap(x, problem.admissible(rng.normal(0, 5, 7)))
        assert gap >= problem.objective(x) - best - 1e-9


def test_simplex_gap_is_a_bound_for_any_multiplier() -> None:
    problem = SimplexProjection([5.0, -1.0, 0.25, 4.0], 6)
    best = solve(problem).objective
    rng = np.random.default_rng(4)
    for _ in range(200):
        x = rng.dirichlet(np.ones(4)) * 6
        assert problem.gap(x, rng.normal(0, 10)) >= problem.objective(x) - best - 1e-9


def test_not_optimal_raises_with_advice_unless_unchecked() -> None:
    problem = IsotonicL2([3.0, 1.0, 2.0])
    lazy = Planted(Answer(np.array([0.0, 1.0, 5.0]), Status.OPTIMAL))
    with pytest.raises(SolverError, match="use solver 'auto'") as caught:
        solve(problem, lazy)
    assert caught.value.exit_code == 4
    unchecked = solve(problem, lazy, check=False)
    assert unchecked.status is Status.GAP_TOO_LARGE
    assert not unchecked.ok


def test_a_wrong_shape_is_refused() -> None:
    with pytest.raises(SolverError, match="INFEASIBLE_POINT"):
        solve(IsotonicL2([3.0, 1.0]), Planted(Answer(np.zeros(3), Status.OPTIMAL)))


def test_iteration_limit_is_reported() -> None:
    problem = MODERATE["l2-cumulative"]
    solution = solve(problem, make_solver("osqp", max_iter=25, polishing=False), check=False)
    assert solution.status is Status.ITERATION_LIMIT


def test_tie_rules_are_ordered_and_optimal() -> None:
    y = [4, 2, 6, 1, 7, 7, 0]
    lower, middle, upper = (solve(IsotonicL1(y, ties=ties)) for ties in ("lower", "midpoint", "upper"))
    assert lower.objective == middle.objective == upper.objective
    assert (lower.value <= middle.value).all()
    assert (middle.value <= upper.value).all()
    assert (lower.value < upper.value).any()


def test_integer_data_stay_integers() -> None:
    assert solve(IsotonicL1([3, 1, 2], lower=0, upper=5)).value.dtype == np.int64


def test_solve_many_keeps_order_in_threads() -> None:
    problems = [IsotonicL2(np.arange(n, 0, -1)) for n in range(1, 30)]
    alone = solve_many(problems)
    together = solve_many(problems, threads=2)
    assert [s.value.size for s in together] == list(range(1, 30))
    assert all(np.array_equal(a.value, b.value) for a, b in zip(alone, together, strict=True))


def test_choices_keep_the_worst_certificate() -> None:
    choices = SolverChoices({"isotonic_l2": "scipy-pava"})
    for data in ([3, 1, 2], [5, 4, 3, 2, 1]):
        choices.solve(IsotonicL2(data))
    (certificate,) = choices.certificates
    assert (certificate.problem, certificate.solver, certificate.solves) == ("isotonic_l2", "scipy-pava", 2)
    assert 0 <= certificate.gap < 1e-9


def test_unknown_names_and_options_name_the_nearest() -> None:
    with pytest.raises(UnknownSolverError, match="did you mean 'highs'"):
        make_solver("higs")
    with pytest.raises(ConfigError, match="did you mean 'max_iter'"):
        make_solver("osqp", max_iters=3)
    with pytest.raises(ConfigError, match="must be"):
        make_solver("osqp", max_iter="many")
    with pytest.raises(UnknownSolverError, match="cannot express isotonic_l2"):
        solve(IsotonicL2([1, 2]), "scipy")
    with pytest.raises(UnknownSolverError, match="did you mean 'isotonic_l"):
        SolverChoices({"isotonic_l3": "highs"})
    with pytest.raises(UnknownSolverError, match="takes no ':X'"):
        make_solver("pav:X")


def test_every_row_of_the_table_can_be_made() -> None:
    for backend in backends():
        solver = backend.make()
        assert solver.name == backend.name
        assert solver.tolerance >= 0
        assert hash(solver) == hash(backend.make())
        assert set(backend.kinds) <= set(PROBLEMS)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: IsotonicL2([[1.0]]), "one-dimensional"),
        (lambda: IsotonicL2([1.0, np.nan]), "finite"),
        (lambda: IsotonicL2([1.0, 2.0], [1.0]), "one entry per value"),
        (lambda: IsotonicL2([1.0, 2.0], [1.0, 0.0]), "positive"),
        (lambda: IsotonicL1([1.0], lower=2, upper=1), "lower must not exceed"),
        (lambda: IsotonicL1([1.0], ties="left"), "ties must be"),
        (lambda: SimplexProjection([], 1), "empty"),
        (lambda: SimplexProjection([1.0], -1), "nonnegative"),
        (lambda: ControlledRounding([0.5, 0.5], 3), "no rounding"),
    ],
)
def test_bad_data_are_refused(make: Any, words: str) -> None:
    with pytest.raises(ProblemError, match=words):
        make()
