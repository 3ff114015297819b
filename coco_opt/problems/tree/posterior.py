"""How sure tree least squares is: exact posterior variances of nodes and their sums, without inverting anything.

For independent noisy measurements of known variances and exact sums, the least squares estimate is the best linear
unbiased one (Gauss-Markov; Hay et al. 2010, Theorem 4), and the covariances of its errors do not depend on the
measurements.
They follow from the two passes in ``coco_opt.kernels.tree_passes``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from coco_opt.array_types import Floats, Ints
from coco_opt.errors import ProblemError
from coco_opt.problem import as_array
from coco_opt.problems.tree.data import Tree
from coco_opt.problems.tree.least_squares import TreeLeastSquares


@dataclass(frozen=True, eq=False, slots=True)
class TreePosterior:
    """Estimates of all nodes (n,) with the variances of their errors; build it with ``of`` or ``from_variances``.

    A variance is infinite where the measurements do not determine a node.
    """

    tree: Tree
    estimate: Floats
    variance: Floats
    _below: Floats
    _children: Floats

    @classmethod
    def of(cls, problem: TreeLeastSquares) -> TreePosterior:
        """Return the posterior of a problem without bounds (ProblemError otherwise); O(n)."""
        if problem.bounded:
            raise ProblemError("with bounds the estimate is not linear and has no closed covariance; drop the bounds")
        return cls._build(problem.tree, problem.y, problem.variance)

    @classmethod
    def from_variances(cls, tree: Tree, variance: ArrayLike) -> TreePosterior:
        """Return the posterior of measurements not yet taken (estimates 0), for planning; O(n)."""
        return cls.of(TreeLeastSquares(tree, np.zeros(tree.nodes), variance))

    @classmethod
    def _build(cls, tree: Tree, y: Floats, s2: Floats) -> TreePosterior:
        from coco_opt.kernels import tree_passes

        estimate, below, children = tree_passes.upward(tree.first_child, y, s2)
        tree_passes.downward(tree.first_child, estimate, below, children, equal_parts=True)
        variance = tree_passes.variances(tree.first_child, below, children)
        return cls(tree, estimate, variance, below, children)

    def combination(self, coefficients: ArrayLike) -> tuple[float, float]:
        """Return the estimate of sum_v coefficients_v x_v, coefficients (n,), and the variance of its error; O(n)."""
        from coco_opt.kernels import tree_passes

        weights = as_array(coefficients, "coefficients", np.float64)
        if weights.shape != self.estimate.shape:
            raise ProblemError(f"a combination needs one coefficient for each of the {self.tree.nodes} nodes")
        variance = tree_passes.combination(self.tree.first_child, self._below, self._children, weights)
        return float(weights @ self.estimate), float(variance)

    def ranges(self, begin: ArrayLike, end: ArrayLike) -> tuple[Floats, Floats]:
        """Return estimates and variances (k,) of sums over nodes begin:end, each within one level.

        In a complete tree such a range of leaves is a range query. O(fan-out x depth) a range after O(n); O(n) for one
        that lies below a leaf's level, in a tree with leaves at several.
        """
        from coco_opt.kernels import tree_passes

        begins, ends = self._positions(begin), self._positions(end)
        if begins.shape != ends.shape or (begins > ends).any() or (ends > self.tree.nodes).any():
            raise ProblemError("ranges need begin <= end, both between 0 and the number of nodes")
        filled = begins < ends
        level = self.tree.depth
        if (level[begins[filled]] != level[ends[filled] - 1]).any():
            raise ProblemError("a range must lie within one level of the tree")
        ragged = np.flatnonzero(filled)[level[begins[filled]] > level[np.argmax(self.tree.is_leaf)]]
        last = ends.copy()
        last[ragged] = begins[ragged]
        variance = tree_passes.leaf_ranges(
            self.tree.parent, self.tree.first_child, self._below, self._children, begins, last
        )
        for position in ragged:
            coefficients = np.zeros(self.tree.nodes)
            coefficients[begins[position] : ends[position]] = 1.0
            variance[position] = self.combination(coefficients)[1]
        running = np.concatenate([[0.0], np.cumsum(self.estimate)])
        return running[ends] - running[begins], variance

    @staticmethod
    def _positions(values: ArrayLike) -> Ints:
        array = np.atleast_1d(as_array(values, "positions"))
        if array.ndim != 1 or array.dtype.kind not in "iu" or (array < 0).any():
            raise ProblemError("positions must be integers, 0 or more")
        return array.astype(np.int64)
