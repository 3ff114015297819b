"""Linear maps from the cells of a table to the answers of queries, applied to many tables together without matrices.

Arrays hold tables in their last axis: ``apply`` maps [..., cells] to [..., answers], ``adjoint`` back. ``identity`` and
``total`` are the cells and their sum, ``Grouping`` any sums over groups of cells, and ``stack`` puts maps one below the
other:

>>> import numpy as np
>>> from coco_opt.operators import Grouping, stack, total
>>> by_sex = Grouping(np.array([0, 0, 1, 1]), 2)
>>> stack([total(4), by_sex]).apply(np.array([90, 210, 95, 190])).tolist()
[585, 300, 285]
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coco_opt.array_types import Floats, Ints, has_masked
from coco_opt.errors import ProblemError

if TYPE_CHECKING:
    from scipy.sparse import csr_array


_ROWS = 512  # of a map that are dense at a time, each a table


class Operator(ABC):
    """A linear map from ``cells`` numbers to ``answers`` numbers."""

    cells: int
    answers: int

    @abstractmethod
    def apply(self, x: NDArray[Any]) -> NDArray[Any]:
        """Return the answers [..., answers] of tables [..., cells]; integers stay integers."""

    @abstractmethod
    def adjoint(self, y: NDArray[Any]) -> NDArray[Any]:
        """Return the transposed map's values [..., cells] of [..., answers]."""

    @abstractmethod
    def to_sparse(self) -> csr_array:
        """Return the matrix (answers, cells), for solvers that need it."""

    @abstractmethod
    def restrict(self, cells: Ints) -> Operator:
        """Return the map on tables of these cells alone; all others count as zero."""

    @property
    @abstractmethod
    def absolute_columns(self) -> Floats:
        """Return the sum of absolute entries of each column: what one person in a cell changes (L1)."""

    @property
    @abstractmethod
    def squared_columns(self) -> Floats:
        """Return the sum of squared entries of each column: what one person in a cell changes (L2, squared)."""


@dataclass(frozen=True, eq=False, slots=True)
class Grouping(Operator):
    """Sums over groups of cells: cell c counts in answer ``labels[c]``, or in none where that is -1.

    ``labels`` int64[cells], ``answers`` their number; ``is_identity`` where the answers are the cells. Marginals and
    groupings of attributes are of this kind.
    """

    labels: Ints
    answers: int
    cells: int = field(init=False)
    _matrices: dict[bool, csr_array] = field(init=False, repr=False, default_factory=dict)
    is_identity: bool = field(init=False, repr=False)

    def __post_init__(self) -> None:
        labels = _indices(self.labels, "labels")
        if labels.size and not -1 <= int(labels.min()) <= int(labels.max()) < self.answers:
            raise ProblemError(f"labels must be from -1 to {self.answers - 1}")
        object.__setattr__(self, "labels", labels)
        object.__setattr__(self, "cells", labels.size)
        same = labels.size == self.answers and np.array_equal(labels, np.arange(self.answers))
        object.__setattr__(self, "is_identity", same)

    def __reduce__(self) -> tuple[Callable[..., Grouping], tuple[Any, ...]]:
        # Unpickled arrays are writable: going through the constructor makes them read-only again.
        return Grouping, (self.labels, self.answers)

    def apply(self, x: NDArray[Any]) -> NDArray[Any]:
        """Return the group sums [..., answers], added in the order of the cells; O(cells) a table."""
        if self.is_identity:
            return x.copy()
        integral = x.dtype.kind in "iu"
        # A compressed matrix of ones adds 5 to 10 times faster than np.add.at, and int64 stays int64.
        if integral not in self._matrices:
            self._matrices[integral] = self._matrix(np.dtype(np.int64 if integral else np.float64))
        flat = x.reshape(prod(x.shape[:-1]), self.cells)
        return np.ascontiguousarray((self._matrices[integral] @ flat.T).T).reshape(*x.shape[:-1], self.answers)

    def adjoint(self, y: NDArray[Any]) -> NDArray[Any]:
        """Return every cell's answer [..., cells], 0 where it counts in none."""
        if self.answers == 0:
            return np.zeros((*y.shape[:-1], self.cells), y.dtype)
        out: NDArray[Any] = np.take(y, self.labels, axis=-1, mode="wrap")
        uncounted = self.labels < 0
        if uncounted.any():
            out[..., uncounted] = 0
        return out

    def _matrix(self, dtype: np.dtype[Any]) -> csr_array:
        from scipy.sparse import csr_array

        counted = np.flatnonzero(self.labels >= 0)
        ones = np.ones(counted.size, dtype)
        return csr_array((ones, (self.labels[counted], counted)), shape=(self.answers, self.cells))

    def to_sparse(self) -> csr_array:
        """Return the 0/1 matrix (answers, cells)."""
        return self._matrix(np.dtype(np.float64))

    def restrict(self, cells: Ints) -> Grouping:
        """Return the sums over the groups' parts in these cells; groups without any stay, as zeros."""
        return Grouping(self.labels[cells], self.answers)

    @property
    def absolute_columns(self) -> Floats:
        """Return 1 for every cell that counts."""
        return (self.labels >= 0).astype(np.float64)

    @property
    def squared_columns(self) -> Floats:
        """Return 1 for every cell that counts."""
        return self.absolute_columns


