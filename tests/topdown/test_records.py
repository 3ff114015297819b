"""Tables of persons: counted cell by cell, and every mistake found at its row and column without a private value."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pcsv
import pyarrow.parquet as pq
import pytest

from coco_opt import Schema, TableCounts
from coco_opt.errors import InputError
from coco_opt.files import scratch
from coco_opt.files.regions import read_regions
from coco_opt.topdown.measuring.records import read_records
from coco_opt.topdown.names import Bins

ATTRIBUTES = {"sex": ("female", "male"), "age": ("child", "adult", "old")}
SCHEMA = Schema(ATTRIBUTES)
ZEROS = Schema(ATTRIBUTES, ("sex = male & age = old",))
HIERARCHY = "region_id,nation,state\ne,all,east\nw,all,west\n"
RECORDS = "region_id,sex,age\nw,male,old\ne,female,child\nw,male,old\ne,male,adult\n"


def read(tmp_path: Path, records: str, schema: Schema = SCHEMA) -> TableCounts:
    (tmp_path / "hierarchy.csv").write_text(HIERARCHY)
    (tmp_path / "persons.csv").write_text(records)
    return read_records(read_regions(tmp_path / "hierarchy.csv"), tmp_path / "persons.csv", schema)


def triples(counts: TableCounts) -> list[tuple[int, int, int]]:
    leaves = np.repeat(np.arange(counts.offsets.size - 1), np.diff(counts.offsets))
    return list(zip(leaves.tolist(), counts.cells.tolist(), counts.counts.tolist(), strict=True))


def test_records_are_counted_by_leaf_and_cell(tmp_path: Path) -> None:
    counts = read(tmp_path, RECORDS)
    assert triples(counts) == [(0, 0, 1), (0, 4, 1), (1, 5, 2)]
    assert counts.rows_read == 4
    assert repr(counts).endswith("private)")
    assert counts.identity() == {
        "rows_read": 4,
        "rows_counted": 4,
        "rows_rejected": 0,
        "persons": 4,
        "cells_occupied": 3,
    }


def test_columns_go_by_name_and_counts_stand_for_persons(tmp_path: Path) -> None:
    counts = read(tmp_path, "region_id,age,sex,count\nw,old,male,2\ne,child,female,1\ne,adult,male,0\ne,adult,male,1\n")
    assert triples(counts) == [(0, 0, 1), (0, 4, 1), (1, 5, 2)]


BAD = [
    (RECORDS.replace("w,male,old\ne,f", "north,male,old\ne,f", 1), "unknown-region", 2, "region_id"),
    (RECORDS.replace("female,child", "female,secret"), "unknown-value", 3, "age"),
    (RECORDS.replace("female,child", "female,"), "null-id", 3, "age"),
    (RECORDS.replace("female,child", " female,child"), "space-in-id", 3, "sex"),
    ("region_id,sex\nw,male\n", "missing-column", None, "age"),
    ("region_id,sex,height\nw,male,old\n", "missing-column", None, "age"),
    ("region_id,sex,sex,age\nw,male,male,old\n", "duplicate-column", 1, "sex"),
    ("w,male,secret\ne,female,child\n", "no-header", 1, None),
    ("region_id,sex,age\n", "empty-file", None, None),
    ("region_id,sex,age,count\n", "empty-file", None, None),
    ("region_id,sex,age,secret\nw,male,old\n", "malformed-row", 2, None),
    ("region_id,sex,age,count\nw,male,old,-7\n", "negative-count", 2, "count"),
    ("region_id,sex,age,count\nw,male,old,7.5\n", "not-an-integer", 2, "count"),
]


@pytest.mark.parametrize(("records", "code", "row", "column"), BAD)
def test_a_mistake_is_found_where_it_is(
    tmp_path: Path, records: str, code: str, row: int | None, column: str | None
) -> None:
    with pytest.raises(InputError) as caught:
        read(tmp_path, records)
    assert caught.value.code == code
    place = caught.value.place
    assert place is not None
    assert place.file == "persons.csv"
    assert row in (None, place.row)
    assert column in (None, place.column)
    assert code != "null-id" or "rule out by topdown.structural_zeros what cannot be" in str(caught.value)
    for private in ("secret", "north", "-7", "7.5"):
        assert private not in str(caught.value)
    assert caught.value.__context__ is None or "secret" not in str(caught.value.__context__)


def test_huge_counts_are_exact_or_refused(tmp_path: Path) -> None:
    largest = 2**51
    counts = read(tmp_path, f"region_id,sex,age,count\nw,male,old,{largest}\nw,male,old,{largest}\ne,male,adult,7\n")
    assert triples(counts) == [(0, 4, 7), (1, 5, 2 * largest)]
    for count, rows, code in ((10**18, 1, "too-large"), (10**18 - 1, 5, "too-large"), (2**53, 2, "too-many-people")):
        with pytest.raises(InputError, match=code) as caught:
            read(tmp_path, "region_id,sex,age,count\n" + f"w,male,old,{count}\n" * rows)
        assert str(count) not in str(caught.value)


def test_odd_values_are_matched_exactly(tmp_path: Path) -> None:
    values = ("o'Neil", 'a "b"', "größe ≥ 3", "c;d", "%", "_", "NULL", "null", "é", "A", "a")
    lines = [f'w,"{value.replace(chr(34), chr(34) * 2)}"' for value in values]
    (tmp_path / "hierarchy.csv").write_text(HIERARCHY)
    (tmp_path / "persons.csv").write_text("region_id,kind\n" + "\n".join(lines) + "\n", encoding="utf-8")
    public = read_regions(tmp_path / "hierarchy.csv")
    counts = read_records(public, tmp_path / "persons.csv", Schema({"kind": values}))
    assert triples(counts) == [(1, cell, 1) for cell in range(len(values))]


def test_columns_that_differ_in_case_are_other_columns(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="missing-column"):
        read(tmp_path, RECORDS.replace("sex,age", "Sex,age"))
    assert triples(read(tmp_path, "region_id,sex,age,Count\nw,male,old,7\n")) == [(1, 5, 1)]


def test_columns_stand_in_any_order_and_others_are_ignored(tmp_path: Path) -> None:
    text = "name,age,count,region_id,name,sex\nsecret,old,3,w,secret,male\n,child,1,e,,female\n"
    assert triples(read(tmp_path, text)) == [(0, 0, 1), (1, 5, 3)]


def test_parquet_counts_and_codes_are_integers(tmp_path: Path) -> None:
    (tmp_path / "hierarchy.csv").write_text(HIERARCHY)
    public = read_regions(tmp_path / "hierarchy.csv")
    columns = {"region_id": ["w", "e"], "age": pa.array([1, 0], pa.int8()), "count": pa.array([3, 4], pa.uint16())}
    pq.write_table(pa.table(columns), tmp_path / "persons.parquet")
    ages = Schema({"age": ("0", "1")})
    assert triples(read_records(public, tmp_path / "persons.parquet", ages)) == [(0, 0, 4), (1, 1, 3)]
    for name, column in (("count", pa.array([3.0, 4.0])), ("age", pa.array([1.0, 0.0]))):
        pq.write_table(pa.table({**columns, name: column}), tmp_path / "persons.parquet")
        with pytest.raises(InputError, match=r"not-an-integer|wrong-type"):
            read_records(public, tmp_path / "persons.parquet", ages)


AGES = {"age": ("..17", "18..64", "65..")}
HOMES = "group_id,region_id\n007,w\n7,e\n8,e\n"


def binned(tmp_path: Path, ages: list[str], form: str) -> TableCounts:
    bins = Bins.of(AGES["age"])
    assert bins is not None
    (tmp_path / "hierarchy.csv").write_text(HIERARCHY)
    columns = {"region_id": ["w"] * len(ages), "age": ages}
    if form == "parquet":
        pq.write_table(pa.table(columns), tmp_path / "persons.parquet")
    else:
        (tmp_path / "persons.csv").write_text("region_id,age\n" + "".join(f"w,{age}\n" for age in ages))
    public = read_regions(tmp_path / "hierarchy.csv")
    return read_records(public, tmp_path / f"persons.{form}", Schema({"age": bins.labels}), bins={"age": bins})


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_integers_are_counted_by_ranges(tmp_path: Path, form: str) -> None:
    ages = [str(age) for age in range(-3, 120)] + ["007", "999999999999999999"]
    counts = binned(tmp_path, ages, form)
    expected = Counter(0 if int(age) <= 17 else 1 if int(age) <= 64 else 2 for age in ages)
    assert triples(counts) == [(1, code, expected[code]) for code in range(3)]
    for bad in ("12.5", "old", "1e1", "9" * 19):
        with pytest.raises(InputError, match="unknown-value") as caught:
            binned(tmp_path, [*ages, bad], form)
        assert "up to 17, 18-64, 65+" in str(caught.value)


@pytest.mark.parametrize("texts", [("0..17", "old"), ("0..17", "17..20"), ("18..20", "0..17"), ("9..1",), ("..",)])
def test_ranges_that_are_none_are_refused(texts: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=r"ranges|range of integers|ends before"):
        Bins.of(texts)


def housed(tmp_path: Path, persons: str, homes: str = HOMES, form: str = "csv") -> TableCounts:
    for name, text in (("hierarchy", HIERARCHY), ("persons", persons), ("homes", homes)):
        (tmp_path / f"{name}.csv").write_text(text)
    public = read_regions(tmp_path / "hierarchy.csv")
    if form == "parquet":
        names = persons.partition("\n")[0].split(",")
        options = pcsv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()))
        pq.write_table(pcsv.read_csv(tmp_path / "persons.csv", convert_options=options), tmp_path / "persons.parquet")
    return read_records(public, tmp_path / f"persons.{form}", SCHEMA, groups=tmp_path / "homes.csv")


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_groups_say_where_records_lie(form: str, tmp_path: Path) -> None:
    """Ids are texts: 007 and 7 are two households; a household without persons is fine."""
    rows = "sex,group_id,age\nmale,007,old\nfemale,7,child\nmale,007,old\nmale,7,adult\n"
    assert triples(housed(tmp_path, rows, form=form)) == triples(read(tmp_path, RECORDS))


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_attributes_of_groups_are_those_of_every_member(form: str, tmp_path: Path) -> None:
    """The counts are those of a table in which each person has the columns of the home; own columns come first."""
    rng = np.random.default_rng(3)
    homes = [("007", "w", "old"), ("7", "e", "child"), ("8", "e", "adult")]
    people = [(homes[k], ("female", "male")[sex]) for k, sex in rng.integers((3, 2), size=(40, 2)).tolist()]
    rows = "".join(f"{home[0]},{sex}\n" for home, sex in people)
    listed = "age,group_id,region_id\n" + "".join(f"{age},{group},{region}\n" for group, region, age in homes)
    counts = housed(tmp_path, f"group_id,sex\n{rows}", listed, form)
    joined = "".join(f"{region},{sex},{age}\n" for (_, region, age), sex in people)
    assert triples(counts) == triples(read(tmp_path, f"region_id,sex,age\n{joined}"))
    own = housed(tmp_path, "group_id,sex,age\n007,male,adult\n", listed, form)
    assert triples(own) == triples(read(tmp_path, "region_id,sex,age\nw,male,adult\n"))
    with pytest.raises(InputError) as caught:
        housed(tmp_path, f"group_id,sex\n{rows}x,man\n", listed.replace("adult", "adlut"))
    places = [(entry["code"], entry["file"], entry["column"], entry["rows"]) for entry in caught.value.bad_rows]
    assert ("unknown-value", "homes.csv", "age", [4]) in places
    assert ("unknown-group", "persons.csv", "group_id", [42]) in places
    assert ("unknown-value", "persons.csv", "sex", [42]) in places
    with pytest.raises(InputError) as caught:
        housed(tmp_path, f"group_id,sex\n{rows}x,male\n", listed + "child,9,\n")
    places = [(entry["code"], entry["file"], entry["column"], entry["rows"]) for entry in caught.value.bad_rows]
    assert places == [("null-id", "homes.csv", "region_id", [5]), ("unknown-group", "persons.csv", "group_id", [42])]


@pytest.mark.parametrize(
    ("persons", "homes", "code", "file", "row"),
    [
        ("sex,group_id,age\nmale,9,old\n", HOMES, "unknown-group", "persons.csv", 2),
        ("sex,group_id,age\nmale,,old\n", HOMES, "null-id", "persons.csv", 2),
        ("sex,group_id,age\nmale,7,old\n", HOMES + "9,x\n", "unknown-region", "homes.csv", 5),
        ("sex,group_id,age\nmale,7,old\n", HOMES + "8,w\n", "group-in-two-leaves", "homes.csv", 5),
        ("sex,group_id,age\nmale,7,old\n", HOMES + "8,e\n", "duplicate-group", "homes.csv", 5),
    ],
)
def test_mistakes_in_groups_are_placed(
    tmp_path: Path, persons: str, homes: str, code: str, file: str, row: int
) -> None:
    with pytest.raises(InputError, match=code) as caught:
        housed(tmp_path, persons, homes)
    assert caught.value.place is not None
    assert (caught.value.place.file, caught.value.place.row) == (file, row)


@pytest.mark.parametrize(("form", "header"), [("csv", 1), ("parquet", 0)])
def test_a_record_that_states_another_region_than_its_group_is_named(form: str, header: int, tmp_path: Path) -> None:
    """An empty region states none; the group's region counts."""
    rows = ["7,e,male,old", "7,w,male,old", "7,,male,old", "007,w,male,old", "007,ZZZZ,male,old"]
    with pytest.raises(InputError) as caught:
        housed(tmp_path, "\n".join(["group_id,region_id,sex,age", *rows, ""]), form=form)
    (entry,) = caught.value.bad_rows
    assert (entry["code"], entry["file"], entry["column"]) == ("region-differs", f"persons.{form}", "region_id")
    assert (entry["rows"], entry["count"]) == ([2 + header, 5 + header], 2)
    with pytest.raises(InputError, match="one that differs only in the case of letters is"):
        housed(tmp_path, "\n".join(["group_id,region_id,sex,age", rows[0].replace("e", "E", 1), ""]), form=form)
    right = "\n".join(["group_id,region_id,sex,age", rows[0], *rows[2:4], ""])
    assert triples(housed(tmp_path, right, form=form)) == triples(
        housed(tmp_path, right.replace(",w,", ",,").replace(",e,", ",,"))
    )


