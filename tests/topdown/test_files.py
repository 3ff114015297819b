"""Releases of tables of persons: written, read again, and every planted fault found by verify."""

from __future__ import annotations

import json
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coco_opt import Hierarchy, Strategy, TablePlan, read_groups_release, verify_release
from coco_opt.errors import InputError
from coco_opt.files.folder import Content, FileTable, as_json, read_manifest, sealed, write_folder
from coco_opt.files.regions import region_table, stored_regions
from coco_opt.privacy import Epsilon, MeasurementPlan
from coco_opt.releases.kind import Folder
from coco_opt.releases.manifest import FORMAT
from coco_opt.topdown import UNBOUNDED, RegionBounds, TableQueries, parse_query
from coco_opt.topdown.estimating.sparse_tables import SparseTables
from coco_opt.topdown.kind.files import TablesRelease, cell_table, exact_table, person_table, read_tables_release
from coco_opt.topdown.kind.verify import ALWAYS, checks_of
from coco_opt.topdown.schema import Schema, ValueGroups, plain_schema
from tests.releases.drawn import restate, seeded_budget

SCHEMA = Schema(
    {"sex": ("female", "male"), "age": ("child", "adult", "old")},
    ("sex = male & age = old",),
    {"voting": ValueGroups("age", {"minor": ["child"], "voter": ["adult", "old"]})},
)
HIERARCHY = Hierarchy.from_paths([("all", "east", "a"), ("all", "east", "b"), ("all", "west", "c")])
LEAVES = np.array([[1, 0, 2, 0, 3], [0, 0, 0, 4, 0], [5, 0, 0, 0, 0]])
PROMISES = ["integers", "nonnegative", "structural_zeros", "children_sum_to_parents", "invariants", "microdata"]


def measurement_plan_of(schema: Schema, tree: Hierarchy) -> MeasurementPlan:
    plan = TablePlan.product(Strategy.identity(schema), Epsilon(Fraction(1)), tree.levels)
    ids = tuple(None if region < tree.leaves.start else f"id{region}" for region in range(tree.regions))
    return TableQueries(tree, schema, plan).measurement_plan([f"level{k}" for k in range(tree.levels)], ids)


def written(
    folder: Path,
    schema: Schema = SCHEMA,
    tree: Hierarchy = HIERARCHY,
    leaves: Any = LEAVES,
    *,
    promises: list[str] | None = None,
    exact: list[RegionBounds] | None = None,
    more: dict[str, FileTable] | None = None,
    rows: int = 1000,
) -> Path:
    """Write a folder with the tables of given leaves, microdata, and stated answers."""
    measurement_plan, every = measurement_plan_of(schema, tree), tree.aggregate(np.asarray(leaves).astype(np.int64))
    levels = [tree.level_range(level) for level in range(tree.levels)]
    tables = [SparseTables.of(every[level.start : level.stop]) for level in levels]
    few = every.sum() < 10**6
    files: dict[str, Content] = {
        "tables.parquet": cell_table(measurement_plan, schema, tables),
        "hierarchy.parquet": region_table(measurement_plan),
        **({"microdata.parquet": person_table(measurement_plan, schema, tables[-1], rows)} if few else {}),
        **({} if exact is None else {"invariants.parquet": exact_table(measurement_plan, exact)}),
        **(more or {}),
    }
    names = [name for name in PROMISES if name != "invariants" or exact is not None]
    manifest = {
        "format": FORMAT,
        "kind": "tables",
        "schema": plain_schema(schema),
        "exact": [
            {"query": bounds.query.text, "level": measurement_plan.levels[bounds.level]}
            for bounds in exact or ()
            if np.array_equal(bounds.lower, bounds.upper)
        ],
        "facts": [
            {"query": bounds.query.text, "level": measurement_plan.levels[bounds.level], "source": bounds.source}
            for bounds in exact or ()
        ],
        "promises": [name for name in names if few or name != "microdata"] if promises is None else promises,
    }
    content = {**manifest, **seeded_budget(measurement_plan)}
    write_folder(folder, files, "manifest.json", lambda digests: as_json(sealed({**content, "files": dict(digests)})))
    return folder


def release(folder: Path, promises: list[str] | None = None) -> Path:
    voting, total = parse_query("voting", SCHEMA), parse_query("total", SCHEMA)
    exact = [
        RegionBounds(voting, 1, [[5, 4], [0, 0]], [[5, 100], [UNBOUNDED, UNBOUNDED]]),
        RegionBounds(total, 1, [[0], [5]], [[UNBOUNDED], [5]]),
    ]
    estimates = {
        "level": [0],
        "level_name": ["level0"],
        "region": ["all"],
        "region_id": [None],
        "query": ["total"],
        "answer": ["total"],
        "estimate": [14.5],
        "standard_error": [2.5],
    }
    types = {"level": "int32", "estimate": "double", "standard_error": "double"}
    more = {"estimates.parquet": FileTable.of(estimates, types)}
    return written(folder, promises=promises, exact=exact, more=more)


