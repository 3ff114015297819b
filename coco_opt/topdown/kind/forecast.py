"""Predict the accuracy and running time of a release of tables, from public input alone, before anything is spent."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import process_time

import numpy as np
from numpy.typing import NDArray

from coco_opt.activity import doing
from coco_opt.errors import ProblemError
from coco_opt.histograms import Hierarchy
from coco_opt.releases.clock import slowness
from coco_opt.releases.kind import Figures, Forecast, ForecastOptions, Plan, ResourceCost, SimulatedData
from coco_opt.releases.reporter import Progress, Reporter, no_progress
from coco_opt.releases.resource_cost import count_answers
from coco_opt.releases.solvers import choices_of
from coco_opt.topdown.bounds import UNBOUNDED
from coco_opt.topdown.budget_plan import TablePlan
from coco_opt.topdown.estimating.best_linear import LinearEstimates, best_linear
from coco_opt.topdown.estimating.estimate import TablesResult
from coco_opt.topdown.invariants import Constraints, Invariants
from coco_opt.topdown.kind.files import MOST_CELLS
from coco_opt.topdown.kind.method import TablesMethod, method_of
from coco_opt.topdown.kind.plan import TablesDetail
from coco_opt.topdown.kind.rehearsal import generated_invariants, public_choice, rehearsed, simulated_releases
from coco_opt.topdown.kind.simulated_data import SIMULATED_PERSONS, SKEW, read_simulated_data
from coco_opt.topdown.measuring.counts import TableCounts
from coco_opt.topdown.noisy_measurements import TableMeasurements
from coco_opt.topdown.region_bounds import RegionBounds
from coco_opt.topdown.table_queries import TableQueries

Floats = NDArray[np.float64]

_DIGITS = 4
_FEW_DIGITS = 2  # of errors on simulated persons: those of few regions vary from run to run
_ROWS = 3  # of the private table for each leaf, unless declared
_ROW_SECONDS, _ROW_BYTES = 1e-5, 200
_REGION_SECONDS, _REGION_BYTES = 1.5e-5, 5_000
_ANSWER_BYTES = 48
_PAGE_SECONDS, _ESTIMATE_SECONDS = 0.3, 5e-7
_PROVED = {
    "holds": "proved: some integer table meets them all ({how})",
    "undecided": "UNDECIDED whether any integer table meets them all: {how}; an estimation may relax them or fail",
}
_UNDETERMINED = "not determined"
_WAYS = {"bounds": "bounds", "cuts": "cuts", "minimal_schema": "minimal schema"}


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
        rehearsal = _on_simulated_persons(plan, options, method, predictions, reporter)
    else:
        rehearsal = _on_public_records(plan, options.public, options.runs, method, reporter)
    choices = () if detail.choices is None else detail.choices()
    tables = (*choices, _linear_figures(plan, predictions), _released_figures(plan, rehearsal))
    plain: dict[str, object] = {
        "predictions": [_plain(plan, prediction) for prediction in predictions],
        "rehearsed": _plain_errors(plan, rehearsal.errors),
        "look_alike": rehearsal.words,
        "choices": [dict(zip(table.header, row, strict=True)) for table in choices for row in table.rows],
    }
    notes = (*_notes(plan, predictions, method), ("Rehearsed on", rehearsal.words))
    rows = _ROWS * len(detail.table_queries.hierarchy.leaves) if options.rows is None else options.rows
    regions, slow = plan.measurement_plan.hierarchy.regions, slowness()
    memory = _REGION_BYTES * regions + _ANSWER_BYTES * count_answers(plan.measurement_plan)
    return Forecast(
        tables,
        plain,
        notes,
        reading=ResourceCost(slow * (_ROW_SECONDS * rows + _REGION_SECONDS * regions), _ROW_BYTES * rows),
        querying=ResourceCost(slow * _REGION_SECONDS * regions),
        estimating=ResourceCost(rehearsal.seconds, memory),
        writing=ResourceCost(slow * _writing_seconds(detail) + linear_seconds, memory),
    )


@dataclass(frozen=True, eq=False, slots=True)
class _Rehearsal:
    """The mean absolute errors of released answers, float64[levels, workload], on what, and an estimation's seconds.

    ``short`` says on what in a few words, and ``digits`` are those that are shown.
    """

    errors: Floats
    words: str
    short: str
    seconds: float
    digits: int = _DIGITS


def _on_public_records(plan: Plan, public: Path, runs: int, method: TablesMethod, reporter: Reporter) -> _Rehearsal:
    """Release public records similar to the private ones ``runs`` times; the first release compiles."""
    if runs < 1:
        raise ProblemError("a rehearsal needs at least one run")
    detail, simulated = plan.detail, read_simulated_data(plan, public)
    with reporter.stage("Rehearsing on public records") as progress:
        _rehearsed(plan, simulated, method, 0)
        rehearsals = []
        for run in range(runs):
            rehearsals.append(_rehearsed(plan, simulated, method, 1 + run))
            progress(run + 1, runs)
    errors = _mean_errors(simulated.private, detail, [result for result, _ in rehearsals])
    seconds = float(np.median([time for _, time in rehearsals]))
    return _Rehearsal(errors, f"{simulated.words}, {runs} run(s)", f"on {public.name}", seconds)


def _on_simulated_persons(
    plan: Plan, options: ForecastOptions, method: TablesMethod, predictions: Sequence[Predicted], reporter: Reporter
) -> _Rehearsal:
    """Release simulated persons; errors of a part grow with those of the linear estimates to all regions' errors."""
    detail, tree, runs = plan.detail, plan.measurement_plan.hierarchy, options.runs
    persons = SIMULATED_PERSONS if options.rows is None else max(1, round(options.rows / len(tree.leaves)))
    with reporter.stage("Rehearsing on simulated persons") as progress:
        releases = simulated_releases(
            detail.table_queries,
            method.topdown,
            lambda: choices_of(plan.config),
            persons=persons,
            runs=runs,
            progress=progress,
        )
    errors = _mean_errors(releases.truth, detail, releases.results)
    part, where = releases.table_queries, "all regions"
    if part.hierarchy.regions < tree.regions:
        of_part, _ = predicted(TablesDetail(part, detail.workload))
        errors *= np.reshape(_growth(predictions, of_part), errors.shape)
        where = f"{part.hierarchy.regions:,} of {tree.regions:,} regions, extrapolated"
    assumed = "as --rows states" if options.rows is not None else "assumed: --rows states how many"
    words = (
        f"simulated persons, {persons:,} a leaf ({assumed}), {SKEW} (assumed), in {where}, {runs} run(s); errors of "
        "small counts grow with the persons a leaf and with even cells; --like takes public records"
    )
    short = f"{'assumed ' if options.rows is None else ''}{persons:,} persons a leaf"
    return _Rehearsal(errors, words, short, releases.seconds, _FEW_DIGITS)


