"""Private numbers of groups: calibrated noise, then whole, nonnegative counts that sum, certified."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from coco_opt import CountOfCounts, GroupsMethod, Hierarchy, SeededNoise, SolverChoices, emd, estimate_groups
from coco_opt.errors import InputError, ProblemError
from coco_opt.groups.asked.group_counts import MAX_GROUPS, measure_group_counts, with_group_count
from coco_opt.groups.asked.measure import measure_hierarchy
from coco_opt.groups.estimated.consistency import sum_of_leaves
from coco_opt.groups.estimated.group_counts import estimate_group_counts, noisy_counts
from coco_opt.privacy import Cost, Epsilon, Measurement, OpenDPNoise, Rho, SecureNoise
from coco_opt.problems import TreeLeastSquares
from coco_opt.solving import solve
from tests.groups.helpers import NoNoise, Told, costs, thirds

Int64 = NDArray[np.int64]
PATHS = [("n", f"s{i}", f"c{j}") for i in range(4) for j in range(1 + 2 * i)]
HIERARCHY = Hierarchy.from_paths(PATHS)
THIRDS = [Fraction(1, 3)] * 3
UNITS: list[type[Cost]] = [Epsilon, Rho]


def counts_of(seed: int, most: int = 60) -> Int64:
    rng = np.random.default_rng(seed)
    leaves = rng.integers(0, most, len(HIERARCHY.leaves)) * (rng.random(len(HIERARCHY.leaves)) < 0.6)
    return HIERARCHY.aggregate(leaves.astype(np.int64))


def noisy(counts: Int64, shares: Any = THIRDS, unit: type[Cost] = Epsilon, **settings: Any) -> Measurement:
    given: dict[str, Any] = {"neighbours": "add_remove", "source": SeededNoise(1), **settings}
    return measure_group_counts(HIERARCHY, counts, costs=costs(shares, unit), **given)


def told(hierarchy: Hierarchy, values: list[int], amounts: list[Fraction]) -> Measurement:
    """Return a measurement of the given noisy values."""
    source = Told({path: [value] for path, value in zip(hierarchy.paths, values, strict=True)})
    zeros = np.zeros(hierarchy.regions, np.int64)
    return measure_group_counts(hierarchy, zeros, costs=costs(amounts), neighbours="add_remove", source=source)


def assert_counts(found: Int64) -> None:
    assert found.dtype == np.int64
    assert (found >= 0).all()
    np.testing.assert_array_equal(HIERARCHY.aggregate(found[HIERARCHY.leaves.start :]), found)


SHARES = [
    THIRDS,
    [Fraction(1, 8), Fraction(1, 8), Fraction(3, 4)],
    [None, None, Fraction(1)],
    [None, Fraction(20), Fraction(1, 9)],
    [Fraction(1, 100)] * 3,
]


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("shares", SHARES)
@hypothesis_settings(max_examples=20)
@given(seed=st.integers(0, 100_000))
def test_counts_are_whole_nonnegative_and_consistent(
    seed: int, shares: list[Fraction | None], unit: type[Cost]
) -> None:
    measurement = noisy(counts_of(seed), shares, unit, source=SeededNoise(seed))
    assert measurement.cost == unit(sum((share or Fraction(0) for share in shares), Fraction(0)))
    solvers = SolverChoices()
    found = estimate_group_counts(measurement, solvers)
    assert_counts(found)
    values, variances = noisy_counts(measurement)
    exact = solve(TreeLeastSquares(HIERARCHY.parent, values, np.maximum(variances, 1e-6), lower=0.0)).value
    assert np.abs(found - exact).max() < 1 + 1e-4  # each is the floor or the ceiling of the fit
    assert {one.problem for one in solvers.certificates} == {"tree_l2", "controlled_rounding"}
    assert all(one.relative_gap <= 1e-6 for one in solvers.certificates)


@given(st.integers(0, 100_000))
def test_without_noise_the_counts_come_back(seed: int) -> None:
    counts = counts_of(seed, 10**9)
    np.testing.assert_array_equal(estimate_group_counts(noisy(counts, source=NoNoise())), counts)


@pytest.mark.parametrize("solver", ["piqp", "clarabel"])
def test_other_solvers_agree(solver: str) -> None:
    measurement = noisy(counts_of(5), source=SeededNoise(5))
    other = estimate_group_counts(measurement, SolverChoices({"tree_l2": solver}))
    assert_counts(other)
    assert np.abs(other - estimate_group_counts(measurement)).max() <= 1


def test_a_negative_leaf_is_not_clipped_alone() -> None:
    """Leaves -4 and 10 under a root of 4, equal variances: with bounds 0 and 7, not 0 and 10."""
    hierarchy = Hierarchy.from_paths([("n", "a"), ("n", "b")])
    assert estimate_group_counts(told(hierarchy, [4, -4, 10], [Fraction(1, 2)] * 2)).tolist() == [7, 0, 7]


def test_a_level_with_more_budget_weighs_more() -> None:
    hierarchy = Hierarchy.from_paths([("n", "a")])
    for amounts, expected in (((4, 1), 100), ((1, 4), 10)):
        measurement = told(hierarchy, [100, 10], [Fraction(amount) for amount in amounts])
        assert abs(int(estimate_group_counts(measurement)[0]) - expected) <= 5


@pytest.mark.parametrize(("neighbours", "changed"), [("add_remove", 1), ("replace", 2)])
def test_noise_is_scaled_by_what_a_group_can_change(neighbours: str, changed: int) -> None:
    """The sensitivity by brute force (every group added, or moved between any leaves) and the scales that follow."""
    leaves = np.arange(1, len(HIERARCHY.leaves) + 1)
    before = HIERARCHY.aggregate(leaves)
    moves = np.eye(leaves.size, dtype=np.int64)
    if neighbours == "replace":
        moves = np.array([a - b for a in moves for b in moves])
    change = np.array([HIERARCHY.aggregate(leaves + move) - before for move in moves])
    for level in range(3):
        here = change[:, HIERARCHY.level_range(level)]
        assert np.abs(here).sum(axis=1).max() == (0 if level == 0 and neighbours == "replace" else changed)
        assert (here**2).sum(axis=1).max() <= changed
    for unit, expected in ((Epsilon, Fraction(changed, 3)), (Rho, Fraction(changed, 6))):
        source = NoNoise()
        measurement = noisy(before, [None, None, 3], unit, source=source, neighbours=neighbours)
        assert {opened[0] for opened in source.opened} == {expected}
        assert len({opened[1:] for opened in source.opened}) == len(HIERARCHY.leaves)
        assert measurement.cost == unit(Fraction(3))


def test_variances_are_those_of_the_noise() -> None:
    zeros = np.zeros(HIERARCHY.regions, np.int64)
    for unit in UNITS:
        shares = [Fraction(2), Fraction(1), Fraction(1, 2)]
        draws = np.array([noisy_counts(noisy(zeros, shares, unit, source=SeededNoise(s)))[0] for s in range(200)])
        variances = noisy_counts(noisy(zeros, shares, unit))[1]
        for level in range(3):
            here = HIERARCHY.level_range(level)
            assert draws[:, here].var() == pytest.approx(variances[here.start], rel=0.25)
    a = math.exp(-2.0)
    assert noisy_counts(noisy(zeros, [2] * 3))[1][0] == pytest.approx(2 * a / (1 - a) ** 2)


def test_private_sources_draw_a_count_once() -> None:
    for source in (SecureNoise(), OpenDPNoise()):
        measurement = noisy(counts_of(1), source=source)
        assert measurement.private
        assert_counts(estimate_group_counts(measurement))
        with pytest.raises(ProblemError, match="already drawn"):
            noisy(counts_of(1), source=source)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"shares": THIRDS[:2]}, "3 levels need as many costs"),
        ({"shares": [None] * 3}, "nothing was asked"),
        ({"neighbours": "remove"}, "unknown neighbours"),
        ({"shares": [Fraction(1, 2**41)] * 3}, "at most 2\\*\\*40"),
    ],
)
def test_parameters_are_checked_first(settings: dict[str, Any], message: str) -> None:
    source = NoNoise()
    with pytest.raises(ProblemError, match=message):
        noisy(counts_of(1), **{"source": source, **settings})
    assert source.opened == []


def test_counts_are_checked_and_never_shown() -> None:
    secret = 7_654_321
    counts = np.full(HIERARCHY.regions, secret)
    for wrong, code in (
        (counts.astype(np.float64), "bad-shape"),
        (counts[1:], "bad-shape"),
        (-counts, "bad-group-count"),
        (counts + 2 * MAX_GROUPS, "bad-group-count"),
        (counts, "group-count-mismatch"),
    ):
        with pytest.raises(InputError) as error:
            noisy(wrong)
        assert error.value.code == code
        assert str(secret) not in str(error.value).replace(",", "")


def test_the_leaves_must_be_measured() -> None:
    with pytest.raises(ProblemError, match="give their level a share"):
        estimate_group_counts(noisy(counts_of(1), [1, 1, None]))


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize(
    "shares",
    [
        [Fraction(1, 2**39), Fraction(1), Fraction(10**6)],
        [Fraction(10**6), Fraction(1), Fraction(1, 2**39)],
        [Fraction(1, 1000), Fraction(10**4), Fraction(1, 10**6)],
    ],
)
def test_budgets_far_apart_still_give_certified_counts(shares: list[Fraction], unit: type[Cost]) -> None:
    for seed, most in ((1, 50), (2, 2**35)):
        counts = counts_of(seed, most)
        found = estimate_group_counts(noisy(counts, shares, unit, source=SeededNoise(seed)))
        assert_counts(found)
        sharp = HIERARCHY.level_range(max(range(3), key=lambda level: shares[level]))
        if sharp.stop == HIERARCHY.regions:
            assert np.abs(found[sharp] - counts[sharp]).max() <= 1


@given(st.lists(st.integers(0, 6), max_size=12), st.integers(0, 14), st.data())
def test_no_sensitivity_grows_where_numbers_of_groups_are_not_exact(
    sizes: list[int], groups: int, data: st.DataObject
) -> None:
    histogram = CountOfCounts.from_ranks(sizes)
    brought = with_group_count(histogram, groups)
    assert brought.groups == groups
    dropped, added = max(0, len(sizes) - groups), max(0, groups - len(sizes))
    assert brought.ranks().tolist() == [0] * added + sorted(sizes)[dropped:]
    if sizes:
        place = data.draw(st.integers(0, len(sizes) - 1))
        grown = with_group_count(
            CountOfCounts.from_ranks([*sizes[:place], sizes[place] + 1, *sizes[place + 1 :]]), groups
        )
        assert np.abs(grown.ranks() - brought.ranks()).sum() <= 1
        assert np.abs(grown.to_dense(7) - brought.to_dense(7)).sum() <= 2
        assert emd(grown, brought) <= 1


def test_sizes_can_be_released_beside_private_counts() -> None:
    rng = np.random.default_rng(6)
    leaves = [CountOfCounts.from_dense(rng.integers(0, 20, 6)) for _ in HIERARCHY.leaves]
    truth = sum_of_leaves(HIERARCHY, leaves)
    found = estimate_group_counts(noisy(np.array([one.groups for one in truth]), source=SeededNoise(6)))
    answers = measure_hierarchy(
        [with_group_count(one, groups) for one, groups in zip(truth, found.tolist(), strict=True)],
        HIERARCHY,
        found,
        queries=["cumulative"] * 3,
        costs=thirds(),
        max_size=6,
        neighbours="add_remove",
        source=SeededNoise(7),
    )
    released = estimate_groups(answers, GroupsMethod(losses=("l1",) * 3)).histograms
    assert [one.groups for one in released] == found.tolist()
    assert all(a.equals(b) for a, b in zip(released, sum_of_leaves(HIERARCHY, released[-len(leaves) :]), strict=True))
    with pytest.raises(ProblemError, match="must not be negative"):
        with_group_count(truth[0], -1)


@pytest.mark.slow
def test_fitting_the_tree_beats_the_raw_counts() -> None:
    """Mean squared error by level over 200 draws, against the noisy counts themselves."""
    raw, fitted = np.zeros(3), np.zeros(3)
    for seed in range(200):
        counts = counts_of(seed)
        measurement = noisy(counts, source=SeededNoise(seed))
        found = estimate_group_counts(measurement)
        for errors, values in ((raw, noisy_counts(measurement)[0]), (fitted, found)):
            errors += [np.mean((values - counts)[HIERARCHY.level_range(level)] ** 2) for level in range(3)]
    assert (fitted < 0.9 * raw).all()
