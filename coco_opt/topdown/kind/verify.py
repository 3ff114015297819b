"""Check the files of a release of tables against its promises, from raw columns, without the code that wrote them.

Where the tables agree with earlier releases, these are found by digest, and raw columns compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from coco_opt.errors import CocoOptError
from coco_opt.execution.temporary_storage import forget_pages
from coco_opt.files.arrow_texts import positions
from coco_opt.files.differences import REGION
from coco_opt.files.folder import MANIFEST, file_digest, read_columns, read_manifest, read_parts
from coco_opt.files.release_checks import BrokenError, Check, Regions, checked, first_of, int64_column, refuse
from coco_opt.histograms.arrays import summed
from coco_opt.operators import Grouping
from coco_opt.privacy.cost import cost_of
from coco_opt.releases.kind import Folder
from coco_opt.releases.verify import verify_release
from coco_opt.topdown.constraint import TOTAL, counted
from coco_opt.topdown.kind.earlier_releases import spent_in_all
from coco_opt.topdown.kind.files import ESTIMATES, MICRODATA, PERSONS, TABLES
from coco_opt.topdown.kind.intervals import PROMISE as INTERVALS_PROMISE
from coco_opt.topdown.kind.raw_tables import (
    RawTables,
    Tables,
    cells_of,
    check_constraints,
    check_estimates,
    check_intervals,
    check_invariants,
)
from coco_opt.topdown.queries import parse_query
from coco_opt.topdown.schema import Schema, schema_of
from coco_opt.topdown.table_queries import AGREES

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
        yield Check("integers", passed=False, detail=error.words)
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
        yield checked("estimates", partial(check_estimates, tables))


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


def _microdata(tables: RawTables) -> str:
    """Count the persons of the microdata by region and cell: the counts must equal the leaves' tables."""
    keys, counts, before = np.zeros(0, np.int64), np.zeros(0, np.int64), 0
    for part in read_parts(tables.folder / MICRODATA, (*REGION, *tables.schema.names), coded=True):
        region, cell = tables.regions.at(part.column("region")), cells_of(tables.schema, part)
        tables.regions.refuse_misnamed(part, region, MICRODATA, before)
        refuse(cell < 0, "a value that its attribute does not have", MICRODATA, before)
        more = region * tables.schema.cells + cell
        keys, counts = summed(np.append(keys, more), np.append(counts, np.ones_like(more)))
        before += part.num_rows
    leaves = np.flatnonzero(tables.regions.hierarchy.level[tables.region] == tables.regions.hierarchy.level.max())
    leaves = leaves[np.argsort(tables.numbers(leaves))]
    if not (np.array_equal(keys, tables.numbers(leaves)) and np.array_equal(counts, tables.counts[leaves])):
        raise BrokenError("the persons make other tables")
    return f"{counts.sum():,} persons make the tables of the leaves"


_PROMISE_CHECKS: dict[str, Callable[[RawTables], str]] = {
    "nonnegative": _nonnegative,
    "structural_zeros": _zeros,
    "children_sum_to_parents": _children_sum,
    INVARIANTS_HOLD: check_invariants,
    CONSTRAINTS_HOLD: check_constraints,
    MICRODATA_AGREE: _microdata,
    INTERVALS_PROMISE: check_intervals,
}


def agreement_checks(folder: Folder, schema: Schema, tables: Tables) -> Iterator[Check]:
    """Yield a check for each earlier release: it is unchanged, keeps its promises, and the tables agree with it."""
    entries, budget = folder.manifest[AGREES], folder.manifest["budget"]
    if folder.manifest["spent_in_all"] != spent_in_all(cost_of(budget), budget["neighbours"], entries):
        yield Check(AGREES, passed=False, detail="what all releases cost together is not what each of them says")
    for entry in entries:
        failure = ""
        try:
            failure = _failure(folder, schema, tables, entry)
        except (CocoOptError, LookupError, TypeError, ValueError) as error:
            failure = str(error) or "what the manifest says of it is missing or wrong"
        name = entry.get("release") if isinstance(entry, Mapping) else None
        detail = f"{name!r}: {failure}" if failure else f"exactly what {name!r} published, in every region"
        yield Check(AGREES, not failure, detail)


