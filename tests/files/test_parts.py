"""A table as a folder of files, read ahead: the same counts as one file, and errors that name the part and the row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from threading import active_count
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from coco_opt import Schema, TableCounts
from coco_opt.errors import InputError
from coco_opt.files import batches, in_threads
from coco_opt.files.in_threads import ahead
from coco_opt.files.inputs import Input, parts_of
from coco_opt.files.regions import read_regions
from coco_opt.groups.measuring.entities import read_private, read_public, read_tables
from coco_opt.groups.measuring.private import PrivateCounts
from coco_opt.ranges.domain import DomainTree
from coco_opt.ranges.measuring.values import read_values
from coco_opt.topdown.measuring import records
from coco_opt.topdown.measuring.records import read_records
from tests.files.helpers import CANARY, Write, at, refused

HIERARCHY = "region_id,root,part\n" + "".join(f"r{k},town,p{k}\n" for k in range(5))
SCHEMA = Schema({"sex": ["f", "m"], "age": ["0", "1", "2"]})


def folder_of(path: Path, tables: Sequence[pa.Table], form: str = "parquet", names: Sequence[str] = ()) -> Path:
    """Write tables as the files of a folder, with what other programs put next to them."""
    path.mkdir()
    for place, table in enumerate(tables):
        name = names[place] if names else f"part-{place:03}"
        file = path / f"{name}.{form}"
        file.parent.mkdir(parents=True, exist_ok=True)
        if form == "csv":
            pa.csv.write_csv(table, file)
        else:
            pq.write_table(table, file, row_group_size=30)
    (path / "_SUCCESS").write_text("")
    (path / ".part-000.crc").write_bytes(b"\0\1")
    return path


def split(table: pa.Table, parts: int, seed: int) -> list[pa.Table]:
    """Return the rows in a random order, in so many tables of random sizes, some without any row."""
    rng = np.random.default_rng(seed)
    order = table.take(pa.array(rng.permutation(table.num_rows)))
    ends = [0, *sorted(rng.integers(0, table.num_rows + 1, parts - 1).tolist()), table.num_rows]
    return [order.slice(begin, end - begin) for begin, end in pairwise(ends)]


def persons(rows: int = 300, *, texts: bool = True) -> pa.Table:
    rng = np.random.default_rng(rows)
    columns = {"entity_id": pa.array(rng.permutation(rows)), "group_id": pa.array(rng.integers(0, 60, rows))}
    return pa.table({name: column.cast(pa.string()) if texts else column for name, column in columns.items()})


def groups(*, texts: bool = True) -> pa.Table:
    ids = pa.array(range(60))
    regions = [f"r{k % 5}" for k in range(60)]
    return pa.table({"group_id": ids.cast(pa.string()) if texts else ids, "region_id": regions})


def same(first: PrivateCounts | TableCounts, second: PrivateCounts | TableCounts) -> bool:
    arrays = zip(first.arrays, second.arrays, strict=True)
    return all(np.array_equal(a, b) for a, b in arrays) and first.identity() == second.identity()


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let three threads read pieces of some forty rows."""
    monkeypatch.setattr(batches, "_BATCH", 40)
    monkeypatch.setattr(in_threads, "cores", lambda: 3)


