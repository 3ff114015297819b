"""The benchmark of executors: it runs small, gives one answer, and would notice another."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from coco_experiments.bench import executors as bench

from coco_opt.execution import Executor, Threads
from coco_opt.privacy import Measurement
from tests.experiments.recorder import Recorder


def test_the_benchmark_runs_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "TARGETS", {"threads": None})  # the others start slowly, and have tests of their own
    outcome = bench.run(small=True, out=tmp_path, reporter=Recorder())
    assert outcome.failures == ()
    rows = [(row["instance"], row["what"]) for row in outcome.tables[0].records()]
    names = ("simulated nation", "simulated blocks, 7 cells", "simulated blocks, 2,016 cells")
    assert rows == [(name, what) for name in names for what in ("one thread", "threads, 2")]


def test_another_answer_is_noticed(tmp_path: Path) -> None:
    (case, *_), _ = bench.cases(tmp_path, None, small=True)
    executors: dict[str, Executor] = {bench.SERIAL: Threads(1), "threads": Threads(2)}
    assert bench.rows_of(case, executors, 1)[1] == []

    def other(measurement: Measurement, executor: Executor) -> list[np.ndarray[Any, Any]]:
        return [np.array([executor.workers])]

    assert bench.rows_of(replace(case, estimate=other), executors, 1)[1] == [
        "simulated nation: threads gives another answer"
    ]
