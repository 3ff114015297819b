"""Choosing a method by its noisy error: what is chosen where Hg wins and where Hc wins, and the price paid.

The total budget is the same for every row. Without choosing, one method gets all of it; the rule of Chaudhuri et al.
2011, the paper's advice, runs every candidate and pays for each one. The paper's own account, full epsilon for every
candidate and a very small one for the choice, would be a multiple of the total stated here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import partial
from pathlib import Path

from coco_experiments.groups import BARS, SEEDED, Case, Levels, means_of, split_evenly
from coco_experiments.kuo2018.cases import SEED, TAXI_MAX_SIZE, hawaii_case, small_cases, taxi_case, top
from coco_experiments.kuo2018.draws import Draws
from coco_experiments.kuo2018.housing import LARGEST_OUTLIER, census_households, housing
from coco_experiments.kuo2018.methods import matched, queries_of
from coco_experiments.kuo2018.private_selection import Candidate, noisy_min_selection
from coco_experiments.kuo2018.sweep import SEEDS, SMALL_SEEDS
from coco_experiments.outcome import Record, Statement, Table
from coco_experiments.plots import Panel, comparison
from coco_experiments.statistics import Mean
from coco_experiments.study import Report, Runs, Study, seeded
from coco_opt.choices import SolverChoices
from coco_opt.groups import GroupsMethod
from coco_opt.groups.estimating.estimate import estimate_groups
from coco_opt.groups.noisy_measurements import Loss
from coco_opt.histograms import CountOfCounts
from coco_opt.privacy import Measurement, SeededNoise

TOTAL = Fraction(1)
CHOOSING = Fraction(1, 10)  # of the total, for the choice alone
SELECTED = "selected: noisy minimum"
Found = dict[str, tuple[Levels, str]]
"""One seed's errors by level, by method and of the selection, and what it chose."""


def choices_of(levels: int) -> list[tuple[str, ...]]:
    """Return the candidates: one estimator on all levels, or another estimator on the leaves or at the root."""
    return [("Hc",) * levels, ("Hg",) * levels, ("Hc",) * (levels - 1) + ("Hg",), ("Hg",) + ("Hc",) * (levels - 1)]


def candidates(levels: int, epsilon: Fraction) -> list[Candidate]:
    """Return the candidates, ``epsilon`` each, split evenly over the levels, matched by variance."""
    losses: dict[str, Loss] = {"Hc": "l1", "Hg": "l2"}
    options = []
    for choice in choices_of(levels):
        method = GroupsMethod(tuple(losses[name] for name in choice), consistency="matching")
        queries, split = tuple(queries_of(choice)), split_evenly(epsilon, levels)
        options.append(Candidate(" x ".join(choice), queries, split, partial(released, method)))
    return options


def released(method: GroupsMethod, measurement: Measurement) -> Sequence[CountOfCounts]:
    """Return the histograms that a release with this method estimates; certificates of its runs are not stored."""
    return estimate_groups(measurement, method, SolverChoices()).histograms


def candidate_epsilon(case: Case) -> Fraction:
    """Return a candidate's budget such that the price of all and of the choice is the total."""
    return (TOTAL - CHOOSING) / len(choices_of(case.levels))


def measure(case: Case, seed: int) -> Found:
    """Return the errors of every method with the whole budget, had it been known, and of what was chosen."""
    methods = [matched(choice) for choice in choices_of(case.levels)]
    found = {method.name: (case.errors(method.run(Draws(case, seed), TOTAL)), "-") for method in methods}
    options = candidates(case.levels, candidate_epsilon(case))
    selection = noisy_min_selection(case, options, SeededNoise(seed), epsilon=CHOOSING)
    if selection.epsilon != TOTAL:
        raise AssertionError(f"the selection costs {selection.epsilon}, not {TOTAL}")
    return {**found, SELECTED: (case.errors(selection.histograms), selection.candidate.name)}


def totals_of(runs: Runs[Case, Found]) -> dict[str, Mean]:
    """Return the mean error of each method and of the selection, summed over all regions."""
    tree = runs.case.hierarchy
    regions = [len(tree.level_range(level)) for level in range(tree.levels)]
    return {
        name: Mean.of([sum(e * n for e, n in zip(found[name][0], regions, strict=True)) for found in runs.found])
        for name in runs.found[0]
    }


