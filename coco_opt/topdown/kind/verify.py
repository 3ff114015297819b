"""Check the files of a release of tables against its promises, from raw columns, without the code that wrote them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coco_opt.array_types import Flags, Ints
from coco_opt.errors import CocoOptError, InputError
from coco_opt.execution.temporary_storage import forget_pages
from coco_opt.files.differences import REGION
from coco_opt.files.folder import read_parts
from coco_opt.files.release_checks import Check, first_of, is_safe
from coco_opt.releases.kind import Folder
from coco_opt.topdown.kind.agreement import agreement_checks
from coco_opt.topdown.kind.files import CONSTRAINTS, ESTIMATES, EXACT, MICRODATA
from coco_opt.topdown.kind.intervals import INTERVALS
from coco_opt.topdown.kind.intervals import PROMISE as INTERVALS_PROMISE
from coco_opt.topdown.kind.raw_tables import BrokenError, RawTables, cells_of, differ_by_rows, rising
from coco_opt.topdown.kind.stated_answers import (
    check_constraints,
    check_estimates,
    check_intervals,
    check_invariants,
)
from coco_opt.topdown.schema import schema_of
from coco_opt.topdown.table_queries import AGREES

Int32Array = NDArray[np.int32]

_UNFIT = CocoOptError, KeyError, TypeError, ValueError, IndexError  # raised by files that do not fit their manifest
_BLOCK = 1 << 10  # regions whose dense answers are in memory at a time
_AT_ONCE = 1 << 16  # regions after which pages of files leave the memory
ALWAYS = ("nonnegative", "structural_zeros", "children_sum_to_parents")
INVARIANTS_HOLD, CONSTRAINTS_HOLD, MICRODATA_AGREE = "invariants", "constraints", "microdata"
PROMISES = (*ALWAYS, INVARIANTS_HOLD, CONSTRAINTS_HOLD, MICRODATA_AGREE, INTERVALS_PROMISE, AGREES)


def checks_of(folder: Folder, block: int = _BLOCK) -> Iterator[Check]:
    """Check the tables of a folder and every promise of its manifest; promises that cannot be checked are skipped.

    Always checked: counts are integers; every row has a known region, its level, known values and a distinct cell; and
    estimates are of known answers. Dense answers of ``block`` regions are in memory at a time. O(rows log rows). Raises
    InputError where a file cannot be read.
    """
    schema = schema_of(folder.manifest.get("schema", {}))
    try:
        tables = RawTables.read(folder, schema, block)
    except BrokenError as error:
        yield Check("integers", passed=False, detail=str(error))
        return
    yield Check("integers", passed=True, detail="levels and counts are integers")
    rows = _rows(tables)
    yield rows
    if not rows.passed:
        return
    failure = _missing_promise(folder.manifest)
    if failure:
        yield Check("facts", passed=False, detail=failure)
    for name in _PROMISE_CHECKS:
        if name in folder.manifest["promises"]:
            yield _PROMISE_CHECKS[name](tables)
            forget_pages()
    if AGREES in folder.manifest["promises"]:
        yield from agreement_checks(folder, schema, tables.allowed_rows)
    if (folder.path / ESTIMATES).exists():
        yield _estimates(tables)


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


def _rows(tables: RawTables) -> Check:
    wrongs: tuple[tuple[Callable[[slice], Flags], str], ...] = (
        (lambda rows: tables.region[rows] < 0, "no such region"),
        (lambda rows: tables.cell[rows] < 0, "a value that its attribute does not have"),
        (lambda rows: tables.persons[rows] == 0, "a row with 0 persons must be left out"),
    )
    for is_wrong, what in wrongs:
        if row := _first_row(tables, is_wrong):
            return Check("rows", passed=False, detail=f"row {row}: {what}")
    if tables.misplaced:
        return Check("rows", passed=False, detail=tables.misplaced)
    if not differ_by_rows(tables):
        return Check("rows", passed=False, detail="a region and cell occur twice")
    return Check("rows", passed=True, detail="every region and cell occurs once")


def _first_row(tables: RawTables, is_wrong: Callable[[slice], Flags]) -> int:
    """Return the first row that is wrong, counted from 1; 0 where none is."""
    for rows in tables.pieces():
        wrong = is_wrong(rows)
        if wrong.any():
            return int(rows.start) + first_of(wrong) + 1
    return 0


def _nonnegative(tables: RawTables) -> Check:
    row = _first_row(tables, lambda rows: tables.persons[rows] < 0)
    return Check("nonnegative", not row, f"row {row} is negative" if row else "no count is negative")


def _zeros(tables: RawTables) -> Check:
    row, rules = _first_row(tables, lambda rows: tables.allowed(rows) < 0), len(tables.schema.rules)
    held = f"no person where one of {rules} rules forbids one" if rules else "none are stated"
    detail = f"row {row} is ruled out" if row else held
    return Check("structural_zeros", not row, detail)


def _children_sum(tables: RawTables) -> Check:
    """Compare each inner region's cells with the sums of its children's: the difference must vanish everywhere."""
    name = "children_sum_to_parents"
    if not is_safe(*(tables.persons[rows] for rows in tables.pieces())):
        return Check(name, passed=False, detail="the counts do not add up within 64 bits")
    wrong, first = 0, ""
    for region, cell, persons in _families(tables):
        keys, where = np.unique(region * np.int64(tables.schema.cells) + cell, return_inverse=True)
        rest = np.zeros(keys.size, np.int64)
        np.add.at(rest, where, persons)
        if rest.any():
            first = first or tables.regions.names[int(keys[first_of(rest != 0)]) // tables.schema.cells]
            wrong += int(np.count_nonzero(rest))
    if wrong:
        return Check(name, passed=False, detail=f"{wrong} cells differ; the first lies in {first!r}")
    return Check(name, passed=True, detail="every region is the sum of its children in every cell")


def _families(tables: RawTables) -> Iterator[tuple[Ints, Ints, Ints]]:
    """Yield rows of regions with children, and negated rows of those children: parent region, cell, persons.

    Each item holds some parents with all rows that count there.
    """
    parent = tables.regions.parent
    inner = np.zeros(parent.size, np.bool_)
    inner[parent[parent >= 0]] = True
    own, below = _Sorted.of(tables.region), _below(tables)
    for start in range(0, parent.size, tables.block):
        parent_rows, child_rows = own.between(start, start + tables.block), below(start, start + tables.block)
        parent_rows = parent_rows[inner[tables.region[parent_rows]]]
        yield (
            np.concatenate([tables.region[parent_rows], parent[tables.region[child_rows]]]),
            np.concatenate([tables.cell[parent_rows], tables.cell[child_rows]]),
            np.concatenate([tables.persons[parent_rows], -tables.persons[child_rows]]),
        )
        if start % _AT_ONCE == 0:
            forget_pages()


def _below(tables: RawTables) -> Callable[[int, int], Ints]:
    """Return what finds the rows whose parents are some regions, low .. high - 1.

    Where rows and parents rise, as in written files, these rows and their regions lie together.
    """
    parent = tables.regions.parent
    if not (rising(tables.region) and rising(parent)):
        return _Sorted.of(parent[tables.region].astype(np.int32)).between
    rows, regions = _Sorted(tables.region, None), _Sorted(parent, None)

    def between(low: int, high: int) -> Ints:
        children = regions.between(low, high)
        return rows.between(int(children[0]), int(children[-1]) + 1) if children.size else children

    return between


@dataclass(frozen=True, eq=False, slots=True)
class _Sorted:
    """Keys in rising order; ``order`` is the original position of each, None if they rise already."""

    keys: Int32Array | Ints
    order: Ints | None

    @classmethod
    def of(cls, keys: Int32Array) -> _Sorted:
        """Sort keys unless they rise already."""
        if rising(keys):
            return cls(keys, None)
        order = np.argsort(keys, kind="stable")
        return cls(keys[order], order)

    def between(self, low: int, high: int) -> Ints:
        """Return the original positions of the keys low .. high - 1."""
        # Bounds of another type would have all keys converted at every call.
        first, last = np.searchsorted(self.keys, np.array([low, high], self.keys.dtype))
        return np.arange(first, last) if self.order is None else self.order[first:last]


def _stated(name: str, file: str, what: str, check: Callable[[RawTables], int]) -> Callable[[RawTables], Check]:
    """Return a check of what a file states: ``check`` returns how many statements hold, or raises BrokenError."""

    def checked(tables: RawTables) -> Check:
        try:
            return Check(name, passed=True, detail=f"{check(tables):,} {what}")
        except _UNFIT as error:
            return Check(name, passed=False, detail=str(error) or f"{file} and the manifest do not fit together")

    return checked


def _microdata(tables: RawTables) -> Check:
    """Count the persons of the microdata by region and cell: the counts must equal the leaves' tables."""
    failure, keys, counts = "", np.zeros(0, np.int64), np.zeros(0, np.int64)
    try:
        for part in read_parts(tables.folder / MICRODATA, (*REGION, *tables.schema.names), coded=True):
            region = tables.regions.at(part.column("region"))
            cell = cells_of(tables.schema, part)
            if (region < 0).any() or (cell < 0).any() or tables.regions.misnamed(part, region):
                raise InputError("unknown-value", "a person has no known region or values, or other names of it")
            keys, counts = _merged(keys, counts, region * tables.schema.cells + cell)
    except InputError as error:
        failure = str(error)
    if failure:
        return Check("microdata", passed=False, detail=failure)
    leaves = np.flatnonzero(tables.regions.level[tables.region] == tables.regions.level.max())
    leaves = leaves[np.argsort(tables.keys(leaves))]
    same = np.array_equal(keys, tables.keys(leaves)) and np.array_equal(counts, tables.persons[leaves])
    detail = f"{counts.sum():,} persons make the tables of the leaves" if same else "the persons make other tables"
    return Check("microdata", same, detail)


def _merged(keys: Ints, counts: Ints, more: Ints) -> tuple[Ints, Ints]:
    """Return distinct keys and their counts after more keys are added."""
    added, times = np.unique(more, return_counts=True)
    merged, where = np.unique(np.concatenate([keys, added]), return_inverse=True)
    total = np.zeros(merged.size, np.int64)
    np.add.at(total, where, np.concatenate([counts, times]))
    return merged, total


_PROMISE_CHECKS: dict[str, Callable[[RawTables], Check]] = {
    "nonnegative": _nonnegative,
    "structural_zeros": _zeros,
    "children_sum_to_parents": _children_sum,
    INVARIANTS_HOLD: _stated("invariants", EXACT, "stated answers hold", check_invariants),
    CONSTRAINTS_HOLD: _stated("constraints", CONSTRAINTS, "stated constraints hold", check_constraints),
    MICRODATA_AGREE: _microdata,
    INTERVALS_PROMISE: _stated(INTERVALS_PROMISE, INTERVALS, "intervals hold their released answers", check_intervals),
}
_estimates = _stated("estimates", ESTIMATES, "estimates are of known answers", check_estimates)
