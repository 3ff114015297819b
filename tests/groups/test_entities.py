"""The three tables: the poster's example, and every misreading that must be refused instead."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coco_opt.errors import InputError
from coco_opt.groups.measuring.entities import PublicGroups, read_private, read_public, read_tables
from coco_opt.groups.measuring.private import PrivateCounts
from tests.files.helpers import CANARY, ENTITIES, GROUPS, HIERARCHY, Write, at, refused


def columns(text: str) -> dict[str, list[str]]:
    header, *rows = [line.split(",") for line in text.strip().split("\n")]
    return {name: [row[k] for row in rows] for k, name in enumerate(header)}


def assert_poster(counts: PrivateCounts) -> None:
    root, a, b = counts.histograms()
    assert counts.hierarchy.paths == ("town", "town/a", "town/b")
    assert root.ranks().tolist() == [1, 1, 2, 4]
    assert a.ranks().tolist() == [1, 4]
    assert b.ranks().tolist() == [1, 2]
    assert root.to_dense(4).tolist() == [0, 2, 1, 0, 1]
    assert counts.group_counts.tolist() == [4, 2, 2]
    assert counts.identity() == {
        "rows_read": 8,
        "rows_counted": 8,
        "rows_rejected": 0,
        "groups_in_input": 4,
        "groups_at_root": 4,
    }


def test_poster_example_from_csv(write: Write) -> None:
    hierarchy, groups = write("h.csv", HIERARCHY), write("g.csv", GROUPS)
    assert_poster(read_tables(write("e.csv", ENTITIES), groups, hierarchy))


def test_poster_example_from_parquet(parquet: Write) -> None:
    files = {"e": ENTITIES, "g": GROUPS, "h": HIERARCHY}
    paths = {name: parquet(f"{name}.parquet", columns(text)) for name, text in files.items()}
    assert_poster(read_tables(paths["e"], paths["g"], paths["h"]))


def test_hash_rows_quotes_and_unicode_are_data(write: Write) -> None:
    hierarchy = write("h.csv", 'region_id,root,part\n#1,Ö,"x, ""y"""\n')
    groups = write("g.csv", "group_id,region_id\n#a,#1\nNULL,#1\n007,#1\n7,#1\n")
    entities = write("e.csv", "entity_id,group_id\n#p,#a\nnan,NULL\n1e3,NULL\n2.5,007\n")
    counts = read_tables(entities, groups, hierarchy)
    assert counts.hierarchy.paths == ("Ö", 'Ö/x, "y"')
    assert counts.leaf(0).ranks().tolist() == [0, 1, 1, 2]


def test_groups_without_entities_have_size_zero(public: PublicGroups, write: Write) -> None:
    counts = read_private(public, write("e.csv", "entity_id,group_id\nAlice,1\n"))
    assert [part.ranks().tolist() for part in counts.histograms()] == [[0, 0, 0, 1], [0, 1], [0, 0]]
    assert counts.rows_read == 1


@pytest.mark.parametrize("form", ["csv", "integers", "texts"])
@pytest.mark.parametrize("group_ids", ["texts", "integers"])
def test_entities_that_state_another_region_than_their_group_are_named(write: Write, form: str, group_ids: str) -> None:
    """An empty region states none, an unknown one differs, and a column of another name is not looked at."""
    homes = pd.DataFrame({"group_id": [1, 2, 3, 4], "region_id": ["r1", "r1", "r2", "r2"]})
    homes = homes if group_ids == "integers" else homes.astype(str)
    public = read_public(homes, write("h.csv", HIERARCHY))

    def read(*regions: str | None, column: str = "region_id") -> PrivateCounts:
        rows = pd.DataFrame({"entity_id": range(5), "group_id": [1, 1, 3, 4, 4], column: regions})
        if form == "csv":
            return read_private(public, write("e.csv", rows.to_csv(index=False)))
        return read_private(public, rows if form == "integers" else rows.astype({"entity_id": str, "group_id": str}))

    right = ("r1", "r1", "r2", "r2", None)
    assert read(*right).rows_counted == 5
    assert read("r2", "r2", "r1", "r1", "zz", column="born_in").rows_counted == 5
    with pytest.raises(InputError, match="this region is not that of the row's group") as refused:
        read("r1", "r2", "zz", *right[3:])
    (row,) = refused.value.bad_rows
    first = 3 if form == "csv" else 2
    assert (row["code"], row["column"], row["rows"]) == ("region-differs", "region_id", [first, first + 1])
    with pytest.raises(InputError, match="one that differs only in the case of letters is") as refused:
        read("R1", "r1", *right[2:])
    assert refused.value.bad_rows[0]["code"] == "region-differs"


