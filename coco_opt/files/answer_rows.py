"""The rows of ``answers.parquet`` as answers: by what their columns name, whatever order they lie in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coco_opt.array_types import Ints
from coco_opt.errors import Place
from coco_opt.execution.temporary_storage import stored_array, stored_empty
from coco_opt.files.arrow_texts import coded
from coco_opt.files.folder import read_parts
from coco_opt.files.release_checks import BrokenError, int64_column, refuse, refuse_types
from coco_opt.privacy.measurement import MeasurementPlan
from coco_opt.privacy.queries import Answers, NoisyPart, gathered, offsets_of

_INTEGERS = dict.fromkeys(("level", "region", "index", "value"), "int64")
ANSWER_COLUMNS = ("query", *_INTEGERS)
_ROWS = 1 << 20  # that are looked at together


class _OtherOrderError(Exception):
    """The rows are planned answers in another order than that of the queries."""


def read_answers(path: Path, measurement_plan: MeasurementPlan) -> tuple[Answers, ...]:
    """Return the answers to a plan's queries; rows in the queries' order are read once, others are sorted.

    Raises InputError (bad-release, missing-column) unless every planned answer has exactly one row. O(answers).
    """
    tree, per_region = measurement_plan.hierarchy, measurement_plan.per_region
    planned = _Planned.of(measurement_plan)
    try:
        return gathered(measurement_plan.queries, planned.cut(_ordered(path, planned)), tree, per_region)
    except _OtherOrderError:
        values = _sorted(path, planned)
    return gathered(measurement_plan.queries, planned.cut([values]), tree, per_region)


def _ordered(path: Path, planned: _Planned) -> Iterator[Ints]:
    """Yield the values of all rows, which must be the planned answers one after the other."""
    done = 0
    for rows in _batches(path, planned):
        if not np.array_equal(rows.positions, np.arange(done, done + rows.values.size)):
            raise _OtherOrderError
        done += rows.values.size
        yield rows.values
    if done < planned.total:
        raise _fewer(path, planned, done)


def _sorted(path: Path, planned: _Planned) -> Ints:
    """Return the values of all rows in the order of the planned answers, each of which must have one row."""
    values = stored_empty((planned.total,), np.dtype(np.int64))
    present = stored_empty((planned.total,), np.dtype(np.bool_))
    present[:] = False
    for rows in _batches(path, planned):
        repeated = present[rows.positions]
        _, first = np.unique(rows.positions, return_index=True)
        later = np.ones(rows.values.size, np.bool_)
        later[first] = False
        message = "is an answer that an earlier row has: each has one row"
        refuse(repeated | later, message, path.name, rows.start, "index")
        present[rows.positions] = True
        values[rows.positions] = rows.values
    if not present.all():
        raise _fewer(path, planned, int(np.argmin(present)))
    return values


def _fewer(path: Path, planned: _Planned, position: int) -> BrokenError:
    return BrokenError(f"has no row for {planned.words(position)}: restore it", Place(path.name))


@dataclass(frozen=True, eq=False, slots=True)
class _Rows:
    """Rows of a file from ``start``, counted from 0: their values, and their places among all planned answers."""

    start: int
    positions: Ints
    values: Ints


def _batches(path: Path, planned: _Planned) -> Iterator[_Rows]:
    start = 0
    for part in read_parts(path, ANSWER_COLUMNS, only=ANSWER_COLUMNS, coded=True, texts=("query",)):
        refuse_types(part, _INTEGERS, path.name, start)
        for offset in range(0, part.num_rows, _ROWS):
            some = part.slice(offset, _ROWS)
            positions = planned.positions(some, path, start + offset)
            yield _Rows(start + offset, positions, int64_column(some, "value"))
        start += part.num_rows


@dataclass(frozen=True, eq=False, slots=True)
class _Planned:
    """Where each planned answer stands among all, query after query, region after region.

    ``bounds`` int64 are, of one query after the other, where the answers of each region of its level begin and, at
    last, end; ``first[place]`` is where those of a query stand in it, one more than queries.
    """

    measurement_plan: MeasurementPlan
    bounds: Ints
    first: Ints

    @classmethod
    def of(cls, measurement_plan: MeasurementPlan) -> _Planned:
        """Return the places of a plan's answers; O(queries x regions)."""
        parts, total = [np.zeros(0, np.int64)], 0
        for query in measurement_plan.queries:
            parts.append(total + offsets_of(query, measurement_plan.hierarchy, measurement_plan.per_region))
            total = int(parts[-1][-1])
        first = np.cumsum([part.size for part in parts], dtype=np.int64)
        return cls(measurement_plan, stored_array(parts), first)

    @property
    def total(self) -> int:
        """Return the number of planned answers."""
        return int(self.bounds[-1]) if self.bounds.size else 0

    def cut(self, batches: Iterable[Ints]) -> Iterator[NoisyPart]:
        """Yield the values of all answers, which come in batches of any size, as parts of one query each."""
        place = done = 0
        for values in batches:
            start = 0
            while start < values.size:
                while done == self.bounds[self.first[place + 1] - 1]:
                    place += 1
                taken = values[start : start + int(self.bounds[self.first[place + 1] - 1]) - done]
                yield NoisyPart(place, done - int(self.bounds[self.first[place]]), taken)
                start, done = start + taken.size, done + taken.size

    def positions(self, rows: Any, path: Path, start: int) -> Ints:
        """Return the place of every row of a table; BrokenError at the first that names no planned answer.

        Consecutive rows of one query and region are looked up together.
        """
        index, region, level = (rows.column(name).to_numpy() for name in ("index", "region", "level"))
        codes, names = coded(rows.column("query"))
        refuse(codes == len(names), "is empty", path.name, start, "query")
        changes = (region[1:] != region[:-1]) | (level[1:] != level[:-1]) | (codes[1:] != codes[:-1])
        runs = np.append(0, np.flatnonzero(changes) + 1)
        places = self._places(names.to_pylist())
        begin, size = self._runs(places, codes[runs], level[runs], region[runs], path, start + runs)
        lengths = np.diff(runs, append=region.size)
        outside = (index < 0) | (index >= np.repeat(size, lengths))
        refuse(outside, "is no answer of this region to this query: they count from 0", path.name, start, "index")
        return np.asarray(np.repeat(begin, lengths) + index, np.int64)

    def _runs(self, places: Ints, codes: Ints, level: Ints, region: Ints, path: Path, rows: Ints) -> tuple[Ints, Ints]:
        """Return where the answers of a region to a query begin, and their number; runs begin at ``rows``, from 0."""

        def check(holds: NDArray[np.bool_], message: str, column: str) -> None:
            if not holds.all():
                raise BrokenError(message, Place(path.name, int(rows[np.argmin(holds)]) + 1, column))

        starts = np.asarray(self.measurement_plan.hierarchy.level_start, np.int64)
        check((level >= 0) & (level < starts.size - 1), "is no level of the hierarchy", "level")
        place = places[codes, level]
        check(place >= 0, "is no query that was planned for this level", "query")
        inside = (region >= starts[level]) & (region < starts[level + 1])
        check(inside, "is no region of this level: rows of hierarchy.parquet count from 0", "region")
        entry = self.first[place] + (region - starts[level])
        return self.bounds[entry], self.bounds[entry + 1] - self.bounds[entry]

    def _places(self, names: list[str]) -> Ints:
        """Return the place of the query of each name and level, -1 where there is none."""
        places = np.full((len(names), self.measurement_plan.hierarchy.levels), -1, np.int64)
        rows = {name: row for row, name in enumerate(names)}
        for place, query in enumerate(self.measurement_plan.queries):
            if query.name in rows:
                places[rows[query.name], query.level] = place
        return places

    def words(self, position: int) -> str:
        """Return which answer stands at a place."""
        entry = int(np.searchsorted(self.bounds, position, side="right")) - 1
        place = int(np.searchsorted(self.first, entry, side="right")) - 1
        query = self.measurement_plan.queries[place]
        region = self.measurement_plan.hierarchy.level_range(query.level).start + entry - int(self.first[place])
        index = position - int(self.bounds[entry])
        return f"the answer {index} to {query.name!r} at level {query.level}, region {region}"
