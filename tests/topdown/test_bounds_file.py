"""Public bounds: read answer by answer, and every mistake found at its row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from coco_opt.errors import InputError
from coco_opt.histograms import Hierarchy
from coco_opt.topdown import UNBOUNDED, Invariants, RegionBounds, Schema, ValueGroups
from coco_opt.topdown.measuring.public_files import read_bounds

SCHEMA = Schema(
    {"sex": ("female", "male"), "home": ("flat", 'o\'Neil "x"', "größe ≥ 3")},
    (),
    {"kind": ValueGroups("home", {"small": ["flat"], "other": ['o\'Neil "x"', "größe ≥ 3"]})},
)
TREE = Hierarchy.from_paths([("land", "b", "y"), ("land", "b", "x"), ("land", "a", "z")])
HEADER = "region,query,answer,lower,upper\n"


def read(folder: Path, rows: str) -> tuple[RegionBounds, ...]:
    (folder / "bounds.csv").write_text(HEADER + rows, encoding="utf-8")
    return read_bounds(folder / "bounds.csv", TREE, SCHEMA)


def test_sides_stand_where_the_rows_say_and_the_rest_is_free(tmp_path: Path) -> None:
    stated = read(tmp_path, "land/b,total,total,3,9\nland/a,total,total,,7\nland/b/x,sex,sex = male,2,\n")
    assert [(bounds.query.text, bounds.level) for bounds in stated] == [("total", 1), ("sex", 2)]
    totals, males = stated
    assert totals.lower.tolist() == [[3], [0]]
    assert totals.upper.tolist() == [[9], [7]]
    assert males.lower.tolist() == [[0, 0], [0, 2], [0, 0]]
    assert (males.upper == UNBOUNDED).all()
    assert males.lower.dtype == males.upper.dtype == np.int64


def test_odd_names_are_found_as_they_stand(tmp_path: Path) -> None:
    (bounds,) = read(tmp_path, 'land,home,"home = o\'Neil ""x""",1,5\nland,home,home = größe ≥ 3,2,\n')
    assert bounds.lower.tolist() == [[0, 1, 2]]
    assert bounds.upper.tolist() == [[UNBOUNDED, 5, UNBOUNDED]]


@pytest.mark.parametrize(
    ("lower", "upper"),
    [
        (pd.Series([2, None]), pd.Series([np.nan, 30_000_000])),
        (pd.Series([2, None], dtype=object), pd.Series([None, 30_000_000], dtype=object)),
        (pd.array([2, None], dtype="Int64"), pd.array([None, 30_000_000], dtype="Int64")),
        (["2", ""], [None, "30000000"]),
        ([2, 0], [None, 30_000_000]),
    ],
)
def test_an_empty_side_of_a_frame_reads_like_an_empty_entry_of_a_file(tmp_path: Path, lower: Any, upper: Any) -> None:
    frame = pd.DataFrame(
        {
            "region": ["land/b", "land/a"],
            "query": ["total"] * 2,
            "answer": ["total"] * 2,
            "lower": lower,
            "upper": upper,
        }
    )
    frame.to_parquet(tmp_path / "bounds.parquet")
    for source in (frame, tmp_path / "bounds.parquet"):
        (bounds,) = read_bounds(source, TREE, SCHEMA)
        assert bounds.lower.tolist() == [[2], [0]]
        assert bounds.upper.tolist() == [[UNBOUNDED], [30_000_000]]


@pytest.mark.parametrize("side", [1.5, np.inf, -1.0])
def test_a_side_of_a_frame_that_is_no_count_is_refused_at_its_row(side: float) -> None:
    frame = pd.DataFrame(
        {"region": ["land"], "query": ["total"], "answer": ["total"], "lower": [np.nan], "upper": [side]}
    )
    with pytest.raises(InputError, match="row 1, column 'upper'"):
        read_bounds(frame, TREE, SCHEMA)


def test_two_spellings_of_a_query_bound_it_together(tmp_path: Path) -> None:
    stated = read(
        tmp_path, 'land,sex * kind,"sex = male, kind = small",1,9\nland,sex*kind,"sex = male, kind = small",4,\n'
    )
    constraints = Invariants(TREE, SCHEMA, stated).constraints_of(TREE.level_range(0))
    assert constraints is not None
    assert (constraints.lower.tolist(), constraints.upper.tolist()) == ([[4]], [[9]])


