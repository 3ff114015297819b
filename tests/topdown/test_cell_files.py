"""Occupied cells added up in files: the same counts as in memory, and nothing left behind."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coco_opt.files.inputs import Input
from coco_opt.files.regions import read_regions
from coco_opt.histograms import Hierarchy
from coco_opt.topdown.measuring import batched_records
from coco_opt.topdown.measuring.cell_files import CellFiles
from coco_opt.topdown.measuring.counts import TableCounts, summed
from coco_opt.topdown.measuring.records import read_records
from coco_opt.topdown.schema import Schema

SCHEMA = Schema({"sex": ["female", "male"], "age": ["child", "adult", "old"]})


@given(
    leaves=st.integers(1, 150),
    pieces=st.lists(st.lists(st.tuples(st.integers(0, 899), st.integers(0, 3)), max_size=30), max_size=5),
)
def test_cells_in_files_have_the_same_people(
    tmp_path_factory: pytest.TempPathFactory, leaves: int, pieces: list[list[tuple[int, int]]]
) -> None:
    tree = Hierarchy.from_paths([("land", f"r{k}") for k in range(leaves)])
    folder = tmp_path_factory.mktemp("private")
    keys, people = list[int](), list[int]()
    with CellFiles(leaves, SCHEMA.size, folder) as files:
        for piece in pieces:
            inside = [(key % (leaves * SCHEMA.size), count) for key, count in piece]
            some = np.array([key for key, _ in inside], np.int64), np.array([count for _, count in inside], np.int64)
            assert files.add(summed(*some))
            keys += some[0].tolist()
            people += some[1].tolist()
        counts = TableCounts(tree, SCHEMA, *files.runs())
    expected = TableCounts.from_keys(tree, SCHEMA, np.array(keys, np.int64), np.array(people, np.int64))
    for ours, theirs in zip(counts.arrays, expected.arrays, strict=True):
        np.testing.assert_array_equal(ours, theirs)
        assert not ours.flags.writeable
    assert not any(folder.iterdir())


def test_more_than_all_people_are_refused(tmp_path: Path) -> None:
    with CellFiles(2, SCHEMA.size, tmp_path) as files:
        assert files.add((np.array([3]), np.array([2**53])))
        assert not files.add((np.array([1]), np.array([1])))


def test_records_are_counted_in_files_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(4)
    regions, private = tmp_path / "regions.csv", tmp_path / "private"
    regions.write_text("region_id,land,town\n" + "".join(f"{k},land,t{k}\n" for k in range(90)))
    columns = {
        "region_id": rng.integers(0, 90, 4000).astype(str),
        **{name: np.array(values)[rng.integers(0, len(values), 4000)] for name, values in SCHEMA.attributes.items()},
    }
    pq.write_table(pa.table(columns), tmp_path / "records.parquet", row_group_size=500)
    public, source = read_regions(regions), Input.of(tmp_path / "records.parquet", "records")
    expected = read_records(public, source, SCHEMA, spill=private)
    assert not private.exists()
    monkeypatch.setattr(batched_records, "SPILLED", 0)
    counts = read_records(public, source, SCHEMA, spill=private)
    for ours, theirs in zip(counts.arrays, expected.arrays, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert counts.identity() == expected.identity()
    assert not list(private.glob(".spill-*"))
    assert os.name != "posix" or private.stat().st_mode & 0o077 == 0
