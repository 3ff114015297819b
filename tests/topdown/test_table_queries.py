"""Schemas and the public half of a measurement: cells in C order, readable rules, only what is asked; private runs."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coco_opt import Hierarchy, parse_queries
from coco_opt.errors import InputError
from coco_opt.operators import identity
from coco_opt.privacy import Cost, Epsilon, Neighbours, Rho
from coco_opt.topdown import (
    UNBOUNDED,
    Invariant,
    RegionBounds,
    Schema,
    Strategy,
    TablePlan,
    TableQueries,
    ValueGroups,
    parse_query,
)
from coco_opt.topdown.measuring.counts import MAX_PEOPLE, TableCounts
from coco_opt.topdown.schema import plain_schema, schema_of

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


# Names in an order that is not the alphabet's: the order of attributes, values and groups is that of the answers.
ORDERED = Schema(
    {"sex": ("male", "female"), "age": ("old", "adult", "child"), "état": ("≥ 1", 'a "b"', "0")},
    ("sex = male & age = old",),
    {"voting": ValueGroups("age", {"voter": "old | adult", "minor": ["child"]})},
)
TREE = Hierarchy.from_paths([("land ß", "b", "y"), ("land ß", "b", "x"), ("land ß", "a", "z")])
TABLES = np.random.default_rng(2).integers(0, 9, (3, ORDERED.size))
QUERIES = ("total", "voting * sex", "cumulative(age)", "sex[female, male]", "detail")
AMOUNTS = (
    (Fraction(1, 3), Fraction(0), Fraction(1, 7), Fraction(0), Fraction(0)),
    (Fraction(0), Fraction(2), Fraction(0), Fraction(1, 9), Fraction(0)),
    (Fraction(1), Fraction(1), Fraction(0), Fraction(0), Fraction(10**30 + 1, 10**30)),
)


def table_queries(
    unit: type[Cost] = Epsilon, neighbours: Neighbours = "replace", schema: Schema = ORDERED
) -> TableQueries:
    lower, upper = np.zeros((2, 2), np.int64), np.full((2, 2), UNBOUNDED)
    upper[0, 1] = 90
    costs = tuple(tuple(unit(amount) for amount in level) for level in AMOUNTS)
    exact = (Invariant(parse_query("voting", schema), 1),) if neighbours == "replace" else ()
    bounds = (RegionBounds(parse_query("voting", schema, "voters"), 1, lower, upper),)
    return TableQueries(TREE, schema, TablePlan(parse_queries(QUERIES, schema), costs, neighbours), exact, bounds)


@pytest.mark.parametrize("neighbours", ["add_remove", "replace"])
@pytest.mark.parametrize("unit", [Epsilon, Rho])
def test_what_is_asked_comes_back_from_the_public_half(unit: type[Cost], neighbours: Neighbours) -> None:
    first = table_queries(unit, neighbours)
    measurement_plan = first.measurement_plan(("nation", "state", "town"))
    second = TableQueries.of(
        replace(measurement_plan, parameters=json.loads(json.dumps(measurement_plan.parameters, sort_keys=True)))
    )
    assert list(second.schema.attributes.items()) == list(ORDERED.attributes.items())
    assert second.schema.allowed.tolist() == ORDERED.allowed.tolist()
    assert (second.plan.costs, second.plan.neighbours) == (first.plan.costs, neighbours)
    for query, other in zip(first.plan.queries, second.plan.queries, strict=True):
        assert (query.name, query.text, query.labels()) == (other.name, other.text, other.labels())
        assert query.operator.apply(TABLES).tolist() == other.operator.apply(TABLES).tolist()
    assert [(constraint.query.text, constraint.level) for constraint in first.invariants] == [
        (constraint.query.text, constraint.level) for constraint in second.invariants
    ]
    (bound,), (other_bound,) = first.bounds, second.bounds
    assert (bound.query.name, bound.query.labels()) == (other_bound.query.name, other_bound.query.labels())
    assert bound.lower.tolist() == other_bound.lower.tolist()
    assert bound.upper.tolist() == other_bound.upper.tolist()
    assert second.measurement_plan().digest == measurement_plan.digest
    assert measurement_plan.cost == unit(sum((sum(level, Fraction(0)) for level in AMOUNTS), Fraction(0)))


def test_any_other_question_has_another_digest() -> None:
    measurement_plan = table_queries().measurement_plan()
    (bound,) = table_queries().bounds
    tighter = RegionBounds(bound.query, 1, bound.lower, np.minimum(bound.upper, 80))
    variants = [
        table_queries(Rho),
        table_queries(neighbours="add_remove"),
        replace(table_queries(), invariants=()),
        replace(table_queries(), bounds=(tighter,)),
        replace(table_queries(), bounds=()),
    ]
    assert len({measurement_plan.digest, *(variant.measurement_plan().digest for variant in variants)}) == 6


def test_names_of_levels_and_groupings_that_nobody_asks_for_change_no_question() -> None:
    more = Schema(
        ORDERED.attributes,
        ORDERED.structural_zeros,
        {**ORDERED.groupings, "state": ValueGroups("état", {"all": "≥ 1.."})},
    )
    measurement_plan = table_queries().measurement_plan()
    assert (
        table_queries(schema=more).measurement_plan(("a", "b", "c"), ("x",) * TREE.regions).digest
        == measurement_plan.digest
    )
    assert [name for name, _, _ in measurement_plan.parameters["schema"]["groupings"]] == ["voting"]


def test_a_lower_bound_where_nobody_can_be_is_refused() -> None:
    schema = Schema({"a": ("x", "y", "z")}, ("a = z",))
    overlapping = parse_query("a[x, x..y, z]", schema)
    plan = TablePlan.product(Strategy.identity(schema), Epsilon(Fraction(1)), 3)
    lower = np.zeros((3, 3), np.int64)
    lower[1, 2] = 1
    bound = RegionBounds(overlapping, 2, lower, np.full((3, 3), UNBOUNDED))
    with pytest.raises(InputError, match=r"structural zeros leave it no cell.*inconsistent-bounds"):
        TableQueries(TREE, schema, plan, bounds=(bound,))


def test_a_schema_survives_a_store_that_sorts_its_keys() -> None:
    schema = schema_of(json.loads(json.dumps(plain_schema(ORDERED), sort_keys=True)))
    assert list(schema.attributes.items()) == list(ORDERED.attributes.items())
    assert list(schema.groupings["voting"].groups) == ["voter", "minor"]
    assert schema.group_labels["voting"][1].tolist() == ORDERED.group_labels["voting"][1].tolist()


GOOD = {"attributes": [["sex", ["f", "m"]]], "structural_zeros": [], "groupings": []}


@pytest.mark.parametrize(
    "plain",
    [
        {},
        {**GOOD, "attributes": 3},
        {**GOOD, "attributes": [["sex", 3]]},
        {**GOOD, "attributes": [["sex", "fm"]]},
        {**GOOD, "attributes": [["sex", [1, 2]]]},
        {**GOOD, "attributes": [[1, ["f"]]]},
        {**GOOD, "attributes": [["sex"]]},
        {**GOOD, "attributes": []},
        {**GOOD, "attributes": [["sex", ["f"]], ["sex", ["m"]]]},
        {**GOOD, "structural_zeros": [3]},
        {**GOOD, "structural_zeros": "sex = f"},
        {**GOOD, "groupings": 5},
        {**GOOD, "groupings": [["g", "sex"]]},
        {**GOOD, "groupings": [["g", "sex", [["all", [7]]]]]},
        {**GOOD, "groupings": [["g", 4, [["all", ["f"]]]]]},
        ["attributes"],
        None,
    ],
)
def test_a_schema_that_is_none_is_a_typed_error(plain: object) -> None:
    assert schema_of(GOOD).size == 2
    with pytest.raises(InputError):
        schema_of(plain)  # type: ignore[arg-type]
