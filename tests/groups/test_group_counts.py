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

from coco_opt import (
    CountOfCounts,
    GroupsMethod,
    Hierarchy,
    SeededNoise,
    SolverChoices,
    emd,
    estimate_groups,
    measure_hierarchy,
)
from coco_opt.errors import InputError, ProblemError
from coco_opt.groups.consistency import sum_of_leaves
from coco_opt.groups.group_counts import (
    MAX_GROUPS,
    GroupCountMeasurements,
    estimate_group_counts,
    measure_group_counts,
    with_group_count,
)
from coco_opt.privacy import OpenDPNoise, SecureNoise
from coco_opt.problems import TreeLeastSquares
from coco_opt.solver import solve
from tests.groups.test_groups import NoNoise

Int64 = NDArray[np.int64]
PATHS = [("n", f"s{i}", f"c{j}") for i in range(4) for j in range(1 + 2 * i)]
HIERARCHY = Hierarchy.from_paths(PATHS)
THIRDS = [Fraction(1, 3)] * 3


def counts_of(seed: int, most: int = 60) -> Int64:
    rng = np.random.default_rng(seed)
    leaves = rng.integers(0, most, len(HIERARCHY.leaves)) * (rng.random(len(HIERARCHY.leaves)) < 0.6)
    return HIERARCHY.aggregate(leaves.astype(np.int64))


def measured(counts: Int64, **settings: Any) -> GroupCountMeasurements:
    budget = {} if "rhos" in settings else {"epsilons": THIRDS}
    given: dict[str, Any] = {"neighbours": "add_remove", "source": SeededNoise(1), **budget, **settings}
    return measure_group_counts(HIERARCHY, counts, **given)


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


@pytest.mark.parametrize("unit", ["epsilons", "rhos"])
@pytest.mark.parametrize("shares", SHARES)
@hypothesis_settings(max_examples=20)
@given(seed=st.integers(0, 100_000))
def test_counts_are_whole_nonnegative_and_consistent(seed: int, shares: list[Fraction | None], unit: str) -> None:
    noisy = measured(counts_of(seed), source=SeededNoise(seed), **{unit: shares})
    assert noisy.spent == sum(share or 0 for share in shares)
    solvers = SolverChoices()
    found = estimate_group_counts(noisy, solvers)
    assert_counts(found)
    exact = solve(TreeLeastSquares(HIERARCHY.parent, noisy.values, np.maximum(noisy.variances, 1e-6), lower=0.0)).value
    assert np.abs(found - exact).max() < 1 + 1e-4  # each is the floor or the ceiling of the fit
    assert {one.problem for one in solvers.certificates} == {"tree_l2", "controlled_rounding"}
    assert all(one.relative_gap <= 1e-6 for one in solvers.certificates)


@given(st.integers(0, 100_000))
def test_without_noise_the_counts_come_back(seed: int) -> None:
    counts = counts_of(seed, 10**9)
    np.testing.assert_array_equal(estimate_group_counts(measured(counts, source=NoNoise())), counts)


@pytest.mark.parametrize("solver", ["piqp", "clarabel"])
def test_other_solvers_agree(solver: str) -> None:
    noisy = measured(counts_of(5), source=SeededNoise(5))
    other = estimate_group_counts(noisy, SolverChoices({"tree_l2": solver}))
    assert_counts(other)
    assert np.abs(other - estimate_group_counts(noisy)).max() <= 1


def test_a_negative_leaf_is_not_clipped_alone() -> None:
    """Leaves -4 and 10 under a root of 4, equal variances: with bounds 0 and 7, not 0 and 10."""
    hierarchy = Hierarchy.from_paths([("n", "a"), ("n", "b")])
    noisy = GroupCountMeasurements(
        hierarchy, np.array([4, -4, 10]), (Fraction(1, 2),) * 2, "add_remove", "seeded", private=False
    )
    assert estimate_group_counts(noisy).tolist() == [7, 0, 7]


def test_a_level_with_more_budget_weighs_more() -> None:
    hierarchy = Hierarchy.from_paths([("n", "a")])
    for amounts, expected in (((4, 1), 100), ((1, 4), 10)):
        spent = tuple(Fraction(amount) for amount in amounts)
        noisy = GroupCountMeasurements(hierarchy, np.array([100, 10]), spent, "add_remove", "seeded", private=False)
        assert abs(int(estimate_group_counts(noisy)[0]) - expected) <= 5


