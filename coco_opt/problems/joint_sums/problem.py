"""Joint estimation from sums: consistent cumulative tables nearest to noisy sums over buckets, in one convex program.

Given a tree of regions, public numbers of groups G_v, cells c of widths n_c, and for each region a partition of its
cells into buckets B of consecutive cells, whose sums have the noisy measurements y_v[B]::

    minimise  sum_v w_v sum_B |sum_{c in B} n_c x_v[c] - y_v[B]|^p
    subject to  x_v nondecreasing in c,  0 <= x_v <= G_v,  x_parent = sum of the children's x in every cell.

It is ``coco_opt.problems.joint`` with the queries' linear map in it. A cell stands for n_c single sizes that no
region distinguishes: replacing the values of all regions in them by their means keeps order, bounds, tree and every
sum, so some optimum of the program over single sizes is constant there. Where widths are 1 and every cell is a bucket,
both problems are one; of one region it is isotonic regression of the buckets' means, weighed by the buckets' widths for
p = 1 and by their squares for p = 2.

Multipliers are a price s for each measurement, |s| <= w_v for p = 1, and 0 where w_v = 0; a cell's price is n_c times
that of its bucket. With these the certified gaps are those of ``coco_opt.problems.joint.problem``, of losses by bucket.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coco_opt.array_types import Flags, Floats, Ints
from coco_opt.errors import ProblemError
from coco_opt.problem import as_array, at_most_one
from coco_opt.problems.joint.data import checked_groups, checked_table, checked_weights
from coco_opt.problems.joint.tables import CumulativeTables
from coco_opt.problems.tree.data import Tree


@dataclass(frozen=True, eq=False, init=False)
class JointSums(CumulativeTables):
    """Base of both losses: data, constraints and certificate.

    tree: a Tree or its parent array (regions,); y (regions, cells): the measurement of a bucket stands at the cell
    where it begins, other entries are not read; begins (regions, cells): whether a bucket of the region begins there,
    always true of the first; groups (regions,) integer, a parent's being the sum of its children's; weights (regions,)
    or one number, nonnegative; widths (cells,) integer, at least 1. Values are float64 (regions, cells). Raises
    ProblemError for anything else.
    """

    begins: Flags
    widths: Ints

    def __init__(
        self,
        tree: Tree | ArrayLike,
        y: ArrayLike,
        begins: ArrayLike,
        groups: ArrayLike,
        weights: ArrayLike = 1.0,
        widths: ArrayLike = 1,
    ) -> None:
        shape = tree if isinstance(tree, Tree) else Tree(tree)
        table = checked_table(y, shape)
        self._store(
            shape,
            y=table,
            begins=_checked_begins(begins, table.shape),
            groups=checked_groups(groups, shape),
            weights=checked_weights(weights, shape),
            widths=_checked_widths(widths, table.shape[1]),
        )

    @classmethod
    def examples(cls) -> Mapping[str, Self]:
        """Return one region, unlike buckets of parents and children, single cells, unmeasured regions, large counts."""
        tree = [-1, 0, 0, 1, 1, 2]
        rows = np.array([[3, 9, 8, 15], [5, 4, 4, 9], [2, 10, 7, 6], [-1, 2, 5, 4], [4, 3, 2, 5], [8, 1, 8, 7]])
        begins = np.array([[1, 1, 1, 1], [1, 0, 1, 1], [1, 1, 0, 1], [1, 0, 0, 1], [1, 0, 1, 0], [1, 0, 0, 0]], bool)
        groups = [16, 9, 7, 4, 5, 7]
        return {
            "tiny": cls([-1, 0], [[2, 1], [4, 0]], [[1, 1], [1, 0]], [3, 3]),
            "one-region": cls([-1], [[-1, 9, 0, 7, 12]], [[1, 1, 0, 1, 1]], [9], widths=[1, 2, 1, 3, 1]),
            "one-bucket": cls([-1, 0, 0], [[40], [11], [29]], np.ones((3, 1)), [12, 4, 8], [1.0, 0.5, 2.0], [5]),
            "no-groups": cls([-1, 0], [[2, -1], [1, 0]], [[1, 1], [1, 0]], [0, 0]),
            "cells": cls(tree, rows, np.ones((6, 4)), groups),
            "levels": cls(tree, rows, begins, groups, widths=[1, 1, 2, 3]),
            "half-measured": cls(tree, rows, begins, groups, [1.0, 0.0, 0.5, 2.0, 0.0, 0.0], [1, 1, 2, 3]),
            "large-counts": cls(tree, 10**5 * rows, begins, 10**5 * np.array(groups), widths=[1, 1, 2, 3]),
        }

    @property
    def starts(self) -> Ints:
        """Return where the buckets of all regions begin among all cells, region by region, int64[answers]."""
        return np.flatnonzero(self.begins)

    @property
    def answers(self) -> Floats:
        """Return the answers of all regions one after the other, float64[answers]."""
        noisy: Floats = self.y[self.begins]
        return noisy

    @property
    def answer_weights(self) -> Floats:
        """Return the weight of every answer, float64[answers]."""
        return np.repeat(self.weights, self.begins.sum(axis=1))

    @property
    def scale(self) -> float:
        """Return the largest magnitude in the data, at least 1."""
        return max(1.0, float(np.abs(self.answers).max(initial=0.0)), float(self.groups.max()))

    @cached_property
    def objective_scale(self) -> float:
        """Return the loss of residuals as large as ``scale`` in all answers, at most 1."""
        return at_most_one(float(self.answer_losses(np.full(self.starts.size, self.scale)).sum()))

    def bucket_sums(self, x: NDArray[Any]) -> Floats:
        """Return the true answers to the queries on a table (regions, cells), float64[answers]."""
        return np.asarray(np.add.reduceat((x * self.widths).ravel(), self.starts), np.float64)

    def cell_prices(self, prices: Floats) -> Floats:
        """Return the price of every cell (regions, cells) from those of the answers."""
        lengths = np.diff(self.starts, append=self.y.size)
        return np.repeat(prices, lengths).reshape(self.y.shape) * self.widths

    def residuals(self, x: NDArray[Any]) -> Floats:
        """Return sum less answer for every answer, float64[answers]."""
        return self.bucket_sums(x) - self.answers

    def nearest_rows(self, table: Floats) -> Floats:
        """Return the nearest nondecreasing rows within each region's bounds, cells weighed by their widths."""
        from coco_opt.kernels import joint_rounds

        near, top = np.empty(table.shape), self.groups.astype(np.float64)
        widths, toward = self.widths.astype(np.float64), np.zeros(len(table))
        joint_rounds.monotone(table, table, toward, widths, top, 0, len(table), near)
        return near

    def multipliers(self, x: NDArray[Any]) -> Floats:
        """Rebuild prices from x: the losses' slopes, 0 at a kink. Exact for an optimal x if p = 2."""
        return self.slopes(self.residuals(np.asarray(x, dtype=np.float64)))

    def admissible(self, multipliers: Floats) -> Floats:
        """Return the nearest valid prices; zeros for a wrong shape."""
        prices = np.asarray(multipliers, dtype=np.float64)
        if prices.shape != (int(self.begins.sum()),):
            return np.zeros(int(self.begins.sum()))
        return self.limited(np.where(np.isfinite(prices), prices, 0.0))

    def tightened(self, prices: Floats) -> Floats:
        """Return prices in which leaves measured in every cell have the best prices for those above.

        The best prices of a leaf's wider buckets have no closed form: these prices stay as they are.
        """
        from coco_opt.kernels.arrays import read_only
        from coco_opt.kernels.joint_certificate import Measured

        leaves = np.flatnonzero(self.tree.is_leaf & (self.weights > 0.0) & self.begins.all(axis=1))
        if not leaves.size:
            return prices
        cells, widths = self.cell_prices(self.limited(prices)), self.widths.astype(np.float64)
        kernel, scale = self._tightening
        none, gaps = np.zeros((0, widths.size)), np.zeros(self.tree.nodes)
        measured = Measured(self.tree.parent, read_only(self.y / widths), self.weights, self.groups.astype(np.float64))
        kernel(measured, leaves, scale, cells, none, gaps)
        return self.limited((cells / widths)[self.begins])

    def gap(self, x: NDArray[Any], multipliers: Floats) -> float:
        """Return the certified gap: what losses and leaves' rows are above the least that the prices allow."""
        from coco_opt.kernels import joint_certificate

        values, prices = np.asarray(x, dtype=np.float64), self.limited(multipliers)
        cells, leaves = self.cell_prices(prices), np.flatnonzero(self.tree.is_leaf)
        paths = joint_certificate.path_sums(self.tree.parent, leaves, cells) + cells[leaves]
        order = joint_certificate.leaves_gap(values[leaves], paths, self.groups[leaves].astype(np.float64))
        return self.loss_gap(self.residuals(values), prices) + float(order)

    @property
    def resolution(self) -> float:
        """Return what the rounding of suffix sums of prices costs: each is off by their digits, all groups pay."""
        eps, depth = float(np.finfo(np.float64).eps), 1 + int(np.log2(self.tree.nodes))
        price = float(np.abs(self.slopes(np.ones(self.starts.size))).max(initial=0.0))
        return float(eps * self.widths.sum() * depth * price * float(self.groups[0]))

    def losses(self, x: NDArray[Any]) -> Floats:
        """Return each region's weighted loss (regions,)."""
        each = self.answer_losses(self.residuals(np.asarray(x, np.float64)))
        region = np.repeat(np.arange(self.tree.nodes), self.begins.sum(axis=1))
        return np.asarray(np.bincount(region, each, self.tree.nodes), np.float64)

    @property
    @abstractmethod
    def _tightening(self) -> tuple[Callable[..., None], Floats]:
        """Return the kernel of ``tightened``, and a cell's weight relative to a single size (cells,)."""

    @abstractmethod
    def answer_losses(self, residual: Floats) -> Floats:
        """Return the weighted loss of every answer [answers]."""

    @abstractmethod
    def slopes(self, residual: Floats) -> Floats:
        """Return the losses' derivatives at residuals [answers]."""

    @abstractmethod
    def limited(self, prices: Floats) -> Floats:
        """Return the valid prices [answers] that are nearest, in a copy."""

    @abstractmethod
    def loss_gap(self, residual: Floats, prices: Floats) -> float:
        """Return the sum over all answers of loss + conjugate - price times residual, each nonnegative."""

    @abstractmethod
    def shifts(self, residual: Floats, spans: Floats, penalty: Floats) -> Floats:
        """Return t [answers] least in loss(residual + span t) + penalty span t^2 / 2, spans being sums of widths."""


def _checked_begins(begins: ArrayLike, shape: tuple[int, ...]) -> Flags:
    array = as_array(begins, "begins")
    if array.shape != shape or array.dtype.kind not in "biuf" or not np.isin(array, (0, 1)).all():
        raise ProblemError("begins must be 0 or 1 for every region and cell: whether a bucket begins there")
    marks = array.astype(np.bool_)
    if not marks[:, 0].all():
        raise ProblemError("a bucket must begin at the first cell of every region")
    return marks


def _checked_widths(widths: ArrayLike, cells: int) -> Ints:
    array = as_array(widths, "widths")
    if array.shape not in ((), (cells,)) or array.dtype.kind not in "iu" or (array < 1).any():
        raise ProblemError(f"widths must be integers of at least 1, one for each of the {cells} cells")
    return np.array(np.broadcast_to(array, (cells,)), np.int64)
