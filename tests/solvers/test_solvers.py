"""Every solver on every problem it claims, judged by certified gap and violation, never by fitted values."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import cache, partial
from typing import Any

import numpy as np
import pytest
from coco_solvers.oracles.brute_force import BruteForce

from coco_opt import Problem, SolverChoices, backends, make_solver, solve, solve_many
from coco_opt.choices import UncertifiedGap
from coco_opt.errors import ConfigError, ProblemError, SolverError, UnknownSolverError
from coco_opt.problems import (
    PROBLEMS,
    ControlledRounding,
    ExpectedDistance,
    Flow,
    GroupMatching,
    IntegerTreeL1,
    IntegerTreeL2,
    IsotonicL1,
    IsotonicL2,
    JointL1,
    JointL2,
    Marginals,
    SimplexProjection,
    TableRounding,
    TopdownSplit,
    TreeLeastSquares,
)
from coco_opt.registry import Backend, backend, candidates
from coco_opt.solution import Answer, Solution, Status
from coco_opt.solver import hushed
from coco_opt.solving import judge
from tests.solvers.instances import moderate, optimum

EXAMPLES: dict[str, Problem[Any, Any]] = {
    f"{kind}-{name}": problem for kind, family in PROBLEMS.items() for name, problem in family.examples().items()
}
MODERATE = moderate()
INSTANCES = {**EXAMPLES, **MODERATE}


@cache
def reference(problem: Problem[Any, Any]) -> Solution[Any]:
    """Return what ``auto`` answers."""
    return solve(problem, check=False)


def refused(row: Backend, problem: Problem[Any, Any]) -> bool:
    """Return whether a backend cannot express this very instance of a kind that it can."""
    if isinstance(problem, TopdownSplit) and row.name == "split-dual-newton":
        return problem.constraints is not None
    overlapping = isinstance(problem, TableRounding) and (problem.nested is None or bool(problem.queries))
    return overlapping and not row.kinds and "milp" not in row.forms


def lacks_certificate(row: Backend, problem: Problem[Any, Any]) -> bool:
    """Return whether a backend's optimum is known to come without a certificate.

    SciPy's milp and exhaustive search return no duals, and where neighbours disagree the point alone does not tell its
    prices.
    """
    if isinstance(problem, JointL1) and row.name == "scipy-milp":
        return min(problem.y.shape) > 1 and bool(problem.groups.any()) and bool(problem.weights.all())
    if isinstance(problem, ExpectedDistance) and row.name in ("scipy-milp", "brute-force"):
        best = reference(problem)
        return problem.gap(best.value, problem.multipliers(best.value)) > 1e-6 * max(1.0, best.objective)
    return False


CLAIMS = {
    f"{row.name}-{name}": (row, problem)
    for name, problem in INSTANCES.items()
    for row in candidates(type(problem))
    if row.installed and problem.variables <= row.limit(problem.kind)
}
REFUSED = {key: pair for key, pair in CLAIMS.items() if refused(*pair)}
UNCERTIFIED = {key: pair for key, pair in CLAIMS.items() if key not in REFUSED and lacks_certificate(*pair)}
CERTIFIED = {key: pair for key, pair in CLAIMS.items() if key not in REFUSED and key not in UNCERTIFIED}


def assert_as_good(solution: Solution[Any], problem: Problem[Any, Any]) -> None:
    """Assert that an answer is feasible and, within both tolerances, as good as that of ``auto``."""
    best = reference(problem)
    assert solution.violation <= problem.feasibility_tolerance * problem.scale
    allowed = max(solution.tolerance, best.tolerance) * max(1.0, abs(best.objective)) + 1e-9
    assert abs(solution.objective - best.objective) <= allowed


@pytest.mark.parametrize("key", CERTIFIED)
def test_reaches_the_certified_optimum(key: str) -> None:
    row, problem = CERTIFIED[key]
    solution = solve(problem, row.make())
    assert solution.ok
    assert_as_good(solution, problem)


@pytest.mark.parametrize("key", UNCERTIFIED)
def test_an_optimum_that_comes_without_proof_is_not_called_one(key: str) -> None:
    row, problem = UNCERTIFIED[key]
    solution = solve(problem, row.make(), check=False)
    assert solution.status is Status.GAP_TOO_LARGE
    assert_as_good(solution, problem)


@pytest.mark.parametrize("key", REFUSED)
def test_what_a_backend_cannot_express_is_refused(key: str) -> None:
    row, problem = REFUSED[key]
    with pytest.raises(UnknownSolverError):
        solve(problem, row.make())


@pytest.mark.parametrize("name", INSTANCES)
def test_auto_is_certified_without_help_from_the_resolution(name: str) -> None:
    problem, best = INSTANCES[name], reference(INSTANCES[name])
    if not lacks_certificate(backend(best.solver), problem):
        assert best.gap <= max(1e-9, best.tolerance) * max(1.0, abs(best.objective))


def test_every_kind_is_tried_by_every_backend_that_claims_it() -> None:
    tried = {(row.name, problem.kind) for row, problem in CERTIFIED.values()}
    claimed = {(row.name, kind) for kind, family in PROBLEMS.items() for row in candidates(family) if row.installed}
    assert claimed == tried


@pytest.mark.parametrize("kind", PROBLEMS)
def test_the_first_example_is_tiny_and_all_are_small(kind: str) -> None:
    examples = PROBLEMS[kind].examples()
    sizes = [problem.variables for problem in examples.values()]
    assert sizes[0] <= 6
    assert max(sizes) <= 100
    assert all(type(problem) is PROBLEMS[kind] for problem in examples.values())
    assert PROBLEMS[kind].kind == kind


WITHOUT_ORACLE = {"joint_l1", "joint_l2", "topdown_split"}


@pytest.mark.parametrize("kind", PROBLEMS)
def test_auto_finds_the_optimum_of_the_oracle_of_every_kind_but_some(kind: str) -> None:
    expected = {name: optimum(problem) for name, problem in PROBLEMS[kind].examples().items()}
    objectives = {
        name: reference(EXAMPLES[f"{kind}-{name}"]).objective for name, best in expected.items() if best is not None
    }
    assert objectives == pytest.approx({name: expected[name] for name in objectives}, rel=1e-9, abs=1e-9)
    assert bool(objectives) == (kind not in WITHOUT_ORACLE)


POINTS = ("isotonic_l1", "isotonic_l2", "simplex_projection")


@pytest.mark.parametrize("name", [name for name, problem in EXAMPLES.items() if problem.kind in POINTS])
def test_ties_are_broken_like_the_oracles(name: str) -> None:
    problem = EXAMPLES[name]
    exact = solve(problem, BruteForce())
    np.testing.assert_allclose(reference(problem).value, exact.value, rtol=1e-12, atol=1e-12)


def worse(problem: Problem[Any, Any]) -> Any | None:
    """Return a feasible point that is worse than the optimum, None where moving that and repairing it yields none."""
    good = reference(problem)
    ramp = np.linspace(0.1, 1.0, good.value.size).reshape(good.value.shape) * 4.0 * problem.scale
    moved = [problem.accept(problem.repair(good.value + sign * ramp)) for sign in (1.0, -1.0)]
    feasible = [x for x in moved if problem.violation(x) <= problem.feasibility_tolerance * problem.scale]
    point = max(feasible, key=problem.objective, default=None)
    enough = good.objective + good.gap + 1e-4 * max(1.0, abs(good.objective))
    return point if point is not None and problem.objective(point) > enough else None


# Nothing can be added to a flow, and tables off their sums cannot be repaired: they have tests of their own.
UNMOVED = {"group_matching", "table_rounding"}


@pytest.mark.parametrize("kind", sorted(set(PROBLEMS) - UNMOVED))
def test_a_worse_point_is_not_certified(kind: str) -> None:
    tried = 0
    for problem in (problem for problem in INSTANCES.values() if problem.kind == kind):
        good, point = reference(problem), worse(problem)
        if point is None:
            continue
        verdict = judge(problem, Answer(point, Status.OPTIMAL), "liar", 1e-6)
        assert verdict.status is Status.GAP_TOO_LARGE
        assert verdict.gap >= verdict.objective - good.objective - 1e-6 * max(1.0, abs(good.objective))
        tried += 1
    assert tried


def like(multipliers: Any, draw: Callable[[tuple[int, ...]], Any]) -> Any:
    """Return multipliers of the same form whose numbers are drawn anew."""
    if is_dataclass(multipliers):
        return type(multipliers)(*(like(getattr(multipliers, field.name), draw) for field in fields(multipliers)))
    return multipliers if multipliers is None else draw(np.shape(multipliers))


CLAIMED: dict[str, Callable[[tuple[int, ...]], Any]] = {
    **{f"of size {size:g}": partial(np.random.default_rng(5).normal, 0.0, size) for size in (0.1, 3.0, 100.0, 1e9)},
    **{f"{value:g}": partial(np.full, fill_value=value) for value in (0.0, 1e308, np.inf, np.nan)},
    "too few": lambda shape: np.zeros(2) if shape else 0.0,
}


@pytest.mark.parametrize("claim", CLAIMED)
@pytest.mark.parametrize("kind", PROBLEMS)
def test_no_multipliers_make_a_gap_smaller_than_what_a_point_loses(kind: str, claim: str) -> None:
    for problem in (problem for problem in INSTANCES.values() if problem.kind == kind):
        best, point = reference(problem), None if kind in UNMOVED else worse(problem)
        multipliers = like(problem.multipliers(best.value), CLAIMED[claim])
        for x in [best.value, *([] if point is None else [point])]:
            objective = problem.objective(x)
            with np.errstate(all="ignore"):
                gap = problem.certified_gap(x, multipliers)
            assert gap >= objective - best.objective - best.gap - 1e-9 * max(1.0, abs(objective))


def test_a_rounding_with_another_sum_is_seen_and_repaired() -> None:
    problem = MODERATE["rounding"]
    assert isinstance(problem, ControlledRounding)
    value = np.array(solve(problem).value)
    value[np.argmax(value > problem.x)] -= 1
    assert problem.violation(value) == 1.0
    assert judge(problem, Answer(value, Status.OPTIMAL), "liar", 1e-9).violation == 0.0


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


@pytest.mark.parametrize("name", ["clarabel", "highs", "osqp", "piqp"])
def test_counts_in_millions_fail_no_solver(name: str) -> None:
    rng = np.random.default_rng(11)
    tree, groups = [-1, 0, 0], 10**6 * np.array([7, 3, 4])
    for _ in range(4):
        noise = 1e6 * rng.normal(size=(3, 3))
        assert solve(SimplexProjection(noise[0], 1e6), name).ok
        assert solve(JointL2(tree, noise + groups[:, None] * [0.2, 0.5, 1.0], groups), name).ok


SCALED = {
    "isotonic_l1": lambda u: IsotonicL1([3.5, 1.0, 2.0, -4.0, 1.0], np.full(5, u)),
    "isotonic_l2": lambda u: IsotonicL2([3.5, 1.0, 2.0, -4.0, 1.0], np.full(5, u)),
    "joint_l1": lambda u: JointL1([-1, 0, 0], [[1, 3.3], [0, 2], [0, 1]], [4, 2, 2], u),
    "joint_l2": lambda u: JointL2([-1, 0, 0], [[1, 3.3], [0, 2], [0, 1]], [4, 2, 2], u),
    "tree_l2": lambda u: TreeLeastSquares([-1, 0, 0], [9, 1, -3], 1 / u, lower=0),
    "integer_tree_l1": lambda u: IntegerTreeL1([-1, 0, 0], [[5, 2], [1, 0], [0, 9]], u),
    "integer_tree_l2": lambda u: IntegerTreeL2([-1, 0, 0], [[5, 2], [1, 0], [0, 9]], u),
}


@pytest.mark.parametrize("kind", SCALED)
@pytest.mark.parametrize("name", ["auto", "highs", "clarabel", "piqp"])
def test_the_unit_of_the_weights_changes_no_status(kind: str, name: str) -> None:
    tiny, problem = SCALED[kind](2.0**-40), SCALED[kind](1.0)
    best = solve(problem)
    solution = solve(tiny, name)
    enough = 3 * max(best.tolerance, solution.tolerance)
    assert solution.objective * 2.0**40 == pytest.approx(best.objective, rel=enough)
    # Another feasible point, far from the optimum, is judged alike in both units.
    far = problem.repair(best.value + np.arange(best.value.size).reshape(best.value.shape))
    verdicts = [judge(each, Answer(far, Status.OPTIMAL), "far", 1e-3) for each in (problem, tiny)]
    assert verdicts[0].status is verdicts[1].status
    assert verdicts[1].gap * 2.0**40 == pytest.approx(verdicts[0].gap, rel=1e-6, abs=1e-12)


def test_not_optimal_raises_with_advice_unless_unchecked() -> None:
    problem = IsotonicL2([3.0, 1.0, 2.0])
    lazy = Planted(Answer(np.array([0.0, 1.0, 5.0]), Status.OPTIMAL))
    with pytest.raises(SolverError, match="use another solver") as caught:
        solve(problem, lazy)
    assert "Others for isotonic_l2: pav, " in str(caught.value)
    assert caught.value.exit_code == 4
    unchecked = solve(problem, lazy, check=False)
    assert unchecked.status is Status.GAP_TOO_LARGE
    assert not unchecked.ok


def test_a_wrong_shape_is_refused() -> None:
    with pytest.raises(SolverError, match=r"INFEASIBLE_POINT.* The point is of shape \(3,\) for 2 unknowns"):
        solve(IsotonicL2([3.0, 1.0]), Planted(Answer(np.zeros(3), Status.OPTIMAL)))


def test_tie_rules_are_ordered_and_optimal() -> None:
    y = [4, 2, 6, 1, 7, 7, 0]
    lower, middle, upper = (solve(IsotonicL1(y, ties=ties)) for ties in ("lower", "midpoint", "upper"))
    assert lower.objective == middle.objective == upper.objective
    assert (lower.value <= middle.value).all()
    assert (middle.value <= upper.value).all()
    assert (lower.value < upper.value).any()


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


@pytest.mark.parametrize(
    "problem",
    [
        IsotonicL1(np.arange(20_000.0)),
        IsotonicL2(np.arange(2_000.0)),
        SimplexProjection(np.arange(60.0), 7.0),
        ControlledRounding(np.full(60, 0.5), 30),
        GroupMatching([1, 5], [6, 6], [1, 5], [6, 6], [0, 2]),
        ExpectedDistance([-1, 0, 0], [1200, 600, 600], Marginals.from_points(np.array([[[400]], [[150]], [[250]]]))),
    ],
)
def test_another_solver_answers_what_is_too_large_to_try_every_point(problem: Problem[Any, Any]) -> None:
    choices = SolverChoices({problem.kind: "brute-force"})
    choices.solve(problem)
    (certificate,) = choices.certificates
    assert [fallback.reason for fallback in certificate.fallbacks] == ["cannot express it"]


def test_a_time_limit_lowers_that_of_the_automatic_solver_and_of_no_other() -> None:
    choices = SolverChoices()
    usual = choices.solver(TableRounding)
    for seconds in (4.0, 2.0):
        limited = choices.limited(TableRounding, seconds).solver(TableRounding)
        assert limited.time_limit <= seconds
    assert choices.solver(TableRounding) == choices.limited(TableRounding, 1e9).solver(TableRounding) == usual
    chosen = SolverChoices({"table_rounding": "highs"}).limited(TableRounding, 1.0)
    assert chosen.solver(TableRounding) == make_solver("highs")


def test_a_solver_that_answers_for_another_has_a_time_limit_and_is_tried_by_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried = []

    def failing(problem: Any, solver: Any) -> Any:
        tried.append(solver)
        raise SolverError("missed")

    monkeypatch.setattr("coco_opt.choices.solve", failing)
    with pytest.raises(SolverError):
        SolverChoices().solve(IsotonicL1([2, 1]))
    limits = [solver.time_limit for solver in tried if hasattr(solver, "time_limit")]
    assert len(tried) > len(limits) > 0
    assert max(limits) <= 60.0


def test_answers_that_miss_their_tolerance_are_counted_with_the_largest_known_gap() -> None:
    choices = SolverChoices()
    for gap in (0.25, 0.5, np.inf):
        task = choices.fresh()
        task.note_missed(TableRounding, gap)
        choices.merge(task.certificates)
    assert choices.uncertified_gap == UncertifiedGap(3, 0.5, 1)
    assert [row.solves for row in choices.certificates] == [0]


@pytest.mark.parametrize("package", ["python", "C"])
def test_what_packages_print_stays_off_the_standard_output(package: str, capfd: pytest.CaptureFixture[str]) -> None:
    with hushed:
        if package == "python":
            sys.stdout.write("a banner")
        else:
            ctypes.CDLL(None).puts(b"a banner")
    sys.stdout.write("the output\n")
    assert capfd.readouterr().out == "the output\n"


def test_limited_choices_count_into_the_same_certificates() -> None:
    choices = SolverChoices()
    choices.limited(TableRounding, 1.0).solve(IsotonicL2([2, 1]))
    assert [certificate.problem for certificate in choices.certificates] == ["isotonic_l2"]


def test_unknown_names_and_options_name_the_nearest() -> None:
    with pytest.raises(UnknownSolverError, match="did you mean 'highs'"):
        make_solver("higs")
    with pytest.raises(ConfigError, match="did you mean 'max_iter'"):
        make_solver("osqp", max_iters=3)
    with pytest.raises(ConfigError, match="must be"):
        make_solver("osqp", max_iter="many")
    with pytest.raises(ConfigError, match=r"\[solvers.highs.form\] must be 'lp' or 'qp' or 'milp', not 'sdp'"):
        make_solver("highs", form="sdp")
    with pytest.raises(UnknownSolverError, match="cannot express isotonic_l2"):
        solve(IsotonicL2([1, 2]), "scipy")
    with pytest.raises(UnknownSolverError, match="did you mean 'isotonic_l"):
        SolverChoices({"isotonic_l3": "highs"})
    with pytest.raises(ConfigError, match="must be a finite number of at least 0, not -1"):
        make_solver("clarabel", tolerance=-1)
    with pytest.raises(UnknownSolverError, match="a solver is a name, or a value with a name, a tolerance and"):
        solve(IsotonicL1([1.0]), object())  # type: ignore[arg-type]
    with pytest.raises(UnknownSolverError, match="takes no ':X'"):
        make_solver("pav:X")


def test_every_row_of_the_table_can_be_made() -> None:
    for row in backends():
        solver = row.make()
        assert solver.name == row.name
        assert solver.tolerance >= 0
        assert hash(solver) == hash(row.make())
        assert set(row.kinds) <= set(PROBLEMS)


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
        (lambda: SimplexProjection([1e200, 1.0], 1), "must not exceed 1e\\+100"),
        (lambda: solve(IsotonicL2([1.0]), tolerance=float("nan")), "tolerance must be a finite number"),
        (lambda: ControlledRounding([0.5, 0.5], 3), "no rounding"),
    ],
)
def test_bad_data_are_refused(make: Any, words: str) -> None:
    with pytest.raises(ProblemError, match=words):
        make()
