"""Unbiased counts: exact expectation and variance by linearity, sums over regions, and the file of a release."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coco_opt import CountOfCounts, GroupsMethod, Hierarchy, estimate_groups, read_groups_release
from coco_opt.errors import InputError, ProblemError
from coco_opt.groups.buckets import Buckets, Split
from coco_opt.groups.estimating import unbiased as module
from coco_opt.groups.estimating.unbiased import UnbiasedCounts, UnbiasedEstimates
from coco_opt.privacy import Epsilon, Measurement, Rho, SeededNoise
from coco_opt.releases import release, verify_release
from tests.groups.helpers import MAX_SIZE, SEEDED, changed_copy, config_of, measured, shift, three_levels
from tests.releases.drawn import restate

WIDE = Buckets.from_edges([0, 1, 2, 4, 8, 11, 12])
PRIVATE = {"counts_share": Fraction(1, 4)}
QUESTIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "cumulative": ("cumulative", {}),
    "buckets": ("cumulative", {"buckets": [WIDE] * 3}),
    "one bucket": ("cumulative", {"buckets": [Buckets.from_edges([0, MAX_SIZE])] * 3}),
    "ranks": ("ranks", {}),
    "split": ("cumulative", {"buckets": [Split(3), Split(MAX_SIZE - 1), Split(1)]}),
    "sizes": ("sizes", {}),
    "private counts": ("cumulative", PRIVATE),
    "private counts, buckets": ("cumulative", {**PRIVATE, "buckets": [WIDE] * 3}),
    "private counts, sizes": ("sizes", PRIVATE),
}
FIGURES = ("entities", "at_most", "groups")


def exact_queries(name: str, **settings: Any) -> tuple[Hierarchy, list[CountOfCounts], Measurement]:
    """Return regions, their truth, and a measurement of a question whose answers are exact."""
    hierarchy, truth = three_levels(np.random.default_rng(2))
    query, defaults = QUESTIONS[name]
    return hierarchy, truth, measured(hierarchy, truth, query, **{"seed": None, **defaults, **settings})


def of_every_region(measurement: Measurement) -> dict[int, UnbiasedCounts]:
    """Return the estimates of all regions by number."""
    return {
        int(region): counts.of(place)
        for regions, counts in UnbiasedEstimates(measurement).parts()
        for place, region in enumerate(regions)
    }


@pytest.mark.parametrize("name", QUESTIONS)
def test_the_expectation_is_the_truth(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Noise has mean zero and all estimates are affine in it: without any they are their expectation.
    monkeypatch.setattr(module, "_ROWS", 20)
    hierarchy, truth, measurement = exact_queries(name)
    result = of_every_region(measurement)
    assert list(result) == list(range(hierarchy.regions))
    for region, counts in result.items():
        dense = truth[region].to_dense(MAX_SIZE)
        running = np.cumsum(dense)
        assert counts.size[0] == 0
        assert counts.last_size[-1] == MAX_SIZE
        assert (counts.size[1:] == counts.last_size[:-1] + 1).all()
        for row, (first, last) in enumerate(zip(counts.size.tolist(), counts.last_size.tolist(), strict=True)):
            beyond = np.clip(np.arange(MAX_SIZE + 1) - first, 0, last + 1 - first) @ dense
            assert counts.entities[row] == pytest.approx(beyond if first < MAX_SIZE else 0, abs=1e-9)
            assert counts.at_most[row] == pytest.approx(running[first : last + 1].mean(), abs=1e-9)
            single_size = first == last and (first == 0 or counts.size[row - 1] == counts.last_size[row - 1])
            assert single_size == ~np.isnan(counts.groups[row])
            if single_size:
                assert counts.groups[row] == pytest.approx(dense[first], abs=1e-9)
        assert counts.entities.sum() == pytest.approx(np.arange(MAX_SIZE + 1) @ dense)


@pytest.mark.parametrize("name", ["ranks", "split"])
def test_very_many_ranks_are_added_piece_by_piece(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _, _, measurement = exact_queries(name, source=SeededNoise(4))
    expected = of_every_region(measurement)
    monkeypatch.setattr(module, "DENSE", 7)
    for region, counts in of_every_region(measurement).items():
        np.testing.assert_array_equal(counts.entities, expected[region].entities)


def nudged(measurement: Measurement, place: int, at: int) -> Measurement:
    """Return the measurement with one answer more by one."""
    answers = list(measurement.answers)
    values = answers[place].values.copy()
    values[at] += 1
    answers[place] = replace(answers[place], stored=values)
    return replace(measurement, answers=tuple(answers))


@pytest.mark.parametrize("cost", [Epsilon(Fraction(1)), Rho(Fraction(1, 2))])
@pytest.mark.parametrize("name", QUESTIONS)
def test_variances_are_those_of_the_linear_map(name: str, cost: Any) -> None:
    _, _, measurement = exact_queries(name, costs=[cost * Fraction(1, 7), cost, cost * Fraction(1, 3)])
    still = UnbiasedEstimates(measurement).of("n/s1")
    expected = {figure: np.zeros(still.size.size) for figure in FIGURES}
    for place, answers in enumerate(measurement.answers):
        for at in range(int(answers.offsets[-1]) if answers.query.level == 1 else 1):
            counts = UnbiasedEstimates(nudged(measurement, place, at)).of("n/s1")
            for figure in FIGURES:
                expected[figure] += (
                    getattr(counts, figure) - getattr(still, figure)
                ) ** 2 * answers.query.distribution.variance
    for figure in FIGURES:
        np.testing.assert_allclose(getattr(still, f"{figure}_variance"), expected[figure], atol=1e-9)


@pytest.mark.parametrize("name", [name for name in QUESTIONS if not name.startswith("private")])
def test_public_numbers_of_groups_are_exact(name: str) -> None:
    _, truth, measurement = exact_queries(name, seed=3)
    for region, counts in of_every_region(measurement).items():
        assert counts.at_most[-1] == truth[region].groups
        assert counts.at_most_variance[-1] == 0.0


def test_sums_over_regions_carry_their_variances() -> None:
    hierarchy, truth = three_levels(np.random.default_rng(2))
    result = UnbiasedEstimates(measured(hierarchy, truth))
    names = [hierarchy.paths[region] for region in hierarchy.leaves]
    total, each = result.of(*names), [result.of(name) for name in names]
    for figure in (*FIGURES, *(f"{name}_variance" for name in FIGURES)):
        np.testing.assert_allclose(getattr(total, figure), np.sum([getattr(part, figure) for part in each], axis=0))
    distribution = measured(hierarchy, truth).answers[2].query.distribution
    assert total.entities_variance.sum() == pytest.approx(MAX_SIZE * len(names) * distribution.variance)


def test_the_mean_over_seeds_is_the_truth_within_the_variance() -> None:
    hierarchy, truth = three_levels(np.random.default_rng(2))
    runs = [UnbiasedEstimates(measured(hierarchy, truth, seed=seed)).of("n/s2", "n/s1") for seed in range(150)]
    exact = truth[2].to_dense(MAX_SIZE) + truth[3].to_dense(MAX_SIZE)
    off = np.array([run.groups for run in runs]) - exact
    deviations = off.mean(axis=0) / np.sqrt(runs[0].groups_variance / len(runs))
    assert np.abs(deviations).max() < 4.5
    assert off.var(axis=0) == pytest.approx(runs[0].groups_variance, rel=0.5)


def test_regions_that_do_not_add_up_are_refused() -> None:
    hierarchy, truth = three_levels(np.random.default_rng(2))
    buckets = [WIDE, None, None]
    outcome = UnbiasedEstimates(measured(hierarchy, truth, shares=[1, 0, 1], buckets=buckets))
    with pytest.raises(InputError, match="repeated-region"):
        outcome.of("n", "n")
    with pytest.raises(InputError, match="not-measured"):
        outcome.of("n/s1")
    with pytest.raises(ProblemError, match="same buckets"):
        outcome.of("n", "n/s0/c0")
    with pytest.raises(ProblemError, match="name a region"):
        outcome.of()
    result = estimate_groups(measured(hierarchy, truth), GroupsMethod(consistency="bottom_up"))
    with pytest.raises(InputError, match="no-unbiased"):
        result.unbiased_of("n")


def test_two_measurements_are_averaged_by_their_variances() -> None:
    hierarchy, truth = three_levels(np.random.default_rng(2))
    first, second = measured(hierarchy, truth, seed=1), measured(hierarchy, truth, seed=2, shares=[2, 2, 2])
    other = measured(hierarchy, truth, "ranks", seed=3)
    one, two = (UnbiasedEstimates(noisy).of("n") for noisy in (first, second))
    both = UnbiasedEstimates(replace(first, also=(other, second))).of("n")
    weights = two.at_most_variance[0], one.at_most_variance[0]
    mean = (one.at_most * weights[0] + two.at_most * weights[1]) / sum(weights)
    np.testing.assert_allclose(both.at_most, mean)
    np.testing.assert_allclose(both.at_most_variance[:-1], 1 / (1 / weights[0] + 1 / weights[1]))


# --- the file of a release --------------------------------------------------------------------------------

SETTINGS: dict[str, dict[str, Any]] = {
    "cells": {},
    "buckets": {"bucket_growth": [0.5, 0]},
    "ranks": {"query": ["ranks", "cumulative"]},
    "split": {"rank_above": [3, 0]},
    "sizes": {"query": "sizes"},
    "private": {"group_counts": "private", "bucket_growth": [0, 0.5]},
}


@pytest.fixture(scope="module", params=SETTINGS)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Release the towns with unbiased counts by every question."""
    where = tmp_path_factory.mktemp("towns")
    config = config_of(where, privacy=SEEDED, unbiased=True, **SETTINGS[request.param])
    outcome = release(config, where / "out").estimate
    assert outcome is not None
    read = read_groups_release(where / "out")
    for region in (("land",), ("land/south", "land/north")):
        for one in (*FIGURES, "size", "entities_variance", "groups_variance"):
            np.testing.assert_array_equal(getattr(read.unbiased(*region), one), getattr(outcome.unbiased(*region), one))
    return where / "out"


