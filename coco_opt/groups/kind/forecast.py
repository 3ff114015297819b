"""Predict the errors of a release of groups and its cost, in seconds and from public information alone.

The errors of stages that are linear in the noise are exact. The errors of the configured method are a range
(``coco_opt.groups.kind.expected``). On public data, or where several runs are requested, every method that can read
the planned queries is rehearsed on part of the data, with seeded noise, and its errors are extrapolated to all of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from coco_opt.activity import doing
from coco_opt.choices import SolverChoices
from coco_opt.errors import ConfigError
from coco_opt.estimators import added_rows
from coco_opt.groups.estimating.method import SLOW, Consistency, GroupsMethod
from coco_opt.groups.estimating.posterior.effort import longest_posterior_seconds, posterior_seconds
from coco_opt.groups.estimating.posterior.sparse import MANY_CELLS
from coco_opt.groups.kind.automatic import range_words
from coco_opt.groups.kind.expected import ExpectedErrors, is_predictable, predicted_errors, rehearsed_errors
from coco_opt.groups.kind.method import method_of
from coco_opt.groups.kind.rehearsal import (
    LevelQueries,
    Rehearsal,
    branch_answers,
    branches_within,
    cost_of_sizes,
    count_cells,
    extrapolated,
    part_of,
    rehearsed_queries,
)
from coco_opt.groups.kind.simulated_data import assumed_groups, read_simulated_data
from coco_opt.groups.measuring.entities import PublicGroups
from coco_opt.groups.measuring.private import PrivateCounts
from coco_opt.groups.noisy_measurements import max_size_of
from coco_opt.groups.queries import GROUPS, sensitivity
from coco_opt.privacy import MeasurementPlan
from coco_opt.privacy.planner import LINEAR_STAGES, NoisePlan, Prediction, Shares, linear_errors
from coco_opt.releases.clock import slowness
from coco_opt.releases.kind import Figures, Forecast, ForecastOptions, Plan, ResourceCost, SimulatedData
from coco_opt.releases.reporter import Reporter
from coco_opt.releases.resource_cost import BYTES
from coco_opt.releases.solvers import choices_of

COMPARED: tuple[Consistency, ...] = ("posterior", "joint", "matching", "bottom_up")
"""The methods whose errors are compared with those of the configured method, with those of other packages."""

AS_CONFIGURED, LEAVES = "as configured", "leaves"

# Noisy answers of a rehearsal of about two seconds, by method. All compared methods use the same part of the data.
_ANSWERS: Mapping[Consistency, int] = {"posterior": 50_000, "joint": 120_000, "convex": 400_000}
_MOST_ANSWERS = 1_000_000
_SECONDS = 2.0  # of a release of so many answers
_CORES = 2  # of the times of the posterior that were measured
_TIMED = 0.1  # seconds of an estimation from which on one run times it well
_RUNS = 300  # sizes of leaves that have groups, added up, beyond which the posterior takes long too
_TOO_MANY = 4  # times its answers: then a slow method is not compared

# Tables of regions x sizes in memory; those of the posterior where it keeps draws by the sizes that occur.
_TABLES: Mapping[Consistency, int] = {"posterior": 45, "joint": 8, "convex": 10}
_SPARSE_TABLES = 6
_REGION_BYTES = 100  # a cell of the widest region, where regions are fitted one after the other
# Seconds and bytes a row: of integer ids outside CSV files, of texts, and of tables of counts.
_INTEGERS, _TEXTS = ((2.4e-7, 10), (1.2e-7, 30)), ((1.05e-6, 92), (1.1e-6, 110))
_COUNT_ROW = (3e-6, 300)
_SPILLED = 1_600_000_000  # bytes in memory at most of tables of texts, which lie on disk beyond
_ENTITIES = 2.5  # a group, unless declared
_LOADING = 1.0  # seconds of loading compiled kernels, at most
_REGION, _CELL = 2.2e-4, 1.6e-8  # seconds of querying
_DISTANCE = (
    "the earth mover's: entities to add to or remove from groups until the released histogram is the true one, on "
    "average over a level's regions"
)
_PAGE, _LEVEL = 0.7, 0.27  # seconds of a page and of a level's figure


@dataclass(frozen=True, eq=False, slots=True)
class Rehearsed:
    """The predictions of all methods that can read the planned queries, and the data they were rehearsed on.

    ``first`` are the seconds of a single path of regions, ``seconds`` those of the part, by the configured method.
    """

    part: SimulatedData
    words: str
    methods: Mapping[Consistency, GroupsMethod]
    predictions: tuple[Prediction, ...]
    first: float
    seconds: float


def forecast_groups(plan: Plan, options: ForecastOptions, reporter: Reporter) -> Forecast:
    """Predict a release; public data are a table of sizes with as many levels.

    Raises InputError, ProblemError; deterministic but for the seconds.
    """
    exact, method = linear_predictions(plan), plan.config.method.consistency
    if options.public is not None or options.runs > 1:
        errors = _of_rehearsals(plan, options, reporter)
    else:
        errors = _of_formula(plan) if is_predictable(plan) else _of_family(plan, reporter)
    tables = [*plan.tables, errors.table]
    if exact:
        title = "Noise left in a cell after a linear stage, root mean square: exact"
        tables.insert(len(plan.tables), figures(title, exact, plan))
    notes = [("Distance", _DISTANCE), ("Errors", errors.words), ("Rows", _rows_words(plan, options))]
    if plan.look is not None:
        words = (
            f"{plan.look.cost} of the budget is spent first, and its answers choose the queries: those above stand in"
        )
        notes.insert(0, ("Look", words))
    return Forecast(
        tables=tuple(tables),
        plain={
            "look_alike": errors.words,
            "predictions": [as_plain(prediction) for prediction in exact] + errors.plain,
            "choices": [dict(zip(table.header, row, strict=True)) for table in plan.tables for row in table.rows],
        },
        notes=tuple(notes),
        reading=_reading(plan, options, errors.part),
        querying=_querying_cost(plan),
        estimating=ResourceCost(errors.seconds, _memory(plan, method), errors.longest),
        writing=ResourceCost(slowness() * (_PAGE + _LEVEL * plan.measurement_plan.hierarchy.levels)),
    )


@dataclass(frozen=True, eq=False, slots=True)
class _Errors:
    """Predicted errors as a table and as plain values, what they rest on, and the seconds of the estimation.

    ``longest`` are the seconds where the posterior converges slowly, which public numbers do not determine.
    """

    table: Figures
    plain: list[dict[str, Any]]
    words: str
    seconds: float
    part: SimulatedData | None = None
    longest: float | None = None


def _of_rehearsals(plan: Plan, options: ForecastOptions, reporter: Reporter) -> _Errors:
    simulated_data = None if options.public is None else read_simulated_data(plan, options.public)
    outcome = rehearsed(plan, simulated_data, options.runs, reporter)
    table = figures("Mean earth mover's distance of a region (entities): rehearsed", outcome.predictions, plan)
    plain = [as_plain(prediction) for prediction in outcome.predictions]
    seconds = _estimating(plan, outcome.first, outcome.seconds, outcome.part)
    longest = max(seconds, _longest(plan)) if plan.config.method.consistency == "posterior" else None
    return _Errors(table, plain, f"rehearsed on {outcome.words}", seconds, outcome.part, longest)


def _of_formula(plan: Plan) -> _Errors:
    seconds = slowness() * posterior_seconds(_answers(plan, plan.measurement_plan))
    return replace(_of_range(plan, predicted_errors(plan), seconds, None), longest=_longest(plan))


def _longest(plan: Plan) -> float:
    answers = _answers(plan, plan.measurement_plan)
    regions = plan.measurement_plan.hierarchy.regions
    return slowness() * longest_posterior_seconds(answers, plan.config.auto.time, regions)


def _of_family(plan: Plan, reporter: Reporter) -> _Errors:
    """Return the errors of the configured method, rehearsed under a few distributions."""
    name: Consistency = plan.config.method.consistency
    method, solvers = method_of(plan.config, plan.measurement_plan), choices_of(plan.config)
    queries, _ = _method_queries(plan, "none")
    with reporter.stage("Rehearsing"):
        first = _first_seconds(Rehearsal(part_of(plan, None, 1)), queries, method, solvers)
        answers = _ANSWERS.get(name, _MOST_ANSWERS)
        errors, part, seconds = rehearsed_errors(plan, queries, method, answers, solvers)
    return _of_range(plan, errors, _estimating(plan, first, seconds, part), part)


def _of_range(plan: Plan, errors: ExpectedErrors, seconds: float, part: SimulatedData | None) -> _Errors:
    method, levels = plan.config.method.consistency, plan.measurement_plan.levels
    row = method, *range_words(errors.low, errors.high)
    table = Figures("Expected mean earth mover's distance of a region (entities)", ("method", *levels), (row,))
    plain = {"method": method, "low": errors.low.tolist(), "high": errors.high.tolist(), "exact": False}
    return _Errors(table, [plain], errors.words, seconds, part)


def rehearsed(plan: Plan, public: SimulatedData | None, runs: int, reporter: Reporter) -> Rehearsed:
    """Rehearse every method that can read the planned queries on part of the simulated data."""
    configured, solvers = plan.config.method.consistency, choices_of(plan.config)
    methods, branches = _within_seconds(plan if public is None else public.plan, readable_methods(plan))
    part = part_of(plan, public, branches)
    path, rehearsal = Rehearsal(part_of(plan, public, 1)), Rehearsal(part)
    predictions, first, seconds = [], 0.0, 0.0
    counts: PrivateCounts = part.private
    if configured != "posterior" and counts.sizes.size > _RUNS:
        methods.pop("posterior", None)
    if "posterior" in methods:
        methods["posterior"] = _of_few_sweeps(methods["posterior"], part)
    reporter.line(_rehearsal_words(part, methods, runs))
    with reporter.stage("Rehearsing") as progress:
        for done, (name, method) in enumerate(methods.items()):
            progress(done, len(methods))
            queries, split = _method_queries(plan, name)
            with doing(name):
                if name == configured:
                    first = _first_seconds(path, queries, method, solvers)
                errors, each = rehearsal.timed_errors(queries, method, runs, solvers)
                if name == configured:
                    seconds = each if each > _TIMED else rehearsal.seconds(queries, method, solvers)
            level_errors = extrapolated(errors.mean(axis=0), rehearsal.hierarchy, plan.measurement_plan.hierarchy)
            predictions.append(
                Prediction(name, split, shares_of(plan, queries), tuple(level_errors.tolist()), exact=False)
            )
    words = part.words + _part_words(
        part, plan.measurement_plan if public is None else public.plan.measurement_plan, runs
    )
    return Rehearsed(part, words, methods, tuple(predictions), first, seconds)


def _of_few_sweeps(method: GroupsMethod, part: SimulatedData) -> GroupsMethod:
    """Return the posterior with the sweeps of a usual run, although chains of some data need ten times as many."""
    usual = posterior_seconds(_answers(part.plan, part.plan.measurement_plan))
    return replace(method, seconds=min(method.seconds, usual))


def _rehearsal_words(part: SimulatedData, methods: Mapping[Consistency, GroupsMethod], runs: int) -> str:
    """Return how many releases a rehearsal makes, and about how long they take."""
    counts: PrivateCounts = part.private
    answers = _answers(part.plan, part.plan.measurement_plan)
    seconds = sum(_SECONDS * answers / _ANSWERS.get(name, _MOST_ANSWERS) for name in methods)
    if "posterior" in methods:  # of both cores
        seconds += _CORES * posterior_seconds(answers)
    seconds = max(1, round(slowness() * runs * seconds))
    releases = f"{runs} release(s) of {counts.hierarchy.regions:,} regions by each of {', '.join(methods)}"
    return f"Rehearsing {releases}: about {seconds:,} s of a core, if it is idle"


def _within_seconds(
    plan: Plan, methods: Mapping[Consistency, GroupsMethod]
) -> tuple[dict[Consistency, GroupsMethod], int | None]:
    """Return the methods that can be rehearsed in seconds, and the number of children per region to keep.

    The configured method is always included. At least two children are kept, since extrapolation needs them, unless
    even that takes the configured method too long.
    """
    configured = plan.config.method.consistency
    least = branch_answers(plan, 2)
    feasible = {
        name: method
        for name, method in methods.items()
        if name == configured or least <= _TOO_MANY * _ANSWERS.get(name, _MOST_ANSWERS)
    }
    branches = branches_within(plan, min(_ANSWERS.get(name, _MOST_ANSWERS) for name in feasible))
    most = _TOO_MANY * _ANSWERS.get(configured, _MOST_ANSWERS)
    return feasible, 2 if branches == 1 and least <= most else branches


def _first_seconds(path: Rehearsal, queries: LevelQueries, method: GroupsMethod, solvers: SolverChoices) -> float:
    """Return the seconds of a process's first estimation, on one path, with loading but not compiling kernels."""
    first, again = (path.seconds(queries, method, solvers, 0.0) for _ in range(2))
    return again + min(max(first - again, 0.0), _LOADING * slowness())


