"""The rows of rounding tables on tiny sizes: right answers; no time is judged."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from coco_experiments.bench import table_rounding

from coco_opt.solving import solve
from tests.experiments.recorder import small_run


def test_small_rows_are_right_and_written(tmp_path: Path) -> None:
    outcome = small_run(table_rounding, tmp_path)
    what = [row[1] for row in outcome.tables[0].rows]
    assert what.count(table_rounding.SOLVE) == 3
    assert what.count(table_rounding.LINEAR) == what.count(table_rounding.WHOLE) == 2


def test_a_worse_answer_is_reported() -> None:
    solution = solve(table_rounding.drawn(0, 4, 12))
    assert not table_rounding.faults("one", {table_rounding.OURS: solution, table_rounding.WHOLE: solution})
    better = replace(solution, objective=solution.objective - 0.1)
    (line,) = table_rounding.faults("one", {table_rounding.OURS: solution, table_rounding.WHOLE: better})
    assert "HiGHS MILP differs" in line


def test_instances_repeat_and_hold_their_sums() -> None:
    first, second = table_rounding.drawn(3, 5, 40, nested=True), table_rounding.drawn(3, 5, 40, nested=True)
    assert np.array_equal(first.x, second.x)
    assert first.parent is not None
    np.testing.assert_allclose(first.x.sum(axis=0), first.parent, rtol=1e-12)
    assert first.nested is not None
