"""What a page shows of every region where no query measured the cells: the released answers to the measured queries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from coco_opt.privacy.measurement import Measurement
from coco_opt.releases.kind import Shown
from coco_opt.report.explorer import MOST_ROWS, Explored
from coco_opt.topdown.estimating.linear.best_linear import LinearEstimates
from coco_opt.topdown.kind.map_widths import widths_of
from coco_opt.topdown.queries import Query
from coco_opt.topdown.table_queries import TableQueries

NOTE = (
    "The released answers to the measured queries. The cells are guesses: not measured, but shared out in proportion "
    "to the measured margins; the files of the release hold them."
)


def explored_answers(shown: Shown, linear: LinearEstimates) -> Explored:
    """Return every region's answers above 0 to the measured queries, by levels, as many levels as a page can hold."""
    from scipy.sparse import csr_array, vstack

    measurement_plan, tree = shown.measurement.measurement_plan, shown.measurement.hierarchy
    queries = {query.text: query for each in shown.measurement.every for query in _measured_queries(each)}
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
    words = {"weight": "persons", "key": "measured answer", "value": "persons", "rows": "measured answers are above 0"}
    labels = [label for query in queries.values() for label in query.labels()]
    mapped: dict[str, Any] = {}
    if shown.outlines is not None:
        words["width"], widths = widths_of(shown, shown.method.schema, linear)
        mapped = {"outlines": shown.outlines, "attributes": {}, "widths": widths}
    named = tree, measurement_plan.levels, measurement_plan.region_ids
    weight = np.concatenate(persons).astype(np.int64)
    return Explored(*named, weight, owner, key, value, words, labels, **mapped)


def _measured_queries(measurement: Measurement) -> Sequence[Query]:
    """Return what a measurement measures, the total left out: the page shows it with every region."""
    queries = TableQueries.of(measurement.measurement_plan).plan.queries
    return [query for query in queries if query.answers > 1] or queries
