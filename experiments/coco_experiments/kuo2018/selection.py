"""Choosing a method by its noisy error: what is chosen where Hg wins and where Hc wins, and the price paid.

The total budget is the same for every row. Without choosing, one method gets all of it; the rule of Chaudhuri et al.
2011, the paper's advice, runs every candidate and pays for each one. The paper's own account, full epsilon for every
candidate and a very small one for the choice, would be a multiple of the total stated here.

PRIVATE input: the rule reads the case's private histograms to score candidates. Only what it returns (the winner, its
measurement and estimate, what was paid) may be published. Everything is charged in pure epsilon, an exact fraction, for
an entity added or removed; noise is integers from the run's noise source, and scores are exact integers.

The score of a candidate is the sum over all levels of the earth mover's distance between its estimate and the truth.
For a fixed estimate, one entity changes one cell of one region's Hc on a level by one, so each level's distance by at
most 1: the sensitivity is the number of levels. Clamping sizes to K only helps.

``noisy_min_selection`` (Chaudhuri, Monteleoni and Sarwate 2011, as Kuo et al. 2018, section 6.2, advise) runs every
candidate once with its own budget, and the one of the least noisy score wins. Cost: the sum of all budgets plus that of
choosing. The paper's "very small" extra is the latter alone; its candidates share epsilon in parallel.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import cast

from coco_experiments.groups import BARS, SEEDED, Case, Levels, means_of, split_evenly
from coco_experiments.kuo2018.cases import SEED, TAXI_MAX_SIZE, hawaii_case, small_cases, taxi_case, top
from coco_experiments.kuo2018.housing import LARGEST_OUTLIER, census_households, housing
from coco_experiments.kuo2018.methods import Draws, matched, queries_of
from coco_experiments.kuo2018.sweep import SEEDS, SMALL_SEEDS
from coco_experiments.outcome import Record, Statement, Table
from coco_experiments.plots import Panel, comparison
from coco_experiments.statistics import Mean
from coco_experiments.study import Report, Runs, Study, seeded
from coco_opt.choices import SolverChoices
from coco_opt.groups import GroupsMethod
from coco_opt.groups.estimating.estimate import estimate_groups
from coco_opt.groups.measuring.measure import measured, measurement_plan_of
from coco_opt.groups.noisy_measurements import Loss
from coco_opt.groups.queries import Query
from coco_opt.histograms import CountOfCounts, emd
from coco_opt.privacy import Epsilon, Measurement, NoiseSource, NoiseStream, SeededNoise
from coco_opt.privacy.budget import noise_scale, sequential
from coco_opt.privacy.noise import check_scale


@dataclass(frozen=True, slots=True)
class Candidate:
    """A method to choose from: its query and budget at each level, root first, and its post-processing.

    ``epsilons`` are what its measurement costs by level (0: not measured). ``estimate`` turns a measurement into one
    histogram a region with the public numbers of groups. It may draw randomness of its own, but must not read private
    data, nor remember calls: anything stored about runs that lost (certificates, counters, timings) would reveal more
    than the selection has paid for.
    """

    name: str
    queries: tuple[Query, ...]
    epsilons: tuple[Fraction, ...]
    estimate: Callable[[Measurement], Sequence[CountOfCounts]]

    @property
    def epsilon(self) -> Fraction:
        """Return the budget of one run: the sum over the levels."""
        return sequential(self.epsilons)


class _Labelled:
    """A source whose streams carry a label, so candidates with the same query draw their own noise."""

    def __init__(self, source: NoiseSource, label: str) -> None:
        self.name = source.name
        self.private = source.private
        self._source = source
        self._label = label

    def stream(self, scale: Fraction, *, measurement: str, region: str) -> NoiseStream:
        return self._source.stream(scale, measurement=f"{self._label}: {measurement}", region=region)


@dataclass(frozen=True, eq=False, slots=True)
class Selection:
    """What a selection releases: the winner and the ``histograms`` estimated from its measurement.

    ``epsilon`` is the total cost, more than that of the winner's measurement; ``paid`` holds the measurements of every
    candidate, in order.
    """

    candidate: Candidate
    histograms: Sequence[CountOfCounts]
    epsilon: Fraction
    paid: tuple[Measurement, ...]


def score(case: Case, histograms: Sequence[CountOfCounts]) -> int:
    """Return the exact score of an estimate: PRIVATE; a neighbour changes it by at most the number of levels."""
    return sum(emd(estimate, truth) for estimate, truth in zip(histograms, case.truth, strict=True))


def noisy_min_selection(
    case: Case, candidates: Sequence[Candidate], source: NoiseSource, *, epsilon: Fraction
) -> Selection:
    """Run every candidate once and release that of the least noisy score; the case is PRIVATE.

    Scores get double-geometric noise of scale 2 x sensitivity / ``epsilon``; only the winner's place is released, not
    its score. Total: every candidate's budget and ``epsilon``. Raises ProblemError, before any noise is drawn, where
    budgets do not fit the levels. O(sum of the candidates' estimates).
    """
    scale = 2 * noise_scale(case.levels, epsilon)
    check_scale(scale)
    plans = [
        measurement_plan_of(
            case.hierarchy,
            case.counts.group_counts,
            queries=candidate.queries,
            costs=[Epsilon(part) for part in candidate.epsilons],
            max_size=case.max_size,
            neighbours="add_remove",
        )
        for candidate in candidates
    ]
    paid = tuple(
        measured(plan, case.truth, cast("NoiseSource", _Labelled(source, f"candidate {place}")))
        for place, plan in enumerate(plans)
    )
    estimates = [candidate.estimate(answers) for candidate, answers in zip(candidates, paid, strict=True)]
    stream = source.stream(scale, measurement="selection of a candidate", region=case.hierarchy.paths[0])
    best = noisy_min([score(case, histograms) for histograms in estimates], stream)
    total = sequential([*(candidate.epsilon for candidate in candidates), epsilon])
    return Selection(candidates[best], estimates[best], total, paid)


def noisy_min(scores: Sequence[int], stream: NoiseStream) -> int:
    """Return the place of the least score after adding one noise to each; the first of equal ones.

    With integer scores of sensitivity D and double-geometric noise of scale 2 D / epsilon the place is epsilon-private:
    whatever the other noises are, a place wins when its own noise is at most some integer, which a neighbour moves by
    at most 2 D, and the distribution's probability of that changes by a factor of at most exp(2 D / scale). Equal noisy
    scores, which integer noise makes common, are covered: the fixed order only shifts that integer by one.
    """
    noisy = [score + int(noise) for score, noise in zip(scores, stream.draw(len(scores)), strict=True)]
    return noisy.index(min(noisy))


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