def readable_methods(plan: Plan) -> dict[Consistency, GroupsMethod]:
    """Return the configured method, then the compared methods that can read the planned queries."""
    readable = {plan.config.method.consistency: method_of(plan.config, plan.measurement_plan)}
    for name in (*COMPARED, *(row.name for row in added_rows("groups"))):
        section = plan.config.method.model_copy(update={"consistency": name, "intervals": 0.0})
        try:
            readable.setdefault(name, method_of(replace(plan.config, method=section), plan.measurement_plan))
        except ConfigError:
            continue
    return readable


def _method_queries(plan: Plan, name: Consistency) -> tuple[LevelQueries, str]:
    """Return the queries that a method reads: as configured, but bottom-up spends all of the budget on the leaves."""
    queries = rehearsed_queries(plan)
    if name != "bottom_up":
        return queries, AS_CONFIGURED
    zero = plan.measurement_plan.cost * 0
    return LevelQueries(
        queries.queries,
        queries.buckets,
        (*(zero,) * (len(queries.costs) - 1), plan.measurement_plan.cost),
    ), LEAVES


def shares_of(plan: Plan, queries: LevelQueries) -> Shares:
    """Return each level's share of the total cost."""
    return tuple(Fraction(cost.amount) / plan.measurement_plan.cost.amount for cost in queries.costs)


