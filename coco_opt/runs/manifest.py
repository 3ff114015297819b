"""The public account of a release: what was done to which privacy, and what the folder promises."""

from __future__ import annotations

import platform
from collections.abc import Iterable
from fractions import Fraction
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from coco_opt.choices import Certificate
from coco_opt.groups import GroupsResult
from coco_opt.privacy.accounting import RENYI_ORDERS, epsilon_of_rho, implied_by, renyi_of_rho
from coco_opt.privacy.ledger_chain import Unit
from coco_opt.privacy.mechanism import amount_of, unit_of
from coco_opt.runs.plan import ReleasePlan, stated_delta
from coco_opt.runs.settings import RunSettings

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
        "versions": versions(),
        "method": _method(plan),
        "promises": [*_ALWAYS, *(["children_sum_to_parents"] if consistent else [])],
        "max_size": settings.groups.max_size,
        "solvers": {row.problem: solver_row(row) for row in result.certificates},
    }


def _budget(plan: ReleasePlan) -> dict[str, Any]:
    budget, unit = plan.budget, unit_of(plan.mechanism)
    noise = "noise_scale" if plan.mechanism == "geometric" else "noise_variance"
    levels = []
    for level, amount in enumerate(budget.levels):
        parameter = str(plan.parameter(level)) if amount else None
        levels.append({"level": level, unit: str(amount), noise: parameter})
    return {
        unit: str(amount_of(budget)),
        **implied_privacy(plan.settings, unit, amount_of(budget)),
        "neighbours": budget.neighbours,
        "mechanism": plan.mechanism,
        "noise": plan.source.name,
        "levels": levels,
    }


def implied_privacy(settings: RunSettings, unit: Unit, amount: Fraction) -> dict[str, Any]:
    """Return what a budget in its unit implies: zCDP of an epsilon, (epsilon, delta) of a rho, Renyi of both.

    A rho that was computed from (epsilon, delta) is stated with that pair.
    """
    if unit == "epsilon":
        implied = implied_by(amount)
        return {"implied": {"rho": str(implied.rho), "renyi": _strings(implied.renyi)}}
    delta, privacy = stated_delta(settings), settings.privacy
    pair = {"epsilon": str(epsilon_of_rho(amount, delta)), "delta": str(delta), "conversion": "tight"}
    renyi = [(order, renyi_of_rho(amount, order)) for order in RENYI_ORDERS]
    asked = {} if privacy.rho is not None else {"asked": {"epsilon": str(privacy.epsilon), "delta": str(delta)}}
    return {**asked, "implied": {**pair, "renyi": _strings(renyi)}}


def _strings(renyi: Iterable[tuple[int, Fraction]]) -> dict[str, str]:
    return {str(order): str(value) for order, value in renyi}


def _method(plan: ReleasePlan) -> dict[str, Any]:
    method = plan.method
    return {
        "estimators": list(plan.queries),
        "losses": list(method.losses),
        "ties": method.ties,
        "consistency": method.consistency,
        "merge": method.merge,
        "rounding": method.rounding,
        "variances": method.variances,
    }


def solver_row(row: Certificate) -> dict[str, Any]:
    """Return how well one kind of problem was solved."""
    return {
        "solver": row.solver,
        "solves": row.solves,
        "worst_gap": row.gap,
        "worst_relative_gap": row.relative_gap,
        "worst_violation": row.violation,
    }


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that shape a release."""
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
