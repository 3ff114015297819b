"""Figure 5: two levels (nation, states) with consistency, every combination of estimators, and the omniscient line.

The paper states no numbers, but that the best method is comparable to the omniscient one and that no estimator
dominates: Hc on dense data (White), Hg on sparse (synthetic housing, nation).
"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

from coco_experiments.kuo2018.figure4 import PER_LEVEL, SMALL_PER_LEVEL, cases
from coco_experiments.kuo2018.methods import combinations, matched
from coco_experiments.kuo2018.sweep import SEEDS, SMALL_SEEDS, best_table, finish, sweep, table_of
from coco_experiments.outcome import Outcome, Reporter

NAME = "kuo2018/figure5"
METHODS = tuple(matched(choice) for choice in combinations(2))


def run(*, small: bool, out: Path, reporter: Reporter, data: Path | None = None) -> Outcome:
    """Measure, print and write ``kuo2018/figure5`` as CSV, PNG and PDF; small: two seeds on simulated data."""
    budgets: list[Fraction] = [2 * epsilon for epsilon in (SMALL_PER_LEVEL if small else PER_LEVEL)]
    seeds = SMALL_SEEDS if small else SEEDS
    points = [point for case in cases(data, small=small) for point in sweep(case, METHODS, budgets, seeds, reporter)]
    table = table_of(f"Figure 5: two levels, matching weighted by variance, {len(seeds)} runs", points)
    best = best_table("Figure 5: the best combination", points)
    return finish(NAME, out, table, [best], points, reporter)
