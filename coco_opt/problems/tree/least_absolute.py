"""Tree least absolute deviations in integers: consistent integer values of all nodes nearest to noisy values.

::

    minimise  sum_v w_v |x_v - y_v|   subject to   x_v = sum of the children's x,  lower <= x <= upper

over the nodes of any tree. With integer data the constraints have integer vertices (a network matrix), so some optimum
is integer: the kernel returns one, and a solver of the linear program may return any other optimum.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coco_opt.array_types import Floats, Ints
from coco_opt.errors import ProblemError
from coco_opt.forms import Formulation, LinearProgram, MixedIntegerProgram
from coco_opt.problem import as_array, at_most_one
from coco_opt.problems.tree.data import Tree
from coco_opt.problems.tree.problem import TreeProblem

_LARGEST = 2**52  # sums and bounds up to here are exact in floats


@dataclass(frozen=True, eq=False, init=False)
class TreeLeastAbsolute(TreeProblem):
    """Weighted absolute deviations on a tree: ``TreeLeastAbsolute(tree, y, weights, lower=, upper=, ties=)``.

    Minimise sum_v w_v |x_v - y_v|, where every inner node is the sum of its children.

    Parameters
    ----------
    tree : Tree or array_like, shape (n,)
        The tree, or its parent array.
    y : array_like of int, shape (n,)
        Noisy integer measurements of the nodes.
    weights : array_like, shape (n,), or float, default 1
        Nonnegative weights; 0 for a node that was not measured.
    lower, upper : array_like, shape (n,), or float, optional
        Integer or infinite bounds; an exact node has equal bounds.
    ties : {"lower", "upper"}, default "lower"
        Of several optima, that with the smallest or the largest root. Below the root, the first of the siblings that
        could equally well have a unit has it.

    Raises
    ------
    ProblemError
        The data are not integers or sum beyond 2^52, or nothing satisfies the constraints.

    Notes
    -----
    Values are int64 (n,) from solvers that honour ties.

    Examples
    --------
    >>> from coco_opt import TreeLeastAbsolute, solve
    >>> solve(TreeLeastAbsolute([-1, 0, 0], [6, 2, 1])).objective
    3.0
    """

    y: Ints
    weights: Floats
    ties: Literal["lower", "upper"]

    kind: ClassVar[str] = "tree_l1"
    forms: ClassVar[tuple[type[LinearProgram], ...]] = (LinearProgram, MixedIntegerProgram)

    def __init__(
        self,
        tree: Tree | ArrayLike,
        y: ArrayLike,
        weights: ArrayLike = 1.0,
        *,
        lower: ArrayLike | None = None,
        upper: ArrayLike | None = None,
        ties: Literal["lower", "upper"] = "lower",
    ) -> None:
        self._set_constraints(tree, lower, upper)
        heavy = self._per_node(weights, 1.0, "weights")
        if (heavy < 0).any() or np.isinf(heavy).any():
            raise ProblemError("weights must be nonnegative and finite; an exact node has equal bounds")
        measurements = as_array(y, "y")
        if measurements.shape != heavy.shape or measurements.dtype.kind not in "iu":
            raise ProblemError(f"y must have one integer answer for each of the {heavy.size} nodes")
        if ties not in ("lower", "upper"):
            raise ProblemError(f"ties must be 'lower' or 'upper', not {ties!r}")
        if max(int(measurements.max()), -int(measurements.min())) > _LARGEST:
            raise ProblemError("answers are too large: their magnitudes must sum to at most 2^52")
        measurements = measurements.astype(np.int64)
        measurements.setflags(write=False)
        for name, values in (("y", measurements), ("weights", heavy), ("ties", ties)):
            object.__setattr__(self, name, values)
        self._check_integers()
        self._check_feasible()

    @classmethod
    def examples(cls) -> Mapping[str, Self]:
        """Return one node, a path with leaves, ties both ways, and trees with bounds and missing measurements."""
        tree, noisy = [-1, 0, 0, 1, 1, 2, 2, 2], [9, 1, 7, -3, 2, 4, 0, 4]
        comb = [-1, *(v // 2 * 2 for v in range(40))]
        return {
            "tiny": cls([-1, 0, 0], [4, 1, 2]),
            "one-node": cls([-1], [3]),
            "ties-lower": cls([-1, 0, 0], [0, 4, 4], lower=0),
            "ties-upper": cls([-1, 0, 0], [0, 4, 4], lower=0, ties="upper"),
            "zeros": cls(tree, noisy, [4.0, 1.0, 1.0, 0.25, 2.0, 1.0, 8.0, 1.0], lower=0),
            "exact-root": cls(tree, noisy, lower=[9, 0, 0, 0, 0, 0, 0, 0], upper=[9, 8, 8, 5, 5, 5, 5, 5]),
            "half-measured": cls(tree, noisy, [1, 0, 1, 0, 0, 0, 1, 1], lower=0, upper=9),
            "deep": cls(comb, np.arange(41) % 7 - 2, lower=0),
            "large-counts": cls([-1, 0, 0], [7 * 10**6, 4 * 10**6 + 3, 3 * 10**6 - 9], lower=0),
        }

    def _check_integers(self) -> None:
        bounds = np.concatenate([self.lower, self.upper])
        bounds = bounds[np.isfinite(bounds)]
        if (bounds != np.rint(bounds)).any():
            raise ProblemError("bounds must be integers or infinite")
        if float(np.abs(bounds).sum()) + float(np.abs(self.y.astype(np.float64)).sum()) > _LARGEST:
            raise ProblemError("answers and bounds are too large: their magnitudes must sum to at most 2^52")

    @cached_property
    def scale(self) -> float:
        """Return the largest magnitude among answers and finite bounds, at least 1."""
        bounds = np.concatenate([self.lower, self.upper])
        largest = float(np.abs(bounds[np.isfinite(bounds)]).max(initial=1.0))
        return max(largest, float(np.abs(self.y).max()))

    @property
    def objective_scale(self) -> float:
        """Return the loss of residuals as large as ``scale`` in all answers, at most 1."""
        return at_most_one(float(self.weights.sum()) * self.scale)

    def objective(self, x: NDArray[Any]) -> float:
        """Return the weighted sum of absolute deviations."""
        return float(self.weights @ np.abs(x - self.y))

    def multipliers(self, x: NDArray[Any]) -> Floats:
        """Rebuild lam from x by intervals, up and down the tree: exact if x is optimal; O(n)."""
        from coco_opt.kernels import tree_certificate

        w = self.weights
        left, right = np.where(x > self.y, w, -w), np.where(x < self.y, -w, w)
        tree_certificate.slopes(x, self.lower, self.upper, left, right)
        return self._nearest(left, right, np.zeros(x.size))

    def _reach(self) -> Floats:
        return self.weights

    def _certify(self, x: NDArray[Any], lam: Floats) -> float:
        from coco_opt.kernels import tree_certificate

        tree, data = self.tree, (self.y, self.weights, self.lower, self.upper)
        return float(tree_certificate.gap_l1(tree.parent, tree.first_child, *data, x, lam))

    def formulate(self, form: type[LinearProgram]) -> Formulation[NDArray[Any], Floats]:
        """Write the program in (u, m): a measured node deviates from its answer by u + 2 m with m >= -u, m >= 0."""
        if form not in self.forms:
            raise self._no_form(form)
        from scipy.sparse import csc_array, eye_array, hstack, vstack

        n, w = self.variables, self.weights
        measured = np.flatnonzero(w > 0)
        k = measured.size
        sums, base, missing = self._residual_base(self.y, w > 0)
        inner = sums.shape[0]
        deviation = hstack([eye_array(n, format="csr")[measured], eye_array(k)])
        linear = LinearProgram(
            c=np.concatenate([w, 2.0 * w[measured]]),
            A=csc_array(vstack([hstack([sums, csc_array((inner, k))]), deviation])),
            row_lower=np.concatenate([-missing, np.zeros(k)]),
            row_upper=np.concatenate([-missing, np.full(k, np.inf)]),
            lower=np.concatenate([self.lower - base, np.zeros(k)]),
            upper=np.concatenate([self.upper - base, np.full(k, np.inf)]),
        )
        program = linear
        if form is MixedIntegerProgram:
            program = MixedIntegerProgram(**vars(linear), integer=np.arange(n + k) < n)
        return Formulation(program, lambda z: base + z[:n], self._read_dual, in_residuals=form is LinearProgram)
