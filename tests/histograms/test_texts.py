"""Texts held as bytes: what is read back, and that it behaves like the tuple it replaces."""

from __future__ import annotations

import pickle

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coco_opt.files.arrow_texts import as_arrow, from_arrow
from coco_opt.histograms import Hierarchy
from coco_opt.histograms import texts as texts_module
from coco_opt.histograms.texts import Texts

ENTRIES = st.lists(st.none() | st.text(st.characters(codec="utf-8"), max_size=3), max_size=9)


@given(ENTRIES)
def test_texts_are_the_tuple_they_were_made_of(entries: list[str | None]) -> None:
    texts, plain = Texts.of(iter(entries)), tuple(entries)
    assert (texts, len(texts), tuple(texts)) == (plain, len(plain), plain)
    assert hash(texts) == hash(plain)
    assert repr(texts) == repr(plain)
    assert texts[1:-1] == plain[1:-1]
    assert [texts[np.int64(place)] for place in range(-len(plain), len(plain))] == [*plain, *plain]
    assert pickle.loads(pickle.dumps(texts)) == texts
    as_arrow(texts).validate(full=True)
    assert as_arrow(texts).to_pylist() == entries


@given(ENTRIES, st.integers(0, 3))
def test_arrow_arrays_are_read_from_where_they_begin(entries: list[str | None], first: int) -> None:
    array = pa.array(entries, pa.string())[first:]
    assert from_arrow(array) == tuple(entries[first:])


def test_what_differs_is_not_equal() -> None:
    assert Texts.of(("ab", "c")) != Texts.of(("a", "bc"))
    assert Texts.of(("ab", "c")) != ("ab",)
    assert Texts.of((None,)) != Texts.of(("",))
    assert Texts.of(("a",)) != ["a"]
    with pytest.raises(IndexError):
        Texts.of(("a",))[1]


def test_paths_of_some_regions_in_any_order_are_theirs() -> None:
    tree = Hierarchy.from_paths([("r/", a, b) for a in "xy" for b in ("1", "\\2")])
    whole = tree.paths
    assert whole == ("r\\/", "r\\//x", "r\\//y", "r\\//x/1", "r\\//x/\\\\2", "r\\//y/1", "r\\//y/\\\\2")
    assert list(whole.some([6, 3, 0, 4])) == [whole[6], whole[3], whole[0], whole[4]]
    assert [tree.path(region) for region in range(tree.regions)] == list(whole)


@given(entries=ENTRIES, places=st.lists(st.integers(-1, 40), max_size=30), at_once=st.integers(1, 5))
def test_texts_are_taken_and_joined_by_their_bytes(entries: list[str | None], places: list[int], at_once: int) -> None:
    texts = Texts.of(entries)
    chosen = [place if place < len(entries) else -1 for place in places]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(texts_module, "_AT_ONCE", at_once)
        taken = texts.taken(np.array(chosen, np.int64))
        plain = [entry for entry in entries if entry is not None]
        assert texts.printable is all(entry and entry.isprintable() for entry in entries)
        assert texts.digits is (
            bool(entries) and all(entry and entry.isascii() and entry.isdigit() for entry in entries)
        )
        assert Texts.of(plain).printable is all(entry and entry.isprintable() for entry in plain)
    assert taken == Texts.of(None if place < 0 else entries[place] for place in chosen)
    assert Texts.joined([texts, taken, texts]) == Texts.of([*texts, *taken, *texts])


@pytest.mark.parametrize("at_once", [2, 100])
def test_last_names_are_what_paths_add_to_their_parents(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts_module, "_AT_ONCE", at_once)
    tree = Hierarchy.from_paths([("land", a, b) for a in ("north", "s\u00fcd") for b in ("1", "22", "333")])
    paths = list(tree.paths)
    assert Texts.of(paths).last_names(tree.parent) == tree.names
    for place, wrong in (
        (3, "land/nortH/1"),
        (3, "land/north/"),
        (3, "land/north/1/2"),
        (3, "land/north-1"),
        (2, "s\u00fcd"),
    ):
        changed = [wrong if row == place else path for row, path in enumerate(paths)]
        assert Texts.of(changed).last_names(tree.parent) is None
