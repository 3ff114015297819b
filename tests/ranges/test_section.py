"""Ranges as they come in: keys, defaults and mistakes of the section; what a file counts, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from coco_opt.config import Config, parse_config
from coco_opt.errors import ConfigError, InputError
from coco_opt.ranges import DomainTree
from coco_opt.ranges.measuring.values import read_values

MINIMAL = """
[data]
values = "visits.parquet"
[privacy]
epsilon = "1"
dataset = "visits-2026"
[ranges]
cells = 365
"""


def read(text: str, old: str = "", new: str = "") -> Config:
    assert old in text
    return parse_config(text.replace(old, new), Path("/data/here"), file="run.toml")


def failure(old: str, new: str, text: str = MINIMAL) -> str:
    with pytest.raises(ConfigError) as caught:
        read(text, old, new)
    return str(caught.value)


def test_private_files_appear_in_no_manifest() -> None:
    plain = read(MINIMAL).as_dict()
    assert {key: plain["ranges"][key] for key in ("cells", "outside", "fan_out", "estimator")} == {
        "cells": 365,
        "outside": "refuse",
        "fan_out": "auto",
        "estimator": "nonnegative",
    }
    assert plain["data"] == {}


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("cells = 365", "", "[ranges.cells] is required"),
        ("cells = 365", "cells = 365\nedges = [0, 1]", "either cells or edges"),
        ("cells = 365", "cells = 0", "[ranges.cells]"),
        ("cells = 365", "cells = true", "[ranges.cells]"),
        ("cells = 365", "edges = [0]", "at least 2"),
        ("cells = 365", "edges = [0, 5, 5]", "must rise"),
        ("cells = 365", "edges = [0, 5.5]", "integers"),
        ("cells = 365", "edges = [0, 9999999999999999999]", "10^18"),
        ("cells = 365", 'cells = 1048577\nestimator = "posterior"', "up to 1,048,576 cells"),
        ("cells = 365", "cells = 365\nfan_out = 1", "at least 2"),
        ("cells = 365", "cells = 365\nintervals = 0.9", "ranges.intervals"),
        ("cells = 365", "cells = 365\ndraws = 5", "ranges.draws"),
        ("cells = 365", 'cells = 365\nestimator = "posterior"\ndraws = 1000', "ranges.draws"),
        ("cells = 365", 'cells = 365\nestimator = "posterior"\nintervals = 1.0', "ranges.intervals"),
        ("cells = 365", 'cells = 365\nfan_out = "binary"', '"auto", "optimised", "cells"'),
        ("cells = 365", 'cells = 365\nestimator = "nonegative"', "did you mean 'nonnegative'"),
        ("cells = 365", 'cells = 365\noutside = "ignore"', "refuse, clamp"),
        ("cells = 365", "cells = 365\nfanout = 4", "did you mean 'fan_out'"),
        ('values = "visits.parquet"', "", "[data.values] is required"),
        ('values = "visits.parquet"', 'sizes = "visits.parquet"', "unknown key"),
    ],
)
def test_mistakes_are_named(old: str, new: str, words: str) -> None:
    assert words in failure(old, new)


DOMAIN = DomainTree(5)
BINS = DomainTree(3, 2, [-10, 0, 18, 65])


def write(folder: Path, text: str, name: str = "visits.csv") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def parquet(folder: Path, **columns: object) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table(columns), folder / "visits.parquet")
    return folder / "visits.parquet"


def test_one_row_an_entity(tmp_path: Path) -> None:
    counts = read_values(write(tmp_path, "person,value\na,4\nb,0\nc,4\nd,2\n"), DOMAIN)
    assert counts.cells.tolist() == [1, 0, 1, 0, 2]
    assert counts.identity() == {
        "rows_read": 4,
        "rows_counted": 4,
        "rows_rejected": 0,
        "entities": 4,
        "entities_clamped": 0,
    }
    assert repr(counts) == "CellCounts(private)"


def test_counts_by_cell(tmp_path: Path) -> None:
    counts = read_values(write(tmp_path, "cell,count\n3,7\n0,2\n"), DOMAIN)
    assert counts.cells.tolist() == [2, 0, 0, 7, 0]
    by_cell = read_values(write(tmp_path, "cell,count\n2,7\n"), BINS, "clamp")
    assert by_cell.cells.tolist() == [0, 0, 7]


def test_parquet_and_negative_values(tmp_path: Path) -> None:
    assert read_values(parquet(tmp_path, value=[-10, -1, 0, 64], note=["x"] * 4), BINS).cells.tolist() == [2, 1, 1]
    with pytest.raises(InputError, match="not-an-integer"):
        read_values(parquet(tmp_path, value=[1.5]), BINS)


def test_values_outside_are_refused_or_clamped(tmp_path: Path) -> None:
    path = write(tmp_path, "value\n70\n-99\n3\n65\n")
    with pytest.raises(
        InputError, match=r"rows 2, 3, 5 \(3 rows\), column 'value'.*domain -10 to 64.*clamp.*\[outside-domain\]"
    ):
        read_values(path, BINS)
    counts = read_values(path, BINS, "clamp")
    assert counts.cells.tolist() == [1, 1, 2]
    assert counts.identity()["entities_clamped"] == 3


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("value\n", "empty-file"),
        ("", "empty-file"),
        ("day\n3\n", "no-header"),
        ("cell\n3\n", "missing-column"),
        ("value\n7771.5\n", "not-an-integer"),
        ("value\n7771e3\n", "not-an-integer"),
        ("value\n007771\n", "not-an-integer"),
        ("value\n\n7771x\n", "not-an-integer"),
        ("value\n7771777177717771777\n", "too-large"),
        ("value\n7771\n", "outside-domain"),
        ("value\n-7771\n", "outside-domain"),
        ("value,count\n1,-7771\n", "negative-count"),
        ("value,count\n1,900719925474099999\n", "too-large"),
        ("cell,count\n7771,1\n", "outside-domain"),
        ("cell,count\n3,1\n3,7771\n", "duplicate-cell"),
        ("cell,count\n3,0\n", "no-entities"),
        ('value\n"7771\n', "malformed-row"),
    ],
)
def test_what_could_be_misread_is_refused(tmp_path: Path, text: str, code: str) -> None:
    with pytest.raises(InputError, match=rf"\[{code}\]$") as caught:
        read_values(write(tmp_path, text), DOMAIN)
    assert "777" not in str(caught.value)
    assert caught.value.__context__ is None


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"visits\.csv.*no such file"):
        read_values(tmp_path / "visits.csv", DOMAIN)
