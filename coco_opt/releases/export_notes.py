"""What explains exported tables: a read-me for people, and the same lines as the first sheet of a workbook."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from coco_opt.releases.about import date_of, protection, title_of, unit_words
from coco_opt.releases.datapackage import level_columns, meaning, table_title

README = "README.txt"


def about_lines(manifest: Mapping[str, Any], schemas: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield a label and a text for all that a reader of the tables must know, column by column at the end."""
    words = unit_words(manifest)
    yield "Title", title_of(manifest)
    yield "When", date_of(manifest) or "not stated"
    yield "Unit", f"a count is of {words.groups if manifest['kind'] == 'groups' else words.entities}"
    yield "Where", f"levels of regions, largest first: {', '.join(manifest['levels'])}"
    yield "Privacy", f"{protection(manifest)} Status in the manifest: {manifest['status']}."
    yield "How sure", _how_sure(manifest)
    number = f", measurement {manifest['measurement'][:16]}" if "measurement" in manifest else ""
    yield "How to cite", f"{title_of(manifest)}{number}, by coco-opt {manifest['versions'].get('coco-opt', '')}".strip()
    for table, schema in schemas.items():
        yield "", ""
        yield f"Table {table}", table_title(table, manifest)
        levels = level_columns(manifest, schema.names)
        for column in schema.names:
            yield column, meaning(table, column, levels, words)


def _how_sure(manifest: Mapping[str, Any]) -> str:
    coverage = (manifest.get("intervals") or {}).get("coverage")
    sure = "Figures are not exact unless a column says so; columns of standard errors or variances say how far off."
    if coverage:
        sure = f"An interval (lower to upper) has the true number in it in at least {100 * coverage:g} of 100 cases."
    exact = manifest.get("group_counts") == "public"
    return f"{sure} The numbers of {unit_words(manifest).groups} of whole regions are exact." if exact else sure


def readme(lines: Iterable[tuple[str, str]], schemas: Mapping[str, Any], delimiter: str, decimal: str) -> bytes:
    """Return the read-me of CSV files: the lines, then how to open them so that ids such as 077810 stay texts."""
    listed = "\n".join(f"{label}: {text}" if label else "" for label, text in lines)
    table = next((name for name in ("histograms", "tables", "ranges") if name in schemas), next(iter(schemas)))
    texts = [column.name for column in schemas[table] if str(column.type) == "string"]
    kinds = ", ".join(f'"{name}": str' for name in texts)
    classes = ", ".join(f'"{name}" = "character"' for name in texts)
    options = f', sep="{delimiter}", decimal="{decimal}"', f', sep = "{delimiter}", dec = "{decimal}"'
    pandas, r = options if (delimiter, decimal) != (",", ".") else ("", "")
    how = f"""
How to open {table}.csv so that an id such as 077810 keeps its zeros
pandas: pd.read_csv("{table}.csv", dtype={{{kinds}}}, keep_default_na=False, na_values=[""]{pandas})
R: read.csv("{table}.csv", colClasses = c({classes}), na.strings = "", fileEncoding = "UTF-8-BOM"{r})
LibreOffice: choose Unicode (UTF-8), the separator "{delimiter}", and for the columns of ids and names the type Text.
Excel: Data, From Text/CSV, Transform, and the data type Text; or export a workbook with coco-opt export --xlsx.
A quotation mark ' before a name that begins with = + - or @ keeps spreadsheets from running it.
"""
    return f"{listed}\n{how}".encode("utf-8-sig")
