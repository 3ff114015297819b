"""What explains the tables of a release: ``datapackage.json`` for programs, a read-me or a first sheet for people.

``datapackage.json`` is a Frictionless Data Package, version 1. It says for every table its file, and for every column
its type and meaning, so that portals and packages of R, SAS or Python read a release without this library. Sizes and
digests are left to the manifest: validators of the format cannot compute them for Parquet files.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from coco_opt.files.differences import REGION
from coco_opt.files.folder import as_json
from coco_opt.files.regions import REGIONS
from coco_opt.files.spreadsheets import level_column
from coco_opt.releases.manifest import date_of, open_ends, protection, title_of, unit_words

DATAPACKAGE = "datapackage.json"

_TYPES = {"int32": "integer", "int64": "integer", "double": "number", "string": "string", "bool": "boolean"}
_REGION = "region"

_COLUMNS = {
    "level": "level of the region in the hierarchy; 0 is the root",
    "level_name": "name of the level",
    _REGION: "path of the region from the root: names joined by '/', where '/' inside a name is written '\\/'",
    "region_id": "id of the region in the source data; empty where it has none",
    "parent": "path of the region's parent; empty for the root",
    "size": "number of {entities} in a {group}",
    "last_size": "largest size of the bucket that begins with 'size'",
    "groups": "number of {groups}",
    "groups_lower": "lower end of the interval of 'groups'",
    "groups_upper": "upper end of the interval of 'groups'",
    "groups_variance": "variance of 'groups' due to noise",
    "at_most": "number of {groups} of this size or smaller",
    "at_most_lower": "lower end of the interval of 'at_most'",
    "at_most_upper": "upper end of the interval of 'at_most'",
    "at_most_variance": "variance of 'at_most' due to noise",
    "entities": "number of {entities} that {groups} have beyond their first 'size', up to 'last_size' + 1",
    "entities_variance": "variance of 'entities' due to noise",
    "converged": "whether the region's chains converged; if not, its intervals are less certain",
    "measured": "whether an answer tells the size from its neighbours; if not, its interval rests on the model's shape",
    "summary": "name of the summary of a region's {groups}",
    "value": "value of the summary",
    "persons": "number of {entities}",
    "query": "name of the query",
    "answer": "which answer of the query: the values of its attributes",
    "estimate": "unbiased estimate; may be negative or fractional",
    "standard_error": "standard error of 'estimate' due to noise",
    "fact": "number of the constraint among the manifest's 'facts', from 0",
    "constraint": "the constraint in words",
    "lower": "lower end or bound; empty where there is none",
    "upper": "upper end or bound; empty where there is none",
    "tree_level": "level of the interval in the tree; 0 is the whole domain",
    "start": "first value of the interval",
    "stop": "value after the last value of the interval",
    "draw": "number of the draw from the posterior, from 0",
    "count": "{entities} in the draw",
}

_OF_TABLES = {
    ("ranges", "estimate"): "number of {entities} by the estimator of the manifest; unless it is noisy or consistent, "
    "ranges with few {entities} are a little too large on average",
    ("ranges", "standard_error"): "standard error, due to noise, of the least squares estimate behind 'estimate'",
}
"""What columns mean in one table alone."""

_KEYS = {
    "hierarchy": (_REGION,),
    "histograms": (_REGION, "size"),
    "intervals": (_REGION, "size", "query", "answer", "start", "stop"),  # by size, by query, or of a range
    "draws": ("draw", "start"),
    "summaries": (_REGION, "summary"),
    "unbiased": (_REGION, "size"),
    "estimates": (_REGION, "query", "answer"),
    "invariants": (_REGION, "query", "answer"),
    "ranges": ("tree_level", "start"),
}
"""The columns that tell the rows of a table apart; ``tables`` has the region and all attributes, others have none."""


_TITLES = {
    "hierarchy": "The regions",
    "histograms": "{groups} by number of {entities}; 0 for sizes without a row",
    "intervals": "Intervals: the true numbers lie in them with the stated probability; sizes and answers without a row "
    "are 0, from 0 to 0",
    "summaries": "Means, shares and quantiles over all {groups} of each region, size 0 included, with their intervals",
    "unbiased": "Counts that are right on average, to add up yourself, with their variances",
    "tables": "{entities} by their attributes; 0 for combinations without a row",
    "estimates": "Unbiased estimates of the answers to queries, with their standard errors",
    "invariants": "Counts that were published exactly",
    "ranges": "{entities} in ranges of {value}, with standard errors",
    "draws": "Draws from the posterior",
    "microdata": "Made-up records that give the same tables; nobody is in them",
}

_FORMS: Mapping[str, Mapping[str, Any]] = {
    "parquet": {"mediatype": "application/vnd.apache.parquet"},
    "csv": {"mediatype": "text/csv", "encoding": "utf-8"},
    "xlsx": {"mediatype": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"},
}


def datapackage(folder: Path, manifest: Mapping[str, Any], files: Iterable[str]) -> bytes:
    """Return the description of the tables that were written into a folder, as the bytes of ``datapackage.json``.

    ``files`` are their names. Raises InputError where the manifest cannot be written as JSON.
    """
    import pyarrow.parquet as pq

    names = sorted(name for name in files if name.endswith(".parquet"))
    return package(manifest, {Path(name).stem: pq.read_schema(folder / name) for name in names})


def package(
    manifest: Mapping[str, Any],
    schemas: Mapping[str, Any],
    form: str = "parquet",
    dialect: Mapping[str, Any] | None = None,
) -> bytes:
    """Return the description of tables by their Arrow schemas, in files of a ``form``; a workbook's ``dialect``."""
    resources = [
        {
            "profile": "tabular-data-resource",
            "name": table,
            "title": table_title(table, manifest),
            "path": (dialect or {}).get("workbook", f"{table}.{form}"),
            "format": form,
            **_FORMS[form],
            **({"dialect": {"sheet": table}} if form == "xlsx" else {"dialect": dict(dialect)} if dialect else {}),
            "schema": _schema(table, schema, manifest, Path(REGIONS).stem in schemas),
        }
        for table, schema in schemas.items()
    ]
    slug = re.sub(r"[^a-z0-9._-]+", "-", str(manifest["name"]).lower()).strip("-")  # in the letters of the format
    return as_json(
        {
            "profile": "data-package",
            "name": slug or "release",
            "title": title_of(manifest),
            "description": f"{protection(manifest)} The manifest of the release has the privacy budget, the method and "
            "what the tables promise.",
            "resources": resources,
        }
    )


