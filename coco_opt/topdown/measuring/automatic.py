"""What a configuration of tables leaves out, chosen from public numbers: measured queries and allocation of the budget.

All levels measure the same queries, so the linear estimates' covariance is a product of two factors: one of the queries
(``coco_opt.topdown.measuring.predicted``) and one of the tree. Each factor is chosen by itself.

* Queries: the workload with even shares, or the strategy optimised for the mean or for the worst variance
  (below). The least geometric mean of the workload's standard errors wins.
* Allocation: one of ``coco_opt.privacy.planner.allocations``. The least weighted geometric mean over the levels of the
  tree's standard errors wins, where all regions of a level are assumed to have equally many children.

Budget shares that answer a workload with the least predicted variance: weighted marginals.

With rho (discrete Gaussian noise) a share buys precision in proportion, and the mean variance of an answer is convex in
the shares: the optimum is global up to the solver's tolerance. With epsilon (geometric noise) precision grows with the
square of a share, which is not convex: the best of several starts is returned, never worse than measuring the workload
with equal shares.
Sources: McKenna et al. 2018 (HDMM), section 7; Xiao et al. 2023 (ResidualPlanner).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import combinations
from math import prod
from typing import Any, Literal, TypeVar, get_args

import numpy as np

from coco_opt.array_types import Floats
from coco_opt.errors import ProblemError
from coco_opt.privacy.cost import Cost, Rho, Sensitivity
from coco_opt.privacy.planner import NoisePlan, Shares, allocations, rounded_shares
from coco_opt.topdown.budget_plan import Strategy
from coco_opt.topdown.measuring.predicted import (
    EPSILON,
    MarginalModel,
    VarianceModel,
    closed_form,
    marginals_of,
    predicted_variances,
    variance_model,
)
from coco_opt.topdown.queries import Query, marginal_query, parse_query
from coco_opt.topdown.schema import Schema

Value = TypeVar("Value")

_OBJECTIVES: tuple[Objective, ...] = ("mean", "max")
_SMALL = Fraction(1, 1000)  # a budget under which integer noise has the variance of continuous noise
_LEAST_GAIN = 1e-6  # of the logarithm of an aim: of equal candidates the first is taken, on every machine


Ranked = list[tuple[Value, float]]
"""Candidates, best first, each with the logarithm of its aim: of errors whose least weighted geometric mean wins."""


@lru_cache(maxsize=2)  # a plan chooses, and then shows the choice
def ranked_strategies(workload: tuple[Query, ...], schema: Schema, cost: type[Cost]) -> Ranked[Strategy]:
    """Return measured queries and their shares, best first; the workload evenly where nothing else can be predicted."""
    even = Strategy.uniform(workload)
    unit = cost(Fraction(1))
    try:
        candidates = [even, *(optimised_strategy(workload, schema, cost=unit, objective=each) for each in _OBJECTIVES)]
        variances = [predicted_variances(each, workload, schema, unit) for each in candidates]
        aims = [0.5 * float(np.mean(np.log(each))) for each in variances]
    except ProblemError:  # too many cells to predict
        return [(even, 0.0)]
    return _ranked(candidates, aims)


def ranked_allocations(widths: Sequence[int], cost: Cost, weights: Sequence[float]) -> Ranked[Shares]:
    """Return shares of the levels, best first, from the numbers of regions by level and the weights of the aim.

    Only the unit of the cost matters. A level shares its budget among queries, so that noise is wide even where the
    budget is not, and its variance is a power of the share; integer noise of a large budget would fall faster.
    """
    noise = NoisePlan(type(cost)(_SMALL), (Sensitivity(1, 1),) * len(widths))
    candidates = allocations(len(widths))
    candidates.sort(key=lambda shares: len(set(shares)) > 1)  # the even allocation is the first
    errors = [tree_errors(widths, noise.variances(shares)) for shares in candidates]
    return _ranked(candidates, [float(np.log(each) @ np.asarray(weights)) for each in errors])


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


def _ranked(candidates: Sequence[Value], aims: Sequence[float]) -> Ranked[Value]:
    """Return candidates by their aims; of those equal but for rounding errors the first given is the first."""
    least = next(place for place, aim in enumerate(aims) if aim <= min(aims) + _LEAST_GAIN)
    rest = sorted((place for place in range(len(aims)) if place != least), key=lambda place: (aims[place], place))
    return [(candidates[place], aims[place]) for place in (least, *rest)]


Objective = Literal["total", "mean", "max"]
OBJECTIVES: tuple[Objective, ...] = get_args(Objective)

DENOMINATOR = 10_000  # of optimised shares
_LEAST = 1e-6  # of a share while searching: a variance stays finite
_DROPPED = 2e-4  # smaller shares are not measured
_CANDIDATES = 200
_UNION_ANSWERS = 2**16
_ATOMS = 512  # of dense predictions while searching: some hundred eigenvalue problems
_ITERATIONS = 150
_STARTS = 6  # of searches that are not convex


@dataclass(frozen=True, eq=False)
class ShareProblem:
    """Minimise the predicted variance of a workload over shares x >= 0 that sum to 1.

    ``objective`` is the sum over all answers ("total"), the mean over queries of an answer's mean variance ("mean") or
    the largest of those ("max"). ``cost`` is what a share of 1 costs.
    """

    candidates: tuple[Query, ...]
    workload: tuple[Query, ...]
    model: VarianceModel
    cost: Cost
    objective: Objective

    def precisions(self, shares: Floats) -> Floats:
        """Return 1 / variance of each candidate's noise: x^2 / (2 L1^2) for epsilon, 2 x / L2^2 for rho."""
        return np.asarray(self._full_precision * shares**self.cost.precision_power)

    @property
    def convex(self) -> bool:
        """Return whether variances are convex in the shares: precision is proportional to them."""
        return self.cost.precision_power == 1

    def variances(self, shares: Floats) -> Floats:
        """Return the mean variance of an answer of each workload query, float64[workload]."""
        return self.model.variances(self.precisions(shares))

    def gradient(self, shares: Floats) -> Floats:
        """Return its derivatives by the shares, float64[workload, candidates]."""
        power = self.cost.precision_power
        by_precision = self.model.gradient(self.precisions(shares))
        return np.asarray(by_precision * (power * self._full_precision * shares ** (power - 1)))

    @property
    def even(self) -> Floats:
        """Return equal shares for the workload's own queries, float64[candidates]."""
        texts = {query.text for query in self.workload}
        shares = np.array([float(query.text in texts) for query in self.candidates])
        return np.asarray(shares / shares.sum())

    @property
    def weights(self) -> Floats:
        """Return the weight of each workload query's mean variance, float64[workload]."""
        if self.objective == "total":
            return np.array([float(query.answers) for query in self.workload])
        return np.full(len(self.workload), 1.0 / len(self.workload))

    def value(self, shares: Floats) -> float:
        """Return the objective."""
        variances = self.variances(shares)
        return float(variances.max() if self.objective == "max" else self.weights @ variances)

    @cached_property
    def _full_precision(self) -> Floats:
        """Return each candidate's precision at the full cost, float64[candidates]."""
        distributions = [self.cost.distribution(query.sensitivity("add_remove")) for query in self.candidates]
        return np.array([1.0 / distribution.nominal_variance for distribution in distributions])


