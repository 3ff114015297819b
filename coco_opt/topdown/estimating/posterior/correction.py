"""What the unbiased linear estimates say about the posterior's errors, and how its answers are corrected for them.

The linear estimate L of an answer is unbiased with a known variance, and if the posterior with mean m and variance v
holds, then (Stein 1981 for Gaussian noise; for any noise because m is a conditional mean)

    E (L - m)^2 = var L - E v.

What the squared differences have beyond that, over the answers of a query at a level, estimates what the model's
squared errors have beyond v: whatever the model, E (m - answer)^2 = E (L - m)^2 - var L + 2 E v (Stein's unbiased
estimate of the risk, because dm / dL = v / var L).

1. Above the leaves, small errors of a model add up over thousands of leaves, and a model that is sure of its sums
   ignores what was measured about them. With w = 1 - (var L - v) / mean (L - m)^2, cut off at 0 and 1, the answer
   m + w (L - m) has the least estimated risk, v + w (var L - v): the draws are shifted to that mean and scaled to that
   variance. So a level's answers are not much worse than the better of both, as with James and Stein's estimator.
2. At the leaves, where most answers are near 0 and a shift would move them away from it, the draws keep their means.
   For intervals alone, their standard deviations are multiplied by a factor: the root of the estimated risk over v, of
   a query's answers together and then of each of them, as far as it differs by more than chance.
3. Answers that moved to the nearest tables' (``moved_queries``) get intervals that also hold those of the linear
   estimates, and so do the sums of these answers above the leaves.

Differences, variances and draws are of noisy answers: choosing weights and factors is post-processing.

Draws of the leaves' tables are read for any region and query, and compared with the linear estimates, some regions at
a time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from coco_opt.array_types import Flags, Floats, Ints
from coco_opt.histograms import Hierarchy
from coco_opt.operators import Operator
from coco_opt.posterior.chains import central_ranks
from coco_opt.topdown.estimating.linear.best_linear import LinearEstimates

if TYPE_CHECKING:
    from coco_opt.kernels.posterior_table_summaries import Draws


@dataclass(frozen=True, eq=False, slots=True)
class Counting:
    """Which answers a cell counts in, by cell: ``column`` int64[cells + 1] into ``answer`` and ``coefficient``."""

    column: Ints
    answer: Ints
    coefficient: Ints
    answers: int

    @classmethod
    def of(cls, operator: Operator) -> Counting:
        """Return that of a query."""
        matrix: Any = operator.to_sparse().tocsc()
        entries = matrix.indices.astype(np.int64), np.rint(matrix.data).astype(np.int64)
        return cls(matrix.indptr.astype(np.int64), *entries, operator.answers)

    @classmethod
    def of_labels(cls, labels: Ints, answers: int) -> Counting:
        """Return that of groups of cells; -1 is in none."""
        used = labels >= 0
        column = np.concatenate([[0], np.cumsum(used)]).astype(np.int64)
        return cls(column, labels[used], np.ones(int(used.sum()), np.int64), answers)


@dataclass(frozen=True, eq=False, slots=True)
class DrawnTables:
    """Draws of the leaves of a hierarchy, read for any region."""

    hierarchy: Hierarchy
    draws: Draws
    cells: int

    def sorted_answers(self, regions: Sequence[int] | range, counting: Counting, every: int = 1) -> NDArray[np.int32]:
        """Return the answers of some regions, draws in rising order, int32[regions x answers, draws]."""
        from coco_opt.kernels import posterior_table_summaries as summaries

        draws = self.draws._replace(offset=np.ascontiguousarray(self.draws.offset[::every]))
        values = np.empty((len(regions) * counting.answers, draws.offset.shape[0]), np.int32)
        first = self.hierarchy.leaves.start
        for place, region in enumerate(regions):
            below = self.hierarchy.leaf_range(region)
            own = values[place * counting.answers : (place + 1) * counting.answers]
            begin, end = below.start - first, below.stop - first
            summaries.gather(draws, begin, end, counting.column, counting.answer, counting.coefficient, own)
        summaries.sort_rows(values)
        return values


def central(values: NDArray[np.int32], coverage: float) -> tuple[Ints, Ints]:
    """Return the ends, both included, of the central intervals int64[rows] of sorted draws [rows, draws]."""
    first, last = central_ranks(values.shape[1], coverage)
    return values[:, first].astype(np.int64), values[:, last].astype(np.int64)


_ENOUGH = 24  # answers of a query at a level that tell its own weight; fewer share one, unless they clearly differ
_LEAST = 0.02  # a weight that is worth a correction
_CLOSE, _CLEAR = 1.0, 3.0  # standard error of a ratio that is estimated at all; standard errors that are enough


@dataclass(frozen=True, eq=False, slots=True)
class Correction:
    """The draws' answers to the ``queries`` of each level, corrected with ``weights`` [levels][queries], 0 for none.

    ``factors`` [queries] are those of the leaves' standard deviations, float64[answers]; none where the leaves' answers
    stay those of the draws. ``moved`` [queries] are the leaves' answers that moved, leaf x answers + answer, rising.
    """

    drawn: DrawnTables
    linear: LinearEstimates
    queries: tuple[tuple[Operator, ...], ...]
    weights: tuple[tuple[float, ...], ...]
    factors: tuple[Floats, ...] = ()
    moved: tuple[Ints, ...] = ()

    @classmethod
    def of(
        cls,
        drawn: DrawnTables,
        linear: LinearEstimates,
        queries: Sequence[Sequence[Operator]],
        *,
        widened: DrawnTables | None = None,
        moved: Sequence[Ints] = (),
    ) -> Correction:
        """Estimate the weights above the leaves, where sums are, and factors for the leaves.

        Factors are for intervals: ``widened`` are the draws before any query ``moved``, whose errors they are of.
        """
        fixed = tuple(tuple(of_level) for of_level in queries)
        before = drawn if widened is None else widened
        rows = tuple(moved) or (np.zeros(0, np.int64),) * len(fixed[-1])
        weights = [
            _weights(np.array([_excess(before, linear, level, query) for query in of_level]))
            for level, of_level in enumerate(fixed[:-1])
        ]
        if moved:
            # The sums of answers that moved are uncertain as the linear estimates are.
            weights = [tuple(np.where([own.size > 0 for own in rows], 1.0, each).tolist()) for each in weights]
        leaves = len(fixed) - 1
        chosen = () if widened is None else fixed[-1]
        factors = tuple(_factors(_sums(before, linear, leaves, query, SAMPLED)) for query in chosen)
        return cls(drawn, linear, fixed, (*weights, (0.0,) * len(fixed[-1])), factors, rows)

    def sorted_answers(self, level: int, regions: range, query: int) -> NDArray[np.int32] | None:
        """Return the corrected draws of answers, rising, int32[regions x answers, draws]; None where nothing changes.

        ``regions`` are consecutive regions of the level.
        """
        weight, operator = self.weights[level][query], self.queries[level][query]
        if level == len(self.queries) - 1 and self.factors:
            values = self._widened(regions, operator, self.factors[query])
            return self._with_estimates(regions, query, values) if self.moved[query].size else values
        if weight == 0.0:
            return None
        values, mean, variance, estimate, error = compared(self.drawn, self.linear, level, regions, operator)
        # Draws that are all the same are what a constraint says, or a cell that is surely empty.
        free = np.isfinite(error) & (variance > 0.0)
        estimate, error = np.where(free, estimate, mean), np.where(free, error, variance)
        before, after = np.sqrt(variance), np.sqrt(variance + weight * (error - variance))
        # Wide draws are scaled down; narrow ones are spread by normal quantiles, as they may be few numbers.
        scale = np.minimum(np.divide(after, before, out=np.ones_like(before), where=before > 0.0), 1.0)
        moved = values - mean[:, None]
        moved *= scale[:, None]
        moved += (mean + weight * (estimate - mean))[:, None]
        moved += np.multiply.outer(np.maximum(after - before, 0.0), _normal(values.shape[1]))
        return _integers(moved)

    def _widened(self, regions: range, operator: Operator, factors: Floats) -> NDArray[np.int32] | None:
        """Return the draws of leaves' answers, their distances to their means multiplied by the ``factors``."""
        if (factors == 1.0).all():
            return None
        values = self.drawn.sorted_answers(regions, Counting.of(operator))
        mean = values.mean(axis=1, keepdims=True)
        moved = values - mean
        moved *= np.tile(factors, len(regions))[:, None]
        moved += mean
        return _integers(moved)

    def _with_estimates(
        self, regions: range, query: int, widened: NDArray[np.int32] | None
    ) -> NDArray[np.int32] | None:
        """Return draws of leaves' answers that, where these were moved, spread as far as the linear estimates do."""
        leaves, operator = len(self.queries) - 1, self.queries[-1][query]
        rows = _rows_of(self.moved[query], self.drawn, regions, operator)
        if not rows.size:
            return widened
        values, _, _, estimate, error = compared(self.drawn, self.linear, leaves, regions, operator)
        values, half = values if widened is None else widened, values.shape[1] // 2
        around = estimate[rows, None] + np.sqrt(error[rows])[:, None] * _normal(values.shape[1])
        around = np.maximum(np.rint(around), 0.0).astype(np.int32)
        values[rows, :half] = np.minimum(values[rows, :half], around[:, :half])
        values[rows, half:] = np.maximum(values[rows, half:], around[:, half:])
        return values


