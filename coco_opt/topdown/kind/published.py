"""The published parts of integer tables: files, promises, and the manifest's description of how they were estimated."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from coco_opt.config.model import Config
from coco_opt.files.folder import FileTable
from coco_opt.posterior.chains import Criterion
from coco_opt.privacy.measurement import Measurement, MeasurementPlan
from coco_opt.releases.kind import Released
from coco_opt.report.html import counted
from coco_opt.topdown.estimating.estimate import TablesResult
from coco_opt.topdown.estimating.linear.best_linear import LinearEstimates, best_linear, is_full, trees_are_best
from coco_opt.topdown.estimating.posterior.result import NOT_CONNECTED
from coco_opt.topdown.kind.earlier_releases import account_line, spent_in_all
from coco_opt.topdown.kind.files import (
    CONSTRAINTS,
    ESTIMATES,
    EXACT,
    MICRODATA,
    TABLES,
    cell_table,
    constraint_table,
    estimate_table,
    exact_table,
    person_table,
)
from coco_opt.topdown.kind.intervals import INTERVALS, WORDS, interval_table, settled_regions
from coco_opt.topdown.kind.intervals import PROMISE as INTERVALS_PROMISE
from coco_opt.topdown.kind.method import TablesMethod
from coco_opt.topdown.kind.verify import ALWAYS, CONSTRAINTS_HOLD, INVARIANTS_HOLD, MICRODATA_AGREE
from coco_opt.topdown.noisy_measurements import TableMeasurements
from coco_opt.topdown.schema import plain_schema
from coco_opt.topdown.table_queries import AGREES, CELLS_MEASURED, TableQueries


def released(measurement: Measurement, method: TablesMethod, result: TablesResult, config: Config) -> Released:
    """Return the tables, unbiased estimates, what holds exactly, and microdata if they are configured."""
    measurement_plan, measured = measurement.measurement_plan, TableMeasurements.of(measurement)
    linear, constraints = best_linear(measured.own, stage=result.linear), measured.invariants.but("release")
    estimates, left_out = estimate_table(measurement_plan, linear, method.workload)
    files: dict[str, FileTable] = {TABLES: cell_table(measurement_plan, result.schema, result.tables)}
    promises = list(ALWAYS)
    if constraints.bounds:
        files[EXACT] = exact_table(measurement_plan, constraints.bounds)
        promises.append(INVARIANTS_HOLD)
    if constraints.linear:
        files[CONSTRAINTS] = constraint_table(measurement_plan, constraints.linear, len(constraints.bounds))
        promises.append(CONSTRAINTS_HOLD)
    if measured.earlier:
        promises.append(AGREES)
    if estimates is not None:
        files[ESTIMATES] = estimates
    if config.method.microdata:
        files[MICRODATA] = person_table(measurement_plan, result.schema, result.tables[-1])
        promises.append(MICRODATA_AGREE)
    if result.posterior is not None and result.posterior.has_intervals:
        files[INTERVALS] = interval_table(measurement_plan, result)
        promises.append(INTERVALS_PROMISE)
    notes = (*_notes(measurement_plan, method, measured, linear, left_out), *_posterior_notes(result))
    return Released(files, tuple(promises), _manifest(measurement, method, measured, result), notes, for_page=linear)


def _manifest(
    measurement: Measurement, method: TablesMethod, measured: TableMeasurements, result: TablesResult
) -> dict[str, Any]:
    measurement_plan, cells_open = measurement.measurement_plan, TableQueries.all_leave_cells_open(measurement)
    chosen, uncertified_gap = method.topdown, result.uncertified_gap
    passes = [{"queries": list(step.queries), "tolerance": step.tolerance} for step in chosen.passes]
    exact = [
        {"query": invariant.query.text, "level": measurement_plan.levels[invariant.level]}
        for invariant in measured.invariants.declared
    ]
    earlier = [{**release, "level_name": measurement_plan.levels[release["level"]]} for release in measured.earlier]
    spent = spent_in_all(measurement_plan.cost, measurement_plan.neighbours, earlier)
    return {
        "schema": plain_schema(method.schema),
        CELLS_MEASURED: not cells_open,
        "method": {
            "estimation": chosen.estimation,
            "rounding": chosen.rounding,
            "rounding_order": [query.text for query in chosen.rounding_order],
            "passes": passes,
        },
        **_posterior_account(measurement_plan, result),
        "exact": exact,
        "facts": list(_constraint_entries(measurement_plan, measured)),
        **({AGREES: earlier, "spent_in_all": spent} if earlier else {}),
        "implied": asdict(result.implied),
        "relaxed": [
            {
                "region": relaxation.path,
                "persons_moved": relaxation.moved,
                "cells": [{"cell": cell, "change": change} for cell, change in relaxation.changes],
                "why": relaxation.why,
            }
            for relaxation in result.relaxed
        ],
        "unproved": {
            "steps": uncertified_gap.steps,
            "worst_relative_gap": uncertified_gap.gap,
            "without_gap": uncertified_gap.unknown,
        },
    }


def _posterior_account(measurement_plan: MeasurementPlan, result: TablesResult) -> dict[str, Any]:
    """Return the manifest's account of the chains and intervals of estimation "posterior", empty for others."""
    posterior = result.posterior
    if posterior is None:
        return {}
    sampled = posterior.sampled
    if sampled is None:
        return {"posterior": {"connected": False}}
    settled = settled_regions(sampled)
    account: dict[str, Any] = {
        "posterior": {
            "connected": True,
            **Criterion().account(settled, float(sampled.r_hat.max()), float(sampled.effective.min())),
            "regions": settled.size,
            "regions_not_converged": int((~settled).sum()),
            "draws": sampled.count,
            "sweeps": sampled.sweeps,
            "burn_in": sampled.burn_in,
            "classes": sampled.classes,
            "concentrations": [float(strength) for strength in sampled.strengths],
            **{
                name: [
                    {"level": measurement_plan.levels[level], "query": query.text, key: value}
                    for level, query, value in listed
                ]
                for name, key, listed in (
                    ("corrected", "weight", posterior.corrected),
                    ("widened", "factor", posterior.widened),
                    ("moved", "answers", posterior.moved),
                )
            },
        }
    }
    if posterior.has_intervals:
        queries = [query.text for query in posterior.queries]
        account["intervals"] = {"coverage": posterior.coverage, "queries": queries, "words": WORDS}
    return account


