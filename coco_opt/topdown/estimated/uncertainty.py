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


def standard_errors(stage: LinearStage, operator: Operator, level: int) -> Floats:
    """Return the standard errors [regions of level, answers] of a query's linear estimates, in people.

    Infinite where the answers do not determine it. O(answers x cells^2 + regions x answers x queries).
    """
    regions = len(stage.hierarchy.level_range(level))
    found = np.empty((regions, operator.answers))
    known = stage.normal[level].determines(operator)
    rows = operator.to_sparse()
    for begin in range(0, operator.answers, _BLOCK):
        block = slice(begin, min(begin + _BLOCK, operator.answers))
        found[:, block] = np.sqrt(_variances(stage, rows[block].toarray(), level))
    return np.where(known, found, np.inf)


def _variances(stage: LinearStage, rows: Floats, level: int) -> Floats:
    """Return the variances [regions of level, k] of the sums of cells that ``rows`` (k, cells) weigh."""
    solved = stage.normal[level].solve(rows)
    found = np.zeros((len(stage.hierarchy.level_range(level)), len(rows)))
    for query, (weight, operator) in enumerate(zip(stage.weights[level], stage.operators, strict=True)):
        if weight > 0:
            spread = weight**2 * (operator.apply(solved) ** 2).sum(axis=1)
            found += np.multiply.outer(stage.variances(query, level), spread)
    return found
