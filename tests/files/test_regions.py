"""The table of regions: a sound one in Parquet is read without DuckDB, and any as the same rows in CSV are."""

from __future__ import annotations

import csv
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coco_opt.errors import HierarchyError, InputError
from coco_opt.files import regions
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
