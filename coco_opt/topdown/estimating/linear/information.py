"""Best linear unbiased estimates from all answers of all regions and all constraints, with covariances of any two.

Two passes over the tree on the queries' atoms: up, every region's table given its subtree; down, given everything.
Whatever shares the levels and queries have, whatever is exact, and however many children a region has, the estimates
are those of generalised least squares over all cells of all regions, constraints being met before anything is
estimated.

Given everything, a child's table follows its parent's, x_c = m_c + G_c (x_v - sum m) with G_c = S_c K_v: errors are
those of the children given their sum, and the parent's own. So the error of any linear combination of answers is
carried up the tree, region by region, which gives variances, covariances and what is not determined.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from statistics import NormalDist
from typing import TYPE_CHECKING, Protocol

import numpy as np

from coco_opt.array_types import Flags, Floats, Ints
from coco_opt.errors import ProblemError
from coco_opt.operators import Operator
from coco_opt.topdown.estimating.linear.linear_estimates import ExactRows, LinearEstimates, checked_variance, groups
from coco_opt.topdown.estimating.linear.shapes import Shape, Shapes, span
from coco_opt.topdown.rows import CellClasses

if TYPE_CHECKING:
    from coco_opt.topdown.noisy_measurements import TableMeasurements

Loads = dict[int, Floats]
"""What a linear combination weighs in the tables of some regions: (atoms, combinations) by region."""

MOST_ENTRIES = 2**25
"""Entries of one kind of matrix over all shapes of subtrees: 256 MB."""

_BLOCK = 1 << 21  # answers that are converted to floating point at a time
_EXACT = 1e-13  # a variance, over the largest of an atom, that is none
_LOST = 1e-7  # what of a combination, relative to its size, may lie in directions that nothing determines


class Coordinates(Protocol):
    """Some functionals of a table, in which queries are small matrices: ``CellClasses``, or ``Directions``."""

    @property
    def count(self) -> int:
        """Return the number of functionals."""
        ...

    def matrix(self, query: Operator) -> Floats:
        """Return the answers of a query in the coordinates, float64[answers, count]."""
        ...

    def resolves(self, query: Operator) -> Flags:
        """Return which answers (answers,) of a query the coordinates can express."""
        ...

    def to_cells(self, values: Floats) -> Floats:
        """Return tables [regions, cells] that have these coordinates [regions, count]."""
        ...


@dataclass(frozen=True, eq=False)
class FullInformation(LinearEstimates):
    """Estimates of tables from a whole measurement: build it with ``full_information``.

    ``shape_of`` int64[regions] are places in ``shapes.shapes``; ``matrices`` are the queries' in the coordinates, and
    ``weights`` float64[kinds, queries] their precisions by the regions' kind ``kind_of`` int64[regions].
    """

    measured: TableMeasurements
    atoms: Coordinates
    shapes: Shapes
    shape_of: Ints
    matrices: tuple[Floats, ...]
    weights: Floats
    kind_of: Ints
    exact_rows: tuple[ExactRows, ...]
    _links: dict[int, tuple[Floats, Floats]] = field(default_factory=dict)
    _error_cache: dict[tuple[Operator, int], Floats] = field(default_factory=dict)

    def answers(self, operator: Operator, level: int, regions: slice = slice(None)) -> Floats:
        """Return estimated answers, NaN where undetermined: from the atoms, without tables."""
        estimates = self.means[level][regions] @ self.atoms.matrix(operator).T
        return np.where(self.known(operator, level, regions), estimates, np.nan)

    def tables(self, level: int, regions: slice = slice(None)) -> Floats:
        """Return the estimated tables [regions, cells]; cells that nothing distinguishes get equal parts."""
        return self.atoms.to_cells(self.means[level][regions])

    def of_level(self, level: int) -> Callable[[Operator, slice], Floats]:
        """Return a function from a query and consecutive regions to answers; those of the last query are cached."""
        cache: dict[Operator, Floats] = {}

        def answers(operator: Operator, regions: slice) -> Floats:
            if operator not in cache:
                cache.clear()
                cache[operator] = self.answers(operator, level)
            return cache[operator][regions]

        return answers

    def standard_errors(self, operator: Operator, level: int, regions: slice = slice(None)) -> Floats:
        """Return exact standard errors, once for regions alike up to the root.

        O(different places in the tree x atoms^2 x answers).
        """
        places, first = self._places[level]
        if (operator, level) not in self._error_cache:
            rows, resolved = self.atoms.matrix(operator), self.atoms.resolves(operator)
            start = int(self.hierarchy.level_start[level])
            variances = np.empty((first.size, operator.answers))
            for place, at in enumerate(first.tolist()):
                variances[place] = self._variances(start + at, rows)
            self._error_cache[operator, level] = np.where(resolved, np.sqrt(variances), np.inf)
        return self._error_cache[operator, level][places[regions]]

    def known(self, operator: Operator, level: int, regions: slice = slice(None)) -> Flags:
        """Return which answers are determined, bool[regions, answers]."""
        if not any(shape.structure.open.shape[1] for shape in self.shapes.shapes):
            count = len(self.hierarchy.level_range(level)[regions])
            return np.broadcast_to(self.atoms.resolves(operator), (count, operator.answers))
        return np.isfinite(self.standard_errors(operator, level, regions))

    def covariance(self, first: tuple[int, Operator], second: tuple[int, Operator]) -> Floats:
        """Return the covariance (answers of the first, answers of the second) of two (region, query) pairs' estimates.

        Raises ProblemError where one of them is not determined.
        """
        left, right = ({region: self.atoms.matrix(query).T} for region, query in (first, second))
        for region, query in (first, second):
            self._refuse([region], query)
        return self._carried(left, right)[0]

    def union(self, operator: Operator, regions: Sequence[int]) -> tuple[Floats, Floats]:
        """Return the answers (answers,) of a query summed over regions of any levels, and their covariance matrix.

        Raises ProblemError for a region given twice or inside another, and where the sums are not determined.
        """
        listed = set(regions)
        if len(listed) < len(regions) or any(above in listed for v in listed for above in self.hierarchy.ancestors(v)):
            raise ProblemError("regions of a union must be different, and none inside another")
        rows = self.atoms.matrix(operator)
        loads = dict.fromkeys(sorted(listed), rows.T)
        covariance, lost = self._carried(loads, loads)
        if not self.atoms.resolves(operator).all() or lost.any():
            raise ProblemError("what was measured does not determine these answers of these regions")
        return rows @ np.sum([self._mean(region) for region in sorted(listed)], axis=0), covariance

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
        """Return the atoms [levels][regions of the level, atoms] that each subtree gives by itself: the pass up."""
        levels: list[Floats] = []
        for level in reversed(range(self.hierarchy.levels)):
            right, regions, rows = self._right(level), self.hierarchy.level_range(level), self.exact_rows[level]
            total = self.hierarchy.child_sums(levels[-1], level) if levels else np.zeros_like(right)
            below = np.empty_like(right)
            for number, at in groups(self.shape_of[regions.start : regions.stop]):
                shape = self.shapes.shapes[number]
                information = self.shapes.information[shape.kind]
                below[at] = _filtered(shape, information, right[at], total[at], rows.values[at], rows.exact[at])
            levels.append(below)
        return tuple(reversed(levels))

    def _right(self, level: int) -> Floats:
        """Return sum_q w_q Q_q' y_q [regions, atoms] of a level, read some regions at a time."""
        level_regions = self.hierarchy.level_range(level)
        regions = len(level_regions)
        right = np.zeros((regions, self.atoms.count))
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
        """Return the estimated atoms [levels][regions of the level, atoms], by the pass down."""
        levels = [self.filtered[0]]
        for level in range(1, self.hierarchy.levels):
            below, above = self.hierarchy.level_range(level), self.hierarchy.level_range(level - 1)
            excess = levels[-1] - self.hierarchy.child_sums(self.filtered[level], level - 1)
            forward, spread = np.empty_like(excess), np.zeros_like(excess)
            for number, at in groups(self.shape_of[above.start : above.stop]):
                forward[at] = excess[at] @ self.shapes.shapes[number].gain
                if self._opens(number):
                    spread[at] = excess[at] @ self._link(number)[1].T
            parent = self.hierarchy.parent[below.start : below.stop] - above.start
            means = self.filtered[level].copy()
            for number, at in groups(self.shape_of[below.start : below.stop]):
                shape = self.shapes.shapes[number]
                means[at] += forward[parent[at]] @ shape.covariance
                if shape.structure.open.shape[1]:
                    means[at] += (spread[parent[at]] @ shape.structure.open) @ shape.structure.open.T
            levels.append(means)
        return tuple(levels)

    @cached_property
    def _largest(self) -> float:
        return max(float(np.diag(shape.covariance).max(initial=0.0)) for shape in self.shapes.shapes)

    def _mean(self, region: int) -> Floats:
        level = int(self.hierarchy.level[region])
        return np.asarray(self.means[level][region - int(self.hierarchy.level_start[level])])

    def _opens(self, number: int) -> bool:
        """Return whether some child of a shape leaves directions open."""
        children = self.shapes.shapes[number].children
        return any(self.shapes.shapes[child].structure.open.shape[1] for child, _ in children)

    def _link(self, number: int) -> tuple[Floats, Floats]:
        """Return a shape's P and the map (atoms, atoms) of an unexpected sum to the children's open directions.

        With U a basis of the open directions of the children's sum, D the sum of their projections on them, and
        T = (1 - K P) U, the limit of ever less known open directions is U (U' D U)^-1 T'.
        """
        if number not in self._links:
            shape = self.shapes.shapes[number]
            total, spread = self.shapes.sum_of(shape.children), np.zeros((self.atoms.count,) * 2)
            if self._opens(number):
                opens = [(self.shapes.shapes[child].structure.open, count) for child, count in shape.children]
                basis = span(*(directions for directions, _ in opens))
                weight = sum(count * (basis.T @ directions) @ (directions.T @ basis) for directions, count in opens)
                sent = basis - shape.gain @ (total @ basis)
                spread = basis @ np.linalg.solve(weight, sent.T)
            self._links[number] = total, spread
        return self._links[number]

    def _variances(self, region: int, rows: Floats) -> Floats:
        """Return the variances (k,) of combinations ``rows`` (k, atoms) of one region's table."""
        load, lost = rows.T, np.zeros(len(rows), np.bool_)
        variances = np.zeros(len(rows))
        size = _LOST * np.maximum(1.0, np.abs(rows).max(axis=1, initial=0.0))
        for parent in self.hierarchy.ancestors(region):
            shape, number = self.shapes.shapes[self.shape_of[region]], int(self.shape_of[parent])
            load, own, undetermined = self._through(number, [(shape, load, 1)], size)
            variances += own
            lost |= undetermined
            region = parent
        top = self.shapes.shapes[self.shape_of[region]]
        lost |= _beyond(top.structure.open, load, size)
        variances += (load * (top.covariance @ load)).sum(axis=0)
        # What constraints make exact comes out as the rounding of sums of larger variances.
        variances[variances <= _EXACT * self._largest * (rows**2).sum(axis=1)] = 0.0
        return np.where(lost, np.inf, variances)

    def _through(
        self, number: int, loads: Sequence[tuple[Shape, Floats, int]], size: Floats
    ) -> tuple[Floats, Floats, Flags]:
        """Return the load on a parent, the variance of its children's errors given their sum, and what is lost."""
        load = self._onto(number, [(shape, child_load) for shape, child_load, _ in loads])
        total = self._link(number)[0]
        variance = (load * (total @ load)).sum(axis=0)
        for shape, child_load, _ in loads:
            variance += ((child_load - 2.0 * load) * (shape.covariance @ child_load)).sum(axis=0)
        return load, variance, self._lost(number, load, loads, size)

    def _onto(self, number: int, loads: Sequence[tuple[Shape, Floats]]) -> Floats:
        """Return the sum of G' load over some children of a shape."""
        parent = self.shapes.shapes[number]
        out = np.zeros((self.atoms.count, loads[0][1].shape[1]))
        for shape, load in loads:
            out += parent.gain @ (shape.covariance @ load)
            opened = shape.structure.open
            if opened.shape[1]:
                out += self._link(number)[1].T @ (opened @ (opened.T @ load))
        return out

    def _lost(self, number: int, load: Floats, loads: Sequence[tuple[Shape, Floats, int]], size: Floats) -> Flags:
        """Return which combinations weigh directions in which a child is not determined given the children's sum."""
        if not self._opens(number):
            return np.zeros(load.shape[1], np.bool_)
        lost = np.zeros(load.shape[1], np.bool_)
        used: dict[int, int] = {}
        for shape, child_load, times in loads:
            lost |= _beyond(shape.structure.open, child_load - load, size)
            used[id(shape)] = used.get(id(shape), 0) + times
        for child, count in self.shapes.shapes[number].children:
            shape = self.shapes.shapes[child]
            if count > used.get(id(shape), 0):
                lost |= _beyond(shape.structure.open, load, size)
        return lost

    def _carried(self, left: Loads, right: Loads) -> tuple[Floats, Flags]:
        """Return the covariance of two linear combinations of tables, and which of the left are not determined."""
        left, right = dict(left), dict(right)
        left_width, right_width = (next(iter(loads.values())).shape[1] for loads in (left, right))
        size = _LOST * np.maximum(1.0, np.max([np.abs(load).max(axis=0) for load in left.values()], axis=0))
        covariance, lost = np.zeros((left_width, right_width)), np.zeros(left_width, np.bool_)
        for level in range(self.hierarchy.levels - 1, 0, -1):
            level_regions = self.hierarchy.level_range(level)
            lefts, rights = (self._by_parent(loads, level_regions) for loads in (left, right))
            for parent in sorted({*lefts, *rights}):
                number = int(self.shape_of[parent])
                ups = []
                for loads, regions, width in ((left, lefts, left_width), (right, rights, right_width)):
                    child_loads = [(self.shapes.shapes[self.shape_of[v]], loads[v]) for v in regions.get(parent, ())]
                    ups.append(self._onto(number, child_loads) if child_loads else np.zeros((self.atoms.count, width)))
                covariance += self._between(number, ups, (left, lefts.get(parent, [])), (right, rights.get(parent, [])))
                left_loads = [(self.shapes.shapes[self.shape_of[v]], left[v], 1) for v in lefts.get(parent, ())]
                lost |= self._lost(number, ups[0], left_loads, size)
                for loads, up in ((left, ups[0]), (right, ups[1])):
                    loads[parent] = loads[parent] + up if parent in loads else up
        top = self.shapes.shapes[self.shape_of[0]]
        nothing = np.zeros((self.atoms.count, left_width)), np.zeros((self.atoms.count, right_width))
        at_root = left.get(0, nothing[0]), right.get(0, nothing[1])
        lost |= _beyond(top.structure.open, at_root[0], size)
        return covariance + at_root[0].T @ top.covariance @ at_root[1], lost

    def _between(
        self, number: int, ups: Sequence[Floats], left: tuple[Loads, list[int]], right: tuple[Loads, list[int]]
    ) -> Floats:
        """Return sum_c (left_c - up)' S_c (right_c - up) over all children c of a shape, loads of 0 where not given."""
        out = ups[0].T @ self._link(number)[0] @ ups[1]
        for region in left[1]:
            covariance = self.shapes.shapes[self.shape_of[region]].covariance
            out -= left[0][region].T @ covariance @ ups[1]
            if region in right[0]:
                out += left[0][region].T @ covariance @ right[0][region]
        for region in right[1]:
            out -= ups[0].T @ self.shapes.shapes[self.shape_of[region]].covariance @ right[0][region]
        return np.asarray(out)

    def _by_parent(self, loads: Loads, regions: range) -> dict[int, list[int]]:
        """Return the loaded regions of a level by parent."""
        by_parent: dict[int, list[int]] = {}
        for region in sorted(loads):
            if region in regions:
                by_parent.setdefault(int(self.hierarchy.parent[region]), []).append(region)
        return by_parent

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

    def _refuse(self, regions: Sequence[int], operator: Operator) -> None:
        for region in regions:
            if not np.isfinite(self._variances(region, self.atoms.matrix(operator))).all():
                raise ProblemError(f"what was measured does not determine these answers of {region}")
        if not self.atoms.resolves(operator).all():
            raise ProblemError("what was measured does not distinguish the cells of these answers")


