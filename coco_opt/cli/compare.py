"""``coco-opt compare``: every available solver on the same problems."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coco_opt.cli.console import TerminalReporter, figure, write, write_json, write_table
from coco_opt.cli.options import ConfigFile, Json, Version
from coco_opt.errors import InputError, Place, VerificationError

if TYPE_CHECKING:
    from coco_opt.config import Config, TablesConfig
    from coco_opt.runs.compare import Comparison, Row

_HEADER = ("solver", "unknowns", "status", "objective", "- exact", "gap", "violation", "seconds", "ties", "note")


def compare(
    config: ConfigFile,
    size: Annotated[int, typer.Option("--size", min=2, help="Most unknowns of a problem.")] = 2_000,
    csv_file: Annotated[Path | None, typer.Option("--csv", help="Also write the rows to this file.")] = None,
    json: Json = False,
    version: Version = False,
) -> int:
    """Solve one problem of each kind with every solver; spends nothing. Exit 4 if one misses its tolerance."""
    from coco_opt.config import load_any

    comparison = _run(load_any(config), size, TerminalReporter(lines=not json))
    if csv_file is not None:
        _write_csv(csv_file, comparison)
    if json:
        write_json({"data": comparison.data, "rows": [row.as_dict() for row in comparison.rows]})
    else:
        write(comparison.data[0].upper() + comparison.data[1:])
        _write_tables(comparison)
    return _verdict(comparison, lines=not json)


def _run(settings: Config | TablesConfig, size: int, reporter: TerminalReporter) -> Comparison:
    from coco_opt.config import TablesConfig

    if isinstance(settings, TablesConfig):
        from coco_opt.runs.tables.compare import compare_tables

        return compare_tables(settings, size=size, reporter=reporter)
    from coco_opt.runs.compare import compare

    return compare(settings, size=size, reporter=reporter)


def _verdict(comparison: Comparison, *, lines: bool) -> int:
    if not comparison.caught:
        raise VerificationError("the planted wrong answer was certified: do not trust these certificates")
    said = ["The planted wrong answer was caught."]
    missed = ", ".join(f"{row.solver} on {row.problem} ({row.status})" for row in comparison.missed)
    if missed:
        said.append(f"Not certified within tolerance: {missed}.")
    if lines:
        write(" ".join(said))
    return 4 if missed else 0


def _write_tables(comparison: Comparison) -> None:
    kinds = dict.fromkeys(row.problem for row in comparison.rows)
    for kind in kinds:
        rows = [_cells(row) for row in comparison.rows if row.problem == kind]
        write_table(kind, _HEADER, rows)


def _cells(row: Row) -> tuple[str, ...]:
    return (
        row.solver,
        f"{row.unknowns:,}",
        row.status,
        figure(row.objective, 10),
        figure(row.difference),
        figure(row.relative_gap),
        figure(row.violation),
        figure(row.seconds, 3),
        "yes" if row.honours_ties else "any",
        row.note,
    )


def _write_csv(path: Path, comparison: Comparison) -> None:
    from coco_opt.runs.compare import columns

    reason = ""
    try:
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, columns())
            writer.writeheader()
            writer.writerows(row.as_dict() for row in comparison.rows)
    except OSError as error:
        reason = error.strerror or "unknown reason"
    if reason:
        raise InputError("cannot-write", f"cannot be written: {reason}", Place(path.name))
