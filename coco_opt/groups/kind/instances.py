"""Problems of every kind that an estimation solves, cut to any size, so all solvers are compared on the same data.

They come from the region with the most groups on the first measured level, and from its children where these were
measured too. The noisy answers to another query are derived from the measured answers.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from coco_opt.array_types import Floats, Ints
from coco_opt.choices import SolverChoices
from coco_opt.config.model import Config
from coco_opt.groups.estimating.estimators import SizeEstimate, estimate
from coco_opt.groups.estimating.group_counts import with_group_counts
from coco_opt.groups.estimating.method import SLOW, GroupsMethod
from coco_opt.groups.kind.plan import method_of
from coco_opt.groups.noisy_measurements import GroupsMeasurements, RegionMeasurement
from coco_opt.privacy import Measurement
from coco_opt.problems import (
    ControlledRounding,
    ExpectedDistance,
    GroupMatching,
    IntegerTreeL1,
    IntegerTreeL2,
    IsotonicL1,
    IsotonicL2,
    JointL1,
    JointL2,
    Marginals,
    SimplexProjection,
    Tree,
)
from coco_opt.releases.kind import AnyProblem, Instance

_FEW_PAIRS = 100
_FEW_GROUPS = 2


def instances_of(measurement: Measurement, config: Config) -> list[Instance]:
    """Return one instance of every kind of problem, from the noisy measurements of a region and its children."""
    measurements = GroupsMeasurements(with_group_counts(measurement))
    method = method_of(config, measurement.measurement_plan)
    level = measurements.measured_levels[0]
    region = max(measurements.hierarchy.level_range(level), key=lambda region: int(measurements.group_counts[region]))
    top = _cells(measurements[region])
    below = level + 1 in measurements.measured_levels
    child_measurements = [measurements[child] for child in measurements.hierarchy.children(region)] if below else []
    children = [_cells(member) for member in child_measurements]
    solvers = SolverChoices()
    instances = _region_instances(top, method, solvers)
    if children and top.groups:
        instances.append(_matching(top, children, method, level, solvers))
    return [*instances, *_programs([top, *children], method)] if children else instances


def _cells(measurement: RegionMeasurement) -> RegionMeasurement:
    """Return a measurement of single sizes, of cumulative counts where it was one of buckets or split."""
    if measurement.split is None and measurement.buckets is None:
        return measurement
    return replace(measurement, query="cumulative", stored=_cumulative(measurement), buckets=None, split=None)


def _cumulative(measurement: RegionMeasurement) -> Ints:
    """Return noisy cumulative counts int64[K] of a measurement: each size of a bucket gets the bucket's mean."""
    values, largest, begin = measurement.values, measurement.max_size, 0
    if measurement.buckets is not None:
        widths = measurement.buckets.end - measurement.buckets.begin
        return np.repeat(np.floor(values / widths + 0.5).astype(np.int64), widths)
    if measurement.query == "sizes":
        return np.cumsum(values)[:-1]
    if measurement.query == "cumulative":
        return values
    cells, ranks = np.zeros(0, np.int64), values
    if measurement.split is not None:  # the ranks of the groups that are not counted below the split
        begin = measurement.split.at
        cells, ranks = values[:begin], values[begin:]
        ranks = ranks[min(max(int(cells[-1]), 0), measurement.groups) :]
    counts = np.bincount(np.clip(ranks, begin, largest), minlength=largest + 1)[begin:-1]
    return np.append(cells, (cells[-1] if begin else 0) + np.cumsum(counts)).astype(np.int64)


def _region_instances(measurement: RegionMeasurement, method: GroupsMethod, solvers: SolverChoices) -> list[Instance]:
    cumulative = _cumulative(measurement)
    cells = np.diff(cumulative, prepend=0, append=measurement.groups)
    if measurement.query == "sizes":
        cells = measurement.values
    y = measurement.values if measurement.query == "ranks" else cumulative
    upper = measurement.max_size if measurement.query == "ranks" else measurement.groups
    return [
        Instance("isotonic_l2", y.size, lambda n: IsotonicL2(y[:n], lower=0, upper=upper)),
        Instance("isotonic_l1", y.size, lambda n: IsotonicL1(y[:n], lower=0, upper=upper, ties=method.ties)),
        Instance("simplex_projection", cells.size, lambda n: SimplexProjection(cells[:n], _total(cells[:n]))),
        Instance("controlled_rounding", cells.size, lambda n: _rounding(cells[:n], solvers)),
    ]


def _total(cells: Ints) -> int:
    """Return a total for a cut vector: a noisy sum, which reveals nothing that was not measured."""
    return max(1, int(cells.sum()))


def _rounding(cells: Ints, solvers: SolverChoices) -> AnyProblem:
    total = _total(cells)
    return ControlledRounding(solvers.solve(SimplexProjection(cells, total)), total)


