"""What all linear estimates give: tables, answers to any query, exact standard errors, and what is determined."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from os import cpu_count
from typing import TYPE_CHECKING

import numpy as np

from coco_opt.array_types import Flags, Floats
from coco_opt.errors import ProblemError
from coco_opt.execution import Threads
from coco_opt.histograms import Hierarchy
from coco_opt.operators import Operator

if TYPE_CHECKING:
    from coco_opt.topdown.noisy_measurements import TableMeasurements

_BLOCK = 1024  # regions whose tables are in memory at a time


@dataclass(frozen=True, eq=False)
class LinearEstimates(ABC):
    """Linear unbiased estimates of the tables of all regions, with exact standard errors.

    Levels are counted from the root. ``regions`` are consecutive regions of a level, counted in it; the results have
    one row for each of them. A subclass says how tables are estimated, what is determined and how large the errors
    are; answers to queries follow from the tables.
    """

    hierarchy: Hierarchy

    @abstractmethod
    def tables(self, level: int, regions: slice = slice(None)) -> Floats:
        """Return estimated tables [regions, cells]; they may be negative and fractional.

        Where the answers do not determine a table this is its part in the span of what was measured: read ``answers``
        of a query that they do determine.
        """

    @abstractmethod
    def known(self, operator: Operator, level: int, regions: slice = slice(None)) -> Flags:
        """Return which answers of a query are determined, bool[regions, answers]."""

    @abstractmethod
    def standard_errors(self, operator: Operator, level: int, regions: slice = slice(None)) -> Floats:
        """Return exact standard errors [regions, answers] in people, infinite where undetermined.

        They depend on the plan, the hierarchy and the constraints alone, not on any answer.
        """

    def determines(self, operator: Operator, level: int) -> Flags:
        """Return which answers (answers,) of a query are determined in every region of a level."""
        return np.asarray(self.known(operator, level).all(axis=0))

    def answers(self, operator: Operator, level: int, regions: slice = slice(None)) -> Floats:
        """Return estimated answers [regions, answers] of any query, NaN where undetermined.

        Tables are computed and dropped block by block: whole levels of them need not fit in memory.
        """
        selected = range(len(self.hierarchy.level_range(level)))[regions]
        starts = range(selected.start, selected.stop, _BLOCK)
        blocks = [operator.apply(self.tables(level, slice(at, min(at + _BLOCK, selected.stop)))) for at in starts]
        answers = np.concatenate([np.zeros((0, operator.answers)), *blocks])
        return np.where(self.known(operator, level, regions), answers, np.nan)

    def of_level(self, level: int) -> Callable[[Operator, slice], Floats]:
        """Return a function from a query and regions to ``answers``; all tables of the level are computed once."""
        regions, cells = len(self.hierarchy.level_range(level)), self.tables(level, slice(0, 0)).shape[1]
        # In columns: sums over groups of cells read them so, once for every query.
        tables = np.empty((regions, cells), order="F")

        def fill(start: int) -> None:
            block = slice(start, min(start + _BLOCK, regions))
            tables[block] = self.tables(level, block)

        Threads(cpu_count() or 1).map(fill, range(0, regions, _BLOCK))

        def answers(operator: Operator, regions: slice = slice(None)) -> Floats:
            return np.where(self.known(operator, level, regions), operator.apply(tables[regions]), np.nan)

        return answers


def checked_variance(measured: TableMeasurements, level: int, query: int) -> float:
    """Return the variance of a query's answers at a level, infinite where it was not measured.

    Raises ProblemError for a variance that is not positive and finite: exact answers are invariants, not measurements.
    """
    if measured.answers[level][query] is None:
        return np.inf
    variance, by_region = float(measured.variance(level, query)), measured.by_region.get((level, query))
    if not 0.0 < variance < np.inf or (by_region is not None and not by_region.min() > 0.0):
        raise ProblemError(
            f"query {measured.queries[query].name!r} at level {level} has noise of variance {variance}: it must "
            "be positive and finite; an exact answer is an invariant"
        )
    return variance
