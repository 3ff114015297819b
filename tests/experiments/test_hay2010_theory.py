"""What is known without sampling, against brute force and the tree's own posterior variances."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from coco_experiments.hay2010 import strategies as theory
from coco_experiments.hay2010 import theorem4, usefulness
from coco_experiments.hay2010.strategies import (
    FIT_LEAVES,
    NONNEGATIVE,
    RAW_FIT,
    RAW_NODES,
    STRATEGIES,
    UNIT,
    Ranges,
    Sample,
    fewest_nodes,
    fit_variances,
    node_numbers,
)
from coco_experiments.hay2010.unattributed import ESTIMATORS, FIT, RAW, SORTED, estimates, squared_error
from coco_experiments.outcome import Table

from coco_opt.ranges.domain import DomainTree


def test_runs_of_equal_counts() -> None:
    runs = theory.EqualRuns.of(np.array([0, 0, 0, 1, 4, 4]))
    assert runs.lengths.tolist() == [3, 1, 2]
    assert runs.distinct == 3
    assert runs.log_cubed == pytest.approx(math.log(3) ** 3 + math.log(2) ** 3)
    assert runs.harmonic(0.5) == pytest.approx(2 / 0.25 * (11 / 6 + 1 + 3 / 2))
    assert runs.theorem2(0.1) == pytest.approx(100 * (runs.log_cubed + 3))


def test_one_run_has_exactly_the_harmonic_error() -> None:
    ranks = np.full(30, 1_000)
    rng = np.random.default_rng(1)
    errors = [squared_error(estimates(ranks, Fraction(1), rng)[FIT], ranks) for _ in range(400)]
    exact = theory.EqualRuns.of(ranks).harmonic(1.0)
    assert abs(np.mean(errors) - exact) < 4 * np.std(errors) / math.sqrt(400)


def test_deviation_of_the_raw_error() -> None:
    rng = np.random.default_rng(2)
    errors = (rng.laplace(0.0, 2.0, (4_000, 50)) ** 2).sum(axis=1)
    assert errors.mean() == pytest.approx(theory.noisy_ranks_error(50, 0.5), rel=0.02)
    assert errors.std() == pytest.approx(theory.noisy_ranks_deviation(50, 0.5), rel=0.06)


def test_estimators_are_what_the_paper_says() -> None:
    ranks = np.sort(np.random.default_rng(3).integers(0, 40, 200))
    found = estimates(ranks, Fraction(1, 10), np.random.default_rng(4))
    assert tuple(found) == ESTIMATORS
    assert np.array_equal(found[SORTED], np.floor(np.maximum(np.sort(found[RAW]), 0) + 0.5))
    for name in ESTIMATORS[1:]:
        assert np.all(np.diff(found[name].astype(float)) >= 0)
    assert squared_error(np.array([1.0, 3.0]), np.array([0, 1])) == 5.0


def test_fewest_nodes_sum_to_the_range() -> None:
    domain = DomainTree(32)
    nodes = domain.counts(np.arange(32) ** 2)
    ranges = theorem4.every_range(32)
    running = np.concatenate([[0], np.cumsum(np.arange(32) ** 2)])
    assert np.array_equal(fewest_nodes(domain, nodes, ranges), running[ranges.end] - running[ranges.begin])
    assert node_numbers(domain, Ranges(np.array([0, 1, 7]), np.array([32, 31, 8]))).tolist() == [1, 8, 1]


def test_published_factor_and_bounds() -> None:
    assert theory.most_improved_factor(16) == pytest.approx(9.33, abs=0.005)
    assert theory.range_bound(3, 0.5) == 2 * 3 * 2 * 9 / 0.25
    assert theory.unit_range_error(np.array([1, 8]), 0.1) == pytest.approx([200, 1_600])


def test_theorem4_failures_are_reported() -> None:
    ranges = theorem4.range_table((8,))
    factors = theorem4.factor_table({2: (5,)})
    assert theorem4.failures_in(ranges, factors) == ()
    bad = Table("t", ranges.columns, ((*ranges.rows[0][:-1], False),))
    assert len(theorem4.failures_in(bad, factors)) == 1
    low = Table("t", factors.columns, ((*factors.rows[0][:4], 0.5, 2.0, False),))
    assert len(theorem4.failures_in(ranges, low)) == 2


def test_largest_sum_over_every_range() -> None:
    for seed in range(20):
        domain = DomainTree(16)
        error = np.random.default_rng(seed).normal(size=domain.tree.nodes)
        brute = fewest_nodes(domain, error, theorem4.every_range(16)).max()
        assert usefulness.largest_sum(domain, error) == pytest.approx(brute)
    assert usefulness.largest_sum(DomainTree(1), np.array([-2.0])) == -2.0


def test_usefulness_bound_grows_with_domain_and_certainty() -> None:
    assert theory.useful_error(8, 1.0, 0.05) < theory.useful_error(9, 1.0, 0.05) < theory.useful_error(9, 1.0, 0.01)
    assert theory.useful_error(9, 0.1, 0.05) == pytest.approx(10 * theory.useful_error(9, 1.0, 0.05))


def test_a_sample_answers_with_every_strategy() -> None:
    domain = DomainTree(64)
    truth = domain.counts(np.arange(64) % 5 * 100)
    sample = Sample.draw(domain, truth, 1.0, np.random.default_rng(5))
    ranges = theorem4.every_range(64)
    exact = fewest_nodes(domain, truth, ranges)
    answers = {name: sample.answer(name, ranges) for name in STRATEGIES}
    for name in (UNIT, FIT_LEAVES, NONNEGATIVE):
        assert answers[name].min() >= 0
    assert ((answers[RAW_FIT] - exact) ** 2).mean() < ((answers[RAW_NODES] - exact) ** 2).mean()


def test_fit_variances_are_the_least_squares_ones() -> None:
    domain = DomainTree(8)
    strategy = np.array([[float(_below(domain, node, cell)) for cell in range(8)] for node in range(15)])
    covariance = np.linalg.inv(strategy.T @ strategy)
    ranges = theorem4.every_range(8)
    indicator = np.array([[b <= cell < e for cell in range(8)] for b, e in zip(ranges.begin, ranges.end, strict=True)])
    dense = np.einsum("rc,cd,rd->r", indicator.astype(float), covariance, indicator.astype(float))
    assert fit_variances(domain, ranges) == pytest.approx(dense, rel=1e-12)


def _below(domain: DomainTree, node: int, cell: int) -> bool:
    at = domain.first_leaf + cell
    while at > node:
        at = int(domain.tree.parent[at])
    return at == node
