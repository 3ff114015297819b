"""The experiments beyond the papers on made data."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from coco_experiments.bench import posterior as bench
from coco_experiments.beyond import posterior
from coco_experiments.kuo2018.cases import Case
from coco_experiments.made import made_counts

from coco_opt.groups.estimated.intervals import Intervals
from tests.experiments.recorder import Recorder


def test_a_small_run_writes_errors_coverage_and_seconds(tmp_path: Path) -> None:
    outcome = posterior.run(small=True, out=tmp_path, reporter=Recorder())
    assert outcome.ok
    with (tmp_path / "beyond" / "posterior.csv").open() as file:
        rows = list(csv.DictReader(file))
    methods = {row["method"] for row in rows}
    assert {"joint p = 1", "bottom-up Hc", "posterior, cells", "posterior, buckets"} <= methods
    assert all(float(row["measured"]) >= 0 for row in rows)
    joint = [row for row in rows if row["method"] == "joint p = 1"]
    assert all(float(row["times joint"]) == 1 for row in joint)
    with (tmp_path / "beyond" / "posterior_intervals.csv").open() as file:
        inside = [float(row["% inside"]) for row in csv.DictReader(file)]
    assert np.mean(inside) > 80


def test_coverage_counts_wide_intervals_only() -> None:
    case = Case.of("made", made_counts(1, 1, 30, 5, np.random.default_rng(1)), 5)
    dense = np.array([one.to_dense(5) for one in case.truth])
    running = np.cumsum(dense, axis=1)
    wide = dense.copy()
    wide[0, 0] += 2
    found = posterior.coverage_of(case, Intervals(0.9, dense, wide, running + 1, running + 3))
    assert (found["of a size"][0].inside, found["of a size"][0].width) == (1.0, 2.0)
    assert found["of a size"][0].uncertain == pytest.approx(1 / 6)
    assert np.isnan(found["of a size"][1].inside)
    assert found["of at most a size"][1].inside == 0.0


def test_the_small_bench_is_right_and_written(tmp_path: Path) -> None:
    outcome = bench.run(small=True, out=tmp_path, reporter=Recorder())
    assert outcome.ok
    assert [file.suffix for file in outcome.files] == [".csv", ".json"]
