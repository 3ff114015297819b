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
from coco_opt.files.spreadsheets import check_delimiter, csv_bytes, write_csv_files

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


def test_rounded_ends_keep_in_an_interval_what_lay_in_it(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    lower = rng.normal(0.0, 1.0, 500) * 10.0 ** rng.integers(-6, 7, 500)
    upper = lower + rng.exponential(1.0, 500) * 10.0 ** rng.integers(-6, 3, 500)
    lower[:2], upper[:2] = (0.3, 0.0), (0.4, 0.0)  # so few digits stay
    pq.write_table(pa.table({"lower": lower, "value_upper": upper}), tmp_path / "t.parquet")
    (file,) = write_csv_files(tmp_path, tmp_path / "csv")
    read = pd.read_csv(file, encoding="utf-8-sig")
    assert (read["lower"] <= lower).all()
    assert (read["value_upper"] >= upper).all()
    np.testing.assert_allclose(read["lower"], lower, rtol=1e-3, atol=0.1)
    np.testing.assert_array_equal(read.iloc[:2].to_numpy(), [[0.3, 0.4], [0.0, 0.0]])


@pytest.mark.parametrize(("delimiter", "decimal"), [(",", ","), (";", ";"), ("|", ".")])
def test_separators_that_cannot_be_told_apart_are_refused(delimiter: str, decimal: str) -> None:
    with pytest.raises(InputError, match="--de"):
        check_delimiter(delimiter, decimal)


def test_every_level_is_a_column_by_which_regions_are_filtered(tmp_path: Path) -> None:
    """Names with slashes stay whole, ids keep their zeros, and a level called like a column has another name."""
    paths = ["land", "land/a\\/b", "land/a\\/b/077810", "land/c", "land/c/x"]
    levels = {"level": [0, 1, 2, 1, 2], "level_name": ["land", "size", "town", "size", "town"]}
    pq.write_table(pa.table({"region": paths, **levels}), tmp_path / "hierarchy.parquet")
    ids = [None, None, "077810", None, "000001"]
    pq.write_table(pa.table({"region": paths, "region_id": ids, "size": range(5)}), tmp_path / "histograms.parquet")
    files = write_csv_files(tmp_path, tmp_path / "csv", notes={"README.txt": b"words"})
    assert [file.name for file in files] == ["README.txt", "hierarchy.csv", "histograms.csv"]
    read = pd.read_csv(tmp_path / "csv" / "histograms.csv", dtype=str, encoding="utf-8-sig")
    assert list(read) == ["region", "region_id", "land", "size_name", "town", "size"]
    inside = read[read["size_name"] == "a/b"]
    assert inside["region"].tolist() == paths[1:3]
    assert inside["region_id"].tolist()[1] == "077810"
    assert read["town"].isna().tolist() == [True, True, False, True, False]


@pytest.mark.parametrize(
    ("value", "text"),
    [(12345.678, "12345.7"), (2.396612, "2.397"), (0.00123456, "0.001235"), (0.0, "0"), (-7.5, "-7.5")],
)
def test_fractions_have_few_digits_unless_raw(value: float, text: str, tmp_path: Path) -> None:
    pq.write_table(pa.table({"value": [value, None]}), tmp_path / "t.parquet")
    for raw in (False, True):
        (file,) = write_csv_files(tmp_path, tmp_path / str(raw), raw=raw)
        line = file.read_text(encoding="utf-8-sig").splitlines()[1]
        assert float(line) == (value if raw else float(text))
        assert raw or line == text
