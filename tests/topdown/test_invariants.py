"""Public facts: implied bounds by sums against linear programs, the dorm example, contradictions named by region."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from coco_opt.errors import InputError, ProblemError
from coco_opt.histograms import Hierarchy
from coco_opt.topdown import UNBOUNDED, Query, RegionBounds, Schema, parse_query
from coco_opt.topdown.invariants import Invariant, Invariants, close

DORMS = Schema({"dorm": ("female", "coed", "male")})
TOWN = Hierarchy.from_paths([("town", "R1"), ("town", "R2")])
SCHEMA = Schema({"a": ("0", "1"), "b": ("0", "1", "2")})
HIERARCHY = Hierarchy.from_paths([("r", f"p{leaf // 2}", f"l{leaf}") for leaf in range(6)])


def limits(constraints: Invariants, level: int, query: Query) -> tuple[list[list[int]], list[list[int]]]:
    """Return the implied bounds of a query at a level by its rows' labels."""
    level_constraints = constraints.constraints_of(constraints.hierarchy.level_range(level))
    assert level_constraints is not None
    rows = [level_constraints.labels.index(f"{query.name}: {label}") for label in query.labels()]
    return level_constraints.lower[:, rows].tolist(), level_constraints.upper[:, rows].tolist()


def test_the_dorm_example_gives_the_necessary_and_sufficient_conditions() -> None:
    total, dorm = parse_query("total", DORMS), parse_query("dorm", DORMS)
    many = UNBOUNDED
    bounds = RegionBounds(dorm, 1, [[1, 1, 0], [0, 1, 1]], [[many, many, 0], [0, many, many]])
    invariants = Invariants(TOWN, DORMS, (RegionBounds.exact(total, 1, [[100], [100]]), bounds))
    assert limits(invariants, 0, total) == ([[200]], [[200]])
    # F >= 1, C >= 2, M >= 1, F <= 99 and, with F + C + M = 200, C + F >= 101 reads M <= 99.
    lower, upper = limits(invariants, 0, dorm)
    assert (lower, upper) == ([[1, 2, 1]], [[99, 198, 99]])
    constraints = invariants.constraints_of(range(1))
    assert constraints is not None
    assert constraints.broken_by(np.array([[49, 50, 101]])).any()
    assert not constraints.broken_by(np.array([[49, 52, 99]])).any()


@st.composite
def region_constraints(draw: st.DrawFn) -> tuple[list[RegionBounds], Any]:
    """Return bounds that some leaf tables satisfy, and those tables."""
    tables = np.array(draw(st.lists(st.lists(st.integers(0, 4), min_size=6, max_size=6), min_size=6, max_size=6)))
    level_tables = HIERARCHY.aggregate(tables.astype(np.int64))
    constraints = []
    for text in ("total", "a", "b", "detail"):
        query = parse_query(text, SCHEMA)
        for level in range(3):
            kind = draw(st.sampled_from(("none", "none", "exact", "bounds")))
            here = HIERARCHY.level_range(level)
            answers = query.operator.apply(level_tables[here.start : here.stop])
            if kind == "exact":
                constraints.append(RegionBounds.exact(query, level, answers))
            elif kind == "bounds":
                slack = np.array(draw(st.lists(st.integers(0, 3), min_size=answers.size, max_size=answers.size)))
                slack = slack.reshape(answers.shape)
                constraints.append(
                    RegionBounds(query, level, answers - slack, np.where(slack == 3, UNBOUNDED, answers + slack))
                )
    return constraints, level_tables


@settings(max_examples=60)
@given(region_constraints())
def test_implied_bounds_hold_for_every_table_and_name_no_row_without_one(case: tuple[list[RegionBounds], Any]) -> None:
    constraints, level_tables = case
    closed = Invariants(HIERARCHY, SCHEMA, tuple(constraints))
    assert bool(closed) == bool(constraints)
    for level in range(3):
        here = HIERARCHY.level_range(level)
        level_constraints = closed.constraints_of(here)
        if level_constraints is None:
            continue
        assert not level_constraints.broken_by(level_tables[here.start : here.stop]).any()
        assert level_constraints.operator.answers == len(level_constraints.labels) == level_constraints.lower.shape[1]
        assert ((level_constraints.lower > 0) | (level_constraints.upper < UNBOUNDED)).any(axis=0).all()
        part = closed.constraints_of(here[-1:])
        assert part is not None
        assert np.array_equal(part.lower, level_constraints.lower[-1:])
        assert np.array_equal(np.isinf(level_constraints.linear.upper), level_constraints.upper == UNBOUNDED)


