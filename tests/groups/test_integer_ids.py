"""Integers and texts as ids, read in batches: the same counts and the same refusals as by the reader of all rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from coco_opt.errors import InputError
from coco_opt.files import column_checks
from coco_opt.groups.measuring import entities as reader
from coco_opt.groups.measuring.entities import read_private, read_public, read_tables
from coco_opt.groups.measuring.private import PrivateCounts
from tests.files.helpers import Write, at, refused

HIERARCHY = "region_id,a,b\n" + "".join(f"{k},n,l{k}\n" for k in range(7))
Columns = Mapping[str, Any]


def same(first: PrivateCounts, second: PrivateCounts) -> bool:
    pairs = zip((*first.arrays, first.group_counts), (*second.arrays, second.group_counts), strict=True)
    return all(np.array_equal(a, b) for a, b in pairs) and first.identity() == second.identity()


def as_text(columns: Columns) -> dict[str, Any]:
    return {name: pa.array(values).cast(pa.string()) for name, values in columns.items()}


def tables(seed: int, groups: int = 200, rows: int = 900, apart: int = 3) -> tuple[dict[str, Any], dict[str, Any]]:
    rng = np.random.default_rng(seed)
    ids = rng.permutation(groups) * apart - 40
    listed = {"group_id": ids, "region_id": rng.integers(0, 7, groups)}
    sizes = np.where(rng.random(groups) < 0.99, rng.integers(1, 5, groups), 2_000).astype(float)
    owner = rng.choice(ids, rows, p=sizes / sizes.sum())
    return listed, {"entity_id": rng.permutation(rows) * apart - 70, "group_id": owner}


@pytest.mark.parametrize("kind", [np.int64, np.int16])
def test_whole_ids_count_as_their_texts_do(
    kind: type, write: Write, parquet: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    hierarchy = write("h.csv", HIERARCHY)
    monkeypatch.setattr("coco_opt.files.batches._BATCH", 64)
    monkeypatch.setattr(reader, "_AT_ONCE", 50)
    for seed in range(3):
        groups, entities = tables(seed)
        groups, entities = ({name: v.astype(kind) for name, v in one.items()} for one in (groups, entities))
        texts = read_tables(parquet("e.parquet", as_text(entities)), parquet("g.parquet", as_text(groups)), hierarchy)
        public = read_public(parquet("g.parquet", groups), hierarchy)
        assert public.integer_ids
        with monkeypatch.context() as only:
            only.setattr(reader, "load", None)  # the reader of texts is not asked
            assert same(texts, read_private(public, parquet("e.parquet", entities)))
            assert same(texts, read_private(public, pa.table(entities)))
        # Entities as texts meet groups as whole numbers, and the other way round.
        assert same(texts, read_private(public, parquet("e.parquet", as_text(entities))))
        assert same(texts, read_private(read_public(pa.table(as_text(groups)), hierarchy), pa.table(entities)))


@pytest.mark.parametrize("apart", [10**7, 2**40])
def test_ids_far_apart_count_as_their_texts_do(apart: int, write: Write, parquet: Write) -> None:
    hierarchy = write("h.csv", HIERARCHY)
    groups, entities = tables(5, apart=apart)
    texts = read_tables(parquet("e.parquet", as_text(entities)), parquet("g.parquet", as_text(groups)), hierarchy)
    assert same(texts, read_tables(parquet("e.parquet", entities), parquet("g.parquet", groups), hierarchy))


def unsigned(columns: Columns) -> Columns:
    return {**columns, "entity_id": pa.array([2**64 - 1, *range(len(columns["entity_id"]) - 1)], pa.uint64())}


def test_unsigned_ids_beyond_63_bits_are_no_mistake(write: Write, parquet: Write) -> None:
    groups, entities = tables(6)
    public = read_public(parquet("g.parquet", groups), write("h.csv", HIERARCHY))
    assert read_private(public, parquet("e.parquet", unsigned(entities))).rows_read == 900


def changed(name: str, at_row: int, value: object) -> Callable[[Columns], dict[str, Any]]:
    def change(columns: Columns) -> dict[str, Any]:
        values = np.asarray(columns[name]).tolist()
        values[at_row] = values[value[0]] if isinstance(value, tuple) else value
        return {**columns, name: pa.array(values, pa.int64())}

    return change


WRONG_ENTITIES = [
    ("duplicate-entity", [changed("entity_id", 700, (20,))]),
    ("duplicate-entity", [changed("entity_id", 21, (20,)), changed("group_id", 3, 10**6)]),
    ("unknown-group", [changed("group_id", 800, 10**6), changed("group_id", 850, -(10**6))]),
    ("unknown-group", [changed("group_id", 800, 1)]),
    ("null-id", [changed("entity_id", 899, None)]),
    ("null-id", [changed("group_id", 500, None), changed("entity_id", 3, None)]),
    ("empty-file", [lambda columns: {name: pa.array([], pa.int64()) for name in columns}]),
]


@pytest.mark.parametrize(("code", "changes"), WRONG_ENTITIES)
def test_entities_are_refused_in_the_same_words(
    code: str,
    changes: list[Callable[[Columns], Columns]],
    write: Write,
    parquet: Write,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("coco_opt.files.batches._BATCH", 64)
    groups, entities = tables(7)
    for change in changes:
        entities = change(entities)  # type: ignore[assignment]
    public = read_public(parquet("g.parquet", groups), write("h.csv", HIERARCHY))
    assert public.integer_ids
    errors: list[InputError] = []
    for columns in (entities, as_text(entities)):
        path: Path = parquet("e.parquet", columns)
        errors.append(refused(lambda path=path: read_private(public, path), ()))  # type: ignore[misc]
    assert errors[0].code == code
    assert at(errors[0]) == at(errors[1])
    assert str(errors[0]) == str(errors[1])


NAMED = "region_id,a,b\n" + "".join(f"r{k},n,l{k}\n" for k in range(7))
LETTERS = np.array(list("aZ09~!#%é "))


def ids(rng: np.random.Generator, number: int, longest: int, letters: int = 8) -> list[str]:
    """Return distinct plain texts of up to so many characters, of a small alphabet, so that many begin alike."""
    found: dict[str, None] = {}
    while len(found) < number:
        text = "".join(rng.choice(LETTERS[:letters], rng.integers(1, longest + 1)))
        found[text] = None
    return list(found)


def named_tables(seed: int, longest: int) -> tuple[dict[str, Any], dict[str, Any]]:
    rng = np.random.default_rng(seed)
    groups = ids(rng, 150, longest)
    listed = {"group_id": groups, "region_id": [f"r{k}" for k in rng.integers(0, 7, 150)]}
    return listed, {"entity_id": ids(rng, 700, max(longest, 4)), "group_id": rng.choice(groups, 700).tolist()}


@pytest.fixture
def everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let small tables be read as large ones are, in several batches."""
    monkeypatch.setattr(reader, "_AT_ONCE", 64)
    monkeypatch.setattr("coco_opt.files.batches._BATCH", 64)


