"""Cases by ways from a budget to a table, on paired seeds: what the experiments beyond the papers share.

Ways that ask the same queries at the same epsilon read the same noise, seed by seed.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from time import process_time

import numpy as np

from coco_experiments.beyond.queries import EPSILON, GROWTH, QueryPlan, cells, leaves_only
from coco_experiments.beyond.stored_results import StoredResults
from coco_experiments.kuo2018.cases import Case, hawaii_case, small_cases, taxi_case, top
from coco_experiments.kuo2018.draws import Levels, errors_by_level
from coco_experiments.kuo2018.joint import TAXI_MAX_SIZE
from coco_experiments.kuo2018.sweep import BARS, SEEDED, level_figure, means_of
from coco_experiments.outcome import Cell, Outcome, Reporter, Table, publish
from coco_experiments.statistics import Mean
from coco_opt.choices import SolverChoices
from coco_opt.groups.estimating.estimate import GroupsResult, estimate_groups
from coco_opt.groups.estimating.method import Consistency, GroupsMethod
from coco_opt.groups.estimating.nearest import integer_histograms
from coco_opt.groups.estimating.posterior.consistent import draws_sparse, integer_estimate, seed_of
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


@dataclass(frozen=True, slots=True)
class Finding:
    """One seed's table: errors by level, processor seconds, the regions that are not their children's sum."""

    errors: list[float]
    seconds: float
    broken: list[str]
    converged: bool

    @classmethod
    def of(cls, case: Case, histograms: Sequence[CountOfCounts], seconds: float, *, converged: bool = True) -> Finding:
        """Return what a released table of a case is worth."""
        return cls(list(errors_by_level(case, histograms)), seconds, _broken(case, histograms), converged)


def _broken(case: Case, histograms: Sequence[CountOfCounts]) -> list[str]:
    """Return the regions that are not their children's sum."""
    tree = case.hierarchy
    return [
        str(tree.paths[region])
        for region in range(tree.regions)
        if len(tree.children(region))
        and not histograms[region].equals(CountOfCounts.total(histograms[c] for c in tree.children(region)))
    ]


@dataclass(frozen=True, eq=False, slots=True)
class Result:
    """One way on one case: what was found under every seed."""

    case: Case
    way: Way
    findings: list[Finding] = field(default_factory=list)

    @property
    def errors(self) -> list[Levels]:
        """Return the errors by level of every seed."""
        return [tuple(finding.errors) for finding in self.findings]

    @property
    def means(self) -> tuple[Mean, ...]:
        """Return the mean error of each level."""
        return means_of(self.errors)

    @property
    def seconds(self) -> float:
        """Return the mean processor seconds of a seed."""
        return float(np.mean([finding.seconds for finding in self.findings]))

    @property
    def failures(self) -> list[str]:
        """Return a line for every region of every seed that is not its children's sum."""
        name = f"{self.case.name}, {self.way.name}"
        return [f"{name}: {path} is not its children's sum" for finding in self.findings for path in finding.broken]


def hawaii_to_tracts(folder: Path | None) -> Case:
    """Return Hawaii's state, counties and tracts by native Hawaiians a block: what several settings can afford."""
    return replace(top(hawaii_case(folder), 3), name="Hawaii to tracts")


def measured_cases(
    data: Path | None, taxi: tuple[float, ...] = (0.0,) * 3, *, small: bool
) -> list[tuple[Case, tuple[float, ...]]]:
    """Return a study's cases and how buckets grow in them, root first, Taxi's as stated; small: simulated data."""
    if small:
        return [(small_cases(30)[2], GROWTH[-3:])]
    return [(hawaii_to_tracts(data), GROWTH[:3]), (taxi_case(data, TAXI_MAX_SIZE), taxi)]


def usual_ways(case: Case, epsilon: Fraction = EPSILON, setting: str = "") -> list[Way]:
    """Return what other methods make of single cells: Algorithm 1, joint estimation, and bottom-up."""
    return [
        Way(MATCHING, "matching", cells(case), epsilon, setting),
        Way(JOINT, "joint", cells(case), epsilon, setting),
        Way(BOTTOM_UP, "bottom_up", leaves_only(case), epsilon, setting),
    ]


def study(
    name: str, case: Case, ways: Sequence[Way], seeds: Sequence[int], reporter: Reporter, stored: StoredResults
) -> list[Result]:
    """Return what every way makes of one case under each seed; what is kept already is not found again."""
    results, data = [Result(case, way) for way in ways], _named(case)
    for done, seed in enumerate(seeds, 1):
        noisy: dict[tuple[str, Fraction], Measurement] = {}
        for result in results:
            way = result.way
            queries = way.queries.resolved_key(case, seed, way.epsilon)
            key = f"{data}, {queries}, {_way_name(way)}, seed {seed}"
            if key not in stored:
                setting = queries, way.epsilon
                if setting not in noisy:
                    noisy[setting] = way.queries.measured(case, seed, way.epsilon)
                stored[key] = asdict(_finding(case, noisy[setting], way))
            finding = Finding(**stored[key])
            result.findings.append(finding)
            if not finding.converged:
                reporter.note(f"{case.name}, {way.name} {way.setting}, seed {seed}: the chains did not converge")
        reporter.progress(f"{name} {case.name}", done, len(seeds))
    return results


def stored_results_of(out: Path) -> StoredResults:
    """Return what the studies that write to a folder found so far: several ask for the same."""
    return StoredResults(out / "beyond_found.json")


