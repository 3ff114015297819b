"""Splits of marginals alone, whose cells no answer determines: Newton on the answers' side, and who calls it."""

from __future__ import annotations

import numpy as np
import pytest
from coco_solvers.structured.split import SplitNewton
from coco_solvers.structured.split_dual import SplitDualNewton

from coco_opt import make_solver, solve
from coco_opt.errors import UnknownSolverError
from coco_opt.problems import TopdownSplit
from coco_opt.problems.topdown_split import LinearRows, SplitTerm
from coco_opt.topdown import Schema, parse_queries


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


@pytest.mark.parametrize("seed", range(6))
def test_is_certified_and_equals_a_general_solver(seed: int) -> None:
    problem = marginals(seed, (2, 3, 4), 1 + seed, 10.0 ** (seed % 3 - 1))
    ours, general = solve(problem, SplitDualNewton()), solve(problem, "clarabel", check=False)
    assert ours.ok
    assert ours.objective == pytest.approx(general.objective, rel=1e-5, abs=1e-6)


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


def test_refuses_constraints_beside_the_parent() -> None:
    problem = marginals(0, (2, 3), 2, 1.0)
    total = parse_queries(["total"], Schema({"a0": ("v0", "v1"), "a1": ("v0", "v1", "v2")}))[0].operator
    bound = TopdownSplit(problem.terms, problem.parent, LinearRows(total, np.zeros((2, 1)), np.full((2, 1), np.inf)))
    with pytest.raises(UnknownSolverError, match="without constraints"):
        solve(bound, make_solver("split-dual-newton"))
