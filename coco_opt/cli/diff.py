"""``coco-opt diff``: what changed between two releases, and which changes are beyond noise."""

from __future__ import annotations

from json import loads
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coco_opt.cli.console import write, write_json, write_table, writing
from coco_opt.cli.options import Decimal, Delimiter, Json, Raw, Version
from coco_opt.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

_MOST = 20


def diff(
    earlier: Annotated[Path, typer.Argument(metavar="A", help="The earlier release: its folder.")],
    later: Annotated[Path, typer.Argument(metavar="B", help="The later release, of the same kind and hierarchy.")],
    table: Annotated[
        str | None,
        typer.Option(
            "--table",
            help="Which table: histograms, tables, estimates or ranges; default: the first whose noise both state.",
        ),
    ] = None,
    renamed: Annotated[
        Path | None,
        typer.Option(
            "--renamed",
            metavar="FILE",
            help="Regions whose name or id changed: a CSV with the columns earlier and later, paths or ids.",
        ),
    ] = None,
    csv_file: Annotated[Path | None, typer.Option("--csv", help="Also write all rows to this file.")] = None,
    delimiter: Delimiter = ",",
    decimal: Decimal = ".",
    raw: Raw = False,
    page: Annotated[Path | None, typer.Option("--page", help="Also write one HTML page with all tables.")] = None,
    json: Json = False,
    version: Version = False,
) -> int:
    """Subtract release A from release B: differences by region and size or cell, and which are beyond noise."""
    from coco_opt.files.differences import most_certain
    from coco_opt.files.spreadsheets import check_delimiter, csv_bytes, level_names
    from coco_opt.files.unchanged import check_unchanged
    from coco_opt.releases.differences import Changes

    check_delimiter(delimiter, decimal)
    for folder in (earlier, later):
        check_unchanged(folder)
    if csv_file is None and (raw or delimiter != ","):
        raise InputError("bad-option", "--raw, --delimiter and --decimal are for --csv")
    changes = Changes(later, earlier, renamed)
    table = table or changes.table
    frame = changes.frame(table)
    if csv_file is not None:
        with writing(csv_file):
            csv_file.write_bytes(csv_bytes(frame, delimiter, level_names(later), raw=raw, decimal=decimal))
    if page is not None:
        names = earlier.resolve().name, later.resolve().name
        with writing(page):
            page.write_text(changes.page(names), encoding="utf-8", newline="")
    shown = most_certain(frame[frame["difference"] != 0], _MOST)
    apart = changes.apart
    marked = int(frame["beyond_noise"].sum()) if "beyond_noise" in frame else None
    if json:
        clearest = loads(shown.to_json(orient="records"))
        regions = {
            "only_later": apart[0],
            "only_earlier": apart[1],
            "renamed": dict(changes.renamed),
            "moved": changes.moved,
        }
        guessed = changes.are_guesses(table, frame)
        counts = {"rows": len(frame), "beyond_noise": marked, "guesses": guessed}
        write_json({"table": table, **counts, "clearest": clearest, **regions})
        return 0
    if len(shown):
        _write_rows(frame, shown)
    else:
        write("No row differs.")
    write(changes.noise_words(table, frame, "--table {} compares unbiased estimates, with standard errors."))
    if table is not None:
        write(f"Compared: the table {table!r} of both releases; --table names another.")
    if words := changes.regions_words(("the later release", "the earlier release"), most=5):
        write(words)
        if renamed is None and (remedy := changes.remedy()):
            write(remedy)
    for name, path in (("Rows", csv_file), ("Page", page)):
        if path is not None:
            write(f"{name}  {path}")
    return 0


def _write_rows(frame: pd.DataFrame, shown: pd.DataFrame) -> None:
    from coco_opt.releases.differences import has_unsettled, shown_rows

    header, rows, numeric = shown_rows(
        shown if has_unsettled(frame) else shown.drop(columns="converged", errors="ignore")
    )
    changed = int((frame["difference"] != 0).sum())
    write_table(f"The {len(rows)} clearest of the {changed:,} rows that differ", header, rows, numeric=numeric)