def test_leaves_of_scattered_hierarchy_rows_are_found_by_path(write: Write) -> None:
    hierarchy = write("h.csv", "region_id,r,s,c\nx,n,A,1\ny,n,B,1\nz,n,A,2\n")
    groups = write("g.csv", "group_id,region_id\na,x\nb,y\nc,z\n")
    entities = write("e.csv", "entity_id,group_id\n1,b\n2,b\n3,c\n4,c\n5,c\n")
    counts = read_tables(entities, groups, hierarchy)
    result = dict(zip(counts.hierarchy.paths, counts.histograms(), strict=True))
    assert result["n/A/1"].ranks().tolist() == [0]
    assert result["n/A/2"].ranks().tolist() == [3]
    assert result["n/B/1"].ranks().tolist() == [2]
    assert result["n/A"].ranks().tolist() == [0, 3]


def test_relative_and_odd_file_names(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write("it's [1]*.csv", ENTITIES)
    write("it's 1x.csv", ENTITIES + f"{CANARY},1\n")
    write("g.csv", GROUPS)
    write("h.csv", HIERARCHY)
    monkeypatch.chdir(tmp_path)
    assert_poster(read_tables("it's [1]*.csv", "g.csv", "h.csv"))


BAD_HIERARCHY = [
    ("two-parents", HIERARCHY + "r1,town,c\n", 4, "region_id"),
    ("duplicate-region", HIERARCHY + "r1,town,a\n", 4, "region_id"),
    ("duplicate-region", HIERARCHY + "r3,town,a\n", 4, None),
    ("several-roots", HIERARCHY + "r3,city,c\n", 4, None),
    ("uneven-depth", HIERARCHY + "r3,town,\n", 4, "part"),
    ("uneven-depth", HIERARCHY + 'r3,"",c\n', 4, "root"),
    ("control-in-id", HIERARCHY + "r3,town,c\x07d\n", 4, "part"),
    ("null-id", HIERARCHY + ",town,c\n", 4, "region_id"),
    ("space-in-id", HIERARCHY + "r3,town, c\n", 4, "part"),
    ("space-in-id", HIERARCHY + "r3 ,town,c\n", 4, "region_id"),
    ("empty-file", "", None, None),
    ("empty-file", "region_id,root\n", None, None),
    ("no-header", "r1,town,a\nr2,town,b\n", 1, None),
    ("missing-column", "region_id\nr1\n", None, None),
    ("unexpected-column", "region_id,root,\nr1,town,a\n", 1, ""),
    ("duplicate-column", "region_id,root,root\nr1,town,a\n", 1, "root"),
    ("swapped-columns", "root,region_id\ntown,r1\n", 1, None),
    ("malformed-row", HIERARCHY + "r3,town\n", 4, None),
]


@pytest.mark.parametrize(("code", "text", "row", "column"), BAD_HIERARCHY)
def test_bad_hierarchy(write: Write, code: str, text: str, row: int | None, column: str | None) -> None:
    hierarchy, groups = write("h.csv", text), write("g.csv", GROUPS)
    assert at(refused(lambda: read_public(groups, hierarchy))) == (code, "h.csv", row, column)


BAD_GROUPS = [
    ("unknown-region", GROUPS + f"{CANARY},r9\n", 6, "region_id"),
    ("duplicate-group", GROUPS + f"{CANARY},r1\n{CANARY},r1\n", 7, "group_id"),
    ("group-in-two-leaves", GROUPS + f"{CANARY},r1\n{CANARY},r2\n", 7, "group_id"),
    ("null-id", GROUPS + ",r1\n", 6, "group_id"),
    ("null-id", GROUPS + f"{CANARY},\n", 6, "region_id"),
    ("space-in-id", GROUPS + f"{CANARY} ,r1\n", 6, "group_id"),
    ("space-in-id", GROUPS + f"\u00a0{CANARY},r1\n", 6, "group_id"),
    ("empty-file", "group_id,region_id\n", None, None),
    ("no-header", f"{CANARY},r1\n", 1, None),
    ("missing-column", "group_id,region\n1,r1\n", 1, "region_id"),
]


@pytest.mark.parametrize(("code", "text", "row", "column"), BAD_GROUPS)
def test_bad_groups(write: Write, code: str, text: str, row: int | None, column: str | None) -> None:
    hierarchy, groups = write("h.csv", HIERARCHY), write("g.csv", text)
    assert at(refused(lambda: read_public(groups, hierarchy))) == (code, "g.csv", row, column)


C = CANARY
BAD_ENTITIES = [
    ("unknown-group", ENTITIES + f"Zoe,{C}\n", 10, "group_id"),
    ("duplicate-entity", ENTITIES + f"{C},1\n{C},1\n", 11, "entity_id"),
    ("duplicate-entity", ENTITIES + f"{C},1\n{C},2\n", 11, "entity_id"),
    ("null-id", ENTITIES + f"{C},\n", 10, "group_id"),
    ("null-id", ENTITIES + ',"1"\n', 10, "entity_id"),
    ("space-in-id", ENTITIES + f" {C},1\n", 10, "entity_id"),
    ("space-in-id", ENTITIES + f"{C},1\t\n", 10, "group_id"),
    ("control-in-id", ENTITIES + f"{C}\u200b,1\n", 10, "entity_id"),
    ("control-in-id", ENTITIES + f"{C},1\ufeff\n", 10, "group_id"),
    ("empty-file", "", None, None),
    ("empty-file", "entity_id,group_id\n", None, None),
    ("no-header", f"{C},1\nZoe,2\n", 1, None),
    ("missing-column", f"entity_id,{C}\nZoe,1\n", 1, "group_id"),
    ("duplicate-column", "entity_id,group_id,group_id\nZoe,1,1\n", 1, "group_id"),
    ("malformed-row", ENTITIES + f"{C},1,2\n", 10, None),
    ("malformed-row", ENTITIES + f"{C}\n", 10, None),
    ("malformed-row", ENTITIES + f'{C},"1\n', 10, None),
    ("malformed-row", ENTITIES + f'{C},"1"2\n', 10, None),
    ("unreadable-file", ENTITIES.encode() + b"J\xe9," + C.encode() + b"\n", 10, None),
    ("unreadable-file", (ENTITIES + f"{C},1\n").encode("utf-16"), None, None),
    ("malformed-row", ENTITIES + f"{C},1\r\nx,1\ry,1\n", 10, None),
    ("malformed-row", ENTITIES + C * 300_000 + ",1\n", 10, None),
    ("no-header", '"entity_id,group_id\nx,1\n', 1, None),
    ("no-header", "\nentity_id,group_id\nx,1\n", 1, None),
]


@pytest.mark.parametrize(("code", "text", "row", "column"), BAD_ENTITIES)
def test_bad_entities(
    public: PublicGroups, write: Write, code: str, text: str | bytes, row: int | None, column: str | None
) -> None:
    entities = write("e.csv", text)
    assert at(refused(lambda: read_private(public, entities))) == (code, "e.csv", row, column)


def test_columns_go_by_name_and_others_are_ignored(write: Write, parquet: Write) -> None:
    hierarchy = write("h.csv", HIERARCHY)
    public = read_public(write("g.csv", "note,region_id,group_id\nx,r1,1\n,r1,2\n"), hierarchy)
    for entities in (
        write("e.csv", "age,group_id,entity_id\n7,1,Zoe\n,1,Bob\n"),
        parquet("e.parquet", {"age": [7.5, None], "group_id": ["1", "1"], "entity_id": ["Zoe", "Bob"]}),
    ):
        assert read_private(public, entities).region(0).counts.tolist() == [1, 1]


def test_rows_count_blank_lines_as_people_do(public: PublicGroups, write: Write) -> None:
    entities = write("e.csv", "entity_id,group_id\n\nAlice,1\n\n\nBob,nowhere\n")
    assert at(refused(lambda: read_private(public, entities)))[2] == 6


BAD_PARQUET = [
    ("unknown-group", {"entity_id": ["x", C], "group_id": ["1", C]}, 2, "group_id"),
    ("null-id", {"entity_id": ["x", None], "group_id": ["1", "2"]}, 2, "entity_id"),
    ("null-id", {"entity_id": ["x", "y"], "group_id": ["1", ""]}, 2, "group_id"),
    ("wrong-type", {"entity_id": ["x"], "group_id": [1.0]}, None, "group_id"),
    ("wrong-type", {"entity_id": [b"x"], "group_id": ["1"]}, None, "entity_id"),
    ("missing-column", {"a": ["1"], "b": ["x"]}, None, "entity_id"),
]


@pytest.mark.parametrize(("code", "data", "row", "column"), BAD_PARQUET)
def test_bad_parquet_entities(
    public: PublicGroups,
    write: Write,
    parquet: Write,
    code: str,
    data: dict[str, object],
    row: int | None,
    column: str | None,
) -> None:
    path = parquet("e.parquet", data)
    assert at(refused(lambda: read_private(public, path))) == (code, "e.parquet", row, column)


def test_truncated_or_foreign_parquet(public: PublicGroups, write: Write, parquet: Write) -> None:
    path = parquet("e.parquet", {"entity_id": [C, "b"], "group_id": ["1", "1"]})
    complete = path.read_bytes()
    for content in (complete[: len(complete) // 2], b"PAR1", ENTITIES.encode()):
        path.write_bytes(content)
        assert at(refused(lambda: read_private(public, path)))[:2] == ("unreadable-file", "e.parquet")


def test_a_flipped_bit_in_a_data_page_is_caught(public: PublicGroups, write: Write, parquet: Write) -> None:
    ids = [f"{C}-{k}" for k in range(50)]
    table = pa.table({"entity_id": ids, "group_id": ["1"] * 50})
    path = parquet("e.parquet", table)
    pq.write_table(table, path, write_page_checksum=True, compression="none", use_dictionary=False)
    content = bytearray(path.read_bytes())
    content[content.index(b"-27") + 1] ^= 1
    path.write_bytes(bytes(content))
    assert at(refused(lambda: read_private(public, path)))[0] == "unreadable-file"


def test_files_that_are_not_there(write: Write, tmp_path: Path) -> None:
    hierarchy, groups = write("h.csv", HIERARCHY), write("g.csv", GROUPS)
    public = read_public(groups, hierarchy)
    assert at(refused(lambda: read_private(public, tmp_path / "no.csv")))[:2] == ("file-not-found", "no.csv")
    assert refused(lambda: read_private(public, write("e.xlsx", "x"))).code == "unknown-format"
    (tmp_path / "folder.csv").mkdir()
    assert refused(lambda: read_private(public, tmp_path / "folder.csv")).code == "empty-file"


def test_public_tables_are_checked_before_the_private_one_is_opened(write: Write, tmp_path: Path) -> None:
    hierarchy, groups = write("h.csv", HIERARCHY + "r1,town,c\n"), write("g.csv", GROUPS)
    error = refused(lambda: read_tables(tmp_path / "absent.csv", groups, hierarchy))
    assert error.code == "two-parents"


def test_reprs_show_nothing_private(public: PublicGroups, write: Write) -> None:
    text = ENTITIES + "".join(f"{C}{k},1\n" for k in range(4321))
    counts = read_private(public, write("e.csv", text))
    assert counts.leaf(0).max_size == 4325
    for shown in (repr(counts), repr(public), str(counts)):
        assert "4325" not in shown
        assert "4,325" not in shown
        assert CANARY not in shown
        assert "4 groups" in shown


def test_random_tables_agree_with_a_plain_count(write: Write, parquet: Write) -> None:
    rng = np.random.default_rng(5)
    leaf_of_group = rng.integers(0, 7, 200)
    group_of_entity = rng.integers(0, 200, 900)
    hierarchy = write("h.csv", "region_id,a,b\n" + "".join(f"r{k},n,l{k}\n" for k in range(7)))
    groups = parquet("g.parquet", {"group_id": np.arange(200), "region_id": [f"r{k}" for k in leaf_of_group]})
    entities = parquet("e.parquet", {"entity_id": np.arange(900), "group_id": group_of_entity})
    counts = read_tables(entities, groups, hierarchy)
    sizes = np.bincount(group_of_entity, minlength=200)
    for leaf in range(7):
        assert counts.leaf(leaf).ranks().tolist() == sorted(sizes[leaf_of_group == leaf].tolist())
    assert counts.region(0).ranks().tolist() == sorted(sizes.tolist())
