"""The recursion: what every release promises, on random hierarchies and schemas, whatever the method."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coco_opt.choices import SolverChoices
from coco_opt.errors import ProblemError, SolverError
from coco_opt.operators import identity
from coco_opt.privacy import Epsilon, SeededNoise
from coco_opt.problems.topdown_split import LinearRows, SplitTerm, TopdownSplit
from coco_opt.solving import solve
from coco_opt.topdown.budget_plan import TablePlan
from coco_opt.topdown.constraint import RegionBounds
from coco_opt.topdown.estimating.estimate import estimate_tables
from coco_opt.topdown.estimating.method import Pass, TopdownMethod
from coco_opt.topdown.estimating.recursion import Checkpoint
from coco_opt.topdown.estimating.sparse_tables import SparseTables
from coco_opt.topdown.estimating.splitting.step import split_step
from coco_opt.topdown.measuring.counts import TableCounts
from coco_opt.topdown.measuring.measure import measure_tables
from coco_opt.topdown.noisy_measurements import TableMeasurements
from coco_opt.topdown.queries import parse_query
from coco_opt.topdown.schema import Schema
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


def test_classic_is_the_plain_program_of_every_parent() -> None:
    rng = np.random.default_rng(3)
    hierarchy = random_hierarchy(rng, 2)
    leaves = leaves_of(rng, len(hierarchy.leaves), SCHEMA.size)
    measurements = measured(5, hierarchy, SCHEMA, leaves, ["detail", "race"], 1)
    result = estimate_tables(measurements, TopdownMethod("classic"))
    race = parse_query("race", SCHEMA).operator
    root = result.level(0)
    for level, parent in ((0, None), (1, root[0])):
        measured_ = TableMeasurements.of(measurements)
        answers = measured_.answers[level]
        assert answers[0] is not None
        assert answers[1] is not None
        terms = [
            SplitTerm(operator, answer.astype(float), np.full(len(answer), 1.0 / measured_.variance(level, q)))
            for q, (operator, answer) in enumerate(zip((identity(6), race), answers, strict=True))
            if answer is not None
        ]
        x = solve(TopdownSplit(terms, parent), "piqp").value
        assert np.abs(result.level(level) - x).max() < 1 + 1e-6
        if level == 1:
            assert np.abs(result.level(level) - x).sum() <= np.abs(np.rint(x) - x).sum() + 2 * len(leaves) * 6


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


def test_bottom_up_refuses_what_binds_levels_above() -> None:
    rng = np.random.default_rng(2)
    hierarchy = random_hierarchy(rng, 2)
    leaves = leaves_of(rng, len(hierarchy.leaves), SCHEMA.size)
    measurements = measured(2, hierarchy, SCHEMA, leaves, ["detail"], 3, [("total", 0)])
    with pytest.raises(ProblemError, match="cannot keep what must hold above"):
        estimate_tables(measurements, TopdownMethod("bottom_up"))


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