def optimised_strategy(
    workload: Sequence[Query],
    schema: Schema,
    *,
    cost: Cost = EPSILON,
    objective: Objective = "mean",
) -> Strategy:
    """Return the queries and shares of least predicted variance for a workload, shares in ten-thousandths.

    Only the unit of ``cost`` matters. ``objective`` "mean" weights all queries equally, "total" (HDMM's) all answers,
    so a query of many answers dominates, and "max" minimises the worst query.
    Marginals are measured through themselves, marginals of some of their attributes and the table of all of them;
    other queries through themselves and the total. Raises ProblemError for an empty workload, an unknown name or
    other queries that distinguish more than 512 cells. Larger marginals are assumed to have no structural zeros.
    """
    if not workload:
        raise ProblemError("a workload needs at least one query")
    if objective not in OBJECTIVES:
        raise ProblemError(f"unknown objective {objective!r}: use one of {', '.join(OBJECTIVES)}")
    candidates = candidate_queries(workload, schema)
    model = variance_model(candidates, workload, schema, _ATOMS)
    problem = ShareProblem(candidates, tuple(workload), model, type(cost)(Fraction(1)), objective)
    closed = None if isinstance(model, MarginalModel) else closed_form(candidates, workload, schema)
    if closed is None:
        return _best_rounded(problem, [*_searched(problem), problem.even])
    # Matrices cost a thousand times the closed form, which differs by the combinations that cannot occur: it finds
    # where a single search with matrices begins.
    start = min(_searched(replace(problem, model=closed)), key=problem.value)
    return _best_rounded(problem, [best_shares(problem, start), start, problem.even])


def _searched(problem: ShareProblem) -> list[Floats]:
    """Return what the searches from some starts end at; one where the problem is convex."""
    starts = _starts(problem)
    if not problem.convex:
        convex = replace(problem, cost=Rho(Fraction(1)))
        starts.insert(1, best_shares(convex, starts[0]))
    starts = starts[: 1 if problem.convex else _STARTS]
    return [best_shares(problem, start) for start in starts]


