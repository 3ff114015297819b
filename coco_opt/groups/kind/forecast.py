"""Predict a release of groups: the errors to expect, and its cost in seconds and memory, from public numbers alone.

The posterior's errors are a range by a formula (``coco_opt.groups.measuring.predicted``), under each
size distribution of the family of ``assumed_distributions`` or under the distribution that a look suggests. Another
method's are a range over rehearsals on part of simulated data, under a few distributions of the family. On public data,
or where several runs are requested, every method that can read the planned queries is rehearsed on part of the data,
with seeded noise, and its errors are extrapolated to all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Final

import numpy as np

from coco_opt.activity import doing
from coco_opt.array_types import Floats, Ints
from coco_opt.choices import SolverChoices
from coco_opt.errors import ConfigError
from coco_opt.estimators import added_rows
from coco_opt.groups.buckets import Buckets
from coco_opt.groups.estimating.method import SLOW, Consistency, GroupsMethod
from coco_opt.groups.estimating.posterior.convergence import longest_posterior_seconds, posterior_seconds
from coco_opt.groups.estimating.posterior.sparse import MANY_CELLS
from coco_opt.groups.kind.automatic import range_words
from coco_opt.groups.kind.plan import method_of
from coco_opt.groups.kind.rehearsal import Rehearsal, branch_answers, branches_within, extrapolated, on_leaves, part_of
from coco_opt.groups.kind.simulated_data import (
    assumed_groups,
    numbers_words,
    read_simulated_data,
    simulated_data_of,
)
from coco_opt.groups.look import distribution_of_look, is_look
from coco_opt.groups.measuring.automatic import assumed_distributions, grid_growth
from coco_opt.groups.measuring.entities import PublicGroups
from coco_opt.groups.measuring.predicted import Predictor, Regions, range_of
from coco_opt.groups.measuring.private import PrivateCounts
from coco_opt.groups.noisy_measurements import buckets_of, max_size_of, size_queries
from coco_opt.groups.queries import GROUPS, sensitivity
from coco_opt.privacy import Measurement, MeasurementPlan
from coco_opt.privacy.planner import NoisePlan, uniform_shares
from coco_opt.releases.kind import Figures, Forecast, ForecastOptions, Plan, ResourceCost, SimulatedData
from coco_opt.releases.reporter import Reporter
from coco_opt.releases.resource_cost import BYTES, slowness
from coco_opt.releases.solvers import choices_of

COMPARED: tuple[Consistency, ...] = ("posterior", "joint", "matching", "bottom_up")
"""The methods whose errors are compared with those of the configured method, with those of other packages."""

_REHEARSED: Final = ("steep, 70 % empty", "heavy tail (1/s)", "geometric")
_BELOW, _ABOVE = 2.5, 1.5  # factors by which errors may lie outside those rehearsed: data of few sizes err less

# Noisy answers of a rehearsal of about two seconds, by method. All compared methods use the same part of the data.
_ANSWERS: Mapping[Consistency, int] = {"posterior": 50_000, "joint": 120_000, "convex": 400_000}
_MOST_ANSWERS = 1_000_000
_SECONDS = 2.0  # of a release of so many answers
_CORES = 2  # of the times of the posterior that were measured
_TIMED = 0.1  # seconds of an estimation from which on one run times it well
_RUNS = 300  # sizes of leaves that have groups, added up, beyond which the posterior takes long too
_TOO_MANY = 4  # times its answers: then a slow method is not compared
_LOADING = 1.0  # seconds of loading compiled kernels, at most


@dataclass(frozen=True, eq=False, slots=True)
class ExpectedErrors:
    """Errors by level as a table and as plain values, what they rest on, and the seconds of the estimation.

    ``longest`` are the seconds where the posterior converges slowly, which public numbers do not determine.
    """

    table: Figures
    plain: list[dict[str, Any]]
    words: str
    seconds: float
    part: SimulatedData | None = None
    longest: float | None = None


def expected_errors(plan: Plan, options: ForecastOptions, reporter: Reporter) -> ExpectedErrors:
    """Return the errors to expect of a plan; raises InputError, ProblemError."""
    if options.public is not None or options.runs > 1:
        simulated_data = None if options.public is None else read_simulated_data(plan, options.public)
        return rehearsed(plan, simulated_data, options.runs, reporter)
    # A formula predicts the posterior of cumulative counts.
    others = {"ranks", "split", "sizes"}.intersection(query.name for query in plan.measurement_plan.queries)
    if plan.config.method.consistency == "posterior" and not others:
        return _of_formula(plan)
    return _of_family(plan, reporter)


def _distributions(plan: Plan) -> tuple[dict[str, Floats], str]:
    """Return the size distributions that a plan's errors are predicted under, by name, and words about them."""
    if plan.also:
        return {"look": distribution_of_look(plan.also[0])}, "the size distribution that the look suggests"
    family = assumed_distributions(max_size_of(plan.measurement_plan))
    return family, f"{len(family)} size distributions, from steep (the lower ends) to flat"


