"""Unattributed histograms: the paper's examples, and what the order of the counts is worth."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from coco_opt.errors import ProblemError
from coco_opt.privacy import NEIGHBOURS, Epsilon, Geometric, Neighbours, SeededNoise
from coco_opt.ranges import SortedCounts, measure_ranges, measure_sorted, round_nonnegative

ONE = Epsilon(Fraction(1))


def sealed(values: list[int]) -> SortedCounts:
    return SortedCounts(np.array(values, dtype=np.int64), Geometric(Fraction(1)))


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


def test_runs_of_equal_counts_cost_little() -> None:
    counts = np.repeat([1, 2, 40], [3000, 900, 100])
    errors = {"raw": 0.0, "sorted": 0.0, "l2": 0.0, "l1": 0.0}
    for seed in range(5):
        measurement = SortedCounts.of(measure_sorted(counts[::-1], ONE, source=SeededNoise(seed)))
        for name, fit in (
            ("raw", measurement.values),
            ("sorted", round_nonnegative(np.sort(measurement.values))),
            ("l2", measurement.isotonic()),
            ("l1", measurement.isotonic("l1", lower=0)),
        ):
            errors[name] += float(np.square(fit - counts).sum()) / 5
    assert errors["l2"] < errors["sorted"] / 10
    assert errors["l1"] < errors["sorted"] / 10
    assert errors["sorted"] < errors["raw"]


@pytest.mark.parametrize("neighbours", NEIGHBOURS)
def test_sorting_does_not_raise_the_sensitivity(neighbours: Neighbours) -> None:
    (answers,) = measure_sorted([1, 2], ONE, source=SeededNoise(0), neighbours=neighbours).answers
    sensitivity = answers.query.sensitivity
    assert sensitivity is not None
    rng = np.random.default_rng(1)
    seen = set()
    for _ in range(2000):
        counts = rng.integers(1, 5, int(rng.integers(2, 8)))
        more = counts.copy()
        more[rng.integers(0, counts.size)] += 1
        if neighbours == "replace":
            more[rng.integers(0, counts.size)] -= 1
        change = np.sort(more) - np.sort(counts)
        seen.add((int(np.abs(change).sum()), int((change**2).sum())))
    assert max(l1 for l1, _ in seen) == sensitivity.l1
    assert max(l2 for _, l2 in seen) == sensitivity.l2_squared


def test_bad_input_is_refused() -> None:
    with pytest.raises(ProblemError, match="no sorted counts"):
        SortedCounts.of(measure_ranges([1, 2], ONE, source=SeededNoise(3)))
    with pytest.raises(ProblemError, match="nonnegative integers"):
        measure_sorted([1.5], ONE, source=SeededNoise(0))
    with pytest.raises(ProblemError, match="at most 2"):
        measure_sorted(np.array([2**64 - 1], dtype=np.uint64), ONE, source=SeededNoise(0))
    with pytest.raises(ProblemError, match="loss"):
        sealed([1, 2]).isotonic("l3")  # type: ignore[arg-type]
    source = SeededNoise(0)
    measure_sorted([1, 2], ONE, source=source)
    with pytest.raises(ProblemError, match="already drawn"):
        measure_sorted([1, 2], ONE, source=source)