def full_information(measured: TableMeasurements, coordinates: Coordinates | None = None) -> FullInformation:
    """Return the best linear unbiased estimates of a measurement's tables, its constraints met exactly.

    ``coordinates`` are the functionals of a table that are estimated, by default the atoms of all queries and
    constraints. O(different subtrees x atoms^3 + regions x atoms^2). Raises ProblemError for a variance that is not
    positive, and MemoryError where the tree has too many different subtrees, or variances, for ``MOST_ENTRIES``.
    """
    hierarchy, levels = measured.hierarchy, range(measured.hierarchy.levels)
    exact_rows = tuple(ExactRows.of(measured, level) for level in levels)
    atoms = _atoms(measured, exact_rows) if coordinates is None else coordinates
    matrices = tuple(atoms.matrix(query.operator) for query in measured.queries)
    weights, kind_of = kinds_of(measured)
    most = MOST_ENTRIES // max(1, atoms.count) ** 2
    if len(weights) > most:
        raise MemoryError
    shapes = Shapes(
        [sum_of_squares(matrices, each, atoms.count) for each in weights],
        [
            span(np.zeros((atoms.count, 0)), *(q.T for q, w in zip(matrices, each, strict=True) if w))
            for each in weights
        ],
        [atoms.matrix(rows.operator) for rows in exact_rows],
        most,
    )
    shape_of = np.zeros(hierarchy.regions, np.int64)
    for level in reversed(levels):
        for at, region in enumerate(hierarchy.level_range(level)):
            children = hierarchy.children(region)
            exact = exact_rows[level].exact[at]
            below = shape_of[children.start : children.stop].tolist()
            shape_of[region] = shapes.at(level, int(kind_of[region]), exact, below)
    return FullInformation(hierarchy, measured, atoms, shapes, shape_of, matrices, weights, kind_of, exact_rows)


