"""Predicted errors against full covariance matrices and simulation."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from numpy.typing import NDArray

from coco_opt.errors import ProblemError
from coco_opt.histograms import Hierarchy
from coco_opt.privacy import Epsilon, Rho, Sensitivity
from coco_opt.privacy.noise_distributions import geometric_variance
from coco_opt.privacy.planner import (
    DENOMINATOR,
    NoisePlan,
    linear_errors,
    rounded_shares,
)

TREE = Hierarchy.from_paths(
    [("n", state, f"c{k}") for state, width in (("a", 1), ("b", 4), ("d", 2)) for k in range(width)]
)
ONE = Fraction(1)
PURE = NoisePlan(Epsilon(ONE), (Sensitivity(1, 1),) * 3)
REPLACED = (Sensitivity(4, 6), Sensitivity(2, 2), Sensitivity(2, 2))
CELLS = (10, 30, 70)


def covariance(tree: Hierarchy, variances: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the covariance of all regions' generalised least squares estimates, by matrices."""
    design = tree.aggregate(np.eye(len(tree.leaves)))
    weights = np.diag(1 / variances[tree.level])
    return np.asarray(design @ np.linalg.inv(design.T @ weights @ design) @ design.T)


def test_least_squares_errors_are_those_of_the_covariance_matrix() -> None:
    for variances in (np.array([1.0, 2.0, 3.0]), np.array([9.0, 0.1, 40.0])):
        diagonal = np.diag(covariance(TREE, variances))
        expected = [math.sqrt(diagonal[a:b].mean()) for a, b in pairwise(TREE.level_start.tolist())]
        np.testing.assert_allclose(linear_errors(TREE, "least_squares", variances), expected, rtol=1e-10)


def test_the_other_stages_are_sums_of_noise() -> None:
    variances = np.array([1.0, 4.0, 9.0])
    np.testing.assert_allclose(linear_errors(TREE, "none", variances), [1, 2, 3])
    np.testing.assert_allclose(linear_errors(TREE, "bottom_up", variances), [math.sqrt(63), math.sqrt(21), 3])
    with pytest.raises(ProblemError, match="3 levels"):
        linear_errors(TREE, "none", variances[:2])


def test_costs_and_sensitivities_enter_the_variances() -> None:
    plan = NoisePlan(Rho(Fraction(1, 2)), REPLACED)
    np.testing.assert_allclose(plan.variances([0.5, 0.5, 0.0]), [12.0, 4.0, np.inf])
    pure = NoisePlan(Epsilon(Fraction(2)), REPLACED)
    expected = [geometric_variance(4.0), geometric_variance(4.0), geometric_variance(2.0)]
    np.testing.assert_allclose(pure.variances([0.5, 0.25, 0.5]), expected)


def test_rounded_shares_sum_to_one_exactly() -> None:
    rng = np.random.default_rng(1)
    for _ in range(300):
        shares = rounded_shares(rng.exponential(size=int(rng.integers(1, 8))) ** 3 + 1e-12)
        assert sum(shares) == 1
        assert min(shares) >= Fraction(1, DENOMINATOR)
