"""The table of regions: a sound one in Parquet is read without DuckDB, and any as the same rows in CSV are."""

from __future__ import annotations

import csv
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coco_opt.errors import HierarchyError, InputError
from coco_opt.files import regions
from coco_opt.files.inputs import Input
from coco_opt.files.regions import read_regions

NAMES = ("region_id", "land", "place")
SOUND = [("2", "l", "b"), ("1", "l", "cafe\u0301"), ("3", "l", "Å"), ("4", "l", "\u212b\u0301")]
ODD = [
    [("1", "l", "a"), ("2", "l", " b")],
    [("1", "l", "a"), ("2", "l\u200b", "b")],
    [("1", "l", "a"), ("2", "l", "")],
    [("1", "l", "a"), ("", "l", "b")],
    [("1", "l", "a"), ("1", "l", "b")],
    [("1", "l", "é"), ("2", "l", "e\u0301")],
    [("1", "l", "a"), ("2", "m", "b")],
    [("1", "l", "a"), ("2", "l", "b\ue000")],
]


def _written(folder: Path, rows: list[tuple[str, ...]]) -> tuple[Path, Path]:
    text, table = folder / "r.csv", folder / "r.parquet"
    with text.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([NAMES, *rows])
    columns = [pa.array(column, pa.string()) for column in zip(*rows, strict=True)]
    pq.write_table(pa.table(columns, names=NAMES), table)
    return text, table


def test_a_sound_table_is_read_without_duckdb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text, table = _written(tmp_path, SOUND)
    slow = read_regions(text)
    monkeypatch.delattr(regions, "isolated")
    fast = read_regions(table)
    assert (fast.hierarchy.paths, fast.levels, fast.ids) == (slow.hierarchy.paths, slow.levels, slow.ids)
    assert fast.leaf.tolist() == slow.leaf.tolist() == [0, 1, 2, 3]
    assert fast.region_ids == slow.region_ids == (None, "2", "1", "3", "4")
    assert fast.hierarchy.names[2] == "caf\xe9"


@pytest.mark.parametrize("rows", ODD)
def test_what_is_wrong_is_said_as_of_a_csv_file(tmp_path: Path, rows: list[tuple[str, ...]]) -> None:
    found = []
    for path in _written(tmp_path, rows):
        with pytest.raises((InputError, HierarchyError)) as caught:
            read_regions(path)
        place = caught.value.place
        assert place is not None
        assert place.row is not None
        found.append((caught.value.code, place.row - (path.suffix == ".csv"), place.column))
    assert found[0] == found[1]


MEASURED = "area,land,county,km2,place\n1,l,a,2.5,x\n2,l,a,7,x\n3,l,b,0.75,y\n"


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_levels_are_named_and_the_id_may_be_the_last(tmp_path: Path, form: str) -> None:
    path = tmp_path / "r.csv"
    path.write_text(MEASURED, encoding="utf-8")
    if form == "parquet":
        path = tmp_path / "r.parquet"
        rows = list(csv.reader(MEASURED.splitlines()))
        pq.write_table(pa.table([pa.array(column) for column in zip(*rows[1:], strict=True)], names=rows[0]), path)
    found = read_regions(Input(path, {"region_id": "area"}, ("land", "county", "area")))
    assert found.levels == ("land", "county", "area")
    assert found.hierarchy.paths == ("l", "l/a", "l/b", "l/a/1", "l/a/2", "l/b/3")
    assert found.leaf_of == {"1": 0, "2": 1, "3": 2}
    with pytest.raises(InputError, match="missing-column"):
        read_regions(Input(path, {"region_id": "area"}, ("land", "county", "tract")))


@pytest.mark.parametrize(
    ("text", "column", "advice"),
    [
        (MEASURED, "km2", 'levels = ["land", "county", "place"]'),
        ("region_id,land,county,people\n1,l,a,25\n2,l,b,7\n", "people", 'levels = ["land", "county"]'),
        ("region_id,land,county,km2\n1,l,a,2.5\n2,l,a,7\n", "km2", 'levels = ["land", "county"]'),
    ],
)
def test_a_column_that_is_no_level_is_refused_unless_it_is_named(
    tmp_path: Path, text: str, column: str, advice: str
) -> None:
    path = tmp_path / "r.csv"
    path.write_text(text, encoding="utf-8")
    names = {"region_id": text.split(",", 1)[0]}
    with pytest.raises(InputError, match="not-a-level") as caught:
        read_regions(Input(path, names))
    assert caught.value.place is not None
    assert caught.value.place.column == column
    assert advice in str(caught.value)
    header = tuple(text.splitlines()[0].split(",")[1:])
    assert read_regions(Input(path, names, header)).levels == header


def test_one_region_alone_divides_nothing_and_is_fine(tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    path.write_text("region_id,land,county\n1,l,a\n", encoding="utf-8")
    assert read_regions(path).levels == ("land", "county")


def test_a_root_that_no_column_has_is_named(tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    path.write_text("region_id,part,root\n1,n,a\n2,n,b\n3,s,c\n", encoding="utf-8")
    with pytest.raises(HierarchyError, match=r'row 4: .*root = "all".*several-roots'):
        read_regions(path)
    found = read_regions(Input(path, root="land"))
    assert found.levels == ("all", "part", "root")
    assert found.hierarchy.paths == ("land", "land/n", "land/s", "land/n/a", "land/n/b", "land/s/c")
    with pytest.raises(HierarchyError, match="bad-name"):
        read_regions(Input(path, root=""))
    path.write_text("region_id,root,all,root level\n1,n,a,b\n2,n,a,d\n", encoding="utf-8")
    assert read_regions(Input(path, root="land")).levels == ("root 1", "root", "all", "root level")


def test_levels_that_are_listed_smallest_first_are_named_in_order(tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    path.write_text("region_id,place,county,land\n1,a,n,l\n2,b,n,l\n3,c,s,l\n", encoding="utf-8")
    for source in (Input(path), Input(path, levels=("place", "county", "land"))):
        with pytest.raises(HierarchyError, match=r'root first, such as levels = \["land", "county", "place"\]'):
            read_regions(source)
