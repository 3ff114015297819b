"""Joint estimation of a hierarchy from sealed measurements, and the rounding of fractional tables by search."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from coco_solvers.oracles.brute_force import BruteForce
from coco_solvers.structured.expected_distance import CellByCell
from coco_solvers.structured.joint import AlternatingDirections
from hypothesis import given, settings
from hypothesis import strategies as st

from coco_opt import CountOfCounts, ExpectedDistance, Hierarchy, Measurement, SolverChoices, Tree, emd, solve
from coco_opt.errors import ProblemError, SolverError
from coco_opt.groups import Buckets, GroupsMeasurements, Query
from coco_opt.groups.estimating.joint import joint
from coco_opt.groups.noisy_measurements import Loss
from coco_opt.histograms import sum_of_leaves
from tests.groups.helpers import assert_consistent, measured
from tests.joint.helpers import TREES, JointSolvers, noisy_tables, rounding

MAX_SIZE = 25


def small(seed: int) -> tuple[Hierarchy, list[CountOfCounts]]:
    rng = np.random.default_rng(seed)
    hierarchy = Hierarchy.from_paths([("n", f"s{i}", f"c{j}") for i in range(3) for j in range(1 + i)])
    cells = MAX_SIZE + 1
    leaves = [
        CountOfCounts.from_dense(rng.integers(0, 40, cells) * (rng.random(cells) < 0.4)) for _ in hierarchy.leaves
    ]
    return hierarchy, sum_of_leaves(hierarchy, leaves)


def noisy(
    hierarchy: Hierarchy,
    truth: Sequence[CountOfCounts],
    query: Query = "cumulative",
    *,
    seed: int | None = 3,
    shares: Sequence[Fraction] | None = None,
) -> Measurement:
    return measured(hierarchy, truth, query, max_size=MAX_SIZE, seed=seed, shares=shares)


@settings(max_examples=25)
@given(
    st.integers(0, 10_000),
    st.sampled_from(["l1", "l2"]),
    st.sampled_from([(1, 1, 1), (0, 1, 2), (1, 0, 1), (0, 0, 1), (1, 1, 8), (1, 0, 0)]),
)
def test_releases_are_whole_and_consistent(seed: int, loss: Loss, parts: tuple[int, ...]) -> None:
    hierarchy, truth = small(seed)
    shares = [Fraction(part, sum(parts)) for part in parts]
    estimate = joint(noisy(hierarchy, truth, seed=seed, shares=shares), JointSolvers(), loss=loss)
    assert_consistent(hierarchy, truth, estimate.histograms, MAX_SIZE)


@pytest.mark.parametrize("loss", ["l1", "l2"])
def test_without_noise_the_truth_comes_back(loss: Loss) -> None:
    hierarchy, truth = small(1)
    estimate = joint(noisy(hierarchy, truth, seed=None), JointSolvers(), loss=loss)
    assert all(a.equals(b) for a, b in zip(estimate.histograms, truth, strict=True))


@pytest.mark.parametrize("loss", ["l1", "l2"])
def test_every_level_has_the_gap_relative_to_its_own_loss(loss: Loss) -> None:
    hierarchy, truth = small(3)
    solvers = JointSolvers()
    measurement = noisy(hierarchy, truth, shares=[1, 0, 2])
    estimate = joint(measurement, solvers, loss=loss)
    (gap,) = (certificate.gap for certificate in solvers.certificates if certificate.problem == f"joint_{loss}")
    answers = GroupsMeasurements(measurement)
    weights, power = answers.weights(loss), {"l1": 1, "l2": 2}[loss]
    for level in (0, 2):
        rows = hierarchy.level == level
        own = (weights[rows, None] * np.abs(estimate.fitted[rows] - answers.table(level)) ** power).sum()
        assert estimate.level_gaps[level] == pytest.approx(gap / max(own, 1.0))
    assert np.isnan(estimate.level_gaps[1])


def test_other_queries_are_refused() -> None:
    hierarchy, truth = small(3)
    with pytest.raises(ProblemError, match="cumulative"):
        joint(noisy(hierarchy, truth, query="ranks"), JointSolvers())
    with pytest.raises(ProblemError, match="loss"):
        joint(noisy(hierarchy, truth), JointSolvers(), loss="l3")  # type: ignore[arg-type]


def star(leaves: int, cells: int, seed: int) -> tuple[Hierarchy, list[CountOfCounts]]:
    """Return a root and its leaves, each with a few groups of some of the sizes."""
    rng = np.random.default_rng(seed)
    hierarchy = Hierarchy.from_paths([("n", f"c{leaf}") for leaf in range(leaves)])
    shape = cells + 1
    each = [CountOfCounts.from_dense(rng.integers(0, 40, shape) * (rng.random(shape) < 0.6)) for _ in range(leaves)]
    return hierarchy, sum_of_leaves(hierarchy, each)


def test_squares_weigh_levels_by_the_exact_variance() -> None:
    """Unequal budgets: 1 / (2 s^2) would give the root 0.46, for noise of scale 1/5 is nearly always 0."""
    errors = []
    for seed in range(40):
        hierarchy, truth = star(30, 12, seed)
        shares = [Fraction(1, 2), Fraction(5)]
        fitted = joint(measured(hierarchy, truth, seed=seed, shares=shares), SolverChoices(), loss="l2").fitted
        errors.append(np.mean((fitted[0] - truth[0].cumulative(12)[:-1]) ** 2))
    assert np.mean(errors) <= 0.35


@pytest.mark.parametrize("buckets", [False, True])
def test_a_fit_that_stays_unproved_is_released_with_its_gap(monkeypatch: pytest.MonkeyPatch, buckets: bool) -> None:
    hierarchy, truth = small(4)
    level_buckets = [Buckets.by_growth(MAX_SIZE, 0.5)] * 3 if buckets else [None] * 3
    measurement = measured(hierarchy, truth, max_size=MAX_SIZE, buckets=level_buckets, seed=3)
    kind, solver = "joint_l1", AlternatingDirections(1e-9, max_iter=1)
    monkeypatch.setattr(SolverChoices, "_alternatives", lambda self, problem, tried: iter(()))
    strict, lenient = (SolverChoices({kind: solver}, fallback=fallback) for fallback in (False, True))
    with pytest.raises(SolverError, match="ITERATION_LIMIT"):
        joint(measurement, strict)
    estimate = joint(measurement, lenient)
    assert_consistent(hierarchy, truth, estimate.histograms, MAX_SIZE)
    (row,) = (certificate for certificate in lenient.certificates if certificate.problem == kind)
    assert estimate.uncertified_gap == row.relative_gap > 1e-9
    assert np.isfinite(estimate.level_gaps).all()


def test_taxi_is_near_its_reference(shared_data: Path) -> None:
    from coco_opt.groups.measuring.sizes import read_sizes

    file = shared_data / "kuo2018" / "taxi_neighbourhoods.csv"
    if not file.is_file():
        pytest.skip("the Taxi file is not on this machine")
    data, cells = read_sizes(file), 5_000
    truth = [histogram.clamp(cells) for histogram in data.histograms()]
    estimate = joint(measured(data.hierarchy, truth, max_size=cells, seed=2018), JointSolvers(), loss="l2")
    errors = np.array([emd(a, b) for a, b in zip(estimate.histograms, truth, strict=True)])
    for level, reference in enumerate((6_730, 4_140, 2_390)):
        assert errors[data.hierarchy.level == level].mean() == pytest.approx(reference, rel=0.12)


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
