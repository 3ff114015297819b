"""Residuals, kernel density and the less-obvious estimate."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import gaussian_kde

from coco_opt.audit import ResidualCounts, empirical_privacy_loss
from coco_opt.audit.privacy_loss import unit_grid_density
from coco_opt.errors import ProblemError

whole = st.lists(st.integers(-50, 50), min_size=2, max_size=60)


def _geometric(epsilon: float) -> ResidualCounts:
    """Return an ideal sample of 10^14 double-geometric residuals."""
    k = np.arange(-1500, 1501)
    a = math.exp(-epsilon)
    counts = np.rint(1e14 * (1 - a) / (1 + a) * a ** np.abs(k)).astype(np.int64)
    return ResidualCounts(k[counts > 0].astype(np.float64), counts[counts > 0])


@given(whole, st.floats(0, 100))
def test_residual_counts_have_numpys_moments_and_percentiles(values: list[int], percent: float) -> None:
    counted = ResidualCounts.of(np.array(values))
    assert counted.n == len(values)
    assert counted.deviation == pytest.approx(np.std(values, ddof=1), abs=1e-9)
    assert counted.percentile(percent) == pytest.approx(np.percentile(values, percent), abs=1e-9)


@given(whole, whole)
def test_total_counts_both_parts(one: list[int], two: list[int]) -> None:
    both = ResidualCounts.total([ResidualCounts.of(np.array(part)) for part in (one, two)])
    together = ResidualCounts.of(np.array(one + two))
    assert np.array_equal(both.values, together.values)
    assert np.array_equal(both.counts, together.counts)
    assert ResidualCounts.total([]).n == 0


@pytest.mark.parametrize("bad", [([1.0, 0.0], [1, 1]), ([0.0], [0]), ([math.nan], [1]), ([0.0, 1.0], [1])])
def test_residual_counts_refuse_what_is_not_a_distribution(bad: tuple[list[float], list[int]]) -> None:
    with pytest.raises(ProblemError):
        ResidualCounts(np.array(bad[0]), np.array(bad[1], np.int64))


def _lattice(kind: str) -> NDArray[np.float64]:
    rng = np.random.default_rng(1)
    drawn = rng.laplace(scale=20.0, size=700)
    return np.asarray({"whole": np.rint(drawn), "shifted": np.rint(drawn) + 0.25, "real": drawn}[kind])


@pytest.mark.parametrize("kind", ["whole", "shifted", "real"])
@pytest.mark.parametrize("factor", [0.02, 0.15, 1.0])
def test_density_is_scipys(kind: str, factor: float) -> None:
    residuals = _lattice(kind)
    counted = ResidualCounts.of(residuals)
    ours = unit_grid_density(counted, -60.3, 120, factor * counted.deviation)
    scipys = gaussian_kde(residuals, factor)(-60.3 + np.arange(120))
    assert ours == pytest.approx(scipys, rel=1e-10)


def test_density_far_from_every_residual_is_zero() -> None:
    counted = ResidualCounts.of(np.array([0.0, 1.0]))
    assert unit_grid_density(counted, 1e6, 3, 1.0).tolist() == [0.0, 0.0, 0.0]
    with pytest.raises(ProblemError, match="bandwidth"):
        unit_grid_density(counted, 0.0, 3, 0.0)


@pytest.mark.parametrize("epsilon", [0.0125, 0.025, 0.1])
def test_loss_of_ideal_geometric_residuals_is_epsilon_outside_the_middle(epsilon: float) -> None:
    loss = empirical_privacy_loss(_geometric(epsilon))
    outside = loss.mean_between(4 * loss.bandwidth, loss.residual_range)
    assert outside == pytest.approx(epsilon, rel=2e-3)
    assert loss.maximum == pytest.approx(epsilon, rel=2e-3)
    assert loss.deviation == pytest.approx(math.sqrt(2) / epsilon, rel=0.01)


def test_loss_is_taken_on_unit_bins_below_the_range() -> None:
    residuals = np.random.default_rng(2).laplace(scale=30.0, size=2_000)
    loss = empirical_privacy_loss(residuals, range_factor=1.5, percentile=90.0)
    reach = 1.5 * max(abs(np.percentile(residuals, 10)), abs(np.percentile(residuals, 90)))
    assert loss.residual_range == pytest.approx(reach)
    assert loss.centres[0] == pytest.approx(0.5 - reach)
    assert np.diff(loss.centres) == pytest.approx(1.0)
    assert reach - 1.5 < loss.centres[-1] < reach
    density = gaussian_kde(residuals, 0.15)(loss.centres)
    assert loss.loss == pytest.approx(np.log(density[:-1] / density[1:]), abs=1e-9)
    edges = np.append(loss.centres - 0.5, loss.centres[-1] + 0.5)
    assert np.array_equal(loss.counts, np.histogram(residuals, edges)[0])


def test_gaps_in_the_density_are_left_out() -> None:
    loss = empirical_privacy_loss(np.repeat([-4000.0, 0.0, 4000.0], 50), bandwidth=0.001)
    assert np.isnan(loss.loss).any()
    assert math.isfinite(loss.maximum)
    assert math.isnan(loss.mean_between(1000.0, 1001.0))


def test_equal_residuals_have_no_estimate() -> None:
    with pytest.raises(ProblemError, match="equal"):
        empirical_privacy_loss(np.zeros(10))
    with pytest.raises(ProblemError, match="equal"):
        empirical_privacy_loss(np.zeros(1))
