"""``coco-opt export``: the tables of a release or a measurement as CSV or as a workbook."""

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
    """Write the tables of a release, or of a published measurement, as CSV files or as a workbook.

    CSV is UTF-8 with a byte order mark, so that spreadsheets show every letter. Texts that begin with =, +, - or @ get
    an apostrophe before them, so that no name is run as a formula. The folder itself stays as it is: it is what
    ``verify`` checks and what a manifest vouches for. A folder whose files were changed is refused.
    """
    from coco_opt.files.csv import check_delimiter
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
    if xlsx:
        written = _write_workbook(folder, target, wide)
    else:
        written = _write_csv(folder, target, delimiter, decimal, wide=wide, raw=raw)
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


def _write_csv(folder: Path, target: Path, delimiter: str, decimal: str, *, wide: bool, raw: bool) -> dict[str, Any]:
    from coco_opt.files.csv import write_csv_files

    table = _wide_table(folder) if wide else None
    files = write_csv_files(folder, target, delimiter, table, raw=raw, decimal=decimal)
    if not files:
        raise _no_table(folder)
    return {"folder": str(target), "files": [path.name for path in files]}


def _write_workbook(folder: Path, target: Path, wide: bool) -> dict[str, Any]:
    from coco_opt.files.workbook import write_workbook

    sheets = write_workbook(folder, target, _wide_table(folder) if wide else None)
    if not sheets:
        raise _no_table(folder)
    return {"file": str(target), "sheets": list(sheets)}


def _no_table(folder: Path) -> InputError:
    message = "holds no table: give a release folder or a published measurement"
    return InputError("file-not-found", message, Place(folder.name))


def _wide_table(folder: Path) -> Compared:
    """Return the table of counts by region by which releases of a kind are compared."""
    from coco_opt.files.folder import read_manifest
    from coco_opt.kinds import kind_row

    kind = kind_row(str(read_manifest(folder).get("kind"))).load()
    table: Compared | None = next((table for table in kind.compared if table.absent_is_zero), None)
    if table is None:
        raise InputError("bad-option", f"--wide is for counts by region, and a release of {kind.name} has none")
    return table