@dataclass(frozen=True, eq=False, slots=True)
class Kronecker(Operator):
    """The Kronecker product of one small matrix an attribute: ``factors[k]`` is (answers_k, levels_k).

    Cells and answers are in C order of the attributes. O(cells x sum of answers_k) an application.
    """

    factors: tuple[Floats, ...]
    cells: int = field(init=False)
    answers: int = field(init=False)

    def __post_init__(self) -> None:
        if has_masked(self.factors):
            raise ProblemError("factors must not have masked entries: fill or drop what is masked first")
        factors = tuple(np.array(factor, dtype=np.float64) for factor in self.factors)
        if not factors or any(factor.ndim != 2 or not np.isfinite(factor).all() for factor in factors):
            raise ProblemError("factors must be matrices of finite numbers, one for each attribute")
        for factor in factors:
            factor.setflags(write=False)
        object.__setattr__(self, "factors", factors)
        object.__setattr__(self, "cells", prod(factor.shape[1] for factor in factors))
        object.__setattr__(self, "answers", prod(factor.shape[0] for factor in factors))

    def apply(self, x: NDArray[Any]) -> NDArray[Any]:
        """Return the answers, one factor after the other."""
        return self._along([factor if x.dtype.kind == "f" else _integer_matrix(factor) for factor in self.factors], x)

    def adjoint(self, y: NDArray[Any]) -> NDArray[Any]:
        """Return the transposed product's values."""
        return self._along(
            [factor.T if y.dtype.kind == "f" else _integer_matrix(factor).T for factor in self.factors], y
        )

    def _along(self, factors: list[NDArray[Any]], x: NDArray[Any]) -> NDArray[Any]:
        lead = x.shape[:-1]
        out = x.reshape(*lead, *(factor.shape[1] for factor in factors))
        for axis, factor in enumerate(factors, len(lead)):
            out = np.moveaxis(np.tensordot(out, factor, axes=(axis, 1)), -1, axis)
        return out.reshape(*lead, prod(factor.shape[0] for factor in factors))

    def to_sparse(self) -> csr_array:
        """Return the product as a matrix."""
        from scipy.sparse import csr_array, kron

        out = csr_array(np.ones((1, 1)))
        for factor in self.factors:
            out = csr_array(kron(out, csr_array(factor), format="csr"))
        return out

    def restrict(self, cells: Ints) -> Operator:
        """Return the map on some cells, which fills the others with zeros."""
        return Restricted(self, cells)

    @property
    def absolute_columns(self) -> Floats:
        """Return the product of the factors' column sums."""
        return _outer([np.abs(factor).sum(axis=0) for factor in self.factors])

    @property
    def squared_columns(self) -> Floats:
        """Return the product of the factors' squared column norms."""
        return _outer([(factor**2).sum(axis=0) for factor in self.factors])


@dataclass(frozen=True, eq=False, slots=True)
class Restricted(Operator):
    """A map ``unrestricted``, applied to tables that hold only its cells ``chosen_cells``, int64[cells]."""

    unrestricted: Operator
    chosen_cells: Ints
    cells: int = field(init=False)
    answers: int = field(init=False)

    def __post_init__(self) -> None:
        cells = _indices(self.chosen_cells, "chosen cells")
        if cells.size and not 0 <= int(cells.min()) <= int(cells.max()) < self.unrestricted.cells:
            raise ProblemError(f"chosen cells must be from 0 to {self.unrestricted.cells - 1}")
        if np.unique(cells).size < cells.size:
            raise ProblemError("a cell is chosen twice")
        object.__setattr__(self, "chosen_cells", cells)
        object.__setattr__(self, "cells", cells.size)
        object.__setattr__(self, "answers", self.unrestricted.answers)

    def apply(self, x: NDArray[Any]) -> NDArray[Any]:
        """Return the answers with zeros in all other cells."""
        full = np.zeros((*x.shape[:-1], self.unrestricted.cells), x.dtype)
        full[..., self.chosen_cells] = x
        return self.unrestricted.apply(full)

    def adjoint(self, y: NDArray[Any]) -> NDArray[Any]:
        """Return the values of the chosen cells."""
        return self.unrestricted.adjoint(y)[..., self.chosen_cells]

    def to_sparse(self) -> csr_array:
        """Return the kept columns."""
        from scipy.sparse import csr_array

        return csr_array(self.unrestricted.to_sparse()[:, self.chosen_cells])

    def restrict(self, cells: Ints) -> Operator:
        """Return the map on fewer cells."""
        return self.unrestricted.restrict(self.chosen_cells[cells])

    @property
    def absolute_columns(self) -> Floats:
        """Return those of the chosen cells."""
        return self.unrestricted.absolute_columns[self.chosen_cells]

    @property
    def squared_columns(self) -> Floats:
        """Return those of the chosen cells."""
        return self.unrestricted.squared_columns[self.chosen_cells]


