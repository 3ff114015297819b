"""The same table as files of every spelling and as frames of four libraries; the levels that are proposed for it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from coco_opt.config import parse_config
from coco_opt.errors import ConfigError, InputError
from coco_opt.files.inputs import Frame, Input
from coco_opt.files.proposals import propose_levels
from coco_opt.files.regions import read_regions
from coco_opt.groups.measuring.entities import read_tables
from tests.files.helpers import CANARY, ENTITIES, HIERARCHY, Write, refused
from tests.files.helpers import GROUPS as LISTED

polars = pytest.importorskip("polars", reason="Polars is not installed")

Make = Callable[[pa.Table], Any]


def _table(text: str) -> pa.Table:
    lines = [line.split(",") for line in text.splitlines()]
    return pa.table({name: [row[k] for row in lines[1:]] for k, name in enumerate(lines[0])})


def _pandas(table: pa.Table) -> Any:
    return table.to_pandas()


def _indexed(table: pa.Table) -> Any:
    return table.to_pandas().set_index(table.column_names[0])


def _categories(table: pa.Table) -> Any:
    return table.to_pandas().astype("category")


def _relation(table: pa.Table) -> Any:
    return duckdb.from_arrow(table)


FRAMES: dict[str, Make] = {
    "pandas": _pandas,
    "pandas with an index": _indexed,
    "pandas categories": _categories,
    "polars": lambda table: polars.from_arrow(table),
    "arrow": lambda table: table,
    "arrow stream": lambda table: table.to_reader(),
    "duckdb": _relation,
}


def _expected() -> Any:
    return read_tables(_table(ENTITIES), _table(LISTED), _table(HIERARCHY)).arrays


@pytest.mark.parametrize("library", FRAMES)
def test_frames_of_every_library_give_the_counts_of_the_files(library: str, write: Write) -> None:
    files = [write(f"{name}.csv", text) for name, text in (("e", ENTITIES), ("g", LISTED), ("h", HIERARCHY))]
    by_file = read_tables(*files).arrays
    make = FRAMES[library]
    by_frame = read_tables(*(make(_table(text)) for text in (ENTITIES, LISTED, HIERARCHY))).arrays
    assert all(np.array_equal(one, other) for one, other in zip(by_file, by_frame, strict=True))


@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize("ends", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("quote", ["where needed", "everything"])
def test_a_csv_file_of_any_spelling_gives_the_same_counts(
    write: Write, separator: str, ends: str, mark: str, quote: str
) -> None:
    paths = []
    for name, text in (("e", ENTITIES), ("g", LISTED), ("h", HIERARCHY)):
        lines = [f"{line},{CANARY if row else 'other; column'}" for row, line in enumerate(text.splitlines())]
        spelled = lines if name != "h" else text.splitlines()
        quoted = [
            separator.join(f'"{part}"' if quote == "everything" or ";" in part else part for part in one.split(","))
            for one in spelled
        ]
        paths.append(write(f"{name}.csv", mark + ends.join(quoted) + ends))
    found = read_tables(*paths).arrays
    assert all(np.array_equal(one, other) for one, other in zip(found, _expected(), strict=True))


def test_columns_go_by_the_users_names(write: Write) -> None:
    renamed = write("e.csv", ENTITIES.replace("entity_id,group_id", "pid,household"))
    groups = write("g.csv", LISTED.replace("group_id,region_id", "household,area"))
    tree = write("h.csv", HIERARCHY.replace("region_id", "area"))
    names = {"entity_id": "pid", "group_id": "household", "region_id": "area"}
    found = read_tables(*(Input(path, names) for path in (renamed, groups, tree))).arrays
    assert all(np.array_equal(one, other) for one, other in zip(found, _expected(), strict=True))
    bad = write("bad.csv", "household,area\n1,r1\n,r2\n")
    error = refused(lambda: read_tables(Input(renamed, names), Input(bad, names), Input(tree, names)))
    assert error.place is not None
    assert (error.code, error.place.row, error.place.column) == ("null-id", 3, "household")


def test_a_bad_row_of_a_file_with_semicolons_is_counted_as_people_count(write: Write) -> None:
    groups = write("g.csv", 'group_id;region_id\n\n"1\n";r1\n2;r9\n')
    error = refused(lambda: read_tables(_table(ENTITIES), groups, _table(HIERARCHY)))
    assert error.place is not None
    assert (error.code, error.place.row, error.place.column) == ("space-in-id", 3, "group_id")


@pytest.mark.parametrize("library", ["pandas", "polars", "arrow", "duckdb"])
def test_a_bad_row_of_a_frame_is_named_without_its_value(library: str) -> None:
    entities = FRAMES[library](_table(f"entity_id,group_id\n{CANARY},1\n{CANARY},2\n"))
    error = refused(lambda: read_tables(entities, _table(LISTED), _table(HIERARCHY)))
    assert error.code == "duplicate-entity"
    assert str(error.place) == "the entities frame, row 2, column 'entity_id'"


def test_fractional_ids_and_mixed_columns_are_refused_by_type() -> None:
    for column, code in (([1.0, float("nan")], "wrong-type"), ([1, CANARY], "bad-frame"), ([b"1", b"2"], "wrong-type")):
        entities = pd.DataFrame({"entity_id": ["a", "b"], "group_id": pd.Series(column)})
        assert refused(lambda entities=entities: read_tables(entities, _table(LISTED), _table(HIERARCHY))).code == code


ODD: dict[str, Any] = {
    "mixed": [1, CANARY],
    "complex": [1 + 2j, 3],
    "nested": [{"a": 1}, [1]],
    "large": [10**30, 1],
    "sparse": pd.arrays.SparseArray([0, 1]),
    "months": pd.period_range("2026", periods=2, freq="M"),
    "objects": [object(), object()],
}


@pytest.mark.parametrize("column", ODD)
def test_a_column_that_arrow_cannot_read_matters_only_where_it_is_read(column: str) -> None:
    unused = pd.DataFrame({"entity_id": ["a", "b"], "group_id": ["1", "2"], "odd": pd.Series(ODD[column])})
    twice = pd.concat([unused, unused["odd"], unused["odd"].rename(0)], axis=1)
    found = [read_tables(frame, _table(LISTED), _table(HIERARCHY)).arrays for frame in (unused, twice)]
    plain = read_tables(unused[["entity_id", "group_id"]], _table(LISTED), _table(HIERARCHY)).arrays
    assert all(np.array_equal(*pair) for arrays in found for pair in zip(arrays, plain, strict=True))
    used = pd.DataFrame({"entity_id": ["a", "b"], "group_id": pd.Series(ODD[column])})
    if column != "sparse":
        error = refused(lambda: read_tables(used, _table(LISTED), _table(HIERARCHY)))
        assert error.code in ("bad-frame", "wrong-type")
        assert str(error.place) == "the entities frame, column 'group_id'"


def _config(**data: Any) -> Any:
    return parse_config(
        {"data": data, "privacy": {"epsilon": "1", "noise": "seeded", "seed": 1}, "groups": {"max_size": 9}}, Path()
    )


def test_a_configuration_takes_frames_and_shows_none_of_them() -> None:
    config = _config(entities=_table(ENTITIES), groups=_table(LISTED).to_pandas(), hierarchy=_table(HIERARCHY))
    plain = config.as_dict()["data"]
    assert plain == {"groups": "the groups frame", "hierarchy": "the hierarchy frame"}
    assert "Alice" not in repr(config)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"entities": 5}, "must be a path in a string, or in Python a frame"),
        ({"columns": {"entity": "pid"}}, "did you mean 'entity_id'"),
        ({"columns": {"entity_id": "id", "group_id": "id"}}, "two columns cannot have one name"),
        ({"columns": {"entity_id": "id", "group_id": ["id", "hh"]}}, "two columns cannot have one name"),
        ({"columns": {"entity_id": []}}, "'entity_id' must be the name of a column, or a list of names"),
        ({"columns": ["id"]}, "must be a table such as"),
    ],
)
def test_a_mistaken_input_is_named(data: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        _config(**{"entities": "e.csv", "groups": "g.csv", "hierarchy": "h.csv", **data})


def test_a_column_with_several_names_has_the_first_that_a_table_has(tmp_path: Path) -> None:
    homes, areas = _table(LISTED), _table(HIERARCHY)
    renamed = homes.rename_columns(["hh_id", *homes.column_names[1:]])
    people = _table(ENTITIES)
    (tmp_path / "people.csv").write_text(people.to_pandas().rename(columns={"group_id": "hh"}).to_csv(index=False))
    names = {"group_id": ("hh", "hh_id")}
    read = read_tables(Input(tmp_path / "people.csv", names), Input(Frame.of("groups", renamed), names), areas)
    assert all(np.array_equal(one, other) for one, other in zip(read.arrays, _expected(), strict=True))
    own_ids = {"entity_id": "id", "group_id": ("hh", "id"), "region_id": ("area", "id")}  # each table has its own id
    tables = (people, ["id", "hh"]), (homes, ["id", "area"]), (areas, ["id", *areas.column_names[1:]])
    frames = [Input(Frame.of("table", table.rename_columns(columns)), own_ids) for table, columns in tables]
    assert all(np.array_equal(one, other) for one, other in zip(read_tables(*frames).arrays, _expected(), strict=True))
    with pytest.raises(InputError, match=r"column 'id': group_id and region_id would both be this column"):
        read_tables(frames[0], Input(Frame.of("groups", homes.rename_columns(["id", "zone"])), own_ids), frames[2])
    with pytest.raises(InputError, match=r"the entities frame, column 'hh'"):  # neither name occurs
        read_tables(Input(Frame.of("entities", people), names), homes, areas)


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
    assert (proposal.root == "") == ("land" in columns)
    root = proposal.root or None
    assert len(read_regions(Input(path, source.columns, proposal.levels, root)).ids) == ROWS
