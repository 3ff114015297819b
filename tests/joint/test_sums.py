"""Joint estimation from sums over buckets: the program over single sizes, certificates, and releases."""

from __future__ import annotations

from typing import Any, get_args

import numpy as np
import pytest
from coco_solvers.generic.highs import HiGHS
from coco_solvers.generic.piqp import PIQP
from coco_solvers.structured.joint_sums import AlternatingSums
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import linprog

from coco_opt import IsotonicL1, IsotonicL2, JointL1, JointL2, SolverChoices, emd, solve
from coco_opt.errors import ProblemError, SolverError, UnknownSolverError
from coco_opt.groups import Buckets, GroupsMethod, estimate_groups
from coco_opt.groups.buckets import common_cells
from coco_opt.groups.estimating.joint import joint
from coco_opt.groups.noisy_measurements import Loss
from coco_opt.problems.joint_sums import JointSums, JointSumsL1, JointSumsL2
from coco_opt.problems.tree import Tree
from coco_opt.solution import Answer, Status
from coco_opt.solving import judge
from tests.groups.helpers import MAX_SIZE, assert_consistent, measured, three_levels
from tests.joint.helpers import TREES, noisy_tables, sums_instance

KINDS = [JointSumsL1, JointSumsL2]
UNLIKE = [Buckets.from_edges([0, 1, 2, 4, 8, 12]), Buckets.from_edges([0, 3, 4, 12]), None]


@st.composite
def tiny(draw: Any) -> JointSums:
    """Return a problem of few sizes on one of the smaller trees."""
    parent = draw(st.sampled_from([[-1], [-1, 0, 0], [-1, 0, 1], [-1, 0, 0, 1, 1]]))
    cells = draw(st.integers(1, 3))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    begins = rng.random((len(parent), cells)) < 0.6
    begins[:, 0] = True
    groups = Tree(parent).sums(rng.integers(0, 5, len(parent)))
    y, widths = rng.integers(-4, 12, begins.shape), rng.integers(1, 4, cells)
    return JointSumsL1(parent, y, begins, groups, rng.choice([0.0, 0.5, 1.0], len(parent)) + 0.25, widths)


def least_over_single_sizes(problem: JointSums) -> float:
    """Return the optimum for p = 1 of the program over all single sizes, written here anew."""
    tree, widths = problem.tree, problem.widths
    sizes, regions = int(widths.sum()), problem.tree.nodes
    cell_of = np.repeat(np.arange(widths.size), widths)
    answers = int(problem.begins.sum())
    total = regions * sizes + 2 * answers
    equal, values, row, cost = np.zeros((answers, total)), [], 0, []
    for v in range(regions):
        bucket_of = np.cumsum(problem.begins[v])[cell_of] - 1
        for bucket, cell in enumerate(np.flatnonzero(problem.begins[v])):
            equal[row, v * sizes + np.flatnonzero(bucket_of == bucket)] = 1.0
            equal[row, regions * sizes + 2 * row : regions * sizes + 2 * row + 2] = -1.0, 1.0
            values.append(problem.y[v, cell])
            cost.append(problem.weights[v])
            row += 1
    sums, rising = [], []
    for v in range(regions):
        children = range(int(tree.first_child[v]), int(tree.first_child[v + 1]))
        for size in range(sizes):
            if len(children):
                line = np.zeros(total)
                line[v * sizes + size] = 1.0
                line[[child * sizes + size for child in children]] = -1.0
                sums.append(line)
            if size:
                line = np.zeros(total)
                line[v * sizes + size - 1], line[v * sizes + size] = 1.0, -1.0
                rising.append(line)
    bounds = [(0, float(problem.groups[v])) for v in range(regions) for _ in range(sizes)]
    best = linprog(
        np.concatenate([np.zeros(regions * sizes), np.repeat(cost, 2)]),
        A_eq=np.vstack([equal, *sums]),
        b_eq=np.append(values, np.zeros(len(sums))),
        A_ub=np.array(rising) if rising else None,
        b_ub=np.zeros(len(rising)) if rising else None,
        bounds=bounds + [(0, None)] * (2 * answers),
    )
    assert best.status == 0
    return float(best.fun)


@given(tiny())
@settings(max_examples=40, deadline=None)
def test_cells_lose_nothing_of_the_program_over_single_sizes(problem: JointSums) -> None:
    exact = solve(problem, HiGHS())
    assert exact.objective == pytest.approx(least_over_single_sizes(problem), abs=1e-7)
    rough = solve(problem, AlternatingSums())
    assert rough.objective - exact.objective <= rough.gap + 1e-9


