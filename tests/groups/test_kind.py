"""Groups as a kind of release: what is refused before it costs, whole releases, the demo, neighbours and reports."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from coco_opt.choices import SolverChoices
from coco_opt.config import load_config
from coco_opt.errors import ConfigError, InputError, ProblemError
from coco_opt.estimators import estimator_rows
from coco_opt.groups import QUERIES
from coco_opt.groups.estimating.estimate import estimate_groups
from coco_opt.groups.estimating.method import GroupsMethod
from coco_opt.groups.kind import GROUPS
from coco_opt.groups.kind.demo import demo_truth, write_demo
from coco_opt.groups.kind.files import read_groups_release
from coco_opt.groups.kind.simulated_data import neighbouring
from coco_opt.groups.measuring.private import PrivateCounts
from coco_opt.histograms import CountOfCounts, Hierarchy
from coco_opt.kinds import kind_row
from coco_opt.privacy import Measurement
from coco_opt.releases import estimate, release, render_report, verify_release
from coco_opt.releases.kind import Shown, SimulatedData, Truth, Work
from tests.groups.helpers import measured
from tests.groups.towns import SEEDED, config_of

PROMISES = ["integers", "nonnegative", "sizes_at_most_max_size", "group_totals", "children_sum_to_parents"]


def test_the_table_of_kinds_finds_it() -> None:
    assert kind_row("groups").load() is GROUPS


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


def test_a_mixture_of_queries_is_fine_where_one_is_measured(tmp_path: Path) -> None:
    config = config_of(tmp_path, privacy='split = "leaves"', query=["ranks", "sizes"], consistency="convex")
    assert GROUPS.method(config, GROUPS.plan(config).measurement_plan).consistency == "convex"


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


@pytest.mark.parametrize("neighbours", ["add_remove", "replace"])
@pytest.mark.parametrize("query", QUERIES)
def test_every_query_is_released_under_rho(query: str, neighbours: str, tmp_path: Path) -> None:
    privacy = f'{SEEDED}\nneighbours = "{neighbours}"'
    outcome = release(config_of(tmp_path, budget=f'{GAUSSIAN}"1/8"', privacy=privacy, query=query), tmp_path / "out")
    assert all(check.passed for check in verify_release(outcome.folder))
    assert outcome.manifest["budget"]["rho"] == "1/8"


@pytest.mark.parametrize("budget", ['epsilon = "200"', f'{GAUSSIAN}"100000"'])
@pytest.mark.parametrize("query", QUERIES)
def test_a_huge_budget_returns_the_truth(query: str, budget: str, tmp_path: Path) -> None:
    config = config_of(tmp_path, budget=budget, privacy=SEEDED, query=query)
    truth = GROUPS.read(GROUPS.plan(config)).histograms()
    result = read_groups_release(release(config, tmp_path / "out").folder).histograms
    assert all(a.equals(b) for a, b in zip(result, truth, strict=True))


def test_the_leaves_answers_are_read_whatever_the_split(tmp_path: Path) -> None:
    for split in ('"uniform"', '"leaves"', '["1/4", "3/4"]'):
        config = config_of(tmp_path, privacy=f"{SEEDED}\nsplit = {split}", consistency="bottom_up")
        outcome = release(config, tmp_path / split.strip('"[]').replace("/", "").replace('"', ""))
        assert all(check.passed for check in verify_release(outcome.folder))


# --- the demo ---------------------------------------------------------------------------------------------


def test_the_demo_is_reproducible_and_its_truth_fits(tmp_path: Path) -> None:
    first, second = (write_demo(tmp_path / name, groups=500) for name in ("one", "two"))
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


def pair_of(tmp_path: Path, privacy: str = SEEDED) -> tuple[SimulatedData, Any]:
    plan = GROUPS.plan(config_of(tmp_path, privacy=privacy))
    like = SimulatedData(plan, GROUPS.read(plan), "the towns")
    return like, GROUPS.neighbours(like)


def test_neighbours_differ_by_one_entity_where_it_shows_best(tmp_path: Path) -> None:
    like, pair = pair_of(tmp_path)
    assert pair.words == "one entity added to a group of 3 in 'land/east'"
    first, second = (one.histograms() for one in (pair.first, pair.second))
    changed = [region for region, (a, b) in enumerate(zip(first, second, strict=True)) if not a.equals(b)]
    assert [like.plan.measurement_plan.hierarchy.paths[region] for region in changed] == ["land", "land/east"]
    assert [b.entities - a.entities for a, b in zip(first, second, strict=True)] == [1, 1, 0, 0]
    assert pair.first.group_counts.tolist() == pair.second.group_counts.tolist()
    one, two = (GROUPS.statistics(like.plan.measurement_plan, table) for table in (pair.first, pair.second))
    assert list(one) == ["nation", "state"]
    assert [int(np.abs(np.ma.getdata(two[name]) - np.ma.getdata(one[name])).sum()) for name in one] == [1, 1]


def test_a_replaced_entity_comes_from_another_group(tmp_path: Path) -> None:
    _, pair = pair_of(tmp_path, f'{SEEDED}\nneighbours = "replace"')
    assert pair.words.endswith("taken from a group of 1 in 'land/east'")
    assert pair.first.region(0).entities == pair.second.region(0).entities


def test_no_neighbour_where_no_group_can_grow(tmp_path: Path) -> None:
    like, _ = pair_of(tmp_path)
    tree = Hierarchy.from_paths([("land", "north")])
    full = PrivateCounts.of_leaves(tree, [CountOfCounts.from_runs([12], [3])])
    with pytest.raises(ProblemError, match="no group is smaller"):
        neighbouring(full, like.plan.measurement_plan)
    replaced = replace(like.plan.measurement_plan, neighbours="replace")
    with pytest.raises(ProblemError, match="no other group"):
        neighbouring(PrivateCounts.of_leaves(tree, [CountOfCounts.from_runs([0], [3])]), replaced)


def test_released_counts_are_compared_below_the_largest_true_group(tmp_path: Path) -> None:
    like, pair = pair_of(tmp_path)
    exact = GROUPS.statistics(like.plan.measurement_plan, pair.first)["state"]
    assert exact.size == 3 * 12
    assert np.ma.count(exact) == 4 + 4 + 3  # sizes below the largest group of north, south, east
    noisy = measured(like.plan.measurement_plan.hierarchy, pair.first.histograms(), seed=None)
    result = estimate_groups(noisy, GroupsMethod(("l1", "l1"), consistency="matching"))
    np.testing.assert_array_equal(GROUPS.statistics(like.plan.measurement_plan, result)["state"], exact.data)


# --- the report -------------------------------------------------------------------------------------------

EVIL = '<script src="x">&"\''
LEAVES = (CountOfCounts(np.array([0, 1, 3]), np.array([2, 9, 4])), CountOfCounts(np.array([2]), np.array([6])))
TRUTH = (CountOfCounts.total(LEAVES), *LEAVES)


def shown(query: str = "cumulative", *, leaves_only: bool = False) -> Shown:
    """Return a page of two leaves below a root, measured with seeded noise."""
    tree = Hierarchy.from_paths([("land", EVIL), ("land", "south")])
    noisy: Measurement = measured(tree, TRUTH, query, max_size=8, shares=[0, 1] if leaves_only else None)
    method = GroupsMethod(("l2", "l2"), consistency="bottom_up" if leaves_only else "matching")
    result = GROUPS.estimate(noisy, method, Work(SolverChoices()))
    manifest = {
        "name": EVIL,
        "private": False,
        "status": "NOT PRIVATE",
        "solvers": {
            "isotonic_l2": {
                "solver": "pav",
                "solves": 3,
                "worst_gap": 0.0,
                "worst_relative_gap": 0.0,
                "worst_violation": 0.0,
            }
        },
        "versions": {"coco-opt": "1"},
        "promises": ["integers"],
    }
    return Shown(manifest, "NOT PRIVATE: a test", noisy, method, result)


def pictures(html: str) -> list[str]:
    """Return the pictures of a page."""
    return re.findall(r'<svg class="chart".*?</svg>', html)


@pytest.mark.parametrize(
    ("query", "leaves_only"), [("cumulative", False), ("sizes", False), ("ranks", False), ("cumulative", True)]
)
def test_a_page_for_every_query(query: str, leaves_only: bool) -> None:
    html = render_report(GROUPS, shown(query, leaves_only=leaves_only))
    assert "://" not in html
    own = html[html.index("<script") : html.rindex("</script>")]  # the explorer, which has tests of its own
    assert "<script" not in html.replace(own, "")
    assert "&lt;script src=&quot;x&quot;&gt;&amp;" in html
    assert "NOT PRIVATE: a test" in html
    assert ("not measured" in html) == leaves_only


def test_pages_are_deterministic() -> None:
    assert render_report(GROUPS, shown()) == render_report(GROUPS, shown())


def test_truth_is_shown_only_where_it_is_given() -> None:
    page = shown()
    counts = PrivateCounts.of_leaves(page.measurement.hierarchy, LEAVES)
    with_truth = replace(page, truth=Truth(counts, {"again": page.result}))
    html = render_report(GROUPS, with_truth)
    assert "Error by level" in html
    (picture,) = pictures(html)
    assert ElementTree.fromstring(picture).tag.endswith("svg")
    errors = GROUPS.errors(with_truth.measurement, Truth(counts, {"again": page.result}), page.result)
    assert errors["again"] == errors["this release"]
    assert "Error by level" not in render_report(GROUPS, page)


def test_joint_releases_say_their_gap_by_level(tmp_path: Path) -> None:
    config = config_of(tmp_path, privacy=f'{SEEDED}\nsplit = ["0", "1"]', consistency="joint")
    outcome = release(config, page=render_report)
    nation, state = outcome.manifest["relative_gap_by_level"]
    assert nation is None
    assert 0.0 <= state <= 1.01e-4
    other = release(config_of(tmp_path, privacy=SEEDED), page=render_report)
    assert "relative_gap_by_level" not in other.manifest
