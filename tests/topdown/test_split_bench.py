"""The instances of the benchmark of top-down splits, and what it takes for a fault."""

from __future__ import annotations

from typing import Any

import numpy as np
from coco_experiments.bench import split
from coco_experiments.bench.solved import faults
from coco_solvers.structured.split import SplitNewton

from coco_opt import solve
from coco_opt.solution import Answer, Status
from coco_opt.solving import judge


def test_instances_are_consistent_and_repeat() -> None:
    first, second = split.instance(3, 40, totals=True), split.instance(3, 40, totals=True)
    assert first.parent is not None
    assert first.constraints is not None
    assert first.variables == 3 * 40
    assert first.parent.sum() == first.constraints.lower.sum()
    np.testing.assert_array_equal(first.answers, second.answers)


def test_a_worse_answer_of_ours_is_a_fault() -> None:
    problem = split.instance(3, 20, totals=False)
    good = solve(problem, SplitNewton())
    assert faults("x", good, {"PIQP": good}, 1e-6) == []
    assert problem.parent is not None
    even: Answer[Any, Any] = Answer(np.repeat(problem.parent[None, :] / 3, 3, axis=0), Status.OPTIMAL)
    worse = judge(problem, even, "even", 1e-6)
    assert len(faults("x", worse, {"PIQP": good}, 1e-6)) == 2
