"""``coco-opt plan``: what a release will cost and how far off it will be, before anything is spent."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coco_opt.cli.console import (
    TerminalReporter,
    figure,
    fraction,
    size,
    write,
    write_facts,
    write_json,
    write_table,
)
from coco_opt.cli.options import ConfigFile, Json, Version

if TYPE_CHECKING:
    from coco_opt.privacy import Cost
    from coco_opt.releases import PlanForecast

_HEADER = ("level", "regions", "query", "answers", "cost", "noise")


def plan(
    config: ConfigFile,
    like: Annotated[
        Path | None,
        typer.Option("--like", metavar="FILE", help="Public data in the form of the private table, to rehearse on."),
    ] = None,
    runs: Annotated[int, typer.Option("--runs", min=1, help="Simulated releases a prediction.")] = 3,
    json: Json = False,
    version: Version = False,
) -> int:
    """Predict cost, errors, time and memory from public facts; spends nothing."""
    from coco_opt.config import load_config
    from coco_opt.releases import forecast

    found = forecast(load_config(config), like, runs=runs, reporter=TerminalReporter(lines=not json))
    if json:
        write_json(found.as_dict())
    else:
        _write_tables(found)
    return 0


def _write_tables(found: PlanForecast) -> None:
    rows = [
        (row.level, f"{row.regions:,}", row.query, f"{row.answers:,}", _cost(row.cost), row.noise)
        for row in found.questions
    ]
    write_table("Questions", _HEADER, rows, numeric=6)
    predicted = found.predicted
    for table in predicted.tables:
        write_table(table.title, table.header, table.rows, numeric=table.numeric)
    seconds = "" if predicted.seconds is None else f"about {figure(predicted.seconds)} s of noise and estimation"
    write_facts(
        [
            ("Cost", f"{_cost(found.cost)}; {found.cost.meaning(found.plan.config.privacy.delta)}"),
            *predicted.notes,
            *([("Time", f"{seconds} on one core, once compiled")] if seconds else []),
            ("Memory", f"about {size(found.memory)}; the measurement, before compression, {size(found.sealed)}"),
        ]
    )
    write("Nothing was spent, and only public facts were read.")


def _cost(cost: Cost | None) -> str:
    return "-" if cost is None else f"{cost.unit} = {fraction(cost.amount)}"
