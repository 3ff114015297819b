"""What constraints imply above: bounds by sums against linear programs, cuts against enumeration, the dorm example."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from coco_experiments.kifer2019.implied import Inequality, eliminated
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from coco_opt import Hierarchy, SolverChoices
from coco_opt.errors import InputError, ProblemError
from coco_opt.topdown import (
    UNBOUNDED,
    LinearConstraint,
    Query,
    RegionBounds,
    Schema,
    TopdownMethod,
    estimate_tables,
    parse_query,
)
from coco_opt.topdown.estimating.implied.cuts import CutOracle
from coco_opt.topdown.feasibility.system import ConstraintSystem
from coco_opt.topdown.invariants import Invariant, Invariants, close
from tests.topdown.estimation import check_tables, measured, with_answers

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


KIND_OF_DORM = Schema({"dorm": ["F", "C", "M"]})

KINDS, TOTAL = parse_query("dorm", KIND_OF_DORM), parse_query("total", KIND_OF_DORM)
MANY = UNBOUNDED
FACTS = (
    RegionBounds.exact(TOTAL, 1, [[100], [100]]),
    RegionBounds(KINDS, 1, np.array([[1, 1, 0], [0, 1, 1]]), np.array([[MANY, MANY, 0], [0, MANY, MANY]])),
)
PUBLISHED = [
    Inequality.of(weights, side)
    for weights, side in [
        ((1, 0, 0), 1),  # F >= 1
        ((0, 1, 0), 2),  # C >= 2
        ((0, 0, 1), 1),  # M >= 1
        ((-1, 0, 0), -99),  # F <= 99
        ((1, 1, 0), 101),  # C + F >= 101
        ((1, 1, 1), 200),  # C + F + M = 200
        ((-1, -1, -1), -200),
    ]
]


def dorm_rows() -> list[Inequality]:
    """Return the example over F1, C1, M1, F2, C2, M2 and F, C, M."""
    rows = []
    for region, (low, high) in enumerate([((1, 1, 0), (None, None, 0)), ((0, 1, 1), (0, None, None))]):
        own = [0] * 9
        for kind in range(3):
            row = [0] * 9
            row[3 * region + kind] = own[3 * region + kind] = 1
            rows.append(Inequality.of(row, low[kind]))
            if high[kind] is not None:
                rows.append(Inequality.of([-w for w in row], -high[kind]))
        rows += [Inequality.of(own, 100), Inequality.of([-w for w in own], -100)]
    for kind in range(3):
        link = [0] * 9
        link[kind], link[3 + kind], link[6 + kind] = 1, 1, -1
        rows += [Inequality.of(link, 0), Inequality.of([-w for w in link], 0)]
    return rows


def holds(rows: list[Inequality], table: tuple[int, ...]) -> bool:
    return all(sum(w * x for w, x in zip(row.weights, table, strict=True)) >= row.side for row in rows)


# Near every side of the region, and its corners.
GRID = [
    (f, c, total - f - c)
    for total in (199, 200, 201)
    for f in (*range(4), 48, 49, 50, *range(97, 103))
    for c in range(total - f + 1)
]


def test_elimination_gives_the_published_constraints_of_the_dorms() -> None:
    inequalities = eliminated(dorm_rows(), range(6))
    # C >= 2 follows from F <= 99 and C + F >= 101: up to redundancy five rows, one of them an equation.
    assert len(inequalities) <= 6
    assert all(holds(inequalities, table) == holds(PUBLISHED, table) for table in GRID)
    assert not holds(inequalities, (49, 50, 101))
    assert holds(inequalities, (49, 52, 99))


@pytest.mark.parametrize("kind", ["flow", "projection"])
def test_cuts_of_the_dorms_are_the_published_constraints(kind: str) -> None:
    oracle = CutOracle(ConstraintSystem.of(TOWN, KIND_OF_DORM, FACTS), flows=kind == "flow")
    assert oracle.kind == kind
    cuts: dict[tuple[int, ...], int] = {}
    for table in GRID[::3] if kind == "flow" else GRID[::29]:
        x = np.array(table)
        while True:
            broken = [w for w, upper in cuts.items() if np.array(w) @ x > upper]
            if broken or (cut := oracle.violated(0, 0, x)) is None:
                break
            key = tuple(cut.weights.tolist())
            assert cuts.get(key, 10**9) > cut.upper
            cuts[key] = cut.upper
        # The total is a fact of its own where cuts are upper ones only.
        assert (not broken and sum(table) == 200) == holds(PUBLISHED, table)
    assert oracle.violated(0, 0, np.array([49, 50, 101])) is not None
    assert oracle.violated(0, 0, np.array([49, 52, 99])) is None


def random_nested(rng: np.random.Generator, classes: int) -> tuple[ConstraintSystem, np.ndarray]:
    """Return facts of two leaves that some table meets, and all sums that extend, by enumeration."""
    schema = Schema({"kind": [f"k{k}" for k in range(classes)]})
    kinds, total = parse_query("kind", schema), parse_query("total", schema)
    lower = rng.integers(0, 2, (2, classes))
    upper = lower + rng.integers(0, 4, (2, classes)) * rng.integers(0, 2, (2, classes))
    totals = np.array([rng.integers(lo.sum(), hi.sum() + 1) for lo, hi in zip(lower, upper, strict=True)])
    constraints = (RegionBounds(kinds, 1, lower, upper), RegionBounds.exact(total, 1, totals[:, None]))
    leaves = []
    for leaf in range(2):
        spans = [range(int(a), int(b) + 1) for a, b in zip(lower[leaf], upper[leaf], strict=True)]
        leaves.append([table for table in product(*spans) if sum(table) == totals[leaf]])
    sums = {tuple(a + b for a, b in zip(first, second, strict=True)) for first in leaves[0] for second in leaves[1]}
    return ConstraintSystem.of(TOWN, schema, constraints), np.array(sorted(sums))


@pytest.mark.parametrize("classes", [2, 3, 4])
def test_flow_and_projection_agree_with_enumeration(classes: int) -> None:
    rng = np.random.default_rng(classes)
    for number in range(60):
        system, sums = random_nested(rng, classes)
        oracle = CutOracle(system)
        good = {tuple(row) for row in sums.tolist()}
        tried = sums[rng.integers(len(sums), size=4)] + rng.integers(-2, 3, (4, classes)) * rng.integers(0, 2, (4, 1))
        for table in np.maximum(tried, 0):
            if table.sum() != sums[0].sum():
                continue
            cut = oracle.violated(0, 0, table)
            assert (cut is None) == (tuple(table.tolist()) in good)
            if cut is not None:
                assert (sums @ cut.weights <= cut.upper).all()
            if number % 20 == 0:
                other = CutOracle(system, flows=False).violated(0, 0, table)
                assert (other is None) == (cut is None)


def test_elimination_agrees_with_projection_on_small_general_systems() -> None:
    rng = np.random.default_rng(3)
    schema = Schema({"kind": ["x", "y"]})
    for _ in range(8):
        rules, rows = [], [Inequality.of(np.eye(6, dtype=int)[k].tolist(), 0) for k in range(4)]
        for place in range(int(rng.integers(1, 4))):
            weights = rng.integers(-2, 3, 2)
            if not weights.any():
                continue
            terms = tuple((int(w), f"kind = {v}") for w, v in zip(weights, "xy", strict=True) if w)
            low = rng.integers(-3, 2, 2)
            rules.append(LinearConstraint(f"r{place}", terms, 1, low, low + 4))
            for leaf in range(2):
                row = [0] * 6
                row[2 * leaf : 2 * leaf + 2] = weights.tolist()
                rows += [Inequality.of(row, int(low[leaf])), Inequality.of([-w for w in row], -int(low[leaf]) - 4)]
        if not rules:
            continue
        for kind in range(2):
            link = [0] * 6
            link[kind], link[2 + kind], link[4 + kind] = 1, 1, -1
            rows += [Inequality.of(link, 0), Inequality.of([-w for w in link], 0)]
        implied = eliminated(rows, range(4))
        system = ConstraintSystem.of(TOWN, schema, [], rules)
        if system.classes.count < 2:
            continue
        oracle = CutOracle(system)
        for table in product(range(0, 7, 2), repeat=2):
            cut = oracle.violated(0, 0, np.array(table)[system.classes.labels.argsort()])
            if cut is not None:
                assert not holds(implied, table)


def test_an_estimation_with_cuts_relaxes_nobody() -> None:
    schema = Schema({"kind": ["a", "b", "c", "d"]})
    tree = Hierarchy.from_paths([("state", "town", "R1"), ("state", "town", "R2"), ("state", "rest", "R3")])
    leaves = np.array([[50, 50, 0, 0], [0, 0, 50, 50], [5, 6, 7, 8]])
    most = np.array([[99, 99, 0, 0], [0, 0, 99, 99], [99, 99, 99, 99]])
    constraints = RegionBounds(parse_query("kind", schema), 2, np.zeros_like(most), most)
    measurements = measured(0, tree, schema, leaves, ["detail"], 40, [("total", 2)], [constraints])
    measurements = with_answers(
        measurements, {1: np.array([[61, 59, 42, 38], [5, 6, 7, 8]]), 0: np.array([[66, 65, 49, 46]])}
    )
    for implied, relaxed in (("bounds", 1), ("cuts", 0), ("minimal_schema", 0), ("auto", 0)):
        method = TopdownMethod("classic", implied=implied)  # type: ignore[arg-type]
        result = estimate_tables(measurements, method, SolverChoices(fallback=True))
        check_tables(measurements, result)
        assert len(result.relaxed) == relaxed
        assert result.implied.method == ("minimal_schema" if implied == "auto" else implied)
        if implied == "bounds":
            assert result.relaxed[0].moved == 20
            assert sum(abs(change) for _, change in result.relaxed[0].changes) == 40
            assert "kind = a" in result.relaxed[0].words
        if implied == "cuts":
            assert result.implied.cuts >= 1
            assert result.level(1)[0][:2].sum() == 100
