"""CSV files for spreadsheets: no name is run as a formula, unless the texts are asked for as they are."""

from __future__ import annotations

import csv
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coco_opt.files.csv import write_csv_files

NAMES = ["=1+1", "+x", "-y", "@z", "\tt", "a=b", "", None, "Köln"]


@pytest.mark.parametrize("coded", [False, True])
def test_names_that_look_like_formulas_get_an_apostrophe_unless_raw(coded: bool, tmp_path: Path) -> None:
    names = pa.array(NAMES, pa.string())
    column = names.dictionary_encode() if coded else names
    pq.write_table(pa.table({"region": column, "change": [-1] * len(NAMES)}), tmp_path / "t.parquet")
    for raw in (False, True):
        (file,) = write_csv_files(tmp_path, tmp_path / f"csv-{raw}", raw=raw)
        with file.open(encoding="utf-8-sig", newline="") as opened:
            _, *rows = list(csv.reader(opened))
        expected = [name or "" for name in NAMES]
        if not raw:
            expected = [f"'{name}" if name.startswith(("=", "+", "-", "@", "\t")) else name for name in expected]
        assert [row[0] for row in rows] == expected
        assert {row[1] for row in rows} == {"-1"}  # numbers stay numbers
