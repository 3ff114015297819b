"""Cases by ways from a budget to a table, on paired seeds: what the experiments beyond the papers share.

Ways that ask the same queries at the same epsilon read the same noise, seed by seed. Findings are stored by what was
measured and how, so that studies share them.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

from coco_experiments.groups import BARS, SEEDED, Case, Levels, level_figure, means_of, split_evenly
from coco_experiments.kuo2018.cases import TAXI_MAX_SIZE, hawaii_case, small_cases, taxi_case, top
from coco_experiments.outcome import Record, Table
from coco_experiments.statistics import Mean
from coco_experiments.study import Report, Runs, Study
from coco_opt.choices import SolverChoices
from coco_opt.groups.estimating.estimate import estimate_groups
from coco_opt.groups.estimating.method import Consistency, GroupsMethod
from coco_opt.groups.estimating.posterior.consistent import draws_sparse, posterior_estimate, seed_of
from coco_opt.groups.estimating.posterior.observations import survey_of
from coco_opt.groups.estimating.posterior.sampler import SamplerOptions, sample_posterior
from coco_opt.groups.measuring.automatic import QuerySearch, assumed_distributions
from coco_opt.groups.measuring.predicted import Regions
from coco_opt.groups.noisy_measurements import GroupsMeasurements
from coco_opt.groups.queries import sensitivity
from coco_opt.histograms import CountOfCounts, histograms_of
from coco_opt.privacy import Epsilon, Measurement, Neighbours
from coco_opt.privacy.planner import NoisePlan

EPSILON = Fraction(1)
NEIGHBOURS: Neighbours = "add_remove"
_READ = "posterior, "
CELLS = _READ + "cells"
BUCKETS = _READ + "buckets"
LEAVES = "cells of the leaves"
PLANNED = _READ + "planner's buckets"
GROWTH = (0.05, 0.1, 0.3, 0.5)  # of Hawaii's levels, root first
TOWARDS_LEAVES = tuple(Fraction(share) for share in ("1/20", "1/20", "1/10", "4/5"))


@dataclass(frozen=True, slots=True)
class QueryPlan:
    """Buckets by growth (0: cells) and the split, one a level, root first."""

    name: str
    growth: tuple[float, ...]
    split: tuple[Fraction, ...]

    @property
    def key(self) -> str:
        """What the stored results of these queries are found by."""
        growth, split = ("/".join(map(str, numbers)) for numbers in (self.growth, self.split))
        return f"growth {growth}, split {split}"

    def resolved_key(self, case: Case, seed: int, epsilon: Fraction) -> str:
        """Return what the stored results of one seed are found by; queries that are chosen depend on the data."""
        del case, seed, epsilon
        return self.key

    @property
    def words(self) -> str:
        """What is asked, without the posterior."""
        return self.name.removeprefix(_READ)

    def measured(self, case: Case, seed: int, epsilon: Fraction = EPSILON) -> Measurement:
        """Return the noisy measurements under a seed, for a total epsilon; NOT PRIVATE."""
        return case.measured(seed, [Epsilon(epsilon * share) for share in self.split], growth=self.growth)


def cells(case: Case) -> QueryPlan:
    """Return every cell of every level, even split."""
    return QueryPlan(CELLS, (0.0,) * case.levels, split_evenly(Fraction(1), case.levels))


def leaves_only(case: Case) -> QueryPlan:
    """Return every cell of the leaves, with the whole budget."""
    return QueryPlan(LEAVES, (0.0,) * case.levels, (Fraction(0),) * (case.levels - 1) + (Fraction(1),))


def grown(case: Case, growth: tuple[float, ...]) -> list[QueryPlan]:
    """Return buckets of a given growth by the even split, and by one that leaves most to the leaves."""
    leaves = TOWARDS_LEAVES[-case.levels :]
    leaves = tuple(share / sum(leaves) for share in leaves)
    words = "(" + ", ".join(f"{float(share):.3g}" for share in leaves) + ")"
    even = split_evenly(Fraction(1), case.levels)
    return [
        QueryPlan(BUCKETS, growth, even),
        QueryPlan(f"{BUCKETS}, split {words}", growth, leaves),
    ]


def search_of(case: Case, epsilon: Fraction, weights: Sequence[float] = ()) -> QuerySearch:
    """Return the search for what is measured with a budget: regions, numbers of groups and K.

    ``weights`` are those of the levels' errors in the aim, by default the same for all.
    """
    counts = np.asarray(case.counts.group_counts, np.int64)
    noise = NoisePlan(Epsilon(epsilon), (sensitivity("cumulative", NEIGHBOURS),) * case.levels)
    aim = np.array(weights or (1.0 / case.levels,) * case.levels)
    return QuerySearch(Regions.of(case.hierarchy, counts), case.max_size, noise, aim)


def planned(case: Case, epsilon: Fraction = EPSILON) -> QueryPlan:
    """Return what is chosen from public numbers alone, without a look."""
    choice = search_of(case, epsilon).choose(assumed_distributions(case.max_size))
    return QueryPlan(PLANNED, choice.growths, choice.shares)


BRIEF = SamplerOptions(
    chains=1, burn_in=40, most_burn_in=80, settle=10, draws=25, thin=1, least_rounds=1, most_rounds=1
)
"""A tenth of the sampler's usual work."""

