"""Data that no solver can answer: extremes, masked entries and what is no array are refused by typed errors."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

from coco_opt import Problem, solve
from coco_opt.errors import CocoOptError, ProblemError, SolverError
from coco_opt.histograms.arrays import as_int64
from coco_opt.operators import Grouping, Kronecker, identity, total
from coco_opt.problems import (
    PROBLEMS,
    ControlledRounding,
    ExpectedDistance,
    GroupMatching,
    IntegerTreeL1,
    IntegerTreeL2,
    IsotonicL1,
    IsotonicL2,
    JointL1,
    JointL2,
    LinearRows,
    Marginals,
    SimplexProjection,
    SplitTerm,
    TableRounding,
    TopdownSplit,
    Tree,
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


PARENTS, LEAVES, TABLES = [-1, 0, 0], [4, 1, 3], [[1, 4], [0, 1], [1, 3]]
REGIONS = {"tree": PARENTS, "y": TABLES, "weights": [1.0, 2.0, 1.0], "groups": LEAVES}
NODES = {"tree": PARENTS, "y": LEAVES, "lower": [0, 0, 0], "upper": [9, 9, 9]}
CASES: dict[Callable[..., Any], dict[str, Any]] = {
    SimplexProjection: {"y": [1.0, 2.0]},
    IsotonicL1: {"y": LEAVES, "weights": [1, 2, 1]},
    IsotonicL2: {"y": LEAVES, "weights": [1.0, 2.0, 1.0]},
    ControlledRounding: {"x": [0.5, 0.5]},
    GroupMatching: {
        "parent_sizes": [1, 2],
        "parent_counts": [1, 1],
        "child_sizes": [1, 2],
        "child_counts": [1, 1],
        "child_offsets": [0, 2],
    },
    **{make: {**REGIONS, "cell_weights": [1.0, 2.0]} for make in (JointL1, JointL2)},
    **{make: {**REGIONS, "groups": [9, 9, 9]} for make in (IntegerTreeL1, IntegerTreeL2)},
    TreeLeastSquares: {**NODES, "variance": [1.0, 1.0, 2.0]},
    Tree: {"parent": PARENTS},
    Tree(PARENTS).sums: {"values": [1.0, 2.0, 3.0]},
    Marginals: {"offsets": [0, 1, 2], "atoms": [1, 4], "weights": [1, 1]},
    Marginals.from_samples: {"samples": [[[1, 4]], [[2, 4]]]},
    Marginals.from_points: {"points": [[[1, 2], [4, 4]]], "weights": [1, 1]},
    ExpectedDistance: {"tree": PARENTS, "groups": LEAVES},
    SplitTerm: {"answers": [[1.0], [2.0]], "weights": [1.0, 2.0]},
    LinearRows: {"lower": [[1.0]], "upper": [[2.0]]},
    TopdownSplit: {"parent": [3.0, 4.0]},
    TableRounding: {"x": [[0.5, 0.5], [0.5, 0.5]], "parent": [1, 1]},
    Grouping: {"labels": [0, 1, 1]},
    Kronecker: {"factors": [np.eye(2), np.eye(2)]},
    as_int64: {"values": [1, 2]},
}
FIXED: dict[Callable[..., Any], dict[str, Any]] = {
    SimplexProjection: {"total": 3},
    ControlledRounding: {"total": 1},
    Marginals: {"shape": (1, 2)},
    ExpectedDistance: {"marginals": Marginals.from_samples(np.array([TABLES, TABLES]))},
    **{make: {"operator": total(2)} for make in (SplitTerm, LinearRows)},
    TopdownSplit: {"terms": [SplitTerm(total(2), [[4.0], [3.0]], 1.0)]},
    Grouping: {"answers": 2},
    as_int64: {"what": "values"},
}
NOT_ARRAYS = {
    "of",
    "terms",
    "operator",
    "marginals",
    "constraints",
    "queries",
    "total",
    "seed",
    "slack",
    "ties",
    "shape",
}
NAMES = [pytest.param(make, name, id=f"{make.__qualname__}-{name}") for make, data in CASES.items() for name in data]


def masked(values: Any) -> list[Any]:
    """Return values with one masked entry: as an array, and in a list of arrays."""
    array = np.ma.masked_array(np.array(values), np.zeros(np.shape(values), np.bool_))
    array[(-1,) * array.ndim] = np.ma.masked
    return [array, list(array)]


@pytest.mark.parametrize(("make", "name"), NAMES)
def test_masked_entries_are_refused(make: Callable[..., Any], name: str) -> None:
    data = {**FIXED.get(make, {}), **CASES[make]}
    made = make(**data)
    assert made is not None
    for values in masked(CASES[make][name]):
        with pytest.raises(CocoOptError, match="masked"):
            make(**{**data, name: values})
    unmasked = np.ma.masked_array(np.array(CASES[make][name]))
    assert make(**{**data, name: unmasked}) is not None


@pytest.mark.parametrize(
    ("make", "name"), [case for case in NAMES if case.values[0] not in (Grouping, Kronecker, as_int64)]
)
@pytest.mark.parametrize(
    "values", [[[1], [1, 2]], ["a", "b"], [None, {}], {"a": 1}], ids=["ragged", "text", "none", "map"]
)
def test_what_is_no_array_is_refused_by_a_typed_error(make: Callable[..., Any], name: str, values: Any) -> None:
    with pytest.raises(ProblemError):
        make(**{**FIXED.get(make, {}), **CASES[make], name: values})


@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
def test_every_array_of_every_problem_is_tried(problem: type[Any]) -> None:
    named = set(inspect.signature(problem).parameters) - NOT_ARRAYS
    assert named - {"lower", "upper"} <= set(CASES[problem])
