"""Atoms: groups of cells that no query distinguishes; on them queries and estimates of tables are small matrices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from coco_opt.array_types import Flags, Floats, Ints
from coco_opt.operators import Operator


@dataclass(frozen=True, eq=False, slots=True)
class Atoms:
    """The joint cells of some queries: cell c lies in atom ``codes[c]``; ``first`` is a cell of each atom."""

    codes: Ints
    first: Ints

    @classmethod
    def of(cls, queries: Sequence[Operator], cells: int) -> Atoms:
        """Return the coarsest groups of cells in which every query's columns are alike; O(entries + cells)."""
        codes = np.zeros(cells, np.int64)
        for query in queries:
            columns = query.to_sparse().tocsc()
            columns.sort_indices()
            patterns = [
                (columns.indices[start:end].tobytes(), columns.data[start:end].tobytes())
                for start, end in pairwise(columns.indptr.tolist())
            ]
            places = {pattern: place for place, pattern in enumerate(dict.fromkeys(patterns))}
            own = np.array([places[pattern] for pattern in patterns], np.int64)
            _, codes = np.unique(codes * len(places) + own, return_inverse=True)
        _, first = np.unique(codes, return_index=True)
        return cls(codes.astype(np.int64), first.astype(np.int64))

    @property
    def count(self) -> int:
        """Return the number of atoms."""
        return int(self.first.size)

    def matrix(self, query: Operator) -> Floats:
        """Return what a query weighs in each atom's people, float64[answers, atoms], read from the first cells."""
        return np.asarray(query.to_sparse()[:, self.first].toarray(), np.float64)

    def to_cells(self, values: Floats) -> Floats:
        """Return tables [regions, cells] of people by atom [regions, atoms]: the cells of an atom get equal parts."""
        return np.asarray((values / np.bincount(self.codes))[:, self.codes])

    def resolves(self, query: Operator) -> Flags:
        """Return which answers (answers,) of a query weigh all cells of each atom equally."""
        rows = query.to_sparse().tocsr()
        spread = rows - rows[:, self.first][:, self.codes]
        return np.asarray(abs(spread).sum(axis=1) == 0.0).reshape(-1)
