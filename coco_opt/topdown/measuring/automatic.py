"""What a configuration of tables leaves out, chosen from public numbers: measured queries and allocation of the budget.

All levels measure the same queries, so the linear estimates' covariance is a product of two factors: one of the queries
(``coco_opt.topdown.measuring.predicted``) and one of the tree. Each factor is chosen by itself.

* Queries: the workload with even shares, or the strategy optimised for the mean or for the worst variance
  (``coco_opt.topdown.measuring.optimised``). The least geometric mean of the workload's standard errors wins.
* Allocation: one of ``coco_opt.privacy.planner.allocations``. The least weighted geometric mean over the levels of the
  tree's standard errors wins, where all regions of a level are assumed to have equally many children.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from coco_opt.errors import ProblemError
from coco_opt.privacy.cost import Cost, Sensitivity
from coco_opt.privacy.planner import NoisePlan, Shares, allocations
from coco_opt.topdown.measuring.optimised import Objective, optimised_strategy
from coco_opt.topdown.measuring.predicted import predicted_variance
from coco_opt.topdown.queries import Query
from coco_opt.topdown.schema import Schema
from coco_opt.topdown.strategy import Strategy

FloatArray = NDArray[np.float64]

_OBJECTIVES: tuple[Objective, ...] = ("mean", "max")
_SMALL = Fraction(1, 1000)  # a budget under which integer noise has the variance of continuous noise
_LEAST_GAIN = 1e-6  # of the logarithm of an aim: of equal candidates the first is taken, on every machine


def chosen_strategy(workload: Sequence[Query], schema: Schema, cost: Cost) -> Strategy:
    """Return the measured queries and their shares; the workload evenly where nothing else can be predicted."""
    even = Strategy.uniform(workload)
    unit = type(cost)(Fraction(1))
    try:
        candidates = [even, *(optimised_strategy(workload, schema, cost=unit, objective=each) for each in _OBJECTIVES)]
        aims = [_mean_log_variance(each, workload, schema, unit) for each in candidates]
    except ProblemError:  # too many cells to predict
        return even
    return candidates[_least(aims)]


def chosen_allocation(widths: Sequence[int], cost: Cost, weights: Sequence[float]) -> Shares:
    """Return the levels' shares of the budget, from the numbers of regions by level and the weights of the aim.

    Only the unit of the cost matters. A level shares its budget among queries, so that noise is wide even where the
    budget is not, and its variance is a power of the share; integer noise of a large budget would fall faster.
    """
    noise = NoisePlan(type(cost)(_SMALL), (Sensitivity(1, 1),) * len(widths))
    candidates = allocations(len(widths))
    candidates.sort(key=lambda shares: len(set(shares)) > 1)  # the even one is the first
    errors = [tree_errors(widths, noise.variances(shares)) for shares in candidates]
    return candidates[_least([float(np.log(each) @ np.asarray(weights)) for each in errors])]


def tree_errors(widths: Sequence[int], variances: FloatArray) -> FloatArray:
    """Return the standard error of a cell at each level after least squares on a tree, float64[levels].

    ``widths`` are the numbers of regions by level, and ``variances`` float64[levels] those of one noisy cell. Exact
    where all regions of a level have equally many children. O(levels).
    """
    children = np.asarray(widths[1:], np.float64) / np.asarray(widths[:-1], np.float64)
    upward = np.array(variances, np.float64)
    for level in reversed(range(children.size)):
        upward[level] = 1.0 / (1.0 / variances[level] + 1.0 / (children[level] * upward[level + 1]))
    result = upward.copy()
    for level, count in enumerate(children.tolist()):
        result[level + 1] = upward[level + 1] * (1.0 - 1.0 / count) + result[level] / count**2
    return np.asarray(np.sqrt(result))


def _mean_log_variance(strategy: Strategy, workload: Sequence[Query], schema: Schema, cost: Cost) -> float:
    variances = [predicted_variance(strategy, query, schema, cost=cost) for query in workload]
    return float(np.mean(np.log(variances)))


def _least(aims: Sequence[float]) -> int:
    """Return the place of the first aim that no other is below by more than rounding errors."""
    return next(place for place, aim in enumerate(aims) if aim <= min(aims) + _LEAST_GAIN)
