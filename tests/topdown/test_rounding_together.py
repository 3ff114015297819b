"""Queries that cross are rounded together: all is kept, answers stay near the fit's, and no position is favoured."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations, product

import numpy as np
import pytest

from coco_opt.choices import SolverChoices
from coco_opt.histograms import Hierarchy
from coco_opt.operators import Grouping, Operator, stack, total
from coco_opt.privacy import Rho, SeededNoise
from coco_opt.problems import TableRounding
from coco_opt.problems.linear_rows import LinearRows
from coco_opt.solving import solve
from coco_opt.topdown.budget_plan import Strategy, TablePlan
from coco_opt.topdown.estimating.method import TopdownMethod
from coco_opt.topdown.estimating.rounding import Ties, round_in_passes
from coco_opt.topdown.estimating.splitting.step import split_step
from coco_opt.topdown.measuring.counts import TableCounts
from coco_opt.topdown.measuring.measure import measure_tables
from coco_opt.topdown.noisy_measurements import TableMeasurements
from coco_opt.topdown.queries import parse_queries
from coco_opt.topdown.schema import Schema
from tests.topdown.estimation import measured

SCHEMA = Schema({name: tuple(f"{name}{k}" for k in range(size)) for name, size in (("a", 3), ("b", 4), ("c", 5))})
PAIRS = parse_queries([f"{one} * {other}" for one, other in combinations("abc", 2)], SCHEMA)


def margins(rows: int, columns: int) -> list[Operator]:
    """Return the sums of the rows and of the columns of a table, which cross."""
    row, column = np.divmod(np.arange(rows * columns), columns)
    return [Grouping(row, rows), Grouping(column, columns)]


def problem(seed: int, rows: int, columns: int, children: int, *, parent: bool, totals: bool) -> TableRounding:
    rng = np.random.default_rng(seed)
    whole = rng.poisson(0.8 * children, rows * columns)
    x = (
        rng.dirichlet(np.ones(children), rows * columns).T * whole
        if parent
        else rng.exponential(1.0, (children, whole.size))
    )
    constraints = None
    if totals:
        kept = total(whole.size)
        nearest = solve(TableRounding(x, whole if parent else None, queries=[kept])).value
        constraints = LinearRows(kept, kept.apply(nearest), kept.apply(nearest))
    return TableRounding(x, whole if parent else None, constraints, queries=margins(rows, columns), seed=seed)


@pytest.mark.parametrize("totals", [False, True])
@pytest.mark.parametrize("parent", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_small_tables_are_nearly_the_best_and_bounds_hold(seed: int, parent: bool, totals: bool) -> None:
    small = problem(seed, 2, 3, 2, parent=parent, totals=totals)
    ranges = [range(low, high + 1) for low, high in zip(small.low.ravel(), small.high.ravel(), strict=True)]
    points = (np.array(point).reshape(small.shape) for point in product(*ranges))
    best = min(small.objective(point) for point in points if small.violation(point) == 0.0)
    answer = solve(small, check=False)
    assert answer.violation == 0.0
    assert answer.objective <= 1.1 * best + 1e-9
    assert answer.objective - answer.gap <= best + 1e-9


@pytest.mark.parametrize("totals", [False, True])
@pytest.mark.parametrize("parent", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_larger_tables_keep_everything_and_err_less_than_nearest_cells(seed: int, parent: bool, totals: bool) -> None:
    large = problem(seed, 12, 15, 3, parent=parent, totals=totals)
    answer = solve(large, check=False)
    assert answer.violation == 0.0
    nearest = solve(TableRounding(large.x, large.parent, large.constraints)).value
    assert answer.objective < 0.7 * large.objective(nearest)
    assert np.isfinite(answer.gap)
    assert np.array_equal(solve(large, check=False).value, answer.value)


def test_no_child_and_no_cell_is_favoured() -> None:
    children, draws = 4, 300
    x = np.full((children, 12), 0.5)
    queries, up = margins(3, 4), np.zeros(x.shape)
    for seed in range(draws):
        up += round_in_passes(x, np.full(12, 2), None, [total(12)], Ties(seed), 0, SolverChoices(), queries)
    # Each cell goes up in half of the draws, with a standard deviation of at most half a draw each.
    assert np.abs(up / draws - 0.5).max() < 4.5 * 0.5 / np.sqrt(draws)
    assert np.abs(up.mean(axis=1) / draws - 0.5).max() < 0.02


@pytest.mark.parametrize(
    ("queries", "expected"),
    [
        (["a * b", "a * c"], 2),
        (["a * b", "a"], 0),
        (["a * b", "a * c", "detail"], 0),
        (["total", "a * b * c"], 0),
    ],
)
def test_only_queries_that_cross_over_open_cells_are_rounded_together(queries: list[str], expected: int) -> None:
    tree = Hierarchy.from_paths([("land", "x"), ("land", "y")])
    noisy = measured(1, tree, SCHEMA, np.ones((2, SCHEMA.size), np.int64), queries, 1)
    step = split_step(TableMeasurements.of(noisy), TopdownMethod(seed=1), SolverChoices())
    assert [len(each) for each in step.crossing_queries] == [expected] * 2


@pytest.mark.parametrize("rho", [Fraction(1, 10), Fraction(1)])
def test_answers_of_integers_err_as_little_as_those_of_the_fit(rho: Fraction) -> None:
    rng = np.random.default_rng(4)
    people = rng.multinomial(4_000, rng.dirichlet(np.full(SCHEMA.size, 0.4)), 3)
    tree = Hierarchy.from_paths([("land", f"part{k}") for k in range(3)])
    counts = TableCounts.from_counts(tree, SCHEMA, people)
    errors = np.zeros((2, 2))
    for seed in range(6):
        plan = TablePlan.product(Strategy.uniform(PAIRS), Rho(rho), levels=2)
        noisy = TableMeasurements.of(measure_tables(counts, plan, source=SeededNoise(seed)))
        step, parent = split_step(noisy, TopdownMethod(seed=seed), SolverChoices()), None
        for level, truth in enumerate((people.sum(axis=0, keepdims=True), people)):
            regions = tree.level_range(level)
            fit = step.fractional(regions, parent)
            table = step.integer_tables(fit, regions, parent)
            pairs = stack([query.operator for query in PAIRS])
            errors[level] += [np.abs(pairs.apply(each - truth)).mean() for each in (fit, table.astype(np.float64))]
            parent = table[0]
    assert (errors[:, 1] <= 1.05 * errors[:, 0]).all()