def _growth(of_all: Sequence[Predicted], of_part: Sequence[Predicted]) -> list[float]:
    """Return how many times larger linear estimates' errors are in all regions than in a part; 1 if undetermined."""
    pairs = [(every.linear, part.linear) for every, part in zip(of_all, of_part, strict=True)]
    return [every / part if 0.0 < part < math.inf and every < math.inf else 1.0 for every, part in pairs]


def _plain_errors(plan: Plan, errors: Floats) -> list[dict[str, object]]:
    """Return errors of released answers as plain values."""
    return [
        {"level": plan.measurement_plan.levels[level], "query": query.text, "mean_error": float(errors[level, index])}
        for level in range(len(errors))
        for index, query in enumerate(plan.detail.workload)
    ]


def _writing_seconds(detail: TablesDetail) -> float:
    """Return the seconds of writing the page, the regions' tables and the unbiased estimates."""
    tree, workload = detail.table_queries.hierarchy, detail.workload
    answers, cells = sum(query.answers for query in workload), workload[0].operator.cells
    each = [len(tree.level_range(level)) for level in range(tree.levels)]
    estimates = answers * sum(regions for regions in each if regions * cells <= MOST_CELLS)
    return _PAGE_SECONDS + _REGION_SECONDS * tree.regions + _ESTIMATE_SECONDS * estimates


def predicted(detail: TablesDetail, progress: Progress = no_progress) -> tuple[tuple[Predicted, ...], float]:
    """Return the exact standard errors of the workload at every level, and the seconds of those from all levels.

    ``progress`` counts queries by level.
    """
    table_queries, start = detail.table_queries, process_time()
    with doing("combining all queries"):
        everything = best_linear(_zero_measurements(table_queries))
    rows, seconds = list[Predicted](), process_time() - start
    levels = range(table_queries.plan.levels)
    progress(0, len(levels) * len(detail.workload))
    for level in levels:
        own = _own_level_estimates(table_queries, level)
        for query in detail.workload:
            alone = np.inf if own is None else _rms(own.standard_errors(query.operator, 0))
            start = process_time()
            linear = _rms(everything.standard_errors(query.operator, level))
            seconds += process_time() - start
            rows.append(Predicted(level, query.text, linear, alone))
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
        declared=_generated_invariants(table_queries),
    )


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class _ZeroMeasurements(TableMeasurements):
    """Noisy measurements of which only the variances count; ``declared`` has the place of invariants from the data."""

    declared: Invariants | None = None

    def constraints_of(self, regions: range) -> Constraints | None:
        """Return the rows that public constraints and the declared invariants bind, with answers that do not count."""
        both = [invariants.constraints_of(regions) for invariants in (self.invariants, self.declared) if invariants]
        present = [constraints for constraints in both if constraints is not None]
        return Constraints.together(present) if present else None


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


