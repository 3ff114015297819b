"""Tables of a folder for who opens them in a spreadsheet: as CSV files, or as one Excel workbook, a sheet a table.

In a workbook counts are numbers, and names and ids are texts.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from coco_opt.errors import InputError, MissingPackageError, Place
from coco_opt.files.differences import REGION, Compared, decoded
from coco_opt.files.folder import is_text, read_columns, read_manifest
from coco_opt.files.foreign_errors import quietly
from coco_opt.histograms.hierarchy_build import parted
from coco_opt.privacy.private_files import building

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa


_MOST_COLUMNS = 16_000  # of the 16,384 that spreadsheets have
_MOST_EVERY = 501  # sizes or cells that all get a column, so that those of two years are the same
_FORMULA = r"^(?:[\t\r\n]|[\s\p{Z}]*[=+\-@\x{2212}])"  # how a text begins that a spreadsheet would run
_ENDS = {"lower": np.floor, "upper": np.ceil}  # rounded ends keep in an interval what was in it
_MARK = b"\xef\xbb\xbf"  # without it spreadsheets take UTF-8 for another encoding


def write_csv_files(
    folder: Path,
    target: Path,
    delimiter: str = ",",
    wide: Compared | None = None,
    *,
    raw: bool = False,
    decimal: str = ".",
    notes: Mapping[str, bytes] | None = None,
) -> tuple[Path, ...]:
    """Write each Parquet file of a folder as a CSV file in a new folder, which appears complete or not at all.

    Unless ``raw``, an apostrophe stands before texts that a spreadsheet would run as formulas, and fractions have few
    digits. ``decimal`` begins the decimals of numbers. The ``wide`` table is also written with a row for each region
    and a column for each size or cell. ``notes`` are further files that explain the tables.
    Returns the files; none, and no folder, where there is no table. Raises InputError: unreadable-file, too-many-cells.
    Memory is a batch of rows, or the wide table.
    """
    tables = sorted(folder.glob("*.parquet"))
    if not tables:
        return ()
    with building(target) as unfinished:
        unfinished.mkdir(parents=True)
        levels = level_names(folder)
        for name, content in (notes or {}).items():
            (unfinished / name).write_bytes(content)
        for path in tables:
            with (unfinished / f"{path.stem}.csv").open("wb") as file:
                schema, batches, _ = quietly(path, partial(exported_batches, path, levels, raw=raw))
                quietly(path, partial(_write_rows, schema, batches, file, delimiter, raw, decimal))
        if wide is not None:
            table = wide_table(folder, wide)
            with (unfinished / f"{wide.table}-wide.csv").open("wb") as file:
                _write_rows(table.schema, [table], file, delimiter, raw, decimal)
        files = sorted(path.name for path in unfinished.iterdir())
        unfinished.rename(target)
    return tuple(target / name for name in files)


def wide_table(folder: Path, compared: Compared) -> Any:
    """Return a table with a row for each region and a column for each size or cell, 0 where a region has none.

    Where a release could have at most ``_MOST_EVERY``, all have a column; else those that occur in it. Values are in
    the order of the release's schema, and cells are named as queries' answers are.
    Raises InputError: unreadable-file, too-many-cells.
    """
    import pandas as pd
    import pyarrow as pa

    rows = decoded(read_columns(folder / f"{compared.table}.parquet", ()))
    regions = decoded(read_columns(folder / "hierarchy.parquet", REGION))
    keys = compared.keys or tuple(str(name) for name in rows if name not in (*REGION, compared.value))
    every = None if compared.every is None else compared.every(read_manifest(folder), _MOST_EVERY)
    occurring = pd.concat([rows[list(keys)], pd.DataFrame(every or {}, columns=list(keys))], ignore_index=True)
    stated = {} if compared.ordered is None else compared.ordered(read_manifest(folder))
    values = [pd.Index(stated.get(key, np.sort(occurring[key].unique()))) for key in keys]
    places = [each.get_indexer(pd.Index(occurring[key])) for each, key in zip(values, keys, strict=True)]
    cells, column = np.unique(np.stack(places, axis=1), axis=0, return_inverse=True)
    if len(cells) > _MOST_COLUMNS:
        message = (
            f"has {len(cells):,} sizes or cells, and a spreadsheet takes {_MOST_COLUMNS:,} columns: leave out --wide"
        )
        raise InputError("too-many-cells", message, Place(f"{compared.table}.parquet"))
    named = [[f"{key} = {value}" for value in each] for key, each in zip(keys, values, strict=True)]
    names = [", ".join(each[n] for each, n in zip(named, cell, strict=True)) for cell in cells]
    counts = np.zeros((len(regions), len(cells)), np.int64)
    place = dict(zip(regions["region"], range(len(regions)), strict=True))
    counts[rows["region"].map(place).to_numpy(np.int64), column.ravel()[: len(rows)]] = rows[compared.value]
    wide = regions[list(REGION)].join(pd.DataFrame(counts, columns=names))
    return exported(pa.Table.from_pandas(wide, preserve_index=False), level_names(folder))


def level_names(folder: Path) -> tuple[str, ...]:
    """Return the names of the levels of a folder's regions, root first; () without regions."""
    import pyarrow.parquet as pq

    path, columns = folder / "hierarchy.parquet", ("level", "level_name")
    if not path.is_file() or not {*columns} <= {*quietly(path, lambda: pq.read_schema(path)).names}:
        return ()
    rows = decoded(read_columns(path, columns))
    return tuple(rows.drop_duplicates("level").sort_values("level")["level_name"])


