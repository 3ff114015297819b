"""Merging: formulas and their limits, tie rules, sorted and coalesced children."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coco_opt.array_types import Ints
from coco_opt.errors import ProblemError
from coco_opt.kernels.matching import match_runs
from coco_opt.kernels.merging import Merge, Rounding, merge_estimates, merge_runs, round_sizes


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