@settings(max_examples=25)
@given(region_constraints(), st.integers(0, 10**6))
def test_bounds_of_nested_queries_are_as_tight_as_a_linear_program(
    case: tuple[list[RegionBounds], Any], seed: int
) -> None:
    constraints = tuple(
        bounds for bounds in case[0] if bounds.query.text in ("total", "a", "detail") and bounds.level == 1
    )
    if not constraints:
        return
    closed = Invariants(HIERARCHY, SCHEMA, constraints)
    region = int(np.random.default_rng(seed).integers(0, 3))
    start = HIERARCHY.level_range(1).start
    closed_constraints = closed.constraints_of(range(start + region, start + region + 1))
    if closed_constraints is None:
        return
    rows, sides = [], []
    for bounds in constraints:
        matrix = bounds.query.operator.to_sparse().toarray()
        finite = bounds.upper[region] < UNBOUNDED
        rows += [matrix[finite], -matrix]
        sides += [bounds.upper[region][finite], -bounds.lower[region]]
    for row, lower, upper in zip(
        closed_constraints.operator.to_sparse().toarray(),
        closed_constraints.lower[0],
        closed_constraints.upper[0],
        strict=True,
    ):
        low = linprog(row, np.vstack(rows), np.concatenate(sides))
        high = linprog(-row, np.vstack(rows), np.concatenate(sides))
        assert low.fun == pytest.approx(lower)
        assert high.status == 3 if upper == UNBOUNDED else -high.fun == pytest.approx(upper)


def test_regions_above_get_sums_and_regions_below_nothing() -> None:
    total = parse_query("total", SCHEMA)
    constraints = Invariants(
        HIERARCHY, SCHEMA, (RegionBounds.exact(total, 1, [[3], [0], [4]]),), (Invariant(total, 1),)
    )
    assert limits(constraints, 0, total) == ([[7]], [[7]])
    assert limits(constraints, 1, total) == ([[3], [0], [4]], [[3], [0], [4]])
    assert constraints.constraints_of(HIERARCHY.leaves) is None
    assert "total at level 1" in repr(constraints)


def test_two_facts_about_one_query_and_level_are_both_kept() -> None:
    total = parse_query("total", SCHEMA)
    first, second = RegionBounds(total, 0, [[3]], [[9]]), RegionBounds(total, 0, [[1]], [[7]])
    assert limits(Invariants(HIERARCHY, SCHEMA, (first, second)), 0, total) == ([[3]], [[7]])


def test_contradictions_name_region_and_query() -> None:
    total, a = parse_query("total", SCHEMA), parse_query("a", SCHEMA)
    children = RegionBounds(total, 2, [[2]] * 6, [[9]] * 6)
    parents = RegionBounds(total, 1, [[0]] * 3, [[9], [3], [9]])
    with pytest.raises(InputError, match=r"region 'r/p1'.*'total'.*inconsistent-bounds"):
        Invariants(HIERARCHY, SCHEMA, (children, parents))
    parts = RegionBounds(a, 1, [[0, 0], [0, 0], [4, 4]], [[9, 9]] * 3)
    totals = RegionBounds.exact(total, 1, [[9], [9], [7]])
    with pytest.raises(InputError, match=r"region 'r/p2'.*inconsistent-bounds"):
        Invariants(HIERARCHY, SCHEMA, (parts, totals))
    with pytest.raises(InputError, match="inconsistent-bounds"):
        Invariants(HIERARCHY, SCHEMA, (RegionBounds(total, 0, [[3]], [[2]]),))


def test_bounds_that_do_not_fit_are_refused() -> None:
    total = parse_query("total", SCHEMA)
    for lower, upper, code in (
        ([[0, 0]], [[1, 1]], "bad-shape"),
        ([[0]], [[1], [1]], "bad-shape"),
        ([[0.5]], [[1]], "not-integer"),
        ([[2**40]], [[2**41]], "too-large"),
    ):
        with pytest.raises(InputError) as caught:
            RegionBounds(total, 0, lower, upper)  # type: ignore[arg-type]
        assert caught.value.code == code
    with pytest.raises(InputError, match="from 0 to below"):
        RegionBounds.exact(total, 0, [[-1]])
    with pytest.raises(ProblemError, match="no level 3"):
        Invariants(HIERARCHY, SCHEMA, (RegionBounds.exact(total, 3, [[1]]),))
    with pytest.raises(ProblemError, match="another number of regions"):
        Invariants(HIERARCHY, SCHEMA, (RegionBounds.exact(total, 1, [[1]]),))
    with pytest.raises(ProblemError, match="another schema"):
        Invariants(HIERARCHY, SCHEMA, (RegionBounds.exact(parse_query("total", DORMS), 0, [[1]]),))
    constraints = Invariants(HIERARCHY, SCHEMA, (RegionBounds.exact(total, 0, [[1]]),))
    with pytest.raises(ProblemError, match="consecutive regions"):
        constraints.constraints_of(range(3))


@pytest.mark.parametrize("parents", [1, 2, 5])
def test_bounds_are_closed_some_parents_at_a_time(parents: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(parents)
    tree = Hierarchy.from_paths([("land", f"c{k % 7}", f"t{k}") for k in range(40)])
    query = parse_query("sex", Schema({"sex": ["female", "male"]}))
    lower = rng.integers(0, 9, (40, 2))
    upper = np.where(rng.random((40, 2)) < 0.1, UNBOUNDED, lower + rng.integers(0, 9, (40, 2)))
    own = {(2, query.text): (lower, upper)}
    expected = close(tree, [query], own)
    monkeypatch.setattr("coco_opt.topdown.invariants._PARENTS", parents)
    for ours, theirs in zip(close(tree, [query], own), expected, strict=True):
        np.testing.assert_array_equal(ours[0], theirs[0])
    assert expected[0][0][0].tolist() == [lower.sum(axis=0).tolist()]