MATCHING, JOINT, BOTTOM_UP = "matching, cells", "joint, cells", "bottom-up"
Finding = dict[str, Any]
"""One seed's table: errors by level, processor seconds, regions that are not their children's sum, convergence."""


@dataclass(frozen=True, slots=True)
class Way:
    """A way from a budget to a table: what is asked, how it is estimated, the total epsilon; ``setting`` what moves.

    With ``quick`` the posterior takes few draws, as many for all, and no convergence is asked for. Where all cells are
    counted in the draws its table is that of their medians, which takes half as long: regions need not add up.
    """

    name: str
    consistency: Consistency
    queries: QueryPlan
    epsilon: Fraction = EPSILON
    setting: str = ""
    quick: bool = False

    @property
    def brief(self) -> bool:
        """Return whether the posterior takes few draws."""
        return self.quick and self.consistency == "posterior"


@dataclass(frozen=True, eq=False, slots=True)
class Result:
    """One way on one case: what was found under every seed."""

    case: Case
    way: Way
    findings: Sequence[Finding] = ()

    @property
    def errors(self) -> list[Levels]:
        """Return the errors by level of every seed."""
        return [tuple(finding["errors"]) for finding in self.findings]

    @property
    def means(self) -> tuple[Mean, ...]:
        """Return the mean error of each level."""
        return means_of(self.errors)

    @property
    def words(self) -> str:
        """Return case, way and setting."""
        return f"{self.case.name}, {self.way.name} {self.way.setting}".strip()

    def less(self, other: Result) -> tuple[Mean, ...]:
        """Return the mean of the differences from another's errors on the same seeds, level by level."""
        pairs = zip(self.errors, other.errors, strict=False)  # of a run that was stopped one may have a seed more
        return means_of([tuple(a - b for a, b in zip(own, theirs, strict=True)) for own, theirs in pairs])


def key(result: Result, seed: int) -> str:
    """Return what one seed's finding is stored by: the data, what is measured and how it is estimated."""
    case, way, truth = result.case, result.way, hashlib.sha256()
    for histogram in case.truth:
        truth.update(histogram.sizes.tobytes())
        truth.update(histogram.counts.tobytes())
    data = f"{case.name} {truth.hexdigest()[:16]}, K {case.max_size}"
    queries = way.queries.resolved_key(case, seed, way.epsilon)
    return f"{data}, {queries}, epsilon {way.epsilon}, {way.consistency}{', brief' * way.brief}, seed {seed}"


def measure(result: Result, seed: int) -> Finding:
    """Return what a way makes of one seed's noise."""
    case, way, converged = result.case, result.way, True
    noisy, start = way.queries.measured(case, seed, way.epsilon), process_time()
    if way.brief:
        histograms = _brief(noisy)
    else:
        method = GroupsMethod("l1", consistency=way.consistency)
        estimate = estimate_groups(noisy, method, SolverChoices(), threads=os.cpu_count() or 1)
        histograms = estimate.histograms
        converged = estimate.convergence is None or estimate.convergence.converged
    broken = [] if way.brief else _broken(case, histograms)
    seconds = process_time() - start
    return {"errors": case.errors(histograms), "seconds": seconds, "broken": broken, "converged": converged}


def _broken(case: Case, histograms: Sequence[CountOfCounts]) -> list[str]:
    """Return the regions that are not their children's sum."""
    tree = case.hierarchy
    return [
        str(tree.paths[region])
        for region in range(tree.regions)
        if len(tree.children(region))
        and not histograms[region].equals(CountOfCounts.total(histograms[c] for c in tree.children(region)))
    ]


def _brief(noisy: Measurement) -> Sequence[CountOfCounts]:
    """Return the posterior's histograms of few draws: of its medians, or consistent ones where draws are sparse."""
    survey = survey_of(GroupsMeasurements(noisy))
    if draws_sparse(survey):
        return posterior_estimate(noisy, SolverChoices(), options=BRIEF).histograms
    drawn = sample_posterior(survey, seed_of(noisy), options=BRIEF)
    # Values outside the windows count at their ends, so that medians of few draws can decrease.
    rising = np.maximum.accumulate(drawn.quantile(1, 2), axis=1)
    return histograms_of(np.minimum(rising, survey.groups[:, None]), survey.groups)


def measured_cases(
    data: Path | None, taxi: tuple[float, ...] = (0.0,) * 3, *, small: bool
) -> list[tuple[Case, tuple[float, ...]]]:
    """Return a study's cases and how buckets grow in them, root first, Taxi's as stated; small: simulated data."""
    if small:
        return [(small_cases(30)[2], GROWTH[-3:])]
    return [(hawaii_to_tracts(data), GROWTH[:3]), (taxi_case(data, TAXI_MAX_SIZE), taxi)]


