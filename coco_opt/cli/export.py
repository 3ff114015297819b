"""``coco-opt export``: the tables of a release or a measurement as CSV, for spreadsheets."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coco_opt.cli.console import write, write_json
from coco_opt.cli.options import Json, Version
from coco_opt.errors import InputError, Place

if TYPE_CHECKING:
    from coco_opt.files.differences import Compared


def export(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A release folder, or a published measurement.")],
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Where the CSV files go, a new folder; DIR-csv without.")
    ] = None,
    delimiter: Annotated[
        str,
        typer.Option(
            "--delimiter",
            metavar="CHARACTER",
            help="What separates fields: a comma, or a semicolon as many spreadsheets want.",
        ),
    ] = ",",
    wide: Annotated[
        bool,
        typer.Option("--wide", help="Also write the main table with a row a region and a column a size or cell."),
    ] = False,
    raw: Annotated[
        bool,
        typer.Option("--raw", help="Write texts as they are, also those that a spreadsheet would run as formulas."),
    ] = False,
    json: Json = False,
    version: Version = False,
) -> int:
    """Write every table of a release, or of a published measurement, as a CSV file that spreadsheets open.

    UTF-8 with a byte order mark, so that they show every letter. Texts that begin with =, +, - or @ get an apostrophe
    before them, so that no name is run as a formula. The folder itself stays as it is: it is what
    ``verify`` checks and what a manifest vouches for.
    """
    from coco_opt.files.csv import write_csv_files
    from coco_opt.releases.measure import check_target

    if delimiter not in (",", ";"):
        raise InputError("bad-option", "--delimiter is a comma or a semicolon")
    target = folder.with_name(f"{folder.resolve().name}-csv") if out is None else out
    check_target(target)
    files = write_csv_files(folder, target, delimiter, _main_table(folder) if wide else None, raw=raw)
    if not files:
        raise InputError(
            "file-not-found", "holds no table: give a release folder or a published measurement", Place(folder.name)
        )
    if json:
        write_json({"folder": str(target), "files": [path.name for path in files]})
        return 0
    write(f"Wrote {', '.join(path.name for path in files)} to {target}")
    return 0


def _main_table(folder: Path) -> Compared:
    """Return which table of a release has a row for each region and size or cell."""
    from coco_opt.files.folder import read_manifest
    from coco_opt.kinds import kind_row

    kind = kind_row(str(read_manifest(folder).get("kind"))).load()
    table: Compared | None = next((table for table in kind.compared if table.absent_is_zero), None)
    if table is None:
        raise InputError("bad-option", f"--wide is for counts by region, and a release of {kind.name} has none")
    return table
