"""Integer tree fits: whole values of all regions nearest to noisy ones, cell by cell (Fioretto et al. 2021).

Given a tree of regions and noisy whole answers y_v in many cells, for every cell on its own::

    minimise  sum_v w_v |x_v - y_v|^p   subject to   x_v whole,  x_parent = sum of the children's x,

p = 1 or 2; where they are given, with the bounds 0 <= x_v <= G_v of known numbers of groups and with known values of
the root. The constraints are a network's, so with the costs interpolated between whole numbers the program is a linear
one with whole vertices, and duality is exact: with prices lam (regions, cells), 0 at leaves, in units of the largest
weight (equal weights are then whole, and nothing rounds), and d_v = lam_v - lam_parent(v)::

    objective(x) - optimum <= sum_v  f_v(x_v) + d_v x_v - min over whole u within bounds of (f_v(u) + d_v u),

every term nonnegative, and 0 for the right prices. Known from the paper's abstract (arXiv 2006.15673): each size's
count over the tree, a convex cost, whole numbers.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coco_opt.errors import ProblemError
from coco_opt.forms import FloatArray, Formulation, LinearProgram, MixedIntegerProgram, ProgramDual
from coco_opt.problem import Problem, plain_answer, whole_answer
from coco_opt.problems import integer_tree_passes as passes
from coco_opt.problems.tree import IntArray, Tree

_LARGEST = 2**50  # sums over all regions up to here are exact in floats
_WINDOW = 4  # unit steps on either side of the real optimum whose squares a program knows exactly
_UNMEASURED = 1e-9  # the precision, relative to the largest weight, of a region that was not measured


@dataclass(frozen=True, eq=False, init=False)
class IntegerTree(Problem[NDArray[Any], FloatArray]):
    """Base of both losses: ``IntegerTree(tree, y, weights, groups=, root=)``; data, constraints and certificate.

    tree: a Tree or its parent array (regions,); y int (regions, cells); weights (regions,) or one number, 0 for a
    region that was not measured; groups int (regions,): values lie in 0..groups; root int (cells,): the root's values.
    Values are int64 (regions, cells). Raises ProblemError for other data and where no values satisfy the constraints.
    """

    tree: Tree
    y: IntArray
    weights: FloatArray
    groups: IntArray | None
    root: IntArray | None
    unit: float
    shares: FloatArray
    """The largest weight (1 where all are 0), and the weights divided by it (regions, 1)."""
    least: IntArray
    most: IntArray
    """The range of values (regions,) that some optimum keeps to: the bounds, or what the answers imply."""

    power: ClassVar[int]
    forms: ClassVar[tuple[type[LinearProgram], ...]] = (LinearProgram, MixedIntegerProgram)
    repairable: ClassVar[float] = np.inf  # optimal fractional points lie anywhere between whole ones

    def __init__(
        self,
        tree: Tree | ArrayLike,
        y: ArrayLike,
        weights: ArrayLike = 1.0,
        *,
        groups: ArrayLike | None = None,
        root: ArrayLike | None = None,
    ) -> None:
        shape = tree if isinstance(tree, Tree) else Tree(tree)
        table = _whole(y, "y", (shape.nodes, -1))
        top = None if groups is None else _whole(groups, "groups", (shape.nodes,), least=0)
        fixed = None if root is None else _whole(root, "root", table.shape[1:])
        given = (("tree", shape), ("y", table), ("weights", _weights(weights, shape)), ("groups", top), ("root", fixed))
        for name, values in given:
            object.__setattr__(self, name, values)
        unit = float(self.weights.max()) or 1.0
        shares = (self.weights / unit)[:, None]
        shares.setflags(write=False)
        object.__setattr__(self, "unit", unit)
        object.__setattr__(self, "shares", shares)
        self._set_range()
        if fixed is not None and ((fixed > self.most[0]) | (fixed < self.least[0])).any():
            raise ProblemError("groups leave no room for the values of root: bounds of the regions below it add up")

    def _set_range(self) -> None:
        """Set ``least`` and ``most``, those of inner regions being in reach of the leaves.

        Without bounds, the inverse of a basis of the constraints has entries 0, 1 and -1: a vertex has no value beyond
        the sum of a cell's magnitudes, a least squares fit is a mean of vertices, and a whole one is within as many
        units of it as there are leaves.
        """
        n, magnitudes = self.tree.nodes, np.abs(self.y).max(axis=1).astype(np.float64).sum()
        magnitudes += 0 if self.root is None else np.abs(self.root).max()
        if magnitudes * n > _LARGEST:
            raise ProblemError("answers are too large: their magnitudes times the number of regions must not pass 2^50")
        if self.groups is None:
            most = self.tree.sums(np.full(n, int(magnitudes) + n))
            least = -most
        else:
            most, least = self.groups.copy(), np.zeros(n, np.int64)
            for v, below in reversed(passes.families(self.tree)):
                most[v] = min(int(most[v]), int(most[below].sum()))
        for name, values in (("least", least), ("most", most)):
            values.setflags(write=False)
            object.__setattr__(self, name, values)

    @property
    def variables(self) -> int:
        """Return the number of cells of all regions."""
        return self.y.size

    @property
    def scale(self) -> float:
        """Return the largest magnitude among the answers, at least 1."""
        return max(1.0, float(np.abs(self.y).max()))

    @property
    def resolution(self) -> float:
        """Return what rounding of the prices costs: every node pays their last digits on its largest value."""
        depth = 1 + int(np.log2(self.tree.nodes))
        slope = float(self._differences(np.zeros_like(self.y), 1).max(initial=0.0))
        return self.unit * float(np.finfo(np.float64).eps) * depth * slope * float((self.most - self.least).sum())

    def accept(self, answer: Any) -> NDArray[Any]:
        """Return the answer as int64 where it is whole, else as float64."""
        return whole_answer(answer)

    def violation(self, x: NDArray[Any]) -> float:
        """Return the largest distance from a whole number, excess over a bound or error of a sum."""
        x = plain_answer(x)
        if x.shape != self.y.shape or not np.isfinite(x).all():
            return np.inf
        worst = max(float(np.abs(x - passes.sums(self.tree, x)).max()), float(np.abs(x - np.rint(x)).max()))
        if self.groups is not None:
            worst = max(worst, -float(x.min()), float((x - self.groups[:, None]).max()))
        if self.root is not None:
            worst = max(worst, float(np.abs(x[0] - self.root).max()))
        return worst

    def repair(self, x: NDArray[Any]) -> NDArray[Any]:
        """Round a fractional point from the root down, largest fractions of the children up; whole values stay.

        Every rounding that leaves whole values alone is optimal if the point is: costs are linear between neighbouring
        whole points, and the roundings are those around the point. A wrong shape comes back unchanged.
        """
        if x.shape != self.y.shape or not np.isfinite(x).all() or self.violation(x) == 0.0:
            return x
        whole = passes.rounded(self.tree, x, self.root)
        return passes.sums(self.tree, np.clip(whole, self.least[:, None], self.most[:, None]))

    def start(self) -> IntArray:
        """Return a feasible point: least squares rounded, moved into the bounds as far as they require.

        For p = 1 each weight is squared, as variances are; regions that were not measured get a very small one
        and a known root a very large one.
        """
        precision = np.maximum(self.shares[:, 0] ** (3 - self.power), _UNMEASURED)
        answers = np.where(self.weights[:, None] > 0.0, self.y, 0)
        if self.root is not None:
            precision[0], answers[0] = 1.0 / _UNMEASURED, self.root
        x = passes.rounded(self.tree, passes.least_squares(self.tree, answers, precision), self.root)
        if self.groups is None and self.root is None:
            return x
        return passes.within(self.tree, x, self.least, self.most, self.root)

    def objective(self, x: NDArray[Any]) -> float:
        """Return the weighted sum of |residual|^p."""
        return self.unit * float(self._costs(np.asarray(x - self.y, dtype=np.float64)).sum())

    def multipliers(self, x: NDArray[Any]) -> FloatArray:
        """Rebuild prices from whole x by intervals, up and down the tree: exact if x is optimal."""
        d_low, d_high = -self._differences(x, 1), -self._differences(x, -1)
        d_high[x <= self.least[:, None]] = np.inf
        d_low[x >= self.most[:, None]] = -np.inf
        if self.root is not None:
            d_low[0], d_high[0] = -np.inf, np.inf
        return passes.prices(self.tree, d_low, d_high)

    def admissible(self, multipliers: FloatArray) -> FloatArray:
        """Return the prices with 0 at leaves and for what is no number; zeros for a wrong shape."""
        prices = plain_answer(multipliers)
        if prices.shape != self.y.shape:
            return np.zeros(self.y.shape)
        usable = np.isfinite(prices) & ~self.tree.is_leaf[:, None]
        return np.where(usable, prices, 0.0).astype(np.float64)

    def gap(self, x: NDArray[Any], multipliers: FloatArray) -> float:
        """Return the certified gap of the module docstring, for whole x."""
        d = np.array(multipliers, dtype=np.float64)
        d[1:] -= multipliers[self.tree.parent[1:]]
        excess = np.maximum(self._excess(np.asarray(x, dtype=np.float64), d), 0.0)
        return self.unit * float(excess[0 if self.root is None else 1 :].sum())

    @abstractmethod
    def _costs(self, residual: FloatArray) -> FloatArray:
        """Return the costs of residuals (regions, cells), in units of the largest weight as all that follow."""

    @abstractmethod
    def _differences(self, x: NDArray[Any], step: int) -> FloatArray:
        """Return the slope of the costs between x and x + step, step being 1 or -1."""

    @abstractmethod
    def _excess(self, x: FloatArray, d: FloatArray) -> FloatArray:
        """Return cost plus d x less its least value over whole numbers in least..most."""

    @abstractmethod
    def _pieces(self) -> tuple[IntArray, FloatArray, FloatArray]:
        """Return a base (regions, cells) and the costs of unit steps up and down from it (steps, regions, cells).

        The last step may be repeated without end.
        """

    def formulate(self, form: type[LinearProgram]) -> Formulation[NDArray[Any], FloatArray]:
        """Write x as a base with unit steps up and down from it, each at its own cost; the last ones have no end."""
        if form not in self.forms:
            raise self._no_form(form)
        from scipy.sparse import csc_array, hstack

        base, up, down = self._pieces()
        rows, low, high = self._rows(base)
        steps, n = len(up), base.size
        ends = np.ones((2, steps, n))
        ends[:, -1] = np.inf
        linear = LinearProgram(
            c=self.unit * np.concatenate([up.ravel(), down.ravel()]),
            A=csc_array(hstack([rows] * steps + [-rows] * steps)),
            row_lower=low,
            row_upper=high,
            lower=np.zeros(2 * steps * n),
            upper=ends.ravel(),
            offset=self.objective(base),
        )
        program: LinearProgram = linear
        if form is MixedIntegerProgram:
            program = MixedIntegerProgram(**vars(linear), integer=np.ones(2 * steps * n, dtype=np.bool_))

        def recover(z: FloatArray) -> NDArray[Any]:
            moves = z.reshape(2, steps, *base.shape).sum(axis=1)
            return np.asarray(base + moves[0] - moves[1])

        return Formulation(program, recover, multipliers=self._read_dual)

    def _rows(self, base: IntArray) -> tuple[Any, FloatArray, FloatArray]:
        """Return the rows on x - base (all cells) and their sides: sums, then all bounds."""
        from scipy.sparse import csc_array, eye_array, kron, vstack

        regions, cells = self.y.shape
        inner = np.flatnonzero(~self.tree.is_leaf)
        up = self.tree.parent[1:]
        below = csc_array((np.ones(up.size), (up, np.arange(1, regions))), shape=(regions, regions)).tocsr()
        sums = (eye_array(regions, format="csr") - below)[inner]
        off = (below @ base - base)[inner].astype(np.float64)
        free = np.inf if self.groups is None else 0.0
        least = np.repeat(self.least[:, None] - free, cells, axis=1)
        most = np.repeat(self.most[:, None] + free, cells, axis=1)
        if self.root is not None:
            least[0] = most[0] = self.root
        rows = vstack([kron(sums, eye_array(cells)), eye_array(regions * cells)])
        sides = [np.concatenate([off.ravel(), (bound - base).ravel()]) for bound in (least, most)]
        return csc_array(rows), sides[0], sides[1]

    def _read_dual(self, dual: ProgramDual) -> FloatArray:
        inner = np.flatnonzero(~self.tree.is_leaf)
        prices = np.zeros(self.y.shape)
        prices[inner] = -dual.rows[: inner.size * self.y.shape[1]].reshape(inner.size, self.y.shape[1]) / self.unit
        return prices


@dataclass(frozen=True, eq=False, init=False)
class IntegerTreeL1(IntegerTree):
    """Absolute values, p = 1: ``IntegerTreeL1(tree, y, weights, groups=, root=)``; optima are not unique."""

    kind: ClassVar[str] = "integer_tree_l1"
    power: ClassVar[int] = 1

    def _costs(self, residual: FloatArray) -> FloatArray:
        return self.shares * np.abs(residual)

    def _differences(self, x: NDArray[Any], step: int) -> FloatArray:
        slope = step * np.sign(step * (x - self.y) + 0.5)
        return np.asarray(self.shares * slope, dtype=np.float64)

    def _excess(self, x: FloatArray, d: FloatArray) -> FloatArray:
        least, most = (bound[:, None].astype(np.float64) for bound in (self.least, self.most))
        here, worst = self._costs(x - self.y), np.zeros(x.shape)
        kink: FloatArray = np.clip(self.y.astype(np.float64), least, most)
        for u in (kink, least, most):
            worst = np.maximum(worst, here - self._costs(u - self.y) + d * (x - u))
        return worst

    def _pieces(self) -> tuple[IntArray, FloatArray, FloatArray]:
        steps = np.broadcast_to(self.shares, (1, *self.y.shape))
        return self.y, steps, steps


@dataclass(frozen=True, eq=False, init=False)
class IntegerTreeL2(IntegerTree):
    """Squares, p = 2: ``IntegerTreeL2(tree, y, weights, groups=, root=)``.

    Programs know the squares in a window around the real optimum and continue them by lines: where the optimum lies
    in the window, as it does unless there are many leaves, they find it, and the gap tells.
    """

    kind: ClassVar[str] = "integer_tree_l2"
    power: ClassVar[int] = 2

    def _costs(self, residual: FloatArray) -> FloatArray:
        return self.shares * np.square(residual)

    def _differences(self, x: NDArray[Any], step: int) -> FloatArray:
        return np.asarray(self.shares * (2 * (x - self.y) + step), dtype=np.float64)

    def _excess(self, x: FloatArray, d: FloatArray) -> FloatArray:
        least, most = (bound[:, None].astype(np.float64) for bound in (self.least, self.most))
        w = self.shares
        half = np.divide(0.5 * d, w, out=np.zeros(d.shape), where=w > 0.0)
        edge = np.where(d > 0.0, least, np.where(d < 0.0, most, x))
        u = np.where(w > 0.0, np.clip(np.rint(self.y - half), least, most), edge)
        return (x - u) * (w * (x + u - 2.0 * self.y) + d)

    def _pieces(self) -> tuple[IntArray, FloatArray, FloatArray]:
        base, w = np.floor(self._real()).astype(np.int64), self.shares
        residual, steps = base - self.y, np.arange(_WINDOW)[:, None, None]
        return base, w * (2 * residual + 2 * steps + 1), w * (2 * steps + 1 - 2 * residual)

    def _real(self) -> FloatArray:
        """Return the optimum without wholeness (regions, cells)."""
        from coco_opt.kernels import tree_bounded_l2

        real = np.empty(self.y.shape)
        least, most = self.least.astype(np.float64), self.most.astype(np.float64)
        shape = self.tree.parent, self.tree.first_child
        for cell, answers in enumerate(self.y.T.astype(np.float64)):
            if self.root is not None:
                least[0] = most[0] = self.root[cell]
            real[:, cell], _ = tree_bounded_l2.fit(*shape, np.ascontiguousarray(answers), self.weights, least, most)
        return real


def _whole(values: ArrayLike, name: str, shape: tuple[int, ...], least: int = -_LARGEST) -> IntArray:
    """Return a read-only int64 copy; ``shape`` may leave its last length open with -1."""
    array = np.asarray(values)
    fits = array.ndim == len(shape) and array.shape[0] == shape[0] and array.size > 0
    if not fits or shape[-1] not in (-1, array.shape[-1]) or array.dtype.kind not in "iu":
        wanted = " x ".join("cells" if length < 0 else str(length) for length in shape)
        raise ProblemError(f"{name} must be whole numbers of shape {wanted}")
    if int(array.min()) < least or int(array.max()) > _LARGEST:
        raise ProblemError(f"{name} must lie between {max(least, -_LARGEST)} and 2^50")
    array = np.array(array, dtype=np.int64)
    array.setflags(write=False)
    return array


def _weights(weights: ArrayLike, tree: Tree) -> FloatArray:
    values = np.asarray(weights)
    if values.shape not in ((), (tree.nodes,)) or values.dtype.kind not in "iuf":
        raise ProblemError(f"weights must be one number, or one for each of the {tree.nodes} regions")
    full = np.array(np.broadcast_to(values, (tree.nodes,)), dtype=np.float64)
    if not np.isfinite(full).all() or (full < 0).any():
        raise ProblemError("weights must be finite and nonnegative")
    full.setflags(write=False)
    return full
