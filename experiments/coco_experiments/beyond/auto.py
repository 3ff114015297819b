"""What is chosen automatically against plans chosen by hand, and against the usual methods.

A look takes 1/50 of the budget and asks the root; buckets and allocation are then chosen under the size distribution
that it suggests, and both measurements are estimated together. By hand: buckets and allocations that were found best
with the data at hand, which no user could choose. Total epsilon 1 unless stated, seeds fixed beforehand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np

from coco_experiments.beyond.queries import EPSILON, GROWTH, NEIGHBOURS, QueryPlan, search_of
from coco_experiments.beyond.study import (
    Result,
    Way,
    error_table,
    finish,
    seconds_table,
    stored_results_of,
    study,
    usual_ways,
)
from coco_experiments.kuo2018.cases import Case, hawaii_case, small_cases, taxi_case
from coco_experiments.kuo2018.joint import TAXI_MAX_SIZE
from coco_experiments.outcome import Cell, Outcome, Reporter, Table
from coco_opt.groups.look import distribution_of_look
from coco_opt.groups.measuring.measure import look_of, measured, measurement_plan_of
from coco_opt.groups.queries import Query
from coco_opt.privacy import Epsilon, Measurement, SeededNoise
from coco_opt.privacy.combined_measurements import together

NAME = "beyond/auto"
SEEDS = (2018, 2019, 2020)
EPSILONS = (Fraction(1, 10), Fraction(1, 2), Fraction(1), Fraction(2))
LOOK = Fraction(1, 50)
AUTO, BY_HAND = "auto", "by hand"
_LOOK_SEED = 1_000_000


@dataclass(frozen=True, slots=True)
class Automatic(QueryPlan):
    """Queries that a look chooses, seed by seed; ``growth`` and ``split`` stay empty."""

    def measured(self, case: Case, seed: int, epsilon: Fraction = EPSILON) -> Measurement:
        """Return the answers to the look and to what it chose, to be estimated together; NOT PRIVATE."""
        look = _look(case, seed, epsilon * LOOK)
        left = epsilon * (1 - LOOK)
        choice = search_of(case, left).choose({"look": distribution_of_look(look)})
        return together([QueryPlan(self.name, choice.growths, choice.shares).measured(case, seed, left), look])


def _look(case: Case, seed: int, epsilon: Fraction) -> Measurement:
    query: Query = "cumulative"
    cells = measurement_plan_of(
        case.hierarchy,
        case.counts.group_counts,
        queries=[query] * case.levels,
        costs=[Epsilon(epsilon)] * case.levels,
        max_size=case.max_size,
        neighbours=NEIGHBOURS,
    )
    return measured(look_of(cells, Epsilon(epsilon)), case.truth, SeededNoise(_LOOK_SEED + seed))


def by_hand(case: Case) -> QueryPlan:
    """Return what was found best with the data at hand: Taxi's single sizes, and buckets for census blocks."""
    if case.levels == 3:
        return QueryPlan(BY_HAND, (0.0,) * 3, (Fraction(1, 5), Fraction(3, 10), Fraction(1, 2)))
    return QueryPlan(BY_HAND, GROWTH, tuple(Fraction(share) for share in ("1/10", "1/10", "1/5", "3/5")))


def ways_of(case: Case, epsilon: Fraction) -> list[Way]:
    """Return the automatic choice, the one by hand, and the usual methods, at one epsilon."""
    setting = f"{float(epsilon):g}"
    return [
        Way(AUTO, "posterior", Automatic(AUTO, (), ()), epsilon, setting),
        Way(BY_HAND, "posterior", by_hand(case), epsilon, setting),
        *usual_ways(case, epsilon, setting),
    ]


def aims_table(results: Sequence[Result]) -> Table:
    """Return the geometric mean over the levels of the automatic choice over that of each other way."""
    rows: list[tuple[Cell, ...]] = []
    for auto in (result for result in results if result.way.name == AUTO):
        for other in results:
            if other.case is auto.case and other.way.setting == auto.way.setting and other is not auto:
                ratio = np.array([mean.value for mean in auto.means]) / [mean.value for mean in other.means]
                above = " ".join(str(level) for level in np.flatnonzero(ratio > 1.0)) or "none"
                aim = float(np.exp(np.log(ratio).mean()))
                rows.append((auto.case.name, auto.way.setting, other.way.name, aim, float(ratio.max()), above))
    columns = "data", "total epsilon", "compared with", "aim: auto / it", "worst level", "levels where auto errs more"
    return Table("The automatic choice over others: geometric mean of the levels' errors", columns, tuple(rows), ())


def run(*, small: bool, out: Path, reporter: Reporter, data: Path | None = None) -> Outcome:
    """Measure, print and write ``beyond/auto`` as CSV; small: one seed on simulated data."""
    if small:
        cases = [small_cases(30)[2]]
    else:
        cases = [*(hawaii_case(data, column) for column in ("nhpi", "white", "asian")), taxi_case(data, TAXI_MAX_SIZE)]
    results: list[Result] = []
    stored = stored_results_of(out)
    for case in cases:
        for epsilon in EPSILONS[2:3] if small else EPSILONS:
            seeds = SEEDS[:1] if small else SEEDS
            results += study(NAME, case, ways_of(case, epsilon), seeds, reporter, stored)
    notes = (f"By hand: growths {GROWTH} with shares .1, .1, .2, .6; of Taxi single sizes with .2, .3, .5.",)
    tables = {
        "": error_table("Automatic choice", results, BY_HAND, "total epsilon", notes),
        "_aims": aims_table(results),
        "_seconds": seconds_table(results, "total epsilon"),
    }
    return finish(NAME, out, tables, results, (), reporter)
