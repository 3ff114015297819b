"""``datapackage.json`` says of every table what its Parquet file holds, for each kind of release."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest

from coco_opt import configure, release

SEEDED: dict[str, Any] = {"epsilon": "1", "noise": "seeded", "seed": 7}
PERSONS = pd.DataFrame({"region_id": ["r1", "r2", "r2", "r3"], "sex": list("fmfm")})
REGIONS = pd.DataFrame({"region_id": ["r1", "r2", "r3"], "nation": "n", "town": ["a", "b", "c"]})
SIZES = pd.DataFrame({"nation": "n", "town": ["a", "a", "b"], "size": [1, 2, 1], "groups": [5, 6, 7]})
TABLES = {"attributes": {"sex": ["f", "m"]}, "workload": ["total", "sex"], "microdata": True}
KINDS: dict[str, dict[str, Any]] = {
    "groups": {"data": {"sizes": SIZES}, "groups": {"max_size": 9, "consistency": "posterior", "unbiased": True}},
    "tables": {"data": {"records": PERSONS, "hierarchy": REGIONS}, "topdown": TABLES},
    "ranges": {"data": {"values": pd.DataFrame({"value": [3, 1, 4, 1]})}, "ranges": {"cells": 8, "outside": "clamp"}},
}
TYPES = {"int32": "integer", "int64": "integer", "double": "number", "string": "string", "bool": "boolean"}


@pytest.mark.parametrize("kind", KINDS)
def test_describes_every_table_as_it_is(kind: str, tmp_path: Path) -> None:
    config = configure(folder=tmp_path, name="Ein Test, 2026", privacy=SEEDED, **KINDS[kind])
    folder = release(config, tmp_path / "out").folder
    package = json.loads((folder / "datapackage.json").read_text(encoding="utf-8"))
    assert (package["name"], package["title"]) == ("ein-test-2026", "Ein Test, 2026")
    assert "changed a little at random" in package["description"] or "NOT PRIVATE" in package["description"]
    assert all(resource["title"] != resource["name"] for resource in package["resources"])
    assert {"groups": "Size 9 means 9 or more.", "ranges": "the last cell 7 or more."}.get(kind, "") in str(package)
    tables = {resource["path"]: resource for resource in package["resources"]}
    assert set(tables) == {path.name for path in folder.glob("*.parquet")}
    for name, resource in tables.items():
        path, schema = folder / name, resource["schema"]
        columns = {column.name: TYPES[str(column.type)] for column in pq.read_schema(path)}
        assert {field["name"]: field["type"] for field in schema["fields"]} == columns
        rows = pd.read_parquet(path)
        assert name == "microdata.parquet" or not rows.duplicated(schema["primaryKey"]).any()
        if "foreignKeys" in schema:
            assert rows["region"].isin(pd.read_parquet(folder / "hierarchy.parquet")["region"]).all()
