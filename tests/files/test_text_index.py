"""Places of names in a long list, and texts at some places as Arrow arrays: those of a dictionary and of sequences."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from coco_opt.files.arrow_texts import OrderedNames, arrow_texts_at, distinct
from coco_opt.histograms import Hierarchy
from coco_opt.histograms.texts import Texts

TEXTS = st.lists(st.text(st.sampled_from("ab 1é"), max_size=45), unique=True, min_size=1, max_size=30)


def strings(texts: list[str]) -> pa.Array:
    return pa.array(texts, pa.string())


@given(texts=TEXTS, asked=st.lists(st.lists(st.integers(0, 31), max_size=6), max_size=8))
def test_names_are_found_in_any_order(texts: list[str], asked: list[list[int]]) -> None:
    names = OrderedNames(strings(texts))
    for some in asked:
        row = [texts[k] if k < len(texts) else f"other {k}" for k in some]
        expected = [k if k < len(texts) else -2 for k in some]
        assert names.places(strings(row)).tolist() == [*expected, -1]


names = st.text(st.sampled_from("ab/\\é"), min_size=1, max_size=3)
places = st.sets(st.integers(0, 39), max_size=12)


@given(st.lists(st.tuples(names, names), min_size=1, max_size=20, unique=True), places)
def test_paths_are_those_of_the_hierarchy(pairs: list[tuple[str, str]], some: set[int]) -> None:
    tree = Hierarchy.from_paths([("land", *pair) for pair in pairs])
    regions = np.array(sorted(place for place in some if place < tree.regions), np.int64)
    assert arrow_texts_at(tree.paths, regions).to_pylist() == [tree.path(region) for region in regions.tolist()]


@given(st.lists(st.one_of(st.none(), names), min_size=40, max_size=40), places)
def test_texts_are_those_of_the_list(texts: list[str | None], some: set[int]) -> None:
    chosen = np.array(sorted(some), np.int64)
    for sequence in (Texts.of(texts), tuple(texts)):
        assert arrow_texts_at(sequence, chosen).to_pylist() == [texts[place] for place in chosen.tolist()]


@given(st.lists(st.integers(0, 99), max_size=30))
def test_distinct_numbers_rise_and_say_where_each_is(numbers: list[int]) -> None:
    for array in (np.array(numbers, np.int64), np.sort(np.array(numbers, np.int64))):
        values, place = distinct(array)
        assert values.tolist() == sorted(set(numbers))
        np.testing.assert_array_equal(values[place], array)
