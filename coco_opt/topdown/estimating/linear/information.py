"""Best linear unbiased estimates from all answers of all regions and all constraints, with covariances of any two.

Two passes over the tree in the coordinates of ``directions``: up, every region's table given its subtree; down, given
everything. Whatever shares the levels and queries have, whatever is exact, and however many children a region has, the
estimates are those of generalised least squares over all cells of all regions, constraints being met before anything is
estimated. Every region's own answers and those below it determine all coordinates.

Given everything, a child's table follows its parent's, x_c = m_c + G_c (x_v - sum m) with G_c = S_c K_v: errors are
those of the children given their sum, and the parent's own. So the error of any linear combination of answers is
carried up the tree, region by region, which gives variances and covariances.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from coco_opt.array_types import Flags, Floats, Ints
from coco_opt.errors import ProblemError
from coco_opt.histograms import Hierarchy
from coco_opt.operators import Operator
from coco_opt.topdown.estimating.linear.directions import Directions
from coco_opt.topdown.estimating.linear.linear_estimates import ExactRows, LinearEstimates, groups, kinds_of
from coco_opt.topdown.estimating.linear.shapes import Shape, Shapes, span

if TYPE_CHECKING:
    from coco_opt.topdown.noisy_measurements import TableMeasurements

Loads = dict[int, Floats]
"""What a linear combination weighs in the tables of some regions: (coordinates, combinations) by region."""

MOST_ENTRIES = 2**25
"""Entries of one kind of matrix over all shapes of subtrees: 256 MB."""

_BLOCK = 1 << 21  # answers that are converted to floating point at a time
_EXACT = 1e-13  # a variance, over the largest of a coordinate, that is none


@dataclass(frozen=True, eq=False)
class FullInformation(LinearEstimates):
    """Estimates of tables from a whole measurement: build it with ``full_information``.

    ``shape_of`` int64[regions] are places in ``shapes.shapes``; ``matrices`` are the queries' in the coordinates, and
    ``weights`` float64[kinds, queries] their precisions by the regions' kind ``kind_of`` int64[regions].
    """

    measured: TableMeasurements
    directions: Directions
    shapes: Shapes
    shape_of: Ints
    matrices: tuple[Floats, ...]
    weights: Floats
    kind_of: Ints
    exact_rows: tuple[ExactRows, ...]
    _sums: dict[int, Floats] = field(default_factory=dict)
    _error_cache: dict[tuple[Operator, int], Floats] = field(default_factory=dict)

    def tables(self, level: int, regions: slice = slice(None)) -> Floats:
        """Return estimated tables, where undetermined their part in the span of queries and constraints."""
        return self.directions.to_cells(self.means[level][regions])

    def standard_errors(self, operator: Operator, level: int, regions: slice = slice(None)) -> Floats:
        """Return exact standard errors, once for regions alike up to the root.

        O(different places in the tree x coordinates^2 x answers).
        """
        places, first = self._places[level]
        if (operator, level) not in self._error_cache:
            rows, resolved = self.directions.matrix(operator), self.directions.resolves(operator)
            start = int(self.hierarchy.level_start[level])
            variances = np.empty((first.size, operator.answers))
            for place, at in enumerate(first.tolist()):
                variances[place] = self._variances(start + at, rows)
            self._error_cache[operator, level] = np.where(resolved, np.sqrt(variances), np.inf)
        return self._error_cache[operator, level][places[regions]]

    def known(self, operator: Operator, level: int, regions: slice = slice(None)) -> Flags:
        """Return which answers are determined, bool[regions, answers]: in all regions the same."""
        shape = len(self.hierarchy.level_range(level)[regions]), operator.answers
        return np.broadcast_to(self.directions.resolves(operator), shape)

    def covariance(self, first: tuple[int, Operator], second: tuple[int, Operator]) -> Floats:
        """Return the covariance (answers of the first, answers of the second) of two (region, query) pairs' estimates.

        Raises ProblemError where one of them is not determined.
        """
        (region, query), (other, other_query) = first, second
        left, right = self._rows(query).T, self._rows(other_query).T
        loads = {region: np.hstack([left, np.zeros_like(right)])}
        loads[other] = loads.get(other, 0.0) + np.hstack([np.zeros_like(left), right])
        return self._carried(loads)[: left.shape[1], left.shape[1] :]

    def union(self, operator: Operator, regions: Sequence[int]) -> tuple[Floats, Floats]:
        """Return the answers (answers,) of a query summed over regions of any levels, and their covariance matrix.

        Raises ProblemError for a region given twice or inside another, and where the sums are not determined.
        """
        listed = set(regions)
        if len(listed) < len(regions) or any(above in listed for v in listed for above in self.hierarchy.ancestors(v)):
            raise ProblemError("regions of a union must be different, and none inside another")
        rows, means = self._rows(operator), []
        for region in sorted(listed):
            level, place = self.hierarchy.within_level(range(region, region + 1))
            means.append(self.means[level][place.start])
        return rows @ np.sum(means, axis=0), self._carried(dict.fromkeys(sorted(listed), rows.T))

    def interval(self, operator: Operator, regions: Sequence[int], confidence: float = 0.95) -> tuple[Floats, Floats]:
        """Return lower and upper ends (answers,) for a query summed over regions: a normal approximation.

        Variances are exact; estimates add up many noisy answers, which brings them near to a normal distribution. One
        answer with geometric noise alone has heavier tails: 94 % for 95 %. Raises what ``union`` raises.
        """
        if not 0.0 < confidence < 1.0:
            raise ProblemError("confidence must lie between 0 and 1")
        estimate, covariance = self.union(operator, regions)
        half = NormalDist().inv_cdf(0.5 + 0.5 * confidence) * np.sqrt(np.maximum(np.diag(covariance), 0.0))
        return estimate - half, estimate + half

    @cached_property
    def filtered(self) -> tuple[Floats, ...]:
        """Return [levels][regions of the level, coordinates], what each subtree gives by itself: the pass up."""
        levels: list[Floats] = []
        rights = [self._right(level) for level in range(self.hierarchy.levels)]
        for level in range(1, self.hierarchy.levels):
            only, parents = only_children(self.hierarchy, level)
            rights[level][only] += rights[level - 1][parents]
            rights[level - 1][parents] = 0.0
        for level in reversed(range(self.hierarchy.levels)):
            right, regions, rows = rights.pop(), self.hierarchy.level_range(level), self.exact_rows[level]
            total = self.hierarchy.child_sums(levels[-1], level) if levels else np.zeros_like(right)
            below = np.empty_like(right)
            for number, at in groups(self.shape_of[regions.start : regions.stop]):
                shape = self.shapes.shapes[number]
                information = self.shapes.information[shape.kind]
                below[at] = _filtered(shape, information, right[at], total[at], rows.values[at], rows.exact[at])
            levels.append(below)
        return tuple(reversed(levels))

    def _right(self, level: int) -> Floats:
        """Return sum_q w_q Q_q' y_q [regions, coordinates] of a level, read some regions at a time."""
        level_regions = self.hierarchy.level_range(level)
        regions = len(level_regions)
        right = np.zeros((regions, self.directions.count))
        kinds = self.kind_of[level_regions.start : level_regions.stop]
        for query, (matrix, answers) in enumerate(zip(self.matrices, self.measured.answers[level], strict=True)):
            if answers is None:
                continue
            step, weights = max(1, _BLOCK // max(1, len(matrix))), self.weights[kinds, query][:, None]
            for start in range(0, regions, step):
                block = slice(start, start + step)
                right[block] += weights[block] * (answers[block].astype(np.float64) @ matrix)
        return right

    @cached_property
    def means(self) -> tuple[Floats, ...]:
        """Return the estimated coordinates [levels][regions of the level, coordinates], by the pass down."""
        levels = [self.filtered[0]]
        for level in range(1, self.hierarchy.levels):
            below, above = self.hierarchy.level_range(level), self.hierarchy.level_range(level - 1)
            excess = levels[-1] - self.hierarchy.child_sums(self.filtered[level], level - 1)
            forward = np.empty_like(excess)
            for number, at in groups(self.shape_of[above.start : above.stop]):
                forward[at] = excess[at] @ self.shapes.shapes[number].gain
            parent = self.hierarchy.parent[below.start : below.stop] - above.start
            means = self.filtered[level].copy()
            for number, at in groups(self.shape_of[below.start : below.stop]):
                means[at] += forward[parent[at]] @ self.shapes.shapes[number].covariance
            levels.append(means)
        return tuple(levels)

    @cached_property
    def _largest(self) -> float:
        return max(float(np.diag(shape.covariance).max(initial=0.0)) for shape in self.shapes.shapes)

    def _rows(self, operator: Operator) -> Floats:
        """Return a query in the coordinates; raise ProblemError where some answer is not determined."""
        if not self.directions.resolves(operator).all():
            raise ProblemError("what was measured does not determine these answers of these regions")
        return self.directions.matrix(operator)

    def _sum(self, number: int) -> Floats:
        """Return a shape's P, the covariance of its children's sum."""
        if number not in self._sums:
            self._sums[number] = self.shapes.sum_of(self.shapes.shapes[number].children)
        return self._sums[number]

    def _variances(self, region: int, rows: Floats) -> Floats:
        """Return the variances (k,) of combinations ``rows`` (k, coordinates) of one region's table."""
        load, variances = rows.T, np.zeros(len(rows))
        for parent in self.hierarchy.ancestors(region):
            shape, number = self.shapes.shapes[self.shape_of[region]], int(self.shape_of[parent])
            above = self.shapes.shapes[number].gain @ (shape.covariance @ load)
            # Of the child's error given its siblings' sum with it, and then of the parent's own.
            variances += (above * (self._sum(number) @ above)).sum(axis=0)
            variances += ((load - 2.0 * above) * (shape.covariance @ load)).sum(axis=0)
            load, region = above, parent
        top = self.shapes.shapes[self.shape_of[region]]
        variances += (load * (top.covariance @ load)).sum(axis=0)
        # What constraints make exact comes out as the rounding of sums of larger variances.
        variances[variances <= _EXACT * self._largest * (rows**2).sum(axis=1)] = 0.0
        return variances

    def _carried(self, loads: Loads) -> Floats:
        """Return the covariance matrix (combinations, combinations) of linear combinations of tables.

        A child's error given its siblings' sum with it is independent of the parent's, onto which G' of its load goes.
        """
        loads, covariance = dict(loads), np.zeros((next(iter(loads.values())).shape[1],) * 2)
        for level in range(self.hierarchy.levels - 1, 0, -1):
            level_regions, by_parent = self.hierarchy.level_range(level), dict[int, list[int]]()
            for region in sorted(set(loads).intersection(level_regions)):
                by_parent.setdefault(int(self.hierarchy.parent[region]), []).append(region)
            for parent, children in by_parent.items():
                number = int(self.shape_of[parent])
                spreads = [(self.shapes.shapes[self.shape_of[child]].covariance, loads[child]) for child in children]
                above = self.shapes.shapes[number].gain @ np.sum([spread @ load for spread, load in spreads], axis=0)
                covariance += above.T @ self._sum(number) @ above
                for spread, load in spreads:
                    crossed = load.T @ spread @ above
                    covariance += load.T @ spread @ load - crossed - crossed.T
                loads[parent] = loads.get(parent, 0.0) + above
        return np.asarray(covariance + loads[0].T @ self.shapes.shapes[self.shape_of[0]].covariance @ loads[0])

    @cached_property
    def _places(self) -> tuple[tuple[Ints, Ints], ...]:
        """Return for each level the regions' places in the tree up to shape, and a region of each place."""
        levels, above = [], np.zeros(1, np.int64)
        for level in range(self.hierarchy.levels):
            regions = self.hierarchy.level_range(level)
            parent = np.zeros(1, np.int64)
            if level:
                parent = self.hierarchy.parent[regions.start : regions.stop] - self.hierarchy.level_start[level - 1]
            keys = above[parent] * len(self.shapes.shapes) + self.shape_of[regions.start : regions.stop]
            _, first, above = np.unique(keys, return_index=True, return_inverse=True)
            levels.append((above.astype(np.int64), first.astype(np.int64)))
        return tuple(levels)


def full_information(measured: TableMeasurements, directions: Directions) -> FullInformation:
    """Return the best linear unbiased estimates of some functionals of tables, constraints met exactly.

    O(different subtrees x K^3 + regions x K^2) for K ``directions``. Raises ProblemError for a variance that is not
    positive, UndeterminedError where the answers of some leaf do not determine all directions, and MemoryError where
    the tree has too many different subtrees, or variances, for ``MOST_ENTRIES``.
    """
    hierarchy, levels = measured.hierarchy, range(measured.hierarchy.levels)
    exact_rows = tuple(ExactRows.of(measured, level) for level in levels)
    size = directions.count
    matrices = tuple(directions.matrix(query.operator) for query in measured.queries)
    weights, kind_of = kinds_of(measured)
    joint, joint_of = _with_parents(hierarchy, weights, kind_of)
    most = MOST_ENTRIES // max(1, size) ** 2
    if len(joint) > most:
        raise MemoryError
    shapes = Shapes(
        [
            sum((w * (q.T @ q) for q, w in zip(matrices, each, strict=True) if w), np.zeros((size, size)))
            for each in joint
        ],
        [span(np.zeros((size, 0)), *(q.T for q, w in zip(matrices, each, strict=True) if w)) for each in joint],
        [directions.matrix(rows.operator) for rows in exact_rows],
        most,
    )
    shape_of = np.zeros(hierarchy.regions, np.int64)
    for level in reversed(levels):
        for at, region in enumerate(hierarchy.level_range(level)):
            children = hierarchy.children(region)
            exact = exact_rows[level].exact[at]
            below = shape_of[children.start : children.stop].tolist()
            shape_of[region] = shapes.at(level, int(joint_of[region]), exact, below)
    return FullInformation(hierarchy, measured, directions, shapes, shape_of, matrices, weights, kind_of, exact_rows)


def only_children(hierarchy: Hierarchy, level: int) -> tuple[Ints, Ints]:
    """Return the only children among a level's regions, and their parents, both counted in their level."""
    above = hierarchy.level_range(level - 1)
    parents = np.flatnonzero(np.diff(hierarchy.first_child[above.start : above.stop + 1]) == 1)
    return hierarchy.first_child[above.start + parents] - above.stop, parents


def _with_parents(hierarchy: Hierarchy, weights: Floats, kind_of: Ints) -> tuple[list[Floats], Ints]:
    """Return the precisions of the answers about each different kind of table, and each region's kind.

    An only child has its parent's table: what was measured of the parent counts as measured of the child, which perhaps
    was not measured itself, and for the parent there is the kind 0, without answers.
    """
    joint, joint_of = [np.zeros(weights.shape[1])], np.zeros(hierarchy.regions, np.int64)
    for level in range(hierarchy.levels):
        regions, above = hierarchy.level_range(level), np.zeros(len(hierarchy.level_range(level)), np.int64)
        if level:
            only, parents = only_children(hierarchy, level)
            parents = parents + hierarchy.level_range(level - 1).start
            above[only], joint_of[parents] = joint_of[parents], 0
        kinds = kind_of[regions.start : regions.stop]
        _, first, number = np.unique(kinds * len(joint) + above, return_index=True, return_inverse=True)
        joint_of[regions.start : regions.stop] = len(joint) + number.reshape(-1)
        joint += [weights[kinds[at]] + joint[above[at]] for at in first.tolist()]
    return joint, joint_of


def _filtered(shape: Shape, information: Floats, right: Floats, total: Floats, values: Floats, exact: Flags) -> Floats:
    """Return the means [regions, coordinates] of some regions of one shape from their subtrees."""
    right = right + total @ shape.gain
    if not shape.structure.exact.shape[1]:
        return np.asarray(right @ shape.covariance)
    by_value, by_sum = shape.structure.settled
    fixed = values[:, exact[0]] @ by_value.T + total @ by_sum.T
    right -= fixed @ (shape.gain + information)
    return np.asarray(fixed + right @ shape.covariance)
