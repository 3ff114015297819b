"""CSV files for spreadsheets: no name is run as a formula, unless the texts are asked for as they are."""

from __future__ import annotations

import csv
from pathlib import Path
from unicodedata import normalize

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


def test_every_form_of_an_operator_is_marked_also_after_blanks_and_in_headers(tmp_path: Path) -> None:
    """Spreadsheets read some forms of = + - @ as these: all that Unicode's compatibility forms (NFKC) map to them."""
    signs = [
        chr(code) for code in range(0x110000) if normalize("NFKC", chr(code))[:1] in ("=", "+", "-", "@", "\u2212")
    ]
    names = [f"{before}{sign}1" for sign in signs for before in ("", " ", "\n", "\u00a0", "\u3000\t")]
    pq.write_table(pa.table({name: [name, "a" + name] for name in names[:9]}), tmp_path / "header.parquet")
    pq.write_table(pa.table({"name": names}), tmp_path / "t.parquet")
    header, rows = write_csv_files(tmp_path, tmp_path / "csv")
    with rows.open(encoding="utf-8-sig", newline="") as opened:
        assert [row[0] for row in list(csv.reader(opened))[1:]] == [f"'{name}" for name in names]
    with header.open(encoding="utf-8-sig", newline="") as opened:
        marked = [f"'{name}" for name in names[:9]]
        assert list(csv.reader(opened)) == [marked, marked, [f"a{name}" for name in names[:9]]]


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
