"""The linear stage: generalised least squares over the whole hierarchy, one tree per query, by two passes.

Every region v has noisy answers y_vq = Q_q x_v + noise of variance s2_vq, mostly one for all of a level. The up pass of
``coco_opt.kernels.tree_passes``, run on every answer of a query, gives z_vq and one variance V_vq: what the answers
at v and below it say about Q_q x_v. The down pass gives x^_vq, what all answers of that query say, of variance P_vq.

**When this is everything.** Let all measured regions have the same queries in the same proportions: 1/s2_vq = a_v w_q,
a_v = 0 for a region without budget. Then the precision of what is known about a table is a multiple of one matrix
N = sum_q w_q Q_q' Q_q in every region, sums over children keep it so, and

    min { sum of all squared standardised residuals at v and below : the tables below v add up to x_v }
        = sum_q ||Q_q x_v - z_vq||^2 / V_vq + constant,

so (z_v, V_v) is the exact full-information sufficient statistic of the subtree, also where the tables are bound by
exact answers that hold at the level of v and above. The tables x_v = N^+ sum_q w_q Q_q' x^_vq are then the best linear
unbiased estimates of generalised least squares over all cells of all regions. Where proportions differ between regions
both are still unbiased and their standard errors exact, but a query no longer learns from the others' answers in other
regions: valid, not fully efficient. Constraints do not enter. ``topdown.estimating.linear.information`` does both.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coco_opt.array_types import Flags, Floats, Ints
from coco_opt.execution import Threads, batches
from coco_opt.execution.temporary_storage import forget_pages, stored_array, stored_empty
from coco_opt.histograms import Hierarchy
from coco_opt.operators import Operator, blocks_of_rows
from coco_opt.topdown.estimating.linear.linear_estimates import LinearEstimates, NormalEquations, checked_variance

if TYPE_CHECKING:
    from coco_opt.topdown.noisy_measurements import RegionMeasurements, TableMeasurements

_AT_ONCE = 1 << 19  # answers that are read and summed together


@dataclass(frozen=True, eq=False, slots=True)
class QueryTree:
    """One query's least squares on the hierarchy: ``z`` by level, the variances by region.

    ``z`` [levels] holds [regions of level, answers] (the measurement's own, which may lie in a file, where nothing was
    measured below, None where nothing at or below the level was). ``variance`` float64[regions] is V of ``z``,
    ``children`` the sum of V over the children (infinite at leaves) and ``final`` P, the variance of the estimates of
    the down pass; each is infinite where nothing is known.
    """

    hierarchy: Hierarchy
    z: tuple[RegionMeasurements | None, ...]
    variance: Floats
    children: Floats
    final: Floats

    def at(self, regions: range) -> tuple[NDArray[Any] | None, Floats]:
        """Return z and V of consecutive regions of one level."""
        level = int(self.hierarchy.level[regions.start])
        return rows_of(self.hierarchy, self.z[level], regions), self.variance[regions.start : regions.stop]

    def estimates(self, level: int, regions: slice = slice(None)) -> Floats | None:
        """Return the estimates [regions, answers] of the down pass, None where nothing was measured at all.

        ``regions`` are consecutive ones of the level, counted in it. Children about which nothing is known get equal
        parts of what is left of their parent. O(answers of these regions, of those above them and of their siblings).
        """
        # What is known of all children is known of their sum: the root has answers if anything has.
        if self.z[0] is None:
            return None
        level_regions = self.hierarchy.level_range(level)[regions]
        return self._estimates(level, level_regions) if level_regions else np.zeros((0, self.z[0].shape[1]))

    def _estimates(self, level: int, regions: range) -> Floats:
        """Return the estimates of consecutive regions of a level."""
        hierarchy, z, first = self.hierarchy, self.z[level], self.hierarchy.level_range(level).start
        if level == 0:
            assert z is not None
            return np.asarray(z[:], np.float64)
        parent = hierarchy.parent[regions.start : regions.stop]
        above = range(int(parent[0]), int(parent[-1]) + 1)
        parent_estimates, parent = self._estimates(level - 1, above), parent - above.start
        starts = hierarchy.first_child[above.start : above.stop] - first
        stop = hierarchy.children(above[-1]).stop - first
        if z is None:
            return np.asarray((parent_estimates / np.diff(np.append(starts, stop))[:, None])[parent])
        part = self._parts(regions, above, starts)
        excess = parent_estimates - np.add.reduceat(z[starts[0] : stop], starts - starts[0], axis=0)
        return np.asarray(z[regions.start - first : regions.stop - first] + part[:, None] * excess[parent])

    def _parts(self, regions: range, above: range, starts: Ints) -> Floats:
        """Return which parts of what is left of their parents regions of a level get: in the ratio of V.

        Where children are not determined by what is at and below them, these alone get it, in equal parts. ``starts``
        are the first children of the parents ``above``, counted in the level.
        """
        hierarchy, own = self.hierarchy, self.variance[regions.start : regions.stop]
        parent = hierarchy.parent[regions.start : regions.stop] - above.start
        total = self.children[above.start : above.stop]
        if np.isfinite(total).all():
            return np.asarray(own / total[parent])
        every = range(hierarchy.children(above[0]).start, hierarchy.children(above[-1]).stop)
        takers = np.add.reduceat(np.isinf(self.variance[every.start : every.stop]).astype(float), starts - starts[0])
        equal = np.where(np.isinf(own), 1.0 / np.maximum(takers, 1.0)[parent], 0.0)
        return np.divide(own, total[parent], out=equal, where=np.isfinite(total[parent]))


@dataclass(frozen=True, eq=False)
class LinearStage(LinearEstimates):
    """The linear stage of measurements: build it with ``linear_stage``; trees in the order of the queries."""

    operators: tuple[Operator, ...]
    trees: tuple[QueryTree, ...]

    @cached_property
    def reached(self) -> tuple[Flags, ...]:
        """Return for each level which of its regions [regions of level] some query knows something of."""
        queries = range(len(self.trees))
        return tuple(
            np.asarray(np.isfinite([self.variances(query, level) for query in queries]).any(axis=0))
            for level in range(self.hierarchy.levels)
        )

    @cached_property
    def weights(self) -> tuple[Floats, ...]:
        """Return for each level the queries' weights in the tables' least squares: 1 / mean variance, largest 1.

        Where every region's variances are in one proportion this is the best choice, else an unbiased one. A query
        that leaves a region unknown of which another query knows something has weight 0.
        """
        level_weights = []
        for level, reached in enumerate(self.reached):
            spreads = np.full(len(self.trees), np.inf)
            if reached.any():
                spreads = np.array([self.variances(query, level)[reached].mean() for query in range(len(self.trees))])
            precision = np.divide(1.0, spreads, out=np.zeros(spreads.size), where=np.isfinite(spreads))
            level_weights.append(precision / max(float(precision.max(initial=0.0)), np.finfo(np.float64).tiny))
        return tuple(level_weights)

    @cached_property
    def normal(self) -> tuple[NormalEquations, ...]:
        """Return each level's N = sum_q w_q Q_q' Q_q, factored once for all levels of the same weights."""
        equations: dict[tuple[float, ...], NormalEquations] = {}
        levels = []
        for weights in self.weights:
            key = tuple(np.round(weights, 12).tolist())
            if key not in equations:
                equations[key] = NormalEquations(self.operators, weights)
            levels.append(equations[key])
        return tuple(levels)

    def variances(self, query: int, level: int) -> Floats:
        """Return P [regions of level] of one query's estimates from its own answers alone."""
        regions = self.hierarchy.level_range(level)
        return self.trees[query].final[regions.start : regions.stop]

    def tables(self, level: int, regions: slice = slice(None)) -> Floats:
        """Return estimated tables; O(regions x cells^2)."""
        weights, normal = self.weights[level], self.normal[level]
        right = np.zeros((len(self.hierarchy.level_range(level)[regions]), normal.cells))
        for weight, operator, tree in zip(weights, self.operators, self.trees, strict=True):
            if weight > 0:
                estimates = tree.estimates(level, regions)
                assert estimates is not None
                right += weight * operator.adjoint(estimates)
        return normal.solve(right)

    def known(self, operator: Operator, level: int, regions: slice = slice(None)) -> Flags:
        """Return which answers of a query are determined in some regions of a level, bool[regions, answers]."""
        return self.reached[level][regions][:, None] & self.normal[level].determines(operator)

    def determines(self, operator: Operator, level: int) -> Flags:
        """Return which answers (answers,) of a query are determined in every region of a level."""
        return self.normal[level].determines(operator) & self.reached[level].all()

    def standard_errors(self, operator: Operator, level: int, regions: slice = slice(None)) -> Floats:
        """Return the exact standard errors [regions of level, answers] in people, infinite where undetermined.

        The estimates x^_vq of one query have independent
        errors of variance P_vq on every answer, and different queries have independent noise. So the table
        x_v = N^+ sum_q w_q Q_q' x^_vq has the covariance N^+ (sum_q w_q^2 P_vq Q_q' Q_q) N^+ for any weights w. It
        depends on the budget, the strategy and the hierarchy alone, not on any answer: it can be planned with and
        published. O(answers x cells^2) once for all levels of the same weights, and O(regions x answers x queries).
        """
        determined = self.known(operator, level, regions)
        spreads = self._spreads_of(operator, level)
        variances = np.zeros((len(self.hierarchy.level_range(level)[regions]), operator.answers))
        for query, (weight, spread) in enumerate(zip(self.weights[level], spreads, strict=True)):
            if weight > 0:
                own = np.where(self.reached[level], self.variances(query, level), 0.0)[regions]
                variances += np.multiply.outer(own, weight**2 * spread)
        return np.where(determined, np.sqrt(variances), np.inf)

    def _spreads_of(self, operator: Operator, level: int) -> Floats:
        """Return sum_k (Q_q N^+ row)_k^2 [queries, answers] for a query's rows, 0 for queries that weigh nothing."""
        normal = self.normal[level]
        if (normal, operator) not in self.spreads:
            sums = np.zeros((len(self.operators), operator.answers))
            for block, rows in blocks_of_rows(operator):
                solved = np.asfortranarray(normal.solve(rows))  # as sums over groups of cells read it
                for query, (weight, own) in enumerate(zip(self.weights[level], self.operators, strict=True)):
                    if weight > 0:
                        sums[query, block] = (own.apply(solved) ** 2).sum(axis=1)
            self.spreads[normal, operator] = sums
        return self.spreads[normal, operator]

    @cached_property
    def spreads(self) -> dict[tuple[NormalEquations, Operator], Floats]:
        """Return what standard errors of a query have in common for all regions, by level's equations; filled later."""
        return {}


