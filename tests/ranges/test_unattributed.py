"""Unattributed histograms: the paper's examples, and what the order of the counts is worth."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from coco_opt.errors import ProblemError
from coco_opt.privacy import SeededNoise
from coco_opt.ranges import SortedMeasurement, measure_sorted


def sealed(values: list[int]) -> SortedMeasurement:
    return SortedMeasurement(np.array(values, dtype=np.int64), Fraction(1), Fraction(1), private=False)


@pytest.mark.parametrize(
    ("noisy", "expected"),
    [([9, 10, 14], [9, 10, 14]), ([9, 14, 10], [9, 12, 12]), ([14, 9, 10, 15], [11, 11, 11, 15])],
)
def test_example_4_of_the_paper(noisy: list[int], expected: list[int]) -> None:
    np.testing.assert_allclose(sealed(noisy).isotonic(), expected, atol=1e-12)


def test_min_max_formula() -> None:
    y = np.random.default_rng(0).integers(-5, 9, 25)
    n = y.size
    largest = [max(y[i : j + 1].mean() for i in range(j + 1)) for j in range(n)]
    np.testing.assert_allclose(sealed(y.tolist()).isotonic(), [min(largest[k:]) for k in range(n)], atol=1e-12)


def test_sorted_and_rounded() -> None:
    assert sealed([3, -2, 5, 0]).sorted_rounded().tolist() == [0, 0, 3, 5]


def test_runs_of_equal_counts_cost_little() -> None:
    counts = np.repeat([1, 2, 40], [3000, 900, 100])
    errors = {"raw": 0.0, "sorted": 0.0, "l2": 0.0, "l1": 0.0}
    for seed in range(5):
        measurement = measure_sorted(counts[::-1], Fraction(1), source=SeededNoise(seed))
        for name, fit in (
            ("raw", measurement.values),
            ("sorted", measurement.sorted_rounded()),
            ("l2", measurement.isotonic()),
            ("l1", measurement.isotonic("l1", lower=0)),
        ):
            errors[name] += float(np.square(fit - counts).sum()) / 5
    assert errors["l2"] < errors["sorted"] / 10
    assert errors["l1"] < errors["sorted"] / 10
    assert errors["sorted"] < errors["raw"]


def test_sorting_does_not_raise_the_sensitivity() -> None:
    rng = np.random.default_rng(1)
    for _ in range(2000):
        counts = rng.integers(0, 5, int(rng.integers(1, 8)))
        more = counts.copy()
        more[rng.integers(0, counts.size)] += 1
        assert np.abs(np.sort(more) - np.sort(counts)).sum() == 1


def test_bad_input_is_refused() -> None:
    with pytest.raises(ProblemError, match="nonnegative integers"):
        measure_sorted([1.5], Fraction(1), source=SeededNoise(0))
    with pytest.raises(ProblemError, match="at most 2"):
        measure_sorted(np.array([2**64 - 1], dtype=np.uint64), Fraction(1), source=SeededNoise(0))
    with pytest.raises(ProblemError, match="loss"):
        sealed([1, 2]).isotonic("l3")  # type: ignore[arg-type]
    source = SeededNoise(0)
    measure_sorted([1, 2], Fraction(1), source=source)
    with pytest.raises(ProblemError, match="already drawn"):
        measure_sorted([1, 2], Fraction(1), source=source)
