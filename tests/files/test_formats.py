"""A folder's tables for spreadsheets: CSV and workbooks, types, texts that look like formulas, and what is refused."""

from __future__ import annotations

import csv
import math
import shutil
import subprocess
from pathlib import Path
from typing import Any
from unicodedata import normalize

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coco_opt.errors import InputError, MissingPackageError, Place
from coco_opt.files import spreadsheets
from coco_opt.files.batches import strings
from coco_opt.files.differences import Compared
from coco_opt.files.spreadsheets import check_delimiter, csv_bytes, write_csv_files, write_workbook
from coco_opt.topdown.kind.noisy_measurement_files.columns import coded, is_text

FORMULAS = ["=1+1", "+x", "-y", "@z", "\tt", "a=b", "", None, "Köln"]


@pytest.mark.parametrize("kind", [pa.string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())])
def test_names_that_look_like_formulas_get_an_apostrophe_unless_raw(kind: pa.DataType, tmp_path: Path) -> None:
    column = pa.array(FORMULAS, pa.string()).cast(kind)
    pq.write_table(pa.table({"region": column, "change": [-1] * len(FORMULAS)}), tmp_path / "t.parquet")
    for raw in (False, True):
        (file,) = write_csv_files(tmp_path, tmp_path / f"csv-{raw}", raw=raw)
        with file.open(encoding="utf-8-sig", newline="") as opened:
            _, *rows = list(csv.reader(opened))
        expected = [name or "" for name in FORMULAS]
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


NAMES = ["=1+1", "+x", "@z", "Köln", None]
IDS = ["0012", "1e5", None, "TRUE", "-3"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "release"
    made.mkdir()
    table = {
        "level": pa.array([0, 1, 1, 1, 1], pa.int32()),
        "level_name": pa.array(["land", "town", "town", "town", "town"]).dictionary_encode(),
        "region": [*NAMES[:4], "a/b, c"],
        "region_id": IDS,
        "size": [1, 2, 3, 4, 5],
        "groups": [2**53, 10**12, -1, 7, 8],
        "share": [0.5, math.inf, math.nan, None, -1.25],
        "converged": [True, False, None, True, True],
    }
    pq.write_table(pa.table(table), made / "histograms.parquet")
    pq.write_table(pa.table({"region": NAMES}), made / "hierarchy.parquet")
    return made


def test_a_workbook_has_typed_cells(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("xlsxwriter")
    openpyxl = pytest.importorskip("openpyxl")
    assert write_workbook(folder, tmp_path / "t.xlsx") == ("hierarchy", "histograms")
    book = openpyxl.load_workbook(tmp_path / "t.xlsx")
    cells: list[Any] = list(book["histograms"].iter_rows())
    assert [cell.value for cell in cells[0]] == pq.read_schema(folder / "histograms.parquet").names
    first, second, third = ([cell.value for cell in row] for row in cells[1:4])
    assert first == [0, "land", "=1+1", "0012", 1, 2**53, 0.5, True]
    assert second == [1, "town", "+x", "1e5", 2, 10**12, "inf", False]
    assert third == [1, "town", "@z", None, 3, -1, "nan", None]
    assert {cell.data_type for row in cells[1:] for cell in row} == {"n", "s", "b"}  # no formula
    assert book["histograms"].freeze_panes == "A2"


def test_the_wide_table_is_a_sheet_of_its_own(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("xlsxwriter")
    openpyxl = pytest.importorskip("openpyxl")
    for name, columns in (("hierarchy", ["level", "level_name", "region", "region_id"]), ("histograms", None)):
        table = pq.read_table(folder / "histograms.parquet", columns=columns)
        pq.write_table(table, folder / f"{name}.parquet")
    names = write_workbook(folder, tmp_path / "t.xlsx", Compared("histograms", "groups", ("size",)))
    assert names == ("hierarchy", "histograms", "histograms-wide")
    rows = list(openpyxl.load_workbook(tmp_path / "t.xlsx")["histograms-wide"].values)
    assert rows[0][4:] == ("land", "town", "size = 1", "size = 2", "size = 3", "size = 4", "size = 5")
    assert rows[4][2:4] == ("Köln", "TRUE")
    assert rows[4][6:] == (0, 0, 0, 7, 0)


def test_a_text_that_no_cell_can_hold_is_named(tmp_path: Path) -> None:
    """The limit is in UTF-16: a character beyond 2^16 counts twice."""
    pytest.importorskip("xlsxwriter")
    for text, fits in (("x" * 32_767, True), ("x" * 32_768, False), ("\U0001f600" * 16_384, False)):
        pq.write_table(pa.table({"region": ["land", text]}), tmp_path / "t.parquet")
        if fits:
            assert write_workbook(tmp_path, tmp_path / "t.xlsx") == ("t",)
            (tmp_path / "t.xlsx").unlink()
            continue
        with pytest.raises(InputError, match=r"t.parquet, row 2, column 'region': this text has more than 32,767"):
            write_workbook(tmp_path, tmp_path / "t.xlsx")
        assert not (tmp_path / "t.xlsx").exists()


@pytest.mark.skipif(shutil.which("soffice") is None, reason="LibreOffice is not installed")
def test_a_spreadsheet_program_opens_a_workbook_with_names_as_texts(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("xlsxwriter")
    write_workbook(folder, tmp_path / "t.xlsx")
    profile = f"-env:UserInstallation=file://{tmp_path}/profile"
    every_sheet = "csv:Text - txt - csv (StarCalc):44,34,76,1,,0,false,true,false,false,false,-1"
    command = ["soffice", profile, "--headless", "--convert-to", every_sheet, "--outdir", tmp_path, tmp_path / "t.xlsx"]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    with (tmp_path / "t-histograms.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))
    assert [row[2:4] for row in rows[1:]] == [
        ["=1+1", "0012"],
        ["+x", "1e5"],
        ["@z", ""],
        ["Köln", "TRUE"],
        ["a/b, c", "-3"],
    ]
    assert [row[5] for row in rows[2:]] == ["1000000000000", "-1", "7", "8"]


def test_too_many_rows_and_a_missing_package_are_named(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(name: str) -> Any:
        raise ModuleNotFoundError(name=name)

    with monkeypatch.context() as changed:
        changed.setattr(spreadsheets, "import_module", absent)
        with pytest.raises(MissingPackageError, match=r"'xlsxwriter': pip install 'coco-opt\[xlsx\]'"):
            write_workbook(folder, tmp_path / "t.xlsx")
    pytest.importorskip("xlsxwriter")
    monkeypatch.setattr(spreadsheets, "_MOST_ROWS", 4)
    with pytest.raises(InputError, match="too-many-rows"):
        write_workbook(folder, tmp_path / "t.xlsx")
    assert sorted(tmp_path.iterdir()) == [folder]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view()])
@pytest.mark.parametrize("is_coded", [False, True])
def test_texts_of_any_of_arrows_types_are_strings(kind: pa.DataType, is_coded: bool) -> None:
    texts = pa.array(["ä", None, "b", "ä"], kind)
    if is_coded:
        texts = pa.DictionaryArray.from_arrays(pa.array([0, None, 1, 0], pa.uint32()), pa.array(["ä", "b"], kind))
    assert strings(texts).type == pa.string()
    assert strings(texts).to_pylist() == ["ä", None, "b", "ä"]
    assert is_text(texts.type)
    assert coded(texts, Place("file"))[0] == ["ä", "b"]
