"""Releases of groups, and of universal and unattributed histograms, as subjects of an audit."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

import numpy as np

from coco_opt.array_types import Floats, Ints
from coco_opt.audit.subject import Recorder, Statistics, Subject
from coco_opt.choices import SolverChoices
from coco_opt.groups import GroupsMethod, GroupsResult, Query, estimate_groups
from coco_opt.groups.kind import GROUPS
from coco_opt.groups.kind.simulated_data import neighbouring
from coco_opt.groups.measuring.measure import exact_parts, measurement_plan_of
from coco_opt.groups.measuring.private import PrivateCounts
from coco_opt.histograms import CountOfCounts, Hierarchy
from coco_opt.privacy import Cost, Exact, Measurement, MeasurementPlan, Neighbours
from coco_opt.problems import Tree, TreeLeastSquares
from coco_opt.ranges import DomainTree, SortedCounts, UniversalHistogram, measure_sorted
from coco_opt.ranges.estimating.universal import Estimator
from coco_opt.ranges.measuring.measure import exact_intervals, plan_ranges
from coco_opt.ranges.precision import Precision
from coco_opt.releases.kind import Neighbours as Pair

SortedEstimator = Literal["noisy", "l2", "l1"]

_FOREST_NODES = 1 << 19


def words_of(neighbours: Neighbours) -> str:
    """Return by what neighbours differ."""
    return "one entity added" if neighbours == "add_remove" else "one entity replaced"


def groups_pair(
    hierarchy: Hierarchy,
    leaves: Sequence[CountOfCounts],
    queries: Sequence[Query],
    costs: Sequence[Cost],
    max_size: int,
    neighbours: Neighbours = "add_remove",
) -> tuple[Pair, MeasurementPlan]:
    """Return neighbours of simulated groups, and what is asked of them, one query and cost a level."""
    table = PrivateCounts.of_leaves(hierarchy, leaves)
    measurement_plan = measurement_plan_of(
        hierarchy, table.group_counts, queries=queries, costs=costs, max_size=max_size, neighbours=neighbours
    )
    return neighbouring(table, measurement_plan), measurement_plan


def audited_groups(
    measurement_plan: MeasurementPlan, method: GroupsMethod, claimed: Cost
) -> Subject[PrivateCounts, GroupsResult]:
    """Return a release of groups."""
    solvers = SolverChoices()
    return Subject(
        measurement_plan,
        claimed,
        exact=lambda table: exact_parts(measurement_plan, table.histograms()),
        estimate=lambda measurement: estimate_groups(measurement, method, solvers),
        statistics=lambda table: GROUPS.statistics(measurement_plan, table),
    )


def audited_ranges(
    domain: DomainTree, cost: Cost, estimator: Estimator = "nonnegative", neighbours: Neighbours = "add_remove"
) -> Subject[Ints, UniversalHistogram]:
    """Return a release of a universal histogram; the table is the counts of the cells.

    Residuals of the cells and of the wider intervals, where those are measured, are looked at apart.
    """
    measurement_plan, solvers = plan_ranges(domain, cost, neighbours=neighbours), SolverChoices()

    def parts(nodes: Ints | Floats) -> Statistics:
        first = domain.first_leaf
        wider = {} if first == 0 or domain.fan_out is None else {"wider intervals": nodes[..., :first]}
        return {"cells": nodes[..., first:], **wider}

    def together(rows: Ints) -> Statistics:
        return parts(
            _fitted(
                domain, rows, Precision(domain, measurement_plan.queries[0].distribution).counts, estimator, solvers
            )
        )

    return Subject(
        measurement_plan,
        cost,
        exact=lambda cells: exact_intervals(measurement_plan, domain, cells),
        estimate=lambda measurement: UniversalHistogram.fit(measurement, estimator, solvers),
        statistics=lambda table: parts(table.nodes if isinstance(table, UniversalHistogram) else domain.counts(table)),
        release_all=None if domain.fan_out is None or estimator == "zeroed" else together,
    )


def audited_sorted(
    cells: int, cost: Cost, estimator: SortedEstimator = "l2", neighbours: Neighbours = "add_remove"
) -> Subject[Ints, Statistics]:
    """Return a release of an unattributed histogram: sorted counts with noise, or their isotonic fit."""
    solvers = SolverChoices()

    def measured(table: Ints, source: Recorder) -> Measurement:
        return measure_sorted(table, cost, source=source, neighbours=neighbours)

    def exact(table: Ints) -> list[Exact]:
        recorder = Recorder()
        (level_query,) = measured(table, recorder).measurement_plan.queries
        return [Exact(level_query, region, stream.sent) for (_, region), stream in recorder.streams.items()]

    def estimate(measurement: Measurement) -> Statistics:
        counts = SortedCounts.of(measurement)
        fitted = counts.values if estimator == "noisy" else counts.isotonic(estimator, solvers=solvers)
        return {"ranks": np.asarray(fitted, dtype=np.float64)}

    def statistics(table: Statistics | Ints) -> Statistics:
        return {"ranks": np.sort(table)} if isinstance(table, np.ndarray) else table

    measurement_plan = measured(np.zeros(cells, np.int64), Recorder()).measurement_plan
    return Subject(measurement_plan, cost, exact, estimate, statistics)


def _fitted(domain: DomainTree, rows: Ints, variances: Floats, estimator: Estimator, solvers: SolverChoices) -> Floats:
    """Return the estimates of each row's intervals, float64[rows, nodes].

    Least squares of many rows are one problem: trees side by side under a root nobody measured do not meet.
    """
    if estimator == "noisy":
        return rows.astype(np.float64)
    step = max(1, _FOREST_NODES // rows.shape[1])
    return np.concatenate(
        [
            _solved(domain, rows[start : start + step], variances, estimator, solvers)
            for start in range(0, len(rows), step)
        ]
    )


def _solved(domain: DomainTree, rows: Ints, variances: Floats, estimator: Estimator, solvers: SolverChoices) -> Floats:
    copies = len(rows)
    problem = TreeLeastSquares(
        _forest(domain, copies),
        _side_by_side(domain, rows.astype(np.float64), 0.0),
        _side_by_side(domain, np.tile(variances, (copies, 1)), np.inf),
        lower=0.0 if estimator == "nonnegative" else None,
    )
    starts, nodes = domain.level_start, solvers.solve(problem)
    levels = [nodes[1 + copies * a : 1 + copies * b].reshape(copies, -1) for a, b in pairwise(starts)]
    return np.concatenate(levels, axis=1)


def _forest(domain: DomainTree, copies: int) -> Tree:
    """Return ``copies`` of a domain's tree under one root, level by level and copy by copy within a level."""
    starts = domain.level_start
    parents = [np.array([-1]), np.zeros(copies, np.int64)]
    for above, (start, stop) in zip(starts[:-2], pairwise(starts[1:]), strict=True):
        own = domain.tree.parent[start:stop] - above
        width = int(start - above)
        parents.append((1 + copies * above + np.arange(copies)[:, None] * width + own).ravel())
    return Tree(np.concatenate(parents))


def _side_by_side(domain: DomainTree, rows: Floats, root: float) -> Floats:
    """Return one value a node of the forest from one row a copy, and the root's."""
    levels = [rows[:, start:stop].ravel() for start, stop in pairwise(domain.level_start)]
    return np.concatenate([[root], *levels])
