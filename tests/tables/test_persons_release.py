"""Releases of tables of persons: written, read again, and every planted fault found by verify."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coco_opt.errors import InputError
from coco_opt.histograms import Hierarchy
from coco_opt.tables import persons, verify_persons
from coco_opt.tables.persons import FORMAT, CellRuns, TablesRelease, read_tables_release, write_tables
from coco_opt.tables.release import read_release
from coco_opt.tables.verify import verify_release
from coco_opt.topdown.plain import plain_schema
from coco_opt.topdown.queries import parse_query
from coco_opt.topdown.schema import Schema, ValueGroups
from coco_opt.topdown.sparse_tables import SparseTables

SCHEMA = Schema(
    {"sex": ("female", "male"), "age": ("child", "adult", "old")},
    ("sex = male & age = old",),
    {"voting": ValueGroups("age", {"minor": ["child"], "voter": ["adult", "old"]})},
)
HIERARCHY = Hierarchy.from_paths([("all", "east", "a"), ("all", "east", "b"), ("all", "west", "c")])
LEAVES = np.array([[1, 0, 2, 0, 3], [0, 0, 0, 4, 0], [5, 0, 0, 0, 0]])
PROMISES = ["integers", "nonnegative", "structural_zeros", "children_sum_to_parents", "invariants", "microdata"]


def release(folder: Path, promises: list[str] | None = None) -> Path:
    every = HIERARCHY.aggregate(LEAVES.astype(np.int64))
    levels = [HIERARCHY.level_range(level) for level in range(HIERARCHY.levels)]
    runs = CellRuns.of([SparseTables.of(every[level.start : level.stop]) for level in levels])
    manifest = {
        "format": FORMAT,
        "schema": plain_schema(SCHEMA),
        "promises": PROMISES if promises is None else promises,
    }
    exact = {
        "level": [1, 1, 1],
        "region": ["all/east", "all/east", "all/west"],
        "query": ["voting", "voting", "total"],
        "answer": ["voting = minor", "voting = voter", "total"],
        "lower": [5, 4, 5],
        "upper": [5, 100, 5],
    }
    estimates = {
        "level": [0],
        "region": ["all"],
        "query": ["total"],
        "answer": ["total"],
        "estimate": [14.5],
        "standard_error": [2.5],
    }
    return write_tables(folder, HIERARCHY, SCHEMA, runs, manifest, exact=exact, estimates=estimates, microdata=True)


def failing(folder: Path) -> dict[str, str]:
    return {check.name: check.detail for check in verify_release(folder) if not check.passed}


def test_what_was_written_is_read_again_and_holds(tmp_path: Path) -> None:
    folder = release(tmp_path / "out")
    assert failing(folder) == {}
    assert {check.name for check in verify_release(folder)} >= set(PROMISES)
    found = read_tables_release(folder)
    assert isinstance(found, TablesRelease)
    assert found.table("all/east").tolist() == LEAVES[:2].sum(axis=0).tolist()
    assert found.table("all").tolist() == LEAVES.sum(axis=0).tolist()
    frame = found.to_pandas()
    assert set(frame.columns) == {"level", "region", "sex", "age", "persons"}
    assert int(frame[frame.level == 0].persons.sum()) == int(LEAVES.sum())
    assert pq.read_table(folder / "microdata.parquet").num_rows == LEAVES.sum()
    assert pq.read_table(folder / "estimates.parquet").column("standard_error").to_pylist() == [2.5]


def test_the_same_release_is_the_same_bytes(tmp_path: Path) -> None:
    one, two = release(tmp_path / "one"), release(tmp_path / "two")
    assert all((two / path.name).read_bytes() == path.read_bytes() for path in one.iterdir())
    with pytest.raises(InputError, match="folder-exists"):
        release(tmp_path / "one")


Change = Callable[[dict[str, list[Any]]], None]


def rewrite(path: Path, change: Change) -> None:
    table = pq.read_table(path)
    columns = {name: table.column(name).to_pylist() for name in table.column_names}
    change(columns)
    pq.write_table(pa.table(columns), path)


def one_more(columns: dict[str, list[Any]]) -> None:
    columns["persons"][-1] += 1


def negative(columns: dict[str, list[Any]]) -> None:
    columns["persons"][0] = -columns["persons"][0]


def forbidden(columns: dict[str, list[Any]]) -> None:
    columns["sex"][-1], columns["age"][-1] = "male", "old"


def unknown_value(columns: dict[str, list[Any]]) -> None:
    columns["age"][2] = "ancient"


def unknown_region(columns: dict[str, list[Any]]) -> None:
    columns["region"][1] = "all/north"


def wrong_level(columns: dict[str, list[Any]]) -> None:
    columns["level"][0] = 2


def twice(columns: dict[str, list[Any]]) -> None:
    for values in columns.values():
        values.append(values[0])


def fractional(columns: dict[str, list[Any]]) -> None:
    columns["persons"] = [value + 0.5 for value in columns["persons"]]


def stricter(columns: dict[str, list[Any]]) -> None:
    columns["lower"][1] = columns["upper"][1] = 10


def other_answer(columns: dict[str, list[Any]]) -> None:
    columns["answer"][0] = "voting = elder"


def one_fewer(columns: dict[str, list[Any]]) -> None:
    for values in columns.values():
        values.pop()


PLANTED = [
    ("tables.parquet", one_more, "children_sum_to_parents"),
    ("tables.parquet", negative, "nonnegative"),
    ("tables.parquet", forbidden, "structural_zeros"),
    ("tables.parquet", unknown_value, "rows"),
    ("tables.parquet", unknown_region, "rows"),
    ("tables.parquet", wrong_level, "rows"),
    ("tables.parquet", twice, "rows"),
    ("tables.parquet", fractional, "integers"),
    ("invariants.parquet", stricter, "invariants"),
    ("invariants.parquet", other_answer, "invariants"),
    ("invariants.parquet", unknown_region, "invariants"),
    ("microdata.parquet", one_fewer, "microdata"),
    ("microdata.parquet", unknown_value, "microdata"),
]


@pytest.mark.parametrize(("file", "change", "name"), PLANTED)
def test_a_planted_fault_is_found(tmp_path: Path, file: str, change: Change, name: str) -> None:
    folder = release(tmp_path / "out")
    rewrite(folder / file, change)
    assert name in failing(folder)


@pytest.mark.parametrize("file", ["tables.parquet", "hierarchy.parquet", "invariants.parquet", "microdata.parquet"])
def test_a_missing_or_damaged_file_is_a_failed_check(tmp_path: Path, file: str) -> None:
    folder = release(tmp_path / "out")
    (folder / file).write_bytes(b"PAR1 not really")
    assert failing(folder)
    (folder / file).unlink()
    assert failing(folder)


def test_a_manifest_that_promises_the_unknown_fails(tmp_path: Path) -> None:
    folder = release(tmp_path / "out", ["integers", "beauty"])
    assert "manifest" in failing(folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["promises"], manifest["schema"] = ["integers"], {"attributes": 3}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    assert "files" in failing(folder)


def test_microdata_in_several_row_groups_is_the_same_people(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = pq.read_table(release(tmp_path / "one") / "microdata.parquet")
    monkeypatch.setattr(persons, "ROWS_PER_GROUP", 4)
    folder = release(tmp_path / "two")
    assert pq.ParquetFile(folder / "microdata.parquet").num_row_groups == -(-whole.num_rows // 4)
    assert pq.read_table(folder / "microdata.parquet").equals(whole)
    assert failing(folder) == {}
    rows = [tuple(row.values()) for row in whole.to_pylist()]
    leaves = {"a": 0, "b": 1, "c": 2}
    cells = SCHEMA.encode(
        {name: [SCHEMA.attributes[name].index(row[k + 1]) for row in rows] for k, name in enumerate(SCHEMA.names)}
    )
    counted = np.zeros_like(LEAVES)
    np.add.at(counted, (np.array([leaves[row[0][-1]] for row in rows]), cells), 1)
    assert counted.tolist() == LEAVES.tolist()


def written(folder: Path, schema: Schema, hierarchy: Hierarchy, leaves: np.ndarray, **more: Any) -> Path:
    every = hierarchy.aggregate(leaves.astype(np.int64))
    levels = [hierarchy.level_range(level) for level in range(hierarchy.levels)]
    runs = CellRuns.of([SparseTables.of(every[level.start : level.stop]) for level in levels])
    promises = [name for name in PROMISES if name != "invariants" or "exact" in more]
    manifest = {"format": FORMAT, "schema": plain_schema(schema), "promises": promises}
    return write_tables(folder, hierarchy, schema, runs, manifest, microdata=True, **more)


def test_nobody_in_one_region_is_a_release(tmp_path: Path) -> None:
    alone = Hierarchy.from_paths([("all",)])
    folder = written(tmp_path / "out", SCHEMA, alone, np.zeros((1, SCHEMA.size)))
    assert failing(folder) == {}
    found = read_tables_release(folder)
    assert found.table("all").tolist() == [0] * SCHEMA.size
    assert len(found.to_pandas()) == 0
    assert pq.read_table(folder / "microdata.parquet").column_names == ["region", "sex", "age"]


@pytest.mark.parametrize("name", ["lower", "upper", "estimate", "standard_error", "query", "parent", 'größe "≥"'])
def test_an_attribute_may_have_the_name_of_another_files_column(tmp_path: Path, name: str) -> None:
    schema = Schema({name: ("1", "o'Neil", 'a "b"')})
    folder = written(tmp_path / "out", schema, HIERARCHY, np.arange(9).reshape(3, 3))
    assert failing(folder) == {}
    assert read_tables_release(folder).table("all/west/c").tolist() == [6, 7, 8]


def test_exact_answers_of_every_cell_are_checked_in_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify_persons, "_BLOCK", 2)
    schema = Schema({"a": tuple(f"v{k}" for k in range(30)), "b": ("x", "y")})
    tree = Hierarchy.from_paths([("all", f"r{k}") for k in range(7)])
    leaves = np.random.default_rng(4).integers(0, 3, (7, 60))
    labels = parse_query("detail", schema).labels()
    exact = {
        "level": np.ones(7 * 60, np.int32),
        "region": [f"all/r{k // 60}" for k in range(7 * 60)],
        "query": ["detail"] * (7 * 60),
        "answer": labels * 7,
        "lower": leaves.reshape(-1),
        "upper": leaves.reshape(-1),
    }
    assert failing(written(tmp_path / "good", schema, tree, leaves, exact=exact)) == {}
    for row in (0, 133, 419):
        wrong = leaves.reshape(-1).copy()
        wrong[row] += 1
        folder = written(tmp_path / f"bad{row}", schema, tree, leaves, exact={**exact, "upper": wrong, "lower": wrong})
        assert f"all/r{row // 60}" in failing(folder)["invariants"]


def test_huge_counts_are_exact(tmp_path: Path) -> None:
    schema = Schema({"sex": ("f", "m")})
    every = HIERARCHY.aggregate(np.array([[2**51 + 1, 1], [0, 2], [2**51, 3]], np.int64))
    levels = [HIERARCHY.level_range(level) for level in range(3)]
    runs = CellRuns.of([SparseTables.of(every[level.start : level.stop]) for level in levels])
    promises = [name for name in PROMISES if name not in ("invariants", "microdata")]
    manifest = {"format": FORMAT, "schema": plain_schema(schema), "promises": promises}
    folder = write_tables(tmp_path / "out", HIERARCHY, schema, runs, manifest)
    assert failing(folder) == {}
    assert read_tables_release(folder).table("all").tolist() == [2**52 + 1, 6]


def test_each_reader_names_the_other(tmp_path: Path) -> None:
    folder = release(tmp_path / "out")
    with pytest.raises(InputError, match="read_tables_release"):
        read_release(folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps({**manifest, "format": "coco-opt groups release 1"}))
    with pytest.raises(InputError, match="read_release"):
        read_tables_release(folder)
