"""Sorting, rounding by largest fractions, simplex projection, merging of estimates: brute force, ties, certificates."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from coco_opt.array_types import Ints
from coco_opt.errors import ProblemError
from coco_opt.kernels import rounding, simplex
from coco_opt.kernels.matching import match_runs
from coco_opt.kernels.merging import Merge, Rounding, merge_estimates, merge_runs, round_sizes
from coco_opt.kernels.sorting import falling, nth_smallest

Data = NDArray[Any]
eighths = st.lists(st.integers(-24, 40), min_size=1, max_size=8)


def every_rounding(x: Data, total: int) -> Data:
    choices = [sorted({int(np.floor(v)), int(np.ceil(v))}) for v in x]
    points = np.array(list(product(*choices)))
    return points[points.sum(axis=1) == total]


@given(eighths, st.integers(0, 8))
def test_matches_brute_force_and_certifies_every_point(values: list[int], ups: int) -> None:
    x = np.array(values) / 8
    total = int(np.floor(x).sum()) + min(ups, int((x != np.floor(x)).sum()))
    rounded = rounding.largest_fractions(x, total)
    nu = rounding.multiplier(x, total)
    points = every_rounding(x, total)
    costs = np.abs(points - x).sum(axis=1)
    assert rounded.sum() == total
    assert np.abs(rounded - x).sum() == costs.min()
    assert rounding.gap(x, rounded, nu) == 0.0
    for point, cost in zip(points, costs, strict=True):
        assert rounding.gap(x, point, nu) == cost - costs.min()
        assert rounding.gap(x, point, nu + 0.3) >= cost - costs.min() - 1e-12


def test_ties_go_to_the_lowest_index() -> None:
    assert rounding.largest_fractions(np.array([0.5, 1.5, 2.0, 0.5, 0.75]), 6).tolist() == [1, 2, 2, 0, 1]
    assert rounding.largest_fractions(np.full(4, 0.25), 1).tolist() == [1, 0, 0, 0]


def test_all_down_all_up_integers_and_empty() -> None:
    x = np.array([0.2, 1.0, 3.9])
    for total, answer in ((4, [0, 1, 3]), (6, [1, 1, 4])):
        assert rounding.largest_fractions(x, total).tolist() == answer
        assert rounding.gap(x, np.array(answer), rounding.multiplier(x, total)) == 0.0
    integers = np.array([1.0, -2.0])
    assert rounding.largest_fractions(integers, -1).tolist() == [1, -2]
    assert rounding.multiplier(integers, -1) == 0.0
    assert rounding.largest_fractions(np.zeros(0), 0).size == 0


def test_large_input_keeps_the_sum_and_is_certified() -> None:
    x = np.random.default_rng(4).uniform(0, 1e9, 200_000)
    total = round(float(x.sum()))
    rounded = rounding.largest_fractions(x, total)
    assert int(rounded.sum()) == total
    assert (np.abs(rounded - x) < 1).all()
    assert rounding.gap(x, rounded, rounding.multiplier(x, total)) <= 1e-10


@pytest.mark.parametrize("total", [3, 7, 10**30])
def test_a_total_out_of_reach_is_refused(total: int) -> None:
    with pytest.raises(ProblemError, match="total"):
        rounding.largest_fractions(np.array([0.2, 1.0, 3.9]), total)


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e19])
def test_values_must_be_finite_and_representable(value: float) -> None:
    with pytest.raises(ProblemError, match="finite"):
        rounding.largest_fractions(np.array([value]), 0)


def by_sorting(y: Data, total: float) -> Data:
    """Project by the textbook rule: the largest k with y_(k) > (sum of the k largest - total) / k."""
    ordered = np.sort(y)[::-1]
    thresholds = (np.cumsum(ordered) - total) / np.arange(1, y.size + 1)
    k = np.flatnonzero(ordered > thresholds)[-1]
    return np.maximum(y - thresholds[k], 0.0)


@given(st.lists(st.integers(-20, 20), min_size=1, max_size=30), st.integers(1, 60))
def test_agrees_with_sorting(values: list[int], total: int) -> None:
    y = np.array(values, float)
    x, nu = simplex.project(y, total)
    np.testing.assert_allclose(x, by_sorting(y, total), atol=1e-12)
    np.testing.assert_allclose(x, np.maximum(y - nu / 2, 0), atol=1e-12)
    assert x.sum() == pytest.approx(total, rel=1e-14)
    assert simplex.multiplier(x, y) == pytest.approx(nu, abs=1e-11)
    assert 0 <= simplex.gap(x, y, nu) <= 1e-20


@given(st.lists(st.integers(-9, 9), min_size=2, max_size=12), st.integers(1, 20), st.integers(0, 2**30))
def test_gap_is_the_true_loss_at_the_optimal_multiplier_and_bounds_it_elsewhere(
    values: list[int], total: int, seed: int
) -> None:
    y = np.array(values, float)
    x, nu = simplex.project(y, total)
    rng = np.random.default_rng(seed)
    other = rng.dirichlet(np.ones(y.size)) * total
    lost = float(np.sum((other - y) ** 2) - np.sum((x - y) ** 2))
    assert simplex.gap(other, y, nu) >= lost - 1e-9
    for wrong in (simplex.multiplier(other, y), nu + 1.0, nu - 1.0):
        assert simplex.gap(other, y, wrong) >= lost - 1e-9
        assert simplex.gap(other, y, wrong) >= 0.0


@pytest.mark.parametrize("total", [1, 1000, 10**7])
@pytest.mark.parametrize("kind", ["noise", "ties", "equal", "geometric", "far"])
def test_large_input(kind: str, total: int) -> None:
    rng = np.random.default_rng(2)
    n = 100_000
    y = {
        "noise": rng.laplace(size=n),
        "ties": rng.integers(-2, 3, n).astype(float),
        "equal": np.full(n, 4.0),
        "geometric": 2.0 ** (np.arange(n) % 60) * np.where(np.arange(n) < 60, 1, 0),
        "far": 1e13 + rng.integers(0, 5, n),
    }[kind]
    x, nu = simplex.project(y, total)
    offsets = y - y.max()
    np.testing.assert_allclose(x, by_sorting(offsets, total), rtol=1e-9, atol=1e-9 * total)
    assert (x >= 0).all()
    assert x.sum() == pytest.approx(total, rel=1e-12)
    slack = n * np.spacing(np.abs(y).max() + total) ** 2
    assert simplex.gap(x, y, nu) <= 1e-12 * float(np.sum((x - y) ** 2)) + slack


def test_the_sum_is_met_to_the_last_digits() -> None:
    y = np.random.default_rng(0).laplace(size=300_000)
    x, _ = simplex.project(y, 100_000.0)
    assert math.fsum(x) == pytest.approx(100_000.0, rel=2e-15)


def test_extreme_input() -> None:
    x, nu = simplex.project(np.array([3.0, -1.0]), 0)
    assert x.tolist() == [0, 0]
    assert simplex.gap(x, np.array([3.0, -1.0]), nu) == 0.0
    assert simplex.multiplier(x, np.array([3.0, -1.0])) == nu == 6.0
    assert simplex.project(np.array([-5.0]), 2)[0].tolist() == [2]
    assert simplex.project(np.zeros(0), 0)[0].size == 0
    assert simplex.gap(np.zeros(0), np.zeros(0), 0.0) == simplex.multiplier(np.zeros(0), np.zeros(0)) == 0.0


@pytest.mark.parametrize(
    ("y", "total", "word"),
    [([1.0], -1.0, "total"), ([1.0], np.inf, "total"), ([], 1.0, "no entries"), ([1.0, np.nan], 1.0, "finite")],
)
def test_bad_input_is_refused(y: list[float], total: float, word: str) -> None:
    with pytest.raises(ProblemError, match=word):
        simplex.project(np.array(y), total)


def ints(*values: int) -> Ints:
    return np.array(values, np.int64)


@given(st.integers(0, 10**5), st.integers(0, 10**5), st.floats(1e-6, 1e6), st.floats(1e-6, 1e6))
def test_weighted_is_the_papers_formula(s_p: int, s_c: int, v_p: float, v_c: float) -> None:
    size, variance = merge_estimates(ints(s_p), np.array([v_p]), ints(s_c), np.array([v_c]))
    assert size[0] == pytest.approx((s_p / v_p + s_c / v_c) / (1 / v_p + 1 / v_c), rel=1e-9, abs=1e-9)
    assert variance[0] == pytest.approx(1 / (1 / v_p + 1 / v_c), rel=1e-12)
    assert min(s_p, s_c) <= size[0] <= max(s_p, s_c)


@pytest.mark.parametrize("variance", [0.1, 0.3, 1 / 3, 7.7])
def test_equal_variances_give_exact_halves(variance: float) -> None:
    v = np.array([variance])
    size, merged = merge_estimates(ints(6), v, ints(3), v)
    assert size[0] == 4.5
    assert merged[0] == variance / 2


@pytest.mark.parametrize(
    ("v_p", "v_c", "size", "variance"),
    [
        (0.0, 2.0, 10.0, 0.0),
        (2.0, 0.0, 4.0, 0.0),
        (0.0, 0.0, 7.0, 0.0),
        (np.inf, 2.0, 4.0, 2.0),
        (2.0, np.inf, 10.0, 2.0),
        (np.inf, 0.0, 4.0, 0.0),
        (np.inf, np.inf, 7.0, np.inf),
    ],
)
def test_exact_and_unknown_estimates(v_p: float, v_c: float, size: float, variance: float) -> None:
    merged, own = merge_estimates(ints(10), np.array([v_p]), ints(4), np.array([v_c]))
    assert (merged[0], own[0]) == (size, variance)


@pytest.mark.parametrize(
    ("rounding", "expected"),
    [("half_up", [0, 1, 2, 3, 4]), ("half_even", [0, 0, 2, 2, 4]), ("half_down", [0, 0, 1, 2, 4])],
)
def test_tie_rules(rounding: Rounding, expected: list[int]) -> None:
    # 0.49999999999999994 + 0.5 rounds to 1: adding a half and flooring would be wrong.
    values = np.array([0.49999999999999994, 0.5, 1.5, 2.5, 3.6])
    assert round_sizes(values, rounding).tolist() == expected


def merged_example(rounding: Rounding, merge: Merge = "average") -> tuple[list[int], list[int], list[int]]:
    parent_sizes, parent_counts = ints(1, 4), ints(3, 3)
    child_sizes, child_counts, offsets = ints(0, 1, 5, 2), ints(2, 1, 2, 1), ints(0, 3, 3, 4)
    result = match_runs(parent_sizes, parent_counts, child_sizes, child_counts, offsets)
    merged = merge_runs(result, parent_sizes, np.ones(2), child_sizes, np.ones(4), offsets, merge, rounding)
    return merged.sizes.tolist(), merged.counts.tolist(), merged.offsets.tolist()


def test_merged_children_by_hand() -> None:
    # Pairs: 0-1 (2), 1-1 (1), 2-4 (1, child 2), 5-4 (2); averages 0.5, 1, 3, 4.5; child 1 is empty.
    assert merged_example("half_up") == ([1, 5, 3], [3, 2, 1], [0, 2, 2, 3])
    assert merged_example("half_down") == ([0, 1, 4, 3], [2, 1, 2, 1], [0, 3, 3, 4])
    assert merged_example("half_even", "weighted") == ([0, 1, 4, 3], [2, 1, 2, 1], [0, 3, 3, 4])


@given(st.integers(0, 2**32 - 1), st.sampled_from(["weighted", "average"]))
def test_children_keep_their_groups_and_are_sorted(seed: int, merge: Merge) -> None:
    rng = np.random.default_rng(seed)
    lengths = rng.integers(0, 5, 4)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    child_sizes = np.concatenate([np.sort(rng.integers(0, 9, n)) for n in lengths]).astype(np.int64)
    child_counts = rng.integers(1, 50, child_sizes.size)
    cuts = np.sort(rng.integers(0, child_counts.sum() + 1, 3))
    parent_counts = np.diff(np.concatenate([[0], cuts, [child_counts.sum()]]))
    parent_counts = parent_counts[parent_counts > 0]
    parent_sizes = np.sort(rng.integers(0, 9, parent_counts.size))
    variances = rng.choice([0.5, 1.0, 2.0], parent_sizes.size), rng.choice([0.5, 1.0, 2.0], child_sizes.size)
    result = match_runs(parent_sizes, parent_counts, child_sizes, child_counts, offsets)
    merged = merge_runs(result, parent_sizes, variances[0], child_sizes, variances[1], offsets, merge)
    again = merge_runs(result, parent_sizes, variances[0], child_sizes, variances[1], offsets, merge)
    assert all(np.array_equal(x, y) for x, y in zip(merged, again, strict=True))
    for child in range(4):
        old, new = slice(offsets[child], offsets[child + 1]), slice(*merged.offsets[child : child + 2])
        assert merged.counts[new].sum() == child_counts[old].sum()
        keys = list(zip(merged.sizes[new].tolist(), merged.variances[new].tolist(), strict=True))
        assert keys == sorted(set(keys))
    size, _ = merge_estimates(
        parent_sizes[result.parent_run],
        variances[0][result.parent_run],
        child_sizes[result.child_run],
        variances[1][result.child_run],
        merge,
    )
    assert merged.sizes @ merged.counts == round_sizes(size, "half_up") @ result.groups


def test_nothing_to_merge() -> None:
    none, empty = ints(), np.empty(0)
    result = match_runs(none, none, none, none, ints(0, 0, 0))
    merged = merge_runs(result, none, empty, none, empty, ints(0, 0, 0))
    assert merged.sizes.size == merged.counts.size == merged.variances.size == 0
    assert merged.offsets.tolist() == [0, 0, 0]


def test_bad_options_and_variances_are_refused() -> None:
    variance = np.ones(1)
    with pytest.raises(ProblemError, match="variances"):
        merge_estimates(ints(1), -variance, ints(1), variance)
    with pytest.raises(ProblemError, match="variances"):
        merge_estimates(ints(1), variance, ints(1), np.array([np.nan]))
    with pytest.raises(ProblemError, match="weighted or average"):
        merge_estimates(ints(1), variance, ints(1), variance, "mean")  # type: ignore[arg-type]
    with pytest.raises(ProblemError, match="half_up"):
        round_sizes(variance, "nearest")  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [np.int64, np.float64])
def test_orders_and_ranks_are_numpys(kind: type) -> None:
    rng = np.random.default_rng(5)
    for size in (0, 1, 2, 11, 40, 500):
        for spread in (2, 10**6):
            keys = rng.integers(0, spread, size).astype(kind)
            order = np.empty(size, np.int64)
            falling(keys, order)
            assert order.tolist() == np.argsort(-keys, kind="stable").tolist()
            for n in {0, size // 3, size - 1} if size else ():
                selected = keys.copy()
                assert nth_smallest(selected, n) == np.sort(keys)[n]
                assert (selected[:n] <= selected[n]).all()
                assert (selected[n:] >= selected[n]).all()
