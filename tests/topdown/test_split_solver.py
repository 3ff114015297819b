"""The structured solver of top-down splits against interior-point solvers, closed forms and hard input."""

from __future__ import annotations

import numpy as np
import pytest
from coco_solvers.generic.piqp import PIQP
from coco_solvers.structured import split
from coco_solvers.structured.split import SplitNewton

from coco_opt import solve, solve_many
from coco_opt.errors import SolverError, UnknownSolverError
from coco_opt.operators import identity, total
from coco_opt.problems import SimplexProjection, TopdownSplit
from coco_opt.problems.topdown_split import LinearRows, SplitTerm
from coco_opt.solution import Status
from tests.topdown.splits import CASES, CELLS, QUERIES, drawn, marginal


def agree(problem: TopdownSplit, solver: SplitNewton | None = None) -> None:
    """Check one answer: certified, feasible, and as good as PIQP's."""
    ours, theirs = solve(problem, solver or SplitNewton()), solve(problem, PIQP(), check=False)
    assert ours.relative_gap <= 1e-6
    assert ours.violation <= 1e-9 * problem.scale
    assert (ours.value >= 0.0).all()
    assert ours.objective <= theirs.objective + 1e-6 * max(1.0, theirs.objective)


@pytest.mark.parametrize("name", CASES)
def test_small_splits_need_no_other_package(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(split, "find_spec", lambda name: None)
    assert solve(CASES[name], SplitNewton()).relative_gap <= 1e-6


def test_a_start_far_from_the_answer_does_not_loosen_the_tolerance() -> None:
    answers = np.array([[1000.0, 0.0], [0.0, 1000.0], [3.0, 4.0]])
    terms = [SplitTerm(identity(2), answers, np.ones(3)), SplitTerm(total(2), np.full((3, 1), 1004.0), np.ones(3))]
    solution = solve(TopdownSplit(terms, [1003, 1004]), SplitNewton())
    assert solution.ok
    assert solution.relative_gap <= 1e-6


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("sides", ["none", "equal", "ranges"])
def test_random_splits(seed: int, sides: str) -> None:
    queries = tuple(QUERIES)[seed % 3]
    agree(drawn(100 + seed, queries, children=1 + seed % 7, parent=seed % 4 != 3, sides=sides))


@pytest.mark.parametrize("name", ["all-parent-none", "all-parent-equal", "all-root-ranges"])
def test_a_smaller_tolerance_is_kept(name: str) -> None:
    solution = solve(CASES[name], SplitNewton(tolerance=1e-10))
    assert solution.ok
    assert solution.relative_gap <= 1e-10


def test_it_is_what_auto_picks() -> None:
    assert solve(CASES["all-parent-none"]).solver == "split-newton"


def test_cells_alone_are_simplex_projections() -> None:
    rng = np.random.default_rng(9)
    answers, parent = rng.normal(3, 5, (6, 8)), rng.integers(1, 40, 8)
    value = solve(
        TopdownSplit([SplitTerm(identity(8), answers, np.array(0.3))], parent), SplitNewton(tolerance=1e-12)
    ).value
    for cell in range(8):
        expected = solve(SimplexProjection(answers[:, cell], int(parent[cell]))).value
        np.testing.assert_allclose(value[:, cell], expected, rtol=0, atol=1e-6)


def test_without_parent_and_noise_below_zero_it_is_clipping() -> None:
    answers = np.array([[3.0, -2.0, 0.5]])
    solution = solve(TopdownSplit([SplitTerm(identity(3), answers, np.array(1.0))]), SplitNewton())
    np.testing.assert_allclose(solution.value, [[3.0, 0.0, 0.5]], atol=1e-9)
    assert solution.objective == pytest.approx(4.0)


def test_one_child_gets_the_parent() -> None:
    problem = drawn(21, children=1)
    assert problem.parent is not None
    np.testing.assert_allclose(solve(problem, SplitNewton()).value[0], problem.parent, atol=1e-9)


def test_one_cell() -> None:
    problem = TopdownSplit([SplitTerm(identity(1), np.array([[5.0], [1.0], [-9.0]]), np.array(1.0))], [4])
    np.testing.assert_allclose(solve(problem, SplitNewton()).value[:, 0], [4.0, 0.0, 0.0], atol=1e-9)


def test_an_empty_parent_gives_empty_children() -> None:
    base = drawn(7)
    assert not solve(TopdownSplit(base.terms, np.zeros(CELLS)), SplitNewton()).value.any()
    with pytest.raises(SolverError, match="no feasible point"):
        solve(TopdownSplit(base.terms, np.zeros(CELLS), LinearRows(total(CELLS), np.ones((4, 1)), np.ones((4, 1)))))


def test_a_child_that_nobody_asked() -> None:
    base = drawn(7)
    terms = [SplitTerm(term.operator, term.answers, term.weights * (np.arange(4) != 2)[:, None]) for term in base.terms]
    agree(TopdownSplit(terms, base.parent))


def test_no_weight_at_all() -> None:
    base = drawn(7)
    problem = TopdownSplit([SplitTerm(term.operator, term.answers, np.array(0.0)) for term in base.terms], base.parent)
    assert solve(problem, SplitNewton()).objective == 0.0


@pytest.mark.parametrize("ratio", [1e-6, 1e-3, 1e3, 1e6])
def test_weights_many_orders_apart(ratio: float) -> None:
    base = drawn(7)
    first, *others = base.terms
    agree(TopdownSplit([SplitTerm(first.operator, first.answers, first.weights * ratio), *others], base.parent))


def test_children_of_very_different_weight() -> None:
    base = drawn(7)
    factor = np.array([1.0, 1e4, 1e-4, 1.0])[:, None]
    agree(TopdownSplit([SplitTerm(t.operator, t.answers, t.weights * factor) for t in base.terms], base.parent))


def test_a_parent_of_fractions() -> None:
    base = drawn(7)
    assert base.parent is not None
    agree(TopdownSplit(base.terms, base.parent * 0.37))


def test_large_counts() -> None:
    base = drawn(7)
    assert base.parent is not None
    terms = [SplitTerm(term.operator, term.answers * 1e7, term.weights) for term in base.terms]
    agree(TopdownSplit(terms, base.parent * 1e7))


def test_a_child_whose_total_is_nothing() -> None:
    base = drawn(7)
    assert base.parent is not None
    totals = np.array([[0.0], [1.0], [2.0], [base.parent.sum() - 3.0]])
    problem = TopdownSplit(base.terms, base.parent, LinearRows(total(CELLS), totals, totals))
    agree(problem)
    assert solve(problem, SplitNewton()).value[0].max() < 1e-12


def test_rows_that_bind_at_both_ends() -> None:
    base = drawn(7)
    assert base.parent is not None
    best = solve(base).value
    middle = marginal(1).apply(0.5 * best + 0.5 * base.parent / 4)
    problem = TopdownSplit(base.terms, base.parent, LinearRows(marginal(1), middle - 0.1, middle + 0.1))
    agree(problem)
    values = marginal(1).apply(solve(problem).value)
    assert (values < middle - 0.1 + 1e-6).any()
    assert (values > middle + 0.1 - 1e-6).any()


def test_a_row_said_twice_changes_nothing() -> None:
    from coco_opt.operators import Kronecker

    base = drawn(7, sides="equal")
    rows = base.constraints
    assert rows is not None
    twice = Kronecker((np.ones((2, CELLS)),))
    both = LinearRows(twice, np.repeat(rows.lower, 2, axis=1), np.repeat(rows.upper, 2, axis=1))
    problem = TopdownSplit(base.terms, base.parent, both)
    agree(problem)
    assert solve(problem).objective == pytest.approx(solve(base).objective, rel=1e-6)


@pytest.mark.parametrize("excess", [1.0, 1e-3])
def test_contradictions_are_proved_not_guessed(excess: float) -> None:
    base = drawn(7, sides="equal")
    rows = base.constraints
    assert rows is not None
    wrong = rows.lower + excess
    with pytest.raises(SolverError, match="no feasible point"):
        solve(TopdownSplit(base.terms, base.parent, LinearRows(rows.operator, wrong, wrong)), SplitNewton())


def test_contradicting_rows_without_a_parent() -> None:
    base = drawn(7, parent=False)
    negative = np.full((4, 1), -1.0)
    problem = TopdownSplit(base.terms, None, LinearRows(total(CELLS), negative, negative))
    with pytest.raises(SolverError, match="no feasible point"):
        solve(problem, SplitNewton())


def test_what_takes_too_long_is_handed_over_or_said(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = CASES["marginals-parent-equal"]
    hurried = SplitNewton(max_rounds=1, max_steps=2)
    assert solve(problem, hurried).ok
    monkeypatch.setattr(split, "find_spec", lambda name: None)
    solution = solve(problem, hurried, check=False)
    assert solution.status in (Status.ITERATION_LIMIT, Status.INFEASIBLE_POINT)
    with pytest.raises(SolverError, match="max_iter"):
        solve(problem, hurried)


def test_threads_change_nothing() -> None:
    problems = [drawn(seed, sides="equal") for seed in range(6)]
    alone, together = solve_many(problems), solve_many(problems, threads=3)
    for left, right in zip(alone, together, strict=True):
        np.testing.assert_array_equal(left.value, right.value)


def test_another_problem_is_refused() -> None:
    with pytest.raises(UnknownSolverError, match="topdown_split"):
        SplitNewton().solve(SimplexProjection([1.0, 2.0], 2))


def test_larger_than_a_toy() -> None:
    rng = np.random.default_rng(12)
    children, cells = 9, 300
    parent = rng.geometric(0.05, cells)
    table = np.array([rng.multinomial(count, rng.dirichlet(np.ones(children))) for count in parent]).T
    from coco_opt.operators import Grouping

    operators = [identity(cells), total(cells), *(Grouping(rng.integers(0, 12, cells), 12) for _ in range(3))]
    terms = [
        SplitTerm(q, q.apply(table * 1.0) + rng.normal(0, 4, (children, q.answers)), np.array(1 / 16))
        for q in operators
    ]
    totals = table.sum(axis=1, keepdims=True).astype(np.float64)
    for rows in (None, LinearRows(total(cells), totals, totals)):
        solution = solve(TopdownSplit(terms, parent, rows), SplitNewton())
        assert solution.relative_gap <= 1e-6
        assert (solution.value == 0.0).sum() > 100
        assert solution.iterations is not None
        assert solution.iterations > 30
