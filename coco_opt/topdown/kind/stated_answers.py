"""Check what the files of a release of tables state about answers: invariants, constraints, estimates, intervals.

Each check reads its file and raises BrokenError at the first row that does not hold, or returns how many rows do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from coco_opt.array_types import Flags, Ints
from coco_opt.execution.temporary_storage import forget_pages, stored_empty
from coco_opt.files.arrow_texts import as_arrow
from coco_opt.files.folder import read_columns, read_parts
from coco_opt.files.release_checks import (
    BrokenError,
    coded,
    first_of,
    int64_column,
    is_safe,
    places,
    refuse,
    refuse_repeated,
)
from coco_opt.topdown.bounds import UNBOUNDED
from coco_opt.topdown.constraint import row_of
from coco_opt.topdown.kind.files import (
    CONSTRAINT_COLUMNS,
    CONSTRAINTS,
    ESTIMATE_COLUMNS,
    ESTIMATES,
    EXACT,
    EXACT_COLUMNS,
)
from coco_opt.topdown.kind.intervals import COLUMNS as INTERVAL_COLUMNS
from coco_opt.topdown.kind.intervals import INTERVALS
from coco_opt.topdown.kind.raw_tables import RawTables
from coco_opt.topdown.queries import Query, parse_query


class QueryRows(NamedTuple):
    """The rows of a file that are about one query, and the index of the answer that each of them states."""

    query: Query
    rows: Ints
    answers: Ints

    def keys(self, region: Ints) -> Ints:
        """Return one number for each row's region and answer; ``region`` are those of all rows of the file."""
        return region[self.rows] * self.query.answers + self.answers


def check_invariants(tables: RawTables) -> int:
    """Check that the tables keep every stated answer, and that all that the manifest declares are stated.

    What it declares as exact must be stated as one number.
    """
    # By query, [regions, answers], in a file if they are many.
    before, stated_answers, exact_answers = 0, dict[str, Flags](), dict[str, Flags]()
    declared = {entry["query"] for entry in tables.manifest["exact"]}
    for stated in read_parts(tables.folder / EXACT, EXACT_COLUMNS, coded=True):
        region, queries = _query_rows(tables, stated, EXACT, before)
        lower, upper = int64_column(stated, "lower"), _upper(stated)
        for query, rows, answers in queries:
            _mark(stated_answers, query, tables, region[rows], answers)
            if query.text in declared:
                one = lower[rows] == upper[rows]
                _mark(exact_answers, query, tables, region[rows[one]], answers[one])
            values = tables.answers(query, region[rows], answers)
            wrong = (values < lower[rows]) | (values > upper[rows])
            if wrong.any():
                first = first_of(wrong)
                path = tables.regions.names[region[rows[first]]]
                raise BrokenError(f"{path!r}: {query.text}, {query.label(int(answers[first]))} is not as stated")
        before += stated.num_rows
        forget_pages()
    _check_complete(tables, "facts", stated_answers)
    _check_complete(tables, "exact", exact_answers)
    return before


def check_constraints(tables: RawTables) -> int:
    """Check that the tables keep every stated linear constraint, and that these are the manifest's."""
    stated = read_columns(tables.folder / CONSTRAINTS, CONSTRAINT_COLUMNS)
    if stated.column("fact").null_count:
        raise BrokenError(f"{CONSTRAINTS}: a row names no constraint")
    region, constraint = tables.regions.at(stated.column("region")), int64_column(stated, "fact")
    tables.regions.refuse_misnamed(stated, region, CONSTRAINTS)
    constraints = tables.manifest["facts"]
    if np.unique(constraint).tolist() != [number for number, entry in enumerate(constraints) if "terms" in entry]:
        raise BrokenError(f"{CONSTRAINTS}: the constraints are not those of the manifest")
    levels = np.array([tables.manifest["levels"].index(entry["level"]) for entry in constraints], np.int64)
    lower, upper = _sides(stated)
    is_empty = (lower <= -UNBOUNDED) & (upper >= UNBOUNDED)
    if is_empty.any() or (levels[constraint] != tables.regions.level[region]).any():
        raise BrokenError(f"{CONSTRAINTS}: a row states nothing, or of a region of another level")
    codes, texts = coded(stated.column("constraint"))
    code_of = {text: code for code, text in enumerate(texts.to_pylist())}
    expected = np.array([code_of.get(entry.get("constraint"), -1) for entry in constraints], np.int64)
    refuse(codes != expected[constraint], "another constraint than its number says", CONSTRAINTS)
    for text, weights, regions, (low, high) in _linear_constraints(tables):
        most = float(np.abs(weights).max(initial=0))
        if not is_safe(*(most * tables.counts[rows] for rows in tables.pieces())):
            raise BrokenError(f"{text!r} does not add up within 64 bits")
        sums = np.zeros(len(tables.regions.names), np.int64)
        for rows in tables.pieces():
            np.add.at(sums, tables.region[rows], tables.weighted(weights, rows))
        wrong = (sums[regions] < low) | (sums[regions] > high)
        if wrong.any():
            raise BrokenError(f"{tables.regions.names[regions[first_of(wrong)]]!r}: {text!r} does not hold")
    return int(region.size)


