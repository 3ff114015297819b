"""How sure the linear stage is of any query in any region: exact standard errors, without redrawing anything.

The estimates x^_vq of one query have independent errors of variance P_vq on every answer, and different queries have
independent noise, so the table x_v = N^+ sum_q w_q Q_q' x^_vq has the covariance

    N^+ (sum_q w_q^2 P_vq Q_q' Q_q) N^+

whatever the weights w: standard errors are exact also where the weights are not the best. They depend on the budget,
the strategy and the hierarchy alone, not on any answer: they can be planned with and published.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from coco_opt.operators import Operator
from coco_opt.topdown.estimated.linear import LinearStage

Floats = NDArray[np.float64]

_BLOCK = 512  # rows of a query handled at once, each a table


def standard_errors(stage: LinearStage, operator: Operator, level: int, regions: slice = slice(None)) -> Floats:
    """Return the standard errors [regions of level, answers] of a query's linear estimates, in people.

    ``regions`` are consecutive ones of the level, counted in it. Infinite where the answers do not determine it.
    O(answers x cells^2) once for all levels of the same weights, and O(regions x answers x queries).
    """
    known = stage.normal[level].determines(operator)
    spreads = _spreads(stage, operator, level)
    variances = np.zeros((len(stage.hierarchy.level_range(level)[regions]), operator.answers))
    for query, (weight, spread) in enumerate(zip(stage.weights[level], spreads, strict=True)):
        if weight > 0:
            variances += np.multiply.outer(stage.variances(query, level)[regions], weight**2 * spread)
    return np.where(known, np.sqrt(variances), np.inf)


def _spreads(stage: LinearStage, operator: Operator, level: int) -> Floats:
    """Return sum_k (Q_q N^+ row)_k^2 [queries, answers] for the rows of a query, 0 for queries that weigh nothing."""
    normal = stage.normal[level]
    if (normal, operator) not in stage.spreads:
        found = np.zeros((len(stage.operators), operator.answers))
        rows = operator.to_sparse()
        for begin in range(0, operator.answers, _BLOCK):
            block = slice(begin, min(begin + _BLOCK, operator.answers))
            solved = np.asfortranarray(normal.solve(rows[block].toarray()))  # as sums over groups of cells read it
            for query, (weight, own) in enumerate(zip(stage.weights[level], stage.operators, strict=True)):
                if weight > 0:
                    found[query, block] = (own.apply(solved) ** 2).sum(axis=1)
        stage.spreads[normal, operator] = found
    return stage.spreads[normal, operator]
