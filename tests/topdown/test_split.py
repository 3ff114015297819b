"""The top-down split as a problem: what it judges, what it certifies, how it writes itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from coco_solvers.generic.piqp import PIQP
from numpy.typing import NDArray

from coco_opt import TopdownSplit, solve
from coco_opt.errors import ProblemError
from coco_opt.forms import QuadraticProgram
from coco_opt.operators import identity, total
from coco_opt.problems.topdown_split import LinearRows, SplitDual, SplitTerm
from tests.topdown.splits import CASES, CELLS, drawn


def spread(problem: TopdownSplit, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return a random table with the right sums; without constraints it is feasible."""
    children, cells = problem.shape
    sums = rng.uniform(0, 30, cells) if problem.parent is None else problem.parent
    return (rng.dirichlet(np.full(children, 0.5), cells) * sums[:, None]).T


@pytest.mark.parametrize("name", CASES)
def test_the_program_says_what_the_problem_says(name: str) -> None:
    problem, rng = CASES[name], np.random.default_rng(2)
    formulation = problem.formulate(QuadraticProgram)
    program = formulation.program
    assert isinstance(program, QuadraticProgram)
    x = spread(problem, rng)
    z = np.zeros(program.variables)
    size = problem.variables
    _, base = problem.single
    unit = float((formulation.recover(np.ones(z.size)) - formulation.recover(z)).max())
    z[:size] = (problem.table(x) - base).T.ravel() / unit
    lifted = program.A[:, size:]
    owner = np.abs(lifted.toarray()).sum(axis=1) > 0
    z[size:] = (program.A @ z - program.row_lower)[owner]
    value = 0.5 * z @ (program.P @ z) + program.c @ z + program.offset
    assert unit**2 * value == pytest.approx(problem.objective(x), rel=1e-12)
    np.testing.assert_allclose(formulation.recover(z), x, rtol=0, atol=1e-12)
    rows = program.A @ z
    broken = max(0.0, float(np.maximum(program.row_lower - rows, rows - program.row_upper).max()))
    assert unit * broken == pytest.approx(problem.violation(x), abs=1e-9)


@pytest.mark.parametrize("name", CASES)
def test_any_prices_give_a_bound(name: str) -> None:
    problem, rng = CASES[name], np.random.default_rng(5)
    best = solve(problem, PIQP())
    for _ in range(60):
        x = problem.repair(spread(problem, rng))
        if problem.violation(x) > 1e-9 * problem.scale:
            continue
        prices = SplitDual(rng.normal(0, 3, CELLS), rng.normal(0, 3, problem.sides[0].T.shape))
        apart = problem.objective(x) - best.objective
        assert problem.gap(x, problem.admissible(prices)) >= apart - 1e-6
        assert problem.certified_gap(x) >= apart - 1e-6


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
