"""Bootstrap variances: against ranks written out and against known laws."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coco_opt import CountOfCounts, Epsilon, GroupsMethod, Rho, SeededNoise, SolverChoices, estimate_groups
from coco_opt.errors import ProblemError
from coco_opt.groups import QUERIES, RegionMeasurement
from coco_opt.groups.estimating.estimators import (
    FitOptions,
    SizeEstimate,
    bootstrap_variances,
    estimate,
    squared_errors,
)
from tests.groups.helpers import NoNoise, answer, measured, three_levels

SIZES = st.lists(st.integers(0, 9), min_size=1, max_size=30)


@given(SIZES, st.randoms(use_true_random=False), st.integers(1, 5))
def test_squared_errors_match_groups_by_rank(sizes: list[int], random: Any, cuts: int) -> None:
    ranks = np.sort(np.array(sizes, np.int64))
    other = CountOfCounts.from_ranks([max(0, size + random.randint(-3, 3)) for size in sizes])
    # Runs of one size may be cut, as those of a rank estimate are.
    bounds = np.unique([0, *np.flatnonzero(np.diff(ranks)) + 1, *random.choices(range(ranks.size), k=cuts), ranks.size])
    counts = np.diff(bounds).astype(np.int64)
    estimated = SizeEstimate(ranks[bounds[:-1]], counts, np.ones(counts.size))
    expected = np.add.reduceat((ranks - other.ranks()) ** 2.0, bounds[:-1])
    np.testing.assert_allclose(squared_errors(estimated, other), expected)


def test_squared_errors_need_equal_numbers_of_groups() -> None:
    first, second = CountOfCounts.from_runs([3], [4]), CountOfCounts.from_runs([3], [5])
    with pytest.raises(ProblemError, match="same number of groups"):
        squared_errors(SizeEstimate.from_histogram(first, 1.0), second)
    empty = SizeEstimate.from_histogram(CountOfCounts.empty(), 0.0)
    assert squared_errors(empty, CountOfCounts.empty()).size == 0


def booted(noisy: RegionMeasurement, options: FitOptions, seed: int = 0, replicates: int = 200) -> SizeEstimate:
    solvers = SolverChoices()
    result = estimate(noisy, options, solvers)
    rng = np.random.default_rng(seed)
    return bootstrap_variances(noisy, result, options, solvers, rng=rng, replicates=replicates)


DISTRIBUTIONS: list[dict[str, Any]] = [
    {"cost": Epsilon(Fraction(1, 40))},
    {"cost": Epsilon(Fraction(1, 40)), "neighbours": "replace"},
    {"cost": Rho(Fraction(1, 3_200))},
]


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_a_lone_group_keeps_the_variance_of_its_noise(distribution: dict[str, Any]) -> None:
    """One group far from both bounds: its size's error is the noise itself, whatever the law."""
    noisy = answer(CountOfCounts.from_runs([5_000], [1]), "ranks", NoNoise(), max_size=10_000, **distribution)
    result = booted(noisy, FitOptions("l2"))
    assert result.sizes.tolist() == [5_000]
    assert result.variances[0] == pytest.approx(noisy.distribution.variance, rel=0.3)


@pytest.mark.parametrize("query", QUERIES)
def test_it_finds_the_squared_error_of_the_same_truth(query: str) -> None:
    """From the truth itself the bootstrap's total is the expected squared error over fresh noise."""
    histogram = CountOfCounts.from_runs([1, 2, 5, 9], [60, 30, 10, 2])
    options = FitOptions("l2" if query == "ranks" else "l1")
    exact = answer(histogram, query, NoNoise())
    result = booted(exact, options)
    assert result.histogram.equals(histogram)
    fresh = [estimate(answer(histogram, query, SeededNoise(s)), options, SolverChoices()) for s in range(200)]
    ranks = histogram.ranks()
    error = np.mean([np.sum((fit.histogram.ranks() - ranks) ** 2) for fit in fresh])
    total = float(result.counts @ result.variances)
    assert total == pytest.approx(error, rel=0.3)


def test_variances_repeat_with_the_generator_and_are_never_zero() -> None:
    histogram = CountOfCounts.from_runs([1, 2, 5], [300, 200, 50])
    sharp = answer(histogram, "cumulative", SeededNoise(1), Epsilon(Fraction(50)))
    result = booted(sharp, FitOptions(), replicates=20)
    np.testing.assert_allclose(result.variances, 1 / (20 * result.counts + 1))  # no replicate differed
    noisy = answer(histogram, "cumulative", SeededNoise(1))
    a, b, c = (booted(noisy, FitOptions(), seed, 20).variances for seed in (1, 1, 2))
    np.testing.assert_array_equal(a, b)
    assert not np.array_equal(a, c)
    with pytest.raises(ProblemError, match="at least one replicate"):
        booted(noisy, FitOptions(), replicates=0)


def test_a_region_without_groups_has_no_variances() -> None:
    assert booted(answer(CountOfCounts.empty(), "cumulative", SeededNoise(1)), FitOptions()).variances.size == 0


def of_release(seed: int, **settings: Any) -> tuple[CountOfCounts, ...]:
    hierarchy, truth = three_levels(np.random.default_rng(seed))
    threads = settings.pop("threads", 1)
    method = GroupsMethod(**{"losses": ("l1",) * 3, "consistency": "matching", **settings})
    return estimate_groups(measured(hierarchy, truth, seed=seed), method, threads=threads).histograms


def test_a_release_with_redraws_repeats_whatever_the_threads() -> None:
    first = of_release(3, variances="bootstrap")
    for again in (of_release(3, variances="bootstrap"), of_release(3, variances="bootstrap", threads=3)):
        assert all(a.equals(b) for a, b in zip(first, again, strict=True))
    assert not all(a.equals(b) for a, b in zip(first, of_release(3), strict=True))


@pytest.mark.parametrize("change", [{"merge": "average"}, {"consistency": "bottom_up"}, {"consistency": "joint"}])
def test_nothing_is_redrawn_for_methods_that_read_no_variances(change: dict[str, Any]) -> None:
    method = GroupsMethod(**{"losses": ("l1",) * 3, "variances": "bootstrap", "consistency": "matching", **change})
    assert not method.redraws
    plain, redrawn = of_release(4, **change), of_release(4, variances="bootstrap", **change)
    assert all(a.equals(b) for a, b in zip(plain, redrawn, strict=True))
    assert GroupsMethod(losses=("l1",) * 3, variances="bootstrap", consistency="matching").redraws
