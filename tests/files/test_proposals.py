"""The levels that a first configuration proposes: columns that group regions, root first, and the id where needed."""

from __future__ import annotations

from pathlib import Path

import pytest

from coco_opt.files.inputs import Input
from coco_opt.files.proposals import propose_levels
from coco_opt.files.regions import read_regions

ROWS = 12


def table(**columns: list[object]) -> str:
    rows = zip(*columns.values(), strict=True)
    return "\n".join(",".join(map(str, row)) for row in (columns, *rows)) + "\n"


AREA = [f"{k:03}" for k in range(ROWS)]
LAND, COUNTY = ["l"] * ROWS, [f"c{k // 3}" for k in range(ROWS)]
NAME = [f"n{k}" for k in range(ROWS)]


PART = [f"p{k // 6}" for k in range(ROWS)]


@pytest.mark.parametrize(
    ("columns", "levels"),
    [
        ({"area": AREA, "land": LAND, "county": COUNTY, "name": NAME}, ("land", "county", "name")),
        ({"area": AREA, "part": PART, "county": COUNTY}, ("part", "county", "area")),
        ({"area": AREA, "county": COUNTY, "part": PART}, ("part", "county", "area")),
        ({"area": AREA, "land": LAND, "county": COUNTY}, ("land", "county", "area")),
        ({"name": NAME, "county": COUNTY, "land": LAND, "area": AREA}, ("land", "county", "name")),
        (
            {"area": AREA, "land": LAND, "size": [k * k for k in range(ROWS)], "county": COUNTY},
            ("land", "county", "area"),
        ),
        ({"area": AREA, "land": LAND, "county": COUNTY, "code": [c[1:] for c in COUNTY]}, ("land", "county", "area")),
        (
            {"area": AREA, "land": LAND, "district": [k // 4 for k in range(ROWS)], "name": NAME},
            ("land", "district", "name"),
        ),
        (
            {"area": AREA, "land": LAND, "notes": ["x", *[""] * (ROWS - 1)], "km2": [k / 7 for k in range(ROWS)]},
            ("land", "area"),
        ),
    ],
)
def test_levels_are_the_columns_that_group_regions(
    tmp_path: Path, columns: dict[str, list[object]], levels: tuple[str, ...]
) -> None:
    path = tmp_path / "areas.csv"
    path.write_text(table(**columns), encoding="utf-8")
    source = Input(path, {"region_id": "area"})
    proposal = propose_levels(source, list(columns), "area")
    assert proposal.levels == levels
    assert {*proposal.left_out, *levels} >= {*columns} - {"area"}
    assert proposal.rooted == ("land" in columns)
    root = None if proposal.rooted else "all"
    assert len(read_regions(Input(path, source.columns, proposal.levels, root)).ids) == ROWS
