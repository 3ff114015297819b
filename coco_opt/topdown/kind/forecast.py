"""Predict the accuracy and running time of a release of tables, from public input alone, before anything is spent.

Standard errors of unbiased estimates are exact: they depend on the budget, the regions and public constraints. Errors
of released tables are rehearsed on public records, or a range from simulated persons: how many persons live in a leaf,
and how evenly they lie in the cells, is private. Where counts are small, the released tables err less than the unbiased
estimates, because no count is below zero; where they are large, about as much. So the range begins at the errors of
persons in few cells: few persons, or as many as are stated. It ends at the mean absolute error of a normal number with
the exact standard error of the unbiased estimate; estimations that use less information are rehearsed on many persons
too. Both ends are widened, because the mean over few answers of a single release differs from its expectation.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

from coco_opt.activity import Progress, doing
from coco_opt.array_types import Floats
from coco_opt.errors import ProblemError
from coco_opt.histograms import Hierarchy
from coco_opt.releases.kind import Figures, Forecast, ForecastOptions, Plan, ResourceCost, SimulatedData
from coco_opt.releases.reporter import Reporter, no_progress
from coco_opt.releases.resource_cost import slowness
from coco_opt.releases.solvers import choices_of
from coco_opt.topdown.budget_plan import TablePlan
from coco_opt.topdown.constraint import UNBOUNDED, RegionBounds
from coco_opt.topdown.estimating.estimate import TablesResult
from coco_opt.topdown.estimating.linear.best_linear import LinearEstimates, best_linear
from coco_opt.topdown.estimating.rounding import is_of_cells
from coco_opt.topdown.invariants import Invariants
from coco_opt.topdown.kind.files import MOST_CELLS
from coco_opt.topdown.kind.method import TablesMethod, method_of
from coco_opt.topdown.kind.plan import TablesDetail
from coco_opt.topdown.kind.rehearsal import (
    SimulatedReleases,
    generated_invariants,
    public_choice,
    rehearsed,
    simulated_releases,
)
from coco_opt.topdown.kind.simulated_data import Population, read_simulated_data
from coco_opt.topdown.measuring.counts import TableCounts
from coco_opt.topdown.noisy_measurements import TableMeasurements
from coco_opt.topdown.queries import Query
from coco_opt.topdown.rows import Constraints
from coco_opt.topdown.table_queries import TableQueries

_FEW, _MANY = 50, 1_000  # persons a leaf, where nobody states how many
_SKEWED, _CLUSTERED, _EVEN = 2.0, 5.0, 0.5  # powers of the weights of cells
_UNEQUAL = 0.5  # power of the weights of leaves
_SKEW = "about {} of them in a tenth of the cells"
_INFORMED = ("full", "posterior")  # estimations that err no more than the best linear unbiased estimate
_MEAN_ABSOLUTE = (2.0 / np.pi) ** 0.5  # of a standard normal number
_SHAPE = _MEAN_ABSOLUTE**2 / (1.0 - _MEAN_ABSOLUTE**2)  # of the gamma distribution with its mean and variance
_ALIKE = 2  # answers of a level that vary together, so that half of them count
_INSIDE = 0.9  # of the errors that are to lie in their range
_TOGETHER = 1 << 20  # errors that are in memory at a time


@dataclass(frozen=True, eq=False, slots=True)
class Expected:
    """The errors to expect, float64[levels, workload], on what they rest, and the seconds of an estimation.

    ``low`` and ``high`` are the ends of the range of a level's mean absolute error (persons); both are ``rehearsed``
    where public records were released. ``short`` says on what in a few words. ``most`` are the seconds with chains that
    do not converge before their limit, None without chains.
    """

    rehearsed: Floats
    low: Floats
    high: Floats
    words: str
    short: str
    seconds: float
    most: float | None = None


def on_public_records(plan: Plan, public: Path, runs: int, method: TablesMethod, reporter: Reporter) -> Expected:
    """Release public records similar to the private records ``runs`` times; the first release compiles."""
    if runs < 1:
        raise ProblemError("a rehearsal needs at least one run")
    detail, simulated = plan.detail, read_simulated_data(plan, public)
    with reporter.stage("Rehearsing on public records") as progress:
        _released(plan, simulated, method, 0)
        rehearsals = []
        for run in range(runs):
            rehearsals.append(_released(plan, simulated, method, 1 + run))
            progress(run + 1, runs)
    errors = _mean_errors(simulated.private, detail, [result for result, _ in rehearsals])
    seconds = float(np.median([time for _, time in rehearsals]))
    words = f"{simulated.words}, {runs} run(s)"
    return Expected(errors, errors, errors, words, f"rehearsed on {public.name}", seconds)


def on_simulated_persons(
    plan: Plan,
    options: ForecastOptions,
    method: TablesMethod,
    predictions: Sequence[Predicted],
    reporter: Reporter,
) -> Expected:
    """Return the range of errors, from releases of simulated persons and the unbiased estimates' ``predictions``."""
    tree, runs, stated = plan.measurement_plan.hierarchy, options.runs, options.rows is not None
    persons = _FEW if options.rows is None else max(1, round(options.rows / len(tree.leaves)))
    many = persons if stated else _MANY
    informed = method.topdown.estimation in _INFORMED
    # Few persons lie in few cells anyway; as many as are stated may do so, too, where attributes depend on each other.
    populations = [Population(persons, _CLUSTERED if stated else _SKEWED, _UNEQUAL)]
    populations += [] if informed else [Population(many, _EVEN)]
    judged = len(populations)
    measured = plan.detail.table_queries.plan.queries
    if informed and not stated and not any(is_of_cells(query.operator) for query in measured):
        # How long fits and roundings that leave cells open take depends on how many cells are in use.
        populations.append(Population(many, _CLUSTERED, _UNEQUAL))
    releases = _releases(plan, method, populations, runs, reporter)
    each = [_errors_of_all(plan, release, predictions) for release in releases[:judged]]
    low, high = _widened(plan, each, predictions)
    part = releases[0].table_queries.hierarchy.regions
    where = "all regions" if part == tree.regions else f"{part:,} of {tree.regions:,} regions, extrapolated"
    skew = _SKEW.format("19 in 20" if stated else "six in ten")
    fewest = f"{persons:,} a leaf ({'as --rows states' if stated else 'assumed: --rows states how many'})"
    upper = "by the unbiased estimates" if informed else f"by {many:,} a leaf in nearly even cells"
    words = (
        f"simulated persons in {where}, {runs} run(s). The lower ends are by {fewest}, {skew}; the upper ends {upper}"
        ". Nine in ten errors of a release should lie in their range; --like takes public records"
    )
    short = f"range for {persons:,} persons a leaf" if stated else "range for few to many persons a leaf"
    longest = max(releases, key=lambda release: release.seconds)
    return Expected(each[0], low, high, words, short, longest.seconds, longest.most)


