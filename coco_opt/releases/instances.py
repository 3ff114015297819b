"""Problems cut to any size, so that all solvers of a comparison meet the same data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from coco_opt.problem import Problem
from coco_opt.solver import Solver

AnyProblem = Problem[Any, Any]


@dataclass(frozen=True, eq=False, slots=True)
class Instance:
    """A problem of one kind that can be made with at most ``size`` unknowns; ``largest`` is its full size.

    ``planted`` is a solver with wrong answers, which the comparison must catch.
    """

    kind: str
    largest: int
    make: Callable[[int], AnyProblem]
    planted: Solver | None = None
