"""The simulated data sets: totals, distinct sizes, what is spread where, and that a seed gives one data set."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from coco_experiments.data import hawaii_blocks, own_copy
from coco_experiments.kuo2018 import blocks, cases
from coco_experiments.kuo2018.blocks import HAWAIIAN, WHITE, simulated_data, spread_over_counties
from coco_experiments.kuo2018.housing import (
    Households,
    census_households,
    generated_households,
    housing,
    tail,
    tail_ratio,
)
from coco_experiments.simulated import counts_of_runs

from coco_opt.errors import ConfigError
from coco_opt.groups.measuring.private import PrivateCounts
from coco_opt.histograms import CountOfCounts, Hierarchy


def _same(one: PrivateCounts, other: PrivateCounts) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(one.arrays, other.arrays, strict=True))


def test_runs_in_any_order_are_added_up() -> None:
    tree = Hierarchy.from_paths([("all", "a"), ("all", "b")])
    made = counts_of_runs(tree, np.array([1, 0, 1, 1]), np.array([5, 2, 5, 3]), np.array([1, 4, 2, 0]))
    assert made.leaf(0).equals(CountOfCounts([2], [4]))
    assert made.leaf(1).equals(CountOfCounts([5], [3]))
    assert made.group_counts.tolist() == [7, 4, 3]


@pytest.fixture
def public() -> Households:
    return generated_households(4, 3, 5_000, np.random.default_rng(7))


def test_tail_keeps_its_total_and_its_ratio() -> None:
    for size6, total in ((7_538_631, 2_270_273), (17_543, 21_833), (5, 0), (0, 9)):
        ratio = tail_ratio(size6, total)
        assert 0 <= ratio <= 1
        if size6 and total:
            # r + r^2 + ... = r / (1 - r) is the published ratio, whether above or below 1.
            assert ratio / (1 - ratio) == pytest.approx(total / size6)
            assert tail(total, ratio, np.random.default_rng(1)).sum() == total
    counts = tail(2_000_000, 0.425, np.random.default_rng(2))
    assert counts[1:6] / counts[:5] == pytest.approx(np.full(5, 0.425), abs=0.02)


def test_housing_has_the_public_counts_and_the_outliers(public: Households) -> None:
    made = housing(public, 3, outliers=0)
    for state, name in enumerate(public.states):
        region = made.region(made.hierarchy.index(f"nation/{name}"))
        dense = region.to_dense(region.max_size)
        assert dense[1:7].tolist() == public.table[state, :6].tolist()
        assert dense[7:].sum() == public.table[state, 6]
    with_outliers = housing(public, 3, outliers=50, largest=10_000)
    assert with_outliers.region(0).groups == public.table.sum() + 4 * 50
    assert 1_000 < with_outliers.region(0).max_size <= 10_000


def test_housing_scales_and_repeats(public: Households) -> None:
    first, again, other = housing(public, 1), housing(public, 1), housing(public, 2)
    assert _same(first, again)
    assert not _same(first, other)
    double = housing(public, 1, scale=2.0, outliers=0)
    assert double.region(0).groups == 2 * public.table.sum()


def test_counties_share_in_proportion_to_their_size(public: Households) -> None:
    made = housing(public, 5, scale=20.0, outliers=0)
    leaf = made.group_counts[made.hierarchy.leaves.start :]
    for state, name in enumerate(public.states):
        at = [made.hierarchy.index(f"nation/{name}/{public.counties[c]}") for c in range(3 * state, 3 * state + 3)]
        weights = public.county_size[3 * state : 3 * state + 3]
        share = (
            leaf[np.array(at) - made.hierarchy.leaves.start] / leaf[np.array(at) - made.hierarchy.leaves.start].sum()
        )
        assert share == pytest.approx(weights / weights.sum(), abs=0.02)


@pytest.mark.parametrize("margin", [WHITE, HAWAIIAN], ids=lambda margin: margin.name)
def test_look_alikes_have_the_published_totals(margin: blocks.Margin) -> None:
    made = simulated_data(margin)
    assert (made.groups, made.entities, made.distinct) == (margin.groups, margin.people, margin.distinct)
    assert made.counts[0] == margin.empty
    assert made.sizes[0] == 0
    assert made.max_size == margin.largest
    assert simulated_data(margin).equals(made)


def test_look_alikes_that_cannot_be_are_refused() -> None:
    few = replace(WHITE, groups=WHITE.empty + 100)
    with pytest.raises(ConfigError, match="too few groups"):
        simulated_data(few)
    with pytest.raises(ConfigError, match="no histogram"):
        simulated_data(replace(WHITE, people=10**12))


def test_blocks_sum_to_the_nation_exactly(public: Households) -> None:
    nation = simulated_data(replace(WHITE, groups=6_000, people=60_000, distinct=120, empty=2_500, largest=350))
    made = spread_over_counties(nation, public, 0.3, 4)
    assert made.region(0).equals(nation)
    assert made.hierarchy.levels == 3
    assert len(made.hierarchy.leaves) == 12
    assert _same(made, spread_over_counties(nation, public, 0.3, 4))


def test_parts_of_a_case_keep_its_groups() -> None:
    case = cases.small_cases()[1]
    upper = cases.top(case, 2)
    assert upper.levels == 2
    assert all(a.equals(b) for a, b in zip(upper.truth, case.truth, strict=False))
    part = cases.only(case, ("state0", "state2"), "part", "coast")
    kept = [case.hierarchy.index(f"nation/{name}") for name in ("state0", "state2")]
    assert part.truth[0].equals(CountOfCounts.total(case.truth[region] for region in kept))
    assert part.hierarchy.names[0] == "coast"


def test_own_copies_are_read_where_they_are(tmp_path: Path) -> None:
    assert own_copy(cases.WHITE_FILE, tmp_path) is None
    (tmp_path / "kuo2018").mkdir()
    (tmp_path / cases.WHITE_FILE).write_text("size,groups\n0,5\n3,2\n")
    (tmp_path / cases.HOUSING_FILE).write_text("nation,state,size,groups\nUS,A,1,4\nUS,B,2,1\n")
    white, house = own_copy(cases.WHITE_FILE, tmp_path), own_copy(cases.HOUSING_FILE, tmp_path)
    assert white is not None
    assert white.hierarchy.names == ("nation",)
    assert white.region(0).entities == 6
    assert house is not None
    assert house.hierarchy.levels == 2
    assert cases.white_case(tmp_path).name == "White (the paper's)"
    assert cases.housing_case(tmp_path).truth[0].groups == 5


def test_census_tables_and_the_data_made_from_them(shared_data: Path) -> None:
    public = census_households(shared_data)
    national = [31_204_909, 38_243_992, 18_758_985, 15_625_349, 7_538_631, 3_074_153, 2_270_273]
    assert public.table.sum(axis=0).tolist() == national
    assert (len(public.states), len(public.counties)) == (51, 3_109)
    made = cases.housing_case(shared_data)
    assert made.truth[0].groups == 116_716_292 + 51 * 50
    assert 2_000 < made.truth[0].distinct < 2_500
    assert made.hierarchy.regions == 1 + 51 + 3_109
    west = cases.west_coast(made)
    assert np.diff(west.hierarchy.level_start).tolist() == [1, 3, 133]


def test_hawaiian_blocks_over_counties_keep_the_papers_nation(shared_data: Path) -> None:
    nation = cases.hawaiian_case(shared_data).truth[0]
    assert (nation.groups, nation.entities, nation.distinct) == (11_155_486, 540_383, 224)


def test_hawaii_blocks_are_four_levels(shared_data: Path) -> None:
    read = hawaii_blocks("nhpi", shared_data)
    assert np.diff(read.hierarchy.level_start).tolist() == [1, 5, 351, 875]
    assert read.region(0).groups == 25_016
    assert hawaii_blocks("pop", shared_data).region(0).entities == 1_360_301
    with pytest.raises(ConfigError, match="nhpi"):
        hawaii_blocks("people", shared_data)
