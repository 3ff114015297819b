"""The structured solvers of top-down splits against interior-point solvers, closed forms and hard input.

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

from coco_opt import LinearRows, Schema, SimplexProjection, SplitTerm, Status, TopdownSplit, parse_queries, solve
from coco_opt.errors import SolverError
from coco_opt.operators import identity, total
from tests.topdown.splits import CASES, CELLS, drawn, marginal


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
