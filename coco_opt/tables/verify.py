"""Check a release folder against its manifest's promises, from the raw files and without the code that wrote them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from coco_opt.errors import InputError
from coco_opt.histograms.arrays import Int64Array
from coco_opt.tables.checked import Check, first_of, int64_column, is_safe, positions, tree_check
from coco_opt.tables.folder import read_columns, read_manifest
from coco_opt.tables.persons import FORMAT
from coco_opt.tables.release import (
    HIERARCHY,
    HIERARCHY_COLUMNS,
    HISTOGRAM_COLUMNS,
    HISTOGRAMS,
)
from coco_opt.tables.verify_persons import verify_tables

PROMISES = ("integers", "nonnegative", "sizes_at_most_max_size", "group_totals", "children_sum_to_parents")


@dataclass(frozen=True, eq=False, slots=True)
class _Content:
    """The columns of both tables as arrays; ``parent`` and ``region`` are row numbers in the hierarchy table."""

    names: list[str]
    parent: Int64Array
    level: Int64Array
    totals: Int64Array
    region: Int64Array
    row_level: Int64Array
    sizes: Int64Array
    groups: Int64Array
    max_size: int


def verify_release(folder: str | Path) -> list[Check]:
    """Check that a release folder is whole and holds what its manifest promises; never raises on bad content.

    Always checked: the files can be read, numbers are integers, the hierarchy is a tree whose leaves lie at one
    depth, and every row of the histograms has a known region, the right level, a positive count and a size of its
    own. Promises checked where the manifest makes them: see ``PROMISES``. O(rows log rows).
    """
    folder = Path(folder)
    try:
        manifest = read_manifest(folder)
        if manifest.get("format") == FORMAT:
            return verify_tables(folder, manifest)
        hierarchy = read_columns(folder / HIERARCHY, HIERARCHY_COLUMNS)
        histograms = read_columns(folder / HISTOGRAMS, HISTOGRAM_COLUMNS)
    except InputError as error:
        return [Check("files", passed=False, detail=str(error))]
    checks = [Check("files", passed=True, detail="manifest and both tables can be read"), _manifest(manifest)]
    if not checks[-1].passed:
        return checks
    return checks + list(_content_checks(manifest, hierarchy, histograms))


def _content_checks(manifest: dict[str, Any], hierarchy: Any, histograms: Any) -> Iterator[Check]:
    """Yield the checks of both tables; promises that cannot be checked on what is there count as broken."""
    integers = _integers(hierarchy, histograms)
    yield integers
    promises = [name for name in PROMISES[1:] if name in manifest["promises"]]
    if integers.passed:
        content = _columns(manifest, hierarchy, histograms)
        structure = [_tree(content), _known_regions(content)]
        yield from structure
        if all(check.passed for check in structure):
            yield _rows(content)
            yield from (_PROMISE_CHECKS[name](content) for name in promises)
            return
    for name in promises:
        yield Check(name, passed=False, detail="not checked: the tables are not sound")


def _manifest(manifest: dict[str, Any]) -> Check:
    promises, max_size = manifest.get("promises"), manifest.get("max_size")
    problem = ""
    if not isinstance(promises, list) or not all(isinstance(name, str) for name in promises):
        problem = "promises must be a list of names"
    elif unknown := [name for name in promises if name not in PROMISES]:
        problem = f"promises what this version cannot check: {', '.join(unknown)}"
    elif not isinstance(max_size, int) or isinstance(max_size, bool) or max_size < 1:
        problem = "max_size must be a positive integer"
    return Check("manifest", not problem, problem or f"promises {len(promises or [])} properties")


def _integers(hierarchy: Any, histograms: Any) -> Check:
    import pyarrow.types as kinds

    for table, file, names in (
        (hierarchy, HIERARCHY, ("level", "groups")),
        (histograms, HISTOGRAMS, ("level", "size", "groups")),
    ):
        for name in names:
            column = table.column(name)
            signed = kinds.is_signed_integer(column.type)
            if not signed or column.null_count:
                what = "has empty entries" if signed else f"has type {column.type}"
                return Check("integers", passed=False, detail=f"{file}, column {name!r} {what}")
    return Check("integers", passed=True, detail="levels, sizes and counts are integers")


def _columns(manifest: dict[str, Any], hierarchy: Any, histograms: Any) -> _Content:
    names = hierarchy.column("region")
    return _Content(
        names=names.to_pylist(),
        parent=positions(hierarchy.column("parent"), names),
        level=int64_column(hierarchy, "level"),
        totals=int64_column(hierarchy, "groups"),
        region=positions(histograms.column("region"), names),
        row_level=int64_column(histograms, "level"),
        sizes=int64_column(histograms, "size"),
        groups=int64_column(histograms, "groups"),
        max_size=manifest["max_size"],
    )


def _tree(content: _Content) -> Check:
    return tree_check(content.names, content.parent, content.level)


def _known_regions(content: _Content) -> Check:
    unknown = content.region < 0
    if unknown.any():
        return Check("regions", passed=False, detail=f"row {first_of(unknown) + 1}: no such region")
    wrong = content.row_level != content.level[content.region]
    if wrong.any():
        return Check("regions", passed=False, detail=f"row {first_of(wrong) + 1}: not the region's level")
    return Check("regions", passed=True, detail="every row has a known region and its level")


def _rows(content: _Content) -> Check:
    order = np.lexsort((content.sizes, content.region))
    region, size = content.region[order], content.sizes[order]
    twice = (region[1:] == region[:-1]) & (size[1:] == size[:-1])
    if twice.any():
        row = int(order[1:][twice].min()) + 1
        return Check("rows", passed=False, detail=f"row {row}: this region and size occur twice")
    if np.any(content.groups == 0):
        row = first_of(content.groups == 0) + 1
        return Check("rows", passed=False, detail=f"row {row}: a row with 0 groups must be left out")
    return Check("rows", passed=True, detail="every region and size occurs once")


def _nonnegative(content: _Content) -> Check:
    negative = (content.groups < 0) | (content.sizes < 0)
    if negative.any():
        return Check("nonnegative", passed=False, detail=f"row {first_of(negative) + 1} is negative")
    if np.any(content.totals < 0):
        return Check("nonnegative", passed=False, detail="a number of groups in the hierarchy is negative")
    return Check("nonnegative", passed=True, detail="no size and no count is negative")


def _sizes(content: _Content) -> Check:
    outside = (content.sizes > content.max_size) | (content.sizes < 0)
    detail = f"row {first_of(outside) + 1} lies outside" if outside.any() else "sizes lie within"
    return Check("sizes_at_most_max_size", not outside.any(), f"{detail} 0..{content.max_size}")


def _group_totals(content: _Content) -> Check:
    name = "group_totals"
    if not is_safe(content.groups) or not is_safe(content.totals):
        return Check(name, passed=False, detail="the counts do not add up within 64 bits")
    found = np.zeros(len(content.names), np.int64)
    np.add.at(found, content.region, content.groups)
    wrong = found != content.totals
    if wrong.any():
        row = first_of(wrong)
        detail = f"{content.names[row]!r} has {found[row]:,} groups, the hierarchy says {content.totals[row]:,}"
        return Check(name, passed=False, detail=f"{np.count_nonzero(wrong)} regions differ; {detail}")
    below = np.zeros(len(content.names), np.int64)
    inner = content.parent >= 0
    np.add.at(below, content.parent[inner], content.totals[inner])
    parents = np.unique(content.parent[inner])
    off = parents[below[parents] != content.totals[parents]]
    if off.size:
        return Check(name, passed=False, detail=f"the parts of {content.names[off[0]]!r} do not add up to it")
    return Check(name, passed=True, detail=f"all regions have their public number of groups ({found.max():,})")


def _children_sum(content: _Content) -> Check:
    """Compare each inner region's runs with the sums of its children's: the difference must vanish everywhere."""
    name = "children_sum_to_parents"
    if not is_safe(content.groups):
        return Check(name, passed=False, detail="the counts do not add up within 64 bits")
    is_parent = np.zeros(len(content.names), bool)
    is_parent[content.parent[content.parent >= 0]] = True
    own = is_parent[content.region]
    up = content.parent[content.region]
    region = np.concatenate([content.region[own], up[up >= 0]])
    size = np.concatenate([content.sizes[own], content.sizes[up >= 0]])
    groups = np.concatenate([content.groups[own], -content.groups[up >= 0]])
    order = np.lexsort((size, region))
    region, size, groups = region[order], size[order], groups[order]
    new = np.ones(region.size, bool)
    new[1:] = (region[1:] != region[:-1]) | (size[1:] != size[:-1])
    starts = np.flatnonzero(new)
    rest = np.add.reduceat(groups, starts) if starts.size else groups
    if rest.any():
        where = int(starts[first_of(rest != 0)])
        detail = f"{content.names[region[where]]!r}, size {size[where]}, differs from the sum of its children"
        return Check(name, passed=False, detail=f"{np.count_nonzero(rest)} cells differ; {detail}")
    return Check(name, passed=True, detail="every region is the sum of its children at every size")


_PROMISE_CHECKS: dict[str, Callable[[_Content], Check]] = {
    "nonnegative": _nonnegative,
    "sizes_at_most_max_size": _sizes,
    "group_totals": _group_totals,
    "children_sum_to_parents": _children_sum,
}
