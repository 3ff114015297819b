"""Groups as a kind of release: refusals before any cost, releases, the demo, reports, and instances."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coco_opt import (
    CountOfCounts,
    GroupsMethod,
    Hierarchy,
    IsotonicL2,
    SolverChoices,
    Status,
    load_config,
    read_groups_release,
    solve,
)
from coco_opt.errors import ConfigError, InputError, ProblemError, SolverError
from coco_opt.estimators import estimator_rows
from coco_opt.groups import QUERIES
from coco_opt.groups.estimating.estimators import SizeEstimate
from coco_opt.groups.kind import GROUPS
from coco_opt.groups.kind.demo import demo_truth, write_demo
from coco_opt.groups.kind.instances import cut_matching
from coco_opt.groups.measuring.private import PrivateCounts
from coco_opt.releases import estimate, release, render_report, verify_release
from coco_opt.releases.compare import PLANTED, Planted, compare, compare_instances
from coco_opt.releases.kind import Instance, Shown, Truth, Work
from tests.groups.helpers import SEEDED, config_of, measured, three_levels

PROMISES = ["integers", "nonnegative", "sizes_at_most_max_size", "group_totals", "children_sum_to_parents"]


# --- before anything is paid ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "key", "message"),
    [
        ({"consistency": "joint", "query": "ranks"}, "groups.consistency", "'ranks' was measured"),
        ({"consistency": "joint", "query": "sizes"}, "groups.consistency", "'cumulative'"),
        ({"consistency": "convex", "query": "ranks"}, "groups.consistency", "the convex program"),
        ({"consistency": "convex", "query": ["sizes", "cumulative"]}, "groups.consistency", "another groups.query"),
        ({"consistency": "convex", "loss": ["l1", "l2"]}, "groups.loss", "one loss"),
        ({"consistency": "joint", "loss": ["l1", "l2"]}, "groups.loss", "one loss"),
        ({"loss": ["l1"] * 3}, "groups.loss", "has 3 entries"),
        ({"query": ["sizes"] * 3}, "groups.query", "has 3 entries"),
        ({"privacy": 'split = "leaves"'}, "groups.consistency", "'nation': choose 'posterior', 'joint'"),
        ({"privacy": 'split = "leaves"', "consistency": "none"}, "groups.consistency", "privacy.split"),
        ({"privacy": 'split = ["1", "0"]', "consistency": "bottom_up"}, "groups.consistency", "'joint' or 'convex'"),
        ({"privacy": 'split = ["1/2", "1/4", "1/4"]'}, "privacy.split", "has 3 entries"),
    ],
)
def test_contradictions_are_refused_with_their_key(
    settings: dict[str, Any], key: str, message: str, tmp_path: Path
) -> None:
    config = config_of(tmp_path, **settings)
    with pytest.raises(ConfigError, match=re.escape(message)) as caught:
        GROUPS.method(config, GROUPS.plan(config).measurement_plan)
    assert caught.value.key == key
    with pytest.raises(ConfigError):
        release(config)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["sizes.csv"]


def test_values_that_leave_64_bits_are_refused_by_the_plan(tmp_path: Path) -> None:
    config = config_of(tmp_path, query="ranks")
    huge = replace(config, privacy=config.privacy.model_copy(update={"epsilon": config.privacy.epsilon / 2**45}))
    with pytest.raises(ProblemError, match="larger epsilon"):
        GROUPS.plan(huge)


def test_a_table_that_changed_since_it_was_planned_is_refused(tmp_path: Path) -> None:
    plan = GROUPS.plan(config_of(tmp_path))
    (tmp_path / "sizes.csv").write_text((tmp_path / "sizes.csv").read_text().replace("north,1,30", "north,1,31"))
    with pytest.raises(InputError, match="changed meanwhile"):
        GROUPS.read(plan)


# --- whole releases ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("consistency", [row.name for row in estimator_rows("groups")])
def test_one_measurement_is_estimated_by_every_method(consistency: str, tmp_path: Path) -> None:
    outcome = release(config_of(tmp_path, privacy=SEEDED), tmp_path / "first", page=render_report).estimate
    assert outcome is not None
    other = estimate(outcome.shown.measurement, config_of(tmp_path, privacy=SEEDED, consistency=consistency))
    folder = other.save()
    checks = verify_release(folder)
    assert all(check.passed for check in checks)
    promised = {"none": PROMISES[:-1], "posterior": [*PROMISES, "intervals", "summaries"]}.get(consistency, PROMISES)
    assert other.manifest["promises"] == promised
    assert set(promised) <= {check.name for check in checks}
    method = other.manifest["method"]
    assert (method["consistency"], method["queries"]) == (consistency, ["cumulative"] * 2)
    assert other.manifest["max_size"] == 12
    again = read_groups_release(folder)
    assert again.levels == ("nation", "state")
    assert (
        again.group_counts.tolist() == GROUPS.plan(config_of(tmp_path)).measurement_plan.per_region["groups"].tolist()
    )


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("variances", ["formula", "bootstrap"])
def test_every_query_is_released(query: str, variances: str, tmp_path: Path) -> None:
    config = config_of(tmp_path, privacy=SEEDED, query=query, variances=variances, loss=["l1", "l2"])
    outcome = release(config, tmp_path / "out")
    assert all(check.passed for check in verify_release(outcome.folder))
    assert outcome.manifest["method"]["variances"] == variances
    assert outcome.manifest["method"]["losses"] == ["l1", "l2"]


GAUSSIAN = 'mechanism = "discrete_gaussian"\nrho = '


@pytest.mark.parametrize("budget", ['epsilon = "200"', f'{GAUSSIAN}"100000"'])
@pytest.mark.parametrize("query", QUERIES)
def test_a_huge_budget_returns_the_truth(query: str, budget: str, tmp_path: Path) -> None:
    config = config_of(tmp_path, budget=budget, privacy=SEEDED, query=query)
    truth = GROUPS.read(GROUPS.plan(config)).histograms()
    result = read_groups_release(release(config, tmp_path / "out").folder).histograms
    assert all(a.equals(b) for a, b in zip(result, truth, strict=True))


# --- the demo ---------------------------------------------------------------------------------------------


def test_the_demo_is_reproducible_and_its_truth_fits(tmp_path: Path) -> None:
    first, second = (write_demo(tmp_path / name, groups=200) for name in ("one", "two"))
    for a, b in ((first.entities, second.entities), (first.groups, second.groups), (first.config, second.config)):
        assert a.read_bytes() == b.read_bytes()
    truth = demo_truth(first)
    assert set(truth.others) == {"matching", "no consistency", "bottom-up"}
    root = truth.private.region(0)
    assert root.groups == first.groups.read_text().count("\n") - 1
    assert root.entities == first.entities.read_text().count("\n") - 1
    outcome = release(load_config(first.config), tmp_path / "out", page=render_report, truth=truth)
    assert outcome.estimate is not None
    errors = outcome.estimate.errors()
    assert list(errors) == ["this release", *truth.others]
    assert all(len(values) == 3 for values in errors.values())
    assert "Error by level" in (outcome.folder / "report.html").read_text()


# --- neighbours and statistics ----------------------------------------------------------------------------


# --- the report -------------------------------------------------------------------------------------------

EVIL = '<script src="x">&"\''
LEAVES = (CountOfCounts(np.array([0, 1, 3]), np.array([2, 9, 4])), CountOfCounts(np.array([2]), np.array([6])))


@pytest.mark.parametrize("query", QUERIES)
def test_a_page_escapes_names_and_shows_the_truth_only_where_it_is_given(query: str) -> None:
    tree = Hierarchy.from_paths([("land", EVIL), ("land", "south")])
    noisy = measured(tree, (CountOfCounts.total(LEAVES), *LEAVES), query, max_size=8)
    method = GroupsMethod(("l2", "l2"), consistency="matching")
    result = GROUPS.estimate(noisy, method, Work(SolverChoices()))
    manifest = {"name": EVIL, "private": False, "max_size": 8, "status": "NOT PRIVATE", "promises": ["integers"]}
    page = Shown(
        {**manifest, "solvers": {}, "versions": {"coco-opt": "1"}}, "NOT PRIVATE: a test", noisy, method, result
    )
    html = render_report(GROUPS, page)
    assert "://" not in html
    own = html[html.index("<script") : html.rindex("</script>")]  # the explorer, which has tests of its own
    assert "<script" not in html.replace(own, "")
    assert "&lt;script src=&quot;x&quot;&gt;&amp;" in html
    assert "Error by level" not in html
    truth = Truth(PrivateCounts.of_leaves(tree, LEAVES), {"again": result})
    assert "Error by level" in render_report(GROUPS, replace(page, truth=truth))
    errors = GROUPS.errors(noisy, truth, result)
    assert errors["again"] == errors["this release"]


EACH = {"isotonic_l1", "isotonic_l2", "simplex_projection", "controlled_rounding", "group_matching"}


@pytest.mark.parametrize(("y", "upper"), [([3, 1, 2, 8, 5, 9], 9.0), ([-3, -1, -2], 0.0), ([-5, 99], 3.0), ([9], 3.0)])
def test_a_planted_answer_is_feasible_and_caught(y: list[float], upper: float) -> None:
    problem = IsotonicL2(np.array(y), lower=min(0.0, *y), upper=upper)
    solution = solve(problem, PLANTED, check=False)
    assert solution.violation == 0.0
    assert solution.status is Status.GAP_TOO_LARGE
    with pytest.raises(SolverError):
        solve(problem, PLANTED)


def test_a_chosen_solver_without_a_row_is_compared_and_timed() -> None:
    instance = Instance("isotonic_l2", 20, lambda size: IsotonicL2(np.arange(size)[::-1]))
    rows = compare_instances([instance], "", {"isotonic_l2": PLANTED}, size=20).rows
    own = rows[-1]
    assert (own.solver, own.status, own.used) == (PLANTED.name, "GAP_TOO_LARGE", True)
    assert own.seconds > 0
    assert not any(row.used for row in rows[:-1])


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


SIX = [Instance("isotonic_l2", 6, lambda n: IsotonicL2(np.array([3.0, 1, 2, 8, 5, 9])[:n], lower=0))]


def test_a_certified_fault_is_noticed() -> None:
    assert compare_instances(SIX, "made", {}, size=6).caught
    assert not compare_instances(SIX, "made", {}, size=6, planted=Planted(shift=0.0)).caught


def test_a_failing_package_is_a_row() -> None:
    class Broken(Planted):
        def solve(self, problem: object) -> None:  # type: ignore[override]
            raise RuntimeError("zebra7391")

    comparison = compare_instances(SIX, "made", {}, size=6, planted=Broken())
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
