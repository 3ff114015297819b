"""Small hierarchies with noisy cumulative tables, and the solvers of joint estimation by kind."""

from __future__ import annotations

from typing import Any

import numpy as np
from coco_solvers.structured.joint import AlternatingDirections, UnitSchedules

from coco_opt import SolverChoices
from coco_opt.array_types import Floats, Ints
from coco_opt.groups.buckets import Buckets, common_cells
from coco_opt.problem import Problem
from coco_opt.problems.joint import JointFit
from coco_opt.problems.joint_sums import JointSums, JointSumsL1
from coco_opt.problems.tree import Tree
from coco_opt.solver import Solver

TREES = {
    "one region": [-1],
    "a chain": [-1, 0, 1],
    "two levels": [-1, 0, 0, 0],
    "three levels": [-1, 0, 0, 1, 1, 1, 2, 2],
    "uneven": [-1, 0, 0, 1, 1, 3, 3],
}


class JointSolvers(SolverChoices):
    """The structured solvers of both kinds of problem, everything else as usual."""

    def __init__(self, tolerance: float = 1e-4) -> None:
        super().__init__()
        self._tolerance = tolerance

    def solver(self, problem: type[Problem[Any, Any]]) -> Solver:
        """Return the solver of a kind."""
        if problem.kind in ("joint_l1", "joint_l2"):
            return AlternatingDirections(tolerance=self._tolerance)
        return UnitSchedules() if problem.kind == "cumulative_rounding" else super().solver(problem)


def noisy_tables(parent: list[int], cells: int, seed: int, epsilon: float = 0.5) -> tuple[Tree, Floats, Ints, Floats]:
    """Return a tree, noisy cumulative counts (regions, cells), the regions' groups and the true counts."""
    rng, tree = np.random.default_rng(seed), Tree(parent)
    counts = np.zeros((tree.nodes, cells + 1), np.int64)
    leaves = np.flatnonzero(tree.is_leaf)
    counts[leaves] = rng.integers(0, 12, (leaves.size, cells + 1)) * (rng.random((leaves.size, cells + 1)) < 0.3)
    for v in range(tree.nodes - 1, 0, -1):
        counts[tree.parent[v]] += counts[v]
    true = counts.cumsum(axis=1)
    shape, keep = (tree.nodes, cells), 1.0 - np.exp(-epsilon)
    noise = rng.geometric(keep, shape) - rng.geometric(keep, shape)
    return tree, (true[:, :-1] + noise).astype(np.float64), true[:, -1], true[:, :-1].astype(np.float64)


def instance(kind: type[JointFit], name: str, seed: int = 1, cells: int = 24) -> JointFit:
    """Return a noisy problem on one of the trees, with weights of three sizes."""
    tree, y, groups, _ = noisy_tables(TREES[name], cells, seed)
    weights = np.random.default_rng(seed).choice([0.2, 0.5, 1.5], tree.nodes)
    return kind(tree, y, groups, weights)


def sums_instance(kind: type[JointSums], name: str, seed: int = 1, cells: int = 12) -> JointSums:
    """Return a noisy problem from sums on one of the trees: other buckets in every region, cells of 1 to 4 sizes."""
    rng = np.random.default_rng(seed)
    tree, y, groups, _ = noisy_tables(TREES[name], cells, seed)
    begins = rng.random(y.shape) < 0.5
    begins[:, 0] = True
    widths = rng.integers(1, 5, cells)
    rows = np.add.reduceat((y * widths).ravel(), np.flatnonzero(begins))
    table = np.zeros(y.shape)
    table[begins] = rows
    return kind(tree, table, begins, groups, rng.choice([0.2, 0.5, 1.5], tree.nodes), widths)


def grown_instance(
    kind: type[JointSums],
    fans: tuple[int, ...],
    growths: tuple[float, ...],
    *,
    groups: int = 10_000,
    max_size: int = 40,
    shares: tuple[float, ...] | None = None,
    epsilon: float = 1.0,
    spread: float = 1.0,
    empty: float = 0.0,
    seed: int = 1,
) -> JointSums:
    """Return buckets by growth, unlike by level, of a tree of some fans with about ``groups`` groups a leaf.

    Sizes have frequencies of (size + 1)^-spread, ``empty`` is the part of leaves without groups, and ``shares`` are
    those of epsilon by level (0: not measured).
    """
    rng = np.random.default_rng(seed)
    parent, level = [-1], [0]
    for depth, fan in enumerate(fans, 1):
        above = [v for v, one in enumerate(level) if one == depth - 1]
        parent += [v for v in above for _ in range(fan)]
        level += [depth] * (len(above) * fan)
    tree, levels = Tree(parent), len(fans) + 1
    counts = np.zeros((tree.nodes, max_size + 1), np.int64)
    probabilities = 1.0 / np.arange(1, max_size + 2) ** spread
    for leaf in np.flatnonzero(tree.is_leaf):
        counts[leaf] = rng.multinomial(
            int(groups * rng.uniform(0.5, 2.0)) * (rng.random() >= empty), probabilities / probabilities.sum()
        )
    for v in range(tree.nodes - 1, 0, -1):
        counts[tree.parent[v]] += counts[v]
    parts = np.ones(levels) if shares is None else np.array(shares)
    buckets = [Buckets.by_growth(max_size, growth) for growth in growths]
    cells = common_cells([one for one, part in zip(buckets, parts, strict=True) if part], max_size)
    y, begins, weights = np.zeros((tree.nodes, cells.count)), np.zeros((tree.nodes, cells.count), bool), np.zeros(0)
    begins[:, 0] = True
    for v, depth in enumerate(level):
        own = epsilon * parts[depth] / parts.sum()
        weights = np.append(weights, own if kind is JointSumsL1 else own * own / 2.0)
        if own:
            at = np.searchsorted(cells.begin, buckets[depth].begin)
            keep = 1.0 - np.exp(-own)
            noise = rng.geometric(keep, at.size) - rng.geometric(keep, at.size)
            y[v, at], begins[v, at] = buckets[depth].sums(counts[v].cumsum()[:-1]) + noise, True
    return kind(tree, y, begins, counts.sum(axis=1), weights, cells.end - cells.begin)


def fractional_family(seed: int, children: int, cells: int) -> tuple[Floats, Ints, Ints]:
    """Return fractional rows on a binary grid, the half-up rounding of their sum, and the groups."""
    rng = np.random.default_rng(seed)
    groups = rng.integers(0, 9, children)
    rows = np.sort(rng.random((children, cells)), axis=1) * groups[:, None]
    step = 2.0 ** rng.integers(0, 6)
    rows = np.clip(np.maximum.accumulate(np.rint(rows * step) / step, axis=1), 0.0, groups[:, None])
    return rows, np.floor(rows.sum(axis=0) + 0.5).astype(np.int64), groups
