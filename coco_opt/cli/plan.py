"""``coco-opt check`` and ``plan``: what a release would read, cost and err, before anything is spent."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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
from coco_opt.cli.options import Again, ConfigFile, Json, Renamed, Version, integer
from coco_opt.errors import BudgetError

if TYPE_CHECKING:
    from coco_opt.config import Config
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
        refused = f"would be refused. It {result.payment.words}"
        words = f"{_payment(result)} and makes the release." if result.payment.fits else refused
        write(f"Next: coco-opt release {quoted(config)}  {words}")
    return 0


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
            ("Account promises", result.payment.promise),
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


def check(
    config: ConfigFile, again: Again = False, renamed: Renamed = False, json: Json = False, version: Version = False
) -> int:
    """Read and check all input, the private tables too, and try the solvers; draws no noise and pays nothing.

    Refuses the data that measure would refuse with the same options. Exit 3 if the remaining budget of the dataset
    does not allow the measurement.
    """
    from coco_opt.config import load_config
    from coco_opt.releases import check as check_release

    settings = load_config(config)
    result = check_release(settings, again=again, renamed=renamed, reporter=TerminalReporter(lines=not json))
    measurement_plan, status = result.plan.measurement_plan, result.payment_status
    hierarchy = measurement_plan.hierarchy
    # A parent that exists and is wrong shows nowhere else.
    regions = {name: len(hierarchy.level_range(level)) for level, name in enumerate(measurement_plan.levels)}
    # Counts of rows are private. Only the text for the holder of the data has any, and only where something is amiss.
    files = _files(settings)
    if json:
        entries = {
            "kind": measurement_plan.kind,
            "cost": measurement_plan.cost.as_dict(),
            "measurement": measurement_plan.digest,
            "levels": measurement_plan.levels,
            "regions": regions,
        }
        write_json({"fine": True, "files": files, **entries, "budget": status.as_dict()})
        return 0 if status.fits else BudgetError.exit_code
    rows = [
        (row["key"], _shown(row, settings), "private" if row["private"] else "public", "every row is fine")
        for row in files
    ]
    if settings.output.geometry is not None:
        rows.append(("geometry", settings.output.geometry.name, "public", "every outline is fine"))
    write_table("Read and checked", ("data", "file", "", "result"), rows, numeric=4)
    values: list[tuple[str, object]] = [
        ("Would cost", f"{measurement_plan.cost}{result.plan.after_look}"),
        ("Would pay", status.words),
        ("Account promises", status.promise),
        *result.plan.promised,
        *_solvers(settings),
        ("Regions by level", ", ".join(f"{name} {number:,}" for name, number in regions.items())),
    ]
    write_values(values)
    for remark in result.remarks:
        write(f"Note: {remark}.")
    write("No noise was drawn and nothing was paid. The result of a check depends on private rows: keep it with them.")
    return 0 if status.fits else BudgetError.exit_code


def _solvers(config: Config) -> list[tuple[str, object]]:
    """Return a line on the problems that each chosen solver answers, and those that stay automatic; none by default."""
    from coco_opt.problems import PROBLEMS

    chosen, served = config.solvers.chosen(), dict[str, list[str]]()
    for kind in PROBLEMS:
        served.setdefault(chosen[kind].name if kind in chosen else "automatic", []).append(kind)
    words = "; ".join(f"{name}: {', '.join(kinds)}" for name, kinds in served.items())
    return [("Solvers", words)] if chosen else []


def _shown(row: dict[str, Any], config: Config) -> str:
    """Return the name of a file, or that of a folder with what was read and passed over in it."""
    from coco_opt.files.inputs import parts_of, passed_over

    source = config.data.table_of(row["key"])
    if source.path is None or not source.path.is_dir():
        return str(row["file"])
    hidden = passed_over(source.path)
    note = f", {hidden} hidden names passed over" if hidden else ""
    return f"{row['file']} ({len(parts_of(source))} files{note})"


def _files(config: Config) -> list[dict[str, Any]]:
    """Return the files of a configuration's data, by key."""
    data = config.data
    values = ((key, getattr(data, key)) for key in type(data).model_fields)
    return [
        {"key": key, "file": value.name, "private": key in config.private_tables}
        for key, value in values
        if isinstance(value, Path)
    ]
