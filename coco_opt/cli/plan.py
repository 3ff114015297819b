"""``coco-opt plan``: what a release will cost and how far off it will be, before anything is spent."""

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
    from coco_opt.releases.kind import Expense

_HEADER = ("level", "regions", "query", "answers", "cost", "noise")


def plan(
    config: ConfigFile,
    like: Annotated[
        Path | None,
        typer.Option("--like", metavar="FILE", help="Public data in the form of the private table, to rehearse on."),
    ] = None,
    runs: Annotated[int, typer.Option("--runs", min=1, help="Simulated releases a prediction.")] = 1,
    rows: Annotated[
        int | None,
        typer.Option("--rows", metavar="N", min=0, help="Rows of the private table, which stays closed: for the time."),
    ] = None,
    optimise: Annotated[
        bool, typer.Option("--optimise", help="Search better questions, split and method: minutes, with their lines.")
    ] = False,
    json: Json = False,
    version: Version = False,
) -> int:
    """Predict cost, errors, time and memory from public facts; spends nothing."""
    from coco_opt.config import load_config
    from coco_opt.releases import forecast

    reporter = TerminalReporter(lines=not json)
    found = forecast(load_config(config), like, runs=runs, rows=rows, optimise=optimise, reporter=reporter)
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
    memory = "" if found.memory is None else f"about {size(found.memory)}; "
    write_facts(
        [
            ("Cost", f"{_cost(found.cost)}; {found.meaning}"),
            *predicted.notes,
            *([("Time", _time(found.seconds, found.stages))] if found.seconds is not None and found.stages else []),
            ("Memory", f"{memory}the measurement, before compression, {size(found.sealed)}"),
        ]
    )
    if predicted.lines:
        write("Lines of a better configuration:")
        for line in predicted.lines:
            write(f"    {line}")
    write("Nothing was spent, and only public facts were read.")


def _time(seconds: float, stages: Mapping[str, Expense]) -> str:
    """Return the seconds of a release, stage by stage."""
    each = ", ".join(f"{name} {figure(stage.seconds)}" for name, stage in stages.items())
    return f"about {figure(seconds)} s of this machine's cores ({os.cpu_count()}, idle), once compiled: {each}"


def _cost(cost: Cost | None) -> str:
    return "-" if cost is None else f"{cost.unit} = {fraction(cost.amount)}"
