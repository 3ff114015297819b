"""The audit of universal and unattributed histograms: neighbours, witnesses, bulk runs, rows and planted faults."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from typing import get_args

import numpy as np
import pytest
from coco_experiments.flaxman2019 import bounds, releases

from coco_opt.audit import (
    UnattributedMechanism,
    UniversalMechanism,
    audit_ranges,
    bulk_range_scores,
    cell_pair,
    cells_witness,
    lower_bound,
    measured_scores,
)
from coco_opt.audit.histograms import CellsMechanism, SortedEstimator
from coco_opt.audit.measured import Exact, Sources
from coco_opt.errors import ProblemError
from coco_opt.privacy import NEIGHBOURS, Neighbours, SeededNoise
from coco_opt.ranges import DomainTree, measurement
from coco_opt.ranges.universal import ESTIMATORS, Estimator
from tests.experiments.recorder import Recorder

ONE = Fraction(1)
CELLS = np.array([0, 5, 2, 0, 9, 1, 0, 3], np.int64)
FAN_OUTS = (None, 2, 3, 16)
SORTED: tuple[SortedEstimator, ...] = get_args(SortedEstimator)


def _sources(first: int) -> Sources:
    return lambda side: SeededNoise(first + side)


def _tree(
    estimator: Estimator = "noisy", fan_out: int | None = 2, neighbours: Neighbours = "add_remove", seed: int = 700
) -> UniversalMechanism:
    return UniversalMechanism(ONE, _sources(seed), estimator, fan_out, neighbours)


def _measured_bound(mechanism: UniversalMechanism | UnattributedMechanism, draws: int) -> float:
    differing = cells_witness(cell_pair(CELLS, mechanism.neighbours), mechanism)
    return lower_bound(*measured_scores(differing, draws, mechanism.sources)).epsilon


def test_pairs_differ_by_one_entity() -> None:
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


@pytest.mark.parametrize("neighbours", NEIGHBOURS)
@pytest.mark.parametrize("fan_out", FAN_OUTS)
def test_witness_differs_by_the_sensitivity_at_the_scale_of_the_release(
    fan_out: int | None, neighbours: Neighbours
) -> None:
    found = cells_witness(cell_pair(CELLS, neighbours), _tree("noisy", fan_out, neighbours))
    domain = DomainTree(CELLS.size, fan_out)
    distance = int(np.abs(found.first - found.second).sum())
    assert distance == measurement.sensitivity(domain, neighbours)
    assert set(found.scales) == {Fraction(distance)}


@pytest.mark.parametrize("neighbours", NEIGHBOURS)
def test_sorted_witness_differs_by_one_or_two(neighbours: Neighbours) -> None:
    found = cells_witness(cell_pair(CELLS, neighbours), UnattributedMechanism(ONE, _sources(1), neighbours=neighbours))
    assert np.abs(found.first - found.second).sum() == (1 if neighbours == "add_remove" else 2)


def test_equal_databases_are_nothing_to_audit() -> None:
    pair = cell_pair([5])
    same = type(pair)(pair.first, pair.first.copy(), "nothing")
    with pytest.raises(ProblemError, match="nothing to audit"):
        cells_witness(same, _tree())


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("fan_out", FAN_OUTS)
def test_many_trees_at_once_are_estimated_as_one_by_one(
    fan_out: int | None, estimator: Estimator, monkeypatch: pytest.MonkeyPatch
) -> None:
    import coco_opt.audit.histograms as histograms

    monkeypatch.setattr(histograms, "_FOREST_NODES", 40)  # several forests of a few trees each
    mechanism = _tree(estimator, fan_out)
    answers = [mechanism.measured(CELLS, SeededNoise(run)) for run in range(13)]
    rows = mechanism.released_rows(answers[0], np.array([answer.values for answer in answers]))
    alone = np.array([mechanism.released(answer) for answer in answers])
    np.testing.assert_allclose(rows, alone, rtol=0, atol=1e-9)
    assert (rows[:, 0].min() >= 0) or estimator in ("noisy", "consistent")


@pytest.mark.parametrize("estimator", SORTED)
def test_sorted_rows_are_released_as_one_by_one(estimator: SortedEstimator) -> None:
    mechanism = UnattributedMechanism(ONE, _sources(1), estimator)
    answers = [mechanism.measured(CELLS, SeededNoise(run)) for run in range(5)]
    rows = mechanism.released_rows(answers[0], np.array([answer.values for answer in answers]))
    assert np.array_equal(rows, [mechanism.released(answer) for answer in answers])


def _mechanisms() -> list[CellsMechanism]:
    trees: list[CellsMechanism] = [_tree(estimator, fan_out) for estimator in ESTIMATORS for fan_out in FAN_OUTS]
    return [*trees, *(UnattributedMechanism(ONE, _sources(1), estimator) for estimator in SORTED)]


@pytest.mark.parametrize("mechanism", _mechanisms(), ids=lambda one: f"{one.name}-{getattr(one, 'fan_out', '')}")
def test_without_noise_the_release_is_exact(mechanism: CellsMechanism) -> None:
    released = mechanism.released(mechanism.measured(CELLS, Exact()))
    np.testing.assert_allclose(released, mechanism.exact(CELLS), rtol=0, atol=1e-9)


@pytest.mark.parametrize("neighbours", NEIGHBOURS)
@pytest.mark.parametrize("fan_out", FAN_OUTS)
def test_noisy_trees_lose_no_more_than_they_claim(fan_out: int | None, neighbours: Neighbours) -> None:
    bound = _measured_bound(_tree("noisy", fan_out, neighbours), 200_000)
    assert 0.7 < bound <= 1.0


@pytest.mark.parametrize("neighbours", NEIGHBOURS)
def test_noisy_ranks_lose_no_more_than_they_claim(neighbours: Neighbours) -> None:
    mechanism = UnattributedMechanism(ONE, _sources(30), "noisy", neighbours)
    assert 0.9 < _measured_bound(mechanism, 200_000) <= 1.0


@pytest.mark.parametrize("estimator", ["noisy", "consistent", "nonnegative"])
def test_released_trees_lose_no_more_than_they_claim(estimator: Estimator) -> None:
    mechanism = _tree(estimator)
    bound = lower_bound(*bulk_range_scores(cell_pair(CELLS), mechanism, 20_000, mechanism.sources)).epsilon
    assert 0.2 < bound <= 1.0


@pytest.mark.parametrize("estimator", SORTED)
def test_released_ranks_lose_no_more_than_they_claim(estimator: SortedEstimator) -> None:
    mechanism = UnattributedMechanism(ONE, _sources(50), estimator)
    bound = lower_bound(*bulk_range_scores(cell_pair(CELLS[:4]), mechanism, 20_000, mechanism.sources)).epsilon
    assert 0.8 < bound <= 1.0


@pytest.mark.parametrize(("fan_out", "least"), [(8, 1.9), (3, 1.4), (2, 1.15)])
def test_noise_of_a_tree_one_level_lower_is_caught(fan_out: int, least: float, monkeypatch: pytest.MonkeyPatch) -> None:
    height = DomainTree(CELLS.size, fan_out).height
    monkeypatch.setattr(measurement, "sensitivity", lambda domain, neighbours: domain.height - 1)
    assert least < _measured_bound(_tree("noisy", fan_out), 200_000) <= height / (height - 1)


def test_too_little_noise_shows_in_what_is_released(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measurement, "sensitivity", lambda domain, neighbours: 1)
    mechanism = _tree("consistent", fan_out=8)
    found = lower_bound(*bulk_range_scores(cell_pair(CELLS), mechanism, 20_000, mechanism.sources)).epsilon
    assert 1.0 < found <= 2.0
    assert [row.what for row in audit_ranges(cell_pair(CELLS), mechanism, draws=20_000, runs=2).violated] == [
        "measurement"
    ]


def test_audit_has_a_row_for_everything() -> None:
    told: list[tuple[int, int]] = []
    found = audit_ranges(
        cell_pair(CELLS), _tree("consistent"), draws=4_000, runs=30, progress=lambda *step: told.append(step)
    )
    assert [row.what for row in found.rows] == [
        "measurement",
        "release, cells",
        "release, wider intervals",
        "release, direct",
    ]
    assert [row.estimate is not None for row in found.rows] == [False, True, True, False]
    assert [row.bound is not None for row in found.rows] == [True, False, False, True]
    assert {row.claimed for row in found.rows} == {ONE}
    assert found.violated == ()
    assert told[-1] == (30, 30)
    assert set(found.losses) == {"release, cells", "release, wider intervals"}
    json.dumps([row.as_dict() for row in found.rows], allow_nan=False)


@pytest.mark.parametrize(("cells", "fan_out"), [(8, None), (1, 2)])
def test_intervals_that_are_not_measured_have_no_estimate(cells: int, fan_out: int | None) -> None:
    assert list(_tree("noisy", fan_out).parts(cells)) == ["cells"]


def test_estimate_sees_the_noise_of_one_count_and_not_the_whole_path() -> None:
    # Each of the four levels of H~ is measured at epsilon / 4: residuals cannot show that one path has four of them.
    counts = np.full(4_096, 50, np.int64)
    found = audit_ranges(cell_pair(counts), _tree("noisy", 16), draws=2, runs=10)
    loss = found.losses["release, cells"]
    assert loss.mean_between(1.0, 8.0) == pytest.approx(0.25, abs=0.05)


def test_sides_share_no_noise() -> None:
    opened: list[int] = []

    def source(number: int) -> SeededNoise:
        opened.append(number)
        return SeededNoise(number)

    audit_ranges(cell_pair(CELLS), UnattributedMechanism(ONE, source), draws=10, runs=3)
    assert opened == [0, 1, 0, 1, 2, 3, 4, 5]  # the draws, then the releases, under other labels


def test_equal_residuals_leave_no_estimate() -> None:
    quiet = UniversalMechanism(Fraction(4_000), _sources(1), "noisy", 2)
    found = audit_ranges(cell_pair(CELLS), quiet, draws=10, runs=2)
    assert [row.note for row in found.rows if row.note] == ["all residuals are equal"] * 2
    assert found.losses == {}


def test_experiment_rows_bound_each_histogram_and_catch_the_fault() -> None:
    rows = bounds.histogram_rows(2_000, Recorder())
    assert bounds.failures_in(rows) == ()
    assert [row.what for row in rows if row.faulty] == ["universal, 8 cells, height 2, sensitivity taken for 1"]
    assert [row.what.split(", 8")[0].split(", 4")[0] for row in rows if row.kind == "release"] == [
        "H~",
        "H-bar, consistent",
        "H-bar, nonnegative",
        "S~",
        "S-bar, L2",
        "S-bar, L1",
    ]


def test_experiment_audits_every_estimator_of_whole_histograms() -> None:
    found = releases.histogram_audits(2_000, 5, Recorder(), small=True)
    assert len(found) == 6
    assert all(audit.violated == () for audit in found.values())
    records = releases.table_of(found, releases.HISTOGRAMS).records()
    assert len(records) == 3 * 4 + 3 * 3
    estimates = [record["estimate from residuals"] for record in records]
    assert all(isinstance(value, float) and math.isfinite(value) for value in estimates if value is not None)
    assert sum(value is not None for value in estimates) >= 6


@pytest.mark.slow
def test_bounds_hold_for_every_histogram_at_full_size() -> None:
    rows = bounds.histogram_rows(bounds.VECTOR, Recorder())
    assert bounds.VECTOR == 200_000
    assert bounds.failures_in(rows) == ()
