"""Rounding of a region's split: equal to exhaustive search and to HiGHS, certified, and refused where none exists."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from coco_opt.errors import CocoOptError, ProblemError
from coco_opt.operators import Grouping, stack
from coco_opt.problems import TableRounding
from coco_opt.problems.table_rounding import UNBOUNDED, IntegerRows, RoundingDual
from coco_opt.solution import Status
from coco_opt.solving import solve
from coco_opt.topdown.matrix_operator import MatrixOperator
from tests.solvers.oracles import best_tables


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


def totals(x: np.ndarray, groups: np.ndarray | None = None, loose: int = 0) -> IntegerRows:
    """Return each child's totals by group, rounded from x so that they add up to whole sums, perhaps loosened."""
    labels = np.zeros(x.shape[1], np.int64) if groups is None else groups
    operator = Grouping(labels, int(labels.max()) + 1)
    aims = operator.apply(x)
    integers = np.floor(aims + 1e-9).astype(np.int64)
    for row in range(aims.shape[1]):
        ups = round(float(aims[:, row].sum())) - int(integers[:, row].sum())
        order = np.argsort(-(aims[:, row] - integers[:, row]), kind="stable")
        integers[order[:ups], row] += 1
    return IntegerRows(operator, np.maximum(integers - loose, 0), integers + loose)


@pytest.mark.parametrize("slack", [1, 2])
@pytest.mark.parametrize("kind", ["free", "totals", "loose", "groups"])
@pytest.mark.parametrize("seed", range(4))
def test_no_whole_table_is_nearer(seed: int, kind: str, slack: int) -> None:
    rng = np.random.default_rng(seed)
    x, parent = split(rng, 2 if slack > 1 else 3, 3, grid=4)
    groups = np.array([0, 0, 1]) if kind == "groups" else None
    rows = None if kind == "free" else totals(x, groups, loose=int(kind == "loose"))
    problem = TableRounding(x, parent, rows, slack)
    best = best_tables(problem)
    if not np.isfinite(best):
        with pytest.raises(ProblemError):
            solve(problem)
        return
    solution = solve(problem)
    assert solution.objective == pytest.approx(best, abs=1e-9)
    assert solution.gap <= 1e-9
    assert problem.violation(solution.value) == 0


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


def test_a_root_without_parent_keeps_its_total() -> None:
    rng = np.random.default_rng(5)
    x = rng.exponential(2.0, (1, 40))
    rows = IntegerRows(Grouping(np.zeros(40, np.int64), 1), np.array([[87]]), np.array([[87]]))
    x *= 87 / x.sum()
    problem = TableRounding(x, None, rows)
    solution, reference = solve(problem), solve(problem, "highs", check=False)
    assert solution.value.sum() == 87
    assert solution.objective == pytest.approx(reference.objective, abs=1e-7)
    assert solution.gap <= 1e-9
    assert np.array_equal(solve(TableRounding(x)).value, np.rint(x))


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
    for rows in (totals(x), IntegerRows(tenths, np.zeros((4, 1), np.int64), np.full((4, 1), 99))):
        problem = TableRounding(x, parent, rows)
        best = solve(problem)
        absurd = problem.admissible(RoundingDual(np.full(6, price), np.full((4, 1), price)))
        assert problem.gap(best.value, absurd) >= 0.0
        assert problem.certified_gap(best.value, absurd) <= best.gap + 1e-12


def test_what_cannot_be_is_refused_by_name() -> None:
    x = np.array([[0.5, 0.5], [0.5, 0.5]])
    rows = IntegerRows(Grouping(np.zeros(2, np.int64), 1), np.array([[2], [2]]), np.array([[9], [9]]))
    with pytest.raises(ProblemError, match="row 0"):
        solve(TableRounding(x, np.array([1, 1]), rows))
    with pytest.raises(ProblemError, match="cell 1"):
        TableRounding(x, np.array([1, 7]))
    with pytest.raises(ProblemError, match="child 1, row 0"):
        IntegerRows(rows.operator, np.array([[0], [3]]), np.array([[2], [2]]))
    with pytest.raises(ProblemError, match="negative"):
        TableRounding(-x, np.array([1, 1]))
    overlapping = IntegerRows(
        stack([rows.operator, rows.operator]), np.array([[2, 0], [2, 0]]), np.array([[9, 9], [9, 9]])
    )
    with pytest.raises(CocoOptError):
        solve(TableRounding(x, np.array([1, 1]), overlapping))


def test_open_sides_bind_nothing() -> None:
    rng = np.random.default_rng(2)
    x, parent = split(rng, 4, 10)
    operator = Grouping(np.zeros(10, np.int64), 1)
    wide = IntegerRows(operator, np.zeros((4, 1), np.int64), np.full((4, 1), UNBOUNDED))
    free, bound = solve(TableRounding(x, parent)), solve(TableRounding(x, parent, wide))
    assert bound.objective == pytest.approx(free.objective, abs=1e-12)
    assert bound.status is Status.OPTIMAL
