"""Cells that no constraint distinguishes are one class: constraints bind the classes' counts alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from coco_opt.array_types import Ints
from coco_opt.operators import Grouping, Operator


@dataclass(frozen=True, eq=False, slots=True)
class CellClasses:
    """The coarsest partition of the cells on whose parts all given rows are constant.

    ``labels`` int64[cells] is each cell's class, ``count`` their number; ``first`` int64[count] a cell of each.
    """

    labels: Ints
    count: int
    first: Ints

    @classmethod
    def of(cls, operators: Sequence[Operator], rows: Sequence[Ints], cells: int) -> CellClasses:
        """Return the classes of queries' answers and of single rows int64[cells]. O(rows x cells log cells)."""
        labels = np.zeros(cells, np.int64)
        for operator in operators:
            if isinstance(operator, Grouping):
                labels = _refine(labels, operator.labels)
            else:
                matrix = operator.to_sparse().tocsr()
                for answer in range(operator.answers):
                    labels = _refine(labels, np.rint(matrix[[answer]].toarray()[0]).astype(np.int64))
        for row in rows:
            labels = _refine(labels, row)
        _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
        # Classes in the order of their first cells, so that their names follow the schema's order.
        order = np.argsort(first, kind="stable")
        rank = np.empty_like(order)
        rank[order] = np.arange(order.size)
        return cls(rank[inverse].astype(np.int64), int(first.size), first[order].astype(np.int64))

    @property
    def operator(self) -> Grouping:
        """Return the classes' counts as an operator."""
        return Grouping(self.labels, self.count)

    def coefficients(self, operator: Operator) -> Ints:
        """Return an operator's weights on the classes, int64[answers, classes]; its rows are constant on each."""
        matrix = operator.to_sparse().tocsc()[:, self.first]
        weights: Ints = np.rint(matrix.toarray()).astype(np.int64)
        return weights


def _refine(labels: Ints, values: Ints) -> Ints:
    """Return labels of the pairs (label, value), from 0."""
    _, codes = np.unique(values, return_inverse=True)
    _, refined = np.unique(labels * (int(codes.max(initial=0)) + 1) + codes, return_inverse=True)
    return np.asarray(refined, np.int64).reshape(-1)
