"""Extreme data: a typed error refuses what no solver can answer, and nothing foreign leaves ``solve``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

from coco_opt import Problem, solve
from coco_opt.errors import CocoOptError, SolverError
from coco_opt.operators import identity, total
from coco_opt.problems import (
    PROBLEMS,
    ControlledRounding,
    IntegerTreeL1,
    IntegerTreeL2,
    IsotonicL1,
    IsotonicL2,
    JointL1,
    JointL2,
    LinearRows,
    SimplexProjection,
    SplitTerm,
    TableRounding,
    TopdownSplit,
    TreeLeastSquares,
)
from coco_opt.registry import candidates
from coco_opt.solution import Answer

TINY, HUGE = (5e-324, 1e-310, 1e-300, 1e-200, 1e-162, 1e-154), (1e100, 1e154, 1e300, 1.7e308)
VALUES = (0.0, *TINY, 1e-100, 1e-30, 1e15, 1e30, *HUGE, np.inf, -np.inf, np.nan)
TREE, PATH, ROWS, GROUPS = [-1, 0, 0, 1, 1], [-1, 0, 0], [[1, 4], [0, 1], [1, 3]], [4, 1, 3]
Make = Callable[[], Problem[Any, Any]]


def of_data(y: np.ndarray) -> Iterator[Make]:
    """Yield problems whose data are five numbers."""
    finite = np.isfinite(y).all()
    yield partial(IsotonicL1, y)
    yield partial(IsotonicL2, y, lower=0)
    yield partial(SimplexProjection, y, abs(float(y[0])))
    yield partial(SimplexProjection, y, 1)
    yield partial(ControlledRounding, y, 5 * int(np.floor(y[0])) if finite else 0)
    yield partial(TreeLeastSquares, TREE, y)
    yield partial(TreeLeastSquares, TREE, y, lower=0)
    yield partial(TreeLeastSquares, TREE, [5, 1, 2, 3, 1], lower=-y, upper=y)
    for joint in (JointL1, JointL2):
        yield partial(joint, PATH, np.stack([y, y, y]), groups=[2, 1, 1])
    yield partial(TopdownSplit, [SplitTerm(total(5), np.ones((2, 1)), 1.0)], parent=y)
    yield partial(TableRounding, np.stack([y, y]))


def of_weights(w: np.ndarray) -> Iterator[Make]:
    """Yield problems whose weights, variances or sides are five numbers."""
    yield partial(IsotonicL1, [3, 1, 4, 1, 5], w)
    yield partial(IsotonicL2, [3, 1, 4, 1, 5], w)
    for lower in (None, 0):
        yield partial(TreeLeastSquares, TREE, [5, 1, 2, 3, 1], w, lower=lower)
    for joint in (JointL1, JointL2):
        yield partial(joint, PATH, ROWS, weights=w[:3], groups=GROUPS)
        yield partial(joint, PATH, ROWS, cell_weights=w[:2], groups=GROUPS)
    for tree in (IntegerTreeL1, IntegerTreeL2):
        yield partial(tree, PATH, ROWS, w[:3])
    split = partial(SplitTerm, identity(5), np.ones((2, 5)))
    yield lambda: TopdownSplit([split(np.stack([w, w]))], parent=[1, 0, 2, 0, 3])
    sides = np.stack([w[:1], w[:1]])
    yield lambda: TopdownSplit([split(1.0)], constraints=LinearRows(total(5), sides, sides))


def of(value: float, patterns: int) -> Iterator[Make]:
    """Yield problems in which a value stands everywhere, and between ordinary numbers."""
    everywhere, between = np.full(5, value), np.array([value, 1, 0, 2, 1])
    rising = np.array([1.0, 0, 2, -1, 1])
    for numbers in (everywhere, between, value * rising if np.isfinite(2 * value) else everywhere)[:patterns]:
        yield from of_data(numbers)
        yield from of_weights(numbers)


@pytest.mark.parametrize("solvers", ["exact", pytest.param("all", marks=pytest.mark.slow)])
@pytest.mark.parametrize("value", VALUES)
def test_nothing_foreign_leaves_solve(value: float, solvers: str) -> None:
    """Warnings are errors here: an overflow within a solver would leave it as one."""
    made = 0
    for make in of(value, 3 if solvers == "all" else 2):
        try:
            problem = make()
        except CocoOptError:
            continue
        made += 1
        for row in candidates(type(problem)):
            general = row.name in ("highs", "clarabel", "osqp", "piqp")
            if row.installed and row.name != "cvxpy" and (solvers == "all" or general == (value in TINY)):
                try:
                    solve(problem, row.name)
                except CocoOptError:
                    continue
    assert made or not abs(value) <= 1e100


@pytest.mark.parametrize("value", TINY)
def test_data_whose_squares_vanish_are_answered_by_osqp(value: float) -> None:
    assert solve(IsotonicL2(value * np.array([3.0, 1.0, 2.0])), "osqp").ok


def test_the_error_of_a_package_is_the_cause_of_a_typed_error() -> None:
    class Broken:
        name, tolerance = "broken", 1e-9

        def solve(self, problem: Problem[Any, Any]) -> Answer[Any, Any]:
            raise KeyError("private text")

    for kind in PROBLEMS.values():
        problem = next(iter(kind.examples().values()))
        with pytest.raises(SolverError, match=r"broken on .* failed with KeyError") as caught:
            solve(problem, Broken())
        assert isinstance(caught.value.__cause__, KeyError)
        assert "private text" not in str(caught.value)
