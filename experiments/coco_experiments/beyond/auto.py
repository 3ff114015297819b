"""What is chosen automatically against the best of a grid in hindsight, plans chosen manually, and the usual methods.

A look takes 1/50 of the budget and asks the root; buckets and allocation are then chosen under the size distribution
that it suggests, and both measurements are estimated together. Without a look they are chosen for a family of
distributions. This is done for three aims: the geometric mean over all levels, the leaves and the root.

The grid crosses buckets, allocations and methods. Its best entry by an aim is known only in hindsight, from the true
data, so no user could choose it. By hand: buckets and allocations that were found best with the data at hand.

The grid is made affordable thus. Of each method, only entries are estimated whose error for some aim is predicted,
under the true sizes, within ``_CLOSE`` of the least, and at most ``_MOST`` for each aim (one for methods other than the
posterior). The posterior takes a tenth of its usual draws, as many for every entry and for the automatic choice, and
the draws' medians where it can; it is left out where there are many noisy answers. ``joint`` estimates single cells
alone. Entries of the same queries read the same noise.

Seeds are fixed beforehand; data that take little time come first. Results are stored as they are found: a run ends
after ``MINUTES`` of processor time, and the next run goes on where it was.
Every row says how many seeds, and how many entries of the grid, it comes from.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np

from coco_experiments.beyond.study import (
    EPSILON,
    GROWTH,
    NEIGHBOURS,
    QueryPlan,
    Result,
    Way,
    search_of,
    seconds_table,
    study,
    usual_ways,
)
from coco_experiments.groups import Case
from coco_experiments.kuo2018.cases import (
    TAXI_MAX_SIZE,
    hawaii_case,
    hawaiian_case,
    housing_case,
    small_cases,
    taxi_case,
    west_coast,
    white_case,
)
from coco_experiments.outcome import Cell, Record, Table
from coco_opt.array_types import Floats
from coco_opt.groups.buckets import Buckets
from coco_opt.groups.estimating.method import Consistency
from coco_opt.groups.look import distribution_of_look
from coco_opt.groups.measuring.automatic import Candidate, assumed_distributions
from coco_opt.groups.measuring.measure import look_of, measured, measurement_plan_of
from coco_opt.groups.measuring.predicted import FitPredictor, Predictor, range_of
from coco_opt.groups.queries import Query
from coco_opt.privacy import Epsilon, Measurement, SeededNoise
from coco_opt.privacy.combined_measurements import together
from coco_opt.privacy.planner import Shares, allocation, leaf_allocation, root_and_leaf_allocation

SEEDS = (2018, 2019, 2020, 2021, 2022)
EPSILONS = (Fraction(1), Fraction(1, 2), Fraction(1, 10), Fraction(2))
MINUTES = 240.0
"""The processor time of one run."""
LOOK = Fraction(1, 50)
AIMS = ("balanced", "leaves", "root")
CHOSEN, NO_LOOK, BY_HAND = "auto", "auto without a look", "by hand"
_LOOK_SEED = 1_000_000
_GROWTHS = (0.0, 0.05, 0.2, 0.5, 1.0)  # of the grid, one for all levels; and one that rises from root to leaves
_RATIOS, _LEAF_SHARES, _ROOT_AND_LEAF_SHARES = (0.5, 1.0, 2.0), (0.5, 0.7, 0.85, 0.95), (0.7, 0.85, 0.95)
_METHODS: tuple[Consistency, ...] = ("posterior", "joint", "matching")
_MOST_ANSWERS = 200_000  # of which the posterior takes a minute or so
_CLOSE, _MOST = math.log(1.25), 3  # the predictor's ratios of two plans are within a quarter


@dataclass(frozen=True, slots=True)
class Automatic(QueryPlan):
    """Queries that are chosen for an aim, after a look or without one; ``growth`` and ``split`` stay empty."""

    aim: str = AIMS[0]
    look: Fraction = LOOK

    @property
    def key(self) -> str:
        """What its stored results are found by."""
        return f"chosen for {self.aim}, look {self.look}"

    def resolved_key(self, case: Case, seed: int, epsilon: Fraction) -> str:
        """Return what the stored results of one seed are found by: what was chosen, and the part that the look took."""
        return f"{_chosen(case, self.aim, self.look, seed, epsilon).key}, look {self.look}"

    def measured(self, case: Case, seed: int, epsilon: Fraction = EPSILON) -> Measurement:
        """Return the answers to the look and to what it chose, to be estimated together; NOT PRIVATE."""
        chosen = _chosen(case, self.aim, self.look, seed, epsilon)
        main = chosen.measured(case, seed, epsilon * (1 - self.look))
        return together([main, _look(case, seed, epsilon * self.look)]) if self.look else main


@cache
def _chosen(case: Case, aim: str, look: Fraction, seed: int, epsilon: Fraction) -> QueryPlan:
    """Return the queries that are chosen for an aim, after a look or (0) without one, which depends on no seed."""
    search = search_of(case, epsilon * (1 - look), weights_of(aim, case.levels))
    if look:
        choice = search.choose({"look": distribution_of_look(_look(case, seed, epsilon * look))})
    else:
        choice = search.choose(assumed_distributions(case.max_size))
    return QueryPlan(aim, choice.growths, choice.shares)


def weights_of(aim: str, levels: int) -> tuple[float, ...]:
    """Return the weight of each level's error in an aim, root first."""
    if aim == "balanced":
        return (1.0 / levels,) * levels
    return tuple(float(level == (0 if aim == "root" else levels - 1)) for level in range(levels))