@dataclass(frozen=True, eq=False, slots=True)
class Stacked(Operator):
    """Several maps of the same cells, whose answers follow each other; build it with ``stack``."""

    parts: tuple[Operator, ...]
    cells: int = field(init=False)
    answers: int = field(init=False)

    def __post_init__(self) -> None:
        parts = tuple(self.parts)
        if not parts or any(part.cells != parts[0].cells for part in parts):
            raise ProblemError("operators that are stacked must be over the same cells, and at least one")
        object.__setattr__(self, "parts", parts)
        object.__setattr__(self, "cells", parts[0].cells)
        object.__setattr__(self, "answers", sum(part.answers for part in parts))

    def apply(self, x: NDArray[Any]) -> NDArray[Any]:
        """Return the parts' answers side by side."""
        return np.concatenate([part.apply(x) for part in self.parts], axis=-1)

    def adjoint(self, y: NDArray[Any]) -> NDArray[Any]:
        """Return the sum of the parts' values."""
        out: NDArray[Any] = np.zeros((*y.shape[:-1], self.cells), y.dtype)
        start = 0
        for part in self.parts:
            out += part.adjoint(y[..., start : start + part.answers])
            start += part.answers
        return out

    def to_sparse(self) -> csr_array:
        """Return the matrices one below the other."""
        from scipy.sparse import csr_array, vstack

        return csr_array(vstack([part.to_sparse() for part in self.parts], format="csr"))

    def restrict(self, cells: Ints) -> Stacked:
        """Return the restricted parts, stacked."""
        return Stacked(tuple(part.restrict(cells) for part in self.parts))

    @property
    def absolute_columns(self) -> Floats:
        """Return the parts' sums."""
        return np.asarray(sum(part.absolute_columns for part in self.parts))

    @property
    def squared_columns(self) -> Floats:
        """Return the parts' sums."""
        return np.asarray(sum(part.squared_columns for part in self.parts))


def stack(operators: Sequence[Operator]) -> Operator:
    """Return one map with all answers, one operator's after the other's; a single operator is returned as it is."""
    return operators[0] if len(operators) == 1 else Stacked(tuple(operators))


def blocks_of_rows(operator: Operator) -> Iterator[tuple[slice, Floats]]:
    """Yield the rows of a map as dense matrices (rows, cells) of some consecutive answers, and which these are."""
    rows = operator.to_sparse().tocsr()
    for begin in range(0, operator.answers, _ROWS):
        block = slice(begin, min(begin + _ROWS, operator.answers))
        yield block, rows[block].toarray()


def identity(cells: int) -> Grouping:
    """Return the map that answers every cell."""
    return Grouping(np.arange(cells), cells)


def total(cells: int) -> Grouping:
    """Return the map that answers the sum of all cells."""
    return Grouping(np.zeros(cells, np.int64), 1)


def _indices(values: NDArray[Any], what: str) -> Ints:
    if has_masked(values):
        raise ProblemError(f"{what} must not have masked entries: fill or drop what is masked first")
    array = np.asarray(values)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise ProblemError(f"{what} must be a vector of integers")
    out = np.array(array, dtype=np.int64)
    out.setflags(write=False)
    return out


def _integer_matrix(factor: Floats) -> Ints:
    integers = factor.astype(np.int64)
    if (integers != factor).any():
        raise ProblemError("a query with fractional weights has no integer answers: give it a table of float64")
    return integers


def _outer(vectors: list[Floats]) -> Floats:
    out = np.ones(1)
    for vector in vectors:
        out = np.multiply.outer(out, vector).reshape(-1)
    return out
