"""The tree rows of the performance table on tiny sizes: peers give the same answer; no time is judged."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from coco_experiments.bench import tree
from coco_experiments.bench.timing import Timing, take_turns
from coco_solvers.structured.tree import TreePasses

from coco_opt import solving
from tests.experiments.recorder import Recorder


def test_small_bench_agrees_with_its_peers(tmp_path: Path) -> None:
    recorder = Recorder()
    outcome = tree.run(small=True, out=tmp_path, reporter=recorder)
    assert outcome.failures == ()
    assert recorder.tables == list(outcome.tables)
    rows = outcome.tables[0].records()
    assert {row["what"] for row in rows} >= {tree.FIT, tree.SOLVE, tree.POSITIVE, tree.POSITIVE_SOLVE, tree.CLARABEL}
    assert all(isinstance(row["seconds"], float) and row["seconds"] > 0 for row in rows)
    assert any("exact zeros" in note for note in outcome.tables[0].notes)
    assert sum("each doubling takes" in note for note in outcome.tables[0].notes) == 2


def test_instances_repeat_and_are_integers() -> None:
    first, second = tree.instance(4, 3), tree.instance(4, 3)
    assert np.array_equal(first.y, second.y)
    assert np.array_equal(first.y, np.rint(first.y))
    assert tree.name_of(4, 3) == "4-ary, 16 leaves"


def test_a_wrong_peer_is_reported() -> None:
    pytest.importorskip("opendp")
    problem = tree.instance(4, 4)
    peer = tree.opendp_call(problem, 4)
    assert peer is not None
    calls = {
        tree.FIT: tree.passes(problem),
        tree.SOLVE: lambda: solving.solve(problem, TreePasses()),
        tree.OPENDP: peer,
    }
    timings = take_turns(calls, 1)
    assert tree.opendp_disagreements("t", problem, timings) == []
    timings[tree.OPENDP] = Timing((1.0,), list(np.array(timings[tree.OPENDP].value) + 1e-3))
    (line,) = tree.opendp_disagreements("t", problem, timings)
    assert "OpenDP" in line


def test_missing_zeros_and_gaps_are_reported() -> None:
    solution = solving.solve(tree.nonnegative(tree.instance(2, 5)), TreePasses())
    assert tree._nonnegative_faults("t", solution) == []
    shifted = replace(solution, value=solution.value + 1e-7, gap=1.0 + solution.objective)
    assert len(tree._nonnegative_faults("t", shifted)) == 2


def test_without_opendp_the_passes_stand_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree, "find_spec", lambda name: None)
    rows, wrong = tree.against_opendp(2, 4, 1)
    assert wrong == []
    assert [row.what for row in rows] == [tree.FIT, tree.SOLVE]
    assert all(row.ratio is None for row in rows)