def _releases(
    plan: Plan, method: TablesMethod, populations: Sequence[Population], runs: int, reporter: Reporter
) -> list[SimulatedReleases]:
    """Return releases of simulated persons of each population."""
    releases: list[SimulatedReleases] = []
    with reporter.stage("Rehearsing on simulated persons") as progress:

        def done(run: int, of: int) -> None:
            progress(len(releases) * of + run, len(populations) * of)

        for population in populations:
            queries, solvers = plan.detail.table_queries, lambda: choices_of(plan.config)
            releases.append(
                simulated_releases(queries, method.topdown, solvers, population=population, runs=runs, progress=done)
            )
    return releases


def _errors_of_all(plan: Plan, releases: SimulatedReleases, predictions: Sequence[Predicted]) -> Floats:
    """Return the mean errors; those of a part grow with the linear estimates' errors to those in all regions."""
    detail, part = plan.detail, releases.table_queries
    errors = _mean_errors(releases.truth, detail, releases.results)
    if part.hierarchy.regions < plan.measurement_plan.hierarchy.regions:
        of_part, _ = predicted(TablesDetail(part, detail.workload), alone=False)
        errors *= np.reshape(_growth(predictions, of_part), errors.shape)
    return errors


def _growth(of_all: Sequence[Predicted], of_part: Sequence[Predicted]) -> list[float]:
    """Return how many times larger linear estimates' errors are in all regions than in a part; 1 if undetermined."""
    pairs = [(every.linear, part.linear) for every, part in zip(of_all, of_part, strict=True)]
    return [every / part if 0.0 < part < math.inf and every < math.inf else 1.0 for every, part in pairs]


