"""Every array of every problem: masked entries are refused, not counted as measured, and what is no array is too."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from coco_opt.errors import CocoOptError, ProblemError
from coco_opt.histograms.arrays import as_int64
from coco_opt.operators import Grouping, Kronecker, total
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

PATH, LEAVES, ROWS = [-1, 0, 0], [4, 1, 3], [[1, 4], [0, 1], [1, 3]]
REGIONS = {"tree": PATH, "y": ROWS, "weights": [1.0, 2.0, 1.0], "groups": LEAVES}
NODES = {"tree": PATH, "y": LEAVES, "lower": [0, 0, 0], "upper": [9, 9, 9]}
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
    Tree: {"parent": PATH},
    Tree(PATH).sums: {"values": [1.0, 2.0, 3.0]},
    Marginals: {"offsets": [0, 1, 2], "atoms": [1, 4], "weights": [1, 1]},
    Marginals.from_samples: {"samples": [[[1, 4]], [[2, 4]]]},
    Marginals.from_points: {"points": [[[1, 2], [4, 4]]], "weights": [1, 1]},
    ExpectedDistance: {"tree": PATH, "groups": LEAVES},
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
    ExpectedDistance: {"marginals": Marginals.from_samples(np.array([ROWS, ROWS]))},
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
