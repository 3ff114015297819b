"""Instances cut from one measurement, the planted fault, and what comparing leaves untouched."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import coco_opt.runs.instances as module
from coco_opt.config import Config, parse_config
from coco_opt.errors import SolverError
from coco_opt.groups import SizeEstimate
from coco_opt.histograms import CountOfCounts
from coco_opt.problems import IsotonicL2
from coco_opt.runs.compare import compare
from coco_opt.runs.demo import demo_truth, write_demo
from coco_opt.runs.instances import cut_matching
from coco_opt.runs.planted import CorruptedPav
from coco_opt.solution import Status
from coco_opt.solver import solve


def config(folder: Path, privacy: str) -> Config:
    """Return a configuration of the demo's tables, the groups table left out where they must not be opened."""
    data = 'entities = "entities.csv"\ngroups = "groups.csv"\nhierarchy = "hierarchy.csv"'
    text = f'[data]\n{data}\n[privacy]\nepsilon = "1"\n{privacy}\n[groups]\nmax_size = 60\nestimator = "rank"\n'
    return parse_config(text, folder)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_corrupted_answer_is_feasible_and_caught(sign: float) -> None:
    y = sign * np.array([3.0, 1.0, 2.0, 8.0, 5.0, 9.0])
    for upper in (np.inf, float(y.max())):
        problem = IsotonicL2(y, lower=float(y.min()), upper=upper)
        solution = solve(problem, CorruptedPav(), check=False)
        assert solution.violation == 0.0
        assert solution.status is Status.GAP_TOO_LARGE
        with pytest.raises(SolverError):
            solve(problem, CorruptedPav())


def test_small_and_large_cuts_of_a_matching() -> None:
    parent = SizeEstimate.from_histogram(CountOfCounts(np.arange(9), np.arange(1, 10)), 1.0)
    halves = [np.array([0, 1, 4, 6, 9]), np.array([1, 2, 3, 12])]
    counts = [np.array([5, 5, 5, 5, 5]), np.array([5, 5, 5, 5])]
    children = [SizeEstimate.from_histogram(CountOfCounts(s, c), 1.0) for s, c in zip(halves, counts, strict=True)]
    whole = cut_matching(parent, children, 10_000)
    assert (whole.variables, whole.groups) == (81, 45)
    for pairs in (1, 5, 20, 36, 80, 101):
        problem = cut_matching(parent, children, pairs)
        assert 1 <= problem.variables <= pairs
        assert solve(problem).ok
    tiny = cut_matching(parent, children, 36)
    assert tiny.groups == 6
    assert solve(tiny, "brute-force").objective == solve(tiny).objective


def test_without_a_seed_the_private_table_stays_closed(tmp_path: Path) -> None:
    comparison = compare(config(tmp_path, ""), size=6)
    assert "was not opened" in comparison.data
    assert comparison.caught
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("consistency", "kinds"),
    [
        ("joint", {"joint_l1", "joint_l2", "cumulative_rounding"}),
        ("convex", {"integer_tree_l1", "integer_tree_l2"}),
        ("matching", set()),
    ],
)
def test_the_programs_of_the_configured_method_are_compared(tmp_path: Path, consistency: str, kinds: set[str]) -> None:
    files = write_demo(tmp_path, groups=300)
    data = 'entities = "entities.csv"\ngroups = "groups.csv"\nhierarchy = "hierarchy.csv"'
    text = (
        f'[data]\n{data}\n[privacy]\nepsilon = "1"\nnoise = "seeded"\nseed = 1\n'
        f'[groups]\nmax_size = 40\nconsistency = "{consistency}"\n'
    )
    comparison = compare(parse_config(text, files.entities.parent), size=40)
    programs = {"joint_l1", "joint_l2", "cumulative_rounding", "integer_tree_l1", "integer_tree_l2"}
    assert {row.problem for row in comparison.rows} & programs == kinds
    for kind in kinds:
        rows = [row for row in comparison.rows if row.problem == kind]
        best = min(row.objective for row in rows if row.objective is not None)
        certified = [row for row in rows if row.status == "OPTIMAL"]
        assert len(certified) >= 2
        assert all(row.objective is not None for row in certified)
        assert all((row.objective or 0.0) <= best + (row.tolerance or 0.0) * max(1.0, best) + 1e-6 for row in certified)


def test_a_certified_fault_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CorruptedPav", lambda: CorruptedPav(shift=0.0))
    assert not compare(config(tmp_path, ""), size=6).caught


def test_a_failing_package_is_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: CorruptedPav, problem: object) -> None:
        raise RuntimeError("zebra7391")

    monkeypatch.setattr(CorruptedPav, "solve", broken)
    comparison = compare(config(tmp_path, ""), size=6)
    (row,) = [row for row in comparison.rows if row.planted]
    assert (row.status, row.note) == ("FAILED", "RuntimeError")
    assert not comparison.caught


def test_the_demo_is_reproducible_and_its_truth_fits(tmp_path: Path) -> None:
    one, two = (write_demo(tmp_path / name, groups=500) for name in ("one", "two"))
    for a, b in ((one.entities, two.entities), (one.groups, two.groups), (one.config, two.config)):
        assert a.read_bytes() == b.read_bytes()
    truth = demo_truth(one)
    assert len(truth.histograms) == 36
    assert set(truth.others) == {"matching", "no consistency", "bottom-up"}
    assert all(len(answers) == 36 for answers in truth.others.values())
    rows = one.groups.read_text().count("\n") - 1
    assert truth.histograms[0].groups == rows
    assert truth.histograms[0].entities == one.entities.read_text().count("\n") - 1