def _posterior_notes(result: TablesResult) -> Iterator[str]:
    """Yield what is less certain about the tables of estimation "posterior"."""
    if result.posterior is None:
        return
    sampled = result.posterior.sampled
    if sampled is None:
        yield NOT_CONNECTED
    elif not settled_regions(sampled).all():
        unsettled = int((~settled_regions(sampled)).sum())
        yield (
            f"After {sampled.sweeps:,} sweeps the chains of {counted(unsettled, 'region')} have not converged: the "
            f"tables keep every promise, but there tables and intervals are less certain; {INTERVALS} marks them. The "
            "linear estimates and their standard errors need no chains"
        )
        if sampled.stopped:
            yield "The chains stopped at the time of [auto]: with more of it, estimate again"


def _constraint_entries(measurement_plan: MeasurementPlan, measured: TableMeasurements) -> Iterator[dict[str, Any]]:
    """Yield every constraint that the tables keep, with its source; those of earlier releases are listed separately."""
    constraints = measured.invariants.but("release")
    for bound in constraints.bounds:
        yield {"query": bound.query.text, "level": measurement_plan.levels[bound.level], "source": bound.source}
    for constraint in constraints.linear:
        yield {
            "constraint": constraint.text,
            "terms": [list(term) for term in constraint.terms],
            "level": measurement_plan.levels[constraint.level],
            "source": constraint.source,
        }


def _notes(
    measurement_plan: MeasurementPlan,
    method: TablesMethod,
    measured: TableMeasurements,
    linear: LinearEstimates,
    left_out: Sequence[int],
) -> Iterator[str]:
    """Yield notes that the files do not show."""
    if measured.earlier:
        yield account_line(measurement_plan, measured.earlier)
        yield (
            "Unbiased estimates are of this measurement and of what is exact: the earlier releases' other answers have "
            "errors of their own, which standard errors would not show"
        )
    levels = range(measured.hierarchy.levels)
    for query in method.workload:
        if not all(linear.determines(query.operator, level).all() for level in levels):
            yield f"Not determined by what is measured: {query.text!r}; its released answers rest on others alone"
    if not is_full(linear) and not trees_are_best(measured.own):
        yield (
            "Unbiased estimates are made query by query and then corrected to what is exact in each region: their "
            "errors are as stated, but with so many cells, queries and constraints not everything that was measured "
            "is used"
        )
    if left_out:
        names = ", ".join(repr(measurement_plan.levels[level]) for level in left_out)
        yield f"No unbiased estimates of {names}: too many cells, or a solver failed on them"
    if method.topdown.estimation == "bottom_up" and any(level < levels[-1] for level, _ in measured.measured_queries):
        yield "bottom_up reads the leaves alone: what was spent on the levels above is not used"
