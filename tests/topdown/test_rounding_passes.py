"""Rounding in passes: totals first, then queries, then cells; lexicographically best, certified, fair in ties."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from coco_opt.choices import SolverChoices
from coco_opt.errors import ProblemError
from coco_opt.histograms import Hierarchy
from coco_opt.operators import Grouping, Operator, stack, total
from coco_opt.privacy import Epsilon, SeededNoise
from coco_opt.problems import TableRounding
from coco_opt.problems.table_rounding import IntegerRows, RoundingDual
from coco_opt.problems.table_rounding.prices import relaxed_prices
from coco_opt.solving import solve
from coco_opt.topdown.budget_plan import Strategy, TablePlan
from coco_opt.topdown.estimating.estimate import estimate_tables, linear_estimates
from coco_opt.topdown.estimating.method import TopdownMethod
from coco_opt.topdown.estimating.rounding import PRECISION, Ties, nested_passes, round_in_passes, seed_of
from coco_opt.topdown.measuring.counts import TableCounts
from coco_opt.topdown.measuring.measure import measure_tables
from coco_opt.topdown.queries import parse_queries, parse_query
from coco_opt.topdown.schema import Schema
from tests.topdown.estimation import measured

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
        rows = IntegerRows(total(cells), np.floor(values).astype(int), np.ceil(values).astype(int))
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


def test_queries_with_fractional_weights_are_refused() -> None:
    from scipy.sparse import csr_array

    from coco_opt.topdown.matrix_operator import MatrixOperator

    half = MatrixOperator(csr_array(np.array([[0.5, 1.0]])))
    with pytest.raises(ProblemError, match="integer weights"):
        TableRounding([[0.5, 0.5]], queries=[half])


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


def test_crossing_and_overlapping_queries_are_no_network() -> None:
    halves, crossing, fine = Grouping(np.array([0, 0, 1, 1]), 2), Grouping(np.array([0, 1, 0, 1]), 2), np.arange(4)
    cells = Grouping(fine, 4)
    everybody = total(4)
    assert nested_passes([everybody, crossing, halves, cells], None) == (everybody, crossing)
    assert nested_passes([halves, crossing, cells], None) == (halves,)
    assert nested_passes([halves, crossing], crossing) == (crossing,)
    assert nested_passes([halves], stack([crossing, total(4)])) == ()
    assert nested_passes([everybody, halves], stack([crossing, halves])) == (everybody,)


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


@pytest.mark.slow
def test_identical_children_get_totals_as_exact_as_linear_estimates() -> None:
    """Five identical children of 200 cells: no child gains, and totals are about as sure as the linear estimate's."""
    hierarchy = Hierarchy.from_paths([("nation", f"child {k}") for k in range(5)])
    schema = Schema({"a": [f"a{k}" for k in range(20)], "b": [f"b{k}" for k in range(10)]})
    table = np.random.default_rng(0).poisson(1.0, 200)
    people = TableCounts.from_counts(hierarchy, schema, np.tile(table, (5, 1)))
    strategy = Strategy(parse_queries(["total", "detail"], schema), ("1/2", "1/2"))  # type: ignore[arg-type]
    plan = TablePlan.product(strategy, Epsilon(Fraction(4)), levels=2)
    integers, linear = [], []
    for seed in range(40):
        measurement = measure_tables(people, plan, source=SeededNoise(seed))
        integers.append(estimate_tables(measurement).level(1).sum(axis=1) - table.sum())
        answers = linear_estimates(measurement).answers(parse_query("total", schema).operator, 1)
        linear.append(answers[:, 0] - table.sum())
    errors = np.array(integers)
    standard_error = errors.std(axis=0, ddof=1) / np.sqrt(len(errors))
    assert (np.abs(errors.mean(axis=0)) <= 3.0 * standard_error).all()
    assert errors.std() <= 1.3 * np.array(linear).std()
