"""Poster tables 3 and 4: small runs here, the published claims in the slow tests."""

from __future__ import annotations

import csv
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from coco_experiments.kuo2018 import table3, table4
from coco_experiments.kuo2018.cases import Case, taxi_case
from coco_experiments.kuo2018.draws import Draws, errors_by_level
from coco_experiments.simulated import generated_counts
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
    assert recorder.steps[-1] == ("kuo2018/table3 simulated data", 3, 3)
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
    isotonic = {variant.name for variant in table3.VARIANTS if variant.query != "sizes"}
    sets = table3.data_sets(shared_data)
    assert [set(data.references) for data in sets] == [isotonic, isotonic, set(), set()]
    assert [data.name for data in sets[2:]] == ["Synthetic (made anew)", "White (simulated)"]
    for data in sets:
        assert data.truth.max_size < data.max_size == 100_000
        assert set(data.published) == {variant.name for variant in table3.VARIANTS} - {"Hc L2"} | {table3.CLIPPED}


@pytest.mark.slow
def test_table3_lies_within_three_combined_standard_errors(shared_data: Path) -> None:
    judged = [data for data in table3.data_sets(shared_data) if data.references]
    table = table3.table_of([(data, table3.measure_errors(data, table3.SEEDS, Recorder())) for data in judged])
    compared = [row for row in table.records() if row["within three"] is not None]
    assert len(compared) == 10
    assert len(table3.SEEDS) >= 20
    assert table3.failures_in(table) == ()


def test_table4_small_run_writes_its_files(tmp_path: Path) -> None:
    recorder = Recorder()
    outcome = table4.run(small=True, out=tmp_path, reporter=recorder)
    assert outcome.ok
    assert recorder.tables == list(outcome.tables)
    _check_files(tmp_path, "kuo2018/table4", (4 + 2) * 3)


def test_table4_gives_every_region_its_own_noise_or_all_the_same() -> None:
    case = Case.of("made", generated_counts(2, 2, 50, 20, np.random.default_rng(3)), 400)
    own, one = Draws(case, 1), Draws(case, 1, shared=True)
    for draws, distinct in ((own, 7), (one, 1)):
        answers = [draws.answer(region, "cumulative", Fraction(1, 3)) for region in range(7)]
        noise = [answer.values - case.truth[r].cumulative(400)[:-1] for r, answer in enumerate(answers)]
        assert len({found.tobytes() for found in noise}) == distinct
        assert {answer.distribution.parameter for answer in answers} == {3}


def test_table4_bottom_up_reads_the_leaves_only() -> None:
    case = Case.of("made", generated_counts(2, 2, 50, 20, np.random.default_rng(3)), 400)
    draws = Draws(case, 1)
    found = table4.BOTTOM_UP.run(draws, table4.EPSILON)
    leaves = draws.level(2, "cumulative", Fraction(1))
    assert all(a.equals(b.histogram) for a, b in zip(found[3:], leaves, strict=True))
    assert found[0].equals(CountOfCounts.total(found[3:]))


def test_errors_are_means_over_the_regions_of_a_level() -> None:
    case = Case.of("made", generated_counts(2, 2, 50, 20, np.random.default_rng(3)), 400)
    shifted = [CountOfCounts(one.sizes + 1, one.counts) for one in case.truth]
    assert errors_by_level(case, shifted) == (200.0, 100.0, 50.0)
    assert errors_by_level(case, case.truth) == (0.0, 0.0, 0.0)


def _exact(factor: float) -> list[table4.Result]:
    return [
        table4.Result("Taxi", noise, method, tuple(Mean(factor * value, 1.0, 20) for value in levels))
        for (noise, method), levels in table4.REFERENCES.items()
    ]


def test_table4_reports_what_lies_outside_six_percent() -> None:
    assert table4.failures_in(table4.table_of(_exact(1.05))) == ()
    failures = table4.failures_in(table4.table_of(_exact(1.07)))
    assert len(failures) == 18
    assert failures[0] == f"Taxi, independent, {table4.BOTTOM_UP.name}, level 0: +7.0 % from the reference"


def test_table4_says_where_the_winner_changes() -> None:
    rows = table4.changes(_exact(1.0)).records()
    assert [row["winner changes"] for row in rows] == [True, True, False]
    assert rows[0]["published"] == pytest.approx(20_731.0 / 10_547.0)


@pytest.mark.slow
def test_table4_lies_within_six_percent_at_every_level_in_both_readings(shared_data: Path) -> None:
    case = taxi_case(shared_data)
    results = []
    for noise in (table4.INDEPENDENT, table4.ONE_SEED):
        methods = (table4.BOTTOM_UP, table4.TOP_DOWN)
        results += table4.measure_case(case, noise, methods, table4.SEEDS[:10], Recorder())
    table = table4.table_of(results)
    assert [row["within 6 %"] for row in table.records()] == [True] * 12
    assert all(row["winner changes"] for row in table4.changes(results).records()[:2])
