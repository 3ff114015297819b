"""Every experiment once in its small form: its checks hold, it writes what it shows, its verdicts are as recorded."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from coco_experiments.curves import AxisStyle, Curve, CurvePanel, draw
from coco_experiments.experiment import Experiment
from coco_experiments.plots import Panel, comparison
from coco_experiments.table import EXPERIMENTS

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
