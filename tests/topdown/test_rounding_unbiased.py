"""Unbiased rounding: sums in every draw, expectations over many, one table a seed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from coco_opt.errors import ProblemError
from coco_opt.topdown.estimating.rounding.unbiased import unbiased_rounding

Data = NDArray[Any]


def exchanged(rng: np.random.Generator, children: int, cells: int) -> tuple[Data, Data, Data]:
    """Return a fractional table with whole sums both ways, and these sums."""
    integer_table = rng.poisson(1.0, (children, cells))
    x = integer_table.astype(np.float64)
    for _ in range(8 * children * cells):
        (a, b), (i, k) = rng.choice(children, 2, replace=False), rng.choice(cells, 2, replace=False)
        step = rng.uniform(-min(x[a, i], x[b, k]), min(x[a, k], x[b, i]))
        x[[a, b], [i, k]] += step
        x[[a, b], [k, i]] -= step
    return x, integer_table.sum(axis=0), integer_table.sum(axis=1)


@pytest.mark.parametrize("kept", ["nothing", "parent", "both"])
def test_the_expectation_is_the_fractional_table(kept: str) -> None:
    rng = np.random.default_rng(7)
    x, parent, totals = exchanged(rng, 4, 5)
    draws, sums = 4000, np.zeros(x.shape)
    for _ in range(draws):
        sums += unbiased_rounding(x, None if kept == "nothing" else parent, rng, totals if kept == "both" else None)
    fraction = x - np.floor(x)
    error = np.abs(sums / draws - x)
    assert (error <= 4 * np.sqrt(fraction * (1 - fraction) / draws) + 1e-9).all()
    assert (fraction > 0.01).sum() > 10


@given(st.integers(0, 10**6), st.integers(2, 7), st.integers(2, 9))
def test_every_draw_keeps_the_sums(seed: int, children: int, cells: int) -> None:
    rng = np.random.default_rng(seed)
    x, parent, totals = exchanged(rng, children, cells)
    noisy = np.maximum(x + rng.uniform(-1e-8, 1e-8, x.shape), 0.0)
    for operator in (None, totals):
        table = unbiased_rounding(noisy, parent, np.random.default_rng(seed), operator)
        assert table.dtype == np.int64
        assert np.array_equal(table.sum(axis=0), parent)
        assert np.abs(table - x).max() < 1.0 + 1e-7
        assert np.array_equal(table, unbiased_rounding(noisy, parent, np.random.default_rng(seed), operator))
    assert np.array_equal(table.sum(axis=1), totals)


def test_two_halves_are_always_one_of_each() -> None:
    rng = np.random.default_rng(1)
    first = [unbiased_rounding([[0.5, 0.5], [0.5, 0.5]], np.array([1, 1]), rng, np.array([1, 1])) for _ in range(200)]
    assert {tuple(table.ravel().tolist()) for table in first} == {(1, 0, 0, 1), (0, 1, 1, 0)}


def test_small_errors_that_add_up_to_a_person_are_refused() -> None:
    # Every child shares one person between two cells; every cell is less than 1e-3 off, all together a whole person.
    children = 1111
    x, share = np.zeros((children, children + 1)), 9e-4 * np.arange(1, children + 1)
    x[np.arange(children), np.arange(children)], x[np.arange(children), np.arange(children) + 1] = share, 1.0 - share
    parent = np.rint(x.sum(axis=0)).astype(np.int64)
    with pytest.raises(ProblemError, match="too far from the sums"):
        unbiased_rounding(x, parent, np.random.default_rng(0), np.ones(children, np.int64))


def test_large_counts_do_not_hide_missing_people() -> None:
    rng = np.random.default_rng(0)
    x = np.array([[3e11 + 0.25], [7e11 + 0.75]])
    assert unbiased_rounding(x, np.array([10**12 + 1]), rng).sum() == 10**12 + 1
    with pytest.raises(ProblemError, match="sum"):
        unbiased_rounding(x, np.array([10**12 + 3]), rng)


def test_whole_tables_stay_and_wrong_sums_are_refused() -> None:
    rng = np.random.default_rng(1)
    integer_table = np.array([[3, 0], [1, 2]])
    assert np.array_equal(unbiased_rounding(integer_table, np.array([4, 2]), rng), integer_table)
    with pytest.raises(ProblemError, match="cell 1"):
        unbiased_rounding(integer_table, np.array([4, 3]), rng)
    with pytest.raises(ProblemError, match="child 0"):
        unbiased_rounding(integer_table, np.array([4, 2]), rng, np.array([4, 2]))
    with pytest.raises(ProblemError, match="parent"):
        unbiased_rounding(integer_table, None, rng, np.array([3, 3]))
    with pytest.raises(ProblemError, match="negative"):
        unbiased_rounding(-integer_table, np.array([-4, -2]), rng)
