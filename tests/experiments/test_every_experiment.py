"""Every experiment once in its small form, its verdicts as recorded; where real data lie, and data made instead."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path

import numpy as np
import pytest
from coco_experiments.curves import AxisStyle, Curve, CurvePanel, draw
from coco_experiments.data import VARIABLE, data_file, find_data_file, generated_counts, group_sizes, hawaiian, taxi
from coco_experiments.experiment import Experiment
from coco_experiments.plots import Panel, comparison
from coco_experiments.statistics import Mean, Reference
from coco_experiments.table import EXPERIMENTS

from coco_opt.errors import ConfigError
from tests.experiments.recorder import Recorder, misplaced_texts

VERDICTS: dict[str, list[str]] = json.loads(Path(__file__).with_name("verdicts.json").read_text(encoding="utf-8"))
"""By experiment with statements of a paper: where the paper says something, and what the small run finds of it."""
SLOW = {
    *("beyond/auto", "beyond/posterior", "beyond/ranges_posterior", "beyond/tables_posterior", "beyond/west_coast"),
    *("beyond/which_method", "flaxman2019/releases", "peers/strategies"),
}
"""Experiments of more than five seconds of processor time."""
FAST_BENCHES = {f"bench/{name}" for name in ("isotonic_l1", "joint", "matching", "split", "table_rounding", "tree")}


def marked(row: Experiment) -> object:
    slow = row.name in SLOW or (row.kind == "bench" and row.name not in FAST_BENCHES)
    return pytest.param(row, id=row.name, marks=pytest.mark.slow if slow else ())


@pytest.mark.parametrize("row", [marked(row) for row in EXPERIMENTS])
def test_a_small_run_holds_its_checks_and_repeats_its_verdicts(row: Experiment, tmp_path: Path) -> None:
    recorder = Recorder()
    with misplaced_texts() as misplaced:
        outcome = row.run(small=True, out=tmp_path, reporter=recorder)
    assert (outcome.failures, misplaced) == ((), [])
    assert [table for table in recorder.tables if table not in outcome.tables] == []
    assert outcome.tables[0].rows
    assert all(file.stat().st_size > 0 for file in outcome.files)
    written = [file for file in outcome.files if file.suffix == ".csv"]
    for table, file in zip(outcome.tables, written, strict=False):
        with file.open(encoding="utf-8", newline="") as opened:
            assert next(csv.reader(opened)) == list(table.columns)
    assert bool(row.shows) == any(file.suffix == ".png" for file in outcome.files)
    assert [f"{item.where}: {item.verdict}" for item in outcome.statements] == VERDICTS.get(row.name, [])


LONG = ("Synthetic (made anew), West Coast", "Hawaiian (counties made), West Coast", "Taxi")
"""Names of real data sets; those of simulated ones are shorter."""


@pytest.mark.parametrize("levels", [1, 3])
@pytest.mark.parametrize("methods", [2, 6])
def test_curves_of_real_data_have_room_for_their_texts(levels: int, methods: int, tmp_path: Path) -> None:
    x = (0.1, 0.25, 0.5, 1.0)
    curves = tuple(Curve(f"Hc x Hg, variant {k}", x, [2e3 * (k + 1) / each for each in x]) for k in range(methods))
    rows = [[CurvePanel(f"{name}, level {level}", curves) for level in range(levels)] for name in LONG]
    with misplaced_texts() as misplaced:
        draw(tmp_path / "curves", rows, AxisStyle("epsilon a level", "mean earth mover's\ndistance (entities)"))
    assert misplaced == []


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("series", [3, 6])
def test_comparisons_of_real_data_have_room_for_their_texts(log: bool, series: int, tmp_path: Path) -> None:
    labels = tuple(f"{name}, Hc, level {level}" for name in LONG for level in range(3))
    values = {f"measured, variant {k}": tuple(3e5 / (k + j + 1) for j in range(9)) for k in range(series)}
    panels = {title: Panel(labels, values) for title in ("Bottom-up", "Top-down matching")}
    with misplaced_texts() as misplaced:
        comparison(tmp_path / "rows", panels, "mean earth mover's distance (entities) a region", log=log)
    assert misplaced == []


def test_no_figure_or_table_of_a_paper_is_without_a_verdict() -> None:
    """Of each experiment that repeats a paper, the small run judges a sentence at least; what goes beyond need not."""
    repeats = {row.name for row in EXPERIMENTS if row.of_a_paper and "beyond it" not in row.paper}
    assert repeats <= set(VERDICTS) <= {row.name for row in EXPERIMENTS}
    stored = json.loads((Path(__file__).parents[2] / "docs" / "verdicts.json").read_text(encoding="utf-8"))
    assert set(stored) >= set(VERDICTS)
    assert all(item["figure"] for record in stored.values() for item in record["statements"])


FILE = "kuo2018/taxi_neighbourhoods.csv"


def _place(folder: Path) -> Path:
    (folder / "kuo2018").mkdir(parents=True)
    (folder / FILE).write_text("level0,size,groups\nall,1,2\nall,3,1\n")
    return folder


def test_given_folder_wins_over_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given, named = _place(tmp_path / "given"), _place(tmp_path / "named")
    monkeypatch.setenv(VARIABLE, str(named))
    assert data_file(FILE, given) == given / FILE
    assert data_file(FILE) == named / FILE
    assert taxi(given).region(0).entities == 5


def test_default_lies_beside_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _place(tmp_path / "shared" / "data")
    (tmp_path / "work").mkdir()
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.chdir(tmp_path / "work")
    assert data_file(FILE).resolve() == (tmp_path / "shared" / "data" / FILE).resolve()


def test_absent_data_say_where_to_put_them(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        data_file(FILE, tmp_path)
    for part in (FILE, str(tmp_path), VARIABLE, "--small"):
        assert part in str(caught.value)
    assert find_data_file(FILE, tmp_path) is None


def test_taxi_and_hawaiian_are_the_papers(shared_data: Path) -> None:
    read, one = taxi(shared_data), hawaiian(shared_data)
    root, blocks = read.region(0), one.region(0)
    assert (root.groups, root.entities, root.distinct) == (360_872, 130_962_398, 3_128)
    assert (read.hierarchy.levels, len(read.hierarchy.leaves)) == (3, 28)
    assert (blocks.groups, blocks.entities, blocks.distinct) == (11_155_486, 540_383, 224)


def test_made_sizes_repeat_and_stay_in_range() -> None:
    first, second = (group_sizes(2_000, 50, np.random.default_rng(1)) for _ in range(2))
    assert np.array_equal(first, second)
    assert first.min() == 1
    assert 40 < first.max() <= 50


def test_made_counts_form_three_consistent_levels() -> None:
    made = generated_counts(2, 3, 100, 40, np.random.default_rng(2))
    assert made.hierarchy.levels == 3
    assert made.group_counts.tolist() == [600, 300, 300] + [100] * 6
    assert made.region(0).groups == 600


def test_mean_and_its_standard_error() -> None:
    mean = Mean.of([1.0, 2.0, 3.0, 6.0])
    assert mean.value == 3.0
    assert mean.standard_error == pytest.approx(math.sqrt((4 + 1 + 0 + 9) / 3 / 4))
    assert Mean.of([4.0]).standard_error is None


def test_distance_in_combined_standard_errors() -> None:
    # sqrt(10^2/100 + 10^2/25) = sqrt(5); an own spread, however wide, does not enter.
    apart = Reference(50.0, 10.0, 100).standard_errors_from(Mean(60.0, 1e6, 25))
    assert apart == pytest.approx(10.0 / math.sqrt(5.0))
