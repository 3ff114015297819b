"""Implied constraints: the dorm example by every method, and every oracle against enumeration."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from coco_experiments.kifer2019.implied import Inequality, eliminated

from coco_opt import Hierarchy, SolverChoices
from coco_opt.topdown import LinearConstraint, RegionBounds, Schema, TopdownMethod, estimate_tables, parse_query
from coco_opt.topdown.constraint import UNBOUNDED
from coco_opt.topdown.estimating.implied.cuts import CutOracle
from coco_opt.topdown.feasibility.system import ConstraintSystem
from tests.topdown.estimation import check_tables, measured, with_answers

DORMS = Schema({"dorm": ["F", "C", "M"]})
TOWN = Hierarchy.from_paths([("town", "R1"), ("town", "R2")])
KINDS, TOTAL = parse_query("dorm", DORMS), parse_query("total", DORMS)
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
    oracle = CutOracle(ConstraintSystem.of(TOWN, DORMS, FACTS), flows=kind == "flow")
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
