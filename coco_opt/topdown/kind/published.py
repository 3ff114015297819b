"""What is published of whole tables: the files, what they promise, and the manifest's account of how they were made."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from coco_opt.config.model import Config
from coco_opt.files.folder import FileTable
from coco_opt.privacy.measurement import Asked, Measurement
from coco_opt.releases.kind import Released
from coco_opt.topdown.answers import TableAnswers
from coco_opt.topdown.estimated.best_linear import LinearEstimates, best_linear, is_full, trees_are_best
from coco_opt.topdown.estimated.estimate import TablesResult
from coco_opt.topdown.kind.earlier import account_line, spent_in_all
from coco_opt.topdown.kind.files import (
    CONSTRAINTS,
    ESTIMATES,
    EXACT,
    MICRODATA,
    TABLES,
    CellRuns,
    cell_table,
    constraint_table,
    estimate_table,
    exact_table,
    person_table,
)
from coco_opt.topdown.kind.method import TablesMethod
from coco_opt.topdown.kind.verify import ALWAYS, CONSTRAINTS_HOLD, INVARIANTS_HOLD, MICRODATA_AGREE
from coco_opt.topdown.plain import plain_schema
from coco_opt.topdown.questions import AGREES


def released(measurement: Measurement, method: TablesMethod, result: TablesResult, config: Config) -> Released:
    """Return the tables beside unbiased estimates, what holds exactly, and microdata where they are asked for."""
    asked, measured = measurement.asked, TableAnswers.of(measurement)
    linear, facts = best_linear(measured.alone), measured.invariants.but("release")
    estimates, left_out = estimate_table(asked, linear, method.workload)
    files: dict[str, FileTable] = {TABLES: cell_table(asked, result.schema, result.tables)}
    promises = list(ALWAYS)
    if facts.bounds:
        files[EXACT] = exact_table(asked, facts.bounds)
        promises.append(INVARIANTS_HOLD)
    if facts.linear:
        files[CONSTRAINTS] = constraint_table(asked, facts.linear, len(facts.bounds))
        promises.append(CONSTRAINTS_HOLD)
    if measured.earlier:
        promises.append(AGREES)
    if estimates is not None:
        files[ESTIMATES] = estimates
    if config.method.microdata:
        files[MICRODATA] = person_table(asked, result.schema, CellRuns.of(result.tables))
        promises.append(MICRODATA_AGREE)
    notes = tuple(_notes(asked, method, measured, linear, left_out))
    return Released(files, tuple(promises), _manifest(asked, method, measured, result), notes, beside=linear)


def _manifest(asked: Asked, method: TablesMethod, measured: TableAnswers, result: TablesResult) -> dict[str, Any]:
    chosen, unproved = method.topdown, result.unproved
    passes = [{"queries": list(one.queries), "tolerance": one.tolerance} for one in chosen.passes]
    exact = [{"query": one.query.text, "level": asked.levels[one.level]} for one in measured.invariants.declared]
    return {
        "schema": plain_schema(method.schema),
        "method": {
            "estimation": chosen.estimation,
            "rounding": chosen.rounding,
            "rounding_order": [query.text for query in chosen.rounding_order],
            "passes": passes,
        },
        "exact": exact,
        "facts": list(_facts(asked, measured)),
        **(_agrees(asked, measured) if measured.earlier else {}),
        "implied": asdict(result.implied),
        "relaxed": [
            {
                "region": one.path,
                "persons_moved": one.moved,
                "cells": [{"cell": cell, "change": change} for cell, change in one.changes],
                "why": one.why,
            }
            for one in result.relaxed
        ],
        "unproved": {
            "steps": unproved.steps,
            "worst_relative_gap": unproved.gap,
            "without_gap": unproved.unknown,
        },
    }


def _facts(asked: Asked, measured: TableAnswers) -> Iterator[dict[str, Any]]:
    """Yield every fact that the tables keep, and where it comes from; those of earlier releases stand in these."""
    facts = measured.invariants.but("release")
    for one in facts.bounds:
        yield {"query": one.query.text, "level": asked.levels[one.level], "source": one.source}
    for constraint in facts.linear:
        yield {
            "constraint": constraint.text,
            "terms": [list(term) for term in constraint.terms],
            "level": asked.levels[constraint.level],
            "source": constraint.source,
        }


def _agrees(asked: Asked, measured: TableAnswers) -> dict[str, Any]:
    """Return the earlier releases that these tables agree with, each bound by digest, and what all cost together."""
    earlier = [{**one, "level_name": asked.levels[one["level"]]} for one in measured.earlier]
    return {AGREES: earlier, "spent_in_all": spent_in_all(asked.cost, asked.neighbours, earlier)}


def _notes(
    asked: Asked, method: TablesMethod, measured: TableAnswers, linear: LinearEstimates, left_out: Sequence[int]
) -> Iterator[str]:
    """Yield what the files do not say by themselves."""
    if measured.earlier:
        yield account_line(asked.cost, asked.neighbours, measured.earlier)
        yield (
            "Unbiased estimates are of this measurement alone: the earlier releases' answers have errors of their own, "
            "which standard errors would not show"
        )
    levels = range(measured.hierarchy.levels)
    for query in method.workload:
        if not all(linear.determines(query.operator, level).all() for level in levels):
            yield f"Not determined by what is measured: {query.text!r}; its released answers rest on others alone"
    if not is_full(linear) and not trees_are_best(measured.alone):
        yield (
            "Unbiased estimates are made query by query, without what is exact: their errors are as stated, but with "
            "so many cells not everything that was measured is used"
        )
    if left_out:
        names = ", ".join(repr(asked.levels[level]) for level in left_out)
        yield f"No unbiased estimates of {names}: too many cells, or a solver failed on them"
    if method.topdown.estimation == "bottom_up" and any(level < levels[-1] for level, _ in measured.asked):
        yield "bottom_up reads the leaves alone: what was spent on the levels above is not used"
