"""Predict a release of groups: the errors to expect, and its cost in seconds and memory, from public numbers alone."""

from __future__ import annotations

from collections.abc import Mapping

from coco_opt.groups.estimating.method import SLOW, Consistency
from coco_opt.groups.estimating.posterior.sparse import MANY_CELLS
from coco_opt.groups.kind.expected import expected_errors
from coco_opt.groups.kind.rehearsal import part_of
from coco_opt.groups.kind.simulated_data import assumed_groups
from coco_opt.groups.measuring.entities import PublicGroups
from coco_opt.groups.noisy_measurements import max_size_of
from coco_opt.groups.queries import GROUPS
from coco_opt.releases.kind import Forecast, ForecastOptions, Plan, ResourceCost, SimulatedData
from coco_opt.releases.reporter import Reporter
from coco_opt.releases.resource_cost import BYTES, slowness

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
        tables=(*plan.tables, errors.table),
        plain={
            "look_alike": errors.words,
            "predictions": errors.plain,
            "choices": [dict(zip(table.header, row, strict=True)) for table in plan.tables for row in table.rows],
        },
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