def _widened(plan: Plan, each: Sequence[Floats], predictions: Sequence[Predicted]) -> tuple[Floats, Floats]:
    """Return the ends of the ranges in which nine in ten means over a level's answers lie."""
    from scipy.stats import gamma

    detail, tree = plan.detail, plan.measurement_plan.hierarchy
    linear = np.reshape([_MEAN_ABSOLUTE * prediction.linear for prediction in predictions], each[0].shape)
    linear = np.where(np.isfinite(linear), linear, each[0])
    answers = np.multiply.outer(np.diff(tree.level_start), [query.answers for query in detail.workload])
    shape = _SHAPE * np.maximum(answers / _ALIKE, 1.0)
    spread = [gamma.ppf(0.5 + side * _INSIDE / 2, shape) / shape for side in (-1, 1)]
    # Summed over leaves, the bias of few persons may be the largest error.
    largest = linear if len(each) == 1 else np.max([*each, linear], axis=0)
    return np.minimum(each[0], linear) * spread[0], largest * spread[1]


def _released(plan: Plan, simulated: SimulatedData, method: TablesMethod, seed: int) -> tuple[TablesResult, float]:
    """Return the tables of public records with seeded noise, and the CPU seconds of noise and estimation."""
    queries: TableQueries = simulated.plan.detail.table_queries
    return rehearsed(simulated.private, queries, method.topdown, choices_of(plan.config), seed)


def _mean_errors(counts: TableCounts, detail: TablesDetail, results: Sequence[TablesResult]) -> Floats:
    """Return the mean absolute error of a released answer, float64[levels, workload]."""
    errors = np.zeros((detail.table_queries.plan.levels, len(detail.workload)))
    for level in range(len(errors)):
        for index, query in enumerate(detail.workload):
            exact = counts.answers_to(query.operator, counts.hierarchy.level_range(level))
            off = [np.abs(result.answers(query.operator, level) - exact).mean() for result in results]
            errors[level, index] = np.mean(off)
    return errors


@dataclass(frozen=True, slots=True)
class Predicted:
    """The standard error (persons, root mean square over regions and answers) of a workload query at a level.

    ``linear`` is that of the best linear unbiased estimate from all levels, ``alone`` that from the region's own
    measurements only (infinite where they do not determine it): both are exact. Where true counts are small, released
    tables are closer, because no count is below zero, and biased upwards.
    """

    level: int
    query: str
    linear: float
    alone: float


def predicted(
    detail: TablesDetail, progress: Progress = no_progress, *, alone: bool = True
) -> tuple[tuple[Predicted, ...], float]:
    """Return the exact standard errors of the workload at every level, and the seconds of those from all levels.

    ``progress`` counts queries by level. Unless ``alone``, those of a level's own measurements are left out: infinite.
    """
    table_queries, start = detail.table_queries, process_time()
    with doing("combining all queries"):
        everything = best_linear(_zero_measurements(table_queries))
    rows, seconds = list[Predicted](), process_time() - start
    levels, costs = range(table_queries.plan.levels), table_queries.plan.costs
    own_errors: dict[tuple[Any, ...], list[float]] = {}  # levels of equal costs have equal errors
    progress(0, len(levels) * len(detail.workload))
    for level in levels:
        if costs[level] not in own_errors:
            own = _own_level_estimates(table_queries, level) if alone else None
            own_errors[costs[level]] = [
                np.inf if own is None else _rms(own, query, range(1), 0) for query in detail.workload
            ]
        for index, query in enumerate(detail.workload):
            start = process_time()
            linear = _rms(everything, query, table_queries.hierarchy.level_range(level), level)
            seconds += process_time() - start
            rows.append(Predicted(level, query.text, linear, own_errors[costs[level]][index]))
            progress(len(rows), len(levels) * len(detail.workload))
    return tuple(rows), seconds


