"""Trees as flat breadth-first arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coco_opt.array_types import Flags, Floats, Ints
from coco_opt.errors import ProblemError
from coco_opt.problem import as_array


@dataclass(frozen=True, eq=False, init=False, slots=True)
class Tree:
    """A rooted tree of n nodes numbered breadth first: any depth, any fan-out, leaves at any depth.

    Parameters
    ----------
    parent : array_like of int, shape (n,)
        The parent of each node: -1 at the root, otherwise nondecreasing and smaller than the node's own number.

    Attributes
    ----------
    first_child : ndarray of int64, shape (n + 1,)
        The children of node v are ``first_child[v]`` to ``first_child[v + 1] - 1``.

    Raises
    ------
    ProblemError
        ``parent`` is not such an array.

    Notes
    -----
    O(n) time and memory.

    Examples
    --------
    >>> from coco_opt import Tree
    >>> Tree([-1, 0, 0]).sums([0.0, 2.0, 3.0]).tolist()
    [5.0, 2.0, 3.0]
    """

    parent: Ints
    first_child: Ints

    def __init__(self, parent: ArrayLike) -> None:
        array = as_array(parent, "parent")
        if array.ndim != 1 or array.size == 0 or array.dtype.kind not in "iu":
            raise ProblemError("parent must be a vector of integers with at least one node, the root")
        if int(array.max()) >= array.size:
            raise ProblemError("parent must name nodes: every entry is below the number of nodes")
        array = np.array(array, dtype=np.int64)
        below = array[1:]
        number = np.arange(1, array.size)
        if array[0] != -1 or (below < 0).any() or (below >= number).any() or (np.diff(below) < 0).any():
            raise ProblemError("parent must number the nodes breadth first: -1 for node 0, then never falling")
        children = np.bincount(below, minlength=array.size)
        first_child = np.concatenate([[0], np.cumsum(children)]) + 1
        for name, values in (("parent", array), ("first_child", first_child.astype(np.int64))):
            values.setflags(write=False)
            object.__setattr__(self, name, values)

    @classmethod
    def complete(cls, fan_out: int, height: int) -> Tree:
        """Return the complete tree with ``fan_out`` children a node and ``height`` nodes from a leaf to the root."""
        if fan_out < 2 or height < 1:
            raise ProblemError("a complete tree needs a fan-out of at least 2 and a height of at least 1")
        nodes = (fan_out**height - 1) // (fan_out - 1)
        return cls((np.arange(nodes) - 1) // fan_out)

    @property
    def nodes(self) -> int:
        """Return the number of nodes n."""
        return self.parent.size

    @property
    def is_leaf(self) -> Flags:
        """Return which nodes (n,) have no children."""
        return np.equal(self.first_child[1:], self.first_child[:-1])

    @property
    def depth(self) -> Ints:
        """Return the number of nodes above each node (n,); it never falls, as nodes are numbered breadth first."""
        starts, position = [0], 1
        while position < self.nodes:
            starts.append(position)
            position = int(self.first_child[position])
        return np.searchsorted(np.array(starts), np.arange(self.nodes), side="right") - 1

    @property
    def levels(self) -> int:
        """Return the number of nodes on the longest path; the last node lies on the deepest level."""
        return int(self.depth[-1]) + 1

    def sums(self, values: ArrayLike) -> NDArray[Any]:
        """Return values (n,), or (n, cells), with every inner node's replaced by the sum over the leaves below.

        int64 or float64; ProblemError for anything but one number, or one row of numbers, a node. O(n cells).
        """
        from coco_opt.kernels import tree_passes

        array = as_array(values, "values")
        if array.shape[:1] != self.parent.shape or array.ndim > 2 or array.dtype.kind not in "iuf":
            raise ProblemError(f"sums need one number for each of the {self.nodes} nodes")
        total = np.array(array, np.int64 if array.dtype.kind == "i" else np.float64, order="C")
        tree_passes.sums(self.first_child, total.reshape(self.nodes, -1))
        return total

    def sum_rows(self, cells: int = 1) -> Any:
        """Return sparse rows of ``x_v - sum of the children's x``, one for each inner node and cell, as csc_array."""
        from scipy.sparse import csc_array, eye_array, kron

        inner, below = np.flatnonzero(~self.is_leaf), self.parent[1:]
        row = np.zeros(self.nodes, np.int64)
        row[inner] = np.arange(inner.size)
        signs = np.concatenate([np.ones(inner.size), -np.ones(below.size)])
        places = np.concatenate([row[inner], row[below]]), np.concatenate([inner, np.arange(1, self.nodes)])
        rows = csc_array((signs, places), shape=(inner.size, self.nodes))
        return rows if cells == 1 else csc_array(kron(rows, eye_array(cells)))

    def sum_duals(self, rows: Floats, cells: int) -> Floats:
        """Return the duals (n, cells) of ``sum_rows``, which come first among a program's rows; 0 at leaves."""
        inner = np.flatnonzero(~self.is_leaf)
        duals = np.zeros((self.nodes, cells))
        duals[inner] = rows[: inner.size * cells].reshape(inner.size, cells)
        return duals