def _generated_invariants(table_queries: TableQueries) -> Invariants:
    """Return the declared invariants with answers of uniform simulated tables: errors do not depend on the answers."""
    bounds = generated_invariants(table_queries)
    return Invariants(table_queries.hierarchy, table_queries.schema, bounds, table_queries.invariants)


def _own_level_estimates(table_queries: TableQueries, level: int) -> LinearEstimates | None:
    """Return the linear stage of one region that has this level's measurements only."""
    plan = table_queries.plan
    if not any(plan.costs[level]):
        return None
    own = TablePlan(plan.queries, (plan.costs[level],), plan.neighbours, plan.rows)
    return best_linear(_zero_measurements(TableQueries(Hierarchy.from_paths([("region",)]), table_queries.schema, own)))


def _rms(errors: Floats) -> float:
    return float(np.sqrt((errors**2).mean())) if np.isfinite(errors).all() else float(np.inf)


def _rehearsed(plan: Plan, simulated: SimulatedData, method: TablesMethod, seed: int) -> tuple[TablesResult, float]:
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


def _linear_figures(plan: Plan, predictions: Sequence[Predicted]) -> Figures:
    rows = tuple(
        (
            plan.measurement_plan.levels[prediction.level],
            prediction.query,
            _shown(prediction.linear),
            _shown(prediction.alone),
        )
        for prediction in predictions
    )
    title = "Standard error of an estimated answer (persons), root mean square: exact"
    return Figures(title, ("level", "query", "all levels", "own level alone"), rows, numeric=2)


def _released_figures(plan: Plan, rehearsal: _Rehearsal) -> Figures:
    detail: TablesDetail = plan.detail
    rows = tuple(
        (plan.measurement_plan.levels[level], query.text, f"{rehearsal.errors[level, index]:.{rehearsal.digits}g}")
        for level in range(len(rehearsal.errors))
        for index, query in enumerate(detail.workload)
    )
    title = f"Mean absolute error of a released answer (persons): rehearsed, {rehearsal.short}"
    return Figures(title, ("level", "query", "error"), rows, 2)


def _plain(plan: Plan, prediction: Predicted) -> dict[str, object]:
    return {
        "level": plan.measurement_plan.levels[prediction.level],
        "query": prediction.query,
        "standard_error": prediction.linear if math.isfinite(prediction.linear) else None,
        "standard_error_alone": prediction.alone if math.isfinite(prediction.alone) else None,
    }


def _notes(plan: Plan, predictions: Sequence[Predicted], method: TablesMethod) -> Iterator[tuple[str, str]]:
    """Yield notes that the figures do not show."""
    detail: TablesDetail = plan.detail
    if any(math.isinf(prediction.linear) for prediction in predictions):
        yield (
            "Not determined",
            "the strategy measures too little to determine the query: its released answers are a guess",
        )
    if detail.table_queries.invariants:
        levels = plan.measurement_plan.levels
        invariants = detail.table_queries.invariants
        exact = ", ".join(f"{invariant.query.text} by {levels[invariant.level]}" for invariant in invariants)
        yield (
            "Held exactly",
            f"{exact}: no error there, and less where it helps; inequalities do not enter the figures",
        )
    implied = public_choice(detail.table_queries, method.topdown)
    if implied.reason:
        yield "Implied constraints", f"{_WAYS[implied.method]}: {implied.reason}"
    if detail.proof is not None and detail.table_queries.constraints:
        yield "Public constraints", _PROVED[detail.proof.verdict].format(how=detail.proof.how)
    leaves = detail.table_queries.plan.levels - 1
    if method.topdown.estimation == "bottom_up" and any(
        level < leaves for level, _ in detail.table_queries.plan.measured_queries
    ):
        yield "Not used", 'bottom_up reads the leaves alone: split = "leaves" gives them the whole budget'


def _shown(value: float) -> str:
    return f"{value:.{_DIGITS}g}" if math.isfinite(value) else _UNDETERMINED
