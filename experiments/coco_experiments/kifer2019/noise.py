"""Laplace against Gaussian noise: the slides' tables of variances, and errors through the whole pipeline.

``zcdp``: six levels, identity queries, pure against zero-concentrated privacy. A person replaced changes an identity
query's answers by 2 in all (L1) and by the root of 2 (L2). Laplace noise has variance 2 (2 levels / epsilon)^2;
Gaussian noise levels / rho, rho being what the standard conversion gives for epsilon and delta. Next to them what this
program would draw: geometric noise, and rho by the tight conversion (Canonne, Kamath and Steinke 2020), which buys the
same epsilon and delta with less noise.

``noise``: the pipeline with and without invariants. The slides expect Gaussian noise to have more variance but lighter
tails, which "may affect postprocessing steps". Both distributions here give the same (epsilon, delta): the geometric
one by pure epsilon, the discrete Gaussian by the largest rho of the tight conversion. Errors are those of integer
tables after fit, split and rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from pathlib import Path

import numpy as np

from coco_experiments.outcome import Record, Statement, Table
from coco_experiments.study import Report, Runs, Study, seeded
from coco_experiments.topdown.data import Tables, generated_blocks, hawaii, small_tables
from coco_opt.privacy import Cost, Epsilon, Rho, SeededNoise
from coco_opt.privacy.accounting import rho_of_epsilon_delta
from coco_opt.privacy.cost import Sensitivity
from coco_opt.topdown.budget_plan import Strategy, TablePlan
from coco_opt.topdown.estimating.estimate import estimate_tables
from coco_opt.topdown.invariants import Invariant
from coco_opt.topdown.measuring.measure import measure_tables
from coco_opt.topdown.queries import parse_queries, parse_query

LEVELS = 6
PERSON = Sensitivity(2, 2)  # L1, and L2 squared
PUBLISHED: dict[str, tuple[float, ...]] = {
    "0": (288.0, 72.0, 32.0, 18.0, 11.5),
    "1e-14": (785.6, 199.4, 89.9, 51.3, 33.3),
    "1e-9": (509.3, 130.3, 59.2, 34.0, 22.2),
    "1e-6": (343.5, 88.8, 40.7, 23.6, 15.6),
}
"""Variances for epsilon = 1 to 5, by delta; of Laplace noise at delta 0."""
HALF_A_DIGIT = 0.05 + 1e-9


def laplace_variance(epsilon: int) -> float:
    """Return 2 (L1 sensitivity x levels / epsilon)^2."""
    return 2.0 * float(Fraction(PERSON.l1 * LEVELS, epsilon)) ** 2


def gaussian_variance(rho: Fraction) -> float:
    """Return the variance that a level's share of rho buys: L2 sensitivity^2 levels / (2 rho)."""
    return float(PERSON.l2_squared * LEVELS / (2 * rho))


def measure(delta: str, seed: int) -> list[Record]:
    """Return a row for each epsilon at one delta."""
    rows: list[Record] = []
    for epsilon, published in enumerate(PUBLISHED[delta], 1):
        cost: Cost = Epsilon(Fraction(epsilon))
        formula, tight, noise = laplace_variance(epsilon), None, "Laplace"
        if delta != "0":
            standard, better = (
                rho_of_epsilon_delta(Fraction(epsilon), Fraction(delta), conversion)
                for conversion in ("standard", "tight")
            )
            cost, formula, tight, noise = (
                Rho(standard),
                gaussian_variance(standard),
                gaussian_variance(better),
                "Gaussian",
            )
        drawn = (cost * Fraction(1, LEVELS)).distribution(PERSON).variance
        row: Record = {"delta": delta, "epsilon": epsilon, "noise": noise, "published": published}
        rows.append({**row, "formula": formula, "drawn here": drawn, "tight conversion": tight})
    return rows


def report(results: Sequence[Runs[str, list[Record]]], path: Path) -> Report:
    """Return published variances next to the formulas'; it fails where a last digit differs."""
    notes = (
        "Published: slides on zCDP. A variance here is that of one answer at one of six levels.",
        "Laplace noise has less variance; by the tight conversion Gaussian noise does at delta 1e-6 up to epsilon 2.",
    )
    table = Table.of(
        "variance of an identity query's answer, six levels", (row for runs in results for row in runs.found[0]), notes
    )
    wrong = [row for row in table.records() if abs(row["formula"] - row["published"]) > HALF_A_DIGIT]
    failures = (
        f"delta {row['delta']}, epsilon {row['epsilon']}: {row['formula']} is not the published {row['published']}"
        for row in wrong
    )
    statements = (
        Statement(
            f"slides, delta {delta}, epsilon 1 to {len(values)}",
            ", ".join(f"{value:g}" for value in values),
            ", ".join(f"{row['formula']:.1f}" for row in table.records() if row["delta"] == delta),
            all(row["delta"] != delta for row in wrong),
        )
        for delta, values in PUBLISHED.items()
    )
    return Report({"": table}, failures=failures, statements=statements)


ZCDP = Study("kifer2019/zcdp", lambda _, small: seeded(PUBLISHED), measure, report)


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


def measure_pipeline(setting: Setting, seed: int) -> list[list[float]]:
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


def report_pipeline(results: Sequence[Runs[Setting, list[list[float]]]], path: Path) -> Report:
    """Return a row a setting and level; it fails where an exact total comes out wrong."""
    rows: list[Record] = []
    failures = []
    for runs in results:
        setting, mean = runs.case, np.mean(runs.found, axis=0)
        key: Record = {"epsilon": setting.epsilon, "noise": setting.noise, "exact": setting.exact}
        for level, (total, detail, largest) in enumerate(mean.tolist()):
            row: Record = {**key, "level": level, "total": total, "detail": detail}
            variance = {"variance of a cell's noise": setting.plan.variance(level, 2)}
            rows.append({**row, "largest of detail": largest, **variance})
        if any(mean[: level + 1, 0].any() for _, level in CONSTRAINTS[setting.exact]):
            words = f"epsilon {setting.epsilon}, {setting.noise}, {setting.exact}"
            failures.append(f"{words}: a total that is exact, or a sum of such, is not")
    table = Table.of("Laplace against Gaussian at one (epsilon, delta)", rows, (NOTE,))
    return Report({"": table}, failures=failures, statements=claims(rows))


def claims(rows: Sequence[Record]) -> list[Statement]:
    """Return what the last slide says of Gaussian noise: its variance, its tails, and what comes of both."""
    geometric, gaussian = ([row for row in rows if row["noise"] == n] for n in ("geometric", "discrete Gaussian"))
    variance, tails, error = "variance of a cell's noise", "largest of detail", "detail"
    ratios = {
        what: [b[what] / a[what] for a, b in zip(geometric, gaussian, strict=True) if a[what]]
        for what in (variance, tails, error)
    }
    spread = {what: f"{min(values):.3g} to {max(values):.3g}" for what, values in ratios.items()}
    says = {
        variance: ("the variance of Gaussian noise is larger than Laplace's", min(ratios[variance]) > 1.0),
        tails: (
            "its tails are lighter (taken as: a smaller largest error of a released cell)",
            max(ratios[tails]) < 1.0,
        ),
        error: ("which may affect post-processing", None),
    }
    tight = "the tight conversion buys the same epsilon and delta with less noise than the slides' did"
    return [
        Statement("slides, RDP/zCDP", words, f"Gaussian over geometric, {what}: {spread[what]}", holds, tight)
        for what, (words, holds) in says.items()
    ]


NOISE = Study("kifer2019/noise", plan, measure_pipeline, report_pipeline)
