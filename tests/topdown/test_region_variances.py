"""Variances that differ between the regions of a level, and regions that a spine bypasses, against dense algebra."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import coco_opt as co
from coco_opt import Hierarchy, Schema, TableCounts, measure_tables, read_measurement, write_measurement
from coco_opt.errors import ProblemError
from coco_opt.privacy import Measurement, Rho, SeededNoise
from coco_opt.releases.estimate import config_of
from coco_opt.topdown import TableMeasurements, TableQueries, parse_queries, parse_query
from coco_opt.topdown.budget_plan import RegionVariances, TablePlan
from coco_opt.topdown.estimating.linear import information
from coco_opt.topdown.estimating.linear.best_linear import best_linear, is_full, low_rank_information, trees_are_best
from coco_opt.topdown.estimating.linear.query_trees import LinearStage, linear_stage
from tests.topdown.estimation import DenseSolution, check_estimates, random_hierarchy, with_variances

SCHEMA = Schema({"sex": ["f", "m"], "age": ["child", "adult", "old"]}, ["sex = m & age = old"])
QUERIES = ("total", "sex", "detail")
OPERATORS = [query.operator for query in parse_queries(QUERIES, SCHEMA)]


def measured(seed: int, hierarchy: Hierarchy) -> Measurement:
    """Return a measurement of random tables."""
    rng = np.random.default_rng(seed)
    leaves = rng.integers(0, 9, (len(hierarchy.leaves), SCHEMA.size))
    queries = tuple(parse_query(text, SCHEMA) for text in QUERIES)
    costs = tuple(tuple(Rho(Fraction(int(rng.integers(1, 20)), 20)) for _ in queries) for _ in range(hierarchy.levels))
    counts = TableCounts.from_counts(hierarchy, SCHEMA, leaves)
    return measure_tables(counts, TablePlan(queries, costs, "replace"), source=SeededNoise(seed))


def random_variances(rng: np.random.Generator, hierarchy: Hierarchy, level: int, missing: float) -> RegionVariances:
    """Return a class of its own for every region of a level; each query is missing with a probability."""
    count = len(hierarchy.level_range(level))

    def stated() -> tuple[Fraction | None, ...]:
        drawn = [None if rng.random() < missing else Fraction(int(rng.integers(1, 200)), 10) for _ in range(count)]
        return (Fraction(3), *drawn[1:])

    return RegionVariances(level, np.arange(count), {name: stated() for name in QUERIES})


def check_against_dense(measurement: Measurement, estimates: Any) -> None:
    """Assert that estimates are the dense solution."""
    check_estimates(estimates, DenseSolution(TableMeasurements.of(measurement)), OPERATORS)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_full_information_is_dense_algebra_with_random_variances(seed: int, missing: float) -> None:
    rng = np.random.default_rng([seed, 1])
    hierarchy = random_hierarchy(rng, 4)
    levels = range(hierarchy.levels)
    variances = tuple(random_variances(rng, hierarchy, level, missing if 0 < level < 3 else 0.0) for level in levels)
    variances = tuple(each for each in variances if rng.random() < 0.8 or each.level == 3)
    measurement = with_variances(measured(seed, hierarchy), variances)
    estimates = best_linear(TableMeasurements.of(measurement))
    assert is_full(estimates)
    check_against_dense(measurement, estimates)


def test_too_many_different_variances_fall_back_to_trees(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(7)
    hierarchy = random_hierarchy(rng, 3)
    variances = (random_variances(rng, hierarchy, 2, 0.0),)
    tables = TableMeasurements.of(with_variances(measured(7, hierarchy), variances))
    monkeypatch.setattr(information, "MOST_ENTRIES", 1)
    with pytest.raises(ProblemError, match="too much memory"):
        best_linear(tables, full=True)
    assert not is_full(best_linear(tables))


@pytest.mark.parametrize("seed", range(4))
def test_trees_are_dense_algebra_where_regions_differ_by_a_factor(seed: int) -> None:
    """Bypassed regions: their children have the budget of two levels, and those below them nothing."""
    parent = [-1, 0, 0, 0, 1, 2, 3, 3, 4, 4, 5, 6, 7, 7]
    hierarchy = Hierarchy.from_parents(parent, [f"r{v}" for v in range(len(parent))])
    shares = {"total": Fraction(4), "sex": Fraction(9), "detail": Fraction(25)}
    # Region 2 has twice the budget, and its only child none; so has 6, above a leaf.
    factors: list[list[Any]] = [[2], [1, Fraction(1, 2), 1], [3, None, Fraction(1, 2), 1], [1, 1, 2, None, 1, 1]]
    variances = tuple(
        RegionVariances(
            level,
            np.arange(len(each)),
            {name: tuple(None if f is None else share * Fraction(f) for f in each) for name, share in shares.items()},
        )
        for level, each in enumerate(factors)
    )
    measurement = with_variances(measured(seed, hierarchy), variances)
    tables = TableMeasurements.of(measurement)
    assert trees_are_best(tables)
    stage = linear_stage(tables)
    assert isinstance(stage, LinearStage)
    check_against_dense(measurement, stage)
    check_against_dense(measurement, best_linear(tables, full=True))


def beside_unmeasured(seed: int) -> Measurement:
    """Return a measurement in which two of three siblings have no answers: theirs are undetermined, others are not."""
    hierarchy = Hierarchy.from_parents([-1, 0, 0, 1, 1, 1, 2, 2], [f"r{v}" for v in range(8)])
    factors = [Fraction(2), None, None, Fraction(1), Fraction(3)]
    shares = {"total": 4, "sex": 9, "detail": 25}
    stated = {name: tuple(None if f is None else share * f for f in factors) for name, share in shares.items()}
    above = [
        RegionVariances(level, np.zeros(1 + level, np.int64), {name: (Fraction(v),) for name, v in shares.items()})
        for level in (0, 1)
    ]
    return with_variances(measured(seed, hierarchy), (*above, RegionVariances(2, np.arange(5), stated)))


@pytest.mark.parametrize("seed", range(2))
def test_regions_that_stay_unknown_leave_the_others_of_their_level_known(seed: int) -> None:
    measurement = beside_unmeasured(seed)
    stage = best_linear(TableMeasurements.of(measurement))
    assert isinstance(stage, LinearStage)
    check_against_dense(measurement, stage)
    assert not stage.determines(parse_query("sex", SCHEMA).operator, 2).any()


def test_bottom_up_needs_answers_of_every_leaf(tmp_path: Path) -> None:
    measurement = beside_unmeasured(0)
    keys = {"estimation": "bottom_up", "workload": ["sex"]}
    config = co.parse_config({"topdown": keys}, tmp_path, like=config_of(measurement))
    with pytest.raises(ProblemError, match="2 of them have no answers, first 'r0/r1/r4'"):
        co.estimate(measurement, config)


@pytest.mark.parametrize("seed", range(4))
def test_few_directions_are_dense_algebra_where_levels_ask_in_other_proportions(seed: int) -> None:
    rng = np.random.default_rng([seed, 2])
    hierarchy = random_hierarchy(rng, 4)
    variances = []
    for level in range(4):
        count = len(hierarchy.level_range(level))
        share, factors = Fraction(int(rng.integers(1, 30)), 7), rng.integers(1, 9, count).tolist()
        stated = {"total": tuple(share * f for f in factors), "detail": tuple(Fraction(f * 3) for f in factors)}
        stated["sex"] = tuple(f * Fraction(2, 3) for f in stated["detail"])
        variances.append(RegionVariances(level, np.arange(count), stated))
    measurement = with_variances(measured(seed, hierarchy), tuple(variances))
    estimates = low_rank_information(TableMeasurements.of(measurement), 3)
    assert estimates is not None
    assert estimates.directions.count <= 1
    check_against_dense(measurement, estimates)


@pytest.mark.parametrize("seed", range(2))
def test_measurements_with_and_without_variances_by_region_are_pooled(seed: int) -> None:
    rng = np.random.default_rng([seed, 5])
    hierarchy = random_hierarchy(rng, 3)
    first = with_variances(measured(seed, hierarchy), (random_variances(rng, hierarchy, 2, 0.4),))
    second = measured(seed + 10, hierarchy)
    dense = DenseSolution(TableMeasurements.of(first), TableMeasurements.of(second))
    check_estimates(best_linear(TableMeasurements.of(replace(first, also=(second,))), full=True), dense, OPERATORS)


@pytest.mark.parametrize("estimation", ["full", "classic", "bottom_up"])
def test_every_estimation_takes_them(estimation: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(6)
    hierarchy = random_hierarchy(rng, 3)
    missing = 0.0 if estimation == "bottom_up" else 0.4
    variances = tuple(random_variances(rng, hierarchy, level, missing) for level in (1, 2))
    measurement = with_variances(measured(6, hierarchy), variances)
    keys = {"estimation": estimation, "workload": ["sex", "detail"]}
    config = co.parse_config({"topdown": keys}, tmp_path, like=config_of(measurement))
    folder = co.estimate(measurement, config).save(tmp_path / "out")
    assert [check.detail for check in co.verify_release(folder) if not check.passed] == []


def test_variances_by_region_are_stored_and_checked(tmp_path: Path) -> None:
    hierarchy = random_hierarchy(np.random.default_rng(5), 3)
    variances = random_variances(np.random.default_rng(6), hierarchy, 2, 0.3)
    measurement = with_variances(measured(1, hierarchy), (variances,))
    write_measurement(tmp_path / "stored", measurement, private=False)
    stored, _ = read_measurement(tmp_path / "stored")
    assert stored.measurement_plan.digest == measurement.measurement_plan.digest
    before, after = TableMeasurements.of(measurement), TableMeasurements.of(stored)
    for query in range(3):
        np.testing.assert_array_equal(before.region_variances(2, query), after.region_variances(2, query))
        assert before.region_variances(1, query).tolist() == [before.variance(1, query)] * len(hierarchy.level_range(1))
    for classes, stated in (
        (np.zeros(len(hierarchy.leaves), np.int64) + 7, {"total": (Fraction(1),)}),
        (np.zeros(len(hierarchy.leaves), np.int64), {"total": (Fraction(0),)}),
        (np.zeros(len(hierarchy.leaves), np.int64), {"total": (None,)}),
        (np.zeros(0, np.int64), {"total": (Fraction(1),)}),
    ):
        with pytest.raises(ProblemError):
            RegionVariances(2, classes, stated)
    queries = TableQueries.of(measurement.measurement_plan)
    for wrong in (replace(variances, level=1), replace(variances, stated={"other": variances.stated["total"]})):
        with pytest.raises(ProblemError):
            replace(queries, variances=(wrong,))
    parts = [replace(variances, stated={name: variances.stated[name]}) for name in ("total", "sex")]
    with pytest.raises(ProblemError, match="at most once"):
        replace(queries, variances=tuple(parts))
    cheaper = {**variances.stated, "total": tuple(v and v / 2 for v in variances.stated["total"])}
    with pytest.raises(ProblemError, match="does not cost"):
        replace(queries, variances=(replace(variances, stated=cheaper),))
