"""Check the files of a release of tables against its promises, from raw columns, without the code that wrote them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coco_opt.errors import CocoOptError, InputError
from coco_opt.files.arrow_texts import as_arrow
from coco_opt.files.differences import REGION
from coco_opt.files.folder import read_columns, read_parts
from coco_opt.files.release_checks import Check, Regions, coded, first_of, int64_column, is_safe, places, positions
from coco_opt.histograms.arrays import Int64Array
from coco_opt.releases.kind import Folder
from coco_opt.topdown.bounds import UNBOUNDED
from coco_opt.topdown.constraint import row_of
from coco_opt.topdown.kind.agreement import Tables, agreement_checks
from coco_opt.topdown.kind.exact_answers import ExactAnswers, Statements
from coco_opt.topdown.kind.files import (
    CONSTRAINT_COLUMNS,
    CONSTRAINTS,
    ESTIMATE_COLUMNS,
    ESTIMATES,
    EXACT,
    EXACT_COLUMNS,
    MICRODATA,
    PERSONS,
    TABLES,
)
from coco_opt.topdown.kind.intervals import COLUMNS as INTERVAL_COLUMNS
from coco_opt.topdown.kind.intervals import INTERVALS
from coco_opt.topdown.kind.intervals import PROMISE as INTERVALS_PROMISE
from coco_opt.topdown.queries import Query, parse_query
from coco_opt.topdown.schema import Schema
from coco_opt.topdown.schema_json import schema_of
from coco_opt.topdown.table_queries import AGREES

Int32Array = NDArray[np.int32]
_Stated = tuple[Query, Int64Array, Int64Array]

_BLOCK = 1 << 10  # regions whose dense answers are in memory at a time
ALWAYS = ("nonnegative", "structural_zeros", "children_sum_to_parents")
INVARIANTS_HOLD, CONSTRAINTS_HOLD, MICRODATA_AGREE = "invariants", "constraints", "microdata"
PROMISES = (*ALWAYS, INVARIANTS_HOLD, CONSTRAINTS_HOLD, MICRODATA_AGREE, INTERVALS_PROMISE, AGREES)


@dataclass(frozen=True, eq=False, slots=True)
class _Content:
    """The raw columns as arrays: ``region`` is a row of the regions' file, ``cell`` one of the product, both int32.

    ``misplaced`` names a row whose level or name is not its region's, "" for none. The product has at most 2^27 cells,
    and files of more than 2^31 regions are not written.
    """

    folder: Path
    manifest: Mapping[str, Any]
    schema: Schema
    regions: Regions
    region: Int32Array
    cell: Int32Array
    persons: Int64Array
    misplaced: str
    block: int

    @property
    def keys(self) -> Int64Array:
        """Return one number for each region and cell."""
        return self.region * np.int64(self.schema.cells) + self.cell


def checks_of(folder: Folder, block: int = _BLOCK) -> Iterator[Check]:
    """Check the tables of a folder and every promise of its manifest; promises that cannot be checked are skipped.

    Always checked: counts are integers; every row has a known region, its level, known values and a distinct cell; and
    estimates are of known answers. Dense answers of ``block`` regions are in memory at a time. O(rows log rows). Raises
    InputError where a file cannot be read.
    """
    schema = schema_of(folder.manifest.get("schema", {}))
    content, integers = _columns(folder, schema, block)
    yield integers
    if content is None:
        return
    rows = _rows(content)
    yield rows
    if not rows.passed:
        return
    failure = _missing_promise(folder.manifest)
    if failure:
        yield Check("facts", passed=False, detail=failure)
    yield from (_PROMISES[name](content) for name in _PROMISES if name in folder.manifest["promises"])
    if AGREES in folder.manifest["promises"]:
        yield from agreement_checks(folder, schema, _allowed_rows(content))
    if (folder.path / ESTIMATES).exists():
        yield from _estimates(content)


def _missing_promise(manifest: Mapping[str, Any]) -> str:
    """Return a message about a constraint that the manifest states without promising that it holds; "" for none."""
    constraints = manifest.get("facts")
    if not isinstance(constraints, list) or not all(
        isinstance(entry, dict) and ("query" in entry or "terms" in entry) for entry in constraints
    ):
        return "the manifest states no constraints, or states them in another form"
    if AGREES in manifest and AGREES not in manifest["promises"]:
        return f"the manifest names earlier releases and does not promise to agree with them: {AGREES}"
    for promise, key in ((INVARIANTS_HOLD, "query"), (CONSTRAINTS_HOLD, "terms")):
        if promise not in manifest["promises"] and any(key in entry for entry in constraints):
            return f"the manifest states constraints and does not promise that they hold: {promise}"
    return ""


def _allowed_rows(content: _Content) -> Tables:
    """Return regions, allowed cells and persons of rows whose cells can occur; other rows break another promise."""
    allowed = content.schema.position[content.cell]
    used = allowed >= 0
    return content.region[used].astype(np.int64), allowed[used], content.persons[used]


def _integers(tables: Any) -> Check:
    import pyarrow.types as kinds

    for name in ("level", PERSONS):
        column = tables.column(name)
        if not kinds.is_signed_integer(column.type) or column.null_count:
            return Check("integers", passed=False, detail=f"{TABLES}, column {name!r} does not hold integers only")
    return Check("integers", passed=True, detail="levels and counts are integers")


def _columns(folder: Folder, schema: Schema, block: int) -> tuple[_Content | None, Check]:
    """Return the columns of the tables, read a group of rows at a time, or None if some are not integers."""
    regions, rows = folder.regions, 0
    regions_of, cells = [np.zeros(0, np.int32)], [np.zeros(0, np.int32)]
    persons, misplaced = [np.zeros(0, np.int64)], ""
    check = Check("integers", passed=True, detail="levels and counts are integers")
    for part in read_parts(folder.path / TABLES, (*REGION, *schema.names, PERSONS), coded=True):
        check = _integers(part)
        if not check.passed:
            return None, check
        region = regions.at(part.column("region"))
        wrong = regions.misnamed(part, region) if (region >= 0).all() else None
        if wrong and not misplaced:
            misplaced = f"row {rows + wrong[0] + 1}: not the region's {wrong[1]}"
        regions_of.append(region.astype(np.int32))
        cells.append(_cells(schema, part).astype(np.int32))
        persons.append(int64_column(part, PERSONS))
        rows += part.num_rows
    columns = np.concatenate(regions_of), np.concatenate(cells), np.concatenate(persons)
    return _Content(folder.path, folder.manifest, schema, regions, *columns, misplaced, block), check


def _rows(content: _Content) -> Check:
    for wrong, what in (
        (content.region < 0, "no such region"),
        (content.cell < 0, "a value that its attribute does not have"),
        (content.persons == 0, "a row with 0 persons must be left out"),
    ):
        if wrong.any():
            return Check("rows", passed=False, detail=f"row {first_of(wrong) + 1}: {what}")
    if content.misplaced:
        return Check("rows", passed=False, detail=content.misplaced)
    if not _all_differ(content.keys):
        return Check("rows", passed=False, detail="a region and cell occur twice")
    return Check("rows", passed=True, detail="every region and cell occurs once")


def _all_differ(keys: Int64Array) -> bool:
    """Return whether no key occurs twice; rising keys, as in written files, need no sorting."""
    return bool((keys[1:] > keys[:-1]).all()) or np.unique(keys).size == keys.size


def _nonnegative(content: _Content) -> Check:
    wrong = content.persons < 0
    detail = f"row {first_of(wrong) + 1} is negative" if wrong.any() else "no count is negative"
    return Check("nonnegative", not wrong.any(), detail)


def _zeros(content: _Content) -> Check:
    wrong = content.schema.position[content.cell] < 0
    rules = len(content.schema.rules)
    detail = f"row {first_of(wrong) + 1} is ruled out" if wrong.any() else f"no person where {rules} rules forbid one"
    return Check("structural_zeros", not wrong.any(), detail)


def _children_sum(content: _Content) -> Check:
    """Compare each inner region's cells with the sums of its children's: the difference must vanish everywhere."""
    name = "children_sum_to_parents"
    if not is_safe(content.persons):
        return Check(name, passed=False, detail="the counts do not add up within 64 bits")
    wrong, first = 0, ""
    for region, cell, persons in _families(content):
        keys, where = np.unique(region * np.int64(content.schema.cells) + cell, return_inverse=True)
        rest = np.zeros(keys.size, np.int64)
        np.add.at(rest, where, persons)
        if rest.any():
            first = first or content.regions.names[int(keys[first_of(rest != 0)]) // content.schema.cells]
            wrong += int(np.count_nonzero(rest))
    if wrong:
        return Check(name, passed=False, detail=f"{wrong} cells differ; the first lies in {first!r}")
    return Check(name, passed=True, detail="every region is the sum of its children in every cell")


def _families(content: _Content) -> Iterator[tuple[Int64Array, Int64Array, Int64Array]]:
    """Yield rows of regions with children, and negated rows of those children: parent region, cell, persons.

    Each item holds some parents with all rows that count there.
    """
    parent = content.regions.parent.astype(np.int32)
    inner = np.zeros(parent.size, np.bool_)
    inner[parent[parent >= 0]] = True
    up = parent[content.region]
    own, below = _Sorted.of(content.region), _Sorted.of(up)
    for start in range(0, parent.size, content.block):
        parent_rows, child_rows = own.between(start, start + content.block), below.between(start, start + content.block)
        parent_rows = parent_rows[inner[content.region[parent_rows]]]
        yield (
            np.concatenate([content.region[parent_rows], up[child_rows]]),
            np.concatenate([content.cell[parent_rows], content.cell[child_rows]]),
            np.concatenate([content.persons[parent_rows], -content.persons[child_rows]]),
        )


@dataclass(frozen=True, eq=False, slots=True)
class _Sorted:
    """Keys in rising order; ``order`` is the original position of each, None if they rise already."""

    keys: Int32Array
    order: Int64Array | None

    @classmethod
    def of(cls, keys: Int32Array) -> _Sorted:
        """Sort keys unless they rise already."""
        if (keys[1:] >= keys[:-1]).all():
            return cls(keys, None)
        order = np.argsort(keys, kind="stable")
        return cls(keys[order], order)

    def between(self, low: int, high: int) -> Int64Array:
        """Return the original positions of the keys low .. high - 1."""
        first, last = np.searchsorted(self.keys, [low, high])
        return np.arange(first, last) if self.order is None else self.order[first:last]


def _invariants(content: _Content) -> Check:
    return _stated_check("invariants", EXACT, "answers", lambda: _broken_invariant(content))


def _stated_check(name: str, file: str, what: str, broken: Callable[[], tuple[str, int]]) -> Check:
    """Check what a file states: ``broken`` returns the first failure ("" for none) and the number of statements."""
    failure, checked = "", 0
    try:
        failure, checked = broken()
    except (CocoOptError, KeyError, TypeError, ValueError, IndexError) as error:
        failure = str(error) or f"{file} and the manifest's constraints do not fit together"
    return Check(name, not failure, failure or f"{checked:,} stated {what} hold")


def _broken_invariant(content: _Content) -> tuple[str, int]:
    """Return the first stated answer that the tables do not keep ("" if all hold) and the number of answers."""
    stated = read_columns(content.folder / EXACT, EXACT_COLUMNS)
    region, places, failure = _stated_answers(content, stated, EXACT)
    failure = failure or _omitted_answers(content, region, places)
    if failure:
        return failure, 0
    lower, upper = int64_column(stated, "lower"), _upper(stated)
    for query, rows, answers in places:
        values = _answers(content, query, region[rows], answers)
        wrong = (values < lower[rows]) | (values > upper[rows])
        if wrong.any():
            first = first_of(wrong)
            path = content.regions.names[region[rows[first]]]
            return f"{path!r}: {query.text}, {query.label(int(answers[first]))} is not as stated", 0
    return "", region.size


def _omitted_answers(content: _Content, region: Int64Array, places: Sequence[_Stated]) -> str:
    """Return the invariant of the manifest that is not stated for every region of its level; "" for none."""
    stated = {query.text: (query, rows, answers) for query, rows, answers in places}
    for entry in content.manifest["facts"]:
        if "query" not in entry:
            continue
        missing = f"{EXACT} leaves out answers of {entry['query']!r} by {entry['level']}"
        if entry["query"] not in stated:
            return missing
        query, rows, answers = stated[entry["query"]]
        level = content.manifest["levels"].index(entry["level"])
        at_level = content.regions.level[region[rows]] == level
        pairs = np.unique(region[rows[at_level]] * query.answers + answers[at_level])
        if pairs.size < np.count_nonzero(content.regions.level == level) * query.answers:
            return missing
    return ""


def _constraints(content: _Content) -> Check:
    return _stated_check("constraints", CONSTRAINTS, "constraints", lambda: _broken_constraint(content))


def _broken_constraint(content: _Content) -> tuple[str, int]:
    """Return the first constraint that the tables do not keep ("" if all hold) and the number of constraints."""
    stated = read_columns(content.folder / CONSTRAINTS, CONSTRAINT_COLUMNS)
    if stated.column("fact").null_count:
        return f"{CONSTRAINTS}: a row names no constraint", 0
    region, constraint = content.regions.at(stated.column("region")), int64_column(stated, "fact")
    if (region < 0).any():
        return f"{CONSTRAINTS}, row {first_of(region < 0) + 1}: no such region", 0
    sides = _sides(stated)
    constraints = content.manifest["facts"]
    if np.unique(constraint).tolist() != [number for number, entry in enumerate(constraints) if "terms" in entry]:
        return f"{CONSTRAINTS}: the constraints are not those of the manifest", 0
    levels = np.array([content.manifest["levels"].index(entry["level"]) for entry in constraints], np.int64)
    empty = (sides[0] <= -UNBOUNDED) & (sides[1] >= UNBOUNDED)
    if empty.any() or (levels[constraint] != content.regions.level[region]).any():
        return f"{CONSTRAINTS}: a row states nothing, or of a region of another level", 0
    misnamed = content.regions.misnamed(stated, region)
    if misnamed:
        return f"{CONSTRAINTS}, row {misnamed[0] + 1}: not the region's {misnamed[1]}", 0
    allowed = content.schema.position[content.cell]
    for number in np.unique(constraint).tolist():
        terms = tuple((int(weight), str(count)) for weight, count in constraints[number]["terms"])
        weights = row_of(terms, content.schema)
        if not is_safe(np.abs(weights).max(initial=0) * content.persons.astype(np.float64)):
            return f"{constraints[number]['constraint']!r} does not add up within 64 bits", 0
        counted = np.where(allowed >= 0, weights[np.maximum(allowed, 0)], 0) * content.persons
        values = np.zeros(len(content.regions.names), np.int64)
        np.add.at(values, content.region, counted)
        rows = np.flatnonzero(constraint == number)
        wrong = (values[region[rows]] < sides[0][rows]) | (values[region[rows]] > sides[1][rows])
        if wrong.any():
            path = content.regions.names[region[rows[first_of(wrong)]]]
            return f"{path!r}: {constraints[number]['constraint']!r} does not hold", 0
    return "", region.size


def _stated_answers(
    content: _Content, stated: Any, file: str, before: int = 0
) -> tuple[Int64Array, list[_Stated], str]:
    """Return the region of every row of answers, the rows and answers of each query, and an error message or "".

    ``before`` is the number of the file's rows before these.
    """
    region, first = content.regions.at(stated.column("region")), before + 1
    if (region < 0).any():
        return region, [], f"{file}, row {first_of(region < 0) + first}: no such region"
    wrong = content.regions.misnamed(stated, region)
    if wrong:
        return region, [], f"{file}, row {wrong[0] + first}: not the region's {wrong[1]}"
    queries: list[_Stated] = []
    codes, texts = coded(stated.column("query"))
    answer_codes, answer_texts = coded(stated.column("answer"))
    if (codes == len(texts)).any():
        return region, [], f"{file}, row {first_of(codes == len(texts)) + first}: names no query"
    for code, text in enumerate(texts.to_pylist()):
        rows = np.flatnonzero(codes == code)
        query = parse_query(text, content.schema)
        answers = places(answer_texts, as_arrow(query.labels()))[answer_codes[rows]]
        if (answers < 0).any():
            return region, [], f"{file}, row {int(rows[first_of(answers < 0)]) + first}: {text!r} has no such answer"
        queries.append((query, rows, answers))
    return region, queries, ""


def _estimates(content: _Content) -> Iterator[Check]:
    """Check every estimate: of a known region and answer, once, finite, with an error of at least 0, and exact or not.

    An estimate of what is stated as exact is that value.
    """
    failure, rows = "", 0
    last: dict[str, int] = {}  # by query, the key of its last answer while keys rise, as in written files
    unsorted: set[str] = set()
    exact: ExactAnswers | None = None
    try:
        exact = ExactAnswers(_statements(content), content.regions)
        for stated in read_parts(content.folder / ESTIMATES, ESTIMATE_COLUMNS, coded=True):
            region, queries, failure = _stated_answers(content, stated, ESTIMATES, rows)
            value, error = (np.asarray(stated.column(name).to_numpy(), np.float64) for name in ESTIMATE_COLUMNS[-2:])
            for query, query_rows, answers in queries:
                keys = np.append(last.get(query.text, -1), region[query_rows] * query.answers + answers)
                last[query.text] = int(keys[-1])
                if not (keys[1:] > keys[:-1]).all():
                    unsorted.add(query.text)
            wrong = ~(np.isfinite(value) & np.isfinite(error) & (error >= 0))
            if not failure and wrong.any():
                row = rows + first_of(wrong) + 1
                failure = f"{ESTIMATES}, row {row}: an estimate or its standard error is no number"
            if failure:
                break
            for query, query_rows, answers in queries:
                exact.look_at(query, region[query_rows], answers, value[query_rows], error[query_rows])
            rows += stated.num_rows
        if not failure and unsorted and not _each_once(content, unsorted):
            failure = f"{ESTIMATES}: an answer of a region occurs twice"
    except (CocoOptError, KeyError, TypeError, ValueError, IndexError) as error:
        failure = str(error) or f"{ESTIMATES} and the manifest do not fit together"
    yield Check("estimates", not failure, failure or f"{rows:,} estimates are of known answers")
    if not failure and exact is not None:
        exact.finish()
        detail = exact.failure or f"{exact.checked:,} estimates or sums of them are the exact values"
        yield Check("exact_estimates", not exact.failure, detail)


def _statements(content: _Content) -> Statements:
    """Return everything that the files state as exact, by region, with what follows for the regions above."""
    statements = Statements.empty(len(content.regions.names), content.schema.size)
    if (content.folder / EXACT).exists():
        stated = read_columns(content.folder / EXACT, EXACT_COLUMNS)
        region, queries, failure = _stated_answers(content, stated, EXACT)
        values = int64_column(stated, "lower")
        exact = values == _upper(stated)
        for query, rows, answers in queries if not failure else ():
            held = exact[rows]
            if held.any():
                statements = statements.and_answers(query, region[rows[held]], answers[held], values[rows[held]])
    if (content.folder / CONSTRAINTS).exists():
        for name, weights, region, (lower, upper) in _stated_rows(content):
            held = lower == upper
            statements = statements.and_row(weights, name, region[held], lower[held])
    return statements.closed(content.regions)


def _stated_rows(content: _Content) -> Iterator[tuple[str, Int64Array, Int64Array, tuple[Int64Array, Int64Array]]]:
    """Yield each linear constraint: its text, weights on cells, regions, and sides there."""
    stated = read_columns(content.folder / CONSTRAINTS, CONSTRAINT_COLUMNS)
    region, constraint = content.regions.at(stated.column("region")), int64_column(stated, "fact")
    lower, upper = _sides(stated)
    for number in np.unique(constraint[region >= 0]).tolist():
        entry, rows = content.manifest["facts"][number], np.flatnonzero((constraint == number) & (region >= 0))
        terms = tuple((int(weight), str(count)) for weight, count in entry["terms"])
        yield entry["constraint"], row_of(terms, content.schema), region[rows], (lower[rows], upper[rows])


def _each_once(content: _Content, texts: set[str]) -> bool:
    """Return whether no answer of a region occurs twice among the estimates of some queries."""
    seen: dict[str, list[Int64Array]] = {text: [] for text in texts}
    for stated in read_parts(content.folder / ESTIMATES, ESTIMATE_COLUMNS, coded=True):
        region, queries, _ = _stated_answers(content, stated, ESTIMATES)
        for query, query_rows, answers in queries:
            if query.text in seen:
                seen[query.text].append(region[query_rows] * query.answers + answers)
    return all(_all_differ(np.concatenate(parts)) for parts in seen.values())


def _answers(content: _Content, query: Query, regions: Int64Array, answers: Int64Array) -> Int64Array:
    """Return the answer of a query for each pair of regions and answers, all int64[rows], from the raw rows."""
    from scipy.sparse import csr_array

    distinct, inverse = np.unique(regions, return_inverse=True)
    place = np.full(len(content.regions.names), -1, np.int64)
    place[distinct] = np.arange(distinct.size)
    used = (place[content.region] >= 0) & (content.schema.position[content.cell] >= 0)
    cells = content.schema.position[content.cell[used]]
    shape = (distinct.size, content.schema.size)
    table = csr_array((content.persons[used], (place[content.region[used]], cells)), shape=shape)
    values = np.zeros(regions.size, np.int64)
    matrix = query.operator.to_sparse().astype(np.int64).tocsr()
    for start in range(0, distinct.size, content.block):
        rows = np.flatnonzero((inverse >= start) & (inverse < start + content.block))
        block = (table[start : start + content.block] @ matrix.T).toarray()
        values[rows] = block[inverse[rows] - start, answers[rows]]
    return values


def _sides(stated: Any) -> tuple[Int64Array, Int64Array]:
    """Return the sides of constraints, ``UNBOUNDED`` or its negative where there is none."""
    return np.asarray(stated.column("lower").fill_null(-UNBOUNDED).to_numpy(), np.int64), _upper(stated)


def _upper(stated: Any) -> Int64Array:
    """Return the upper bounds, ``UNBOUNDED`` where there is none."""
    return np.asarray(stated.column("upper").fill_null(UNBOUNDED).to_numpy(), np.int64)


def _microdata(content: _Content) -> Check:
    """Count the persons of the microdata by region and cell: the counts must equal the leaves' tables."""
    failure, keys, counts = "", np.zeros(0, np.int64), np.zeros(0, np.int64)
    try:
        for part in read_parts(content.folder / MICRODATA, (*REGION, *content.schema.names), coded=True):
            region = content.regions.at(part.column("region"))
            cell = _cells(content.schema, part)
            if (region < 0).any() or (cell < 0).any() or content.regions.misnamed(part, region):
                raise InputError("unknown-value", "a person has no known region or values, or other names of it")
            keys, counts = _merged(keys, counts, region * content.schema.cells + cell)
    except InputError as error:
        failure = str(error)
    if failure:
        return Check("microdata", passed=False, detail=failure)
    leaves = content.regions.level[content.region] == content.regions.level.max()
    order = np.argsort(content.keys[leaves])
    same = np.array_equal(keys, content.keys[leaves][order]) and np.array_equal(counts, content.persons[leaves][order])
    detail = f"{counts.sum():,} persons make the tables of the leaves" if same else "the persons make other tables"
    return Check("microdata", same, detail)


