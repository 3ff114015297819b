"""Rounding of fractional tables of a hierarchy: what holds for every input, against exhaustive search."""

from __future__ import annotations

import numpy as np
import pytest
from coco_solvers.oracles.brute_force import BruteForce
from coco_solvers.structured.expected_distance import CellByCell
from hypothesis import given
from hypothesis import strategies as st

from coco_opt import ExpectedDistance, Tree, solve
from tests.joint.helpers import TREES, noisy_tables, rounding

FAST = CellByCell(exact_cells=0)
families = st.tuples(st.integers(0, 100_000), st.integers(1, 5), st.integers(1, 12))


@given(families)
def test_every_rounding_is_whole_in_order_and_additive(family: tuple[int, int, int]) -> None:
    solution = solve(rounding(family), FAST, check=False)
    assert solution.violation == 0.0
    assert solution.value.dtype == np.int64


@given(st.tuples(st.integers(0, 100_000), st.integers(1, 2), st.integers(1, 3)))
def test_distance_and_bound_enclose_the_optimum(family: tuple[int, int, int]) -> None:
    problem = rounding(family)
    best = solve(problem, BruteForce(), check=False).objective
    fast = solve(problem, FAST, check=False)
    assert best - 1e-12 <= fast.objective <= best + fast.gap + 1e-12
    assert solve(problem).objective == best


@pytest.mark.parametrize("name", TREES)
def test_rounded_tables_are_near(name: str) -> None:
    tree, y, groups, _ = noisy_tables(TREES[name], 40, 4)
    leaves = np.clip(np.maximum.accumulate(y, axis=1) + 0.25, 0.0, groups[:, None])
    rows = np.asarray(tree.sums(leaves), np.float64)
    solution = solve(ExpectedDistance.rounding(tree, rows, groups), FAST)
    assert np.abs(solution.value - rows).max() < 2.0
    assert solution.objective == pytest.approx(np.abs(solution.value - rows).sum(), rel=1e-3)


def test_integer_tables_come_back() -> None:
    tree, _, groups, true = noisy_tables(TREES["three levels"], 40, 4)
    assert (solve(ExpectedDistance.rounding(tree, true + 1e-9, groups), FAST).value == true).all()


def test_a_nation_of_large_cells_is_not_too_large() -> None:
    tree, groups = Tree([-1, 0, 1, 2, 3, 4]), np.full(6, 300_000_000)
    rows = np.broadcast_to(np.linspace(0.0, 3e8, 100_000), (6, 100_000))
    problem = ExpectedDistance.rounding(tree, rows, groups)
    assert problem.objective(np.rint(rows).astype(np.int64)) <= 6 * 100_000 / 2
