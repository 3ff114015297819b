"""The omniscient line, mean-consistency, clipped naive and drawn ranks: what they are, and that they fail as stated."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
from coco_experiments.groups import Case
from coco_experiments.kuo2018.mean_consistency import mean_consistency
from coco_experiments.kuo2018.methods import estimate_ranks
from coco_experiments.kuo2018.sweep import omniscient
from coco_experiments.kuo2018.table3 import DataSet, clipped_error
from hypothesis import given, settings
from hypothesis import strategies as st

from coco_opt import CountOfCounts, GroupsMethod, Hierarchy, SeededNoise, SolverChoices, emd, estimate_groups, solve
from coco_opt.errors import ProblemError
from coco_opt.groups import GroupsMeasurements
from coco_opt.groups.estimating.estimators import FitOptions, estimate
from coco_opt.groups.measuring.private import PrivateCounts
from coco_opt.histograms import errors_by_level
from coco_opt.privacy import Epsilon, Measurement, Rho
from coco_opt.problems import TreeLeastSquares
from tests.groups.helpers import MAX_SIZE, answer, assert_consistent, costs, measured, three_levels


def of_sizes(seed: int, shares: list[Fraction | None], query: str = "sizes") -> Measurement:
    hierarchy, truth = three_levels(np.random.default_rng(seed))
    return measured(hierarchy, truth, query, seed=seed, shares=shares)


def test_the_omniscient_line_by_hand() -> None:
    """Two regions below the root with 1 and 3 distinct sizes; the root has 3."""
    hierarchy = Hierarchy.from_paths([("n", "a"), ("n", "b")])
    case = Case.of_leaves("two", hierarchy, [np.repeat(4, 10), np.repeat([1, 4, 9], 5)], 9)
    line = omniscient(case, costs([Fraction(1, 2), Fraction(1, 4)]))
    np.testing.assert_allclose(line, [3 * 2**0.5 / 0.5, 2 * 2**0.5 / 0.25])
    np.testing.assert_allclose(omniscient(case, costs([Fraction(1, 2), None], Rho)), [3.0, np.inf])
    assert omniscient(Case.of_leaves("none", hierarchy, [np.empty(0, np.int64)] * 2, 9), costs([None, 1])) == (0.0, 0.0)


SHARES: list[list[Fraction | None]] = [
    [Fraction(1, 3)] * 3,
    [Fraction(1, 8), Fraction(1, 8), Fraction(3, 4)],
    [None, Fraction(1, 2), Fraction(1, 2)],
    [Fraction(1, 2), None, Fraction(1, 2)],
    [None, None, Fraction(1)],
]


@pytest.mark.parametrize("shares", SHARES)
@settings(max_examples=25)
@given(seed=st.integers(0, 10_000))
def test_mean_consistency_solves_every_cell(seed: int, shares: list[Fraction | None]) -> None:
    """The batched passes against the certified tree problem, cell by cell."""
    measurement = of_sizes(seed, shares)
    result = mean_consistency(measurement).table
    answers = list(GroupsMeasurements(measurement))
    variance = [np.inf if answer is None else answer.distribution.variance for answer in answers]
    for cell in (0, MAX_SIZE // 2, MAX_SIZE):
        y = [0.0 if answer is None else float(answer.values[cell]) for answer in answers]
        expected = solve(TreeLeastSquares(measurement.hierarchy.parent, y, variance)).value
        np.testing.assert_allclose(result[:, cell], expected, atol=1e-8)


def test_mean_consistency_fails_as_the_paper_says() -> None:
    result = mean_consistency(of_sizes(3, [Fraction(1, 3)] * 3))
    leaves = result.table[result.hierarchy.leaves.start :]
    np.testing.assert_allclose(result.hierarchy.aggregate(leaves), result.table, atol=1e-9)  # consistent, but:
    assert 0.1 < result.negative < 0.5
    assert result.fractional > 0.5


def test_mean_consistency_keeps_the_truth_where_there_is_no_noise() -> None:
    hierarchy, truth = three_levels(np.random.default_rng(4))
    result = mean_consistency(measured(hierarchy, truth, "sizes", seed=None))
    np.testing.assert_allclose(result.table, [histogram.to_dense(MAX_SIZE) for histogram in truth], atol=1e-9)
    assert (result.negative, result.fractional) == (0.0, 0.0)


def test_mean_consistency_needs_the_leaves() -> None:
    with pytest.raises(ProblemError, match="needs the leaves' counts"):
        mean_consistency(of_sizes(1, [Fraction(1, 2), Fraction(1, 2), None]))


def test_clipping_alone_grows_with_the_square_of_the_bound() -> None:
    """E[X+] = a / (1 - a^2) groups appear in every empty cell: about 0.96 K^2 / 2 entities at epsilon = 1."""
    truth = CountOfCounts.from_runs([1, 2], [500, 300])
    errors = {}
    for max_size in (4_000, 8_000):
        noisy = answer(truth, "sizes", SeededNoise(8), max_size=max_size)
        errors[max_size] = clipped_error(DataSet("made", truth, max_size), noisy)
        expected = np.exp(-0.5) / (1 - np.exp(-1.0)) * max_size**2 / 2
        assert errors[max_size] == pytest.approx(expected, rel=0.15)
        constrained = estimate(noisy, FitOptions("l2"), SolverChoices())
        assert emd(constrained.histogram, truth) < errors[max_size] / 2
    assert errors[8_000] > 3 * errors[4_000]


@given(st.lists(st.integers(-2, 6), min_size=5, max_size=5), st.lists(st.integers(0, 6), min_size=5, max_size=5))
def test_the_distance_is_the_sum_over_all_cells(noisy: list[int], true: list[int]) -> None:
    data, naive = DataSet("made", CountOfCounts.from_dense(true), 4), SimpleNamespace(values=np.array(noisy))
    assert clipped_error(data, naive) == np.abs(np.cumsum(np.maximum(noisy, 0)) - np.cumsum(true)).sum()


@pytest.mark.parametrize("queries", list(product(["cumulative", "ranks"], repeat=3)))
def test_every_combination_of_levels_can_be_released(queries: tuple[str, ...]) -> None:
    """Hc x Hg x Hc and the others: each level's estimate is its own query's, and the release is consistent."""
    hierarchy, truth = three_levels(np.random.default_rng(9))
    losses = tuple("l2" if query == "ranks" else "l1" for query in queries)

    mixed = measured(hierarchy, truth, queries, seed=2)
    assert_consistent(
        hierarchy, truth, estimate_groups(mixed, GroupsMethod(losses=losses, consistency="matching")).histograms
    )
    alone = estimate_groups(mixed, GroupsMethod(losses=losses, consistency="none")).histograms
    for level, query in enumerate(queries):
        pure = estimate_groups(
            measured(hierarchy, truth, query, seed=2), GroupsMethod(losses=losses, consistency="none")
        ).histograms
        assert all(alone[region].equals(pure[region]) for region in hierarchy.level_range(level))


def test_errors_are_means_of_distances_by_level() -> None:
    hierarchy, truth = three_levels(np.random.default_rng(2))
    released = estimate_groups(
        measured(hierarchy, truth), GroupsMethod(losses=("l1",) * 3, consistency="matching")
    ).histograms
    errors = errors_by_level(hierarchy, released, truth)
    for level in range(3):
        regions = hierarchy.level_range(level)
        assert errors[level] == pytest.approx(np.mean([emd(released[r], truth[r]) for r in regions]))


LARGEST, EPSILON, DRAWS = 10_000, Fraction(1), 2_000
TINY = CountOfCounts(np.array([1, 2, 5]), np.array([4, 2, 1]))


def outcome(histogram: CountOfCounts) -> tuple[int, ...]:
    return (*histogram.sizes.tolist(), *histogram.counts.tolist())


def by_noise_and_fit(seed: int) -> tuple[int, ...]:
    counts = PrivateCounts.of_leaves(Hierarchy.from_paths([("all",)]), [TINY])
    noisy = Case.of("all", counts, LARGEST).measured(SeededNoise(seed), [Epsilon(EPSILON)], "ranks")
    return outcome(estimate(GroupsMeasurements(noisy)[0], FitOptions("l2"), SolverChoices()).histogram)


@pytest.mark.slow
def test_the_shortcut_has_the_outcomes_of_noise_and_fit() -> None:
    """Two-sample chi-square over released histograms; those seen fewer than ten times in all are one class."""
    rng, solvers = np.random.default_rng(7), SolverChoices()
    shortcuts = (
        estimate_ranks(TINY, max_size=LARGEST, epsilon=EPSILON, rng=rng, solvers=solvers).histogram
        for _ in range(DRAWS)
    )
    tallies = [Counter(map(outcome, shortcuts)), Counter(map(by_noise_and_fit, range(DRAWS)))]
    common = [each for each, times in (tallies[0] + tallies[1]).items() if times >= 10]
    seen = np.array([[tally[each] for each in common] for tally in tallies], np.float64)
    seen = np.column_stack([seen, DRAWS - seen.sum(axis=1)])
    seen = seen[:, seen.sum(axis=0) > 0]
    statistic, degrees = float(((seen[0] - seen[1]) ** 2 / seen.sum(axis=0)).sum()), seen.shape[1] - 1
    assert statistic <= degrees + 5.0 * (2 * degrees) ** 0.5