def linear_predictions(plan: Plan) -> list[Prediction]:
    """Return the exact noise of a cell after each linear stage by the configured split, empty where there are buckets.

    Sums over different buckets do not add up along the tree.
    """
    queries = rehearsed_queries(plan)
    if any(queries.buckets) or len(set(queries.queries)) > 1 or "ranks" in queries.queries:
        return []
    tree = plan.measurement_plan.hierarchy
    noise = NoisePlan(
        cost_of_sizes(plan), tuple(sensitivity(query, plan.measurement_plan.neighbours) for query in queries.queries)
    )
    predictions = []
    for stage in LINEAR_STAGES:
        stage_queries, split = _method_queries(plan, "bottom_up" if stage == "bottom_up" else "none")
        shares = shares_of(plan, stage_queries)
        errors = linear_errors(tree, stage, noise.variances(shares))
        predictions.append(Prediction(stage, split, shares, tuple(errors.tolist()), exact=True))
    return predictions


def figures(title: str, predictions: Sequence[Prediction], plan: Plan) -> Figures:
    """Return predictions as a table, one row for each."""
    rows = tuple(
        (
            prediction.method,
            prediction.split,
            " ".join(f"{float(share):.3f}" for share in prediction.shares),
            *(f"{error:.4g}" if math.isfinite(error) else "not measured" for error in prediction.errors),
        )
        for prediction in predictions
    )
    return Figures(title, ("method", "split", "shares", *plan.measurement_plan.levels), rows, numeric=3)