@cache
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
    named = [(CHOSEN, LOOK), (NO_LOOK, Fraction(0))]
    return [
        Way(
            _named(name, aim),
            "posterior",
            Automatic(_named(name, aim), (), (), aim, look),
            epsilon,
            setting,
            quick=True,
        )
        for (name, look), aim in product(named, aims)
    ]


def _named(name: str, aim: str) -> str:
    return name if aim == AIMS[0] else f"{name}, {aim}"


def grid_of(case: Case, epsilon: Fraction, *, small: bool = False) -> list[Way]:
    """Return the entries of the grid that are estimated."""
    setting = f"{float(epsilon):g}"
    by_method: dict[Consistency, list[Candidate]] = {}
    for method, growths, shares in entries_of(case, small=small):
        by_method.setdefault(method, []).append((growths, shares))
    return [
        _grid_way(method, *plan, epsilon, setting)
        for method, plans in by_method.items()
        for plan in (plans if small else _promising(case, epsilon, method, plans))
    ]


def entries_of(case: Case, *, small: bool = False) -> list[tuple[Consistency, tuple[float, ...], Shares]]:
    """Return the grid: buckets x allocations by each method that can be afforded, and bottom-up of the leaves."""
    levels = case.levels
    growths = [(growth,) * levels for growth in _GROWTHS] + [GROWTH[:levels]]
    splits = [
        *(allocation(ratio, levels) for ratio in _RATIOS),
        *(leaf_allocation(share, levels) for share in _LEAF_SHARES),
        *(root_and_leaf_allocation(share, levels) for share in _ROOT_AND_LEAF_SHARES),
    ]
    if small:
        growths, splits = growths[::4], splits[1:2]
    leaves = (*(Fraction(0),) * (levels - 1), Fraction(1))
    crossed = [entry for entry in product(_METHODS, growths, splits) if _affordable(case, *entry[:2])]
    return [*crossed, *(("bottom_up", growth, leaves) for growth in growths)]


def _affordable(case: Case, method: Consistency, growths: tuple[float, ...]) -> bool:
    """Return whether a method takes seconds: the posterior of few answers, ``joint`` of single cells."""
    if method == "joint":
        return not any(growths)
    sizes = [Buckets.by_growth(case.max_size, growth).count if growth else case.max_size for growth in growths]
    return method != "posterior" or float(np.diff(case.hierarchy.level_start) @ sizes) <= _MOST_ANSWERS


