"""``coco-opt export`` and ``import``: tables as CSV or as a workbook, and noisy measurements that others published."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coco_opt.cli.console import TerminalReporter, quoted, write, write_json, write_values
from coco_opt.cli.options import ConfigFile, Decimal, Delimiter, Json, Raw, Version
from coco_opt.errors import InputError, Place

if TYPE_CHECKING:
    from coco_opt.files.differences import Compared
    from coco_opt.privacy import Measurement


def export(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A release folder, or a published measurement.")],
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="PATH", help="The new folder or workbook; DIR-csv or DIR.xlsx without."),
    ] = None,
    delimiter: Delimiter = ",",
    decimal: Decimal = ".",
    wide: Annotated[
        bool,
        typer.Option("--wide", help="Also write the main table with a row a region and a column a size or cell."),
    ] = False,
    raw: Raw = False,
    xlsx: Annotated[
        bool, typer.Option("--xlsx", help="Write one Excel workbook, a sheet a table; ids and names stay texts.")
    ] = False,
    json: Json = False,
    version: Version = False,
) -> int:
    """Write the tables of a release, or of a published measurement, as CSV files or as a workbook, with explanations.

    Every level of regions is a column. README.txt, or the sheet About, says what, of whom, when and how sure, column by
    column; datapackage.json says the same to programs.

    CSV is UTF-8 with a byte order mark, so that spreadsheets show every letter. Texts that begin with =, +, - or @ get
    an apostrophe before them, so that no name is run as a formula. The folder itself stays as it is: it is what
    ``verify`` checks and what a manifest vouches for. A folder whose files were changed is refused.
    """
    from coco_opt.files.spreadsheets import check_delimiter
    from coco_opt.files.unchanged import check_unchanged
    from coco_opt.releases.storage import check_target

    check_delimiter(delimiter, decimal)
    if xlsx and (raw or delimiter != ","):
        raise InputError("bad-option", "--raw, --delimiter and --decimal are for CSV files: leave them out")
    target = folder.with_name(f"{folder.resolve().name}{'.xlsx' if xlsx else '-csv'}") if out is None else out
    if xlsx and target.suffix.lower() != ".xlsx":  # no spreadsheet program opens a workbook of another name
        target = target.with_name(f"{target.name}.xlsx")
    check_target(target, "name another with --out")
    _check_published(folder)
    check_unchanged(folder)
    written = _written(folder, target, delimiter, decimal, wide=wide, raw=raw, xlsx=xlsx)
    if json:
        write_json(written)
    else:
        write(f"Wrote {', '.join(written.get('files') or written['sheets'])} to {target}")
    return 0


def _check_published(folder: Path) -> None:
    """Raise InputError (file-not-found) for a measurement of the private folder, whose answers are packed."""
    from coco_opt.files.packed_file import is_packed

    if folder.is_dir() and any(is_packed(path.name) for path in folder.iterdir()):
        message = "is a measurement in the private folder: coco-opt measure CONFIG --publish DIR publishes it for free"
        raise InputError("file-not-found", message, Place(folder.name))


def _written(
    folder: Path, target: Path, delimiter: str, decimal: str, *, wide: bool, raw: bool, xlsx: bool
) -> dict[str, Any]:
    """Write the tables and what explains them; return the names of what was written."""
    from coco_opt.files.spreadsheets import exported_schemas, write_csv_files, write_workbook
    from coco_opt.releases.datapackage import DATAPACKAGE, README, about_lines, main_texts, package, readme

    account, schemas = _account(folder), exported_schemas(folder)
    if not schemas or "status" not in account:
        message = "holds no table: give a release folder or a published measurement"
        raise InputError("file-not-found", message, Place(folder.name))
    table, lines = _wide_table(folder) if wide else None, [*about_lines(account, schemas)]
    if xlsx:
        sheet, texts = main_texts(schemas)
        kinds = f"dtype=dict.fromkeys({texts}, str), keep_default_na=False, na_values=['']"
        lines += [("", ""), ("pandas, ids as texts", f'pd.read_excel("{target.name}", sheet_name="{sheet}", {kinds})')]
        sheets = write_workbook(folder, target, table, lines)
        described = package(account, schemas, "xlsx", {"workbook": target.name})
        target.with_suffix(f".{DATAPACKAGE}").write_bytes(described)
        return {"file": str(target), "sheets": list(sheets)}
    notes = {
        DATAPACKAGE: package(account, schemas, "csv", {"delimiter": delimiter, "decimalChar": decimal}),
        README: readme(lines, schemas, delimiter, decimal),
    }
    files = write_csv_files(folder, target, delimiter, table, raw=raw, decimal=decimal, notes=notes)
    return {"folder": str(target), "files": [path.name for path in files]}


def _account(folder: Path) -> dict[str, Any]:
    """Return the manifest of a release, or the account of a published measurement; {} for a folder with neither."""
    from coco_opt.files.folder import parsed_json

    path = next((path for name in ("manifest", "measurement") if (path := folder / f"{name}.json").is_file()), None)
    account = {} if path is None else parsed_json(path.read_text(encoding="utf-8"))
    return {"name": folder.resolve().name, **(account or {})}


def _wide_table(folder: Path) -> Compared:
    """Return the table of counts by region by which releases of a kind are compared."""
    from coco_opt.files.folder import read_manifest
    from coco_opt.releases.kind import kind_named

    kind = kind_named(str(read_manifest(folder).get("kind")))
    table = next((table for table in kind.compared if table.absent_is_zero), None)
    if table is None:
        raise InputError("bad-option", f"--wide is for counts by region, and a release of {kind.name} has none")
    return table


def import_(
    config: ConfigFile,
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILES...", help="Parquet files of noisy measurements, or folders of them."),
    ],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="The measurement's folder; it must not exist.")],
    sum_over: Annotated[
        list[str] | None,
        typer.Option(
            "--sum-over", metavar="NAME", help="An attribute of the files that CONFIG does not have; repeat it."
        ),
    ] = None,
    json: Json = False,
    version: Version = False,
) -> int:
    """Import noisy measurements that somebody else published in the layout of the 2020 Census.

    CONFIG gives attributes, groupings and structural zeros, and perhaps the hierarchy, whose names are the geocodes;
    without one the geocodes give it. Answers that count an attribute of --sum-over are left out. CONFIG needs neither
    records nor [privacy]. The noise protects what its publisher states: nothing is measured here, and no ledger is
    touched.
    """
    # Imported here, as in every verb, so that help is printed without loading all that runs need.
    from coco_opt.config import load_config
    from coco_opt.files.measurement import write_measurement
    from coco_opt.releases.manifest import spent_line
    from coco_opt.releases.storage import check_target
    from coco_opt.topdown.kind.noisy_measurement_files import gathered, measurement_of

    settings = load_config(config, measures=False)
    check_target(out)
    with TerminalReporter(lines=not json).stage("Reading what was published"):
        rows = gathered(files, settings, sum_over or ())
        measurement = measurement_of(rows)
    write_measurement(out, measurement, private=False)
    spent = spent_line(settings, measurement)
    summary = _summary(measurement)
    if json:
        places = {"measurement": str(out), **summary, "left_out": rows.left_out}
        write_json({"status": measurement.status, "spent": spent, **measurement.cost.as_dict(), **places})
        return 0
    unit, largest = measurement.cost.unit, summary["largest_path_cost"]
    write(f"{spent}.")
    write_values(
        [
            ("Regions", ", ".join(map(_in_words, summary["levels"]))),
            ("Constraints", ", ".join(summary["constraints"]) or "none"),
            *([("Left out", f"{rows.left_out:,} values that count {', '.join(sum_over)}")] if sum_over else []),
            ("Largest cost", f"{unit} {largest:.6g}, of all answers of a leaf and of the regions above it"),
            ("Measurement", f"{out}, {summary['answers']:,} answers to {len(measurement.answers):,} queries"),
            ("Estimate it", f"coco-opt estimate {quoted(out)} {quoted(config)}"),
        ]
    )
    return 0


def _summary(measurement: Measurement) -> dict[str, Any]:
    """Return what was imported: the numbers of answers and of regions by level, the constraints, the largest cost."""
    from coco_opt.topdown.table_queries import TableQueries

    queries, names = TableQueries.of(measurement.measurement_plan), measurement.measurement_plan.levels
    unmeasured = {each.level: each.unmeasured for each in queries.variances}
    regions = [len(measurement.hierarchy.level_range(level)) for level in range(len(names))]
    return {
        "answers": sum(part.stored.size for part in measurement.answers),
        "levels": [
            {"level": name, "regions": count, "unmeasured": unmeasured.get(level, 0)}
            for level, (name, count) in enumerate(zip(names, regions, strict=True))
        ],
        "constraints": [f"{bounds.query.text} by {names[bounds.level]}" for bounds in queries.bounds],
        "largest_path_cost": queries.largest_path_cost,
    }


def _in_words(level: Mapping[str, Any]) -> str:
    """Return the number of a level's regions, and of those that have no answers."""
    without = f" ({level['unmeasured']:,} without answers)" if level["unmeasured"] else ""
    return f"{level['regions']:,} of level {level['level']!r}{without}"
