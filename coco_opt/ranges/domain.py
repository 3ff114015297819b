"""An ordered public domain and the tree of intervals over it (Hay et al. 2010, section 4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike

from coco_opt.array_types import Ints
from coco_opt.errors import ProblemError
from coco_opt.privacy import Neighbours, Sensitivity
from coco_opt.problem import MAX_INTEGER
from coco_opt.problems import Tree


@dataclass(frozen=True, eq=False, init=False, slots=True)
class DomainTree:
    """The tree of intervals over ``cells`` ordered cells; all leaves, one a cell, at equal depth.

    Cell c holds the values edges[c] to edges[c + 1] - 1; ``edges`` are integers, int64 (cells + 1,), rising, and
    0..cells where none are given. A domain that is no power of k is padded with public zeros up to the next: intervals
    that hold padding only are exact zeros and left out of ``tree``, so its last nodes may have fewer than k children.
    ``level_start`` int64 (height + 1,): level l (root 0) is level_start[l]:level_start[l + 1]. With ``fan_out`` None
    the tree is its cells alone, under a root that is never measured (the strategy L of the paper).

    ``fan_out`` may also list a fan-out for each level above the cells, the root first (``fan_outs`` always does).
    With ``shares``, one a level, which sum to 1, every level is a query of its own with its share of the budget.
    """

    cells: int
    fan_out: int | tuple[int, ...] | None
    edges: Ints
    shares: tuple[Fraction, ...] | None
    fan_outs: tuple[int, ...]
    tree: Tree
    level_start: Ints

    def __init__(
        self,
        cells: int,
        fan_out: int | Sequence[int] | None = 2,
        edges: ArrayLike | None = None,
        shares: Sequence[Fraction] | None = None,
    ) -> None:
        shape = fan_out if fan_out is None or isinstance(fan_out, int) else tuple(fan_out)
        fan_outs, widths = levels_of(cells, shape)
        starts = np.concatenate([[0], np.cumsum(widths)]).astype(np.int64)
        parents = [np.array([-1])]
        for above, width, k in zip(starts, widths[1:], fan_outs, strict=False):
            parents.append(above + np.arange(width) // k)
        bounds = _edges(cells, edges)
        parts = None if shares is None else tuple(map(Fraction, shares))
        if parts is not None and (shape is None or len(parts) != len(widths) or min(parts) <= 0 or sum(parts) != 1):
            raise ProblemError(f"{len(widths)} levels need as many shares, each above 0, which sum to 1")
        for values in (starts, bounds):
            values.setflags(write=False)
        for name, value in (
            ("cells", cells),
            ("fan_out", shape),
            ("edges", bounds),
            ("shares", parts),
            ("fan_outs", fan_outs),
            ("tree", Tree(np.concatenate(parents))),
            ("level_start", starts),
        ):
            object.__setattr__(self, name, value)

    @property
    def height(self) -> int:
        """Return the number of nodes from a leaf to the root, l in the paper."""
        return self.level_start.size - 1

    @property
    def first_leaf(self) -> int:
        """Return the node of cell 0."""
        return int(self.level_start[-2])

    @property
    def measured_levels(self) -> slice:
        """Return the nodes that are measured: all, or the cells alone."""
        return slice(1 if self.fan_out is None else 0, None)

    @property
    def measured_parts(self) -> tuple[slice, ...]:
        """Return the nodes that each query measures: all in one, or a level each where levels share the budget."""
        if self.shares is None:
            return (self.measured_levels,)
        return tuple(slice(*ends) for ends in pairwise(self.level_start.tolist()))

    @property
    def plain(self) -> bool:
        """Return whether the values are the cells' own numbers, 0..cells - 1."""
        return bool(self.edges[0] == 0 and self.edges[-1] == self.cells)

    def sensitivity(self, neighbours: Neighbours = "add_remove") -> Sensitivity:
        """Return by how much neighbours change all measured counts.

        An entity adds 1 to the node of its cell on every measured level: ``height`` nodes (Proposition 4), or one cell.
        Moved to another cell it changes two paths by 1 each, farthest apart below the root, which keeps its count. As
        every change is by 1, the squared L2 norm equals the L1 norm.
        """
        path = 1 if self.fan_out is None else self.height
        if neighbours == "replace":
            path = max(1, 2 * (1 if self.fan_out is None else self.height - 1))
        return Sensitivity(path, path)

    def sensitivities(self, neighbours: Neighbours = "add_remove") -> tuple[Sensitivity, ...]:
        """Return by how much neighbours change the answers to each query of ``measured_parts``.

        An entity adds 1 to one node of a level; moved, it changes two by 1 each, and at the root none: that counts
        as 1, the least that a sensitivity can be.
        """
        if self.shares is None:
            return (self.sensitivity(neighbours),)
        changed = 2 if neighbours == "replace" else 1
        return tuple(Sensitivity(*(min(changed, max(1, width)),) * 2) for width in np.diff(self.level_start).tolist())

    def spans(self) -> tuple[Ints, Ints]:
        """Return the first cell of every node and the cell behind its last, int64 (nodes,) each."""
        begin, end = np.empty((2, self.tree.nodes), dtype=np.int64)
        begin[self.first_leaf :] = np.arange(self.cells)
        end[self.first_leaf :] = begin[self.first_leaf :] + 1
        children = self.tree.first_child
        for level in range(self.height - 2, -1, -1):
            nodes = slice(int(self.level_start[level]), int(self.level_start[level + 1]))
            begin[nodes] = begin[children[nodes]]
            end[nodes] = end[children[nodes.start + 1 : nodes.stop + 1] - 1]
        return begin, end

    def cells_of(self, values: ArrayLike) -> Ints:
        """Return the cell of each value (k,); -1 for values below the domain and ``cells`` for those above."""
        return np.searchsorted(self.edges, np.asarray(values), side="right").astype(np.int64) - 1

    def between(self, low: int, high: int) -> tuple[int, int]:
        """Return the cells begin:end of the values low to high - 1; ProblemError unless both are edges."""
        cells = np.searchsorted(self.edges, [low, high])
        if (cells > self.cells).any() or (self.edges[cells] != [low, high]).any() or low > high:
            raise ProblemError(f"{low} and {high} must be edges of cells, in order")
        return int(cells[0]), int(cells[1])

    def counts(self, cells: ArrayLike) -> Ints:
        """Return the counts of all nodes (n,) from those of the cells; int64."""
        values = np.asarray(cells)
        if values.shape != (self.cells,) or values.dtype.kind not in "iu":
            raise ProblemError(f"counts must be {self.cells} integers, one for each cell of the domain")
        nodes = np.zeros(self.tree.nodes, dtype=np.int64)
        largest = max(int(values.max()), -int(values.min()))
        if largest > MAX_INTEGER // self.cells and sum(map(abs, values.tolist())) > MAX_INTEGER:
            raise ProblemError("counts must sum to at most 2^53")
        nodes[self.first_leaf :] = values
        total: Ints = self.tree.sums(nodes)
        return total

    def subtrees(self, begin: ArrayLike, end: ArrayLike) -> tuple[list[tuple[Ints, Ints]], Ints]:
        """Write ranges of cells begin:end (k,) as unions of the fewest intervals; O(height) a range.

        Returns, for each level from the leaves up and each of its two sides, the first node and the node behind the
        last one taken (k,), and the number of intervals of each range (k,).
        """
        i, j = self.checked(begin, end)
        pieces: list[tuple[Ints, Ints]] = []
        taken = np.zeros(i.size, dtype=np.int64)
        for level in range(self.height - 1, 0, -1):
            start = self.level_start[level]
            width = int(self.level_start[level + 1] - start)
            k = self.fan_outs[level - 1]
            # An unmeasured root is no interval; padding beyond the last node is public.
            keep = self.fan_out is None
            left = j if keep else np.minimum(-(-i // k) * k, j)
            right = np.maximum(np.where(j == width, j, j // k * k), left)
            pieces += [(start + i, start + left), (start + right, start + j)]
            taken += (left - i) + (j - right)
            empty = left >= right
            i = np.where(empty, 0, -(-left // k))
            j = np.where(empty, 0, -(-right // k))
        if self.fan_out is not None:
            pieces.append((i, j))
            taken += j - i
        return pieces, taken

    def checked(self, begin: ArrayLike, end: ArrayLike) -> tuple[Ints, Ints]:
        """Return ranges as int64 vectors; ProblemError unless 0 <= begin <= end <= cells."""
        i, j = (np.atleast_1d(np.asarray(side)) for side in (begin, end))
        if i.dtype.kind not in "iu" or j.dtype.kind not in "iu" or i.shape != j.shape or i.ndim != 1:
            raise ProblemError("ranges need as many integer begins as ends")
        if (i < 0).any() or (i > j).any() or (j > self.cells).any():
            raise ProblemError(f"ranges must satisfy 0 <= begin <= end <= {self.cells}, the number of cells")
        return i.astype(np.int64), j.astype(np.int64)


def levels_of(cells: int, fan_out: int | tuple[int, ...] | None) -> tuple[tuple[int, ...], list[int]]:
    """Return the fan-outs and the numbers of nodes by level, the root first; ProblemError where no tree has them."""
    fan_outs = _fan_outs(cells, fan_out)
    return fan_outs, _widths(cells, fan_outs)


def shortest_fan_out(cells: int, fan_out: int | tuple[int, ...]) -> int | tuple[int, ...]:
    """Return the normal form of a tree that several fan-outs give, so that its queries are known by one identity.

    The root's fan-out is the number of its children, and a single number stands for a list where both give one tree.
    """
    fan_outs, widths = levels_of(cells, fan_out)
    if len(widths) == 1:
        return 2
    last = fan_outs[-1] if len(widths) > 2 else widths[1]  # without levels between, only the root's children count
    listed = (widths[1], *fan_outs[1:])
    single, by_number = levels_of(cells, last)
    return last if by_number == widths and (widths[1], *single[1:]) == listed else listed


def _fan_outs(cells: int, fan_out: int | tuple[int, ...] | None) -> tuple[int, ...]:
    """Return the fan-out of every level above the cells, the root first; ProblemError for one below 2."""
    listed = fan_out if isinstance(fan_out, tuple) else (2 if fan_out is None else fan_out,)
    if cells < 1 or min(listed, default=2) < 2:
        raise ProblemError("a domain needs at least 1 cell, and a tree a fan-out of at least 2 (or None)")
    if fan_out is None:
        return (max(cells, 2),)
    if isinstance(fan_out, int):
        levels, width = 0, cells
        while width > 1:
            levels, width = levels + 1, -(-width // fan_out)
        return (fan_out,) * levels
    return fan_out


def _widths(cells: int, fan_outs: tuple[int, ...]) -> list[int]:
    """Return the number of nodes of every level, the root first; ProblemError unless that is one node at the root."""
    widths = [cells]
    for fan_out in reversed(fan_outs):
        widths.append(-(-widths[-1] // fan_out))
    if widths[-1] != 1 or 1 in widths[1:-1]:
        raise ProblemError(f"the fan-outs {list(fan_outs)} do not lead from one interval to {cells:,} cells")
    return widths[::-1]


def _edges(cells: int, edges: ArrayLike | None) -> Ints:
    if edges is None:
        return np.arange(cells + 1, dtype=np.int64)
    bounds = np.array(edges)
    if bounds.shape != (cells + 1,) or bounds.dtype.kind not in "iu" or (np.diff(bounds) < 1).any():
        raise ProblemError(f"{cells} cells need {cells + 1} edges: integers, each above the one before")
    return bounds.astype(np.int64)
