"""The draws of answers compared with their unbiased linear estimates, some regions at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from coco_opt.array_types import Flags, Floats
from coco_opt.operators import Operator
from coco_opt.topdown.estimating.linear.best_linear import LinearEstimates
from coco_opt.topdown.estimating.posterior.drawn_tables import Counting, DrawnTables

SAMPLED = 16
"""Blocks of consecutive regions, spread over a level, that tell how a query's draws differ from its estimates."""

_NUMBERS = 1 << 22  # draws of answers that are in memory at a time
_EXACT = 1e-9  # a variance of an answer that is known exactly


class Comparison(NamedTuple):
    """Answers of consecutive regions, a row each (regions x answers).

    ``values`` are the sorted draws int32[rows, draws], ``mean`` and ``variance`` theirs, ``estimate`` and ``error`` the
    linear estimate and its variance.
    """

    values: NDArray[np.int32]
    mean: Floats
    variance: Floats
    estimate: Floats
    error: Floats

    @property
    def estimated(self) -> Flags:
        """Return which answers are estimated, and not exactly."""
        return np.isfinite(self.error) & (self.error > _EXACT)


def compared(drawn: DrawnTables, linear: LinearEstimates, level: int, regions: range, query: Operator) -> Comparison:
    """Return the draws and the linear estimates of a query's answers in consecutive regions of a level."""
    values = drawn.sorted_answers(regions, Counting.of(query))
    first = drawn.hierarchy.level_range(level).start
    some = slice(regions.start - first, regions.stop - first)
    estimate, error = linear.answers(query, level, some), linear.standard_errors(query, level, some)
    return Comparison(values, values.mean(axis=1), values.var(axis=1), estimate.reshape(-1), error.reshape(-1) ** 2)


def blocks_of(drawn: DrawnTables, query: Operator, regions: range, most: int | None = None) -> Iterator[range]:
    """Yield consecutive regions whose draws fit in memory; no more than ``most`` such blocks, evenly spread."""
    step = max(1, _NUMBERS // (query.answers * int(drawn.draws.offset.shape[0])))
    every = 1 if most is None else max(1, -(-len(regions) // (step * most)))
    for begin in range(regions.start, regions.stop, step * every):
        yield range(begin, min(begin + step, regions.stop))