def kinds_of(measured: TableMeasurements) -> tuple[Floats, Ints]:
    """Return the precisions [kinds, queries] of the different regions of every level, and each region's kind."""
    weights: list[Floats] = []
    kind_of = np.zeros(measured.hierarchy.regions, np.int64)
    for level in range(measured.hierarchy.levels):
        regions, queries = measured.hierarchy.level_range(level), range(len(measured.queries))
        kinds, of = (
            1.0 / np.array([[checked_variance(measured, level, query) for query in queries]]),
            np.zeros(len(regions), int),
        )
        if any((level, query) in measured.by_region for query in queries):
            each = np.stack([1.0 / measured.region_variances(level, query) for query in queries], axis=1)
            kinds, of = np.unique(each, axis=0, return_inverse=True)
        kind_of[regions.start : regions.stop] = sum(len(earlier) for earlier in weights) + of.reshape(-1)
        weights.append(kinds)
    return np.concatenate(weights), kind_of


def joint_cells(measured: TableMeasurements) -> int:
    """Return how many cells queries and constraints distinguish: the size of ``full_information``'s matrices."""
    return _atoms(measured, [ExactRows.of(measured, level) for level in range(measured.hierarchy.levels)]).count


def sum_of_squares(matrices: Sequence[Floats], weights: Floats, atoms: int) -> Floats:
    """Return sum_q w_q Q_q' Q_q."""
    out = np.zeros((atoms, atoms))
    for matrix, weight in zip(matrices, weights, strict=True):
        if weight:
            out += weight * (matrix.T @ matrix)
    return out


def _filtered(shape: Shape, information: Floats, right: Floats, total: Floats, values: Floats, exact: Flags) -> Floats:
    """Return the means [regions, atoms] of some regions of one shape from their subtrees."""
    right = right + total @ shape.gain
    if not shape.has_constraints:
        return np.asarray(right @ shape.covariance)
    by_value, by_sum = shape.structure.settled
    fixed = values[:, exact[0]] @ by_value.T + total @ by_sum.T
    right -= fixed @ (shape.gain + information)
    return np.asarray(fixed + right @ shape.covariance)


def _atoms(measured: TableMeasurements, exact_rows: Sequence[ExactRows]) -> CellClasses:
    operators = [query.operator for query in measured.queries]
    exact = [rows.operator for rows in exact_rows if rows.operator.answers]
    return CellClasses.of([*operators, *exact], operators[0].cells)


def _beyond(opened: Floats, load: Floats, size: Floats) -> Flags:
    """Return which columns of a load weigh open directions."""
    if not opened.shape[1]:
        return np.zeros(load.shape[1], np.bool_)
    out: Flags = np.abs(opened.T @ load).max(axis=0) > size
    return out
