"""Tree least squares: consistent values of all nodes nearest to noisy measurements (Hay et al. 2010, section 4).

::

    minimise  sum_v (x_v - y_v)^2 / variance_v   subject to   x_v = sum of the children's x,  lower <= x <= upper

over the nodes of any tree. A variance of 0 makes a measurement exact (an invariant, a public total), an infinite one
means that the node was not measured. Without bounds and with equal variances this is H-bar of the paper (Theorem 3);
with lower = 0 it is the nonnegative estimate the paper leaves for future work.

Multipliers are a vector lam (n,), one entry for the sum of each inner node and 0 at leaves; the certified gap is in
``coco_opt.kernels.tree_certificate``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coco_opt.array_types import Flags, Floats
from coco_opt.errors import ProblemError
from coco_opt.forms import Formulation, LinearProgram, ProgramDual, QuadraticProgram
from coco_opt.problem import MAX_MAGNITUDE, Problem, as_array, at_most_one, plain_answer
from coco_opt.problems.tree.data import Tree

_ROUNDING = 1e-12  # a relative gap above it may be due to rounding of the multipliers


@dataclass(frozen=True, eq=False, init=False)
class TreeLeastSquares(Problem[NDArray[Any], Floats]):
    """Weighted least squares on a tree: ``TreeLeastSquares(tree, y, variance, lower=, upper=)``.

    Minimise sum_v (x_v - y_v)^2 / variance_v, where every inner node is the sum of its children.

    Parameters
    ----------
    tree : Tree or array_like, shape (n,)
        The tree, or its parent array.
    y : array_like, shape (n,)
        Noisy measurements of the nodes; ignored where the variance is infinite.
    variance : array_like, shape (n,), or float, default 1
        The variance of each measurement: infinite for a node that was not measured, 0 for an exact one.
    lower, upper : array_like, shape (n,), or float, optional
        Bounds on the nodes; none if they are left out.

    Raises
    ------
    ProblemError
        The data are not finite, a variance is negative, or nothing satisfies the constraints.

    Notes
    -----
    Values are float64 (n,). If unmeasured nodes leave a choice, the fast solver takes equal parts without bounds, and
    with bounds fills the first sibling first. Source: Hay et al. 2010, section 4.

    Examples
    --------
    >>> from coco_opt import TreeLeastSquares, solve
    >>> solve(TreeLeastSquares([-1, 0, 0], [6.0, 2.0, 1.0])).value.tolist()
    [5.0, 3.0, 2.0]
    """

    tree: Tree
    y: Floats
    variance: Floats
    weights: Floats
    lower: Floats
    upper: Floats

    kind: ClassVar[str] = "tree_l2"
    forms: ClassVar[tuple[type[LinearProgram], ...]] = (QuadraticProgram,)

    def __init__(
        self,
        tree: Tree | ArrayLike,
        y: ArrayLike,
        variance: ArrayLike = 1.0,
        *,
        lower: ArrayLike | None = None,
        upper: ArrayLike | None = None,
    ) -> None:
        object.__setattr__(self, "tree", tree if isinstance(tree, Tree) else Tree(tree))
        for name, bound, default in (("lower", lower, -np.inf), ("upper", upper, np.inf)):
            object.__setattr__(self, name, self._per_node(bound, default, name))
            values = getattr(self, name)
            _check_magnitudes(values[np.isfinite(values)], name)
        spread = self._per_node(variance, 1.0, "variance")
        if (spread < 0).any():
            raise ProblemError("variance must not be negative (0 is exact, infinity not measured)")
        measurements = np.array(as_array(y, "y", np.float64))
        if measurements.shape != spread.shape:
            raise ProblemError(f"y must have one answer for each of the {spread.size} nodes")
        measurements[np.isinf(spread)] = 0.0
        if not np.isfinite(measurements).all():
            raise ProblemError("y must be finite wherever variance is")
        _check_magnitudes(measurements, "y")
        exact = spread == 0.0
        measured = (spread > 0) & (spread < np.inf)
        if (spread[measured] < np.finfo(np.float64).tiny).any():
            raise ProblemError("a variance is too small to be inverted; use 0 for exact answers")
        weights = np.divide(1.0, spread, out=np.zeros(spread.size), where=measured)
        bounds = self._with_exact(measurements, exact)
        fields = {"y": measurements, "variance": spread, "weights": weights, "lower": bounds[0], "upper": bounds[1]}
        for name, values in fields.items():
            values.setflags(write=False)
            object.__setattr__(self, name, values)
        self._check_feasible()

    @classmethod
    def examples(cls) -> Mapping[str, Self]:
        """Return one node, a path with leaves, and trees with bounds, exact and missing measurements."""
        tree, noisy = [-1, 0, 0, 1, 1, 2, 2, 2], [9, 1, 7, -3, 2, 4, 0, 4]
        comb = [-1, *(v // 2 * 2 for v in range(40))]
        return {
            "tiny": cls([-1, 0, 0], [4, 1, 2]),
            "one-node": cls([-1], [3.5]),
            "variances": cls(tree, noisy, [4.0, 1.0, 1.0, 0.25, 2.0, 1.0, 8.0, 1.0]),
            "zeros": cls(tree, noisy, lower=0),
            "exact-root": cls(tree, noisy, [0, 1, 1, 1, 1, 1, 1, 1], lower=0, upper=[10, 8, 8, 5, 5, 5, 5, 5]),
            "half-measured": cls(tree, noisy, [1, np.inf, 1, np.inf, np.inf, np.inf, 1, 1]),
            "deep": cls(comb, np.arange(41) % 7 - 2, lower=0),
            "large-counts": cls([-1, 0, 0], [7_000, 4_003, 2_991], lower=0),
        }

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

    def _with_exact(self, measurements: Floats, exact: Flags) -> tuple[Floats, Floats]:
        if not exact.any():
            return self.lower, self.upper
        beyond = exact & ((measurements < self.lower) | (measurements > self.upper))
        if beyond.any():
            raise ProblemError(f"the exact answer of node {np.flatnonzero(beyond)[0]} lies outside its bounds")
        return np.where(exact, measurements, self.lower), np.where(exact, measurements, self.upper)

    @property
    def variables(self) -> int:
        """Return the number of nodes n."""
        return self.tree.nodes

    @cached_property
    def scale(self) -> float:
        """Return the largest magnitude among answers and finite bounds, at least 1."""
        bounds = np.concatenate([self.lower, self.upper])
        largest = float(np.abs(bounds[np.isfinite(bounds)]).max(initial=1.0))
        return max(largest, float(np.abs(self.y).max()))

    @property
    def objective_scale(self) -> float:
        """Return the loss of residuals as large as ``scale`` in all answers, at most 1."""
        return at_most_one(float(self.weights.sum()) * self.scale**2)

    @cached_property
    def bounded(self) -> bool:
        """Return whether any node that is not exact has a finite bound."""
        finite = (self.lower > -np.inf) | (self.upper < np.inf)
        return bool((finite & (self.variance > 0)).any())

    def objective(self, x: NDArray[Any]) -> float:
        """Return the weighted sum of squared residuals over the measured nodes."""
        residual = np.asarray(x - self.y, dtype=np.float64)
        # einsum, not @: threads of the linear algebra library cost more than they bring at these sizes.
        return float(np.einsum("i,i,i->", self.weights, residual, residual))

    @property
    def resolution(self) -> float:
        """Return the cost of moving every measured node by the last digit of its measurement."""
        last = np.finfo(np.float64).eps * self.y
        return float(np.einsum("i,i,i->", self.weights, last, last))

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

    def certified_gap(self, x: NDArray[Any], multipliers: Floats | None = None) -> float:
        """Return the smallest gap over multipliers rebuilt from x, in two ways, and a solver's own."""
        gap = super().certified_gap(x, multipliers)
        if gap <= _ROUNDING * self.objective_scale or gap <= _ROUNDING * self.objective(x):
            return gap
        from coco_opt.kernels import tree_certificate

        tree, data = self.tree, (self.y, self.weights, self.lower, self.upper)
        balanced = tree_certificate.balanced_multipliers_l2(tree.parent, tree.first_child, *data, x)
        return min(gap, self.gap(x, balanced))

    def multipliers(self, x: NDArray[Any]) -> Floats:
        """Rebuild lam from x by intervals, up and down the tree: exact if x is optimal; O(n)."""
        from coco_opt.kernels import tree_certificate

        tree, data = self.tree, (self.y, self.weights, self.lower, self.upper)
        return tree_certificate.multipliers_l2(tree.parent, tree.first_child, *data, x)

    def gap(self, x: NDArray[Any], multipliers: Floats) -> float:
        """Return the certified gap; multipliers for which it would be infinite are first moved to valid multipliers.

        Those of a wrong shape, and entries that are no finite number, count as 0.
        """
        lam = self._finite(multipliers)
        gap = self._certify(x, lam)
        if gap < np.inf:
            return gap
        from coco_opt.kernels import tree_certificate

        # Without bounds only a measured node's cost keeps the minimum of cost plus d x finite for d other than 0.
        reach = np.where(self.weights > 0, np.inf, 0.0)
        d_low = np.where(self.upper == np.inf, -reach, -np.inf)
        d_high = np.where(self.lower == -np.inf, reach, np.inf)
        tree = self.tree
        return self._certify(x, tree_certificate.multipliers(tree.parent, tree.first_child, d_low, d_high, lam))

    def _certify(self, x: NDArray[Any], lam: Floats) -> float:
        """Return the gap for any finite multipliers, infinite where a node's minimum is; O(n)."""
        from coco_opt.kernels import tree_certificate

        tree, data = self.tree, (self.y, self.weights, self.lower, self.upper)
        values = np.ascontiguousarray(x, dtype=np.float64)
        return float(tree_certificate.gap_l2(tree.parent, tree.first_child, *data, values, lam))

    def _finite(self, multipliers: Floats) -> Floats:
        lam = plain_answer(multipliers)
        if lam.shape != self.tree.parent.shape:
            return np.zeros(self.variables)
        lam = np.ascontiguousarray(lam, dtype=np.float64)
        finite = np.isfinite(lam)
        return lam if finite.all() else np.where(finite, lam, 0.0)

    def formulate(self, form: type[LinearProgram]) -> Formulation[NDArray[Any], Floats]:
        """Write the quadratic program in the residual u = x - y.

        One row for the sum of each inner node. In x the optimum is a small difference of large numbers, and solvers
        stop digits too early.
        """
        if form is not QuadraticProgram:
            raise self._no_form(form)
        from scipy.sparse import diags_array

        n = self.variables
        rows = self.tree.sum_rows()
        # Residuals count from measurements, and at unmeasured inner nodes from the sums of the leaves'.
        base = np.where(self.variance < np.inf, self.y, self.tree.sums(np.where(self.tree.is_leaf, self.y, 0.0)))
        missing = np.asarray(rows @ base, dtype=np.float64)
        program = QuadraticProgram(
            P=diags_array([2.0 * self.weights], offsets=[0], shape=(n, n), format="csc"),
            c=np.zeros(n),
            A=rows,
            row_lower=-missing,
            row_upper=-missing,
            lower=self.lower - base,
            upper=self.upper - base,
        )

        def read_dual(dual: ProgramDual) -> Floats:
            return -self.tree.sum_duals(dual.rows, 1)[:, 0]

        return Formulation(program, lambda u: base + u, read_dual, in_residuals=True)


def _check_magnitudes(values: Floats, name: str) -> None:
    """Raise ProblemError where squares of finite numbers would leave the range of doubles."""
    if float(np.abs(values).max(initial=0.0)) > MAX_MAGNITUDE:
        raise ProblemError(f"{name} must not exceed {MAX_MAGNITUDE:g} in magnitude: rescale")
