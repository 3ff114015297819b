"""Top-down splits that tempt a solver to a false certificate or a wrong "infeasible", and hundreds drawn at random."""

from __future__ import annotations

import numpy as np
import pytest
from coco_solvers.generic.piqp import PIQP
from coco_solvers.structured import split
from coco_solvers.structured.split import SplitNewton
from scipy.optimize import linprog

from coco_opt import Problem, TopdownSplit, solve
from coco_opt.array_types import Floats
from coco_opt.errors import ProblemError, SolverError
from coco_opt.operators import Grouping, Kronecker, Operator, identity, stack, total
from coco_opt.problems.topdown_split import LinearRows, SplitDual, SplitTerm
from coco_opt.solution import Answer, Status
from coco_opt.solving import judge
from tests.topdown.splits import CASES

SIDES = ("none", "equal", "ranges", "twice", "edge", "wrong")


def small(rng: np.random.Generator, sides: str) -> TopdownSplit:
    """Return a split of a few cells; ``edge`` can be met in one way only, ``wrong`` perhaps not at all."""
    cells, children = int(rng.integers(1, 7)), int(rng.integers(1, 6))
    table = np.floor(rng.random((children, cells)) ** 3 * 10.0 ** rng.integers(0, 5, cells))
    signs = Kronecker((rng.integers(-1, 2, (2, cells)).astype(np.float64),))
    operators: list[Operator] = [identity(cells), total(cells), Grouping(rng.integers(-1, 2, cells), 2), signs]
    terms = []
    for operator in operators[: int(rng.integers(1, 5))]:
        answers = operator.apply(table) + rng.normal(0.0, 10.0 ** rng.integers(0, 4), (children, operator.answers))
        weights = 10.0 ** rng.uniform(-2.0, 0.0, children) * (rng.random(children) < 0.9)
        terms.append(SplitTerm(operator, answers, weights))
    rows = operators[int(rng.integers(3))]
    exact = rows.apply(table)
    lower, upper = exact.copy(), exact.copy()
    if sides == "ranges":
        lower, upper = exact - rng.integers(0, 5, exact.shape), exact + rng.integers(0, 5, exact.shape)
    if sides == "twice":
        rows, lower, upper = stack([rows, rows]), np.hstack([exact, exact]), np.hstack([exact, exact])
    if sides == "edge":
        upper = np.full(exact.shape, np.inf)
    if sides == "wrong":
        lower += 0.5 * (rng.random(exact.shape) < 0.2)
        upper = lower.copy()
    parent = table.sum(axis=0) if rng.random() < 0.75 else None
    return TopdownSplit(terms, parent, None if sides == "none" else LinearRows(rows, lower, upper))


def can_be_met(problem: TopdownSplit) -> bool:
    """Ask HiGHS, on dense matrices written here."""
    children, cells = problem.shape
    constraints = problem.constraints
    matrix = np.zeros((0, cells)) if constraints is None else constraints.operator.to_sparse().toarray()
    each = np.kron(np.eye(children), matrix)
    lower, upper = (np.zeros(0),) * 2 if constraints is None else (constraints.lower.ravel(), constraints.upper.ravel())
    low, high = np.isfinite(lower), np.isfinite(upper)
    sums = None if problem.parent is None else np.kron(np.ones((1, children)), np.eye(cells))
    bounds = np.vstack([each[high], -each[low]]), np.concatenate([upper[high], -lower[low]])
    solution = linprog(np.zeros(children * cells), *bounds, A_eq=sums, b_eq=problem.parent)
    assert solution.status in (0, 2)
    return bool(solution.status == 0)


@pytest.mark.parametrize("sides", SIDES)
def test_no_false_certificate_and_no_wrong_infeasible(sides: str) -> None:
    certified = 0
    for seed in range(40):
        problem = small(np.random.default_rng([seed, SIDES.index(sides)]), sides)
        possible = can_be_met(problem)
        if SplitNewton().solve(problem).status is Status.INFEASIBLE:
            assert not possible
            continue
        ours = solve(problem, SplitNewton(), check=False)
        assert possible or not ours.ok
        certified += ours.ok
        theirs = solve(problem, PIQP(), check=False) if ours.ok else ours
        if theirs.violation <= 1e-9:
            assert theirs.objective >= ours.objective - ours.gap - 1e-7 * max(1.0, ours.objective)
    assert certified >= (15 if sides == "wrong" else 38)


def test_infinite_numbers_prove_nothing() -> None:
    term = SplitTerm(identity(2), np.ones((3, 2)), np.ones(3))
    with pytest.raises(ProblemError, match="1e60"):
        SplitTerm(identity(2), np.ones((3, 2)), np.full(3, 1e300))
    with pytest.raises(ProblemError, match=r"2\^53"):
        TopdownSplit([term], [1e200, 1.0])
    with pytest.raises(ProblemError, match=r"2\^53"):
        LinearRows(total(2), np.full((3, 1), 1e200), np.full((3, 1), np.inf))
    root = TopdownSplit([term])
    answer = Answer(np.full((3, 2), 1e200), Status.OPTIMAL, SplitDual(np.zeros(2), np.zeros((3, 0))))
    assert judge(root, answer, "bold", 1e-6).status is Status.INFEASIBLE_POINT
    assert root.gap(np.ones((3, 2)), SplitDual(np.full(2, np.inf), np.zeros((3, 0)))) >= 0.0
    with_sums = TopdownSplit([term], [3, 3])
    assert with_sums.gap(np.ones((3, 2)), SplitDual(np.array([np.inf, 0.0]), np.zeros((3, 0)))) == np.inf


