"""``coco-opt plan``: the cost and the expected errors of a release, before anything is spent."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coco_opt.cli.console import (
    TerminalReporter,
    figure,
    fraction,
    quoted,
    size,
    write,
    write_json,
    write_table,
    write_values,
)
from coco_opt.cli.options import ConfigFile, Json, Version, integer

if TYPE_CHECKING:
    from coco_opt.privacy import Cost
    from coco_opt.releases import PlanForecast
    from coco_opt.releases.kind import ResourceCost

_HEADER = ("level", "regions", "query", "answers", "cost", "noise")


def plan(
    config: ConfigFile,
    like: Annotated[
        Path | None,
        typer.Option(
            "--like",
            metavar="FILE",
            help="Public data in the form of the private table, its groups next to it, to rehearse on.",
        ),
    ] = None,
    runs: Annotated[
        int, typer.Option("--runs", metavar="N", parser=integer(1), help="Simulated releases for each predicted error.")
    ] = 1,
    rows: Annotated[
        int | None,
        typer.Option(
            "--rows",
            metavar="N",
            parser=integer(0),
            help="Rows of the private table, for the predicted time; it stays closed.",
        ),
    ] = None,
    json: Json = False,
    version: Version = False,
) -> int:
    """Predict cost, errors, time and memory from public inputs; spends nothing."""
    from coco_opt.config import load_config
    from coco_opt.releases import forecast

    reporter = TerminalReporter(lines=not json)
    result = forecast(load_config(config), like, runs=runs, rows=rows, reporter=reporter)
    if json:
        write_json(result.as_dict())
    else:
        _write_tables(result)
        write(f"Next: {_next(result, quoted(config))}")
    return 0


def _next(result: PlanForecast, config: str) -> str:
    """Return what a release would pay, or why it would be refused."""
    if not result.payment.fits:
        return f"coco-opt release {config}  would be refused. It {result.payment.words}"
    return f"coco-opt release {config}  {_payment(result)} and makes the release."


def _payment(result: PlanForecast) -> str:
    """Return in a few words what a release of a plan pays."""
    if result.plan.config.privacy.noise == "seeded":
        return "pays nothing, since its noise is seeded,"
    if result.paid_by is not None:
        return f"pays nothing, unless the data changed (run {result.paid_by} was paid to measure the same),"
    return f"pays {_cost(result.cost)}"


def _write_tables(result: PlanForecast) -> None:
    rows = [
        (row.level, f"{row.regions:,}", row.query, f"{row.answers:,}", _cost(row.cost), row.noise)
        for row in result.queries
    ]
    write_table("Queries", _HEADER, rows, numeric=6)
    predicted = result.predicted
    for table in predicted.tables:
        write_table(table.title, table.header, table.rows, numeric=table.numeric)
    memory = "" if result.memory is None else f"about {size(result.memory)}; "
    write_values(
        [
            ("Cost", f"{_cost(result.cost)}{result.plan.after_look}; {result.meaning}"),
            ("Promise", result.payment.promise),
            *predicted.notes,
            *([("Time", _time(result.seconds, result.stages))] if result.seconds is not None and result.stages else []),
            ("Memory", f"{memory}the measurement, before compression, {size(result.sealed)}"),
        ]
    )
    write("Nothing was spent, and only public inputs were read.")


def _time(seconds: float, stages: Mapping[str, ResourceCost]) -> str:
    """Return the seconds of a release, stage by stage."""
    each = ", ".join(f"{name} {_range(stage.seconds, stage.most)}" for name, stage in stages.items())
    most = seconds + sum(stage.most - stage.seconds for stage in stages.values())
    return f"about {_range(seconds, most)} s of this machine's cores ({os.cpu_count()}, idle), once compiled: {each}"


def _range(low: float, high: float) -> str:
    """Return one number, or two where they differ."""
    return figure(low) if low == high else f"{figure(low)} to {figure(high)}"


def _cost(cost: Cost | None) -> str:
    return "-" if cost is None else f"{cost.unit} = {fraction(cost.amount)}"
