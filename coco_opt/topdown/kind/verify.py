"""Check the files of a release of tables against its promises, from raw columns, without the code that wrote them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from coco_opt.array_types import Ints
from coco_opt.errors import CocoOptError, InputError
from coco_opt.execution.temporary_storage import forget_pages
from coco_opt.files.differences import REGION
from coco_opt.files.folder import read_parts
from coco_opt.files.release_checks import BrokenError, Check, checked, refuse
from coco_opt.releases.kind import Folder
from coco_opt.topdown.kind.agreement import agreement_checks
from coco_opt.topdown.kind.files import CONSTRAINTS, ESTIMATES, EXACT, MICRODATA
from coco_opt.topdown.kind.intervals import INTERVALS
from coco_opt.topdown.kind.intervals import PROMISE as INTERVALS_PROMISE
from coco_opt.topdown.kind.raw_tables import RawTables, cells_of
from coco_opt.topdown.kind.stated_answers import (
    check_constraints,
    check_estimates,
    check_intervals,
    check_invariants,
)
from coco_opt.topdown.schema import schema_of
from coco_opt.topdown.table_queries import AGREES

_UNFIT = CocoOptError, KeyError, TypeError, ValueError, IndexError  # raised by files that do not fit their manifest
_BLOCK = 1 << 10  # regions whose dense answers are in memory at a time
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
    yield (rows := checked("rows", lambda: _rows(tables)))
    if not rows.passed:
        return
    failure = _missing_promise(folder.manifest)
    if failure:
        yield Check("facts", passed=False, detail=failure)
    for name in _PROMISE_CHECKS:
        if name in folder.manifest["promises"]:
            yield checked(name, partial(_PROMISE_CHECKS[name], tables))
            forget_pages()
    if AGREES in folder.manifest["promises"]:
        yield from agreement_checks(folder, schema, tables.allowed_rows)
    if (folder.path / ESTIMATES).exists():
        yield checked("estimates", partial(_estimates, tables))


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


def _rows(tables: RawTables) -> str:
    tables.refuse(lambda rows: tables.region[rows] < 0, "no such region")
    tables.refuse(lambda rows: tables.key[rows] < 0, "a value that its attribute does not have")
    tables.refuse(lambda rows: tables.counts[rows] == 0, "a row with 0 persons must be left out")
    if tables.misplaced:
        raise BrokenError(tables.misplaced)
    tables.refuse_repeated("a region and cell occur twice")
    return "every region and cell occurs once"


def _nonnegative(tables: RawTables) -> str:
    tables.refuse(lambda rows: tables.counts[rows] < 0, "is negative")
    return "no count is negative"


def _zeros(tables: RawTables) -> str:
    tables.refuse(lambda rows: tables.allowed(rows) < 0, "is ruled out")
    rules = len(tables.schema.rules)
    return f"no person where one of {rules} rules forbids one" if rules else "none are stated"


def _children_sum(tables: RawTables) -> str:
    tables.refuse_other_sums(tables.schema.product_label, tables.block)
    return "every region is the sum of its children in every cell"


def _stated(file: str, what: str, check: Callable[[RawTables], int]) -> Callable[[RawTables], str]:
    """Return a look at what a file states: ``check`` returns how many statements hold, or raises BrokenError."""

    def look(tables: RawTables) -> str:
        try:
            return f"{check(tables):,} {what}"
        except BrokenError:
            raise
        except _UNFIT as error:
            raise BrokenError(str(error) or f"{file} and the manifest do not fit together") from None

    return look


def _microdata(tables: RawTables) -> str:
    """Count the persons of the microdata by region and cell: the counts must equal the leaves' tables."""
    keys, counts, before = np.zeros(0, np.int64), np.zeros(0, np.int64), 0
    try:
        for part in read_parts(tables.folder / MICRODATA, (*REGION, *tables.schema.names), coded=True):
            region, cell = tables.regions.at(part.column("region")), cells_of(tables.schema, part)
            tables.regions.refuse_misnamed(part, region, MICRODATA, before)
            refuse(cell < 0, "a value that its attribute does not have", MICRODATA, before)
            keys, counts = _merged(keys, counts, region * tables.schema.cells + cell)
            before += part.num_rows
    except InputError as error:
        raise BrokenError(str(error)) from None
    leaves = np.flatnonzero(tables.regions.level[tables.region] == tables.regions.level.max())
    leaves = leaves[np.argsort(tables.numbers(leaves))]
    if not (np.array_equal(keys, tables.numbers(leaves)) and np.array_equal(counts, tables.counts[leaves])):
        raise BrokenError("the persons make other tables")
    return f"{counts.sum():,} persons make the tables of the leaves"


def _merged(keys: Ints, counts: Ints, more: Ints) -> tuple[Ints, Ints]:
    """Return distinct keys and their counts after more keys are added."""
    added, times = np.unique(more, return_counts=True)
    merged, where = np.unique(np.concatenate([keys, added]), return_inverse=True)
    total = np.zeros(merged.size, np.int64)
    np.add.at(total, where, np.concatenate([counts, times]))
    return merged, total


_PROMISE_CHECKS: dict[str, Callable[[RawTables], str]] = {
    "nonnegative": _nonnegative,
    "structural_zeros": _zeros,
    "children_sum_to_parents": _children_sum,
    INVARIANTS_HOLD: _stated(EXACT, "stated answers hold", check_invariants),
    CONSTRAINTS_HOLD: _stated(CONSTRAINTS, "stated constraints hold", check_constraints),
    MICRODATA_AGREE: _microdata,
    INTERVALS_PROMISE: _stated(INTERVALS, "intervals hold their released answers", check_intervals),
}
_estimates = _stated(ESTIMATES, "estimates are of known answers", check_estimates)
