"""Choosing a method by its noisy error: what is chosen where Hg wins and where Hc wins, and the price paid.

The total budget is the same for every row. Without choosing, one method gets all of it; the first rule (Chaudhuri et
al. 2011, the paper's advice) runs every candidate and pays for each one; the second (Liu and Talwar 2019) costs three
runs, however many candidates there are. The paper's own account, full epsilon for every candidate and a very small one
for the choice, would be a multiple of the total stated here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from coco_experiments.kuo2018.cases import SEED, Case, hawaii_case, small_cases, taxi_case, top
from coco_experiments.kuo2018.draws import Draws, Levels, errors_by_level, split_evenly
from coco_experiments.kuo2018.housing import LARGEST_OUTLIER, census_households, housing
from coco_experiments.kuo2018.methods import Method, matched, queries_of
from coco_experiments.kuo2018.private_selection import (
    Candidate,
    PrivateGroups,
    Selection,
    noisy_min_selection,
    random_stopping_selection,
)
from coco_experiments.kuo2018.sweep import BARS, SEEDED, SEEDS, SMALL_SEEDS, means_of
from coco_experiments.outcome import Cell, Outcome, Reporter, Table, write_csv
from coco_experiments.plots import Panel, comparison
from coco_experiments.statistics import Mean
from coco_opt.groups import GroupsMethod
from coco_opt.groups.noisy_measurements import Loss
from coco_opt.privacy import SeededNoise

NAME = "kuo2018/selection"
TOTAL = Fraction(1)
CHOOSING = Fraction(1, 10)  # of the total, for the choice alone
RUNS_SCALE = Fraction(10)  # about ten runs under random stopping
NOISY_MIN, RANDOM_STOPPING = "selected: noisy minimum", "selected: random stopping"
COLUMNS = (
    "data",
    "method",
    "total epsilon",
    "epsilon a candidate",
    "chosen",
    "measured, all regions",
    "standard error",
    "runs",
    "times the best method",
)


@dataclass(frozen=True, slots=True)
class Result:
    """A row: errors by level, the choices made, and the budget of one candidate's run."""

    case: str
    method: str
    candidate_epsilon: Fraction
    chosen: str
    means: tuple[Mean, ...]
    total: Mean


def choices_of(levels: int) -> list[tuple[str, ...]]:
    """Return the candidates: one estimator on all levels, or another estimator on the leaves or at the root."""
    return [("Hc",) * levels, ("Hg",) * levels, ("Hc",) * (levels - 1) + ("Hg",), ("Hg",) + ("Hc",) * (levels - 1)]


def candidates(levels: int, epsilon: Fraction) -> list[Candidate]:
    """Return the candidates, ``epsilon`` each, split evenly over the levels, matched by variance."""
    losses: dict[str, Loss] = {"Hc": "l1", "Hg": "l2"}
    options = []
    for choice in choices_of(levels):
        method = GroupsMethod(tuple(losses[name] for name in choice), consistency="matching")
        split = split_evenly(epsilon, levels)
        options.append(Candidate.of_method(" x ".join(choice), method, queries_of(choice), split))
    return options


def candidate_epsilon(rule: str, count: int) -> Fraction:
    """Return one candidate's budget such that the rule's price is the total, ``CHOOSING`` of it for the choice."""
    return (TOTAL - CHOOSING) / (3 if rule == RANDOM_STOPPING else count)


def select(case: Case, rule: str, seed: int) -> Selection:
    """Run one selection at the total budget; the price is accounted by the library."""
    count = len(choices_of(case.levels))
    options = candidates(case.levels, candidate_epsilon(rule, count))
    source = SeededNoise(seed)
    data = PrivateGroups(case.hierarchy, case.truth, case.counts.group_counts, case.max_size, "add_remove", source)
    if rule == NOISY_MIN:
        return noisy_min_selection(data, options, epsilon=CHOOSING)
    return random_stopping_selection(data, options, epsilon=CHOOSING / 3, scale=RUNS_SCALE)


def _all_regions(case: Case, levels: Levels) -> float:
    return sum(error * len(case.hierarchy.level_range(level)) for level, error in enumerate(levels))


def _result(case: Case, method: str, epsilon: Fraction, chosen: str, runs: Sequence[Levels]) -> Result:
    total = Mean.of([_all_regions(case, levels) for levels in runs])
    return Result(case.name, method, epsilon, chosen, means_of(runs), total)