def _intervals(content: _Content) -> Check:
    """Check that intervals are of known answers, ordered, hold the released answers, and leave only zeros out."""
    failure, rows = "", 0
    try:
        failure, rows = _broken_interval(content)
    except (CocoOptError, KeyError, TypeError, ValueError) as error:
        failure = str(error) or f"{INTERVALS} and the manifest's intervals do not fit together"
    return Check(INTERVALS_PROMISE, not failure, failure or f"{rows:,} intervals hold their released answers")


def _broken_interval(content: _Content) -> tuple[str, int]:
    """Return the first interval that does not keep the promise ("" if all do) and the number of intervals."""
    stated = content.manifest["intervals"]
    if not isinstance(stated["coverage"], float) or not 0.0 < stated["coverage"] < 1.0:
        return "the manifest states no coverage between 0 and 1", 0
    rows = read_columns(content.folder / INTERVALS, INTERVAL_COLUMNS)
    region, queries, failure = _stated_answers(content, rows, INTERVALS)
    if failure:
        return failure, 0
    lower, upper = int64_column(rows, "lower"), int64_column(rows, "upper")
    wrong = (lower < 0) | (lower > upper)
    if wrong.any():
        return f"{INTERVALS}, row {first_of(wrong) + 1}: the ends are not in order", 0
    if {query.text for query, _, _ in queries} - set(stated["queries"]):
        return f"{INTERVALS} has other queries than the manifest states", 0
    marked = np.unique(region[~rows.column("converged").to_numpy()]).size
    if marked > int(content.manifest["posterior"]["regions_not_converged"]):
        return f"{marked:,} regions are marked as not converged, which the manifest does not state", 0
    stated_queries = {query.text: (query, of_rows, answers) for query, of_rows, answers in queries}
    for text in stated["queries"]:
        nothing = np.zeros(0, np.int64)
        query, of_rows, answers = stated_queries.get(text, (parse_query(text, content.schema), nothing, nothing))
        if not _all_differ(region[of_rows] * query.answers + answers):
            return f"{INTERVALS}: an answer of {text!r} occurs twice", 0
        released = _answers(content, query, region[of_rows], answers)
        outside = (released < lower[of_rows]) | (released > upper[of_rows])
        if outside.any():
            return f"{INTERVALS}, row {int(of_rows[first_of(outside)]) + 1}: does not hold the released answer", 0
        if int(released.sum()) != _all_answers(content, query):
            return f"{INTERVALS} leaves out an answer of {text!r} that is not 0", 0
    return "", region.size


