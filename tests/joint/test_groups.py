"""Joint estimation of a hierarchy from sealed measurements: consistent, exact without noise, near its reference."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coco_opt import CountOfCounts, Hierarchy, SeededNoise, emd
from coco_opt.errors import ProblemError
from coco_opt.groups.consistency import sum_of_leaves
from coco_opt.groups.estimators import Loss
from coco_opt.groups.joint import joint, round_tables
from coco_opt.privacy import Measurements, Query, measure_hierarchy
from tests.groups.test_groups import NoNoise
from tests.joint.helpers import TREES, JointSolvers, noisy_tables

MAX_SIZE = 25


def small(seed: int) -> tuple[Hierarchy, list[CountOfCounts]]:
    rng = np.random.default_rng(seed)
    hierarchy = Hierarchy.from_paths([("n", f"s{i}", f"c{j}") for i in range(3) for j in range(1 + i)])
    cells = MAX_SIZE + 1
    leaves = [
        CountOfCounts.from_dense(rng.integers(0, 40, cells) * (rng.random(cells) < 0.4)) for _ in hierarchy.leaves
    ]
    return hierarchy, sum_of_leaves(hierarchy, leaves)


def sealed(
    hierarchy: Hierarchy,
    truth: Sequence[CountOfCounts],
    *,
    max_size: int = MAX_SIZE,
    seed: int | None = 3,
    query: Query = "cumulative",
    shares: Sequence[Fraction] | None = None,
) -> Measurements:
    source: Any = NoNoise() if seed is None else SeededNoise(seed)
    return measure_hierarchy(
        truth,
        hierarchy,
        np.array([h.groups for h in truth]),
        queries=[query] * hierarchy.levels,
        losses=["l1"] * hierarchy.levels,
        epsilons=list(shares or [Fraction(1, hierarchy.levels)] * hierarchy.levels),
        max_size=max_size,
        neighbours="add_remove",
        source=source,
    )


def assert_consistent(hierarchy: Hierarchy, truth: Sequence[CountOfCounts], released: Sequence[CountOfCounts]) -> None:
    for region in range(hierarchy.regions):
        assert released[region].groups == truth[region].groups
        assert released[region].max_size <= MAX_SIZE
        children = hierarchy.children(region)
        if len(children):
            assert released[region].equals(CountOfCounts.total(released[child] for child in children))


@settings(max_examples=25)
@given(
    st.integers(0, 10_000),
    st.sampled_from(["l1", "l2"]),
    st.sampled_from([(1, 1, 1), (0, 1, 2), (1, 0, 1), (0, 0, 1), (1, 1, 8), (1, 0, 0)]),
)
def test_releases_are_whole_and_consistent(seed: int, loss: Loss, parts: tuple[int, ...]) -> None:
    hierarchy, truth = small(seed)
    shares = [Fraction(part, sum(parts)) for part in parts]
    estimate = joint(sealed(hierarchy, truth, seed=seed, shares=shares), JointSolvers(), loss=loss)
    assert_consistent(hierarchy, truth, estimate.histograms)


@pytest.mark.parametrize("loss", ["l1", "l2"])
def test_without_noise_the_truth_comes_back(loss: Loss) -> None:
    hierarchy, truth = small(1)
    estimate = joint(sealed(hierarchy, truth, seed=None), JointSolvers(), loss=loss)
    assert all(a.equals(b) for a, b in zip(estimate.histograms, truth, strict=True))


def test_certificates_of_both_kinds_are_kept() -> None:
    hierarchy, truth = small(2)
    solvers = JointSolvers()
    estimate = joint(sealed(hierarchy, truth), solvers)
    assert tuple(c.problem for c in solvers.certificates) == ("cumulative_rounding", "joint_l1")
    assert all(c.violation <= 1e-6 for c in solvers.certificates)
    assert 0.0 <= estimate.unproved < np.inf


@pytest.mark.parametrize("name", TREES)
def test_rounding_keeps_every_sum_and_the_root_is_half_up(name: str) -> None:
    tree, y, groups, _ = noisy_tables(TREES[name], 40, 4)
    rows = np.clip(np.maximum.accumulate(y, axis=1) + 0.25, 0.0, groups[:, None])
    whole, _ = round_tables(tree, rows, groups, JointSolvers())
    leaves = np.flatnonzero(tree.is_leaf)
    np.testing.assert_array_equal(whole[0], np.floor(rows[leaves].sum(axis=0) + 0.5).astype(np.int64))
    assert (np.diff(whole, axis=1) >= 0).all()
    assert (whole >= 0).all()
    assert (whole <= groups[:, None]).all()
    for v in range(tree.nodes):
        children = slice(int(tree.first_child[v]), int(tree.first_child[v + 1]))
        if children.start < children.stop:
            np.testing.assert_array_equal(whole[v], whole[children].sum(axis=0))


def test_other_queries_are_refused() -> None:
    hierarchy, truth = small(3)
    with pytest.raises(ProblemError, match="cumulative"):
        joint(sealed(hierarchy, truth, query="rank"), JointSolvers())
    with pytest.raises(ProblemError, match="loss"):
        joint(sealed(hierarchy, truth), JointSolvers(), loss="l3")  # type: ignore[arg-type]


def test_taxi_is_near_its_reference(shared_data: Path) -> None:
    from coco_opt.tables import read_sizes

    file = shared_data / "kuo2018" / "taxi_neighbourhoods.csv"
    if not file.is_file():
        pytest.skip("the Taxi file is not on this machine")
    data, cells = read_sizes(file), 5_000
    truth = [histogram.clamp(cells) for histogram in data.histograms()]
    estimate = joint(sealed(data.hierarchy, truth, max_size=cells, seed=2018), JointSolvers(), loss="l2")
    errors = np.array([emd(a, b) for a, b in zip(estimate.histograms, truth, strict=True)])
    for level, reference in enumerate((6_730, 4_140, 2_390)):
        assert errors[data.hierarchy.level == level].mean() == pytest.approx(reference, rel=0.12)
