"""Flaxman 2019: the figure, its plateaus, the direct estimate, the sweep, and the audits beyond the paper."""

from __future__ import annotations

import csv
import math
from fractions import Fraction
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import pytest
from coco_experiments.flaxman2019 import bounds, direct, figure1, histograms, plateaus, releases, subjects, sweep
from coco_experiments.flaxman2019.setting import EPSILONS, PAPERS, SMALL, Database, residuals
from coco_experiments.outcome import Reporter
from coco_experiments.statistics import Mean

from coco_opt.audit.counting import MECHANISMS
from coco_opt.audit.rows import audit_release
from coco_opt.audit.subject import Subject
from coco_opt.privacy import Epsilon, SeededNoise
from coco_opt.ranges import DomainTree
from coco_opt.ranges.estimating.universal import ESTIMATORS
from tests.experiments.recorder import Recorder

PNG, PDF = b"\x89PNG", b"%PDF"


def _check_files(folder: Path, name: str, rows: int) -> None:
    with (folder / f"{name}.csv").open(newline="") as file:
        assert len(list(csv.reader(file))) == rows + 1
    assert (folder / f"{name}.png").read_bytes().startswith(PNG)
    assert (folder / f"{name}.pdf").read_bytes().startswith(PDF)


def test_the_papers_databases_have_9261_cells() -> None:
    assert PAPERS.tree.cells == 21**3
    assert SMALL.tree.cells == 1_000


def test_databases_repeat_per_seed_and_differ_between_seeds() -> None:
    one, again, other = (residuals(SMALL, seed, "ratio")["RDPC"] for seed in (1, 1, 2))
    assert np.array_equal(one, again)
    assert not np.array_equal(one, other)


def test_figure1_small_run_writes_its_files(tmp_path: Path) -> None:
    recorder = Recorder()
    outcome = figure1.run(small=True, out=tmp_path, reporter=recorder)
    assert outcome.ok
    assert recorder.tables == list(outcome.tables)
    _check_files(tmp_path, "flaxman2019/figure1", 6)
    assert (tmp_path / "flaxman2019/figure1_curves.csv").exists()


def test_figure1_tells_his_story_from_his_curves_and_ours(shared_data: Path, tmp_path: Path) -> None:
    start = perf_counter()
    outcome = figure1.run(small=False, out=tmp_path, reporter=Recorder(), data=shared_data)
    assert perf_counter() - start < 15  # the target is 5 s on a machine of its own
    rows = [row for row in outcome.tables[0].records() if row["sampler"] == "ratio"]
    for row, share in zip(rows, (1.0, 0.25, 0.45), strict=True):
        ours, his = row["mean |EPL|, 20 to 100"], row["his figure, same mean"]
        assert isinstance(ours, float)
        assert isinstance(his, float)
        assert ours == pytest.approx(his, abs=0.003)
        assert row["of the budget"] == pytest.approx(share, rel=0.12)
    with (tmp_path / "flaxman2019/figure1_curves.csv").open(newline="") as file:
        points = list(csv.DictReader(file))
    assert sum(point["whose"] == "published" for point in points) == 1448
    assert {point["mechanism"] for point in points if point["whose"] == "measured"} == set(MECHANISMS)


def test_his_residuals_are_of_almost_all_cells(shared_data: Path) -> None:
    for curve in figure1.his_curves(shared_data)["a"].values():
        assert 8_500 < curve.value.sum() < 9_261


def test_plateaus_lie_within_four_deviations(tmp_path: Path) -> None:
    outcome = plateaus.run(small=False, out=tmp_path, reporter=Recorder())
    assert outcome.failures == ()
    assert len(plateaus.SEEDS) == 15
    assert all(row["within four"] is True for row in outcome.tables[0].records())
    _check_files(tmp_path, "flaxman2019/plateaus", 9)


