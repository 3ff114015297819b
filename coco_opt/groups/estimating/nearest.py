"""Consistent integer tables: the best that a solver returns, certified or not, and their histograms."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

import numpy as np

from coco_opt.array_types import Ints
from coco_opt.choices import SolverChoices
from coco_opt.errors import SolverError
from coco_opt.histograms import CountOfCounts
from coco_opt.problem import Problem

ValueT = TypeVar("ValueT")


def nearest(problem: Problem[ValueT, Any], solvers: SolverChoices) -> tuple[ValueT, float]:
    """Return the best table of a problem with integer solutions, and its relative gap where not certified (else 0).

    A solution that misses its solver's tolerance but satisfies every constraint is accepted: it is integer and
    consistent, only not certified optimal. Raises SolverError where no solver returns one.
    """
    try:
        return solvers.solve(problem, fallback=False), 0.0
    except SolverError as error:
        solution = error.solution
    if solution is not None and solution.usable:
        return solution.value, solution.relative_gap
    return solvers.solve(problem), 0.0


def integer_histograms(table: Ints, groups: Ints) -> list[CountOfCounts]:
    """Return one histogram a region from cumulative counts (regions, K) and the numbers of groups."""
    rows: Iterable[Ints] = np.column_stack([table, groups])
    return [CountOfCounts.from_dense(np.diff(row, prepend=0)) for row in rows]