def test_much_noise_is_no_leave_to_break_constraints() -> None:
    noisy = SplitTerm(identity(2), np.array([[1e9, -1e9], [3.0, 4.0]]), np.full(2, 1e-18))
    fixed = LinearRows(total(2), np.array([[2.0], [5.0]]), np.array([[2.0], [5.0]]))
    problem = TopdownSplit([noisy], [3, 4], fixed)
    assert problem.scale == 5.0
    wrong: Answer[Floats, SplitDual] = Answer(np.array([[3.0, 0.0], [0.0, 4.0]]), Status.OPTIMAL)
    assert judge(problem, wrong, "careless", 1e-6).status is Status.INFEASIBLE_POINT
    np.testing.assert_allclose(solve(problem).value, [[2.0, 0.0], [1.0, 4.0]], atol=1e-8)
    unasked = SplitTerm(identity(2), np.full((2, 2), 1e15), np.zeros(2))
    assert TopdownSplit([SplitTerm(identity(2), np.ones((2, 2)), np.ones(2)), unasked]).scale == 1.0


def test_wrong_sums_are_paid_for() -> None:
    problem = TopdownSplit([SplitTerm(identity(1), np.array([[5.0], [5.0]]), np.ones(2))], [4])
    exact = problem.gap(np.full((2, 1), 2.0), SplitDual(np.array([-6.0]), np.zeros((2, 0))))
    assert exact == 0.0
    # 2.5 each costs 12.5, less than the 18 of the optimum: it is not feasible, and the gap says so.
    assert problem.gap(np.full((2, 1), 2.5), SplitDual(np.array([-5.0]), np.zeros((2, 0)))) == pytest.approx(5.0)


def test_mending_what_nothing_can_mend_stays_finite() -> None:
    nothing = np.zeros((3, 2))
    problem = TopdownSplit(
        [SplitTerm(identity(2), np.ones((3, 2)), np.ones(3))], [5, 0], LinearRows(identity(2), nothing, nothing)
    )
    assert np.isfinite(problem.repair(np.array([[5.0, 0.0], [0.0, 0.0], [0.0, 0.0]]))).all()


def test_only_proofs_make_a_problem_infeasible(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: PIQP, problem: Problem[object, object]) -> Answer[object, object]:
        return Answer(None, Status.INFEASIBLE)

    monkeypatch.setattr(PIQP, "solve", refuse)
    hurried = SplitNewton(max_rounds=1, max_steps=2)
    possible = CASES["marginals-parent-equal"]
    assert solve(possible, hurried, check=False).status in (Status.ITERATION_LIMIT, Status.INFEASIBLE_POINT)
    rows = possible.constraints
    assert rows is not None
    wrong = LinearRows(rows.operator, rows.lower + 1.0, rows.upper + 1.0)
    with pytest.raises(SolverError, match="no feasible point"):
        solve(TopdownSplit(possible.terms, possible.parent, wrong), hurried)


@pytest.mark.parametrize("installed", [True, False])
def test_a_billion_beside_one(installed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(split, "find_spec", lambda name: "piqp" if installed else None)
    rng = np.random.default_rng(2)
    table = np.array([[4e8, 1.0], [6e8, 0.0], [0.0, 0.0]])
    terms = [SplitTerm(q, q.apply(table) + np.rint(rng.normal(0, 9, (3, q.answers))), np.full(3, 0.01)) for q in
             (identity(2), total(2))]  # fmt: skip
    solution = solve(TopdownSplit(terms, table.sum(axis=0)), SplitNewton())
    assert solution.relative_gap <= 1e-6
    np.testing.assert_allclose(solution.value.sum(axis=0), [1e9, 1.0], rtol=1e-12)


@pytest.mark.parametrize("seed", range(2))
def test_children_of_very_different_sizes_take_few_steps(seed: int) -> None:
    """States of 0.3 to 40 million persons, exact totals, many rare cells: from an even start the method cycled."""
    rng = np.random.default_rng(seed)
    sizes, shares = 10.0 ** rng.uniform(5.5, 7.6, 50), 10.0 ** rng.uniform(-8.0, 0.0, 900)
    table = rng.poisson(sizes[:, None] * shares / shares.sum()).astype(np.float64)
    table = table[:, table.any(axis=0)]
    cells = np.arange(table.shape[1])
    weights = {0.83: total(cells.size), 0.053: identity(cells.size)}
    weights |= {0.001: Grouping(cells % 12, 12), 0.003: Grouping(cells // 12, 75), 0.008: Grouping(cells // 4, 225)}
    terms = []
    for weight, operator in weights.items():
        answers = operator.apply(table)
        answers += rng.normal(0.0, weight**-0.5, answers.shape)
        terms.append(SplitTerm(operator, answers, np.full(50, weight)))
    exact = table.sum(axis=1, keepdims=True)
    problem = TopdownSplit(terms, table.sum(axis=0), LinearRows(total(cells.size), exact, exact))
    solution = solve(problem, SplitNewton())
    assert solution.relative_gap <= SplitNewton.tolerance
    assert solution.iterations < 1_000
