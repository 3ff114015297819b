"""Figure 6: three levels without and with consistency, Hc x Hc x Hc against Hg x Hg x Hg.

As in the paper, census data keep the West Coast (California, Oregon, Washington and their 133 counties) and Taxi its
whole geography. The paper states no numbers, but that none dominates and Hc tends to be much better over all.
"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

from coco_experiments.kuo2018.cases import (
    Case,
    hawaiian_case,
    housing_case,
    small_cases,
    taxi_case,
    west_coast,
    white_case,
)
from coco_experiments.kuo2018.methods import alone, matched
from coco_experiments.kuo2018.sweep import SEEDS, SMALL_SEEDS, best_table, finish, sweep, table_of
from coco_experiments.outcome import Outcome, Reporter

NAME = "kuo2018/figure6"
PER_LEVEL = (Fraction(1, 10), Fraction(1, 4), Fraction(1, 2), Fraction(1))
SMALL_PER_LEVEL = PER_LEVEL[2:]
TAXI_MAX_SIZE = 10_000
METHODS = tuple(kind((estimator,) * 3) for estimator in ("Hc", "Hg") for kind in (alone, matched))


def cases(folder: Path | None, *, small: bool) -> list[Case]:
    """Return the figure's data sets on three levels."""
    if small:
        return small_cases()[:2]
    census = [housing_case(folder), hawaiian_case(folder), white_case(folder)]
    return [*(west_coast(case) for case in census), taxi_case(folder, TAXI_MAX_SIZE)]


def run(*, small: bool, out: Path, reporter: Reporter, data: Path | None = None) -> Outcome:
    """Measure, print and write ``kuo2018/figure6`` as CSV, PNG and PDF; small: two seeds on simulated data."""
    budgets = [3 * epsilon for epsilon in (SMALL_PER_LEVEL if small else PER_LEVEL)]
    seeds = SMALL_SEEDS if small else SEEDS
    points = [point for case in cases(data, small=small) for point in sweep(case, METHODS, budgets, seeds, reporter)]
    notes = (f"K = {TAXI_MAX_SIZE:,} instead of the paper's 100,000, which adds empty cells and little error.",)
    table = table_of(f"Figure 6: three levels without and with consistency, {len(seeds)} runs", points, notes)
    return finish(NAME, out, table, [best_table("Figure 6: the best consistent method", points)], points, reporter)