def check_estimates(tables: RawTables) -> int:
    """Check every estimate: of a known region and answer, once, finite, with an error of at least 0."""
    before = 0  # rows of the file in earlier groups
    last: dict[str, int] = {}  # by query, the key of its last answer while keys rise, as in written files
    unsorted: set[str] = set()
    for stated in read_parts(tables.folder / ESTIMATES, ESTIMATE_COLUMNS, coded=True):
        region, queries = _query_rows(tables, stated, ESTIMATES, before)
        value, error = (np.asarray(stated.column(name).to_numpy(), np.float64) for name in ESTIMATE_COLUMNS[-2:])
        is_number = np.isfinite(value) & np.isfinite(error) & (error >= 0)
        refuse(~is_number, "an estimate or its standard error is no number", ESTIMATES, before)
        for each in queries:
            keys = np.append(last.get(each.query.text, -1), each.keys(region))
            last[each.query.text] = int(keys[-1])
            if not (keys[1:] > keys[:-1]).all():
                unsorted.add(each.query.text)
        before += stated.num_rows
    if unsorted:
        _check_each_once(tables, unsorted)
    return before


def check_intervals(tables: RawTables) -> int:
    """Check that intervals are of known answers, ordered, hold the released answers, and leave only zeros out."""
    stated = tables.manifest["intervals"]
    if not isinstance(stated["coverage"], float) or not 0.0 < stated["coverage"] < 1.0:
        raise BrokenError("the manifest states no coverage between 0 and 1")
    intervals = read_columns(tables.folder / INTERVALS, INTERVAL_COLUMNS)
    region, queries = _query_rows(tables, intervals, INTERVALS)
    lower, upper = int64_column(intervals, "lower"), int64_column(intervals, "upper")
    refuse((lower < 0) | (lower > upper), "the ends are not in order", INTERVALS)
    by_text = {each.query.text: each for each in queries}
    if set(by_text) - set(stated["queries"]):
        raise BrokenError(f"{INTERVALS} has other queries than the manifest states")
    marked = np.unique(region[~intervals.column("converged").to_numpy()]).size
    if marked > int(tables.manifest["posterior"]["regions_not_converged"]):
        raise BrokenError(f"{marked:,} regions are marked as not converged, which the manifest does not state")
    for text in stated["queries"]:
        no_rows = np.zeros(0, np.int64)
        query, rows, answers = by_text.get(text, (parse_query(text, tables.schema), no_rows, no_rows))
        refuse_repeated(region[rows] * query.answers + answers, f"an answer of {text!r} occurs twice", INTERVALS)
        released = tables.answers(query, region[rows], answers)
        outside = np.zeros(region.size, np.bool_)
        outside[rows] = (released < lower[rows]) | (released > upper[rows])
        refuse(outside, "does not hold the released answer", INTERVALS)
        columns = query.operator.absolute_columns.astype(np.int64)
        if int(released.sum()) != sum(int(tables.weighted(columns, rows).sum()) for rows in tables.pieces()):
            raise BrokenError(f"{INTERVALS} leaves out an answer of {text!r} that is not 0")
    return int(region.size)


