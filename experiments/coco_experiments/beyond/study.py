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

from coco_experiments.beyond.queries import EPSILON, GROWTH, QueryPlan, cells, leaves_only
from coco_experiments.groups import BARS, SEEDED, Case, Levels, level_figure, means_of
from coco_experiments.kuo2018.cases import TAXI_MAX_SIZE, hawaii_case, small_cases, taxi_case, top
from coco_experiments.outcome import Record, Table
from coco_experiments.statistics import Mean
from coco_experiments.study import Report, Runs, Study
from coco_opt.choices import SolverChoices
from coco_opt.groups.estimating.estimate import estimate_groups
from coco_opt.groups.estimating.method import Consistency, GroupsMethod
from coco_opt.groups.estimating.nearest import integer_histograms
from coco_opt.groups.estimating.posterior.consistent import draws_sparse, posterior_estimate, seed_of
from coco_opt.groups.estimating.posterior.observations import survey_of
from coco_opt.groups.estimating.posterior.sampler import SamplerOptions, sample_posterior
from coco_opt.groups.noisy_measurements import GroupsMeasurements
from coco_opt.histograms import CountOfCounts
from coco_opt.privacy import Measurement

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
    return integer_histograms(np.minimum(rising, survey.groups[:, None]), survey.groups)


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
