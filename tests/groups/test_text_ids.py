"""Texts as ids, counted as they are read: the same counts and the same refusals as the reader of all rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from coco_opt.errors import InputError
from coco_opt.files import column_checks
from coco_opt.groups.measuring import entities as reader
from coco_opt.groups.measuring.entities import read_tables
from tests.files.helpers import Write
from tests.groups.test_integer_ids import same

HIERARCHY = "region_id,a,b\n" + "".join(f"r{k},n,l{k}\n" for k in range(7))
LETTERS = np.array(list("aZ09~!#%é "))


def ids(rng: np.random.Generator, number: int, longest: int, letters: int = 8) -> list[str]:
    """Return distinct plain texts of up to so many characters, of a small alphabet, so that many begin alike."""
    found: dict[str, None] = {}
    while len(found) < number:
        text = "".join(rng.choice(LETTERS[:letters], rng.integers(1, longest + 1)))
        found[text] = None
    return list(found)


def tables(seed: int, longest: int) -> tuple[dict[str, Any], dict[str, Any]]:
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
    hierarchy = write("h.csv", HIERARCHY)
    listed, entities = tables(longest, longest)
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
    assert set(loaded) == {"hierarchy"}  # the reader of all rows is not asked


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
        read_tables(pa.table(entities), pa.table(listed), write("h.csv", HIERARCHY))


@pytest.mark.parametrize(
    ("groups", "regions", "code"),
    [(["g1", "g2", "g1"], ["r1"] * 3, "duplicate-group"), (["g1", "g2", "g3"], ["r1", "r2", "r9"], "unknown-region")],
)
def test_wrong_groups_are_explained(
    groups: list[str], regions: list[str], code: str, write: Write, everything: None
) -> None:
    entities = {"entity_id": ["x"], "group_id": ["g1"]}
    with pytest.raises(InputError, match=code):
        read_tables(pa.table(entities), pa.table({"group_id": groups, "region_id": regions}), write("h.csv", HIERARCHY))


@pytest.mark.parametrize("odd", ["é", "x" * 41])
def test_ids_that_are_not_plain_or_long_are_counted_all_the_same(odd: str, write: Write, everything: None) -> None:
    """As are tables that would take too much memory."""
    listed = pa.table({"group_id": [odd, "g"], "region_id": ["r1", "r2"]})
    entities = pa.table({"entity_id": ["a", f"{odd}1", "c"], "group_id": [odd, odd, "g"]})
    counts = read_tables(entities, listed, write("h.csv", HIERARCHY))
    assert (counts.sizes.tolist(), counts.rows_read) == ([2, 1], 3)


@pytest.mark.parametrize("most", [0, 8 * 699])
def test_little_memory_is_no_harm(most: int, write: Write, everything: None, monkeypatch: pytest.MonkeyPatch) -> None:
    hierarchy, (listed, entities) = write("h.csv", HIERARCHY), tables(1, 5)
    whole = read_tables(pa.table(entities), pa.table(listed), hierarchy)
    monkeypatch.setattr(column_checks, "MEMORY", most)
    assert same(whole, read_tables(pa.table(entities), pa.table(listed), hierarchy))
