"""What readers rest on: a connection to users' files and nothing else, texts and their places as Arrow arrays."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coco_opt.errors import InputError
from coco_opt.files.arrow_texts import OrderedNames, arrow_texts_at, distinct
from coco_opt.files.foreign_errors import quietly
from coco_opt.files.inputs import Columns, Input
from coco_opt.files.source import isolated, load
from coco_opt.histograms import Hierarchy
from coco_opt.histograms.texts import Texts
from tests.files.helpers import Write


def test_the_connection_reads_its_files_only_and_never_writes(write: Write, tmp_path: Path) -> None:
    allowed, other = write("a.csv", "x\n1\n"), write("b.csv", "x\n2\n")
    with isolated([Input(allowed)]) as con:
        assert con.execute("SELECT * FROM read_csv(?)", [str(allowed)]).fetchall() == [(1,)]
        for query in (
            f"SELECT * FROM read_csv('{other}')",
            f"COPY (SELECT 1) TO '{tmp_path / 'out.csv'}'",
            "SET temp_directory = '/tmp'",
            "SET enable_external_access = true",
            "INSTALL httpfs",
        ):
            with pytest.raises(Exception, match=r"(?i)disabled|locked|not allowed|permission"):
                con.execute(query)
        assert con.execute("SELECT current_setting('temp_directory')").fetchone() == ("",)
    assert not (tmp_path / "out.csv").exists()


def test_an_interrupted_query_is_an_interrupt(tmp_path: Path) -> None:
    """DuckDB answers Ctrl-C by RuntimeError("Query interrupted")."""

    def interrupted() -> None:
        raise RuntimeError("Query interrupted")

    def broken() -> None:
        raise RuntimeError("something else")

    with pytest.raises(KeyboardInterrupt) as caught:
        quietly(tmp_path, interrupted)
    assert caught.value.__context__ is None
    with pytest.raises(RuntimeError, match="something else"):
        quietly(tmp_path, broken)
    with pytest.raises(KeyboardInterrupt), isolated([]):
        interrupted()
    with pytest.raises(RuntimeError, match="something else"), isolated([]):
        broken()


def test_all_rows_of_other_widths_are_named(write: Write) -> None:
    """Blank lines count as rows of the file, empty fields after the last column do no harm."""
    lines = ["a;b", "1;2", "", "1", "1;2;;", "1;2;x", *["1;2"] * 3, *["1"] * 12]
    source = Input(write("a.csv", "\n".join(lines) + "\n"))
    with isolated([source]) as con, pytest.raises(InputError, match="malformed-row") as caught:
        load(con, "t", source, Columns(first=("a", "b"), others=True))
    (entry,) = caught.value.bad_rows
    assert (entry["rows"], entry["count"]) == ([4, 6, *range(10, 18)], 14)


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