@pytest.mark.parametrize(("texts", "form"), [(True, "csv"), (True, "parquet"), (False, "parquet")])
def test_groups_count_alike_in_any_number_of_parts(
    texts: bool, form: str, tmp_path: Path, write: Write, small_pieces: None
) -> None:
    hierarchy, table, listed = write("h.csv", HIERARCHY), persons(texts=texts), groups(texts=texts)
    whole = read_tables(table, listed, hierarchy)
    for parts in (1, 3, 17):
        entities = folder_of(tmp_path / f"e{parts}", split(table, parts, parts), form)
        homes = folder_of(tmp_path / f"g{parts}", split(listed, parts, 30 + parts), form)
        assert same(whole, read_tables(entities, homes, hierarchy))


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_records_and_values_count_alike_in_any_number_of_parts(
    form: str, tmp_path: Path, write: Write, small_pieces: None
) -> None:
    rng, regions = np.random.default_rng(4), read_regions(write("h.csv", HIERARCHY))
    columns: dict[str, Any] = {
        "region_id": [f"r{k}" for k in rng.integers(0, 5, 400)],
        "sex": rng.choice(["f", "m"], 400).tolist(),
        "age": rng.integers(0, 3, 400),
        "value": rng.integers(0, 20, 400),
        "person_id": [f"p{k}" for k in range(400)],
    }
    table, domain = pa.table(columns), DomainTree(20, 2)
    counts, values = read_records(regions, table, SCHEMA), read_values(table, domain)
    for parts in (1, 3, 17):
        folder = folder_of(tmp_path / f"r{parts}", split(table, parts, parts), form)
        assert same(counts, read_records(regions, folder, SCHEMA))
        assert np.array_equal(values.cells, read_values(folder, domain).cells)