def exported_schemas(folder: Path) -> dict[str, Any]:
    """Return the Arrow schema of each table as exports have it, by name."""
    import pyarrow.parquet as pq

    levels, paths = level_names(folder), sorted(folder.glob("*.parquet"))
    schemas = {path.stem: quietly(path, lambda path=path: pq.read_schema(path)) for path in paths}  # type: ignore[misc]
    return {name: exported(plain_schema(schema).empty_table(), levels).schema for name, schema in schemas.items()}


def exported(table: Any, levels: Sequence[str], *, raw: bool = False) -> Any:
    """Return a table of plain texts with a column for each level, and fractions of few digits unless ``raw``.

    The column has the name of the region that a row lies in, and is empty above the level of its region; where a table
    has a column of a level's name, "_name" follows it.
    """
    import pyarrow as pa
    import pyarrow.types as kinds

    for place, field in enumerate(table.schema):
        if kinds.is_floating(field.type) and not raw:
            table = table.set_column(place, field, _short(table.column(place), _ENDS.get(field.name.split("_")[-1])))
    if "region" not in table.schema.names or len(levels) < 2:
        return table
    coded = table.column("region").combine_chunks().dictionary_encode()
    names = [parted(path) for path in coded.dictionary.to_pylist()]
    first = 1 + max(table.schema.get_field_index(name) for name in ("region", "region_id"))
    for level, title in enumerate(levels):
        column = pa.array([path[level] if level < len(path) else None for path in names], pa.string())
        table = table.add_column(first + level, level_column(title, table.schema.names), column.take(coded.indices))
    return table


def level_column(level: str, columns: Sequence[str]) -> str:
    """Return the name of a level's column in a table that has other ``columns``."""
    return f"{level}_name" if level in columns else level


def _short(column: Any, outwards: Callable[[Any], Any] | None) -> Any:
    """Return fractions with four significant digits, and one decimal of what is larger; ends of intervals outwards."""
    import pyarrow as pa

    numbers = column.to_numpy()
    with np.errstate(divide="ignore", invalid="ignore"):
        power = 10.0 ** np.clip(3 - np.floor(np.log10(np.abs(numbers))), 1, 12)
        digits = np.round(numbers * power)
        if outwards is not None:  # what has so few digits stays: 0.3 * 1,000 is a little less than 300
            digits = np.where(np.isclose(digits, numbers * power, rtol=1e-12), digits, outwards(numbers * power))
        return pa.array(digits / power, column.type, mask=column.is_null().to_numpy())


