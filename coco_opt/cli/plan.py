"""``coco-opt plan``: what a release will cost and how far off it will be, before anything is spent."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coco_opt.cli.console import TerminalReporter, cell, figure, fraction, size, write, write_json, write_table
from coco_opt.cli.options import ConfigFile, Json, Version

if TYPE_CHECKING:
    from coco_opt.privacy.planner import Prediction
    from coco_opt.runs.predict import Forecast


def plan(
    config: ConfigFile,
    like: Annotated[
        Path | None,
        typer.Option("--like", metavar="FILE", help="Public data like the private: a table of sizes to rehearse on."),
    ] = None,
    runs: Annotated[int, typer.Option("--runs", min=1, help="Simulated releases a prediction.")] = 3,
    json: Json = False,
    version: Version = False,
) -> int:
    """Predict errors by level, method and split, time and memory; spends nothing, reads public columns only."""
    from coco_opt.config import TablesConfig, load_any
    from coco_opt.runs.predict import forecast

    settings = load_any(config)
    if isinstance(settings, TablesConfig):
        from coco_opt.cli.plan_tables import show_forecast

        return show_forecast(settings, like, json=json)
    found = forecast(settings, like, runs=runs, reporter=TerminalReporter(lines=not json))
    if json:
        write_json(_as_json(found))
    else:
        _write_tables(found)
    return 0


def _levels(found: Forecast) -> list[dict[str, Any]]:
    release = found.plan
    unit, noise = _columns(found)
    rows = []
    for level, amount in enumerate(release.budget.levels):
        regions = release.hierarchy.level_range(level)
        rows.append(
            {
                "level": level,
                "regions": len(regions),
                "groups": int(release.group_counts[regions.start : regions.stop].sum()),
                "estimator": release.queries[level],
                "cells": found.cells[level] if amount else 0,
                unit: str(amount),
                noise: str(release.parameter(level)) if amount else None,
            }
        )
    return rows


def _columns(found: Forecast) -> tuple[str, str]:
    """Return what a mechanism is charged in and what describes its noise."""
    pure = found.plan.mechanism == "geometric"
    return ("epsilon", "noise_scale") if pure else ("rho", "noise_variance")


def _as_json(found: Forecast) -> dict[str, Any]:
    from coco_opt.privacy.mechanism import amount_of

    return {
        _columns(found)[0]: str(amount_of(found.plan.budget)),
        "implied": _implied(found),
        "levels": _levels(found),
        "look_alike": found.look_alike,
        "predictions": [
            {
                "method": one.method,
                "split": one.split,
                "shares": [str(share) for share in one.shares],
                "errors": list(one.errors),
                "exact": one.exact,
            }
            for one in found.predictions
        ],
        "best_split": [str(share) for share in found.best.shares],
        "seconds": found.seconds,
        "memory_bytes": found.memory,
        "sealed_bytes": found.sealed,
    }


def _implied(found: Forecast) -> dict[str, Any]:
    """Return what the release's budget implies: zCDP of an epsilon, (epsilon, delta) of a rho, Renyi of both."""
    from coco_opt.privacy.accounting import RENYI_ORDERS, ConcentratedBudget, implied_by, renyi_of_rho
    from coco_opt.runs.plan import stated_delta

    budget = found.plan.budget
    if isinstance(budget, ConcentratedBudget):
        delta = stated_delta(found.plan.settings)
        renyi = {str(order): float(renyi_of_rho(budget.rho, order)) for order in RENYI_ORDERS}
        return {"epsilon": str(budget.epsilon(delta)), "delta": str(delta), "renyi": renyi}
    implied = implied_by(budget.epsilon)
    return {"rho": str(implied.rho), "renyi": {str(order): float(value) for order, value in implied.renyi}}


def _write_tables(found: Forecast) -> None:
    unit, noise = _columns(found)
    header = ("level", "regions", "groups", "estimator", "cells", unit, noise.replace("_", " "))
    rows = [
        (*(cell(value) for value in values[:-2]), *(cell(value and fraction(value)) for value in values[-2:]))
        for values in (tuple(row.values()) for row in _levels(found))
    ]
    write_table("Budget", header, rows)
    exact = [one for one in found.predictions if one.exact]
    simulated = [one for one in found.predictions if not one.exact]
    write_table("Noise left in a cell after a linear stage, root mean square: exact", *_errors(exact), numeric=3)
    write_table("Mean earth mover's distance of a region (entities): simulated", *_errors(simulated), numeric=3)
    best = found.best
    write(f"Simulated on    {found.look_alike}")
    split = ", ".join(f'"{share}"' for share in best.shares)
    write(f"Best split      split = [{split}]  ({best.split}, for {best.method})")
    implied = _implied(found)
    write(f"Budget implies  {meaning(implied)}, Renyi divergence {figure(implied['renyi']['2'], 4)} at order 2")
    write(f"Time            about {figure(found.seconds)} s of noise and post-processing on one core")
    write(f"Memory          about {size(found.memory)}; sealed measurements {size(found.sealed)} on disk")
    write("Nothing was spent, and who is in which group was not looked at.")


def meaning(implied: Mapping[str, Any]) -> str:
    """Return in words what a budget implies: zCDP of an epsilon, epsilon (rounded up) at delta of a rho."""
    if "rho" in implied:
        return f"zCDP rho = {implied['rho']}"
    from fractions import Fraction

    from coco_opt.privacy.directed import round_above

    epsilon = float(round_above(Fraction(implied["epsilon"]), 6))
    return f"epsilon = {epsilon:g} at delta = {implied['delta']}"


def _errors(predictions: list[Prediction]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    levels = len(predictions[0].errors)
    header = ("method", "split", "shares", *(f"level {level}" for level in range(levels)), "sum")
    rows = [
        (
            one.method,
            one.split,
            " ".join(f"{float(share):.3f}" for share in one.shares),
            *(figure(error, 4) for error in one.errors),
            figure(one.total, 4),
        )
        for one in predictions
    ]
    return header, rows
