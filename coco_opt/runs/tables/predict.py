"""What a release of tables will cost and how sure it will be, before anything is spent: from public input alone."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter

import numpy as np

from coco_opt.choices import SolverChoices
from coco_opt.privacy import SeededNoise
from coco_opt.runs.reporter import Reporter, Silent
from coco_opt.runs.tables.made import first_branches, made_tables
from coco_opt.runs.tables.plan import TablesPlan, plan_tables
from coco_opt.runs.tables.settings import TablesSettings
from coco_opt.topdown.invariants import Invariants
from coco_opt.topdown.linear import LinearStage, linear_stage
from coco_opt.topdown.measure import measure_tables
from coco_opt.topdown.measurements import TableMeasurements
from coco_opt.topdown.release import estimate_tables
from coco_opt.topdown.uncertainty import standard_errors

_BYTES = 8
_REHEARSED = 1_000  # regions up to which a whole hierarchy is rehearsed
_BRANCHES = 4


@dataclass(frozen=True, slots=True)
class TablesPrediction:
    """The standard error (persons, root mean square over regions and answers) of a workload query at a level.

    ``linear`` is that of the best linear unbiased estimate from all levels, ``alone`` from the region's own answers
    only (infinite where they do not determine it): both are exact. Released tables are nearer where true counts are
    small, for none is below zero, and biased upwards there.
    """

    level: int
    query: str
    linear: float
    alone: float


@dataclass(frozen=True, eq=False, slots=True)
class TablesForecast:
    """A plan, its predictions, bytes of the sealed measurements, and seconds of noise and post-processing."""

    plan: TablesPlan
    predictions: tuple[TablesPrediction, ...]
    sealed: int
    seconds: float


def forecast_tables(settings: TablesSettings, *, reporter: Reporter | None = None) -> TablesForecast:
    """Predict a release of tables; spends nothing and opens no private table. Raises what ``plan_tables`` does."""
    told = Silent() if reporter is None else reporter
    with told.stage("Reading the public tables"):
        plan = plan_tables(settings)
    with told.stage("Predicting"):
        everything, alone = linear_stage(_empty(plan)), [_alone(plan, level) for level in range(plan.queries.levels)]
        predictions = tuple(
            TablesPrediction(
                level,
                query.text,
                _rms(standard_errors(everything, query.operator, level)),
                np.inf if one is None else _rms(standard_errors(one, query.operator, 0)),
            )
            for level, one in enumerate(alone)
            for query in plan.workload
        )
    answers = sum(
        len(plan.hierarchy.level_range(level)) * plan.queries.queries[query].answers
        for level, query in plan.queries.asked
    )
    with told.stage("Rehearsing on made persons (a first run compiles)"):
        seconds = _rehearsed(plan)
    return TablesForecast(plan, predictions, _BYTES * answers, seconds)


def _rehearsed(plan: TablesPlan) -> float:
    """Return the seconds a release of made persons takes the second time; a part will do, time being linear."""
    tree = plan.hierarchy if plan.hierarchy.regions <= _REHEARSED else first_branches(plan.hierarchy, _BRANCHES)
    counts = made_tables(tree, plan.schema)
    seconds = 0.0
    for seed in range(2):
        start = perf_counter()
        measured = measure_tables(counts, plan.queries, source=SeededNoise(seed))
        estimate_tables(measured, plan.method, SolverChoices(dict(plan.solvers)))
        seconds = perf_counter() - start
    return seconds * plan.hierarchy.regions / tree.regions


def _empty(plan: TablesPlan) -> TableMeasurements:
    """Return measurements whose answers are all zero: errors depend on the budget and the hierarchy alone."""
    levels, zero = range(plan.queries.levels), np.zeros((), np.int64)
    answers = tuple(
        tuple(
            np.broadcast_to(zero, (len(plan.hierarchy.level_range(level)), query.answers)) if amount else None
            for query, amount in zip(plan.queries.queries, plan.queries.amounts[level], strict=True)
        )
        for level in levels
    )
    nothing = Invariants(plan.hierarchy, plan.schema)
    return TableMeasurements(
        plan.hierarchy, plan.schema, plan.queries, answers, "none", private=False, invariants=nothing
    )


def _alone(plan: TablesPlan, level: int) -> LinearStage | None:
    """Return the linear stage of one region that has this level's answers only."""
    from coco_opt.histograms import Hierarchy
    from coco_opt.topdown.plan import TablePlan

    amounts = plan.queries.amounts[level]
    if not any(amounts):
        return None
    one = Hierarchy.from_paths([("region",)])
    queries = TablePlan(plan.queries.queries, (amounts,), plan.queries.mechanism, plan.queries.neighbours)
    answers = tuple(
        np.zeros((1, query.answers), np.int64) if amount else None
        for query, amount in zip(queries.queries, amounts, strict=True)
    )
    nothing = Invariants(one, plan.schema)
    return linear_stage(
        TableMeasurements(one, plan.schema, queries, (answers,), "none", private=False, invariants=nothing)
    )


def _rms(errors: np.ndarray[tuple[int, int], np.dtype[np.float64]]) -> float:
    return float(np.sqrt((errors**2).mean())) if np.isfinite(errors).all() else float(np.inf)
