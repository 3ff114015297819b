"""Check unbiased estimates against everything that a release states as exact, from the files alone.

An exact statement is a row over the cells with a value in some regions. Above them it holds for the sums over children.
A query whose answers add up to the row must have estimates that add up to the value; where the row is one answer, its
standard error is 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coco_opt.array_types import Flags, Floats, Ints
from coco_opt.execution.temporary_storage import forget_pages, stored_empty
from coco_opt.files.release_checks import Regions, first_of
from coco_opt.topdown.queries import Query

_AT_ONCE = 1 << 20  # regions
_ROUNDING = 1e-9, 1e-6
"""What a sum of estimates may differ by: a part of the value, and people."""


@dataclass(frozen=True, eq=False, slots=True)
class ExactColumn:
    """One exact row over the cells: in which regions it is ``known``, and its ``values``; in files if they are many."""

    known: Flags
    values: Ints

    @classmethod
    def empty(cls, regions: int) -> ExactColumn:
        """Return a column that is known nowhere."""
        known, values = stored_empty((regions,), np.dtype(np.bool_)), stored_empty((regions,), np.dtype(np.int64))
        known[:], values[:] = False, 0
        return cls(known, values)

    def put(self, region: Ints, values: Ints) -> None:
        """State the values of some regions."""
        self.known[region], self.values[region] = True, values

    def close(self, regions: Regions) -> None:
        """State the sums of children that are all known, level by level from below; O(regions)."""
        for level in range(int(regions.level.max()), 0, -1):
            parents = np.flatnonzero(regions.level == level - 1)
            first, last = int(parents[0]), int(parents[-1]) + 1
            sums, children, counted = (np.zeros(last - first, np.int64) for _ in range(3))
            for start in range(0, self.known.size, _AT_ONCE):
                below = start + np.flatnonzero(regions.level[start : start + _AT_ONCE] == level)
                up, known = regions.parent[below] - first, self.known[below]
                np.add.at(children, up, 1)
                np.add.at(counted, up, known)
                np.add.at(sums, up, self.values[below] * known)
            new = first + np.flatnonzero((counted == children) & (children > 0))
            new = new[~self.known[new]]
            self.put(new, sums[new - first])


@dataclass(frozen=True, eq=False, slots=True)
class Statements:
    """Rows over the cells ``matrix`` (rows, cells) that are exact: where, ``known`` [some regions, rows], and values.

    ``place`` [regions] is the row of a region in ``known`` and in ``values``, -1 for regions below the ``deepest``
    level; ``starts`` are the first rows of each query's.
    """

    regions: Regions
    place: NDArray[np.int32]
    matrix: Any
    known: Flags
    values: Ints
    names: tuple[str, ...]
    starts: tuple[int, ...] = ()

    @classmethod
    def empty(cls, regions: Regions, deepest: int, cells: int) -> Statements:
        """Return no statement about regions down to the ``deepest`` level."""
        from scipy.sparse import csr_array

        upper = regions.level <= deepest
        size = int(np.count_nonzero(upper))
        place = np.full(upper.size, -1, np.int32)
        place[upper] = np.arange(size)
        return cls(regions, place, csr_array((0, cells), dtype=np.int64), *_nothing(size, 0), ())

    def and_answers(self, query: Query, stated: Mapping[int, ExactColumn]) -> Statements:
        """Return these with exact answers of a query, and what follows for the regions above."""
        used = sorted(stated)
        names = tuple(f"{query.text}, {query.label(answer)}" for answer in used)
        return self._with(query.operator.to_sparse().tocsr()[used], names, [stated[answer] for answer in used])

    def and_row(self, weights: Ints, name: str, stated: ExactColumn) -> Statements:
        """Return these with one row of weights on the cells, and what follows for the regions above."""
        from scipy.sparse import csr_array

        return self._with(csr_array(weights[None, :]), (name,), [stated])

    def _with(self, rows: Any, names: tuple[str, ...], stated: Sequence[ExactColumn]) -> Statements:
        known, every = _nothing(len(self.known), len(names))
        upper = np.flatnonzero(self.place >= 0)
        for row, column in enumerate(stated):  # one after the other: whole regions of them take much memory
            column.close(self.regions)
            known[:, row], every[:, row] = column.known[upper], column.values[upper]
            forget_pages()
        return self._beside(rows, names, known, every)

    def _beside(self, rows: Any, names: tuple[str, ...], known: Flags, every: Ints) -> Statements:
        from scipy.sparse import csr_array, vstack

        matrix = csr_array(vstack([self.matrix, rows.astype(np.int64)], format="csr"))
        columns = np.hstack([self.known, known]), np.hstack([self.values, every])
        names, starts = (*self.names, *names), (*self.starts, len(self.names))
        return Statements(self.regions, self.place, matrix, *columns, names, starts)

    def with_sums(self, query: Query) -> Statements:
        """Return these with the answers of a query that are sums of several exact answers of another query."""
        extended, matrix = self, query.operator.to_sparse().tocsr().astype(np.int64)
        for start, stop in pairwise((*self.starts, len(self.names))):
            weights = _weights(self.matrix[start:stop], matrix)
            summed = np.flatnonzero(np.diff(weights.indptr) > 1)
            weights = weights[summed]
            known = self.known[:, start:stop] @ (weights != 0).T.astype(np.int64) == np.diff(weights.indptr)
            if known.any():
                values = np.where(known, (self.values[:, start:stop] * self.known[:, start:stop]) @ weights.T, 0)
                names = tuple(f"{query.text}, {query.label(answer)}" for answer in summed.tolist())
                extended = extended._beside(matrix[summed], names, known, values)
        return extended


@dataclass(eq=False, slots=True)
class ExactAnswers:
    """Estimates compared with statements, some rows of the file at a time; ``failure`` is the first difference."""

    statements: Statements
    regions: Regions
    failure: str = ""
    checked: int = 0
    _sums: dict[str, _Sums] = field(default_factory=dict)

    def look_at(self, query: Query, region: Ints, answers: Ints, values: Floats, errors: Floats) -> None:
        """Read some estimates of a query with their standard errors."""
        if self.failure:
            return
        if query.text not in self._sums:
            self._sums[query.text] = _Sums.of(query, self.statements)
        sums = self._sums[query.text]
        exact, stated = sums.single(region, answers)
        wrong = exact & ((np.abs(values - stated) > _ROUNDING[0] * np.maximum(1.0, np.abs(stated))) | (errors > 0.0))
        if wrong.any():
            row = first_of(wrong)
            self.failure = (
                f"{self.regions.names[region[row]]!r}: {query.text}, {query.label(int(answers[row]))} is exactly "
                f"{stated[row]:,.0f}, and estimated as {values[row]:,.6g} with a standard error of {errors[row]:,.6g}"
            )
        self.checked += int(exact.sum())
        sums.add(region, answers, values)

    def finish(self) -> None:
        """Compare the sums of all estimates read with what is exact."""
        for text, sums in self._sums.items():
            for at, statement in enumerate(sums.several.tolist()):
                complete = sums.statements.known[:, statement] & (sums.missing[:, at] == 0)
                stated = sums.statements.values[:, statement]
                wrong = complete & (np.abs(sums.sums[:, at] - stated) > _ROUNDING[0] * np.abs(stated) + _ROUNDING[1])
                if wrong.any() and not self.failure:
                    row = first_of(wrong)
                    region = int(np.flatnonzero(sums.statements.place == row)[0])
                    self.failure = (
                        f"{self.regions.names[region]!r}: the estimates of {text!r} add up to "
                        f"{sums.sums[row, at]:,.6f}, and {sums.statements.names[statement]} is exactly "
                        f"{stated[row]:,}"
                    )
                self.checked += int(complete.sum())


@dataclass(eq=False, slots=True)
class _Sums:
    """Sums of one query's estimates that statements fix.

    ``single_of`` [answers] is the statement that one answer is by itself, -1 for none, -2 for an answer without cells.
    ``several`` are those that are sums, with ``weights`` (statements, answers), and by region ``sums`` and how many
    answers are ``missing``.
    """

    statements: Statements
    single_of: Ints
    several: Ints
    weights: Any
    sums: Floats
    missing: Ints

    @classmethod
    def of(cls, query: Query, statements: Statements) -> _Sums:
        """Find which statements are answers of a query, and which are sums of several."""
        statements, matrix = statements.with_sums(query), query.operator.to_sparse().tocsr().astype(np.int64)
        weights = _weights(matrix, statements.matrix)
        sizes = np.diff(weights.indptr)
        alone = (sizes == 1) & (abs(weights).sum(axis=1) == 1)
        single_of = np.full(query.answers, -1, np.int64)
        single_of[np.diff(matrix.indptr) == 0] = -2
        several = np.flatnonzero((sizes > 0) & ~alone)
        for statement in np.flatnonzero(alone).tolist():
            answer = int(weights.indices[weights.indptr[statement]])
            if single_of[answer] == -1 and weights[[statement]].sum() > 0:
                single_of[answer] = statement
            else:
                several = np.append(several, statement)
        shape = len(statements.known), several.size
        missing = np.tile(sizes[several], (shape[0], 1))
        return cls(statements, single_of, several, weights[several], np.zeros(shape), missing)

    def single(self, region: Ints, answers: Ints) -> tuple[Flags, Floats]:
        """Return which estimates must be exact by themselves, and their values."""
        statement = self.single_of[answers]
        named = np.flatnonzero(statement >= 0)
        exact, values = statement == -2, np.zeros(region.size)
        row = self.statements.place[region[named]]
        exact[named] = self.statements.known[row, statement[named]]
        values[named] = self.statements.values[row, statement[named]]
        return exact, values

    def add(self, region: Ints, answers: Ints, values: Floats) -> None:
        """Add some estimates to the sums of their regions."""
        if not self.several.size:
            return
        from scipy.sparse import csr_array

        distinct, place = np.unique(self.statements.place[region], return_inverse=True)
        shape = distinct.size, self.weights.shape[1]
        for data, out, weights in (
            (values, self.sums, self.weights),
            (-np.ones(region.size, np.int64), self.missing, (self.weights != 0).astype(np.int64)),
        ):
            out[distinct] += (csr_array((data, (place.reshape(-1), answers)), shape=shape) @ weights.T).toarray()


def _weights(matrix: Any, rows: Any) -> Any:
    """Return how rows over cells are sums of a query's answers, (rows, answers): zeros where they are not.

    Where cells count in one answer at most this is read from a cell of each; else only equal rows are found.
    """
    from scipy.sparse import csr_array

    if rows.shape[0] and matrix.nnz and (matrix.data == 1).all() and np.diff(matrix.tocsc().indptr).max() == 1:
        sizes = np.diff(matrix.indptr)
        first = np.where(sizes > 0, matrix.indices[np.minimum(matrix.indptr[:-1], matrix.nnz - 1)], 0)
        weights = csr_array(rows[:, first].multiply(csr_array((sizes > 0)[None, :].astype(np.int64)))).tocsr()
        differs = np.asarray(abs(csr_array(weights @ matrix) - rows).sum(axis=1)).reshape(-1) > 0
        exact = csr_array(weights.multiply(csr_array((~differs)[:, None].astype(np.int64)))).tocsr()
        exact.eliminate_zeros()
        return exact
    answers = {_bytes(matrix, answer): answer for answer in range(matrix.shape[0])}
    same = [(row, answers[_bytes(rows, row)]) for row in range(rows.shape[0]) if _bytes(rows, row) in answers]
    at = np.array(same, np.int64).reshape(-1, 2).T
    return csr_array((np.ones(len(same), np.int64), (at[0], at[1])), shape=(rows.shape[0], matrix.shape[0]))


def _bytes(matrix: Any, row: int) -> tuple[bytes, bytes]:
    inside = slice(matrix.indptr[row], matrix.indptr[row + 1])
    order = np.argsort(matrix.indices[inside])
    return matrix.indices[inside][order].tobytes(), matrix.data[inside][order].tobytes()


def _nothing(regions: int, rows: int) -> tuple[Flags, Ints]:
    return np.zeros((regions, rows), np.bool_), np.zeros((regions, rows), np.int64)
