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
from coco_opt.files.checked import Check, Regions, coded, first_of, int64_column, is_safe, places, positions
from coco_opt.files.folder import read_columns, read_parts
from coco_opt.histograms.arrays import Int64Array
from coco_opt.releases.kind import Folder
from coco_opt.topdown.bounds import UNBOUNDED
from coco_opt.topdown.constraint import row_of
from coco_opt.topdown.kind.agreement import Tables, agreement_checks
from coco_opt.topdown.kind.files import (
    CONSTRAINT_COLUMNS,
    CONSTRAINTS,
    ESTIMATE_COLUMNS,
    ESTIMATES,
    EXACT,
    EXACT_COLUMNS,
    MICRODATA,
    PERSONS,
    REGION,
    TABLES,
)
from coco_opt.topdown.plain import schema_of
from coco_opt.topdown.queries import Query, parse_query
from coco_opt.topdown.questions import AGREES
from coco_opt.topdown.schema import Schema

Int32Array = NDArray[np.int32]
_Stated = tuple[Query, Int64Array, Int64Array]

_BLOCK = 1 << 10  # regions whose answers are dense at a time
ALWAYS = ("nonnegative", "structural_zeros", "children_sum_to_parents")
INVARIANTS_HOLD, CONSTRAINTS_HOLD, MICRODATA_AGREE = "invariants", "constraints", "microdata"
PROMISES = (*ALWAYS, INVARIANTS_HOLD, CONSTRAINTS_HOLD, MICRODATA_AGREE, AGREES)


@dataclass(frozen=True, eq=False, slots=True)
class _Content:
    """The raw columns as arrays: ``region`` is a row of the regions' file, ``cell`` one of the product, both int32.

    ``misplaced`` says which row has another level or name than its region, "" for none. Cells of the product are at
    most 2^27, and files of more than 2^31 regions are not written.
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
    """Check the tables of a folder and every promise of its manifest; those that cannot be checked are left out.

    Always checked: counts are integers, every row has a known region, its level, known values and a place of its own,
    and estimates are of known answers. ``block`` regions' answers are dense at a time. O(rows log rows). Raises
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
    facts = _unpromised(folder.manifest)
    if facts:
        yield Check("facts", passed=False, detail=facts)
    yield from (_PROMISES[name](content) for name in _PROMISES if name in folder.manifest["promises"])
    if AGREES in folder.manifest["promises"]:
        yield from agreement_checks(folder, schema, _counted(content))
    if (folder.path / ESTIMATES).exists():
        yield _estimates(content)


def _unpromised(manifest: Mapping[str, Any]) -> str:
    """Return what the manifest states as a fact and does not promise to hold, "" for nothing."""
    facts = manifest.get("facts")
    if not isinstance(facts, list) or not all(
        isinstance(one, dict) and ("query" in one or "terms" in one) for one in facts
    ):
        return "the manifest states no facts, or states them in another form"
    if AGREES in manifest and AGREES not in manifest["promises"]:
        return f"the manifest names earlier releases and does not promise to agree with them: {AGREES}"
    for promise, key in ((INVARIANTS_HOLD, "query"), (CONSTRAINTS_HOLD, "terms")):
        if promise not in manifest["promises"] and any(key in one for one in facts):
            return f"the manifest states facts and does not promise that they hold: {promise}"
    return ""


def _counted(content: _Content) -> Tables:
    """Return regions, allowed cells and persons of the rows whose cells can occur; others break another promise."""
    known = content.schema.position[content.cell]
    used = known >= 0
    return content.region[used].astype(np.int64), known[used], content.persons[used]


def _integers(tables: Any) -> Check:
    import pyarrow.types as kinds

    for name in ("level", PERSONS):
        column = tables.column(name)
        if not kinds.is_signed_integer(column.type) or column.null_count:
            return Check("integers", passed=False, detail=f"{TABLES}, column {name!r} does not hold integers only")
    return Check("integers", passed=True, detail="levels and counts are integers")


