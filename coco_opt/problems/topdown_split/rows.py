"""The parts of a top-down split: weighted noisy answers and constraints."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from coco_opt.array_types import Floats
from coco_opt.errors import ProblemError
from coco_opt.operators import Operator
from coco_opt.problem import MAX_INTEGER

MAX_WEIGHT = 1e60  # with answers up to 2^53 a square times a weight stays finite


@dataclass(frozen=True, eq=False)
class SplitTerm:
    """One query's noisy answers in every child: ``sum_j w_j ||Q x_j - answers_j||^2``.

    operator: Q; answers float64[children, answers], finite; weights float64[children] or [children, answers] (or one
    number), from 0 to 1e60, usually 1 / variance: 0 where a child was not measured. Raises ProblemError otherwise.
    """

    operator: Operator
    answers: Floats
    weights: Floats

    def __post_init__(self) -> None:
        answers = _table(self.answers, self.operator.answers, "the answers of a term")
        if answers.size and not -MAX_INTEGER <= answers.min() <= answers.max() <= MAX_INTEGER:
            raise ProblemError("the answers of a term must be finite and not exceed 2^53 in magnitude")
        weights = np.asarray(self.weights, dtype=np.float64)
        if weights.ndim == 1:
            weights = weights[:, None]
        if weights.ndim > 2 or any(
            have not in (1, need) for have, need in zip(weights.shape, answers.shape, strict=False)
        ):
            raise ProblemError(f"weights must be one number a child, or one an answer, for {answers.shape} answers")
        if weights.size and not 0.0 <= weights.min() <= weights.max() <= MAX_WEIGHT:
            raise ProblemError("weights must be finite, nonnegative and at most 1e60")
        each = np.empty(answers.shape)
        each[...] = weights
        object.__setattr__(self, "answers", _frozen(answers))
        object.__setattr__(self, "weights", _frozen(each))


@dataclass(frozen=True, eq=False)
class LinearRows:
    """Constraints on every child's table: ``lower_j <= C x_j <= upper_j``.

    operator: C; lower, upper float64[children, rows]: infinite where there is no side, equal for an equality. Raises
    ProblemError for another shape or a lower side above the upper one.
    """

    operator: Operator
    lower: Floats
    upper: Floats

    def __post_init__(self) -> None:
        lower = _table(self.lower, self.operator.answers, "the lower sides")
        upper = _table(self.upper, self.operator.answers, "the upper sides")
        if lower.shape != upper.shape or np.isnan(lower).any() or np.isnan(upper).any():
            raise ProblemError("lower and upper sides must be numbers and of one shape")
        empty = (lower > upper) | (lower > MAX_INTEGER) | (upper < -MAX_INTEGER)
        if empty.any():
            child, row = np.argwhere(empty)[0]
            raise ProblemError(
                f"constraint {row} of child {child} is empty: its lower side is above its upper side, or beyond 2^53"
            )
        lower[lower < -MAX_INTEGER], upper[upper > MAX_INTEGER] = -np.inf, np.inf
        object.__setattr__(self, "lower", _frozen(lower))
        object.__setattr__(self, "upper", _frozen(upper))


def _table(values: Floats, columns: int, name: str) -> Floats:
    table = np.array(values, dtype=np.float64)
    if table.ndim != 2 or table.shape[0] == 0 or table.shape[1] != columns:
        raise ProblemError(f"{name} must be a table, one row a child and {columns} columns, not {table.shape}")
    return table


def _frozen(values: Floats) -> Floats:
    values.setflags(write=False)
    return values
