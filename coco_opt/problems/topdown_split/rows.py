"""A part of a top-down split: weighted noisy answers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from coco_opt.array_types import Floats
from coco_opt.errors import ProblemError
from coco_opt.operators import Operator
from coco_opt.problem import MAX_INTEGER, as_array
from coco_opt.problems.linear_rows import checked_table

MAX_WEIGHT = 1e60  # with answers up to 2^53 a square times a weight stays finite


@dataclass(frozen=True, eq=False, init=False)
class SplitTerm:
    """One query's noisy answers in every child: ``sum_j w_j ||Q x_j - answers_j||^2``.

    Parameters
    ----------
    operator : Operator
        The query Q, a linear map from cells to answers; see ``coco_opt.operators``.
    answers : array_like, shape (children, answers)
        The noisy answers; finite.
    weights : array_like, shape (children,) or (children, answers), or float
        Weights from 0 to 1e60, usually 1 / variance; 0 where a child was not measured.

    Raises
    ------
    ProblemError
        The arrays are not like this.

    Examples
    --------
    >>> from coco_opt import SplitTerm, TopdownSplit, solve
    >>> from coco_opt.operators import identity, total
    >>> cells = SplitTerm(identity(2), [[3.5, 1.0], [0.5, 2.0]], 1.0)
    >>> totals = SplitTerm(total(2), [[4.0], [3.0]], [0.5, 0.5])
    >>> solve(TopdownSplit([cells, totals], parent=[4, 3])).value.round(6).tolist()
    [[3.375, 0.875], [0.625, 2.125]]
    """

    operator: Operator
    answers: Floats
    weights: Floats

    def __init__(self, operator: Operator, answers: ArrayLike, weights: ArrayLike) -> None:
        table = checked_table(answers, operator.answers, "the answers of a term")
        each = as_array(weights, "weights", np.float64)
        if table.size and not -MAX_INTEGER <= table.min() <= table.max() <= MAX_INTEGER:
            raise ProblemError("the answers of a term must be finite and not exceed 2^53 in magnitude")
        if each.ndim == 1:
            each = each[:, None]
        if each.ndim > 2 or any(have not in (1, need) for have, need in zip(each.shape, table.shape, strict=False)):
            raise ProblemError(f"weights must be one number a child, or one an answer, for {table.shape} answers")
        if each.size and not 0.0 <= each.min() <= each.max() <= MAX_WEIGHT:
            raise ProblemError("weights must be finite, nonnegative and at most 1e60")
        object.__setattr__(self, "operator", operator)
        for name, values in (("answers", table), ("weights", np.array(np.broadcast_to(each, table.shape)))):
            values.setflags(write=False)
            object.__setattr__(self, name, values)
