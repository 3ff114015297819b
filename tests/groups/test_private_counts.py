"""Private numbers of groups: their container, and releases from the configuration to ledger, verification and audit."""

from __future__ import annotations

import json
import pickle
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coco_opt import CountOfCounts, Epsilon, Hierarchy
from coco_opt import audit as auditing
from coco_opt.cli.audit import noise_of, subject_of
from coco_opt.errors import ConfigError, InputError
from coco_opt.files.folder import read_columns
from coco_opt.groups.kind import GROUPS
from coco_opt.groups.kind.files import PRIVATE_COUNTS, read_groups_release
from coco_opt.groups.measuring.private import PrivateCounts
from coco_opt.groups.noisy_measurements import counts_share_of
from coco_opt.releases import check, estimate, forecast, measure, release, render_report, verify_release
from coco_opt.releases.runs import ledger_of
from tests.groups.helpers import SEEDED, config_of
from tests.releases.towns import Watch, config_in

TREE = Hierarchy.from_paths([("n", "a", "1"), ("n", "a", "2"), ("n", "b", "3")])


def build(leaves: list[CountOfCounts]) -> PrivateCounts:
    return PrivateCounts.of_leaves(TREE, leaves)


leaf_sizes = st.lists(st.lists(st.integers(0, 6), max_size=8), min_size=3, max_size=3)


@given(leaf_sizes)
def test_every_region_is_the_sum_of_its_leaves(sizes: list[list[int]]) -> None:
    leaves = [CountOfCounts.from_ranks(np.array(entry, np.int64)) for entry in sizes]
    counts = build(leaves)
    result = counts.histograms()
    for region in range(TREE.regions):
        below = [leaves[leaf - TREE.leaves.start] for leaf in TREE.leaf_range(region)]
        assert result[region].equals(CountOfCounts.total(below))
        assert counts.region(region).equals(result[region])
    assert all(counts.leaf(k).equals(leaf) for k, leaf in enumerate(leaves))