def _promising(case: Case, epsilon: Fraction, method: Consistency, plans: Sequence[Candidate]) -> list[Candidate]:
    """Return the plans that a method is predicted to err little from under the true sizes, for one aim or another."""
    search = search_of(case, epsilon)
    sizes = case.truth[0].to_dense(case.max_size).astype(np.float64)
    kind = Predictor if method == "posterior" else FitPredictor
    predictor = kind(search.regions, sizes / sizes.sum())
    schemes = {
        growth: Buckets.by_growth(case.max_size, growth) for growth in {each for plan in plans for each in plan[0]}
    }
    errors = [
        predictor.errors([schemes[each] for each in growths], search.noise.variances(shares))
        for growths, shares in plans
    ]
    logs = np.log(np.maximum(errors, 1e-9)) @ np.transpose([weights_of(aim, case.levels) for aim in AIMS])
    places = np.argsort(logs, axis=0, kind="stable").argsort(axis=0, kind="stable")
    most = _MOST if method == "posterior" else 1
    chosen = ((places < most) & (logs <= logs.min(axis=0) + _CLOSE)).any(axis=1)
    return [plan for plan, some in zip(plans, chosen, strict=True) if some]


def _grid_way(method: Consistency, growth: tuple[float, ...], split: Shares, epsilon: Fraction, setting: str) -> Way:
    words = ("/".join(f"{float(number):.3g}" for number in numbers) for numbers in (growth, split))
    name = f"grid: {method}, growth {next(words)}, split {next(words)}"
    return Way(name, method, QueryPlan(name, growth, split), epsilon, setting, quick=True)


def ways_of(case: Case, epsilon: Fraction, *, small: bool) -> list[Way]:
    """Return the automatic choices, the manual choice, the usual methods and the grid, at one epsilon."""
    setting = f"{float(epsilon):g}"
    manual = Way(BY_HAND, "posterior", by_hand(case), epsilon, setting, quick=True)
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
    rows: list[Record] = []
    for result in results:
        plan = result.way.queries
        if not isinstance(plan, Automatic):
            continue
        grid = [other for other in _others(result, results) if other.way.name.startswith("grid: ")]
        best = min(grid, key=lambda other: aim_of(other, plan.aim))
        ours, least = aim_of(result, plan.aim), aim_of(best, plan.aim)
        rows.append(
            {
                "data": result.case.name,
                "total epsilon": result.way.setting,
                "aim": plan.aim,
                "look": "1/50" if plan.look else "none",
                "auto": ours,
                "best of the grid": least,
                "auto / best": ours / least,
                "seeds": len(result.findings),
                "entries estimated": f"{len(grid)} of {len(entries_of(result.case))}",
                "best in hindsight": best.way.name.removeprefix("grid: "),
            }
        )
    empty = {"auto": None, "best of the grid": None, "seeds": None, "entries estimated": "", "best in hindsight": ""}
    for look, aim in dict.fromkeys((row["look"], row["aim"]) for row in rows):
        values = [float(row["auto / best"] or 0) for row in rows if (row["look"], row["aim"]) == (look, aim)]
        for words, value in (("mean", float(np.mean(values))), ("worst", max(values))):
            key = {"data": f"{words} of all", "total epsilon": "all", "aim": aim, "look": look}
            rows.append({**key, "auto / best": value, **empty})
    return Table.of("The aim's error of the automatic choice over the best of a grid, known in hindsight only", rows)