def _all_answers(content: _Content, query: Query) -> int:
    """Return the sum of a query's answers over all regions."""
    counted = np.asarray(query.operator.absolute_columns, np.int64)
    allowed = content.schema.position[content.cell]
    return int((np.where(allowed >= 0, counted[np.maximum(allowed, 0)], 0) * content.persons).sum())


def _merged(keys: Int64Array, counts: Int64Array, more: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Return distinct keys and their counts after more keys are added."""
    added, times = np.unique(more, return_counts=True)
    merged, where = np.unique(np.concatenate([keys, added]), return_inverse=True)
    total = np.zeros(merged.size, np.int64)
    np.add.at(total, where, np.concatenate([counts, times]))
    return merged, total


def _cells(schema: Schema, table: Any) -> Int64Array:
    """Return the product cell of every row's values, negative for an unknown value."""
    cell = np.zeros(table.num_rows, np.int64)
    for name, values in schema.attributes.items():
        code = positions(table.column(name), values)
        cell = np.where((code < 0) | (cell < 0), -1, cell * len(values) + code)
    return cell


_PROMISES: dict[str, Callable[[_Content], Check]] = {
    "nonnegative": _nonnegative,
    "structural_zeros": _zeros,
    "children_sum_to_parents": _children_sum,
    INVARIANTS_HOLD: _invariants,
    CONSTRAINTS_HOLD: _constraints,
    MICRODATA_AGREE: _microdata,
    INTERVALS_PROMISE: _intervals,
}
