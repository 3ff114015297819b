"""The recursion: what every release promises on random hierarchies, whatever the method; every step by enumeration.

Fractional tables come from every set of nonzero cells in turn, least squares on each; integer ones from every rounding.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from coco_opt import Hierarchy, Schema, SolverChoices, TableCounts, TablePlan, estimate_tables, measure_tables, solve
from coco_opt.array_types import Floats
from coco_opt.errors import ProblemError, SolverError
from coco_opt.privacy import Epsilon, SeededNoise
from coco_opt.problems.topdown_split import LinearRows, TopdownSplit
from coco_opt.topdown import RegionBounds, TableMeasurements, parse_query
from coco_opt.topdown.estimating.method import Estimation, Pass, TopdownMethod
from coco_opt.topdown.estimating.recursion import Checkpoint
from coco_opt.topdown.estimating.sparse_tables import SparseTables
from coco_opt.topdown.estimating.splitting.step import split_step
from tests.topdown.estimation import check_tables, measured, random_hierarchy

SCHEMA = Schema({"race": ["a", "b", "c"], "age": ["minor", "adult"]})
FORBIDDEN = Schema(
    {"race": ["a", "b", "c"], "age": ["minor", "adult"], "home": ["house", "barracks"]},
    structural_zeros=["age = minor & home = barracks"],
)
METHODS = {
    "full": TopdownMethod(),
    "classic": TopdownMethod("classic"),
    "two passes": TopdownMethod(passes=(Pass(("race",), 0.5),)),
    "equal weights": TopdownMethod(weighting="equal"),
}


def leaves_of(rng: np.random.Generator, leaves: int, cells: int, scale: float = 3.0) -> np.ndarray[Any, Any]:
    """Return skewed counts with many zeros."""
    return rng.poisson(rng.gamma(0.3, scale, (leaves, cells))).astype(np.int64)


@pytest.mark.parametrize("name", METHODS)
@settings(max_examples=6)
@given(st.integers(0, 10_000))
def test_tables_are_whole_nonnegative_and_add_up(name: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    hierarchy = random_hierarchy(rng, int(rng.integers(1, 4)))
    schema = SCHEMA if seed % 2 else FORBIDDEN
    leaves = leaves_of(rng, len(hierarchy.leaves), schema.size)
    measurements = measured(seed, hierarchy, schema, leaves, ["detail", "race", "total"])
    result = estimate_tables(measurements, METHODS[name])
    check_tables(measurements, result)
    assert not result.relaxed


@settings(max_examples=12)
@given(st.integers(0, 10_000))
def test_invariants_and_bounds_hold_exactly(seed: int) -> None:
    rng = np.random.default_rng(seed)
    hierarchy = random_hierarchy(rng, 3)
    leaves = leaves_of(rng, len(hierarchy.leaves), FORBIDDEN.size)
    total = parse_query("home", FORBIDDEN)
    most = total.operator.apply(hierarchy.aggregate(leaves))[-len(leaves) :]
    bounds = [RegionBounds(total, 2, np.minimum(most, 1), most + 1)]
    invariants = [("total", int(rng.integers(3)))]
    measurements = measured(seed, hierarchy, FORBIDDEN, leaves, ["detail", "race"], 1, invariants, bounds)
    result = estimate_tables(measurements, METHODS["two passes" if seed % 3 == 0 else "full"])
    check_tables(measurements, result)


@pytest.mark.parametrize("name", [*METHODS, "bottom up"])
def test_without_noise_the_truth_comes_back(name: str) -> None:
    rng = np.random.default_rng(1)
    hierarchy = random_hierarchy(rng, 3)
    leaves = leaves_of(rng, len(hierarchy.leaves), SCHEMA.size, 30.0)
    method = METHODS.get(name, TopdownMethod("bottom_up"))
    result = estimate_tables(measured(0, hierarchy, SCHEMA, leaves, ["detail", "race", "total"], 100), method)
    np.testing.assert_array_equal(result.level(2), leaves)
    np.testing.assert_array_equal(result.level(0)[0], leaves.sum(axis=0))


def test_threads_and_resuming_change_nothing() -> None:
    rng = np.random.default_rng(8)
    hierarchy = random_hierarchy(rng, 3)
    leaves = leaves_of(rng, len(hierarchy.leaves), SCHEMA.size)
    measurements = measured(8, hierarchy, SCHEMA, leaves, ["detail", "race", "total"], 1)
    done: list[Checkpoint] = []
    reported: list[tuple[int, int]] = []
    first = estimate_tables(measurements, after_level=done.append, progress=lambda *step: reported.append(step))
    assert [checkpoint.level for checkpoint in done] == [0, 1, 2]
    assert reported[-1] == (hierarchy.regions, hierarchy.regions)
    for again in (
        estimate_tables(measurements, threads=3),
        estimate_tables(measurements, resume_from=done[0]),
        estimate_tables(measurements, resume_from=done[2]),
    ):
        for level in range(3):
            np.testing.assert_array_equal(again.level(level), first.level(level))


def test_a_checkpoint_of_another_hierarchy_is_refused() -> None:
    rng = np.random.default_rng(8)
    hierarchy = random_hierarchy(rng, 2)
    measurements = measured(8, hierarchy, SCHEMA, leaves_of(rng, len(hierarchy.leaves), SCHEMA.size), ["detail"], 1)
    for tables in (np.ones((1, 5), np.int64), np.ones((2, 6), np.int64)):
        with pytest.raises(ProblemError, match="of another hierarchy or schema"):
            estimate_tables(measurements, resume_from=Checkpoint((SparseTables.of(tables),)))


def test_bottom_up_sums_leaves_that_were_fitted_alone() -> None:
    rng = np.random.default_rng(2)
    hierarchy = random_hierarchy(rng, 3)
    leaves = leaves_of(rng, len(hierarchy.leaves), SCHEMA.size)
    measurements = measured(2, hierarchy, SCHEMA, leaves, ["detail"], 3)
    result = estimate_tables(measurements, TopdownMethod("bottom_up"))
    check_tables(measurements, result)
    noisy = TableMeasurements.of(measurements).answers[2][0]
    assert noisy is not None
    np.testing.assert_array_equal(result.level(2), np.maximum(noisy, 0))


def test_a_level_that_nothing_speaks_of_is_named() -> None:
    rng = np.random.default_rng(0)
    hierarchy = random_hierarchy(rng, 2)
    counts = TableCounts.from_counts(hierarchy, SCHEMA, leaves_of(rng, len(hierarchy.leaves), 6))
    plan = TablePlan((parse_query("detail", SCHEMA),), ((Epsilon(Fraction(0)),), (Epsilon(Fraction(1)),)))
    measurements = measure_tables(counts, plan, source=SeededNoise(1))
    check_tables(measurements, estimate_tables(measurements))
    with pytest.raises(ProblemError, match=r"'classic' needs answers of level 0.*or use 'full'"):
        estimate_tables(measurements, TopdownMethod("classic"))


def test_later_passes_keep_earlier_answers() -> None:
    rng = np.random.default_rng(4)
    hierarchy = random_hierarchy(rng, 2)
    leaves = leaves_of(rng, len(hierarchy.leaves), SCHEMA.size, 40.0)
    measurements = measured(4, hierarchy, SCHEMA, leaves, ["race", "detail"], 1)
    regions, parent = hierarchy.children(0), leaves.sum(axis=0)
    step = split_step(
        TableMeasurements.of(measurements), TopdownMethod(passes=(Pass(("race",), 0.25),)), SolverChoices()
    )
    both = step.fractional(regions, parent)
    race = parse_query("race", SCHEMA).operator
    alone = solve(TopdownSplit(step.terms(regions, [0]), parent.astype(float))).value
    answers = race.apply(alone)
    assert np.abs(race.apply(both) - answers).max() <= 0.25 + 1e-6
    direct = solve(
        TopdownSplit(step.terms(regions, [1]), parent.astype(float), LinearRows(race, answers - 0.25, answers + 0.25))
    )
    again = TopdownSplit(step.terms(regions, [1]), parent.astype(float)).objective(both)
    assert again == pytest.approx(direct.objective, rel=1e-4)


def test_a_rounding_that_was_not_proved_nearest_is_told_also_after_resuming() -> None:
    class Coarse(SolverChoices):
        """Take every rounding, but say that the bound on its distance is 0."""

        def solve(self, problem: Any, *, fallback: bool = True) -> Any:
            answer = solve(problem, check=False)
            if problem.kind != "table_rounding" or answer.objective == 0.0:
                return answer.value
            raise SolverError("not proved", replace(answer, gap=answer.objective))

    rng = np.random.default_rng(8)
    hierarchy = random_hierarchy(rng, 3)
    measurements = measured(8, hierarchy, SCHEMA, leaves_of(rng, len(hierarchy.leaves), 6), ["detail", "race"], 1)
    done: list[Checkpoint] = []
    assert not estimate_tables(measurements).uncertified_gap
    result = estimate_tables(measurements, solvers=Coarse(), after_level=done.append)
    check_tables(measurements, result)
    assert result.uncertified_gap.gap > 0.0
    assert result.uncertified_gap.steps > 0
    assert result.uncertified_gap.unknown == 0
    assert estimate_tables(measurements, resume_from=done[-1]).uncertified_gap == result.uncertified_gap


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TopdownMethod("best"), "no estimator of tables is called .best.; known: full, classic, bottom_up"),  # type: ignore[arg-type]
        (lambda: TopdownMethod(seed=-3), "from 0 to below"),
        (
            lambda: TopdownMethod(rounding="nearest", rounding_order=(parse_query("race", SCHEMA),)),
            "no order of queries",
        ),
        (lambda: TopdownMethod(passes=(Pass(("race",)), Pass(("race",)))), "one pass only"),
        (lambda: Pass(()), "one or more queries"),
        (lambda: Pass(("race",), -1.0), "0 or more"),
        (lambda: TopdownMethod(passes=(Pass(("rce",)),)).query_passes(["race", "total"]), "did you mean 'race'"),
    ],
)
def test_methods_that_make_no_sense_are_refused(make: Any, message: str) -> None:
    with pytest.raises(ProblemError, match=message):
        make()


def test_sparse_tables_are_the_dense_ones() -> None:
    rng = np.random.default_rng(0)
    dense = rng.poisson(0.3, (7, 5)).astype(np.int64)
    tables = SparseTables.of(dense)
    np.testing.assert_array_equal(tables.dense(), dense)
    np.testing.assert_array_equal(tables.dense(2, 5), dense[2:5])
    np.testing.assert_array_equal(SparseTables.joined([tables, tables]).dense(), np.concatenate([dense, dense]))
    np.testing.assert_array_equal(tables.summed([0, 2, 3]).dense(), np.add.reduceat(dense, [0, 2, 3], axis=0))
    row = rng.poisson(2.0, 5).astype(np.int64)
    changed = dense.copy()
    changed[3] = row
    np.testing.assert_array_equal(tables.with_parts({3: SparseTables.of(row[None])}).dense(), changed)
    with pytest.raises(ProblemError, match="offsets must rise"):
        SparseTables(np.array([0, 3]), np.array([0]), np.array([1]), 5)


FOUR = Schema({"race": ["a", "b"], "age": ["minor", "adult"]})
LEAVES, CELLS = 3, 4


def rows_of(measurements: TableMeasurements, level: int) -> list[tuple[Floats, Floats]]:
    """Return for each region of a level what was asked of it, both sides divided by the standard deviation."""
    rows = []
    for region in range(len(measurements.hierarchy.level_range(level))):
        sides, rights = [], []
        for query, measurement_plan in enumerate(measurements.queries):
            answers = measurements.answers[level][query]
            assert answers is not None
            deviation = np.sqrt(measurements.variance(level, query))
            sides.append(measurement_plan.operator.to_sparse().toarray() / deviation)
            rights.append(answers[region] / deviation)
        rows.append((np.concatenate(sides), np.concatenate(rights)))
    return rows


def least_squares(a: Floats, b: Floats, equal: Floats, right: Floats, signed: int) -> Floats:
    """Return the minimiser of ||a x - b||^2 with ``equal x = right``, the first ``signed`` variables nonnegative."""
    best, value = np.zeros(0), np.inf
    for zeros in product([False, True], repeat=signed):
        free = np.append(~np.array(zeros, bool), np.ones(a.shape[1] - signed, bool))
        reduced, fixed = a[:, free], equal[:, free]
        system = np.block([[reduced.T @ reduced, fixed.T], [fixed, np.zeros((len(fixed), len(fixed)))]])
        solution = np.linalg.lstsq(system, np.concatenate([reduced.T @ b, right]), rcond=1e-11)[0][: int(free.sum())]
        x = np.zeros(a.shape[1])
        x[free] = solution
        cost = float(((a @ x - b) ** 2).sum())
        if (x[:signed] >= -1e-9).all() and np.abs(equal @ x - right).max(initial=0.0) < 1e-7 and cost < value:
            best, value = x, cost
    return best


def root_by_hand(measurements: TableMeasurements, estimation: str, total: int | None) -> Floats:
    """Return the root's fractional table: in "full" with all leaves' tables, of any sign, fitted beside it."""
    (own, right), leaves = rows_of(measurements, 0)[0], rows_of(measurements, 1)
    below = 0 if estimation == "classic" else LEAVES
    blocks = [np.hstack([own, np.zeros((len(own), CELLS * below))])]
    rights = [right]
    for leaf in range(below):
        block = np.zeros((len(leaves[leaf][0]), CELLS * (1 + below)))
        block[:, CELLS * (1 + leaf) : CELLS * (2 + leaf)] = leaves[leaf][0]
        blocks, rights = [*blocks, block], [*rights, leaves[leaf][1]]
    equal, sums = np.zeros((0, CELLS * (1 + below))), np.zeros(0)
    if below:
        equal, sums = np.hstack([-np.eye(CELLS), *[np.eye(CELLS)] * below]), np.zeros(CELLS)
    if total is not None:
        equal = np.vstack([equal, np.append(np.ones(CELLS), np.zeros(CELLS * below))])
        sums = np.append(sums, total)
    return least_squares(np.concatenate(blocks), np.concatenate(rights), equal, sums, CELLS)[:CELLS]


def leaves_by_hand(measurements: TableMeasurements, parent: NDArray[Any], totals: NDArray[Any] | None) -> Floats:
    """Return the leaves' fractional tables [leaves, cells] that add up to the parent's."""
    leaves = rows_of(measurements, 1)
    a = np.zeros((sum(len(side) for side, _ in leaves), LEAVES * CELLS))
    start = 0
    for leaf, (side, _) in enumerate(leaves):
        a[start : start + len(side), CELLS * leaf : CELLS * (leaf + 1)] = side
        start += len(side)
    equal, right = np.tile(np.eye(CELLS), LEAVES), parent.astype(np.float64)
    if totals is not None:
        equal = np.vstack([equal, np.kron(np.eye(LEAVES), np.ones(CELLS))])
        right = np.append(right, totals)
    b = np.concatenate([right for _, right in leaves])
    return least_squares(a, b, equal, right, LEAVES * CELLS).reshape(LEAVES, CELLS)


def nearest_by_hand(x: Floats, parent: NDArray[Any] | None, totals: NDArray[Any] | None) -> float:
    """Return the least L1 distance of any rounding of x that keeps the sums."""
    x = np.where(np.abs(x - np.rint(x)) < 1e-6, np.rint(x), x)
    best = np.inf
    for ups in product(*[[0, 1] if value != np.floor(value) else [0] for value in x.ravel()]):
        integer_table = np.floor(x) + np.array(ups).reshape(x.shape)
        if parent is not None and (integer_table.sum(axis=0) != parent).any():
            continue
        if totals is None or (integer_table.sum(axis=1) == totals).all():
            best = min(best, float(np.abs(integer_table - x).sum()))
    return best


@pytest.mark.parametrize("estimation", ["full", "classic"])
@pytest.mark.parametrize("invariant", [False, True])
@pytest.mark.parametrize("seed", range(2))
def test_every_step_is_the_one_enumerated_by_hand(seed: int, invariant: bool, estimation: Estimation) -> None:
    rng = np.random.default_rng(seed)
    hierarchy = Hierarchy.from_paths([("root", f"leaf{j}") for j in range(LEAVES)])
    truth = rng.poisson(rng.gamma(0.5, 6.0, (LEAVES, CELLS))).astype(np.int64)
    totals = truth.sum(axis=1) if invariant else None
    measurement_plan = [("total", 1)] if invariant else []
    measurement = measured(seed, hierarchy, FOUR, truth, ["detail", "race"], 1, measurement_plan)
    answers = TableMeasurements.of(measurement)
    method = TopdownMethod(estimation, rounding="nearest")
    result = estimate_tables(measurement, method)
    check_tables(measurement, result)
    step = split_step(answers, method, SolverChoices())
    root = result.level(0)
    for level, parent, sums in ((0, None, None if totals is None else totals.sum(keepdims=True)), (1, root[0], totals)):
        regions = hierarchy.level_range(level)
        if parent is None:
            by_hand = root_by_hand(answers, estimation, None if sums is None else int(sums[0]))[None, :]
        else:
            by_hand = leaves_by_hand(answers, parent, sums)
        x = step.fractional(regions, parent)
        np.testing.assert_allclose(x, by_hand, atol=2e-3)
        best = nearest_by_hand(x, parent, sums)
        assert np.abs(result.level(level) - x).sum() == pytest.approx(best, abs=1e-4)
