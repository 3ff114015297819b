"""Every continuous problem at counts and noise of all sizes: each package, beside CVXPY with the problem as it reads.

A package's tolerances are absolute in the program that it is given. How a problem is written and in which units it is
counted must cost nothing: its certified gap may not be ten times that of the same package behind CVXPY's plain form.
"""

# CVXPY ships types for a part of its names only.
# mypy: disable-error-code="no-untyped-call,attr-defined"

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from itertools import combinations, product
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from coco_opt import Problem, Tree, solve
from coco_opt.array_types import Floats, Ints
from coco_opt.errors import SolverError
from coco_opt.operators import Grouping, identity, total
from coco_opt.problems import (
    IsotonicL1,
    IsotonicL2,
    JointL1,
    JointL2,
    SimplexProjection,
    SplitTerm,
    TopdownSplit,
    TreeLeastSquares,
)
from coco_opt.solution import Answer, Status
from coco_opt.solving import judge

if TYPE_CHECKING:
    import cvxpy as cp

PERSONS, NOISE = (10**2, 10**4, 10**6, 10**8), (1, 10, 1_000)
ENGINES = {"piqp": "PIQP", "clarabel": "CLARABEL", "osqp": "OSQP", "highs": "HIGHS"}
# Its active-set method cycles without end on some plain forms.
OPTIONS: dict[str, Any] = {"HIGHS": {"highs_options": {"time_limit": 10.0}}}
WORSE = 10.0  # times the plain form's excess
_CELLS, _DIMS, _CHILDREN = 40, (2, 3, 4, 3), 5
Instances = dict[str, Problem[Any, Any]]


def instances(persons: int, noise: int, seed: int = 1) -> Instances:
    """Return every problem at these numbers of persons and standard deviations of the noise."""
    rng = np.random.default_rng(seed)

    def noisy(exact: Any) -> Floats:
        answers: Floats = np.rint(np.asarray(exact, np.float64) + rng.normal(0.0, noise, np.shape(exact)))
        return answers

    sizes = rng.multinomial(persons, _falling(_CELLS))
    tree = Tree.complete(3, 4)
    leaves = np.zeros(tree.nodes, np.int64)
    leaves[tree.is_leaf] = rng.multinomial(persons, rng.dirichlet(np.full(int(tree.is_leaf.sum()), 0.5)))
    nodes, cumulative = noisy(tree.sums(leaves)), noisy(np.cumsum(sizes))
    return {
        "isotonic, squares": IsotonicL2(cumulative, lower=0),
        "isotonic, absolute": IsotonicL1(cumulative.astype(np.int64), lower=0),
        "simplex": SimplexProjection(noisy(sizes), persons),
        "tree, squares": TreeLeastSquares(tree, nodes, float(noise**2), lower=0.0),
        **_joint(persons, noise, rng, noisy),
        **_splits(persons, noise, rng, noisy),
    }


def _falling(cells: int) -> Floats:
    shares = 1.0 / (1.0 + np.arange(cells)) ** 1.5
    falling: Floats = shares / shares.sum()
    return falling