def _starts(problem: ShareProblem) -> list[Floats]:
    """Return equal shares for the workload, then other starts, best first: all candidates, mostly a single one."""
    even = problem.even
    mixtures = [np.full(even.size, 1.0 / even.size), *(0.1 * even + 0.9 * unit for unit in np.eye(even.size))]
    return [even, *sorted(mixtures, key=problem.value)]


def candidate_queries(workload: Sequence[Query], schema: Schema) -> tuple[Query, ...]:
    """Return the queries that may be measured: the workload, then at most 200 further candidates."""
    candidates = {query.text: query for query in workload}
    sets = marginals_of(workload)
    more = [parse_query("total", schema)]
    if sets is not None:
        attribute_sets = {
            frozenset(part) for axes in sets for size in range(len(axes)) for part in combinations(axes, size)
        }
        if len(attribute_sets) > _CANDIDATES:
            attribute_sets = {axes & other_axes for axes in sets for other_axes in sets}
        union = frozenset[int]().union(*sets)
        if prod(schema.shape[axis] for axis in union) <= _UNION_ANSWERS:
            attribute_sets.add(union)
        ordered = sorted(attribute_sets - set(sets), key=lambda axes: (len(axes), sorted(axes)))
        more = [marginal_query(sorted(axes), schema) for axes in ordered[:_CANDIDATES]]
    names = {query.name for query in workload}
    for query in more:
        if query.name not in names:  # names must differ, and a workload query may have this name
            candidates.setdefault(query.text, query)
    return tuple(candidates.values())


def best_shares(problem: ShareProblem, start: Floats) -> Floats:
    """Return optimised shares from a start by sequential quadratic programming, float64[candidates]."""
    from scipy.optimize import minimize

    first = np.maximum(start, _LEAST)
    first /= first.sum()
    before = problem.value(first)
    program = _epigraph(problem, first, before) if problem.objective == "max" else _smooth(problem, first, before)
    result = minimize(**program, method="SLSQP", options={"maxiter": _ITERATIONS, "ftol": 1e-9})
    shares = np.clip(np.asarray(result.x, np.float64)[: first.size], _LEAST, None)
    if not np.isfinite(shares).all():
        return first
    shares /= shares.sum()
    return shares if problem.value(shares) <= before else first


def _smooth(problem: ShareProblem, first: Floats, scale: float) -> dict[str, Any]:
    """Return the program over shares alone, scaled to objective 1 at ``first``."""
    return {
        "fun": lambda x: problem.value(x) / scale,
        "jac": lambda x: problem.weights @ problem.gradient(x) / scale,
        "x0": first,
        "bounds": [(_LEAST, 1.0)] * first.size,
        "constraints": [{"type": "eq", "fun": lambda x: x.sum() - 1.0, "jac": np.ones_like}],
    }


def _epigraph(problem: ShareProblem, first: Floats, scale: float) -> dict[str, Any]:
    """Return the program over shares and an upper bound t of all variances: smooth, unlike the maximum itself."""
    count = first.size
    unit = np.eye(count + 1)[count]

    def slack(x: Floats) -> Floats:
        return np.asarray(x[count] - problem.variances(x[:count]) / scale)

    def slopes(x: Floats) -> Floats:
        return np.column_stack([-problem.gradient(x[:count]) / scale, np.ones(len(problem.workload))])

    return {
        "fun": lambda x: float(x[count]),
        "jac": lambda x: unit,
        "x0": np.append(first, 1.0),
        "bounds": [*[(_LEAST, 1.0)] * count, (0.0, None)],
        "constraints": [
            {"type": "eq", "fun": lambda x: x[:count].sum() - 1.0, "jac": lambda x: 1.0 - unit},
            {"type": "ineq", "fun": slack, "jac": slopes},
        ],
    }


def _best_rounded(problem: ShareProblem, share_vectors: Sequence[Floats]) -> Strategy:
    """Return the best of several share vectors after tiny shares are dropped and the rest rounded to fractions."""
    rounded: list[tuple[float, Strategy]] = []
    for shares in share_vectors:
        for least, handicap in ((_DROPPED, 1.0), (0.0, 1.001)):  # another query must be worth measuring
            measured = np.flatnonzero(shares > least)
            fractions = rounded_shares(shares[measured], DENOMINATOR)
            dense = np.zeros(len(problem.candidates))
            dense[measured] = [float(share) for share in fractions]
            strategy = Strategy(tuple(problem.candidates[index] for index in measured.tolist()), fractions)
            rounded.append((handicap * problem.value(dense), strategy))
    return min(rounded, key=lambda pair: pair[0])[1]
