"""Estimators from a package of its own, one for each built-in kind, and the table that names them."""

from __future__ import annotations

from typing import Any

import numpy as np

from coco_opt import CountOfCounts, GroupsMethod, IsotonicL2, Measurement, SolverChoices, TopdownMethod
from coco_opt.array_types import Floats
from coco_opt.estimators import EstimatorRow
from coco_opt.groups import GroupsMeasurements
from coco_opt.topdown import TableMeasurements


def leaf_squares(measurement: Measurement, method: GroupsMethod, solvers: SolverChoices) -> list[CountOfCounts]:
    """Return the leaves' cumulative counts by isotonic least squares, and their sums."""
    answers = GroupsMeasurements(measurement)
    histograms = [CountOfCounts.empty()] * len(answers)
    for region in reversed(range(len(answers))):
        if children := answers.hierarchy.children(region):
            histograms[region] = CountOfCounts.total(histograms[child] for child in children)
        else:
            groups = answers[region].groups
            rising = solvers.solve(IsotonicL2(answers[region].values, lower=0, upper=groups))
            histograms[region] = CountOfCounts.from_dense(np.diff(np.rint([0, *rising, groups])).astype(np.int64))
    return histograms


def even_shares(measurement: Measurement, method: TopdownMethod, solvers: SolverChoices) -> list[Floats]:
    """Return the same table for all regions of a level: the root's noisy cells, shared evenly."""
    measured = TableMeasurements.of(measurement)
    tree, size = measured.hierarchy, measured.schema.size
    root = next(answers[:] for answers in measured.answers[0] if answers is not None and answers.shape[1] == size)
    regions = [len(tree.level_range(level)) for level in range(tree.levels)]
    return [np.tile(root / count, (count, 1)) for count in regions]


def moving_mean(counts: Any, estimator: str, solvers: SolverChoices) -> Floats:
    """Return the mean of each cell and its neighbours."""
    cells = counts.values[counts.domain.first_leaf :].astype(np.float64)
    padded = np.pad(cells, 1, mode="edge")
    return np.asarray((padded[:-2] + padded[1:-1] + padded[2:]) / 3.0)


PAPER = "@article{toy2026,\n  author = {Toy, A.},\n  title = {Leaves by squares},\n  year = {2026}\n}"
HERE = "toy_totals.estimators"
ESTIMATORS = (
    EstimatorRow(
        "groups",
        "leaf_squares",
        "leaves by isotonic least squares",
        "milliseconds",
        (PAPER,),
        f"{HERE}:leaf_squares",
        needs="leaves",
        queries=("cumulative",),
    ),
    EstimatorRow("tables", "even_shares", "the root, shared evenly", "seconds", (PAPER,), f"{HERE}:even_shares"),
    EstimatorRow(
        "ranges", "moving_mean", "means of neighbours", "milliseconds", (), f"{HERE}:moving_mean", keeps=("sums",)
    ),
)
