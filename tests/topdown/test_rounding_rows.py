"""Rounding with random rows: nested ones against HiGHS, overlapping ones with honest gaps, contradictions refused.

Queries that cross are rounded together: all is kept, answers stay near the fit's, and no position is favoured.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest
from coco_solvers.structured.table_rounding import ShortestPaths
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from coco_opt import Hierarchy, LinearRows, SolverChoices, TableCounts, TableRounding, TopdownMethod, measure_tables
from coco_opt.errors import ProblemError, SolverError
from coco_opt.operators import Grouping, Operator, identity, stack, total
from coco_opt.privacy import Rho, SeededNoise
from coco_opt.problems.table_rounding.transport import solve_nested
from coco_opt.solution import Answer, Status
from coco_opt.solving import judge, solve
from coco_opt.topdown import Schema, Strategy, TableMeasurements, TablePlan, parse_queries
from coco_opt.topdown.estimating.rounding import Ties, round_in_passes
from coco_opt.topdown.estimating.splitting.step import split_step
from tests.topdown.estimation import measured

Data = NDArray[Any]


def mixed(rng: np.random.Generator, children: int, cells: int, mean: float = 1.5) -> tuple[Data, Data]:
    """Return fractional tables and a whole table they add up to, both from permutations of a whole one's columns."""
    integer_table = rng.poisson(mean, (children, cells))
    parts = [
        np.take_along_axis(integer_table, np.argsort(rng.random(integer_table.shape), axis=0), axis=0) for _ in range(3)
    ]
    return np.tensordot(rng.dirichlet(np.ones(3)), parts, axes=1), integer_table.sum(axis=0)


def around(rng: np.random.Generator, operator: Operator, x: Data, tight: float) -> LinearRows:
    """Return sides next to the rows' values: some equal, some apart, some missing, perhaps out of reach together."""
    values = operator.apply(x)
    lower, upper = np.floor(values + 1e-9).astype(np.int64), np.ceil(values - 1e-9).astype(np.int64)
    nearest = np.rint(values).astype(np.int64)
    equal = rng.random(values.shape) < tight
    lower, upper = np.where(equal, nearest, lower), np.where(equal, nearest, upper)
    lower = np.where(rng.random(values.shape) < 0.2, -np.inf, lower)
    upper = np.where(rng.random(values.shape) < 0.2, np.inf, upper)
    return LinearRows(operator, lower, upper)


def tree_of_groups(rng: np.random.Generator, cells: int) -> Operator:
    """Return nested groups of random cells: the total, groups, parts of groups and some single cells."""
    outer = rng.integers(-1, 3, cells)
    inner = np.where((outer >= 0) & (rng.random(cells) < 0.7), 2 * outer + rng.integers(0, 2, cells), -1)
    single = identity(cells).restrict(np.arange(cells))
    return stack([Grouping(inner, 6), total(cells), Grouping(outer, 3), single])


@given(st.integers(0, 10**6), st.sampled_from([1, 1, 2]), st.booleans())
def test_nested_rows_give_the_optimum_of_highs_or_nothing(seed: int, slack: int, sums: bool) -> None:
    rng = np.random.default_rng(seed)
    x, parent = mixed(rng, int(rng.integers(2, 5)), int(rng.integers(2, 9)))
    rows = around(rng, tree_of_groups(rng, x.shape[1]), x, 0.4)
    try:
        problem = TableRounding(x, parent if sums else None, rows, slack)
    except ProblemError:
        return
    answer = solve_nested(problem)
    assert answer is not None
    if answer.unmet is not None:
        with pytest.raises(ProblemError, match=r"row \d+ of the constraints of child \d"):
            solve(problem)
        with pytest.raises(SolverError, match="no feasible point"):
            solve(problem, "scipy-milp", check=False)
        return
    ours = solve(problem)
    theirs = solve(problem, "scipy-milp")
    assert ours.violation == 0.0
    assert ours.gap <= 1e-12
    assert ours.objective == pytest.approx(theirs.objective, abs=1e-9)


