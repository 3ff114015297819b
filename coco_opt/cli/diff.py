"""``coco-opt diff``: what changed between two releases, and which changes are beyond noise."""

from __future__ import annotations

from json import loads
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coco_opt.cli.console import write, write_json, write_table
from coco_opt.cli.options import Json, Version
from coco_opt.errors import InputError, Place

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
    page: Annotated[Path | None, typer.Option("--page", help="Also write one HTML page with all tables.")] = None,
    json: Json = False,
    version: Version = False,
) -> int:
    """Subtract release A from release B: differences by region and size or cell, and which are beyond noise."""
    from coco_opt.files.differences import most_certain
    from coco_opt.releases.differences import (
        differences,
        different_regions,
        regions_words,
        render_differences,
        table_of_known_noise,
        with_renamed,
    )

    first = earlier if renamed is None else with_renamed(earlier, later, renamed)
    table = table or table_of_known_noise(later, first)
    frame = differences(later, first, table)
    if csv_file is not None:
        _write_file(csv_file, frame.to_csv(index=False).encode("utf-8-sig"))
    if page is not None:
        names = earlier.resolve().name, later.resolve().name
        _write_file(page, render_differences(later, first, names).encode("utf-8"))
    shown = most_certain(frame[frame["difference"] != 0], _MOST)
    apart = different_regions(later, first)
    marked = int(frame["beyond_noise"].sum()) if "beyond_noise" in frame else None
    if json:
        clearest = loads(shown.to_json(orient="records"))
        regions = {"only_later": apart[0], "only_earlier": apart[1]}
        write_json({"table": table, "rows": len(frame), "beyond_noise": marked, "clearest": clearest, **regions})
        return 0
    _write_rows(frame, shown)
    write(_noise_words(frame, earlier, later))
    if table is not None:
        write(f"Compared: the table {table!r} of both releases; --table names another.")
    if any(apart):
        write(regions_words(*apart, ("the later release", "the earlier release"), most=5))
    for name, path in (("Rows", csv_file), ("Page", page)):
        if path is not None:
            write(f"{name}  {path}")
    return 0


def _write_rows(frame: pd.DataFrame, shown: pd.DataFrame) -> None:
    from coco_opt.files.differences import key_columns
    from coco_opt.releases.differences import short_figure

    keys, noise = key_columns(frame), [name for name in ("lower", "upper") if name in frame]
    header = (*keys, "earlier", "later", "difference", *noise, *(["beyond noise"] if noise else []))
    rows = [
        (
            *(str(row[key]) for key in keys),
            *(short_figure(row[name]) for name in ("earlier", "later")),
            *(short_figure(row[name], sign=True) for name in ("difference", *noise)),
            *([("yes" if row["beyond_noise"] else "no")] if noise else []),
        )
        for row in shown.to_dict("records")
    ]
    changed = int((frame["difference"] != 0).sum())
    write_table(f"The {len(rows)} clearest of {changed:,} differences", header, rows, numeric=len(keys))


def _noise_words(frame: pd.DataFrame, earlier: Path, later: Path) -> str:
    from coco_opt.releases.differences import NO_ERRORS, stated_errors

    if "beyond_noise" in frame:
        marked = int(frame["beyond_noise"].sum())
        return (
            f"{marked:,} of {len(frame):,} rows differ by more than noise: the interval of the difference excludes 0."
        )
    others = stated_errors(later, earlier)
    return NO_ERRORS + "".join(f" --table {name} compares unbiased estimates, with standard errors." for name in others)


def _write_file(path: Path, content: bytes) -> None:
    try:
        path.write_bytes(content)
    except OSError as error:
        raise InputError("cannot-write", str(error.strerror), Place(path.name)) from None