def _of_formula(plan: Plan) -> ExpectedErrors:
    distributions, words = _distributions(plan)
    grid = grid_growth(len(distributions))  # as the choice's, so that both state the same errors
    groups, measured = assumed_groups(plan), plan.measurement_plan
    errors = [_predicted(measured, groups, each, grid)[0] for each in distributions.values()]
    expected = _range(plan, *range_of(np.array(errors)), f"predicted under {words}, with {numbers_words(plan)}")
    return replace(expected, seconds=slowness() * posterior_seconds(measured.answers), longest=_longest(plan))


def _of_family(plan: Plan, reporter: Reporter) -> ExpectedErrors:
    """Return the range of the configured method's errors, rehearsed under a few distributions."""
    method, solvers = method_of(plan.config, plan.measurement_plan), choices_of(plan.config)
    family, _ = _distributions(plan)
    chosen = [each for name, each in family.items() if plan.also or name.startswith(_REHEARSED)]
    branches = branches_within(plan, _ANSWERS.get(method.consistency, _MOST_ANSWERS) // len(chosen))
    errors, seconds = [], 0.0
    with reporter.stage("Rehearsing"):
        first = _first_seconds(Rehearsal(part_of(plan, None, 1)), method, solvers)
        parts = [simulated_data_of(plan, branches, probabilities) for probabilities in chosen]
        for rehearsal in map(Rehearsal, parts):
            seconds = max(seconds, rehearsal.seconds(method, solvers, 0.1))
            (run,), _ = rehearsal.errors(method, 1, solvers)
            errors.append(extrapolated(run, rehearsal.plan.hierarchy, plan.measurement_plan.hierarchy))
    low, high = np.min(errors, axis=0) / _BELOW, np.max(errors, axis=0) * _ABOVE
    words = f"rehearsed on simulated data of {len(chosen)} size distributions, with {numbers_words(plan)}"
    return replace(_range(plan, low, high, words), seconds=_estimating(plan, first, seconds, parts[0]), part=parts[0])


def _range(plan: Plan, low: Floats, high: Floats, words: str) -> ExpectedErrors:
    """Return the least and largest mean distance of a region (entities) by level, float64[levels], as a table."""
    method = plan.config.method.consistency
    header = "method", *plan.measurement_plan.levels
    row = method, *range_words(low, high)
    table = Figures("Expected mean earth mover's distance of a region (entities)", header, (row,))
    plain = {"method": method, "low": low.tolist(), "high": high.tolist()}
    return ExpectedErrors(table, [plain], words, 0.0)


def _longest(plan: Plan) -> float:
    measurement_plan = plan.measurement_plan
    regions = measurement_plan.hierarchy.regions
    return slowness() * longest_posterior_seconds(measurement_plan.answers, plan.config.auto.time, regions)


def errors_and_even(measurement: Measurement) -> Floats | None:
    """Return the posterior's errors by level under the look's distribution, and with an even allocation, [2, levels].

    None without a look, or where a level was not measured by cumulative counts.
    """
    plan = measurement.measurement_plan
    looks = [further for further in measurement.also if is_look(further.measurement_plan)]
    cumulative = [query.level for query in plan.queries if query.name in ("cumulative", "buckets")]
    if not looks or sorted(cumulative) != list(range(plan.hierarchy.levels)):
        return None
    return _predicted(plan, plan.per_region[GROUPS], distribution_of_look(looks[0]), grid_growth(1), even=True)


def _predicted(plan: MeasurementPlan, groups: Ints, sizes: Floats, grid: float, *, even: bool = False) -> Floats:
    """Return the posterior's errors [1 or 2, levels] as planned, and with the same buckets and an ``even`` allocation.

    ``sizes`` are the probabilities of group sizes.
    """
    levels = range(plan.hierarchy.levels)
    measured = {query.level: float(query.distribution.variance) for query in size_queries(plan)}
    variances = [np.array([measured.get(level, np.inf) for level in levels])]
    if even:
        noise = NoisePlan(plan.cost, (sensitivity("cumulative", plan.neighbours),) * len(levels))
        variances.append(noise.variances(uniform_shares(len(levels))))
    buckets = [buckets_of(plan, level) or Buckets.cells(max_size_of(plan)) for level in levels]
    predictor = Predictor(Regions.of(plan.hierarchy, groups), sizes, grid)
    return np.array([predictor.errors(buckets, each) for each in variances])


def rehearsed(plan: Plan, public: SimulatedData | None, runs: int, reporter: Reporter) -> ExpectedErrors:
    """Rehearse every method that can read the planned queries on part of the simulated data."""
    configured, solvers = plan.config.method.consistency, choices_of(plan.config)
    full = plan if public is None else public.plan
    methods, branches = _within_seconds(full, readable_methods(plan))
    part = part_of(plan, public, branches)
    counts: PrivateCounts = part.private
    if configured != "posterior" and counts.sizes.size > _RUNS:
        methods.pop("posterior", None)
    if "posterior" in methods:
        # The sweeps of a usual run, although chains of some data need ten times as many.
        posterior, usual = methods["posterior"], posterior_seconds(part.plan.measurement_plan.answers)
        methods["posterior"] = replace(posterior, seconds=min(posterior.seconds, usual))
    reporter.line(_rehearsal_words(part, methods, runs))
    rows, plain, first, seconds = [], [], 0.0, 0.0
    with reporter.stage("Rehearsing") as progress:
        for done, (name, method) in enumerate(methods.items()):
            progress(done, len(methods))
            used = on_leaves(part) if name == "bottom_up" else part
            rehearsal = Rehearsal(used)
            with doing(name):
                if name == configured:
                    path = part_of(plan, public, 1)
                    first = _first_seconds(Rehearsal(on_leaves(path) if used is not part else path), method, solvers)
                errors, each = rehearsal.errors(method, runs, solvers)
                if name == configured:
                    seconds = each if each > _TIMED else rehearsal.seconds(method, solvers)
            level_errors = extrapolated(errors.mean(axis=0), rehearsal.plan.hierarchy, plan.measurement_plan.hierarchy)
            split, costs = (
                "as configured" if used is part else "leaves",
                used.plan.config.levels_cost(len(level_errors)),
            )
            shares = [Fraction(cost.amount) / plan.measurement_plan.cost.amount for cost in costs]
            shown = " ".join(f"{float(share):.3f}" for share in shares)
            rows.append((name, split, shown, *(f"{error:.4g}" for error in level_errors.tolist())))
            stated = {"split": split, "shares": list(map(str, shares)), "errors": level_errors.tolist()}
            plain.append({"method": name, **stated})
    header = "method", "split", "shares", *plan.measurement_plan.levels
    table = Figures("Mean earth mover's distance of a region (entities): rehearsed", header, tuple(rows), numeric=3)
    leaves, all_leaves = (len(each.measurement_plan.hierarchy.leaves) for each in (part.plan, full))
    words = "" if leaves == all_leaves else f"; {leaves:,} of {all_leaves:,} leaves, the levels above extrapolated"
    words = f"rehearsed on {part.words}{words}; {runs} run(s)"
    seconds = _estimating(plan, first, seconds, part)
    longest = max(seconds, _longest(plan)) if configured == "posterior" else None
    return ExpectedErrors(table, plain, words, seconds, part, longest)


def _rehearsal_words(part: SimulatedData, methods: Mapping[Consistency, GroupsMethod], runs: int) -> str:
    """Return how many releases a rehearsal makes, and about how long they take."""
    answers = part.plan.measurement_plan.answers
    seconds = sum(_SECONDS * answers / _ANSWERS.get(name, _MOST_ANSWERS) for name in methods)
    if "posterior" in methods:  # of both cores
        seconds += _CORES * posterior_seconds(answers)
    seconds = max(1, round(slowness() * runs * seconds))
    releases = f"{runs} release(s) of {part.private.hierarchy.regions:,} regions by each of {', '.join(methods)}"
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


def _first_seconds(path: Rehearsal, method: GroupsMethod, solvers: SolverChoices) -> float:
    """Return the seconds of a process's first estimation, on one path, with loading but not compiling kernels."""
    first, again = (path.seconds(method, solvers, 0.0) for _ in range(2))
    return again + min(max(first - again, 0.0), _LOADING * slowness())


def _estimating(plan: Plan, first: float, seconds: float, data: SimulatedData) -> float:
    """Return the seconds of the configured estimation: loading, plus the part's seconds scaled by the answers."""
    measurement_plan, part = plan.measurement_plan, data.plan.measurement_plan
    if measurement_plan.hierarchy.levels == 1:
        return first
    return first + seconds * measurement_plan.answers / max(part.answers, 1)


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


# Tables of regions x sizes in memory; those of the posterior where it keeps draws by the sizes that occur.
_TABLES: Mapping[Consistency, int] = {"posterior": 45, "joint": 8, "convex": 10}
_SPARSE_TABLES = 6
_REGION_BYTES = 100  # a cell of the widest region, where regions are fitted one after the other
# Seconds and bytes a row: of integer ids outside CSV files, of texts, and of tables of counts.
_INTEGERS, _TEXTS = ((2.4e-7, 10), (1.2e-7, 30)), ((1.05e-6, 92), (1.1e-6, 110))
_COUNT_ROW = (3e-6, 300)
_SPILLED = 1_600_000_000  # bytes in memory at most of tables of texts, which lie on disk beyond
_ENTITIES = 2.5  # a group, unless declared
_REGION, _CELL = 2.2e-4, 1.6e-8  # seconds of querying
_DISTANCE = (
    "the earth mover's: entities to add to or remove from groups until the released histogram is the true one, on "
    "average over a level's regions"
)
_PAGE, _LEVEL = 0.7, 0.27  # seconds of a page and of a level's figure


def forecast_groups(plan: Plan, options: ForecastOptions, reporter: Reporter) -> Forecast:
    """Predict a release; public data are a table of sizes with as many levels.

    Raises InputError, ProblemError; deterministic but for the seconds.
    """
    errors = expected_errors(plan, options, reporter)
    measurement_plan, tree = plan.measurement_plan, plan.measurement_plan.hierarchy
    regions = sum(len(tree.level_range(query.level)) for query in measurement_plan.queries)
    notes = [("Distance", _DISTANCE), ("Errors", errors.words), ("Rows", _rows_words(plan, options))]
    if plan.look is not None:
        words = (
            f"{plan.look.cost} of the budget is spent first, and its answers choose the queries: those above stand in"
        )
        notes.insert(0, ("Look", words))
    return Forecast(
        tables=(errors.table,),
        plain={"look_alike": errors.words, "predictions": errors.plain},
        notes=tuple(notes),
        reading=_reading(plan, options, errors.part),
        querying=ResourceCost(slowness() * (_REGION * regions + _CELL * measurement_plan.answers)),
        estimating=ResourceCost(errors.seconds, _memory(plan), errors.longest),
        writing=ResourceCost(slowness() * (_PAGE + _LEVEL * tree.levels)),
    )


def _memory(plan: Plan) -> int:
    """Return the bytes of the configured estimation in addition to the answers."""
    measurement_plan, method = plan.measurement_plan, plan.config.method.consistency
    tree, cells = measurement_plan.hierarchy, max_size_of(measurement_plan)
    if method in SLOW:
        return memory_of_tables(method, tree.levels, tree.regions * cells)
    ranked = any(query.name in ("ranks", "split") for query in measurement_plan.queries)
    widest = max(cells, int(measurement_plan.per_region[GROUPS].max())) if ranked else cells
    return _REGION_BYTES * widest


def memory_of_tables(method: Consistency, levels: int, cells: int) -> int:
    """Return the bytes of a method that keeps tables of all regions x sizes in memory."""
    sparse = method == "posterior" and cells > MANY_CELLS and levels > 1
    return (_SPARSE_TABLES if sparse else _TABLES[method]) * BYTES * cells


def _reading(plan: Plan, options: ForecastOptions, part: SimulatedData | None) -> ResourceCost:
    """Return the cost of reading the private table, from its declared or assumed number of rows."""
    measurement_plan, data = plan.measurement_plan, plan.config.data
    if data.sizes is not None:
        counts = (part_of(plan, None, 1) if part is None else part).private
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