def _columns(folder: Folder, schema: Schema, block: int) -> tuple[_Content | None, Check]:
    """Return the columns of the tables, read a group of rows at a time, None where some are no integers."""
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
    """Tell whether no key occurs twice; those that rise, as written files' do, need no sorting."""
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
    """Yield rows of regions that have children, and of the children with minus signs: region above, cell, persons.

    Some parents at a time, with all rows that count there.
    """
    parent = content.regions.parent.astype(np.int32)
    inner = np.zeros(parent.size, np.bool_)
    inner[parent[parent >= 0]] = True
    up = parent[content.region]
    own, below = _Sorted.of(content.region), _Sorted.of(up)
    for start in range(0, parent.size, content.block):
        here, there = own.between(start, start + content.block), below.between(start, start + content.block)
        here = here[inner[content.region[here]]]
        yield (
            np.concatenate([content.region[here], up[there]]),
            np.concatenate([content.cell[here], content.cell[there]]),
            np.concatenate([content.persons[here], -content.persons[there]]),
        )


@dataclass(frozen=True, eq=False, slots=True)
class _Sorted:
    """Keys in rising order; ``order`` says where each stands, None where they rise already."""

    keys: Int32Array
    order: Int64Array | None

    @classmethod
    def of(cls, keys: Int32Array) -> _Sorted:
        """Sort keys that do not rise."""
        if (keys[1:] >= keys[:-1]).all():
            return cls(keys, None)
        order = np.argsort(keys, kind="stable")
        return cls(keys[order], order)

    def between(self, low: int, high: int) -> Int64Array:
        """Return the places of the keys low .. high - 1."""
        first, last = np.searchsorted(self.keys, [low, high])
        return np.arange(first, last) if self.order is None else self.order[first:last]


def _invariants(content: _Content) -> Check:
    return _stated_kept("invariants", EXACT, "answers", lambda: _broken_invariant(content))


def _stated_kept(name: str, file: str, what: str, broken: Callable[[], tuple[str, int]]) -> Check:
    """Check what a file states of the tables: ``broken`` returns the first failure, "" for none, and their number."""
    failure, checked = "", 0
    try:
        failure, checked = broken()
    except (CocoOptError, KeyError, TypeError, ValueError, IndexError) as error:
        failure = str(error) or f"{file} and the manifest's facts do not fit together"
    return Check(name, not failure, failure or f"{checked:,} stated {what} hold")


def _broken_invariant(content: _Content) -> tuple[str, int]:
    """Return the first stated answer that the tables do not keep, "" if all hold, and how many there are."""
    stated = read_columns(content.folder / EXACT, EXACT_COLUMNS)
    region, places, failure = _stated_answers(content, stated, EXACT)
    failure = failure or _left_out(content, region, places)
    if failure:
        return failure, 0
    lower, upper = int64_column(stated, "lower"), _upper(stated)
    for query, rows, answers in places:
        found = _answers(content, query, region[rows], answers)
        wrong = (found < lower[rows]) | (found > upper[rows])
        if wrong.any():
            first = first_of(wrong)
            path = content.regions.names[region[rows[first]]]
            return f"{path!r}: {query.text}, {query.label(int(answers[first]))} is not as stated", 0
    return "", region.size


def _left_out(content: _Content, region: Int64Array, places: Sequence[_Stated]) -> str:
    """Return which of the manifest's facts about answers is not stated for every region of its level, "" for none."""
    given = {query.text: (query, rows, answers) for query, rows, answers in places}
    for one in content.manifest["facts"]:
        if "query" not in one:
            continue
        missing = f"{EXACT} leaves out answers of {one['query']!r} by {one['level']}"
        if one["query"] not in given:
            return missing
        query, rows, answers = given[one["query"]]
        level = content.manifest["levels"].index(one["level"])
        here = content.regions.level[region[rows]] == level
        pairs = np.unique(region[rows[here]] * query.answers + answers[here])
        if pairs.size < np.count_nonzero(content.regions.level == level) * query.answers:
            return missing
    return ""