def _zero_measurements(table_queries: TableQueries) -> TableMeasurements:
    """Return noisy measurements that are all zero: errors depend on the budget and the hierarchy alone."""
    plan, hierarchy = table_queries.plan, table_queries.hierarchy
    zero = np.zeros((), np.int64)
    answers = tuple(
        tuple(
            np.broadcast_to(zero, (len(hierarchy.level_range(level)), query.answers)) if cost else None
            for query, cost in zip(plan.queries, plan.costs[level], strict=True)
        )
        for level in range(plan.levels)
    )
    variances = np.array(
        [[plan.variance(level, index) for index in range(len(plan.queries))] for level in range(plan.levels)]
    )
    return _ZeroMeasurements(
        hierarchy,
        table_queries.schema,
        plan.queries,
        answers,
        variances,
        _public_constraints(table_queries),
        # Errors do not depend on the answers: those of uniform simulated tables serve.
        declared=Invariants(hierarchy, table_queries.schema, generated_invariants(table_queries)),
    )


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class _ZeroMeasurements(TableMeasurements):
    """Noisy measurements of which only the variances count; ``declared`` has the place of invariants from the data."""

    declared: Invariants | None = None

    def constraints_of(self, regions: range) -> Constraints | None:
        """Return the rows that public constraints and the declared invariants bind, with answers that do not count."""
        both = [invariants.constraints_of(regions) for invariants in (self.invariants, self.declared) if invariants]
        present = [constraints for constraints in both if constraints is not None]
        return Constraints.stacked(present) if present else None


def _public_constraints(table_queries: TableQueries) -> Invariants:
    """Return what is public without the data, of this measurement alone.

    The declared invariants, though their answers are unknown, share in what bounds of 0 imply for finer queries.
    """
    hierarchy, bounds = table_queries.hierarchy, [each for each in table_queries.bounds if each.source != "release"]
    for invariant in table_queries.invariants:
        shape = len(hierarchy.level_range(invariant.level)), invariant.query.answers
        nothing = np.zeros(shape, np.int64)
        bounds.append(RegionBounds(invariant.query, invariant.level, nothing, np.full(shape, UNBOUNDED)))
    linear = [each for each in table_queries.linear if each.source != "release"]
    return Invariants(hierarchy, table_queries.schema, tuple(bounds), linear=tuple(linear))


def _own_level_estimates(table_queries: TableQueries, level: int) -> LinearEstimates | None:
    """Return the linear stage of one region that has this level's measurements only."""
    plan = table_queries.plan
    if not any(plan.costs[level]):
        return None
    own = TablePlan(plan.queries, (plan.costs[level],), plan.neighbours, plan.rows)
    return best_linear(_zero_measurements(TableQueries(Hierarchy.from_paths([("region",)]), table_queries.schema, own)))


