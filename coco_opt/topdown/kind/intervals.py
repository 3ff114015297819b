"""intervals.parquet of tables: intervals of every cell and answer to the workload of every region; written and read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from coco_opt.array_types import Flags, Ints
from coco_opt.errors import InputError, Place
from coco_opt.files.arrow_texts import positions
from coco_opt.files.folder import Again, Coded, FileTable, read_columns
from coco_opt.files.regions import region_columns
from coco_opt.files.release_checks import Regions, int64_column, refuse
from coco_opt.posterior.chains import Criterion
from coco_opt.privacy.measurement import MeasurementPlan
from coco_opt.topdown.estimating.estimate import TablesResult
from coco_opt.topdown.estimating.posterior.result import TableIntervals
from coco_opt.topdown.estimating.posterior.sampler import Sampled
from coco_opt.topdown.queries import parse_query
from coco_opt.topdown.schema import Schema, schema_of

INTERVALS = "intervals.parquet"
PROMISE = "intervals"
COLUMNS = ("level", "level_name", "region", "region_id", "query", "answer", "lower", "upper", "converged")
CELLS = "detail"
WORDS = (
    "central intervals of each answer alone under the posterior of all tables, whose prior is learned from the same "
    "noisy answers, moved towards linear estimates where that is stated; each holds its released answer; answers "
    "without a row are 0, and so are both ends of their interval"
)

_TYPES = {"level": "int32", "lower": "int64", "upper": "int64", "converged": "bool"}
_MOST = 1 << 22  # draws of answers that are in memory at a time


def settled_regions(sampled: Sampled) -> Flags:
    """Return which regions have converged, by the criterion of all posteriors."""
    return Criterion().met(sampled.r_hat, sampled.effective)


def interval_table(measurement_plan: MeasurementPlan, result: TablesResult) -> FileTable:
    """Return a row for each region and answer that may have persons, level by level and query by query."""
    posterior = result.posterior
    assert posterior is not None
    assert posterior.sampled is not None
    settled, count = settled_regions(posterior.sampled), posterior.sampled.count

    def rows() -> Iterator[Mapping[str, Any]]:
        for level, tables in enumerate(result.tables):
            first = result.hierarchy.level_range(level).start
            for query in posterior.queries:
                labels, step = query.labels(), max(1, _MOST // (query.answers * count))
                for begin in range(0, tables.regions, step):
                    some = slice(begin, min(begin + step, tables.regions))
                    lower, upper = posterior.interval(query, level, some, tables)
                    region, answer = np.nonzero(upper)
                    yield {
                        **region_columns(measurement_plan, region + first + begin),
                        "query": Coded([query.text], np.zeros(region.size, np.int64)),
                        "answer": Coded(labels, answer),
                        "lower": lower[region, answer],
                        "upper": upper[region, answer],
                        "converged": settled[region + first + begin],
                    }

    return FileTable(Again(rows), _TYPES)


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class ReleasedIntervals:
    """The rows of intervals.parquet: regions and places of queries' answers int64[rows], regions rising, and ends."""

    coverage: float
    queries: tuple[str, ...]
    region: Ints
    query: Ints
    answer: Ints
    lower: Ints
    upper: Ints

    def of(self, region: int, schema: Schema) -> TableIntervals:
        """Return the intervals of a region; answers without a row are 0."""
        rows = slice(*np.searchsorted(self.region, [region, region + 1]).tolist())
        ends: dict[str, tuple[Ints, Ints]] = {}
        for place, text in enumerate(self.queries):
            mine = np.flatnonzero(self.query[rows] == place) + rows.start
            lower, upper = np.zeros((2, parse_query(text, schema).answers), np.int64)
            lower[self.answer[mine]], upper[self.answer[mine]] = self.lower[mine], self.upper[mine]
            ends[text] = lower, upper
        lower, upper = ends.pop(CELLS)
        return TableIntervals(self.coverage, lower, upper, ends)


def intervals_of_cells(rows: Any, manifest: Mapping[str, Any]) -> Any:
    """Return the rows of cells, an Arrow table with the attributes' columns in the place of query and answer."""
    import pyarrow as pa
    import pyarrow.compute as pc

    schema = schema_of(manifest["schema"])
    cells = rows.filter(pc.equal(rows.column("query"), CELLS))
    place = positions(cells.column("answer"), parse_query(CELLS, schema).labels())
    if np.any(place < 0):
        raise InputError("unknown-value", "an answer is no cell of the release", Place(INTERVALS, None, "answer"))
    for name, codes in schema.decode(place).items():
        cells = cells.append_column(name, pa.array(schema.attributes[name]).take(pa.array(codes)))
    return cells.drop_columns(["query", "answer"])


def read_intervals(folder: Path, regions: Regions, schema: Schema, stated: Mapping[str, Any]) -> ReleasedIntervals:
    """Read intervals.parquet of a release; ``verify`` judges its content.

    Raises InputError: file-not-found, unreadable-file, missing-column, bad-release.
    """
    rows = read_columns(folder / INTERVALS, COLUMNS)
    texts = tuple(stated["queries"])
    region = regions.at(rows.column("region"))
    query = positions(rows.column("query"), texts)
    answer = np.full(region.size, -1, np.int64)
    for place, text in enumerate(texts):
        mine = np.flatnonzero(query == place)
        answer[mine] = positions(rows.column("answer").take(mine), parse_query(text, schema).labels())
    for places, column in ((region, "region"), (query, "query"), (answer, "answer")):
        refuse(places < 0, f"no such {column}", INTERVALS)
    order = np.argsort(region, kind="stable")
    ends = (int64_column(rows, name)[order] for name in ("lower", "upper"))
    return ReleasedIntervals(float(stated["coverage"]), texts, region[order], query[order], answer[order], *ends)
