"""Small hierarchies with noisy cumulative tables, and the solvers of joint estimation by kind."""

from __future__ import annotations

from typing import Any

import numpy as np
from coco_solvers.structured.joint import AlternatingDirections

from coco_opt import ExpectedDistance, Problem, SolverChoices, Tree
from coco_opt.array_types import Floats, Ints
from coco_opt.problems.joint import JointFit
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
        return super().solver(problem)


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


def instance(kind: type[JointFit], name: str, seed: int = 1, cells: int = 24, *, unlike: bool = False) -> JointFit:
    """Return a noisy problem on one of the trees, with weights of three sizes, for ``unlike`` cells too."""
    tree, y, groups, _ = noisy_tables(TREES[name], cells, seed)
    rng = np.random.default_rng(seed)
    weights = rng.choice([0.2, 0.5, 1.5], tree.nodes)
    return kind(tree, y, groups, weights, rng.choice([1, 3, 10], cells) if unlike else 1.0)


def rounding(family: tuple[int, int, int]) -> ExpectedDistance:
    """Return the rounding of a family of fractional rows."""
    rows, groups = fractional_family(*family)
    return ExpectedDistance.rounding(Tree([-1] + [0] * (len(rows) - 1)), rows, groups)


def fractional_family(seed: int, children: int, cells: int) -> tuple[Floats, Ints]:
    """Return a region's and its children's fractional rows, on a binary grid, and their groups."""
    rng = np.random.default_rng(seed)
    groups = rng.integers(0, 9, children)
    rows = np.sort(rng.random((children, cells)), axis=1) * groups[:, None]
    step = 2.0 ** rng.integers(0, 6)
    rows = np.clip(np.maximum.accumulate(np.rint(rows * step) / step, axis=1), 0.0, groups[:, None])
    return np.vstack([rows.sum(axis=0), rows]), np.append(groups.sum(), groups)
