"""Add noise to the queries' exact answers: integers from the private counts to the noise and after it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from coco_opt.errors import ProblemError
from coco_opt.privacy.mechanism import check_source, open_stream
from coco_opt.privacy.noise import NoiseSource
from coco_opt.topdown.counts import BLOCK, TableCounts
from coco_opt.topdown.invariants import Invariant, Invariants, RegionBounds, exact_answers
from coco_opt.topdown.measurements import TableMeasurements, check_plan
from coco_opt.topdown.plan import TablePlan

Int64 = NDArray[np.int64]
Progress = Callable[[int, int], None]


def measure_tables(
    counts: TableCounts,
    plan: TablePlan,
    *,
    source: NoiseSource,
    invariants: Sequence[Invariant] = (),
    bounds: Sequence[RegionBounds] = (),
    progress: Progress | None = None,
) -> TableMeasurements:
    """Return the sealed noisy answers of every query that has an amount, in every region.

    ``invariants`` become exact public answers; ``bounds`` are public already. Exact answers keep their regions' counts
    from differing between neighbours, so they need a plan for "replace". ``progress`` is told the (level, query) pairs
    done and their number. Everything public is checked before the first noise is drawn: raises ProblemError, and for
    noise that was already drawn; InputError (inconsistent-bounds) for facts that exclude each other. O(runs + answers)
    time; memory is that of the answers and one block.
    """
    check_plan(plan, counts.hierarchy, counts.schema)
    check_source(source, plan.mechanism)
    if invariants and plan.neighbours != "replace":
        raise ProblemError(
            'invariants are exact counts, which adding or removing a person would change: use neighbours = "replace"'
        )
    for one in invariants:
        if one.query.operator.cells != counts.schema.size or not 0 <= one.level < counts.hierarchy.levels:
            raise ProblemError(f"the invariant {one.query.name!r} is over another schema or on an unknown level")
    exact = exact_answers(invariants, counts.answers_of, counts.hierarchy)
    facts = Invariants(counts.hierarchy, counts.schema, (*bounds, *exact), tuple(invariants))
    answers: list[list[Int64 | None]] = [[None] * len(plan.queries) for _ in range(plan.levels)]
    for done, (level, query) in enumerate(plan.asked):
        answers[level][query] = _measure(counts, plan, level, query, source)
        if progress is not None:
            progress(done + 1, len(plan.asked))
    sealed = tuple(tuple(level) for level in answers)
    return TableMeasurements(counts.hierarchy, counts.schema, plan, sealed, source.name, source.private, facts)


def _measure(counts: TableCounts, plan: TablePlan, level: int, query: int, source: NoiseSource) -> Int64:
    """Return a level's noisy answers to one query, int64[regions, answers]."""
    asked = plan.queries[query]
    regions = counts.hierarchy.level_range(level)
    # One stream serves all regions of a level, region after region in the public hierarchy's order: its cells are
    # independent draws of one law wherever they are read, so the answers have the law that one stream a region would
    # give, without the cost of opening 25,000 ciphers for a query of one answer.
    stream = open_stream(
        source,
        plan.mechanism,
        plan.parameter(level, query),
        measurement=f"table {asked.name}",
        region=f"{counts.hierarchy.paths[0]}, level {level}",
    )
    out = np.empty((len(regions), asked.answers), np.int64)
    step = max(1, BLOCK // asked.answers)
    for at in range(0, len(regions), step):
        exact = counts.answers_of(asked.operator, regions[at : at + step])
        out[at : at + step] = stream.add_to(exact.reshape(-1)).reshape(exact.shape)
    return out
