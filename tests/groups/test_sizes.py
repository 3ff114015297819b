"""Counts made elsewhere: the real Taxi and Hawaiian tables, and what must be refused."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from coco_opt.groups.measuring.sizes import read_public_sizes, read_sizes
from coco_opt.histograms import CountOfCounts
from tests.files.helpers import CANARY, SECRET_SIZE, Write, at, refused

SIZES = "nation,state,size,groups\nus,hi,1,5\nus,hi,3,2\nus,ca,0,7\nus,ca,3,1\n"
ONE_REGION = "size,groups\n0,10\n2,3\n"


def test_a_small_table(write: Write) -> None:
    counts = read_sizes(write("s.csv", SIZES))
    root, ca, hi = counts.histograms()
    assert counts.hierarchy.paths == ("us", "us/ca", "us/hi")
    assert root.to_dense(3).tolist() == [7, 5, 0, 3]
    assert ca.to_dense(3).tolist() == [7, 0, 0, 1]
    assert hi.to_dense(3).tolist() == [0, 5, 0, 2]
    assert counts.group_counts.tolist() == [15, 8, 7]
    assert counts.identity()["rows_counted"] == 4


def test_the_order_of_rows_shows_nowhere(write: Write) -> None:
    header, *rows = SIZES.splitlines()
    backwards = read_sizes(write("b.csv", "\n".join([header, *reversed(rows)]) + "\n"))
    forwards = read_sizes(write("f.csv", SIZES))
    assert backwards.hierarchy.paths == forwards.hierarchy.paths
    assert backwards.sizes.tolist() == forwards.sizes.tolist()
    assert backwards.leaf_offsets.tolist() == forwards.leaf_offsets.tolist()


def test_rows_of_zero_groups_keep_their_region(write: Write) -> None:
    counts = read_sizes(write("s.csv", SIZES + "us,ak,4,0\nus,hi,9,0\n"))
    assert counts.hierarchy.paths == ("us", "us/ak", "us/ca", "us/hi")
    assert counts.leaf(0).equals(CountOfCounts.empty())
    assert counts.leaf(2).max_size == 3


def test_one_region_named_by_root(write: Write) -> None:
    path = write("s.csv", ONE_REGION)
    counts = read_sizes(path, root="hawaii")
    assert counts.hierarchy.paths == ("hawaii",)
    assert counts.region(0).to_dense(2).tolist() == [10, 0, 3]
    assert at(refused(lambda: read_sizes(path)))[0] == "missing-root"


def test_a_root_above_level_columns(write: Write) -> None:
    path = write("s.csv", SIZES + "mx,hi,4,2\n")
    assert 'root = "all"' in refused(lambda: read_sizes(path)).message
    counts = read_sizes(path, root="all")
    assert counts.hierarchy.paths == ("all", "all/mx", "all/us", "all/mx/hi", "all/us/ca", "all/us/hi")
    assert counts.group_counts.tolist() == [17, 2, 15, 2, 8, 7]
    assert counts.leaf(0).to_dense(4).tolist() == [0, 0, 0, 0, 2]
    public = read_public_sizes(path, "all").regions
    assert public.levels == ("root", "nation", "state")
    assert public.hierarchy.paths == counts.hierarchy.paths


@pytest.mark.parametrize("kind", [pa.int8(), pa.uint64(), pa.int64()])
def test_parquet_of_any_integer_type(parquet: Write, kind: pa.DataType) -> None:
    table = pa.table({"nation": ["us"] * 3, "size": pa.array([0, 2, 3], kind), "groups": pa.array([5, 1, 1], kind)})
    assert read_sizes(parquet("s.parquet", table)).leaf(0).to_dense(3).tolist() == [5, 0, 1, 1]


def test_the_public_half_is_the_same_and_does_not_look_at_sizes(write: Write) -> None:
    path = write("s.csv", SIZES.replace("hi,1,5", "hi,junk,5"))
    public = read_public_sizes(path)
    assert public.hierarchy.paths == ("us", "us/ca", "us/hi")
    assert public.group_counts.tolist() == [15, 8, 7]
    assert "15 groups" in repr(public)
    assert public.regions.levels == ("nation", "state")
    assert public.regions.region_ids == (None,) * 3
    assert read_public_sizes(write("o.csv", ONE_REGION), "hawaii").regions.levels == ("region",)


BAD_NUMBERS = [
    *(("not-an-integer", text) for text in ("", "2.5", "1e3", "NaN", "inf", "-inf", " 7", "7 ", "+7", "007")),
    *(("not-an-integer", text) for text in ("0x1F", "1_000", '"1,000"', "-2.5", "-0", "\u0663", CANARY, "true")),
    ("too-large", str(SECRET_SIZE) + "0" * 13),
    ("too-large", "9" * 40),
]


@pytest.mark.parametrize(("code", "text"), [*BAD_NUMBERS, ("negative-size", f"-{SECRET_SIZE}")])
def test_bad_sizes(write: Write, code: str, text: str) -> None:
    path = write("s.csv", SIZES + f"us,ca,{text},1\n")
    assert at(refused(lambda: read_sizes(path))) == (code, "s.csv", 6, "size")


@pytest.mark.parametrize(("code", "text"), [*BAD_NUMBERS, ("negative-count", f"-{SECRET_SIZE}")])
def test_bad_counts(write: Write, code: str, text: str) -> None:
    path = write("s.csv", SIZES + f"us,ca,{SECRET_SIZE},{text}\n")
    assert at(refused(lambda: read_sizes(path))) == (code, "s.csv", 6, "groups")
    assert refused(lambda: read_public_sizes(path)).code == code


S = SECRET_SIZE
BAD_TABLES = [
    ("duplicate-row", SIZES + f"us,ca,{S},1\nus,ca,{S},4\n", 7, None),
    ("several-roots", SIZES + f"uk,wales,{S},1\n", 6, "nation"),
    ("uneven-depth", SIZES + f"us,,{S},1\n", 6, "state"),
    ("space-in-id", SIZES + f"us, ca,{S},1\n", 6, "state"),
    ("control-in-id", SIZES + f"us,c\x07a,{S},1\n", 6, "state"),
    ("malformed-row", SIZES + f"us,{S},1\n", 6, None),
    ("empty-file", "", None, None),
    ("empty-file", "nation,size,groups\n", None, None),
    ("no-header", f"us,ca,{S},1\n", 1, None),
    ("missing-column", f"nation,state,size\nus,ca,{S}\n", 1, "groups"),
    ("swapped-columns", f"nation,state,groups,size\nus,ca,1,{S}\n", 1, None),
    ("swapped-columns", f"size,groups,nation\n{S},1,us\n", 1, None),
    ("duplicate-column", f"nation,nation,size,groups\nus,ca,{S},1\n", 1, "#1"),
    ("too-large", SIZES + f"us,ca,{S},{'9' * 18}\n", None, None),
    ("too-large", "".join([SIZES, *(f"us,x{k},0,{'9' * 18}\n" for k in range(5))]), None, None),
]


@pytest.mark.parametrize(("code", "text", "row", "column"), BAD_TABLES)
def test_bad_tables(write: Write, code: str, text: str, row: int | None, column: str | None) -> None:
    path = write("s.csv", text)
    assert at(refused(lambda: read_sizes(path, root=None))) == (code, "s.csv", row, column)


@pytest.mark.parametrize(
    ("code", "column", "values"),
    [
        ("not-an-integer", "size", [1.0, 2.0]),
        ("not-an-integer", "groups", ["1", "2"]),
        ("not-an-integer", "size", [True, False]),
        ("not-an-integer", "size", [1, None]),
        ("negative-size", "size", [1, -S]),
        ("negative-count", "groups", [1, -S]),
        ("too-large", "size", pa.array([1, 2**64 - 1], pa.uint64())),
        ("duplicate-row", "size", [S, S]),
    ],
)
def test_bad_parquet(parquet: Write, code: str, column: str, values: object) -> None:
    table = {"nation": ["us", "us"], "size": [1, 2], "groups": [3, 4], column: values}
    path = parquet("s.parquet", pa.table(table))
    error = refused(lambda: read_sizes(path))
    assert error.code == code
    assert error.place is not None
    assert error.place.column == (None if code == "duplicate-row" else column)
    typed = [1.0, 2.0], ["1", "2"], [True, False]
    assert error.place.row == (None if values in typed else 2)


def test_taxi(shared_data: Path) -> None:
    counts = read_sizes(shared_data / "kuo2018" / "taxi_neighbourhoods.csv")
    root, *rest = counts.histograms()
    assert (root.groups, root.entities, root.distinct) == (360_872, 130_962_398, 3_128)
    assert root.max_size == 4_919
    tree = counts.hierarchy
    assert (tree.levels, tree.regions, len(tree.leaves)) == (3, 31, 28)
    assert tree.paths[:3] == ("manhattan", "manhattan/lower", "manhattan/upper")
    assert CountOfCounts.total(rest[:2]).equals(root)
    assert CountOfCounts.total(rest[2:]).equals(root)
    assert all(counts.region(v).equals(histogram) for v, histogram in enumerate([root, *rest]))
    assert [histogram.groups for histogram in (root, *rest)] == counts.group_counts.tolist()


def test_hawaiian(shared_data: Path) -> None:
    path = shared_data / "kuo2018" / "hawaiian_blocks_nation.csv"
    root = read_sizes(path, root="nation").region(0)
    assert (root.groups, root.entities, root.distinct) == (11_155_486, 540_383, 224)
    assert root.max_size == 908
