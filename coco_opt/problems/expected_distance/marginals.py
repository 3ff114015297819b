"""The distributions of all counts, each by its atoms with integer weights, in compressed rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coco_opt.array_types import Ints
from coco_opt.errors import ProblemError
from coco_opt.problem import MAX_INTEGER, as_array

_BLOCK = 2**22  # atoms that are sorted together


@dataclass(frozen=True, eq=False, init=False)
class Marginals:
    """Random counts X of all cells of all regions: ``Marginals(shape, offsets, atoms, weights)``.

    Parameters
    ----------
    shape : tuple of int
        The numbers of regions and of cells.
    offsets : array_like of int, shape (regions * cells + 1,)
        The values of cell i of region v lie from offsets[c] to offsets[c + 1], c = v * cells + i. A cell without values
        has no cost.
    atoms : array_like of int, shape (m,)
        The values that the counts can take, in groups; rising within a cell.
    weights : array_like of int, shape (m,)
        Positive weights, in proportion to the probabilities.

    Raises
    ------
    ProblemError
        The arrays are not like this.

    Examples
    --------
    >>> from coco_opt import Marginals
    >>> Marginals.from_samples([[[1, 4]], [[2, 4]], [[2, 4]]]).weights.tolist()
    [1, 2, 3]
    """

    shape: tuple[int, int]
    offsets: Ints
    atoms: Ints
    weights: Ints

    def __init__(self, shape: tuple[int, int], offsets: ArrayLike, atoms: ArrayLike, weights: ArrayLike) -> None:
        ends = _integers(offsets, "offsets")
        places, masses = _integers(atoms, "atoms"), _integers(weights, "weights")
        if len(shape) != 2 or min(shape) < 1 or ends.shape != (shape[0] * shape[1] + 1,):
            raise ProblemError("offsets must have one entry more than there are cells, one cell and region at least")
        if ends[0] != 0 or ends[-1] != places.size or (np.diff(ends) < 0).any() or masses.shape != places.shape:
            raise ProblemError("offsets must rise from 0 to the number of atoms, and every atom have a weight")
        if (masses < 1).any() or float(masses.sum(dtype=np.float64)) > MAX_INTEGER:
            raise ProblemError("weights must be positive and add up to at most 2^53")
        falls = np.diff(places) <= 0
        falls[ends[1:-1][(ends[1:-1] > 0) & (ends[1:-1] < places.size)] - 1] = False
        if falls.any():
            raise ProblemError("atoms must rise within every cell")
        object.__setattr__(self, "shape", (int(shape[0]), int(shape[1])))
        for name, values in (("offsets", ends), ("atoms", places), ("weights", masses)):
            values.setflags(write=False)
            object.__setattr__(self, name, values)

    @classmethod
    def from_samples(cls, samples: ArrayLike) -> Self:
        """Return the marginals of integer tables (draws, regions, cells), each of weight 1."""
        draws = as_array(samples, "samples")
        if draws.ndim != 3:
            raise ProblemError(f"samples must be tables of shape draws x regions x cells, not {draws.shape}")
        return cls.from_points(np.moveaxis(draws, 0, -1))

    @classmethod
    def from_points(cls, points: ArrayLike, weights: ArrayLike = 1) -> Self:
        """Return marginals by points (regions, cells, points), quantiles for instance, in any order.

        weights: one integer, one a point (points,) or one for each of all; 0 leaves a point out.
        """
        places = as_array(points, "points")
        if places.ndim != 3 or 0 in places.shape or places.dtype.kind not in "iu":
            raise ProblemError("points must be integers of shape regions x cells x points, none of them 0")
        masses = as_array(weights, "weights")
        if masses.dtype.kind not in "iu" or masses.shape not in ((), places.shape[2:], places.shape):
            raise ProblemError("weights must be one integer, one a point, or one for each point of each cell")
        if (masses < 0).any():
            raise ProblemError("weights must not be negative")
        regions, cells, size = places.shape
        width = max(1, _BLOCK // (cells * size))
        parts = []
        for begin in range(0, regions, width):
            rows = places[begin : begin + width].reshape(-1, size)
            mass = masses[begin : begin + width].reshape(-1, size) if masses.ndim == 3 else masses
            parts.append(_distinct(rows, mass))
        counts, atoms, atom_weights = (np.concatenate(part) for part in zip(*parts, strict=True))
        return cls((regions, cells), np.append(0, np.cumsum(counts)), atoms, atom_weights)

    @property
    def cell_of(self) -> Ints:
        """Return the number of each atom's cell (m,)."""
        return np.repeat(np.arange(self.offsets.size - 1), np.diff(self.offsets))

    @property
    def totals(self) -> Ints:
        """Return the sum of weights of each cell (regions * cells,)."""
        running = np.append(0, np.cumsum(self.weights))
        totals: Ints = np.diff(running[self.offsets])
        return totals


def _distinct(rows: NDArray[Any], mass: NDArray[Any]) -> tuple[Ints, Ints, Ints]:
    """Return the number of distinct points of each row (rows,), the points in order and their weights (m,).

    mass: () or (points,) or one for each point of each row.
    """
    if mass.ndim == 0:
        points, masses = np.sort(rows, axis=1), np.broadcast_to(mass, rows.shape)
    else:
        order = np.argsort(rows, axis=1, kind="stable")
        points = np.take_along_axis(rows, order, axis=1)
        masses = np.take_along_axis(np.broadcast_to(mass, rows.shape), order, axis=1)
    positive = masses > 0
    row = np.broadcast_to(np.arange(len(rows))[:, None], rows.shape)[positive]
    points, masses = points[positive], masses[positive]
    new = np.append(True, (np.diff(row) > 0) | (points[1:] != points[:-1]))[: row.size]
    starts = np.flatnonzero(new)
    weights = np.add.reduceat(masses, starts, dtype=np.int64) if starts.size else masses.astype(np.int64)
    return np.bincount(row[starts], minlength=len(rows)), points[starts].astype(np.int64), weights


def _integers(values: ArrayLike, name: str) -> Ints:
    array = as_array(values, name)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise ProblemError(f"{name} must be a vector of integers")
    if array.size and max(int(array.max()), -int(array.min())) > MAX_INTEGER:
        raise ProblemError(f"{name} must not exceed 2^53 in magnitude")
    return np.array(array, dtype=np.int64)