class Recording(NoNoise):
    def __init__(self) -> None:
        self.opened: list[tuple[str, Fraction, str, str]] = []

    def stream(self, scale: Fraction, *, measurement: str, region: str) -> NoNoise:
        self.opened.append(("scale", scale, measurement, region))
        return self

    def gaussian_stream(self, variance: Fraction, *, measurement: str, region: str) -> NoNoise:
        self.opened.append(("variance", variance, measurement, region))
        return self


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
    scales = (("epsilons", "scale", Fraction(changed, 3)), ("rhos", "variance", Fraction(changed, 6)))
    for unit, kind, expected in scales:
        source = Recording()
        noisy = measured(before, source=source, neighbours=neighbours, **{unit: [None, None, Fraction(3)]})
        assert {opened[:2] for opened in source.opened} == {(kind, expected)}
        assert len({opened[2:] for opened in source.opened}) == len(HIERARCHY.leaves)
        assert noisy.spent == 3


def test_variances_are_those_of_the_noise() -> None:
    zeros = np.zeros(HIERARCHY.regions, np.int64)
    for unit in ("epsilons", "rhos"):
        shares = [Fraction(2), Fraction(1), Fraction(1, 2)]
        draws = np.array([measured(zeros, source=SeededNoise(s), **{unit: shares}).values for s in range(200)])
        variances = measured(zeros, **{unit: shares}).variances
        for level in range(3):
            here = HIERARCHY.level_range(level)
            assert draws[:, here].var() == pytest.approx(variances[here.start], rel=0.25)
    a = math.exp(-2.0)
    assert measured(zeros, epsilons=[Fraction(2)] * 3).variances[0] == pytest.approx(2 * a / (1 - a) ** 2)


def test_private_sources_draw_a_count_once() -> None:
    for source in (SecureNoise(), OpenDPNoise()):
        noisy = measured(counts_of(1), source=source)
        assert noisy.private
        assert_counts(estimate_group_counts(noisy))
        with pytest.raises(ProblemError, match="already drawn"):
            measured(counts_of(1), source=source)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epsilons": THIRDS[:2]}, "3 levels need as many epsilons"),
        ({"epsilons": [None] * 3}, "at least one must be above zero"),
        ({"epsilons": [Fraction(-1), Fraction(1), Fraction(1)]}, "may be negative"),
        ({"rhos": THIRDS, "epsilons": THIRDS}, "either epsilon"),
        ({"neighbours": "remove"}, "unknown neighbours"),
        ({"epsilons": [Fraction(1, 2**41)] * 3}, "at most 2\\*\\*40"),
        ({"rhos": THIRDS, "source": NoNoise()}, "draws no discrete Gaussian"),
    ],
)
def test_parameters_are_checked_first(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ProblemError, match=message):
        measured(counts_of(1), **settings)


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
            measured(wrong)
        assert error.value.code == code
        assert str(secret) not in str(error.value).replace(",", "")


def test_the_leaves_must_be_measured() -> None:
    noisy = measured(counts_of(1), epsilons=[Fraction(1), Fraction(1), None])
    with pytest.raises(ProblemError, match="give their level a share"):
        estimate_group_counts(noisy)


@pytest.mark.parametrize("unit", ["epsilons", "rhos"])
@pytest.mark.parametrize(
    "shares",
    [
        [Fraction(1, 2**39), Fraction(1), Fraction(10**6)],
        [Fraction(10**6), Fraction(1), Fraction(1, 2**39)],
        [Fraction(1, 1000), Fraction(10**4), Fraction(1, 10**6)],
    ],
)
def test_budgets_far_apart_still_give_certified_counts(shares: list[Fraction], unit: str) -> None:
    for seed, most in ((1, 50), (2, 2**35)):
        counts = counts_of(seed, most)
        found = estimate_group_counts(measured(counts, source=SeededNoise(seed), **{unit: shares}))
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
    found = estimate_group_counts(measured(np.array([one.groups for one in truth]), source=SeededNoise(6)))
    answers = measure_hierarchy(
        [with_group_count(one, groups) for one, groups in zip(truth, found.tolist(), strict=True)],
        HIERARCHY,
        found,
        queries=["cumulative"] * 3,
        losses=["l1"] * 3,
        epsilons=THIRDS,
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
        noisy = measured(counts, source=SeededNoise(seed))
        found = estimate_group_counts(noisy)
        for errors, values in ((raw, noisy.values), (fitted, found)):
            errors += [np.mean((values - counts)[HIERARCHY.level_range(level)] ** 2) for level in range(3)]
    assert (fitted < 0.9 * raw).all()
