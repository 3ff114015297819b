"""Sealed measurements of tables: what was measured comes back bit for bit, and damage never does."""

from __future__ import annotations

import stat
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from coco_opt.errors import InputError
from coco_opt.histograms import Hierarchy
from coco_opt.privacy import Neighbours, SeededNoise
from coco_opt.privacy.mechanism import Mechanism
from coco_opt.privacy.sealed_file import write_sealed
from coco_opt.topdown.bounds import UNBOUNDED
from coco_opt.topdown.counts import TableCounts
from coco_opt.topdown.invariants import Invariant, RegionBounds
from coco_opt.topdown.measure import measure_tables
from coco_opt.topdown.measurements import TableMeasurements
from coco_opt.topdown.plain import plain_schema, schema_of
from coco_opt.topdown.plan import TablePlan
from coco_opt.topdown.queries import parse_queries, parse_query
from coco_opt.topdown.release import estimate_tables, linear_estimates
from coco_opt.topdown.schema import Schema, ValueGroups
from coco_opt.topdown.seal import seal_tables, unseal_tables

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


def measured(law: Mechanism = "geometric", neighbours: Neighbours = "replace") -> TableMeasurements:
    lower, upper = np.zeros((2, 2), np.int64), np.full((2, 2), UNBOUNDED)
    upper[0, 1] = 90
    query = parse_query("voting", SCHEMA, "voters")
    exact = [Invariant(parse_query("voting", SCHEMA), 1)] if neighbours == "replace" else []
    return measure_tables(
        TableCounts.from_counts(TREE, SCHEMA, TABLES),
        TablePlan(parse_queries(QUERIES, SCHEMA), AMOUNTS, law, neighbours),
        source=SeededNoise(4),
        invariants=exact,
        bounds=[RegionBounds(query, 1, lower, upper)],
    )


def assert_same(one: TableMeasurements, two: TableMeasurements) -> None:
    assert one.hierarchy.paths == two.hierarchy.paths
    assert one.hierarchy.parent.tolist() == two.hierarchy.parent.tolist()
    assert list(one.schema.attributes.items()) == list(two.schema.attributes.items())
    assert one.schema.allowed.tolist() == two.schema.allowed.tolist()
    assert [(query.name, query.text, query.labels()) for query in one.queries] == [
        (query.name, query.text, query.labels()) for query in two.queries
    ]
    assert (one.amounts, one.mechanism, one.neighbours) == (two.amounts, two.mechanism, two.neighbours)
    assert (one.noise, one.private) == (two.noise, two.private)
    for level in range(3):
        for first, second in zip(one.answers[level], two.answers[level], strict=True):
            assert (first is None) == (second is None)
            assert first is None or second is None or np.array_equal(first, second)
    facts, others = one.invariants, two.invariants
    assert [(fact.query.name, fact.level) for fact in facts.declared] == [
        (fact.query.name, fact.level) for fact in others.declared
    ]
    for bound, other in zip(facts.bounds, others.bounds, strict=True):
        assert (bound.query.labels(), bound.level) == (other.query.labels(), other.level)
        assert bound.lower.tolist() == other.lower.tolist()
        assert bound.upper.tolist() == other.upper.tolist()


@pytest.mark.parametrize("neighbours", ["add_remove", "replace"])
@pytest.mark.parametrize("law", ["geometric", "discrete_gaussian"])
def test_what_is_sealed_comes_back_bit_for_bit(tmp_path: Path, law: Mechanism, neighbours: Neighbours) -> None:
    original = measured(law, neighbours)
    digest = seal_tables(original, tmp_path / "sealed")
    assert stat.S_IMODE((tmp_path / "sealed").stat().st_mode) == 0o600
    found, again = unseal_tables(tmp_path / "sealed", digest)
    assert again == digest
    assert_same(original, found)
    assert seal_tables(found, tmp_path / "twice") == digest


def test_every_operator_of_the_unsealed_measurements_is_the_one_that_measured(tmp_path: Path) -> None:
    original = measured()
    seal_tables(original, tmp_path / "sealed")
    found, _ = unseal_tables(tmp_path / "sealed")
    for query, other in zip(original.queries, found.queries, strict=True):
        assert query.operator.apply(TABLES).tolist() == other.operator.apply(TABLES).tolist()


def test_estimates_from_a_seal_are_those_from_memory(tmp_path: Path) -> None:
    original = measured()
    seal_tables(original, tmp_path / "sealed")
    found, _ = unseal_tables(tmp_path / "sealed")
    one, two = estimate_tables(original), estimate_tables(found)
    for level in range(3):
        assert one.level(level).tolist() == two.level(level).tolist()
        assert np.array_equal(linear_estimates(original).tables(level), linear_estimates(found).tables(level))


def test_any_changed_byte_is_noticed(tmp_path: Path) -> None:
    digest = seal_tables(measured(), tmp_path / "sealed")
    content = (tmp_path / "sealed").read_bytes()
    places = np.random.default_rng(1).integers(0, len(content), 60).tolist()
    for place in [0, len(content) - 1, *places]:
        damaged = bytearray(content)
        damaged[place] ^= 1
        (tmp_path / "damaged").write_bytes(damaged)
        with pytest.raises(InputError, match="damaged-seal"):
            unseal_tables(tmp_path / "damaged", digest)
        with pytest.raises(InputError, match="damaged-seal"):
            unseal_tables(tmp_path / "damaged")


@pytest.mark.parametrize("kept", [0, 10, 31, 32, 33, 200, -1])
def test_a_truncated_seal_is_noticed(tmp_path: Path, kept: int) -> None:
    seal_tables(measured(), tmp_path / "sealed")
    (tmp_path / "cut").write_bytes((tmp_path / "sealed").read_bytes()[:kept])
    with pytest.raises(InputError, match="damaged-seal"):
        unseal_tables(tmp_path / "cut")


def test_another_seal_or_another_kind_of_file_is_refused(tmp_path: Path) -> None:
    digest = seal_tables(measured(), tmp_path / "one")
    seal_tables(measured("discrete_gaussian"), tmp_path / "two")
    with pytest.raises(InputError, match="damaged-seal"):
        unseal_tables(tmp_path / "two", digest)
    write_sealed(tmp_path / "other", "coco-opt sealed measurements 1", {}, [])
    with pytest.raises(InputError, match="damaged-seal"):
        unseal_tables(tmp_path / "other")
    with pytest.raises(InputError, match="file-not-found"):
        unseal_tables(tmp_path / "none")
    with pytest.raises(InputError, match="file-exists"):
        seal_tables(measured(), tmp_path / "one")


def test_a_schema_survives_a_store_that_sorts_its_keys() -> None:
    import json

    found = schema_of(json.loads(json.dumps(plain_schema(SCHEMA), sort_keys=True)))
    assert list(found.attributes.items()) == list(SCHEMA.attributes.items())
    assert list(found.groupings["voting"].groups) == ["voter", "minor"]
    assert found.group_labels["voting"][1].tolist() == SCHEMA.group_labels["voting"][1].tolist()


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
