"""Rounding of a region's split: equal to exhaustive search and to HiGHS, certified, and refused where none exists.

Rounding in passes: totals first, then queries, then cells; lexicographically best, certified, fair in ties.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from coco_opt import Hierarchy, LinearRows, SolverChoices, Status, TableRounding, TopdownMethod, estimate_tables, solve
from coco_opt.errors import CocoOptError, ProblemError, SolverError
from coco_opt.operators import Grouping, Operator, stack, total
from coco_opt.problems.table_rounding import RoundingDual
from coco_opt.problems.table_rounding.program import relaxed_prices
from coco_opt.topdown import Schema, parse_queries
from coco_opt.topdown.estimating.rounding import PRECISION, Ties, round_in_passes, seed_of
from coco_opt.topdown.rows import MatrixOperator
from tests.topdown.estimation import measured


def split(rng: np.random.Generator, children: int, cells: int, grid: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return fractional tables (on a grid of 1/``grid`` where given) and the whole table they add up to."""
    x = rng.exponential(1.5, (children, cells)) * (rng.random((children, cells)) < 0.7)
    if grid:
        x = np.floor(x * grid) / grid
    parent = np.rint(x.sum(axis=0)).astype(np.int64)
    gap = parent - x.sum(axis=0)
    x[0] = x[0] + np.where(x[0] + gap >= 0, gap, 0)
    spare = parent - x.sum(axis=0)
    x[1] = np.maximum(x[1] + spare, 0)
    return x, np.rint(x.sum(axis=0)).astype(np.int64)


def totals(x: np.ndarray, groups: np.ndarray | None = None, loose: int = 0) -> LinearRows:
    """Return each child's totals by group, rounded from x so that they add up to whole sums, perhaps loosened."""
    labels = np.zeros(x.shape[1], np.int64) if groups is None else groups
    operator = Grouping(labels, int(labels.max()) + 1)
    aims = operator.apply(x)
    integers = np.floor(aims + 1e-9).astype(np.int64)
    for row in range(aims.shape[1]):
        ups = round(float(aims[:, row].sum())) - int(integers[:, row].sum())
        order = np.argsort(-(aims[:, row] - integers[:, row]), kind="stable")
        integers[order[:ups], row] += 1
    return LinearRows(operator, np.maximum(integers - loose, 0), integers + loose)


@given(st.integers(0, 10**6), st.integers(1, 5), st.integers(1, 6), st.booleans())
def test_what_comes_back_is_whole_adds_up_and_is_certified(seed: int, children: int, cells: int, total: bool) -> None:
    rng = np.random.default_rng(seed)
    x, parent = split(rng, children + 1, cells)
    problem = TableRounding(x, parent, totals(x) if total else None, slack=2)
    solution = solve(problem)
    assert solution.value.dtype == np.int64
    assert (solution.value >= 0).all()
    assert np.array_equal(solution.value.sum(axis=0), parent)
    assert np.abs(solution.value - x).max() < 2
    assert solution.gap <= 1e-9 * max(1.0, solution.objective)
    assert np.array_equal(solve(problem).value, solution.value)


def test_rounding_errors_of_the_split_open_no_cell() -> None:
    x = np.array([[3 + 1e-12, 0.5], [2 - 1e-12, 0.5]])
    solution = solve(TableRounding(x, np.array([5, 1])))
    assert solution.value[:, 0].tolist() == [3, 2]


def test_wrong_answers_have_large_gaps_or_violations() -> None:
    rng = np.random.default_rng(9)
    x, parent = split(rng, 5, 25)
    problem = TableRounding(x, parent, totals(x))
    best = solve(problem).value
    moved = 0
    for a, b, c, d in itertools.product(range(2), range(2, 4), range(12), range(12, 25)):
        worse = np.array(best)
        worse[[a, b], c] += [1, -1]
        worse[[a, b], d] += [-1, 1]
        if problem.violation(worse) == 0:
            moved += 1
            cost = problem.objective(worse) - problem.objective(best)
            assert problem.certified_gap(worse) >= cost - 1e-9
            random = RoundingDual(rng.normal(size=25), rng.normal(size=(5, 1)))
            assert problem.certified_gap(worse, random) >= cost - 1e-9
            assert problem.gap(best, random) >= -1e-12
    assert moved > 0
    assert problem.violation(best + 1) >= 1
    assert problem.violation(best[:, :3]) == np.inf
    assert problem.violation(best + 0.5) >= 0.5


@pytest.mark.parametrize("price", [np.inf, np.nan, 1e308, -1e308, 1e20])
def test_absurd_prices_prove_nothing(price: float) -> None:
    rng = np.random.default_rng(4)
    x, parent = split(rng, 4, 6)
    tenths = MatrixOperator(csr_array(np.full((1, 6), 0.1)))
    for rows in (totals(x), LinearRows(tenths, np.zeros((4, 1), np.int64), np.full((4, 1), 99))):
        problem = TableRounding(x, parent, rows)
        best = solve(problem)
        absurd = problem.admissible(RoundingDual(np.full(6, price), np.full((4, 1), price)))
        assert problem.gap(best.value, absurd) >= 0.0
        assert problem.certified_gap(best.value, absurd) <= best.gap + 1e-12