def linear_stage(measured: TableMeasurements, workers: int = 1) -> LinearStage:
    """Run the up pass on every answer of every query, level by level, by so many threads; O(answers).

    Raises ProblemError for a variance that is not positive: exact answers are invariants, not measurements.
    """
    trees = tuple(_tree(measured, query, Threads(workers)) for query in range(len(measured.queries)))
    return LinearStage(measured.hierarchy, tuple(query.operator for query in measured.queries), trees)


def _tree(measured: TableMeasurements, query: int, threads: Threads) -> QueryTree:
    """Return a query's tree: its variances, from public values alone, then the sums of its answers from below."""
    from coco_opt.kernels import tree_passes

    hierarchy = measured.hierarchy
    s2 = np.array([checked_variance(measured, level, query) for level in range(hierarchy.levels)])[hierarchy.level]
    for level in range(hierarchy.levels):
        if (level, query) in measured.by_region:
            regions = hierarchy.level_range(level)
            s2[regions.start : regions.stop] = measured.by_region[level, query]
    _, variance, children = tree_passes.upward(hierarchy.first_child, np.zeros(hierarchy.regions), s2)
    final = tree_passes.variances(hierarchy.first_child, variance, children)
    z = [level_answers[query] for level_answers in measured.answers]
    for level in range(hierarchy.levels - 2, -1, -1):
        regions, below = hierarchy.level_range(level), z[level + 1]
        if below is not None:
            s2_here, s2_below = (array[regions.start : regions.stop] for array in (s2, children))
            # Where a region itself was not measured, the sum of its children says everything.
            weight = np.divide(s2_here, s2_here + s2_below, out=np.ones(len(regions)), where=np.isfinite(s2_here))
            z[level] = _with_sums(hierarchy, level, z[level], below, weight, threads)
    return QueryTree(hierarchy, tuple(z), *(stored_array([array]) for array in (variance, children, final)))


