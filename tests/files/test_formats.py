"""A folder's tables as a workbook: types, texts that look like formulas, and what is refused."""

from __future__ import annotations

import csv
import math
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coco_opt.errors import InputError, MissingPackageError, Place
from coco_opt.files import spreadsheets
from coco_opt.files.batches import strings
from coco_opt.files.differences import Compared
from coco_opt.files.spreadsheets import write_workbook
from coco_opt.topdown.kind.noisy_measurement_files.columns import coded, is_text

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