BAD = [
    ("land/c,total,total,1,2\n", "unknown-region", 2, "region"),
    ("b,total,total,1,2\n", "unknown-region", 2, "region"),
    ("land/b,sx,sex = male,1,2\n", "unknown-attribute", 2, "query"),
    ("land/b,sex * sex,sex = male,1,2\n", "bad-query", 2, "query"),
    ("land/b,sex,male,1,2\n", "unknown-answer", 2, "answer"),
    ("land/b,total,total,1,2\nland/b,sex,sex = males,1,2\n", "unknown-answer", 3, "answer"),
    ("land/b,total,total,-1,2\n", "negative-bound", 2, "lower"),
    ("land/b,total,total,1,2.5\n", "not-an-integer", 2, "upper"),
    ("land/b,total,total,1e3,\n", "not-an-integer", 2, "lower"),
    ("land/b,total,total,٣,\n", "not-an-integer", 2, "lower"),
    ("land/b,total,total, 1,\n", "not-an-integer", 2, "lower"),
    ("land/b,total,total,9999999999999999999,\n", "not-an-integer", 2, "lower"),
    ("land/b,total,total,5,4\n", "inconsistent-bounds", 2, None),
    ("land/b,total,total,1,4\nland/a,total,total,1,4\nland/b,total,total,1,5\n", "duplicate-bound", 4, None),
    (",total,total,1,2\n", "null-id", 2, "region"),
    ("land/b,,total,1,2\n", "null-id", 2, "query"),
    ("land/b,total,,1,2\n", "null-id", 2, "answer"),
    ("", "empty-file", None, None),
]


@pytest.mark.parametrize(("rows", "code", "row", "column"), BAD)
def test_a_mistake_is_found_where_it_is(
    tmp_path: Path, rows: str, code: str, row: int | None, column: str | None
) -> None:
    with pytest.raises(InputError) as caught:
        read(tmp_path, rows)
    place = caught.value.place
    assert caught.value.code == code
    assert place is not None
    assert (place.file, place.row, place.column) == ("bounds.csv", row, column)


def test_ranges_are_named_as_in_the_configuration_or_as_released(tmp_path: Path) -> None:
    schema = Schema({"sex": ("female", "male"), "age": ("0-17", "18+")})
    rows = '"sex = male, age = 0..17",3,\nland,sex * age,"sex = male, age = 18+",4,\n'
    (tmp_path / "bounds.csv").write_text(HEADER + f"land,sex * age,{rows}")
    (bound,) = read_bounds(tmp_path / "bounds.csv", TREE, schema)
    assert bound.lower.tolist() == [[0, 0, 3, 4]]


def test_all_bad_rows_are_named_at_once(tmp_path: Path) -> None:
    """A row for each kind of error, its first ten rows and their number; rows without one are not named."""
    rows = ["land/b,total,total,1,2"]
    rows += [f"land/q{k},total,total,1,2" for k in range(12)] + ["land/b,sx,sex = male,1,2"] * 2
    rows += ["land/a,total,total,-1,2", "land/b,total,total,1,5", ",total,total,1,2", "land/a,sex,sex = male,x,"]
    with pytest.raises(InputError) as caught:
        read(tmp_path, "\n".join(rows) + "\n")
    found = {entry["code"]: (entry["rows"], entry["count"], entry["column"]) for entry in caught.value.bad_rows}
    assert found == {
        "null-id": ([19], 1, "region"),
        "unknown-region": (list(range(3, 13)), 12, "region"),
        "unknown-attribute": ([15, 16], 2, "query"),
        "negative-bound": ([17], 1, "lower"),
        "duplicate-bound": ([18], 1, None),
        "not-an-integer": ([20], 1, "lower"),
    }


def test_a_lower_bound_no_country_has_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="2\\^40"):
        read(tmp_path, f"land/b,total,total,{2**40},\n")
    (tmp_path / "bounds.csv").write_text("region,query,answer,lower,lower\n")
    with pytest.raises(InputError, match="missing-column"):
        read_bounds(tmp_path / "bounds.csv", TREE, SCHEMA)