@pytest.mark.parametrize("longest", [3, 8, 9, 24, 40])
def test_texts_count_as_the_reader_of_all_rows_counts_them(
    longest: int, write: Write, parquet: Write, everything: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    hierarchy = write("h.csv", NAMED)
    listed, entities = named_tables(longest, longest)
    paths = parquet("e.parquet", entities), parquet("g.parquet", listed), hierarchy
    with monkeypatch.context() as only:
        only.setattr(reader, "batches_of", lambda *_: None)
        rows = read_tables(*paths)
    loaded: list[str] = []
    load = reader.load
    monkeypatch.setattr(
        reader, "load", lambda con, table, *rest, **more: loaded.append(table) or load(con, table, *rest, **more)
    )
    assert same(rows, read_tables(*paths))
    assert same(rows, read_tables(pa.table(entities), pa.table(listed), hierarchy))
    assert not loaded  # the reader of all rows is not asked


WRONG: dict[str, tuple[str, dict[str, Any]]] = {
    "a repeated entity": ("duplicate-entity", {"entity_id": ["x", "y", "x"]}),
    "an unknown group": ("unknown-group", {"group_id": ["g1", "g2", "g22"]}),
    "a longer group": ("unknown-group", {"group_id": ["g1", "g2", "g1" * 20]}),
    "no group": ("null-id", {"group_id": ["g1", None, "g2"]}),
    "no entity": ("null-id", {"entity_id": ["x", "y", ""]}),
    "a space": ("space-in-id", {"entity_id": ["x", "y", "x "]}),
    "a character that nobody sees": ("control-in-id", {"entity_id": ["x", "y", "x\u200b"]}),
    "one person in two spellings": ("duplicate-entity", {"entity_id": ["\u00e9", "e\u0301", "x"]}),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_wrong_is_explained_by_the_reader_of_all_rows(wrong: str, write: Write, everything: None) -> None:
    code, columns = WRONG[wrong]
    entities = {"entity_id": ["x", "y", "z"], "group_id": ["g1", "g2", "g1"], **columns}
    listed = {"group_id": ["g1", "g2"], "region_id": ["r1", "r2"]}
    with pytest.raises(InputError, match=code):
        read_tables(pa.table(entities), pa.table(listed), write("h.csv", NAMED))


@pytest.mark.parametrize("odd", ["é", "x" * 41])
def test_ids_that_are_not_plain_or_long_are_counted_all_the_same(odd: str, write: Write, everything: None) -> None:
    """As are tables that would take too much memory."""
    listed = pa.table({"group_id": [odd, "g"], "region_id": ["r1", "r2"]})
    entities = pa.table({"entity_id": ["a", f"{odd}1", "c"], "group_id": [odd, odd, "g"]})
    counts = read_tables(entities, listed, write("h.csv", NAMED))
    assert (counts.sizes.tolist(), counts.rows_read) == ([2, 1], 3)


@pytest.mark.parametrize("most", [0, 8 * 699])
def test_little_memory_is_no_harm(most: int, write: Write, everything: None, monkeypatch: pytest.MonkeyPatch) -> None:
    hierarchy, (listed, entities) = write("h.csv", NAMED), named_tables(1, 5)
    whole = read_tables(pa.table(entities), pa.table(listed), hierarchy)
    monkeypatch.setattr(column_checks, "MEMORY", most)
    assert same(whole, read_tables(pa.table(entities), pa.table(listed), hierarchy))
