"""Tables of persons: counted cell by cell, and every mistake found at its row and column without a private value."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coco_opt.errors import InputError
from coco_opt.tables.records import CellCounts, read_records, read_regions

ATTRIBUTES = {"sex": ("female", "male"), "age": ("child", "adult", "old")}
ALLOWED = np.zeros(6, np.bool_)
HIERARCHY = "region_id,nation,state\ne,all,east\nw,all,west\n"
RECORDS = "region_id,sex,age\nw,male,old\ne,female,child\nw,male,old\ne,male,adult\n"


def read(tmp_path: Path, records: str, forbidden: np.ndarray = ALLOWED) -> CellCounts:
    (tmp_path / "hierarchy.csv").write_text(HIERARCHY)
    (tmp_path / "persons.csv").write_text(records)
    return read_records(read_regions(tmp_path / "hierarchy.csv"), tmp_path / "persons.csv", ATTRIBUTES, forbidden)


def triples(found: CellCounts) -> list[tuple[int, int, int]]:
    return list(zip(found.leaves.tolist(), found.cells.tolist(), found.counts.tolist(), strict=True))


def test_records_are_counted_by_leaf_and_cell(tmp_path: Path) -> None:
    found = read(tmp_path, RECORDS)
    assert triples(found) == [(0, 0, 1), (0, 4, 1), (1, 5, 2)]
    assert found.rows_read == 4
    assert "5" not in repr(found)


def test_regions_keep_the_names_of_their_levels(tmp_path: Path) -> None:
    (tmp_path / "hierarchy.csv").write_text(HIERARCHY)
    public = read_regions(tmp_path / "hierarchy.csv")
    assert public.levels == ("nation", "state")
    assert dict(public.leaf_ids) == {"e": 0, "w": 1}


def test_columns_go_by_name_and_counts_stand_for_persons(tmp_path: Path) -> None:
    found = read(tmp_path, "region_id,age,sex,count\nw,old,male,2\ne,child,female,1\ne,adult,male,0\ne,adult,male,1\n")
    assert triples(found) == [(0, 0, 1), (0, 4, 1), (1, 5, 2)]


def test_parquet_gives_the_same_as_a_loop(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    (tmp_path / "hierarchy.csv").write_text(HIERARCHY)
    region, sex, age = rng.integers(2, size=500), rng.integers(2, size=500), rng.integers(3, size=500)
    columns = {
        "region_id": [("e", "w")[k] for k in region],
        "sex": [ATTRIBUTES["sex"][k] for k in sex],
        "age": [ATTRIBUTES["age"][k] for k in age],
    }
    pq.write_table(pa.table(columns), tmp_path / "persons.parquet")
    public = read_regions(tmp_path / "hierarchy.csv")
    found = read_records(public, tmp_path / "persons.parquet", ATTRIBUTES, ALLOWED)
    expected = Counter(zip(region.tolist(), (3 * sex + age).tolist(), strict=True))
    assert triples(found) == [(leaf, cell, n) for (leaf, cell), n in sorted(expected.items())]


BAD = [
    (RECORDS.replace("w,male,old\ne,f", "north,male,old\ne,f", 1), "unknown-region", 2, "region_id"),
    (RECORDS.replace("female,child", "female,secret"), "unknown-value", 3, "age"),
    (RECORDS.replace("female,child", "female,"), "null-id", 3, "age"),
    (RECORDS.replace("female,child", " female,child"), "space-in-id", 3, "sex"),
    ("region_id,sex\nw,male\n", "missing-column", None, "age"),
    ("region_id,sex,height\nw,male,old\n", "missing-column", None, "age"),
    ("region_id,sex,age,secret\nw,male,old,1\n", "unexpected-column", None, "#4"),
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
    if row is not None:
        assert place.row == row
    if column is not None:
        assert place.column == column
    for private in ("secret", "north", "-7", "7.5"):
        assert private not in str(caught.value)
    assert caught.value.__context__ is None or "secret" not in str(caught.value.__context__)


def test_a_structural_zero_is_found_at_its_first_row(tmp_path: Path) -> None:
    forbidden = np.zeros(6, np.bool_)
    forbidden[5] = True
    with pytest.raises(InputError, match="structural-zero") as caught:
        read(tmp_path, RECORDS, forbidden)
    assert caught.value.place is not None
    assert caught.value.place.row == 2
