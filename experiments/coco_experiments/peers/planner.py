"""Tables of persons: the planned strategy for marginals against the optimum of ResidualPlanner, by formula.

Marginals split the cells into spaces of interactions: for each set B of attributes, of dimension d_B, the product of
the attributes' numbers of values less one. With q_B the precision of all measurements on the space of B, a marginal S
costs the sum over B within S of (N / n_S) d_B / q_B, and the squared sensitivity is the sum of q_B d_B / N. So the
least of sum_B t_B / q_B is (sum_B sqrt(t_B d_B / N))^2 (Xiao et al. 2023, closed form), which is also the bound of Li
and Miklau 2013: no linear strategy has less with Gaussian noise. coco-opt measures whole marginals instead, because
their answers are integers.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations, product
from math import prod, sqrt
from pathlib import Path
from typing import Literal

import numpy as np

from coco_experiments.bench.apart import clocked
from coco_experiments.outcome import Record, Table
from coco_experiments.peers.study import OURS
from coco_experiments.study import Report, Runs, Study, seeded
from coco_opt.privacy import Cost, Epsilon, Rho
from coco_opt.topdown import Query, Schema, Strategy, optimised_strategy
from coco_opt.topdown.measuring.predicted import variance_model
from coco_opt.topdown.queries import marginal_query

Objective = Literal["total", "mean"]
Sets = Sequence[tuple[int, ...]]

SHAPES: tuple[tuple[int, ...], ...] = ((2, 8, 5, 4), (2, 116, 2, 63), (100, 50, 7, 4, 2))
SMALL_SHAPES = ((2, 3, 2),)
WAYS = (1, 2, 3)
COSTS: tuple[Cost, ...] = (Rho(Fraction(1)), Epsilon(Fraction(1)))
OBJECTIVES: tuple[Objective, ...] = ("total", "mean")
NEAR = 1.1  # with Gaussian noise the planned strategy is at most so many times the optimum
OVER = "squared error over the optimum"
_ERRORS = {"total": "summed over answers", "mean": "mean of the marginals' means"}


def closed_form(shape: Sequence[int], sets: Sets, objective: Objective) -> float:
    """Return the least squared error of marginals, for noise of variance 1 at sensitivity 1."""
    cells = float(prod(shape))
    answers = {chosen: float(prod(shape[axis] for axis in chosen)) for chosen in sets}
    weights = {chosen: 1.0 if objective == "total" else 1 / (count * len(sets)) for chosen, count in answers.items()}
    spaces = {part for chosen in sets for size in range(len(chosen) + 1) for part in combinations(chosen, size)}
    total = 0.0
    for space in spaces:
        dimension = float(prod(shape[axis] - 1 for axis in space))
        above = [chosen for chosen in sets if set(space) <= set(chosen)]
        norm = dimension * sum(weights[chosen] * cells / answers[chosen] for chosen in above)
        total += sqrt(norm * dimension / cells)
    return total**2


def squared_error(
    strategy: Strategy, workload: Sequence[Query], schema: Schema, objective: Objective, power: int
) -> float:
    """Return the squared error of least squares, for noise whose precision is the share to a power."""
    variances = variance_model(strategy.queries, workload, schema).variances(
        np.array([float(share) ** power for share in strategy.shares])
    )
    answers = np.array([float(query.answers) for query in workload])
    return float(answers @ variances if objective == "total" else variances.mean())


Case = tuple[tuple[int, ...], int, Cost, Objective]


def measure(case: Case, seed: int) -> list[Record]:
    """Return a row for even shares of the workload's own marginals and one for the planned strategy."""
    shape, way, cost, objective = case
    schema = Schema({f"a{axis}": tuple(map(str, range(size))) for axis, size in enumerate(shape)})
    sets = [part for size in range(1, way + 1) for part in combinations(range(len(shape)), size)]
    workload = [marginal_query(part, schema) for part in sets]
    planning, _, planned = clocked(lambda: optimised_strategy(workload, schema, cost=cost, objective=objective))
    least = closed_form(shape, sets, objective)
    strategies = {"even shares": (Strategy.uniform(workload), None), "optimised": (planned, planning)}
    return [
        {
            "attributes": " x ".join(map(str, shape)),
            "marginals of up to": f"{way} attributes",
            "noise": "Gaussian" if cost.precision_power == 1 else "Laplace",
            "error": _ERRORS[objective],
            "strategy": f"{OURS}: {name}",
            "queries": len(strategy.queries),
            OVER: squared_error(strategy, workload, schema, objective, cost.precision_power) / least,
            "seconds": seconds,
        }
        for name, (strategy, seconds) in strategies.items()
    ]


def plan(data: Path | None, small: bool) -> list[tuple[Case, Sequence[int]]]:
    """Return three schemas with marginals of up to three attributes; small: one of 12 cells."""
    return seeded(product(SMALL_SHAPES if small else SHAPES, WAYS, COSTS, OBJECTIVES))


def report(results: Sequence[Runs[Case, list[Record]]], path: Path) -> Report:
    """Return all rows; it fails below the optimum, or where Gaussian noise leaves a planned strategy far above it."""
    notes = (
        "The optimum is that of any linear strategy with Gaussian noise; Laplace noise does not reach it.",
        "ResidualPlanner measures residuals, whose answers are no counts; coco-opt measures marginals: these are.",
    )
    title = "Planned strategies for marginals against ResidualPlanner's optimum"
    table, failures = Table.of(title, (row for runs in results for row in runs.found[0]), notes), []
    for row in table.records():
        planned = row["noise"] == "Gaussian" and row["strategy"].endswith("optimised")
        if row[OVER] < 1 - 1e-9 or (planned and row[OVER] > NEAR):
            words = f"{row['strategy']} on {row['attributes']}, {row['marginals of up to']}"
            failures.append(f"{words}: {row[OVER]:.4f}")
    return Report({"": table}, failures=failures)


PLANNER = Study("peers/planner", plan, measure, report)