def as_plain(prediction: Prediction) -> dict[str, Any]:
    """Return a prediction as plain values."""
    return {
        "method": prediction.method,
        "split": prediction.split,
        "shares": [str(share) for share in prediction.shares],
        "errors": [error if math.isfinite(error) else None for error in prediction.errors],
        "exact": prediction.exact,
    }


def _answers(plan: Plan, measurement_plan: MeasurementPlan) -> int:
    queries = rehearsed_queries(plan)
    return sum(count_cells(measurement_plan, queries.queries, queries.buckets))


def _part_words(part: SimulatedData, full_plan: MeasurementPlan, runs: int) -> str:
    leaves, all_leaves = len(part.plan.measurement_plan.hierarchy.leaves), len(full_plan.hierarchy.leaves)
    words = "" if leaves == all_leaves else f"; {leaves:,} of {all_leaves:,} leaves, the levels above extrapolated"
    return f"{words}; {runs} run(s)"


def _estimating(plan: Plan, first: float, seconds: float, data: SimulatedData) -> float:
    """Return the seconds of the configured estimation: loading, plus the part's seconds scaled by the answers."""
    measurement_plan, part = plan.measurement_plan, data.plan.measurement_plan
    if measurement_plan.hierarchy.levels == 1:
        return first
    return first + seconds * _answers(plan, measurement_plan) / _answers(plan, part)