def _rows_of(moved: Ints, drawn: DrawnTables, regions: range, query: Operator) -> Ints:
    """Return which answers of consecutive leaves were moved, counted in them."""
    first = (regions.start - drawn.hierarchy.leaves.start) * query.answers
    begin, end = np.searchsorted(moved, [first, first + len(regions) * query.answers])
    return np.asarray(moved[begin:end] - first)


def _integers(moved: Floats) -> NDArray[np.int32]:
    """Return the nearest integers that are at least 0; the numbers are overwritten."""
    np.rint(moved, out=moved)
    np.maximum(moved, 0.0, out=moved)
    return moved.astype(np.int32)


def _normal(size: int) -> Floats:
    """Return so many quantiles of the normal distribution, rising."""
    from scipy.special import ndtri

    return np.asarray(ndtri((np.arange(size) + 0.5) / size))


def _sums(
    drawn: DrawnTables, linear: LinearEstimates, level: int, query: Operator, blocks: int | None = None
) -> Floats:
    """Return sums over a level's regions for each answer of a query, float64[5, answers].

    They are the number of estimated answers, and the sums of (L - m)^2, var L, v and (L - m)^4. Of many regions, no
    more than so many ``blocks`` of consecutive ones are read.
    """
    sums = np.zeros((5, query.answers))
    for some in blocks_of(drawn, query, drawn.hierarchy.level_range(level), blocks):
        own = compared(drawn, linear, level, some, query)
        free = own.estimated
        squares = np.where(free, (own.estimate - own.mean) ** 2, 0.0)
        rows = free, squares, np.where(free, own.error, 0.0), np.where(free, own.variance, 0.0), squares**2
        sums += np.reshape(rows, (5, len(some), -1)).sum(axis=1)
    return sums


