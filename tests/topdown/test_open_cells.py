"""Cells that no query measures: one guess for all solvers, which follows the margins and keeps everything else."""

from __future__ import annotations

import numpy as np
import pytest

from coco_opt import LinearRows, Schema, SolverChoices, SplitTerm, TopdownSplit, estimate_tables, solve
from coco_opt.operators import Grouping, Kronecker
from coco_opt.topdown.estimating.splitting.bounded_classes import leaves_cells_open, shared_in_proportion
from tests.topdown.estimation import check_tables, measured, random_hierarchy
from tests.topdown.splits import CELLS, drawn, marginal

SCHEMA = Schema({"sex": ["f", "m"], "age": list("abcdef"), "work": list("abcd"), "home": ["house", "prison"]})


def margins_alone(seed: int, sides: str = "none") -> TopdownSplit:
    """Return a drawn split of which the attributes are measured one by one."""
    every = drawn(seed, sides=sides)
    rng = np.random.default_rng([seed, 1])
    shape = every.terms[0].answers.shape
    table = solve(every).value
    terms = []
    for axis in range(3):
        answers = marginal(axis).apply(table)
        terms.append(SplitTerm(marginal(axis), answers + rng.normal(0, 3, answers.shape), np.full(shape[0], 0.1)))
    return TopdownSplit(terms, every.parent, every.constraints)


@pytest.mark.parametrize("seed", range(3))
def test_every_solver_ends_at_the_same_tables(seed: int) -> None:
    rng = np.random.default_rng(seed)
    hierarchy = random_hierarchy(rng, 3, 4)
    leaves = rng.poisson(rng.gamma(0.3, 30.0, (len(hierarchy.leaves), SCHEMA.size)))
    measurement = measured(seed, hierarchy, SCHEMA, leaves, ["total", "sex", "age", "work", "home"])
    results = [
        estimate_tables(measurement, solvers=SolverChoices({"topdown_split": solver}))
        for solver in ("split-newton", "piqp", "clarabel")
    ]
    check_tables(measurement, results[0])
    for level in range(hierarchy.levels):
        first, *others = ([region.tolist() for region in result.tables[level].dense()] for result in results)
        for tables in others:
            assert np.abs(np.subtract(tables, first)).max() <= 1


@pytest.mark.parametrize("children", [1, 3])
@pytest.mark.parametrize("noise", [1.0, 30.0])
def test_a_good_point_certifies_itself(children: int, noise: float) -> None:
    rng = np.random.default_rng(4)
    tables = rng.multinomial(40_000, rng.dirichlet(np.full(CELLS, 0.3)), children).astype(np.float64)
    pairs = [marginal(*axes) for axes in ((0, 1), (0, 2), (1, 2))]
    noisy = [pair.apply(tables) + rng.normal(0, noise, (children, pair.answers)) for pair in pairs]
    terms = [SplitTerm(*term, noise**-2) for term in zip(pairs, noisy, strict=True)]
    problem = TopdownSplit(terms, tables.sum(axis=0) if children > 1 else None)
    best = solve(problem, "highs")
    assert problem.certified_gap(best.value) <= 1e-8 * best.objective
    for _ in range(20):
        point = problem.repair(best.value * rng.uniform(0.9, 1.1, best.value.shape))
        assert problem.certified_gap(point) >= problem.objective(point) - best.objective


def test_single_attributes_alone_make_the_product_of_their_margins() -> None:
    """Of the tables with given margins the product has the greatest entropy; the fit's own table has less."""
    table = np.arange(1.0, CELLS + 1)[None, :]
    margins = [marginal(axis) for axis in range(3)]
    problem = TopdownSplit([SplitTerm(each, each.apply(table), np.ones(1)) for each in margins])
    product = np.prod([each.apply(table)[0][each.labels] for each in margins], axis=0) / table.sum() ** 2
    np.testing.assert_allclose(shared_in_proportion(problem, table)[0], product, atol=1e-3)


@pytest.mark.parametrize("sides", ["none", "equal", "ranges"])
def test_the_guess_keeps_answers_sums_and_constraints_and_is_nearest_in_entropy(sides: str) -> None:
    """Its logarithm, less that of the parent's cells, is a sum of one number per row and child, and per cell."""
    problem = margins_alone(3, sides)
    fit = solve(problem, "piqp").value
    guess = shared_in_proportion(problem, fit)
    for term in problem.terms:
        np.testing.assert_allclose(term.operator.apply(guess), term.operator.apply(fit), atol=1e-3)
    np.testing.assert_allclose(guess.sum(axis=0), problem.parent, atol=1e-9)
    assert problem.violation(guess) <= 1e-3
    positive = problem.table(guess) > 1e-6  # [cells, children]
    logarithms = np.log(np.where(positive, problem.table(guess), 1.0))
    rows = problem.queries.above(problem.rows)
    columns = [np.kron(rows.adjoint(np.eye(rows.shape[0])), np.eye(guess.shape[0]))]
    columns.append(np.kron(np.eye(problem.occupied_cells.size), np.ones((guess.shape[0], 1))))
    basis = np.hstack(columns)[positive.ravel()]
    target = logarithms.ravel()[positive.ravel()]
    residual = target - basis @ np.linalg.lstsq(basis, target)[0]
    assert np.abs(residual).max() <= 1e-8


def test_structural_zeros_stay_empty() -> None:
    table, impossible = np.full((1, CELLS), 3.0), Grouping(np.where(np.arange(CELLS) == 4, 0, -1), 1)
    table[0, 4] = 0.0
    terms = [SplitTerm(each, each.apply(table), np.ones(1)) for each in (marginal(0), marginal(1))]
    guess = shared_in_proportion(TopdownSplit(terms, None, LinearRows(impossible, [[0.0]], [[0.0]])), table)
    assert guess[0, 4] == 0.0
    np.testing.assert_allclose(marginal(1).apply(guess), marginal(1).apply(table), atol=1e-3)


def test_measured_cells_and_rows_with_other_weights_keep_the_fit() -> None:
    for queries in ("all", "ranges"):
        problem = drawn(1, queries)
        fit = solve(problem).value
        assert not leaves_cells_open(problem)
        assert shared_in_proportion(problem, fit) is fit
    doubled = Kronecker((np.full((1, 2), 2.0), np.ones((1, 3)), np.ones((1, 2))))
    problem = TopdownSplit([SplitTerm(doubled, np.ones((1, 1)), np.ones(1))])
    fit = np.ones((1, CELLS))
    assert leaves_cells_open(problem)
    assert shared_in_proportion(problem, fit) is fit