def _constraints(content: _Content) -> Check:
    return _stated_kept("constraints", CONSTRAINTS, "constraints", lambda: _broken_constraint(content))


def _broken_constraint(content: _Content) -> tuple[str, int]:
    """Return the first constraint that the tables do not keep, "" if all hold, and how many there are."""
    stated = read_columns(content.folder / CONSTRAINTS, CONSTRAINT_COLUMNS)
    if stated.column("fact").null_count:
        return f"{CONSTRAINTS}: a row names no constraint", 0
    region, fact = content.regions.at(stated.column("region")), int64_column(stated, "fact")
    if (region < 0).any():
        return f"{CONSTRAINTS}, row {first_of(region < 0) + 1}: no such region", 0
    sides = [
        np.asarray(stated.column(name).fill_null(none).to_numpy(), np.int64)
        for name, none in (("lower", -UNBOUNDED), ("upper", UNBOUNDED))
    ]
    facts = content.manifest["facts"]
    if np.unique(fact).tolist() != [number for number, one in enumerate(facts) if "terms" in one]:
        return f"{CONSTRAINTS}: the constraints are not those of the manifest", 0
    levels = np.array([content.manifest["levels"].index(one["level"]) for one in facts], np.int64)
    empty = (sides[0] <= -UNBOUNDED) & (sides[1] >= UNBOUNDED)
    if empty.any() or (levels[fact] != content.regions.level[region]).any():
        return f"{CONSTRAINTS}: a row states nothing, or of a region of another level", 0
    misnamed = content.regions.misnamed(stated, region)
    if misnamed:
        return f"{CONSTRAINTS}, row {misnamed[0] + 1}: not the region's {misnamed[1]}", 0
    known = content.schema.position[content.cell]
    for one in np.unique(fact).tolist():
        terms = tuple((int(weight), str(count)) for weight, count in facts[one]["terms"])
        weights = row_of(terms, content.schema)
        if not is_safe(np.abs(weights).max(initial=0) * content.persons.astype(np.float64)):
            return f"{facts[one]['constraint']!r} does not add up within 64 bits", 0
        counted = np.where(known >= 0, weights[np.maximum(known, 0)], 0) * content.persons
        values = np.zeros(len(content.regions.names), np.int64)
        np.add.at(values, content.region, counted)
        rows = np.flatnonzero(fact == one)
        wrong = (values[region[rows]] < sides[0][rows]) | (values[region[rows]] > sides[1][rows])
        if wrong.any():
            path = content.regions.names[region[rows[first_of(wrong)]]]
            return f"{path!r}: {facts[one]['constraint']!r} does not hold", 0
    return "", region.size


def _stated_answers(
    content: _Content, stated: Any, file: str, before: int = 0
) -> tuple[Int64Array, list[_Stated], str]:
    """Return the region of every row of answers, the rows and answers of each query, and what is wrong with them.

    ``before`` are the file's rows before these.
    """
    region, first = content.regions.at(stated.column("region")), before + 1
    if (region < 0).any():
        return region, [], f"{file}, row {first_of(region < 0) + first}: no such region"
    wrong = content.regions.misnamed(stated, region)
    if wrong:
        return region, [], f"{file}, row {wrong[0] + first}: not the region's {wrong[1]}"
    found: list[_Stated] = []
    codes, texts = coded(stated.column("query"))
    of_answer, known = coded(stated.column("answer"))
    if (codes == len(texts)).any():
        return region, [], f"{file}, row {first_of(codes == len(texts)) + first}: names no query"
    for code, text in enumerate(texts.to_pylist()):
        rows = np.flatnonzero(codes == code)
        query = parse_query(text, content.schema)
        answers = places(known, as_arrow(query.labels()))[of_answer[rows]]
        if (answers < 0).any():
            return region, [], f"{file}, row {int(rows[first_of(answers < 0)]) + 1}: {text!r} has no such answer"
        found.append((query, rows, answers))
    return region, found, ""