def failing(folder: Path) -> dict[str, str]:
    return {check.name: check.detail for check in verify_release(folder) if not check.passed}


def test_what_was_written_is_read_again_and_holds(tmp_path: Path) -> None:
    folder = release(tmp_path / "out")
    assert failing(folder) == {}
    assert {check.name for check in verify_release(folder)} >= set(PROMISES)
    tables_release = read_tables_release(folder)
    assert isinstance(tables_release, TablesRelease)
    assert tables_release.table("all/east").tolist() == LEAVES[:2].sum(axis=0).tolist()
    assert tables_release.table("all").tolist() == LEAVES.sum(axis=0).tolist()
    frame = tables_release.to_pandas()
    assert list(frame.columns) == ["level", "level_name", "region", "region_id", "sex", "age", "persons"]
    assert frame.region_id[frame.region == "all/west/c"].tolist() == ["id5"]
    assert set(frame.level_name[frame.level == 1]) == {"level1"}
    assert int(frame[frame.level == 0].persons.sum()) == int(LEAVES.sum())
    assert pq.read_table(folder / "microdata.parquet").num_rows == LEAVES.sum()
    assert pq.read_table(folder / "estimates.parquet").column("standard_error").to_pylist() == [2.5]


def test_the_same_release_is_the_same_bytes(tmp_path: Path) -> None:
    first, second = release(tmp_path / "one"), release(tmp_path / "two")
    assert all((second / path.name).read_bytes() == path.read_bytes() for path in first.iterdir())


Change = Callable[[dict[str, list[Any]]], None]


def rewrite(path: Path, change: Change) -> None:
    table = pq.read_table(path)
    columns = {name: table.column(name).to_pylist() for name in table.column_names}
    change(columns)
    pq.write_table(pa.table(columns), path)


def put(column: str, row: int, value: Any) -> Change:
    """Return the change of one entry to a value, or to what a function makes of it."""

    def change(columns: dict[str, list[Any]]) -> None:
        columns[column][row] = value(columns[column][row]) if callable(value) else value

    return change


def forbidden(columns: dict[str, list[Any]]) -> None:
    columns["sex"][-1], columns["age"][-1] = "male", "old"


def another_id(columns: dict[str, list[Any]]) -> None:
    ids = columns["region_id"]
    ids[-1] = next(region_id for region_id in ids if region_id not in (None, ids[-1]))


def twice(columns: dict[str, list[Any]]) -> None:
    for values in columns.values():
        values.append(values[0])


def one_fewer(columns: dict[str, list[Any]]) -> None:
    for values in columns.values():
        values.pop()


def fractional(columns: dict[str, list[Any]]) -> None:
    columns["persons"] = [value + 0.5 for value in columns["persons"]]


def stricter(columns: dict[str, list[Any]]) -> None:
    columns["lower"][1] = columns["upper"][1] = 10  # the voters of the east


UNKNOWN_REGION, OTHER_NAME = put("region", -1, "all/north"), put("level_name", -1, "elsewhere")
PLANTED = [
    ("tables.parquet", put("persons", -1, lambda persons: persons + 1), "children_sum_to_parents"),
    ("tables.parquet", put("persons", 0, lambda persons: -persons), "nonnegative"),
    ("tables.parquet", forbidden, "structural_zeros"),
    ("tables.parquet", put("age", 2, "ancient"), "rows"),
    ("tables.parquet", UNKNOWN_REGION, "rows"),
    ("tables.parquet", put("level", 0, 2), "rows"),
    ("tables.parquet", OTHER_NAME, "rows"),
    ("tables.parquet", another_id, "rows"),
    ("tables.parquet", put("region_id", -1, None), "rows"),
    ("tables.parquet", twice, "rows"),
    ("tables.parquet", fractional, "integers"),
    ("hierarchy.parquet", OTHER_NAME, "hierarchy"),
    ("invariants.parquet", OTHER_NAME, "invariants"),
    ("invariants.parquet", stricter, "invariants"),
    ("invariants.parquet", put("answer", 0, "voting = elder"), "invariants"),
    ("invariants.parquet", UNKNOWN_REGION, "invariants"),
    ("invariants.parquet", put("level", 0, 2), "invariants"),
    ("estimates.parquet", OTHER_NAME, "estimates"),
    ("estimates.parquet", put("answer", 0, "voting = elder"), "estimates"),
    ("estimates.parquet", put("estimate", 0, float("nan")), "estimates"),
    ("estimates.parquet", put("standard_error", 0, -1.0), "estimates"),
    ("estimates.parquet", twice, "estimates"),
    ("estimates.parquet", UNKNOWN_REGION, "estimates"),
    ("microdata.parquet", another_id, "microdata"),
    ("microdata.parquet", one_fewer, "microdata"),
    ("microdata.parquet", put("age", 2, "ancient"), "microdata"),
]


