"""Measure the private tables: integer arithmetic throughout, and only queries planned from public input."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from coco_opt.operators import Operator
from coco_opt.privacy.measurement import Measurement
from coco_opt.privacy.noise import NoiseSource
from coco_opt.privacy.queries import Exact, LevelQuery, Progress, add_noise
from coco_opt.topdown.budget_plan import TablePlan
from coco_opt.topdown.constraint import LinearConstraint
from coco_opt.topdown.invariants import Invariant
from coco_opt.topdown.measuring.counts import BLOCK, TableCounts
from coco_opt.topdown.measuring.feasibility_check import check_exact, meets, proved
from coco_opt.topdown.region_bounds import RegionBounds
from coco_opt.topdown.table_queries import TableQueries, noise_label


def measure_tables(
    counts: TableCounts,
    plan: TablePlan,
    *,
    source: NoiseSource,
    invariants: Sequence[Invariant] = (),
    bounds: Sequence[RegionBounds] = (),
    linear: Sequence[LinearConstraint] = (),
    levels: Sequence[str] = (),
    progress: Progress | None = None,
) -> Measurement:
    """Return the sealed noisy measurements of every query that costs something, in every region.

    ``invariants`` become exact public answers; ``bounds`` and ``linear`` constraints are public already. Exact answers
    keep their regions' counts from differing between neighbours, so they need a plan for "replace". ``levels`` names
    the levels, ``progress`` receives the number of finished answers and of all. Everything is checked before the first
    noise is drawn: raises ProblemError, also for noise that was already drawn; InputError (inconsistent-bounds,
    inconsistent-facts, too-large) for contradictory constraints. O(runs + answers) time and a proof of the
    constraints; memory is that of the answers and one block.
    """
    table_queries = TableQueries(counts.hierarchy, counts.schema, plan, tuple(invariants), tuple(bounds), tuple(linear))
    if not meets(counts, table_queries):
        proved(table_queries)
    check_exact(counts, table_queries)
    measurement_plan = table_queries.measurement_plan(levels)
    parts = exact_parts(counts, table_queries)
    answers = add_noise(
        measurement_plan.queries, parts, measurement_plan.hierarchy, measurement_plan.per_region, source, progress
    )
    return Measurement(measurement_plan, answers, source.name, source.private)


def exact_parts(counts: TableCounts, table_queries: TableQueries, block: int = BLOCK) -> Iterator[Exact]:
    """Yield the exact answers to all queries in their order, about ``block`` answers at a time; all PRIVATE."""
    for (level, query), level_query in zip(table_queries.plan.measured_queries, table_queries.noisy, strict=True):
        yield from _level_answers(counts, level_query, table_queries.plan.queries[query].operator, level, block)
    for invariant, level_query in zip(table_queries.invariants, table_queries.exact, strict=True):
        yield from _level_answers(counts, level_query, invariant.query.operator, invariant.level, block)


def _level_answers(
    counts: TableCounts, level_query: LevelQuery, operator: Operator, level: int, block: int
) -> Iterator[Exact]:
    regions, label = counts.hierarchy.level_range(level), noise_label(counts.hierarchy, level)
    step = max(1, block // operator.answers)
    for start in range(0, len(regions), step):
        yield Exact(level_query, label, counts.answers_to(operator, regions[start : start + step]).reshape(-1))
