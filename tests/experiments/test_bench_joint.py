"""The rows of joint estimation and of matching on tiny sizes: right answers; no time is judged."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from coco_experiments.bench import joint, joint_nation, matching
from coco_experiments.bench.apart import Apart
from coco_solvers.structured.joint import AlternatingDirections

from coco_opt.histograms import CountOfCounts
from coco_opt.problems.joint import JointL1, JointL2
from coco_opt.solving import solve
from tests.experiments.recorder import Recorder, small_run


def test_small_joint_rows_are_right_and_written(tmp_path: Path) -> None:
    outcome = small_run(joint, tmp_path)
    assert [file.suffix for file in outcome.files] == [".csv", ".json"]
    (read,) = json.loads((tmp_path / "bench" / "joint.json").read_text())
    what = [row["what"] for row in read["rows"]]
    assert what[:2] == list(joint.KINDS)
    assert all(what.count(name) == 2 for name in joint.ROUNDS.values())
    assert sum("each doubling takes" in note for note in read["notes"]) == 2


def test_an_uncertified_fit_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    (case,), _ = joint.cases(small=True, data=None)
    one_round = AlternatingDirections(tolerance=0.0, max_iter=1)
    monkeypatch.setattr(joint, "AlternatingDirections", lambda tolerance: one_round)
    _, _, wrong = joint.against_limits(case, 1)
    assert len(wrong) == 2
    assert all("relative gap" in line for line in wrong)


def test_a_package_that_disagrees_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def shifted(problem: Any, solver: Any, **options: Any) -> Any:
        solution = solve(problem, solver, **options)
        return replace(solution, objective=1.01 * solution.objective) if solver.name == "highs" else solution

    monkeypatch.setattr(joint, "solve", shifted)
    _, wrong = joint.against_packages(12, 1)
    assert len(wrong) == 1
    assert "highs" in wrong[0]


def test_made_tables_stand_in_where_the_real_ones_are_absent(tmp_path: Path) -> None:
    (first, second), notes = joint.cases(small=False, data=tmp_path)
    assert [case.counts.hierarchy.regions for case in (first, second)] == [31, 1_226]
    assert len(notes) == 2


def test_weights_are_those_of_the_noise() -> None:
    (case,), _ = joint.cases(small=True, data=None)
    np.testing.assert_allclose(joint.problem_of(case.counts, case.max_size, JointL1).weights, 1 / 3)
    np.testing.assert_allclose(joint.problem_of(case.counts, case.max_size, JointL2).weights, np.cosh(1 / 3) - 1)


@pytest.mark.parametrize("growth", [0.0, 0.5])
def test_a_nation_is_fitted_and_certified(growth: float) -> None:
    found = joint_nation.fitted("small", None, 40, growth)
    assert found["solver"] == ("tree-interior-point" if growth else "alternating-directions")
    assert 0.0 <= float(found["gap"]) <= (1e-3 if growth else 1e-4)


def test_rows_and_faults_of_a_joint_nation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = {"seconds": 181.0, "cpu": 300.0, "gap": 1e-5, "level_gap": 1e-2, "solver": "one", "solver_seconds": 99.0}

    def found(target: str, size: str, data: str | None, max_size: int, growth: float) -> Apart:
        return Apart(1.0, 1.0, 3_900.0, {"failed": "no"} if growth else told)

    monkeypatch.setattr(joint_nation, "apart", found)
    outcome = joint_nation.run(small=True, out=tmp_path, reporter=Recorder())
    assert outcome.failures == ("buckets of growth .05: no",)
    (read,) = json.loads((tmp_path / "bench" / "joint_nation.json").read_text())
    assert [(row["seconds"], row["target"], row["met"]) for row in read["rows"]] == [
        (181.0, "<= 180 s, <= 4,000 MB", False)
    ]
    assert "loosest level 0.01" in read["notes"][0]


def test_small_matching_rows_are_right_and_written(tmp_path: Path) -> None:
    recorder = Recorder()
    outcome = matching.run(small=True, out=tmp_path, reporter=recorder)
    assert outcome.ok
    (read,) = json.loads((tmp_path / "bench" / "matching.json").read_text())
    assert [row["what"] for row in read["rows"]] == [matching.ALGORITHM, matching.FAMILY, matching.FAMILY]
    assert read["rows"][0]["target"] == "<= 2 s"
    assert recorder.steps[-1] == (matching.NAME, 2, 2)


def test_families_have_the_runs_they_name() -> None:
    parent, children = matching.family(800)
    assert sum(child.sizes.size for child in children) == 400
    assert parent.counts.sum() == sum(child.counts.sum() for child in children)


def test_a_lost_group_and_a_wrong_sum_are_reported() -> None:
    hierarchy, before = matching.noisy_tree(matching.SMALL)
    after = [estimate.histogram for estimate in before]
    after[hierarchy.leaves.start] = CountOfCounts.empty()
    wrong = matching.faults(hierarchy, before, after)
    assert any("groups" in line for line in wrong)
    assert any("sum" in line for line in wrong)
