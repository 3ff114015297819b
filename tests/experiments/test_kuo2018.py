"""Poster tables 3 and 4: small runs here, the published claims in the slow tests."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from coco_experiments.kuo2018 import table3, table4
from coco_experiments.made import made_counts
from coco_experiments.statistics import Mean

from coco_opt.histograms import CountOfCounts
from tests.experiments.recorder import Recorder

PNG, PDF = b"\x89PNG", b"%PDF"


def _check_files(folder: Path, name: str, rows: int) -> None:
    with (folder / f"{name}.csv").open(newline="") as file:
        assert len(list(csv.reader(file))) == rows + 1
    assert (folder / f"{name}.png").read_bytes().startswith(PNG)
    assert (folder / f"{name}.pdf").read_bytes().startswith(PDF)


def test_table3_small_run_writes_its_files(tmp_path: Path) -> None:
    recorder = Recorder()
    outcome = table3.run(small=True, out=tmp_path, reporter=recorder)
    assert outcome.ok
    assert recorder.tables == list(outcome.tables)
    assert recorder.steps[-1] == ("kuo2018/table3 made", 3, 3)
    assert sorted(outcome.files) == sorted(tmp_path.glob("kuo2018/*"))
    _check_files(tmp_path, "kuo2018/table3", len(table3.VARIANTS) + 1)


def test_table3_orders_the_estimators_as_the_paper_does() -> None:
    means = table3.measure_errors(table3.small_data_set(), (1, 2, 3), Recorder())
    naive, clipped = means["naive, sum constraint"].value, means[table3.CLIPPED].value
    cumulative = means["Hc L1, ties upper"].value
    assert 0 < 20 * cumulative < naive < clipped


def test_table3_repeats_per_seed_and_differs_between_seeds() -> None:
    data = table3.small_data_set()
    assert table3.errors_of_seed(data, 5) == table3.errors_of_seed(data, 5)
    assert table3.errors_of_seed(data, 5) != table3.errors_of_seed(data, 6)


def test_table3_clipped_error_is_the_expected_one_of_empty_cells() -> None:
    # A region without a group: every cell's clipped noise has mean a/(1-a^2), a = exp(-1/2), and the cell i
    # counts in K + 1 - i cumulative cells.
    empty = table3.DataSet("empty", CountOfCounts.empty(), 1_000)
    errors = [table3.errors_of_seed(empty, seed)[table3.CLIPPED] for seed in range(20)]
    a = np.exp(-0.5)
    assert np.mean(errors) == pytest.approx(a / (1 - a * a) * 1_001 * 1_002 / 2, rel=0.05)


def test_table3_reports_what_lies_outside_the_band() -> None:
    reference = {"Hc L2": table3.Reference(100.0, 10.0, 25)}
    data = table3.DataSet("d", CountOfCounts.empty(), 10, references=reference)
    near, far = Mean(105.0, 1.0, 25), Mean(109.0, 1.0, 25)
    assert table3.failures_in(table3.table_of([(data, {"Hc L2": near})])) == ()
    (failure,) = table3.failures_in(table3.table_of([(data, {"Hc L2": far})]))
    assert failure == "d, Hc L2: 3.18 combined standard errors from the reference"


def test_table3_has_a_reference_for_each_isotonic_estimator(shared_data: Path) -> None:
    isotonic = {variant.name for variant in table3.VARIANTS if variant.query != "naive"}
    for data in table3.data_sets(shared_data):
        assert set(data.references) == isotonic
        assert data.truth.max_size < data.max_size == 100_000


@pytest.mark.slow
def test_table3_lies_within_three_combined_standard_errors(shared_data: Path, tmp_path: Path) -> None:
    outcome = table3.run(small=False, out=tmp_path, reporter=Recorder(), data=shared_data)
    compared = [row for row in outcome.tables[0].records() if row["within three"] is not None]
    assert len(compared) == 10
    assert len(table3.SEEDS) >= 20
    assert outcome.failures == ()


def test_table4_small_run_writes_its_files(tmp_path: Path) -> None:
    recorder = Recorder()
    outcome = table4.run(small=True, out=tmp_path, reporter=recorder)
    assert outcome.ok
    assert recorder.tables == list(outcome.tables)
    _check_files(tmp_path, "kuo2018/table4", len(table4.METHODS) * 3)


def test_table4_gives_every_region_its_own_noise_and_the_leaves_the_whole_budget() -> None:
    data = made_counts(2, 2, 50, 20, np.random.default_rng(3))
    truth = data.histograms()
    even = table4.noisy(data, truth, table4.uniform_split(table4.EPSILON, 3), 400, 1)
    noise = [answer.values - truth[region].cumulative(400)[:-1] for region, answer in enumerate(even) if answer]
    assert len(noise) == 7
    assert len({one.tobytes() for one in noise}) == 7
    assert {answer.scale for answer in even if answer} == {3}
    on_leaves = table4.noisy(data, truth, (0 * table4.EPSILON,) * 2 + (table4.EPSILON,), 400, 1)
    assert [answer is None for answer in on_leaves] == [True] * 3 + [False] * 4
    assert {answer.scale for answer in on_leaves if answer} == {1}


def test_table4_errors_are_means_over_the_regions_of_a_level() -> None:
    data = made_counts(2, 2, 50, 20, np.random.default_rng(3))
    truth = data.histograms()
    shifted = [CountOfCounts(one.sizes + 1, one.counts) for one in truth]
    assert table4._by_level(data, truth, shifted) == (200.0, 100.0, 50.0)
    assert table4._by_level(data, truth, truth) == (0.0, 0.0, 0.0)


def test_table4_reports_what_lies_outside_six_percent() -> None:
    exact = {method: tuple(Mean(value, 1.0, 20) for value in levels) for method, levels in table4.REFERENCES.items()}
    assert table4.failures_in(table4.table_of(exact, "t", compare=True)) == ()
    off = {**exact, table4.BOTTOM_UP: (Mean(8_053 * 1.07, 1.0, 20), *exact[table4.BOTTOM_UP][1:])}
    (failure,) = table4.failures_in(table4.table_of(off, "t", compare=True))
    assert failure == f"{table4.BOTTOM_UP}, level 0: +7.0 % from the reference"


@pytest.mark.slow
def test_table4_lies_within_six_percent_at_every_level(shared_data: Path, tmp_path: Path) -> None:
    outcome = table4.run(small=False, out=tmp_path, reporter=Recorder(), data=shared_data)
    compared = [row for row in outcome.tables[0].records() if row["within 6 %"] is not None]
    assert len(compared) == 12
    assert len(table4.SEEDS) >= 20
    assert outcome.failures == ()