@pytest.mark.parametrize(("file", "change", "name"), PLANTED)
def test_a_planted_fault_is_found(tmp_path: Path, file: str, change: Change, name: str) -> None:
    folder = release(tmp_path / "out")
    rewrite(folder / file, change)
    assert name in failing(folder)


def test_a_fault_in_a_later_row_group_is_named_by_its_row_in_the_file(tmp_path: Path) -> None:
    folder = release(tmp_path / "out")
    rows = pq.read_table(folder / "estimates.parquet")
    wrong = rows.set_column(rows.column_names.index("answer"), "answer", pa.array(["voting = elder"]))
    pq.write_table(pa.concat_tables([rows, wrong]), folder / "estimates.parquet", row_group_size=1)
    assert "row 2:" in failing(folder)["estimates"]


@pytest.mark.parametrize("file", ["tables.parquet", "hierarchy.parquet", "invariants.parquet", "microdata.parquet"])
def test_a_missing_or_damaged_file_is_a_failed_check(tmp_path: Path, file: str) -> None:
    folder = release(tmp_path / "out")
    (folder / file).write_bytes(b"PAR1 not really")
    assert {"files", *failing(folder)} > {"files"}
    (folder / file).unlink()
    assert {"files", *failing(folder)} > {"files"}


def test_a_manifest_that_promises_the_unknown_fails(tmp_path: Path) -> None:
    folder = release(tmp_path / "out", ["integers", "beauty"])
    assert "manifest" in failing(folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["promises"], manifest["schema"] = ["integers"], {"attributes": 3}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    assert "every release of tables keeps" in failing(folder)["manifest"]
    manifest["promises"] = ["integers", *ALWAYS]
    (folder / "manifest.json").write_text(json.dumps(manifest))
    assert "bad-schema" in failing(folder)["content"]


@pytest.mark.parametrize("name", ["lower", "upper", "estimate", "standard_error", "query", "parent", 'größe "≥"'])
def test_an_attribute_may_have_the_name_of_another_files_column(tmp_path: Path, name: str) -> None:
    schema = Schema({name: ("1", "o'Neil", 'a "b"')})
    folder = written(tmp_path / "out", schema, HIERARCHY, np.arange(9).reshape(3, 3))
    assert failing(folder) == {}
    assert read_tables_release(folder).table("all/west/c").tolist() == [6, 7, 8]


def test_exact_answers_of_every_cell_are_checked_in_blocks(tmp_path: Path) -> None:
    schema = Schema({"a": tuple(f"v{k}" for k in range(30)), "b": ("x", "y")})
    tree = Hierarchy.from_paths([("all", f"r{k}") for k in range(7)])
    leaves = np.random.default_rng(4).integers(0, 3, (7, 60))
    detail = parse_query("detail", schema)

    def broken(name: str, stated: Any) -> str:
        folder = written(tmp_path / name, schema, tree, leaves, exact=[RegionBounds.exact(detail, 1, stated)])
        checks = checks_of(Folder(folder, read_manifest(folder), stored_regions(folder)), block=2)
        return next(check.detail for check in checks if check.name == "invariants")

    assert broken("good", leaves) == "420 stated answers hold"
    for row in (0, 133, 419):
        wrong = leaves.copy()
        wrong.reshape(-1)[row] += 1
        assert f"all/r{row // 60}" in broken(f"bad{row}", wrong)


def test_an_invariant_that_is_declared_exact_is_one_number(tmp_path: Path) -> None:
    persons = int(np.sum(LEAVES))
    exact = RegionBounds(parse_query("total", SCHEMA), 0, [[persons]], [[persons]])
    folder = written(tmp_path / "out", exact=[exact])
    assert failing(folder) == {}
    rewrite(folder / "invariants.parquet", put("lower", 0, lambda lower: lower - 1))
    restate(folder)
    assert failing(folder) == {
        "invariants": "invariants.parquet states no exact number for answers of 'total' by level0"
    }


def test_huge_counts_are_exact(tmp_path: Path) -> None:
    schema = Schema({"sex": ("f", "m")})
    folder = written(tmp_path / "out", schema, HIERARCHY, [[2**51 + 1, 1], [0, 2], [2**51, 3]])
    assert failing(folder) == {}
    assert read_tables_release(folder).table("all").tolist() == [2**52 + 1, 6]


def test_a_reader_names_another_kind(tmp_path: Path) -> None:
    folder = release(tmp_path / "out")
    with pytest.raises(InputError, match=r"is a release of 'tables'.*other-release"):
        read_groups_release(folder)
    restate(folder, kind="groups")
    with pytest.raises(InputError, match=r"is a release of 'groups'.*other-release"):
        read_tables_release(folder)
