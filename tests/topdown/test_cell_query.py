"""Records that do not fit in memory: the same counts as in memory, and nothing left behind."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coco_opt.errors import InputError
from coco_opt.files import scratch
from coco_opt.files.regions import read_regions
from coco_opt.topdown.measuring.records import read_records
from coco_opt.topdown.schema import Schema

SCHEMA = Schema({"sex": ["female", "male"], "age": ["child", "adult", "old"]})


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