ONE = CountOfCounts.from_ranks([1, 1, 4])


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"sizes": [1, 4, 1, 4, 4, 1]}, "bad-runs"),
        ({"sizes": [1, 1, 1, 4, 1, 4]}, "bad-runs"),
        ({"sizes": [-1, 4, 1, 4, 1, 4]}, "bad-runs"),
        ({"counts": [2, 1, 2, 1, 3, 0]}, "bad-runs"),
        ({"counts": [2, 1, 2, 1, 2, 2]}, "groups-lost"),
        ({"counts": [2, 1, 2, 1, 2]}, "bad-shape"),
        ({"leaf_offsets": [0, 2, 4, 5]}, "bad-shape"),
        ({"leaf_offsets": [0, 4, 2, 6]}, "bad-shape"),
        ({"leaf_offsets": [0, 6]}, "bad-shape"),
        ({"group_counts": [9, 6, 3]}, "bad-shape"),
        ({"group_counts": [9, 6, 3, 3, 2, 4]}, "groups-lost"),
        ({"rows_counted": 17}, "rows-lost"),
        ({"sizes": [1.0, 4, 1, 4, 1, 4]}, "not-integer"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(change: dict[str, object], code: str) -> None:
    good = build([ONE, ONE, ONE])
    fields = {name: getattr(good, name) for name in PrivateCounts.__slots__}
    with pytest.raises(InputError) as caught:
        PrivateCounts(**{**fields, **change})
    assert caught.value.code == code


def test_leaves_and_regions_that_do_not_exist() -> None:
    counts = build([ONE, ONE, ONE])
    for leaf in (3, -1):
        with pytest.raises(InputError, match="unknown-region"):
            counts.leaf(leaf)
    with pytest.raises(InputError, match="unknown-region"):
        counts.region(6)


def test_arrays_are_read_only_and_survive_pickling() -> None:
    counts = build([ONE, CountOfCounts.empty(), ONE])
    for copy in (counts, pickle.loads(pickle.dumps(counts))):
        with pytest.raises(ValueError, match="read-only"):
            copy.sizes[0] = 7
        assert copy.region(0).ranks().tolist() == [1, 1, 1, 1, 4, 4]
        assert copy.leaf(1).groups == 0


PRIVATE = 'group_counts = "private"'


def test_a_paid_release_keeps_its_promises_and_publishes_no_true_count(tmp_path: Path) -> None:
    config = config_in(tmp_path, more=PRIVATE)
    watch = Watch()
    outcome = release(config, page=render_report, reporter=watch)
    assert all(one.passed for one in verify_release(outcome.folder))
    assert PRIVATE_COUNTS in watch.lines
    manifest = json.loads((outcome.folder / "manifest.json").read_text())
    assert manifest["group_counts"] == "private"
    assert "groups" not in manifest["config"]["data"]  # the name of the file is private as its content
    assert manifest["budget"]["epsilon"] == "1"
    queries = {one["query"] for one in manifest["budget"]["questions"]}
    assert queries == {"groups", "larger"}
    read = read_groups_release(outcome.folder)
    assert [one.groups for one in read.histograms] == read.group_counts.tolist()
    summed = read.hierarchy.aggregate(read.group_counts[read.hierarchy.leaves.start :])
    assert summed.tolist() == read.group_counts.tolist()
    assert "a group that it alone is in" in (outcome.folder / "report.html").read_text()
    assert [account.spent for account in ledger_of(config).books().accounts.values()] == [Fraction(1)]
    sealed = next((tmp_path / "private" / "runs").glob("*/measurement"))
    assert "groups" not in read_columns(sealed / "hierarchy.parquet", ()).column_names


def test_a_plan_reads_the_hierarchy_alone(tmp_path: Path) -> None:
    config = config_in(tmp_path, more=PRIVATE)
    (tmp_path / "groups.csv").unlink()
    (tmp_path / "entities.csv").unlink()
    assert "1000 groups a leaf" in str(forecast(config).as_dict())
    with pytest.raises(InputError, match=r"groups\.csv"):
        check(config)


def test_a_table_of_sizes_keeps_its_numbers_too(tmp_path: Path) -> None:
    measurement_plan = {"group_counts": "private", "group_counts_share": "1/4", "bucket_growth": 0.5}
    config = config_of(tmp_path, privacy=SEEDED, consistency="posterior", **measurement_plan)
    noisy = measure(config).measurement
    assert counts_share_of(noisy.measurement_plan) == Fraction(1, 4)
    assert noisy.cost == Epsilon(Fraction(1))
    assert not noisy.measurement_plan.per_region
    one, other = estimate(noisy), estimate(noisy, config)
    assert one.to_arrow().equals(other.to_arrow())  # without a configuration: what was asked says it all
    assert one.result.group_counts.tolist() == one.to_pandas("hierarchy")["groups"].tolist()


@pytest.mark.parametrize(
    ("measurement_plan", "wanted", "key"),
    [
        ({}, {"group_counts": "private"}, "groups.group_counts"),
        ({"group_counts": "private"}, {}, "groups.group_counts"),
        ({"group_counts": "private"}, {"group_counts": "private", "group_counts_share": "1/2"}, "group_counts_share"),
    ],
)
def test_another_configuration_cannot_claim_other_counts(
    tmp_path: Path, measurement_plan: dict[str, str], wanted: dict[str, str], key: str
) -> None:
    noisy = measure(config_of(tmp_path, privacy=SEEDED, **measurement_plan)).measurement
    with pytest.raises(ConfigError, match=key):
        estimate(noisy, config_of(tmp_path, privacy=SEEDED, **wanted))


@pytest.mark.parametrize(
    ("groups", "privacy", "message"),
    [
        ({"query": "ranks"}, "", "ranks are as many as groups"),
        ({}, 'split = ["1", "0"]', "leaves nothing for the last level"),
        ({"group_counts": "public", "group_counts_share": "1/2"}, "", 'is read where group_counts = "private" alone'),
        ({"group_counts_share": "1"}, "", "between 0 and 1"),
    ],
)
def test_what_cannot_be_asked_is_refused_with_its_key(
    tmp_path: Path, groups: dict[str, str], privacy: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        check(config_of(tmp_path, privacy=f"{SEEDED}\n{privacy}", **{"group_counts": "private", **groups}))


@pytest.mark.parametrize("neighbours", ["add_remove", "replace"])
def test_the_audit_finds_no_more_than_epsilon_and_most_of_it(tmp_path: Path, neighbours: str) -> None:
    """An entity that brings its group changes every noisy number that it can: the bound comes near to epsilon."""
    config = config_of(tmp_path, privacy=f'{SEEDED}\nneighbours = "{neighbours}"', group_counts="private")
    like = GROUPS.simulated_data(GROUPS.plan(config))
    pair = GROUPS.neighbours(like)
    assert "group of its own" in pair.words
    result = auditing.audit_release(subject_of(GROUPS, like.plan), pair, noise_of(config, 3), draws=40_000, runs=5)
    assert not result.violated
    together = next(row for row in result.rows if row.what == "all measurements together")
    assert together.claimed == 1
    assert together.bound is not None
    least = 0.75 if neighbours == "add_remove" else 0.3  # a moved entity leaves the root as it was
    assert least < together.bound.epsilon <= 1