def fixed_method(case: Case, method: Method, seeds: Sequence[int]) -> Result:
    """Return a method's error with the whole budget, had it been known to be the right one."""
    runs = [errors_by_level(case, method.run(Draws(case, seed), TOTAL)) for seed in seeds]
    return _result(case, method.name, TOTAL, "-", runs)


def selected(case: Case, rule: str, seeds: Sequence[int], advance: Callable[[], None]) -> Result:
    """Return the error of what a rule chose, and how often it chose what."""
    runs, names = [], Counter[str]()
    for seed in seeds:
        selection = select(case, rule, seed)
        if selection.epsilon != TOTAL:
            raise AssertionError(f"{rule} costs {selection.epsilon}, not {TOTAL}")
        runs.append(errors_by_level(case, selection.histograms))
        names[selection.candidate.name] += 1
        advance()
    chosen = ", ".join(f"{name} ({count})" for name, count in names.most_common())
    return _result(case, rule, candidate_epsilon(rule, len(choices_of(case.levels))), chosen, runs)


def results_of(case: Case, seeds: Sequence[int], reporter: Reporter) -> list[Result]:
    """Return one result a method known beforehand, then one a rule."""
    results = [fixed_method(case, matched(choice), seeds) for choice in choices_of(case.levels)]
    done = 0

    def advance() -> None:
        nonlocal done
        done += 1
        reporter.progress(f"{NAME} {case.name}", done, 2 * len(seeds))

    return results + [selected(case, rule, seeds, advance) for rule in (NOISY_MIN, RANDOM_STOPPING)]


def table_of(results: Sequence[Result]) -> Table:
    """Return the table; the last column is the price: error over that of the best method with the whole budget."""
    rows: list[tuple[Cell, ...]] = []
    for result in results:
        best = min(r.total.value for r in results if r.case == result.case and r.chosen == "-")
        total = result.total
        rows.append(
            (
                result.case,
                result.method,
                float(TOTAL),
                float(result.candidate_epsilon),
                result.chosen,
                total.value,
                total.standard_error,
                total.runs,
                total.value / best,
            )
        )
    notes = (
        SEEDED,
        BARS,
        f"Every row spends {TOTAL} in all. Selection: {CHOOSING} for choosing by the sum of all regions' distances, "
        "the rest for the candidates (4 runs paid, or 3 under random stopping, of about ten made).",
        "The paper's account (every candidate at full epsilon, a little for choosing) would cost 4.1 in all here.",
    )
    return Table(
        "Selection: what is chosen and its price (entities, summed over all regions)", COLUMNS, tuple(rows), notes
    )


def levels_table(results: Sequence[Result]) -> Table:
    """Return the same errors level by level."""
    rows: list[tuple[Cell, ...]] = [
        (result.case, result.method, level, mean.value, mean.standard_error)
        for result in results
        for level, mean in enumerate(result.means)
    ]
    columns = ("data", "method", "level", "measured", "standard error")
    return Table("Selection: mean earth mover's distance a region by level", columns, tuple(rows), (SEEDED, BARS))


def cases(folder: Path | None, *, small: bool) -> list[Case]:
    """Return data where Hg wins (housing at 1/100), where Hc does (Taxi), and where levels differ (Hawaii)."""
    if small:
        return [top(case, 2) for case in small_cases(200)[:2]]
    sparse = Case.of("Synthetic, 1/100", housing(census_households(folder), SEED, scale=0.01), LARGEST_OUTLIER)
    return [top(sparse, 2), taxi_case(folder, 5_000), hawaii_case(folder)]


def run(*, small: bool, out: Path, reporter: Reporter, data: Path | None = None) -> Outcome:
    """Measure, print and write ``kuo2018/selection`` as CSV, PNG and PDF; small: two seeds on simulated data."""
    seeds = SMALL_SEEDS if small else SEEDS
    results = [result for case in cases(data, small=small) for result in results_of(case, seeds, reporter)]
    table, by_level = table_of(results), levels_table(results)
    reporter.table(table)
    files = [write_csv(out / f"{NAME}.csv", table), write_csv(out / f"{NAME}_levels.csv", by_level)]
    panels = {}
    for case in dict.fromkeys(result.case for result in results):
        own = [result for result in results if result.case == case]
        series = {"measured": tuple(result.total.value for result in own)}
        errors = {"measured": tuple(result.total.standard_error for result in own)}
        panels[case] = Panel(tuple(result.method for result in own), series, errors)
    drawn = comparison(out / NAME, panels, "distance summed over all regions (entities)", log=True)
    return Outcome((table, by_level), (*files, *drawn))
