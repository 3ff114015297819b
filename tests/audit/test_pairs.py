"""The neighbours that each kind of release is audited on: one entity apart, and as far apart in answers as can be."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from coco_opt.errors import ProblemError
from coco_opt.groups.kind import GROUPS
from coco_opt.groups.kind.simulated_data import neighbouring, resized
from coco_opt.groups.measuring.measure import exact_parts, measurement_plan_of
from coco_opt.groups.measuring.private import PrivateCounts
from coco_opt.groups.queries import QUERIES, Query
from coco_opt.histograms import CountOfCounts, Hierarchy
from coco_opt.privacy import NEIGHBOURS, Epsilon, MeasurementPlan, Neighbours
from coco_opt.ranges.measuring.measure import cell_pair
from coco_opt.releases.kind import Neighbours as Pair
from coco_opt.topdown.budget_plan import Strategy, TablePlan
from coco_opt.topdown.invariants import Invariant
from coco_opt.topdown.kind.simulated_data import neighbouring as neighbouring_persons
from coco_opt.topdown.measuring.counts import TableCounts
from coco_opt.topdown.queries import parse_queries, parse_query
from coco_opt.topdown.schema import Schema
from coco_opt.topdown.table_queries import TableQueries

BOUND = 9
SCHEMA = Schema({"sex": ("female", "male"), "age": ("child", "adult", "old")}, ("sex = male & age = old",))
TREE = Hierarchy.from_paths([("all", "east", "a"), ("all", "east", "b"), ("all", "west", "c")])
LEAVES = np.array([[4, 0, 2, 0, 3], [0, 1, 0, 4, 0], [5, 0, 0, 0, 1]], np.int64)
PERSONS = TableCounts.from_counts(TREE, SCHEMA, LEAVES)
QUERY_TEXTS = ("total", "cumulative(age)", "sex * age")
CELLS = np.array([0, 5, 2, 0, 9, 1, 0, 3], np.int64)
sizes = st.lists(st.integers(0, 12), min_size=1, max_size=8)


def _groups(
    leaves: list[list[int]], neighbours: Neighbours, query: Query = "cumulative"
) -> tuple[Pair, MeasurementPlan]:
    tree = Hierarchy.from_paths([("all", f"leaf{k}") for k in range(len(leaves))])
    table = PrivateCounts.of_leaves(tree, [CountOfCounts.from_ranks(leaf) for leaf in leaves])
    costs = (Epsilon(Fraction(1, 2)),) * 2
    measurement_plan = measurement_plan_of(
        tree, table.group_counts, queries=(query, query), costs=costs, max_size=BOUND, neighbours=neighbours
    )
    return neighbouring(table, measurement_plan), measurement_plan


@given(st.lists(sizes, min_size=1, max_size=3), st.sampled_from(NEIGHBOURS), st.sampled_from(QUERIES))
def test_groups_differ_by_one_entity_and_at_most_the_sensitivity(
    leaves: list[list[int]], neighbours: Neighbours, query: Query
) -> None:
    assume(any(size < BOUND for leaf in leaves for size in leaf))
    assume(neighbours == "add_remove" or sum(size > 0 for leaf in leaves for size in leaf) > 1)
    pair, measurement_plan = _groups(leaves, neighbours, query)
    entities = [table.region(0).entities for table in (pair.first, pair.second)]
    assert entities[1] - entities[0] == (1 if neighbours == "add_remove" else 0)
    assert pair.first.group_counts.tolist() == pair.second.group_counts.tolist()
    parts = zip(
        *(exact_parts(measurement_plan, table.histograms()) for table in (pair.first, pair.second)), strict=True
    )
    moved = {0: 0, 1: 0}
    for one, two in parts:
        moved[one.query.level] += int(np.abs(one.values - two.values).sum())
    assert all(0 <= distance <= measurement_plan.queries[0].sensitivity.l1 for distance in moved.values())  # type: ignore[union-attr]
    assert sum(moved.values()) > 0


def test_no_pair_without_a_group_that_can_change() -> None:
    with pytest.raises(ProblemError, match="smaller than max_size"):
        _groups([[9, 11]], "add_remove")
    with pytest.raises(ProblemError, match="to give"):
        _groups([[0, 3]], "replace")
    with pytest.raises(ProblemError, match="no group of that size"):
        resized(CountOfCounts.from_ranks([1, 3]), 2, 3)


def test_residuals_of_groups_are_those_below_the_largest() -> None:
    pair, measurement_plan = _groups([[0, 1, 1, 4], [0, 0, 1, 2, 2]], "add_remove")
    counts = GROUPS.statistics(measurement_plan, pair.first)
    assert set(counts) == set(measurement_plan.levels)
    leaves = np.ma.masked_array(counts[measurement_plan.levels[1]]).reshape(2, BOUND)
    assert leaves.data[0].tolist() == [1, 3, 3, 3, 4, 4, 4, 4, 4]
    assert (~np.ma.getmaskarray(leaves)).sum(axis=1).tolist() == [4, 2]


def test_cells_differ_by_one_entity() -> None:
    added, moved = (cell_pair(CELLS, neighbours) for neighbours in NEIGHBOURS)
    assert (added.second - added.first).tolist() == [0, 0, 0, 0, 1, 0, 0, 0]
    assert added.what == "one entity added to a cell of 9"
    assert (moved.second - moved.first).tolist() == [0, -1, 0, 0, 1, 0, 0, 0]
    assert moved.what == "one entity added to a cell of 9, taken from a cell of 5"
    assert CELLS[4] == 9


def test_no_pair_without_cells_or_someone_to_give() -> None:
    with pytest.raises(ProblemError, match="at least one cell"):
        cell_pair([])
    with pytest.raises(ProblemError, match="to give"):
        cell_pair([0, 4, 0], "replace")


def _persons(
    neighbours: Neighbours, queries: tuple[str, ...] = QUERY_TEXTS, invariants: tuple[Invariant, ...] = ()
) -> tuple[Pair, TableQueries]:
    plan = TablePlan.product(
        Strategy.uniform(parse_queries(queries, SCHEMA)), Epsilon(Fraction(1)), 3, neighbours=neighbours
    )
    table_queries = TableQueries(TREE, SCHEMA, plan, invariants)
    return neighbouring_persons(PERSONS, table_queries), table_queries


def _change(pair: Pair, level: int) -> np.ndarray:
    change: np.ndarray = pair.second.level_tables(level) - pair.first.level_tables(level)
    return change


def _distance(pair: Pair, text: str, level: int) -> int:
    operator = parse_query(text, SCHEMA).operator
    one, two = (operator.apply(table.level_tables(level)) for table in (pair.first, pair.second))
    return int(np.abs(one - two).sum())


@pytest.mark.parametrize("neighbours", NEIGHBOURS)
def test_persons_differ_by_one_and_as_much_as_the_sensitivity_allows(neighbours: Neighbours) -> None:
    pair, queries = _persons(neighbours)
    change = _change(pair, 2)
    assert sorted(change[change != 0].tolist()) == ([1] if neighbours == "add_remove" else [-1, 1])
    for query in queries.plan.queries:
        assert _distance(pair, query.text, 2) == query.sensitivity(neighbours).l1
    changed = [int(np.count_nonzero(_change(pair, level).any(axis=1))) for level in range(3)]
    assert changed == ([1, 1, 1] if neighbours == "add_remove" else [1, 2, 2])
    assert "'all/east/a', sex = " in pair.words


def test_a_replaced_person_keeps_what_is_exact() -> None:
    exact = (Invariant(parse_query("total", SCHEMA), 1), Invariant(parse_query("sex", SCHEMA), 2))
    pair, _ = _persons("replace", invariants=exact)
    assert _distance(pair, "total", 1) == _distance(pair, "sex", 2) == 0
    assert _distance(pair, "age", 2) == 2
    within_a_region, _ = _persons("replace", invariants=(Invariant(parse_query("total", SCHEMA), 1),))
    assert np.flatnonzero(_change(within_a_region, 2).any(axis=1)).tolist() == [0, 1]


def test_no_pair_of_persons_where_everything_is_exact() -> None:
    with pytest.raises(ProblemError, match="nothing to audit"):
        _persons("replace", invariants=(Invariant(parse_query("detail", SCHEMA), 2),))