def faulty(rows: int) -> tuple[list[str], dict[str, list[int]]]:
    """Return rows of which every third has one of five faults, and the row numbers of each fault."""
    faults = {
        "null-id": ",male,old",
        "unknown-region": "x,male,adult",
        "unknown-value": "e,man,adult",
        "space-in-id": "w,male, old",
        "structural-zero": "w,male,old",
    }
    lines, where = [], {code: [] for code in faults}
    for k in range(rows):
        code = list(faults)[k // 3 % len(faults)] if k % 3 == 0 else ""
        lines.append(faults.get(code, "e,female,child"))
        if code:
            where[code].append(k + 2)
    return lines, where


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_all_bad_rows_are_named_at_once(tmp_path: Path, form: str) -> None:
    """Up to ten rows a code, and their number; the structural zero is named by its rule."""
    lines, where = faulty(243)
    (tmp_path / "hierarchy.csv").write_text(HIERARCHY)
    (tmp_path / "persons.csv").write_text("region_id,sex,age\n" + "\n".join(lines) + "\n")
    columns = list(zip(*(line.split(",") for line in lines), strict=True))
    pq.write_table(
        pa.table([pa.array(c) for c in columns], names=["region_id", "sex", "age"]), tmp_path / "persons.parquet"
    )
    with pytest.raises(InputError) as caught:
        read_records(read_regions(tmp_path / "hierarchy.csv"), tmp_path / f"persons.{form}", ZEROS)
    shift = 1 if form == "parquet" else 0
    found = {entry["code"]: entry for entry in caught.value.bad_rows}
    assert {code: entry["count"] for code, entry in found.items()} == {code: len(rows) for code, rows in where.items()}
    assert sum(entry["count"] for entry in found.values()) == 81
    for code, rows in where.items():
        assert found[code]["rows"] == [row - shift for row in rows[:10]]
    lines = str(caught.value).splitlines()
    assert len(lines) == len(found)
    assert "(17 rows), column 'region_id': is empty [null-id]" in lines[0]
    assert "'sex = male & age = old'" in found["structural-zero"]["message"]


def test_each_structural_zero_has_its_own_rows_and_persons_alone_count(tmp_path: Path) -> None:
    schema = Schema(ATTRIBUTES, ("sex = male & age = old", "age = old", "age = child"))
    text = "region_id,sex,age,count\ne,male,old,1\ne,female,old,2\ne,male,old,0\ne,male,child,1\ne,male,old,-1\n"
    with pytest.raises(InputError) as caught:
        read(tmp_path, text, schema)
    assert [(entry["code"], entry["rows"]) for entry in caught.value.bad_rows] == [
        ("negative-count", [6]),
        ("structural-zero", [2]),
        ("structural-zero", [3]),
        ("structural-zero", [5]),
    ]


def test_mistakes_in_groups_and_in_records_are_named_together(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        housed(tmp_path, "sex,group_id,age\nman,7,old\nmale,7,elder\n", HOMES + "8,e\n9,x\n")
    assert [(entry["file"], entry["code"], entry["rows"]) for entry in caught.value.bad_rows] == [
        ("homes.csv", "unknown-region", [6]),
        ("homes.csv", "duplicate-group", [5]),
        ("persons.csv", "unknown-value", [2]),
        ("persons.csv", "unknown-value", [3]),
    ]


def test_records_are_counted_in_files_as_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(4)
    regions, private = tmp_path / "regions.csv", tmp_path / "private"
    regions.write_text("region_id,land,town\n" + "".join(f"{k},land,t{k}\n" for k in range(90)))
    columns = {
        "region_id": rng.integers(0, 90, 4000).astype(str),
        **{name: np.array(values)[rng.integers(0, len(values), 4000)] for name, values in SCHEMA.attributes.items()},
    }
    path = tmp_path / "records.parquet"
    pq.write_table(pa.table(columns), path, row_group_size=500)
    public = read_regions(regions)
    expected = read_records(public, path, SCHEMA, spill=private)
    assert not private.exists()
    monkeypatch.setattr(scratch, "LARGE", 0)
    counts = read_records(public, path, SCHEMA, spill=private)
    for ours, theirs in zip(counts.arrays, expected.arrays, strict=True):
        np.testing.assert_array_equal(ours, theirs)
        assert not ours.flags.writeable
    assert counts.identity() == expected.identity()
    assert not list(private.glob(".spill-*"))
    assert os.name != "posix" or private.stat().st_mode & 0o077 == 0


def test_a_row_of_no_region_is_named_where_no_cell_is_ruled_out(tmp_path: Path) -> None:
    (tmp_path / "regions.csv").write_text("region_id,land,town\n1,land,a\n2,land,b\n")
    columns = {"region_id": ["1", "3", "2"], "sex": ["male"] * 3, "age": ["old"] * 3}
    pq.write_table(pa.table(columns), tmp_path / "records.parquet")
    with pytest.raises(InputError, match="unknown-region") as caught:
        read_records(read_regions(tmp_path / "regions.csv"), tmp_path / "records.parquet", SCHEMA)
    assert caught.value.place is not None
    assert (caught.value.place.row, caught.value.place.column) == (2, "region_id")