def _memory(plan: Plan, method: Consistency) -> int:
    """Return the bytes of the configured estimation in addition to the answers."""
    measurement_plan, cells = plan.measurement_plan, max_size_of(plan.measurement_plan)
    if method in SLOW:
        return memory_of_tables(method, measurement_plan.hierarchy.levels, measurement_plan.hierarchy.regions * cells)
    ranked = any(query.name in ("ranks", "split") for query in measurement_plan.queries)
    widest = max(cells, int(measurement_plan.per_region[GROUPS].max())) if ranked else cells
    return _REGION_BYTES * widest


def memory_of_tables(method: Consistency, levels: int, cells: int) -> int:
    """Return the bytes of a method that keeps tables of all regions x sizes in memory."""
    sparse = method == "posterior" and cells > MANY_CELLS and levels > 1
    return (_SPARSE_TABLES if sparse else _TABLES[method]) * BYTES * cells


def _querying_cost(plan: Plan) -> ResourceCost:
    measurement_plan = plan.measurement_plan
    regions = sum(len(measurement_plan.hierarchy.level_range(query.level)) for query in measurement_plan.queries)
    return ResourceCost(slowness() * (_REGION * regions + _CELL * plan.measurement_plan.answers))


def _reading(plan: Plan, options: ForecastOptions, part: SimulatedData | None) -> ResourceCost:
    """Return the cost of reading the private table, from its declared or assumed number of rows."""
    measurement_plan, data = plan.measurement_plan, plan.config.data
    if data.sizes is not None:
        counts: PrivateCounts = (part_of(plan, None, 1) if part is None else part).private
        leaves = len(measurement_plan.hierarchy.leaves) / len(counts.hierarchy.leaves)
        seconds, size = _COUNT_ROW
        rows = counts.sizes.size * leaves if options.rows is None else options.rows
        return ResourceCost(slowness() * seconds * rows, round(size * rows))
    groups, rows = int(assumed_groups(plan)[0]), _entities(plan, options)
    integer_ids = (
        isinstance(plan.detail, PublicGroups) and plan.detail.integer_ids and not data.table_of("entities").is_csv
    )
    (row, row_size), (group, group_size) = _INTEGERS if integer_ids else _TEXTS
    size = row_size * rows + group_size * groups
    return ResourceCost(slowness() * (row * rows + group * groups), size if integer_ids else min(size, _SPILLED))


def _entities(plan: Plan, options: ForecastOptions) -> int:
    return round(_ENTITIES * int(assumed_groups(plan)[0])) if options.rows is None else options.rows


def _rows_words(plan: Plan, options: ForecastOptions) -> str:
    if options.rows is not None:
        return f"{options.rows:,} in the private table, as declared"
    if plan.config.data.sizes is not None:
        return "in the private table as many as the rehearsal's data would have; --rows declares them"
    return f"in the private table {_entities(plan, options):,}, {_ENTITIES} assumed per group; --rows declares them"
