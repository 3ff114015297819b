"""What is chosen automatically against the best of a grid in hindsight, plans chosen manually, and the usual methods.

A look takes 1/50 of the budget and asks the root; buckets and allocation are then chosen under the size distribution
that it suggests, and both measurements are estimated together. Without a look they are chosen for a family of
distributions. This is done for three aims: the geometric mean over all levels, the leaves and the root.

The grid crosses buckets, allocations and methods. Its best entry by an aim is known only in hindsight, from the true
data, so no user could choose it. By hand: buckets and allocations that were found best with the data at hand. Seeds are
fixed beforehand. Results are stored as they are found: a run that was stopped goes on where it was.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
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
from coco_experiments.kuo2018.cases import (
    Case,
    hawaii_case,
    hawaiian_case,
    housing_case,
    small_cases,
    taxi_case,
    west_coast,
    white_case,
)
from coco_experiments.kuo2018.joint import TAXI_MAX_SIZE
from coco_experiments.outcome import Cell, Outcome, Reporter, Table
from coco_opt.groups.estimating.method import Consistency
from coco_opt.groups.look import distribution_of_look
from coco_opt.groups.measuring.automatic import assumed_distributions
from coco_opt.groups.measuring.measure import look_of, measured, measurement_plan_of
from coco_opt.groups.queries import Query
from coco_opt.privacy import Epsilon, Measurement, SeededNoise
from coco_opt.privacy.combined_measurements import together
from coco_opt.privacy.planner import LEAF_SHARES, Shares, allocation, leaf_allocation

NAME = "beyond/auto"
SEEDS = (2018, 2019, 2020, 2021, 2022)
EPSILONS = (Fraction(1), Fraction(1, 10), Fraction(1, 2), Fraction(2))
LOOK = Fraction(1, 50)
AIMS = ("balanced", "leaves", "root")
AUTO, NO_LOOK, BY_HAND = "auto", "auto without a look", "by hand"
_LOOK_SEED = 1_000_000
_GROWTHS = (0.0, 0.05, 0.2, 0.5)  # of the grid, one for all levels; and one that rises from root to leaves
_RATIOS = (0.5, 1.0, 2.0)
_METHODS: tuple[Consistency, ...] = ("posterior", "joint")


@dataclass(frozen=True, slots=True)
class Automatic(QueryPlan):
    """Queries that are chosen for an aim, after a look or without one; ``growth`` and ``split`` stay empty."""

    aim: str = AIMS[0]
    look: Fraction = LOOK

    @property
    def key(self) -> str:
        """What its stored results are found by."""
        return f"chosen for {self.aim}, look {self.look}"

    def measured(self, case: Case, seed: int, epsilon: Fraction = EPSILON) -> Measurement:
        """Return the answers to the look and to what it chose, to be estimated together; NOT PRIVATE."""
        left = epsilon * (1 - self.look)
        search = search_of(case, left, weights_of(self.aim, case.levels))
        if not self.look:
            choice = search.choose(assumed_distributions(case.max_size))
            return QueryPlan(self.name, choice.growths, choice.shares).measured(case, seed, left)
        look = _look(case, seed, epsilon * self.look)
        choice = search.choose({"look": distribution_of_look(look)})
        return together([QueryPlan(self.name, choice.growths, choice.shares).measured(case, seed, left), look])


def weights_of(aim: str, levels: int) -> tuple[float, ...]:
    """Return the weight of each level's error in an aim, root first."""
    if aim == "balanced":
        return (1.0 / levels,) * levels
    return tuple(float(level == (0 if aim == "root" else levels - 1)) for level in range(levels))


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


def automatic_ways(epsilon: Fraction, aims: Sequence[str]) -> list[Way]:
    """Return the automatic choice for each aim, with a look and without one."""
    setting = f"{float(epsilon):g}"
    named = [(AUTO, LOOK), (NO_LOOK, Fraction(0))]
    return [
        Way(_named(name, aim), "posterior", Automatic(_named(name, aim), (), (), aim, look), epsilon, setting)
        for (name, look), aim in product(named, aims)
    ]


def _named(name: str, aim: str) -> str:
    return name if aim == AIMS[0] else f"{name}, {aim}"


def grid_of(case: Case, epsilon: Fraction, *, small: bool = False) -> list[Way]:
    """Return the grid: buckets x allocations by two methods, and bottom-up with every budget at the leaves."""
    levels, setting = case.levels, f"{float(epsilon):g}"
    growths = [(growth,) * levels for growth in _GROWTHS] + [GROWTH[:levels]]
    splits = [allocation(ratio, levels) for ratio in _RATIOS] + [leaf_allocation(part, levels) for part in LEAF_SHARES]
    if small:
        growths, splits = growths[::4], splits[1:2]
    leaves = (*(Fraction(0),) * (levels - 1), Fraction(1))
    crossed: Iterator[tuple[Consistency, tuple[float, ...], Shares]] = product(_METHODS, growths, splits)
    entries = [*crossed, *(("bottom_up", growth, leaves) for growth in growths)]
    return [_grid_way(*entry, epsilon, setting) for entry in entries]


