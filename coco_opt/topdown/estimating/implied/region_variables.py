"""The counts of classes of cells in every region as variables of one program, and the rows that bind them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from coco_opt.array_types import Floats, Ints
from coco_opt.topdown.feasibility.system import ConstraintSystem, infinite

if TYPE_CHECKING:
    from scipy.sparse import csr_array


@dataclass(frozen=True, eq=False, slots=True)
class RegionVariables:
    """The counts of all classes in every region as variables: the leaves' first, then those of the levels above.

    A query of a large region is a row of few variables then. As a row of all its leaves it would join these to one
    another, and a factorisation would fill up.
    """

    system: ConstraintSystem

    @property
    def starts(self) -> Ints:
        """Return the first variable of each level, and their number, int64[levels + 1]; the leaves' level is first."""
        hierarchy, count = self.system.hierarchy, self.system.classes.count
        sizes = [len(hierarchy.level_range(level)) * count for level in range(hierarchy.levels - 1, -1, -1)]
        return np.cumsum([0, *sizes])

    def first(self, level: int) -> int:
        """Return the first variable of a level."""
        return int(self.starts[self.system.hierarchy.levels - 1 - level])

    def sums(self, leaves: Floats) -> Floats:
        """Return all variables from those of the leaves [leaves, classes]."""
        levels = range(self.system.hierarchy.levels - 1, -1, -1)
        return np.concatenate([self.system.sums(leaves, level).reshape(-1) for level in levels])

    @property
    def adding_up(self) -> csr_array:
        """Return the rows that are 0 where every region's counts are the sums of its children's."""
        from scipy.sparse import csr_array, eye_array, kron

        hierarchy, size, blocks = self.system.hierarchy, int(self.starts[-1]), []
        classes = eye_array(self.system.classes.count, format="csr")
        for level in range(hierarchy.levels - 1):
            regions, below = hierarchy.level_range(level), hierarchy.level_range(level + 1)
            starts = hierarchy.first_child[regions.start : regions.stop + 1] - below.start
            sums = csr_array((np.ones(len(below)), np.arange(len(below)), starts), shape=(len(regions), len(below)))
            own = eye_array(len(regions) * self.system.classes.count, format="csr")
            children = _placed(csr_array(kron(sums, classes, format="csr")), self.first(level + 1), size)
            blocks.append(_placed(csr_array(own), self.first(level), size) - children)
        return _stacked(blocks, size)

    def matrix(self, pairs: Sequence[tuple[int, Ints]]) -> tuple[csr_array, Floats, Floats]:
        """Return rows of some (row, regions) over the variables, with infinite sides for none."""
        from scipy.sparse import csr_array, kron

        size, blocks, lows, highs = int(self.starts[-1]), [], [np.zeros(0)], [np.zeros(0)]
        for at, regions in pairs:
            row = self.system.rows[at]
            count = len(self.system.hierarchy.level_range(row.level))
            ones, places = np.ones(regions.size), np.arange(regions.size + 1)
            chosen = csr_array((ones, regions, places), shape=(regions.size, count))
            own = csr_array(kron(chosen, csr_array(row.coefficients[None, :].astype(np.float64)), format="csr"))
            blocks.append(_placed(own, self.first(row.level), size))
            lows.append(infinite(row.lower[regions]))
            highs.append(infinite(row.upper[regions]))
        return _stacked(blocks, size), np.concatenate(lows), np.concatenate(highs)

    def of_regions(self, level: int, weights: Floats) -> csr_array:
        """Return sums of classes [parts, classes] in every region of a level as rows over the variables."""
        from scipy.sparse import csr_array, eye_array, kron

        regions = len(self.system.hierarchy.level_range(level))
        rows = csr_array(kron(eye_array(regions), csr_array(weights), format="csr"))
        return _placed(rows, self.first(level), int(self.starts[-1]))


def _placed(matrix: csr_array, first: int, columns: int) -> csr_array:
    """Return the matrix with its columns moved to begin at ``first`` of so many."""
    from scipy.sparse import csr_array

    shape = (matrix.shape[0], columns)
    return csr_array((matrix.data, matrix.indices.astype(np.int64) + first, matrix.indptr), shape=shape)


def _stacked(blocks: Sequence[csr_array], columns: int) -> csr_array:
    from scipy.sparse import csr_array, vstack

    return csr_array(vstack(blocks, format="csr")) if blocks else csr_array((0, columns))


def binding_rows(matrix: csr_array, low: Floats, high: Floats, most: Floats) -> tuple[csr_array, Floats, Floats]:
    """Return the rows that a box 0 <= u <= most does not imply."""
    from scipy.sparse import csr_array

    positive, negative = matrix.maximum(0), (-matrix).maximum(0)
    endless = ~np.isfinite(most)
    finite = np.where(endless, 0.0, most)
    free = endless.astype(np.float64)
    largest = np.where(positive @ free > 0, np.inf, positive @ finite)
    smallest = np.where(negative @ free > 0, -np.inf, -(negative @ finite))
    binding = np.flatnonzero((largest > high) | (smallest < low))
    return csr_array(matrix[binding]), low[binding], high[binding]