def test_plateaus_report_what_lies_outside() -> None:
    exact = {key: Mean(reference.value, 0.1, 15) for key, reference in plateaus.REFERENCES.items()}
    assert plateaus.failures_in(plateaus.table_of(exact, compare=True)) == ()
    off = {**exact, ("ADPC", plateaus.RANGE): Mean(186 + 13, 0.1, 15)}
    (failure,) = plateaus.failures_in(plateaus.table_of(off, compare=True))
    assert failure == "ADPC, residual range K: 4.3 deviations from the reference"


def test_direct_small_run_moves_one_person(tmp_path: Path) -> None:
    outcome = direct.run(small=True, out=tmp_path, reporter=Recorder())
    assert [row["mechanism"] for row in outcome.tables[0].records()] == list(MECHANISMS)
    _check_files(tmp_path, "flaxman2019/direct", 3)


def test_direct_outputs_shift_by_the_moved_person(monkeypatch: pytest.MonkeyPatch) -> None:
    # With next to no noise the errors are 0 on D, and on D' one fewer in area 0, one more in area 1001.
    monkeypatch.setitem(EPSILONS, "GDPC", 0.999999)
    first, second = direct.outputs(Database(people=200_000), "GDPC", 40, 1)
    assert np.median(first, axis=0).tolist() == [0.0, 0.0]
    assert np.median(second, axis=0).tolist() == [-1.0, 1.0]


def test_sweep_covers_every_factor_of_the_paper(tmp_path: Path) -> None:
    outcome = sweep.run(small=True, out=tmp_path, reporter=Recorder())
    records = outcome.tables[0].records()
    assert list(dict.fromkeys(row["factor"] for row in records)) == [
        "N",
        "J",
        "mu",
        "epsilon, times",
        "bandwidth",
        "percentile",
    ]
    _check_files(tmp_path, "flaxman2019/sweep", len(records))


def test_sweep_raking_loses_less_with_more_levels() -> None:
    plateau = {
        levels: {one.mechanism: one.plateau.value for one in sweep.measure(point, (0, 1))}
        for point in sweep.points(SMALL)
        if point.factor == "J"
        for levels in [point.value]
    }
    raked = [plateau[levels]["RDPC"] for levels in (1, 2, 3)]
    assert raked == sorted(raked, reverse=True)
    assert raked[0] == pytest.approx(0.05, rel=0.15)
    assert plateau[1]["GDPC"] == pytest.approx(plateau[3]["GDPC"], rel=0.15)


def test_releases_small_run(tmp_path: Path) -> None:
    outcome = releases.run(small=True, out=tmp_path, reporter=Recorder())
    assert outcome.failures == ()
    _check_files(tmp_path, "flaxman2019/releases", 13)


def test_bounds_small_rows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(bounds, "SMALL_VECTOR", 400)
    monkeypatch.setattr(bounds, "SMALL_FINE", 5_000_000)
    outcome = bounds.run(small=True, out=tmp_path, reporter=Recorder())
    rows = outcome.tables[0].records()
    assert [row["what"] for row in rows if row["kind"] == "planted fault"] == [
        "sizes, one entity added, sensitivity taken for 1",
        "1 % too little noise, epsilon 1",
    ]
    assert all(row["at most the claim"] for row in rows if row["kind"] != "planted fault")
    _check_files(tmp_path, "flaxman2019/bounds", len(rows))


def test_bounds_of_histograms_catch_the_fault() -> None:
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


def test_releases_audit_every_estimator_of_whole_histograms() -> None:
    found = releases.histogram_audits(2_000, 5, Recorder(), small=True)
    assert len(found) == 6
    assert all(audit.violated == () for audit in found.values())
    records = releases.table_of(found, releases.HISTOGRAMS).records()
    assert len(records) == 3 * 4 + 3 * 3
    estimates = [record["estimate from residuals"] for record in records]
    assert all(isinstance(value, float) and math.isfinite(value) for value in estimates if value is not None)
    assert sum(value is not None for value in estimates) >= 6


