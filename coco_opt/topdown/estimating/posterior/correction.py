"""How far the posterior's answers are moved towards the unbiased linear estimates, where its model misses their sums.

Small errors of a model add up over thousands of leaves, and a model that is sure of its sums ignores what was measured
about them. The linear estimate L of an answer is unbiased with a known variance, and if the posterior with mean m and
variance v holds, then (Stein 1981 for Gaussian noise; for any noise because m is a conditional mean)

    E (L - m)^2 = var L - E v.

What the squared differences have beyond that, over the answers of a query at a level, estimates the model's squared
errors. With w = 1 - (var L - v) / mean (L - m)^2, cut off at 0 and 1, the answer m + w (L - m) has the least estimated
risk, v + w (var L - v): the draws are shifted to that mean and scaled to that variance. So a level's answers are not
much worse than the better of both, as with James and Stein's estimator, whatever the model. Differences, variances and
draws are of noisy answers: choosing w is post-processing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from coco_opt.operators import Operator
from coco_opt.topdown.estimating.best_linear import LinearEstimates
from coco_opt.topdown.estimating.posterior.drawn_tables import Counting, DrawnTables

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_ENOUGH = 24  # answers of a query at a level that tell its own weight; fewer share one with the level's other queries
_LEAST = 0.02  # a weight that is worth a correction
_NUMBERS = 1 << 22  # draws of answers that are in memory at a time
_EXACT = 1e-9  # a variance of an answer that is known exactly


@dataclass(frozen=True, eq=False, slots=True)
class Correction:
    """The draws' answers to the ``queries`` of each level, corrected with ``weights`` [levels][queries], 0 for none."""

    drawn: DrawnTables
    linear: LinearEstimates
    queries: tuple[tuple[Operator, ...], ...]
    weights: tuple[tuple[float, ...], ...]

    @classmethod
    def of(cls, drawn: DrawnTables, linear: LinearEstimates, queries: Sequence[Sequence[Operator]]) -> Correction:
        """Estimate the weights above the leaves, where sums are; the leaves' answers stay those of the draws."""
        fixed = tuple(tuple(of_level) for of_level in queries)
        weights = [
            _weights(np.array([_excess(drawn, linear, level, query) for query in of_level]))
            for level, of_level in enumerate(fixed[:-1])
        ]
        return cls(drawn, linear, fixed, (*weights, (0.0,) * len(fixed[-1])))

    def sorted_answers(self, level: int, regions: range, query: int) -> NDArray[np.int32] | None:
        """Return the corrected draws of answers, rising, int32[regions x answers, draws]; None where nothing changes.

        ``regions`` are consecutive regions of the level.
        """
        weight, operator = self.weights[level][query], self.queries[level][query]
        if weight == 0.0:
            return None
        values, mean, variance, estimate, error = _known(self.drawn, self.linear, level, regions, operator)
        # Draws that are all the same are what a constraint says, or a cell that is surely empty.
        free = np.isfinite(error) & (variance > 0.0)
        estimate, error = np.where(free, estimate, mean), np.where(free, error, variance)
        before, after = np.sqrt(variance), np.sqrt(variance + weight * (error - variance))
        # Wide draws are scaled down; narrow ones are spread by normal quantiles, as they may be few numbers.
        scale = np.minimum(np.divide(after, before, out=np.ones_like(before), where=before > 0.0), 1.0)
        quantiles = ndtri((np.arange(values.shape[1]) + 0.5) / values.shape[1])
        spread = np.multiply.outer(np.maximum(after - before, 0.0), quantiles)
        centre = mean + weight * (estimate - mean)
        moved = centre[:, None] + scale[:, None] * (values - mean[:, None]) + spread
        return np.asarray(np.maximum(np.rint(moved), 0.0), dtype=np.int32)


def _known(
    drawn: DrawnTables, linear: LinearEstimates, level: int, regions: range, query: Operator
) -> tuple[NDArray[np.int32], Floats, Floats, Floats, Floats]:
    """Return the sorted draws of answers, their means and variances, and those of the linear estimates, by row."""
    values = drawn.sorted_answers(regions, Counting.of(query))
    first = drawn.hierarchy.level_range(level).start
    some = slice(regions.start - first, regions.stop - first)
    estimate, error = linear.answers(query, level, some), linear.standard_errors(query, level, some)
    return values, values.mean(axis=1), values.var(axis=1), estimate.reshape(-1), error.reshape(-1) ** 2


def _excess(drawn: DrawnTables, linear: LinearEstimates, level: int, query: Operator) -> tuple[float, float, float]:
    """Return how many answers of a level are estimated, and two sums over them, both over the mean var L.

    They are sums of (L - m)^2 and of var L - v.
    """
    step = max(1, _NUMBERS // (query.answers * int(drawn.draws.offset.shape[0])))
    regions, sums = drawn.hierarchy.level_range(level), np.zeros(4)
    for begin in range(regions.start, regions.stop, step):
        some = range(begin, min(begin + step, regions.stop))
        _, mean, variance, estimate, error = _known(drawn, linear, level, some, query)
        free = np.isfinite(error) & (error > _EXACT)
        squares, left = (estimate - mean)[free] ** 2, (error - variance)[free]
        sums += free.sum(), squares.sum(), left.sum(), error[free].sum()
    number, squared, expected, scale = sums.tolist()
    return number, squared * number / max(scale, _EXACT), expected * number / max(scale, _EXACT)


def _weights(sums: Floats) -> tuple[float, ...]:
    """Return the weights of a level's queries, from their ``_excess`` [queries, 3]."""
    weights = []
    for own in sums:
        _, squares, expected = own if own[0] >= _ENOUGH else sums.sum(axis=0)
        weight = 1.0 - max(expected, 0.0) / squares if squares > 0.0 else 0.0
        weights.append(float(min(weight, 1.0)) if weight >= _LEAST else 0.0)
    return tuple(weights)
