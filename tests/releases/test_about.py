"""A release says what it is about in its readers' words, and ``datapackage.json`` what every table holds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest

import coco_opt as co
from coco_opt import configure, release
from coco_opt.errors import ConfigError
from coco_opt.releases.manifest import plural, protection

PERSONS = pd.DataFrame({"pid": range(12), "household_id": [k % 5 for k in range(12)]})
HOMES = pd.DataFrame({"household_id": range(5), "region_id": ["n", "s", "s", "n", "s"]})
AREAS = pd.DataFrame({"region_id": ["n", "s"], "nation": "land", "part": ["north", "south"]})


def estimated(folder: Path, consistency: str = "joint", **output: Any) -> co.Estimated:
    config = co.configure(
        folder=folder,
        data={
            "entities": PERSONS,
            "groups": HOMES,
            "hierarchy": AREAS,
            "columns": {"entity_id": "pid", "group_id": "household_id"},
        },
        privacy={"epsilon": "1", "noise": "seeded", "seed": 7},
        groups={"max_size": 9, "consistency": consistency},
        output=output,
    )
    return co.estimate(co.measure(config))


def test_words_come_from_the_public_columns_and_never_from_private_ones(tmp_path: Path) -> None:
    manifest = estimated(tmp_path).manifest
    assert manifest["about"] == {
        "words": {
            "group": "household",
            "groups": "households",
            "entity": "entity",
            "entities": "entities",
            "value": "value",
        }
    }
    assert "pid" not in str(manifest)


def test_configured_words_change_the_page_and_no_figure(tmp_path: Path) -> None:
    plain = estimated(tmp_path)
    stated = estimated(tmp_path, title="Homes", date="May 2026", words={"entity": "person", "entities": "people"})
    assert stated.to_pandas().equals(plain.to_pandas())
    page = co.render_report(stated.kind, stated.shown)
    assert "<h1>Homes</h1>" in page
    assert "Households by number of people in land, May 2026, by part (2)." in page
    assert ">households in all</dt>" in page


@pytest.mark.parametrize(("consistency", "words"), [("joint", "all parts add up"), ("none", "need not add up")])
def test_a_page_says_whether_parts_add_up(consistency: str, words: str, tmp_path: Path) -> None:
    release = estimated(tmp_path, consistency)
    assert words in co.render_report(release.kind, release.shown)


def test_an_unknown_word_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="words"):
        estimated(tmp_path, words={"house": "home"})


@pytest.mark.parametrize(
    ("word", "several"), [("person", "persons"), ("entity", "entities"), ("stay", "stays"), ("box", "boxes")]
)
def test_regular_plurals(word: str, several: str) -> None:
    assert plural(word) == several


@pytest.mark.parametrize(
    ("cost", "shared"),
    [({"epsilon": "2"}, True), ({"epsilon": "100"}, False), ({"rho": "1"}, True), ({"rho": "50"}, False)],
)
def test_readers_learn_the_budget_and_that_a_huge_one_protects_nobody(cost: dict[str, str], shared: bool) -> None:
    text = protection({"status": "PRIVATE", "private": True, "cost": cost})
    assert ("may be read and shared by anybody" in text) is shared
    assert ("protects hardly anybody" in text) is not shared
    assert " = ".join(*cost.items()) in text


SEEDED: dict[str, Any] = {"epsilon": "1", "noise": "seeded", "seed": 7}
RECORDS = pd.DataFrame({"region_id": ["r1", "r2", "r2", "r3"], "sex": list("fmfm")})
REGIONS = pd.DataFrame({"region_id": ["r1", "r2", "r3"], "nation": "n", "town": ["a", "b", "c"]})
SIZES = pd.DataFrame({"nation": "n", "town": ["a", "a", "b"], "size": [1, 2, 1], "groups": [5, 6, 7]})
TABLES = {"attributes": {"sex": ["f", "m"]}, "workload": ["total", "sex"], "microdata": True}
KINDS: dict[str, dict[str, Any]] = {
    "groups": {"data": {"sizes": SIZES}, "groups": {"max_size": 9, "consistency": "posterior", "unbiased": True}},
    "tables": {"data": {"records": RECORDS, "hierarchy": REGIONS}, "topdown": TABLES},
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
