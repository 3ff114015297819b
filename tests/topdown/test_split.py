"""The top-down split: what the problem judges and certifies, and its solvers on splits that tempt them.

Splits of marginals alone, whose cells no answer determines: Newton on the answers' side, and who calls it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from coco_solvers.generic.piqp import PIQP
from coco_solvers.structured import split
from coco_solvers.structured.split import SplitNewton
from coco_solvers.structured.split_dual import SplitDualNewton
from scipy.optimize import linprog

from coco_opt import (
    LinearRows,
    Problem,
    Schema,
    SimplexProjection,
    SplitTerm,
    Status,
    TopdownSplit,
    parse_queries,
    solve,
)
from coco_opt.array_types import Floats
from coco_opt.errors import ProblemError, SolverError
from coco_opt.operators import Grouping, Kronecker, Operator, identity, stack, total
from coco_opt.problems.topdown_split import SplitDual
from coco_opt.solution import Answer
from coco_opt.solving import judge
from tests.topdown.splits import CASES, CELLS, drawn, marginal


@pytest.mark.parametrize("name", CASES)
def test_prices_rebuilt_from_the_optimum_certify_it(name: str) -> None:
    problem = CASES[name]
    best = solve(problem, PIQP(eps_abs=1e-12, eps_rel=1e-13), check=False)
    assert problem.certified_gap(best.value) <= 1e-6 * max(1.0, best.objective)


def test_violation_names_the_worst_constraint() -> None:
    exact = np.array([[3.0], [2.0]])
    problem = TopdownSplit(
        [SplitTerm(identity(2), np.zeros((2, 2)), np.array(1.0))], [4, 1], LinearRows(total(2), exact, exact)
    )
    good = np.array([[2.0, 1.0], [2.0, 0.0]])
    assert problem.violation(good) == 0.0
    assert problem.violation(good + np.array([[0.25, -0.25], [0, 0]])) == pytest.approx(0.25)
    assert problem.violation(np.array([[4.5, -1.5], [-0.5, 2.5]])) == pytest.approx(1.5)
    assert problem.violation(good[:1]) == np.inf
    assert problem.violation(good * np.nan) == np.inf
    assert problem.violation(np.array([[2.0, 1.0], [1.0, 0.0]])) == pytest.approx(1.0)


@pytest.mark.parametrize("name", CASES)
def test_repair_mends_what_rounding_breaks(name: str) -> None:
    problem, rng = CASES[name], np.random.default_rng(4)
    value = solve(problem, PIQP()).value
    off = value + rng.uniform(-1e-6, 1e-6, value.shape)
    mended = problem.repair(off)
    assert problem.violation(mended) <= 1e-9 * problem.scale < problem.violation(off) + 1e-6
    assert float(np.abs(mended - value).max()) <= 1e-4
    assert (mended >= 0.0).all()


def test_cells_without_a_parent_hold_nothing_and_are_no_variables() -> None:
    problem = drawn(11)
    assert problem.parent is not None
    empty = problem.parent == 0
    assert 0 < empty.sum() < CELLS
    assert problem.variables == problem.shape[0] * int((~empty).sum())
    assert (solve(problem, PIQP()).value[:, empty] == 0.0).all()


def _term(**changes: Any) -> SplitTerm:
    arguments: dict[str, Any] = {"operator": identity(2), "answers": np.zeros((3, 2)), "weights": np.ones(3), **changes}
    return SplitTerm(**arguments)


def test_bad_input_is_refused() -> None:
    with pytest.raises(ProblemError, match="3 columns"):
        _term(operator=identity(3))
    with pytest.raises(ProblemError, match="finite"):
        _term(answers=np.full((3, 2), np.inf))
    for weights in (np.ones(4), -np.ones(3), np.full(3, np.nan), np.ones((3, 3)), np.ones((1, 3, 2))):
        with pytest.raises(ProblemError, match="weights"):
            _term(weights=weights)
    with pytest.raises(ProblemError, match="constraint 0 of child 1"):
        LinearRows(total(2), np.array([[0.0], [3.0]]), np.array([[1.0], [2.0]]))
    with pytest.raises(ProblemError, match="one shape"):
        LinearRows(total(2), np.zeros((2, 1)), np.full((3, 1), np.inf))
    with pytest.raises(ProblemError, match="at least one term"):
        TopdownSplit([])
    with pytest.raises(ProblemError, match="nonnegative"):
        TopdownSplit([_term()], [1, -1])
    with pytest.raises(ProblemError, match="cells"):
        TopdownSplit([_term()], [1, 1, 1])
    with pytest.raises(ProblemError, match="children"):
        TopdownSplit([_term()], [1, 1], LinearRows(total(2), np.zeros((2, 1)), np.ones((2, 1))))


def test_one_sided_rows_have_prices_of_one_sign() -> None:
    infinite = np.full((4, 1), np.inf)
    base = drawn(7)
    problem = TopdownSplit(base.terms, base.parent, LinearRows(total(CELLS), -infinite, infinite))
    prices = problem.admissible(SplitDual(np.ones(CELLS), np.array([[1.0], [-1.0], [2.0], [0.0]])))
    assert (prices.rows == 0.0).all()
    assert solve(problem, PIQP()).objective == pytest.approx(solve(base, PIQP()).objective, rel=1e-7)


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


@pytest.mark.parametrize("name", ["all-parent-none", "all-parent-equal", "all-root-ranges"])
def test_a_smaller_tolerance_is_kept(name: str) -> None:
    solution = solve(CASES[name], SplitNewton(tolerance=1e-10))
    assert solution.ok
    assert solution.relative_gap <= 1e-10


def test_cells_alone_are_simplex_projections() -> None:
    rng = np.random.default_rng(9)
    answers, parent = rng.normal(3, 5, (6, 8)), rng.integers(1, 40, 8)
    value = solve(
        TopdownSplit([SplitTerm(identity(8), answers, np.array(0.3))], parent), SplitNewton(tolerance=1e-12)
    ).value
    for cell in range(8):
        expected = solve(SimplexProjection(answers[:, cell], int(parent[cell]))).value
        np.testing.assert_allclose(value[:, cell], expected, rtol=0, atol=1e-6)


BASE = drawn(7)


def degenerate() -> dict[str, TopdownSplit]:
    """Return splits that leave little to choose, or whose numbers are far apart."""
    assert BASE.parent is not None
    first, *others = BASE.terms
    totals = np.array([[0.0], [1.0], [2.0], [BASE.parent.sum() - 3.0]])
    one_cell = SplitTerm(identity(1), np.array([[5.0], [1.0], [-9.0]]), np.array(1.0))
    below_zero = SplitTerm(identity(3), np.array([[3.0, -2.0, 0.5]]), np.array(1.0))
    apart = {"nobody asked a child": (np.arange(4) != 2)[:, None], "no weight": 0.0}
    apart["children of other weights"] = np.array([1.0, 1e4, 1e-4, 1.0])[:, None]
    return {
        "one child": drawn(21, children=1),
        "one cell": TopdownSplit([one_cell], [4]),
        "clipping": TopdownSplit([below_zero]),
        "an empty parent": TopdownSplit(BASE.terms, np.zeros(CELLS)),
        "a parent of fractions": TopdownSplit(BASE.terms, BASE.parent * 0.37),
        "large counts": TopdownSplit([scaled(term, 1e7, 1.0) for term in BASE.terms], BASE.parent * 1e7),
        "an empty child": TopdownSplit(BASE.terms, BASE.parent, LinearRows(total(CELLS), totals, totals)),
        **{
            name: TopdownSplit([scaled(term, 1.0, factor) for term in BASE.terms], BASE.parent)
            for name, factor in apart.items()
        },
        **{
            f"a query of weight {ratio}": TopdownSplit([scaled(first, 1.0, ratio), *others], BASE.parent)
            for ratio in (1e-6, 1e-3, 1e3, 1e6)
        },
    }


def scaled(term: SplitTerm, answers: float, weights: Any) -> SplitTerm:
    """Return a term with multiples of its answers and weights."""
    return SplitTerm(term.operator, term.answers * answers, term.weights * weights)


DEGENERATE = degenerate()


@pytest.mark.parametrize("name", DEGENERATE)
def test_degenerate_splits(name: str) -> None:
    agree(DEGENERATE[name])


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


@pytest.mark.parametrize("excess", [1.0, 1e-3])
def test_contradictions_are_proved_not_guessed(excess: float) -> None:
    base = drawn(7, sides="equal")
    rows = base.constraints
    assert rows is not None
    wrong = rows.lower + excess
    with pytest.raises(SolverError, match="no feasible point"):
        solve(TopdownSplit(base.terms, base.parent, LinearRows(rows.operator, wrong, wrong)), SplitNewton())


def test_what_takes_too_long_is_handed_over_or_said(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = CASES["marginals-parent-equal"]
    hurried = SplitNewton(max_rounds=1, max_steps=2)
    assert solve(problem, hurried).ok
    monkeypatch.setattr(split, "find_spec", lambda name: None)
    solution = solve(problem, hurried, check=False)
    assert solution.status in (Status.ITERATION_LIMIT, Status.INFEASIBLE_POINT)
    with pytest.raises(SolverError, match="max_iter"):
        solve(problem, hurried)


def marginals(seed: int, sizes: tuple[int, ...], children: int, noise: float) -> TopdownSplit:
    """Return noisy two-way marginals of sparse tables of children, below their parent's table."""
    rng = np.random.default_rng(seed)
    schema = Schema({f"a{i}": tuple(f"v{value}" for value in range(size)) for i, size in enumerate(sizes)})
    pairs = [f"a{i} * a{j}" for i in range(len(sizes)) for j in range(i)]
    tables = rng.poisson(rng.gamma(0.3, 4.0, (children, schema.cells)))
    terms = []
    for query in parse_queries(pairs, schema):
        exact = query.operator.apply(tables)
        terms.append(SplitTerm(query.operator, exact + rng.normal(0, noise, exact.shape), np.full(children, noise**-2)))
    return TopdownSplit(terms, tables.sum(axis=0))


