"""The binary tree over a domain's cells, what was measured of its nodes, and the grids of their counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from coco_opt.array_types import Floats, Ints
from coco_opt.problems import Tree, TreeLeastSquares
from coco_opt.problems.tree import TreePosterior
from coco_opt.ranges.interval_counts import IntervalCounts, Precision

if TYPE_CHECKING:
    from coco_opt.kernels.posterior_splits import Nodes


_POINTS = 64  # of a grid: between them messages are interpolated
_DEVIATIONS = 9.0  # of the least squares estimate that a grid reaches to both sides
_FROM_ZERO = 14.0  # deviations up to which a grid begins at 0: where most counts are 0, noise so large occurs
_MARGIN = 3  # counts more to both sides
_BELOW = 3.0  # deviations above 0 that a grid reaches in any case


@dataclass(frozen=True, eq=False, slots=True)
class BinaryTree:
    """A binary tree whose leaves are the cells and whose nodes include all intervals of a domain.

    ``first_child`` int64[nodes + 1] as in ``Tree``; ``cells`` int64[nodes] is the number of cells below a node,
    ``of_interval`` int64[intervals] the node that counts the same cells as an interval of the domain, and ``leaves``
    int64[cells] that of each cell.
    """

    tree: Tree
    cells: Ints
    of_interval: Ints
    leaves: Ints

    @classmethod
    def of(cls, first_child: Ints) -> BinaryTree:
        """Halve the children of every interval until each node has two children or none; O(intervals)."""
        low, high = np.zeros(1, np.int64), np.ones(1, np.int64)
        ids = np.zeros(1, np.int64)
        of_interval = np.full(first_child.size - 1, -1, np.int64)
        parents = [np.array([-1])]
        nodes = 1
        while ids.size:
            low, high = _opened(first_child, low, high, ids, of_interval)
            inner = high > low
            low, high, ids = low[inner], high[inner], ids[inner]
            middle = low + (high - low + 1) // 2
            low, high = np.stack([low, middle], 1).ravel(), np.stack([middle, high], 1).ravel()
            parents.append(np.repeat(ids, 2))
            ids = nodes + np.arange(low.size)
            nodes += low.size
        tree = Tree(np.concatenate(parents))
        leaves = of_interval[first_child[:-1] == first_child[1:]]
        cells = np.zeros(nodes, np.int64)
        cells[leaves] = 1
        return cls(tree, tree.sums(cells), of_interval, leaves)


def _opened(first_child: Ints, low: Ints, high: Ints, ids: Ints, of_interval: Ints) -> tuple[Ints, Ints]:
    """Return the children low:high of each node, more than one or none; note which intervals each node is."""
    low, high = low.copy(), high.copy()
    single = np.flatnonzero(high - low == 1)
    while single.size:
        interval = low[single]
        of_interval[interval] = ids[single]
        low[single], high[single] = first_child[interval], first_child[interval + 1]
        single = single[high[single] - low[single] == 1]
    return low, high


@dataclass(frozen=True, eq=False, slots=True)
class Layout:
    """The grids of all nodes' counts with their likelihood, each grid's largest value being 1; chains only read it.

    ``width`` int64[nodes] is the class of a node by its number of cells, ``shapes`` float64[shapes] are the shares of
    left children and ``shape`` int64[nodes] which one a node has. ``kinds`` int64[kinds, 2] are the pairs of both that
    occur.
    """

    binary: BinaryTree
    nodes: Nodes
    width: Ints
    likelihood: NDArray[np.float32]
    shapes: Floats
    shape: Ints
    kinds: Ints

    @classmethod
    def of(cls, counts: IntervalCounts) -> Layout:
        """Lay out the answers of a measurement."""
        from coco_opt.kernels.posterior_splits import Nodes

        binary = BinaryTree.of(counts.domain.tree.first_child)
        spread = Precision(counts.domain, counts.distribution).counts
        base, step, size = _grids(binary, counts.values, spread)
        offset = np.concatenate([[0], np.cumsum(size)]).astype(np.int64)
        first = binary.tree.first_child
        left = np.where(first[1:] > first[:-1], first[:-1], -1)
        width = np.maximum(np.rint(np.log2(binary.cells)).astype(np.int64) - 1, 0)
        share = np.full(left.size, 0.5)
        inner = left >= 0
        share[inner] = binary.cells[left[inner]] / binary.cells[inner]
        shapes, shape = np.unique(np.round(share, 2), return_inverse=True)
        kinds, kind = np.unique(np.stack([width, shape], 1), axis=0, return_inverse=True)
        nodes = Nodes(left, base, step, size, offset[:-1], kind.astype(np.int64).ravel(), shapes[shape])
        likelihood = _likelihood(counts, binary, nodes, int(offset[-1]))
        return cls(binary, nodes, width, likelihood, shapes, shape.astype(np.int64), kinds)


def _grids(binary: BinaryTree, values: Ints, spread: Floats) -> tuple[Ints, Ints, Ints]:
    """Return base, step and size of every node's grid: as wide as least squares is unsure, and nonnegative."""
    weight = np.zeros(binary.cells.size)
    np.add.at(weight, binary.of_interval, 1.0 / spread)
    sums = np.zeros_like(weight)
    np.add.at(sums, binary.of_interval, values / spread)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean, variance = np.where(weight > 0, sums / weight, 0.0), 1.0 / weight
    posterior = TreePosterior.of(TreeLeastSquares(binary.tree, mean, variance))
    deviation = np.sqrt(posterior.variance)
    estimate = posterior.estimate
    low = np.where(estimate < _FROM_ZERO * deviation, 0.0, np.floor(estimate - _DEVIATIONS * deviation) - _MARGIN)
    low = np.maximum(low, 0.0).astype(np.int64)
    high = np.maximum(estimate + _DEVIATIONS * deviation, _BELOW * deviation) + _MARGIN
    high = np.maximum(np.ceil(high).astype(np.int64), low + _MARGIN)
    # Steps are powers of two: the least with which a grid has few enough points.
    step = 2 ** np.maximum(np.ceil(np.log2((high - low) / (_POINTS - 1))), 0.0).astype(np.int64)
    size = -((low - high) // step) + 1
    return low, step, size


def _likelihood(counts: IntervalCounts, binary: BinaryTree, nodes: Nodes, entries: int) -> NDArray[np.float32]:
    """Return the likelihood at every point of every grid; the largest of a grid is 1."""
    owner = np.repeat(np.arange(nodes.size.size), nodes.size)
    points = nodes.base[owner] + (np.arange(entries) - nodes.offset[owner]) * nodes.step[owner]
    log = np.zeros(entries)
    noise = counts.distribution if isinstance(counts.distribution, tuple) else (counts.distribution,)
    for part, distribution in zip(counts.domain.measured_parts, noise, strict=True):
        intervals = np.arange(counts.values.size)[part]
        measured = binary.of_interval[intervals]
        sizes = nodes.size[measured]
        ends = np.cumsum(sizes)
        entry = np.arange(int(ends[-1])) + np.repeat(nodes.offset[measured] - ends + sizes, sizes)
        np.add.at(log, entry, distribution.log_weight(points[entry] - np.repeat(counts.values[intervals], sizes)))
    log -= np.repeat(np.maximum.reduceat(log, nodes.offset), nodes.size)
    return np.exp(log).astype(np.float32)
