"""Strategies: exact shares, predicted variances against dense least squares, optimal shares with a certificate."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from coco_opt.array_types import Floats
from coco_opt.errors import ProblemError
from coco_opt.privacy import Cost, DiscreteGaussian, Epsilon, Geometric, Neighbours, Rho
from coco_opt.topdown import Query, Schema, Strategy, TablePlan, ValueGroups, parse_queries, parse_query
from coco_opt.topdown.measuring.automatic import (
    OBJECTIVES,
    Objective,
    ShareProblem,
    best_shares,
    candidate_queries,
    optimised_strategy,
)
from coco_opt.topdown.measuring.predicted import DenseModel, MarginalModel, predicted_variance, variance_model

NEAR = 1.05  # of the optimum of all mechanisms

PLAIN = Schema({"a": ("0", "1", "2"), "b": ("0", "1"), "c": ("0", "1", "2", "3")})
ZEROS = Schema(dict(PLAIN.attributes), ("a = 0 & b = 1",), {"g": ValueGroups("c", {"low": "..1", "high": "2.."})})
COSTS: tuple[Cost, ...] = (Epsilon(Fraction(1, 2)), Rho(Fraction(1, 2)))


def least_squares_variance(queries: tuple[Query, ...], variances: list[float], workload_query: Query) -> float:
    """Return the mean variance of the best linear unbiased answers, by a pseudo-inverse over all allowed cells."""
    matrices = [query.operator.to_sparse().toarray() for query in queries]
    information = sum(m.T @ m / v for m, v in zip(matrices, variances, strict=True))
    target = workload_query.operator.to_sparse().toarray()
    return float(np.trace(target @ np.linalg.pinv(information, hermitian=True) @ target.T)) / workload_query.answers


@pytest.mark.parametrize("schema", [PLAIN, ZEROS], ids=["plain", "zeros"])
@pytest.mark.parametrize("cost", COSTS, ids=lambda cost: cost.unit)
@pytest.mark.parametrize(
    "texts", [("detail",), ("total", "a * b", "c"), ("a", "a * b", "b * c", "detail"), ("cumulative(c)", "a")]
)
def test_predicted_variances_are_those_of_least_squares(schema: Schema, cost: Cost, texts: tuple[str, ...]) -> None:
    queries = parse_queries(texts, schema)
    shares = [Fraction(index + 1, sum(range(1, len(texts) + 1))) for index in range(len(texts))]
    strategy = Strategy(queries, tuple(shares))
    plan = TablePlan.product(strategy, cost, 1)
    variances = [plan.variance(0, query) for query in range(len(queries))]
    for wanted in ("total", "a", *texts):
        query = parse_query(wanted, schema)
        predicted = predicted_variance(strategy, query, schema, cost=cost)
        assert predicted == pytest.approx(least_squares_variance(queries, variances, query), rel=1e-7)


def test_closed_form_and_matrices_agree_with_their_gradients() -> None:
    measured, workload = (
        parse_queries(("a", "a * b", "b * c", "total"), PLAIN),
        parse_queries(("b", "c * b", "a"), PLAIN),
    )
    models = (variance_model(measured, workload, PLAIN), DenseModel.of(measured, workload))
    assert isinstance(models[0], MarginalModel)
    precisions = np.array([0.3, 0.1, 0.7, 0.2])
    np.testing.assert_allclose(models[0].variances(precisions), models[1].variances(precisions), rtol=1e-9)
    np.testing.assert_allclose(models[0].gradient(precisions), models[1].gradient(precisions), rtol=1e-8)
    for model in models:
        for index in range(4):
            step = np.eye(4)[index] * 1e-6
            numeric = (model.variances(precisions + step) - model.variances(precisions - step)) / 2e-6
            np.testing.assert_allclose(model.gradient(precisions)[:, index], numeric, rtol=1e-5, atol=1e-7)


def test_answers_that_are_not_determined_have_infinite_variance() -> None:
    only = Strategy.uniform(parse_queries(("a", "b"), PLAIN))
    for schema in (PLAIN, ZEROS):
        measurement_plan = Strategy.uniform(parse_queries(("a", "b"), schema))
        assert predicted_variance(measurement_plan, parse_query("c", schema), schema) == np.inf
        assert predicted_variance(measurement_plan, parse_query("total", schema), schema) < np.inf
    assert predicted_variance(only, parse_query("detail", PLAIN), PLAIN) == np.inf


def test_too_many_atoms_are_refused_with_advice() -> None:
    big = Schema({"age": [str(age) for age in range(100)], "race": [str(race) for race in range(63)]})
    queries = parse_queries(("cumulative(age)", "detail"), big)
    with pytest.raises(ProblemError, match="distinguish 6,300 cells"):
        DenseModel.of(queries, queries)
    with pytest.raises(ProblemError, match="more than the 512"):
        optimised_strategy(queries, big)


# Optimal shares -----------------------------------------------------------------------------------------------------


def problem_of(texts: tuple[str, ...], schema: Schema, cost: Cost, objective: Objective) -> ShareProblem:
    workload = parse_queries(texts, schema)
    candidates = candidate_queries(workload, schema)
    return ShareProblem(candidates, workload, variance_model(candidates, workload, schema), cost, objective)


@pytest.mark.parametrize("texts", [("total", "a", "a * b"), ("a", "b", "c"), ("detail", "b * c", "total")])
@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("schema", [PLAIN, ZEROS], ids=["plain", "zeros"])
def test_gaussian_shares_are_optimal_by_a_bound_from_convexity(
    texts: tuple[str, ...], objective: Objective, schema: Schema
) -> None:
    problem = problem_of(texts, schema, Rho(Fraction(1)), objective)
    count = len(problem.candidates)
    shares = best_shares(problem, np.full(count, 1.0 / count))
    variances, gradient = problem.variances(shares), problem.gradient(shares)
    # Any weighting of the queries bounds the largest variance from below.
    weights = multipliers(gradient, shares, variances) if objective == "max" else problem.weights
    slope = weights @ gradient
    bound = weights @ variances + slope.min() - slope @ shares
    assert bound <= problem.value(shares) * (1 + 1e-12)
    assert problem.value(shares) - bound <= 2e-3 * problem.value(shares)


def multipliers(gradient: Any, shares: Any, variances: Any) -> Any:
    """Return query weights that sum to 1 and give the best lower bound on the largest variance: a linear program."""
    from scipy.optimize import linprog

    queries, count = gradient.shape
    # max t - slack: t <= (w @ gradient)_k for all k; value w @ (variances - gradient @ shares) + t.
    cost = -np.append(variances - gradient @ shares, 1.0)
    rows = np.hstack([-gradient.T, np.ones((count, 1))])
    solution = linprog(
        cost,
        rows,
        np.zeros(count),
        np.append(np.ones(queries), 0.0)[None],
        [1.0],
        [(0, None)] * queries + [(None, None)],
    )
    assert solution.success
    return solution.x[:queries]


def residual_optimum(workload: tuple[Query, ...], schema: Schema, weights: Floats, precision: float) -> float:
    """Return the least weighted sum of the variances of marginals' answers that any Gaussian mechanism reaches.

    Marginals fall apart into residuals, one for every set of attributes that some marginal holds. One of variance v
    costs p / v of the precision and adds c v to the sum, p and c products over attributes, so that by Cauchy and
    Schwarz the least sum is (sum of sqrt(c p))^2 / precision. Xiao et al. 2023 (ResidualPlanner), theorems 3 to 5.
    """
    measurement_plan = [query.marginal for query in workload]
    sizes = schema.shape
    every = {
        frozenset(part)
        for measured in measurement_plan
        for r in range(len(measured) + 1)
        for part in combinations(sorted(measured), r)
    }
    total = 0.0
    for residual in every:
        price = math.prod((sizes[i] - 1) / sizes[i] for i in residual)
        sums = (
            weight * price * math.prod(1 / sizes[j] ** 2 for j in measured - residual)
            for weight, measured in zip(weights, measurement_plan, strict=True)
            if residual <= measured
        )
        total += math.sqrt(price * sum(sums))
    return total * total / precision


WIDE = Schema({"a": tuple("01234"), "b": ("0", "1"), "c": tuple("012"), "d": tuple("0123456789")})


@pytest.mark.parametrize("schema", [PLAIN, WIDE], ids=["three attributes", "four"])
@pytest.mark.parametrize("objective", ["total", "mean"])
@pytest.mark.parametrize(
    "texts",
    [("a * b",), ("total", "a", "b"), ("a * b", "b * c", "a * c"), ("detail", "a"), ("a", "a * b", "a * b * c")],
)
def test_optimised_shares_come_near_the_optimum_of_all_gaussian_mechanisms(
    texts: tuple[str, ...], objective: Objective, schema: Schema
) -> None:
    """Independent noise on marginals is not every mechanism: never below the closed form, and hardly above it."""
    workload, cost = parse_queries(texts, schema), Rho(Fraction(1, 100))
    weights = np.array([float(query.answers) for query in workload])
    weights = weights if objective == "total" else np.full(len(workload), 1 / len(workload))
    least = residual_optimum(workload, schema, weights, precision=float(2 * cost.amount))
    strategy = optimised_strategy(workload, schema, cost=cost, objective=objective)
    variances = [predicted_variance(strategy, query, schema, cost=cost) for query in workload]
    ratio = float(weights @ variances) / least
    assert 1 - 1e-9 <= ratio <= NEAR, ratio
    even = [predicted_variance(Strategy.uniform(workload), query, schema, cost=cost) for query in workload]
    assert least <= float(weights @ even) * (1 + 1e-9)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_geometric_shares_are_as_good_as_a_fine_grid(objective: Objective) -> None:
    problem = problem_of(("a", "b"), PLAIN, Epsilon(Fraction(1)), objective)
    assert [query.name for query in problem.candidates] == ["a", "b", "total", "a * b"]
    strategy = optimised_strategy(problem.workload, PLAIN, objective=objective)
    values = np.array(
        [
            float(dict(zip((q.name for q in strategy.queries), strategy.shares, strict=True)).get(q.name, 0))
            for q in problem.candidates
        ]
    )
    grid = [
        np.array([i, j, k, 25 - i - j - k]) / 25
        for i in range(1, 26)
        for j in range(1, 26 - i)
        for k in range(26 - i - j)
    ]
    assert problem.value(values) <= 1.001 * min(problem.value(point) for point in grid)


def test_unknown_options_are_refused() -> None:
    with pytest.raises(ProblemError, match="unknown objective"):
        optimised_strategy(parse_queries(("a",), PLAIN), PLAIN, objective="least")  # type: ignore[arg-type]
    with pytest.raises(ProblemError, match="at least one query"):
        optimised_strategy((), PLAIN)


# Shares and plans ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shares", "said"),
    [
        ((Fraction(1, 2), Fraction(1, 3)), "sum to 5/6"),
        ((Fraction(1), Fraction(0)), "share of 0"),
        ((Fraction(1),), "as many shares"),
        ((Fraction(3, 2), Fraction(-1, 2)), "negative"),
        ((0.5, 0.5), "not exact"),
    ],
)
def test_shares_that_do_not_fit_are_refused(shares: tuple[Fraction, ...], said: str) -> None:
    with pytest.raises(ProblemError, match=said):
        Strategy(parse_queries(("a", "b"), PLAIN), shares)


def test_two_queries_of_one_name_are_refused() -> None:
    same = (parse_query("a", PLAIN), parse_query("b", PLAIN, "a"))
    with pytest.raises(ProblemError, match="one name"):
        Strategy.uniform(same)
    with pytest.raises(ProblemError, match="different names"):
        TablePlan(same, epsilons("1", "1"))


def epsilons(*amounts: str) -> tuple[tuple[Cost, ...], ...]:
    return (tuple(Epsilon(Fraction(amount)) for amount in amounts),)


def test_plans_split_a_budget_exactly() -> None:
    queries = parse_queries(("a", "b", "detail"), PLAIN)
    plan = TablePlan.product(Strategy.uniform(queries), Epsilon(Fraction(1, 7)), 3, level_shares=["0.2", "0", "4/5"])
    assert plan.cost == Epsilon(Fraction(1, 7))
    assert plan.costs[0] == (Epsilon(Fraction(1, 5) * Fraction(1, 7) / 3),) * 3
    assert plan.measured_queries == ((0, 0), (0, 1), (0, 2), (2, 0), (2, 1), (2, 2))
    none, half, all_of_it = (Rho(Fraction(share)) for share in ("0", "1/2", "1"))
    table = TablePlan(queries, ((all_of_it, none, none), (none, half, half)))
    assert table.cost == Rho(Fraction(2))
    assert table.variance(0, 1) == np.inf
    with pytest.raises(ProblemError, match="not measured at level 0"):
        table.distribution(0, 1)


@pytest.mark.parametrize(
    ("unit", "neighbours", "wanted"),
    [
        (Epsilon, "add_remove", [Geometric(Fraction(2)), Geometric(Fraction(16))]),
        (Epsilon, "replace", [Geometric(Fraction(4)), Geometric(Fraction(32))]),
        (Rho, "replace", [DiscreteGaussian(Fraction(2)), DiscreteGaussian(Fraction(16))]),
    ],
)
def test_noise_follows_sensitivity_and_neighbours(unit: Any, neighbours: Neighbours, wanted: list[Any]) -> None:
    queries = parse_queries(("a", "cumulative(c)"), PLAIN)
    plan = TablePlan(queries, ((unit(Fraction(1, 2)), unit(Fraction(1, 4))),), neighbours)
    assert [plan.distribution(0, query) for query in (0, 1)] == wanted


@pytest.mark.parametrize(
    ("costs", "said"),
    [
        (epsilons("1"), "as many costs"),
        (epsilons("0", "0"), "above zero"),
        (epsilons("1/1125899906842624", "1"), "noise scale"),
        ((*epsilons("1", "1"), (Rho(Fraction(1)),) * 2), "do not add up"),
    ],
)
def test_plans_that_do_not_fit_are_refused(costs: Any, said: str) -> None:
    with pytest.raises(ProblemError, match=said):
        TablePlan(parse_queries(("a", "b"), PLAIN), costs)


def test_plans_name_what_is_wrong_with_shares_and_names() -> None:
    strategy, cost = Strategy.identity(PLAIN), Epsilon(Fraction(1))
    with pytest.raises(ProblemError, match="2 levels need as many shares"):
        TablePlan.product(strategy, cost, 2, level_shares=["1"])
    with pytest.raises(ProblemError, match="sum to 3/4"):
        TablePlan.product(strategy, cost, 2, level_shares=["1/2", "1/4"])
    with pytest.raises(ProblemError, match="unknown neighbours"):
        TablePlan(strategy.queries, ((cost,),), neighbours="swap")  # type: ignore[arg-type]