def table_title(table: str, manifest: Mapping[str, Any]) -> str:
    """Return the title of a table in the words of a release."""
    title = _TITLES.get(table, table).format(**asdict(unit_words(manifest)))
    return title[:1].upper() + title[1:]


def _schema(table: str, schema: Any, manifest: Mapping[str, Any], with_regions: bool) -> dict[str, Any]:
    """Return the description of a table's columns."""
    levels = level_columns(manifest, schema.names)
    key = [column for column in _KEYS.get(table, ()) if column in schema.names]
    if table == "tables":
        key = [_REGION, *(name for name in schema.names if name not in (*REGION, *levels, "persons"))]
    fields = [
        {
            "name": column.name,
            "type": _TYPES.get(str(column.type), "any"),
            "description": meaning(table, column.name, levels, manifest),
        }
        for column in schema
    ]
    description: dict[str, Any] = {"fields": fields}
    if key:
        description["primaryKey"] = key
    if with_regions and table != Path(REGIONS).stem and _REGION in schema.names:
        reference = {"resource": Path(REGIONS).stem, "fields": [_REGION]}
        description["foreignKeys"] = [{"fields": [_REGION], "reference": reference}]
    return description


def level_columns(manifest: Mapping[str, Any], columns: Sequence[str]) -> dict[str, str]:
    """Return the levels by their columns, in a table that has such columns."""
    if _REGION not in columns:
        return {}
    kept = [name for name in columns if name in _COLUMNS]
    named = {level_column(level, kept): level for level in manifest["levels"]}
    return {name: level for name, level in named.items() if name in columns and name not in _COLUMNS}


def meaning(table: str, column: str, levels: Mapping[str, str], manifest: Mapping[str, Any]) -> str:
    """Return what a table's column holds; one without a meaning of its own is an attribute of the schema."""
    if column in levels:
        return f"name of the {levels[column]} in which the row lies; empty for rows of larger regions"
    text = _OF_TABLES.get((table, column)) or _COLUMNS.get(column, "attribute of the configured schema")
    ends = open_ends(manifest) if column in ("size", "start") else ""
    return ". ".join(filter(None, (text.format(**asdict(unit_words(manifest))), ends)))


README = "README.txt"


def about_lines(manifest: Mapping[str, Any], schemas: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield a label and a text for all that a reader of the tables must know, column by column at the end."""
    words = unit_words(manifest)
    yield "Title", title_of(manifest)
    yield "When", date_of(manifest) or "not stated"
    yield "Unit", f"a count is of {words.groups if manifest['kind'] == 'groups' else words.entities}"
    if ends := open_ends(manifest):
        yield "Ends", ends
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
            yield column, meaning(table, column, levels, manifest)


def _how_sure(manifest: Mapping[str, Any]) -> str:
    coverage = (manifest.get("intervals") or {}).get("coverage")
    sure = "Figures are not exact unless a column says so; columns of standard errors or variances say how far off."
    if coverage:
        sure = f"An interval (lower to upper) has the true number in it in at least {100 * coverage:g} of 100 cases."
    exact = manifest.get("group_counts") == "public"
    return f"{sure} The numbers of {unit_words(manifest).groups} of whole regions are exact." if exact else sure


def main_texts(schemas: Mapping[str, Any]) -> tuple[str, list[str]]:
    """Return the first table that a reader opens, and its columns of text: ids such as 077810 must stay so."""
    table = next((name for name in ("histograms", "tables", "ranges") if name in schemas), next(iter(schemas)))
    return table, [column.name for column in schemas[table] if str(column.type) == "string"]


def readme(lines: Iterable[tuple[str, str]], schemas: Mapping[str, Any], delimiter: str, decimal: str) -> bytes:
    """Return the read-me of CSV files: the lines, then how to open them so that ids such as 077810 stay texts."""
    listed = "\n".join(f"{label}: {text}" if label else "" for label, text in lines)
    table, texts = main_texts(schemas)
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
