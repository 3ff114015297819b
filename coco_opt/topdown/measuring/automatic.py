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
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Generic, TypeVar

import numpy as np

from coco_opt.array_types import Floats
from coco_opt.errors import ProblemError
from coco_opt.privacy.cost import Cost, Sensitivity
from coco_opt.privacy.planner import NoisePlan, Shares, allocations
from coco_opt.topdown.budget_plan import Strategy
from coco_opt.topdown.measuring.optimised import Objective, optimised_strategy
from coco_opt.topdown.measuring.predicted import predicted_variance
from coco_opt.topdown.queries import Query
from coco_opt.topdown.schema import Schema

Value = TypeVar("Value")

_OBJECTIVES: tuple[Objective, ...] = ("mean", "max")
_SMALL = Fraction(1, 1000)  # a budget under which integer noise has the variance of continuous noise
_LEAST_GAIN = 1e-6  # of the logarithm of an aim: of equal candidates the first is taken, on every machine


@dataclass(frozen=True, slots=True)
class Ranked(Generic[Value]):
    """A candidate and the logarithm of its aim: of errors whose least weighted geometric mean wins."""

    value: Value
    aim: float


def ranked_strategies(workload: Sequence[Query], schema: Schema, cost: Cost) -> list[Ranked[Strategy]]:
    """Return measured queries and their shares, best first; the workload evenly where nothing else can be predicted."""
    return list(_ranked_strategies(tuple(workload), schema, type(cost)))


@lru_cache(maxsize=2)  # a plan chooses, and then shows the choice
def _ranked_strategies(workload: tuple[Query, ...], schema: Schema, cost: type[Cost]) -> list[Ranked[Strategy]]:
    even = Strategy.uniform(workload)
    unit = cost(Fraction(1))
    try:
        candidates = [even, *(optimised_strategy(workload, schema, cost=unit, objective=each) for each in _OBJECTIVES)]
        variances = [[predicted_variance(each, query, schema, cost=unit) for query in workload] for each in candidates]
        aims = [0.5 * float(np.mean(np.log(each))) for each in variances]
    except ProblemError:  # too many cells to predict
        return [Ranked(even, 0.0)]
    return _ranked(candidates, aims)


def ranked_allocations(widths: Sequence[int], cost: Cost, weights: Sequence[float]) -> list[Ranked[Shares]]:
    """Return shares of the levels, best first, from the numbers of regions by level and the weights of the aim.

    Only the unit of the cost matters. A level shares its budget among queries, so that noise is wide even where the
    budget is not, and its variance is a power of the share; integer noise of a large budget would fall faster.
    """
    noise = NoisePlan(type(cost)(_SMALL), (Sensitivity(1, 1),) * len(widths))
    candidates = allocations(len(widths))
    candidates.sort(key=lambda shares: len(set(shares)) > 1)  # the even allocation is the first
    errors = [tree_errors(widths, noise.variances(shares)) for shares in candidates]
    return _ranked(candidates, [float(np.log(each) @ np.asarray(weights)) for each in errors])


def chosen_strategy(workload: Sequence[Query], schema: Schema, cost: Cost) -> Strategy:
    """Return the best of ``ranked_strategies``."""
    return ranked_strategies(workload, schema, cost)[0].value


def chosen_allocation(widths: Sequence[int], cost: Cost, weights: Sequence[float]) -> Shares:
    """Return the best of ``ranked_allocations``."""
    return ranked_allocations(widths, cost, weights)[0].value


def tree_errors(widths: Sequence[int], variances: Floats) -> Floats:
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


def _ranked(candidates: Sequence[Value], aims: Sequence[float]) -> list[Ranked[Value]]:
    """Return candidates by their aims; of those equal but for rounding errors the first given is the first."""
    least = next(place for place, aim in enumerate(aims) if aim <= min(aims) + _LEAST_GAIN)
    rest = sorted((place for place in range(len(aims)) if place != least), key=lambda place: (aims[place], place))
    return [Ranked(candidates[place], aims[place]) for place in (least, *rest)]
