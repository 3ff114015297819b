"""The convex program cell by cell: what every release must keep, shortest moves, and both readings end to end."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coco_opt import CountOfCounts, GroupsMethod, Hierarchy, SolverChoices, emd
from coco_opt.groups.estimating.convex import convex, reconciled
from coco_opt.groups.measuring.sizes import read_sizes
from coco_opt.groups.noisy_measurements import Loss
from coco_opt.histograms import sum_of_leaves
from tests.groups.helpers import MAX_SIZE, assert_consistent, measured, three_levels
from tests.groups.test_groups import release

READINGS = ("sizes", "cumulative")
LOSSES: tuple[Loss, ...] = ("l1", "l2")


def any_hierarchy(seed: int) -> tuple[Hierarchy, list[CountOfCounts]]:
    """Return a hierarchy of two to four levels with only children, regions without groups and single sizes."""
    rng = np.random.default_rng(seed)
    paths: list[tuple[str, ...]] = [("n",)]
    for _ in range(int(rng.integers(1, 4))):
        paths = [(*path, f"r{k}") for path in paths for k in range(int(rng.integers(1, 4)))]
    hierarchy = Hierarchy.from_paths(paths)
    scale = rng.choice([0, 1, 50], len(hierarchy.leaves))
    leaves = [
        CountOfCounts.from_dense(rng.integers(0, 1 + most, MAX_SIZE + 1) * (rng.random(MAX_SIZE + 1) < 0.5))
        for most in scale
    ]
    return hierarchy, sum_of_leaves(hierarchy, leaves)


@settings(max_examples=80)
@given(st.integers(0, 10_000), st.sampled_from(LOSSES), st.sampled_from(READINGS), st.integers(0, 15))
def test_releases_are_whole_and_consistent(seed: int, loss: Loss, query: str, levels: int) -> None:
    hierarchy, truth = any_hierarchy(seed)
    chosen = [level for level in range(hierarchy.levels) if levels >> level & 1] or [hierarchy.levels - 1]
    shares = [Fraction(level in chosen, len(chosen)) for level in range(hierarchy.levels)]
    noisy = measured(hierarchy, truth, query, seed=seed, shares=shares)
    released = convex(noisy, GroupsMethod(loss, consistency="convex"), SolverChoices())
    assert_consistent(hierarchy, truth, released)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("query", READINGS)
def test_without_noise_the_truth_comes_back(query: str, loss: Loss) -> None:
    for seed in range(12):
        hierarchy, truth = any_hierarchy(seed)
        method = GroupsMethod(losses=(loss,) * hierarchy.levels, consistency="convex")
        released = release(hierarchy, truth, method, [query] * hierarchy.levels, seed=None)
        assert all(a.equals(b) for a, b in zip(released, truth, strict=True))


@pytest.mark.parametrize(
    ("query", "loss", "repairs"),
    [
        ("sizes", "l1", {"simplex_projection", "controlled_rounding"}),
        ("cumulative", "l1", {"isotonic_l1"}),
        ("cumulative", "l2", {"isotonic_l2"}),
    ],
)
def test_the_reading_follows_the_query_and_every_step_is_certified(query: str, loss: Loss, repairs: set[str]) -> None:
    hierarchy, truth = three_levels(np.random.default_rng(4))
    solvers = SolverChoices()
    convex(measured(hierarchy, truth, query), GroupsMethod(loss, consistency="convex"), solvers)
    assert {certificate.problem for certificate in solvers.certificates} == {f"integer_tree_{loss}", *repairs}
    assert all(certificate.relative_gap <= 1e-9 for certificate in solvers.certificates)


def test_what_was_not_measured_follows_the_parent() -> None:
    hierarchy = Hierarchy.from_paths([("n", "a"), ("n", "b")])
    truth = sum_of_leaves(hierarchy, [CountOfCounts.from_dense([0, 20]), CountOfCounts.from_dense([0, 10, 10])])
    method = GroupsMethod(losses=("l1", "l1"), consistency="convex")
    released = release(hierarchy, truth, method, ["cumulative"] * 2, seed=None, shares=[Fraction(1), Fraction(0)])
    assert all(released[leaf].equals(CountOfCounts.from_dense([0, 15, 5])) for leaf in hierarchy.leaves)
    assert_consistent(hierarchy, truth, released)


@given(st.integers(0, 10_000))
def test_moves_are_the_shortest(seed: int) -> None:
    rng = np.random.default_rng(seed)
    children = rng.integers(0, 5, (int(rng.integers(1, 5)), int(rng.integers(1, 7))))
    total = int(children.sum())
    parent = rng.multinomial(total, rng.dirichlet(np.ones(children.shape[1])))
    result = reconciled(parent, children)
    np.testing.assert_array_equal(result.sum(axis=0), parent)
    np.testing.assert_array_equal(result.sum(axis=1), children.sum(axis=1))
    assert result.min() >= 0
    # No table with these sums can be nearer: its distance is at least that of the sums.
    off = result - children
    assert np.abs(off).sum() == np.abs(parent - children.sum(axis=0)).sum()
    assert np.abs(off.cumsum(axis=1)).sum() == np.abs((parent - children.sum(axis=0)).cumsum()).sum()


def test_large_counts_are_reconciled_exactly() -> None:
    rng = np.random.default_rng(3)
    children = rng.integers(10**11, 10**12, (6, 40))
    parent = rng.multinomial(int(children.sum()), np.ones(40) / 40)
    result = reconciled(parent, children)
    np.testing.assert_array_equal(result.sum(axis=0), parent)
    np.testing.assert_array_equal(result.sum(axis=1), children.sum(axis=1))
    assert result.min() >= 0


def test_taxi_is_near_its_measured_errors(shared_data: Path) -> None:
    file = shared_data / "kuo2018" / "taxi_neighbourhoods.csv"
    if not file.is_file():
        pytest.skip("the Taxi file is not on this machine")
    data, cells = read_sizes(file), 5_000
    truth = [histogram.clamp(cells) for histogram in data.histograms()]
    noisy = measured(data.hierarchy, truth, max_size=cells, seed=2018)
    expected: dict[Loss, tuple[int, ...]] = {"l1": (9_500, 5_700, 2_700), "l2": (8_100, 4_900, 2_700)}
    for loss, references in expected.items():
        released = convex(noisy, GroupsMethod(loss, consistency="convex"), SolverChoices())
        errors = np.array([emd(a, b) for a, b in zip(released, truth, strict=True)])
        for level, reference in enumerate(references):
            assert errors[data.hierarchy.level == level].mean() == pytest.approx(reference, rel=0.12)