def test_every_question_is_released_and_verified(folder: Path) -> None:
    table = pq.read_table(folder / "unbiased.parquet")
    assert [f"{field.name} {field.type}" for field in table.schema] == [
        "level int32",
        "level_name string",
        "region string",
        "region_id string",
        "size int64",
        "last_size int64",
        "entities double",
        "entities_variance double",
        "at_most double",
        "at_most_variance double",
        "groups double",
        "groups_variance double",
    ]
    assert all(check.passed for check in verify_release(folder))
    assert "unbiased" in [check.name for check in verify_release(folder)]


def _without_a_row(columns: dict[str, list[Any]]) -> None:
    for values in columns.values():
        del values[-1]


def _other_region(columns: dict[str, list[Any]]) -> None:
    columns["region"][-1] = "land"


CHANGES: Sequence[Callable[[dict[str, list[Any]]], None]] = (
    shift("size", 1),
    shift("entities", 1.0),
    shift("at_most", 1.0),
    shift("entities_variance", -1e9),
    shift("level", 1),
    _without_a_row,
    _other_region,
)


@pytest.mark.parametrize("change", CHANGES)
def test_planted_faults_are_found(folder: Path, tmp_path: Path, change: Callable[[dict[str, list[Any]]], None]) -> None:
    copy = changed_copy(folder, tmp_path / "copy", "unbiased.parquet", change)
    assert [check.name for check in verify_release(copy) if not check.passed] == ["unbiased"]


def test_a_variance_that_is_not_the_noises_is_found(tmp_path: Path) -> None:
    release(config_of(tmp_path, privacy=SEEDED, unbiased=True, bucket_growth=0.5), tmp_path / "out")
    rows = pq.read_table(tmp_path / "out" / "unbiased.parquet")
    columns = rows.to_pydict()
    columns["entities_variance"][0] *= 1.01
    pq.write_table(pa.table(columns), tmp_path / "out" / "unbiased.parquet", write_page_checksum=True)
    restate(tmp_path / "out")
    assert [check.name for check in verify_release(tmp_path / "out") if not check.passed] == ["unbiased"]


def test_a_release_without_them_says_so(tmp_path: Path) -> None:
    outcome = release(config_of(tmp_path, privacy=SEEDED), tmp_path / "out").estimate
    assert outcome is not None
    assert not (tmp_path / "out" / "unbiased.parquet").exists()
    for source in (outcome, read_groups_release(tmp_path / "out")):
        with pytest.raises(InputError, match="no-unbiased"):
            source.unbiased("land")
