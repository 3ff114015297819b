"""The exact standard errors of tables' unbiased estimates, from the budget, the regions and public constraints."""

from __future__ import annotations

from dataclasses import dataclass
from time import process_time

import numpy as np

from coco_opt.activity import doing
from coco_opt.array_types import Floats
from coco_opt.histograms import Hierarchy
from coco_opt.releases.reporter import Progress, no_progress
from coco_opt.topdown.bounds import UNBOUNDED
from coco_opt.topdown.budget_plan import TablePlan
from coco_opt.topdown.estimating.linear.best_linear import LinearEstimates, best_linear
from coco_opt.topdown.invariants import Constraints, Invariants
from coco_opt.topdown.kind.plan import TablesDetail
from coco_opt.topdown.kind.rehearsal import generated_invariants
from coco_opt.topdown.noisy_measurements import TableMeasurements
from coco_opt.topdown.region_bounds import RegionBounds
from coco_opt.topdown.table_queries import TableQueries


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
