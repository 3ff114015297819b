"""Schemas: cells in C order, readable rules, errors that name what is near and never a private value; private runs."""

from __future__ import annotations

import pickle
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coco_opt.errors import InputError
from coco_opt.histograms import Hierarchy
from coco_opt.operators import identity
from coco_opt.topdown import Schema, ValueGroups, parse_query
from coco_opt.topdown.measuring.counts import MAX_PEOPLE, TableCounts

ATTRIBUTES = {
    "age": ("under_18", "18_64", "over_64"),
    "residence": ("household", "college", "military"),
    "hispanic": ("no", "yes"),
}
RULE = "age = under_18 & residence = military | college"
HIERARCHY = Hierarchy.from_paths([("r", f"p{leaf // 3}", f"l{leaf}") for leaf in range(8)])


def code_of(make: Any, *args: Any, **more: Any) -> str:
    with pytest.raises(InputError) as caught:
        make(*args, **more)
    return caught.value.code


def test_cells_are_in_c_order_and_rules_forbid_what_they_say() -> None:
    schema = Schema(ATTRIBUTES, [RULE])
    cells = list(product(*ATTRIBUTES.values()))
    allowed = [cell for cell in cells if not (cell[0] == "under_18" and cell[1] in ("military", "college"))]
    assert (schema.cells, schema.size) == (18, 14)
    assert [cells[cell] for cell in schema.allowed] == allowed
    assert schema.labels() == [f"age = {a}, residence = {r}, hispanic = {h}" for a, r, h in allowed]
    assert schema.position[schema.allowed].tolist() == list(range(14))


@settings(max_examples=40)
@given(st.data())
def test_rules_agree_with_a_reading_cell_by_cell(data: st.DataObject) -> None:
    texts, expected = [], np.ones((3, 3, 2), bool)
    for _ in range(data.draw(st.integers(0, 3))):
        forbidden = np.ones((3, 3, 2), bool)
        parts = []
        for axis, (name, values) in enumerate(ATTRIBUTES.items()):
            chosen = data.draw(st.none() | st.sets(st.sampled_from(values), min_size=1))
            if chosen is None:
                continue
            differs = data.draw(st.booleans())
            parts.append(f"{name} {'!=' if differs else '='} {'|'.join(sorted(chosen))}")
            meets = np.array([(value in chosen) != differs for value in values])
            forbidden &= meets.reshape([-1 if k == axis else 1 for k in range(3)])
        if parts:
            texts.append(" & ".join(parts))
            expected &= ~forbidden
    if expected.any():
        assert np.array_equal(Schema(ATTRIBUTES, texts).allowed, np.flatnonzero(expected))
    else:
        assert code_of(Schema, ATTRIBUTES, texts) == "no-cells"


@pytest.mark.parametrize(
    ("rule", "code", "said"),
    [
        ("age = under_18 & residense = military", "unknown-attribute", "did you mean 'residence'"),
        ("age = under_81", "unknown-value", "did you mean 'under_18'"),
        ("age = zzz", "unknown-value", "use one of 'under_18', '18_64', 'over_64'"),
        ("age under_18", "bad-rule", "a rule reads"),
        ("age = ", "bad-rule", "a rule reads"),
        ("age = no = yes", "bad-rule", "a rule reads"),
        ("", "bad-rule", "a rule reads"),
        ("age = under_18 & age = over_64", "bad-rule", "one condition"),
        ("age = over_64..under_18", "bad-range", "ends before"),
        ("age != zzz..", "unknown-value", "value of 'age'"),
    ],
)
def test_rules_that_cannot_be_read_name_themselves_and_the_nearest(rule: str, code: str, said: str) -> None:
    with pytest.raises(InputError, match="\\[" + code) as caught:
        Schema(ATTRIBUTES, [rule])
    assert said in str(caught.value)
    assert repr(rule) in str(caught.value)


@pytest.mark.parametrize(
    ("attributes", "code"),
    [
        ({}, "bad-schema"),
        ({"a": []}, "bad-schema"),
        ({"a": ["x", "x"]}, "bad-schema"),
        ({"a": ["x|y"]}, "bad-name"),
        ({"a": ["1..2"]}, "bad-name"),
        ({" a": ["x"]}, "bad-name"),
        ({"a*b": ["x"]}, "bad-name"),
        ({"total": ["x"]}, "bad-name"),
        ({"a": [3]}, "bad-name"),
        ({f"a{k}": ["x", "y"] for k in range(28)}, "bad-schema"),
    ],
)
def test_schemas_that_cannot_be_used_are_refused(attributes: dict[str, list[str]], code: str) -> None:
    assert code_of(Schema, attributes) == code


@pytest.mark.parametrize(
    ("grouping", "code"),
    [
        (ValueGroups("agee", {"g": "..18_64"}), "unknown-attribute"),
        (ValueGroups("age", {"g": "..65"}), "unknown-value"),
        (ValueGroups("age", {"g": "..18_64", "h": "18_64.."}), "bad-schema"),
        (ValueGroups("age", {}), "bad-schema"),
        (ValueGroups("age", {"g*": "over_64"}), "bad-name"),
    ],
)
def test_groupings_that_cannot_be_used_are_refused(grouping: ValueGroups, code: str) -> None:
    assert code_of(Schema, ATTRIBUTES, (), {"adult": grouping}) == code


