"""The figures of Hay et al. 2010: small runs here, the real ones in the slow tests."""

from __future__ import annotations

import csv
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from coco_experiments.hay2010 import data, figure3, figure5, figure6, figure7, theorem4, theory, usefulness
from coco_experiments.hay2010.range_statements import crossing, statements
from coco_experiments.hay2010.strategies import RAW_FIT, RAW_NODES, RAW_UNIT, UNIT
from coco_experiments.hay2010.unattributed import ESTIMATORS, FIT, GEOMETRIC, GEOMETRIC_L1, RAW, SORTED
from coco_experiments.statistics import Mean

from coco_opt.ranges.domain import DomainTree
from tests.experiments.recorder import Recorder

MODULES = (figure3, figure5, figure6, figure7, theorem4, usefulness)


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.NAME)
def test_small_runs_write_their_files(module: ModuleType, tmp_path: Path) -> None:
    recorder = Recorder()
    outcome = module.run(small=True, out=tmp_path, reporter=recorder)
    assert outcome.failures == ()
    assert recorder.tables or outcome.statements
    assert {file.suffix for file in outcome.files} == {".csv", ".png", ".pdf"}
    assert sorted(outcome.files) == sorted(tmp_path.glob("hay2010/*"))
    with (tmp_path / f"{module.NAME}.csv").open(newline="") as file:
        assert len(list(csv.reader(file))) == len(outcome.tables[0].rows) + 1
    assert (tmp_path / f"{module.NAME}.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / f"{module.NAME}.pdf").read_bytes().startswith(b"%PDF")


def _measured5(raw: float, rounded: float, fitted: float, name: str = "d", origin: str = data.SNAP) -> figure5.Measured:
    counts = data.Counts(name, origin, np.zeros(8, np.int64))
    means = {RAW: raw, SORTED: rounded, FIT: fitted, GEOMETRIC: 1.0}
    errors = {key: Mean(value, 0.1, 50) for key, value in {**means, GEOMETRIC_L1: 1.0}.items()}
    return figure5.Measured(counts, Fraction(1), theory.Runs.of(counts.values), errors)


def test_figure5_reports_what_contradicts_theory() -> None:
    bound = 2 * (1 + 1 / 2 + 1 / 3 + 1 / 4 + 1 / 5 + 1 / 6 + 1 / 7 + 1 / 8)
    assert figure5.failures_in([_measured5(16.0, 8.0, bound)]) == ()
    (line,) = figure5.failures_in([_measured5(16.0, 8.0, bound + 0.5)])
    assert line == "d, epsilon 1: the error of S-bar exceeds its bound"
    (line,) = figure5.failures_in([_measured5(30.0, 8.0, 1.0)])
    assert line == "d, epsilon 1: the error of S~ is not 2n/eps^2"


def test_figure5_says_where_the_order_of_magnitude_holds() -> None:
    results = [_measured5(16.0, 8.0, 1.0), _measured5(16.0, 2.0, 1.0, "Social Network", data.SIMULATED_DATA)]
    said = figure5.statements(results)
    assert [one.holds for one in said] == [True, True, False, False, True, True]
    assert said[2].measured == "8 to 8 times; below ten: d at 1"
    assert not figure5.statements([_measured5(16.0, 9.0, 1.0, "Social Network")])[-2].holds


def test_figure5_repeats_and_every_estimator_beats_the_raw_counts() -> None:
    counts = data.generated(512)
    first, second = (figure5.measure(counts, Fraction(1, 10), 3) for _ in range(2))
    assert first.errors == second.errors
    assert all(first.errors[name].value < first.errors[RAW].value for name in ESTIMATORS[1:])


@pytest.fixture(scope="module")
def measured6() -> figure6.Measured:
    counts = data.generated(256)
    return figure6.measure(counts, 0.1, figure6.Theory.of(DomainTree(256)), 6, 30)


def test_figure6_theory_is_exact_at_the_ends() -> None:
    exact = figure6.Theory.of(DomainTree(64))
    assert exact.sizes.tolist() == [1, 2, 4, 8, 16, 32]
    assert exact.errors[RAW_NODES][0] == 2 * 7**2
    assert np.all(exact.errors[RAW_FIT] < exact.errors[RAW_NODES])


def test_figure6_reports_what_contradicts_theory(measured6: figure6.Measured) -> None:
    assert figure6.failures_in([measured6]) == ()
    far = tuple(Mean(1e12, 1.0, 50) for _ in measured6.theory.sizes)
    wrong = replace(measured6, errors={**measured6.errors, RAW_FIT: far})
    assert figure6.failures_in([wrong]) == (
        "simulated data, epsilon 0.1: H-bar unrounded does not have its exact error",
    )
    above = replace(
        measured6.theory, errors={**measured6.theory.errors, RAW_NODES: np.zeros(measured6.theory.sizes.size)}
    )
    lines = figure6.failures_in([replace(measured6, theory=above)])
    assert any("exceeds that of H~ unrounded" in line for line in lines)


def test_figure6_statements_read_the_curves(measured6: figure6.Measured) -> None:
    flat = {name: tuple(Mean(10.0, 1.0, 6) for _ in measured6.theory.sizes) for name in measured6.errors}
    rising = tuple(Mean(0.1 * float(size), 1.0, 6) for size in measured6.theory.sizes)
    said = statements([replace(measured6, errors={**flat, UNIT: rising, RAW_UNIT: rising})])
    unit, unrounded, rounded = said[:3]
    assert unit.holds
    assert unit.measured == "H~ / L~: simulated data: 100"
    assert unrounded.measured.endswith("measured unrounded: simulated data: 100")
    assert rounded.measured == "rounded: simulated data: 100"
    assert not rounded.holds
    assert not any(one.holds for one in said if "H-bar is below" in one.published or "45 to 98" in one.published)


def test_crossing_is_interpolated_on_logarithms() -> None:
    sizes = np.array([1, 2, 4, 8])
    assert crossing(sizes, sizes * 1.0, np.full(4, 3.0)) == pytest.approx(3.0)
    assert crossing(sizes, np.ones(4), np.full(4, 3.0)) is None
    assert crossing(sizes, np.full(4, 5.0), np.full(4, 3.0)) is None


def test_figure7_classes_cover_all_positions() -> None:
    counts = data.Counts("c", data.MADE, np.array([0] * 120 + [3] * 12 + [5, 6, 6]))
    errors = np.concatenate([np.zeros(120), np.ones(12), [4.0, 2.0, 2.0]])
    table = figure7.table_of(counts, errors, 1)
    assert [row[:3] for row in table.rows] == [
        ("1", 1, 1),
        ("2 to 9", 1, 2),
        ("10 to 99", 1, 12),
        ("100 or more", 1, 120),
    ]
    assert [row[4] for row in table.rows] == [4.0, 2.0, 1.0, 0.0]
    assert [one.holds for one in figure7.statements(table)] == [True, False, True]


def test_usefulness_reports_a_bound_that_fails() -> None:
    table = usefulness.table_of((4,), 5, Recorder())
    assert usefulness.failures_in(table) == ()
    at = usefulness.COLUMNS.index("H~ within bound")
    row = (*table.rows[0][:at], 0.5, *table.rows[0][at + 1 :])
    (line,) = usefulness.failures_in(replace(table, rows=(row,)))
    assert line == "8 cells: the bound holds in a share of 0.5 only"


@pytest.mark.slow
def test_figure5_holds_on_real_degree_sequences(shared_data: Path, tmp_path: Path) -> None:
    outcome = figure5.run(small=False, out=tmp_path, reporter=Recorder(), data=shared_data)
    assert outcome.failures == ()
    rows = [row for row in outcome.tables[0].records() if row["data"] in data.DEGREES]
    assert len(rows) == 9
    assert all(row["ten times below S~"] for row in rows)


@pytest.mark.slow
def test_figure6_agrees_with_its_exact_errors(tmp_path: Path) -> None:
    outcome = figure6.run(small=False, out=tmp_path, reporter=Recorder(), data=tmp_path)
    assert outcome.failures == ()


@pytest.mark.slow
def test_theorem4_holds_for_every_range_of_the_papers_trees(tmp_path: Path) -> None:
    outcome = theorem4.run(small=False, out=tmp_path, reporter=Recorder())
    assert outcome.failures == ()
    assert outcome.tables[0].rows[2][3] == 65_536 * 65_537 // 2
