"""The data of expected distance, checked, and the costs in integer parts that kernels count in."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coco_opt.array_types import Floats, Ints
from coco_opt.errors import ProblemError
from coco_opt.problems.expected_distance.marginals import Marginals
from coco_opt.problems.joint.data import checked_groups
from coco_opt.problems.tree import Tree

if TYPE_CHECKING:
    from coco_opt.kernels.expected_distance_rows import Costs, Shape

_LARGEST = 2**61  # sums of costs and prices over a table stay below it
_FINEST = 2**16  # parts of a weight in which prices are counted


@dataclass(frozen=True, eq=False, init=False)
class DistanceData:
    """Tree, groups and marginals: ``DistanceData(tree, groups, marginals, total=)``, as in ``ExpectedDistance``."""

    tree: Tree
    groups: Ints
    marginals: Marginals
    total: int
    fineness: int
    """Parts of a unit of weight, a power of 2, in which costs and prices are counted: ``grain`` of them are 1 group."""

    def __init__(
        self, tree: Tree | ArrayLike, groups: ArrayLike, marginals: Marginals, *, total: int | None = None
    ) -> None:
        shape = tree if isinstance(tree, Tree) else Tree(tree)
        counts = checked_groups(groups, shape)
        if marginals.shape[0] != shape.nodes:
            raise ProblemError(f"marginals must have one row for each of the {shape.nodes} regions")
        counts.setflags(write=False)
        heaviest = int(marginals.totals.max(initial=0))
        if total is not None and not 1 <= total <= 2**53:
            raise ProblemError("total must be an integer between 1 and 2^53")
        fields = (("tree", shape), ("groups", counts), ("marginals", marginals), ("total", total or max(heaviest, 1)))
        for name, value in fields:
            object.__setattr__(self, name, value)
        steep = heaviest * self._levels
        largest = (2 * steep + heaviest) * self._levels * marginals.shape[1] * int(counts[0])
        if largest > _LARGEST:
            raise ProblemError("weights times groups times cells are too large: their sums would pass 2^61")
        fineness = _FINEST
        while largest * fineness > _LARGEST:
            fineness //= 2
        object.__setattr__(self, "fineness", fineness)

    @property
    def _levels(self) -> int:
        """The number of regions on the longest path; the last region lies on the deepest level."""
        levels, v = 1, self.tree.nodes - 1
        while v > 0:
            v, levels = int(self.tree.parent[v]), levels + 1
        return levels

    @cached_property
    def _steepest(self) -> int:
        """What no price has to pass, in parts: the slopes of all costs on a path."""
        return int(self.marginals.totals.max()) * self._levels * self.fineness

    @property
    def grain(self) -> int:
        """Return the number of parts, in which kernels count costs and prices, of an objective of 1."""
        return self.total * self.fineness

    @cached_property
    def shape(self) -> Shape:
        """The tree and the bounds, for kernels."""
        from coco_opt.kernels.expected_distance_rows import Shape

        return Shape(self.tree.parent, self.tree.first_child, self.groups)

    @cached_property
    def costs(self) -> Costs:
        """The costs, for kernels: in parts, atoms beyond a region's bounds left out."""
        from coco_opt.kernels.expected_distance_rows import Costs

        marginals, cells = self.marginals, self.marginals.shape[1]
        cell, size = marginals.cell_of, marginals.offsets.size - 1
        inside = (marginals.atoms > 0) & (marginals.atoms < self.groups[cell // cells])
        passed = np.append(0, np.cumsum(marginals.weights))
        totals = marginals.totals
        below = np.bincount(cell, np.where(marginals.atoms <= 0, marginals.weights, 0), size).astype(np.int64)
        slopes = 2 * (passed[1:] - passed[marginals.offsets[cell]]) - totals[cell]
        return Costs(
            np.append(0, np.cumsum(np.bincount(cell[inside], minlength=size))),
            marginals.atoms[inside],
            slopes[inside] * self.fineness,
            (2 * below - totals) * self.fineness,
        )

    @cached_property
    def at_zero(self) -> int:
        """The objective where all counts are 0, in parts."""
        atoms, weights = np.abs(self.marginals.atoms), self.marginals.weights
        if float(atoms.astype(np.float64) @ weights) < _LARGEST:
            return self.fineness * int(atoms @ weights)
        return self.fineness * int(sum(a * w for a, w in zip(atoms.tolist(), weights.tolist(), strict=True)))

    def parts(self, x: Ints) -> int:
        """Return the objective of integer x within bounds in parts (``grain``), exactly."""
        from coco_opt.kernels import expected_distance_rows

        rows = np.empty(self.tree.nodes, np.int64)
        expected_distance_rows.costs_of_rows(self.costs, np.ascontiguousarray(x, dtype=np.int64), rows)
        return self.at_zero + int(sum(rows.tolist()))

    def limited(self, prices: NDArray[Any]) -> Ints:
        """Return prices in parts rounded to integers, within what no sum can pass, and 0 at leaves."""
        integers: Ints = np.rint(np.clip(prices, -self._steepest, self._steepest)).astype(np.int64)
        integers[self.tree.is_leaf] = 0
        return integers

    def in_parts(self, multipliers: Floats) -> Ints:
        """Return prices, in groups, in parts: 0 for what is no number, and zeros for a wrong shape."""
        prices = np.asarray(multipliers, dtype=np.float64)
        if prices.shape != self.marginals.shape:
            prices = np.zeros(self.marginals.shape)
        return self.limited(np.where(np.isfinite(prices), prices, 0.0) * self.grain)
