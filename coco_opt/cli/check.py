"""``coco-opt check``: check everything that a release would read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from coco_opt.cli.console import TerminalReporter, write, write_json, write_table, write_values
from coco_opt.cli.options import Again, ConfigFile, Json, Renamed, Version
from coco_opt.errors import BudgetError

if TYPE_CHECKING:
    from coco_opt.config import Config


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
    rows = [(row["key"], _shown(row, settings), _whose(row), "every row is fine") for row in files]
    if settings.output.geometry is not None:
        rows.append(("geometry", settings.output.geometry.name, "public", "every outline is fine"))
    write_table("Read and checked", ("data", "file", "", "result"), rows, numeric=4)
    values: list[tuple[str, object]] = [
        ("Would cost", f"{measurement_plan.cost}{result.plan.after_look}"),
        ("Would pay", status.words),
        ("Promise", status.promise),
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


def _whose(row: dict[str, Any]) -> str:
    return "private" if row["private"] else "public"


def _shown(row: dict[str, Any], config: Config) -> str:
    """Return the name of a file, or that of a folder with what was read and passed over in it."""
    from coco_opt.files.parts import parts_of, passed_over

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
