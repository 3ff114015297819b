"""Files that are made piece by piece are those that all rows at once would give."""

from __future__ import annotations

import io
import unicodedata
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pcsv
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coco_opt import Measurement, Schema, TableCounts, parse_queries
from coco_opt.errors import InputError
from coco_opt.files import batches
from coco_opt.files.folder import Coded, FileTable, arrow_table, parquet
from coco_opt.files.regions import read_regions
from coco_opt.files.release_checks import Regions, checked
from coco_opt.histograms.texts import Texts
from coco_opt.topdown.estimating.linear.best_linear import best_linear
from coco_opt.topdown.kind import files, verify
from coco_opt.topdown.kind.raw_tables import RawTables, check_estimates
from coco_opt.topdown.measuring import records
from coco_opt.topdown.measuring.records import read_records
from coco_opt.topdown.noisy_measurements import TableMeasurements
from tests.topdown.estimation import measured, random_hierarchy

SCHEMA = Schema({"race": ["a", "b", "c"], "age": ["minor", "adult"]})
ASKED = ["detail", "race", "total"]


def _measurement(seed: int, measurement_plan: list[str]) -> Measurement:
    rng = np.random.default_rng(seed)
    hierarchy = random_hierarchy(rng, 3)
    leaves = rng.poisson(3.0, (len(hierarchy.leaves), SCHEMA.size)).astype(np.int64)
    return measured(seed, hierarchy, SCHEMA, leaves, measurement_plan, 2)


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("rows", [1, 7, 10**6])
def test_estimates_by_pieces_are_those_of_whole_levels(full: bool, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    measurement = _measurement(rows, ASKED)
    linear = best_linear(TableMeasurements.of(measurement), full)
    workload = parse_queries([*ASKED, "age"], SCHEMA)
    monkeypatch.setattr(files, "ROWS_PER_GROUP", rows)
    table, left_out = files.estimate_table(measurement.measurement_plan, linear, workload)
    assert table is not None
    assert not left_out
    frame = arrow_table(table).to_pandas()
    expected = []
    for level in range(3):
        paths = [measurement.hierarchy.paths[region] for region in measurement.hierarchy.level_range(level)]
        for query in workload:
            errors = linear.standard_errors(query.operator, level)
            answers = linear.answers(query.operator, level)
            expected += [
                (level, path, query.text, label, answers[position, k], errors[position, k])
                for position, path in enumerate(paths)
                for k, label in enumerate(query.labels())
            ]
    columns = ["level", "region", "query", "answer", "estimate", "standard_error"]
    assert list(frame[columns].itertuples(index=False, name=None)) == expected


def test_a_part_of_a_file_knows_the_texts_that_it_holds() -> None:
    texts: list[str | None] = ["north", "east", None, "south"]
    codes = np.array([3, 0, 2, 3, 0])
    content = parquet(FileTable.of({"region": Coded(texts, codes)}, {}))
    read = pq.read_table(io.BytesIO(content))
    assert read.schema == pa.schema([("region", pa.string())])
    assert read.column("region").to_pylist() == [texts[code] for code in codes]
    assert b"south" in content
    assert b"east" not in content
    assert arrow_table(FileTable.of({"region": Coded(texts, codes)}, {})).equals(read)


PEOPLE = Schema({"sex": ["female", "male"], "age": ["child", "é", "old"]}, ["sex = male & age = old"])
REGIONS = "region_id,nation,state\n1,all,east\n2,all,west\n3,all,é\n"
ROW = st.tuples(
    st.sampled_from(["1", "2", "3"]),
    st.sampled_from(["female", "male"]),
    st.sampled_from(["child", "é"]),
    st.integers(0, 3),
)
WRONG = {
    "region": ("4", "male", "child", 1),
    "no region": (None, "male", "child", 1),
    "value": ("1", "other", "child", 1),
    "no value": ("1", "male", None, 1),
    "structural zero": ("1", "male", "old", 1),
    "negative": ("1", "male", "child", -1),
    "too many": ("1", "male", "child", 2**60),
    "many in all": ("1", "male", "child", 2**53),
    "no count": ("1", "male", "child", None),
}


def _read(folder: Path, rows: list[tuple[Any, ...]], form: str, *, integer_ids: bool = False) -> TableCounts:
    (folder / "regions.csv").write_text(REGIONS, encoding="utf-8")
    regions, sexes, ages, counts = zip(*rows, strict=True) if rows else ((), (), (), ())
    kind = pa.int64() if integer_ids else pa.string()
    columns = {
        "age": pa.array([None if age is None else unicodedata.normalize("NFD", age) for age in ages], pa.string()),
        "region_id": pa.array(
            [None if region is None else int(region) if integer_ids else region for region in regions], kind
        ),
        "count": pa.array(counts, pa.int64()),
        "sex": pa.array(sexes, pa.string()),
        "more": pa.array([0.5] * len(rows), pa.float64()),
    }
    path = folder / f"persons.{form}"
    write: Any = pq.write_table if form == "parquet" else pcsv.write_csv
    write(pa.table(columns), path)
    return read_records(read_regions(folder / "regions.csv"), path, PEOPLE)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(ROW, min_size=1, max_size=20), at_once=st.integers(1, 8), integer_ids=st.booleans())
