"""Splits of marginals alone, whose cells no answer determines: the interior-point method, and who solves them."""

from __future__ import annotations

import numpy as np
import pytest
from coco_solvers.structured.split import SplitNewton
from coco_solvers.structured.split_interior import SplitInteriorPoint

from coco_opt import make_solver, solve
from coco_opt.errors import UnknownSolverError
from coco_opt.problems import TopdownSplit
from coco_opt.problems.topdown_split.rows import LinearRows, SplitTerm
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
    ours, general = solve(problem, SplitInteriorPoint()), solve(problem, "clarabel", check=False)
    assert ours.ok
    assert ours.objective == pytest.approx(general.objective, rel=1e-5, abs=1e-6)


def test_newton_hands_it_what_is_not_measured_cell_by_cell() -> None:
    problem = marginals(3, (3, 4, 5, 2), 5, 8.0)
    solution = solve(problem, SplitNewton(few_steps=1))
    assert solution.ok
    assert solution.objective == pytest.approx(solve(problem, SplitInteriorPoint()).objective, rel=1e-6)


def test_refuses_constraints_beside_the_parent() -> None:
    problem = marginals(0, (2, 3), 2, 1.0)
    total = parse_queries(["total"], Schema({"a0": ("v0", "v1"), "a1": ("v0", "v1", "v2")}))[0].operator
    bound = TopdownSplit(problem.terms, problem.parent, LinearRows(total, np.zeros((2, 1)), np.full((2, 1), np.inf)))
    with pytest.raises(UnknownSolverError, match="without constraints"):
        solve(bound, make_solver("split-interior-point"))
