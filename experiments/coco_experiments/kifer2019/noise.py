"""Laplace against Gaussian noise through the whole pipeline, with and without invariants.

The slides expect Gaussian noise to have more variance but lighter tails, which "may affect postprocessing steps". Both
distributions here give the same (epsilon, delta): the geometric one by pure epsilon, the discrete Gaussian by the
largest rho of the tight conversion. Errors are those of integer tables after fit, split and rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np

from coco_experiments.outcome import Cell, Outcome, Reporter, Table, publish
from coco_experiments.topdown.data import Tables, generated_blocks, hawaii, small_tables
from coco_opt.array_types import Floats
from coco_opt.privacy import Cost, Epsilon, Rho, SeededNoise
from coco_opt.privacy.accounting import rho_of_epsilon_delta
from coco_opt.topdown.budget_plan import Strategy, TablePlan
from coco_opt.topdown.estimating.estimate import estimate_tables
from coco_opt.topdown.invariants import Invariant
from coco_opt.topdown.measuring.measure import measure_tables
from coco_opt.topdown.queries import parse_queries, parse_query

NAME = "kifer2019/noise"
DELTA = Fraction(1, 10**6)
EPSILONS = (1, 4)
QUERIES = ("total", "hispanic", "detail")
CONSTRAINTS: dict[str, tuple[tuple[str, int], ...]] = {
    "none": (),
    "state total": (("total", 0),),
    "block totals": (("total", 4),),
}
SEEDS, SMALL_SEEDS = (1, 2), (1,)
COLUMNS = ("epsilon", "noise", "exact", "level", "total", "detail", "largest of detail", "variance of a cell's noise")
NOTE = "Noise is seeded: NOT PRIVATE. Mean absolute errors in people; replace-one neighbours; delta 1/1,000,000."


def distribution_costs(epsilon: int) -> dict[str, Cost]:
    """Return the costs of the two distributions that give the same epsilon and delta."""
    rho = rho_of_epsilon_delta(Fraction(epsilon), DELTA, "tight")
    return {"geometric": Epsilon(Fraction(epsilon)), "discrete Gaussian": Rho(rho)}


def errors(tables: Tables, plan: TablePlan, exact: Sequence[Invariant], seed: int) -> Floats:
    """Return [levels][mean error of the total, of the detail, the detail's largest] of one release."""
    measurement = measure_tables(tables.counts, plan, source=SeededNoise(seed), invariants=exact)
    result = estimate_tables(measurement)
    detail, total = (parse_query(text, tables.schema).operator for text in ("detail", "total"))
    by_level = []
    for level in range(tables.hierarchy.levels):
        regions = tables.hierarchy.level_range(level)
        cells = np.abs(result.answers(detail, level) - tables.counts.answers_to(detail, regions))
        totals = np.abs(result.answers(total, level) - tables.counts.answers_to(total, regions))
        by_level.append([totals.mean(), cells.mean(), cells.max()])
    return np.array(by_level, np.float64)


def run(*, small: bool, out: Path, reporter: Reporter, data: Path | None = None) -> Outcome:
    """Release with both distributions at the same guarantee; fails where an exact total comes out wrong."""
    tables = small_tables(generated_blocks(np.random.default_rng(7), 2, 2, 1, 4) if small else hawaii(data))
    seeds = SMALL_SEEDS if small else SEEDS
    strategy, levels = Strategy.uniform(parse_queries(QUERIES, tables.schema)), tables.hierarchy.levels
    rows: list[tuple[Cell, ...]] = []
    failures, done = [], 0
    for epsilon in EPSILONS[: 1 if small else None]:
        for distribution, cost in distribution_costs(epsilon).items():
            plan = TablePlan.product(strategy, cost, levels, neighbours="replace")
            for name, constraints in CONSTRAINTS.items():
                exact = [Invariant(parse_query(text, tables.schema), level) for text, level in constraints]
                mean = np.mean([errors(tables, plan, exact, seed) for seed in seeds], axis=0)
                for level, (total, detail, largest) in enumerate(mean.tolist()):
                    rows.append((epsilon, distribution, name, level, total, detail, largest, plan.variance(level, 2)))
                if any(mean[: level + 1, 0].any() for _, level in constraints):
                    failures.append(
                        f"epsilon {epsilon}, {distribution}, {name}: a total that is exact, or a sum of such, is not"
                    )
                done += 1
                reporter.progress(NAME, done, len(EPSILONS[: 1 if small else None]) * 2 * len(CONSTRAINTS))
    table = Table("Laplace against Gaussian at one (epsilon, delta)", COLUMNS, tuple(rows), (NOTE,))
    return publish(NAME, {"": table}, out, reporter, failures=failures)
