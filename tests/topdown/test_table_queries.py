"""The public half of a measurement of tables: what is asked comes back from it, and only what is asked is in it."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from coco_opt.errors import InputError
from coco_opt.histograms import Hierarchy
from coco_opt.privacy import Cost, Epsilon, Neighbours, Rho
from coco_opt.topdown import UNBOUNDED, Invariant, RegionBounds, Strategy, TablePlan, TableQueries
from coco_opt.topdown.queries import parse_queries, parse_query
from coco_opt.topdown.schema import Schema, ValueGroups, plain_schema, schema_of

# Names in an order that is not the alphabet's: the order of attributes, values and groups is that of the answers.
SCHEMA = Schema(
    {"sex": ("male", "female"), "age": ("old", "adult", "child"), "état": ("≥ 1", 'a "b"', "0")},
    ("sex = male & age = old",),
    {"voting": ValueGroups("age", {"voter": "old | adult", "minor": ["child"]})},
)
TREE = Hierarchy.from_paths([("land ß", "b", "y"), ("land ß", "b", "x"), ("land ß", "a", "z")])
TABLES = np.random.default_rng(2).integers(0, 9, (3, SCHEMA.size))
QUERIES = ("total", "voting * sex", "cumulative(age)", "sex[female, male]", "detail")
AMOUNTS = (
    (Fraction(1, 3), Fraction(0), Fraction(1, 7), Fraction(0), Fraction(0)),
    (Fraction(0), Fraction(2), Fraction(0), Fraction(1, 9), Fraction(0)),
    (Fraction(1), Fraction(1), Fraction(0), Fraction(0), Fraction(10**30 + 1, 10**30)),
)


def table_queries(
    unit: type[Cost] = Epsilon, neighbours: Neighbours = "replace", schema: Schema = SCHEMA
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
    assert list(second.schema.attributes.items()) == list(SCHEMA.attributes.items())
    assert second.schema.allowed.tolist() == SCHEMA.allowed.tolist()
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
        SCHEMA.attributes, SCHEMA.structural_zeros, {**SCHEMA.groupings, "state": ValueGroups("état", {"all": "≥ 1.."})}
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
    schema = schema_of(json.loads(json.dumps(plain_schema(SCHEMA), sort_keys=True)))
    assert list(schema.attributes.items()) == list(SCHEMA.attributes.items())
    assert list(schema.groupings["voting"].groups) == ["voter", "minor"]
    assert schema.group_labels["voting"][1].tolist() == SCHEMA.group_labels["voting"][1].tolist()


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