def _excess(drawn: DrawnTables, linear: LinearEstimates, level: int, query: Operator) -> tuple[float, float, float]:
    """Return how many answers of a level are estimated, and two sums over them, both over the mean var L.

    They are sums of (L - m)^2 and of var L - v.
    """
    number, squared, error, variance, _ = _sums(drawn, linear, level, query).sum(axis=1).tolist()
    unit = number / error if number else 0.0
    return number, squared * unit, (error - variance) * unit


def _weights(sums: Floats) -> tuple[float, ...]:
    """Return the weights of a level's queries, from their ``_excess`` [queries, 3]."""
    shared = _weight(*sums[:, 1:].sum(axis=0).tolist())
    weights = []
    for number, squares, expected in sums.tolist():
        if number >= _ENOUGH:
            weights.append(_weight(squares, expected))
        else:
            # The squares of few answers spread widely about those expected, with this relative standard error.
            error = math.sqrt(2.0 / max(number, 1.0))
            weights.append(max(shared, _weight(squares, (1.0 + _CLEAR * error) * expected)))
    return tuple(weights)


def _weight(squares: float, expected: float) -> float:
    """Return 1 less the expected squares over those found, 0 where that is too little to be worth a correction."""
    weight = 1.0 - max(expected, 0.0) / squares if squares > 0.0 else 0.0
    return min(weight, 1.0) if weight >= _LEAST else 0.0


