"""The public account of a release: what was done to which privacy, and what the folder promises."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from coco_opt.choices import Certificate
from coco_opt.groups import GroupsResult
from coco_opt.privacy.accounting import implied_by
from coco_opt.runs.plan import ReleasePlan

_PACKAGES = ("coco-opt", "numpy", "scipy", "numba", "duckdb", "pyarrow", "opendp")
_ALWAYS = ("integers", "nonnegative", "sizes_at_most_max_size", "group_totals")


def manifest_of(plan: ReleasePlan, result: GroupsResult) -> dict[str, Any]:
    """Return the manifest: public parameters and figures of the noisy result; no time and nothing private."""
    settings = plan.settings
    consistent = settings.groups.consistency != "none"
    return {
        "format": "coco-opt groups release 1",
        "name": settings.name,
        "status": "private" if plan.source.private else "NOT PRIVATE",
        "private": plan.source.private,
        "budget": _budget(plan),
        "config": settings.as_dict(),
        "versions": _versions(),
        "method": _method(plan),
        "promises": [*_ALWAYS, *(["children_sum_to_parents"] if consistent else [])],
        "max_size": settings.groups.max_size,
        "solvers": {row.problem: _solver(row) for row in result.certificates},
    }


def _budget(plan: ReleasePlan) -> dict[str, Any]:
    levels = []
    for level, epsilon in enumerate(plan.budget.levels):
        query = plan.queries[level]
        scale = str(plan.budget.scale(level, query)) if epsilon else None
        levels.append({"level": level, "epsilon": str(epsilon), "noise_scale": scale})
    implied = implied_by(plan.budget.epsilon)
    return {
        "epsilon": str(plan.budget.epsilon),
        "implied": {"rho": str(implied.rho), "renyi": {str(order): str(value) for order, value in implied.renyi}},
        "neighbours": plan.budget.neighbours,
        "mechanism": "geometric",
        "noise": plan.source.name,
        "levels": levels,
    }


def _method(plan: ReleasePlan) -> dict[str, Any]:
    method = plan.method
    return {
        "estimators": list(plan.queries),
        "losses": list(method.losses),
        "ties": method.ties,
        "consistency": method.consistency,
        "merge": method.merge,
        "rounding": method.rounding,
    }


def _solver(row: Certificate) -> dict[str, Any]:
    return {
        "solver": row.solver,
        "solves": row.solves,
        "worst_gap": row.gap,
        "worst_relative_gap": row.relative_gap,
        "worst_violation": row.violation,
    }


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
