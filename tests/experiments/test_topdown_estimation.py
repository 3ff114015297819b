"""The top-down experiments on simulated blocks; the claims on Hawaii's in the slow test."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from coco_experiments.topdown import backends, hawaii, large
from coco_experiments.topdown.data import generated_blocks, small_tables
from coco_experiments.topdown.data import hawaii as read_hawaii
from coco_experiments.topdown.study import CLASSIC, EQUAL, FULL, LINEAR, bias_by_size, make, mean_absolute

from coco_opt.topdown.queries import parse_queries
from tests.experiments.recorder import Recorder, small_run


def test_hawaii_small_run_writes_its_tables(tmp_path: Path) -> None:
    recorder = Recorder()
    outcome = hawaii.run(small=True, out=tmp_path, reporter=recorder)
    assert outcome.ok
    assert recorder.tables == list(outcome.tables)
    assert sorted(outcome.files) == sorted(tmp_path.glob("topdown/*"))
    assert len(outcome.tables[0].rows) == 5 * len(hawaii.SETTING.queries)


def test_large_small_run_tells_seconds_by_level(tmp_path: Path) -> None:
    recorder = Recorder()
    outcome = large.run(small=True, out=tmp_path, reporter=recorder)
    assert outcome.ok
    assert [row[1] for row in outcome.tables[0].rows] == [1, 2, 4, 4, 12]
    assert recorder.steps[-1][1:] == (23, 23)


def test_backends_agree_on_splits_of_a_release(tmp_path: Path) -> None:
    outcome = small_run(backends, tmp_path)
    solved = [record for record in outcome.tables[0].records() if record["status"] == "OPTIMAL"]
    assert {"piqp", "clarabel"} <= {record["backend"] for record in solved}


def test_nonnegative_tables_push_small_counts_up_and_linear_ones_do_not() -> None:
    tables = small_tables(generated_blocks(np.random.default_rng(1)))
    detail = parse_queries(["detail"], tables.schema)[0]
    empty = {
        name: bias_by_size(tables, make(tables, hawaii.SETTING, name, 2), detail, (0, 1))[0] for name in (FULL, LINEAR)
    }
    assert empty[FULL][0] == empty[LINEAR][0] > 300
    assert empty[FULL][1] > 0.3
    assert abs(empty[LINEAR][1]) < 5 * 8.0 / np.sqrt(empty[LINEAR][0])


@pytest.mark.slow
def test_full_information_beats_classic_on_hawaii(shared_data: Path) -> None:
    tables = small_tables(read_hawaii(shared_data))
    queries = parse_queries(hawaii.SETTING.queries, tables.schema)
    names = (FULL, CLASSIC, EQUAL)
    errors = {name: mean_absolute(tables, make(tables, hawaii.SETTING, name, 1), queries) for name in names}
    means = {name: float(np.exp(np.log(found).mean())) for name, found in errors.items()}
    assert means[FULL] < means[CLASSIC] < means[EQUAL]
