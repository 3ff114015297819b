"""Rows of joint estimation made monotone from an earlier round's runs, and rounds that no cut of the work changes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from coco_solvers.structured.joint import AlternatingDirections
from hypothesis import given
from hypothesis import strategies as st

from coco_opt import solve
from coco_opt.array_types import Floats
from coco_opt.kernels import joint_rounds, joint_rows
from coco_opt.problems.joint import JointFit, JointL1, JointL2
from tests.joint.helpers import instance, noisy_tables


def pooled(c: Floats, top: float) -> Floats:
    """Return the nearest nondecreasing row within [0, top], cell by cell from scratch."""
    near = np.empty((1, c.size))
    joint_rounds.monotone(c[None], c[None], np.zeros(1), np.ones(c.size), np.array([top]), 0, 1, near)
    return near[0]


def pooled_again(c: Floats, m: Floats, top: float) -> Floats:
    """Return the same from the runs of another row."""
    near = m.copy()
    scratch = np.empty(c.size), np.empty(c.size, np.int64), np.empty(c.size + 1), np.empty(c.size, np.int64)
    joint_rows.monotone_again(c, near, top, *scratch)
    return near


@given(st.integers(0, 10_000), st.integers(1, 200), st.integers(0, 12), st.floats(0.0, 30.0), st.floats(0.0, 3.0))
def test_any_earlier_row_leads_to_the_nearest_one(seed: int, cells: int, runs: int, rise: float, noise: float) -> None:
    rng, top = np.random.default_rng(seed), 10.0
    c = np.linspace(-2.0, -2.0 + rise, cells) + rng.normal(0.0, noise, cells)
    earlier = np.clip(np.sort(rng.normal(5.0, 6.0, runs + 1))[np.sort(rng.integers(0, runs + 1, cells))], 0.0, top)
    np.testing.assert_allclose(pooled_again(c, earlier, top), pooled(c, top), atol=1e-9)


@pytest.mark.parametrize("top", [0.0, 3.0, 100.0])
def test_a_run_that_bends_everywhere_is_cut_to_single_cells(top: float) -> None:
    steep = np.exp(np.linspace(0.0, 20.0, 500)) * 1e-6  # each cut leaves all but a few cells on one side
    for c in (steep, -steep[::-1], np.arange(500.0), -np.arange(500.0)):
        np.testing.assert_allclose(pooled_again(c, np.full(500, min(2.0, top)), top), pooled(c, top), atol=1e-9)
        np.testing.assert_allclose(pooled_again(c, np.full(500, top), top), pooled(c, top), atol=1e-9)


def test_small_steps_on_large_counts_are_not_lost() -> None:
    c = 1e9 + np.random.default_rng(1).normal(0.0, 1.0, 5_000)
    np.testing.assert_allclose(pooled_again(c, np.full(5_000, 1e9 - 7.0), 2e9), pooled(c, 2e9), atol=1e-5)


@pytest.mark.parametrize("kind", [JointL1, JointL2])
def test_many_siblings_are_cut_into_runs_of_the_same_sums(kind: type[JointFit]) -> None:
    tree, y, groups, _ = noisy_tables([-1, 0, 0, *[1] * 70, *[2] * 40], 30, 3)
    problem = kind(tree, y, groups)
    one, four = (AlternatingDirections(threads=threads).solve(problem) for threads in (1, 4))
    np.testing.assert_array_equal(one.value, four.value)
    assert solve(problem, AlternatingDirections(tolerance=1e-6)).relative_gap <= 1e-6


@pytest.mark.parametrize("kind", [JointL1, JointL2])
@pytest.mark.parametrize("name", ["one region", "uneven", "three levels"])
def test_tightening_in_place_is_tightening_and_its_gap(kind: type[JointFit], name: str) -> None:
    problem = instance(kind, name)
    raw = np.random.default_rng(2).normal(0.0, 1.0, problem.y.shape)
    point = problem.repair(problem.y)
    with ThreadPoolExecutor(2) as pool:
        prices = raw.copy()
        gap = problem.tighten(prices, point, pool)
        np.testing.assert_array_equal(prices, problem.tightened(raw))
        assert gap == pytest.approx(problem.gap(point, prices), rel=1e-12)
        assert gap > 0.0
