"""Check unbiased estimates against everything that a release states as exact, from the files alone.

An exact statement is a row over the cells with a value in some regions. Above them it holds for the sums over children.
A query whose answers add up to the row must have estimates that add up to the value; where the row is one answer, its
standard error is 0.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from coco_opt.array_types import Flags, Floats, Ints
from coco_opt.files.release_checks import Regions, first_of
from coco_opt.topdown.queries import Query

_ROUNDING = 1e-9, 1e-6
"""What a sum of estimates may differ by: a part of the value, and people."""


@dataclass(frozen=True, eq=False, slots=True)
class Statements:
    """Rows over the cells ``matrix`` (rows, cells) that are exact: where, ``known`` [regions, rows], and ``values``.

    ``starts`` are the first rows of each query's.
    """

    matrix: Any
    known: Flags
    values: Ints
    names: tuple[str, ...]
    starts: tuple[int, ...] = ()

    @classmethod
    def empty(cls, regions: int, cells: int) -> Statements:
        """Return no statement."""
        from scipy.sparse import csr_array

        return cls(csr_array((0, cells), dtype=np.int64), np.zeros((regions, 0), np.bool_), _zeros(regions, 0), ())

    def and_answers(self, query: Query, region: Ints, answers: Ints, values: Ints) -> Statements:
        """Return these with exact answers of a query: one entry for each pair of a region and an answer."""
        used, place = np.unique(answers, return_inverse=True)
        rows = query.operator.to_sparse().tocsr()[used]
        names = tuple(f"{query.text}, {query.label(answer)}" for answer in used.tolist())
        return self._with(rows, names, (region, place.reshape(-1)), values)

    def and_row(self, weights: Ints, name: str, region: Ints, values: Ints) -> Statements:
        """Return these with one row of weights on the cells that is exact in some regions."""
        from scipy.sparse import csr_array

        return self._with(csr_array(weights[None, :]), (name,), (region, np.zeros_like(region)), values)

    def _with(self, rows: Any, names: tuple[str, ...], at: tuple[Ints, Ints], values: Ints) -> Statements:
        known, every = np.zeros((len(self.known), len(names)), np.bool_), _zeros(len(self.known), len(names))
        known[at], every[at] = True, values
        return self._beside(rows, names, known, every)

    def _beside(self, rows: Any, names: tuple[str, ...], known: Flags, every: Ints) -> Statements:
        from scipy.sparse import csr_array, vstack

        matrix = csr_array(vstack([self.matrix, rows.astype(np.int64)], format="csr"))
        columns = np.hstack([self.known, known]), np.hstack([self.values, every])
        return Statements(matrix, *columns, (*self.names, *names), (*self.starts, len(self.names)))

    def closed(self, regions: Regions) -> Statements:
        """Return the same with the sums of children that are all known; O(regions x rows)."""
        known, values = self.known.copy(), self.values.copy()
        children = np.bincount(regions.parent[regions.parent >= 0], minlength=len(known))
        for level in range(int(regions.level.max()), 0, -1):
            below = np.flatnonzero(regions.level == level)
            for row in range(len(self.names)):  # one after the other: whole regions of them take much memory
                sums, counted = np.zeros(len(known), np.int64), np.zeros(len(known), np.int32)
                np.add.at(sums, regions.parent[below], values[below, row] * known[below, row])
                np.add.at(counted, regions.parent[below], known[below, row])
                new = ~known[:, row] & (counted == children) & (children > 0)
                values[new, row], known[new, row] = sums[new], True
        return Statements(self.matrix, known, values, self.names, self.starts)

    def with_sums(self, query: Query) -> Statements:
        """Return these with the answers of a query that are sums of several exact answers of another one."""
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
                    region = first_of(wrong)
                    self.failure = (
                        f"{self.regions.names[region]!r}: the estimates of {text!r} add up to "
                        f"{sums.sums[region, at]:,.6f}, and {sums.statements.names[statement]} is exactly "
                        f"{stated[region]:,}"
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
        exact[named] = self.statements.known[region[named], statement[named]]
        values[named] = self.statements.values[region[named], statement[named]]
        return exact, values

    def add(self, region: Ints, answers: Ints, values: Floats) -> None:
        """Add some estimates to the sums of their regions."""
        if not self.several.size:
            return
        from scipy.sparse import csr_array

        distinct, place = np.unique(region, return_inverse=True)
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


def _zeros(regions: int, rows: int) -> Ints:
    return np.zeros((regions, rows), np.int64)