def rows_of(runs: Runs[Case, Found], totals: Mapping[str, Mean]) -> list[Record]:
    """Return a row a method and one of the selection; the last cell is the price: the error over the best method's."""
    best = min(mean.value for name, mean in totals.items() if name != SELECTED)
    rows = []
    for name, mean in totals.items():
        names = Counter(found[name][1] for found in runs.found)
        chosen = ", ".join(f"{choice} ({count})" for choice, count in names.most_common())
        spent = candidate_epsilon(runs.case) if name == SELECTED else TOTAL
        rows.append(
            {
                "data": runs.case.name,
                "method": name,
                "total epsilon": float(TOTAL),
                "epsilon a candidate": float(spent),
                "chosen": chosen if name == SELECTED else "-",
                **mean.cells("measured, all regions"),
                "runs": mean.runs,
                "times the best method": mean.value / best,
            }
        )
    return rows


def plan(data: Path | None, small: bool) -> list[tuple[Case, Sequence[int]]]:
    """Return data where Hg wins (housing at 1/100), where Hc does (Taxi), and where levels differ (Hawaii)."""
    if small:
        return seeded((top(case, 2) for case in small_cases(200)[:2]), SMALL_SEEDS)
    sparse = Case.of("Synthetic, 1/100", housing(census_households(data), SEED, scale=0.01), LARGEST_OUTLIER)
    return seeded([top(sparse, 2), taxi_case(data, TAXI_MAX_SIZE), hawaii_case(data)], SEEDS)


def report(results: Sequence[Runs[Case, Found]], path: Path) -> Report:
    """Return what is chosen and its price, and the same errors level by level."""
    rows, by_level, panels = list[Record](), list[Record](), {}
    for runs in results:
        totals, key = totals_of(runs), {"data": runs.case.name}
        rows += rows_of(runs, totals)
        for name in totals:
            means = means_of(found[name][0] for found in runs.found)
            by_level += [{**key, "method": name, "level": level, **mean.cells()} for level, mean in enumerate(means)]
        series = {"measured": tuple(mean.value for mean in totals.values())}
        errors = {"measured": tuple(mean.standard_error for mean in totals.values())}
        panels[runs.case.name] = Panel(tuple(totals), series, errors)
    notes = (
        SEEDED,
        BARS,
        f"Every row spends {TOTAL} in all. Selection: {CHOOSING} for choosing by the sum of all regions' distances, "
        "the rest for the four candidates.",
        "The paper's account (every candidate at full epsilon, a little for choosing) would cost 4.1 in all here.",
    )
    tables = {
        "": Table.of("Selection: what is chosen and its price (entities, summed over all regions)", rows, notes),
        "_levels": Table.of("Selection: mean earth mover's distance a region by level", by_level, (SEEDED, BARS)),
    }
    figures = comparison(path, panels, "distance summed over all regions (entities)", log=True)
    return Report(tables, figures, statements=claims(results))


def claims(results: Sequence[Runs[Case, Found]]) -> list[Statement]:
    """Return what section 6.2 says of algorithm selection."""
    best, price = {}, {}
    for runs in results:
        totals = totals_of(runs)
        best[runs.case.name] = min((name for name in totals if name != SELECTED), key=lambda name: totals[name].value)
        price[runs.case.name] = totals[SELECTED].value / totals[best[runs.case.name]].value
    return [
        Statement(
            "section 6.2, Algorithm selection",
            "which combination errs least depends on the data",
            "; ".join(f"{name}: {method}" for name, method in best.items()),
            len(set(best.values())) > 1,
            "" if len(set(best.values())) > 1 else "the data are alike",
        ),
        Statement(
            "section 6.2, Algorithm selection",
            "running every combination and paying a little for the choice gives the best method's result",
            "times the error of the best method with the whole budget: "
            + ", ".join(f"{name} {ratio:.3g}" for name, ratio in price.items()),
            None,
            "the paper counts one candidate's budget; all candidates read the same data, so all are paid for here",
        ),
    ]


SELECTION = Study("kuo2018/selection", plan, measure, report)
