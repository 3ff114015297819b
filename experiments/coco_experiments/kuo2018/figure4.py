"""Figure 4: merging matched groups by variance against plain averages; two levels (nation, states).

The paper's combinations Hc x Hc, Hc x Hg and Hg x Hc; it leaves out Hg x Hg, where the plain average's error is too
large to draw. It states no numbers, but that weighting wins at the top level for every budget and combination, and
modestly at the second. A table says for every combination whether it does here: with independent noise it does, but for
Hg x Hc on race data, where the plain average is better at the top, and at the second level the two are about equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

from coco_experiments.kuo2018.cases import Case, hawaiian_case, housing_case, small_cases, top, white_case
from coco_experiments.kuo2018.methods import matched
from coco_experiments.kuo2018.sweep import SEEDED, SEEDS, SMALL_SEEDS, Point, finish, sweep, table_of
from coco_experiments.outcome import Cell, Outcome, Reporter, Table

NAME = "kuo2018/figure4"
PER_LEVEL = (Fraction(1, 10), Fraction(1, 4), Fraction(1, 2), Fraction(1))
SMALL_PER_LEVEL = PER_LEVEL[2:]
CHOICES = (("Hc", "Hc"), ("Hc", "Hg"), ("Hg", "Hc"))
METHODS = tuple(matched(choice, merge) for choice in CHOICES for merge in ("weighted", "average"))


def cases(folder: Path | None, *, small: bool) -> list[Case]:
    """Return the three data sets of the figure, cut to nation and states."""
    wide = small_cases()[:2] if small else [housing_case(folder), hawaiian_case(folder), white_case(folder)]
    return [top(case, 2) for case in wide]


def gains(points: Sequence[Point]) -> Table:
    """Return how many times smaller the weighted merge's error is, by combination, budget and level."""
    by_name = {(point.case, point.epsilon, point.method): point for point in points}
    rows: list[tuple[Cell, ...]] = []
    for (case, epsilon, method), weighted in by_name.items():
        plain = by_name.get((case, epsilon, f"{method}, average half up"))
        if plain is not None:
            ratios = [p.value / w.value for p, w in zip(plain.means, weighted.means, strict=True)]
            rows.append((case, float(epsilon) / len(ratios), method, *ratios, ratios[0] > 1.0))
    columns = ("data", "epsilon a level", "combination", "average / weighted, level 0", "level 1", "weighted wins at 0")
    notes = ("The paper: weighting wins at level 0 always, by a large factor, and modestly at level 1.", SEEDED)
    return Table("Figure 4: what weighting by variance gains", columns, tuple(rows), notes)


def run(*, small: bool, out: Path, reporter: Reporter, data: Path | None = None) -> Outcome:
    """Measure, print and write ``kuo2018/figure4`` as CSV, PNG and PDF; small: two seeds on simulated data."""
    budgets = [2 * epsilon for epsilon in (SMALL_PER_LEVEL if small else PER_LEVEL)]
    seeds = SMALL_SEEDS if small else SEEDS
    points = [point for case in cases(data, small=small) for point in sweep(case, METHODS, budgets, seeds, reporter)]
    table = table_of(f"Figure 4: weighted against plain merging, two levels, {len(seeds)} runs", points)
    return finish(NAME, out, table, [gains(points)], points, reporter)
