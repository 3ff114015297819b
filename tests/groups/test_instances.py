"""Instances cut from one measurement, the planted fault, and what comparing leaves untouched."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from coco_opt import CountOfCounts, IsotonicL2, Status, solve
from coco_opt.errors import SolverError
from coco_opt.groups.estimating.estimators import SizeEstimate
from coco_opt.groups.kind import GROUPS
from coco_opt.groups.kind.instances import CorruptedPav, cut_matching
from coco_opt.releases.compare import compare, compare_instances
from coco_opt.releases.kind import Instance
from tests.groups.helpers import measured, three_levels
from tests.groups.towns import SEEDED, config_of

EACH = {"isotonic_l1", "isotonic_l2", "simplex_projection", "controlled_rounding", "group_matching"}


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


def test_a_chosen_solver_without_a_row_is_compared_and_timed() -> None:
    instance = Instance("isotonic_l2", 20, lambda size: IsotonicL2(np.arange(size)[::-1]))
    rows = compare_instances([instance], "", {"isotonic_l2": CorruptedPav()}, size=20).rows
    own = rows[-1]
    assert (own.solver, own.status, own.used) == (CorruptedPav.name, "GAP_TOO_LARGE", True)
    assert own.seconds > 0
    assert not any(row.used for row in rows[:-1])


def test_a_fit_whose_halves_lie_at_both_bounds_is_corrupted_too() -> None:
    for y in ([-5.0, -5.0, 99.0], [-1.0, 7.0], [9.0]):
        solution = solve(IsotonicL2(np.array(y), lower=0.0, upper=3.0), CorruptedPav(), check=False)
        assert solution.violation == 0.0
        assert solution.status is Status.GAP_TOO_LARGE


def test_small_and_large_cuts_of_a_matching() -> None:
    parent = SizeEstimate.from_histogram(CountOfCounts(np.arange(9), np.arange(1, 10)), 1.0)
    halves = [np.array([0, 1, 4, 6, 9]), np.array([1, 2, 3, 12])]
    counts = [np.array([5, 5, 5, 5, 5]), np.array([5, 5, 5, 5])]
    children = [SizeEstimate.from_histogram(CountOfCounts(s, c), 1.0) for s, c in zip(halves, counts, strict=True)]
    full = cut_matching(parent, children, 10_000)
    assert (full.variables, full.groups) == (81, 45)
    for pairs in (1, 5, 20, 36, 80, 101):
        problem = cut_matching(parent, children, pairs)
        assert 1 <= problem.variables <= pairs
        assert solve(problem).ok
    tiny = cut_matching(parent, children, 36)
    assert tiny.groups == 6
    assert solve(tiny, "brute-force").objective == solve(tiny).objective


@pytest.mark.parametrize("query", ["sizes", "ranks", "cumulative"])
def test_every_query_poses_a_problem_of_every_kind(query: str, tmp_path: Path) -> None:
    hierarchy, truth = three_levels(np.random.default_rng(3))
    config = config_of(tmp_path, privacy=SEEDED, query=query)
    result = GROUPS.instances(measured(hierarchy, truth, query), config)
    assert {instance.kind for instance in result} == EACH
    for instance in result:
        for size in (1, 5, instance.largest):
            problem = instance.make(size)
            assert problem.kind == instance.kind
            assert problem.variables <= max(size, 1)
            assert solve(problem).ok
    leaves = GROUPS.instances(
        measured(hierarchy, truth, query, shares=[0, 0, 1]),
        config_of(tmp_path, privacy=SEEDED, query=query, consistency="bottom_up"),
    )
    assert {instance.kind for instance in leaves} == EACH - {"group_matching"}


@pytest.mark.parametrize(
    ("consistency", "kinds", "growth"),
    [
        ("joint", {"joint_l1", "joint_l2", "expected_distance"}, 0),
        ("joint", {"joint_l1", "joint_l2", "expected_distance"}, 0.5),
        ("convex", {"integer_tree_l1", "integer_tree_l2"}, 0),
        ("posterior", {"expected_distance"}, 0),
        ("matching", set(), 0),
    ],
)
def test_the_programs_of_the_configured_method_are_compared(
    tmp_path: Path, consistency: str, kinds: set[str], growth: object
) -> None:
    comparison = compare(config_of(tmp_path, privacy=SEEDED, consistency=consistency, bucket_growth=growth), size=40)
    assert comparison.caught
    assert {row.problem for row in comparison.rows} == EACH | kinds
    for kind in kinds:
        every = [row for row in comparison.rows if row.problem == kind]
        rows = [
            row for row in every if row.unknowns == max(instance.unknowns for instance in every)
        ]  # those not cut further
        best = min(row.objective for row in rows if row.objective is not None)
        certified = [row for row in rows if row.status == "OPTIMAL"]
        assert len(certified) >= 2
        assert all(row.objective is not None for row in certified)
        assert all((row.objective or 0.0) <= best + (row.tolerance or 0.0) * max(1.0, best) + 1e-6 for row in certified)


def test_without_a_seed_the_private_table_stays_closed(tmp_path: Path) -> None:
    config = config_of(tmp_path, query="ranks")
    comparison = compare(config, size=6)
    assert "was not opened" in comparison.data
    assert comparison.caught
    assert sorted(path.name for path in tmp_path.iterdir()) == ["sizes.csv"]


def planted(solver: CorruptedPav) -> list[Instance]:
    return [Instance("isotonic_l2", 6, lambda n: IsotonicL2(np.array([3.0, 1, 2, 8, 5, 9])[:n], lower=0), solver)]


def test_a_certified_fault_is_noticed() -> None:
    assert compare_instances(planted(CorruptedPav()), "made", {}, size=6).caught
    assert not compare_instances(planted(CorruptedPav(shift=0.0)), "made", {}, size=6).caught


def test_a_failing_package_is_a_row() -> None:
    class Broken(CorruptedPav):
        def solve(self, problem: object) -> None:  # type: ignore[override]
            raise RuntimeError("zebra7391")

    comparison = compare_instances(planted(Broken()), "made", {}, size=6)
    (row,) = [row for row in comparison.rows if row.planted]
    assert row.status == "NO POINT"
    assert "RuntimeError" in row.note
    assert "zebra" not in row.note
    assert not comparison.caught


def test_buckets_and_ranks_pose_problems_of_cells(tmp_path: Path) -> None:
    settings = {"consistency": "posterior", "bucket_growth": [0.5, 0], "query": ["cumulative", "ranks"]}
    config = config_of(tmp_path, privacy=SEEDED, **settings)
    comparison = compare(config, size=40)
    assert {row.problem for row in comparison.rows} == EACH | {"expected_distance"}
    assert comparison.caught