def _estimates(content: _Content) -> Check:
    """Look at every estimate: of a known region and answer, once, finite, with a standard error of at least 0."""
    failure, rows = "", 0
    last: dict[str, int] = {}  # by query, the place of its last answer while they rise, as written files' do
    unsorted: set[str] = set()
    try:
        for stated in read_parts(content.folder / ESTIMATES, ESTIMATE_COLUMNS, coded=True):
            region, found, failure = _stated_answers(content, stated, ESTIMATES, rows)
            for query, of_query, answers in found:
                here = np.append(last.get(query.text, -1), region[of_query] * query.answers + answers)
                last[query.text] = int(here[-1])
                if not (here[1:] > here[:-1]).all():
                    unsorted.add(query.text)
            value, error = (np.asarray(stated.column(name).to_numpy(), np.float64) for name in ESTIMATE_COLUMNS[-2:])
            wrong = ~(np.isfinite(value) & np.isfinite(error) & (error >= 0))
            if not failure and wrong.any():
                row = rows + first_of(wrong) + 1
                failure = f"{ESTIMATES}, row {row}: an estimate or its standard error is no number"
            if failure:
                break
            rows += stated.num_rows
        if not failure and unsorted and not _each_once(content, unsorted):
            failure = f"{ESTIMATES}: an answer of a region occurs twice"
    except (CocoOptError, ValueError) as error:
        failure = str(error)
    return Check("estimates", not failure, failure or f"{rows:,} estimates are of known answers")


def _each_once(content: _Content, texts: set[str]) -> bool:
    """Tell whether no answer of a region occurs twice among the estimates of some queries."""
    seen: dict[str, list[Int64Array]] = {text: [] for text in texts}
    for stated in read_parts(content.folder / ESTIMATES, ESTIMATE_COLUMNS, coded=True):
        region, found, _ = _stated_answers(content, stated, ESTIMATES)
        for query, of_query, answers in found:
            if query.text in seen:
                seen[query.text].append(region[of_query] * query.answers + answers)
    return all(_all_differ(np.concatenate(parts)) for parts in seen.values())


def _answers(content: _Content, query: Query, regions: Int64Array, answers: Int64Array) -> Int64Array:
    """Return one answer of a query a row, int64[rows], for regions and answers int64[rows], from the raw rows."""
    from scipy.sparse import csr_array

    kept, inverse = np.unique(regions, return_inverse=True)
    place = np.full(len(content.regions.names), -1, np.int64)
    place[kept] = np.arange(kept.size)
    used = (place[content.region] >= 0) & (content.schema.position[content.cell] >= 0)
    cells = content.schema.position[content.cell[used]]
    shape = (kept.size, content.schema.size)
    table = csr_array((content.persons[used], (place[content.region[used]], cells)), shape=shape)
    found = np.zeros(regions.size, np.int64)
    matrix = query.operator.to_sparse().astype(np.int64).tocsr()
    for start in range(0, kept.size, content.block):
        here = np.flatnonzero((inverse >= start) & (inverse < start + content.block))
        block = (table[start : start + content.block] @ matrix.T).toarray()
        found[here] = block[inverse[here] - start, answers[here]]
    return found


def _upper(stated: Any) -> Int64Array:
    """Return the upper sides, ``UNBOUNDED`` where there is none."""
    return np.asarray(stated.column("upper").fill_null(UNBOUNDED).to_numpy(), np.int64)


def _microdata(content: _Content) -> Check:
    """Count the persons of the microdata by region and cell: they must be the leaves' tables."""
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


def _merged(keys: Int64Array, counts: Int64Array, more: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Return distinct keys and how often each occurred, with more of them counted in."""
    added, times = np.unique(more, return_counts=True)
    merged, where = np.unique(np.concatenate([keys, added]), return_inverse=True)
    total = np.zeros(merged.size, np.int64)
    np.add.at(total, where, np.concatenate([counts, times]))
    return merged, total


def _cells(schema: Schema, table: Any) -> Int64Array:
    """Return the cell of every row's values among those of the product, negative for an unknown value."""
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
}
