"""Places of names in a long list: the same as a dictionary's, however the list is looked up."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coco_opt.files.arrow_texts import OrderedNames

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


def test_names_in_order_are_looked_for_nearby(monkeypatch: pytest.MonkeyPatch) -> None:
    """A list of a thousand names is compared in whole only where names lie far apart, not after a jump."""
    import pyarrow.compute as pc

    names = [f"r{k}" for k in range(1000)]
    listed, seen, index_in = OrderedNames(strings(names)), list[int](), pc.index_in

    def watched(texts: pa.Array, *, value_set: pa.Array) -> pa.Array:
        seen.append(len(value_set))
        return index_in(texts, value_set=value_set)

    monkeypatch.setattr(pc, "index_in", watched)
    for start in (500, 510, 519, 528):
        rows = listed.places(strings(names[start : start + 10]))
        np.testing.assert_array_equal(rows[:-1], np.arange(start, start + 10))
    assert seen == [40, 40, 40, 40, 40]
    assert listed.places(strings([names[999], names[0]])).tolist() == [999, 0, -1]
    assert seen[5:] == [8, 1, 4]
    scattered = [900, 700, 500, 300, 100, 800, 600, 400, 200, 0]
    assert listed.places(strings([names[k] for k in scattered])).tolist() == [*scattered, -1]
    assert max(seen[:-1]) < seen[-1] == 1000