def _rms(estimates: LinearEstimates, query: Query, regions: range, level: int) -> float:
    """Return the root mean square of the standard errors of a query in a level's regions, some regions at a time."""
    total, step = 0.0, max(1, _TOGETHER // query.answers)
    for begin in range(0, len(regions), step):
        total += float((estimates.standard_errors(query.operator, level, slice(begin, begin + step)) ** 2).sum())
    return math.sqrt(total / (len(regions) * query.answers))


_DIGITS = 4
_FEW_DIGITS = 2  # of errors on simulated persons: those of few regions vary from run to run
_ROWS = 3  # of the private table for each leaf, unless declared
_ROW_SECONDS, _ROW_BYTES = 1e-5, 200
_REGION_SECONDS, _REGION_BYTES = 1.5e-5, 5_000
_ANSWER_BYTES = 48
_PAGE_SECONDS, _ESTIMATE_SECONDS = 0.3, 5e-7
_UNDETERMINED = "not determined"
_WAYS = {"bounds": "bounds", "cuts": "cuts", "minimal_schema": "minimal schema"}


def forecast_tables(plan: Plan, options: ForecastOptions, reporter: Reporter) -> Forecast:
    """Predict a release; this spends nothing and opens no private table.

    Complete releases of simulated persons, or of public records, give the errors of released answers.
    Raises ConfigError, InputError, ProblemError.
    """
    detail: TablesDetail = plan.detail
    method = method_of(plan.config, plan.measurement_plan)
    with reporter.stage("Predicting") as progress:
        predictions, linear_seconds = predicted(detail, progress)  # the release's unbiased estimates take as long
    if options.public is None:
        expected = on_simulated_persons(plan, options, method, predictions, reporter)
    else:
        expected = on_public_records(plan, options.public, options.runs, method, reporter)
    answers, errors = _predicted_answers(plan, predictions), _released_errors(plan, expected)
    plain: dict[str, object] = {
        "predictions": answers,
        "rehearsed": errors,
        "look_alike": expected.words,
    }
    linear = tuple(
        (row["level"], row["query"], _shown(row["standard_error"]), _shown(row["standard_error_alone"]))
        for row in answers
    )
    released = tuple((row["level"], row["query"], _range(row["low"], row["high"], expected)) for row in errors)
    title = "Standard error of an estimated answer (persons), root mean square: exact"
    tables = (
        Figures(title, ("level", "query", "all levels", "own level alone"), linear, numeric=2),
        Figures(
            f"Mean absolute error of a released answer (persons): {expected.short}",
            ("level", "query", "error"),
            released,
            numeric=2,
        ),
    )
    notes = (*_notes(plan, predictions, method), ("Rehearsed on", expected.words))
    rows = _ROWS * len(detail.table_queries.hierarchy.leaves) if options.rows is None else options.rows
    regions, slow = plan.measurement_plan.hierarchy.regions, slowness()
    memory = _REGION_BYTES * regions + _ANSWER_BYTES * plan.measurement_plan.answers
    return Forecast(
        tables,
        plain,
        notes,
        reading=ResourceCost(slow * (_ROW_SECONDS * rows + _REGION_SECONDS * regions), _ROW_BYTES * rows),
        querying=ResourceCost(slow * _REGION_SECONDS * regions),
        estimating=ResourceCost(expected.seconds, memory, longest=expected.most),
        writing=ResourceCost(slow * _writing_seconds(detail) + linear_seconds, memory),
    )


def _released_errors(plan: Plan, expected: Expected) -> list[dict[str, Any]]:
    """Return the errors of released answers by level and query."""
    return [
        {
            "level": plan.measurement_plan.levels[level],
            "query": query.text,
            "mean_error": float(expected.rehearsed[level, index]),
            "low": float(expected.low[level, index]),
            "high": float(expected.high[level, index]),
        }
        for level in range(len(expected.rehearsed))
        for index, query in enumerate(plan.detail.workload)
    ]


def _predicted_answers(plan: Plan, predictions: Sequence[Predicted]) -> list[dict[str, Any]]:
    """Return the standard errors of estimated answers by level and query, None where they are not determined."""
    return [
        {
            "level": plan.measurement_plan.levels[prediction.level],
            "query": prediction.query,
            "standard_error": prediction.linear if math.isfinite(prediction.linear) else None,
            "standard_error_alone": prediction.alone if math.isfinite(prediction.alone) else None,
        }
        for prediction in predictions
    ]


def _writing_seconds(detail: TablesDetail) -> float:
    """Return the seconds of writing the page, the regions' tables and the unbiased estimates."""
    tree, workload = detail.table_queries.hierarchy, detail.workload
    answers, cells = sum(query.answers for query in workload), workload[0].operator.cells
    each = [len(tree.level_range(level)) for level in range(tree.levels)]
    estimates = answers * sum(regions for regions in each if regions * cells <= MOST_CELLS)
    return _PAGE_SECONDS + _REGION_SECONDS * tree.regions + _ESTIMATE_SECONDS * estimates


def _notes(plan: Plan, predictions: Sequence[Predicted], method: TablesMethod) -> Iterator[tuple[str, str]]:
    """Yield notes that the figures do not show."""
    detail: TablesDetail = plan.detail
    if any(math.isinf(prediction.linear) for prediction in predictions):
        yield (
            "Not determined",
            "the strategy measures too little to determine the query: its released answers are a guess",
        )
    if detail.table_queries.invariants:
        words = "no error where answers are published exactly, and less where they help"
        yield "Held exactly", f"{words}; inequalities do not enter the figures"
    implied = public_choice(detail.table_queries, method.topdown)
    if implied.reason:
        yield "Implied constraints", f"{_WAYS[implied.method]}: {implied.reason}"
    leaves = detail.table_queries.plan.levels - 1
    if method.topdown.estimation == "bottom_up" and any(
        level < leaves for level, _ in detail.table_queries.plan.measured_queries
    ):
        yield "Not used", 'bottom_up reads the leaves alone: split = "leaves" gives them the whole budget'


def _shown(value: float | None) -> str:
    return _UNDETERMINED if value is None else f"{value:.{_DIGITS}g}"


def _range(low: float, high: float, expected: Expected) -> str:
    if expected.low is expected.high:
        return f"{low:.{_DIGITS}g}"
    ends = f"{low:.{_FEW_DIGITS}g}", f"{high:.{_FEW_DIGITS}g}"
    return " to ".join(dict.fromkeys(ends))
