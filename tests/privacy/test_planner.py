"""Predicted errors against full covariance matrices and simulation; planned splits against a grid."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from numpy.typing import NDArray

from coco_opt.errors import ProblemError
from coco_opt.histograms import Hierarchy
from coco_opt.privacy import Cost, Epsilon, Rho, Sensitivity
from coco_opt.privacy.noise_distributions import geometric_variance
from coco_opt.privacy.planner import (
    DENOMINATOR,
    LINEAR_STAGES,
    LinearStage,
    NoisePlan,
    best_shares,
    linear_errors,
    named_splits,
    plan_linear,
    proportional_shares,
    rounded_shares,
    square_root_shares,
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


@pytest.mark.parametrize("unit", [Epsilon, Rho])
@pytest.mark.parametrize("stage", ["none", "least_squares"])
def test_planned_splits_reach_the_best_of_a_grid(stage: LinearStage, unit: type[Cost]) -> None:
    noise = NoisePlan(unit(ONE), REPLACED)
    predictions = {one.split: one for one in plan_linear(TREE, noise, CELLS, stage)}
    planned = predictions["planned"]
    assert sum(planned.shares) == 1
    assert all(planned.total <= one.total for one in predictions.values())
    step = 40
    grid = [(a / step, b / step, (step - a - b) / step) for a in range(1, step) for b in range(1, step - a)]
    best = min(float(linear_errors(TREE, stage, noise.variances(shares)).sum()) for shares in grid)
    assert planned.total <= best * (1 + 1e-3)
    assert set(predictions) == {"uniform", "proportional", "square root", "planned"}
    assert planned.exact


def test_separate_regions_have_a_closed_form() -> None:
    # Minimise sum of sqrt(c_l / rho_l): rho_l is in proportion to the cube root of c_l.
    noise = NoisePlan(Rho(ONE), REPLACED)
    planned = plan_linear(TREE, noise, CELLS, "none")[-1]
    roots = np.cbrt([6.0, 2.0, 2.0])
    np.testing.assert_allclose([float(share) for share in planned.shares], roots / roots.sum(), atol=2e-3)


def test_bottom_up_has_one_split() -> None:
    (only,) = plan_linear(TREE, PURE, CELLS, "bottom_up")
    assert only.shares == (0, 0, 1)
    assert only.errors[-1] == pytest.approx(math.sqrt(geometric_variance(1.0)))
    assert set(LINEAR_STAGES) == {"none", "bottom_up", "least_squares"}


def test_named_shares_sum_to_one_exactly() -> None:
    assert proportional_shares((1, 2, 4)) == (Fraction(1, 7), Fraction(2, 7), Fraction(4, 7))
    assert square_root_shares((1, 4, 25)) == (Fraction(125, 1000), Fraction(250, 1000), Fraction(625, 1000))
    for cells in ((1,), (1, 10**12), (3, 3, 3), (1, 1000, 10**6, 10**9)):
        assert all(sum(shares) == 1 and min(shares) > 0 for shares in named_splits(cells).values())
    rng = np.random.default_rng(1)
    for _ in range(300):
        shares = rounded_shares(rng.exponential(size=int(rng.integers(1, 8))) ** 3 + 1e-12)
        assert sum(shares) == 1
        assert min(shares) >= Fraction(1, DENOMINATOR)


def test_the_search_never_loses_to_its_starts() -> None:
    starts = [(Fraction(9, 10), Fraction(1, 10)), (Fraction(1, 3), Fraction(2, 3))]
    calls: list[float] = []

    def error(shares: NDArray[np.float64]) -> float:
        calls.append(float(shares[0]))
        return float(np.floor(10 * abs(shares[0] - 1 / 3)))

    best = best_shares(error, starts, evaluations=20)
    assert error(np.array([float(one) for one in best])) == 0
    assert len(calls) < 40
    assert best_shares(error, [(Fraction(1),)]) == (1,)


def test_the_search_leaves_every_level_a_thousandth() -> None:
    tried: list[float] = []

    def leaves_only(shares: NDArray[np.float64]) -> float:
        tried.append(float(shares.min()))
        return float(shares[:-1].sum())

    best = best_shares(leaves_only, [(Fraction(1, 3),) * 3])
    assert best == (Fraction(1, 1000), Fraction(1, 1000), Fraction(998, 1000))
    assert min(tried) > 0.9 / DENOMINATOR