def _joint(persons: int, noise: int, rng: np.random.Generator, noisy: Callable[[Any], Floats]) -> Instances:
    tree, tables = Tree([-1, 0, 0, 0, 1, 1]), np.zeros((6, 21), np.int64)
    for leaf in np.flatnonzero(tree.is_leaf):
        tables[leaf] = rng.multinomial(persons // 4, rng.dirichlet(np.full(21, 0.5)))
    for region in range(5, 0, -1):
        tables[tree.parent[region]] += tables[region]
    counts = tables.cumsum(axis=1)
    rows, groups = noisy(counts[:, :-1]), counts[:, -1]
    return {
        "joint, squares": JointL2(tree, rows, groups, noise**-2.0),
        "joint, absolute": JointL1(tree, rows, groups, 1.0 / noise),
    }


def _splits(persons: int, noise: int, rng: np.random.Generator, noisy: Callable[[Any], Floats]) -> Instances:
    cells, index = int(np.prod(_DIMS)), np.indices(_DIMS).reshape(len(_DIMS), -1)
    pairs = [Grouping(index[i] * _DIMS[j] + index[j], _DIMS[i] * _DIMS[j]) for i, j in combinations(range(4), 2)]
    parent: Ints = rng.multinomial(persons, rng.dirichlet(np.full(cells, 0.3)))
    children = np.array([rng.multinomial(count, rng.dirichlet(np.full(_CHILDREN, 0.7))) for count in parent]).T

    def terms(tables: Ints, queries: Any) -> list[SplitTerm]:
        return [SplitTerm(query, noisy(query.apply(tables.astype(np.float64))), noise**-2.0) for query in queries]

    every = [identity(cells), total(cells), pairs[0]]
    return {
        "split, marginals alone": TopdownSplit(terms(parent[None], pairs)),
        "split, marginals below a parent": TopdownSplit(terms(children, pairs), parent),
        "split, cells": TopdownSplit(terms(children, every)),
        "split, cells below a parent": TopdownSplit(terms(children, every), parent),
    }


def plain(problem: Problem[Any, Any]) -> tuple[cp.Problem, cp.Variable]:
    """Return a problem in CVXPY as it reads, and its unknowns."""
    import cvxpy as cp

    if isinstance(problem, TopdownSplit):
        x = cp.Variable(problem.shape, nonneg=True)
        parts = [
            cp.sum_squares(cp.multiply(np.sqrt(term.weights), x @ term.operator.to_sparse().T - term.answers))
            for term in problem.terms
        ]
        rows = [] if problem.parent is None else [cp.sum(x, axis=0) == problem.parent]
        return cp.Problem(cp.Minimize(sum(parts)), rows), x
    x = cp.Variable(problem.y.shape)
    residual, weights = x - problem.y, getattr(problem, "weights", None)
    weights = np.ones(problem.variables) if weights is None else np.asarray(weights)
    spread = np.broadcast_to(weights.reshape(weights.shape + (1,) * (len(x.shape) - 1)), x.shape)
    if problem.kind.endswith("l1"):
        cost = cp.sum(cp.multiply(spread, cp.abs(residual)))
    else:
        cost = cp.sum_squares(cp.multiply(np.sqrt(spread), residual))
    return cp.Problem(cp.Minimize(cost), _constraints(problem, x)), x


def _constraints(problem: Any, x: cp.Variable) -> list[cp.Constraint]:
    import cvxpy as cp

    if isinstance(problem, SimplexProjection):
        return [x >= 0, cp.sum(x) == problem.total]
    if isinstance(problem, IsotonicL1 | IsotonicL2):
        return [cp.diff(x) >= 0, x[0] >= problem.lower]
    tree: Tree = problem.tree
    sums = np.eye(tree.nodes)
    sums[tree.parent[1:], np.arange(1, tree.nodes)] = -1.0
    leaves, consistent = np.flatnonzero(tree.is_leaf), sums[~tree.is_leaf] @ x == 0
    if isinstance(problem, JointL1 | JointL2):
        rows = x[leaves]
        ends = [rows[:, 0] >= 0, rows[:, -1] <= problem.groups[leaves]]
        return [consistent, cp.diff(rows, axis=1) >= 0, *ends]
    return [consistent, x >= 0]


def plain_excess(problem: Problem[Any, Any], engine: str, optimum: float) -> float:
    """Return by how much the plain form's point exceeds the optimum, over it; infinite where there is no point.

    It is what a perfect certificate of this point would say.
    """
    import cvxpy as cp

    program, x = plain(problem)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            program.solve(solver=engine, **OPTIONS.get(engine, {}))
        except cp.SolverError:
            return float("inf")
    if x.value is None:
        return float("inf")
    judged = judge(problem, Answer(np.asarray(x.value), Status.OPTIMAL), engine, 1e-6)
    if not judged.violation <= problem.feasibility_tolerance * problem.scale:
        return float("inf")
    return max(judged.objective - optimum, 0.0) / max(1.0, optimum)


def falls_short(persons: int, noise: int) -> Iterator[str]:
    """Yield which packages are neither certified within their tolerance nor within ten times the plain form."""
    for case, problem in instances(persons, noise).items():
        best = solve(problem, check=False)
        for name, engine in ENGINES.items():
            excess = plain_excess(problem, engine, best.objective - best.gap)
            try:
                solution = solve(problem, name, check=False)
                gap, certified = solution.relative_gap, solution.ok
            except SolverError:
                gap, certified = float("inf"), False
            if not certified and gap > WORSE * excess:
                yield f"{case} by {name}: {gap:.1g}, the plain form {excess:.1g}"


def test_no_package_falls_short_of_its_plain_form() -> None:
    assert list(falls_short(10**4, 10)) == []


@pytest.mark.slow
@pytest.mark.parametrize(("persons", "noise"), list(product(PERSONS, NOISE)))
def test_no_package_falls_short_of_its_plain_form_at_any_size(persons: int, noise: int) -> None:
    assert list(falls_short(persons, noise)) == []