def _named(case: Case) -> str:
    """Return a name of a case's data."""
    truth = hashlib.sha256()
    for histogram in case.truth:
        truth.update(histogram.sizes.tobytes())
        truth.update(histogram.counts.tobytes())
    return f"{case.name} {truth.hexdigest()[:16]}, K {case.max_size}"


def _way_name(way: Way) -> str:
    """Return a name of how a way estimates."""
    quick = ", brief" if way.quick and way.consistency == "posterior" else ""
    return f"epsilon {way.epsilon}, {way.consistency}{quick}"


def _finding(case: Case, noisy: Measurement, way: Way) -> Finding:
    if way.quick and way.consistency == "posterior":
        start = process_time()
        return Finding(list(errors_by_level(case, _brief(noisy))), process_time() - start, [], converged=True)
    result, seconds = estimated(noisy, way.consistency)
    converged = result.convergence is None or result.convergence.converged
    return Finding.of(case, result.histograms, seconds, converged=converged)


def _brief(noisy: Measurement) -> Sequence[CountOfCounts]:
    """Return the posterior's histograms of few draws: of its medians, or consistent ones where draws are sparse."""
    survey = survey_of(GroupsMeasurements(noisy))
    if draws_sparse(survey):
        return integer_estimate(noisy, SolverChoices(), options=BRIEF).histograms
    drawn = sample_posterior(survey, seed_of(noisy), options=BRIEF)
    # Values outside the windows count at their ends, so that medians of few draws can decrease.
    rising = np.maximum.accumulate(drawn.quantile(1, 2), axis=1)
    return integer_histograms(np.minimum(rising, survey.groups[:, None]), survey.groups)


def estimated(
    noisy: Measurement, consistency: Consistency, also: Sequence[Measurement] = ()
) -> tuple[GroupsResult, float]:
    """Return a method's tables, and the seconds of processor time that they took."""
    start = process_time()
    method = GroupsMethod("l1", consistency=consistency)
    result = estimate_groups(noisy, method, SolverChoices(), threads=os.cpu_count() or 1, also=also)
    return result, process_time() - start


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
    rows: list[tuple[Cell, ...]] = []
    reference_result = reference_of(results, reference)
    for result in results:
        theirs = np.array(reference_result(result).errors)
        differences = means_of([tuple(row) for row in np.array(result.errors) - theirs])
        moves = (result.way.setting,) if setting else ()
        for level, (mean, difference) in enumerate(zip(result.means, differences, strict=True)):
            quotient = mean.value / float(theirs[:, level].mean()) if theirs[:, level].any() else None
            key = result.case.name, result.case.max_size, *moves, result.way.name, level
            rows.append((*key, mean.value, mean.standard_error, mean.runs, quotient, difference.signed))
    moving = (setting,) if setting else ()
    measured = ("measured", "standard error", "runs", f"times {reference}", f"against {reference}, paired")
    columns = "data", "K", *moving, "method", "level", *measured
    return Table(f"{title}: mean distance (entities) a region", columns, tuple(rows), (SEEDED, BARS, *notes))


def seconds_table(results: Sequence[Result], setting: str = "") -> Table:
    """Return the mean seconds of processor time a run, noise left out."""
    moving = (setting,) if setting else ()
    rows = [
        (result.case.name, *((result.way.setting,) if setting else ()), result.way.name, result.seconds)
        for result in results
    ]
    note = "Of all threads together; the first run of all compiles."
    return Table("Processor seconds a run", ("data", *moving, "method", "seconds"), tuple(rows), (note,))


def finish(
    name: str,
    out: Path,
    tables: Mapping[str, Table],
    results: Sequence[Result],
    figures: Sequence[Path],
    reporter: Reporter,
) -> Outcome:
    """Show and write tables, each under the experiment's name and its own ending; every table must add up."""
    failures = [line for result in results for line in result.failures]
    return publish(name, tables, out, reporter, files=figures, failures=failures)


def bars(path: Path, results: Sequence[Result]) -> list[Path]:
    """Draw the errors of all ways, a panel a case; return the files."""
    means: dict[str, dict[str, tuple[Mean, ...]]] = {}
    for result in results:
        means.setdefault(result.case.name, {})[result.way.name] = result.means
    return level_figure(path, means)


@dataclass(frozen=True, slots=True)
class Study:
    """A declared experiment: cases with their ways, seeds, the table of errors against a reference, and a figure.

    ``settings`` are of the real data or, small, of simulated ones, which get the first seed and few draws. ``setting``
    names what moves between ways of one name. ``tables`` are further ones by the ending of their file.
    """

    name: str
    title: str
    settings: Callable[[Path | None, bool], Sequence[tuple[Case, Sequence[Way]]]]
    reference: str = MATCHING
    setting: str = ""
    notes: tuple[str, ...] = ()
    seeds: tuple[int, ...] = (2018,)
    tables: Callable[[Sequence[Result]], Mapping[str, Table]] = lambda _: {}
    figure: Callable[[Path, Sequence[Result]], Sequence[Path]] = bars

    def run(self, *, small: bool, out: Path, reporter: Reporter, data: Path | None = None) -> Outcome:
        """Measure, print and write the tables as CSV and the figure as PNG and PDF; results are stored in ``out``."""
        results: list[Result] = []
        stored = stored_results_of(out)
        for case, ways in self.settings(data, small):
            shown = [replace(way, quick=True) for way in ways] if small else ways
            results += study(self.name, case, shown, self.seeds[:1] if small else self.seeds, reporter, stored)
        errors = error_table(self.title, results, self.reference, self.setting, self.notes)
        tables = {"": errors, **self.tables(results)}
        return finish(self.name, out, tables, results, self.figure(out / self.name, results), reporter)
