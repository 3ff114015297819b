"""The public account of a release of tables: what was done to which privacy, and what the folder promises."""

from __future__ import annotations

from typing import Any

from coco_opt.runs.manifest import implied_privacy, solver_row, versions
from coco_opt.runs.tables.plan import TablesPlan
from coco_opt.tables.persons import FORMAT
from coco_opt.topdown.plain import plain_schema
from coco_opt.topdown.release import TablesResult

_ALWAYS = ("integers", "nonnegative", "structural_zeros", "children_sum_to_parents")


def manifest_of_tables(plan: TablesPlan, result: TablesResult) -> dict[str, Any]:
    """Return the manifest: public parameters and figures of the noisy result; no time and nothing private."""
    topdown = plan.settings.topdown
    bound = bool(plan.bounds or plan.invariants)
    promises = [*_ALWAYS, *(["invariants"] if bound else []), *(["microdata"] if topdown.microdata else [])]
    return {
        "format": FORMAT,
        "name": plan.settings.name,
        "status": "private" if plan.source.private else "NOT PRIVATE",
        "private": plan.source.private,
        "budget": _budget(plan),
        "config": plan.settings.as_dict(),
        "versions": versions(),
        "schema": plain_schema(plan.schema),
        "levels": list(plan.public.levels),
        "method": {"estimation": plan.method.estimation, "rounding": plan.method.rounding},
        "exact": [{"query": one.query.text, "level": plan.public.levels[one.level]} for one in plan.invariants],
        "promises": promises,
        "relaxed": [{"region": one.path, "persons_moved": one.moved} for one in result.relaxed],
        "unproved_rounding": result.unproved,
        "solvers": {row.problem: solver_row(row) for row in result.certificates},
    }


def _budget(plan: TablesPlan) -> dict[str, Any]:
    queries = plan.queries
    noise = "noise_scale" if queries.mechanism == "geometric" else "noise_variance"
    asked = [
        {
            "level": level,
            "query": queries.queries[query].text,
            queries.unit: str(queries.amounts[level][query]),
            noise: str(queries.parameter(level, query)),
        }
        for level, query in queries.asked
    ]
    return {
        queries.unit: str(queries.spent),
        **implied_privacy(plan.settings, queries.unit, queries.spent),
        "neighbours": queries.neighbours,
        "mechanism": queries.mechanism,
        "noise": plan.source.name,
        "queries": asked,
    }