@pytest.mark.parametrize("noise", [1.0, 1e3])
@pytest.mark.parametrize("persons", [1e2, 1e6])
def test_counts_of_any_size_are_certified_with_and_without_a_parent(persons: float, noise: float) -> None:
    rng = np.random.default_rng(1)
    rows = parse_queries(["a * b", "b * c", "a * c"], Schema({name: tuple("vwxyz"[:4]) for name in "abc"}))
    tables = rng.multinomial(int(persons), rng.dirichlet(np.full(192, 0.2))).reshape(3, 64)
    terms = []
    for row in rows:
        exact = row.operator.apply(tables.astype(np.float64))
        terms.append(SplitTerm(row.operator, exact + rng.normal(0, noise, exact.shape), noise**-2))
    for parent in (tables.sum(axis=0), None):
        assert solve(TopdownSplit(terms, parent), SplitDualNewton()).ok


@pytest.mark.parametrize("seed", range(4))
def test_steps_that_do_not_end_are_made_shorter(seed: int) -> None:
    assert solve(marginals(seed, (2, 3, 4, 3), 5, 8.0), SplitDualNewton(max_newton=2)).ok


def test_newton_hands_it_what_is_not_measured_cell_by_cell() -> None:
    problem = marginals(3, (3, 4, 5, 2), 5, 8.0)
    solution = solve(problem, SplitNewton(few_steps=1))
    assert solution.ok
    assert solution.objective == pytest.approx(solve(problem, SplitDualNewton()).objective, rel=1e-6)
