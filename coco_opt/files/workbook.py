"""Tables of a folder as one Excel workbook, a sheet a table: counts are numbers, and names and ids are texts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from coco_opt.errors import InputError, MissingPackageError, Place
from coco_opt.files.csv import exported_batches, level_names, wide_table
from coco_opt.files.differences import Compared
from coco_opt.files.foreign_errors import quietly
from coco_opt.privacy.private_files import building

_MOST_ROWS = 1_048_575  # of a sheet, below the header
_LONGEST = 32_767  # characters of a cell, in UTF-16
_WIDTHS = {"string": 24}  # of a column, in characters; numbers take 14


def write_workbook(
    folder: Path, target: Path, wide: Compared | None = None, about: Sequence[tuple[str, str]] = ()
) -> tuple[str, ...]:
    """Write each Parquet file of a folder as a sheet of a workbook, which appears complete or not at all.

    Texts are text cells, also where they look like numbers or formulas; what is missing is an empty cell. The ``wide``
    table also gets a sheet with a row for each region and a column for each size or cell. ``about`` are the lines of a
    first sheet that explains the others. Returns the sheets' names;
    none, and no file, where there is no table. Memory is a batch of rows. Raises InputError (unreadable-file,
    too-many-cells, too-many-rows, too-long-text) and MissingPackageError.
    """
    try:
        xlsxwriter: Any = import_module("xlsxwriter")
    except ModuleNotFoundError:
        raise MissingPackageError("xlsxwriter", "a workbook", "xlsx") from None
    tables = sorted(folder.glob("*.parquet"))
    if not tables:
        return ()
    target.parent.mkdir(parents=True, exist_ok=True)
    with building(target) as unfinished:
        with xlsxwriter.Workbook(str(unfinished), {"constant_memory": True}) as book:
            formats = book.add_format({"bold": True}), book.add_format({"num_format": "0"})
            if about:
                _add_about(book, formats[0], about)
            levels = level_names(folder)
            for path in tables:
                quietly(path, lambda path=path: _add(book, formats, path.stem, *exported_batches(path, levels)))  # type: ignore[misc]
            if wide is not None:
                table = wide_table(folder, wide)
                _add(book, formats, f"{wide.table}-wide", table.schema, iter(table.to_batches()), table.num_rows)
            names = tuple(sheet.get_name() for sheet in book.worksheets())
        unfinished.rename(target)
    return names


def _add_about(book: Any, bold: Any, lines: Sequence[tuple[str, str]]) -> None:
    sheet = book.add_worksheet("About")
    sheet.set_column(0, 0, 26, bold)
    sheet.set_column(1, 1, 100, book.add_format({"text_wrap": True}))
    for row, cells in enumerate(lines):
        for place, text in enumerate(cells):
            sheet.write_string(row, place, text)


def _add(book: Any, formats: tuple[Any, Any], name: str, schema: Any, batches: Iterator[Any], rows: int) -> None:
    """Add a sheet with a bold header that stays in view; integers show all digits."""
    if rows > _MOST_ROWS:
        message = f"has {rows:,} rows, and a sheet takes {_MOST_ROWS:,}: leave out --xlsx, which writes CSV files"
        raise InputError("too-many-rows", message, Place(f"{name}.parquet"))
    sheet = book.add_worksheet(name)
    sheet.freeze_panes(1, 0)
    for place, field in enumerate(schema):
        kind = str(field.type)
        sheet.set_column(place, place, _WIDTHS.get(kind, 14), formats[1] if kind.startswith("int") else None)
        sheet.write_string(0, place, field.name, formats[0])
    row = 1
    for batch in batches:
        for values in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            for place, value in enumerate(values):
                if not _write(sheet, row, place, value):
                    message = (
                        f"this text has more than {_LONGEST:,} characters, the most that a cell of a workbook takes: "
                        "leave out --xlsx, which writes CSV files"
                    )
                    raise InputError("too-long-text", message, Place(f"{name}.parquet", row, schema.names[place]))
            row += 1


def _write(sheet: Any, row: int, place: int, value: str | float | bool | None) -> bool:
    """Write a typed cell: a text, also for a number that is not finite, a truth value, a number, or nothing.

    Returns whether it is there in full: a long text would be cut.
    """
    if value is None:
        return True
    if isinstance(value, bool):
        return bool(sheet.write_boolean(row, place, value) == 0)
    if isinstance(value, str) or not math.isfinite(value):
        return bool(sheet.write_string(row, place, str(value)) == 0)
    return bool(sheet.write_number(row, place, value) == 0)