def test_what_cannot_be_is_refused_by_name() -> None:
    x = np.array([[0.5, 0.5], [0.5, 0.5]])
    rows = LinearRows(Grouping(np.zeros(2, np.int64), 1), np.array([[2], [2]]), np.array([[9], [9]]))
    with pytest.raises(ProblemError, match="row 0"):
        solve(TableRounding(x, np.array([1, 1]), rows))
    with pytest.raises(ProblemError, match="cell 1"):
        TableRounding(x, np.array([1, 7]))
    with pytest.raises(ProblemError, match="constraint 0 of child 1"):
        LinearRows(rows.operator, np.array([[0], [3]]), np.array([[2], [2]]))
    with pytest.raises(ProblemError, match="negative"):
        TableRounding(-x, np.array([1, 1]))
    half = MatrixOperator(csr_array(np.array([[0.5, 1.0]])))
    with pytest.raises(ProblemError, match="integer weights"):
        TableRounding([[0.5, 0.5]], queries=[half])
    overlapping = LinearRows(
        stack([rows.operator, rows.operator]), np.array([[2, 0], [2, 0]]), np.array([[9, 9], [9, 9]])
    )
    with pytest.raises(CocoOptError):
        solve(TableRounding(x, np.array([1, 1]), overlapping))


Ints = np.ndarray


def drawn(rng: np.random.Generator, children: int, cells: int) -> tuple[np.ndarray, Ints]:
    """Return fractional tables, some cells empty, and the whole table they add up to."""
    parent = rng.poisson(1.2 * children, cells)
    shares = rng.dirichlet(np.full(children, 0.7), cells).T
    return shares * parent, parent


def points(problem: TableRounding) -> list[Ints]:
    """Return every whole table that keeps what a problem keeps."""
    ranges = [range(a, b + 1) for a, b in zip(problem.low.ravel(), problem.high.ravel(), strict=True)]
    every = (np.array(point).reshape(problem.shape) for point in product(*ranges))
    return [point for point in every if problem.violation(point) == 0.0]


