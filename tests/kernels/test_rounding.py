"""Largest fractions against brute force, ties, and its certificate."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from coco_opt.errors import ProblemError
from coco_opt.kernels import rounding

Data = NDArray[Any]
eighths = st.lists(st.integers(-24, 40), min_size=1, max_size=8)


def every_rounding(x: Data, total: int) -> Data:
    choices = [sorted({int(np.floor(v)), int(np.ceil(v))}) for v in x]
    points = np.array(list(product(*choices)))
    return points[points.sum(axis=1) == total]


@given(eighths, st.integers(0, 8))
def test_matches_brute_force_and_certifies_every_point(values: list[int], ups: int) -> None:
    x = np.array(values) / 8
    total = int(np.floor(x).sum()) + min(ups, int((x != np.floor(x)).sum()))
    rounded = rounding.largest_fractions(x, total)
    nu = rounding.multiplier(x, total)
    points = every_rounding(x, total)
    costs = np.abs(points - x).sum(axis=1)
    assert rounded.sum() == total
    assert np.abs(rounded - x).sum() == costs.min()
    assert rounding.gap(x, rounded, nu) == 0.0
    for point, cost in zip(points, costs, strict=True):
        assert rounding.gap(x, point, nu) == cost - costs.min()
        assert rounding.gap(x, point, nu + 0.3) >= cost - costs.min() - 1e-12


def test_ties_go_to_the_lowest_index() -> None:
    assert rounding.largest_fractions(np.array([0.5, 1.5, 2.0, 0.5, 0.75]), 6).tolist() == [1, 2, 2, 0, 1]
    assert rounding.largest_fractions(np.full(4, 0.25), 1).tolist() == [1, 0, 0, 0]


def test_all_down_all_up_integers_and_empty() -> None:
    x = np.array([0.2, 1.0, 3.9])
    for total, answer in ((4, [0, 1, 3]), (6, [1, 1, 4])):
        assert rounding.largest_fractions(x, total).tolist() == answer
        assert rounding.gap(x, np.array(answer), rounding.multiplier(x, total)) == 0.0
    integers = np.array([1.0, -2.0])
    assert rounding.largest_fractions(integers, -1).tolist() == [1, -2]
    assert rounding.multiplier(integers, -1) == 0.0
    assert rounding.largest_fractions(np.zeros(0), 0).size == 0


def test_large_input_keeps_the_sum_and_is_certified() -> None:
    x = np.random.default_rng(4).uniform(0, 1e9, 200_000)
    total = round(float(x.sum()))
    rounded = rounding.largest_fractions(x, total)
    assert int(rounded.sum()) == total
    assert (np.abs(rounded - x) < 1).all()
    assert rounding.gap(x, rounded, rounding.multiplier(x, total)) <= 1e-10


@pytest.mark.parametrize("total", [3, 7, 10**30])
def test_a_total_out_of_reach_is_refused(total: int) -> None:
    with pytest.raises(ProblemError, match="total"):
        rounding.largest_fractions(np.array([0.2, 1.0, 3.9]), total)


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e19])
def test_values_must_be_finite_and_representable(value: float) -> None:
    with pytest.raises(ProblemError, match="finite"):
        rounding.largest_fractions(np.array([value]), 0)