def _query_rows(tables: RawTables, stated: Any, file: str, before: int = 0) -> tuple[Ints, list[QueryRows]]:
    """Return the region of every row of answers, and the rows of each query.

    ``before`` is the number of the file's rows before these. Raises BrokenError for a row of no known answer.
    """
    region = tables.regions.at(stated.column("region"))
    tables.regions.refuse_misnamed(stated, region, file, before)
    codes, texts = coded(stated.column("query"))
    answer_codes, answer_texts = coded(stated.column("answer"))
    refuse(codes == len(texts), "names no query", file, before)
    queries = []
    for code, text in enumerate(texts.to_pylist()):
        rows, query = np.flatnonzero(codes == code), parse_query(text, tables.schema)
        answers = places(answer_texts, as_arrow(query.labels()))[answer_codes[rows]]
        if (answers < 0).any():
            row = before + int(rows[first_of(answers < 0)]) + 1
            raise BrokenError(f"{file}, row {row}: {text!r} has no such answer")
        queries.append(QueryRows(query, rows, answers))
    return region, queries


def _check_complete(tables: RawTables, key: str, stated: Mapping[str, Flags]) -> None:
    """Raise BrokenError for an invariant of the manifest that is not stated for every region of its level.

    ``stated`` says by query which answers [regions, answers] are: those of a ``key`` of the manifest.
    """
    for entry in tables.manifest[key]:
        if "query" not in entry:
            continue
        level = tables.manifest["levels"].index(entry["level"])
        if entry["query"] not in stated or not stated[entry["query"]][tables.regions.level == level].all():
            what = "leaves out answers" if key == "facts" else "states no exact number for answers"
            raise BrokenError(f"{EXACT} {what} of {entry['query']!r} by {entry['level']}")


def _mark(flags: dict[str, Flags], query: Query, tables: RawTables, region: Ints, answers: Ints) -> None:
    """Mark answers of regions among the flags [regions, answers] of a query."""
    if query.text not in flags:
        flags[query.text] = stored_empty((len(tables.regions.names), query.answers), np.dtype(np.bool_))
        flags[query.text][:] = False
    flags[query.text][region, answers] = True


def _linear_constraints(
    tables: RawTables,
) -> Iterator[tuple[str, Ints, Ints, tuple[Ints, Ints]]]:
    """Yield each linear constraint: its text, weights on cells, regions, and sides there."""
    stated = read_columns(tables.folder / CONSTRAINTS, CONSTRAINT_COLUMNS)
    region, constraint = tables.regions.at(stated.column("region")), int64_column(stated, "fact")
    lower, upper = _sides(stated)
    for number in np.unique(constraint[region >= 0]).tolist():
        entry, rows = tables.manifest["facts"][number], np.flatnonzero((constraint == number) & (region >= 0))
        terms = tuple((int(weight), str(count)) for weight, count in entry["terms"])
        yield entry["constraint"], row_of(terms, tables.schema), region[rows], (lower[rows], upper[rows])


def _check_each_once(tables: RawTables, texts: set[str]) -> None:
    """Raise BrokenError where an answer of a region occurs twice among the estimates of some queries."""
    keys: dict[str, list[Ints]] = {text: [] for text in texts}
    for stated in read_parts(tables.folder / ESTIMATES, ESTIMATE_COLUMNS, coded=True):
        region, queries = _query_rows(tables, stated, ESTIMATES)
        for each in queries:
            if each.query.text in keys:
                keys[each.query.text].append(each.keys(region))
    for text, parts in keys.items():
        refuse_repeated(
            np.concatenate(parts), f"of the rows of {text!r}: an answer of a region occurs twice", ESTIMATES
        )


def _sides(stated: Any) -> tuple[Ints, Ints]:
    """Return the sides of constraints, ``UNBOUNDED`` or its negative where there is none."""
    return np.asarray(stated.column("lower").fill_null(-UNBOUNDED).to_numpy(), np.int64), _upper(stated)


def _upper(stated: Any) -> Ints:
    """Return the upper bounds, ``UNBOUNDED`` where there is none."""
    return np.asarray(stated.column("upper").fill_null(UNBOUNDED).to_numpy(), np.int64)