@pytest.mark.parametrize("name", TREES)
@pytest.mark.parametrize("kind", KINDS)
def test_the_gap_bounds_the_distance_to_the_optimum(kind: type[JointSums], name: str) -> None:
    problem = sums_instance(kind, name)
    rough, fine = solve(problem, AlternatingSums()), solve(problem, AlternatingSums(tolerance=1e-6))
    exact = solve(problem, HiGHS() if kind is JointSumsL1 else PIQP())
    for solution in (rough, fine):
        assert solution.violation <= 1e-9 * problem.scale
        assert exact.objective - exact.gap - 1e-9 <= solution.objective <= exact.objective + solution.gap + 1e-9
    assert fine.relative_gap <= 1e-6


@pytest.mark.parametrize(("kind", "plain"), [(JointSumsL1, JointL1), (JointSumsL2, JointL2)])
def test_single_sizes_are_the_plain_program(kind: type[JointSums], plain: Any) -> None:
    tree, y, groups, _ = noisy_tables(TREES["three levels"], 15, 3)
    weights = np.random.default_rng(1).choice([0.5, 1.0], tree.nodes)
    solution = solve(kind(tree, y, np.ones(y.shape), groups, weights), AlternatingSums(tolerance=1e-6))
    assert solution.objective == pytest.approx(
        solve(plain(tree, y, groups, weights), tolerance=1e-4).objective, rel=2e-4
    )


@pytest.mark.parametrize(("kind", "alone", "power"), [(JointSumsL1, IsotonicL1, 1), (JointSumsL2, IsotonicL2, 2)])
def test_one_region_is_isotonic_regression_of_means(kind: type[JointSums], alone: Any, power: int) -> None:
    problem = sums_instance(kind, "one region", 4, 40)
    spans = np.add.reduceat(problem.widths, problem.starts).astype(float)
    weights = problem.weights[0] * spans**power
    exact = solve(alone(problem.answers / spans, weights, lower=0, upper=int(problem.groups[0])))
    assert solve(problem, AlternatingSums(tolerance=1e-7)).objective == pytest.approx(exact.objective, rel=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_a_worse_point_is_not_certified(kind: type[JointSums]) -> None:
    problem = sums_instance(kind, "three levels")
    solver = AlternatingSums(tolerance=1e-6)
    best, prices = solve(problem, solver), solver.solve(problem).multipliers
    worse = problem.repair(best.value + 2.0 * np.sin(np.arange(problem.y.shape[1])))
    assert problem.objective(worse) > best.objective * 1.001
    verdict = judge(problem, Answer(worse, Status.OPTIMAL, prices), "liar", 1e-6)
    assert verdict.status is Status.GAP_TOO_LARGE
    assert verdict.gap >= problem.objective(worse) - best.objective - 1e-9


@given(st.integers(0, 10_000), st.sampled_from(KINDS), st.floats(0.01, 100.0))
@settings(max_examples=30, deadline=None)
def test_any_prices_give_a_bound(seed: int, kind: type[JointSums], spread: float) -> None:
    problem = sums_instance(kind, "two levels", seed % 5, cells=5)
    best = solve(problem, HiGHS() if kind is JointSumsL1 else PIQP()).objective
    rng = np.random.default_rng(seed)
    point = problem.repair(rng.normal(5.0, 5.0, problem.y.shape))
    wrong: NDArray[Any] = np.full(3, np.nan)
    for prices in (rng.normal(0.0, spread, problem.starts.size), wrong, problem.multipliers(point)):
        assert problem.gap(point, problem.admissible(prices)) >= problem.objective(point) - best - 1e-6


@given(st.integers(0, 10_000), st.sampled_from(KINDS))
@settings(max_examples=30, deadline=None)
def test_the_best_prices_of_leaves_asked_for_every_cell_never_loosen_a_bound(seed: int, kind: type[JointSums]) -> None:
    rng = np.random.default_rng(seed)
    mixed = sums_instance(kind, "three levels", seed % 7, cells=6)
    begins = mixed.begins | (mixed.tree.is_leaf & (rng.random(mixed.tree.nodes) < 0.7))[:, None]
    problem = kind(mixed.tree, mixed.y, begins, mixed.groups, mixed.weights, mixed.widths)
    point, prices = problem.repair(problem.y), rng.normal(0.0, 1.0, problem.starts.size)
    best = problem.tightened(prices)
    assert problem.gap(point, best) <= problem.gap(point, prices) * (1.0 + 1e-12) + 1e-9
    exact = solve(problem, HiGHS() if kind is JointSumsL1 else PIQP())
    assert problem.gap(point, best) >= problem.objective(point) - exact.objective - exact.gap - 1e-9


@pytest.mark.parametrize("kind", KINDS)
def test_the_best_prices_close_the_gap_where_every_leaf_was_asked_for_every_cell(kind: type[JointSums]) -> None:
    problem = sums_instance(kind, "one region", 3, cells=40)
    problem = kind(problem.tree, problem.y, np.ones(problem.y.shape), problem.groups, problem.weights, problem.widths)
    best = solve(problem, AlternatingSums(tolerance=1e-7))
    assert problem.gap(best.value, problem.tightened(np.zeros(40))) <= 1e-6 * best.objective
    assert problem.gap(best.value, np.zeros(40)) > 1e-3 * best.objective


def test_too_few_rounds_are_reported() -> None:
    with pytest.raises(SolverError, match="ITERATION_LIMIT"):
        solve(sums_instance(JointSumsL1, "three levels"), AlternatingSums(tolerance=1e-12, max_iter=3))
    with pytest.raises(UnknownSolverError, match="from sums"):
        AlternatingSums().solve(IsotonicL2([1, 2]))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([-1], [[1, 2]], [[0, 1]], [1]), "first cell"),
        (([-1], [[1, 2]], [[1, 2]], [1]), "0 or 1"),
        (([-1], [[1, 2]], [[1]], [1]), "0 or 1"),
        (([-1], [[1, 2]], [[1, 1]], [1], 1.0, [1, 0]), "at least 1"),
        (([-1], [[1, 2]], [[1, 1]], [1], 1.0, [1.0, 2.0]), "at least 1"),
        (([-1, 0], [[1], [1]], [[1], [1]], [2, 1]), "sum of its children"),
    ],
)
def test_wrong_data_are_refused(arguments: Any, message: str) -> None:
    with pytest.raises(ProblemError, match=message):
        JointSumsL1(*arguments)


