"""Widths of intervals of all persons of each region, for the map of a report: the release's own where it has any."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import NormalDist

import numpy as np

from coco_opt.array_types import Floats
from coco_opt.releases.kind import Shown
from coco_opt.topdown.estimating.estimate import TablesResult
from coco_opt.topdown.estimating.linear.best_linear import LinearEstimates
from coco_opt.topdown.queries import Query, parse_query
from coco_opt.topdown.schema import Schema

_COVERAGE = 0.95  # of intervals around unbiased estimates
_MOST = 1 << 22  # draws or cells that are in memory at a time


def widths_of(shown: Shown, schema: Schema, linear: LinearEstimates) -> tuple[str, Floats]:
    """Return what the widths are of, in words, and the widths float64[regions], infinite where there is no interval.

    They are intervals of the posterior where the release has these, else those of unbiased estimates by their standard
    errors.
    """
    total, posterior = parse_query("total", schema), shown.result.posterior
    if posterior is not None and posterior.has_intervals:
        return _words(posterior.coverage, "number of persons"), np.concatenate(list(_of_posterior(shown.result, total)))
    levels = range(shown.measurement.hierarchy.levels)
    errors = np.concatenate([linear.standard_errors(total.operator, level)[:, 0] for level in levels])
    return _words(_COVERAGE, "unbiased estimate"), 2 * NormalDist().inv_cdf((1 + _COVERAGE) / 2) * errors


def _of_posterior(result: TablesResult, total: Query) -> Iterator[Floats]:
    """Yield the widths of some regions at a time, level by level."""
    posterior = result.posterior
    assert posterior is not None
    assert posterior.sampled is not None
    for level, tables in enumerate(result.tables):
        step = max(1, _MOST // max(total.operator.cells, int(posterior.sampled.count)))
        for begin in range(0, tables.regions, step):
            lower, upper = posterior.interval(total, level, slice(begin, begin + step), tables)
            yield (upper - lower)[:, 0].astype(np.float64)


def _words(coverage: float, what: str) -> str:
    return f"width of the {100 * coverage:g} % interval of the {what}"