def _factors(sums: Floats) -> Floats:
    """Return the factors [answers] of the draws' standard deviations, from the ``_sums`` of a query."""
    together = _nearer(*_risk(sums.sum(axis=1, keepdims=True)), np.ones(1))
    ratio = np.maximum(_nearer(*_risk(sums), together), 1.0)
    return np.asarray(np.where(ratio < (1.0 + _LEAST) ** 2, 1.0, np.sqrt(ratio)))


def _risk(sums: Floats) -> tuple[Floats, Floats]:
    """Return the estimated risk over v, and a bound on this ratio's variance; 1 and infinity where v is 0."""
    _, squares, error, variance, fourths = sums
    known = variance > 0.0
    unit = np.where(known, variance, 1.0)
    return np.where(known, (squares - error) / unit + 2.0, 1.0), np.where(known, fourths / unit**2, np.inf)


def _nearer(ratio: Floats, variance: Floats, start: Floats) -> Floats:
    """Return ratios moved towards where they start, by what chance alone would differ (James and Stein 1961)."""
    squared = (ratio - start) ** 2
    # Where v is tiny, chance alone makes ratios that are many times too large.
    clear = (variance < squared) & ((variance <= _CLOSE**2) | (squared >= _CLEAR**2 * variance))
    share = np.divide(squared - variance, squared, out=np.zeros_like(squared), where=clear)
    return np.asarray(start + share * (ratio - start))


SAMPLED = 16
"""Blocks of consecutive regions, spread over a level, that tell how a query's draws differ from its estimates."""

_NUMBERS = 1 << 22  # draws of answers that are in memory at a time
_EXACT = 1e-9  # a variance of an answer that is known exactly


class Comparison(NamedTuple):
    """Answers of consecutive regions, a row each (regions x answers).

    ``values`` are the sorted draws int32[rows, draws], ``mean`` and ``variance`` theirs, ``estimate`` and ``error`` the
    linear estimate and its variance.
    """

    values: NDArray[np.int32]
    mean: Floats
    variance: Floats
    estimate: Floats
    error: Floats

    @property
    def estimated(self) -> Flags:
        """Return which answers are estimated, and not exactly."""
        return np.isfinite(self.error) & (self.error > _EXACT)


def compared(drawn: DrawnTables, linear: LinearEstimates, level: int, regions: range, query: Operator) -> Comparison:
    """Return the draws and the linear estimates of a query's answers in consecutive regions of a level."""
    values = drawn.sorted_answers(regions, Counting.of(query))
    _, some = drawn.hierarchy.within_level(regions)
    estimate, error = linear.answers(query, level, some), linear.standard_errors(query, level, some)
    return Comparison(values, values.mean(axis=1), values.var(axis=1), estimate.reshape(-1), error.reshape(-1) ** 2)


def blocks_of(drawn: DrawnTables, query: Operator, regions: range, most: int | None = None) -> Iterator[range]:
    """Yield consecutive regions whose draws fit in memory; no more than ``most`` such blocks, evenly spread."""
    step = max(1, _NUMBERS // (query.answers * int(drawn.draws.offset.shape[0])))
    every = 1 if most is None else max(1, -(-len(regions) // (step * most)))
    for begin in range(regions.start, regions.stop, step * every):
        yield range(begin, min(begin + step, regions.stop))
