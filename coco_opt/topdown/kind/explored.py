"""What a page shows of every region where no query measured the cells: the released answers to the measured queries.

Intervals of the cells that hold persons, where the posterior has any.

Widths of intervals of all persons of each region, for the map of a report: the release's own where it has any.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import NormalDist
from typing import Any

import numpy as np

from coco_opt.array_types import Floats, Ints
from coco_opt.releases.kind import Shown
from coco_opt.report.explorer import MOST_ROWS, Explored
from coco_opt.topdown.estimating.estimate import TablesResult
from coco_opt.topdown.estimating.linear.best_linear import LinearEstimates
from coco_opt.topdown.queries import Query, parse_query
from coco_opt.topdown.schema import Schema
from coco_opt.topdown.table_queries import TableQueries

NOTE = (
    "The released answers to the measured queries. The cells are guesses: not measured, but shared out in proportion "
    "to the measured margins; the files of the release hold them."
)


def explored_answers(shown: Shown, linear: LinearEstimates, unit: str) -> Explored:
    """Return every region's answers above 0 to the measured queries, by levels, as many levels as a page can hold."""
    from scipy.sparse import csr_array, vstack

    measurement_plan, tree = shown.measurement.measurement_plan, shown.measurement.hierarchy
    # The total is left out: the page shows it with every region.
    measured = [TableQueries.of(each.measurement_plan).plan.queries for each in shown.measurement.every]
    several = [[query for query in queries if query.answers > 1] or queries for queries in measured]
    queries = {query.text: query for listed in several for query in listed}
    regions, keys, values, persons = list[Any](), list[Any](), list[Any](), list[Any]()
    matrix = vstack([query.operator.to_sparse() for query in queries.values()], format="csr")
    for level, tables in enumerate(shown.result.tables):
        shape = (tables.regions, tables.size)
        answers = csr_array((tables.counts, tables.cells, tables.offsets), shape) @ matrix.T
        answers.sort_indices()
        persons.append(np.diff(np.append(0, tables.counts.cumsum())[tables.offsets]))
        if sum(map(len, keys)) <= MOST_ROWS:
            first = tree.level_range(level).start
            regions.append(np.repeat(np.arange(first, first + tables.regions), np.diff(answers.indptr)))
            keys.append(answers.indices)
            values.append(answers.data)
    owner, key, value = (np.concatenate(parts).astype(np.int64) for parts in (regions, keys, values))
    words = {"weight": unit, "key": "measured answer", "value": unit, "title": f"{unit}, by what was measured"}
    labels = [label for query in queries.values() for label in query.labels()]
    mapped: dict[str, Any] = {}
    if shown.outlines is not None:
        words["width"], widths = widths_of(shown, shown.method.schema, linear)
        mapped = {"outlines": shown.outlines, "attributes": {}, "widths": widths}
    named = tree, measurement_plan.levels, measurement_plan.region_ids
    weight = np.concatenate(persons).astype(np.int64)
    return Explored(*named, weight, owner, key, value, words, labels, **mapped)


_COVERAGE = 0.95  # of intervals around unbiased estimates
_MOST = 1 << 22  # draws or cells that are in memory at a time
_FEW = 1 << 20  # cells of all regions, whose intervals take a page seconds


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


def cell_intervals(result: TablesResult, regions: Ints, cells: Ints) -> tuple[Ints, Ints] | tuple[None, None]:
    """Return the ends of the intervals of released cells of regions, which rise; None without any, or for many."""
    posterior, size = result.posterior, result.tables[0].size
    few = sum(tables.regions for tables in result.tables) * size <= _FEW
    if posterior is None or posterior.sampled is None or not posterior.has_intervals or not few:
        return None, None
    lower, upper, first = np.zeros_like(cells), np.zeros_like(cells), 0
    step = max(1, _MOST // (size * posterior.sampled.count))
    for level, tables in enumerate(result.tables):
        for begin in range(0, tables.regions, step):
            some = slice(begin, min(begin + step, tables.regions))
            low, high = posterior.interval(posterior.queries[0], level, some, tables)
            rows = slice(*np.searchsorted(regions, [first + some.start, first + some.stop]))
            places = regions[rows] - (first + begin), cells[rows]
            lower[rows], upper[rows] = low[places], high[places]
        first += tables.regions
    return lower, upper


def _words(coverage: float, what: str) -> str:
    return f"width of the {100 * coverage:g} % interval of the {what}"