@pytest.mark.parametrize("root", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_answers_are_nearest_and_proved_so(seed: int, root: bool) -> None:
    rng = np.random.default_rng(seed)
    x, parent = drawn(rng, 2 if seed % 2 else 3, 4 if seed % 2 else 3)
    cells = x.shape[1]
    groups = Grouping(rng.integers(-1, 2, cells), 2)
    queries: list[Operator] = [[total(cells)], [groups], [total(cells), groups]][seed % 3]
    rows = None
    if seed % 4 == 0:
        values = total(cells).apply(x)
        rows = LinearRows(total(cells), np.floor(values).astype(int), np.ceil(values).astype(int))
    problem = TableRounding(x, None if root else parent, rows, 1 + seed % 2, queries)
    assert problem.nested is not None
    feasible = points(problem)
    best = min(problem.objective(point) for point in feasible)
    ours, generic = solve(problem), solve(problem, "highs")
    assert ours.objective == pytest.approx(best, abs=1e-9)
    assert generic.objective == pytest.approx(best, abs=1e-7)
    assert ours.gap <= 1e-9
    relaxed = problem.admissible(relaxed_prices(problem))
    assert problem.gap(ours.value, relaxed) <= 1e-7  # the integer hull of each answer makes the relaxation tight
    for point in feasible[:: max(1, len(feasible) // 40)]:
        random = RoundingDual(
            rng.normal(size=cells),
            rng.normal(size=problem.sides[0].shape),
            rng.uniform(-1, 1, (len(x), problem.query_rows.shape[0])),
        )
        for prices in (problem.admissible(random), relaxed, problem.prices):
            assert problem.gap(point, prices) >= problem.objective(point) - best - 1e-9


@pytest.mark.parametrize("seed", range(8))
def test_passes_are_best_one_after_the_other(seed: int) -> None:
    """Exhaustive search: least error of the totals, among those least of the groups, among those of the cells."""
    rng = np.random.default_rng(100 + seed)
    x, parent = drawn(rng, 3, 4)
    crossing = Grouping(np.array([0, 1, 0, 1]), 2)
    queries: list[Operator] = [total(4), Grouping(np.array([0, 0, 1, 1]), 2), *([crossing] if seed % 2 else [])]
    choices = SolverChoices()
    table = round_in_passes(x, parent, None, queries, Ties(seed), 0, choices)
    left = points(TableRounding(x, parent))
    for query in [*queries, Grouping(np.arange(4), 4)]:
        errors = [float(np.abs(query.apply(point - x)).sum()) for point in left]
        best = min(errors)
        left = [point for point, error in zip(left, errors, strict=True) if error <= best + 1e-4]
    assert any(np.array_equal(point, table) for point in left)
    for query in queries[:2]:
        assert (np.abs(query.apply(table - x)) < 1.0 + 1e-9).all()


def test_ties_are_decided_by_a_hash_and_move_nothing_else() -> None:
    rng = np.random.default_rng(3)
    x = rng.poisson(2.0, (3, 50)) + rng.choice([0.0, 0.25, 0.5, 1e-7, 1 - 1e-7], (3, 50))
    first, second = Ties(1).broken(x, 7, 0), Ties(2).broken(x, 7, 0)
    assert np.array_equal(first, Ties(1).broken(x, 7, 0))
    assert (np.abs(first - x) <= PRECISION).all()
    open_cells = np.abs(x - np.rint(x)) > PRECISION
    assert (first[open_cells] != second[open_cells]).all()
    assert np.array_equal(first[~open_cells], np.rint(x)[~open_cells])
    assert np.array_equal(np.floor(first[open_cells]), np.floor(x[open_cells]))
    # A region's numbers are its own, whichever children it is rounded with; passes and regions differ.
    assert np.array_equal(Ties(1).broken(x[1:], 8, 0), first[1:])
    assert (Ties(1).broken(x, 7, 1)[open_cells] != first[open_cells]).all()
    assert (Ties(1).broken(x, 8, 0)[open_cells] != first[open_cells]).all()


def test_equal_fractions_favour_no_child() -> None:
    """Of four children with a quarter of one person each, every one gets the person a quarter of the time."""
    x, parent = np.full((4, 25), 0.25), np.ones(25, np.int64)
    gained = np.zeros(4)
    for seed in range(40):
        gained += round_in_passes(x, parent, None, [], Ties(seed), 0, SolverChoices()).sum(axis=1)
    expected = 40 * 25 / 4
    assert (np.abs(gained - expected) < 4.0 * np.sqrt(expected * 0.75)).all()


def test_the_seed_depends_on_the_answers_to_every_question() -> None:
    hierarchy = Hierarchy.from_paths([("nation", "north"), ("nation", "south")])
    schema = Schema({"race": ("a", "b")})
    leaves = np.array([[3, 1], [4, 1]])
    original, second = (measured(seed, hierarchy, schema, leaves, ["detail"]) for seed in (1, 2))
    assert seed_of(original) == seed_of(measured(1, hierarchy, schema, leaves, ["detail"]))
    assert seed_of(original) != seed_of(second)
    for index, answers in enumerate(original.answers):
        changed = replace(answers, stored=answers.values + 1)
        assert seed_of(
            replace(original, answers=(*original.answers[:index], changed, *original.answers[index + 1 :]))
        ) != seed_of(original)
    first = estimate_tables(original)
    again = estimate_tables(original, TopdownMethod(seed=seed_of(original)))
    assert np.array_equal(first.level(1), again.level(1))


def test_an_order_given_rounds_crossing_queries_too() -> None:
    rng = np.random.default_rng(5)
    hierarchy = Hierarchy.from_paths([("nation", name) for name in ("n", "s", "e")])
    schema = Schema({"sex": ("f", "m"), "age": ("c", "a", "o")})
    measurement = measured(4, hierarchy, schema, rng.poisson(3.0, (3, 6)), ["detail", "sex", "age"], 8)
    order = parse_queries(["age", "sex"], schema)
    result = estimate_tables(measurement, TopdownMethod(rounding_order=order))
    assert np.array_equal(result.level(1).sum(axis=0), result.level(0)[0])
    assert max(row.gap for row in result.certificates) <= 1e-6


@pytest.mark.parametrize("seed", [24, 161, 174, 331, 417, 420])
@pytest.mark.parametrize("solver", ["auto", "highs", "scipy-milp"])
def test_an_optimum_that_duality_cannot_prove_is_returned_as_the_searches_claim(seed: int, solver: str) -> None:
    rng, cells = np.random.default_rng(seed), 6
    truth = rng.integers(0, 4, cells)
    x = np.maximum(0.0, truth + rng.normal(0.0, 1.0, cells))[None]
    rows = stack([Grouping(rng.integers(0, 2, cells), 2) for _ in range(3)])
    exact = rows.apply(truth[None].astype(float)).astype(np.int64)
    problem = TableRounding(x, None, LinearRows(rows, exact, exact), slack=4)
    solution = solve(problem, solver)
    assert solution.status is Status.OPTIMAL_BY_SEARCH
    assert not solution.ok
    tables = np.array(list(product(range(8), repeat=cells)))
    best = tables[(rows.apply(tables.astype(float)) == exact).all(axis=1)]
    assert solution.objective == pytest.approx(min(problem.objective(table[None]) for table in best))
    counted = SolverChoices()
    with pytest.raises(SolverError, match="certificate does not prove"):
        counted.solve(problem)