def csv_bytes(
    frame: pd.DataFrame,
    delimiter: str = ",",
    levels: Sequence[str] = (),
    *,
    raw: bool = False,
    decimal: str = ".",
) -> bytes:
    """Return a frame as a CSV file, as ``write_csv_files`` writes tables; ``levels`` are the columns for a region."""
    import pyarrow as pa

    content = io.BytesIO()
    table = pa.Table.from_pandas(frame, preserve_index=False)
    table = exported(table.cast(plain_schema(table.schema)), levels, raw=raw)
    _write_rows(table.schema, [table], content, delimiter, raw, decimal)
    return content.getvalue()


def check_delimiter(delimiter: str, decimal: str = ".") -> None:
    """Raise InputError (bad-option) for what cannot separate fields, or begin decimals between such separators."""
    if delimiter not in (",", ";"):
        raise InputError("bad-option", "--delimiter is a comma or a semicolon")
    if decimal not in (".", ","):
        raise InputError("bad-option", "--decimal is a point or a comma")
    if decimal == delimiter:
        raise InputError("bad-option", '--decimal "," needs another separator of fields: add --delimiter ";"')


def exported_batches(path: Path, levels: Sequence[str], *, raw: bool = False) -> tuple[Any, Iterator[Any], int]:
    """Return the schema of a Parquet file as exports have it, its batches of rows as tables, and their number."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    source = pq.ParquetFile(path, page_checksum_verification=True)
    schema = plain_schema(source.schema_arrow)
    plain = (pa.Table.from_batches([batch]).cast(schema) for batch in source.iter_batches())
    tables = (exported(table, levels, raw=raw) for table in plain)
    return exported(schema.empty_table(), levels, raw=raw).schema, tables, source.metadata.num_rows


def _write_rows(
    schema: pa.Schema, tables: Iterable[pa.Table], file: IO[bytes], delimiter: str, raw: bool, decimal: str
) -> None:
    import pyarrow.csv as csv

    def shown(table: Any) -> Any:
        return _with_decimal(table if raw else _inert(table), decimal)

    file.write(_MARK)
    options = csv.WriteOptions(delimiter=delimiter)
    with csv.CSVWriter(file, shown(schema.empty_table()).schema, write_options=options) as writer:
        for table in tables:
            writer.write_table(shown(table))


def _with_decimal(table: Any, decimal: str) -> Any:
    """Return the table with fractional numbers as texts, where their decimals do not begin with a point."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.types as kinds

    for place, field in enumerate(table.schema):
        if decimal != "." and kinds.is_floating(field.type):
            texts = pc.replace_substring(table.column(place).cast(pa.string()), ".", decimal)
            table = table.set_column(place, field.name, texts)
    return table


def _inert(table: Any) -> Any:
    """Return the table with an apostrophe before texts that a spreadsheet would run as formulas, names included."""
    import pyarrow as pa
    import pyarrow.types as kinds

    for place, field in enumerate(table.schema):
        if kinds.is_string(field.type):
            table = table.set_column(place, field, _marked(table.column(place)))
    return table.rename_columns(_marked(pa.array(table.schema.names, pa.string())).to_pylist())


def _marked(texts: Any) -> Any:
    """Return Arrow's strings, marked in any form of an operator: some spreadsheets read the full-width = as =."""
    import pyarrow.compute as pc

    marked = pc.binary_join_element_wise("'", texts, "")
    plain = pc.utf8_normalize(texts, form="NFKC")
    return pc.if_else(pc.match_substring_regex(plain, _FORMULA), marked, texts)


def plain_schema(schema: Any) -> Any:
    """Return a schema in which columns of texts are plain strings: neither coded nor of another of Arrow's types."""
    import pyarrow as pa
    import pyarrow.types as kinds

    plain = (field.type.value_type if kinds.is_dictionary(field.type) else field.type for field in schema)
    texts = (pa.string() if is_text(kind) else kind for kind in plain)
    return pa.schema(list(zip(schema.names, texts, strict=True)))


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
                if not _write_cell(sheet, row, place, value):
                    message = (
                        f"this text has more than {_LONGEST:,} characters, the most that a cell of a workbook takes: "
                        "leave out --xlsx, which writes CSV files"
                    )
                    raise InputError("too-long-text", message, Place(f"{name}.parquet", row, schema.names[place]))
            row += 1


def _write_cell(sheet: Any, row: int, place: int, value: str | float | bool | None) -> bool:
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