# --- releases ---------------------------------------------------------------------------------------------


def test_common_cells_are_told_apart_by_somebody() -> None:
    cells = common_cells([Buckets.from_edges([0, 2, 7]), Buckets.from_edges([0, 3, 4, 7])], 7)
    assert cells.begin.tolist() == [0, 2, 3, 4]
    assert common_cells([None, Buckets.from_edges([0, 7])], 7).of_cells(7)


@pytest.mark.parametrize("shares", [None, [0, 1, 1], [1, 0, 0]])
@pytest.mark.parametrize("loss", get_args(Loss))
def test_buckets_of_every_level_make_consistent_tables(loss: Loss, shares: Any) -> None:
    hierarchy, truth = three_levels(np.random.default_rng(1))
    noisy = measured(hierarchy, truth, buckets=UNLIKE, shares=shares)
    result = estimate_groups(noisy, GroupsMethod(loss))
    assert_consistent(hierarchy, truth, result.histograms)
    assert f"joint_sums_{loss}" in [certificate.problem for certificate in result.certificates]
    assert result.level_gaps is not None
    gaps = result.level_gaps[~np.isnan(result.level_gaps)]
    assert gaps.size == (3 if shares is None else sum(shares))
    assert (gaps <= 0.1).all()


@pytest.mark.parametrize("loss", get_args(Loss))
def test_without_noise_single_sizes_at_the_leaves_come_back(loss: Loss) -> None:
    hierarchy, truth = three_levels(np.random.default_rng(1))
    solution = joint(measured(hierarchy, truth, buckets=UNLIKE, seed=None), SolverChoices(), loss=loss)
    assert all(emd(a, b) == 0 for a, b in zip(solution.histograms, truth, strict=True))


def test_counts_rise_evenly_within_buckets_and_keep_sums() -> None:
    hierarchy, truth = three_levels(np.random.default_rng(3))
    solution = joint(measured(hierarchy, truth, buckets=[Buckets.from_edges([0, 1, 5, 12])] * 3), SolverChoices())
    for region in range(hierarchy.regions):
        children = hierarchy.children(region)
        if len(children):
            np.testing.assert_allclose(solution.fitted[region], solution.fitted[children].sum(axis=0), atol=1e-9)
    steps = np.diff(solution.fitted, axis=1)
    assert solution.fitted.shape[1] == MAX_SIZE
    np.testing.assert_allclose(steps[:, 3:7], steps[:, 3:4].repeat(4, axis=1))
    assert (steps >= -1e-9).all()