def _matching(
    top: RegionMeasurement, below: Sequence[RegionMeasurement], method: GroupsMethod, level: int, solvers: SolverChoices
) -> Instance:
    parent = estimate(top, method.fit_options(level), solvers)
    children = [estimate(child, method.fit_options(level + 1), solvers) for child in below]
    runs = parent.sizes.size * sum(child.sizes.size for child in children)
    return Instance("group_matching", runs, lambda n: cut_matching(parent, children, n))


def _programs(measurements: Sequence[RegionMeasurement], method: GroupsMethod) -> list[Instance]:
    """Return the programs of "posterior", or of "joint" or "convex" in both losses, on a family; else none."""
    if method.consistency not in SLOW:
        return []
    tree = Tree(np.array([-1] + [0] * (len(measurements) - 1)))
    table = np.array([_cumulative(measurement) for measurement in measurements], np.int64)
    groups = np.array([measurement.groups for measurement in measurements], np.int64)
    absolute = np.array([measurement.distribution.absolute_weight for measurement in measurements])
    squares = np.array([measurement.distribution.square_weight for measurement in measurements])

    def cut(unknowns: int) -> Ints:
        return table[:, : max(1, min(table.shape[1], unknowns // len(measurements)))]

    if method.consistency == "posterior":
        spread = np.array([[int(measurement.distribution.spread) + 1] for measurement in measurements])
        points = np.stack([table - spread, table, table + spread], axis=2)

        return [
            Instance("expected_distance", table.size, lambda n: _distance(tree, points[:, : cut(n).shape[1]], groups))
        ]
    if method.consistency == "convex":
        return [
            Instance("integer_tree_l1", table.size, lambda n: IntegerTreeL1(tree, cut(n), absolute)),
            Instance("integer_tree_l2", table.size, lambda n: IntegerTreeL2(tree, cut(n), squares)),
        ]
    return [
        Instance("joint_l1", table.size, lambda n: JointL1(tree, cut(n), groups, absolute)),
        Instance("joint_l2", table.size, lambda n: JointL2(tree, cut(n), groups, squares)),
        Instance("expected_distance", table.size, lambda n: _rounded_joint(tree, cut(n), groups, squares)),
    ]


def _distance(tree: Tree, points: Ints, groups: Ints) -> ExpectedDistance:
    """Return the table nearest to three points per cell."""
    few = _few_groups(groups, points.shape[0] * points.shape[1])
    if few is not groups:
        points = points * few[:, None, None] // np.maximum(groups, 1)[:, None, None]
    return ExpectedDistance(tree, few, Marginals.from_points(points))


def _few_groups(groups: Ints, cells: int) -> Ints:
    """Return only few groups for each leaf of a small instance, else all.

    Exhaustive search tries all combinations of the leaves' numbers of groups.
    """
    if cells > _FEW_PAIRS:
        return groups
    few = np.minimum(groups[1:], _FEW_GROUPS)
    return np.append(few.sum(), few)


def _rounded_joint(tree: Tree, table: Ints, groups: Ints, weights: Floats) -> ExpectedDistance:
    """Return the rounding of the joint least-squares fit, whose values are hardly ever integers."""
    fitted = np.asarray(SolverChoices().solve(JointL2(tree, table, groups, weights)), np.float64)
    few = _few_groups(groups, table.size)
    shrunk = fitted * (few / np.maximum(groups, 1))[:, None]
    return ExpectedDistance.rounding(tree, np.asarray(tree.sums(shrunk), np.float64), few)


def cut_matching(parent: SizeEstimate, children: Sequence[SizeEstimate], pairs: int) -> GroupMatching:
    """Return the matching of the smallest groups only, with at most ``pairs`` pairs of runs (one pair at least).

    Exhaustive search tries orders of single groups, so in small instances each run keeps one group.
    """
    sizes = np.concatenate([child.sizes for child in children])
    runs, counts = parent.counts, np.concatenate([child.counts for child in children])
    child = np.repeat(np.arange(len(children)), [estimate.sizes.size for estimate in children])
    if pairs <= _FEW_PAIRS:
        runs, counts = np.ones_like(runs), np.ones_like(counts)
    order = np.argsort(sizes, kind="stable")

    def smallest(groups: int) -> GroupMatching:
        above, below = np.minimum(np.cumsum(runs), groups), np.zeros_like(counts)
        above, below[order] = (np.diff(each, prepend=0) for each in (above, np.minimum(counts[order].cumsum(), groups)))
        kept, offsets = below > 0, np.cumsum(np.bincount(child[below > 0], minlength=len(children)))
        return GroupMatching(parent.sizes[above > 0], above[above > 0], sizes[kept], below[kept], np.append(0, offsets))

    groups = range(1, 1 + min(int(runs.sum()), int(counts.sum())))
    return smallest(max(bisect_right(groups, pairs, key=lambda number: smallest(number).variables), 1))
