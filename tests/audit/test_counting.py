"""Raking, the paper's databases, GDPC, RDPC and ADPC, and the direct estimate."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coco_opt.audit import MECHANISMS, UniformTree, children_of, direct_estimate, mechanism, population, rake
from coco_opt.audit.counting import SamplerName, budget_loss, noise
from coco_opt.errors import ProblemError
from coco_opt.histograms import Hierarchy


@given(st.integers(1, 300), st.integers(1, 6), st.integers(0, 10**6))
def test_root_is_exact(root: int, levels: int, extra: int) -> None:
    below = (root + 1) ** levels - 1
    people = min(root**levels + extra, below)
    assert children_of(people, 1, levels) == root
    assert children_of(100 * people, 100, levels) == root


@pytest.mark.parametrize(("children", "levels"), [(1, 3), (2, 3), (5, 2), (7, 1)])
def test_uniform_tree_is_a_hierarchy(children: int, levels: int) -> None:
    tree = UniformTree.of(children, levels)
    hierarchy = Hierarchy.from_parents(tree.parent, [f"r{k}" for k in range(tree.parent.size)])
    assert np.array_equal(hierarchy.parent, tree.parent)
    assert np.array_equal(hierarchy.level_start, tree.level_start)
    counts = np.arange(tree.cells, dtype=np.int64)
    assert np.array_equal(tree.counts(counts), _sums(hierarchy, counts))


def _sums(hierarchy: Hierarchy, leaves: np.ndarray) -> np.ndarray:
    values = np.zeros(hierarchy.regions, np.int64)
    values[hierarchy.leaves.start :] = leaves
    for region in range(hierarchy.regions - 1, 0, -1):
        values[hierarchy.parent[region]] += values[region]
    return values


def test_raking_by_hand() -> None:
    tree = UniformTree.of(2, 2)
    raked = rake(np.array([12.0, 1, 3, 1, 2, 5, -1]), tree.parent, tree.level_start)
    assert raked.tolist() == [12, 3, 9, 1, 2, 11.25, -2.25]


def test_raking_shares_equally_where_the_children_sum_to_nothing() -> None:
    tree = UniformTree.of(2, 1)
    assert rake(np.array([10.0, 4, -4]), tree.parent, tree.level_start).tolist() == [10, 5, 5]
    assert rake(np.zeros(3), tree.parent, tree.level_start).tolist() == [0, 0, 0]


@given(st.lists(st.integers(-20, 40), min_size=13 * 2, max_size=13 * 2))
def test_raked_children_sum_to_their_parents_in_every_cell(values: list[int]) -> None:
    tree = UniformTree.of(3, 2)
    noisy = np.array(values, np.float64).reshape(13, 2)
    raked = rake(noisy, tree.parent, tree.level_start)
    assert np.array_equal(raked[0], noisy[0])
    for parent in range(4):
        children = np.flatnonzero(tree.parent == parent)
        scale = 1e-9 * (1 + np.abs(raked[children]).max())
        assert raked[children].sum(axis=0) == pytest.approx(raked[parent], abs=scale)


@pytest.mark.parametrize(("sampler", "ratio"), [("ratio", 0.6), ("exact", math.exp(-0.4))])
def test_samplers_have_their_law(sampler: SamplerName, ratio: float) -> None:
    drawn = noise(0.4, 200_000, sampler, np.random.default_rng(1))
    k = np.arange(-8, 9)
    expected = 200_000 * (1 - ratio) / (1 + ratio) * ratio ** np.abs(k)
    found = np.array([np.count_nonzero(drawn == value) for value in k])
    assert ((found - expected) ** 2 / expected).sum() < 45  # chi-square, 17 cells: 1 in 3000
    assert budget_loss(0.4, sampler) == pytest.approx(-math.log(ratio))


def test_population_places_everybody() -> None:
    tree = UniformTree.of(4, 2)
    leaves = population(1_000, tree, np.random.default_rng(2))
    assert leaves.shape == (16,)
    assert leaves.sum() == 1_000


@pytest.mark.parametrize("sampler", ["ratio", "exact"])
def test_mechanisms_spend_their_budget_as_stated(sampler: SamplerName) -> None:
    tree = UniformTree.of(10, 3)
    leaves = np.full(1_000, 1_000, np.int64)
    epsilon = 0.2
    deviations = {}
    for name in MECHANISMS:
        errors = mechanism(name, tree, leaves, epsilon, sampler=sampler)(np.random.default_rng(3)) - leaves
        deviations[name] = float(errors.std())
        assert abs(errors.mean()) < 4 * deviations[name] / math.sqrt(1_000) + 1
    assert deviations["GDPC"] == pytest.approx(math.sqrt(2) / 0.2, rel=0.1)
    # Four runs at a quarter: four times the noise, halved by the mean. RDPC's cells have a quarter as well.
    assert deviations["ADPC"] == pytest.approx(2 * math.sqrt(2) / 0.2, rel=0.1)
    assert deviations["RDPC"] == pytest.approx(4 * math.sqrt(2) / 0.2, rel=0.1)


@pytest.mark.parametrize(
    "mistake",
    [
        lambda rng: children_of(5, 100, 3),
        lambda rng: rake(np.zeros(4), UniformTree.of(2, 1).parent, UniformTree.of(2, 1).level_start),
        lambda rng: noise(0.0, 3, "exact", rng),
        lambda rng: noise(1.0, 3, "ratio", rng),
        lambda rng: mechanism("PDPC", UniformTree.of(2, 1), np.zeros(2, np.int64), 1.0),
        lambda rng: direct_estimate(np.zeros(0), np.ones(3)),
    ],
)
def test_mistakes_are_refused(mistake: Callable[[np.random.Generator], object]) -> None:
    with pytest.raises(ProblemError):
        mistake(np.random.default_rng(1))


def test_direct_estimate_by_hand() -> None:
    found = direct_estimate(np.array([0, 0, 0, 1]), np.array([0, 1, 1.5, 2]))
    assert found.k.tolist() == [0, 1, 2]
    assert found.equal[:2] == pytest.approx([math.log(3), math.log(1 / 2)])
    assert found.at_least[:2] == pytest.approx([0.0, math.log(1 / 3)])
    assert np.isnan(found.equal[2])
    assert np.isnan(found.at_least[2])
    assert found.maximum == pytest.approx((math.log(3), math.log(3)))


def test_direct_estimate_without_common_events_is_nan() -> None:
    assert np.isnan(direct_estimate(np.zeros(3), np.ones(3)).maximum[0])
