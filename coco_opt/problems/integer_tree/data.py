"""The data of integer tree fits, checked, the range of values that some optimum keeps to, and passes over the tree.

Each pass visits every region once and treats all cells together: O(regions x cells) in time and memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coco_opt.array_types import Floats, Ints
from coco_opt.errors import ProblemError
from coco_opt.problem import as_array
from coco_opt.problems.tree.data import Tree

_SNAP = 1e-5  # values closer than this to an integer count as it
_LARGEST = 2**50  # sums over all regions up to here are exact in floats


@dataclass(frozen=True, eq=False, init=False)
class IntegerTreeData:
    """Noisy measurements, weights and constraints: ``IntegerTreeData(tree, y, weights, groups=)``.

    tree: a Tree or its parent array (regions,); y int (regions, cells); weights (regions,) or one number, 0 for a
    region that was not measured; groups int (regions,): values lie in 0..groups. Raises ProblemError for
    other data.
    """

    tree: Tree
    y: Ints
    weights: Floats
    groups: Ints | None
    unit: float
    shares: Floats
    """The largest weight (1 where all are 0), and the weights divided by it (regions, 1)."""
    least: Ints
    most: Ints
    """The range of values (regions,) that some optimum keeps to: the bounds, or one implied by the measurements."""

    def __init__(
        self,
        tree: Tree | ArrayLike,
        y: ArrayLike,
        weights: ArrayLike = 1.0,
        *,
        groups: ArrayLike | None = None,
    ) -> None:
        shape = tree if isinstance(tree, Tree) else Tree(tree)
        table = _integer_array(y, "y", (shape.nodes, -1))
        top = None if groups is None else _integer_array(groups, "groups", (shape.nodes,), least=0)
        fields = (
            ("tree", shape),
            ("y", table),
            ("weights", _weights(weights, shape)),
            ("groups", top),
        )
        for name, values in fields:
            object.__setattr__(self, name, values)
        unit = float(self.weights.max()) or 1.0
        shares = (self.weights / unit)[:, None]
        shares.setflags(write=False)
        object.__setattr__(self, "unit", unit)
        object.__setattr__(self, "shares", shares)
        self._set_range()

    def _set_range(self) -> None:
        """Set ``least`` and ``most``; those of inner regions are in reach of the leaves.

        Without bounds: sets of leaves below a region are nested, so the inverse of a basis has entries 0, 1 and
        -1, in leaves and in sums of leaves. A vertex has no value beyond the sum of a cell's magnitudes, a least
        squares fit is a mean of vertices, and an integer fit is within as many units of it as there are leaves.
        """
        n, magnitudes = self.tree.nodes, np.abs(self.y).max(axis=1).astype(np.float64).sum()
        if magnitudes * n > _LARGEST:
            raise ProblemError("answers are too large: their magnitudes times the number of regions must not pass 2^50")
        if self.groups is None:
            most = np.full(n, int(magnitudes) + n)
            least = -most
        else:
            most, least = self.groups.copy(), np.zeros(n, np.int64)
            for v, below in reversed(families(self.tree)):
                most[v] = min(int(most[v]), int(most[below].sum()))
        for name, values in (("least", least), ("most", most)):
            values.setflags(write=False)
            object.__setattr__(self, name, values)


class Pieces(NamedTuple):
    """Costs as lines between integers: a base (regions, cells) and what unit steps up and down from it cost.

    The costs (steps, regions, cells) are in units of the largest weight; the last step may be repeated without end.
    """

    base: Ints
    up: Floats
    down: Floats


def real_optimum(data: IntegerTreeData) -> Floats:
    """Return the least squares table (regions, cells) within bounds that need not be integer."""
    from coco_opt.kernels import tree_bounded_l2

    real = np.empty(data.y.shape)
    least, most = data.least.astype(np.float64), data.most.astype(np.float64)
    shape = data.tree.parent, data.tree.first_child
    for cell, measurements in enumerate(data.y.T.astype(np.float64)):
        real[:, cell], _ = tree_bounded_l2.fit(*shape, np.ascontiguousarray(measurements), data.weights, least, most)
    return real


def families(tree: Tree) -> list[tuple[int, slice]]:
    """Return every inner region with the rows of its children, root first."""
    first = tree.first_child.tolist()
    return [(v, slice(first[v], first[v + 1])) for v in np.flatnonzero(~tree.is_leaf).tolist()]


def least_squares(tree: Tree, y: Ints, precision: Floats) -> Floats:
    """Return the real table of sums nearest to y in squares weighted by ``precision`` (regions,), all above 0.

    Two passes (Hay et al. 2010, Theorem 3, for unequal weights).
    """
    variance, z = 1.0 / precision, y.astype(np.float64)
    for v, below in reversed(families(tree)):
        spread = variance[below].sum()
        variance[v] = 1.0 / (precision[v] + 1.0 / spread)
        z[v] = variance[v] * (precision[v] * z[v] + z[below].sum(axis=0) / spread)
    for v, below in families(tree):
        part = variance[below] / variance[below].sum()
        z[below] += part[:, None] * (z[v] - z[below].sum(axis=0))
    return z


def rounded(tree: Tree, x: NDArray[Any]) -> Ints:
    """Return an integer table of sums around a real table: the root half up, then the children's largest fractions up.

    Integer values stay where the real table adds up.
    """
    near = np.rint(x)
    snapped = np.where(np.abs(x - near) < _SNAP, near, x)
    floors = np.floor(snapped)
    integer_table = floors.astype(np.int64)
    integer_table[0] = np.floor(snapped[0] + 0.5).astype(np.int64)
    for v, below in families(tree):
        missing = integer_table[v] - integer_table[below].sum(axis=0)
        order = np.argsort(floors[below] - snapped[below], axis=0, kind="stable")
        integer_table[below] += np.argsort(order, axis=0, kind="stable") < missing
    return np.asarray(tree.sums(integer_table), dtype=np.int64)


def within(tree: Tree, x: Ints, least: Ints, most: Ints) -> Ints:
    """Return an integer table of sums within bounds (regions,), moved from x as far as they require.

    The bounds of inner regions must lie in reach of the leaves'. Siblings are moved in order.
    """
    low, high = least[:, None], most[:, None]
    x = np.clip(x, low, high)
    for v, below in reversed(families(tree)):
        x[v] = np.clip(x[below].sum(axis=0), low[v], high[v])
    for v, below in families(tree):
        extra = x[v] - x[below].sum(axis=0)
        for child in range(below.start, below.stop):
            step = np.clip(extra, low[child] - x[child], high[child] - x[child])
            x[child] += step
            extra -= step
    return x


def _integer_array(values: ArrayLike, name: str, shape: tuple[int, ...], least: int = -_LARGEST) -> Ints:
    """Return a read-only int64 copy; ``shape`` may leave its last length open with -1."""
    array = as_array(values, name)
    fits = array.ndim == len(shape) and array.shape[0] == shape[0] and array.size > 0
    if not fits or shape[-1] not in (-1, array.shape[-1]) or array.dtype.kind not in "iu":
        expected = " x ".join("cells" if length < 0 else str(length) for length in shape)
        raise ProblemError(f"{name} must be integers of shape {expected}")
    if int(array.min()) < least or int(array.max()) > _LARGEST:
        raise ProblemError(f"{name} must lie between {max(least, -_LARGEST)} and 2^50")
    array = np.array(array, dtype=np.int64)
    array.setflags(write=False)
    return array


def _weights(weights: ArrayLike, tree: Tree) -> Floats:
    values = as_array(weights, "weights")
    if values.shape not in ((), (tree.nodes,)) or values.dtype.kind not in "iuf":
        raise ProblemError(f"weights must be one number, or one for each of the {tree.nodes} regions")
    full = np.array(np.broadcast_to(values, (tree.nodes,)), dtype=np.float64)
    if not np.isfinite(full).all() or (full < 0).any():
        raise ProblemError("weights must be finite and nonnegative")
    full.setflags(write=False)
    return full