def test_many_trees_at_once_are_estimated_as_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subjects, "_FOREST_NODES", 40)  # several forests of a few trees each
    cells = np.array([0, 5, 2, 0, 9, 1, 0, 3], np.int64)
    for estimator in histograms.UNIVERSAL:
        for fan_out in (2, 3, 16):
            subject = subjects.audited_ranges(DomainTree(cells.size, fan_out), Epsilon(Fraction(1)), estimator)
            sealed = [
                subject.seal(subject.measurement_plan, tuple(subject.exact(cells)), SeededNoise(run))
                for run in range(13)
            ]
            alone = [subject.statistics(subject.estimate(one)) for one in sealed]
            assert subject.release_all is not None
            every = subject.release_all(np.array([one.answers[0].values for one in sealed]))
            for part, counts in every.items():
                np.testing.assert_allclose(counts, [one[part] for one in alone], rtol=0, atol=1e-9)


def test_subjects_without_noise_release_what_is_exact() -> None:
    cells = np.array([0, 5, 2, 0, 9, 1, 0, 3], np.int64)
    loud = Epsilon(Fraction(1_000))
    several: list[Subject[Any, Any]] = [
        *(subjects.audited_ranges(DomainTree(8, fan_out), loud, one) for one in ESTIMATORS for fan_out in (None, 2, 3)),
        *(subjects.audited_sorted(8, loud, loss) for loss in histograms.SORTED),
    ]
    for subject in several:
        sealed = subject.seal(subject.measurement_plan, tuple(subject.exact(cells)), SeededNoise(1))
        released, exact = subject.statistics(subject.estimate(sealed)), subject.statistics(cells)
        assert list(released) == list(exact)
        for part, counts in exact.items():
            np.testing.assert_allclose(released[part], counts, rtol=0, atol=1e-9)


def test_an_estimate_sees_the_noise_of_one_count_and_not_the_whole_path() -> None:
    # Each of the four levels of H~ is measured at epsilon / 4: residuals cannot show that one path has four of them.
    counts = np.full(4_096, 50, np.int64)
    subject = subjects.audited_ranges(DomainTree(counts.size, 16), Epsilon(Fraction(1)), "noisy")
    found = audit_release(subject, histograms.pair_of(counts), bounds.seeded(700), draws=2, runs=10)
    assert found.losses["release, cells"].mean_between(1.0, 8.0) == pytest.approx(0.25, abs=0.05)


def test_bounds_report_faults_that_pass_and_honest_rows_that_do_not() -> None:
    honest = bounds.scalar_row("honest", bounds.EPSILON, 2_000, bounds.seeded(1))
    missed = bounds.scalar_row("fault", bounds.EPSILON, 2_000, bounds.seeded(1), shrink=bounds.TOO_LITTLE)
    wild = bounds.scalar_row("wild", bounds.EPSILON, 2_000, bounds.seeded(1), shrink=bounds.TOO_LITTLE / 4)
    assert bounds.failures_in([honest, wild]) == ()
    assert bounds.failures_in([missed]) == ("fault: the planted fault was not caught",)
    lying = bounds.Row("one count", "lie", bounds.EPSILON, 2_000, wild.bound)
    assert bounds.failures_in([lying]) == ("lie: more privacy lost than claimed",)


@pytest.mark.slow
def test_bounds_hold_for_every_mechanism_and_catch_the_faults(tmp_path: Path) -> None:
    recorder: Reporter = Recorder()
    assert bounds.run(small=False, out=tmp_path, reporter=recorder).failures == ()
    assert (bounds.SCALAR, bounds.VECTOR, bounds.FINE) == (10**6, 2 * 10**5, 2 * 10**7)


@pytest.mark.slow
def test_bounds_hold_for_every_histogram_at_full_size() -> None:
    rows = bounds.histogram_rows(bounds.VECTOR, Recorder())
    assert bounds.VECTOR == 200_000
    assert bounds.failures_in(rows) == ()


@pytest.mark.slow
def test_taxi_releases_are_audited_within_two_minutes_each(shared_data: Path, tmp_path: Path) -> None:
    start = perf_counter()
    outcome = releases.run(small=False, out=tmp_path, reporter=Recorder(), data=shared_data)
    assert perf_counter() - start < 2 * 120
    assert (releases.RUNS, releases.MAX_SIZE) == (100, 5_000)
    assert outcome.failures == ()
