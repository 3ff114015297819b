"""``coco-opt export``: the tables of a release or a measurement as CSV, a workbook or SDMX-CSV."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coco_opt.cli.console import write, write_json
from coco_opt.cli.options import Decimal, Delimiter, Json, Raw, Version
from coco_opt.errors import InputError, Place

if TYPE_CHECKING:
    from coco_opt.files.differences import Compared


def export(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A release folder, or a published measurement.")],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="PATH", help="The new folder, workbook or file; DIR-csv, DIR.xlsx or DIR-sdmx.csv without."
        ),
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
    sdmx: Annotated[
        str | None,
        typer.Option("--sdmx", metavar="DATAFLOW", help="Write the main table as SDMX-CSV 2.0 of AGENCY:ID(VERSION)."),
    ] = None,
    period: Annotated[
        str | None, typer.Option("--period", metavar="TIME", help="With --sdmx: the time of all counts, such as 2026.")
    ] = None,
    json: Json = False,
    version: Version = False,
) -> int:
    """Write the tables of a release, or of a published measurement, as CSV files, a workbook or SDMX-CSV.

    CSV is UTF-8 with a byte order mark, so that spreadsheets show every letter. Texts that begin with =, +, - or @ get
    an apostrophe before them, so that no name is run as a formula. The folder itself stays as it is: it is what
    ``verify`` checks and what a manifest vouches for. A folder whose files were changed is refused.
    """
    from coco_opt.files.csv import check_delimiter
    from coco_opt.files.unchanged import check_unchanged
    from coco_opt.releases.storage import check_target

    check_delimiter(delimiter, decimal)
    _check_options(delimiter, wide=wide, raw=raw, xlsx=xlsx, sdmx=sdmx, period=period)
    ending = ".xlsx" if xlsx else "-csv" if sdmx is None else "-sdmx.csv"
    target = folder.with_name(f"{folder.resolve().name}{ending}") if out is None else out
    if xlsx and target.suffix.lower() != ".xlsx":  # no spreadsheet program opens a workbook of another name
        target = target.with_name(f"{target.name}.xlsx")
    check_target(target, "name another with --out")
    _check_published(folder)
    check_unchanged(folder)
    if sdmx is not None:
        written = _write_sdmx(folder, target, sdmx, period)
    elif xlsx:
        written = _write_workbook(folder, target, wide)
    else:
        written = _write_csv(folder, target, delimiter, decimal, wide=wide, raw=raw)
    if json:
        write_json(written)
    else:
        names = written.get("files") or written.get("sheets") or [f"{written['observations']:,} observations"]
        write(f"Wrote {', '.join(names)} to {target}")
    return 0


def _check_options(delimiter: str, *, wide: bool, raw: bool, xlsx: bool, sdmx: str | None, period: str | None) -> None:
    """Raise InputError (bad-option) for options that do not go together."""
    if xlsx and sdmx is not None:
        raise InputError("bad-option", "--xlsx and --sdmx are two formats: give one of them")
    if (xlsx or sdmx is not None) and (raw or delimiter != ","):
        raise InputError("bad-option", "--raw, --delimiter and --decimal are for CSV files: leave them out")
    if wide and sdmx is not None:
        raise InputError("bad-option", "SDMX-CSV has a row for each count: leave out --wide")
    if period is not None and sdmx is None:
        raise InputError("bad-option", "--period is for --sdmx")


def _check_published(folder: Path) -> None:
    """Raise InputError (file-not-found) for a measurement of the private folder, whose answers are packed."""
    from coco_opt.files.packed_file import is_packed

    if folder.is_dir() and any(is_packed(path.name) for path in folder.iterdir()):
        message = "is a measurement in the private folder: coco-opt measure CONFIG --publish DIR publishes it for free"
        raise InputError("file-not-found", message, Place(folder.name))


def _write_csv(folder: Path, target: Path, delimiter: str, decimal: str, *, wide: bool, raw: bool) -> dict[str, Any]:
    from coco_opt.files.csv import write_csv_files

    table = _main_table(folder, wide=True) if wide else None
    files = write_csv_files(folder, target, delimiter, table, raw=raw, decimal=decimal)
    if not files:
        raise _no_table(folder)
    return {"folder": str(target), "files": [path.name for path in files]}


def _write_workbook(folder: Path, target: Path, wide: bool) -> dict[str, Any]:
    from coco_opt.files.workbook import write_workbook

    sheets = write_workbook(folder, target, _main_table(folder, wide=True) if wide else None)
    if not sheets:
        raise _no_table(folder)
    return {"file": str(target), "sheets": list(sheets)}


def _write_sdmx(folder: Path, target: Path, structure: str, period: str | None) -> dict[str, Any]:
    from coco_opt.files.sdmx import write_sdmx

    rows = write_sdmx(folder, target, _main_table(folder), structure, period)
    return {"file": str(target), "observations": rows}


def _no_table(folder: Path) -> InputError:
    message = "holds no table: give a release folder or a published measurement"
    return InputError("file-not-found", message, Place(folder.name))


def _main_table(folder: Path, *, wide: bool = False) -> Compared:
    """Return the table by which releases of a kind are compared; ``wide`` wants a table of counts by region."""
    from coco_opt.files.folder import read_manifest
    from coco_opt.kinds import kind_row

    kind = kind_row(str(read_manifest(folder).get("kind"))).load()
    table: Compared | None = next((table for table in kind.compared if table.absent_is_zero or not wide), None)
    if table is None:
        raise InputError("bad-option", f"--wide is for counts by region, and a release of {kind.name} has none")
    return table