def _failure(folder: Folder, schema: Schema, tables: Tables, entry: Mapping[str, Any]) -> str:
    places = (folder.path.absolute().parent, *folder.earlier)
    candidates = list(_candidates(places, folder.path))
    release = next((path for path in candidates if file_digest(path / MANIFEST) == entry["manifest"]), None)
    if release is None:
        changed = [path for path in candidates if _matches_entry(path, entry)]
        seen = f"; {changed[0].name} has its name and another manifest: it was edited, or made anew" if changed else ""
        return (
            f"the release that these tables agree with was not found{seen}. Restore it, or name it with --earlier DIR"
        )
    failed = [check for check in verify_release(release, folder.earlier) if not check.passed]
    if failed:
        return f"{release.name} fails a check, {failed[0].name}: {failed[0].detail}"
    manifest = read_manifest(release)
    for key in ("name", "kind", "measurement", "receipt", "private", AGREES):
        stated = entry["release"] if key == "name" else entry.get(key, [])
        if stated != manifest.get(key, []):
            return f"{release.name} is not as it is described here: {key}"
    if any(manifest["budget"].get(key) != value for key, value in entry["budget"].items()):
        return f"{release.name} did not cost what is said here"
    compare = _groups_differ if "groups" in entry else _tables_differ
    return compare(release, folder.regions, schema, tables, entry)


def _candidates(places: Sequence[Path], own: Path) -> Iterator[Path]:
    """Yield the release folders among the given folders and directly inside them."""
    for place in places:
        inside = sorted(place.iterdir()) if place.is_dir() else []
        for path in (place, *inside):
            if (path / MANIFEST).is_file() and path.absolute() != own.absolute():
                yield path


def _matches_entry(path: Path, entry: Mapping[str, Any]) -> bool:
    try:
        manifest = read_manifest(path)
    except CocoOptError:
        return False
    return bool(manifest.get("name") == entry["release"] and manifest.get("kind") == entry["kind"])


def _tables_differ(release: Path, regions: Regions, schema: Schema, tables: Tables, entry: Mapping[str, Any]) -> str:
    """Return where sums over the shared attributes differ; "" if they do not."""
    query = parse_query(" * ".join(entry["on"]) or TOTAL, schema)
    rows = read_columns(release / TABLES, ("level", "region", *entry["on"], PERSONS))
    mask = int64_column(rows, "level") == entry["level"]
    codes, size = np.zeros(np.count_nonzero(mask), np.int64), 1
    for factor in query.factors:
        code = positions(rows.column(factor.title), factor.answers)[mask]
        if (code < 0).any():
            return f"{release.name} has values of {factor.title!r} that these tables lack"
        codes, size = codes * len(factor.answers) + code, size * len(factor.answers)
    theirs = regions.at(rows.column("region"))[mask]
    if (theirs < 0).any() or not isinstance(query.operator, Grouping):
        return f"{release.name} has regions or attributes that these tables lack"
    region, cell, persons = tables
    mine = regions.hierarchy.level[region] == entry["level"]
    answer = query.operator.labels[cell[mine]]
    if (answer < 0).any():
        return "the shared attributes leave out persons of these tables"
    keys = np.concatenate([region[mine] * size + query.combinations[answer], theirs * size + codes])
    counts = np.concatenate([persons[mine], -int64_column(rows, PERSONS)[mask]])
    different, where = np.unique(keys, return_inverse=True)
    rest = np.zeros(different.size, np.int64)
    np.add.at(rest, where, counts)
    if not rest.any():
        return ""
    path = regions.paths[int(different[first_of(rest != 0)]) // size]
    return f"{np.count_nonzero(rest):,} answers differ from {release.name}; the first lies in {path!r}"


def _groups_differ(release: Path, regions: Regions, schema: Schema, tables: Tables, entry: Mapping[str, Any]) -> str:
    """Return where persons or householders differ from those of the groups; "" if they do not."""
    from coco_opt.groups.kind.files import HISTOGRAMS

    rows = read_columns(release / HISTOGRAMS, ("level", "region", "size", "groups"))
    mask = int64_column(rows, "level") == entry["level"]
    theirs = regions.at(rows.column("region"))[mask]
    if (theirs < 0).any():
        return f"{release.name} has regions that these tables lack"
    size, groups = int64_column(rows, "size")[mask], int64_column(rows, "groups")[mask]
    most = int(read_manifest(release)["max_size"])
    level = regions.hierarchy.level == entry["level"]
    published = {"persons": size * groups, "householders": np.where(size > 0, groups, 0)}
    region, cell, persons = tables
    open_ended = np.zeros(level.size, np.bool_)
    open_ended[theirs[(size >= most) & (groups > 0)]] = True
    for what, conditions in entry["groups"].items():
        sums, mine = np.zeros(level.size, np.int64), np.zeros(level.size, np.int64)
        np.add.at(sums, theirs, published[what])
        np.add.at(mine, region, np.where(counted(conditions, schema)[cell], persons, 0))
        more = open_ended if what == "persons" else np.zeros(level.size, np.bool_)
        wrong = level & ((mine < sums) | ((mine > sums) & ~more))
        if wrong.any():
            path = regions.paths[first_of(wrong)]
            return f"{np.count_nonzero(wrong):,} regions have other {what} than {release.name}; the first is {path!r}"
    return ""
