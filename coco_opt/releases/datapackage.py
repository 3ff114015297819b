"""``datapackage.json``: the tables of a release described for other programs (Frictionless Data Package, version 1).

It says for every table its file, and for every column its type and meaning, so that portals and packages of R, SAS or
Python read a release without this library. Sizes and digests are left to the manifest: validators of the format cannot
compute them for Parquet files.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from coco_opt.files.differences import REGION
from coco_opt.files.folder import as_json
from coco_opt.files.regions import REGIONS

DATAPACKAGE = "datapackage.json"

_TYPES = {"int32": "integer", "int64": "integer", "double": "number", "string": "string", "bool": "boolean"}
_REGION = "region"

_COLUMNS = {
    "level": "level of the region in the hierarchy; 0 is the root",
    "level_name": "name of the level",
    _REGION: "path of the region from the root: names joined by '/', where '/' inside a name is written '\\/'",
    "region_id": "id of the region in the source data; empty where it has none",
    "parent": "path of the region's parent; empty for the root",
    "size": "number of members of a group",
    "last_size": "largest size of the bucket that begins with 'size'",
    "groups": "number of groups",
    "groups_lower": "lower end of the interval of 'groups'",
    "groups_upper": "upper end of the interval of 'groups'",
    "groups_variance": "variance of 'groups' due to noise",
    "at_most": "number of groups of this size or smaller",
    "at_most_lower": "lower end of the interval of 'at_most'",
    "at_most_upper": "upper end of the interval of 'at_most'",
    "at_most_variance": "variance of 'at_most' due to noise",
    "entities": "number of members that groups have beyond their first 'size', up to 'last_size' + 1",
    "entities_variance": "variance of 'entities' due to noise",
    "converged": "whether the region's chains converged; if not, its intervals are less certain",
    "measured": "whether an answer tells the size from its neighbours; if not, its interval rests on the model's shape",
    "summary": "name of the summary of a region's groups",
    "value": "value of the summary",
    "persons": "number of persons",
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
    "count": "entities in the draw",
}

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


def datapackage(folder: Path, manifest: Mapping[str, Any], files: Iterable[str]) -> bytes:
    """Return the description of the tables that were written into a folder, as the bytes of ``datapackage.json``.

    ``files`` are their names. Raises InputError where the manifest cannot be written as JSON.
    """
    names = sorted(name for name in files if name.endswith(".parquet"))
    return as_json(
        {
            "profile": "data-package",
            "name": _slug(str(manifest["name"])),
            "title": str(manifest["name"]),
            "description": f"Released with coco-opt; status: {manifest['status']}. See manifest.json for the privacy "
            "budget, the method and what the tables promise.",
            "resources": [_resource(folder / name, REGIONS in names) for name in names],
        }
    )


def _resource(path: Path, with_regions: bool) -> dict[str, Any]:
    """Return the description of one table."""
    import pyarrow.parquet as pq

    schema, table = pq.read_schema(path), path.stem
    key = [column for column in _KEYS.get(table, ()) if column in schema.names]
    if table == "tables":
        key = [_REGION, *_attributes(schema.names)]
    description: dict[str, Any] = {"fields": [_field(column.name, str(column.type)) for column in schema]}
    if key:
        description["primaryKey"] = key
    if with_regions and path.name != REGIONS and _REGION in schema.names:
        reference = {"resource": Path(REGIONS).stem, "fields": [_REGION]}
        description["foreignKeys"] = [{"fields": [_REGION], "reference": reference}]
    return {
        "profile": "tabular-data-resource",
        "name": table,
        "path": path.name,
        "format": "parquet",
        "mediatype": "application/vnd.apache.parquet",
        "schema": description,
    }


def _field(name: str, kind: str) -> dict[str, str]:
    """Return the description of a column; one without a meaning of its own is an attribute of the schema."""
    return {
        "name": name,
        "type": _TYPES.get(kind, "any"),
        "description": _COLUMNS.get(name, "attribute of the configured schema"),
    }


def _attributes(columns: list[str]) -> list[str]:
    """Return the columns of a table of persons that are attributes."""
    return [column for column in columns if column not in (*REGION, "persons")]


def _slug(name: str) -> str:
    """Return a name in the letters that the format allows: lower case, digits, '.', '_' and '-'."""
    return re.sub(r"[^a-z0-9._-]+", "-", name.lower()).strip("-") or "release"