def ranges_table(results: Sequence[Result]) -> Table:
    """Return how many levels of the posterior's results lie in the range that ``plan`` would state before the look."""
    inside: dict[tuple[Cell, ...], list[int]] = {}
    for result in results:
        if result.way.consistency != "posterior" or isinstance(result.way.queries, Automatic):
            continue
        low, high = _stated_range(result.case, result.way.queries, result.way.epsilon)
        for level, mean in enumerate(result.means):
            place = 0 if mean.value < low[level] else 2 if mean.value > high[level] else 1
            inside.setdefault((result.case.name, result.way.setting, level), [0, 0, 0])[place] += 1
    if inside:
        inside["all", "all", "all"] = [sum(counts) for counts in zip(*inside.values(), strict=True)]
    columns = "data", "total epsilon", "level", "below the range", "inside", "above", "share inside"
    rows = (dict(zip(columns, (*key, *counts, counts[1] / sum(counts)), strict=True)) for key, counts in inside.items())
    return Table.of("Errors of the posterior and the ranges that are predicted for them", rows)


@cache
def _stated_range(case: Case, queries: QueryPlan, epsilon: Fraction) -> tuple[Floats, Floats]:
    """Return the least and the largest error to expect by level, as ``coco_opt.groups.kind.forecast`` does."""
    search = search_of(case, epsilon)
    buckets = [Buckets.by_growth(case.max_size, each) for each in queries.growth]
    variances = search.noise.variances(queries.split)
    family = assumed_distributions(case.max_size).values()
    return range_of(np.array([Predictor(search.regions, each, 0.1).errors(buckets, variances) for each in family]))


def _others(result: Result, results: Sequence[Result]) -> list[Result]:
    """Return the other results of the same data at the same epsilon."""
    return [
        other
        for other in results
        if other.case is result.case and other.way.setting == result.way.setting and other is not result
    ]


def aims_table(results: Sequence[Result]) -> Table:
    """Return the balanced automatic choice over each way that is neither automatic nor of the grid."""
    rows: list[Record] = []
    for auto in (result for result in results if result.way.name == CHOSEN):
        for other in _others(auto, results):
            if isinstance(other.way.queries, Automatic) or other.way.name.startswith("grid: "):
                continue
            ratio = np.array([mean.value for mean in auto.means]) / [mean.value for mean in other.means]
            rows.append(
                {
                    "data": auto.case.name,
                    "total epsilon": auto.way.setting,
                    "compared with": other.way.name,
                    "aim: auto / it": float(np.exp(np.log(ratio).mean())),
                    "worst level": float(ratio.max()),
                    "levels where auto errs more": " ".join(map(str, np.flatnonzero(ratio > 1.0))) or "none",
                }
            )
    return Table.of("The automatic choice over others: geometric mean of the levels' errors", rows)


def cases_of(data: Path | None) -> list[Case]:
    """Return the data sets, those first that take least time."""
    blocks = [hawaii_case(data, column) for column in ("nhpi", "black", "white", "asian", "hispanic")]
    coast = [west_coast(load(data)) for load in (hawaiian_case, housing_case, white_case)]
    return [*blocks, coast[0], taxi_case(data, TAXI_MAX_SIZE), *coast[1:]]


def settings(data: Path | None, small: bool) -> list[tuple[Case, list[Way]]]:
    """Return every case at every epsilon; small: one of simulated data."""
    grid = [(EPSILONS[0], small_cases(30)[2])] if small else list(product(EPSILONS, cases_of(data)))
    return [(case, ways_of(case, epsilon, small=small)) for epsilon, case in grid]


def tables_of(results: Sequence[Result]) -> Mapping[str, Table]:
    """Return the tables beside the errors, by their endings."""
    return {
        "_hindsight": hindsight_table(results),
        "_aims": aims_table(results),
        "_ranges": ranges_table(results),
        "_seconds": seconds_table(results, "total epsilon"),
    }


AUTO = study(
    "beyond/auto",
    "Automatic choice",
    settings,
    BY_HAND,
    "total epsilon",
    (f"By hand: growths {GROWTH} with shares .1, .1, .2, .6; of Taxi single sizes with .2, .3, .5.",),
    SEEDS,
    tables_of,
    lambda path, results: (),
    MINUTES,
)