def two_ways(seed: int, children: int, rows: int, columns: int) -> TableRounding:
    """Return tables whose row and column sums are whole and kept: no network with more than two children."""
    rng = np.random.default_rng(seed)
    cells = rows * columns
    integer_table = rng.poisson(1.5, (children, cells))
    x = integer_table.astype(np.float64)
    for _ in range(60 * children * cells):
        (a, b), (i, k), (m, n) = (rng.choice(size, 2, replace=False) for size in (children, rows, columns))
        near, far = [i * columns + m, k * columns + n], [i * columns + n, k * columns + m]
        change = np.zeros(x.shape)
        change[np.ix_([a], near)] = change[np.ix_([b], far)] = rng.uniform(-0.4, 0.4)
        change[np.ix_([a], far)] = change[np.ix_([b], near)] = -change[a, near[0]]
        if (x + change >= 0.0).all():
            x = x + change
    operator = stack([Grouping(np.arange(cells) // columns, rows), Grouping(np.arange(cells) % columns, columns)])
    sums = operator.apply(integer_table)
    return TableRounding(x, integer_table.sum(axis=0), LinearRows(operator, sums, sums))


@pytest.mark.parametrize("seed", range(3))
def test_overlapping_rows_are_met_by_a_mixed_integer_program(seed: int) -> None:
    problem = two_ways(seed, 4, 3, 4)
    assert problem.nested is None
    best = solve(problem, "scipy-milp", check=False)
    ours = solve(problem, check=False)
    assert ours.objective == pytest.approx(best.objective, abs=1e-7)
    assert ours.gap >= 0.0


def test_what_is_whole_but_for_a_solvers_rounding_is_taken_for_it() -> None:
    problem = two_ways(0, 4, 3, 4)
    best = solve(problem, check=False)
    near = best.value - 1e-10 * (best.value > 0)
    answer = judge(problem, Answer(near, Status.OPTIMAL), "by hand", 1e-9)
    assert answer.value.dtype == np.int64
    assert np.array_equal(answer.value, best.value)
    assert answer.gap == pytest.approx(best.gap, abs=1e-9)


def test_no_time_is_said() -> None:
    with pytest.raises(SolverError, match="time"):
        solve(two_ways(1, 4, 3, 4), ShortestPaths(time_limit=0.0))


def test_rows_that_contradict_each_other_only_together_are_named() -> None:
    x = np.full((3, 4), 0.5)
    x[0] = 1.0
    rows = LinearRows(total(4), np.array([[4], [3], [3]]), np.array([[4], [3], [3]]))
    problem = TableRounding(x, np.full(4, 2), rows)
    with pytest.raises(ProblemError, match=r"slack 1 meets row 0 of the constraints of child [12]"):
        solve(problem)


def test_slack_opens_whole_cells() -> None:
    x, parent = np.array([[1.0, 2.0], [3.0, 0.0]]), np.array([4, 2])
    rows = LinearRows(total(2), np.array([[4], [2]]), np.array([[4], [2]]))
    with pytest.raises(ProblemError, match="raise slack"):
        TableRounding(x, parent, rows)
    solution = solve(TableRounding(x, parent, rows, slack=2))
    assert solution.objective == 2.0
    assert solution.value.sum(axis=1).tolist() == [4, 2]


def test_large_counts_keep_their_digits() -> None:
    x = np.array([[1e12 + 0.25, 0.5], [2e12 + 0.75, 0.5]])
    rows = LinearRows(total(2), np.array([[10**12 + 1], [2 * 10**12 + 1]]), np.array([[10**12 + 1], [2 * 10**12 + 1]]))
    solution = solve(TableRounding(x, np.array([3 * 10**12 + 1, 1]), rows))
    assert solution.value.tolist() == [[10**12, 1], [2 * 10**12 + 1, 0]]
    assert solution.gap == 0.0


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