def hawaii_to_tracts(folder: Path | None) -> Case:
    """Return Hawaii's state, counties and tracts by native Hawaiians a block: what several settings can afford."""
    return replace(top(hawaii_case(folder), 3), name="Hawaii to tracts")


def usual_ways(case: Case, epsilon: Fraction = EPSILON, setting: str = "") -> list[Way]:
    """Return what other methods make of single cells: Algorithm 1, joint estimation, and bottom-up."""
    return [
        Way(MATCHING, "matching", cells(case), epsilon, setting),
        Way(JOINT, "joint", cells(case), epsilon, setting),
        Way(BOTTOM_UP, "bottom_up", leaves_only(case), epsilon, setting),
    ]


def reference_of(results: Sequence[Result], name: str) -> Callable[[Result], Result]:
    """Return which result another is compared with: that of ``name`` on its case, in its setting where there is one."""

    def of(result: Result) -> Result:
        same = [candidate for candidate in results if candidate.case is result.case and candidate.way.name == name]
        return next((candidate for candidate in same if candidate.way.setting == result.way.setting), same[0])

    return of


def error_table(
    title: str, results: Sequence[Result], reference: str, setting: str = "", notes: Sequence[str] = ()
) -> Table:
    """Return one row a case, setting, way and level, with the quotient and the paired difference to a reference."""
    rows: list[Record] = []
    reference_result = reference_of(results, reference)
    for result in results:
        other = reference_result(result)
        of_level = zip(result.means, other.means, result.less(other), strict=True)
        for level, (mean, theirs, difference) in enumerate(of_level):
            rows.append(
                {
                    "data": result.case.name,
                    "K": result.case.max_size,
                    **({setting: result.way.setting} if setting else {}),
                    "method": result.way.name,
                    "level": level,
                    **mean.cells(),
                    "runs": mean.runs,
                    f"times {reference}": mean.value / theirs.value if theirs.value else None,
                    f"against {reference}, paired": difference.signed,
                }
            )
    return Table.of(f"{title}: mean distance (entities) a region", rows, (SEEDED, BARS, *notes))


def seconds_table(results: Sequence[Result], setting: str = "") -> Table:
    """Return the mean seconds of processor time a run, noise left out."""
    rows: list[Record] = []
    for result in results:
        moves = {setting: result.way.setting} if setting else {}
        seconds = float(np.mean([finding["seconds"] for finding in result.findings]))
        rows.append({"data": result.case.name, **moves, "method": result.way.name, "seconds": seconds})
    return Table.of("Processor seconds a run", rows, ("Of all threads together; the first run of all compiles.",))


def bars(path: Path, results: Sequence[Result]) -> list[Path]:
    """Draw the errors of all ways, a panel a case; return the files."""
    means: dict[str, dict[str, tuple[Mean, ...]]] = {}
    for result in results:
        means.setdefault(result.case.name, {})[result.way.name] = result.means
    return level_figure(path, means)


Settings = Callable[[Path | None, bool], Sequence[tuple[Case, Sequence[Way]]]]


def study(
    name: str,
    title: str,
    settings: Settings,
    reference: str = MATCHING,
    setting: str = "",
    notes: Sequence[str] = (),
    seeds: Sequence[int] = (2018,),
    tables: Callable[[Sequence[Result]], Mapping[str, Table]] = lambda _: {},
    figure: Callable[[Path, Sequence[Result]], Sequence[Path]] = bars,
    minutes: float = float("inf"),
) -> Study[Result, Finding]:
    """Return the study of cases with their ways: a table of errors against a reference, further ones, and a figure.

    ``settings`` are of the real data or, small, of simulated ones, which get the first seed and few draws. ``setting``
    names what moves between ways of one name. ``tables`` are further ones by the ending of their file. Every table
    must add up.
    """

    def plan(data: Path | None, small: bool) -> list[tuple[Result, Sequence[int]]]:
        return [
            (Result(case, replace(way, quick=True) if small else way), seeds[: 1 if small else None])
            for case, ways in settings(data, small)
            for way in ways
        ]

    def report(runs: Sequence[Runs[Result, Finding]], path: Path) -> Report:
        results = [replace(of_way.case, findings=of_way.found) for of_way in runs]
        errors = error_table(title, results, reference, setting, notes)
        slow = (f"{r.words}: the chains did not converge" for r in results for f in r.findings if not f["converged"])
        broken = (
            f"{r.words}: {name} is not its children's sum" for r in results for f in r.findings for name in f["broken"]
        )
        return Report({"": errors, **tables(results)}, figure(path, results), broken, notes=slow)

    return Study(name, plan, measure, report, key=key, store="beyond/found", minutes=minutes)