def _with_sums(
    hierarchy: Hierarchy,
    level: int,
    answers: RegionMeasurements | None,
    below: RegionMeasurements,
    weight: Floats,
    threads: Threads,
) -> NDArray[Any]:
    """Return a level's answers averaged with the sums of those below, which have the ``weight`` [regions].

    Some regions are read at a time, and the result lies in a file unless it is small; how many changes no bit.
    """
    regions, size = hierarchy.level_range(level), below.shape[1]
    bounds = hierarchy.first_child[regions.start : regions.stop + 1] - regions.stop
    out = stored_empty((len(regions), size), below[:0].dtype if answers is None else np.dtype(np.float64))

    def fill(some: range) -> None:
        starts, here = bounds[some.start : some.stop + 1], slice(some.start, some.stop)
        sums = np.add.reduceat(below[slice(starts[0], starts[-1])], starts[:-1] - starts[0], axis=0)
        if answers is not None:
            noisy = answers[here]
            sums = noisy + (sums - noisy) * weight[here, None]
        out[here] = sums
        forget_pages()

    threads.map(fill, list(batches(np.diff(bounds) * size, _AT_ONCE)))
    return out


def rows_of(hierarchy: Hierarchy, answers: RegionMeasurements | None, regions: range) -> NDArray[Any] | None:
    """Return the rows of consecutive regions of one level, given those of the level; None where there are none."""
    if answers is None:
        return None
    return np.asarray(answers[hierarchy.within_level(regions)[1]])