def test_rows_are_counted_as_a_dictionary_counts_them(
    rows: list[tuple[Any, ...]], at_once: int, integer_ids: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, name in ((batches, "_BATCH"), (records, "_AT_ONCE")):
        monkeypatch.setattr(module, name, at_once)
    expected = Counter[tuple[str, ...]]()
    for region, sex, age, people in rows:
        expected[region, sex, age] += people
    for counts in (_read(tmp_path, rows, "parquet", integer_ids=integer_ids), _read(tmp_path, rows, "csv")):
        tree, codes = counts.hierarchy, PEOPLE.decode(counts.cells)
        leaf = np.repeat(np.arange(3), np.diff(counts.offsets)) + tree.leaves.start
        regions = [{"east": "1", "west": "2", "é": "3"}[tree.names[region]] for region in leaf]
        values = ([PEOPLE.attributes[name][code] for code in codes[name]] for name in PEOPLE.names)
        assert dict(zip(zip(regions, *values, strict=True), counts.counts.tolist(), strict=True)) == +expected
        assert counts.identity()["rows_read"] == len(rows)
        assert not any(array.flags.writeable for array in counts.arrays)


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_in_a_batch_is_told_as_of_texts(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, each in ((batches, "_BATCH"), (records, "_AT_ONCE")):
        monkeypatch.setattr(module, each, 2)
    rows = [("1", "male", "child", 1), ("2", "female", "é", 2), ("3", "male", "child", 1), WRONG[name]]
    errors = []
    for form in ("parquet", "csv"):
        with pytest.raises(InputError) as caught:
            _read(tmp_path, rows, form)
        errors.append(caught.value)
    assert errors[0].code == errors[1].code
    assert [error.place is None or error.place.column for error in errors[:1]] == [
        error.place is None or error.place.column for error in errors[1:]
    ]


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), block=st.integers(1, 9), shuffled=st.booleans(), change=st.integers(-2, 2))
def test_sums_are_checked_family_by_family_as_all_at_once(seed: int, block: int, shuffled: bool, change: int) -> None:
    rng = np.random.default_rng(seed)
    tree = random_hierarchy(rng, 3)
    tables = tree.aggregate(rng.poisson(0.6, (len(tree.leaves), SCHEMA.size)).astype(np.int64))
    row = int(rng.integers(tables.size))
    tables.reshape(-1)[row] += change
    region, cell = np.nonzero(tables)
    persons = tables[region, cell]
    order = rng.permutation(region.size) if shuffled else np.arange(region.size)
    regions = Regions(tree, (), Texts.of(tree.paths), Texts.of([None] * tree.regions), {})
    columns = region[order].astype(np.int32), cell[order].astype(np.int32), persons[order]
    content = RawTables(regions, *columns, SCHEMA.cells, Path(), {}, SCHEMA, block=block)
    sums = np.zeros_like(tables)
    np.add.at(sums, tree.parent[1:], tables[1:])
    wrong = (sums != tables)[: tree.leaves.start]
    check = checked("sums", lambda: verify._children_sum(content))
    assert check.passed == (not wrong.any())
    if wrong.any():
        place, cell = np.argwhere(wrong)[0].tolist()
        assert check.detail.startswith(f"{np.count_nonzero(wrong)} cells differ")
        assert check.detail.endswith(f"{tree.paths[place]!r}, {SCHEMA.label(cell)}")


@pytest.mark.parametrize("rows", [4, 10**6])
@pytest.mark.parametrize("turned", [False, True])
def test_an_answer_is_estimated_once_in_whatever_order(
    rows: int, turned: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measurement = _measurement(5, ASKED)
    linear = best_linear(TableMeasurements.of(measurement))
    table, _ = files.estimate_table(measurement.measurement_plan, linear, parse_queries(ASKED, SCHEMA))
    assert table is not None
    table_rows = arrow_table(table)
    tree = measurement.hierarchy
    none, ids = np.zeros(0, np.int64), Texts.of(measurement.measurement_plan.region_ids)
    regions = Regions(tree, measurement.measurement_plan.levels, Texts.of(tree.paths), ids, {})
    columns = none.astype(np.int32), none.astype(np.int32), none
    content = RawTables(regions, *columns, SCHEMA.cells, tmp_path, {}, SCHEMA, block=9)
    path, order = tmp_path / files.ESTIMATES, np.arange(table_rows.num_rows)
    pq.write_table(table_rows.take(pa.array(order[::-1] if turned else order)), path, row_group_size=rows)
    assert checked("estimates", lambda: check_estimates(content)).passed
    again = np.append(3, order) if turned else np.append(order, 3)
    pq.write_table(table_rows.take(pa.array(again)), path, row_group_size=rows)
    assert "occurs twice" in checked("estimates", lambda: check_estimates(content)).detail
