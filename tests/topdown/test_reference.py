"""The whole pipeline on two levels, three leaves and four cells, against enumeration written by hand.

Fractional tables come from every set of nonzero cells in turn, least squares on each; whole ones from every rounding.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from coco_opt.array_types import Floats
from coco_opt.choices import SolverChoices
from coco_opt.histograms import Hierarchy
from coco_opt.topdown.estimating.estimate import estimate_tables
from coco_opt.topdown.estimating.method import Estimation, TopdownMethod
from coco_opt.topdown.estimating.splitting.step import split_step
from coco_opt.topdown.noisy_measurements import TableMeasurements
from coco_opt.topdown.schema import Schema
from tests.topdown.estimation import check_tables, measured

SCHEMA = Schema({"race": ["a", "b"], "age": ["minor", "adult"]})
LEAVES, CELLS = 3, 4


def rows_of(measurements: TableMeasurements, level: int) -> list[tuple[Floats, Floats]]:
    """Return for each region of a level what was asked of it, both sides divided by the standard deviation."""
    rows = []
    for region in range(len(measurements.hierarchy.level_range(level))):
        sides, rights = [], []
        for query, measurement_plan in enumerate(measurements.queries):
            answers = measurements.answers[level][query]
            assert answers is not None
            deviation = np.sqrt(measurements.variance(level, query))
            sides.append(measurement_plan.operator.to_sparse().toarray() / deviation)
            rights.append(answers[region] / deviation)
        rows.append((np.concatenate(sides), np.concatenate(rights)))
    return rows


def least_squares(a: Floats, b: Floats, equal: Floats, right: Floats, signed: int) -> Floats:
    """Return the minimiser of ||a x - b||^2 with ``equal x = right``, the first ``signed`` variables nonnegative."""
    best, value = np.zeros(0), np.inf
    for zeros in product([False, True], repeat=signed):
        free = np.append(~np.array(zeros, bool), np.ones(a.shape[1] - signed, bool))
        reduced, fixed = a[:, free], equal[:, free]
        system = np.block([[reduced.T @ reduced, fixed.T], [fixed, np.zeros((len(fixed), len(fixed)))]])
        solution = np.linalg.lstsq(system, np.concatenate([reduced.T @ b, right]), rcond=1e-11)[0][: int(free.sum())]
        x = np.zeros(a.shape[1])
        x[free] = solution
        cost = float(((a @ x - b) ** 2).sum())
        if (x[:signed] >= -1e-9).all() and np.abs(equal @ x - right).max(initial=0.0) < 1e-7 and cost < value:
            best, value = x, cost
    return best


def root_by_hand(measurements: TableMeasurements, estimation: str, total: int | None) -> Floats:
    """Return the root's fractional table: in "full" with all leaves' tables, of any sign, fitted beside it."""
    (own, right), leaves = rows_of(measurements, 0)[0], rows_of(measurements, 1)
    below = 0 if estimation == "classic" else LEAVES
    blocks = [np.hstack([own, np.zeros((len(own), CELLS * below))])]
    rights = [right]
    for leaf in range(below):
        block = np.zeros((len(leaves[leaf][0]), CELLS * (1 + below)))
        block[:, CELLS * (1 + leaf) : CELLS * (2 + leaf)] = leaves[leaf][0]
        blocks, rights = [*blocks, block], [*rights, leaves[leaf][1]]
    equal, sums = np.zeros((0, CELLS * (1 + below))), np.zeros(0)
    if below:
        equal, sums = np.hstack([-np.eye(CELLS), *[np.eye(CELLS)] * below]), np.zeros(CELLS)
    if total is not None:
        equal = np.vstack([equal, np.append(np.ones(CELLS), np.zeros(CELLS * below))])
        sums = np.append(sums, total)
    return least_squares(np.concatenate(blocks), np.concatenate(rights), equal, sums, CELLS)[:CELLS]


def leaves_by_hand(measurements: TableMeasurements, parent: NDArray[Any], totals: NDArray[Any] | None) -> Floats:
    """Return the leaves' fractional tables [leaves, cells] that add up to the parent's."""
    leaves = rows_of(measurements, 1)
    a = np.zeros((sum(len(side) for side, _ in leaves), LEAVES * CELLS))
    start = 0
    for leaf, (side, _) in enumerate(leaves):
        a[start : start + len(side), CELLS * leaf : CELLS * (leaf + 1)] = side
        start += len(side)
    equal, right = np.tile(np.eye(CELLS), LEAVES), parent.astype(np.float64)
    if totals is not None:
        equal = np.vstack([equal, np.kron(np.eye(LEAVES), np.ones(CELLS))])
        right = np.append(right, totals)
    b = np.concatenate([right for _, right in leaves])
    return least_squares(a, b, equal, right, LEAVES * CELLS).reshape(LEAVES, CELLS)


def nearest_by_hand(x: Floats, parent: NDArray[Any] | None, totals: NDArray[Any] | None) -> float:
    """Return the least L1 distance of any rounding of x that keeps the sums."""
    x = np.where(np.abs(x - np.rint(x)) < 1e-6, np.rint(x), x)
    best = np.inf
    for ups in product(*[[0, 1] if value != np.floor(value) else [0] for value in x.ravel()]):
        integer_table = np.floor(x) + np.array(ups).reshape(x.shape)
        if parent is not None and (integer_table.sum(axis=0) != parent).any():
            continue
        if totals is None or (integer_table.sum(axis=1) == totals).all():
            best = min(best, float(np.abs(integer_table - x).sum()))
    return best


@pytest.mark.parametrize("estimation", ["full", "classic"])
@pytest.mark.parametrize("invariant", [False, True])
@pytest.mark.parametrize("seed", range(2))
def test_every_step_is_the_one_enumerated_by_hand(seed: int, invariant: bool, estimation: Estimation) -> None:
    rng = np.random.default_rng(seed)
    hierarchy = Hierarchy.from_paths([("root", f"leaf{j}") for j in range(LEAVES)])
    truth = rng.poisson(rng.gamma(0.5, 6.0, (LEAVES, CELLS))).astype(np.int64)
    totals = truth.sum(axis=1) if invariant else None
    measurement_plan = [("total", 1)] if invariant else []
    measurement = measured(seed, hierarchy, SCHEMA, truth, ["detail", "race"], 1, measurement_plan)
    answers = TableMeasurements.of(measurement)
    method = TopdownMethod(estimation, rounding="nearest")
    result = estimate_tables(measurement, method)
    check_tables(measurement, result)
    step = split_step(answers, method, SolverChoices())
    root = result.level(0)
    for level, parent, sums in ((0, None, None if totals is None else totals.sum(keepdims=True)), (1, root[0], totals)):
        regions = hierarchy.level_range(level)
        if parent is None:
            by_hand = root_by_hand(answers, estimation, None if sums is None else int(sums[0]))[None, :]
        else:
            by_hand = leaves_by_hand(answers, parent, sums)
        x = step.fractional(regions, parent)
        np.testing.assert_allclose(x, by_hand, atol=2e-3)
        best = nearest_by_hand(x, parent, sums)
        assert np.abs(result.level(level) - x).sum() == pytest.approx(best, abs=1e-4)