def test_persons_are_compared_without_holding_their_ids(
    tmp_path: Path, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ids that differ are counted at once; repeated ones are named by the reader that holds them."""
    regions, loaded, load = read_regions(write("h.csv", HIERARCHY)), list[str](), records.load

    def watched(con: Any, table: str, *rest: Any) -> Any:
        loaded.append(table)
        return load(con, table, *rest)

    monkeypatch.setattr(records, "load", watched)
    columns = {"region_id": ["r1", "r2"] * 20, "sex": ["f"] * 40, "age": ["0"] * 40}
    for ids in ([f"p {k}" for k in range(40)], list(range(40)), [f"é{k}" for k in range(40)]):
        table = pa.table({**columns, "person_id": ids})
        folder = folder_of(tmp_path / str(ids[0]), split(table, 3, 0))
        assert read_records(regions, folder, SCHEMA).identity()["persons"] == 40
    assert loaded == ["records"]  # of those that are not plain
    for n, ids in enumerate(([f"p {k}" for k in range(40)], [f"é{k}" for k in range(40)], list(range(40)))):
        table = pa.table({**columns, "person_id": ids})
        twice = folder_of(tmp_path / f"twice {n}", [table[:30], table[20:]])
        error = refused(lambda folder=twice: read_records(regions, folder, SCHEMA))
        assert at(error) == ("duplicate-entity", f"twice {n}/part-001.parquet", 1, "person_id")
        assert read_records(regions, twice, SCHEMA, 2).identity()["persons"] == 50
    monkeypatch.setattr("coco_opt.files.batches._BATCH", 8)
    absent = pa.table({**columns, "person_id": [*range(39), None]})
    error = refused(lambda: read_records(regions, folder_of(tmp_path / "absent", [absent]), SCHEMA))
    assert at(error) == ("null-id", "absent/part-000.parquet", 40, "person_id")
    thrice = folder_of(tmp_path / "thrice", [table[:30], table[20:], table[29:31]])
    error = refused(lambda: read_records(regions, thrice, SCHEMA, 2))
    assert at(error) == ("too-many-rows", "thrice/part-002.parquet", 1, "person_id")


def test_what_threads_read_comes_in_order_and_so_do_errors() -> None:
    def halved(number: int) -> int:
        if number % 2:
            raise ValueError(number)
        return number // 2

    assert list(in_threads.in_threads(halved, range(0, 100, 2), threads=3)) == list(range(50))
    assert list(in_threads.in_threads(halved, ())) == []
    begun: list[int] = []
    with pytest.raises(ValueError, match="7"):
        for _ in in_threads.in_threads(
            halved, (begun.append(k) or k for k in [*range(0, 8, 2), 7, *range(1, 99, 2)]), 2
        ):
            pass
    assert len(begun) <= 4 + 1 + 3  # nothing is begun once one has failed


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_folders_called_column_and_value_give_a_column(form: str, tmp_path: Path, write: Write) -> None:
    """As Spark writes them: ``%2F`` stands for a slash, and a text keeps its leading zeros."""
    regions = read_regions(write("h.csv", "region_id,root,part\n06,town,a\n6/1,town,b\n"))
    table = pa.table({"sex": ["f", "m", "m"], "age": ["0", "1", "2"]})
    names = ("region_id=06/kind=x/a", "region_id=6%2F1/kind=y/a", "region_id=06/kind=y/b")
    counts = read_records(regions, folder_of(tmp_path / "r", [table, table[:1], table[1:]], form, names), SCHEMA)
    rows = pa.table({"region_id": ["06"] * 5 + ["6/1"], "sex": list("fmmmmf"), "age": list("012120")})
    assert same(counts, read_records(regions, rows, SCHEMA))
    nowhere = ("region_id=06/a", "region_id=__HIVE_DEFAULT_PARTITION__/a")
    error = refused(lambda: read_records(regions, folder_of(tmp_path / "n", [table] * 2, form, nowhere), SCHEMA))
    first = 2 if form == "csv" else 1
    assert at(error) == ("null-id", f"n/{nowhere[1]}.{form}", first, "region_id")
    assert error.bad_rows[0]["rows"] == [first, first + 1, first + 2]


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_errors_name_each_file_and_its_rows(form: str, tmp_path: Path, write: Write) -> None:
    public = read_public(groups(), write("h.csv", HIERARCHY))
    bad = pa.table({"entity_id": ["x1", "x2", None, "x4"], "group_id": [CANARY, "1", "2", CANARY]})
    empty, again = bad[:0], pa.table({"entity_id": ["x5", "x2", None], "group_id": ["1", CANARY, "3"]})
    error = refused(lambda: read_private(public, folder_of(tmp_path / "p", [empty, bad, empty, again], form)))
    header = 1 if form == "csv" else 0
    found = {(row["code"], row["file"]): ([n - header for n in row["rows"]], row["count"]) for row in error.bad_rows}
    one, three = f"p/part-001.{form}", f"p/part-003.{form}"
    assert found == {
        ("null-id", one): ([3], 1),
        ("null-id", three): ([3], 1),
        ("duplicate-entity", three): ([2], 1),
        ("unknown-group", one): ([1, 4], 2),
        ("unknown-group", three): ([2], 1),
    }
    assert f"{one}, rows {1 + header}, {4 + header} (2 rows), column 'group_id'; {three}, row {2 + header}" in str(
        error
    )


@pytest.mark.parametrize(
    ("tables", "code", "place"),
    [
        ([{"entity_id": ["a"], "group_id": ["1"]}, {"entity_id": ["b"]}], "missing-column", "group_id"),
        ([{"entity_id": ["a"], "group_id": ["1"]}, {"entity_id": [7], "group_id": ["1"]}], "unlike-parts", "entity_id"),
        (
            [{"entity_id": ["a"], "group_id": ["1"], CANARY: [1]}, {"entity_id": ["b"], "group_id": ["1"]}],
            "unlike-parts",
            None,
        ),
    ],
)
def test_parts_have_the_same_columns(
    tables: list[dict[str, Any]], code: str, place: str | None, tmp_path: Path, write: Write
) -> None:
    public = read_public(groups(), write("h.csv", HIERARCHY))
    folder = folder_of(tmp_path / "p", [pa.table(table) for table in tables])
    assert at(refused(lambda: read_private(public, folder))) == (code, "p/part-001.parquet", None, place)
    if code == "unlike-parts" and place is None:
        folder = folder_of(tmp_path / "c", [pa.table(table) for table in tables], "csv")
        assert at(refused(lambda: read_private(public, folder))) == (code, "c/part-001.csv", None, place)


def test_parts_may_have_columns_in_any_order_and_of_any_width(tmp_path: Path, write: Write) -> None:
    public = read_public(groups(texts=False), write("h.csv", HIERARCHY))
    table = persons(texts=False)
    narrow = pa.table({name: table[name].cast(pa.int16()) for name in ("group_id", "entity_id")})
    parts = [table[:100], narrow[100:200], table[200:].cast(pa.schema([("entity_id", "uint64"), ("group_id", "int8")]))]
    whole = read_private(public, table)
    assert same(whole, read_private(public, folder_of(tmp_path / "a", [*parts[:2], table[200:]])))
    assert same(whole, read_private(public, folder_of(tmp_path / "b", parts)))
    texts = pa.table({name: table[name].cast(pa.string()) for name in ("group_id", "entity_id")})
    listed = read_public(groups(), write("h.csv", HIERARCHY))
    coded = [texts[:100], pa.table({n: texts[n].dictionary_encode() for n in texts.column_names})[100:], texts[:0]]
    assert same(whole, read_private(listed, folder_of(tmp_path / "c", coded)))


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("notes.txt", "unknown-format"),
        ("old/part.parquet", "unknown-format"),
        ("_temporary/part.parquet", "unknown-format"),
        ("_delta_log/0.json", "unknown-format"),
        ("part.csv", "unknown-format"),
        ("state=06/part.parquet", "unlike-parts"),
        ("state=06/state=07/part.parquet", "duplicate-column"),
    ],
)
def test_what_is_no_part_is_refused_by_name(name: str, code: str, tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "p", [persons()])
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(CANARY)
    error = refused(lambda: parts_of(Input(folder)))
    assert error.code == code
    assert error.place is not None
    shown = name.removesuffix("/part.parquet") if code == "duplicate-column" else name
    assert error.place.file == f"p/{shown if '=' in name else name.split('/')[0]}"


def test_a_folder_has_a_table(tmp_path: Path) -> None:
    assert refused(lambda: parts_of(Input(folder_of(tmp_path / "p", [])))).code == "empty-file"


def test_a_column_of_folders_is_none_of_the_files(tmp_path: Path, write: Write) -> None:
    public = read_public(groups(), write("h.csv", HIERARCHY))
    for form in ("csv", "parquet"):
        folder = folder_of(tmp_path / form, [persons()], form, ["group_id=1/a"])
        error = refused(lambda folder=folder: read_private(public, folder))  # type: ignore[misc]
        assert at(error) == ("duplicate-column", f"{form}/group_id=1/a.{form}", None, "group_id")


def test_a_damaged_part_is_named(tmp_path: Path, write: Write) -> None:
    public = read_public(groups(), write("h.csv", HIERARCHY))
    folder = folder_of(tmp_path / "p", split(persons(), 3, 0))
    path = folder / "part-001.parquet"
    path.write_bytes(path.read_bytes()[:-20])
    error = refused(lambda: read_private(public, folder))
    assert at(error)[:2] == ("unreadable-file", "p/part-001.parquet")
    uneven = folder_of(tmp_path / "c", split(persons(), 3, 0), "csv")
    (uneven / "part-002.csv").write_text("entity_id,group_id\n1,1,1\n")
    with pytest.raises(InputError, match=r"c/part-002.csv, row 2: has more or fewer fields"):
        read_private(public, uneven)


def test_the_same_items_come_in_order() -> None:
    assert list(ahead(range(100))) == list(range(100))
    assert list(ahead([None, None])) == [None, None]
    assert list(ahead(())) == []


def test_what_making_raises_is_raised_after_the_items_before_it() -> None:
    def broken() -> Iterator[int]:
        yield 1
        raise KeyError("gone")

    items = ahead(broken())
    assert next(items) == 1
    with pytest.raises(KeyError, match="gone"):
        next(items)


def test_nothing_is_made_for_a_caller_that_stopped() -> None:
    made: list[int] = []

    def counted() -> Iterator[int]:
        for number in range(1_000):
            made.append(number)
            yield number

    threads = active_count()
    items = ahead(counted())
    assert next(items) == 0
    items.close()  # type: ignore[attr-defined]
    assert len(made) < 6
    assert active_count() == threads