def _grid_way(method: Consistency, growth: tuple[float, ...], split: Shares, epsilon: Fraction, setting: str) -> Way:
    words = ("/".join(f"{float(number):.3g}" for number in numbers) for numbers in (growth, split))
    name = f"grid: {method}, growth {next(words)}, split {next(words)}"
    return Way(name, method, QueryPlan(name, growth, split), epsilon, setting)


def ways_of(case: Case, epsilon: Fraction, *, small: bool) -> list[Way]:
    """Return the automatic choices, the one by hand, the usual methods and the grid, at one epsilon."""
    setting = f"{float(epsilon):g}"
    manual = Way(BY_HAND, "posterior", by_hand(case), epsilon, setting)
    return [
        *automatic_ways(epsilon, AIMS[:1] if small else AIMS),
        manual,
        *usual_ways(case, epsilon, setting),
        *grid_of(case, epsilon, small=small),
    ]


def aim_of(result: Result, aim: str) -> float:
    """Return the weighted geometric mean of a result's errors by level."""
    errors = [max(mean.value, 1e-9) for mean in result.means]
    return float(np.exp(np.log(errors) @ np.array(weights_of(aim, len(errors)))))


def hindsight_table(results: Sequence[Result]) -> Table:
    """Return the aim's error of the automatic choice over that of the grid's best entry, and a mean and worst row."""
    rows: list[tuple[Cell, ...]] = []
    ratios: dict[tuple[str, str], list[float]] = {}
    for result in results:
        plan = result.way.queries
        if not isinstance(plan, Automatic):
            continue
        grid = [other for other in _beside(result, results) if other.way.name.startswith("grid: ")]
        best = min(grid, key=lambda other: aim_of(other, plan.aim))
        ratio = aim_of(result, plan.aim) / aim_of(best, plan.aim)
        look = "1/50" if plan.look else "none"
        ratios.setdefault((look, plan.aim), []).append(ratio)
        name = best.way.name.removeprefix("grid: ")
        key = result.case.name, result.way.setting, plan.aim, look
        rows.append((*key, aim_of(result, plan.aim), aim_of(best, plan.aim), ratio, f"{name} (of {len(grid)})"))
    for (look, aim), values in ratios.items():
        for words, value in (("mean", float(np.mean(values))), ("worst", max(values))):
            rows.append((f"{words} of all", "all", aim, look, None, None, value, ""))
    columns = "data", "total epsilon", "aim", "look", "auto", "best of the grid", "auto / best", "best in hindsight"
    title = "The aim's error of the automatic choice over the best of a grid, known in hindsight only"
    return Table(title, columns, tuple(rows), ())


def _beside(result: Result, results: Sequence[Result]) -> list[Result]:
    """Return the other results of the same data at the same epsilon."""
    return [
        other
        for other in results
        if other.case is result.case and other.way.setting == result.way.setting and other is not result
    ]


def aims_table(results: Sequence[Result]) -> Table:
    """Return the balanced automatic choice over each way that is neither automatic nor of the grid."""
    rows: list[tuple[Cell, ...]] = []
    for auto in (result for result in results if result.way.name == AUTO):
        for other in _beside(auto, results):
            if isinstance(other.way.queries, Automatic) or other.way.name.startswith("grid: "):
                continue
            ratio = np.array([mean.value for mean in auto.means]) / [mean.value for mean in other.means]
            above = " ".join(str(level) for level in np.flatnonzero(ratio > 1.0)) or "none"
            aim = float(np.exp(np.log(ratio).mean()))
            rows.append((auto.case.name, auto.way.setting, other.way.name, aim, float(ratio.max()), above))
    columns = "data", "total epsilon", "compared with", "aim: auto / it", "worst level", "levels where auto errs more"
    return Table("The automatic choice over others: geometric mean of the levels' errors", columns, tuple(rows), ())


def all_cases(data: Path | None) -> list[Case]:
    """Return the data sets, those of the least cost first."""
    blocks = [hawaii_case(data, column) for column in ("nhpi", "white", "asian", "black", "hispanic")]
    coast = [west_coast(load(data)) for load in (hawaiian_case, white_case, housing_case)]
    return [taxi_case(data, TAXI_MAX_SIZE), *blocks, *coast]


def run(*, small: bool, out: Path, reporter: Reporter, data: Path | None = None) -> Outcome:
    """Measure, print and write ``beyond/auto`` as CSV; small: one seed on simulated data and a small grid."""
    cases = [small_cases(30)[2]] if small else all_cases(data)
    results: list[Result] = []
    stored = stored_results_of(out)
    for epsilon in EPSILONS[:1] if small else EPSILONS:
        for case in cases:
            seeds = SEEDS[:1] if small else SEEDS
            results += study(NAME, case, ways_of(case, epsilon, small=small), seeds, reporter, stored)
    notes = (f"By hand: growths {GROWTH} with shares .1, .1, .2, .6; of Taxi single sizes with .2, .3, .5.",)
    tables = {
        "": error_table("Automatic choice", results, BY_HAND, "total epsilon", notes),
        "_hindsight": hindsight_table(results),
        "_aims": aims_table(results),
        "_seconds": seconds_table(results, "total epsilon"),
    }
    return finish(NAME, out, tables, results, (), reporter)