def test_a_grouping_may_not_hide_an_attribute() -> None:
    grouping = ValueGroups("age", {"g": "over_64"})
    assert code_of(Schema, ATTRIBUTES, (), {"hispanic": grouping}) == "bad-schema"
    assert code_of(Schema, ATTRIBUTES, (), {"detail": grouping}) == "bad-name"


def test_encoding_turns_back() -> None:
    schema = Schema(ATTRIBUTES, [RULE])
    cells = np.arange(schema.size)
    assert np.array_equal(schema.encode(schema.decode(cells)), cells)
    assert code_of(schema.encode, {"age": [1, 0], "residence": [2, 2], "hispanic": [0, 1]}) == "structural-zero"


# The private runs ---------------------------------------------------------------------------------------------------


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.integers(0, 60))
def test_runs_agree_with_dense_tables_at_every_level(seed: int, records: int) -> None:
    rng = np.random.default_rng(seed)
    schema = Schema(ATTRIBUTES, [RULE])
    leaf, cell = rng.integers(0, 8, records), rng.integers(0, schema.size, records)
    people = rng.integers(0, 4, records)
    dense = np.zeros((8, schema.size), np.int64)
    np.add.at(dense, (leaf, cell), people)
    counts = TableCounts.from_microdata(HIERARCHY, schema, leaf, cell, people)
    again = TableCounts.from_counts(HIERARCHY, schema, dense)
    assert all(np.array_equal(getattr(counts, n), getattr(again, n)) for n in ("offsets", "cells", "counts"))
    tables = HIERARCHY.aggregate(dense)
    query = parse_query("age * hispanic", schema)
    ranges = parse_query("cumulative(age)", schema)
    for level in range(3):
        regions = HIERARCHY.level_range(level)
        assert np.array_equal(counts.level_tables(level), tables[regions.start : regions.stop])
        for measurement_plan in (query, ranges):
            answers = counts.answers_to(measurement_plan.operator, regions)
            assert np.array_equal(answers, measurement_plan.operator.apply(tables[regions.start : regions.stop]))
    for parent in range(4):
        children = HIERARCHY.children(parent)
        assert np.array_equal(counts.tables_of(children), tables[children.start : children.stop])


def test_records_without_counts_are_one_person_each() -> None:
    counts = TableCounts.from_microdata(HIERARCHY, Schema({"a": ["x", "y"]}), [3, 3, 0], [1, 1, 0])
    assert counts.tables_of(range(1)).tolist() == [[1, 2]]
    assert counts.counts.tolist() == [1, 2]


def test_private_runs_show_no_count() -> None:
    counts = TableCounts.from_microdata(HIERARCHY, Schema({"a": ["x", "y"]}), [3], [1], [12345])
    assert "12345" not in repr(counts)
    assert "private" in repr(counts)
    assert pickle.loads(pickle.dumps(counts)).level_tables(0).tolist() == [[0, 12345]]


@pytest.mark.parametrize(
    ("leaves", "cells", "people", "code"),
    [
        ([0], [0, 1], None, "bad-shape"),
        ([8], [0], None, "unknown-leaf"),
        ([-1], [0], None, "unknown-leaf"),
        ([0], [2], None, "unknown-cell"),
        ([0], [0], [-1], "negative-count"),
        ([0, 1], [0, 0], [MAX_PEOPLE, 1], "too-many-people"),
        ([0, 0, 0], [0, 0, 0], [2**62, 2**62, 2**62], "too-many-people"),
    ],
)
def test_records_that_do_not_fit_are_refused(leaves: list[int], cells: list[int], people: Any, code: str) -> None:
    schema = Schema({"a": ["x", "y"]})
    assert code_of(TableCounts.from_microdata, HIERARCHY, schema, leaves, cells, people) == code


def test_dense_tables_and_runs_that_do_not_fit_are_refused() -> None:
    schema = Schema({"a": ["x", "y"]})
    assert code_of(TableCounts.from_counts, HIERARCHY, schema, np.zeros((8, 3), np.int64)) == "bad-shape"
    assert code_of(TableCounts.from_counts, HIERARCHY, schema, np.full((8, 2), -1)) == "negative-count"
    ends = [0, 2, 2, 2, 2, 2, 2, 2, 2]
    assert code_of(TableCounts, HIERARCHY, schema, ends[:-1], [0, 1], [1, 1]) == "bad-shape"
    assert code_of(TableCounts, HIERARCHY, schema, [0, 3, *ends[2:]], [0, 1], [1, 1]) == "bad-runs"
    assert code_of(TableCounts, HIERARCHY, schema, ends, [1, 0], [1, 1]) == "bad-runs"
    assert code_of(TableCounts, HIERARCHY, schema, ends, [0, 0], [1, 1]) == "bad-runs"
    assert code_of(TableCounts, HIERARCHY, schema, ends, [0, 2], [1, 1]) == "bad-runs"
    assert code_of(TableCounts, HIERARCHY, schema, ends, [0, 1], [1, 0]) == "nonpositive-count"
    counts = TableCounts(HIERARCHY, schema, [0, 1, *ends[2:]], [1, 0], [1, 1])  # a new leaf may begin lower
    assert code_of(counts.tables_of, range(2)) == "unknown-region"
    assert code_of(counts.tables_of, range(1, 1)) == "unknown-region"
    assert code_of(counts.answers_to, identity(3), range(1)) == "bad-shape"
