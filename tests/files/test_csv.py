"""CSV files for spreadsheets: no name is run as a formula, unless the texts are asked for as they are."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coco_opt.errors import InputError
from coco_opt.files.csv import check_delimiter, csv_bytes, write_csv_files

NAMES = ["=1+1", "+x", "-y", "@z", "\tt", "a=b", "", None, "Köln"]


@pytest.mark.parametrize("kind", [pa.string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())])
def test_names_that_look_like_formulas_get_an_apostrophe_unless_raw(kind: pa.DataType, tmp_path: Path) -> None:
    column = pa.array(NAMES, pa.string()).cast(kind)
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


def test_decimals_begin_with_a_comma_where_it_is_asked_for(tmp_path: Path) -> None:
    names, numbers = ["a.b", "=c", "d"], [-1.25, 1e-07, None]
    pq.write_table(pa.table({"name": names, "number": numbers, "count": [1, 2, 3]}), tmp_path / "t.parquet")
    (file,) = write_csv_files(tmp_path, tmp_path / "csv", ";", decimal=",")
    read = pd.read_csv(file, sep=";", decimal=",", encoding="utf-8-sig")
    assert read["number"].tolist()[:2] == numbers[:2]
    assert np.isnan(read["number"][2])
    assert (read["name"].tolist(), read["count"].tolist()) == (["a.b", "'=c", "d"], [1, 2, 3])
    frame = pd.DataFrame({"number": [0.5], "name": ["x.y"]})
    assert csv_bytes(frame, ";", decimal=",").decode("utf-8-sig").splitlines()[1].replace('"', "") == "0,5;x.y"


@pytest.mark.parametrize(("delimiter", "decimal"), [(",", ","), (";", ";"), ("|", ".")])
def test_separators_that_cannot_be_told_apart_are_refused(delimiter: str, decimal: str) -> None:
    with pytest.raises(InputError, match="--de"):
        check_delimiter(delimiter, decimal)
