"""The base of all problems on a tree.

A problem on a tree has a value x_v for every node, minimises a sum of one convex cost a node, and requires that

    x_v = sum of the children's x at every inner node,   lower_v <= x_v <= upper_v.

Its multipliers are a vector lam (n,), one entry for the sum of each inner node and 0 at leaves; the certified gap is in
``coco_opt.kernels.tree_certificate``.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coco_opt.array_types import Flags, Floats
from coco_opt.errors import ProblemError
from coco_opt.forms import ProgramDual
from coco_opt.problem import MAX_MAGNITUDE, Problem, as_array, plain_answer
from coco_opt.problems.tree.data import Tree

if TYPE_CHECKING:
    from scipy.sparse import csc_array


@dataclass(frozen=True, eq=False, init=False)
class TreeProblem(Problem[NDArray[Any], Floats]):
    """Base of the problems on a tree: the constraints, their program rows and the certificate's frame."""

    tree: Tree
    lower: Floats
    upper: Floats

    def _set_constraints(self, tree: Tree | ArrayLike, lower: ArrayLike | None, upper: ArrayLike | None) -> None:
        object.__setattr__(self, "tree", tree if isinstance(tree, Tree) else Tree(tree))
        object.__setattr__(self, "lower", self._per_node(lower, -np.inf, "lower"))
        object.__setattr__(self, "upper", self._per_node(upper, np.inf, "upper"))
        check_magnitudes(self.lower[np.isfinite(self.lower)], "lower")
        check_magnitudes(self.upper[np.isfinite(self.upper)], "upper")

    def _per_node(self, values: ArrayLike | None, default: float, name: str) -> Floats:
        """Return one number a node, infinite numbers included; a single number holds for all."""
        array = as_array(default if values is None else values, name)
        if array.dtype.kind not in "iuf" or array.shape not in ((), self.tree.parent.shape):
            raise ProblemError(f"{name} must be one number, or one for each of the {self.tree.nodes} nodes")
        full = np.array(np.broadcast_to(array, self.tree.parent.shape), dtype=np.float64)
        if np.isnan(array).any():
            raise ProblemError(f"{name} must not hold NaN")
        full.setflags(write=False)
        return full

    def _check_feasible(self) -> None:
        from coco_opt.kernels import tree_certificate

        if (self.lower == np.inf).any() or (self.upper == -np.inf).any():
            raise ProblemError("lower must be below, and upper above, infinity")
        low, high = tree_certificate.implied_bounds(self.tree.first_child, self.lower, self.upper)
        bad = np.flatnonzero(low > high + self.feasibility_tolerance * self.scale)
        if bad.size:
            raise ProblemError(
                f"the bounds and exact answers leave no value for node {bad[-1]}: check them and those below it"
            )

    @abstractmethod
    def _reach(self) -> Floats:
        """Return the largest |d| (n,) for which the cost plus d x is bounded below without bounds."""

    @abstractmethod
    def _certify(self, x: NDArray[Any], lam: Floats) -> float:
        """Return the gap for any finite multipliers, infinite where a node's minimum is; O(n)."""

    @property
    def variables(self) -> int:
        """Return the number of nodes n."""
        return self.tree.nodes

    def accept(self, answer: Any) -> NDArray[Any]:
        """Return the answer as int64 or float64."""
        return plain_answer(answer)

    def violation(self, x: NDArray[Any]) -> float:
        """Return the largest error of a sum or excess over a bound."""
        if x.shape != self.tree.parent.shape:
            return np.inf
        from coco_opt.kernels import tree_certificate

        return float(tree_certificate.violation(self.tree.first_child, self.lower, self.upper, x))

    def repair(self, x: NDArray[Any]) -> NDArray[Any]:
        """Return the Euclidean projection of x onto the feasible set; a wrong shape comes back unchanged."""
        violation = self.violation(x)
        if np.isinf(violation) or violation <= 1e-3 * self.feasibility_tolerance * self.scale:
            return x
        from coco_opt.kernels import tree_bounded_l2

        near, _ = tree_bounded_l2.fit(
            self.tree.parent,
            self.tree.first_child,
            np.ascontiguousarray(x, dtype=np.float64),
            np.ones(x.size),
            self.lower,
            self.upper,
        )
        return near

    def gap(self, x: NDArray[Any], multipliers: Floats) -> float:
        """Return the certified gap; multipliers for which it would be infinite are first moved to valid multipliers.

        Those of a wrong shape, and entries that are no finite number, count as 0.
        """
        lam = self._finite(multipliers)
        gap = self._certify(x, lam)
        if gap < np.inf:
            return gap
        reach = self._reach()
        d_low = np.where(self.upper == np.inf, -reach, -np.inf)
        d_high = np.where(self.lower == -np.inf, reach, np.inf)
        return self._certify(x, self._nearest(d_low, d_high, lam))

    def _finite(self, multipliers: Floats) -> Floats:
        lam = plain_answer(multipliers)
        if lam.shape != self.tree.parent.shape:
            return np.zeros(self.variables)
        lam = np.ascontiguousarray(lam, dtype=np.float64)
        finite = np.isfinite(lam)
        return lam if finite.all() else np.where(finite, lam, 0.0)

    def _nearest(self, d_low: Floats, d_high: Floats, target: Floats) -> Floats:
        from coco_opt.kernels import tree_certificate

        return tree_certificate.multipliers(self.tree.parent, self.tree.first_child, d_low, d_high, target)

    def _sum_rows(self) -> csc_array:
        """Return the sparse rows ``x_v - sum of the children's x``, one for each inner node."""
        from scipy.sparse import csc_array

        inner = np.flatnonzero(~self.tree.is_leaf)
        row = np.zeros(self.variables, dtype=np.int64)
        row[inner] = np.arange(inner.size)
        child = np.arange(1, self.variables)
        rows = np.concatenate([row[inner], row[self.tree.parent[1:]]])
        data = np.concatenate([np.ones(inner.size), -np.ones(child.size)])
        return csc_array((data, (rows, np.concatenate([inner, child]))), shape=(inner.size, self.variables))

    def _residual_base(self, y: NDArray[Any], measured: Flags) -> tuple[csc_array, Floats, Floats]:
        """Return the rows of the sums, what residuals count from, and what the sums of that miss.

        Residuals count from measurements, and at unmeasured inner nodes from the sums of the leaves'.
        """
        rows, values = self._sum_rows(), np.asarray(y, dtype=np.float64)
        base = np.where(measured, values, self.tree.sums(np.where(self.tree.is_leaf, values, 0.0)))
        return rows, base, np.asarray(rows @ base, dtype=np.float64)

    def _read_dual(self, dual: ProgramDual) -> Floats:
        lam = np.zeros(self.variables)
        inner = np.flatnonzero(~self.tree.is_leaf)
        lam[inner] = -dual.rows[: inner.size]
        return lam


def check_magnitudes(values: Floats, name: str) -> None:
    """Raise ProblemError where squares of finite numbers would leave the range of doubles."""
    if float(np.abs(values).max(initial=0.0)) > MAX_MAGNITUDE:
        raise ProblemError(f"{name} must not exceed {MAX_MAGNITUDE:g} in magnitude: rescale")
