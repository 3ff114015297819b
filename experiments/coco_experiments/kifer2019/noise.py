"""Laplace against Gaussian noise through the whole pipeline, with and without invariants.

The slides expect Gaussian noise to have more variance but lighter tails, which "may affect postprocessing steps". Both
distributions here give the same (epsilon, delta): the geometric one by pure epsilon, the discrete Gaussian by the
largest rho of the tight conversion. Errors are those of integer tables after fit, split and rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from pathlib import Path

import numpy as np

from coco_experiments.outcome import Cell, Table
from coco_experiments.study import Report, Runs, Study, seeded
from coco_experiments.topdown.data import Tables, generated_blocks, hawaii, small_tables
from coco_opt.privacy import Cost, Epsilon, Rho, SeededNoise
from coco_opt.privacy.accounting import rho_of_epsilon_delta
from coco_opt.topdown.budget_plan import Strategy, TablePlan
from coco_opt.topdown.estimating.estimate import estimate_tables
from coco_opt.topdown.invariants import Invariant
from coco_opt.topdown.measuring.measure import measure_tables
from coco_opt.topdown.queries import parse_queries, parse_query

DELTA = Fraction(1, 10**6)
EPSILONS = (1, 4)
QUERIES = ("total", "hispanic", "detail")
CONSTRAINTS: dict[str, tuple[tuple[str, int], ...]] = {
    "none": (),
    "state total": (("total", 0),),
    "block totals": (("total", 4),),
}
SEEDS, SMALL_SEEDS = (1, 2), (1,)
NOTE = "Noise is seeded: NOT PRIVATE. Mean absolute errors in people; replace-one neighbours; delta 1/1,000,000."


def distribution_costs(epsilon: int) -> dict[str, Cost]:
    """Return the costs of the two distributions that give the same epsilon and delta."""
    rho = rho_of_epsilon_delta(Fraction(epsilon), DELTA, "tight")
    return {"geometric": Epsilon(Fraction(epsilon)), "discrete Gaussian": Rho(rho)}


@dataclass(frozen=True, eq=False, slots=True)
class Setting:
    """Tables, epsilon, a distribution of noise and what is exact."""

    tables: Tables
    epsilon: int
    noise: str
    exact: str

    @property
    def plan(self) -> TablePlan:
        """Return what is measured."""
        strategy = Strategy.uniform(parse_queries(QUERIES, self.tables.schema))
        cost = distribution_costs(self.epsilon)[self.noise]
        return TablePlan.product(strategy, cost, self.tables.hierarchy.levels, neighbours="replace")


def measure(setting: Setting, seed: int) -> list[list[float]]:
    """Return [levels][mean error of the total, of the detail, the detail's largest] of one release."""
    tables = setting.tables
    exact = [Invariant(parse_query(text, tables.schema), level) for text, level in CONSTRAINTS[setting.exact]]
    result = estimate_tables(measure_tables(tables.counts, setting.plan, source=SeededNoise(seed), invariants=exact))
    detail, total = (parse_query(text, tables.schema).operator for text in ("detail", "total"))
    by_level = []
    for level in range(tables.hierarchy.levels):
        regions = tables.hierarchy.level_range(level)
        cells = np.abs(result.answers(detail, level) - tables.counts.answers_to(detail, regions))
        totals = np.abs(result.answers(total, level) - tables.counts.answers_to(total, regions))
        by_level.append([float(totals.mean()), float(cells.mean()), float(cells.max())])
    return by_level


def plan(data: Path | None, small: bool) -> list[tuple[Setting, Sequence[int]]]:
    """Return both distributions with every kind of exact totals."""
    tables = small_tables(generated_blocks(np.random.default_rng(7), 2, 2, 1, 4) if small else hawaii(data))
    settings = product(EPSILONS[: 1 if small else None], ("geometric", "discrete Gaussian"), CONSTRAINTS)
    return seeded((Setting(tables, *setting) for setting in settings), SMALL_SEEDS if small else SEEDS)


def report(results: Sequence[Runs[Setting, list[list[float]]]], path: Path) -> Report:
    """Return a row a setting and level; it fails where an exact total comes out wrong."""
    rows: list[dict[str, Cell]] = []
    failures = []
    for runs in results:
        setting, mean = runs.case, np.mean(runs.found, axis=0)
        key: dict[str, Cell] = {"epsilon": setting.epsilon, "noise": setting.noise, "exact": setting.exact}
        for level, (total, detail, largest) in enumerate(mean.tolist()):
            row: dict[str, Cell] = {**key, "level": level, "total": total, "detail": detail}
            variance = {"variance of a cell's noise": setting.plan.variance(level, 2)}
            rows.append({**row, "largest of detail": largest, **variance})
        if any(mean[: level + 1, 0].any() for _, level in CONSTRAINTS[setting.exact]):
            words = f"epsilon {setting.epsilon}, {setting.noise}, {setting.exact}"
            failures.append(f"{words}: a total that is exact, or a sum of such, is not")
    return Report({"": Table.of("Laplace against Gaussian at one (epsilon, delta)", rows, (NOTE,))}, failures=failures)


NOISE = Study("kifer2019/noise", plan, measure, report)
