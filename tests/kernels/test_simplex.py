"""Simplex projection against sorting, on hard data, and its certificate."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from coco_opt.errors import ProblemError
from coco_opt.kernels import simplex

Data = NDArray[Any]


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
